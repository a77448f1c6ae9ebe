//! Functions fit on a screen, and what a type does stands in few files. A table lists types in more
//! files; it only shrinks.

use std::collections::{BTreeMap, BTreeSet};

use eyas_tree::files;

/// Most lines of a function, with its head and its last brace.
const MAX_FUNCTION_LINES: usize = 70;

/// Most files in which the inherent `impl`s of a type stand.
const MAX_FILES_OF_A_TYPE: usize = 3;

/// Types in more files: a room, a type and the number of its files.
const SCATTERED: &[(&str, &str, usize)] = &[
    ("compute/executor", "ExecutorCore", 4),
    ("compute/executor", "TaskRunner", 4),
    ("core/sched", "Scheduler", 4),
    ("core/sched", "SchedulerState", 4),
    ("data/store", "ObjectStore", 8),
    ("doors/cli", "DfsSession", 4),
    ("doors/client", "Client", 5),
];

/// Names and lines of the functions of a file, as rustfmt lays them out.
fn functions(code: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = function_name(line) else { continue };
        let end = format!("{}}}", " ".repeat(indent));
        let is_end = |line: &&str| {
            **line == *end || line.trim_end().ends_with(';') && indent_of(line) == indent
        };
        let one_line = line.ends_with('}') || line.ends_with(';');
        if let Some(last) = lines[first..].iter().position(is_end).filter(|_| !one_line) {
            found.push((name.to_owned(), last + 1));
        }
    }
    found
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn function_name(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let before = words.find("fn ").filter(|at| {
        let head = &words[..*at];
        head.split_whitespace().all(|word| {
            word.starts_with("pub")
                || word.ends_with(')')
                || ["async", "const", "unsafe", "extern", "\"C\""].contains(&word)
        })
    })?;
    words[before + 3..].split(['(', '<']).next()
}

/// The type of an inherent `impl` that begins on this line.
fn type_of_impl(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(parameters) => {
            let mut depth = 1;
            let end = parameters.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            })?;
            &parameters[end + 1..]
        }
        None => rest,
    };
    let name = rest.strip_prefix(' ')?.split(['<', ' ', '{']).next()?;
    (!rest.contains(" for ")).then_some(name)
}

/// The folder of a file's crate.
fn room_of(file: &str) -> &str {
    file.split("/src/").next().unwrap_or_default()
}

fn sources() -> Vec<(String, String)> {
    let is_code = |file: &str| file.contains("/src/") && !file.contains("/tests");
    files(&["rs"]).into_iter().filter(|(file, _)| is_code(file)).collect()
}

#[test]
fn functions_fit_on_a_screen() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        let long = functions(&code).into_iter().filter(|(_, lines)| *lines > MAX_FUNCTION_LINES);
        wrong.extend(long.map(|(name, lines)| format!("{file}: {name} has {lines} lines")));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn impls_of_a_type_stand_in_few_files() {
    let mut places: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (file, code) in sources() {
        for name in code.lines().filter_map(type_of_impl) {
            let key = (room_of(&file).to_owned(), name.to_owned());
            places.entry(key).or_default().insert(file.clone());
        }
    }
    let mut rows: BTreeMap<_, _> =
        SCATTERED.iter().map(|(room, name, files)| ((*room, *name), *files)).collect();
    let mut wrong = Vec::new();
    for ((room, name), files) in &places {
        let (row, files) = (rows.remove(&(&**room, &**name)), files.len());
        if files != row.unwrap_or(files.min(MAX_FILES_OF_A_TYPE)) {
            wrong.push(format!(
                "{room}: the impls of {name} stand in {files} files, and its row says {row:?}"
            ));
        }
    }
    wrong.extend(rows.keys().map(|(room, name)| format!("{room}: {name} needs no row")));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

// ---- the checks themselves

#[test]
fn functions_and_impls_are_found_as_rustfmt_lays_them_out() {
    let code = "impl A {\n    pub(crate) async fn f(\n        x: u8,\n    ) -> u8 {\n        x\n\
                \x20   }\n\n    fn g() {}\n}\n\nfn h<T>() {\n    todo();\n}\n// fn no() {\n\
                trait B {\n    fn i(&self);\n}\n";
    assert_eq!(functions(code), [("f".to_owned(), 5), ("h".to_owned(), 3)]);
    assert_eq!(type_of_impl("impl<'a, T: Into<U>> Writer<'a, T> {"), Some("Writer"));
    assert_eq!(type_of_impl("impl Reader {"), Some("Reader"));
    assert_eq!(type_of_impl("impl Drop for Reader {"), None);
}
