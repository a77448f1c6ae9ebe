//! Files of the cluster: stored files survive the loss of processes, and errors are reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Cluster, CommandOutput, SmallDisk, finish, wait_until};

/// The options of an executor that keeps files.
pub const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

/// A cluster whose nodes have all joined.
pub fn cluster(nodes: usize) -> Cluster {
    let cluster = Cluster::start(&vec![NODE; nodes]);
    joined(&cluster, nodes);
    cluster
}

/// Waits until the file system has exactly these many members and no longer needs earlier ones.
pub fn joined(cluster: &Cluster, nodes: usize) {
    wait_until((nodes, "nodes are members"), || {
        let done = cluster.run(&["--json", "dfs", "du"]);
        if done.code != 0 {
            return false;
        }
        let usage = done.json("usage");
        let all = usage["nodes"].as_array().unwrap();
        usage["is_settled"] == true
            && all.len() == nodes
            && all.iter().all(|node| node["is_member"] == true)
    });
}

pub fn lines(count: usize) -> String {
    (0..count).map(|number| format!("line {number} {}\n", "x".repeat(number % 70))).collect()
}

#[test]
fn a_file_goes_in_and_comes_out_again() {
    let cluster = cluster(3);
    let content = lines(20_000);
    cluster.write("a.txt", &content);
    cluster.run(&["dfs", "put", "a.txt", "/data/a.txt", "--chunk-size", "64KiB"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/data/a.txt"]).exits(0).stdout, content);
    cluster.run(&["dfs", "get", "data/a.txt", "b.txt"]).exits(0);
    assert_eq!(cluster.read("b.txt"), content);
    let part = cluster
        .run(&["dfs", "cat", "/data/a.txt", "--offset", "7", "--length", "5"])
        .exits(0)
        .stdout;
    assert_eq!(part, content[7..12]);
    assert_eq!(
        cluster.run(&["dfs", "cat", "/data/a.txt", "--offset", "99999999"]).exits(0).stdout,
        ""
    );

    let file = cluster.ask(&["dfs", "show", "/data/a.txt"], "file");
    let chunks = file["shape"]["chunks"].as_array().unwrap();
    assert!(
        chunks.len() > 10
            && chunks.iter().all(|chunk| chunk["replicas"].as_array().unwrap().len() == 3),
        "{file}"
    );
    assert_eq!(file["shape"]["format"], "lines");

    cluster.run(&["dfs", "rename", "/data/a.txt", "/data/c.txt"]).exits(0);
    cluster.run(&["dfs", "cat", "/data/a.txt"]).exits(1).says(&["no file /data/a.txt"]);
    let listed = cluster.ask(&["dfs", "ls", "/data"], "files");
    assert!(
        listed[0]["name"] == "/data/c.txt" && listed.as_array().unwrap().len() == 1,
        "{listed}"
    );
    cluster.run(&["dfs", "rm", "/data/c.txt"]).exits(0);
    cluster.run(&["dfs", "rm", "/data/c.txt"]).exits(1).says(&["no file /data/c.txt"]);
}

#[test]
fn trees_and_streams_go_in_and_come_out_again() {
    let cluster = cluster(2);
    for (name, content) in
        [("t/one.csv", "a,\"b\nc\"\n"), ("t/u/two.txt", "2\n"), ("t/u/empty", "")]
    {
        cluster.write(name, content);
    }
    cluster.run(&["dfs", "put", "t", "/tree"]).exits(1).says(&["-r"]);
    cluster.run(&["dfs", "put", "-r", "t", "/tree"]).exits(0);
    assert_eq!(cluster.ask(&["dfs", "stat", "/tree/one.csv"], "file")["shape"]["format"], "csv");
    cluster.run(&["dfs", "get", "-r", "/tree", "back"]).exits(0);
    assert_eq!(cluster.names("back/u"), ["empty", "two.txt"]);
    assert_eq!(cluster.read("back/one.csv"), "a,\"b\nc\"\n");
    let name = ["--cluster", "test", "dfs", "put", "-", "/from input"];
    assert_eq!(cluster.eyas_with_input(&name, "some words").code, 0);
    let name = ["--cluster", "test", "dfs", "append", "-", "/from input"];
    assert_eq!(cluster.eyas_with_input(&name, " and more\n").code, 0);
    assert_eq!(
        cluster.run(&["dfs", "get", "/from input", "-"]).exits(0).stdout,
        "some words and more\n"
    );
    cluster.run(&["dfs", "rm", "-r", "/tree"]).exits(0);
    assert_eq!(cluster.ask(&["dfs", "ls"], "files").as_array().unwrap().len(), 1);
}

#[test]
fn impossible_dfs_commands_say_why() {
    let cluster = cluster(2);
    cluster.write("a.txt", "1\n");
    cluster.run(&["dfs", "put", "a.txt", "/a"]).exits(0);
    cluster.run(&["dfs", "put", "a.txt", "/a"]).exits(1).says(&["/a already"]);
    for name in ["/../a", "/a//b", "", &"x".repeat(300), &"x/".repeat(2100)] {
        cluster.run(&["dfs", "put", "a.txt", name]).exits(1).says(&["not a name of a file"]);
    }
    cluster.run(&["dfs", "put", "a.txt", "/ünï côde"]).exits(0);
    cluster.run(&["dfs", "put", "no such file", "/b"]).exits(1).says(&["no such file"]);
    cluster.run(&["dfs", "get", "/a", "a.txt"]).exits(1).says(&["--force"]);
    // A copy is open to no more users than the file, or the file that it replaces.
    let copy = cluster.work().join("copy");
    for (of_file, of_place, expected) in
        [(0o600, None, 0o600), (0o750, None, 0o750), (0o644, Some(0o600), 0o600)]
    {
        let _ = fs::remove_file(&copy);
        if let Some(mode) = of_place {
            cluster.write("copy", "");
            fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        }
        cluster.run(&["dfs", "chmod", &format!("{of_file:o}"), "/a"]).exits(0);
        cluster.run(&["dfs", "get", "/a", "copy", "--force"]).exits(0);
        let mode = fs::metadata(&copy).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{of_file:o} over {of_place:?}");
    }
    // A pipe stays a pipe.
    let pipe = cluster.work().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat")
        .arg(&pipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    cluster.run(&["dfs", "get", "/a", "pipe", "--force"]).exits(0);
    assert_eq!(finish(reader).stdout, "1\n");
    cluster.write("open.csv", "a,\"b\n");
    cluster.run(&["dfs", "put", "open.csv", "/open"]).exits(1).says(&["open.csv", "quote"]);
    cluster.run(&["dfs", "stat", "/open"]).exits(1);
    cluster.run(&["dfs", "put", "a.txt", "/b", "--format", "nonsense"]).exits(2);
    cluster.run(&["dfs", "put", "a.txt", "/b", "--chunk-size", "1"]).exits(2).says(&["1KiB"]);
    let without = Cluster::start(&[&[]]);
    without.run(&["dfs", "ls"]).exits(1).says(&["--dfs"]);
}

#[test]
fn a_file_put_before_all_nodes_join_outlives_the_first_node() {
    // The nodes have not joined yet.
    let mut cluster = Cluster::start(&[NODE; 3]);
    let content = lines(2000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB"]).exits(0);
    cluster.executor(1).kill();
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
}

#[test]
fn files_outlive_processes() {
    let mut cluster = cluster(8);
    let contents: Vec<_> = (0..10).map(|number| lines(3000 + number)).collect();
    for (number, content) in contents.iter().enumerate() {
        cluster.write(&format!("{number}"), content);
        let name = format!("/f{number}");
        cluster.run(&["dfs", "put", &number.to_string(), &name, "--chunk-size", "16KiB"]).exits(0);
    }
    let all_there = |cluster: &Cluster| {
        for (number, content) in contents.iter().enumerate() {
            assert_eq!(
                cluster.run(&["dfs", "cat", &format!("/f{number}")]).exits(0).stdout,
                *content
            );
        }
    };
    // Two of the nodes that have a chunk are killed at once.
    cluster.executor(1).kill();
    cluster.executor(2).kill();
    all_there(&cluster);
    joined(&cluster, 6);
    let names: Vec<_> = (0..contents.len()).map(|number| format!("/f{number}")).collect();
    wait_until("all replicas are there again", || {
        cluster.run(&["dfs", "verify"]).code == 0 && has_replicas(&cluster, &names, 3)
    });
    // One node comes back with its folder; another one is new.
    cluster.run(&["dfs", "rm", "/f0"]).exits(0);
    let folder = cluster.executor(1).folder().to_str().unwrap().to_owned();
    cluster.add_executor(&[NODE, &["--folder", &folder]].concat());
    cluster.add_executor(NODE);
    joined(&cluster, 8);
    cluster.run(&["dfs", "cat", "/f0"]).exits(1);
    // The dispatcher is needed to find nodes, not to keep files.
    cluster.restart_dispatcher();
    cluster.run(&["dfs", "ls"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/f5"]).exits(0).stdout, contents[5]);
}

/// Whether all chunks of these files have this number of replicas on live nodes.
pub fn has_replicas(cluster: &Cluster, files: &[String], replicas: usize) -> bool {
    files.iter().all(|name| {
        let file = cluster.ask(&["dfs", "show", name], "file");
        let chunks = file["shape"]["chunks"].as_array().unwrap().iter();
        let live = |chunk: &serde_json::Value| {
            let all = chunk["replicas"].as_array().unwrap().iter();
            all.filter(|replica| !replica["address"].is_null()).count()
        };
        chunks.map(live).all(|live| live == replicas)
    })
}

#[test]
fn all_nodes_can_end_and_come_back() {
    let mut cluster = cluster(3);
    let content = lines(5000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB"]).exits(0);
    let folders: Vec<_> =
        (1..=3).map(|number| cluster.executor(number).folder().to_owned()).collect();
    for number in 1..=3 {
        cluster.executor(number).kill();
    }
    for folder in &folders {
        cluster.add_executor(&[NODE, &["--folder", folder.to_str().unwrap()]].concat());
    }
    wait_until("the file is there again", || cluster.run(&["dfs", "cat", "/a"]).stdout == content);
    cluster.run(&["dfs", "verify"]).exits(0);
}

#[test]
fn nodes_that_are_missing_are_named_when_they_are_too_many() {
    let mut cluster = cluster(4);
    cluster.write("a", "1\n");
    cluster.run(&["dfs", "put", "a", "/a"]).exits(0);
    let nodes = |usage: &serde_json::Value| usage["nodes"].as_array().unwrap().clone();
    let folders =
        [3, 4].map(|number| cluster.executor(number).folder().to_str().unwrap().to_owned());
    cluster.executor(3).kill();
    cluster.executor(4).kill();
    let done = cluster.run(&["dfs", "ls"]).exits(1);
    done.says(&[
        "2 of the 4 nodes of the file system are missing: ",
        "It needs 3 nodes",
        "eyas dfs recover",
    ]);
    // The nodes are shown nonetheless.
    let done = cluster.run(&["dfs", "du"]).exits(1);
    assert_eq!(done.stdout.matches(" missing ").count(), 2, "{}", done.stdout);
    cluster.run(&["dfs", "cat", "/a"]).exits(1).says(&["2 of the 4 nodes", "are missing"]);
    // No node is here, but the dispatcher knows that nodes exist.
    cluster.executor(1).kill();
    cluster.executor(2).kill();
    wait_until("it is said", || {
        cluster.run(&["dfs", "ls"]).stderr.contains("none of the executors that keep")
    });
    for folder in &folders {
        cluster.add_executor(&[NODE, &["--folder", folder]].concat());
    }
    let folders =
        [1, 2].map(|number| cluster.executor(number).folder().to_str().unwrap().to_owned());
    for folder in &folders {
        cluster.add_executor(&[NODE, &["--folder", folder]].concat());
    }
    joined(&cluster, 4);
    assert_eq!(nodes(&cluster.ask(&["dfs", "du"], "usage")).len(), 4);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, "1\n");
}

#[test]
fn the_remaining_nodes_continue_when_more_than_half_are_lost() {
    let mut cluster = cluster(5);
    let content = lines(5000);
    cluster.write("a", &content);
    // Each chunk is on one of the last two nodes.
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB", "--replicas", "4"]).exits(0);
    cluster.run(&["dfs", "recover"]).exits(1).says(&["more than half of the nodes are alive"]);
    for number in 1..=3 {
        cluster.executor(number).kill();
    }
    let mut missing = Vec::new();
    wait_until("all that are missing are named", || {
        let done = cluster.run(&["--json", "dfs", "recover"]);
        let names = |done: &CommandOutput| {
            done.json("recovery")["missing"].as_array().cloned().unwrap_or_default()
        };
        missing = if done.stdout.is_empty() { Vec::new() } else { names(&done) };
        missing.len() == 3
    });
    let without = |names: &[serde_json::Value]| {
        let words = names
            .iter()
            .flat_map(|name| ["--without".to_owned(), name.as_str().unwrap().to_owned()]);
        ["dfs", "recover"].map(str::to_owned).into_iter().chain(words).collect::<Vec<_>>()
    };
    let run =
        |words: Vec<String>| cluster.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    run(without(&missing[1..]))
        .exits(1)
        .says(&["nothing was changed", missing[0].as_str().unwrap()]);
    run(without(&missing)).exits(0).says(&["continues with 2 nodes"]);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
    cluster.run(&["dfs", "put", "a", "/b"]).exits(0);
    // A node that comes back after all becomes a member again.
    let folder = cluster.executor(1).folder().to_str().unwrap().to_owned();
    cluster.add_executor(&[NODE, &["--folder", &folder]].concat());
    cluster.add_executor(NODE);
    joined(&cluster, 4);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
    wait_until("all replicas are there again", || cluster.run(&["dfs", "verify"]).code == 0);
}

#[test]
fn a_file_system_whose_first_node_is_lost_is_founded_again() {
    let mut cluster = cluster(1);
    cluster.write("a", "1\n");
    cluster.run(&["dfs", "put", "a", "/a"]).exits(0);
    let first = cluster.executor(1).folder().to_str().unwrap().to_owned();
    cluster.executor(1).kill();
    cluster.add_executor(NODE);
    cluster.wait_for_executors(1);
    cluster.run(&["dfs", "ls"]).exits(1).says(&[
        "has not joined the file system",
        "founded the file system",
        "docs/guides/files.md",
    ]);
    cluster.run(&["dfs", "recover", "--anew"]).exits(1).says(&["stop all of them first"]);
    cluster.executor(2).kill();
    wait_until("it is known that none is there", || {
        cluster.run(&["dfs", "recover", "--anew"]).code == 0
    });
    cluster.add_executor(NODE);
    joined(&cluster, 1);
    assert_eq!(cluster.run(&["--json", "dfs", "ls"]).json("files").as_array().unwrap().len(), 0);
    // The first file system was not lost: its content does not mix with that of the other.
    cluster.add_executor(&[NODE, &["--folder", &first]].concat()).wait();
    let log = std::fs::read_to_string(cluster.path("log")).unwrap();
    assert!(log.contains("belongs to file system") && log.contains("recover --anew"), "{log}");
    cluster.run(&["dfs", "put", "a", "/b"]).exits(0);
    joined(&cluster, 1);
    // It has all of its files.
    cluster.executor(3).kill();
    wait_until("it is known that none is there", || {
        cluster.run(&["dfs", "recover", "--anew"]).code == 0
    });
    cluster.add_executor(&[NODE, &["--folder", &first]].concat());
    joined(&cluster, 1);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, "1\n");
}

#[test]
fn chunks_stay_whatever_else_leaves_a_store() {
    // Nothing else is kept under this policy.
    let mut cluster = Cluster::start_with(&["--policy", "fa"], &[NODE; 3]);
    joined(&cluster, 3);
    let content = lines(5000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "16KiB"]).exits(0);
    cluster.restart_dispatcher();
    cluster.wait_for_executors(3);
    cluster.run(&["dfs", "verify"]).exits(0);
    // This is less than the chunks take.
    for number in 1..=3 {
        cluster.executor(number).kill();
        let folder = cluster.executor(number).folder().to_str().unwrap().to_owned();
        cluster.add_executor(&["--dfs", "--cache", "50KB", "--folder", &folder]);
    }
    joined(&cluster, 3);
    cluster.run(&["dfs", "verify"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
}

#[test]
fn a_node_with_a_damaged_database_says_so() {
    let mut cluster = cluster(3);
    cluster.executor(3).kill();
    let folder = cluster.executor(3).folder().to_owned();
    std::fs::write(folder.join("files/files.redb"), b"garbage").unwrap();
    cluster.add_executor(&[NODE, &["--folder", folder.to_str().unwrap()]].concat()).wait();
    let log = std::fs::read_to_string(cluster.path("log")).unwrap();
    assert!(log.contains("files.redb") && log.contains("move it away"), "{log}");
    std::fs::remove_dir_all(folder.join("files")).unwrap();
    cluster.add_executor(&[NODE, &["--folder", folder.to_str().unwrap()]].concat());
    joined(&cluster, 3);
}

#[test]
fn a_node_without_room_is_passed_over() {
    let mut cluster = cluster(2);
    cluster.add_executor(&["--dfs", "--cache", "100KB"]);
    joined(&cluster, 3);
    let content = lines(20_000);
    cluster.write("a", &content);
    cluster.run(&["dfs", "put", "a", "/a", "--chunk-size", "64KiB"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/a"]).exits(0).stdout, content);
    let small = cluster.executor(3).folder().join("store");
    assert!(folder_bytes(&small) < 200_000);
}

#[test]
fn a_node_with_a_full_disk_is_passed_over() {
    let Some(disk) = SmallDisk::mount("size=3m") else { return };
    let mut cluster = cluster(2);
    cluster.add_executor(&[
        "--dfs",
        "--folder",
        disk.path().join("n3").to_str().unwrap(),
        "--keep-free",
        "0",
    ]);
    joined(&cluster, 3);
    let content = lines(100_000);
    cluster.write("a", &content);
    for file in ["/a", "/b"] {
        cluster.run(&["dfs", "put", "a", file, "--chunk-size", "256KiB"]).exits(0);
        assert_eq!(cluster.run(&["dfs", "cat", file]).exits(0).stdout, content);
    }
}

#[test]
fn a_node_that_falls_silent_is_left_out_until_it_speaks_again() {
    let mut cluster = cluster(5);
    let content = lines(3000);
    cluster.write("a", &content);
    let names: Vec<_> = (0..8).map(|number| format!("/f{number}")).collect();
    for name in &names {
        cluster.run(&["dfs", "put", "a", name, "--chunk-size", "16KiB"]).exits(0);
    }
    // Its connections stay open, but nothing is sent over them.
    cluster.executor(2).suspend();
    for name in &names {
        assert_eq!(cluster.run(&["dfs", "cat", name]).exits(0).stdout, content);
    }
    cluster.run(&["dfs", "rename", "/f0", "/g0"]).exits(0);
    cluster.run(&["dfs", "put", "a", "/new", "--chunk-size", "16KiB"]).exits(0);
    cluster.executor(2).resume();
    joined(&cluster, 5);
    cluster.run(&["dfs", "cat", "/f0"]).exits(1);
    assert_eq!(cluster.run(&["dfs", "cat", "/g0"]).exits(0).stdout, content);
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => folder_bytes(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}
