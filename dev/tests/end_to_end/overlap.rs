//! Staging while other tasks compute, and priorities: a suspended task continues, and leaves
//! nothing behind.

use std::fs;
use std::process::Child;

use crate::support::{Cluster, Home, finish, is_alive, wait_for, wait_until};

/// A task with a child in its process group and one outside. It writes their ids to a file, and
/// continues when there is a file with its own name and `-go`.
const WAITER: &str = "sleep 1000 & a=$!; setsid sleep 1000 & b=$!
    echo $$ $a $b > $0.new; mv $0.new $0-ran-$$; until [ -e $0-go ]; do sleep 0.02; done; echo $0";

/// The processes of the last attempt of a task.
fn processes(home: &Home, name: &str) -> Vec<u32> {
    let prefix = format!("{name}-ran-");
    wait_for((name, "runs"), || {
        let ran: Vec<_> =
            home.names(".").into_iter().filter(|name| name.starts_with(&prefix)).collect();
        let numbers: Vec<u32> =
            home.read(ran.last()?).split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        Some(numbers).filter(|pids| pids.iter().all(|pid| is_alive(*pid)))
    })
}

/// Whether a process is stopped, or waits and no signal reaches it: a shell that has just made a
/// child by `vfork` waits for it, also if the child is stopped.
fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'D']))
}

fn all_are_stopped(processes: &[u32]) -> bool {
    processes.iter().all(|process| is_stopped(*process))
}

/// One executor of one slot on which `low` is suspended while `high`, whose input was staged, runs.
fn one_suspended() -> (Cluster, [Child; 2], Vec<u32>) {
    let cluster = Cluster::start(&[&["--data-intensive", "1kB"]]);
    cluster.write("data", "x".repeat(5000));
    let low = cluster.spawn_on(&["run", "--report", "none", "--", "sh", "-c", WAITER, "low"]);
    let of_low = processes(&cluster, "low");
    let words = [
        "run",
        "--report",
        "none",
        "--priority",
        "5",
        "-i",
        "data",
        "--",
        "sh",
        "-c",
        WAITER,
        "high",
    ];
    let high = cluster.spawn_on(&words);
    let of_high = processes(&cluster, "high");
    wait_until("the higher one runs", || !all_are_stopped(&of_high));
    wait_until("all processes of the lower one are stopped", || all_are_stopped(&of_low));
    (cluster, [low, high], of_low)
}

#[test]
fn a_staged_task_of_higher_priority_suspends_a_running_one_and_both_succeed() {
    let (cluster, [low, high], of_low) = one_suspended();
    wait_until("it is shown", || cluster.task("1.0")["state"] == "suspended");
    let explained = cluster.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(explained.contains("suspended there: tasks of higher priority"), "{explained}");
    let executor = || cluster.ask(&["executor", "list"], "executors")[0].take();
    wait_until("the executor says so", || {
        executor()["suspended"] == 1 && executor()["state"] == "computing"
    });
    cluster.write("high-go", "");
    assert_eq!(finish(high).exits(0).stdout, "high\n");
    wait_until("all its processes go on", || {
        of_low.iter().all(|process| is_alive(*process) && !is_stopped(*process))
    });
    cluster.write("low-go", "");
    assert_eq!(finish(low).exits(0).stdout, "low\n");
    let (low, high) = (cluster.task("1.0"), cluster.task("2.0"));
    assert!(low["suspended_us"].as_u64() > Some(0) && high["suspended_us"] == 0, "{low} {high}");
    assert_eq!(
        (&low["tries"], &low["priority"], &high["priority"]),
        (&1.into(), &0.into(), &5.into())
    );
    wait_until("nothing of it is left", || !of_low.iter().any(|process| is_alive(*process)));
}

#[test]
fn a_killed_executor_leaves_nothing_of_a_suspended_task_which_runs_elsewhere() {
    let (mut cluster, children, of_low) = one_suspended();
    let of_high = processes(&cluster, "high");
    cluster.executor(1).kill();
    wait_until("all processes are dead", || {
        !of_low.iter().chain(&of_high).any(|process| is_alive(*process))
    });
    cluster.write("low-go", "");
    cluster.write("high-go", "");
    cluster.add_executor(&[]);
    for child in children {
        finish(child).exits(0).says(&["1 of 1 task succeeded"]);
    }
}

#[test]
fn a_suspended_task_can_be_cancelled() {
    let (cluster, [low, high], of_low) = one_suspended();
    cluster.run(&["task", "cancel", "1.0"]).exits(0);
    finish(low).exits(1).says(&["1 cancelled"]);
    wait_until("all its processes are dead", || !of_low.iter().any(|process| is_alive(*process)));
    cluster.write("high-go", "");
    finish(high).exits(0);
}

#[test]
fn a_suspended_task_does_not_outlive_its_stopped_executor() {
    let (mut cluster, children, of_low) = one_suspended();
    cluster.run(&["executor", "stop", "n1"]).exits(0);
    wait_until("all its processes are dead", || !of_low.iter().any(|process| is_alive(*process)));
    cluster.write("low-go", "");
    cluster.write("high-go", "");
    cluster.add_executor(&[]);
    for child in children {
        finish(child).exits(0);
    }
}

#[test]
fn suspended_time_is_no_part_of_a_time_limit() {
    let cluster = Cluster::start(&[&[]]);
    let words = ["run", "--report", "none", "--timeout", "2s", "--", "sh", "-c", WAITER, "low"];
    let low = cluster.spawn_on(&words);
    let of_low = processes(&cluster, "low");
    let words = ["run", "--report", "none", "--priority", "1", "--", "sh", "-c", "sleep 2.5"];
    cluster.run(&words).exits(0);
    wait_until("it goes on", || !is_stopped(of_low[0]));
    cluster.write("low-go", "");
    assert_eq!(finish(low).exits(0).stdout, "low\n");
}

/// Submits two tasks whose inputs take seconds to stage, then one without inputs. Returns them in
/// the order of ending.
const TWO_AND_ONE: &str = r#"
[[task]]
command = ["sh", "-c", "cat \"$0\" >/dev/null; echo staged", "{}"]
each = "big-*"

[[task]]
command = ["echo", "computed"]
"#;

fn order_of_ends(words: &[&str]) -> String {
    let shape = ["--data-intensive", "1MB", "--emulate", "storage=4MB/s"];
    let cluster = Cluster::start(&[&[&shape, words].concat()]);
    for name in ["big-1", "big-2"] {
        cluster.write(name, "x".repeat(4_000_000));
    }
    cluster.write("job.toml", TWO_AND_ONE);
    let job = cluster.submit("job.toml");
    if words.is_empty() {
        wait_until("it stages and computes nothing", || {
            let executor = cluster.ask(&["executor", "list"], "executors")[0].take();
            executor["state"] == "staging" && executor["staging"] == 2
        });
    }
    cluster.run(&["job", "wait", &job]).exits(0);
    let rows = cluster.ask(&["task", "list", &job], "tasks");
    let ends = |row: &serde_json::Value| {
        ["queued_us", "waited_us", "ran_us"]
            .iter()
            .map(|name| row[name].as_u64().expect("a time"))
            .sum::<u64>()
    };
    let mut rows: Vec<_> = rows
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| (ends(row), row["task"].clone()))
        .collect();
    rows.sort_by_key(|(ends, _)| *ends);
    rows.into_iter()
        .map(|(_, task)| task.as_str().expect("an id").trim_start_matches("1.").to_owned())
        .collect()
}

#[test]
fn a_node_that_stages_computes_others_meanwhile() {
    let order = order_of_ends(&[]);
    assert!(order.starts_with('2'), "the one without input waited: {order}");
}

#[test]
fn without_overlap_it_does_not() {
    let order = order_of_ends(&["--no-overlap"]);
    assert!(!order.starts_with('2'), "the one without input did not wait: {order}");
}

#[test]
fn bad_priorities_and_thresholds_are_refused() {
    let home = Home::new();
    home.write("job.toml", "priority = \"high\"\n[[task]]\ncommand = [\"true\"]\n");
    home.eyas(&["submit", "job.toml"])
        .exits(1)
        .says(&["job.toml, line 1: `priority` cannot be \"high\": it is a whole number"]);
    home.write("task.jsonl", "{\"command\": [\"true\"], \"priority\": 99999999999}\n");
    home.eyas(&["submit", "task.jsonl"])
        .exits(1)
        .says(&["task.jsonl, line 1: `priority` cannot be 99999999999: it is a whole"]);
    home.eyas(&["run", "--priority", "1.5", "--", "true"]).exits(2).says(&["--priority"]);
    home.eyas(&["run", "--data-intensive", "much", "--", "true"])
        .exits(2)
        .says(&["`much` is not a size"]);
}
