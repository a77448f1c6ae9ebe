//! The reference of the command line is what `--help` prints.

use std::fmt::Write;
use std::process::Command;

use eyas_dev::tree::generated;

use crate::support::eyas;

/// The `--help` text of a command, wrapped to the width of a page.
fn help(words: &[&str]) -> String {
    let mut command = Command::new(eyas());
    let output = command.args(words).arg("--help").env("COLUMNS", "100").output().expect("eyas starts");
    assert!(output.status.success(), "eyas {words:?} --help: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The commands below one, in the order of its help.
fn commands(help: &str) -> Vec<&str> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, list)| list.split("\n\n").next().unwrap_or_default());
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
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
        "# Command line\n\n<!-- made by `make generate` from the help of each command -->\n\nEvery command, as its \
         `--help` prints it. `eyas man FOLDER` writes the same as manual pages.\n",
    );
    write(&mut page, &[]);
    generated("docs/reference/cli.md", &page);
}
