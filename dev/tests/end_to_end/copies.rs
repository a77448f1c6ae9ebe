//! Derived copies: what one node has made of an input, the others fetch.

use std::fs;
use std::path::{Path, PathBuf};

use crate::compressed::{archive, pack};
use crate::support::{Cluster, wait_until};

/// Lines of the file in the archive.
const LINES: usize = 100_000;

/// An input with a preparation that notes its beginning and takes long enough for its folder to be
/// given to other nodes.
fn prepared(cluster: &Cluster, first: &str) -> String {
    archive(cluster, "db.tar", &"a line\n".repeat(LINES));
    let log = cluster.work().join("log");
    format!("db.tar,with=echo made >>{}; {first} tar xf {{in}} -C {{out}}; sleep 1", log.display())
}

fn made(cluster: &Cluster) -> usize {
    cluster.read("log").lines().count()
}

/// Runs tasks with this input on the nodes where `requirements` hold. Each prints the number of
/// lines.
fn count_lines(cluster: &Cluster, with: &str, requirements: &str, more: &[&str]) -> String {
    let words = ["run", "--report", "none", "--no-append", "-i", with];
    let options = ["--requirements", requirements, "--sandbox"];
    let script = ["--", "sh", "-c", "wc -l <db/text; sleep 0.2"];
    cluster.run(&[&words[..], &options, more, &script].concat()).exits(0).stdout
}

/// Executors that have got at least this many bytes from these sources.
fn receivers(cluster: &Cluster, sources: &[&str], bytes: u64) -> usize {
    let executors = cluster.ask(&["executor", "list"], "executors");
    let got = |executor: &serde_json::Value| -> u64 {
        let of = |source: &&str| executor["reads"][source]["bytes"].as_u64().expect("a number");
        sources.iter().map(of).sum()
    };
    executors.as_array().unwrap().iter().filter(|it| got(it) >= bytes).count()
}

#[test]
fn one_node_prepares_an_input_and_the_others_fetch_the_folder() {
    let mut cluster = Cluster::start(&[&[], &[], &[], &[]]);
    let with = prepared(&cluster, "");
    let done = count_lines(&cluster, &with, "true", &["--array", "1-12"]);
    assert_eq!(done, format!("{LINES}\n").repeat(12));
    assert_eq!(made(&cluster), 1);
    // Each node has got the archive, and all but one the folder, too.
    let archive_bytes = fs::metadata(cluster.work().join("db.tar")).unwrap().len();
    let sources = ["peer", "persistent"];
    assert_eq!(receivers(&cluster, &sources, archive_bytes), 4);
    assert_eq!(receivers(&cluster, &sources, archive_bytes + 7 * LINES as u64), 3);
    // The folder is the same on all nodes.
    let stat = |cluster: &Cluster, node: usize| {
        let on = format!("node.name == 'n{node}'");
        let words = ["run", "--report", "none", "--no-append", "-i", &with, "--requirements", &on];
        let script = ["--sandbox", "--", "stat", "-L", "-c", "%a %Y", "db", "db/text"];
        cluster.run(&[&words[..], &script].concat()).exits(0).stdout
    };
    let first = stat(&cluster, 1);
    assert_eq!(first.lines().count(), 2, "{first}");
    (2..=4).for_each(|node| assert_eq!(stat(&cluster, node), first, "n{node}"));
    // A node that joins later fetches the folder, and not the archive.
    cluster.add_executor(&[]);
    cluster.wait_for_executors(5);
    assert_eq!(stat(&cluster, 5), first);
    let reads = &cluster.job("6")["reads"];
    let bytes = |origin: &str| reads[origin]["bytes"].as_u64().unwrap();
    assert_eq!(bytes("persistent"), 0);
    let folder_bytes = 7 * LINES as u64;
    assert!((folder_bytes..folder_bytes + archive_bytes / 2).contains(&bytes("peer")), "{reads}");
    assert_eq!(made(&cluster), 1);
}

#[test]
fn a_folder_is_not_made_again_after_its_node_has_restarted() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    let with = prepared(&cluster, "");
    let expected = format!("{LINES}\n");
    assert_eq!(count_lines(&cluster, &with, "node.name == 'n1'", &[]), expected);
    let folder = cluster.executor(1).folder().to_owned();
    cluster.executor(1).kill();
    cluster.wait_for_executors(1);
    // It is given to others before the node needs it again.
    cluster.add_executor(&["--folder", folder.to_str().unwrap()]);
    cluster.wait_for_executors(2);
    assert_eq!(count_lines(&cluster, &with, "node.name == 'n2'", &[]), expected);
    assert_eq!(count_lines(&cluster, &with, "node.name == 'n3'", &[]), expected);
    assert_eq!(made(&cluster), 1);
}

/// If the task is cancelled that makes what others wait for, one of the others makes it.
#[test]
fn one_node_takes_over_what_a_cancelled_task_was_making() {
    let cluster = Cluster::start(&[&[], &[], &[]]);
    let gate = cluster.work().join("gate");
    let wait = format!("until test -e {}; do sleep 0.02; done;", gate.display());
    let with = prepared(&cluster, &wait);
    let spawn = |requirements: &str, array: &str| {
        let words = ["run", "--report", "none", "--no-append", "-i", &with, "--requirements"];
        let script =
            [requirements, "--array", array, "--sandbox", "--", "sh", "-c", "wc -l <db/text"];
        cluster.spawn_on(&[&words[..], &script].concat())
    };
    let first = spawn("node.name == 'n1'", "1-1");
    cluster.wait_for_file("log");
    let others = spawn("node.name != 'n1'", "1-2");
    wait_until("the others have tasks", || {
        let jobs = cluster.ask(&["job", "list"], "jobs");
        let assigned = |job: &serde_json::Value| job["tasks"]["assigned"].as_u64().unwrap();
        jobs.as_array().unwrap().iter().map(assigned).sum::<u64>() == 3
    });
    cluster.run(&["job", "cancel", "1"]).exits(0);
    first.wait_with_output().unwrap();
    wait_until("another node prepares it", || made(&cluster) == 2);
    cluster.write("gate", "");
    let done = others.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), format!("{LINES}\n").repeat(2));
    assert_eq!(made(&cluster), 2, "one takes over, and the other waits");
}

#[test]
fn one_node_decompresses_a_file_and_the_others_fetch_its_content() {
    let mut cluster = Cluster::start(&[&[], &[], &[]]);
    // Hashes are hard to compress, and bzip2 is slow.
    let hash = |n: usize| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let text: Vec<_> = (0..400_000).map(|n| format!("{:016x}\n", hash(n))).collect();
    let text = text.concat();
    if pack(&cluster, "bzip2", "db.bz2", &text).is_none() {
        return eprintln!("skipped: there is no bzip2");
    }
    let words = ["run", "--report", "none", "--array", "1-9", "--no-append", "--decompress"];
    let script = ["-i", "db.bz2", "--sandbox", "--", "sh", "-c", "cksum db; sleep 0.2"];
    let done = cluster.run(&[&words[..], &script].concat()).exits(0).stdout;
    let plain = cluster.write("plain", &text);
    let expected = std::process::Command::new("cksum").arg(plain).output().unwrap().stdout;
    let expected = String::from_utf8(expected)
        .unwrap()
        .replace(cluster.work().join("plain").to_str().unwrap(), "db");
    assert_eq!(done, expected.repeat(9));
    assert_eq!(receivers(&cluster, &["peer"], text.len() as u64), 2, "one has decompressed it");
    // A node that joins later fetches the content, and not the file.
    cluster.add_executor(&[]);
    cluster.wait_for_executors(4);
    let words = ["run", "--report", "none", "--no-append", "--decompress"];
    let done =
        cluster.run(&[&words[..], &["--requirements", "node.name == 'n4'"], &script].concat());
    assert_eq!(done.exits(0).stdout, expected);
    let reads = &cluster.job("2")["reads"];
    let bytes = |origin: &str| reads[origin]["bytes"].as_u64().unwrap();
    assert_eq!((bytes("peer"), bytes("persistent")), (text.len() as u64, 0));
}

/// Those that wait for what a node makes go on when the node dies, and so do those that fetch it.
#[test]
fn a_node_that_dies_while_it_prepares_or_gives_a_folder_is_replaced() {
    let mut cluster = Cluster::start(&[&[], &[], &[]]);
    let gate = cluster.work().join("gate");
    let wait = format!("until test -e {}; do sleep 0.02; done;", gate.display());
    let with = prepared(&cluster, &wait);
    let spawn = |cluster: &Cluster, requirements: &str| {
        let words = ["run", "--report", "none", "--no-append", "-i", &with, "--requirements"];
        let script = [requirements, "--sandbox", "--", "sh", "-c", "wc -l <db/text"];
        cluster.spawn_on(&[&words[..], &script].concat())
    };
    let ended = |child: std::process::Child| {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stdout), format!("{LINES}\n"));
    };
    let mut first = spawn(&cluster, "node.name == 'n1'");
    cluster.wait_for_file("log");
    let second = spawn(&cluster, "node.name == 'n2'");
    wait_until("the second task runs", || {
        let jobs = cluster.ask(&["job", "list"], "jobs");
        let jobs = jobs.as_array().unwrap();
        jobs.len() == 2 && jobs.iter().all(|job| job["tasks"]["assigned"] == 1)
    });
    assert_eq!(made(&cluster), 1, "the second waits for the first");
    cluster.executor(1).kill();
    wait_until("the second node prepares it", || made(&cluster) == 2);
    cluster.write("gate", "");
    ended(second);
    first.kill().unwrap();
    first.wait().unwrap();
    // The only node that has it does not answer any more.
    cluster.executor(2).suspend();
    let third = spawn(&cluster, "node.name == 'n3'");
    ended(third);
    cluster.executor(2).resume();
    assert_eq!(made(&cluster), 3);
}

/// The packed folder among the objects of a store.
fn packed_folder(store: &Path) -> Option<PathBuf> {
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false
                    if fs::read(entry.path())
                        .is_ok_and(|read| read.starts_with(b"eyas folder 1\n")) =>
                {
                    return Some(entry.path());
                }
                false => {}
            }
        }
    }
    None
}

#[test]
fn a_damaged_folder_is_found_and_made_again() {
    let mut cluster = Cluster::start(&[&[], &[]]);
    let with = prepared(&cluster, "");
    let expected = format!("{LINES}\n");
    assert_eq!(count_lines(&cluster, &with, "node.name == 'n1'", &[]), expected);
    let objects = cluster.executor(1).folder().join("store/objects");
    let packed = packed_folder(&objects).expect("the folder is packed");
    let mut bytes = fs::read(&packed).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let times = fs::metadata(&packed).unwrap().modified().unwrap();
    let mode = fs::metadata(&packed).unwrap().permissions();
    fs::remove_file(&packed).unwrap();
    fs::write(&packed, bytes).unwrap();
    fs::File::options().append(true).open(&packed).unwrap().set_modified(times).unwrap();
    fs::set_permissions(&packed, mode).unwrap();
    assert_eq!(count_lines(&cluster, &with, "node.name == 'n2'", &[]), expected);
    assert_eq!(made(&cluster), 2, "without damage, it is made once");
    // The node that gave it was told, and gives it no longer.
    wait_until("the damaged folder is removed", || packed_folder(&objects).is_none());
}

#[test]
fn a_preparation_that_fails_on_one_node_only_is_run_by_the_others() {
    let cluster = Cluster::start(&[&[], &[], &[]]);
    let first = cluster.work().join("first");
    let fail = format!("mkdir {} && sleep 0.5 && exit 3;", first.display());
    let with = prepared(&cluster, &fail);
    let words = ["run", "--report", "none", "--no-append", "--array", "1-6", "-i", &with];
    let script = ["--sandbox", "--", "sh", "-c", "wc -l <db/text; sleep 0.2"];
    let done = cluster.run(&[&words[..], &script].concat()).exits(1);
    assert_eq!(done.stdout, format!("{LINES}\n").repeat(5), "the first task has failed");
    done.says(&["cannot prepare db.tar", "exit code 3", "5 of 6 tasks succeeded"]);
    assert!((2..=4).contains(&made(&cluster)), "{} preparations", made(&cluster));
}
