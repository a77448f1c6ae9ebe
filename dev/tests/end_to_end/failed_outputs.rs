//! Outputs that are delivered when their task fails: which, where, after which try, and how a user
//! is told.

use std::fs;

use serde_json::Value;

use crate::support::{Cluster, CommandOutput, Home, finish, wait_until};

/// Three outputs of a task: one for each time of delivery.
const OUTPUTS: [&str; 6] = [
    "-o",
    "result=results/{}",
    "-o",
    "log=logs/{}.txt,when=always",
    "-o",
    "core.*=cores/{},when=failure",
];

/// The end of a script that has written all outputs.
const WRITE: &str = "echo result >result; echo log $0 >log; echo core >core.7; echo more >core.8; ";

fn run(home: &Home, words: &[&str], script: &str) -> CommandOutput {
    let script = format!("{WRITE}{script}");
    let command = ["--report", "none", "--array", "1-2", "--", "sh", "-c", &script, "{}"];
    home.eyas(&[&["run"], &OUTPUTS[..], words, &command].concat())
}

fn exists(home: &Home, name: &str) -> bool {
    home.work().join(name).exists()
}

#[test]
fn each_output_is_delivered_after_the_ends_that_it_is_for() {
    let home = Home::new();
    let done = run(&home, &[], "[ $0 = 1 ] || exit 3").exits(1).says(&[
        "exit code 3",
        "eyas: its output `log` is at `logs/2.txt`",
        "eyas: its outputs `core.*` are at `cores/2/core.7` and `cores/2/core.8`",
    ]);
    assert!(!done.stderr.contains("logs/1.txt"), "{}", done.stderr);
    assert_eq!(home.names("results"), ["1"]);
    assert_eq!(
        (home.read("logs/1.txt"), home.read("logs/2.txt")),
        ("log 1\n".into(), "log 2\n".into())
    );
    assert_eq!(
        (home.names("cores"), home.names("cores/2")),
        (vec!["2".into()], vec!["core.7".into(), "core.8".into()])
    );
    assert_eq!(home.read("cores/2/core.8"), "more\n");
}

#[test]
fn what_a_failed_task_has_not_written_is_no_further_error() {
    let home = Home::new();
    let words = ["run", "--report", "none", "-o", "log,when=failure", "-o", "dump,when=always"];
    let done = home.eyas(&[&words[..], &["--", "sh", "-c", "echo why >log; exit 5"]].concat());
    done.exits(1).says(&["exit code 5", "its output `log` is at `log`"]);
    assert_eq!(home.names("."), ["log"]);
    // A task that lacks a result has failed, too. What it lacks is said first.
    let words = ["run", "--report", "none", "-o", "result", "-o", "x,when=failure"];
    let done = home.eyas(&[&words[..], &["--", "sh", "-c", "echo why >x"]].concat()).exits(1);
    done.says(&["the task ended well but did not write its output `result`", "`x` is at `x`"]);
    // One for success that is missing after success is an error, whatever else it is for.
    let words = ["run", "--report", "none", "-o", "y,when=always", "-o", "x,when=failure"];
    let done = home.eyas(&[&words[..], &["--", "sh", "-c", "echo 2 >x"]].concat()).exits(1);
    done.says(&["did not write its output `y`", "`x` is at `x`"]);
    assert_eq!(home.read("x"), "2\n");
    let done = home.eyas(&[&words[..], &["--", "sh", "-c", "echo 3 >x; echo >y"]].concat());
    done.exits(0);
    assert_eq!(home.read("x"), "2\n", "a task that succeeds delivers no output for a failure");
}

#[test]
fn of_several_tries_the_last_one_delivers_alone() {
    let home = Home::new();
    let count = "n=$(cat \"$1\" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >\"$1\"; \
                 echo try $n >log; echo try $n >note; [ $n -ge $2 ] || exit 1";
    let run = |name: &str, succeeds_at: &str, retries: &str| {
        let counter = home.work().join(name);
        let words = ["run", "--report", "none", "--retries", retries, "-o", "log,when=always"];
        let script = ["-o", "note,when=failure", "--", "sh", "-c", count, "sh"];
        let last = [counter.to_str().unwrap(), succeeds_at];
        home.eyas(&[&words[..], &script, &last].concat())
    };
    run("first", "3", "2").exits(0);
    assert_eq!(home.read("log"), "try 3\n");
    assert!(!exists(&home, "note"), "no try was the last that failed");
    run("second", "9", "2").exits(1).says(&["its output `note` is at `note`"]);
    assert_eq!((home.read("log"), home.read("note")), ("try 3\n".into(), "try 3\n".into()));
}

#[test]
fn a_task_that_is_killed_for_its_time_or_memory_has_failed() {
    let home = Home::new();
    let done = run(&home, &["--timeout", "1s"], "sleep 1000").exits(1);
    done.says(&["timed out", "its output `log` is at `logs/1.txt`", "`logs/2.txt`"]);
    assert_eq!(home.names("cores/1"), ["core.7", "core.8"]);
    let eat = "python3 -c 'x = bytearray(400 << 20); import time; time.sleep(60)'";
    let home = Home::new();
    let done = run(&home, &["--memory", "60MB"], eat).exits(1);
    done.says(&["memory", "its output `log` is at `logs/1.txt`"]);
}

#[test]
fn a_task_that_is_cancelled_has_failed_and_a_job_that_goes_on_replaces_its_output() {
    let mut cluster = Cluster::start(&[&[]]);
    let job = "[[task]]\ncommand = [\"sh\", \"-c\", 'echo $EYAS_TASK_ID >log; touch \"$0\"; \
               [ -e \"$1\" ] || sleep 1000', \"{BASE}/runs\", \"{BASE}/may-end\"]\n\
               outputs = [{ file = \"log\", to = \"logs/\", when = \"always\" }]\n";
    let base = cluster.work().canonicalize().unwrap();
    cluster.write("job.toml", job.replace("{BASE}", base.to_str().unwrap()));
    let id = cluster.submit("job.toml");
    wait_until("the task runs", || base.join("runs").exists());
    cluster.run(&["task", "cancel", &format!("{id}.0")]).exits(0);
    wait_until("it has ended", || cluster.job(&id)["state"] == "cancelled");
    assert_eq!(cluster.read("logs/log"), format!("{id}.0\n"));
    let log = cluster.run(&["task", "log", &format!("{id}.0")]).exits(0);
    log.says(&["its output `log` is at `logs/log`", "the task did not succeed: cancelled"]);
    let explained = cluster.ask(&["explain", &format!("{id}.0")], "explanation");
    let because = explained["because"].to_string();
    assert!(
        because.contains("after a failure are at `") && because.contains("/logs/log`"),
        "{because}"
    );
    // It runs again and succeeds, also on another executor.
    cluster.write("may-end", "");
    fs::write(base.join("logs/log"), "an old one").unwrap();
    cluster.run(&["job", "retry", &id]).exits(0);
    cluster.run(&["job", "wait", &id]).exits(0);
    assert_eq!(cluster.read("logs/log"), format!("{id}.0\n"));
    // The dispatcher that starts again knows it, too.
    cluster.restart_dispatcher();
    let shown = cluster.task(&format!("{id}.0"));
    assert_eq!(shown["status"], Value::from("succeeded"), "{shown}");
}

#[test]
fn a_task_that_its_executor_leaves_to_another_one_delivers_nothing() {
    let mut cluster = Cluster::start(&[&[]]);
    let base = cluster.work().canonicalize().unwrap();
    let runs = base.join("runs").display().to_string();
    let script = "trap 'exit 1' TERM; echo on $EYAS_EXECUTOR >log; echo >>\"$0\"; \
                  [ $(wc -l <\"$0\") -gt 1 ] || { sleep 1000 & wait; }; exit 4";
    let words =
        ["run", "--report", "none", "-o", "log,when=failure", "--", "sh", "-c", script, &runs];
    let child = cluster.spawn_on(&words);
    wait_until("the task runs", || base.join("runs").exists());
    // The first executor is stopped in good order while the task runs.
    crate::support::signal(cluster.executor(1).process(), rustix::process::Signal::TERM);
    cluster.executor(1).wait();
    assert!(!base.join("log").exists(), "the task is not over");
    cluster.add_executor(&[]);
    finish(child).exits(1).says(&["exit code 4", "its output `log` is at `log`"]);
    assert!(base.join("log").exists());
}

#[test]
fn two_tasks_that_fail_do_not_replace_each_others_outputs() {
    let home = Home::new();
    let words = ["run", "--report", "none", "--array", "1-3", "-o", "l*=logs/,when=failure"];
    let done = home.eyas(&[&words[..], &["--", "sh", "-c", "echo $0 >log; exit 1", "{}"]].concat());
    let done = done
        .exits(1)
        .says(&["its output `l*` is at `logs/log`", "its output `l*` was not delivered: task "]);
    assert_eq!(done.stderr.matches("which this task would replace").count(), 2, "{}", done.stderr);
    // Places that are known are compared before anything runs.
    let words = ["run", "--array", "1-3", "-o", "log,when=failure", "--", "true"];
    home.eyas(&words).exits(1).says(&["would both write"]);
}

#[test]
fn outputs_of_failed_tasks_are_neither_kept_nor_read_by_others() {
    let cluster = Cluster::start(&[&[]]);
    for (outputs, input, says) in [
        (
            "{ file = \"log\", when = \"failure\", keep = true }",
            "",
            "cannot be kept in the cluster",
        ),
        ("{ file = \"log\", when = \"failure\" }", "log", "delivers `log` only when it fails"),
        (
            "{ file = \"log\", when = \"never\" }",
            "",
            "write \"success\", \"failure\" or \"always\"",
        ),
        ("{ file = \"log\", whn = \"always\" }", "", "`when`"),
    ] {
        let reader = match input {
            "" => String::new(),
            file => format!(
                "[[task]]\ncommand = [\"true\"]\n\
                 inputs = [{{ task = \"a\", output = \"{file}\" }}]\n"
            ),
        };
        let job =
            format!("[[task]]\nid = \"a\"\ncommand = [\"true\"]\noutputs = [{outputs}]\n{reader}");
        cluster.write("job.toml", job);
        cluster.run(&["submit", "job.toml"]).exits(1).says(&[says, "job.toml, line"]);
    }
    // One that is delivered always is read after success.
    cluster.write(
        "job.toml",
        "[[task]]\nid = \"a\"\ncommand = [\"sh\", \"-c\", \"echo x >log\"]\n\
         outputs = [{ file = \"log\", when = \"always\" }]\n\
         [[task]]\ncommand = [\"cat\", \"log\"]\nfolder = \"sandbox\"\n\
         inputs = [{ task = \"a\" }]\n",
    );
    cluster.run(&["submit", "--wait", "job.toml"]).exits(0);
    assert_eq!(cluster.run(&["task", "log", "last.1"]).exits(0).stdout, "x\n");
}

#[test]
fn results_are_the_same_with_and_without_outputs_of_failed_tasks() {
    let home = Home::new();
    let run = |words: &[&str]| {
        let script = "[ $0 = 1 ] || exit 1; echo >x; echo >log";
        let end =
            ["-o", "x={}", "--array", "1-2", "--report", "none", "--", "sh", "-c", script, "{}"];
        home.eyas(&[&["run"], words, &end].concat()).exits(1)
    };
    run(&["--update"]).says(&["1 of 2 tasks succeeded, 1 failed"]);
    let with_log = ["--update", "-o", "log=log-{#},when=failure"];
    run(&with_log).says(&["1 of them reused"]);
    // Going on with a run that has failed, with its log.
    let home = Home::new();
    let run = |words: &[&str]| {
        let script = "echo $0 >>\"$1\"; echo >log; [ $0 = 1 ]";
        let count = home.work().join("count");
        let end =
            ["--array", "1-2", "--report", "none", "--sandbox", "--", "sh", "-c", script, "{}"];
        home.eyas(&[&["run"], words, &end, &[count.to_str().unwrap()]].concat()).exits(1)
    };
    run(&[]);
    run(&["--resume-failed", "-o", "log=log-{},when=failure"]).says(&["`log` is at `log-2`"]);
    assert_eq!(home.read("count").lines().filter(|line| *line == "1").count(), 1);
}
