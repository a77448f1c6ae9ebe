//! Items, results and stops of `eyas run` as users of GNU parallel know them: lists behind the
//! command, a log of tasks, files of results, and rules for when a job stops.

use crate::support::{Cluster, Home};

/// Options of a run without a report and with two tasks at a time.
const RUN: [&str; 5] = ["run", "-j", "2", "--report", "none"];

fn words<'a>(options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&RUN[..], options, &["--"], command].concat()
}

#[test]
fn lists_behind_the_command_are_combined() {
    let home = Home::new();
    home.write("list", "x\ny\n");
    for (command, lines) in [
        (&["echo", ":::", "a", "b"][..], "a\nb\n"),
        (&["echo", "{2}{1}", ":::", "a", "b", ":::", "1", "2"], "1a\n2a\n1b\n2b\n"),
        (&["echo", "{1}-{2}", ":::", "a", "b", ":::+", "1", "2"], "a-1\nb-2\n"),
        (&["echo", "{1}{2}", "::::", "list", ":::", "1", "2"], "x1\nx2\ny1\ny2\n"),
    ] {
        assert_eq!(home.eyas(&words(&["-k"], command)).exits(0).stdout, lines);
    }
    let ranges = words(&["-k", "--array", "0-0.5:0.25", "--array", "7-8"], &["echo", "{2}/{1}"]);
    let done = home.eyas(&ranges).exits(0);
    assert_eq!(done.stdout, "7/0.00\n8/0.00\n7/0.25\n8/0.25\n7/0.50\n8/0.50\n");
    // A list without items has no tasks; a list beside other items is refused.
    home.eyas(&words(&[], &["echo", ":::"])).exits(0).says(&["a list behind the command has no"]);
    home.eyas(&words(&["--array", "1-3"], &["echo", ":::", "a"]))
        .exits(1)
        .says(&["a task has one"]);
    home.eyas(&words(&[], &["echo", ":::+", "a"])).exits(1).says(&["write `:::`"]);
}

#[test]
fn a_dry_run_prints_commands_that_a_shell_can_run() {
    let home = Home::new();
    home.write("my file", "");
    let command = ["sh", "-c", "echo it\\'s $1", "sh", "{}"];
    let options = [&["run", "--dry-run", "--each", "my *", "--"][..], &command].concat();
    let printed = home.eyas(&options).exits(0).stdout;
    assert_eq!(printed, "sh -c 'echo it\\'\\''s $1' sh 'my file'\n");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &printed]);
    let ran = home.finish(shell);
    assert_eq!(ran.exits(0).stdout, "it's my file\n");
    assert!(home.names("").iter().all(|name| !name.contains("reports")), "nothing has run");
}

#[test]
fn each_task_has_a_line_in_the_log_and_files_of_its_output() {
    let home = Home::new();
    let script = "echo out $0; echo err >&2; [ $0 != b,c ] || exit 4";
    let options = ["--tag", "-k", "--joblog", "log.csv", "--results", "results"];
    let done = home.eyas(&words(&options, &["sh", "-c", script, ":::", "a", "b,c"])).exits(1);
    assert_eq!(done.stdout, "a\tout a\nb,c\tout b,c\n");
    assert!(done.stderr.contains("\nb,c\terr\n"), "{}", done.stderr);
    let log = home.read("log.csv");
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].starts_with("task,executor,start_unix_s,"), "{log}");
    let failed = lines.iter().find(|line| line.starts_with("1,")).expect("a line of the task");
    assert!(failed.contains(",4,,exit code 4,\"b,c\",\"sh -c '"), "{log}");
    assert_eq!(lines.len(), 3);
    for (file, content) in
        [("0/stdout", "out a\n"), ("1/stdout", "out b,c\n"), ("1/stderr", "err\n")]
    {
        assert_eq!(home.read(&format!("results/{file}")), content);
    }
    // With a placeholder, folders have the names of items.
    let named = ["--results", "by-name/{}", "-k"];
    home.eyas(&words(&named, &["printf", "{}", ":::", "a", "b"])).exits(0);
    assert_eq!(home.read("by-name/b/stdout"), "b");
    let twice = home.eyas(&words(&named, &["printf", "{}", ":::", "a", "a"])).exits(1);
    twice.says(&["have the same folder `by-name/a`", "write {#}"]);
    let nowhere = ["--joblog", "no/such/log.csv"];
    home.eyas(&words(&nowhere, &["true"])).exits(1).says(&["cannot write no/such/log.csv"]);
}

#[test]
fn large_output_is_tagged_and_written_whole() {
    let home = Home::new();
    let script = "yes line | head -n 500000";
    let done = home
        .eyas(&words(&["--tag", "--results", "results"], &["sh", "-c", script, ":::", "a"]))
        .exits(0);
    assert_eq!(done.stdout.len(), 500_000 * "a\tline\n".len());
    assert!(done.stdout.lines().all(|line| line == "a\tline"));
    assert_eq!(home.read("results/0/stdout").len(), 500_000 * "line\n".len());
}

#[test]
fn a_job_stops_when_its_rule_says_so() {
    let home = Home::new();
    let fails = ["sh", "-c", "echo bad >&2; exit 3"];
    let array = |rule: &[&'static str]| [&["--array", "1-500"][..], rule].concat();
    let stopped = home.eyas(&words(&array(&[]), &fails)).exits(1);
    stopped.says(&["ended in the same way (exit code 3)", "--halt never", " cancelled in "]);
    home.eyas(&words(&array(&["--halt", "never"]), &fails)).exits(1).says(&["500 failed in "]);
    let one = home.eyas(&words(&array(&["--halt", "now,fail=1"]), &fails)).exits(1);
    one.says(&["1 task did not succeed, so the job stops"]);
    let first =
        home.eyas(&words(&array(&["--halt", "now,success=1"]), &["echo", "found"])).exits(0);
    first.says(&["1 task succeeded, so the job stops"]);
    home.eyas(&words(&["--halt", "x"], &["true"])).exits(2).says(&["such as now,fail=1"]);
}

#[test]
fn tasks_that_executors_have_end_before_the_job_stops_soon() {
    let cluster = Cluster::start(&[&["--slots", "1"]]);
    let script = "sleep 0.2; echo ran $0; exit 1";
    let run = ["run", "--array", "1-200", "--halt", "soon,fail=1", "--", "sh", "-c", script, "{}"];
    let done = cluster.run(&run).exits(1).says(&["so the job stops"]);
    assert!(!done.stderr.contains(" 0 cancelled"), "{}", done.stderr);
    let job = cluster.job("1");
    let [failed, cancelled] =
        ["failed", "cancelled"].map(|end| job["tasks"][end].as_u64().unwrap());
    assert_eq!(failed + cancelled, 200);
    assert_eq!(done.stdout.lines().count() as u64, failed, "what began has ended: {done:?}");
    assert!(cancelled > 100, "{job}");
}
