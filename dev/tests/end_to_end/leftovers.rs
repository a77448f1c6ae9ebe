//! An executor that is killed together with its guardian: processes that its tasks left behind are
//! ended before the tasks run again.

use std::fs;
use std::process::Child;

use rustix::process::Signal;

use crate::support::{
    Cluster, Home, children, finish, is_alive, parent, signal, wait_for, wait_until,
};

/// A task with a child in its process group, a daemon in a session of its own, and a daemon without
/// environment.
const TASK: &str = "sleep 1000 & setsid sleep 1001 & env -i setsid sleep 1002 & touch ran-$$; \
                    until [ -e go ]; do sleep 0.02; done; echo done";

/// The processes of one attempt of the task: the first one, and all that it has started.
struct Try {
    leader: u32,
    others: Vec<(u32, String)>,
}

fn tries(home: &Home) -> Vec<u32> {
    home.names(".").iter().filter_map(|name| name.strip_prefix("ran-")?.parse().ok()).collect()
}

/// Waits until all processes of the only attempt run.
fn first_try(home: &Home) -> Try {
    let leader = wait_for("the task runs", || tries(home).pop());
    Try { leader, others: daemons(leader) }
}

/// The processes that an attempt has started, when all of them run.
fn daemons(leader: u32) -> Vec<(u32, String)> {
    wait_for("its daemons run", || {
        let sleeping = |(_, words): &(u32, String)| words.starts_with("sleep 100");
        let found: Vec<_> = children(leader).into_iter().filter(sleeping).collect();
        (found.len() == 3).then_some(found)
    })
}

/// The guardian of an executor.
fn guardian(executor: u32) -> Option<u32> {
    Some(children(executor).into_iter().find(|(_, words)| words.contains(" guard "))?.0)
}

/// Whether an executor has a control group; without one, processes that clear their environment are
/// not found.
fn has_group(executor: u32) -> bool {
    fs::read_to_string(format!("/proc/{executor}/cgroup"))
        .is_ok_and(|groups| groups.contains(&format!("/eyas-{executor}-")))
}

impl Try {
    /// The processes that an executor can find on this machine.
    fn findable(&self, has_group: bool) -> Vec<u32> {
        let others = self.others.iter().filter(|(_, words)| has_group || !words.contains("1002"));
        others.map(|(process, _)| *process).chain([self.leader]).collect()
    }
}

/// A job whose only task has lost its executor.
struct OrphanedJob {
    what: Try,
    has_group: bool,
    run: Child,
}

/// Runs the task on the only executor that accepts it, and kills the executor and its guardian.
fn kill_both(cluster: &Cluster) -> OrphanedJob {
    let run = cluster.spawn_on(&["run", "--array", "1", "--", "sh", "-c", TASK]);
    let what = first_try(cluster);
    let executor = parent(what.leader).expect("it runs");
    let has_group = has_group(executor);
    let guardian = wait_for("it has a guardian", || guardian(executor));
    // A stopped executor does not replace its guardian.
    signal(executor, Signal::STOP);
    signal(guardian, Signal::KILL);
    signal(executor, Signal::KILL);
    wait_until("the kernel has killed the task itself", || !is_alive(what.leader));
    OrphanedJob { what, has_group, run }
}

impl OrphanedJob {
    fn wait_until_ended(&self) {
        let findable = self.what.findable(self.has_group);
        wait_until("nothing of its first try is left", || {
            !findable.iter().any(|process| is_alive(*process))
        });
        self.what.others.iter().for_each(|(process, _)| signal(*process, Signal::KILL));
    }

    /// Checks that the task succeeds in a second attempt, and that no process is left when the
    /// cluster has ended.
    fn succeeds_elsewhere(self, cluster: Cluster) {
        let again = wait_for("it is tried again", || {
            tries(&cluster).into_iter().find(|try_| *try_ != self.what.leader)
        });
        let second = Try { leader: again, others: daemons(again) };
        cluster.write("go", "");
        finish(self.run).exits(0).says(&["1 of 1 task succeeded"]);
        drop(cluster);
        let findable = second.findable(self.has_group);
        wait_until("nothing of its second try is left", || {
            !findable.iter().any(|process| is_alive(*process))
        });
        second.others.iter().for_each(|(process, _)| signal(*process, Signal::KILL));
    }
}

#[test]
fn a_fresh_executor_in_the_folder_ends_what_the_last_one_left() {
    let mut cluster = Cluster::start(&[&[]]);
    let lost = kill_both(&cluster);
    let folder = cluster.executor(1).folder().to_owned();
    cluster.add_executor(&["--folder", folder.to_str().unwrap()]);
    lost.wait_until_ended();
    lost.succeeds_elsewhere(cluster);
}

#[test]
fn an_executor_elsewhere_on_the_host_ends_it_when_the_dispatcher_says_so() {
    let mut cluster = Cluster::start(&[&[], &["--accept", "task.cpus > 100"]]);
    // An executor that has been there all the time.
    let lost = kill_both(&cluster);
    lost.wait_until_ended();
    cluster.add_executor(&[]);
    lost.succeeds_elsewhere(cluster);
    // An executor that joins later.
    let mut cluster = Cluster::start(&[&[]]);
    let lost = kill_both(&cluster);
    cluster.add_executor(&[]);
    lost.wait_until_ended();
    lost.succeeds_elsewhere(cluster);
}

#[test]
fn a_guardian_that_is_killed_is_replaced() {
    let mut cluster = Cluster::start(&[&[]]);
    let executor = cluster.executor(1).process();
    let run = cluster.spawn_on(&["run", "--array", "1", "--", "sh", "-c", TASK]);
    let what = first_try(&cluster);
    for _ in 0..2 {
        let first = wait_for("there is one", || guardian(executor));
        signal(first, Signal::KILL);
        wait_until("there is another", || guardian(executor).is_some_and(|now| now != first));
    }
    // The last one is not in the executor's process group, and does the work of the first one.
    let last = wait_for("there is one", || guardian(executor));
    wait_until("it is outside", || {
        let groups = fs::read_to_string(format!("/proc/{last}/cgroup")).unwrap_or_default();
        !groups.contains(&format!("/eyas-{executor}-"))
    });
    let findable = what.findable(has_group(executor));
    cluster.executor(1).kill();
    wait_until("what it left is dead", || !findable.iter().any(|process| is_alive(*process)));
    what.others.iter().for_each(|(process, _)| signal(*process, Signal::KILL));
    cluster.add_executor(&[]);
    cluster.write("go", "");
    finish(run).exits(0);
}
