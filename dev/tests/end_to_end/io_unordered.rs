//! Coordinated I/O where order gains nothing: programs are left alone, and ordered again when that
//! changes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::Signal;

use crate::support::{Home, SlowDisk, can_use, eyas, signal, wait_until};

/// Reads pieces of a file at random offsets until it is killed.
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

    /// A program whose requests are ordered, and which reads a file at random offsets.
    fn reader(&self, file: &Path) -> Reader {
        let folder = file.parent().and_then(Path::to_str).expect("a plain name");
        let words = ["io", "run", "--here", "--path", folder, "--", "python3", "-c", ANYWHERE];
        Reader(self.command(&words).arg(file).spawn().expect("it can be started"))
    }

    /// A counter of requests, summed over all storages; `None` if there is no agent.
    fn count(&self, name: &str) -> Option<u64> {
        let done = self.home.finish(self.command(&["--json", "io", "status"]));
        (done.code == 0).then(|| {
            let storages = done.json("io")["storages"].take();
            storages
                .as_array()
                .expect("a list")
                .iter()
                .map(|storage| storage[name].as_u64().expect("a count"))
                .sum()
        })
    }

    #[track_caller]
    fn requests(&self) -> u64 {
        self.count("requests").expect("there is an agent")
    }

    fn agents(&self) -> Vec<u32> {
        let is_agent = |(_, words): &(u32, String)| words.contains(" io agent ");
        self.home.processes().into_iter().filter(is_agent).map(|(process, _)| process).collect()
    }

    /// Waits until a program reads without sending requests.
    #[track_caller]
    fn wait_until_left_alone(&self, reader: &Reader) {
        wait_until("it asks", || self.count("requests").is_some_and(|requests| requests > 0));
        wait_until("it reads much, and asks for none of it", || {
            let (asked, calls) = (self.requests(), reader.calls());
            wait_until("it reads on", || reader.calls() > calls + 500);
            self.requests() == asked
        });
        assert_eq!(self.count("left_alone"), Some(1));
    }

    /// Runs a Python program under `eyas io run` with these arguments before the folder that is
    /// ordered.
    #[track_caller]
    fn python(&self, words: &[&str], program: &str, file: &Path) {
        let folder = file.parent().and_then(Path::to_str).expect("a plain name");
        let mut command = self.command(
            &[&["io", "run", "--here"], words, &["--path", folder, "--", "python3", "-c", program]]
                .concat(),
        );
        command.arg(file);
        self.home.finish(command).exits(0);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.agents().into_iter().for_each(|agent| signal(agent, Signal::KILL));
    }
}

/// A running program, killed when dropped.
struct Reader(Child);

impl Reader {
    /// Calls that have read bytes so far.
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
    experiment.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/io_fast_storage.py"));
    experiment.env("EYAS_BIN", eyas()).env("XDG_RUNTIME_DIR", node.home.path("run"));
    let folder = node.home.work();
    let words = ["--tiny", "--folder", folder.to_str().expect("a plain name")];
    let done = node.home.finish(node.home.command_of(experiment, &words)).exits(0);
    for words in
        ["of plain's rate", "8 readers, 4 KiB, at random", "what it took, of what plain calls took"]
    {
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
    node.wait_until_left_alone(&reader);
    let asked = node.requests();
    disk.seek_ms(20);
    wait_until("it asks again", || node.requests() > asked + 5);
    assert_eq!(node.count("left_alone"), Some(0));
}

#[test]
fn a_program_that_was_left_alone_finds_the_next_agent() {
    let node = Node::new();
    let Some(disk) = SlowDisk::new(&node.home) else { return };
    if !can_use(&["python3"]) {
        return;
    }
    sparse(&disk, "file", 64 << 30);
    let mount = disk.mount("mount", &["--seek-ms", "0"]);
    let reader = node.reader(&mount.path("file"));
    node.wait_until_left_alone(&reader);
    node.agents().into_iter().for_each(|agent| signal(agent, Signal::KILL));
    disk.seek_ms(20);
    node.python(&[], "", &mount.path("file"));
    wait_until("it asks the next", || node.requests() > 5);
}

#[test]
fn rules_are_kept_where_order_gains_nothing() {
    let node = Node::new();
    let Some(disk) = SlowDisk::new(&node.home) else { return };
    if !can_use(&["python3"]) {
        return;
    }
    fs::create_dir_all(node.home.path("home/io")).expect("a new folder");
    fs::write(node.home.path("home/io/rules.toml"), "default.requests_per_s = 500")
        .expect("our own folder");
    sparse(&disk, "file", 64 << 30);
    let mount = disk.mount("mount", &["--seek-ms", "0"]);
    let reader = node.reader(&mount.path("file"));
    wait_until("it asks", || node.count("requests").is_some_and(|requests| requests > 50));
    let (asked, calls) = (node.requests(), reader.calls());
    wait_until("it reads on", || reader.calls() > calls + 300);
    // The program may be in the middle of a call.
    assert!(node.requests() + 1 >= asked + 300, "it asks for all that it reads");
    assert_eq!(node.count("left_alone"), Some(0));
}

#[test]
fn a_program_that_read_from_memory_requests_uncached_files() {
    let node = Node::new();
    let Some(disk) = SlowDisk::new(&node.home) else { return };
    if !can_use(&["python3"]) || !tells_what_is_in_memory() {
        return;
    }
    for name in ["warm", "cold"] {
        sparse(&disk, name, 96 << 20);
    }
    let mount = disk.mount("mount", &["--seek-ms", "8"]);
    // The first file, which is in memory, is read until the page cache is no longer checked; then
    // the second file.
    let program = "
import os, sys
folder = os.path.dirname(sys.argv[1])
warm, cold = (os.open(os.path.join(folder, name), os.O_RDONLY) for name in ['warm', 'cold'])
for repeated in range(2):
    for place in range(0, 96 << 20, 65536):
        os.pread(warm, 65536, place)
for place in range(0, 96 << 20, 65536):
    os.pread(cold, 65536, place)
";
    node.python(&[], "", &mount.path("warm"));
    std::io::copy(&mut File::open(mount.path("warm")).expect("it is there"), &mut std::io::sink())
        .expect("it can be read");
    node.python(&[], program, &mount.path("warm"));
    let read = disk.count("requests");
    assert!(node.requests() > 8, "{} asked for", node.requests());
    assert_eq!(node.count("left_alone"), Some(0), "{read} requests");
}

#[test]
fn mapping_a_file_says_nothing_of_its_storage() {
    let node = Node::new();
    let Some(disk) = SlowDisk::new(&node.home) else { return };
    if !can_use(&["python3"]) {
        return;
    }
    (0..40).for_each(|number| sparse(&disk, &number.to_string(), 1 << 20));
    let mount = disk.mount("mount", &["--seek-ms", "8"]);
    let program = "
import mmap, os, sys
folder = os.path.dirname(sys.argv[1])
for name in sorted(os.listdir(folder)):
    file = os.open(os.path.join(folder, name), os.O_RDONLY)
    mmap.mmap(file, 0, prot=mmap.PROT_READ)
";
    node.python(&[], program, &mount.path("0"));
    assert!(node.requests() >= 40);
    assert_eq!(node.count("left_alone"), Some(0));
}

/// A sparse file: it reads as zeros and takes no space.
fn sparse(disk: &SlowDisk, name: &str, bytes: u64) {
    File::create(disk.source().join(name))
        .and_then(|file| file.set_len(bytes))
        .expect("our own folder");
}

/// Whether the kernel can tell which pages of a file are in memory (`cachestat`, since Linux 6.5).
fn tells_what_is_in_memory() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc(5)");
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let tells = (numbers.next(), numbers.next()) >= (Some(6), Some(5));
    if !tells {
        eprintln!("SKIPPED: Linux {release} does not tell what it has in memory");
    }
    tells
}

#[test]
fn reads_from_memory_are_not_requested() {
    if !tells_what_is_in_memory() {
        return;
    }
    let node = Node::new();
    let file = node.home.write("file", vec![b'x'; 3 << 20]);
    let folder = file.parent().and_then(Path::to_str).expect("a plain name");
    let mut command = node.command(&["io", "run", "--here", "--path", folder, "--", "cksum"]);
    command.arg(&file);
    assert!(node.home.finish(command).exits(0).stdout.contains("3145728"));
    assert_eq!(node.count("requests"), Some(0));
    // The coordinator still answers programs that ask.
    let mut command =
        node.command(&["io", "run", "--here", "--always", "--path", folder, "--", "cksum"]);
    command.arg(&file);
    assert!(node.home.finish(command).exits(0).stdout.contains("3145728"));
    assert!(node.requests() > 0);
}
