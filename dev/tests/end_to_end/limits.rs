//! Limits of memory and processors of tasks: by control groups, and by looking at processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::dfs::joined;
use crate::support::{
    Cluster, Home, can_use, children, eyas, finish, is_alive, signal, wait_for, wait_until,
};

/// Holds 200 MB of memory until the end of the task: `tail` keeps a line that does not end.
const HOLDS_200_MB: &str =
    "head -c 200000000 /dev/zero | tail | { read -r line < /dev/null; sleep 1000; }";
/// Uses 200 MB of memory, and ends.
const USES_200_MB: &str = "head -c 200000000 /dev/zero | tail | wc -c";

/// The group of this process in a hierarchy of version 1.
fn own_group(controller: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups
        .lines()
        .find_map(|line| line.split_once(&format!(":{controller}:"))?.1.strip_prefix('/'))?;
    Some(PathBuf::from("/sys/fs/cgroup").join(controller).join(path))
        .filter(|folder| folder.is_dir())
}

/// Whether control groups of version 1 can be made here. If not, prints that they are not tested.
fn can_make_groups() -> bool {
    let can = ["memory", "cpu"].iter().all(|controller| {
        let probe = own_group(controller)
            .map(|group| group.join(format!("eyas-probe-{}", std::process::id())));
        probe.is_some_and(|probe| fs::create_dir(&probe).is_ok() && fs::remove_dir(&probe).is_ok())
    });
    if !can {
        eprintln!(
            "SKIPPED: this user cannot make control groups (version 1) with the controllers \
             memory and cpu"
        );
    }
    can
}

/// The ways to limit memory that can be tested here.
fn ways() -> &'static [&'static str] {
    if can_make_groups() { &["cgroup", "poll"] } else { &["poll"] }
}

/// Groups that an executor has made.
fn groups_of(executor: u32) -> Vec<PathBuf> {
    let outer = ["memory", "cpu"].iter().filter_map(|controller| own_group(controller));
    let inner =
        outer.flat_map(|group| fs::read_dir(group).unwrap().flatten().map(|entry| entry.path()));
    let name = format!("eyas-{executor}-");
    inner
        .filter(|path| {
            path.file_name().unwrap().to_str().is_some_and(|text| text.starts_with(&name))
        })
        .collect()
}

#[test]
fn a_task_that_needs_more_memory_than_it_asked_for_is_killed_and_says_so() {
    for way in ways() {
        let cluster = Cluster::start(&[&["--limits", way, "--node-memory", "1GB"]]);
        let asks = |memory, script| {
            cluster.run(&["run", "--memory", memory, "--array", "1", "--", "sh", "-c", script])
        };
        asks("50MB", HOLDS_200_MB).exits(1).says(&["asked for", "50.0 MB", "--memory SIZE"]);
        let task = cluster.task("1.0");
        assert_eq!(
            (&task["state"], &task["tries"]),
            (&"failed".into(), &1.into()),
            "{way}: {task}"
        );
        assert!(task["peak_memory_bytes"].as_u64() >= Some(40_000_000), "{way}: {task}");
        // If only one process of a pipe is killed, and the last one succeeds, the task has failed
        // nevertheless.
        if *way == "cgroup" {
            asks("50MB", USES_200_MB).exits(1).says(&["asked for", "50.0 MB"]);
        }
        // Its node is fine: the next task runs there, with enough memory.
        assert_eq!(asks("500MB", USES_200_MB).exits(0).stdout, "200000000\n");
        let last = if *way == "cgroup" { 3 } else { 2 };
        let (job, task) = (cluster.job(&last.to_string()), cluster.task(&format!("{last}.0")));
        assert_eq!(job["peak_memory_bytes"], task["peak_memory_bytes"]);
        // A task that asks for none is not limited.
        cluster.run(&["run", "--array", "1", "--", "sh", "-c", USES_200_MB]).exits(0);
    }
}

#[test]
fn the_peak_of_memory_is_that_of_all_processes_of_a_task_and_of_no_earlier_task() {
    if !can_make_groups() {
        return;
    }
    let cluster = Cluster::start(&[&["--limits", "cgroup"]]);
    // Two processes at the same time: the second begins when the first has read everything, and
    // keeps that one waiting for a reader. And a file that the kernel caches, which is no memory of
    // the task.
    let both = "head -c 50000000 /dev/zero | tail | { head -c 1 > /dev/null; head -c 50000000 \
                /dev/zero | tail; } | wc -c";
    let file = "head -c 80000000 /dev/zero > large; cat large | wc -c";
    for (memory, script, least, most) in [
        ("0", both, 95_000_000, 130_000_000),
        ("0", "true", 0, 20_000_000),
        ("300MB", both, 95_000_000, 130_000_000),
        ("300MB", file, 0, 20_000_000),
        ("0", file, 0, 20_000_000),
    ] {
        let words = ["run", "--memory", memory, "--array", "1", "--", "sh", "-c", script];
        cluster.run(&words).exits(0);
        let jobs = cluster.ask(&["job", "list"], "jobs");
        let newest = jobs.as_array().unwrap().iter().max_by_key(|job| job["job"].as_u64()).unwrap();
        let peak = newest["peak_memory_bytes"].as_u64().unwrap();
        assert!((least..most).contains(&peak), "{memory} {script}: {peak}");
    }
}

#[test]
fn a_daemon_without_session_and_environment_ends_with_its_task() {
    if !can_make_groups() {
        return;
    }
    let cluster = Cluster::start(&[&["--limits", "cgroup"]]);
    let script = "env -i setsid sleep 1003 > /dev/null 2>&1 & echo $!";
    for memory in ["0", "100MB"] {
        let done = cluster
            .run(&["run", "--memory", memory, "--array", "1", "--", "sh", "-c", script])
            .exits(0);
        let daemon: u32 = done.stdout.trim().parse().unwrap();
        assert!(!is_alive(daemon), "with --memory {memory} its daemon lives on");
    }
}

#[test]
fn groups_of_a_killed_executor_are_removed() {
    if !can_make_groups() {
        return;
    }
    let mut cluster = Cluster::start(&[&["--limits", "cgroup"]]);
    let job = cluster.spawn_on(&[
        "run",
        "--memory",
        "10MB",
        "--array",
        "1",
        "--",
        "sh",
        "-c",
        "echo > ran; sleep 1000",
    ]);
    wait_until("the task runs", || cluster.work().join("ran").exists());
    let executor = cluster.executor(1).process();
    assert_eq!(groups_of(executor).len(), 2);
    // Its guardian lives on for a moment, and ends what is left.
    assert!(
        wait_for("it has a guardian", || children(executor)
            .into_iter()
            .find(|(_, words)| words.contains(" guard ")))
        .1
        .contains("guard")
    );
    cluster.executor(1).kill();
    wait_until("no group is left", || groups_of(executor).is_empty());
    signal(job.id(), Signal::INT);
    finish(job);
    // An executor that ends in good order leaves none either.
    let mut cluster = Cluster::start(&[&["--limits", "cgroup"]]);
    cluster.run(&["run", "--memory", "10MB", "--array", "1-3", "--", "true"]).exits(0);
    let executor = cluster.executor(1).process();
    assert_eq!(groups_of(executor).len(), 2);
    signal(executor, Signal::TERM);
    cluster.executor(1).wait();
    wait_until("no group is left", || groups_of(executor).is_empty());
}

#[test]
fn processors_have_weights_and_quotas_as_tasks_ask() {
    if !can_make_groups() {
        return;
    }
    let cluster = Cluster::start(&[
        &["--limits", "cgroup", "--slots", "2"],
        &["--slots", "2", "--cpu-quota"],
    ]);
    let script = "cd /sys/fs/cgroup/cpu/$(sed -n 's/^[0-9]*:cpu:.//p' /proc/self/cgroup) && cat \
                  cpu.shares cpu.cfs_quota_us";
    for (accept, cpus, expected) in
        [("n1", "2", "2048\n-1\n"), ("n1", "0.5", "512\n-1\n"), ("n2", "1.5", "1536\n150000\n")]
    {
        let requirement = format!("node.name == \"{accept}\"");
        let words = [
            "run",
            "--cpus",
            cpus,
            "--requirements",
            &requirement,
            "--array",
            "1",
            "--",
            "sh",
            "-c",
            script,
        ];
        assert_eq!(cluster.run(&words).exits(0).stdout, expected);
    }
}

#[test]
fn a_way_to_limit_that_does_not_exist_or_is_not_possible_is_said() {
    let home = Home::new();
    let start = |words: &[&str]| home.eyas(&[&["start", "local", "--nodes", "1"], words].concat());
    start(&["--limits", "strict"]).exits(2).says(&["`strict`", "auto, cgroup, poll and off"]);
    start(&["--limits", "poll", "--cpu-quota"]).exits(1).says(&["--cpu-quota", "control groups"]);
}

#[test]
fn the_cost_of_limits_is_measured() {
    if !can_use(&["python3"]) {
        return;
    }
    let home = Home::new();
    let mut experiment = Command::new("python3");
    experiment
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/pools_on_slurm.py"))
        .env("EYAS_BIN", eyas());
    let done = home.finish(home.command_of(experiment, &["limits", "--tiny"])).exits(0);
    assert!(done.stdout.contains("tasks/s"), "{}", done.stdout);
}

/// A control group that a test has made, and removes with its processes.
struct TestGroup(PathBuf);

impl TestGroup {
    /// A group for half of a processor, which it gets also on a busy machine.
    fn create(name: &str) -> Self {
        let own = own_group("cpu").expect("groups can be made");
        let group = TestGroup(own.join(format!("eyas-test-{}-{name}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        let period: u32 = group.read("cpu.cfs_period_us").parse().unwrap();
        fs::write(group.0.join("cpu.cfs_quota_us"), (period / 2).to_string()).unwrap();
        fs::write(group.0.join("cpu.shares"), "262144").unwrap();
        group
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap().trim().to_owned()
    }

    fn enter(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // A group can be removed when it is empty.
        wait_until("the group can be removed", || {
            for process in self.read("cgroup.procs").lines() {
                signal(process.parse().unwrap(), Signal::KILL);
            }
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn a_node_of_the_file_system_reports_the_load_of_its_own_group() {
    if !can_make_groups() {
        return;
    }
    let group = TestGroup::create("loads");
    let node = ["--dfs", "--cache", "1GB", "--load-period", "100ms", "--limits", "off"];
    let mut cluster = Cluster::start(&[&node]);
    joined(&cluster, 1);
    let load = |column: &str| cluster.ask(&["dfs", "du"], "usage")["nodes"][0][column].as_f64();
    wait_until("the node has reported", || {
        load("disk_load").is_some() && load("processor_load").is_some()
    });
    let table = cluster.run(&["dfs", "du"]).exits(0).stdout;
    assert!(table.contains("DISK") && table.contains("CPU") && table.contains('%'), "{table}");
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    group.enter(busy.id());
    group.enter(cluster.executor(1).process());
    let load = || cluster.ask(&["dfs", "du"], "usage")["nodes"][0]["processor_load"].as_f64();
    wait_until("the group is busy", || load() >= Some(0.9));
    busy.kill().unwrap();
    busy.wait().unwrap();
    // Whatever else this machine does.
    wait_until("the group is idle", || load().is_some_and(|load| load <= 0.3));
    drop(cluster);
    drop(group);
}
