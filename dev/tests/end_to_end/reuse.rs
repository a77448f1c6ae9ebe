//! `--reuse`: a task whose result exists already does not run again.

use rustix::process::Signal;

use crate::support::{Cluster, Home, finish, signal, wait_until};

/// A text for each file, in persistent storage; all texts together, kept in the cluster; their
/// lines, on standard output.
const CHAIN: &str = r#"
    [[task]]
    id = "text"
    each = "in/*"
    command = ["sh", "-c", "cat $0 > text; echo $0 >> FOLDER/ran", "{}"]
    outputs = [{ file = "text", to = "out/{/}" }]
    [[task]]
    id = "all"
    inputs = [{ task = "text" }]
    command = ["sh", "-c", "cat a b c > all; echo all >> FOLDER/ran"]
    outputs = [{ file = "all", keep = true }]
    [[task]]
    inputs = [{ task = "all" }]
    folder = "sandbox"
    command = ["sh", "-c", "cat all; echo lines >> FOLDER/ran"]
"#;

/// Runs the chain again. Returns the number of tasks that ran, and the output of the last one.
#[track_caller]
fn again(cluster: &Cluster, job: u32, words: &[&str]) -> (usize, String) {
    let before = cluster.read("ran").lines().count();
    cluster.run(&[&["submit", "--wait", "chain.toml"], words].concat()).exits(0);
    let log = cluster.run(&["task", "log", &format!("{job}.4")]).exits(0).stdout;
    let ran = cluster.read("ran").lines().count() - before;
    assert_eq!(cluster.job(&job.to_string())["reused"], 5 - ran);
    (ran, log)
}

#[test]
fn tasks_run_again_only_if_something_has_changed() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    for name in ["a", "b", "c"] {
        cluster.write(&format!("in/{name}"), format!("{name}\n"));
    }
    cluster.write("ran", "");
    cluster.write("chain.toml", CHAIN.replace("FOLDER", cluster.work().to_str().unwrap()));
    let abc = || "a\nb\nc\n".to_owned();
    assert_eq!(again(&cluster, 1, &["--reuse"]), (5, abc()));
    assert_eq!(again(&cluster, 2, &["--reuse"]), (0, abc()));
    let why = cluster.run(&["explain", "2.3"]).exits(0).stdout;
    assert!(why.contains("this is the result of task 1.3"), "{why}");
    assert_eq!(again(&cluster, 3, &[]), (5, abc()), "only who asks for it");
    // The outputs of the third job are new versions, so the whole chain runs once more; after that,
    // it is reused.
    assert_eq!(again(&cluster, 4, &["--reuse"]).0, 5);
    assert_eq!(again(&cluster, 5, &["--reuse"]).0, 0);
    cluster.write("out/b", "somebody else's\n");
    assert_eq!(
        again(&cluster, 6, &["--reuse"]),
        (3, abc()),
        "one text, and all that follows from it"
    );
    cluster.write("in/c", "d\n");
    assert_eq!(again(&cluster, 7, &["--reuse"]), (3, "a\nb\nd\n".into()));
    cluster.restart_dispatcher();
    cluster.wait_for_executors(2);
    assert_eq!(again(&cluster, 8, &["--reuse"]), (0, "a\nb\nd\n".into()));
    // A task whose kept output is gone runs again. Its reader does not, because the output is the
    // same.
    for executor in [1, 2] {
        cluster.executor(executor).kill();
    }
    cluster.wait_for_executors(0);
    cluster.add_executor(&[]);
    cluster.wait_for_executors(1);
    wait_until("it is known that nobody has it", || {
        cluster
            .run(&["--json", "catalog", "show", "eyas://7/3/all"])
            .stdout
            .contains("\"holders\": []")
            || cluster
                .run(&["--json", "catalog", "show", "eyas://7/3/all"])
                .stdout
                .contains("\"holders\":[]")
    });
    assert_eq!(again(&cluster, 9, &["--reuse"]).1, "a\nb\nd\n");
}

#[test]
fn another_command_or_environment_is_another_task() {
    let cluster = Cluster::start(&[&[]]);
    let mut jobs = 0;
    let mut reused = |words: &[&str]| {
        cluster.run(&[&["run", "--reuse", "--array", "1-3"], words].concat()).exits(0);
        jobs += 1;
        cluster.job(&jobs.to_string())["reused"].as_u64().unwrap()
    };
    assert_eq!(reused(&["--", "echo", "{}"]), 0);
    assert_eq!(reused(&["--", "echo", "{}"]), 3);
    assert_eq!(reused(&["--", "echo", "x", "{}"]), 0);
    assert_eq!(reused(&["-e", "A=1", "--", "echo", "{}"]), 0);
    assert_eq!(reused(&["-e", "A=1", "--", "echo", "{}"]), 3);
    assert_eq!(
        reused(&["--cpus", "0.5", "--", "echo", "{}"]),
        3,
        "where it runs is not what it does"
    );
    // Failed tasks run again.
    cluster.run(&["run", "--reuse", "--array", "1", "--", "false"]).exits(1);
    cluster.run(&["run", "--reuse", "--array", "1", "--", "false"]).exits(1);
    assert_eq!(cluster.job("8")["reused"], 0);
}

#[test]
fn temporary_clusters_reuse_results_of_earlier_ones() {
    let home = Home::new();
    for name in ["a", "b"] {
        home.write(&format!("in/{name}"), name);
    }
    home.write("ran", "");
    let script = format!("echo $0 >> {}/ran; cat $1", home.work().display());
    let run = |options: &[&str]| {
        let words = ["run", "-k", "--report", "none", "--reuse", "--each", "in/*"];
        let command = ["--", "sh", "-c", &script, "{/}", "{}"];
        let before = home.read("ran").lines().count();
        let done = home.eyas(&[&words[..], options, &command].concat()).exits(0);
        (home.read("ran").lines().count() - before, done.stdout)
    };
    assert_eq!(run(&[]), (2, "a\nb\n".into()));
    assert_eq!(run(&[]), (0, "a\nb\n".into()));
    home.write("in/b", "another b");
    assert_eq!(run(&["--slots", "1"]), (1, "a\nanother b\n".into()));
    // A run beside another one has no results to reuse, and says so.
    let journals = home.path("home/reuse");
    let journal = std::fs::read_dir(&journals).unwrap().next().unwrap().unwrap().path();
    let names = std::fs::read_dir(&journal).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names.retain(|name| name != "journal.output");
    assert_eq!(names, ["journal.mark", "journal.redb", "lock"], "no keys are left");
    let lock = std::fs::File::open(journal.join("lock")).unwrap();
    lock.try_lock().unwrap();
    assert_eq!(run(&[]), (2, "a\nanother b\n".into()));
    drop(lock);
    // What a killed run has left is cancelled, and its keys are removed.
    let words = ["run", "--reuse", "--report", "none", "--", "sh", "-c", "touch begun; sleep 600"];
    let child = home.spawn(&words);
    wait_until("the task runs", || home.work().join("begun").exists());
    signal(child.id(), Signal::KILL);
    finish(child);
    // The next run waits for the dispatcher to end.
    assert_eq!(run(&[]), (0, "a\nanother b\n".into()));
    // A damaged journal costs the results that were in it, and nothing else.
    wait_until("its cluster has ended", || home.processes().is_empty());
    std::fs::write(journal.join("journal.redb"), "no journal").unwrap();
    assert_eq!(run(&[]), (2, "a\nanother b\n".into()));
    assert_eq!(run(&[]), (0, "a\nanother b\n".into()));
}
