//! The mount: programs read and write the cluster's files, and other clients see what they have
//! closed or synced.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};

use crate::dfs::cluster;
use crate::support::{MountedFiles, can_mount, can_use, wait_until};

/// Bytes whose pieces all differ.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

#[test]
fn closed_and_synced_files_are_in_the_cluster() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let [mount, other] = ["mnt", "other"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    // Put by another client, read by a program.
    cluster.write("a.csv", "x,y\n1,2\n");
    cluster.run(&["dfs", "put", "a.csv", "/data/a.csv"]).exits(0);
    assert_eq!(fs::read_to_string(mount.path("data/a.csv")).unwrap(), "x,y\n1,2\n");
    // Written by a program, read by another client. An open file appears when it is synced.
    let script = r#"
import os
file = open('data/b.txt', 'wb', buffering=0)
file.write(b'one\n')
assert os.path.exists('data/b.txt') and not os.path.exists('../other/data/b.txt')
os.fsync(file.fileno())
assert open('../other/data/b.txt').read() == 'one\n'
file.write(b'two\n')
assert open('../other/data/b.txt').read() == 'one\n'
file.close()
assert open('../other/data/b.txt').read() == 'one\ntwo\n'"#;
    mount.python(script).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/data/b.txt"]).exits(0).stdout, "one\ntwo\n");
    let mut names: Vec<_> =
        fs::read_dir(mount.path("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.csv", "b.txt"]);
    mount.end();
    other.end();
}

#[test]
fn parts_of_files_are_changed() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--chunk-size", "64KiB"]);
    let (path, mut model) = (mount.path("data"), content(1 << 20));
    fs::write(&path, &model).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for (offset, length) in [(10, 5), (65_530, 20), (700_000, 100_000), (1_048_570, 20)] {
        let part: Vec<u8> = content(length).iter().map(|byte| !byte).collect();
        file.write_all_at(&part, offset as u64).unwrap();
        model.resize(model.len().max(offset + part.len()), 0);
        model[offset..offset + part.len()].copy_from_slice(&part);
    }
    assert!(fs::read(&path).unwrap() == model, "other programs of the mount see it at once");
    file.set_len(900_000).unwrap();
    model.truncate(900_000);
    file.set_len(900_100).unwrap();
    model.resize(900_100, 0);
    drop(file);
    assert!(fs::read(&path).unwrap() == model);
    cluster.run(&["dfs", "get", "/data", "copy"]).exits(0);
    assert!(fs::read(cluster.work().join("copy")).unwrap() == model);
    let mut appended = File::options().append(true).open(&path).unwrap();
    appended.write_all(b"end").unwrap();
    drop(appended);
    model.extend(b"end");
    let mut file = File::open(&path).unwrap();
    assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 900_100);
    let mut end = String::new();
    file.read_to_string(&mut end).unwrap();
    assert_eq!(end, "end");
    cluster.run(&["dfs", "get", "--force", "/data", "copy"]).exits(0);
    assert!(fs::read(cluster.work().join("copy")).unwrap() == model);
    mount.end();
}

#[test]
fn removed_files_are_readable_while_they_are_open() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let model = content(300_000);
    fs::write(mount.path("one"), &model).unwrap();
    fs::write(mount.path("two"), "other").unwrap();
    let mut file = File::open(mount.path("one")).unwrap();
    fs::remove_file(mount.path("one")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    cluster.run(&["dfs", "cat", "/one"]).exits(1);
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == model);
    drop(file);
    let mut file = File::open(mount.path("two")).unwrap();
    fs::write(mount.path("new"), "new").unwrap();
    fs::rename(mount.path("new"), mount.path("two")).unwrap();
    let mut read = String::new();
    file.read_to_string(&mut read).unwrap();
    assert_eq!(read, "other");
    assert_eq!(fs::read_to_string(mount.path("two")).unwrap(), "new");
    drop(file);
    mount.end();
}

#[test]
fn folders_links_and_attributes_are_those_of_the_cluster() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let [one, two] = ["one", "two"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    let script = "mkdir -p a/b && echo text > a/b/f && ln -s b/f a/link && cat a/link && chmod \
                  640 a/b/f
        touch -d 2001-02-03T04:05:06.789Z a/b/f && mv a/b a/c && ls a && stat -c '%a %Y %s' a/c/f
        ! rmdir a 2> /dev/null && ! ln a/c/f hard 2> /dev/null && df . > /dev/null";
    assert_eq!(one.shell(script).exits(0).stdout, "text\nc\nlink\n640 981173106 5\n");
    // Another mount, which has not seen the names before, has the same.
    let script = "readlink a/link && stat -c '%a %.9Y' a/c/f && cat a/c/f && rm -r a && ls | wc -l";
    assert_eq!(two.shell(script).exits(0).stdout, "b/f\n640 981173106.789000000\ntext\n0\n");
    let long = "x".repeat(255);
    for name in ["a b", "line\nline", "\u{fc}\u{1f98a}", long.as_str()] {
        fs::write(one.path(name), name).unwrap();
        assert_eq!(fs::read_to_string(two.path(name)).unwrap(), name);
        fs::remove_file(two.path(name)).unwrap();
    }
    let too_long = fs::write(one.path(&"x".repeat(256)), "").unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
    one.end();
    two.end();
}

#[test]
fn the_later_of_two_mounts_that_change_a_file_fails_or_replaces_it() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let [one, two] = ["one", "two"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    fs::write(one.path("f"), "0123456789").unwrap();
    let script = r#"
import errno, os
first, second = open('f', 'r+b', buffering=0), open('../two/f', 'r+b', buffering=0)
first.write(b'AAA')
second.write(b'BB')
os.fsync(first.fileno())
try:
    os.fsync(second.fileno())
    raise SystemExit('the later change was accepted')
except OSError as e:
    assert e.errno == errno.ESTALE
second.close()
assert open('../two/f').read() == 'AAA3456789'
# The whole content is new: the last one wins.
third = open('../two/f', 'wb', buffering=0)
third.write(b'new')
first.write(b'C')
os.fsync(first.fileno())
os.fsync(third.fileno())"#;
    one.python(script).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/f"]).exits(0).stdout, "new");
    two.end();
    one.end();
}

#[test]
fn chunks_of_this_machine_are_read_from_the_files_of_their_nodes() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let content = content(24 << 20);
    fs::write(cluster.work().join("large"), &content).unwrap();
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    // Bytes that the mount has read from files. Linux does not count what `recv` reads, so what
    // nodes send is not among them.
    let read_from_files = || -> u64 {
        let counts = fs::read_to_string(format!("/proc/{}/io", mount.process())).unwrap();
        let line = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        line.parse().unwrap()
    };
    cluster.run(&["dfs", "put", "large", "/large"]).exits(0);
    let before = read_from_files();
    assert!(fs::read(mount.path("large")).unwrap() == content);
    let read = read_from_files() - before;
    assert!(read >= content.len() as u64, "{read} bytes of {} are from files", content.len());
    cluster.run(&["dfs", "get", "/large", "got"]).exits(0);
    assert!(fs::read(cluster.work().join("got")).unwrap() == content);
    // Parts in any order, of chunks that were not read before.
    cluster.run(&["dfs", "put", "large", "/other"]).exits(0);
    let file = File::open(mount.path("other")).unwrap();
    let mut part = vec![0; 5000];
    for number in 0..200_usize {
        let offset = (number * 7_654_321) % (content.len() - part.len());
        file.read_exact_at(&mut part, offset as u64).unwrap();
        assert!(part == content[offset..offset + part.len()], "{offset}");
    }
    mount.end();
}

#[test]
fn a_killed_mount_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    fs::write(mount.path("whole"), "whole").unwrap();
    let process = mount.process();
    let script = format!(
        "import os; f = open('open', 'wb', buffering=0); f.write(b'part'); os.kill({process}, 9)"
    );
    mount.python(&script);
    mount.kill();
    cluster.run(&["dfs", "cat", "/open"]).exits(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    assert_eq!(fs::read_to_string(mount.path("whole")).unwrap(), "whole");
    // A mount that ends in good order publishes what programs have written.
    let mut open = File::create(mount.path("open")).unwrap();
    open.write_all(b"part").unwrap();
    mount.end();
    assert_eq!(cluster.run(&["dfs", "cat", "/open"]).exits(0).stdout, "part");
}

#[test]
fn a_mount_point_that_cannot_be_used_is_refused() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let file = cluster.write("file", "");
    cluster.run(&["mount", "missing"]).exits(1).says(&["cannot mount on missing", "No such file"]);
    cluster.run(&["mount", file.to_str().unwrap()]).exits(1).says(&["it is not a folder"]);
    fs::create_dir(cluster.work().join("folder")).unwrap();
    cluster
        .run(&["mount", "folder", "--scratch", "/missing"])
        .exits(1)
        .says(&["scratch folder /missing", "--scratch"]);
}

#[test]
fn a_mount_in_the_background_writes_its_log_in_eyas_own_folder() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let access = cluster.write("user/lab.toml", cluster.read("../home/clusters/test/access.toml"));
    fs::set_permissions(&access, fs::Permissions::from_mode(0o600)).unwrap();
    let place = cluster.work().join("mnt");
    fs::create_dir(&place).unwrap();
    let words =
        ["--access", access.to_str().unwrap(), "mount", "--detach", place.to_str().unwrap()];
    let log = cluster.path("home/clients.log");
    cluster.eyas(&words).exits(0).says(&["mounted on", &format!("log: {}", log.display())]);
    assert!(log.exists());
    assert_eq!(cluster.names("user"), ["lab.toml"]);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).unwrap();
    wait_until("only the cluster runs", || {
        !cluster.processes().iter().any(|(_, line)| line.contains("mount"))
    });
}

#[test]
fn a_busy_mount_point_stays_mounted() {
    if !can_mount() || !can_use(&["umount"]) {
        return;
    }
    let cluster = cluster(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let place = mount.path("");
    cluster
        .run(&["mount", place.to_str().unwrap()])
        .exits(1)
        .says(&["mounted there already", "Unmount them first"]);
    // The folder in which the shell runs is in use.
    assert_eq!(
        mount.shell("! umount \"$PWD\" 2> /dev/null; echo text > file; cat file").exits(0).stdout,
        "text\n"
    );
    mount.end();
}

#[test]
fn unmounting_ends_the_process() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(1);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    fs::write(mount.path("whole"), "whole").unwrap();
    rustix::mount::unmount(mount.path(""), rustix::mount::UnmountFlags::empty()).unwrap();
    wait_until("only the cluster runs", || {
        !cluster.processes().iter().any(|(_, line)| line.contains("mount"))
    });
}

#[test]
fn git_and_sqlite_work() {
    if !can_mount() || !can_use(&["git", "sqlite3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let git = "git init -q r && cd r && git config user.email a@b && git config user.name a
        for i in $(seq 20); do echo $i > f$i; done
        git add . && git commit -qm one && git mv f1 g1 && git commit -qm two && git fsck --strict
        git clone -q . ../copy && cd ../copy && git log --oneline | wc -l && ls | wc -l";
    assert_eq!(mount.shell(git).exits(0).stdout, "2\n20\n");
    let sqlite = "sqlite3 t.db 'create table t(a); insert into t values(1),(2); update t set a = \
                  5 where a = 1'
        for i in 1 2 3; do sqlite3 t.db \"insert into t values($i)\"; done
        sqlite3 t.db 'pragma integrity_check; select sum(a) from t'";
    assert_eq!(mount.shell(sqlite).exits(0).stdout, "ok\n13\n");
    mount.end();
}
