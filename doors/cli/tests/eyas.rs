//! What the `eyas` binary does without any cluster. That cargo builds it for these tests is also
//! what lets the end-to-end tests of the same `cargo test --workspace` find it built.

use std::process::{Command, Output, Stdio};

fn eyas(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyas"));
    command.args(words).output().expect("eyas can be started")
}

#[test]
fn the_command_prints_its_version() {
    let output = eyas(&["--version"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        concat!("eyas ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn a_wrong_command_line_has_an_exit_code_of_its_own() {
    for words in
        [&["fly"][..], &["run", "--each"], &["run", "--nodes", "0", "--", "true"], &["run"]]
    {
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
    for command in ["run", "submit", "explain", "report", "simulate"] {
        assert!(
            folder.join(format!("eyas-{command}.1")).exists() && page.contains(command),
            "{command}"
        );
        assert!(completion.contains(&format!("eyas__subcmd__{command}")), "{command}");
    }
    std::fs::remove_dir_all(folder).expect("our own folder");
}

/// `eyas simulate model` of the papers' sine-wave workload on 100 nodes.
fn sine_wave(more: &[&str]) -> Output {
    let words = "simulate model --nodes 100 --slots 2 --storage 8Gbit/s --tasks 2000000 --compute \
                 10ms --objects 100000 --object-size 10MB --no-overlap";
    eyas(&[&words.split_whitespace().collect::<Vec<_>>()[..], more].concat())
}

#[test]
fn a_model_says_how_long_and_why() {
    let output = sine_wave(&["--misses", "1"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(
        ["5 h 33 min", "persistent storage", "20.0 TB"].iter().all(|word| text.contains(word)),
        "{text}"
    );
    let answer: serde_json::Value =
        serde_json::from_slice(&sine_wave(&["--misses", "1", "--json"]).stdout).expect("JSON");
    let model = &answer["model"];
    assert!(
        answer["schema_version"].is_number() && model["limited_by"] == "persistent_storage",
        "{answer}"
    );
    assert_eq!(
        (model["time_s"].as_f64(), model["sustained_tasks_per_s"].as_f64()),
        (Some(20_000.0), Some(100.0))
    );
}

#[test]
fn a_model_of_what_cannot_be_is_refused() {
    for (more, code, says) in [
        (&["--cache", "5MB"][..], 1, "a store only 5000000"),
        (&["--misses", "2"], 2, "from 0 to 1"),
        (&["--arrivals", "0"], 2, "tasks per second"),
    ] {
        let output = sine_wave(more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(says), "{more:?}: {said}");
    }
}

#[test]
fn a_closed_output_pipe_causes_no_panic() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyas"));
    command.args(["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("eyas can be started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
