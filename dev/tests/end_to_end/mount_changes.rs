//! Changes of mounted files under difficult conditions: renamed folders, other mounts, locks and mappings, nodes that
//! are gone. What a program has closed or synced without an error is in the cluster.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::dfs::joined;
use crate::support::{Cluster, MountedFiles, can_mount, can_use, signal};

const NODE: &[&str] = &["--dfs", "--cache", "1GB"];

fn cluster(nodes: usize) -> Cluster {
    let cluster = Cluster::start(&vec![NODE; nodes]);
    joined(&cluster, nodes);
    cluster
}

fn cat(cluster: &Cluster, name: &str) -> String {
    let read = cluster.run(&["dfs", "cat", name]);
    assert_eq!(read.code, 0, "{}{}", read.stderr, cluster.run(&["dfs", "ls", "-lr"]).stdout);
    read.stdout
}

#[test]
fn open_files_of_a_renamed_folder_keep_their_changes() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/old"), "0123456789").unwrap();
    let old = File::options().read(true).write(true).open(mount.path("d/old")).unwrap();
    let mut new = File::create(mount.path("d/new")).unwrap();
    old.write_all_at(b"AB", 0).unwrap();
    new.write_all(b"new").unwrap();
    fs::rename(mount.path("d"), mount.path("e")).unwrap();
    old.write_all_at(b"CD", 2).unwrap();
    old.sync_all().unwrap();
    drop((old, new));
    assert_eq!(cat(&cluster, "/e/old"), "ABCD456789");
    assert_eq!(cat(&cluster, "/e/new"), "new");
    assert!(!mount.path("d").exists());
    mount.end();
}

#[test]
fn a_change_of_attributes_does_not_hide_that_another_mount_has_changed_the_file() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let [one, two] = ["one", "two"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    fs::write(one.path("f"), "0123456789").unwrap();
    let script = r#"
import errno, os
file = open('f', 'r+b', buffering=0)
file.write(b'A')
with open('../two/f', 'w') as other:
    other.write('other')
os.utime(file.fileno(), (0, 0))
try:
    os.fsync(file.fileno())
    raise SystemExit('the change was accepted')
except OSError as e:
    assert e.errno == errno.ESTALE"#;
    one.python(script).exits(0);
    assert_eq!(cat(&cluster, "/f"), "other");
    // What is appended is appended to what there is, whatever this mount has seen.
    assert_eq!(fs::metadata(one.path("f")).unwrap().len(), 5);
    let append = |mount: &MountedFiles, text: &str| {
        File::options().append(true).open(mount.path("f")).unwrap().write_all(text.as_bytes()).unwrap();
    };
    append(&two, "+two");
    append(&one, "+one");
    assert_eq!(cat(&cluster, "/f"), "other+two+one");
    assert_eq!(fs::read_to_string(one.path("f")).unwrap(), "other+two+one");
    // One of two mounts creates a file that must be new.
    let create = |mount: &MountedFiles| File::options().write(true).create_new(true).open(mount.path("lock"));
    let lock = create(&one).unwrap();
    assert_eq!(create(&two).unwrap_err().raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    drop(lock);
    one.end();
    two.end();
}

#[test]
fn locks_mappings_and_extended_attributes_work() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--chunk-size", "64KiB"]);
    let script = r#"python3 - <<'END'
import errno, fcntl, json, mmap, os
with open('m', 'w+b') as f:
    f.truncate(100_000)
    m = mmap.mmap(f.fileno(), 100_000)
    m[70_000:70_005] = b'hello'
    m.flush()
    os.fsync(f.fileno())
    m.close()
assert open('m', 'rb').read()[69_999:70_006] == b'\0hello\0'
assert json.loads(os.getxattr('m', 'user.eyas.chunks')) == [65536, 34464]
assert all(len(nodes) == 2 for nodes in json.loads(os.getxattr('m', 'user.eyas.replicas')))
assert os.getxattr('m', 'user.eyas.format') == b'fixed:1'
assert len(os.listxattr('m')) == 3
try:
    os.setxattr('m', 'user.other', b'x')
    raise SystemExit('it was set')
except OSError as e:
    assert e.errno == errno.ENOTSUP
f = open('m', 'r+b')
fcntl.lockf(f, fcntl.LOCK_EX)
g = open('m', 'r+b')
fcntl.flock(g, fcntl.LOCK_EX)
if os.fork() == 0:
    for lock in (fcntl.lockf, fcntl.flock):
        try:
            lock(open('m', 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os._exit(1)
        except BlockingIOError:
            pass
    os._exit(0)
assert os.wait()[1] == 0
os.posix_fallocate(f.fileno(), 0, 200_000)
assert os.stat('m').st_size == 200_000
assert os.statvfs('.').f_bavail > 0
END"#;
    mount.shell(script).exits(0);
    mount.end();
}

#[test]
fn without_a_quorum_calls_fail_after_the_deadline_and_the_log_says_why() {
    if !can_mount() {
        return;
    }
    let mut cluster = cluster(3);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--timeout", "2s"]);
    fs::write(mount.path("f"), "text").unwrap();
    for node in [1, 2] {
        cluster.executor(node).kill();
    }
    let failed = fs::write(mount.path("g"), "text").and_then(|()| File::open(mount.path("g"))?.sync_all());
    assert_eq!(failed.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    let said = mount.end().stderr;
    assert!(said.contains("failed with error 5"), "{said}");
}

#[test]
fn the_mount_outlives_the_dispatcher_and_a_node() {
    if !can_mount() {
        return;
    }
    let mut cluster = cluster(3);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    fs::write(mount.path("f"), "text").unwrap();
    signal(cluster.dispatcher(), Signal::STOP);
    cluster.executor(1).kill();
    fs::write(mount.path("g"), "more").unwrap();
    let mut read = String::new();
    let mut file = File::open(mount.path("f")).unwrap();
    file.read_to_string(&mut read).unwrap();
    assert_eq!((read.as_str(), fs::read_to_string(mount.path("g")).unwrap().as_str()), ("text", "more"));
    drop(file);
    signal(cluster.dispatcher(), Signal::CONT);
    mount.end();
}
