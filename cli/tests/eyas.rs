//! What the `eyas` binary does without any cluster. That cargo builds it for these tests is also what lets the
//! end-to-end tests of the same `cargo test --workspace` find it built.

use std::process::{Command, Output, Stdio};

fn eyas(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyas"));
    command.args(words).output().expect("eyas can be started")
}

#[test]
fn it_says_its_version() {
    let output = eyas(&["--version"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), concat!("eyas ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_wrong_command_line_has_an_exit_code_of_its_own() {
    for words in [&["fly"][..], &["run", "--each"], &["run", "--nodes", "0", "--", "true"], &["run"]] {
        let output = eyas(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn manual_pages_and_completion_name_every_command() {
    let folder = std::env::temp_dir().join(format!("eyas-man-{}", std::process::id()));
    let output = eyas(&["man", folder.to_str().expect("a plain name")]);
    assert!(output.status.success());
    let page = std::fs::read_to_string(folder.join("eyas.1")).expect("the first page");
    let completion = String::from_utf8(eyas(&["completion", "bash"]).stdout).expect("text");
    for command in ["run", "submit", "explain", "report"] {
        assert!(folder.join(format!("eyas-{command}.1")).exists() && page.contains(command), "{command}");
        assert!(completion.contains(&format!("eyas__subcmd__{command}")), "{command}");
    }
    std::fs::remove_dir_all(folder).expect("our own folder");
}

#[test]
fn who_stops_reading_is_no_panic() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyas"));
    command.args(["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("eyas can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
