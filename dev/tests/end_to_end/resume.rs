//! `eyas run --resume`: a run goes on where an interrupted or failed one has stopped.

use rustix::process::Signal;

use crate::support::{Cluster, CommandOutput, Home, finish, signal, wait_until};

/// What the record of a run has of each task that has ended, bytes.
const ENTRY_BYTES: u64 = 17;
/// Notes each task that runs; some fail as long as there is no file `mended`, and others wait for
/// the file `go`.
const SCRIPT: &str = "echo $0 >> ran; echo out $0; case $0 in 3) [ -e mended ] || exit 5;; \
                      4|5) until [ -e go ]; do sleep 0.05; done;; esac";

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
    let plan = resume(&home, &["--resume", "--dry-run"]).exits(0);
    assert_eq!(plan.stdout.lines().count(), 2, "{}", plan.stdout);
    let rest = resume(&home, &["--resume"]).exits(1).says(&["goes on with the run that began "]);
    assert_eq!(
        (rest.stdout.as_str(), ran(&home)),
        ("out 4\nout 5\n", ["4", "5"].map(str::to_owned).to_vec())
    );
    rest.says(&[
        "3 of 5 tasks ran before, and 1 of them failed",
        "2 of 2 tasks succeeded",
        "runs the 1 failed task again",
    ]);
    home.write("mended", "");
    // The log of tasks goes on, too.
    let mended = resume(&home, &["--resume-failed"]).exits(0);
    assert_eq!((mended.stdout.as_str(), ran(&home)), ("out 3\n", vec!["3".to_owned()]));
    let log = home.read("log.csv");
    let tasks: Vec<_> = log.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(tasks[0], "task", "{log}");
    assert_eq!((tasks[tasks.len() - 1], log.matches("task,").count()), ("2", 1), "{log}");
    // Nothing is left, and the whole command begins anew.
    resume(&home, &["--resume"]).exits(2).says(&["no run in this folder has tasks left"]);
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
    all.exits(0).says(&["no earlier run in this folder has done one of these tasks"]);
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
    for words in [vec!["run", "--resume"], command(&["--resume"])] {
        let refused = home.eyas(&words);
        assert_ne!(refused.code, 0);
        refused.says(&["is still under way: wait for its end"]);
    }
    home.write("go", "");
    finish(child).exits(0);
    let records = std::fs::read_dir(home.path("home/resume")).unwrap();
    assert_eq!(records.count(), 0, "a run whose tasks have all succeeded leaves no record");
}

/// Runs `echo ITEM` for the items, with these options, and a failure for the item `bad`.
fn echo(home: &Home, options: &[&str], items: &[&str]) -> CommandOutput {
    let script = "echo $0; [ $0 != bad ] || [ -e mended ]";
    let words = ["run", "--slots", "1", "--nodes", "1", "-k", "--report", "none"];
    let command = ["--", "sh", "-c", script, ":::"];
    home.eyas(&[&words[..], options, &command, items].concat())
}

#[test]
fn runs_of_the_same_command_are_told_apart_by_their_tasks() {
    let home = Home::new();
    echo(&home, &[], &["a", "bad", "c"]).exits(1);
    echo(&home, &[], &["x", "bad", "z"]).exits(1);
    home.write("mended", "");
    // The older run, with an item more.
    let mended = echo(&home, &["--resume-failed"], &["a", "bad", "c", "d"]).exits(0);
    assert_eq!(mended.stdout, "bad\nd\n");
    mended.says(&["2 of 4 tasks ran before"]);
    let other = resume(&home, &["--resume-failed"]).exits(0);
    assert_eq!(other.stdout, "bad\n");
}

#[test]
fn tasks_that_are_the_same_are_counted() {
    let home = Home::new();
    let make = |options: &[&str]| {
        let words = ["run", "-j", "1", "--report", "none"];
        let command = ["--", "sh", "-c", "mkdir d$0", ":::", "a", "a", "b"];
        home.eyas(&[&words[..], options, &command].concat())
    };
    make(&[]).exits(1);
    make(&["--resume"]).exits(1).says(&["3 of 3 tasks ran before, and 1 of them failed"]);
    std::fs::remove_dir(home.work().join("da")).unwrap();
    make(&["--resume-failed"]).exits(0).says(&["2 of 3 tasks ran before"]);
}

#[test]
fn a_result_that_was_not_delivered_is_not_done() {
    let home = Home::new();
    // With `-k`, the results of the others wait for the first one.
    let script = "[ $0 != 1 ] || until [ -e go ]; do sleep 0.05; done; echo $0 >> ran; echo out $0";
    let words = ["run", "--slots", "4", "-k", "--report", "none", "--results", "results"];
    let command = ["--", "sh", "-c", script, ":::", "1", "2", "3"];
    home.write("ran", "");
    let child = home.spawn(&[&words[..], &command].concat());
    wait_until("the others have ended", || home.read("ran").lines().count() == 2);
    signal(child.id(), Signal::KILL);
    finish(child);
    home.wait_until_empty();
    home.write("go", "");
    let whole = home.eyas(&[&words[..], &["--resume"], &command].concat()).exits(0);
    assert_eq!(whole.stdout, "out 1\nout 2\nout 3\n");
    assert_eq!(home.read("results/2/stdout"), "out 3\n");
    // What cannot be written is run again.
    home.write("in-the-way/1", "a file");
    let wrong = ["run", "-j", "1", "--report", "none", "--results", "in-the-way", "--"];
    home.eyas(&[&wrong[..], &["echo", ":::", "a", "b", "c"]].concat()).exits(1);
    std::fs::remove_file(home.work().join("in-the-way/1")).unwrap();
    resume(&home, &["--resume"]).exits(0);
    assert_eq!(home.read("in-the-way/2/stdout"), "c\n");
}

#[test]
fn records_that_are_damaged_are_passed_over() {
    let home = Home::new();
    echo(&home, &[], &["a", "bad"]).exits(1);
    let records = home.path("home/resume");
    for (name, words) in [("99999999999999999-1", "[]"), ("99999999999999998-1", "[\"stop\"]")] {
        let record = records.join(name);
        std::fs::create_dir(&record).unwrap();
        let folder = home.work().display().to_string();
        let text = format!(
            "{{\"format\":1,\"folder\":\"{folder}\",\"words\":{words},\"command\":[],\
             \"tasks\":2,\"job\":null}}"
        );
        std::fs::write(record.join("run.json"), text).unwrap();
        std::fs::write(record.join("ended"), "").unwrap();
    }
    std::fs::create_dir(records.join("99999999999999997-1")).unwrap();
    let half = records.join("99999999999999996-1");
    std::fs::create_dir(&half).unwrap();
    let whole = std::fs::read_dir(&records).unwrap().flatten().map(|entry| entry.path());
    let whole = whole.min().unwrap();
    std::fs::copy(whole.join("run.json"), half.join("run.json")).unwrap();
    home.write("mended", "");
    let done = resume(&home, &["--resume-failed"]).exits(0);
    assert_eq!(done.stdout, "bad\n");
    done.says(&["the record ", "cannot be read"]);
}

#[test]
fn a_job_that_goes_on_without_its_run_is_not_run_twice() {
    let cluster = Cluster::start(&[&["--slots", "4"]]);
    cluster.write("ran", "");
    let words = ["run", "-k", "--report", "none", "--array", "1-5"];
    let command = ["--", "sh", "-c", SCRIPT, "{}"];
    let child = cluster.spawn_on(&[&words[..], &command].concat());
    wait_until("a record has two tasks", || {
        let records =
            std::fs::read_dir(cluster.path("home/resume")).into_iter().flatten().flatten();
        let ended = records.filter_map(|record| record.path().join("ended").metadata().ok());
        ended.map(|file| file.len()).sum::<u64>() >= 2 * ENTRY_BYTES
    });
    signal(child.id(), Signal::KILL);
    finish(child);
    let again = [&words[..], &["--resume"], &command].concat();
    cluster.run(&again).exits(1).says(&["job 1 of the earlier run goes on: wait for it with"]);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]);
}
