//! Floods: many silent connections do not shut out clients with valid keys.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::dfs::joined;
use crate::support::{Cluster, DEADLINE, listening_ports};

/// Idle connections to some ports. A thread for each port holds them open, and opens closed ones
/// again.
struct Flood {
    is_over: Arc<AtomicBool>,
    flooding: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Opens this number of connections to each port; returns when most of them are open.
    fn of(ports: &[(u16, usize)]) -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).expect("a soft limit may be raised");
        let is_over = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let flood = |(port, count): &(u16, usize)| {
            let (port, count, is_over, tell) = (*port, *count, is_over.clone(), tell.clone());
            std::thread::spawn(move || hold(port, count, &is_over, &tell))
        };
        let flooding = ports.iter().map(flood).collect();
        ports.iter().for_each(|_| told.recv_timeout(DEADLINE).expect("the connections are made"));
        Flood { is_over, flooding }
    }
}

/// Holds this number of connections to a port; sends one message when half of them are open.
fn hold(port: u16, count: usize, is_over: &AtomicBool, tell: &Sender<()>) {
    let open = |_| {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is listened on");
        stream.set_nonblocking(true).expect("our own socket");
        stream
    };
    let mut idle: Vec<_> = (0..count / 2).map(open).collect();
    tell.send(()).expect("the test waits for it");
    while !is_over.load(Ordering::Relaxed) {
        let is_open = |mut stream: &TcpStream| {
            stream.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
        };
        idle.retain(|stream| is_open(stream));
        idle.extend((idle.len()..count).map(open));
        std::thread::sleep(Duration::from_millis(500));
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.flooding.drain(..).all(|flooding| flooding.join().is_ok());
        assert!(ended || std::thread::panicking(), "a port was closed");
    }
}

#[test]
fn idle_connections_shut_no_peer_out() {
    let mut cluster = Cluster::start(&[&["--dfs"], &["--dfs"]]);
    let content = "a line of a file\n".repeat(100_000);
    cluster.write("file", &content);
    joined(&cluster, 2);
    let mut ports: Vec<_> =
        listening_ports(cluster.dispatcher()).into_iter().map(|port| (port, 1000)).collect();
    for number in 1..=2 {
        let of_executor = listening_ports(cluster.executor(number).process());
        assert_eq!(of_executor.len(), 2, "one for chunks, one for the file system");
        ports.extend(of_executor.into_iter().map(|port| (port, 700)));
    }
    let flood = Flood::of(&ports);
    for name in ["/a", "/b", "/c"] {
        cluster.run(&["executor", "list"]).exits(0);
        cluster.run(&["run", "--array", "1-4", "--", "echo", "{}"]).exits(0);
        cluster.run(&["dfs", "put", "file", name]).exits(0);
        assert_eq!(cluster.run(&["dfs", "cat", name]).exits(0).stdout, content);
    }
    cluster.add_executor(&[]);
    cluster.wait_for_executors(3);
    drop(flood);
    let log = std::fs::read_to_string(cluster.path("log")).expect("the cluster's log");
    for (port, count) in
        [("the dispatcher's port", 1), ("the transfer port", 2), ("the file system's port", 2)]
    {
        let told: Vec<_> = log.lines().filter(|line| line.contains(port)).collect();
        assert_eq!(told.len(), count, "once for each such port: {told:?}");
        assert!(told[0].contains("128 connections from 127.0.0.1 have not proven"), "{told:?}");
    }
}
