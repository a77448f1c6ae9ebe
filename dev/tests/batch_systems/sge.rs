//! A real Grid Engine with nodes of two slots each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{BatchBed, Testbed, is_tested};
use crate::support::{Home, eyas};

/// A Grid Engine, and a dispatcher on its head that submits to it.
struct OnGridEngine {
    bed: Testbed,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

impl BatchBed for OnGridEngine {
    const SYSTEM: &'static str = "sge";

    fn home(&self) -> &Home {
        &self.home
    }

    /// On the head: other hosts do not reach its network.
    fn command(&self, words: &[&str]) -> Command {
        let mut on_head = self.bed.command("exec");
        on_head.arg(eyas());
        self.home.command_of(on_head, words)
    }

    fn queue(&self) -> String {
        self.engine(&["qstat"])
    }
}

impl OnGridEngine {
    /// `None` where no Grid Engine is to be tested.
    fn start(nodes: &str) -> Option<Self> {
        OnGridEngine::start_with(nodes, |_| Vec::new())
    }

    /// With variables of the dispatcher.
    fn start_with(
        nodes: &str,
        variables: fn(&Home) -> Vec<(&'static str, String)>,
    ) -> Option<Self> {
        if !is_tested("a real Grid Engine") {
            return None;
        }
        let home = Home::new();
        let script = "sge.sh";
        let mut up = Testbed::program(script);
        let bed = Testbed::start(script, home.path("sge"), up.args(["up", "-n", nodes, "-c", "2"]));
        let engine = OnGridEngine { bed, home };
        engine.start_dispatcher(&["--interface", "bridge"], &variables(&engine.home));
        Some(engine)
    }

    /// Runs a command of Grid Engine. Returns its standard output.
    fn engine(&self, words: &[&str]) -> String {
        let output = self.bed.command("exec").args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn is_queue_empty(&self) -> bool {
        self.engine(&["qstat"]).trim().is_empty()
    }
}

impl Drop for OnGridEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_job_scales_out_and_back() {
    let Some(engine) = OnGridEngine::start("3") else { return };
    // Requests for two nodes are array jobs.
    let nodes = [
        "--max-nodes",
        "4",
        "--nodes-per-request",
        "2",
        "--cpus",
        "1",
        "--provision",
        "all-at-once",
    ];
    engine.add_pool(&[&nodes[..], &["--idle-timeout", "1s", "--time-limit", "10min"]].concat());
    let job = ["run", "--array", "1-30", "--", "sh", "-c", "sleep 0.1; echo {}"];
    engine.run(&job).exits(0).says(&["30 of 30 tasks succeeded"]);
    engine.wait_until("the nodes are given back", || engine.is_queue_empty());
    let pool = engine.has_given_back_all();
    assert!(pool["nodes_granted"].as_u64() >= Some(2), "{pool:#}");
}

#[test]
fn refusals_of_grid_engine_are_shown_at_once() {
    let Some(engine) = OnGridEngine::start("1") else { return };
    let refused = engine.run(&["pool", "add", "sge", "batch", "--", "-q", "nowhere.q"]).exits(1);
    assert!(refused.stderr.contains("nowhere.q"), "{}", refused.stderr);
    // A job whose output cannot be written gets into an error state. It is removed, and said.
    engine.add_pool(&["--min-nodes", "1", "--", "-o", "/nonexistent/out"]);
    engine.wait_until("a request has failed", || engine.pool()["failures"].as_u64() >= Some(1));
    assert!(engine.run(&["pool", "show", "batch"]).exits(0).stdout.contains("error state"));
    engine.run(&["pool", "remove", "batch"]).exits(0);
    engine.wait_until("no job is left", || engine.is_queue_empty());
}

#[test]
fn a_bad_host_is_excluded_and_the_job_runs_on_another() {
    let Some(engine) = OnGridEngine::start("2") else { return };
    let bad = r#"if [ "$(uname -n)" = n1 ]; then echo no scratch disk >&2; exit 3; fi"#;
    engine.add_pool(&[
        "--cpus",
        "2",
        "--max-nodes",
        "1",
        "--idle-timeout",
        "1s",
        "--start-command",
        bad,
    ]);
    engine.engine(&["qmod", "-d", "*@n2"]);
    engine.home.write("job.jsonl", r#"{"array": "1-4", "command": ["true"]}"#);
    engine.run(&["submit", "job.jsonl"]).exits(0);
    engine.wait_until("the bad host is excluded", || engine.pool()["excluded"][0]["host"] == "n1");
    // Both hosts are free now, and the request does not accept the first.
    engine.wait_until("the next request waits", || engine.engine(&["qstat"]).contains(" qw "));
    assert!(engine.engine(&["qstat", "-j", "*"]).contains("hostname=!n1"));
    engine.engine(&["qmod", "-e", "*@n2"]);
    engine.run(&["job", "wait", "1"]).exits(0).says(&["4 of 4 tasks succeeded"]);
    let pool = engine.pool();
    assert!(
        pool["state"] == "active"
            && pool["excluded"][0]["why"].as_str().unwrap().contains("scratch"),
        "{pool:#}"
    );
    engine.wait_until("the nodes are given back", || engine.is_queue_empty());
}

#[test]
fn tasks_of_nodes_that_are_taken_away_run_again() {
    let Some(engine) = OnGridEngine::start("2") else { return };
    engine.add_pool(&["--max-nodes", "2", "--cpus", "1", "--idle-timeout", "1s"]);
    let wait = "touch begun-$0; until [ -e go ]; do sleep 0.05; done; echo $0";
    let task =
        format!(r#"{{"array": "1-2", "command": ["sh", "-c", "{wait}", "{{}}"], "retries": 0}}"#);
    engine.home.write("job.jsonl", task);
    engine.run(&["submit", "job.jsonl"]).exits(0);
    engine.wait_until("both tasks run", || {
        ["begun-1", "begun-2"].iter().all(|name| engine.home.work().join(name).exists())
    });
    engine.engine(&["qdel", "-u", "*"]);
    engine.home.write("go", "");
    engine.run(&["job", "wait", "1"]).exits(0);
    engine.wait_until("the nodes are given back", || engine.is_queue_empty());
    engine.wait_until_given_back();
}

/// A `qsub` that submits, and then prints a message of the day in place of the job's number. It
/// notes the submission.
const QSUB: &str = r#"#!/bin/sh
case "$*" in
*-terse*) /usr/bin/qsub "$@" >>"$0.submitted" && echo "Welcome to the cluster";;
*) exec /usr/bin/qsub "$@";;
esac
"#;

/// Variables with which the dispatcher finds [`QSUB`].
fn with_welcome(home: &Home) -> Vec<(&'static str, String)> {
    let folder = home.work().join("bin");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("qsub"), QSUB).unwrap();
    fs::set_permissions(folder.join("qsub"), fs::Permissions::from_mode(0o755)).unwrap();
    vec![("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()))]
}

#[test]
fn a_request_whose_number_is_not_known_is_found_by_its_name() {
    let Some(engine) = OnGridEngine::start_with("2", with_welcome) else { return };
    engine.add_pool(&["--max-nodes", "1", "--cpus", "2"]);
    engine
        .run(&["run", "--array", "1-4", "--", "echo", "{}"])
        .exits(0)
        .says(&["4 of 4 tasks succeeded"]);
    let pool = engine.pool();
    let submitted = fs::read_to_string(engine.home.work().join("bin/qsub.submitted")).unwrap();
    assert!(pool["failures"] == 0 && pool["requests"].as_array().unwrap().len() == 1, "{pool:#}");
    assert_eq!(
        pool["requests"][0]["job"],
        submitted.trim(),
        "one submission, and the number that was not told"
    );
    // The job that was found is also the one that is given back.
    engine.run(&["pool", "remove", "batch", "--force"]).exits(0);
    engine.wait_until("no job is left", || engine.is_queue_empty());
}
