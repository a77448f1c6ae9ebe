//! Files of the cluster while links are cut, processes die and a disk is full: acknowledged content
//! survives, and a node that does not reach more than half of the nodes neither shows nor changes
//! anything.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use crate::dfs::{has_replicas, joined, lines};
use crate::support::{Cluster, Home, Network, SmallDisk, address, finish, wait_until};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];
const NODES: usize = 8;

/// A cluster, and the acknowledged content of its files `/f1`, `/f2` …
struct Files {
    cluster: Cluster,
    contents: BTreeMap<String, String>,
    gets: usize,
}

impl Files {
    #[track_caller]
    fn put(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.contents.len() + 1;
            let content = lines(1000 + number);
            self.cluster.write("content", &content);
            let name = format!("/f{number}");
            self.cluster.run(&["dfs", "put", "content", &name, "--chunk-size", "16KiB"]).exits(0);
            self.contents.insert(name, content);
        }
    }

    /// Checks that all files have their acknowledged content.
    #[track_caller]
    fn are_there(&mut self) {
        self.gets += 1;
        let folder = format!("got-{}", self.gets);
        self.cluster.run(&["dfs", "get", "-r", "/", &folder]).exits(0);
        let got: Vec<_> =
            self.cluster.names(&folder).into_iter().map(|name| format!("/{name}")).collect();
        assert_eq!(got, self.contents.keys().cloned().collect::<Vec<_>>());
        for (name, content) in &self.contents {
            assert!(
                self.cluster.read(&format!("{folder}{name}")) == *content,
                "{name} is not as it was"
            );
        }
    }

    /// Checks that this number of nodes have all files, in three replicas.
    #[track_caller]
    fn are_whole_on(&self, nodes: usize) {
        joined(&self.cluster, nodes);
        let names: Vec<_> = self.contents.keys().cloned().collect();
        wait_until("all replicas are there", || {
            self.cluster.run(&["dfs", "verify"]).code == 0 && has_replicas(&self.cluster, &names, 3)
        });
    }
}

/// Fills the disk of a folder with one file, and returns the file.
fn fill(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("filler");
    let mut filler = fs::File::create(&path).expect("there is room for a name");
    while filler.write_all(&[7; 4096]).is_ok() {}
    path
}

#[test]
fn whatever_is_cut_off_or_dies_nothing_acknowledged_is_lost() {
    let Some(network) = Network::new(1 + NODES) else { return };
    let Some(disk) = SmallDisk::mount("size=48m") else { return };
    let mut cluster =
        Cluster::start_in(Home::on(network), &["--listen", &format!("{}:0", address(0))]);
    let small = disk.path().join("n8");
    for host in 1..NODES {
        cluster.add_executor_on(host, NODE);
    }
    let on_small_disk = [NODE, &["--folder", small.to_str().unwrap()]].concat();
    cluster.add_executor_on(NODES, &on_small_disk);
    joined(&cluster, NODES);
    let mut files = Files { cluster, contents: BTreeMap::new(), gets: 0 };
    files.put(6);

    // Another program fills the disk of one node.
    let filler = fill(disk.path());
    files.put(3);
    files.are_there();
    files.cluster.executor(NODES).kill();
    fs::remove_file(filler).unwrap();
    files.cluster.add_executor_on(NODES, &on_small_disk);
    files.are_whole_on(NODES);

    // One node dies and the link of another is cut at the same moment: two nodes may be lost at
    // once.
    let apart = [6, 7, 8];
    files.cluster.executor(1).kill();
    files.cluster.network().cut(apart[0]);
    files.are_there();
    files.put(2);
    files.are_whole_on(NODES - 2);
    let folder = files.cluster.executor(1).folder().to_str().unwrap().to_owned();
    files.cluster.add_executor_on(1, &[NODE, &["--folder", &folder]].concat());
    files.are_whole_on(NODES - 1);

    // Two more nodes are cut off. With the first they are three nodes that reach each other, and
    // have clients.
    files.cluster.network().split(&apart);
    files.cluster.network().mend(apart[0]);
    joined(&files.cluster, NODES - apart.len());
    files.cluster.write("late", "nobody knows of it\n");
    let reading = files.cluster.spawn_from(apart[0], &["dfs", "cat", "/f1"]);
    let writing = files.cluster.spawn_from(apart[1], &["dfs", "put", "late", "/late"]);
    files.cluster.run(&["dfs", "rename", "/f1", "/f0"]).exits(0);
    let moved = files.contents.remove("/f1").unwrap();
    files.contents.insert("/f0".to_owned(), moved);
    files.are_there();
    for mut child in [reading, writing] {
        // The command may have given up.
        assert!(child.try_wait().unwrap().is_none_or(|status| !status.success()), "it was served");
        child.kill().unwrap();
        assert_eq!(finish(child).stdout, "", "it was shown something");
    }
    files.cluster.network().heal(&apart);
    joined(&files.cluster, NODES);
    for host in [0, apart[0]] {
        finish(files.cluster.spawn_from(host, &["dfs", "cat", "/f1"]))
            .exits(1)
            .says(&["no file /f1"]);
    }
    // The write was begun and not acknowledged: the file is complete, or missing.
    let late = files.cluster.run(&["dfs", "cat", "/late"]);
    if late.code == 0 {
        assert_eq!(late.stdout, "nobody knows of it\n");
        files.cluster.run(&["dfs", "rm", "/late"]).exits(0);
    }
    files.are_there();
    files.are_whole_on(NODES);
}
