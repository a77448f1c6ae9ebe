//! Coordinated I/O between nodes: one order for all of them, and no program waits for a process
//! that is gone.
//!
//! A node is a folder for its agent, and a mount of the slow disk that it shares with the others.
//! The tests see order in the coordinator's counters, and never in elapsed time.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::io::Order;
use crate::support::{Cluster, Home, SlowDisk, can_use, finish, signal, wait_until};

/// Position of a program in its standard input or in its first file.
fn position(reader: u32) -> u64 {
    let info = fs::read_to_string(format!("/proc/{reader}/fdinfo/0")).unwrap_or_default();
    info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok()).unwrap_or(0)
}

#[track_caller]
fn wait_for_progress(reader: u32) {
    let before = position(reader);
    wait_until("it reads on", || position(reader) > before + (32 << 20));
}

#[track_caller]
fn kill(mut program: Child) {
    program.kill().unwrap();
    program.wait().unwrap();
}

/// A sparse file: it reads as zeros and takes no space.
fn sparse(disk: &SlowDisk, name: &str, megabytes: u64) {
    File::create(disk.source().join(name)).unwrap().set_len(megabytes << 20).unwrap();
}

#[test]
fn programs_of_several_nodes_are_put_in_one_order() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    for name in ["a", "b"] {
        sparse(&disk, name, 24);
    }
    let nodes = ["one", "two"].map(|name| disk.mount(name, &["--seek-ms", "1"]));
    let order = Order::new(home, &[]);
    let files = [nodes[0].path("a"), nodes[1].path("b")];
    let readers = [order.reader("n1", &[], &files[0], 24), order.reader("n2", &[], &files[1], 24)];
    for reader in readers {
        finish(reader).exits(0);
    }
    let status = order.status();
    let [storage] = &status["storages"].as_array().unwrap()[..] else {
        panic!("nodes name it differently: {status}")
    };
    let count = |name| storage[name].as_u64().unwrap();
    assert_eq!(
        (status["agents"].as_u64(), count("queued"), count("outstanding")),
        (Some(2), 0, 0),
        "{status}"
    );
    assert_eq!((count("uncoordinated"), count("revoked")), (0, 0), "{status}");
    assert!(count("granted_bytes") >= 48 << 20 && count("grants") < 40, "{status}");
    assert!(storage["sequential_as_granted"].as_f64().unwrap() > 0.5, "{status}");
}

/// Bytes that each server of a storage has granted, by name, after a program has read a file of
/// 8 MiB. `None`: this user may not mount the disk.
fn granted_by_servers(coordinator: &[&str], disk_options: &[&str]) -> Option<Vec<u64>> {
    let home = Home::new();
    let disk = SlowDisk::new(&home)?;
    sparse(&disk, "file", 8);
    let stripes = ["--channels", "2", "--stripe-bytes", "1048576", "--seek-ms", "1"];
    let node = disk.mount("one", &[&stripes, disk_options].concat());
    let order = Order::new(home, &[coordinator, &["--policy", "sojf"]].concat());
    finish(order.reader("n1", &["--always"], &node.path("file"), 8)).exits(0);
    let status = order.status();
    let granted = |(place, server): (usize, &Value)| {
        let name = server["name"].as_str().unwrap();
        assert!(name.ends_with(&format!(", server {place}")), "{status}");
        assert_eq!(server["order"]["policy"], "sojf", "{status}");
        assert_eq!((&server["queued"], &server["outstanding"]), (&json!(0), &json!(0)), "{status}");
        server["granted_bytes"].as_u64().unwrap()
    };
    Some(status["storages"].as_array().unwrap().iter().enumerate().map(granted).collect())
}

#[test]
fn each_server_that_files_are_striped_over_has_a_queue() {
    // By a rule, and by the layout that the file system tells.
    for (coordinator, disk) in
        [(&["--stripe", "2,1MiB"][..], &[][..]), (&[][..], &["--layouts", "lustre"][..])]
    {
        let Some(granted) = granted_by_servers(coordinator, disk) else { return };
        assert_eq!(granted.len(), 2, "{granted:?}");
        // The first read comes before the stream begins, and again with the stream's first window.
        assert!(granted.iter().all(|bytes| (4 << 20..5 << 20).contains(bytes)), "{granted:?}");
    }
}

#[test]
fn a_file_waits_only_for_the_servers_that_it_is_on() {
    let Some(granted) = granted_by_servers(&[], &["--layouts", "beegfs"]) else { return };
    let [0, 0, bytes] = granted[..] else { panic!("{granted:?}") };
    assert!((8 << 20..9 << 20).contains(&bytes), "{bytes}");
    // A rule is for files that have no layout.
    let by_both = granted_by_servers(&["--stripe", "2,1MiB"], &["--layouts", "beegfs"]);
    let [0, 0, bytes] = by_both.as_deref().unwrap()[..] else { panic!("{by_both:?}") };
    assert!((8 << 20..9 << 20).contains(&bytes), "{bytes}");
}

/// A program on one node that reads for a long time, while the processes that it asks are killed or
/// stopped.
fn with_reader(happens: impl FnOnce(&mut Order, u32)) {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    sparse(&disk, "long", 1 << 20);
    let node = disk.mount("one", &["--seek-ms", "1"]);
    let mut order = Order::new(home, &[]);
    // The shell becomes the reader. It reads its standard input, whose position shows its progress.
    let command = "exec dd of=/dev/null bs=64k status=none < \"$0\"";
    let file = node.path("long");
    let mut reader = order.command("n1", &["--", "sh", "-c", command, file.to_str().unwrap()]);
    let reader = reader.spawn().unwrap();
    order.wait_for_requests();
    happens(&mut order, reader.id());
    kill(reader);
}

#[test]
fn programs_continue_without_a_killed_coordinator_and_find_the_next_one() {
    with_reader(|order, reader| {
        order.kill_coordinator();
        wait_for_progress(reader);
        order.serve(&[]);
        order.wait_for_requests();
        assert_eq!(order.status()["agents"], 1);
    });
}

#[test]
fn programs_continue_without_a_coordinator_that_stands_still() {
    with_reader(|order, reader| {
        signal(order.coordinator(), Signal::STOP);
        wait_for_progress(reader);
        signal(order.coordinator(), Signal::CONT);
        order.wait_for_requests();
    });
}

#[test]
fn running_programs_find_the_next_agent() {
    with_reader(|order, reader| {
        let killed = order.agents();
        assert_eq!(killed.len(), 1);
        signal(killed[0], Signal::KILL);
        wait_for_progress(reader);
        wait_until("its requests are forgotten", || order.status()["agents"] == 0);
        order.run("n1", &["--", "true"]).exits(0);
        assert!(order.agents()[0] != killed[0]);
        order.wait_for_requests();
    });
}

#[test]
fn garbage_is_no_reason_to_stop() {
    with_reader(|order, _| {
        let access = fs::read_to_string(order.home.path("home/io/access.toml")).unwrap();
        let address = access.lines().find_map(|line| line.strip_prefix("dispatcher = \"")).unwrap();
        let address = address.trim_end_matches('"');
        let agents = fs::read_dir(order.home.path("n1/eyas-io")).unwrap();
        let socket = agents
            .map(|folder| folder.unwrap().path().join("agent.sock"))
            .find(|path| path.exists())
            .unwrap();
        let garbage: Vec<u8> =
            (0..100_000_u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let mut silent = Vec::new();
        for first in 0..64 {
            // The receiver may close the connection at any byte.
            let mut connection = TcpStream::connect(address).unwrap();
            let _ = connection.write_all(&garbage[first * 1_000..]);
            let mut connection = UnixStream::connect(&socket).unwrap();
            let _ = connection.write_all(&garbage[first..][..1 + first]);
            silent.push(TcpStream::connect(address).unwrap());
        }
        order.wait_for_requests();
        assert_eq!(order.status()["agents"], 1);
    });
}

#[test]
fn a_program_that_is_killed_in_its_turn_delays_no_program() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    sparse(&disk, "long", 256);
    sparse(&disk, "short", 1);
    let node = disk.mount("one", &["--seek-ms", "1", "--megabytes-per-second", "4"]);
    // Revocation takes longer than a test.
    let rules = home.write("rules.toml", "default.lease = '1h'");
    let order = Order::new(home, &["--rules", rules.to_str().unwrap()]);
    let from = format!("if={}", node.path("long").display());
    let words = ["--", "dd", &from, "of=/dev/null", "bs=64M", "iflag=direct", "status=none"];
    let reader = order.command("n1", &words).spawn().unwrap();
    wait_until("it has its turn", || order.status()["storages"][0]["outstanding"] == 1);
    kill(reader);
    finish(order.reader("n1", &[], &node.path("short"), 1)).exits(0);
    wait_until("no turn is out", || order.status()["storages"][0]["outstanding"] == 0);
}

/// A program that left a call during its turn in this way, and continues to run.
fn with_a_call_that_was_left(how: &str) {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home).filter(|_| can_use(&["gcc"])) else { return };
    sparse(&disk, "long", 256);
    sparse(&disk, "short", 1);
    let node = disk.mount("one", &["--seek-ms", "1", "--megabytes-per-second", "8"]);
    let rules = home.write("rules.toml", "default.lease = '1h'");
    let order = Order::new(home, &["--rules", rules.to_str().unwrap()]);
    let program = order.home.path("cancelled");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/decompose/cancelled.c");
    let compiled =
        Command::new("gcc").args(["-O2", "-o"]).arg(&program).args([source, "-lpthread"]).status();
    assert!(compiled.unwrap().success());
    order.wait_until_ordered("n1", &node.path("short"));
    let grants = || order.status()["storages"][0]["grants"].as_u64();
    let before = grants();
    let words = ["--", program.to_str().unwrap(), how, node.path("long").to_str().unwrap()]
        .map(str::to_owned);
    let mut command = order.command("n1", &words.each_ref().map(String::as_str));
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    program.stdout.take().expect("piped").read_to_end(&mut Vec::new()).unwrap();
    wait_until("its turn has ended", || order.status()["storages"][0]["outstanding"] == 0);
    assert!(grants() > before, "it has asked");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}

#[test]
fn a_thread_that_is_cancelled_in_its_turn_delays_no_program() {
    with_a_call_that_was_left("thread");
}

#[test]
fn a_handler_that_jumps_out_of_a_turn_delays_no_program() {
    with_a_call_that_was_left("jump");
}

#[test]
fn programs_without_a_coordinator_go_ahead() {
    let order = Order::new(Home::new(), &[]);
    let home = &order.home;
    let path = home.write("file", vec![7; 3 << 20]);
    let ordered = home.work();
    let words = ["--path", ordered.to_str().unwrap(), "--", "md5sum", path.to_str().unwrap()];

    let access = fs::read_to_string(home.path("home/io/access.toml")).unwrap();
    let address = access.lines().find(|line| line.starts_with("dispatcher")).unwrap();
    let save = |name: &str, text: &str| {
        let file = home.write(name, text);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        file
    };
    // No process listens there.
    let unreachable =
        save("unreachable.toml", &access.replace(address, "dispatcher = \"127.0.0.1:1\""));
    // The access file of another coordinator, with another secret.
    let stranger = Order::new(Home::new(), &[]);
    let other = fs::read_to_string(stranger.home.path("home/io/access.toml")).unwrap();
    let other_address = other.lines().find(|line| line.starts_with("dispatcher")).unwrap();
    let wrong = save("wrong.toml", &other.replace(other_address, address));
    for (node, file) in [("n1", &unreachable), ("n2", &wrong)] {
        order.run(node, &[&["--access", file.to_str().unwrap()], &words[..]].concat()).exits(0);
        let asked = home.eyas(&["--access", file.to_str().unwrap(), "io", "status"]);
        asked.exits(1).says(&["127.0.0.1"]);
    }
    let status = order.status();
    assert_eq!(
        (&status["agents"], status["storages"].as_array().unwrap().len()),
        (&Value::from(0), 0)
    );

    order.run("n3", &["--path", "/nowhere", "--", "true"]).exits(1).says(&["/nowhere"]);

    // A folder for the agent that other users can access.
    order.run("n4", &words).exits(0);
    order.agents().into_iter().for_each(|agent| signal(agent, Signal::KILL));
    wait_until("agents have gone", || order.agents().is_empty());
    let mut folders = fs::read_dir(home.path("n4/eyas-io")).unwrap();
    let folder = folders.next().expect("it was made").unwrap().path();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    order.run("n4", &words).exits(0).says(&["are not ordered", "other users can access it"]);
}

#[test]
fn classes_have_what_the_rules_say() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    for name in ["night", "day"] {
        sparse(&disk, name, 32);
    }
    let nodes = ["one", "two"].map(|name| disk.mount(name, &["--seek-ms", "1"]));
    let garbage = home.write("garbage.toml", "[class.night]\nweight = -1\n");
    home.eyas(&["io", "serve", "--rules", garbage.to_str().unwrap()])
        .exits(1)
        .says(&["garbage.toml", "line 2"]);
    let rules = home.write(
        "rules.toml",
        "[default]\npolicy = 'wsjf'\npatience = '2s'\n[class.night]\nlimit = '100 kB/s'\n\
         [class.day]\nreservation = '10 MB/s'\n",
    );
    let rules = rules.to_str().unwrap();
    home.eyas(&["io", "serve", "--rules", rules, "--quantum", "1MiB"])
        .exits(1)
        .says(&["`quantum` is not a parameter of the policy wsjf"]);
    let order = Order::new(home, &["--rules", rules, "--junction", "5"]);
    let mut night = order.reader("n1", &["--class", "night"], &nodes[0].path("night"), 32);
    wait_until("it has begun", || order.requests() > 0);
    // As a batch system sets it; the words of the command line count more.
    let day = |words: &[&str], class: &str| {
        let from = format!("if={}", nodes[1].path("day").display());
        let program = ["--", "dd", &from, "of=/dev/null", "bs=64k", "count=512", "status=none"];
        let mut command = order.command("n2", &[words, &program].concat());
        command.env("EYAS_IO_CLASS", class);
        order.home.finish(command).exits(0);
    };
    day(&[], "day");
    day(&["--class", "day"], "night");
    assert!(night.try_wait().unwrap().is_none(), "32 MB take five minutes at its limit");
    kill(night);
    let status = order.status();
    let waits = status["storages"][0]["waits"].as_array().unwrap();
    let mut classes: Vec<_> = waits.iter().map(|wait| wait["class"].as_str().unwrap()).collect();
    classes.sort_unstable();
    assert_eq!(classes, ["day", "night"], "{status}");
    let expected = json!({
        "policy": "wsjf", "patience_us": 2_000_000, "junction_percent": 5,
        "max_run_bytes": 16 << 20, "window_us": 1_000,
    });
    assert_eq!(status["storages"][0]["order"], expected, "{status}");
    let table = order.home.eyas(&["io", "status"]).exits(0).stdout;
    assert!(table.contains("wsjf, patience 2.00 s, junction 5 %, max_run 16.8 MB"), "{table}");
}

#[test]
fn nodes_go_on_asking_where_the_coordinator_has_rules_to_keep() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home).filter(|_| can_use(&["python3"])) else { return };
    sparse(&disk, "file", 1 << 20);
    let mount = disk.mount("one", &["--seek-ms", "0"]);
    let rules = home.write("rules.toml", "default.requests_per_s = 1000");
    let order = Order::new(home, &["--rules", rules.to_str().unwrap()]);
    // Without competition, requests are so short that the storage would be bypassed after some
    // twenty.
    let reads = "
import os, random, sys
file = os.open(sys.argv[1], os.O_RDONLY)
for read in range(400):
    os.pread(file, 4096, random.randrange(1 << 28) * 4096)
";
    order.run("n1", &["--", "python3", "-c", reads, mount.path("file").to_str().unwrap()]).exits(0);
    let status = order.status();
    assert!(order.requests() >= 400, "{status}");
    assert_eq!(status["storages"][0]["left_alone"], 0, "{status}");
}

/// Bytes that programs of a job class have read from the first storage.
fn bytes(status: &Value, class: &str) -> u64 {
    let waits = status["storages"][0]["waits"].as_array().cloned().unwrap_or_default();
    let of_class = waits.iter().find(|wait| wait["class"] == class);
    of_class.map_or(0, |wait| wait["bytes"].as_u64().unwrap())
}

#[test]
fn limits_are_kept_and_reservations_are_met() {
    const MEGABYTE: u64 = 1_000_000;
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    // Half of the disk's bandwidth is reserved.
    let options = ["--seek-ms", "1", "--megabytes-per-second", "40"];
    let rules = "
        default.concurrency = 1
        [class.limited]
        limit = '2 MB/s'
        weight = 1000
        [class.reserved]
        reservation = '20 MB/s'
        [class.heavy]
        weight = 1000
    ";
    let rules = home.write("rules.toml", rules);
    let order = Order::new(home, &["--rules", rules.to_str().unwrap()]);
    let classes = ["limited", "reserved", "heavy"];
    classes.iter().for_each(|class| sparse(&disk, class, 1 << 20));
    let nodes = classes.map(|class| (class, disk.mount(class, &options)));
    let began = Instant::now();
    let readers: Vec<Child> = nodes
        .iter()
        .map(|(class, node)| order.reader(class, &["--class", class], &node.path(class), 1 << 20))
        .collect();
    wait_until("the disk is shared", || bytes(&order.status(), "heavy") > 40 * MEGABYTE);
    let status = order.status();
    let [limited, reserved, heavy] = classes.map(|class| bytes(&status, class));
    let allowed = 2 * MEGABYTE * began.elapsed().as_millis() as u64 / 1_000;
    assert!(
        limited > 0 && limited < allowed + (16 << 20),
        "it may have a run more than {allowed}: {status}"
    );
    assert!(reserved > heavy / 3, "by weight it would have a thousandth: {status}");
    readers.into_iter().for_each(kill);
}

#[test]
fn executors_take_turns_in_their_class_and_without_a_coordinator_proceed_at_once() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    let mount = disk.mount("one", &["--seek-ms", "1"]);
    for name in ["before", "after"] {
        sparse(&disk, name, 20);
    }
    let rules = home.write("rules.toml", "class.night.weight = 5");
    let mut order = Order::new(home, &["--rules", rules.to_str().unwrap()]);
    let access = order.home.path("home/io/access.toml");
    let options = ["--io", access.to_str().unwrap(), "--io-class", "night"];
    let cluster = Cluster::start(&[&options]);
    wait_until("the executor is there", || order.status()["agents"] == 1);
    let read = |name: &str| {
        let input = mount.path(name);
        cluster.run(&["run", "--each", input.to_str().unwrap(), "--", "wc", "-c", "{}"]).exits(0);
    };
    read("before");
    let status = order.status();
    let storage = &status["storages"][0];
    assert_eq!(
        (&storage["requests"], &storage["granted_bytes"]),
        (&3.into(), &(20 << 20).into()),
        "{status}"
    );
    assert_eq!(bytes(&status, "night"), 20 << 20, "{status}");
    wait_until("its turns have ended", || order.status()["storages"][0]["outstanding"] == 0);
    let write = |name: &str| {
        let output = format!("out={}", mount.path(name).display());
        let script = "head -c 9M /dev/zero >out";
        cluster.run(&["run", "-o", &output, "--", "sh", "-c", script]).exits(0);
    };
    write("written");
    let storage = &order.status()["storages"][0];
    assert_eq!(
        (&storage["requests"], &storage["granted_bytes"]),
        (&5.into(), &(29 << 20).into()),
        "9 MiB are two turns: {storage}"
    );
    order.kill_coordinator();
    read("after");
    write("written after");
}
