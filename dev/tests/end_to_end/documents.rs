//! The commands and files in documents work as shown.
//!
//! Each page is a script. Its blocks of commands (`sh`) run one after the other, in a folder that
//! is empty at first. A block whose first line is the name of a file (`# count.toml`) becomes that
//! file. Every other block needs a reason that readers see: a sentence before it, in its section,
//! that contains "not run by the tests". Blocks of `text` are output, and
//! `doors/python/tests/test_guide.py` runs those of `python`.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use eyas_tree::{files, root};

use crate::support::{Cluster, Home, c_library, can_mount, can_use, eyas};

/// A block of a page.
struct Block {
    line: usize,
    language: String,
    text: String,
    /// Whether a sentence before it says why it does not run.
    is_excused: bool,
}

/// The blocks of a page, including indented ones.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    let (mut before, mut is_excused, mut is_list) = ("", false, false);
    for (index, line) in page.lines().enumerate() {
        if let Some(block) = &mut open {
            if line.starts_with("```") {
                found.extend(open.take());
            } else {
                block.text.push_str(line);
                block.text.push('\n');
            }
            before = "```";
            continue;
        }
        let is_indented = line.starts_with("    ") && !is_list;
        if let Some(language) = line.strip_prefix("```") {
            let language = language.to_owned();
            open = Some(Block { line: index + 1, language, text: String::new(), is_excused });
        } else if is_indented && before.is_empty() {
            let (language, text) = ("indented".to_owned(), line.to_owned());
            found.push(Block { line: index + 1, language, text, is_excused });
        } else if line.starts_with('#') {
            is_excused = false;
        } else if !line.is_empty() && !is_indented {
            is_list = line.starts_with("- ") || is_list && line.starts_with(' ');
        }
        is_excused |= format!("{before} {line}").contains("not run by the tests");
        before = line;
    }
    found
}

/// The script of a page, and the lines of the blocks that are neither run nor excused.
fn script(page: &str) -> (String, Vec<usize>) {
    let (mut script, mut unexplained) = ("set -euo pipefail\n".to_owned(), Vec::new());
    let is_page_excused = page.contains("blocks of this page are not run by the tests");
    for block in blocks(page) {
        let name = block
            .text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# "))
            .filter(|name| !name.contains(' '));
        if block.language == "sh" {
            let _ = writeln!(script, "echo \"block at line {}\" >&2\n{}", block.line, block.text);
        } else if let Some(name) = name {
            let content = block.text.split_once('\n').map_or("", |(_, content)| content);
            let _ = writeln!(script, "cat > {name} <<'END OF BLOCK'\n{content}END OF BLOCK");
        } else if !["text", "python"].contains(&block.language.as_str())
            && !block.is_excused
            && !is_page_excused
        {
            unexplained.push(block.line);
        }
    }
    (script, unexplained)
}

/// Pages that users read.
fn pages() -> Vec<(String, String)> {
    let is_page = |file: &str| {
        let is_generated = file == "docs/reference/cli.md";
        let is_diary = file.starts_with("benchmarks/") || file.starts_with(".github/");
        !is_generated && !is_diary
    };
    files(&["md"]).into_iter().filter(|(file, _)| is_page(file)).collect()
}

#[test]
fn every_block_runs_or_says_why_not() {
    let mut wrong = Vec::new();
    for (file, page) in pages() {
        wrong.extend(
            script(&page)
                .1
                .into_iter()
                .map(|line| format!("{file}:{line}: a block that nothing runs")),
        );
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn the_commands_of_the_pages_work() {
    let folder = eyas().parent().expect("eyas is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    for (file, page) in pages() {
        let (script, _) = script(&page);
        if !script.contains("block at line") || (script.contains("eyas mount") && !can_mount()) {
            continue;
        }
        let home = Home::new();
        let mut command = home.command_of(Command::new("bash"), &["-c", &script]);
        command.env("PATH", &path);
        if script.contains("pkg-config") {
            if !can_use(&["pkg-config", "cc"]) {
                continue;
            }
            let libraries = c_library().prefix().join("lib");
            command
                .env("PKG_CONFIG_PATH", libraries.join("pkgconfig"))
                .env("LD_LIBRARY_PATH", libraries);
        }
        let done = home.finish(command);
        assert_eq!(done.code, 0, "{file}:\n{}\n{}", done.stdout, done.stderr);
    }
}

/// The job files of a guide, each with the name in its first line.
fn job_files(guide: &str) -> Vec<(String, String)> {
    let page = root().join("docs/guides").join(guide);
    let page = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let named = blocks(&page)
        .into_iter()
        .filter(|block| ["toml", "json"].contains(&block.language.as_str()));
    let named = named.map(|block| {
        let (name, text) = block.text.split_once('\n').expect("a block has lines");
        (name.strip_prefix("# ").expect("a file's name").to_owned(), text.to_owned())
    });
    named.collect()
}

#[test]
fn every_job_file_of_the_page_runs() {
    // The number of slots of a machine with two processors.
    let cluster = Cluster::start(&[&[], &[]]);
    cluster.write("texts/whale.txt", "call me ishmael\n");
    cluster.write("texts/two cities.txt", "it was the best of times\nit was the worst of times\n");
    cluster.write("searches.csv", "texts/whale.txt,ishmael\ntexts/two cities.txt,times\n");
    let program = cluster.write("count.sh", "#!/bin/sh\nexec wc \"$UNIT\" \"$1\"\n");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();

    let files = job_files("job-files.md");
    assert_eq!(files.len(), 17, "the page's examples");
    for (name, content) in &files {
        cluster.write(name, content);
        cluster.run(&["submit", "--wait", name]).exits(0);
    }

    let log = |task: &str| cluster.run(&["task", "log", task]).exits(0).stdout;
    let job_of =
        |name: &str| files.iter().position(|(other, _)| other == name).expect("an example") + 1;
    assert!(log(&format!("{}.0", job_of("count.toml"))).starts_with("12 "));
    assert_eq!(log(&format!("{}.1", job_of("search.toml"))), "2\n");
    assert_eq!(log(&format!("{}.3", job_of("words.toml"))), "12 first.words\n");
    assert_eq!(log(&format!("{}.0", job_of("parts.toml"))), "it was the worst of times\n");
    assert!(log(&format!("{}.1", job_of("parts.toml"))).starts_with("44 "));
    assert_eq!(log(&format!("{}.1", job_of("bring.toml"))), "3 whale.txt\n");
    assert!(log(&format!("{}.1", job_of("jobs.jsonl"))).starts_with("16 "));
    assert_eq!(cluster.names("packed"), ["two cities.txt.gz", "whale.txt.gz"]);
    assert_eq!(cluster.names("checks"), ["two cities.log", "whale.log"]);
    assert_eq!(cluster.read("sweep/90.txt").split(" on ").next(), Some("angle 90"));
    cluster.run(&["job", "get", &job_of("lines.toml").to_string(), "--to", "lines"]).exits(0);
    assert_eq!(cluster.read("lines/2/lines.txt").lines().count(), 3);
    assert!(cluster.read("words.txt").lines().any(|line| line.trim() == "2 times"));
    assert_eq!(cluster.read("sums/0.txt"), "12\n3\n");
    assert_eq!(cluster.read("parts/2.words"), "6\n");
}

#[test]
fn every_rule_of_snakemake_is_a_job_file_that_runs() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    cluster.write("texts/whale.txt", "call me ishmael\n");
    cluster.write("texts/cities.txt", "it was the best of times\n");
    cluster.write("longest.sh", "tr -s ' ' '\\n' <\"$1\" | wc -L\n");
    cluster.write("samples.txt", "one\ntwo\n");
    cluster.write("reads/one.fq", "");
    cluster.write("reads/two.fq", "");
    let mut files = job_files("workflows.md");
    files.retain(|(name, _)| name.starts_with("rule-"));
    assert_eq!(files.len(), 10, "the page's rules");
    for (name, content) in &files {
        cluster.write(name, content);
        // Its program is on no machine of the tests.
        let words: &[&str] = match content.contains("conda") {
            true => &["submit", name],
            false => &["submit", "--wait", name],
        };
        cluster.run(words).exits(0);
    }
    assert_eq!(cluster.names("tallies"), ["cities", "whale"]);
    assert_eq!(cluster.names("sweep").len(), 9);
    assert_eq!(cluster.read("sweep/45-0.5"), "45 deg 0.5\n");
    assert_eq!(cluster.read("longest/whale"), "7\n");
    let sorted = "call me ishmael\nit was the best of times\n";
    assert_eq!((&*cluster.read("merged.txt"), &*cluster.read("all.txt")), (sorted, sorted));
    assert_eq!(cluster.names("logs"), ["cities.log", "whale.log"]);
}

#[test]
fn every_example_runs() {
    let cluster = Cluster::start(&[&[], &[]]);
    cluster.write("texts/whale.txt", "call me ishmael\n");
    cluster.write("texts/cities.txt", "it was the best of times\n");
    let examples = fs::read_dir(root().join("examples")).expect("a folder of examples");
    let mut names: Vec<_> =
        examples.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    // Programs have tests of their own.
    for name in names
        .iter()
        .filter(|name| *name != "README.md" && !root().join("examples").join(name).is_dir())
    {
        cluster.write(name, fs::read(root().join("examples").join(name)).unwrap());
        if name == "scenario.toml" {
            cluster.run(&["simulate", "run", name]).exits(0);
            cluster.run(&["simulate", "model", name]).exits(0);
        } else {
            cluster.run(&["submit", "--wait", name]).exits(0);
        }
    }
    assert_eq!(cluster.names("sweep"), ["0.txt", "30.txt", "60.txt", "90.txt"]);
    assert!(cluster.read("frequencies.txt").contains("1 ishmael"));
}

#[test]
fn the_examples_of_the_help_run() {
    let home = Home::new();
    home.write("texts/whale.txt", "call me ishmael\n");
    home.write("texts/cities.txt", "it was the best of times\n");
    home.write("list.txt", "one\ntwo\n");
    let folder = eyas().parent().expect("eyas is in a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    for words in [&["--help"][..], &["run", "--help"]] {
        let help = home.eyas(words).exits(0).stdout;
        let (_, examples) = help.split_once("\nExamples:\n").expect("examples");
        let lines: Vec<_> = examples.lines().take_while(|line| line.starts_with("  ")).collect();
        assert_eq!(lines.len(), 3, "{help}");
        for line in lines {
            let mut command = home.command_of(Command::new("bash"), &["-c", line]);
            command.env("PATH", &path);
            home.finish(command).exits(0);
        }
    }
    assert_eq!(home.names("."), ["cities.n", "list.txt", "texts", "whale.n"]);
}
