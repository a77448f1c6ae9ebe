//! Many small files at the same time: they go in and come out, and a failure or an interrupt in the
//! middle leaves whole files only, and says which.

use std::collections::BTreeMap;

use rustix::process::Signal;

use crate::dfs::{cluster, joined};
use crate::support::{Cluster, finish, signal, wait_until};

fn content(number: usize) -> String {
    format!("file {number}\n").repeat(number % 40)
}

/// Makes files in folders of a hundred.
fn make(cluster: &Cluster, count: usize) {
    for number in 0..count {
        cluster.write(&format!("many/{:02}/f{number:04}", number / 100), content(number));
    }
}

/// The names of the files in the file system, with their sizes.
fn listed(cluster: &Cluster) -> BTreeMap<String, u64> {
    let files = cluster.ask(&["dfs", "ls", "-r"], "files");
    let file = |file: &serde_json::Value| {
        (file["name"].as_str().unwrap().to_owned(), file["size_bytes"].as_u64().unwrap())
    };
    files.as_array().unwrap().iter().filter(|file| file["kind"] == "file").map(file).collect()
}

fn number_of(name: &str) -> usize {
    name.rsplit('f').next().unwrap().parse().unwrap()
}

/// Each file that is listed has all its bytes.
fn all_are_whole(cluster: &Cluster, names: &BTreeMap<String, u64>) {
    for (name, bytes) in names {
        assert_eq!(*bytes, content(number_of(name)).len() as u64, "{name}");
    }
    cluster.run(&["dfs", "get", "-r", "/many", "whole"]).exits(0);
    for name in names.keys() {
        assert_eq!(
            cluster.read(&name.replace("/many", "whole")),
            content(number_of(name)),
            "{name}"
        );
    }
}

#[test]
fn two_thousand_files_go_in_and_come_out_again() {
    let cluster = cluster(3);
    make(&cluster, 2000);
    cluster
        .run(&["dfs", "put", "-r", "many", "/many"])
        .exits(0)
        .says(&["/many/07/f0719: 351 B in 1 chunk"]);
    let names = listed(&cluster);
    assert_eq!(names.len(), 2000);
    all_are_whole(&cluster, &names);
    cluster.run(&["dfs", "verify"]).exits(0);
    let nodes = cluster.ask(&["dfs", "du"], "usage")["nodes"].as_array().unwrap().clone();
    // A file of 40 is empty, and has no chunk.
    assert!(
        nodes.iter().all(|node| node["chunks"] == 1950),
        "each of the three has all: {nodes:?}"
    );
    cluster
        .run(&["dfs", "put", "-r", "many", "/many"])
        .exits(1)
        .says(&["0 of 2000 files were stored", "already"]);
    cluster.run(&["dfs", "rm", "-r", "/many"]).exits(0);
    assert!(listed(&cluster).is_empty());
    wait_until("the chunks are deleted", || {
        let nodes = cluster.ask(&["dfs", "du"], "usage")["nodes"].as_array().unwrap().clone();
        nodes.iter().all(|node| node["chunks"] == 0)
    });
}

#[test]
fn a_failure_in_the_middle_says_what_was_stored() {
    let cluster = cluster(2);
    make(&cluster, 4000);
    cluster.run(&["dfs", "put", "many/03/f0300", "/many/03/f0300"]).exits(0);
    let put = cluster.run(&["--json", "dfs", "put", "-r", "many", "/many"]).exits(1);
    let put = put.says(&[
        "of 4000 files were stored",
        "many/03/f0300: there is a file /many/03/f0300 already",
        "after it were not begun",
    ]);
    let stored = put.json("files").as_array().unwrap().len();
    assert!((1..4000).contains(&stored));
    let names = listed(&cluster);
    assert_eq!(names.len(), stored + 1, "what it says is what there is");
    all_are_whole(&cluster, &names);
}

#[test]
fn an_interrupt_leaves_whole_files_only() {
    let cluster = cluster(2);
    make(&cluster, 2000);
    let put = cluster.spawn_on(&["dfs", "put", "-r", "many", "/many"]);
    wait_until("some files are there", || !listed(&cluster).is_empty());
    signal(put.id(), Signal::INT);
    // It may have ended before.
    let code = finish(put).code;
    assert!([0, 130].contains(&code), "{code}");
    all_are_whole(&cluster, &listed(&cluster));
}

#[test]
fn a_full_cluster_is_named_and_leaves_whole_files_only() {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "200KB"]]);
    joined(&cluster, 1);
    make(&cluster, 2000);
    let put = cluster.run(&["dfs", "put", "-r", "many", "/many"]).exits(1);
    put.says(&["of 2000 files were stored", "its store has no room for"]);
    let names = listed(&cluster);
    assert!((1..2000).contains(&names.len()));
    all_are_whole(&cluster, &names);
}
