//! `eyas dfs cp`: files of the cluster from kept outputs and from other files, without moving
//! bytes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::dfs::{joined, lines};
use crate::support::Cluster;

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

/// The inodes of the objects of this size in an executor's store, and the number of these objects.
fn stored(cluster: &mut Cluster, executor: usize, size_bytes: usize) -> (BTreeSet<u64>, usize) {
    let folders = fs::read_dir(cluster.executor(executor).folder().join("store/objects")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let found = files
        .map(|file| file.unwrap().metadata().unwrap())
        .filter(|found| found.len() == size_bytes as u64);
    let inodes: Vec<_> = found.map(|found| found.ino()).collect();
    (inodes.iter().copied().collect(), inodes.len())
}

/// The size of each chunk of a file, and the nodes that have it.
fn chunks(cluster: &Cluster, name: &str) -> Vec<(u64, BTreeSet<String>)> {
    let file = cluster.ask(&["dfs", "show", name], "file");
    let node = |replica: &serde_json::Value| replica["node"].as_str().unwrap().to_owned();
    let chunks = file["shape"]["chunks"].as_array().unwrap().iter().map(|chunk| {
        let replicas = chunk["replicas"].as_array().unwrap().iter().map(node);
        (chunk["size_bytes"].as_u64().unwrap(), replicas.collect())
    });
    chunks.collect()
}

/// A job whose task keeps these lines on the only executor that has a label.
fn keep(cluster: &Cluster, content: &str) {
    cluster.write("content", content);
    cluster.write(
        "keep.toml",
        "[[task]]\ncommand = ['cp', 'content', 'kept.txt']\ninputs = ['content']\n\
         outputs = [{ file = 'kept.txt', keep = true }]\nrequirements = 'has(node.labels.keeps)'\n",
    );
    cluster.run(&["submit", "--wait", "keep.toml"]).exits(0);
}

#[test]
fn a_kept_output_becomes_a_file_on_its_node() {
    let mut cluster =
        Cluster::start(&[&["--dfs", "--cache", "1GB", "--label", "keeps=1"], NODE, NODE]);
    joined(&cluster, 3);
    let content = lines(3000);
    keep(&cluster, &content);
    let copied =
        cluster.run(&["dfs", "cp", "eyas://1/0/kept.txt", "/results/", "--replicas", "1"]).exits(0);
    copied.says(&["/results/kept.txt", "1 chunk"]);
    assert_eq!(cluster.run(&["dfs", "cat", "/results/kept.txt"]).exits(0).stdout, content);
    // The input, the kept output and the chunk; the last two are one inode.
    let (inodes, count) = stored(&mut cluster, 1, content.len());
    assert_eq!((inodes.len(), count), (2, 3));
    for other in [2, 3] {
        assert_eq!(stored(&mut cluster, other, content.len()).1, 0, "no byte has moved");
    }
    // A larger one is cut where it is; other nodes get replicas from there.
    let shape = ["--chunk-size", "16KiB", "--replicas", "2"];
    cluster
        .run(&[&["dfs", "cp", "eyas://1/0/kept.txt", "eyas:///b"], &shape[..]].concat())
        .exits(0);
    let chunks = chunks(&cluster, "/b");
    assert!(
        chunks.len() > 1 && chunks.iter().all(|(_, replicas)| replicas.len() == 2),
        "{chunks:?}"
    );
    // Each of the three is removed for itself.
    cluster.run(&["job", "forget", "1"]).exits(0);
    assert_eq!(
        cluster.run(&["dfs", "cat", "/results/kept.txt", "/b"]).exits(0).stdout,
        content.repeat(2)
    );
    cluster.run(&["dfs", "rm", "/results/kept.txt"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/b"]).exits(0).stdout, content);
    cluster.run(&["dfs", "verify"]).exits(0);
}

#[test]
fn a_kept_output_that_no_node_has_is_fetched_once() {
    let cluster = Cluster::start(&[&["--label", "keeps=1"], NODE, NODE]);
    joined(&cluster, 2);
    keep(&cluster, "a,b\n1,2\n");
    cluster.run(&["dfs", "cp", "eyas://1/0/kept.txt", "/a.csv"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/a.csv"]).exits(0).stdout, "a,b\n1,2\n");
    for (words, says) in [
        (["eyas://1/0/kept.txt", "/a.csv"], "there is a file /a.csv already"),
        (["eyas://1/0/none", "/b"], "no kept output is named"),
        (["/none", "/b"], "there is no file /none"),
        (["/a.csv", "eyas://1/0/b"], "`-o FILE`"),
        (["s3://bucket/a", "/b"], "eyas dfs put"),
    ] {
        cluster.run(&[&["dfs", "cp"], &words[..]].concat()).exits(1).says(&[says]);
    }
    // An output that does not have the format of its name is stored as it is.
    cluster.write(
        "odd.toml",
        "[[task]]\ncommand = ['sh', '-c', 'printf \"a,\\\"b\" > odd.csv']\n\
         outputs = [{ file = 'odd.csv', keep = true }]\n",
    );
    let job = cluster.submit("odd.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    let odd = format!("eyas://{job}/0/odd.csv");
    cluster
        .run(&["dfs", "cp", &odd, "/odd.csv", "--format", "csv"])
        .exits(1)
        .says(&["a quote is never closed"]);
    cluster.run(&["dfs", "cp", &odd, "/odd.csv"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/odd.csv"]).exits(0).stdout, "a,\"b");
}

#[test]
fn a_copy_of_a_file_outlives_it() {
    let mut cluster = Cluster::start(&[NODE, NODE, NODE]);
    joined(&cluster, 3);
    let content = lines(20_000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB", "--replicas", "2"]).exits(0);
    cluster.run(&["dfs", "cp", "/a", "/folder/b"]).exits(0);
    assert_eq!(
        chunks(&cluster, "/a"),
        chunks(&cluster, "/folder/b"),
        "each chunk is where the first one is"
    );
    cluster.run(&["dfs", "rm", "/a"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/folder/b"]).exits(0).stdout, content);
    cluster.run(&["dfs", "verify"]).exits(0);
    // With a node down, the replicas that are missing come from others.
    cluster.executor(3).kill();
    cluster.wait_for_executors(2);
    cluster.run(&["dfs", "cp", "/folder/b", "/c"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/c"]).exits(0).stdout, content);
    // An empty file has no chunks.
    cluster.write("empty", "");
    cluster.run(&["dfs", "put", "empty", "/empty"]).exits(0);
    cluster.run(&["dfs", "cp", "/empty", "/nothing"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/nothing"]).exits(0).stdout, "");
}

/// Bytes that the files of an executor's store take on the disk.
fn taken_bytes(cluster: &mut Cluster, executor: usize) -> u64 {
    let folders = fs::read_dir(cluster.executor(executor).folder().join("store/objects")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn holes_of_a_kept_output_take_no_space_anywhere() {
    let mut cluster = Cluster::start(&[
        &["--dfs", "--cache", "2GB", "--label", "keeps=1"],
        &["--dfs", "--cache", "2GB"],
    ]);
    joined(&cluster, 2);
    cluster.write(
        "keep.toml",
        "[[task]]\ncommand = ['sh', '-c', \
         'truncate -s 256M kept; printf x | dd of=kept bs=1 seek=130M conv=notrunc']\n\
         outputs = [{ file = 'kept', keep = true }]\nrequirements = 'has(node.labels.keeps)'\n",
    );
    cluster.run(&["submit", "--wait", "keep.toml"]).exits(0);
    cluster.run(&["dfs", "cp", "eyas://1/0/kept", "/sparse", "--replicas", "2"]).exits(0);
    let stored: Vec<_> =
        chunks(&cluster, "/sparse").into_iter().filter(|(_, nodes)| !nodes.is_empty()).collect();
    assert!(stored.len() == 1 && stored[0].1.len() == 2, "{stored:?}");
    // A task that reads the file has the holes, too.
    let read = "stat -Lc %b $1; head -c 136314881 $1 | tail -c 1; wc -c <$1";
    let words = [
        "run",
        "--array",
        "1-1",
        "-i",
        "eyas:///sparse",
        "--",
        "sh",
        "-c",
        read,
        "sh",
        "{input:1}",
    ];
    let done = cluster.run(&words).exits(0).stdout;
    let (blocks, rest) = done.split_once('\n').unwrap();
    assert!(blocks.parse::<u64>().unwrap() * 512 < 16 << 20 && rest == "x268435456\n", "{done}");
    for executor in [1, 2] {
        let taken = taken_bytes(&mut cluster, executor);
        assert!(taken < 32 << 20, "{taken}");
    }
}
