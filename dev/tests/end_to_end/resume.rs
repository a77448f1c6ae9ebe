//! `eyas run --resume`: a run goes on where an interrupted or failed one has stopped.

use rustix::process::Signal;

use crate::support::{Cluster, CommandOutput, Home, finish, signal, wait_until};

/// What the record of a run has of each task that has ended, bytes.
const ENTRY_BYTES: u64 = 17;
/// Notes each task that runs; some fail as long as there is no file `mended`, and others wait for
/// the file `go`.
const SCRIPT: &str = "echo $0 >> ran; echo out $0; case $0 in \
                      3) [ -e mended ] || exit 5;; 4|5) until [ -e go ]; do sleep 0.05; done;; esac";

fn command<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let words = ["run", "--slots", "4", "-k", "--report", "none"];
    [&words[..], options, &["--array", "1-5", "--", "sh", "-c", SCRIPT, "{}"]].concat()
}

/// The tasks that have run since the last question, in rising order.
fn ran(home: &Home) -> Vec<String> {
    let mut ran: Vec<_> = home.read("ran").lines().map(str::to_owned).collect();
    home.write("ran", "");
    ran.sort();
    ran
}

fn resume(home: &Home, words: &[&str]) -> CommandOutput {
    home.eyas(&[&["run"], words].concat())
}

/// Starts a run of which two tasks succeed and one fails, and ends it while the others run.
fn interrupted(home: &Home, how: Signal, options: &[&str]) -> CommandOutput {
    home.write("ran", "");
    let child = home.spawn(&command(options));
    wait_until("three tasks have ended and two run", || {
        let records = std::fs::read_dir(home.path("home/resume")).into_iter().flatten().flatten();
        let ended = records.filter_map(|record| record.path().join("ended").metadata().ok());
        ended.map(|file| file.len()).sum::<u64>() == 3 * ENTRY_BYTES
            && home.read("ran").lines().count() == 5
    });
    signal(child.id(), how);
    let done = finish(child);
    home.wait_until_empty();
    home.write("go", "");
    ran(home);
    done
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_goes_on() {
    let home = Home::new();
    interrupted(&home, Signal::INT, &["--joblog", "log.csv"]).exits(130).says(&[
        "`eyas run --resume` runs the 2 tasks that are left; `eyas run --resume-failed` runs the 1 \
         failed task again, too",
    ]);
    let ahead = resume(&home, &["--resume", "--slots", "2"]).exits(2);
    ahead.says(&["--slots needs the command of the tasks"]);
    let rest = resume(&home, &["--resume"]).exits(1);
    assert_eq!(
        (rest.stdout.as_str(), ran(&home)),
        ("out 4\nout 5\n", ["4", "5"].map(str::to_owned).to_vec())
    );
    rest.says(&["3 of 5 tasks ran before, and 1 of them failed", "runs the 1 failed task again"]);
    home.write("mended", "");
    // The log of tasks goes on, too.
    let mended = resume(&home, &["--resume-failed"]).exits(0);
    assert_eq!((mended.stdout.as_str(), ran(&home)), ("out 3\n", vec!["3".to_owned()]));
    let log = home.read("log.csv");
    let tasks: Vec<_> = log.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(tasks[0], "task", "{log}");
    assert_eq!((tasks[tasks.len() - 1], log.matches("task,").count()), ("2", 1), "{log}");
    // Nothing is left, and the whole command begins anew.
    resume(&home, &["--resume"]).exits(0).says(&["5 of 5 tasks ran before"]);
    home.eyas(&command(&[])).exits(0);
    assert_eq!(ran(&home).len(), 5);
}

#[test]
fn a_killed_run_goes_on() {
    let home = Home::new();
    assert_eq!(interrupted(&home, Signal::KILL, &[]).code, 137);
    home.write("mended", "");
    let plan = home.eyas(&command(&["--resume-failed", "--dry-run"])).exits(0);
    assert_eq!(plan.stdout.lines().count(), 3, "{}", plan.stdout);
    // With the whole command, options may be others.
    let done = home.eyas(&command(&["--resume-failed", "--memory", "1GB"])).exits(0);
    assert_eq!(done.stdout, "out 3\nout 4\nout 5\n");
    done.says(&["2 of 5 tasks ran before"]);
}

#[test]
fn a_changed_file_runs_again_and_a_mended_program_does_not() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        home.write(&format!("in/{name}"), name);
    }
    home.write("ran", "");
    let here = home.work();
    let program = |on_b: &str| {
        format!("[ $1 != b ] || {on_b}; echo $1 >> {}/ran; cat $2 > out", here.display())
    };
    home.write("cut.sh", program("exit 7"));
    let run = |options: &[&str]| {
        let words =
            ["run", "--report", "none", "--each", "in/*", "-i", "cut.sh", "-o", "out={/}.out"];
        let command = ["--", "sh", "cut.sh", "{/}", "{}"];
        home.eyas(&[&words[..], options, &command].concat())
    };
    run(&[]).exits(1).says(&["`eyas run --resume-failed` runs the 1 failed task again"]);
    assert_eq!(ran(&home), ["a", "c"]);
    home.write("cut.sh", program("true"));
    home.write("in/c", "another c");
    resume(&home, &["--resume-failed"]).exits(0).says(&["1 of 3 tasks ran before"]);
    assert_eq!(ran(&home), ["b", "c"]);
    assert_eq!([home.read("b.out"), home.read("c.out")], ["b", "another c"]);
    // A command that is repeated until nothing is left.
    run(&["--resume-failed"]).exits(0).says(&["3 of 3 tasks ran before"]);
    assert!(ran(&home).is_empty());
}

#[test]
fn a_run_that_is_not_known_is_said() {
    let home = Home::new();
    resume(&home, &["--resume"]).exits(2).says(&["no run in this folder has tasks left"]);
    let all = home.eyas(&["run", "--resume", "--report", "none", "--", "echo", ":::", "a", "b"]);
    all.exits(0).says(&["no earlier run of this command in this folder is known"]);
    resume(&home, &["--resume", "--resume-failed"]).exits(2).says(&["cannot be used with"]);
}

#[test]
fn on_a_cluster_that_stays_results_of_a_run_are_known_too() {
    let cluster = Cluster::start(&[&["--slots", "4"]]);
    cluster.write("ran", "");
    cluster.write("go", "");
    let run = |options: &[&str]| {
        let words = ["run", "-k", "--report", "none", "--array", "1-5"];
        cluster.run(&[&words[..], options, &["--", "sh", "-c", SCRIPT, "{}"]].concat())
    };
    run(&[]).exits(1).says(&["`eyas job retry 1 --cluster test` runs the 1 unsuccessful task"]);
    cluster.write("mended", "");
    assert_eq!(run(&["--resume-failed"]).exits(0).stdout, "out 3\n");
}

#[test]
fn a_run_under_way_is_not_resumed() {
    let home = Home::new();
    home.write("ran", "");
    home.write("mended", "");
    let child = home.spawn(&command(&[]));
    wait_until("all tasks have begun", || home.read("ran").lines().count() == 5);
    resume(&home, &["--resume"]).exits(2).says(&["no run in this folder has tasks left"]);
    home.write("go", "");
    finish(child).exits(0);
    let records = std::fs::read_dir(home.path("home/resume")).unwrap();
    assert_eq!(records.count(), 0, "a run whose tasks have all succeeded leaves no record");
}
