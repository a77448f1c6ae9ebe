//! Chains: when nodes want the same input at the same time, one node reads persistent storage, and
//! the others receive the input from each other while it arrives.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Cluster, finish, wait_for};

const MB: usize = 1_000_000;

/// Bytes read from local stores, from peers and from persistent storage.
fn reads(view: &Value) -> [u64; 3] {
    ["local", "peer", "persistent"]
        .map(|place| view["reads"][place]["bytes"].as_u64().expect("a number"))
}

/// Names of the executors that are receiving the object, when their number is `count`.
pub fn receivers(cluster: &Cluster, source: &str, count: usize) -> Vec<String> {
    wait_for(format!("{count} receive {source}"), || {
        let shown = cluster.run(&["--json", "catalog", "show", source]);
        // Before the job is submitted, the dispatcher does not know the object.
        let objects = (shown.code == 0).then(|| shown.json("objects"))?;
        let receivers = objects[0]["receivers"].as_array()?;
        let names: Vec<_> =
            receivers.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        (names.len() == count).then_some(names)
    })
}

#[test]
fn an_input_that_all_nodes_want_at_once_is_read_once() {
    let slow = ["--emulate", "storage=16MB/s"];
    let cluster = Cluster::start(&[&slow[..]; 6]);
    cluster.write("big", vec![b'x'; 8 * MB]);
    let words = ["run", "--array", "1-6", "-i", "big", "--", "sh", "-c", "wc -c < big; sleep 0.1"];
    let done = cluster.run(&words).exits(0);
    assert_eq!(done.stdout.lines().collect::<Vec<_>>(), ["8000000"; 6]);
    let [local, peer, persistent] = reads(&cluster.job("1"));
    assert_eq!((persistent, local + peer), (8 * MB as u64, 5 * 8 * MB as u64));
    assert!(peer >= 3 * 8 * MB as u64, "they waited for each other: {peer}");
}

#[test]
fn a_chain_goes_on_without_a_node_that_was_killed() {
    let slow = ["--emulate", "storage=4MB/s"];
    let mut cluster = Cluster::start(&[&slow[..]; 3]);
    let content: Vec<u8> = (0..12 * MB).map(|at| (at / 1_000) as u8).collect();
    cluster.write("big", &content);
    let run =
        cluster.spawn_on(&["run", "--array", "1-3", "-i", "big", "--", "sh", "-c", "cksum < big"]);
    let chain = receivers(&cluster, "big", 3);
    let middle = chain[1].trim_start_matches('n').parse().unwrap();
    cluster.executor(middle).kill();
    let sums = finish(run).exits(0).stdout;
    let sums: BTreeSet<_> = sums.lines().collect();
    assert_eq!(sums.len(), 1, "all read the same: {sums:?}");
    // The last node continued behind the first, and no other node read persistent storage.
    assert_eq!(reads(&cluster.job("1"))[2], 12 * MB as u64);
}
