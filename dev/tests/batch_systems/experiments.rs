//! The experiments on a real Slurm in miniature, so that they keep working. Their figures do not
//! matter here.

use std::path::Path;
use std::process::Command;

use crate::harness::is_tested;
use crate::support::{Home, eyas};

/// Runs a part of `dev/experiments/pools_on_slurm.py`, which starts a Slurm of its own.
#[track_caller]
fn runs(part: &str, says: &str) {
    if !is_tested("a real Slurm") {
        return;
    }
    let home = Home::new();
    let experiment = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/pools_on_slurm.py");
    let mut command = home.command_of(Command::new("python3"), &[]);
    let done =
        command.arg(experiment).args([part, "--tiny"]).env("EYAS_BIN", eyas()).output().unwrap();
    let [stdout, stderr] =
        [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(done.status.success() && stdout.contains(says), "{stdout}\n{stderr}");
}

#[test]
fn the_time_to_the_first_task_is_measured() {
    runs("first", "eyas run --pool slurm");
}

#[test]
fn waiting_requests_are_measured() {
    runs("pending", "PartitionDown");
}

#[test]
fn scaled_loads_are_measured() {
    runs("loads", "error of the simulator's node-seconds");
}
