//! Encryption of data: on by default, off for a cluster that was started so; processes with
//! different settings refuse each other and say why.

use std::fs;

use crate::dfs::joined;
use crate::support::Cluster;

/// The output that a task keeps in the cluster, in the store of the node that ran the task.
const KEEPS: &str = r#"
[[task]]
command = ["sh", "-c", "seq 100000 >numbers"]
outputs = [{ file = "numbers", keep = true }]
"#;

#[test]
fn files_and_outputs_cross_a_cluster_whether_it_encrypts_or_not() {
    for words in [&[][..], &["--plain-data"]] {
        let node = [&["--dfs"], words].concat();
        let cluster = Cluster::start_with(words, &[&node, &node]);
        joined(&cluster, 2);
        let content = "a line of a file\n".repeat(200_000);
        cluster.write("file", &content);
        cluster.run(&["dfs", "put", "file", "/file"]).exits(0);
        assert_eq!(cluster.run(&["dfs", "cat", "/file"]).exits(0).stdout, content);
        cluster.write("job.toml", KEEPS);
        let job = cluster.submit("job.toml");
        cluster.run(&["job", "get", &job, "--to", "got"]).exits(0);
        assert!(cluster.read("got/0/numbers").ends_with("\n100000\n"), "{words:?}");
    }
}

#[test]
fn an_executor_that_moves_data_otherwise_does_not_join() {
    for (words, other) in [(&["--plain-data"][..], &[][..]), (&[], &["--plain-data"])] {
        let mut cluster = Cluster::start_with(words, &[words]);
        cluster.add_executor(other).wait();
        let log = fs::read_to_string(cluster.path("log")).expect("the cluster's log");
        let told: Vec<_> = log
            .lines()
            .filter(|line| line.contains("one decision for the whole cluster"))
            .collect();
        for side in ["was started with --plain-data", "sends data unencrypted (--plain-data)"] {
            assert!(
                told.iter().any(|line| line.contains(side)),
                "the executor and the dispatcher both say so: {log}"
            );
        }
        cluster.wait_for_executors(1);
    }
}
