//! Power cuts. A process runs three nodes, whose folders are on one small disk, and clients that
//! write to them. Now and then it is frozen, and the disk is copied as it is: what the kernel has
//! only in memory is not in the copy. Nodes that start on the copy must have each file as it was
//! when it was last forced to the disks, or as it was written since; never a name that leads to
//! nothing.
//!
//! The disk is an image with a file system of its own, so this needs root, loop devices and
//! `mkfs.ext4`. `cargo test` cuts the power a few times, and `make soak` a thousand times
//! (`EYAS_POWER_CUTS`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Cursor, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice;
use std::time::{Duration, Instant};

use eyas_faults::Dice;
use eyas_files::{
    Change, ContentSource, DfsClient, FilesError, FilesErrorKind, NewContent, NewFile,
    RenameOptions, SentRecords, WriteOptions, new_file_id,
};
use eyas_store::Checksum;
use eyas_types::dfs::Format;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, DEADLINE, SMALL, name};

/// Deadline of the first list. With less than a tenth of a processor, nodes in a debug build lose
/// their leases again and again, and answer only when they get more.
const STARVED_DEADLINE: Duration = Duration::from_secs(600);

/// Number of power cuts without `EYAS_POWER_CUTS`.
const CUTS: usize = 3;
/// Number of cuts that are looked at together.
const TOGETHER: usize = 6;
const NODES: usize = 3;
const DISK_BYTES: u64 = 256 << 20;
/// Content has up to this size: small chunks, and larger ones.
const MAX_BYTES: u64 = 300 << 10;
const CHUNK_BYTES: u64 = 128 << 10;
const FOLDER: &str = "EYAS_POWER_FOLDER";
const LOG: &str = "EYAS_POWER_LOG";

/// A disk that is mounted until it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(image: &Path, folder: &Path) -> Option<Disk> {
        fs::create_dir_all(folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).args([image, folder]).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then(|| Disk(folder.to_owned()))
    }

    /// The counters of the disk's device: written requests and those under way.
    fn written(&self) -> (u64, u64) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let at = |line: &&str| line.split(' ').nth(1) == self.0.to_str();
        let device =
            mounts.lines().find(at).and_then(|line| line.split(' ').next()).expect("it is mounted");
        let device = device.trim_start_matches("/dev/");
        let stat = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
        let numbers: Vec<u64> =
            stat.split_whitespace().map(|number| number.parse().unwrap()).collect();
        (numbers[4], numbers[8])
    }

    /// Copies the image while nothing is being written to it.
    fn copy(&self, image: &Path, to: &Path) {
        loop {
            let before = self.written();
            let copied = Command::new("cp").args(["--sparse=always"]).args([image, to]).status();
            assert!(copied.unwrap().success(), "the image is copied");
            if before.1 == 0 && self.written() == before {
                return;
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        let unmount = || Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
        // Threads of nodes that have ended close their files soon.
        while !unmount().is_ok_and(|status| status.success()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The states that a name may have after a power cut: checksums of contents; `None` if there may be
/// no file.
type PermittedStates = BTreeMap<String, Vec<Option<u64>>>;

/// What the log of the clients permits. A line `begin` comes before a change, and `synced` after
/// the content is on the disks.
fn permitted(log: &str) -> PermittedStates {
    let mut may = PermittedStates::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // The last line may be incomplete.
        let [what, name, checksum, "."] = words[..] else { continue };
        let state = u64::from_str_radix(checksum, 16).ok();
        let states = may.entry(name.to_owned()).or_insert_with(|| vec![None]);
        match what {
            "begin" => states.push(state),
            _ => {
                let place = states.iter().rposition(|known| *known == state).expect("it was begun");
                states.drain(..place);
            }
        }
    }
    may
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_on_the_disks_survive_power_cuts() {
    let cuts =
        std::env::var("EYAS_POWER_CUTS").map_or(CUTS, |cuts| cuts.parse().expect("a number"));
    let scratch = tempfile::tempdir().unwrap();
    let (image, folder, log) =
        (scratch.path().join("disk"), scratch.path().join("live"), scratch.path().join("log"));
    File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).stderr(Stdio::null()).status();
    let Some(disk) = made.ok().and_then(|_| Disk::mount(&image, &folder)) else {
        assert!(std::env::var_os("CI").is_none(), "this user cannot mount the image of a disk");
        return eprintln!("SKIPPED: this user cannot mount the image of a disk");
    };
    fs::write(&log, "").unwrap();
    let mut clients = Command::new(std::env::current_exe().unwrap());
    clients
        .args(["--exact", "power::clients_write", "--ignored", "--nocapture"])
        .env(FOLDER, &folder)
        .env(LOG, &log);
    let clients = ScopedChild(clients.stdout(Stdio::null()).spawn().unwrap());
    crate::cluster::eventually("files are written", async || {
        fs::read_to_string(&log).unwrap().lines().count() > 20
    })
    .await;
    let mut dice = Dice::new(cuts as u64);
    let (mut looking, mut begun) = (tokio::task::JoinSet::new(), 0);
    while begun < cuts || !looking.is_empty() {
        if begun < cuts && looking.len() < TOGETHER {
            tokio::time::sleep(Duration::from_micros(dice.below(700_000))).await;
            let (copy, at) = (
                scratch.path().join(format!("cut-{begun}")),
                scratch.path().join(format!("at-{begun}")),
            );
            clients.signal(Signal::STOP);
            disk.copy(&image, &copy);
            let may = permitted(&fs::read_to_string(&log).unwrap());
            clients.signal(Signal::CONT);
            let number = begun;
            begun += 1;
            looking.spawn_blocking(move || {
                Handle::current().block_on(look(number, &copy, &at, may));
                fs::remove_file(copy).unwrap();
            });
            continue;
        }
        if let Err(why) = looking.join_next().await.expect("one is under way") {
            drop(clients);
            let kept = scratch.keep();
            panic!("{why}; the copies of the disk are in {}", kept.display());
        }
    }
    drop(clients);
}

/// Starts nodes on the copy of a disk that a failed test has kept, `EYAS_POWER_IMAGE`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "it looks at a copy that was kept"]
async fn a_kept_copy_is_readable() {
    let image = PathBuf::from(std::env::var_os("EYAS_POWER_IMAGE").expect("EYAS_POWER_IMAGE"));
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::mount(&image, folder.path()).expect("the copy is mounted");
    let cluster = Cluster::at(&folders(folder.path())).await;
    let found = listed(&cluster.files().await).await;
    drop((cluster, disk));
    println!("{} files", found.unwrap().len());
}

/// Starts nodes on the copy of a disk, and compares all files with what they may be.
async fn look(number: usize, image: &Path, folder: &Path, may: PermittedStates) {
    let disk = Disk::mount(image, folder).expect("the copy is mounted");
    let cluster = Cluster::at(&folders(folder)).await;
    let files = cluster.files().await;
    let listed = listed(&files)
        .await
        .unwrap_or_else(|why| panic!("cut {number}: the folder is never readable: {why}"));
    let mut found = 0;
    for (file, states) in &may {
        if !listed.contains(file) {
            assert!(states.contains(&None), "cut {number}: {file} is missing, not of {states:x?}");
            continue;
        }
        let (deadline, mut wrong) = (Instant::now() + DEADLINE, String::new());
        loop {
            let state = match state_of(&files, file).await {
                Ok(state) => state,
                Err(why) if Instant::now() < deadline => {
                    wrong = why;
                    continue;
                }
                Err(why) => {
                    panic!("cut {number}: {file} is never readable: {why}, before: {wrong}")
                }
            };
            assert!(
                states.contains(&state),
                "cut {number}: {file} is {state:x?}, not of {states:x?}"
            );
            found += usize::from(state.is_some());
            break;
        }
    }
    assert!(found > 0, "cut {number}: there are files");
    drop(files);
    drop(cluster);
    drop(disk);
}

/// The names of all files, once the nodes know them. Most files of the clients are gone, and asking
/// for each would take longer than all else.
async fn listed(files: &DfsClient) -> Result<BTreeSet<String>, FilesError> {
    let deadline = Instant::now() + STARVED_DEADLINE;
    loop {
        match files.list("/").await {
            Ok(found) => {
                return Ok(found.into_iter().map(|listing| listing.name.to_string()).collect());
            }
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => {}
        }
    }
}

/// The checksum of a file's content; `None` if there is no file.
async fn state_of(files: &DfsClient, file: &str) -> Result<Option<u64>, String> {
    let found = match files.stat(&name(file)).await {
        Ok(found) => found,
        Err(error) if error.kind == FilesErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let content = files
        .read_at(&found, 0, found.record.size_bytes())
        .await
        .map_err(|error| error.to_string())?;
    Ok(Some(Checksum::of(&content).0))
}

fn folders(disk: &Path) -> Vec<PathBuf> {
    (0..NODES).map(|node| disk.join(node.to_string())).collect()
}

/// A process that is killed when it is dropped.
struct ScopedChild(Child);

impl ScopedChild {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
        let stat = format!("/proc/{}/stat", self.0.id());
        let is_frozen = || {
            let stat = fs::read_to_string(&stat).unwrap();
            assert!(!stat.contains(") Z "), "the process that writes has ended; above is why");
            stat.contains(") T ")
        };
        while signal == Signal::STOP && !is_frozen() {
            std::thread::yield_now();
        }
    }
}

impl Drop for ScopedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A content in memory.
struct Content(Vec<u8>);

impl NewContent for Content {
    fn reader(&self, range: Range<u64>) -> Box<dyn ContentSource> {
        Box::new(Cursor::new(self.read_local(range).expect("all of it is here")))
    }

    fn read_local(&self, range: Range<u64>) -> Option<Vec<u8>> {
        Some(self.0[range.start as usize..range.end as usize].to_vec())
    }
}

/// A client that changes files as programs of a mount do.
struct Writer {
    files: DfsClient,
    log: File,
    dice: Dice,
    /// The name of the file, and its content.
    name: String,
    content: Option<Vec<u8>>,
}

impl Writer {
    fn say(&mut self, what: &str, name: &str, content: Option<&[u8]>) {
        let state =
            content.map_or("-".to_owned(), |content| format!("{:x}", Checksum::of(content).0));
        self.log.write_all(format!("{what} {name} {state} .\n").as_bytes()).unwrap();
    }

    /// Changes the file in a way, and perhaps waits until the change is on the disks.
    async fn write(&mut self) {
        let before = self.content.clone();
        let old = before.clone().unwrap_or_default();
        let (mut new, size) = (old.clone(), old.len());
        let mut changed = 0..0;
        let more: Vec<u8> =
            (0..self.dice.below(MAX_BYTES / 3)).map(|_| self.dice.next_u64() as u8).collect();
        match self.dice.below(4) {
            0 if size > 10 => {
                let at = self.dice.below(size as u64 - 9) as usize;
                new[at..at + 8].copy_from_slice(&self.dice.next_u64().to_le_bytes());
                changed = at as u64..at as u64 + 8;
            }
            1 if size > 1 => new.truncate(size - 1),
            2 => {
                new = more;
                changed = 0..new.len() as u64;
            }
            _ if size as u64 > MAX_BYTES => new.truncate(1),
            _ => new.extend(more),
        }
        let is_durable = self.dice.chance(300);
        let name_of = self.name.clone();
        self.say("begin", &name_of, Some(&new));
        let change = Change {
            content: &Content(new.clone()),
            size_bytes: new.len() as u64,
            changed: slice::from_ref(&changed),
            modified_ns: 1,
            changed_ns: 1,
            is_durable,
            format: None,
        };
        let options =
            WriteOptions { chunk_bytes: CHUNK_BYTES, format: Format::BYTES.into(), ..SMALL };
        let written = match before {
            Some(_) => {
                let present = self.files.stat(&name(&name_of)).await.unwrap();
                self.files.rewrite(&present, change, None, &SentRecords::default()).await
            }
            None => {
                let id = new_file_id().unwrap();
                self.files
                    .write_with_id(&name(&name_of), NewFile::of(id), change, None, options, false)
                    .await
            }
        };
        let written = written.unwrap();
        self.content = Some(new.clone());
        if is_durable || self.dice.chance(200) {
            let all = written.record.chunks.iter().map(|chunk| chunk.object).collect();
            self.files.make_durable(&written, &all).await.unwrap();
            self.say("synced", &name_of, Some(&new));
        }
    }

    /// Writes a new file, and gives it the name of this one.
    async fn replace(&mut self) {
        let (target, content) = (self.name.clone(), self.content.take());
        self.name = format!("{target}.{:x}", self.dice.next_u64());
        self.write().await;
        let new = self.content.clone();
        let from = std::mem::replace(&mut self.name, target.clone());
        self.say("begin", &target, new.as_deref());
        self.say("begin", &from, None);
        let options = RenameOptions { replaces: true, makes_parents: false, keeps_format: false };
        self.files.rename(&name(&from), &name(&target), options).await.unwrap();
        self.say("synced", &from, None);
        drop(content);
    }

    async fn remove(&mut self) {
        let target = self.name.clone();
        self.say("begin", &target, None);
        self.files.remove(&name(&target)).await.unwrap();
        self.content = None;
        self.say("synced", &target, None);
    }
}

/// The process that is frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "the test of power cuts starts it"]
async fn clients_write() {
    let (Ok(folder), Ok(log)) = (std::env::var(FOLDER), std::env::var(LOG)) else { return };
    let cluster = Cluster::at(&folders(Path::new(&folder))).await;
    let mut writing = tokio::task::JoinSet::new();
    for number in 0..5 {
        let log = OpenOptions::new().append(true).open(&log).unwrap();
        let (files, dice) = (cluster.files().await, Dice::new(number));
        let mut writer = Writer { files, log, dice, name: format!("/{number}"), content: None };
        writing.spawn(async move {
            loop {
                match writer.dice.below(10) {
                    0 if writer.content.is_some() => writer.remove().await,
                    1 | 2 => writer.replace().await,
                    _ => writer.write().await,
                }
                tokio::time::sleep(Duration::from_millis(writer.dice.below(300))).await;
            }
        });
    }
    // It ends when it is killed, or when a client cannot go on.
    writing.join_next().await.expect("there are clients").unwrap();
}
