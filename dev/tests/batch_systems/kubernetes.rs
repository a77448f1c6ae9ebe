//! Kubernetes: the mock server of the fabric8 project, with a controller whose Pods are processes
//! of this machine.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{BatchBed, Testbed, is_tested};
use crate::support::{Home, can_use, eyas, is_alive, signal, wait_until};

/// An API server, and a dispatcher that makes Jobs there.
struct OnKubernetes {
    bed: Testbed,
    // The last field, because it is dropped last: all processes must have ended by then.
    home: Home,
}

impl BatchBed for OnKubernetes {
    const SYSTEM: &'static str = "kubernetes";

    fn home(&self) -> &Home {
        &self.home
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(words);
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    fn queue(&self) -> String {
        format!("{:#}\n{:#}", self.objects("work", "jobs"), self.objects("work", "pods"))
    }
}

impl OnKubernetes {
    /// `None` where no Kubernetes is to be tested. The server has one node with this number of
    /// processors.
    fn start(cpus: &str) -> Option<Self> {
        if !is_tested("a Kubernetes API server") || !can_use(&["java", "javac", "mvn"]) {
            return None;
        }
        let home = Home::new();
        // The programs of this machine are in all images.
        let programs = eyas().parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let script = "kubernetes.sh";
        let mut up = home.command_of(Testbed::program(script), &["up", "-c", cpus]);
        let bed = Testbed::start(script, home.path("kubernetes"), up.env("PATH", path));
        let kubernetes = OnKubernetes { bed, home };
        kubernetes.start_dispatcher(&["--listen", "127.0.0.1:0"], &[]);
        Some(kubernetes)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.bed.folder.join("kubeconfig")
    }

    /// Adds the pool with an image that every node has.
    #[track_caller]
    fn add_pool_of(&self, words: &[&str]) {
        self.add_pool(&[&["--image", "registry/eyas"], words].concat());
    }

    /// Asks the API server as an administrator.
    fn api(&self, method: &str, path: &str) -> Value {
        let output = self.bed.command("api").args([method, path]).output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The objects of a namespace.
    fn objects(&self, namespace: &str, what: &str) -> Value {
        let group = if what == "jobs" { "apis/batch/v1" } else { "api/v1" };
        self.api("GET", &format!("/{group}/namespaces/{namespace}/{what}"))["items"].take()
    }

    fn count(&self, what: &str) -> usize {
        self.objects("work", what).as_array().unwrap().len()
    }

    #[track_caller]
    fn wait_until_nothing_is_left(&self) {
        for what in ["jobs", "pods", "secrets"] {
            self.wait_until(&format!("no {what} are left"), || self.count(what) == 0);
        }
    }

    fn began(&self) -> usize {
        self.home.names(".").iter().filter(|name| name.starts_with("began-")).count()
    }
}

impl Drop for OnKubernetes {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_job_scales_out_and_back() {
    let Some(kubernetes) = OnKubernetes::start("4") else { return };
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
    let further =
        ["--idle-timeout", "1s", "--time-limit", "10min", "--start-command", "echo begins"];
    kubernetes.add_pool_of(&[&nodes[..], &further].concat());
    let job = ["run", "--array", "1-30", "--", "sh", "-c", "sleep 0.1; echo {}"];
    kubernetes.run(&job).exits(0).says(&["30 of 30 tasks succeeded"]);
    let pool = kubernetes.has_given_back_all();
    assert!(pool["nodes_granted"].as_u64() >= Some(2), "{pool:#}");
    assert!(pool["requests"][0]["job"].as_str().unwrap().starts_with("eyas-batch-0-"), "{pool:#}");
    // The log is kept, the objects are not.
    let log = kubernetes.run(&["pool", "log", "batch", "0"]).exits(0).stdout;
    assert!(log.contains("==> eyas-batch-0-") && log.contains("begins"), "{log}");
    let script = kubernetes.run(&["pool", "log", "batch", "0", "--script"]).exits(0).stdout;
    assert!(script.contains("eyas start executor --access /var/lib/eyas/access.toml"), "{script}");
    kubernetes.wait_until_nothing_is_left();
}

#[test]
fn a_job_of_its_own_needs_no_cluster() {
    let Some(kubernetes) = OnKubernetes::start("2") else { return };
    let options = "--image registry/eyas --cpus 1 --max-nodes 2 --executor-option=--keep-free=10MB";
    let run = [
        "run",
        "--pool",
        "kubernetes",
        "--pool-options",
        options,
        "--array",
        "1-4",
        "--",
        "echo",
        "{}",
    ];
    let done = kubernetes.home.finish(kubernetes.command(&run)).exits(0);
    assert_eq!(done.stdout.lines().count(), 4, "{}", done.stdout);
}

#[test]
fn a_removed_pool_leaves_nothing() {
    let Some(kubernetes) = OnKubernetes::start("2") else { return };
    kubernetes.add_pool_of(&["--cpus", "1", "--min-nodes", "2", "--max-nodes", "2"]);
    kubernetes.wait_until("both nodes have joined", || kubernetes.pool()["nodes"] == 2);
    assert_eq!(kubernetes.count("secrets"), 2);
    let job = &kubernetes.objects("work", "jobs")[0];
    let labels = &job["metadata"]["labels"];
    assert!(labels["eyas/pool"] == "batch" && labels["eyas/cluster"] == "test", "{job:#}");
    let text = job.to_string();
    assert!(!text.contains("BEGIN") && !text.contains("certificate"), "no key is in a Job: {text}");
    kubernetes.run(&["pool", "remove", "batch"]).exits(0);
    kubernetes.wait_until_nothing_is_left();
    kubernetes
        .wait_until("the pool is gone", || kubernetes.run(&["pool", "show", "batch"]).code == 1);
}

#[test]
fn a_task_of_a_deleted_pod_costs_no_retry() {
    let Some(kubernetes) = OnKubernetes::start("1") else { return };
    kubernetes.add_pool_of(&["--cpus", "1", "--max-nodes", "1", "--idle-timeout", "1s"]);
    let wait = "echo > began-$$; until [ -e go ]; do sleep 0.02; done";
    let task = format!(r#"{{"command": ["sh", "-c", "{wait}"], "retries": 0}}"#);
    kubernetes.home.write("job.jsonl", task);
    kubernetes.run(&["submit", "job.jsonl"]).exits(0);
    kubernetes.wait_until("the task runs", || kubernetes.began() == 1);
    let pod =
        kubernetes.objects("work", "pods")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    kubernetes.api("DELETE", &format!("/api/v1/namespaces/work/pods/{pod}"));
    kubernetes.wait_until("the task runs again on another node", || kubernetes.began() == 2);
    kubernetes.home.write("go", "");
    kubernetes.run(&["job", "wait", "1"]).exits(0);
    kubernetes.wait_until_given_back();
}

#[test]
fn a_request_that_waits_says_why_and_is_withdrawn() {
    let Some(kubernetes) = OnKubernetes::start("1") else { return };
    kubernetes.add_pool_of(&["--cpus", "8", "--idle-timeout", "1s"]);
    kubernetes.home.write("job.jsonl", r#"{"command": ["true"]}"#);
    kubernetes.run(&["submit", "job.jsonl"]).exits(0);
    kubernetes.wait_until("Kubernetes has said why the request waits", || {
        kubernetes.pool()["requests"][0]["says"]
            .as_str()
            .is_some_and(|says| says.starts_with("Unschedulable: 0/1"))
    });
    let explained = kubernetes.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(
        explained.contains("request 0") && explained.contains("Insufficient cpu"),
        "{explained}"
    );
    kubernetes.run(&["job", "cancel", "1"]).exits(0);
    kubernetes.wait_until_nothing_is_left();
}

#[test]
fn an_image_that_cannot_be_pulled_and_a_quota_are_named() {
    let Some(kubernetes) = OnKubernetes::start("1") else { return };
    let add =
        ["--image", "missing/eyas", "--cpus", "1", "--min-nodes", "1", "--join-timeout", "1s"];
    kubernetes.add_pool(&add);
    kubernetes
        .wait_until("the request has failed", || kubernetes.pool()["failures"].as_u64() >= Some(1));
    let pool = kubernetes.pool();
    assert!(
        pool["events"].to_string().contains("granted: ImagePullBackOff: Back-off pulling image"),
        "{pool:#}"
    );
    kubernetes.run(&["pool", "remove", "batch", "--force"]).exits(0);
    kubernetes.wait_until_nothing_is_left();
    kubernetes
        .wait_until("the pool is gone", || kubernetes.run(&["pool", "show", "batch"]).code == 1);
    kubernetes.add_pool_of(&["--namespace", "full", "--cpus", "1", "--min-nodes", "1"]);
    kubernetes.wait_until("the quota is named", || {
        kubernetes.pool()["requests"][0]["says"]
            .as_str()
            .is_some_and(|says| says.contains("exceeded quota"))
    });
}

#[test]
fn refusals_of_the_api_server_are_shown_at_once() {
    let Some(kubernetes) = OnKubernetes::start("1") else { return };
    let add = |words: &[&str]| {
        let add = ["pool", "add", "kubernetes", "batch", "--image", "registry/eyas", "--cpus", "1"];
        kubernetes.run(&[&add, words].concat())
    };
    let expired =
        ["the credentials of context `expired` are refused (401): Unauthorized", "log in"];
    add(&["--context", "expired"]).exits(1).says(&expired);
    let denied = [
        "permission denied (403)",
        "cannot create resource \"jobs\"",
        "examples/kubernetes/rbac.yaml",
    ];
    add(&["--context", "reader"]).exits(1).says(&denied);
    // The pool keeps its context when the user changes to another one.
    add(&[]).exits(0);
    let text = std::fs::read_to_string(kubernetes.kubeconfig()).unwrap();
    std::fs::write(
        kubernetes.kubeconfig(),
        text.replace("current-context: admin", "current-context: none"),
    )
    .unwrap();
    let tried = kubernetes.run(&["pool", "try", "batch"]).exits(0).stdout;
    assert!(
        tried.contains("namespace work of https://127.0.0.1:")
            && tried.contains("accepts such a Job"),
        "{tried}"
    );
    assert_eq!(kubernetes.count("jobs"), 0, "nothing is made");
}

#[test]
fn requests_are_taken_up_by_a_dispatcher_that_starts_again() {
    let Some(kubernetes) = OnKubernetes::start("2") else { return };
    kubernetes.add_pool_of(&["--cpus", "1", "--min-nodes", "1", "--max-nodes", "1"]);
    kubernetes.wait_until("the node has joined", || kubernetes.pool()["nodes"] == 1);
    let is_dispatcher = |(_, line): &&(u32, String)| line.contains("start dispatcher");
    let processes = kubernetes.home.processes();
    let (dispatcher, _) = processes.iter().find(is_dispatcher).unwrap();
    signal(*dispatcher, rustix::process::Signal::KILL);
    wait_until("the dispatcher is dead", || !is_alive(*dispatcher));
    kubernetes.start_dispatcher(&["--listen", "127.0.0.1:0"], &[]);
    kubernetes.wait_until("the node is back", || kubernetes.pool()["nodes"] == 1);
    kubernetes.run(&["run", "--array", "1-3", "--", "echo", "{}"]).exits(0);
    let pool = kubernetes.pool();
    assert_eq!(
        (pool["requests"].as_array().unwrap().len(), kubernetes.count("jobs")),
        (1, 1),
        "{pool:#}"
    );
    kubernetes.run(&["pool", "remove", "batch"]).exits(0);
    kubernetes.wait_until_nothing_is_left();
}

#[test]
fn a_template_and_a_program_with_credentials_are_used() {
    let Some(kubernetes) = OnKubernetes::start("1") else { return };
    let text = std::fs::read_to_string(kubernetes.kubeconfig()).unwrap();
    let program = "exec: {apiVersion: client.authentication.k8s.io/v1, command: printf, args: \
                   ['{\"status\": {\"token\": \"admin\"}}']}";
    std::fs::write(kubernetes.kubeconfig(), text.replace("token: admin", program)).unwrap();
    let template = "apiVersion: v1\nkind: PodTemplate\ntemplate:\n  spec:\n    containers:\n    - \
                    name: eyas\n      env:\n      - {name: FROM_TEMPLATE, value: seen}\n    \
                    nodeSelector: {zone: a}\n";
    let template = kubernetes.home.write("pods.yaml", template).display().to_string();
    let words = ["--cpus", "1", "--template", &template, "--min-nodes", "1", "--max-nodes", "1"];
    kubernetes.add_pool_of(&[&words[..], &["--start-command", "echo begins"]].concat());
    let done =
        kubernetes.run(&["run", "--array", "1", "--", "sh", "-c", "echo $FROM_TEMPLATE"]).exits(0);
    assert_eq!(done.stdout, "seen\n");
    assert_eq!(kubernetes.objects("work", "pods")[0]["spec"]["nodeSelector"]["zone"], "a");
    // The Pod still runs.
    assert_eq!(kubernetes.run(&["pool", "log", "batch"]).exits(0).stdout, "begins\n");
}
