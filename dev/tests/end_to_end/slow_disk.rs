//! The emulated slow disk: its times follow its model, and it behaves as a file system.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::fs::{FlockOperation, OFlags};

use crate::support::{CommandOutput, Home, SlowDisk, can_use, eyas, wait_until};

/// Bytes whose pieces all differ.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

fn read(file: &File, offset: u64, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    file.read_exact_at(&mut found, offset).expect("there is so much");
    found
}

#[test]
fn seeks_and_bytes_cost_what_they_should() {
    const BYTES: usize = 64 << 10;
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    let all = content(1 << 20);
    fs::write(disk.source().join("file"), &all).unwrap();
    fs::write(disk.source().join("other"), &all).unwrap();
    let options = ["--seek-ms", "5", "--megabytes-per-second", "100", "--uncached"];
    let nodes = [disk.mount("one", &options), disk.mount("two", &options)];
    let files = [nodes[0].path("file"), nodes[1].path("file"), nodes[1].path("other")]
        .map(|p| File::open(p).unwrap());

    let began = Instant::now();
    // File, offset, and seeks so far: a read that continues another one needs no seek, whichever
    // node sends it.
    let reads = [
        (0, 0, 1),
        (0, BYTES, 1),
        (1, 2 * BYTES, 1),
        (0, 8 * BYTES, 2),
        (0, 2 * BYTES, 3),
        (2, 3 * BYTES, 4),
    ];
    for (number, (file, place, seeks)) in reads.into_iter().enumerate() {
        assert_eq!(read(&files[file], place as u64, BYTES), all[place..place + BYTES]);
        assert_eq!(
            (disk.count("requests"), disk.count("seeks")),
            (number as u64 + 1, seeks),
            "{place}"
        );
    }
    let bytes = (reads.len() * BYTES) as u64;
    assert_eq!((disk.count("read_bytes"), disk.count("written_bytes")), (bytes, 0));
    let busy_us = disk.count("busy_us");
    assert_eq!(busy_us, 4 * 5000 + bytes / 100);
    // How much later the requests were answered depends on other work of the machine.
    assert!(began.elapsed().as_micros() as u64 >= busy_us);

    let file = File::options().write(true).open(nodes[0].path("file")).unwrap();
    file.write_all_at(b"changed", 0).unwrap();
    assert_eq!((disk.count("written_bytes"), disk.count("seeks")), (7, 5));
    assert_eq!(read(&files[1], 0, 7), b"changed");
}

#[test]
fn a_mount_reads_ahead_and_keeps_what_it_has_read() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    let all = content(4 << 20);
    fs::write(disk.source().join("file"), &all).unwrap();
    let [one, two] = ["one", "two"].map(|name| disk.mount(name, &["--seek-ms", "1"]));
    for _ in 0..2 {
        assert!(fs::read(one.path("file")).unwrap() == all);
        assert_eq!((disk.count("read_bytes"), disk.count("seeks")), (4 << 20, 1));
    }
    assert!(disk.count("requests") >= 4, "the kernel asks for a megabyte at most");
    assert!(fs::read(two.path("file")).unwrap() == all);
    assert_eq!(disk.count("read_bytes"), 8 << 20);
}

#[test]
fn a_server_remembers_what_any_node_has_read() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    let all = content(4 << 20);
    fs::write(disk.source().join("file"), &all).unwrap();
    let nodes = ["one", "two"]
        .map(|name| disk.mount(name, &["--seek-ms", "1", "--memory-megabytes", "64"]));
    for node in &nodes {
        assert!(fs::read(node.path("file")).unwrap() == all);
    }
    assert_eq!((disk.count("read_bytes"), disk.count("memory_bytes")), (4 << 20, 4 << 20));
}

#[test]
fn requests_queue_at_the_disk_and_hold_up_nothing_else() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    for name in ["0", "1", "2"] {
        fs::write(disk.source().join(name), content(4096)).unwrap();
    }
    // If one request had to wait for the other, the third would reach the disk after this test's
    // deadline.
    let mut node = disk.mount("one", &["--seek-ms", "20000"]);
    thread::scope(|scope| {
        let readers = ["0", "1", "2"].map(|name| {
            let path = node.path(name);
            scope.spawn(move || fs::read(path).is_ok())
        });
        wait_until("the disk knows of all", || disk.count("requests") == 3);
        assert_eq!(fs::metadata(node.path("1")).unwrap().len(), 4096);
        assert_eq!(disk.count("busy_us"), 3 * (20_000_000 + 27));
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        node.kill();
        assert!(
            readers.into_iter().all(|reader| !reader.join().unwrap()),
            "nobody is told that there is nothing"
        );
    });
}

#[test]
fn a_killed_mount_leaves_the_disk_to_the_others() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    fs::write(disk.source().join("file"), content(1 << 20)).unwrap();
    let (mut killed, other) =
        (disk.mount("one", &["--uncached"]), disk.mount("two", &["--uncached"]));
    let file = File::open(killed.path("file")).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            (0..).take_while(|at| file.read_at(&mut [0; 512], at % 2000 * 512).is_ok()).count()
        });
        wait_until("it is busy", || disk.count("requests") >= 3);
        killed.kill();
        assert!(reader.join().unwrap() > 0);
    });
    assert!(fs::read(other.path("file")).unwrap() == content(1 << 20));
}

#[test]
fn other_rates_for_the_same_disk_are_refused() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    let _mount = disk.mount("one", &["--iops", "100"]);
    let mut other = disk.command("two", &["--iops", "200"]);
    other.stdin(Stdio::null());
    home.finish(other).exits(1).says(&["another mount has given this disk other rates"]);
}

/// The disk's content, without times.
fn listing(folder: &Path) -> Vec<(String, u32, u64, u64)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let metadata = fs::symlink_metadata(entry.path()).unwrap();
            (
                entry.file_name().into_string().unwrap(),
                metadata.mode(),
                metadata.nlink(),
                metadata.len(),
            )
        })
        .collect();
    found.sort();
    found
}

#[test]
fn files_are_what_they_are_where_they_lie() {
    let home = Home::new();
    let Some(disk) = SlowDisk::new(&home) else { return };
    let node = disk.mount("one", &["--seek-ms", "0", "--megabytes-per-second", "0"]);
    let path = |name: &str| node.path(name);

    fs::write(path("file"), "some text").unwrap();
    File::options().append(true).open(path("file")).unwrap().write_all(b", and more").unwrap();
    fs::set_permissions(path("file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(path("file"), path("linked")).unwrap();
    symlink("file", path("pointer")).unwrap();
    assert_eq!(fs::read_link(path("pointer")).unwrap(), Path::new("file"));
    fs::create_dir(path("folder")).unwrap();
    fs::rename(path("linked"), path("folder/moved")).unwrap();
    assert_eq!(fs::read_to_string(path("folder/moved")).unwrap(), "some text, and more");
    assert_eq!(
        fs::remove_dir(path("folder")).unwrap_err().kind(),
        std::io::ErrorKind::DirectoryNotEmpty
    );

    let mut sparse = File::create(path("sparse")).unwrap();
    sparse.seek(SeekFrom::Start(5 << 30)).unwrap();
    sparse.write_all(b"end").unwrap();
    sparse.sync_all().unwrap();
    assert_eq!(read(&File::open(path("sparse")).unwrap(), (5 << 30) - 1, 4), b"\0end");
    File::options().write(true).open(path("sparse")).unwrap().set_len(10).unwrap();

    let removed =
        File::options().create_new(true).read(true).write(true).open(path("removed")).unwrap();
    fs::remove_file(path("removed")).unwrap();
    removed.write_all_at(b"still here", 0).unwrap();
    assert_eq!(read(&removed, 6, 4), b"here");

    let direct =
        rustix::fs::open(path("file"), OFlags::RDONLY | OFlags::DIRECT, rustix::fs::Mode::empty())
            .unwrap();
    assert_eq!(read(&direct.into(), 0, 9), b"some text");

    let [holder, other] = [(); 2].map(|()| File::open(path("file")).unwrap());
    rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
    assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());

    assert_eq!(listing(&node.path("")), listing(&disk.source()));
    assert_eq!(listing(&node.path("folder")), listing(&disk.source().join("folder")));
    assert_eq!(listing(&disk.source()).len(), 4);
}

/// Runs an experiment on a slow disk to its end, if this machine can.
fn experiment(home: &Home, name: &str, words: &[&str]) -> Option<CommandOutput> {
    let is_possible = SlowDisk::new(home).is_some();
    if !is_possible || !can_use(&["python3", "cc", "unshare", "setpriv", "chrt"]) {
        return None;
    }
    let mut experiment = Command::new("python3");
    experiment.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments").join(name));
    experiment.env("SLOW_DISK_BIN", env!("CARGO_BIN_EXE_slow-disk")).env("EYAS_BIN", eyas());
    Some(home.finish(home.command_of(experiment, words)).exits(0))
}

#[test]
fn the_experiment_on_it_runs_and_leaves_nothing() {
    let home = Home::new();
    let words = [
        "--tiny",
        "--experiment",
        "2",
        "--nodes",
        "2",
        "--peers",
        "plain,eyas,eyas wsjf",
        "--plots",
        "plots",
    ];
    let Some(done) = experiment(&home, "io_order.py", &words) else { return };
    for table in [
        "experiment 2, 2 nodes: one sequential reader",
        "MB/s",
        "longest wait of a request in eyas's queue",
    ] {
        assert!(done.stdout.contains(table), "{}", done.stdout);
    }
    assert!(home.read("plots/experiment-2-2-nodes.svg").contains("<polyline"));
}

#[test]
fn the_writers_experiment_on_it_runs() {
    let home = Home::new();
    let Some(done) = experiment(&home, "io_writes.py", &["--tiny"]) else { return };
    assert!(done.stdout.contains("one writer"), "{}", done.stdout);
}
