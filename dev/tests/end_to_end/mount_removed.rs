//! Large files that are removed or replaced while programs of a mount have them open.

use std::fs::{self, File};
use std::io::Read as _;

use crate::dfs::{cluster, lines};
use crate::support::{Cluster, MountedFiles, SmallDisk, can_mount, wait_until};

/// Number of chunks on all nodes.
fn chunks(cluster: &Cluster) -> u64 {
    let usage = cluster.ask(&["dfs", "du"], "usage");
    usage["nodes"].as_array().unwrap().iter().map(|node| node["chunks"].as_u64().unwrap()).sum()
}

#[test]
fn a_large_file_that_is_open_is_removed_without_a_copy() {
    // The content does not fit in the scratch folder.
    let Some(disk) = SmallDisk::mount("size=1m").filter(|_| can_mount()) else { return };
    let cluster = cluster(2);
    let content = lines(100_000);
    cluster.write("content", &content);
    for name in ["/removed", "/replaced"] {
        cluster.run(&["dfs", "put", "content", name, "--chunk-size", "512KiB"]).exits(0);
    }
    let all = chunks(&cluster);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--scratch", disk.path().to_str().unwrap()]);
    let mut files = ["removed", "replaced"].map(|name| File::open(mount.path(name)).unwrap());
    fs::remove_file(mount.path("removed")).unwrap();
    fs::write(mount.path("new"), "").unwrap();
    fs::rename(mount.path("new"), mount.path("replaced")).unwrap();
    cluster.run(&["dfs", "cat", "/removed"]).exits(1);
    wait_until("the nodes have copies only", || chunks(&cluster) == all);
    for file in &mut files {
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert!(read == content);
    }
    drop(files);
    wait_until("the copies are deleted", || chunks(&cluster) == 0);
    let listed = cluster.ask(&["dfs", "ls", "/"], "files");
    assert!(listed.as_array().unwrap().len() == 1 && listed[0]["name"] == "/replaced", "{listed}");
    mount.end();
}

#[test]
fn leftovers_of_a_killed_mount_are_removed() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    cluster.write("content", "content\n");
    let left = format!(".eyas-removed-{:032x}", 7);
    for name in [left.as_str(), ".eyas-removed-1", "file"] {
        cluster.run(&["dfs", "put", "content", &format!("/{name}")]).exits(0);
    }
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    wait_until("it is removed", || !mount.path(&left).exists());
    assert_eq!(fs::read_to_string(mount.path(".eyas-removed-1")).unwrap(), "content\n");
    // The end of a mount deletes the copies of files that are still open.
    let large = "x".repeat(2 << 20);
    let before = chunks(&cluster);
    fs::write(mount.path("large"), &large).unwrap();
    let file = File::open(mount.path("large")).unwrap();
    fs::remove_file(mount.path("large")).unwrap();
    mount.end();
    wait_until("the copies are deleted", || chunks(&cluster) == before);
    drop(file);
}
