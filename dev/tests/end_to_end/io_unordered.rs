//! Coordinated I/O where order gains nothing: programs are left alone, and put in order again when that changes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::Signal;

use crate::support::{Home, SlowDisk, can_use, eyas, signal, wait_until};

/// Reads a file piece by piece, wherever, until it is killed.
const ANYWHERE: &str = "
import os, random, sys
file = os.open(sys.argv[1], os.O_RDONLY)
last = os.fstat(file).st_size - 4096
while True:
    os.pread(file, 4096, random.randint(0, last) // 4096 * 4096)
";

/// A home whose agent orders the requests of this node alone.
struct Node {
    home: Home,
}

impl Node {
    fn new() -> Node {
        let home = Home::new();
        fs::create_dir(home.path("run")).expect("a new folder");
        Node { home }
    }

    /// `eyas` with these words.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(words);
        command.env("XDG_RUNTIME_DIR", self.home.path("run"));
        command
    }

    /// A program that reads a file wherever, whose requests are ordered.
    fn reader(&self, file: &Path) -> Reader {
        let folder = file.parent().and_then(Path::to_str).expect("a plain name");
        let words = ["io", "run", "--here", "--path", folder, "--", "python3", "-c", ANYWHERE];
        Reader(self.command(&words).arg(file).spawn().expect("it can be started"))
    }

    /// A count of what became of requests, over all storages; 0 until the agent is there.
    fn count(&self, name: &str) -> u64 {
        let done = self.home.finish(self.command(&["--json", "io", "status"]));
        if done.code != 0 {
            return 0;
        }
        let storages = done.json("io")["storages"].take();
        storages.as_array().expect("a list").iter().map(|storage| storage[name].as_u64().expect("a count")).sum()
    }

    fn requests(&self) -> u64 {
        self.count("requests")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for (process, _) in self.home.processes().into_iter().filter(|(_, words)| words.contains(" io agent ")) {
            signal(process, Signal::KILL);
        }
    }
}

/// Killed when dropped.
struct Reader(Child);

impl Reader {
    /// Calls that have read something, so far.
    fn calls(&self) -> u64 {
        let numbers = fs::read_to_string(format!("/proc/{}/io", self.0.id())).expect("it runs");
        let calls = numbers.lines().find_map(|line| line.strip_prefix("syscr: ")).expect("proc(5)");
        calls.parse().expect("a number")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.kill().expect("our own child");
        self.0.wait().expect("our own child");
    }
}

#[test]
fn the_experiment_on_fast_storage_runs() {
    let node = Node::new();
    if !can_use(&["python3", "cc", "grep", "tar"]) {
        return;
    }
    let mut experiment = Command::new("python3");
    experiment.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("io_fast_storage.py"));
    experiment.env("EYAS_BIN", eyas()).env("XDG_RUNTIME_DIR", node.home.path("run"));
    let folder = node.home.work();
    let words = ["--tiny", "--folder", folder.to_str().expect("a plain name")];
    let done = node.home.finish(node.home.command_of(experiment, &words)).exits(0);
    for words in ["of plain's rate", "8 readers, 4 KiB, at random", "what it took, of what plain calls took"] {
        assert!(done.stdout.contains(words), "{}", done.stdout);
    }
}

#[test]
fn a_storage_that_answers_at_once_is_not_ordered_until_it_does_not() {
    let node = Node::new();
    let Some(disk) = SlowDisk::new(&node.home) else { return };
    if !can_use(&["python3"]) {
        return;
    }
    File::create(disk.source().join("file"))
        .and_then(|file| file.set_len(64 << 30))
        .expect("a file of zeros takes no room");
    let mount = disk.mount("mount", &["--seek-ms", "0"]);
    let reader = node.reader(&mount.path("file"));
    wait_until("it asks", || node.requests() > 0);
    wait_until("it reads much, and asks for none of it", || {
        let (asked, calls) = (node.requests(), reader.calls());
        wait_until("it reads on", || reader.calls() > calls + 500);
        node.requests() == asked
    });
    assert_eq!(node.count("left_alone"), 1);
    let asked = node.requests();
    disk.seek_ms(20);
    wait_until("it asks again", || node.requests() > asked + 5);
    assert_eq!(node.count("left_alone"), 0);
}

/// Whether the kernel tells what it has in memory of a file: since 6.5.
fn tells_what_is_in_memory() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc(5)");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let tells = (numbers.next(), numbers.next()) >= (Some(6), Some(5));
    if !tells {
        eprintln!("SKIPPED: Linux {release} does not tell what it has in memory");
    }
    tells
}

#[test]
fn what_is_in_memory_is_not_asked_for() {
    if !tells_what_is_in_memory() {
        return;
    }
    let node = Node::new();
    let file = node.home.write("file", vec![b'x'; 3 << 20]);
    let folder = file.parent().and_then(Path::to_str).expect("a plain name");
    let mut command = node.command(&["io", "run", "--here", "--path", folder, "--", "cksum"]);
    command.arg(&file);
    assert!(node.home.finish(command).exits(0).stdout.contains("3145728"));
    assert_eq!(node.requests(), 0);
    // It is there all the same for who wants to ask.
    let mut command = node.command(&["io", "run", "--here", "--always", "--path", folder, "--", "cksum"]);
    command.arg(&file);
    assert!(node.home.finish(command).exits(0).stdout.contains("3145728"));
    assert!(node.requests() > 0);
}
