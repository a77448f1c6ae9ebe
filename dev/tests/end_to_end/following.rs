//! The output of a task that runs can be seen, and followed until the task has ended.

use std::io::Read;
use std::process::Child;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Cluster, CommandOutput, finish, signal, wait_until};

/// A task that prints a line, waits for the file `go`, prints one more line, and ends with a code.
fn submit(cluster: &Cluster, script: &str, fields: serde_json::Value) -> String {
    let base = cluster.work().canonicalize().unwrap();
    let mut task = json!({"command": ["sh", "-c", script, base.to_str().unwrap()]});
    task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    cluster.write("job.jsonl", format!("{task}\n"));
    cluster.submit("job.jsonl")
}

/// Reads a line of standard output while the program runs.
fn line(child: &mut Child) -> String {
    let stdout = child.stdout.as_mut().expect("piped");
    let (mut line, mut byte) = (Vec::new(), [0]);
    while stdout.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn log(cluster: &Cluster, task: &str, words: &[&str]) -> CommandOutput {
    cluster.run(&[&["task", "log", task], words].concat())
}

const WAIT: &str = "until [ -e \"$0/go\" ]; do sleep 0.01; done; ";

fn script(end: &str) -> String {
    format!("echo one; echo warning >&2; touch \"$0/runs\"; {WAIT}{end}")
}

fn wait_until_it_runs(cluster: &Cluster) {
    wait_until("the task runs", || cluster.work().join("runs").exists());
}

#[test]
fn a_task_is_followed_from_its_beginning_to_its_end() {
    let cluster = Cluster::start(&[&[]]);
    let job = submit(&cluster, &script("echo two; echo bad >&2; exit 3"), json!({}));
    wait_until_it_runs(&cluster);
    let task = format!("{job}.0");
    let mut following = cluster.spawn_on(&["task", "log", "-f", &task]);
    let mut errors = cluster.spawn_on(&["task", "log", &task, "--follow", "--stderr"]);
    assert_eq!((line(&mut following), line(&mut errors)), ("one".into(), "warning".into()));
    // Others see what there is so far.
    let so_far = log(&cluster, &task, &[]).exits(0);
    assert_eq!(so_far.stdout, "one\n");
    so_far.says(&["warning\n", "still runs on n1", "--follow"]);
    assert_eq!(log(&cluster, &task, &["--stderr"]).exits(0).stdout, "warning\n");
    let shown = cluster.ask(&["task", "log", &task], "log");
    assert_eq!((&shown["status"], &shown["stdout"]), (&json!("running"), &json!("one\n")));
    cluster.run(&["--json", "task", "log", "-f", &task]).exits(1).says(&["leave --json out"]);
    cluster.write("go", "");
    let done = finish(following).exits(0);
    assert_eq!(done.stdout, "two\n");
    let done = done.says(&["warning\nbad\n", "the task did not succeed: exit code 3"]);
    assert!(!done.stderr.contains("attempt"), "{}", done.stderr);
    assert_eq!(finish(errors).exits(0).stdout, "bad\n");
    // One that has ended is printed as a whole.
    let whole = log(&cluster, &task, &["-f"]).exits(0);
    assert_eq!(whole.stdout, "one\ntwo\n");
    whole.says(&["warning\nbad\n", "exit code 3"]);
}

#[test]
fn a_task_is_followed_while_it_waits_and_when_it_is_tried_again() {
    let cluster = Cluster::start(&[&[]]);
    let first = submit(&cluster, &script("true"), json!({}));
    wait_until_it_runs(&cluster);
    let again = "echo try; echo >>\"$0/tries\"; until [ -e \"$0/go-$(wc -l <\"$0/tries\")\" ]; do \
                 sleep 0.01; done; echo over; exit 5";
    let second = submit(&cluster, again, json!({"retries": 1}));
    let task = format!("{second}.0");
    log(&cluster, &task, &[]).exits(1).says(&["has no log yet: ", "eyas explain"]);
    let mut following = cluster.spawn_on(&["task", "log", "-f", &task]);
    cluster.write("go", "");
    cluster.run(&["job", "wait", &first]).exits(0);
    assert_eq!(line(&mut following), "try");
    cluster.write("go-1", "");
    // The end of a try that is followed by another one is lost unless it was asked for in time.
    let mut next = line(&mut following);
    if next == "over" {
        next = line(&mut following);
    }
    assert_eq!(next, "try");
    cluster.write("go-2", "");
    let done = finish(following).exits(0);
    assert_eq!(done.stdout, "over\n");
    done.says(&[&format!("task {task}: attempt 2"), "the task did not succeed: exit code 5"]);
}

#[test]
fn a_follower_is_told_that_the_executor_is_gone_and_follows_the_task_elsewhere() {
    let mut cluster = Cluster::start(&[&[]]);
    let task = format!("{}.0", submit(&cluster, &script("echo two"), json!({})));
    let mut following = cluster.spawn_on(&["task", "log", "-f", &task]);
    assert_eq!(line(&mut following), "one");
    cluster.executor(1).kill();
    wait_until("it waits again", || cluster.task(&task)["state"] == "waiting");
    let mut late = cluster.spawn_on(&["task", "log", "-f", &task]);
    cluster.add_executor(&[]);
    assert_eq!((line(&mut following), line(&mut late)), ("one".into(), "one".into()));
    // The dispatcher starts again, and with it the task.
    std::fs::remove_file(cluster.work().join("runs")).unwrap();
    cluster.restart_dispatcher();
    assert_eq!(line(&mut following), "one");
    wait_until_it_runs(&cluster);
    cluster.write("go", "");
    let done = finish(following).exits(0);
    assert_eq!(done.stdout, "two\n");
    done.says(&[
        &format!("task {task}: attempt 2"),
        &format!("task {task}: It waits"),
        "trying to reconnect",
        "the dispatcher is back",
    ]);
    finish(late).exits(0);
}

#[test]
fn output_beyond_the_limit_is_counted_and_that_of_a_run_is_whole() {
    let cluster = Cluster::start(&[&[]]);
    let much = "head -c 3000000 /dev/zero | tr '\\0' '\\n'; echo end; ";
    let job = submit(&cluster, &format!("{much}{}", script("true")), json!({"capture": "1MB"}));
    wait_until_it_runs(&cluster);
    let task = format!("{job}.0");
    let so_far = log(&cluster, &task, &[]).exits(0);
    let so_far = so_far.says(&["2000008 bytes of output were cut off", "still runs"]);
    assert_eq!(so_far.stdout.len(), 1_000_000);
    let following = cluster.spawn_on(&["task", "log", "-f", &task]);
    cluster.write("go", "");
    let done = finish(following).exits(0).says(&["2000008 bytes of output were cut off"]);
    assert_eq!(done.stdout.len(), 1_000_000);
    // `eyas run` keeps whole streams.
    for name in ["go", "runs"] {
        std::fs::remove_file(cluster.work().join(name)).unwrap();
    }
    let base = cluster.work().canonicalize().unwrap();
    let running = format!("{much}{}", script("true"));
    let words = ["run", "--report", "none", "--", "sh", "-c", &running, base.to_str().unwrap()];
    let run = cluster.spawn_on(&words);
    wait_until_it_runs(&cluster);
    let so_far = log(&cluster, "last.0", &[]).exits(0);
    assert!(!so_far.stderr.contains("cut off"), "{}", so_far.stderr);
    assert_eq!((so_far.stdout.len(), so_far.stdout.ends_with("end\none\n")), (3_000_008, true));
    let mut following = cluster.spawn_on(&["task", "log", "-f", "last.0"]);
    let mut so_far = vec![0; 3_000_008];
    following.stdout.as_mut().expect("piped").read_exact(&mut so_far).unwrap();
    assert!(so_far.ends_with(b"\nend\none\n"));
    cluster.write("go", "");
    let done = finish(following).exits(0);
    assert!(!done.stderr.contains("cut off") && done.stdout.is_empty(), "{}", done.stderr);
    assert_eq!(finish(run).exits(0).stdout.len(), 3_000_008);
}

#[test]
fn a_follower_can_be_interrupted_and_the_task_goes_on() {
    let cluster = Cluster::start(&[&[]]);
    let job = submit(&cluster, &script("echo two"), json!({}));
    let mut following = cluster.spawn_on(&["task", "log", "-f", &format!("{job}.0")]);
    assert_eq!(line(&mut following), "one");
    signal(following.id(), Signal::INT);
    assert!(!following.wait().unwrap().success());
    cluster.write("go", "");
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(log(&cluster, &format!("{job}.0"), &["-f"]).exits(0).stdout, "one\ntwo\n");
}
