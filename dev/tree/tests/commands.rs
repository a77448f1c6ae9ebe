//! Every command that a message, a comment or a page names, as in `eyas job list`, exists.

use std::collections::BTreeSet;

use eyas_tree::{files, root};

/// Commands that are not in the reference, and why.
const HIDDEN: &[(&str, &str)] = &[("worker", "processes of eyas start it, not people")];

/// Commands that there were. What is said of the past names them.
const FORMER: &[&str] = &["sim", "model"];

/// Options before a command that have a value.
const WITH_VALUE: &[&str] = &["--cluster", "--access"];

/// Every command of the reference, such as `job list`.
fn commands() -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/reference/cli.md")).expect("a page");
    page.lines().filter_map(|line| line.strip_prefix("## eyas ")).map(str::to_owned).collect()
}

/// The texts of a file in which commands stand: between backquotes, and on lines of shell.
fn texts(path: &str, content: &str) -> Vec<String> {
    // A text of Rust may continue on the next line.
    let mut lines = content.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let content = lines.fold(first, |all, line| all + line.trim_start());
    let mut found: Vec<_> = content.split('`').skip(1).map(str::to_owned).collect();
    if path.ends_with(".md") {
        let mut is_code = false;
        for line in content.lines() {
            is_code ^= line.starts_with("```");
            if is_code || line.starts_with("    ") {
                found.push(line.trim_start().to_owned());
            }
        }
    }
    found.retain(|text| text.starts_with("eyas "));
    found
}

/// The command that a text names but that does not exist.
fn unknown(text: &str, commands: &BTreeSet<String>) -> Option<String> {
    let mut words = text.split(' ').skip(1);
    let mut next = || loop {
        let word = words.next()?;
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            let is_command = !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            return Some(word.to_owned()).filter(|_| is_command);
        }
    };
    let first = next()?;
    if HIDDEN.iter().any(|(hidden, _)| *hidden == first) {
        return None;
    }
    let has_more = commands.iter().any(|command| command.starts_with(&format!("{first} ")));
    let named = match has_more.then(next).flatten() {
        Some(second) => format!("{first} {second}"),
        None => first,
    };
    (!commands.contains(&named)).then_some(named)
}

#[test]
fn every_command_that_is_named_exists() {
    let commands = commands();
    assert!(commands.contains("job list") && commands.len() > 50, "{commands:?}");
    assert_eq!(unknown("eyas --cluster job job tasks 1", &commands), Some("job tasks".into()));
    let mut wrong = Vec::new();
    for (path, content) in files(&["rs", "md", "py"]) {
        let is_history = path == "CHANGELOG.md" || path.starts_with("benchmarks/history/");
        let is_former = |command: &String| is_history && FORMER.contains(&command.as_str());
        let unknown =
            texts(&path, &content).into_iter().filter_map(|text| unknown(&text, &commands));
        wrong.extend(
            unknown
                .filter(|command| !is_former(command))
                .map(|command| format!("{path}: there is no command `eyas {command}`")),
        );
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
