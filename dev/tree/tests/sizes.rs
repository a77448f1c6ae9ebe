//! Functions fit on a screen, and what a type does stands in few files. The tables list the exceptions; they only
//! shrink.

use std::collections::{BTreeMap, BTreeSet};

use eyas_tree::files;

/// Most lines of a function, with its head and its last brace.
const MAX_FUNCTION_LINES: usize = 70;

/// Longer functions: a file, a function and its lines.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    ("compute/executor/src/process/worker.rs", "answer", 81),
    ("compute/executor/src/run.rs", "live", 146),
    ("compute/executor/src/session.rs", "serve", 136),
    ("compute/executor/src/task/call.rs", "call", 86),
    ("core/jobs/src/job.rs", "book", 79),
    ("core/ring/src/serve.rs", "decide", 90),
    ("core/sched/src/scheduler.rs", "handle", 77),
    ("data/dfs/src/client/replicas.rs", "replicate", 73),
    ("data/dfs/src/node.rs", "start", 72),
    ("doors/cli/src/commands/job.rs", "job", 76),
    ("doors/cli/src/commands/map.rs", "map", 73),
    ("doors/cli/src/commands/start.rs", "executor", 122),
    ("doors/cli/src/report/example.rs", "monotonically_increasing", 78),
    ("doors/cli/src/report/figure.rs", "comparisons", 78),
    ("doors/cli/src/shim/sbatch.rs", "prepare", 120),
    ("doors/client/src/jobfile.rs", "add_input", 92),
    ("doors/client/src/jobfile.rs", "add_to", 73),
];

/// Most files in which the inherent `impl`s of a type stand.
const MAX_FILES_OF_A_TYPE: usize = 3;

/// Types in more files: a room, a type and the number of its files.
const SCATTERED: &[(&str, &str, usize)] = &[
    ("compute/dispatcher", "DispatcherCore", 9),
    ("compute/executor", "ExecutorCore", 4),
    ("compute/executor", "TaskRunner", 4),
    ("compute/pools", "Pool", 4),
    ("compute/sim", "Run", 10),
    ("core/blocks", "Blocks", 5),
    ("core/jobs", "Job", 8),
    ("core/jobs", "Jobs", 10),
    ("core/node", "Node", 5),
    ("core/ring", "RingNode", 13),
    ("core/sched", "Scheduler", 4),
    ("core/sched", "SchedulerState", 4),
    ("data/dfs", "DfsClient", 24),
    ("data/mount", "Mounted", 11),
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
        let is_end = |line: &&str| **line == *end || line.trim_end().ends_with(';') && indent_of(line) == indent;
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

/// What exceeds a bound without a row, and rows that are not true.
fn compare(found: &BTreeMap<(String, String), usize>, table: &[(&str, &str, usize)], what: &str) -> Vec<String> {
    let listed: BTreeMap<(String, String), usize> =
        table.iter().map(|(place, name, most)| (((*place).to_owned(), (*name).to_owned()), *most)).collect();
    let keys: BTreeSet<_> = found.keys().chain(listed.keys()).collect();
    let mut wrong = Vec::new();
    for key in keys {
        let (place, name) = key;
        match (found.get(key), listed.get(key)) {
            (Some(now), None) => wrong.push(format!("{place}: {name} has {now} {what}")),
            (Some(now), Some(most)) if now != most => {
                wrong.push(format!("{place}: {name} has {now} {what}, and its row says {most}"));
            }
            (None, Some(_)) => wrong.push(format!("{place}: {name} needs no row")),
            _ => {}
        }
    }
    wrong
}

fn sources() -> Vec<(String, String)> {
    let is_code = |file: &str| file.contains("/src/") && !file.contains("/tests");
    files(&["rs"]).into_iter().filter(|(file, _)| is_code(file)).collect()
}

#[test]
fn functions_fit_on_a_screen() {
    let mut found = BTreeMap::new();
    for (file, code) in sources() {
        let long = functions(&code).into_iter().filter(|(_, lines)| *lines > MAX_FUNCTION_LINES);
        found.extend(long.map(|(name, lines)| ((file.clone(), name), lines)));
    }
    let wrong = compare(&found, LONG_FUNCTIONS, "lines");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn what_a_type_does_stands_in_few_files() {
    let mut places: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (file, code) in sources() {
        for name in code.lines().filter_map(type_of_impl) {
            let key = (room_of(&file).to_owned(), name.to_owned());
            places.entry(key).or_default().insert(file.clone());
        }
    }
    let scattered = places.into_iter().map(|(key, files)| (key, files.len()));
    let found = scattered.filter(|(_, files)| *files > MAX_FILES_OF_A_TYPE).collect();
    let wrong = compare(&found, SCATTERED, "files");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

// ---- the checks themselves

#[test]
fn functions_and_impls_are_found_as_rustfmt_lays_them_out() {
    let code = "impl A {\n    pub(crate) async fn f(\n        x: u8,\n    ) -> u8 {\n        x\n    }\n\n\
                \x20   fn g() {}\n}\n\nfn h<T>() {\n    todo();\n}\n// fn no() {\ntrait B {\n    fn i(&self);\n}\n";
    assert_eq!(functions(code), [("f".to_owned(), 5), ("h".to_owned(), 3)]);
    assert_eq!(type_of_impl("impl<'a, T: Into<U>> Writer<'a, T> {"), Some("Writer"));
    assert_eq!(type_of_impl("impl Reader {"), Some("Reader"));
    assert_eq!(type_of_impl("impl Drop for Reader {"), None);
}
