//! Dispatchers that run in a batch job of a real Slurm.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::BatchBed;
use crate::slurm::OnSlurm;

/// `eyas run --dispatcher-in-job` with tasks of `command`.
fn run(slurm: &OnSlurm, array: &str, command: &str) -> Command {
    let options = "--cpus 1 --max-nodes 2 --idle-timeout 1s --executor-option=--keep-free=10MB";
    let words = [
        "run",
        "--pool",
        "slurm",
        "--dispatcher-in-job",
        "--pool-options",
        options,
        "--array",
        array,
    ];
    let mut run =
        slurm.home().command(&[&words[..], &["--no-append", "--", "sh", "-c", command]].concat());
    run.env("SLURM_CONF", slurm.configuration());
    run
}

fn until_go(slurm: &OnSlurm) -> Child {
    let command = "echo > began-$$; until [ -e go ]; do sleep 0.02; done; echo done";
    let child =
        run(slurm, "1-1", command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = || slurm.home().names(".").iter().any(|name| name.starts_with("began-"));
    slurm.wait_until("the task runs", began);
    child
}

fn end(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

#[test]
fn a_job_runs_with_its_dispatcher_in_a_batch_job() {
    let Some(slurm) = OnSlurm::start("3") else { return };
    slurm.add_pool(&[]);
    let done = slurm.home().finish(run(&slurm, "1-6", "echo $0; exit 0")).exits(0);
    assert_eq!(done.stdout.lines().count(), 6, "{}", done.stdout);
    assert!(done.stderr.contains("6 of 6 tasks succeeded"), "{}", done.stderr);
    let failed = slurm.home().finish(run(&slurm, "1-1", "exit 3"));
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    slurm.wait_until("nothing is left", || slurm.is_queue_empty());
}

#[test]
fn an_interrupt_ends_the_batch_job_and_its_nodes() {
    let Some(slurm) = OnSlurm::start("2") else { return };
    slurm.add_pool(&[]);
    let mut child = until_go(&slurm);
    end(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    slurm.wait_until("nothing is left", || slurm.is_queue_empty());
}

#[test]
fn the_batch_job_goes_on_when_the_login_session_ends() {
    let Some(slurm) = OnSlurm::start("2") else { return };
    slurm.add_pool(&[]);
    let mut child = until_go(&slurm);
    end(&child, Signal::KILL);
    child.wait().unwrap();
    let clusters = slurm.home().names("../home/clusters");
    let name = clusters
        .iter()
        .find(|name| name.starts_with("run-"))
        .unwrap_or_else(|| panic!("{clusters:?}"));
    // The dispatcher ends with its tasks. It answers until then.
    slurm.home().eyas(&["--cluster", name, "job", "show", "last"]).exits(0);
    slurm.home().write("go", "");
    let of_job =
        |file| std::fs::read_to_string(slurm.home().path("home/runs").join(name).join(file));
    slurm.wait_until("its exit code is kept", || {
        of_job("status").is_ok_and(|code| code.ends_with('\n'))
    });
    assert_eq!((&*of_job("status").unwrap(), &*of_job("stdout").unwrap()), ("0\n", "done\n"));
    slurm.wait_until("nothing is left", || slurm.is_queue_empty());
}
