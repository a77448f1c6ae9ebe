//! Pools on PBS, HTCondor, Grid Engine and Slurm. Programs that answer as these systems do
//! (`fake_batch.sh`) start nodes as processes on this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, is_alive, signal, wait_for, wait_until};

/// The programs as which `fake_batch.sh` answers.
const PROGRAMS: [&str; 13] = [
    "qsub",
    "qstat",
    "qselect",
    "qdel",
    "qacct",
    "sbatch",
    "squeue",
    "scancel",
    "sacct",
    "condor_submit",
    "condor_q",
    "condor_history",
    "condor_rm",
];

/// A dispatcher that finds the programs of a batch system. It ends when this is dropped.
struct OnFake(Home);

impl OnFake {
    #[track_caller]
    fn start(variables: &[(&str, &str)]) -> Self {
        let home = Home::new();
        let (programs, jobs) = (home.path("programs"), home.path("jobs"));
        fs::create_dir(&programs).unwrap();
        fs::create_dir(&jobs).unwrap();
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/fake_batch.sh");
        for name in PROGRAMS {
            symlink(&fake, programs.join(name)).unwrap();
        }
        let fake = OnFake(home);
        fake.start_dispatcher(variables);
        fake
    }

    #[track_caller]
    fn start_dispatcher(&self, variables: &[(&str, &str)]) {
        let start =
            ["start", "dispatcher", "--cluster", "test", "--listen", "127.0.0.1:0", "--detach"];
        let mut dispatcher = self.0.command(&start);
        self.with_programs(&mut dispatcher);
        dispatcher.envs(variables.iter().copied());
        self.0.finish(dispatcher).exits(0);
    }

    /// Has a command find the programs of the batch system.
    fn with_programs(&self, command: &mut Command) {
        let (programs, path) = (self.0.path("programs"), std::env::var("PATH").unwrap_or_default());
        command
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("FAKE_BATCH", self.0.path("jobs"));
    }

    /// From now on, this goes wrong with submissions.
    fn fails(&self, fault: &str) {
        fs::write(self.0.path("jobs.fault"), fault).unwrap();
    }

    /// The processes of all jobs that there ever were.
    fn jobs(&self) -> Vec<u32> {
        let jobs = fs::read_dir(self.0.path("jobs"))
            .unwrap()
            .map(|job| job.unwrap().path().join("process"));
        jobs.filter_map(|process| fs::read_to_string(process).ok()?.trim().parse().ok()).collect()
    }

    /// Adds a pool of one node, which is requested at once.
    #[track_caller]
    fn add_one_node(&self, system: &str, pool: &str, words: &[&str]) {
        let add =
            ["pool", "add", system, pool, "--min-nodes", "1", "--max-nodes", "1", "--cpus", "1"];
        self.run(&[&add[..], &["--executor-option=--keep-free=10MB"], words].concat()).exits(0);
    }

    fn run(&self, words: &[&str]) -> crate::support::CommandOutput {
        self.0.eyas(&[&["--cluster", "test"], words].concat())
    }

    fn pool(&self) -> Value {
        self.named_pool("batch")
    }

    fn named_pool(&self, pool: &str) -> Value {
        self.run(&["--json", "pool", "show", pool]).exits(0).json("pools")[0].take()
    }

    /// A job scales out to several nodes of one request, and back.
    #[track_caller]
    fn scales_out_and_back(&self, system: &str, verbatim: &[&str]) {
        let add = [
            "pool",
            "add",
            system,
            "batch",
            "--max-nodes",
            "4",
            "--nodes-per-request",
            "2",
            "--cpus",
            "1",
        ];
        let rest = [
            "--provision",
            "all-at-once",
            "--idle-timeout",
            "500ms",
            "--executor-option=--keep-free=10MB",
        ];
        self.run(&[&add[..], &rest, verbatim].concat()).exits(0).says(&["added pool batch"]);
        let job = ["run", "--array", "1-20", "--", "sh", "-c", "sleep 0.1; echo {}"];
        self.run(&job).exits(0).says(&["20 of 20 tasks succeeded"]);
        wait_until("the nodes are given back", || {
            let pool = self.pool();
            let has_ended = |request: &Value| request["state"] == "ended";
            pool["nodes"] == 0 && pool["requests"].as_array().unwrap().iter().all(has_ended)
        });
        let pool = self.pool();
        assert!(
            pool["failures"] == 0 && pool["nodes_granted"] == pool["nodes_given_back"],
            "{pool:#}"
        );
        assert!(pool["nodes_granted"].as_u64() >= Some(2), "{pool:#}");
        self.run(&["pool", "remove", "batch"]).exits(0);
        wait_until("the pool is gone", || self.run(&["pool", "show", "batch"]).code == 1);
    }

    /// The host starts no node at first. It is excluded, and the pool goes on. Returns the host,
    /// and the folder of the last request.
    #[track_caller]
    fn goes_on_after_failures_on_one_host(&self, system: &str) -> (String, PathBuf) {
        let host = Command::new("uname").arg("-n").output().unwrap().stdout;
        let host = String::from_utf8(host).unwrap().trim().to_owned();
        let bad = self.0.write("bad", "");
        let start =
            format!("if [ -e '{}' ]; then echo no scratch disk >&2; exit 3; fi", bad.display());
        let add = [
            "pool",
            "add",
            system,
            "batch",
            "--max-nodes",
            "1",
            "--cpus",
            "1",
            "--start-command",
            &start,
        ];
        self.run(&[&add[..], &["--executor-option=--keep-free=10MB"]].concat()).exits(0);
        self.0.write("job.jsonl", r#"{"array": "1-2", "command": ["true"]}"#);
        self.run(&["submit", "job.jsonl"]).exits(0);
        wait_until("the bad host is known", || self.pool()["excluded"][0]["host"] == host.as_str());
        fs::remove_file(bad).unwrap();
        // These programs grant the host again, whatever the request says.
        self.run(&["job", "wait", "1"]).exits(0).says(&["2 of 2 tasks succeeded"]);
        let pool = self.pool();
        assert!(pool["state"] == "active" && pool["failures"].as_u64() >= Some(2), "{pool:#}");
        let last = pool["requests"].as_array().unwrap().last().unwrap()["request"].to_string();
        (host, self.0.path("home/clusters/test/pools/batch/requests").join(last))
    }
}

impl Drop for OnFake {
    fn drop(&mut self) {
        let _ = self.0.command(&["--cluster", "test", "stop"]).output();
    }
}

#[test]
fn a_job_scales_out_and_back_on_pbs() {
    let pbs = OnFake::start(&[]);
    pbs.scales_out_and_back("pbs", &["--", "-q", "workq"]);
    pbs.run(&["pool", "add", "pbs", "bad", "--min-nodes", "1", "--", "-q", "nowhere"]).exits(0);
    wait_until("a request has failed", || {
        pbs.run(&["pool", "show", "bad"]).stdout.contains("Unknown queue")
    });
}

#[test]
fn a_bad_host_does_not_pause_a_pool_on_pbs() {
    OnFake::start(&[]).goes_on_after_failures_on_one_host("pbs");
}

#[test]
fn a_bad_host_is_excluded_on_htcondor() {
    let condor = OnFake::start(&[]);
    let (host, request) = condor.goes_on_after_failures_on_one_host("htcondor");
    let description = fs::read_to_string(request.join("request.sub")).unwrap();
    assert!(
        description.contains(&format!("requirements = !regexp(\"^{}", host.replace('.', "[.]"))),
        "{description}"
    );
}

#[test]
fn a_batch_system_that_is_gone_pauses_the_pool_and_keeps_its_nodes() {
    let pbs = OnFake::start(&[]);
    let add = [
        "pool",
        "add",
        "pbs",
        "batch",
        "--max-nodes",
        "2",
        "--cpus",
        "1",
        "--executor-option=--keep-free=10MB",
    ];
    pbs.run(&[&add[..], &["--min-nodes", "1"]].concat()).exits(0);
    wait_until("a node has joined", || pbs.pool()["nodes"] == 1);
    for name in ["qsub", "qstat", "qdel", "condor_submit"] {
        fs::remove_file(pbs.0.path("programs").join(name)).unwrap();
    }
    let job = ["run", "--array", "1-20", "--", "sh", "-c", "sleep 0.1; echo {}"];
    pbs.run(&job).exits(0).says(&["20 of 20 tasks succeeded"]);
    // The machine may have the programs of another batch system under the names of those of PBS.
    pbs.run(&["pool", "add", "htcondor", "other"])
        .exits(1)
        .says(&["there is no program `condor_submit` here"]);
    let pool = pbs.pool();
    assert!(
        pool["nodes"].as_u64() >= Some(1),
        "a node without a batch system still works: {pool:#}"
    );
}

#[test]
fn a_job_scales_out_and_back_on_torque() {
    OnFake::start(&[("FAKE_BATCH_TEXT", "1")]).scales_out_and_back("pbs", &[]);
}

#[test]
fn a_kubernetes_cluster_that_is_not_reached_is_named() {
    let fake = OnFake::start(&[]);
    let add = |words: &[&str]| {
        let add = ["pool", "add", "kubernetes", "k8s", "--cpus", "1", "--kubeconfig", "kubeconfig"];
        fake.run(&[&add, words].concat()).exits(1)
    };
    let image = ["--image", "registry/eyas"];
    add(&image).says(&["cannot read", "work/kubeconfig: No such file"]);
    let server = "clusters:\n- {name: one, cluster: {server: 'http://127.0.0.1:1'}}\n";
    let contexts = "contexts:\n- {name: lab, context: {cluster: one}}\ncurrent-context: lab\n";
    fake.0.write("kubeconfig", format!("{server}{contexts}"));
    add(&image).says(&["the API server http://127.0.0.1:1 does not answer", "Connection refused"]);
    add(&[&image[..], &["--context", "other"]].concat())
        .says(&["no context `other`: its contexts are lab"]);
    add(&[]).says(&["--image names the container image of the nodes"]);
    add(&[&image[..], &["--", "--queue=a"]].concat()).says(&["use --template"]);
    fake.0.write("pods.yaml", "kind: Service");
    add(&[&image[..], &["--template", "pods.yaml"]].concat())
        .says(&["it is a Service, not a PodTemplate"]);
    let other = fake.run(&["pool", "add", "local", "here", "--image", "registry/eyas"]).exits(1);
    assert!(other.stderr.contains("which are for Kubernetes"), "{}", other.stderr);
}

#[test]
fn a_job_scales_out_and_back_on_htcondor() {
    let condor = OnFake::start(&[]);
    condor.scales_out_and_back("htcondor", &["--", "accounting_group = astro"]);
    let add = ["pool", "add", "htcondor", "bad", "--min-nodes", "1", "--no-try", "--", "nonsense"];
    condor.run(&add).exits(0);
    wait_until("a request has failed", || {
        condor.run(&["pool", "show", "bad"]).stdout.contains("ERROR: nonsense")
    });
}

#[test]
fn a_submission_whose_answer_is_lost_is_found_by_its_name() {
    let fake = OnFake::start(&[]);
    for (system, fault) in
        [("pbs", "banner"), ("sge", "lost"), ("htcondor", "lost"), ("slurm", "banner")]
    {
        fake.fails(fault);
        fake.add_one_node(system, system, &[]);
        wait_until((system, "has a node, of a request that is known"), || {
            let pool = fake.named_pool(system);
            assert_eq!(pool["failures"], 0, "{pool:#}");
            pool["nodes"] == 1 && pool["requests"][0]["job"].is_string()
        });
    }
    assert_eq!(fake.jobs().len(), 4, "each request was submitted once");
}

#[test]
fn a_request_that_was_being_submitted_when_the_dispatcher_was_killed_is_taken_up() {
    let fake = OnFake::start(&[]);
    fake.fails("hang");
    fake.add_one_node("pbs", "batch", &["--start-command", "sleep 1000"]);
    let [job] = wait_for("the job has begun", || <[u32; 1]>::try_from(fake.jobs()).ok());
    let is_dispatcher = |(_, command): &(u32, String)| command.contains("start dispatcher");
    let (dispatcher, _) = fake.0.processes().into_iter().find(is_dispatcher).unwrap();
    signal(dispatcher, Signal::KILL);
    wait_until("the dispatcher is gone", || !is_alive(dispatcher));
    fs::remove_file(fake.0.path("jobs.fault")).unwrap();
    fake.start_dispatcher(&[]);
    wait_until("the job is known", || fake.pool()["requests"][0]["job"] == "1.head");
    fake.run(&["pool", "remove", "batch"]).exits(0);
    wait_until("the job is withdrawn", || !is_alive(job));
    assert_eq!(fake.jobs(), [job], "no other node was requested");
}

#[test]
fn stop_withdraws_a_request_whose_submission_has_not_answered() {
    let fake = OnFake::start(&[]);
    fake.fails("hang");
    fake.add_one_node("slurm", "batch", &["--start-command", "sleep 1000"]);
    let [job] = wait_for("the job has begun", || <[u32; 1]>::try_from(fake.jobs()).ok());
    fake.run(&["stop"]).exits(0);
    wait_until("the job is withdrawn", || !is_alive(job));
    fs::remove_file(fake.0.path("jobs.fault")).unwrap();
    let request = fake.0.path("home/clusters/test/pools/batch/requests/0");
    assert!(request.join("script.sh").exists() && !request.join("access.toml").exists());
}

#[test]
fn functions_that_a_shell_exports_reach_the_tasks_of_a_pool() {
    let fake = OnFake::start(&[("BASH_FUNC_greet%%", "() {  echo hello; }")]);
    fake.add_one_node("local", "here", &["--start-command", "greet >&2"]);
    assert_eq!(fake.run(&["run", "--", "bash", "-c", "greet"]).exits(0).stdout, "hello\n");
}

#[test]
fn a_dispatcher_in_a_job_whose_submission_is_not_answered_is_found_and_followed() {
    let fake = OnFake::start(&[]);
    fake.fails("lost");
    let options = "--cpus 1 --max-nodes 1 --executor-option=--keep-free=10MB";
    let words = [
        "run",
        "--pool",
        "slurm",
        "--dispatcher-in-job",
        "--pool-options",
        options,
        "--",
        "echo",
        "hello",
    ];
    let mut run = fake.0.command(&words);
    fake.with_programs(&mut run);
    assert_eq!(fake.0.finish(run).exits(0).stdout, "hello\n");
    assert_eq!(fake.jobs().len(), 2, "the dispatcher and a node");
}
