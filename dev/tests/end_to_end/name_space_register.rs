//! One file that is written and read through several doors at the same time, while nodes are
//! killed.
//!
//! The model is a regular register. Every read returns one whole version: the last one that was
//! written before the read began, or one whose write was under way during the read. A door that
//! cannot read or write says so; a write that was not acknowledged may have happened at any time
//! since it began.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::dfs::joined;
use crate::support::{Cluster, MountedFiles, can_mount, signal, wait_until};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];
/// Lines of a version.
const LINES: usize = 3000;
/// Acknowledged writes through each door.
const WRITES: u32 = 5;
/// Tries of a door to write.
const TRIES: u32 = 20;

/// A way to read and write the file.
trait Door: Sync {
    /// Replaces the file by this version. Returns whether that was acknowledged.
    fn write(&self, cluster: &Cluster, version: u32) -> bool;

    /// The content of the file; `None` if the door could not read it.
    fn read(&self, cluster: &Cluster) -> Option<String>;
}

/// `eyas dfs`: a new file of several chunks takes the name of the file.
struct Dfs;

impl Door for Dfs {
    fn write(&self, cluster: &Cluster, version: u32) -> bool {
        let (local, name) = (format!("dfs-{version}"), format!("/new-{version}"));
        cluster.write(&local, content(version));
        cluster.run(&["dfs", "put", &local, &name, "--chunk-size", "4KiB"]).code == 0
            && cluster.run(&["dfs", "rename", "--force", &name, "/register"]).code == 0
    }

    fn read(&self, cluster: &Cluster) -> Option<String> {
        let read = cluster.run(&["dfs", "cat", "/register"]);
        (read.code == 0).then_some(read.stdout)
    }
}

/// A task that has the file as its output or input.
struct Tasks;

impl Door for Tasks {
    fn write(&self, cluster: &Cluster, version: u32) -> bool {
        let local = format!("task-{version}");
        cluster.write(&local, content(version));
        let output = "n=eyas:///register";
        cluster
            .run(&["run", "--array", "1-1", "-i", &local, "-o", output, "--", "cp", &local, "n"])
            .code
            == 0
    }

    fn read(&self, cluster: &Cluster) -> Option<String> {
        let read =
            cluster.run(&["run", "--sandbox", "-i", "eyas:///register", "--", "cat", "register"]);
        (read.code == 0).then_some(read.stdout)
    }
}

/// A program that replaces the file in a mount, or reads it in another one.
struct Mounts {
    writer: MountedFiles,
    reader: MountedFiles,
}

impl Door for Mounts {
    fn write(&self, _: &Cluster, version: u32) -> bool {
        let new = self.writer.path(&format!("mount-{version}"));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(content(version).as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&new, self.writer.path("register"))).is_ok()
    }

    fn read(&self, _: &Cluster) -> Option<String> {
        fs::read_to_string(self.reader.path("register")).ok()
    }
}

fn content(version: u32) -> String {
    format!("{version}\n").repeat(LINES)
}

/// A write or read of a version. Times are from the beginning of the test.
#[derive(Clone, Copy, Debug)]
struct Access {
    version: u32,
    begun: Instant,
    /// `None` for a write that was not acknowledged.
    ended: Option<Instant>,
}

impl Access {
    fn is_before(&self, other: &Access) -> bool {
        self.ended.is_some_and(|ended| ended < other.begun)
    }
}

/// What was written and read.
#[derive(Default)]
struct History {
    writes: Mutex<Vec<Access>>,
    reads: Mutex<Vec<Access>>,
    last: AtomicU32,
    acknowledged: AtomicU32,
    /// Doors that still write.
    writers: AtomicU32,
}

/// A door that writes, until this is dropped.
struct Writer<'a>(&'a History);

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl History {
    fn write(&self, cluster: &Cluster, door: &dyn Door) {
        let (_writer, mut acknowledged) = (Writer(self), 0);
        for _ in 0..TRIES {
            let (version, begun) = (self.last.fetch_add(1, Ordering::Relaxed) + 1, Instant::now());
            let ended = door.write(cluster, version).then(Instant::now);
            self.writes.lock().unwrap().push(Access { version, begun, ended });
            if ended.is_some() {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                acknowledged += 1;
            }
            if acknowledged == WRITES {
                return;
            }
        }
        panic!("only {acknowledged} of {TRIES} writes were acknowledged");
    }

    fn read(&self, cluster: &Cluster, door: &dyn Door) {
        let begun = Instant::now();
        let Some(read) = door.read(cluster) else { return };
        let ended = Some(Instant::now());
        let version = read.lines().next().and_then(|line| line.parse().ok()).expect("a version");
        assert!(read == content(version), "the content is no whole version");
        self.reads.lock().unwrap().push(Access { version, begun, ended });
    }

    /// Holds every read to the model.
    fn check(self) {
        let (writes, reads) = (self.writes.into_inner().unwrap(), self.reads.into_inner().unwrap());
        for read in &reads {
            let write = writes.iter().find(|write| write.version == read.version);
            let write = write.unwrap_or_else(|| panic!("{read:?} found what was never written"));
            assert!(!read.is_before(write), "{read:?} was before {write:?}");
            let later = writes.iter().find(|later| write.is_before(later) && later.is_before(read));
            assert!(later.is_none(), "{read:?} found {write:?}, which {later:?} had replaced");
        }
    }
}

#[test]
fn every_door_reads_a_version_that_was_current() {
    let mut cluster = Cluster::start(&[NODE; 5]);
    joined(&cluster, 5);
    let begin = |name| MountedFiles::begin(&cluster, name, &["--chunk-size", "4KiB"]);
    let mounts = can_mount().then(|| Mounts { writer: begin("writer"), reader: begin("reader") });
    let mut doors: Vec<&dyn Door> = vec![&Dfs, &Tasks];
    doors.extend(mounts.iter().map(|mounts| mounts as &dyn Door));
    let history = History::default();
    let first = Access { version: 1, begun: Instant::now(), ended: None };
    assert!(Dfs.write(&cluster, history.last.fetch_add(1, Ordering::Relaxed) + 1));
    history.writes.lock().unwrap().push(Access { ended: Some(Instant::now()), ..first });
    history.writers.store(doors.len() as u32, Ordering::Relaxed);
    let nodes = [4, 5].map(|number| cluster.executor(number).process());
    thread::scope(|scope| {
        let (cluster, history) = (&cluster, &history);
        let write = |door| scope.spawn(move || history.write(cluster, door));
        let writers: Vec<_> = doors.iter().copied().map(write).collect();
        let read = |door| {
            scope.spawn(move || {
                while history.writers.load(Ordering::Relaxed) > 0 {
                    history.read(cluster, door);
                }
            })
        };
        let readers: Vec<_> = doors.iter().copied().map(read).collect();
        for (place, node) in nodes.into_iter().enumerate() {
            let written = || history.acknowledged.load(Ordering::Relaxed) >= 3 * (place as u32 + 1);
            wait_until("some versions were written", written);
            signal(node, Signal::KILL);
        }
        for thread in writers {
            thread.join().expect("a door wrote");
        }
        for thread in readers {
            thread.join().expect("a door read");
        }
    });
    // At rest, all doors find the same version.
    for door in &doors {
        wait_until("the file can be read", || door.read(&cluster).is_some());
        let read = history.reads.lock().unwrap().len();
        history.read(&cluster, *door);
        assert_eq!(history.reads.lock().unwrap().len(), read + 1);
    }
    let reads: Vec<_> = history
        .reads
        .lock()
        .unwrap()
        .iter()
        .rev()
        .take(doors.len())
        .map(|read| read.version)
        .collect();
    assert!(reads.iter().all(|version| *version == reads[0]), "{reads:?}");
    history.check();
    for mount in mounts.into_iter().flat_map(|mounts| [mounts.writer, mounts.reader]) {
        mount.end();
    }
}

#[test]
#[should_panic(expected = "had replaced")]
fn a_read_of_a_version_that_was_replaced_is_found() {
    let began = Instant::now();
    let access = |version, begun, ended| {
        let moment = |seconds| began + Duration::from_secs(seconds);
        Access { version, begun: moment(begun), ended: Some(moment(ended)) }
    };
    let history = History::default();
    *history.writes.lock().unwrap() = vec![access(1, 0, 1), access(2, 2, 4)];
    // The second write is under way during this read.
    *history.reads.lock().unwrap() = vec![access(1, 1, 3)];
    history.reads.lock().unwrap().push(access(1, 5, 6));
    history.check();
}
