//! What is said of failures: each reason once, in the words of the door that was used. Jobs that
//! stop because all their tasks fail in the same way.

use std::fs;

use crate::support::{Cluster, Home, SmallDisk, wait_for, wait_until};

/// Tasks that fail alike before a job stops.
const EQUAL_FAILURES: u64 = 20;

#[test]
fn a_reason_that_many_tasks_share_is_told_once() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    let file = cluster.write(
        "job.toml",
        r#"
        [[task]]
        id = "cut"
        array = "0-9"
        command = ["sh", "-c", "[ $0 != 0 ] || exit 0; echo frame $0 is odd >&2; exit 3", "{}"]
        outputs = [{ file = "cut.txt", keep = true, optional = true }]

        [[task]]
        command = ["true"]
        inputs = [{ task = "cut", index = "{}" }]
        "#,
    );
    let done = cluster.run(&["submit", "--wait", file.to_str().unwrap()]).exits(1);
    let done = done.says(&[
        " and 6 others did not succeed: exit code 3\n  the first of them:\n    id: cut\n",
        "last lines of standard error:\n      frame ",
        "did not run, because tasks whose outputs they need did not succeed",
    ]);
    assert_eq!(done.stderr.matches("exit code 3").count(), 1, "{}", done.stderr);
    assert!(done.stderr.lines().count() < 16, "{}", done.stderr);
    // A run prints what tasks wrote at once, and the others that failed alike at its end.
    let script = "[ $0 != 0 ] || exit 0; echo frame $0 is odd >&2; exit 3";
    let words = ["run", "--report", "none", "--array", "0-9", "--", "sh", "-c", script, "{}"];
    let done = Home::new().eyas(&words).exits(1);
    let done = done.says(&[" and 5 others did not succeed for the same reason as task "]);
    assert_eq!(done.stderr.matches("exit code 3").count(), 1, "{}", done.stderr);
}

#[test]
fn a_job_that_nobody_watches_stops_when_its_first_tasks_fail_alike() {
    let mut cluster = Cluster::start(&[&["--slots", "2"]]);
    let tasks = "[[task]]\narray = \"1-200\"\ncommand = [\"sh\", \"-c\", \"exit 4\"]\n";
    let file = cluster.write("job.toml", tasks);
    let file = file.to_str().unwrap();
    let job = cluster.run(&["submit", file]).exits(0).stdout.trim().to_owned();
    let counts = |cluster: &Cluster, job: &str| {
        let tasks = &cluster.job(job)["tasks"];
        ["failed", "cancelled"].map(|state| tasks[state].as_u64().unwrap())
    };
    wait_until("it has ended", || counts(&cluster, &job).iter().sum::<u64>() == 200);
    let [failed, cancelled] = counts(&cluster, &job);
    // Tasks that the executor had may have failed, too, before it was told to cancel them.
    assert!((EQUAL_FAILURES..100).contains(&failed), "{failed} and {cancelled}");
    let says = ["the first 20 tasks ended in the same way (exit code 4)", "--halt never"];
    cluster.run(&["job", "wait", &job]).exits(1).says(&says);
    // The rule holds again after a retry, also with another dispatcher, and can be switched off.
    cluster.restart_dispatcher();
    cluster.wait_for_executors(1);
    cluster.run(&["job", "retry", &job]).exits(0);
    cluster.run(&["job", "wait", &job]).exits(1).says(&says);
    let all = cluster.run(&["submit", "--wait", "--halt", "never", file]).exits(1);
    all.says(&["0 of 200 tasks succeeded, 200 failed"]);
    let other = cluster.write("never.toml", format!("halt = \"never\"\n{tasks}"));
    let all = cluster.run(&["submit", "--wait", other.to_str().unwrap()]).exits(1);
    all.says(&["0 of 200 tasks succeeded, 200 failed"]);
    let other = cluster.write("odd.toml", format!("halt = \"now\"\n{tasks}"));
    let odd = cluster.run(&["submit", other.to_str().unwrap()]).exits(1);
    odd.says(&["odd.toml, line 1: `halt` cannot be `now`", "halt = \"never\""]);
}

#[test]
fn explanation_and_log_of_a_task_have_its_command() {
    let cluster = Cluster::start(&[&[]]);
    let words = ["run", "--array", "7-8", "--", "sh", "-c", "echo $0; exit 2", "{}"];
    cluster.run(&words).exits(1);
    let command = "sh -c 'echo $0; exit 2' 8";
    let explained = cluster.run(&["explain", "1.1"]).exits(0).stdout;
    assert!(explained.contains(&format!("Its command: {command}\n")), "{explained}");
    let log = cluster.run(&["task", "log", "1.1"]).exits(0);
    assert_eq!(log.stdout, "8\n", "standard output has the output of the task alone");
    let log = log.says(&["task 1.1 on ", &format!(": {command}\n"), "exit code 2"]);
    assert_eq!(log.stderr.matches(command).count(), 1, "{}", log.stderr);
    let command = &cluster.ask(&["task", "log", "1.1"], "log")["command"];
    assert_eq!(command[3], "8", "{command}");
}

#[test]
fn a_missing_input_of_a_list_is_named_with_its_line() {
    let home = Home::new();
    home.write("a.txt", "a");
    home.write("list.csv", "a.txt,1\n\nno.txt,2\n");
    let run = ["run", "--report", "none", "--each-line", "list.csv", "--colsep", ","];
    let words = [&run[..], &["-i", "{1}", "--", "cat", "{1}"]].concat();
    home.eyas(&words).exits(1).says(&["list.csv, line 3: ", "no.txt"]);
    home.write("names", "a.txt\nno.txt\n");
    let words = ["run", "--report", "none", "-i", "{}", "--", "cat", "{}", "::::", "names"];
    home.eyas(&words).exits(1).says(&["names, line 2: ", "no.txt"]);
    let file = "[[task]]\neach_line = \"names\"\ninputs = [\"{}\"]\ncommand = [\"cat\", \"{}\"]\n";
    home.write("job.toml", file);
    home.eyas(&["submit", "job.toml"]).exits(1).says(&["names, line 2: ", "no.txt"]);
}

#[test]
fn messages_have_the_words_of_the_door_that_was_used() {
    let cluster = Cluster::start(&[&[]]);
    cluster.write("cut.py", "print(1)\n");
    for (command, line, file) in [
        (
            ["echo", "{}"],
            "give it items with --each, --each-line or --array, or write",
            "give it items with `each`, `each_line` or `array`, or write",
        ),
        (["cat", "cut.py"], "add -i cut.py; or run", "add inputs = [\"cut.py\"]; or run"),
    ] {
        let run = [&["run", "--sandbox", "--"], &command[..]].concat();
        let said = cluster.run(&run).exits(1).says(&[line]).stderr;
        assert!(!said.contains("job file") && !said.contains(file), "{said}");
        let [program, word] = command;
        let text =
            format!("[[task]]\ncommand = [\"{program}\", \"{word}\"]\nfolder = \"sandbox\"\n");
        let path = cluster.write("job.toml", text);
        let submit = ["submit", "--wait", path.to_str().unwrap()];
        let said = cluster.run(&submit).exits(1).says(&[file]).stderr;
        assert!(!said.contains(line) && !said.contains("in a job file"), "{said}");
    }
}

#[test]
fn braces_that_are_no_placeholder_are_refused_or_warned_of() {
    let home = Home::new();
    let run = |word: &str| {
        let words = ["run", "--report", "none", "--array", "1", "--", "sh", "-c", word];
        home.eyas(&words)
    };
    run("{inptu}").exits(1).says(&["`{inptu}` is not a placeholder; `{}` is the item"]);
    run("echo {input} {}").exits(0).says(&["`{input}` is not a placeholder; `{}` is the item"]);
    let fine = run("echo a b | awk '{print $2}'").exits(0);
    assert_eq!((fine.stdout.as_str(), fine.stderr.contains("placeholder")), ("b\n", false));
}

#[test]
fn an_input_that_would_leave_its_sandbox_is_refused_with_the_job() {
    let home = Home::new();
    home.write("a.txt", "a");
    for (name, key) in [("../x", "into"), ("/abs/x", "into"), ("a/../../x", "name")] {
        let input = format!("{{ path = \"a.txt\", {key} = \"{name}\" }}");
        let file = format!("[[task]]\ncommand = [\"true\"]\ninputs = [{input}]\n");
        home.write("job.toml", file);
        let says = format!("job.toml, line 1: `{key}` puts an input at `{name}`");
        home.eyas(&["submit", "job.toml"]).exits(1).says(&[&says, "such as in/x"]);
    }
}

#[test]
fn a_run_on_a_full_disk_reuses_nothing_and_says_so() {
    let Some(disk) = SmallDisk::mount("size=2m,mode=700") else { return };
    let home = Home::new();
    let run = || {
        let words = ["run", "--report", "none", "--reuse", "--array", "1-2", "--", "echo", "{}"];
        let mut command = home.command(&words);
        command.env("EYAS_HOME", disk.path());
        home.finish(command)
    };
    let _ = fs::write(disk.path().join("others"), vec![1; 4 << 20]);
    let done = run().exits(0).says(&["results of earlier runs are not reused", "set EYAS_HOME"]);
    let mut lines: Vec<_> = done.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2"]);
}

#[test]
fn the_report_of_a_resumed_run_counts_apart_what_was_done_before() {
    let home = Home::new();
    let words = ["run", "--report", "r.html", "--array", "1-5", "--"];
    let command = ["sh", "-c", "[ $0 != 3 ] || [ -e calm ]", "{}"];
    home.eyas(&[&words[..], &command].concat()).exits(1);
    home.write("calm", "");
    home.eyas(&["run", "--resume-failed"]).exits(0).says(&["1 of 1 task succeeded"]);
    let page = wait_for("the report", || fs::read_to_string(home.work().join("r.html")).ok());
    assert!(page.contains("4 done in an earlier run, 1 succeeded"), "the page counts them apart");
    assert_eq!(page.matches("<td class=\"left\">done in an earlier run</td>").count(), 4);
}
