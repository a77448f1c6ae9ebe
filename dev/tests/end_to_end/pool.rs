//! Pools of nodes: requested when tasks wait, given back when they are idle. The nodes are
//! processes on this machine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::support::{Cluster, Home, wait_until};

/// A dispatcher whose nodes come from pools alone.
fn without_nodes() -> Cluster {
    Cluster::start_in(Home::new(), &[])
}

impl Cluster {
    /// Adds a local pool `mine` of nodes with one slot, with further options.
    #[track_caller]
    fn add_pool(&self, words: &[&str]) {
        let add =
            ["pool", "add", "local", "mine", "--cpus", "1", "--executor-option=--keep-free=10MB"];
        self.run(&[&add, words].concat()).exits(0).says(&["added pool mine"]);
    }

    fn pool(&self, name: &str) -> Value {
        self.ask(&["pool", "show", name], "pools")[0].take()
    }
}

/// Whether the pool has no nodes and no requests that have not ended.
fn is_empty(pool: &Value) -> bool {
    let has_ended = |request: &Value| request["state"] == "ended";
    pool["nodes"] == 0
        && pool["draining"] == 0
        && pool["requests"].as_array().unwrap().iter().all(has_ended)
}

#[test]
fn nodes_come_for_tasks_and_leave_when_they_are_idle() {
    // A soft limit of open files that the dispatcher can raise.
    let hard = getrlimit(Resource::Nofile).maximum.expect("a number");
    setrlimit(Resource::Nofile, Rlimit { current: Some(hard - 1), maximum: Some(hard) }).unwrap();
    let cluster = without_nodes();
    cluster.add_pool(&["--max-nodes", "2", "--idle-timeout", "300ms"]);
    assert!(is_empty(&cluster.pool("mine")), "no task waits");
    cluster
        .run(&["run", "--array", "1-10", "--", "echo", "{}"])
        .exits(0)
        .says(&["10 of 10 tasks succeeded"]);
    wait_until("the nodes have left", || is_empty(&cluster.pool("mine")));
    let pool = cluster.pool("mine");
    let count = |name: &str| pool[name].as_u64().unwrap();
    assert!((1..=2).contains(&count("nodes_granted")) && pool["failures"] == 0, "{pool}");
    assert_eq!(count("nodes_granted"), count("nodes_given_back"), "{pool}");
    assert!(pool["node_seconds"].as_f64().unwrap() > 0.0, "{pool}");
    // The dispatcher has raised its limit of open files, and tasks of its nodes have the limit of
    // its caller.
    let done = cluster.run(&["run", "--array", "1-3", "--", "sh", "-c", "ulimit -Sn"]).exits(0);
    assert_eq!(done.says(&["3 of 3 tasks succeeded"]).stdout, format!("{}\n", hard - 1).repeat(3));
    assert!(cluster.run(&["pool", "list"]).exits(0).stdout.contains("mine"));
    let script = cluster.run(&["pool", "log", "mine", "--script"]).exits(0).stdout;
    assert!(script.contains("start executor --access"), "{script}");
    cluster.run(&["pool", "remove", "mine"]).exits(0);
    wait_until("the pool is gone", || cluster.run(&["pool", "show", "mine"]).code == 1);
    assert!(!cluster.path("home/clusters/test/pools/mine").exists());
}

#[test]
fn no_node_is_requested_for_tasks_that_wait_for_others_or_never_fit() {
    let cluster = without_nodes();
    cluster.add_pool(&["--max-nodes", "4", "--idle-timeout", "200ms", "--label", "site=a"]);
    let large = r#"{"command": ["true"], "cpus": 2}"#;
    let elsewhere = r#"{"command": ["true"], "requirements": "node.labels['site'] == 'b'"}"#;
    cluster.write("job.jsonl", format!("{large}\n{elsewhere}\n"));
    cluster.submit("job.jsonl");
    // A task with outputs runs in a folder of its own.
    let go = cluster.work().join("go");
    let first = format!("until [ -e {} ]; do sleep 0.02; done; echo > f", go.display());
    let first = format!(
        r#"{{"id": "first", "command": ["sh", "-c", "{first}"], "outputs": [{{"file": "f"}}]}}"#
    );
    let others = r#"{"array": "1-8", "command": ["true"], "inputs": [{"task": "first"}]}"#;
    cluster.write("chain.jsonl", format!("{first}\n{others}\n"));
    cluster.submit("chain.jsonl");
    wait_until("the first task runs", || {
        cluster.pool("mine")["nodes"] == 1 && cluster.pool("mine")["waiting"] == 0
    });
    assert_eq!(cluster.pool("mine")["nodes_requested"], 1);
    cluster.write("go", "");
    cluster.run(&["job", "cancel", "1"]).exits(0);
}

#[test]
fn a_request_is_withdrawn_when_its_job_is_cancelled() {
    let cluster = without_nodes();
    cluster.add_pool(&["--idle-timeout", "200ms", "--start-command", "sleep 300"]);
    cluster.write("job.jsonl", r#"{"command": ["true"]}"#);
    cluster.submit("job.jsonl");
    wait_until("a node is requested", || cluster.pool("mine")["requested"] == 1);
    cluster.run(&["job", "cancel", "1"]).exits(0);
    wait_until("the request is withdrawn", || is_empty(&cluster.pool("mine")));
}

#[test]
fn a_node_is_requested_for_a_task_behind_a_busy_slot() {
    let cluster = without_nodes();
    cluster.add_pool(&["--min-nodes", "1", "--max-nodes", "2"]);
    wait_until("the first node has joined", || cluster.pool("mine")["nodes"] == 1);
    // Each task waits for the other one, and a node has one slot.
    let meet = "touch {}; until [ -e 1 ] && [ -e 2 ]; do sleep 0.02; done";
    cluster.run(&["run", "--array", "1-2", "--", "sh", "-c", meet]).exits(0);
    let pool = cluster.pool("mine");
    assert_eq!(
        (&pool["nodes_requested"], &pool["nodes_granted"]),
        (&2.into(), &2.into()),
        "{pool}"
    );
}

/// A job of one task that runs until there is a file `go`.
const UNTIL_GO: &str =
    r#"{"command": ["sh", "-c", "echo >> began; until [ -e go ]; do sleep 0.02; done"]}"#;

#[test]
fn a_paused_pool_says_so_and_goes_on() {
    let cluster = without_nodes();
    cluster.add_pool(&["--max-nodes", "1"]);
    cluster.run(&["pool", "pause", "mine"]).exits(0);
    cluster.write("job.jsonl", UNTIL_GO);
    cluster.submit("job.jsonl");
    wait_until("the task waits", || cluster.pool("mine")["waiting"] == 1);
    let explained = cluster.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(explained.contains("Pool mine is paused"), "{explained}");
    assert_eq!(cluster.pool("mine")["nodes_requested"], 0);
    cluster.run(&["pool", "resume", "mine"]).exits(0);
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    cluster.run(&["pool", "remove", "mine", "--force"]).exits(0);
    wait_until("the pool is gone", || cluster.run(&["pool", "show", "mine"]).code == 1);
}

#[test]
fn requests_that_fail_pause_the_pool_with_the_words_of_the_node() {
    let cluster = without_nodes();
    cluster.add_pool(&["--min-nodes", "1", "--start-command", "echo the disk is full >&2; exit 3"]);
    wait_until("a request has failed", || cluster.pool("mine")["failures"].as_u64() >= Some(1));
    let pool = cluster.pool("mine");
    let why = pool["why"].as_str().unwrap();
    assert!(why.contains("exit code 3") && why.contains("the disk is full"), "{pool}");
    assert!(
        cluster.run(&["pool", "log", "mine", "0"]).exits(0).stdout.contains("the disk is full")
    );
    cluster.run(&["pool", "log", "mine", "99"]).exits(1).says(&["has no request 99"]);
    cluster.run(&["pool", "remove", "mine"]).exits(0);
    wait_until("the pool is gone", || cluster.run(&["pool", "show", "mine"]).code == 1);
}

#[test]
fn a_restarted_dispatcher_takes_up_its_pools_and_their_nodes() {
    let mut cluster = without_nodes();
    cluster.add_pool(&["--max-nodes", "1", "--idle-timeout", "300ms"]);
    cluster.write("job.jsonl", UNTIL_GO);
    cluster.submit("job.jsonl");
    wait_until("the task runs", || cluster.work().join("began").exists());
    cluster.restart_dispatcher();
    wait_until("the node is back", || cluster.pool("mine")["nodes"] == 1);
    assert_eq!(cluster.pool("mine")["nodes_requested"], 1, "it is the node of the first request");
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    wait_until("the node has left", || is_empty(&cluster.pool("mine")));
}

#[test]
fn a_limit_of_node_time_gives_back_all_nodes() {
    let cluster = without_nodes();
    cluster.add_pool(&["--min-nodes", "2", "--max-node-hours", "0.0001", "--price", "2"]);
    wait_until("the limit is reached", || cluster.pool("mine")["state"] == "capped");
    wait_until("the nodes have left", || is_empty(&cluster.pool("mine")));
    let pool = cluster.pool("mine");
    let (seconds, cost) = (pool["node_seconds"].as_f64().unwrap(), pool["cost"].as_f64().unwrap());
    assert!(seconds >= 0.36 && (cost - seconds / 1800.0).abs() < 1e-9, "{pool}");
    assert!(pool["why"].as_str().unwrap().contains("0.0001 node-hours"), "{pool}");
}

#[test]
fn the_cheapest_pool_that_suits_a_task_is_used() {
    let cluster = without_nodes();
    let add = |name: &str, words: &[&str]| {
        let add =
            ["pool", "add", "local", name, "--cpus", "1", "--executor-option=--keep-free=10MB"];
        cluster.run(&[&add, words].concat()).exits(0);
    };
    add("costly", &["--price", "3", "--label", "gpu=yes", "--idle-timeout", "300ms"]);
    add("cheap", &["--price", "1", "--idle-timeout", "300ms"]);
    cluster.run(&["run", "--array", "1-3", "--", "true"]).exits(0);
    assert_eq!(cluster.pool("costly")["nodes_requested"], 0);
    let need = "'gpu' in node.labels";
    cluster.run(&["run", "--array", "1-3", "--requirements", need, "--", "true"]).exits(0);
    assert!(cluster.pool("costly")["nodes_requested"].as_u64() >= Some(1));
    wait_until("all nodes have left", || {
        ["costly", "cheap"].iter().all(|name| is_empty(&cluster.pool(name)))
    });
}

#[test]
fn wrong_pools_are_refused_with_a_reason() {
    let cluster = without_nodes();
    cluster.add_pool(&[]);
    let refused = |words: &[&str], why: &str| {
        cluster.run(&[&["pool", "add"], words].concat()).exits(1).says(&[why]);
    };
    refused(&["local", "mine"], "there is a pool `mine` already");
    refused(&["local", "a/b"], "cannot be the name of a pool");
    refused(&["moab", "other"], "there is no batch system `moab`");
    refused(&["local", "other", "--min-nodes", "3", "--max-nodes", "2"], "--min-nodes is larger");
    for command in ["show", "pause", "resume", "remove", "log", "try"] {
        cluster.run(&["pool", command, "other"]).exits(1).says(&["there is no pool `other`"]);
    }
    cluster.run(&["pool", "log", "mine"]).exits(1).says(&["has not requested any nodes yet"]);
}

#[test]
fn one_job_has_a_pool_of_its_own() {
    let home = Home::new();
    let options = "--cpus 1 --max-nodes 2 --executor-option=--keep-free=10MB";
    let run =
        ["run", "--pool", "local", "--pool-options", options, "--array", "1-5", "--", "echo", "{}"];
    let done = home.eyas(&run).exits(0).says(&["5 of 5 tasks succeeded"]);
    assert_eq!(done.stdout.lines().count(), 5);
    let refused = ["run", "--pool", "moab", "--array", "1-5", "--", "echo", "{}"];
    home.eyas(&refused).exits(1).says(&["there is no batch system `moab`"]);
}

#[test]
fn a_pools_file_describes_pools() {
    let home = Home::new();
    let options =
        "system = \"local\"\ncpus = 1\nexecutor-option = \"--keep-free=10MB\"\nmax-nodes = 2\n";
    home.write("pools.toml", format!("[small]\n{options}description = \"One processor each\"\n"));
    let run = |words: &[&str]| {
        let mut command = home.command(words);
        command.env("EYAS_POOLS", home.work().join("pools.toml"));
        home.finish(command)
    };
    assert!(run(&["pool", "list", "--available"]).exits(0).stdout.contains("One processor each"));
    let available = run(&["--json", "pool", "list", "--available"]).exits(0).json("available");
    assert!(available[0]["pool"] == "small" && available[0]["system"] == "local", "{available}");
    run(&["run", "--pool", "small", "--array", "1-5", "--", "echo", "{}"])
        .exits(0)
        .says(&["5 of 5 tasks succeeded"]);
    // A file of the command line replaces the pool, and options of the command line replace those
    // of the file.
    let cluster = without_nodes();
    cluster.write("own.toml", format!("[small]\n{options}price = 3\n"));
    cluster
        .run(&["pool", "add", "small", "--pools", "own.toml", "--max-nodes", "7"])
        .exits(0)
        .says(&["pool small"]);
    let pool = cluster.pool("small");
    assert!(pool["price"] == 3.0 && pool["max_nodes"] == 7 && pool["system"] == "local", "{pool}");
    cluster
        .run(&["pool", "add", "small", "other", "--pools", "own.toml"])
        .exits(0)
        .says(&["pool other"]);
    cluster.run(&["pool", "add", "slurm"]).exits(1).says(&["no pools file describes `slurm`"]);
    cluster.write("bad.toml", format!("[small]\n{options}max-node = 3\n"));
    let refused = cluster.run(&["pool", "list", "--available", "--pools", "bad.toml"]).exits(1);
    assert!(
        refused.stderr.contains("bad.toml, line 6: key `max-node` of pool `small`"),
        "{}",
        refused.stderr
    );
    cluster
        .run(&["pool", "list", "--available", "--pools", "none.toml"])
        .exits(1)
        .says(&["none.toml"]);
}

#[test]
fn nodes_that_come_stay_and_leave_are_explained_and_counted() {
    let cluster = without_nodes();
    cluster.add_pool(&["--max-nodes", "1", "--idle-timeout", "300ms", "--price", "2"]);
    cluster.write("job.jsonl", UNTIL_GO);
    cluster.submit("job.jsonl");
    wait_until("the node is busy", || cluster.pool("mine")["node_list"][0]["state"] == "busy");
    let node = cluster.pool("mine")["node_list"][0]["node"].as_str().unwrap().to_owned();
    let explained = cluster.run(&["explain", &node]).exits(0).stdout;
    assert!(explained.contains("is busy: it has 1 task"), "{explained}");
    assert!(
        cluster
            .run(&["explain", "mine"])
            .exits(0)
            .stdout
            .contains("Pool mine requests no more nodes")
    );
    let top = cluster.run(&["top", "--once", "--interval", "100ms"]).exits(0).stdout;
    assert!(
        top.contains("pool mine   1 of 1 nodes   0 requested   1 granted   0 given back"),
        "{top}"
    );
    cluster.write("go", "");
    cluster.run(&["job", "wait", "1"]).exits(0);
    wait_until("the node has left", || is_empty(&cluster.pool("mine")));
    let explained = cluster.run(&["explain", &node]).exits(0).stdout;
    assert!(explained.contains("has left pool mine: it had no task for"), "{explained}");
    let report = cluster.run(&["report", "1"]).exits(0).stdout;
    assert!(
        report.contains("pool mine") && report.contains("1 granted, 1 given back, cost"),
        "{report}"
    );
    assert_eq!(cluster.ask(&["report", "1"], "report")["pools"][0]["nodes_granted"], 1);
    cluster
        .run(&["explain", "nothing"])
        .exits(1)
        .says(&["`nothing` is no task, job, pool, or node of a pool"]);
}

#[test]
fn the_only_replica_on_a_leaving_node_is_moved_first() {
    let cluster = without_nodes();
    cluster.add_pool(&["--min-nodes", "1", "--max-nodes", "1", "--label", "side=left"]);
    let other =
        ["pool", "add", "local", "other", "--cpus", "1", "--executor-option=--keep-free=10MB"];
    let options = ["--max-nodes", "1", "--idle-timeout", "300ms", "--label", "side=right"];
    cluster.run(&[&other[..], &options].concat()).exits(0);
    // Each node keeps an output.
    let task = |side: &str| {
        let outputs = r#"[{"file": "text", "keep": true}]"#;
        let requirements = format!("node.labels.side == '{side}'");
        let command = format!(r#"["sh", "-c", "echo {side} > text"]"#);
        format!(
            r#"{{"command": {command}, "requirements": "{requirements}", "outputs": {outputs}}}"#
        )
    };
    cluster.write("job.jsonl", format!("{}\n{}\n", task("left"), task("right")));
    let job = cluster.submit("job.jsonl");
    cluster.run(&["job", "wait", &job]).exits(0);
    wait_until("one node has left", || cluster.pool("other")["nodes_given_back"] == 1);
    let read = [
        "run",
        "--array",
        "1-1",
        "--no-append",
        "--input",
        "eyas://1/0/text",
        "--input",
        "eyas://1/1/text",
    ];
    let printed = cluster
        .run(&[&read[..], &["--", "cat", "{input:1}", "{input:2}"]].concat())
        .exits(0)
        .stdout;
    assert_eq!((printed.as_str(), &cluster.job(&job)["recomputed"]), ("left\nright\n", &0.into()));
}

/// The pool's first failure, in words.
fn first_failure(cluster: &Cluster) -> String {
    wait_until("a request has failed", || cluster.pool("mine")["failures"].as_u64() >= Some(1));
    let why = cluster.pool("mine")["why"].as_str().unwrap().to_owned();
    cluster.run(&["pool", "remove", "mine", "--force"]).exits(0);
    wait_until("the pool is gone", || cluster.run(&["pool", "show", "mine"]).code == 1);
    why
}

#[test]
fn nodes_that_cannot_join_are_given_up_with_the_words_of_their_log() {
    let cluster = without_nodes();
    let start = |command: &str| {
        cluster.add_pool(&[
            "--min-nodes",
            "1",
            "--max-nodes",
            "1",
            "--join-timeout",
            "2s",
            "--start-command",
            command,
        ]);
        first_failure(&cluster)
    };
    // The access file is wrong.
    let why = start(r#"echo nonsense >"$(dirname "$0")/access.toml""#);
    assert!(why.contains("the node said:") && why.contains("access.toml"), "{why}");
    // No process listens on the port: the executor tries again until it is given up.
    let why = start(r#"sed -i 's/127.0.0.1:[0-9]*/127.0.0.1:1/' "$(dirname "$0")/access.toml""#);
    assert!(why.contains("no node joined within 2") && why.contains("refused"), "{why}");
    // The disk is too full for a store.
    cluster.add_pool(&["--min-nodes", "1", "--executor-option=--folder=/dev/full/store"]);
    let why = first_failure(&cluster);
    assert!(why.contains("/dev/full"), "{why}");
}

#[test]
fn only_one_pool_of_a_name_is_added() {
    let cluster = without_nodes();
    let add = ["pool", "add", "local", "mine", "--cpus", "1"];
    let clients: Vec<_> = (0..10).map(|_| cluster.spawn_on(&add)).collect();
    let added = clients
        .into_iter()
        .map(|mut client| client.wait().unwrap().success())
        .filter(|added| *added)
        .count();
    assert_eq!(added, 1);
    assert_eq!(cluster.ask(&["pool", "list"], "pools").as_array().unwrap().len(), 1);
}

#[test]
fn bursts_of_tasks_and_silence_scale_out_and_back() {
    let cluster = without_nodes();
    cluster.add_pool(&["--max-nodes", "2", "--idle-timeout", "200ms", "--backlog", "1"]);
    for _ in 0..2 {
        cluster
            .run(&["run", "--array", "1-10000", "--noop"])
            .exits(0)
            .says(&["10000 of 10000 tasks succeeded"]);
        wait_until("the nodes have left", || is_empty(&cluster.pool("mine")));
    }
    let pool = cluster.pool("mine");
    assert!(pool["failures"] == 0 && pool["nodes_granted"] == pool["nodes_given_back"], "{pool}");
    assert!(pool["nodes_requested"].as_u64() <= Some(4), "{pool}");
}
