//! Processes that die, hang or exceed their time limit: no accepted task is lost, no result is
//! counted twice, and no process of a task survives.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;

use rustix::process::Signal;

use crate::support::{Cluster, Home, finish, is_alive, parent, signal, wait_for, wait_until};

/// A task that writes its process id and that of a child to a file, and continues when there is a
/// file `go`.
const WAITER: &str = "sleep 1000 & echo $$ $! > ran-$0.new; mv ran-$0.new ran-$0-$$; until [ -e \
                      go ]; do sleep 0.02; done; echo $0";

/// The processes of all attempts of a task so far: the task and its child.
fn tries(home: &Home, task: u32) -> Vec<[u32; 2]> {
    let names =
        home.names(".").into_iter().filter(|name| name.starts_with(&format!("ran-{task}-")));
    let processes = names.map(|name| {
        let text = home.read(&name);
        let numbers: Vec<u32> =
            text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        [numbers[0], numbers[1]]
    });
    processes.collect()
}

fn waiters(cluster: &Cluster, range: &str, words: &[&str]) -> Child {
    cluster.spawn_on(
        &[&["run", "-k", "--array", range], words, &["--", "sh", "-c", WAITER, "{}"]].concat(),
    )
}

fn wait_for_tries(home: &Home, task: u32, count: usize) -> Vec<[u32; 2]> {
    wait_for((task, "is tried", count, "times"), || {
        Some(tries(home, task)).filter(|tries| tries.len() >= count)
    })
}

#[test]
fn a_killed_task_is_reported_as_killed() {
    let cluster = Cluster::start(&[&[]]);
    let run = waiters(&cluster, "1", &[]);
    let [task, child] = wait_for_tries(&cluster, 1, 1)[0];
    signal(task, Signal::KILL);
    finish(run).exits(1).says(&["killed by signal 9", "0 of 1 task succeeded, 1 failed"]);
    wait_until("the rest of its group is gone", || !is_alive(child));
    assert_eq!(cluster.task("1.0")["status"], "killed by signal 9");
}

#[test]
fn a_killed_task_is_tried_again_as_often_as_was_asked() {
    let cluster = Cluster::start(&[&[]]);
    let run = waiters(&cluster, "1", &["--retries", "2"]);
    for already in 0..2 {
        let all = wait_for_tries(&cluster, 1, already + 1);
        all.iter().for_each(|[task, _]| signal(*task, Signal::KILL));
    }
    wait_for_tries(&cluster, 1, 3);
    cluster.write("go", "");
    assert_eq!(finish(run).exits(0).stdout, "1\n");
    assert_eq!(
        (&cluster.task("1.0")["tries"], &cluster.job("1")["retried"]),
        (&3.into(), &2.into())
    );
}

#[test]
fn the_tasks_of_a_killed_executor_run_elsewhere_and_are_counted_once() {
    let mut cluster = Cluster::start(&[&["--slots", "2"], &["--slots", "2"]]);
    let run = waiters(&cluster, "1-12", &[]);
    let running = || (1..=12).filter(|task| !tries(&cluster, *task).is_empty()).collect::<Vec<_>>();
    let first = wait_for("four tasks run", || Some(running()).filter(|running| running.len() == 4));
    let processes: Vec<u32> = first.iter().flat_map(|task| tries(&cluster, *task)[0]).collect();
    cluster.executor(1).kill();
    // Its tasks are dead, and its sandboxes removed; the tasks of the other executor still run.
    wait_until("its tasks are dead", || {
        processes.iter().filter(|process| is_alive(**process)).count() == 4
    });
    let sandboxes = cluster.executor(1).folder().join("sandboxes");
    wait_until("its sandboxes are removed", || !sandboxes.exists());
    cluster.write("go", "");
    let expected: String = (1..=12).map(|task| format!("{task}\n")).collect();
    let done = finish(run).exits(0).says(&["12 of 12 tasks succeeded"]);
    assert_eq!(done.stdout, expected);
    let counts: Vec<usize> = (1..=12).map(|task| tries(&cluster, task).len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 14, "two tasks were lost and ran twice: {counts:?}");
}

#[test]
fn an_executor_that_says_nothing_is_done_without_and_may_come_back() {
    let mut cluster = Cluster::start_with(&["--heartbeat", "300ms"], &[&[], &[]]);
    let run = waiters(&cluster, "1-4", &[]);
    wait_until("two tasks run", || {
        (1..=4).filter(|task| !tries(&cluster, *task).is_empty()).count() == 2
    });
    cluster.executor(1).suspend();
    cluster.wait_for_executors(1);
    cluster.write("go", "");
    assert_eq!(finish(run).exits(0).stdout, "1\n2\n3\n4\n");
    cluster.executor(1).resume();
    cluster.wait_for_executors(2);
    assert_eq!(
        cluster.run(&["run", "-k", "--array", "1-4", "--", "echo", "{}"]).exits(0).stdout,
        "1\n2\n3\n4\n"
    );
}

#[test]
fn a_killed_dispatcher_goes_on_where_it_was() {
    let mut cluster = Cluster::start(&[&["--slots", "2"], &["--slots", "2"]]);
    let work = cluster.work();
    cluster.write(
        "chain.toml",
        r#"
            [[task]]
            id = "made"
            command = ["sh", "-c", "until [ -e $WORK/go ]; do sleep 0.02; done; echo made > out"]
            outputs = [{ file = "out", to = "made" }]
            env = { WORK = "FOLDER" }
            [[task]]
            command = ["sh", "-c", "cat made > last"]
            inputs = [{ task = "made" }]
            outputs = [{ file = "last" }]
        "#
        .replace("FOLDER", work.to_str().unwrap()),
    );
    let script = "echo x >> ended-$0; [ $0 -gt 5 ] || { echo $0; exit; }; until [ -e go ]; do \
                  sleep 0.02; done; echo $0";
    let mut run = cluster.spawn_on(&["run", "--array", "1-12", "--", "sh", "-c", script, "{}"]);
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let shown: Vec<String> = lines.by_ref().take(5).map(Result::unwrap).collect();
    let chain = cluster.submit("chain.toml");
    cluster.restart_dispatcher();
    // No wait is needed: the earlier state still holds.
    let job = cluster.job("1");
    assert!(job["state"] == "running" && job["tasks"]["succeeded"] == 5, "{job}");
    for item in &shown {
        let task = format!("1.{}", item.parse::<u32>().unwrap() - 1);
        assert_eq!(cluster.run(&["task", "log", &task]).exits(0).stdout, format!("{item}\n"));
    }
    cluster.wait_for_executors(2);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0).says(&["12 of 12 tasks succeeded"]);
    let mut shown_later: Vec<u32> = lines.map(|line| line.unwrap().parse().unwrap()).collect();
    shown_later.sort_unstable();
    assert_eq!((run.wait().unwrap().code(), shown_later), (Some(0), (6..=12).collect()));
    let ran = |item: &String| cluster.read(&format!("ended-{item}")).lines().count();
    assert!(shown.iter().all(|item| ran(item) == 1), "what had ended ran again");
    cluster.run(&["job", "wait", &chain]).exits(0);
    assert_eq!(cluster.read("last"), "made\n");
    // Another restart, with no unfinished job; ids continue.
    cluster.restart_dispatcher();
    assert_eq!(cluster.job("1")["state"], "succeeded");
    cluster.wait_for_executors(2);
    assert_eq!(cluster.submit("chain.toml"), "3");
    cluster.run(&["job", "wait", "3"]).exits(0);
}

#[test]
fn an_executor_whose_dispatcher_does_not_come_back_gives_up_and_leaves_nothing_running() {
    let mut cluster = Cluster::start(&[&["--reconnect", "300ms"]]);
    let run = waiters(&cluster, "1", &["--reconnect", "300ms"]);
    let processes = wait_for_tries(&cluster, 1, 1)[0];
    signal(cluster.dispatcher(), Signal::KILL);
    finish(run).exits(1).says(&["connection", "has ended", "trying to reconnect", "cannot reach"]);
    cluster.executor(1).wait();
    wait_until("its task is dead", || !processes.iter().any(|process| is_alive(*process)));
}

#[test]
fn a_task_that_takes_too_long_is_killed_with_all_that_it_started() {
    let home = Home::new();
    let words = ["run", "--array", "1-2", "--timeout", "300ms", "--", "sh", "-c", WAITER, "{}"];
    let done = home.eyas(&words).exits(1).says(&["did not succeed: timed out", "2 failed"]);
    assert_eq!(done.stdout, "");
    let all: Vec<u32> = (1..=2).flat_map(|task| tries(&home, task)).flatten().collect();
    assert_eq!(all.len(), 4);
    wait_until("all of them are dead", || !all.iter().any(|process| is_alive(*process)));
}

#[test]
fn processes_that_left_the_process_group_die_with_the_task() {
    let cluster = Cluster::start(&[&[]]);
    let script = "setsid sleep 1000 >/dev/null 2>&1 & timeout 1000 sleep 1001 & setsid sh -c \
                  'sleep 1002 & sleep 1003 & wait' & echo started > $0; [ $0 = ends ] || wait";
    let run = |name: &str, words: &[&str]| {
        cluster.spawn_on(
            &[&["run", "--array", "1"], words, &["--", "sh", "-c", script, name]].concat(),
        )
    };
    finish(run("ends", &[])).exits(0);
    finish(run("late", &["--timeout", "500ms"])).exits(1).says(&["timed out"]);
    let cancelled = run("cancelled", &[]);
    cluster.wait_for_file("cancelled");
    cluster.run(&["job", "cancel", "3"]).exits(0);
    finish(cancelled).exits(1);
    wait_until("all of them are dead", || {
        cluster.processes().iter().all(|(_, command)| !command.contains("sleep 100"))
    });
}

#[test]
fn an_executor_that_was_suspended_does_not_overwrite_what_its_successor_has_written() {
    let cluster = Cluster::start_with(&["--heartbeat", "300ms"], &[&[], &[]]);
    let script = "echo $$ > $0/$$.new; mv $0/$$.new $0/$$.ran; until [ -e $0/go-$$ ]; do sleep \
                  0.02; done; echo $$ > out";
    let work = cluster.work().display().to_string();
    let run = cluster.spawn_on(&[
        "run",
        "--array",
        "1",
        "-o",
        "out=result",
        "--",
        "sh",
        "-c",
        script,
        &work,
    ]);
    let tries = || {
        let names = cluster.names(".").into_iter().filter(|name| name.ends_with(".ran"));
        names.map(|name| cluster.read(&name).trim().to_owned()).collect::<Vec<_>>()
    };
    let first = wait_for("a try", || tries().pop());
    let suspended = parent(first.parse().unwrap()).expect("it runs");
    signal(suspended, Signal::STOP);
    let second = wait_for("another try", || tries().into_iter().find(|process| *process != first));
    cluster.write(&format!("go-{second}"), "");
    finish(run).exits(0);
    assert_eq!(cluster.read("result").trim(), second);
    // The first attempt ends now, before its executor learns that it was given up.
    cluster.write(&format!("go-{first}"), "");
    wait_until("the first try has ended", || !is_alive(first.parse().unwrap()));
    signal(suspended, Signal::CONT);
    cluster.wait_for_executors(2);
    assert_eq!(cluster.read("result").trim(), second);
}

#[test]
fn an_executor_can_be_stopped_and_its_tasks_run_elsewhere() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    let run = waiters(&cluster, "1-3", &[]);
    wait_until("two tasks run", || {
        (1..=3).filter(|task| !tries(&cluster, *task).is_empty()).count() == 2
    });
    cluster.run(&["executor", "stop", "n1"]).exits(0);
    cluster.executor(1).wait();
    cluster.wait_for_executors(1);
    cluster.write("go", "");
    assert_eq!(finish(run).exits(0).stdout, "1\n2\n3\n");
    cluster.run(&["executor", "stop", "n1"]).exits(1).says(&["there is no executor `n1`"]);
}

#[test]
fn a_crash_in_the_middle_of_an_output_leaves_no_part_of_it() {
    // Emulated storage is slow, so that executors are killed while they fetch.
    let mut cluster = Cluster::start(&[&["--emulate", "storage=8Mbit/s"]]);
    let script = "head -c 2000000 /dev/zero > big";
    let run =
        cluster.spawn_on(&["run", "--array", "1", "-o", "big=out/big", "--", "sh", "-c", script]);
    let out = cluster.work().join("out");
    let partial =
        || fs::read_dir(&out).ok()?.next()?.ok()?.metadata().ok().map(|metadata| metadata.len());
    wait_until("it is being written", || partial().is_some_and(|bytes| bytes > 0));
    assert!(!out.join("big").exists(), "it is seen before it is whole");
    cluster.executor(1).kill();
    assert!(!out.join("big").exists());
    cluster.add_executor(&[]);
    finish(run).exits(0);
    assert_eq!(fs::metadata(out.join("big")).unwrap().len(), 2_000_000);
}
