//! What goes wrong on a real Slurm: nodes that fail, are drained, preempted or out of time, and
//! requests that fail.

use rustix::process::Signal;

use crate::harness::BatchBed;
use crate::slurm::OnSlurm;
use crate::support::signal;

/// Writes `began-PROCESS`, then runs until there is a file `go`.
const UNTIL_GO: &str = "echo > began-$$; until [ -e go ]; do sleep 0.02; done";

/// A job whose tasks have begun, and wait for the file `go`.
struct RunningJob<'a> {
    slurm: &'a OnSlurm,
    run: std::process::Child,
}

impl<'a> RunningJob<'a> {
    #[track_caller]
    fn start(slurm: &'a OnSlurm, tasks: usize) -> Self {
        let array = format!("1-{tasks}");
        let words = [
            "--cluster",
            "test",
            "run",
            "--array",
            &array,
            "--no-append",
            "--",
            "sh",
            "-c",
            UNTIL_GO,
        ];
        let job = RunningJob { slurm, run: slurm.home().spawn(&words) };
        slurm.wait_until("the tasks run", || job.began() == tasks);
        job
    }

    /// Number of times that a task has begun.
    fn began(&self) -> usize {
        self.slurm.home().names(".").iter().filter(|name| name.starts_with("began-")).count()
    }

    /// Waits until a task has begun again, and lets all tasks end.
    #[track_caller]
    fn runs_again(mut self, times: usize) {
        self.slurm.wait_until("it runs again", || self.began() >= times);
        self.slurm.home().write("go", "");
        assert!(self.run.wait().unwrap().success(), "no retry was used up");
    }
}

/// The host of the pool's first request.
fn first_host(slurm: &OnSlurm) -> String {
    slurm
        .wait_until("Slurm has named the host", || slurm.pool()["requests"][0]["host"].is_string());
    slurm.pool()["requests"][0]["host"].as_str().unwrap().to_owned()
}

#[test]
fn a_bad_host_is_excluded_and_the_job_runs_on_the_others() {
    let Some(slurm) = OnSlurm::start("3") else { return };
    let bad = r#"if [ "$SLURMD_NODENAME" = n1 ]; then echo no scratch disk >&2; exit 3; fi"#;
    slurm.add_pool(&[
        "--cpus",
        "2",
        "--max-nodes",
        "1",
        "--idle-timeout",
        "1s",
        "--start-command",
        bad,
    ]);
    slurm.home().write("job.jsonl", r#"{"array": "1-4", "command": ["true"]}"#);
    slurm.run(&["submit", "job.jsonl"]).exits(0);
    // Of idle nodes, Slurm grants the first.
    slurm.wait_until("the bad host is excluded", || slurm.pool()["excluded"][0]["host"] == "n1");
    slurm.run(&["job", "wait", "1"]).exits(0).says(&["4 of 4 tasks succeeded"]);
    let pool = slurm.pool();
    assert!(pool["state"] == "active" && pool["failures"].as_u64() >= Some(2), "{pool:#}");
    assert!(pool["excluded"][0]["why"].as_str().unwrap().contains("no scratch disk"), "{pool:#}");
    assert!(
        slurm.run(&["pool", "show", "batch"]).exits(0).stdout.contains("excluded: host n1 for")
    );
    assert!(slurm.slurm("scontrol", &["show", "job"]).contains("ExcNodeList=n1"));
}

#[test]
fn tasks_of_a_node_that_goes_down_run_on_another_and_the_pool_goes_on() {
    let Some(slurm) = OnSlurm::start("2") else { return };
    slurm.add_pool(&["--cpus", "2", "--max-nodes", "1"]);
    let job = RunningJob::start(&slurm, 1);
    let host = first_host(&slurm);
    slurm.slurm("scontrol", &["update", &format!("nodename={host}"), "state=down", "reason=test"]);
    job.runs_again(2);
    assert_eq!(slurm.pool()["state"], "active");
    slurm.run(&["pool", "remove", "batch", "--force"]).exits(0);
}

#[test]
fn a_drained_node_keeps_its_tasks_and_gets_no_other_request() {
    let Some(slurm) = OnSlurm::start("2") else { return };
    slurm.add_pool(&["--cpus", "2", "--max-nodes", "2", "--idle-timeout", "1s"]);
    let job = RunningJob::start(&slurm, 1);
    let host = first_host(&slurm);
    slurm.slurm("scontrol", &["update", &format!("nodename={host}"), "state=drain", "reason=test"]);
    job.runs_again(1);
    slurm.has_given_back_all();
    slurm.run(&["run", "--array", "1-2", "--", "true"]).exits(0);
    let pool = slurm.pool();
    let requests = pool["requests"].as_array().unwrap();
    assert!(requests.last().unwrap()["host"] != host.as_str(), "{pool:#}");
}

#[test]
fn tasks_of_a_preempted_node_run_again() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    slurm.add_pool(&["--cpus", "2", "--max-nodes", "1"]);
    let job = RunningJob::start(&slurm, 1);
    slurm.slurm(
        "sbatch",
        &["--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 5"],
    );
    job.runs_again(2);
    let pool = slurm.pool();
    assert!(
        pool["state"] == "active" && pool["excluded"].as_array().unwrap().is_empty(),
        "{pool:#}"
    );
    slurm.run(&["pool", "remove", "batch", "--force"]).exits(0);
}

#[test]
fn at_its_time_limit_a_node_loses_no_task() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    slurm.add_pool(&["--cpus", "2", "--max-nodes", "1", "--time-limit", "1min"]);
    // Slurm may warn the node up to a minute before its time limit.
    RunningJob::start(&slurm, 1).runs_again(2);
    let pool = slurm.pool();
    assert!(pool["state"] == "active" && pool["failures"] == 0, "{pool:#}");
    slurm.run(&["pool", "remove", "batch", "--force"]).exits(0);
}

#[test]
fn when_all_is_cancelled_all_runs_again() {
    let Some(slurm) = OnSlurm::start("2") else { return };
    slurm.add_pool(&["--cpus", "1", "--max-nodes", "3", "--provision", "all-at-once"]);
    let job = RunningJob::start(&slurm, 3);
    slurm.slurm("scancel", &["--user=root"]);
    job.runs_again(6);
    assert_eq!(slurm.pool()["state"], "active");
    slurm.run(&["pool", "remove", "batch", "--force"]).exits(0);
}

#[test]
fn unknown_accounts_partitions_and_clusters_are_refused_in_the_words_of_slurm() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    for (option, says) in [
        ("--partition=nowhere", "invalid partition"),
        ("--clusters=nowhere", "nowhere"),
        ("--qos=nothing", "qos"),
    ] {
        let refused = slurm.run(&["pool", "add", "slurm", "batch", "--", option]);
        // Without accounting, Slurm accepts any quality of service.
        if option != "--qos=nothing" || refused.code != 0 {
            let refused = refused.exits(1);
            assert!(refused.stderr.to_lowercase().contains(says), "{option}: {}", refused.stderr);
        }
    }
}

/// The controller of a Slurm, stopped for a while.
struct SilentController(u32);

impl SilentController {
    fn of(slurm: &OnSlurm) -> Self {
        let file = slurm.configuration().with_file_name("slurmctld.pid");
        let process = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        signal(process, Signal::STOP);
        SilentController(process)
    }
}

impl Drop for SilentController {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

#[test]
fn a_submission_to_a_silent_controller_is_neither_lost_nor_made_twice() {
    let Some(slurm) = OnSlurm::start("2") else { return };
    slurm.add_pool(&["--cpus", "2", "--max-nodes", "1"]);
    let silent = SilentController::of(&slurm);
    slurm.home().write("job.jsonl", r#"{"array": "1-2", "command": ["true"]}"#);
    slurm.run(&["submit", "job.jsonl"]).exits(0);
    slurm.wait_until("the request is looked for", || {
        let pool = slurm.pool();
        let looks = |event: &serde_json::Value| {
            event["text"].as_str().unwrap().contains("looked for by its name")
        };
        pool["events"].as_array().unwrap().iter().any(looks)
    });
    drop(silent);
    slurm.run(&["job", "wait", "1"]).exits(0).says(&["2 of 2 tasks succeeded"]);
    let pool = slurm.pool();
    assert!(pool["failures"] == 0 && pool["requests"].as_array().unwrap().len() == 1, "{pool:#}");
    slurm.run(&["pool", "remove", "batch"]).exits(0);
    slurm.wait_until("nothing is left", || slurm.is_queue_empty());
}
