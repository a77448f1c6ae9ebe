//! Objects that reach executors before tasks ask for them: `eyas push`, and inputs that jobs
//! broadcast.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::chains::receivers;
use crate::support::{Cluster, finish, wait_until};
use crate::web_server::{Page, Web};

const MB: usize = 1_000_000;

/// Names of the executors with a replica, in order.
fn holders(cluster: &Cluster, source: &str) -> Vec<String> {
    let shown = cluster.run(&["--json", "catalog", "show", source]);
    if shown.code != 0 {
        return Vec::new();
    }
    let objects = shown.json("objects");
    let mut names: Vec<_> = objects[0]["holders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// State of each executor of a push, by name.
fn states(push: &Value) -> Vec<(&str, &str)> {
    let executors = push["executors"].as_array().unwrap().iter();
    let mut states: Vec<_> = executors
        .map(|e| (e["executor"].as_str().unwrap(), e["state"].as_str().unwrap()))
        .collect();
    states.sort_unstable();
    states
}

#[test]
fn pushed_objects_are_local_to_their_readers() {
    let slow = ["--emulate", "storage=16MB/s"];
    let cluster = Cluster::start(&[&slow[..]; 4]);
    cluster.write("big", vec![b'x'; 4 * MB]);
    cluster.write("small", "small");
    let pushed = cluster.run(&["--json", "push", "big", "small"]).exits(0).json("push");
    assert_eq!(
        (pushed["objects"].as_u64(), pushed["bytes"].as_u64()),
        (Some(2), Some(4 * MB as u64 + 5))
    );
    assert_eq!(states(&pushed), ["n1", "n2", "n3", "n4"].map(|name| (name, "complete")));
    assert_eq!(holders(&cluster, "big"), ["n1", "n2", "n3", "n4"]);
    cluster
        .run(&["run", "--array", "1-8", "-i", "big", "-i", "small", "--", "true"])
        .exits(0)
        .says(&["100% from local"]);
    // The second push finds the object already there; the third one is not `--json`.
    cluster
        .run(&["push", "small", "--to", "n2", "--to", "n1"])
        .exits(0)
        .says(&["pushed 1 object (5 B) to 2 of 2 executors"]);
}

#[test]
fn persistent_storage_is_read_once() {
    let cluster = Cluster::start(&[&["--emulate", "storage=32MB/s"][..]; 5]);
    let web = Web::start();
    for distribution in ["chain", "spanning-tree"] {
        let files = ["a", "b", "c"].map(|file| format!("/{distribution}/{file}"));
        for file in &files {
            let (content, etag) = (vec![b'x'; MB], Some("\"v1\"".to_owned()));
            web.put(file, Page { content, etag, ..Page::default() });
        }
        let urls: Vec<_> = files.iter().map(|file| web.url(file)).collect();
        let urls: Vec<_> = urls.iter().map(String::as_str).collect();
        cluster
            .run(&[&["push", "--distribution", distribution], &urls[..]].concat())
            .exits(0)
            .says(&["to 5 of 5"]);
        files.iter().for_each(|file| assert_eq!(web.count(&format!("GET {file}")), 1, "{file}"));
    }
}

#[test]
fn executors_are_named_as_elsewhere_and_mistakes_are_told() {
    let cluster =
        Cluster::start(&[&["--label", "site=a"], &["--label", "site=b"], &["--label", "site=b"]]);
    let executors = cluster.ask(&["executor", "list"], "executors");
    let n1 =
        executors.as_array().unwrap().iter().find(|executor| executor["name"] == "n1").unwrap();
    let id_of_n1 = n1["executor"].as_str().unwrap();
    for (file, to, who) in
        [("x", "site=b", &["n2", "n3"][..]), ("y", "n3", &["n3"]), ("z", id_of_n1, &["n1"])]
    {
        cluster.write(file, file);
        cluster.run(&["push", file, "--to", to]).exits(0);
        assert_eq!(holders(&cluster, file), who);
    }
    for (words, says) in [
        (&["x", "--to", "n9"][..], "there is no executor `n9`"),
        (&["x", "--to", "site=c"], "no executor has the label `site=c`"),
        (&["missing"], "missing"),
        (&["x", "missing"], "missing"),
        (&["eyas://1/0/x"], "no executor keeps an object `eyas://1/0/x`"),
    ] {
        cluster.run(&[&["push"], words].concat()).exits(1).says(&[says]);
    }
    let cluster = Cluster::start(&[]);
    cluster.write("x", "x");
    cluster.run(&["push", "x"]).exits(1).says(&["no executor has joined"]);
    let cluster = Cluster::start_with(&["--policy", "fa"], &[&[]]);
    cluster.write("x", "x");
    cluster.run(&["push", "x"]).exits(1).says(&["policy fa", "store no objects"]);
    cluster.run(&["run", "--broadcast", "x", "--noop"]).exits(1).says(&["policy fa"]);
}

#[test]
fn a_killed_executor_fails_alone() {
    let slow = ["--emulate", "storage=4MB/s"];
    let mut cluster = Cluster::start(&[&slow[..]; 4]);
    let content: Vec<u8> = (0..12 * MB).map(|at| (at / 1_000) as u8).collect();
    cluster.write("big", &content);
    let push = cluster.spawn_on(&["--json", "push", "big"]);
    let chain = receivers(&cluster, "big", 4);
    let killed = &chain[1];
    cluster.executor(killed.trim_start_matches('n').parse().unwrap()).kill();
    let pushed = finish(push).exits(1).json("push");
    let (incomplete, complete): (Vec<_>, Vec<_>) =
        states(&pushed).into_iter().partition(|(_, state)| *state == "incomplete");
    assert_eq!(incomplete, [(killed.as_str(), "incomplete")]);
    assert_eq!(complete.len(), 3, "{complete:?}");
    let failures = pushed["failures"].as_array().unwrap();
    assert_eq!((failures.len(), failures[0]["executor"].as_str()), (1, Some(killed.as_str())));
    let done = cluster
        .run(&["run", "--array", "1-6", "-i", "big", "--", "sh", "-c", "cksum < big"])
        .exits(0);
    let done = done.says(&["100% from local"]);
    assert_eq!(done.stdout.lines().collect::<BTreeSet<_>>().len(), 1, "all have the same");
}

#[test]
fn an_executor_without_room_fails_alone_and_says_why() {
    let cluster = Cluster::start(&[&[], &["--cache", "1MB"], &["--cache", "3MB"]]);
    cluster.write("big", vec![b'x'; 2 * MB]);
    cluster.write("other", vec![b'y'; 2 * MB]);
    let pushed = cluster.run(&["--json", "push", "big"]).exits(1).json("push");
    assert_eq!(states(&pushed), [("n1", "complete"), ("n2", "incomplete"), ("n3", "complete")]);
    // The store has no room for both, and no object is sent in vain.
    let done = cluster.run(&["push", "big", "other"]).exits(1);
    let done = done.says(&[
        "n2 does not have the objects: its store has 1.0 MB",
        "n3 does not have",
        "--cache",
    ]);
    done.says(&["pushed 2 objects (4.0 MB) to 1 of 3 executors"]);
}

#[test]
fn an_object_that_vanishes_fails_with_the_reason() {
    let mut cluster = Cluster::start(&[&[]]);
    let path = cluster.write("gone", "gone");
    cluster.write("stays", "stays");
    cluster.executor(1).suspend();
    let push = cluster.spawn_on(&["push", "gone", "stays"]);
    receivers(&cluster, "gone", 1);
    std::fs::remove_file(path).unwrap();
    cluster.executor(1).resume();
    finish(push).exits(1).says(&["n1 does not have file://", "/gone: ", "to 0 of 1 executor"]);
    cluster.run(&["run", "-i", "stays", "--", "cat", "stays"]).exits(0).says(&["100% from local"]);
}

#[test]
fn kept_outputs_can_be_pushed() {
    let cluster = Cluster::start(&[&[], &[], &[]]);
    let text = "[[task]]\ncommand = [\"sh\", \"-c\", \"echo made > text\"]\noutputs = [{ file = \
                \"text\", keep = true }]\n";
    cluster.write("made.toml", text);
    cluster.run(&["submit", "--wait", "made.toml"]).exits(0);
    assert_eq!(holders(&cluster, "eyas://1/0/text").len(), 1);
    cluster.run(&["push", "eyas://1/0/text"]).exits(0).says(&["to 3 of 3"]);
    assert_eq!(holders(&cluster, "eyas://1/0/text"), ["n1", "n2", "n3"]);
}

#[test]
fn a_push_ends_with_its_command_unless_it_is_not_to_wait() {
    let slow = ["--emulate", "storage=100kB/s"];
    let cluster = Cluster::start(&[&slow]);
    let files: Vec<_> = (0..20).map(|number| format!("f{number:02}")).collect();
    files.iter().for_each(|file| drop(cluster.write(file, vec![b'x'; 10_000])));
    let names: Vec<_> = files.iter().map(String::as_str).collect();
    let mut push = cluster.spawn_on(&[&["push"], &names[..19]].concat());
    cluster.run(&[&["push", "--no-wait"][..], &["f19"]].concat()).exits(0).says(&["to 1 executor"]);
    wait_until("the other arrives", || holders(&cluster, "f19") == ["n1"]);
    push.kill().unwrap();
    push.wait().unwrap();
    wait_until("nothing comes any more", || {
        cluster.ask(&["executor", "list"], "executors")[0]["objects"].as_u64() < Some(19)
    });
}

const BROADCAST: &str = r#"
    [[task]]
    array = "1-2"
    inputs = [{ path = "model", broadcast = true }, "{}"]
    requirements = 'node.labels.site == "a"'
    command = ["sh", "-c", "until [ -e FOLDER/go ]; do sleep 0.02; done; cat model"]
"#;

#[test]
fn a_broadcast_input_goes_to_all_executors_that_match_and_to_later_ones() {
    let a = ["--label", "site=a"];
    let mut cluster = Cluster::start(&[&a[..], &a, &a, &["--label", "site=b"]]);
    ["model", "1", "2"].iter().for_each(|file| drop(cluster.write(file, format!("{file}\n"))));
    cluster.write("job.toml", BROADCAST.replace("FOLDER", cluster.work().to_str().unwrap()));
    let job = cluster.submit("job.toml");
    wait_until("all that may run it have it", || holders(&cluster, "model") == ["n1", "n2", "n3"]);
    cluster.add_executor(&a);
    wait_until("who joins does too", || holders(&cluster, "model") == ["n1", "n2", "n3", "n5"]);
    cluster.write("go", "");
    cluster.run(&["job", "wait", &job]).exits(0);
    // The job has ended, so no executor gets the input now: earlier reports have arrived.
    cluster.add_executor(&a);
    cluster.wait_for_executors(6);
    cluster.run(&["push", "1", "--to", "n6"]).exits(0);
    assert_eq!(holders(&cluster, "model"), ["n1", "n2", "n3", "n5"]);
}

#[test]
fn along_a_spanning_tree_all_is_everywhere_before_a_task_starts() {
    let slow = ["--emulate", "storage=4MB/s"];
    let mut cluster = Cluster::start(&[&slow[..]; 5]);
    (1..=4).for_each(|number| drop(cluster.write(&format!("in-{number}"), vec![b'x'; MB])));
    let run = cluster.spawn_on(&[
        "run",
        "--distribution",
        "spanning-tree",
        "--each",
        "in-*",
        "--",
        "wc",
        "-c",
        "{}",
    ]);
    wait_until("the job is there", || cluster.run(&["job", "show", "1"]).code == 0);
    let why = cluster.run(&["explain", "1.0"]).exits(0).stdout;
    assert!(why.contains("along a spanning tree"), "{why}");
    cluster.executor(5).kill();
    finish(run).exits(0).says(&["4 of 4 tasks succeeded", "100% from local stores"]);
    for number in 1..=4 {
        assert_eq!(holders(&cluster, &format!("in-{number}")), ["n1", "n2", "n3", "n4"]);
    }
}

#[test]
fn mistakes_in_job_files_are_named() {
    let cluster = Cluster::start(&[]);
    cluster.write("x", "x");
    for (text, says) in [
        ("distribution = \"star\"\n[[task]]\nnoop = true\n", "`star` is not a distribution"),
        ("[[task]]\nnoop = true\ninputs = [{ path = \"x\", broadcast = 1 }]\n", "line 3"),
        ("[[task]]\nnoop = true\ninputs = [{ path = \"x\", brodcast = true }]\n", "line 3"),
    ] {
        cluster.write("job.toml", text);
        cluster.run(&["submit", "job.toml"]).exits(1).says(&[says]);
    }
}
