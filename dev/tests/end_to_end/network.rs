//! Networks: interfaces, ranges of ports, IPv6, and executors behind a proxy.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use crate::support::{Cluster, Home, Network, address, can_use, wait_until};

/// A proxy on the first host of a cluster's network. It ends when this is dropped.
struct Proxy(Child);

impl Proxy {
    #[track_caller]
    fn start(cluster: &Cluster, words: &[&str]) -> Self {
        let mut command = cluster.command(&[&["--cluster", "test", "proxy"], words].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("eyas can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped"))
            .read_line(&mut line)
            .expect("a pipe can be read");
        assert!(!line.is_empty(), "the proxy has not started: {:?}", child.wait_with_output());
        Proxy(child)
    }

    fn end(&mut self) {
        self.0.kill().expect("our own child");
        self.0.wait().expect("our own child");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

fn run_on(cluster: &Cluster, node: &str, words: &[&str]) -> String {
    let requirement = format!("node.name == '{node}'");
    let done = cluster.run(&[&["run", "--requirements", &requirement], words].concat());
    done.exits(0).stdout
}

#[test]
fn executors_behind_a_proxy_work_and_exchange_data_through_it() {
    let Some(network) = Network::new(3) else { return };
    // Only processes of the first host reach its loopback interface: the dispatcher, an executor,
    // and the proxy.
    let mut cluster = Cluster::start_in(Home::on(network), &["--listen", "127.0.0.1:0"]);
    let inside = address(0);
    let proxy = ["-o", "proxy.toml", "--inside", &inside, "--outside", "127.0.0.1"];
    let mut running = Proxy::start(&cluster, &proxy);
    let access = cluster.work().join("proxy.toml");
    cluster.add_executor(&["--label", "place=outside"]);
    for host in [1, 2] {
        let behind = ["--access", access.to_str().unwrap(), "--reconnect", "1min"];
        cluster.add_executor_on(host, &behind);
    }
    cluster.wait_for_executors(3);
    let executors = cluster.ask(&["executor", "list"], "executors");
    let behind = |executor: &&serde_json::Value| !executor["proxy"].is_null();
    assert_eq!(executors.as_array().unwrap().iter().filter(behind).count(), 2, "{executors}");

    // Kept outputs are in stores alone: they pass through the proxy in both directions, and beside
    // it.
    cluster.write(
        "job.toml",
        r#"
        [[task]]
        id = "first"
        command = ["sh", "-c", "seq 1 100000 > first"]
        requirements = "node.name == 'n1'"
        outputs = [{ file = "first", keep = true }]

        [[task]]
        id = "second"
        command = ["sh", "-c", "sort -r first > second"]
        inputs = [{ task = "first" }]
        requirements = "node.name == 'n2'"
        outputs = [{ file = "second", keep = true }]

        [[task]]
        id = "third"
        command = ["sh", "-c", "cat first second > third"]
        inputs = [{ task = "first" }, { task = "second" }]
        requirements = "node.name == 'n3'"
        outputs = [{ file = "third", keep = true }]

        [[task]]
        id = "last"
        command = ["sh", "-c", "sort -n third | uniq | wc -l"]
        folder = "sandbox"
        inputs = [{ task = "third" }]
        requirements = "node.name == 'n1'"
        "#,
    );
    let job = cluster.submit("job.toml");
    cluster.run(&["job", "wait", &job]).exits(0);
    assert_eq!(cluster.run(&["task", "log", &format!("{job}.3")]).stdout, "100000\n");
    let explained = cluster.run(&["explain", &format!("{job}.1")]);
    assert!(explained.stdout.contains("behind the proxy 127.0.0.1:"), "{explained:?}");
    cluster.run(&["job", "get", &job, "--to", "got"]).exits(0);
    assert!(!cluster.names("got").is_empty());

    // The proxy is away for a while: executors come back, and so do tasks of executors behind it.
    running.end();
    let _running = Proxy::start(&cluster, &proxy);
    cluster.wait_for_executors(3);
    assert_eq!(run_on(&cluster, "n2", &["--array", "1-1", "--", "echo", "back"]), "back\n");
}

#[test]
fn an_executor_behind_a_proxy_keeps_no_files_of_the_cluster() {
    let cluster = Cluster::start(&[&["--dfs", "--cache", "1GB"]]);
    let _proxy = Proxy::start(&cluster, &["-o", "proxy.toml", "--inside", "127.0.0.1"]);
    let refused = cluster.run(&["start", "executor", "--access", "proxy.toml", "--dfs", "--owned"]);
    refused.exits(1).says(&["behind a proxy cannot keep files of the cluster (--dfs)"]);
    // Its tasks read and write them through the proxy.
    cluster.write("text", "content\n");
    wait_until("the file system is there", || {
        cluster.run(&["dfs", "put", "text", "/text"]).code == 0
    });
    let read = cluster.run(&["dfs", "cat", "/text", "--access", "proxy.toml"]);
    // The key in the file is an executor's: it may not look.
    read.exits(1).says(&["is not permitted"]);
    cluster
        .run(&["proxy", "-o", "proxy.toml/x/y", "--inside", "127.0.0.1"])
        .exits(1)
        .says(&["proxy.toml"]);
    cluster
        .run(&["proxy", "-o", "other.toml", "--inside", "no.such.host.invalid"])
        .exits(1)
        .says(&["no.such.host.invalid"]);
}

#[test]
fn processes_listen_on_an_interface_and_in_a_range_of_ports() {
    let free: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut ports: Vec<u16> =
        free.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(free);
    ports.sort_unstable();
    let of_dispatcher = format!("{}-{}", ports[0], ports[3]);
    let dispatcher = ["--interface", "lo", "--ports", &of_dispatcher];
    let cluster = Cluster::start_with(&dispatcher, &[&["--interface", "lo"]]);
    let text = fs::read_to_string(cluster.path("home").join("clusters/test/access.toml")).unwrap();
    let line = text.lines().find(|line| line.starts_with("dispatcher")).unwrap();
    let port: u16 = line.trim_end_matches('"').rsplit(':').next().unwrap().parse().unwrap();
    assert!(line.contains("\"127.0.0.1:") && (ports[0]..=ports[3]).contains(&port), "{line}");
    cluster.run(&["run", "--array", "1-2", "--", "echo"]).exits(0);
    let wrong = cluster.run(&["start", "executor", "--interface", "nope0", "--owned"]);
    wrong.exits(1).says(&["there is no network interface `nope0` on this host; there are", "lo"]);
    cluster
        .run(&["start", "executor", "--ports", "9-1"])
        .exits(2)
        .says(&["`9-1` is not a range of ports"]);
    // No port is free.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let full = cluster.run(&[
        "start",
        "executor",
        "--cluster",
        "test",
        "--ports",
        &port,
        "--folder",
        "n9",
    ]);
    full.exits(1).says(&["no port of", "--ports FIRST-LAST"]);
}

#[test]
fn a_cluster_uses_ipv6() {
    if !can_use(&["true"]) || TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no IPv6");
        return;
    }
    let cluster = Cluster::start_with(
        &["--listen", "[::1]:0"],
        &[&["--dfs", "--cache", "1GB"], &["--dfs", "--cache", "1GB"]],
    );
    cluster.write("text", "content\n");
    let done = cluster.run(&["run", "--each", "text", "--", "cat", "{}"]);
    assert_eq!(done.exits(0).stdout, "content\n");
    crate::dfs::joined(&cluster, 2);
    cluster.run(&["dfs", "put", "text", "/text"]).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/text"]).stdout, "content\n");
}
