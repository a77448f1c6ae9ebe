//! Nodes that their batch system takes back, whose disk is full, or on which all tasks fail: the
//! tasks run on other nodes.

use std::fs;

use rustix::process::Signal;

use crate::support::{
    Cluster, Home, SmallDisk, finish, is_alive, parent, signal, wait_for, wait_until,
};

/// A task that writes down its process and goes on when there is a file `go`.
const WAITER: &str =
    "echo $$ > ran.new; mv ran.new ran-$$; until [ -e go ]; do sleep 0.02; done; echo $0";

/// A cluster of two nodes that runs one task.
struct TwoNodes {
    cluster: Cluster,
    run: std::process::Child,
    task: u32,
    /// Name of the executor that runs the task: `n1` or `n2`.
    on: usize,
}

/// Starts a task without retries.
fn start_one() -> TwoNodes {
    let mut cluster = Cluster::start(&[&[], &[]]);
    let run = cluster.spawn_on(&["run", "--array", "1", "--", "sh", "-c", WAITER]);
    let task = wait_for("the task runs", || tries(&cluster).pop());
    let executor = parent(task).expect("it runs");
    let on = if cluster.executor(1).process() == executor { 1 } else { 2 };
    assert_eq!(cluster.executor(on).process(), executor);
    TwoNodes { cluster, run, task, on }
}

fn tries(home: &Home) -> Vec<u32> {
    home.names(".").iter().filter_map(|name| name.strip_prefix("ran-")?.parse().ok()).collect()
}

impl TwoNodes {
    /// Checks that the task runs again on the other node and succeeds there.
    fn succeeds_elsewhere(self) {
        let TwoNodes { cluster, run, task, on } = self;
        wait_until("another try", || tries(&cluster).len() == 2);
        assert!(!is_alive(task));
        cluster.write("go", "");
        finish(run).exits(0).says(&["1 of 1 task succeeded"]);
        assert_eq!(cluster.task("1.0")["executor"], format!("n{}", 3 - on));
    }
}

#[test]
fn a_task_that_is_ended_with_its_node_runs_elsewhere_and_needs_no_retry() {
    for how in [Signal::TERM, Signal::INT, Signal::HUP, Signal::XCPU] {
        let mut two = start_one();
        // The executor learns of the task's death first, which is the harder order.
        signal(two.task, how);
        wait_until("it is dead", || !is_alive(two.task));
        signal(two.cluster.executor(two.on).process(), how);
        two.cluster.executor(two.on).wait();
        two.succeeds_elsewhere();
    }
}

#[test]
fn a_task_that_takes_longer_than_any_node_lives_fails_and_names_the_time_limit() {
    const STARTS: usize = 8;
    let mut cluster = Cluster::start(&[&[]]);
    cluster.write("job.toml", format!("[[task]]\ncommand = [\"sh\", \"-c\", \"{WAITER}\"]\n"));
    cluster.run(&["submit", "job.toml"]).exits(0);
    for start in 1..=STARTS {
        wait_until((start, "starts"), || tries(&cluster).len() == start);
        // As a batch system ends a node at its time limit.
        signal(cluster.executor(start).process(), Signal::TERM);
        cluster.executor(start).wait();
        if start == STARTS / 2 {
            cluster.restart_dispatcher();
            let explained = cluster.run(&["explain", "1.0"]).exits(0).stdout;
            assert!(
                explained.contains("Of 8 starts after which it fails, 4 were in vain"),
                "{explained}"
            );
        }
        if start < STARTS {
            cluster.add_executor(&[]);
        }
    }
    cluster.run(&["job", "wait", "1"]).exits(1).says(&["started 8 times", "--time-limit"]);
}

#[test]
fn a_task_killed_with_its_executor_by_a_node_out_of_memory_runs_elsewhere() {
    let mut two = start_one();
    signal(two.task, Signal::KILL);
    wait_until("it is dead", || !is_alive(two.task));
    two.cluster.executor(two.on).kill();
    two.succeeds_elsewhere();
}

#[test]
fn a_task_that_ends_itself_by_a_signal_has_failed() {
    let cluster = Cluster::start(&[&[], &[]]);
    let done = cluster.run(&["run", "--array", "1", "--", "sh", "-c", "kill -TERM $$"]).exits(1);
    assert!(done.stderr.contains("killed by signal 15"), "{}", done.stderr);
    assert_eq!(cluster.task("1.0")["tries"], 1);
}

#[test]
fn a_node_with_a_full_disk_fails_no_task() {
    let Some(disk) = SmallDisk::mount("size=1m") else { return };
    let home = Home::new();
    let folder = disk.path().join("n1");
    let mut cluster = Cluster::start_in(home, &[]);
    cluster.add_executor(&["--folder", folder.to_str().unwrap(), "--keep-free", "0"]);
    cluster.add_executor(&[]);
    cluster.wait_for_executors(2);
    wait_until("its sandbox is made", || folder.join("sandboxes").exists());
    // Not one byte is free.
    let _ = fs::write(disk.path().join("others"), vec![1; 2 << 20]);
    let script = "head -c 100000 /dev/zero >big && cp big out";
    let words = ["run", "--array", "1-20", "-o", "out=out-{}", "--", "sh", "-c", script];
    cluster.run(&words).exits(0).says(&["20 of 20 tasks succeeded"]);
    // A task that fails by itself is not retried.
    cluster
        .run(&["run", "--array", "1", "-o", "out=x", "--", "sh", "-c", "exit 3"])
        .exits(1)
        .says(&["exit code 3"]);
}

#[test]
fn cached_objects_leave_a_full_disk_to_what_tasks_write() {
    let Some(disk) = SmallDisk::mount("size=12m") else { return };
    let mut cluster = Cluster::start_in(Home::new(), &[]);
    let folder = disk.path().join("n1");
    let words = [
        "--folder",
        folder.to_str().unwrap(),
        "--cache",
        "1GB",
        "--keep-free",
        "0B",
        "--slots",
        "2",
    ];
    cluster.add_executor(&words);
    cluster.wait_for_executors(1);
    fs::create_dir(cluster.work().join("in")).unwrap();
    for number in 0..60 {
        fs::write(cluster.work().join(format!("in/{number}")), vec![number; 1_000_000]).unwrap();
    }
    let words =
        ["run", "--sandbox", "--each", "in/*", "--", "sh", "-c", "cat {} >copy && wc -c <copy"];
    let done = cluster.run(&words).exits(0);
    assert_eq!(done.stdout, "1000000\n".repeat(60));
}

#[test]
fn a_node_that_fails_what_another_completes_is_set_aside() {
    let cluster = Cluster::start(&[&[], &[]]);
    // Tasks fail at once where n1 has its sandboxes.
    let script = "case $PWD in */n1/*) exit 1;; esac; sleep 0.02";
    let words = ["run", "--array", "1-60", "--sandbox", "--retries", "9", "--", "sh", "-c", script];
    cluster.run(&words).exits(0).says(&["60 of 60 tasks succeeded"]);
    let executors = cluster.ask(&["executor", "list"], "executors");
    let state = |name: &str| {
        let mut executors = executors.as_array().unwrap().iter();
        executors.find(|executor| executor["name"] == name).unwrap()["state"].clone()
    };
    assert!(state("n1") == "set aside" && state("n2") != "set aside", "{executors}");
    assert!(cluster.job("1")["retried"].as_u64().unwrap() < 60, "it did not draw task after task");
    let log = std::fs::read_to_string(cluster.path("log")).unwrap_or_default();
    assert!(log.contains("n1 is set aside for 1 min"), "{log}");
}
