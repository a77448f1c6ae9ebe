//! `eyas run` can be ended by any signal, and no process of it survives.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Child;

use rustix::process::Signal;

use crate::support::{Cluster, Home, finish, is_alive, signal, wait_for, wait_until};

/// A first task that ends, and others that start children and print process ids.
const SCRIPT: &str =
    "if [ $0 = 1 ]; then echo first; exit; fi; sleep 1000 & echo $! > child-$0; wait";

/// Waits until every task but the first runs. Returns the processes of these tasks.
fn wait_for_children(home: &Home) -> Vec<u32> {
    let child = |number: u32| {
        let path = home.work().join(format!("child-{number}"));
        wait_for("a task runs", || {
            std::fs::read_to_string(&path)
                .ok()
                .filter(|text| text.ends_with('\n'))?
                .trim()
                .parse()
                .ok()
        })
    };
    let children: Vec<u32> = (2..=3).map(child).collect();
    assert!(children.iter().all(|child| is_alive(*child)));
    children
}

fn run(home: &Home) -> (Child, Vec<u32>) {
    let words = [
        "run",
        "--slots",
        "1",
        "--array",
        "1-9",
        "--report",
        "report.json",
        "--",
        "sh",
        "-c",
        SCRIPT,
        "{}",
    ];
    let child = home.spawn(&words);
    let children = wait_for_children(home);
    (child, children)
}

#[test]
fn an_interrupt_ends_everything_and_keeps_what_is_done() {
    for how in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let (child, children) = run(&home);
        signal(child.id(), how);
        let done = finish(child).exits(130).says(&[
            "1 of 9 tasks succeeded, 8 cancelled",
            "`eyas run --resume` runs the 8 tasks that are left",
        ]);
        assert_eq!(done.stdout, "first\n");
        assert!(home.read("report.json").contains("\"cancelled\":8"));
        wait_until("tasks are dead", || !children.iter().any(|child| is_alive(*child)));
        home.wait_until_empty();
    }
}

#[test]
fn an_interrupt_at_the_terminal_does_too() {
    // The signal goes to the whole process group; the cluster's processes are not in it.
    let home = Home::new();
    let mut command =
        home.command(&["run", "--slots", "1", "--array", "1-9", "--", "sh", "-c", SCRIPT, "{}"]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let piped = std::process::Stdio::piped;
    let child = command.stdout(piped()).stderr(piped()).spawn().unwrap();
    wait_for_children(&home);
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    assert_eq!(finish(child).exits(130).stdout, "first\n");
    home.wait_until_empty();
}

#[test]
fn a_killed_run_leaves_no_process_and_no_file() {
    let home = Home::new();
    let (child, children) = run(&home);
    signal(child.id(), Signal::KILL);
    assert_eq!(finish(child).code, 137);
    home.wait_until_empty();
    wait_until("tasks are dead", || !children.iter().any(|child| is_alive(*child)));
}

#[test]
fn everything_killed_at_once_leaves_no_process() {
    let home = Home::new();
    let (child, children) = run(&home);
    // All processes of eyas except the guardians, whose purpose this is. Executors first, before
    // they see that others are gone.
    let processes = home.processes();
    let find = |words: &str| {
        processes
            .iter()
            .filter(|process| process.1.contains(words))
            .map(|process| process.0)
            .collect()
    };
    let killed: [Vec<u32>; 3] = [" start executor ", " start dispatcher ", " run "].map(find);
    let killed = killed.concat();
    assert_eq!(killed.len(), 4, "{processes:?}");
    killed.iter().for_each(|process| signal(*process, Signal::KILL));
    assert_eq!(finish(child).code, 137);
    wait_until("guardians have cleaned up", || home.processes().is_empty());
    wait_until("tasks are dead", || !children.iter().any(|child| is_alive(*child)));
    // No process is left that could remove the store; the sandboxes are gone.
    for run in home.temporary() {
        assert!(!run.join("n1/sandboxes").exists() && !run.join("n2/sandboxes").exists());
        std::fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn an_interrupt_on_a_running_cluster_cancels_the_job_alone() {
    let cluster = Cluster::start(&[&["--slots", "2"]]);
    let child = cluster.spawn_on(&["run", "--array", "1-9", "--", "sh", "-c", SCRIPT, "{}"]);
    let children = wait_for_children(&cluster);
    signal(child.id(), Signal::INT);
    let done = finish(child).exits(130);
    done.says(&["`eyas job retry 1 --cluster test` runs the ", " unsuccessful tasks again"]);
    wait_until("tasks are dead", || !children.iter().any(|child| is_alive(*child)));
    assert_eq!(cluster.job("1")["state"], "cancelled");
    cluster.run(&["run", "--array", "1", "--", "true"]).exits(0);
}

#[test]
fn a_local_cluster_stops_when_it_is_told_to() {
    let home = Home::new();
    home.eyas(&["--cluster", "test", "start", "local", "--detach", "--nodes", "2"])
        .exits(0)
        .says(&["2 executors ready"]);
    home.eyas(&["--cluster", "test", "run", "--array", "1-3", "--", "true"]).exits(0);
    home.eyas(&["--cluster", "test", "start", "local", "--detach"]).exits(1);
    home.eyas(&["--cluster", "test", "stop"]).exits(0);
    wait_until("the cluster has ended", || home.processes().is_empty());
    // The cluster's folder stays, with the jobs.
    home.eyas(&["--cluster", "test", "start", "local", "--detach"]).exits(0);
    let jobs = home.eyas(&["--cluster", "test", "--json", "job", "list"]).exits(0).json("jobs");
    assert_eq!(jobs[0]["tasks"]["succeeded"], 3);
    let local =
        home.processes().into_iter().find(|(_, words)| words.contains("start local")).unwrap().0;
    signal(local, Signal::INT);
    wait_until("the cluster has ended", || home.processes().is_empty());
}

#[test]
fn an_interrupt_does_not_wait_for_a_server_that_has_fallen_silent() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/big", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // The variable keeps the connections open.
        let mut silent = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines =
                BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: \"x\"\r\nConnection: \
                        close\r\n\r\n";
            let _ = (&stream).write_all(head.as_bytes());
            if request.starts_with("GET") {
                let _ = (&stream).write_all(b"so far");
                silent.push(stream);
                let _ = tell.send(());
            }
        }
    });
    let child = home.spawn(&["run", "--nodes", "1", "--report", "none", "-i", &url, "--", "true"]);
    told.recv_timeout(crate::support::DEADLINE).expect("the input is asked for");
    signal(child.id(), Signal::INT);
    let done = finish(child).exits(130).says(&["0 of 1 task succeeded, 1 cancelled"]);
    assert!(!done.stderr.contains("not ended in time"), "{}", done.stderr);
    home.wait_until_empty();
}
