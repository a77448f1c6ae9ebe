//! A real Slurm with nodes of two processors each.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{BatchBed, Testbed, is_tested};
use crate::support::Home;

/// A Slurm, and a dispatcher that submits to it.
pub struct OnSlurm {
    bed: Testbed,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

/// Starts a Slurm with this number of nodes.
pub fn start_slurm(home: &Home, nodes: &str) -> Testbed {
    let script = "slurm.sh";
    Testbed::start(
        script,
        home.path("slurm"),
        Testbed::program(script).args(["up", "-n", nodes, "-c", "2"]),
    )
}

impl BatchBed for OnSlurm {
    const SYSTEM: &'static str = "slurm";

    fn home(&self) -> &Home {
        &self.home
    }

    fn queue(&self) -> String {
        self.slurm("squeue", &[])
    }
}

impl OnSlurm {
    /// `None` where no Slurm is to be tested.
    pub fn start(nodes: &str) -> Option<Self> {
        if !is_tested("a real Slurm") {
            return None;
        }
        let home = Home::new();
        let slurm = OnSlurm { bed: start_slurm(&home, nodes), home };
        let configuration = slurm.configuration().display().to_string();
        slurm.start_dispatcher(&["--listen", "127.0.0.1:0"], &[("SLURM_CONF", configuration)]);
        Some(slurm)
    }

    pub fn configuration(&self) -> PathBuf {
        self.bed.folder.join("slurm.conf")
    }

    /// Runs a command of Slurm. Returns its standard output.
    pub fn slurm(&self, program: &str, words: &[&str]) -> String {
        let mut command = Command::new(program);
        let output = command.args(words).env("SLURM_CONF", self.configuration()).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn is_queue_empty(&self) -> bool {
        self.slurm("squeue", &["--noheader"]).trim().is_empty()
    }
}

impl Drop for OnSlurm {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_job_scales_out_and_back() {
    let Some(slurm) = OnSlurm::start("3") else { return };
    slurm.add_pool(&[
        "--max-nodes",
        "3",
        "--cpus",
        "2",
        "--idle-timeout",
        "1s",
        "--time-limit",
        "10min",
    ]);
    slurm
        .run(&["run", "--array", "1-30", "--", "echo", "{}"])
        .exits(0)
        .says(&["30 of 30 tasks succeeded"]);
    slurm.wait_until("the nodes are given back", || slurm.is_queue_empty());
    let pool = slurm.has_given_back_all();
    assert!(pool["requests"][0]["job"].as_str().unwrap().parse::<u32>().is_ok(), "{pool:#}");
}

#[test]
fn refusals_of_slurm_are_shown_at_once() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    let add = ["pool", "add", "slurm", "batch", "--"];
    let refused = slurm.run(&[&add[..], &["--partition=nowhere"]].concat()).exits(1);
    assert!(refused.stderr.contains("invalid partition"), "{}", refused.stderr);
    // It is added all the same, and its requests fail.
    let add = [
        "pool",
        "add",
        "slurm",
        "batch",
        "--no-try",
        "--min-nodes",
        "1",
        "--",
        "--partition=nowhere",
    ];
    slurm.run(&add).exits(0);
    slurm.run(&["pool", "try", "batch"]).exits(1).says(&["invalid partition"]);
    slurm.wait_until("a request has failed", || slurm.pool()["failures"].as_u64() >= Some(1));
    slurm.wait_until("the pool is paused", || slurm.pool()["state"] == "paused");
    assert!(slurm.pool()["why"].as_str().unwrap().contains("invalid partition"));
}

#[test]
fn a_request_that_waits_says_why_and_is_withdrawn() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    slurm.slurm("sbatch", &["--exclusive", "--output=/dev/null", "--wrap=sleep 300"]);
    slurm.add_pool(&["--cpus", "2", "--idle-timeout", "1s"]);
    slurm.home.write("job.jsonl", r#"{"command": ["true"]}"#);
    slurm.run(&["submit", "job.jsonl"]).exits(0);
    slurm.wait_until("Slurm has said why it waits", || {
        slurm.pool()["requests"][0]["says"]
            .as_str()
            .is_some_and(|says| says.starts_with("PENDING ("))
    });
    let explained = slurm.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(explained.contains("request 0") && explained.contains("PENDING ("), "{explained}");
    slurm.run(&["job", "cancel", "1"]).exits(0);
    slurm.wait_until("the request is withdrawn", || {
        slurm.slurm("squeue", &["--noheader"]).lines().count() == 1
    });
    slurm.slurm("scancel", &["--user=root"]);
}

#[test]
fn a_node_that_slurm_ends_costs_no_retry() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    slurm.add_pool(&["--cpus", "2", "--max-nodes", "1"]);
    let script = "echo > began-$$; until [ -e go ]; do sleep 0.02; done";
    let mut run =
        slurm.home.spawn(&["--cluster", "test", "run", "--array", "1", "--", "sh", "-c", script]);
    let began = || slurm.home.names(".").iter().filter(|name| name.starts_with("began-")).count();
    slurm.wait_until("the task runs", || began() == 1);
    let job = slurm.pool()["requests"][0]["job"].as_str().unwrap().to_owned();
    slurm.slurm("scancel", &[&job]);
    slurm.wait_until("it runs again on another node", || began() == 2);
    slurm.home.write("go", "");
    assert!(run.wait().unwrap().success());
    slurm.run(&["pool", "remove", "batch", "--force"]).exits(0);
}

#[test]
fn nodes_that_never_join_are_given_back_with_what_they_said() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    slurm.add_pool(&[
        "--cpus",
        "2",
        "--min-nodes",
        "1",
        "--start-command",
        "echo no space here >&2; exit 3",
    ]);
    slurm.wait_until("a request has failed", || slurm.pool()["failures"].as_u64() >= Some(1));
    let pool = slurm.pool();
    assert!(pool["events"].to_string().contains("no space here"), "{pool:#}");
    slurm.run(&["pool", "pause", "batch"]).exits(0);
    slurm.run(&["pool", "log", "batch", "0"]).exits(0);
}
