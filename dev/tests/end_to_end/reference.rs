//! The reference of the command line is what `--help` prints, the header of the C library has what
//! `doors/capi/` exports, and answers in JSON are what their schema says.

use std::fmt::Write;
use std::process::Command;

use eyas_tree::{generated, root};
use serde_json::Value;

use crate::dfs::joined;
use crate::support::{Cluster, eyas};

/// Headings of the lists of commands: of the groups of `eyas --help`, and of other commands.
const LISTS_OF_COMMANDS: [&str; 5] = ["Tasks:", "Files:", "Clusters:", "Tools:", "Commands:"];

/// What a command prints with this option, wrapped to the width of a page.
fn printed(words: &[&str], option: &str) -> String {
    let mut command = Command::new(eyas());
    let output =
        command.args(words).arg(option).env("COLUMNS", "100").output().expect("eyas starts");
    assert!(
        output.status.success(),
        "eyas {words:?} {option}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// The whole help of a command.
fn help(words: &[&str]) -> String {
    let help = printed(words, "--help");
    if help.contains("--help-all") { printed(words, "--help-all") } else { help }
}

/// The commands below one, in the order of its help.
fn commands(help: &str) -> Vec<&str> {
    let is_list = |part: &&str| {
        part.lines().next().is_some_and(|heading| LISTS_OF_COMMANDS.contains(&heading))
    };
    let lines = help.split("\n\n").filter(is_list).flat_map(|part| part.lines().skip(1));
    // An option begins with a dash, and the rest of a text is further to the right.
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| line.starts_with(char::is_alphabetic));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

fn write(page: &mut String, words: &[&str]) {
    let help = help(words);
    let title = ["eyas"].iter().chain(words).copied().collect::<Vec<_>>().join(" ");
    let _ = write!(page, "\n## {title}\n\n```text\n{}\n```\n", help.trim_end());
    for name in commands(&help) {
        write(page, &[words, &[name]].concat());
    }
}

#[test]
fn the_reference_of_the_command_line_is_current() {
    let mut page = String::from(
        "# Command line\n\n<!-- made by `make generate` from the help of each command \
         -->\n\nEvery command, as its `--help` prints it, or its `--help-all`, which has all \
         options.\n`eyas man FOLDER` writes the same as manual pages.\n",
    );
    write(&mut page, &[]);
    generated("docs/reference/cli.md", &page);
}

/// The header of the C library, from the doc comments and types of `doors/capi/`.
#[test]
fn the_header_of_the_c_library_is_current() {
    let config = root().join("doors/capi/cbindgen.toml");
    let config =
        cbindgen::Config::from_file(config.to_str().expect("a text")).expect("a configuration");
    let builder =
        cbindgen::Builder::new().with_config(config).with_src(root().join("doors/capi/src/lib.rs"));
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    generated("doors/capi/include/eyas.h", &String::from_utf8(header).expect("text"));
}

/// Where a value differs from its schema, with the keywords that the generated schema uses. A field
/// that the schema does not name is a difference, too.
fn differences(value: &Value, schema: &Value, all: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let definition =
            all.pointer(&name[1..]).unwrap_or_else(|| panic!("the schema does not define {name}"));
        return differences(value, definition, all, at, found);
    }
    if let Some(schemas) = schema["anyOf"].as_array() {
        let differences_from = |schema| {
            let mut found = Vec::new();
            differences(value, schema, all, at, &mut found);
            found
        };
        found.extend(schemas.iter().map(differences_from).min_by_key(Vec::len).unwrap_or_default());
        return;
    }
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some(other) => panic!("{at}: the schema has type {other}"),
        None => {
            schema["enum"].as_array().is_some_and(|values| values.contains(value))
                || schema["const"] == *value
        }
    };
    if !is_of_type {
        found.push(format!("{at} is {value}"));
    }
    let items = value.as_array().into_iter().flatten().enumerate();
    for (index, item) in items {
        let schema = schema["prefixItems"].get(index).unwrap_or(&schema["items"]);
        differences(item, schema, all, &format!("{at}[{index}]"), found);
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{at} lacks {name}"));
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let others = &schema["additionalProperties"];
        match schema["properties"].get(name).or(Some(others).filter(|others| others.is_object())) {
            Some(schema) => differences(field, schema, all, &format!("{at}.{name}"), found),
            None => found.push(format!("{at}.{name} is not in the schema")),
        }
    }
}

#[test]
fn answers_in_json_are_what_the_schema_says() {
    let schema = std::fs::read(root().join("docs/reference/json-schema.json")).expect("a schema");
    let schema: Value = serde_json::from_slice(&schema).expect("JSON");
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB"]]);
    joined(&cluster, 1);
    cluster.write("a.txt", "one\n");
    cluster.write(
        "job.toml",
        "[[task]]\ncommand = [\"cat\", \"a.txt\"]\n\n[[task]]\ncommand = [\"false\"]\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(1);
    cluster.run(&["dfs", "put", "--replicas", "1", "a.txt", "/a"]).exits(0);
    let asked: &[&[&str]] = &[
        &["job", "list"],
        &["job", "show", "1"],
        &["job", "graph", "1"],
        &["task", "list", "1"],
        &["task", "show", "1.0"],
        &["executor", "list"],
        &["access", "show"],
        &["push", "a.txt"],
        &["submit", "job.toml"],
        &["dfs", "stat", "/a"],
        &["dfs", "show", "/a"],
        &["dfs", "du"],
    ];
    for words in asked {
        let done = cluster.run(&[&["--json"], *words].concat()).exits(0);
        let answer: Value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}"));
        let mut found = Vec::new();
        differences(&answer, &schema, &schema, &words.join(" "), &mut found);
        assert!(found.is_empty(), "\n{}\n{answer}\n", found.join("\n"));
    }
}
