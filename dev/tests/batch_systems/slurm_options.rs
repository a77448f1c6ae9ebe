//! Options of pools on a real Slurm: several nodes of one request, and commands before, after and
//! around executors.

use crate::harness::BatchBed;
use crate::slurm::OnSlurm;

#[test]
fn one_request_has_several_nodes() {
    let Some(slurm) = OnSlurm::start("3") else { return };
    let nodes = [
        "--max-nodes",
        "3",
        "--nodes-per-request",
        "3",
        "--cpus",
        "1",
        "--provision",
        "all-at-once",
    ];
    slurm.add_pool(&[&nodes[..], &["--idle-timeout", "1s"]].concat());
    slurm.run(&["run", "--array", "1-12", "--", "sh", "-c", "sleep 1; echo {}"]).exits(0);
    let pool = slurm.has_given_back_all();
    assert!(pool["requests"][0]["nodes"] == 3 && pool["requests"][0]["joined"] == 3, "{pool:#}");
    slurm.wait_until("the job has ended", || slurm.is_queue_empty());
}

#[test]
fn commands_run_before_after_and_around_the_executor() {
    let Some(slurm) = OnSlurm::start("1") else { return };
    let file = |name: &str| slurm.home().work().join(name).display().to_string();
    let start = format!("echo $SLURMD_NODENAME >{}", file("started"));
    let stop = format!("echo $SLURMD_NODENAME >{}", file("stopped"));
    let around = ["--start-command", &start, "--stop-command", &stop, "--wrap", "env WRAPPED=yes"];
    slurm.add_pool(
        &[&["--cpus", "1", "--max-nodes", "1", "--idle-timeout", "1s"][..], &around].concat(),
    );
    let printed = slurm
        .run(&["run", "--array", "1-1", "--no-append", "--", "sh", "-c", "echo $WRAPPED"])
        .exits(0)
        .stdout;
    assert_eq!(printed, "yes\n");
    slurm.has_given_back_all();
    slurm.wait_until("the job has ended", || slurm.is_queue_empty());
    let content = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    assert_eq!((content("started").as_str(), content("stopped").as_str()), ("n1\n", "n1\n"));
}
