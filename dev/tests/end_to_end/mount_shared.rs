//! What programs of several mounts, and of mounts with other keys, may do with one file.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::dfs::cluster;
use crate::support::{MountedFiles, can_mount};

#[test]
fn programs_of_two_mounts_that_append_lose_no_line() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let mounts = ["one", "two"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    let open = |mount: &MountedFiles, name: &str| {
        OpenOptions::new().append(true).create(true).open(mount.path(name)).unwrap()
    };
    fs::write(mounts[0].path("old"), "before\n").unwrap();
    // A new file, and one that is there. Each program opens it before the other one has closed it.
    for (name, expected) in [("new", "one\ntwo\nthree\n"), ("old", "before\none\ntwo\nthree\n")] {
        let [mut one, mut two] = [&mounts[0], &mounts[1]].map(|mount| open(mount, name));
        one.write_all(b"one\n").unwrap();
        two.write_all(b"two\n").unwrap();
        one.sync_all().unwrap();
        two.sync_all().unwrap();
        // The first one goes on with a version that is no longer that of the cluster.
        one.write_all(b"three\n").unwrap();
        one.sync_all().unwrap();
        drop((one, two));
        assert_eq!(cluster.run(&["dfs", "cat", &format!("/{name}")]).stdout, expected);
        let seen = mounts.each_ref().map(|mount| fs::read_to_string(mount.path(name)).unwrap());
        assert_eq!(seen, [expected, expected]);
    }
    // A file that must be new is new in one of the mounts only.
    File::create_new(mounts[0].path("exclusive")).unwrap();
    let again = File::create_new(mounts[1].path("exclusive")).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_mount_whose_key_may_only_read_refuses_to_open_files_for_writing() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let key = cluster.path("read.toml").to_str().unwrap().to_owned();
    cluster.run(&["access", "show", "--role", "read", "-o", &key]).exits(0);
    cluster.write("file", "content");
    cluster.run(&["dfs", "put", "file", "/file"]).exits(0);
    let mount = MountedFiles::with_key(&cluster, "mnt", &key);
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "content");
    let refused = |opened: std::io::Result<File>| opened.unwrap_err().raw_os_error();
    let read_only = Some(Errno::ROFS.raw_os_error());
    assert_eq!(refused(File::create(mount.path("new"))), read_only);
    assert_eq!(refused(OpenOptions::new().append(true).open(mount.path("file"))), read_only);
    assert_eq!(fs::remove_file(mount.path("file")).unwrap_err().raw_os_error(), read_only);
    mount.end().says(&["role `read`"]);
}

#[test]
fn a_file_that_would_be_too_large_is_refused_at_once() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--chunk-size", "64KiB"]);
    // 65,536 chunks of 64 KiB are 4 GiB.
    let file = File::create(mount.path("file")).unwrap();
    let too_large = Some(Errno::FBIG.raw_os_error());
    assert_eq!(file.set_len((4 << 30) + 1).unwrap_err().raw_os_error(), too_large);
    let written = file.write_at(b"x", 4 << 30);
    assert_eq!(written.unwrap_err().raw_os_error(), too_large);
    file.set_len(10).unwrap();
    drop(file);
    assert_eq!(fs::metadata(mount.path("file")).unwrap().len(), 10);
}

#[test]
fn a_file_grows_while_other_programs_open_and_close_it() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let path = mount.path("file");
    let file = File::create(&path).unwrap();
    let is_grown = Arc::new(AtomicBool::new(false));
    let (ended, has_ended) = mpsc::channel();
    // Three, so that one closes the file at nearly any moment.
    for _ in 0..3 {
        let (path, is_grown, ended) = (path.clone(), Arc::clone(&is_grown), ended.clone());
        thread::spawn(move || {
            while !is_grown.load(Ordering::Relaxed) {
                drop(File::open(&path).unwrap());
            }
            ended.send(()).unwrap();
        });
    }
    thread::spawn(move || {
        for _ in 0..20 {
            // Each write enters another part of the file, for which the mount looks at its quota.
            for part in 1..=1000 {
                file.write_at(b"x", part << 20).unwrap();
            }
            file.set_len(0).unwrap();
        }
        is_grown.store(true, Ordering::Relaxed);
        ended.send(()).unwrap();
    });
    for _ in 0..4 {
        has_ended.recv_timeout(Duration::from_secs(120)).unwrap();
    }
    mount.end();
}
