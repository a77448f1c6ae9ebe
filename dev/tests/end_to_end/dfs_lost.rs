//! Chunks of which every replica is damaged: the loss is reported, damaged copies are kept, and a
//! good copy is taken from a node or a file that has one.

use std::path::PathBuf;

use serde_json::Value;

use crate::dfs::{has_replicas, joined, lines};
use crate::support::{Cluster, wait_until};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

fn put(cluster: &Cluster, replicas: &str) -> String {
    let content = lines(5000);
    cluster.write("a", &content);
    cluster
        .run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB", "--replicas", replicas])
        .exits(0);
    content
}

fn chunk(cluster: &Cluster, place: usize) -> Value {
    cluster.ask(&["dfs", "show", "/a"], "file")["shape"]["chunks"][place].take()
}

/// Files of an object below a folder of the first executors' stores.
fn files_of(cluster: &mut Cluster, executors: usize, below: &str, object: &str) -> Vec<PathBuf> {
    let stores =
        (1..=executors).map(|number| cluster.executor(number).folder().join("store").join(below));
    let mut found = Vec::new();
    let mut folders: Vec<_> = stores.collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false if entry.file_name().to_str().unwrap().starts_with(object) => {
                    found.push(entry.path())
                }
                false => {}
            }
        }
    }
    found
}

fn damage(path: &PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let mut content = std::fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(path, content).unwrap();
}

#[test]
fn a_chunk_that_is_damaged_everywhere_is_lost_until_a_node_comes_back_with_it() {
    let mut cluster = Cluster::start(&[NODE; 4]);
    joined(&cluster, 4);
    let content = put(&cluster, "3");
    let lost = chunk(&cluster, 2);
    let object = lost["object"].as_str().unwrap().to_owned();
    // One of the holders leaves, and the fourth node gets a replica.
    let has_it =
        (1..=4).find(|number| !files_of_one(&mut cluster, *number, &object).is_empty()).unwrap();
    let folder = cluster.executor(has_it).folder().to_str().unwrap().to_owned();
    cluster.executor(has_it).kill();
    joined(&cluster, 3);
    wait_until("others have what it had", || has_replicas(&cluster, &["/a".into()], 3));
    let others: Vec<_> = files_of(&mut cluster, 4, "objects", &object);
    let others: Vec<_> = others.into_iter().filter(|path| !path.starts_with(&folder)).collect();
    assert_eq!(others.len(), 3);
    others.iter().for_each(damage);

    let first = lost["offset"].as_u64().unwrap();
    let last = first + lost["size_bytes"].as_u64().unwrap() - 1;
    let sentence = format!("/a: chunk 2 (bytes {first} to {last}) is lost");
    // Repeated reports name the same number of chunks.
    for _ in 0..3 {
        let done = cluster.run(&["dfs", "verify"]).exits(1);
        assert!(
            done.stdout.contains(&sentence) && !done.stdout.contains("replaced"),
            "{}",
            done.stdout
        );
        done.says(&["1 chunk lost", "eyas dfs restore COPY /a"]);
    }
    wait_until("all damaged copies are kept aside", || {
        files_of(&mut cluster, 4, "damaged", &object).len() == 3
    });
    let verified = cluster.run(&["--json", "dfs", "verify"]).exits(1).json("verified");
    assert_eq!(verified["lost"][0]["damaged_on"].as_array().unwrap().len(), 3, "{verified}");
    let usage = cluster.ask(&["dfs", "du"], "usage");
    let damaged: u64 = usage["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["damaged"].as_u64().unwrap())
        .sum();
    assert_eq!(damaged, 3, "{usage}");
    let read = cluster.run(&["dfs", "cat", "/a"]).exits(1);
    read.says(&["chunk 2", &format!("bytes {first} to {last}"), "/a"]);
    assert_eq!(
        cluster.run(&["dfs", "cat", "/a", "--length", "100"]).exits(0).stdout,
        content[..100]
    );

    cluster.add_executor(&[NODE, &["--folder", &folder]].concat());
    joined(&cluster, 4);
    wait_until("the chunk is found", || cluster.run(&["dfs", "verify"]).code == 0);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
    wait_until("it has its replicas", || has_replicas(&cluster, &["/a".into()], 3));
}

fn files_of_one(cluster: &mut Cluster, number: usize, object: &str) -> Vec<PathBuf> {
    let folder = cluster.executor(number).folder().to_owned();
    let all = files_of(cluster, number, "objects", object);
    all.into_iter().filter(|path| path.starts_with(&folder)).collect()
}

#[test]
fn lost_chunks_are_restored_from_a_copy() {
    let mut cluster = Cluster::start(&[NODE; 2]);
    joined(&cluster, 2);
    let content = put(&cluster, "2");
    for place in [1, 3] {
        let object = chunk(&cluster, place)["object"].as_str().unwrap().to_owned();
        files_of(&mut cluster, 2, "objects", &object).iter().for_each(damage);
    }
    let done = cluster.run(&["dfs", "verify"]).exits(1);
    done.says(&["2 chunks lost"]);
    cluster.write("other", content.to_uppercase());
    cluster.write("short", &content[..40_000]);
    for wrong in ["other", "short"] {
        cluster
            .run(&["dfs", "restore", wrong, "/a"])
            .exits(1)
            .says(&[wrong, "of the copy differ from /a"]);
    }
    cluster.run(&["dfs", "restore", "a", "/a"]).exits(0).says(&["2 chunks restored"]);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
    cluster.run(&["dfs", "verify"]).exits(0);
    let usage = cluster.ask(&["dfs", "du"], "usage");
    assert!(usage["nodes"].as_array().unwrap().iter().all(|node| node["damaged"] == 0), "{usage}");
}
