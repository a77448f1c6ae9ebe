//! Changes of mounted files under difficult conditions: renamed folders, other mounts, locks and
//! mappings, nodes that are gone. If a program has closed or synced a file without an error, the
//! content is in the cluster.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::dfs::cluster;
use crate::support::{Cluster, MountedFiles, can_mount, can_use, signal, wait_until};

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
        File::options()
            .append(true)
            .open(mount.path("f"))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    };
    append(&two, "+two");
    append(&one, "+one");
    assert_eq!(cat(&cluster, "/f"), "other+two+one");
    assert_eq!(fs::read_to_string(one.path("f")).unwrap(), "other+two+one");
    // One of two mounts creates a file that must be new.
    let create = |mount: &MountedFiles| {
        File::options().write(true).create_new(true).open(mount.path("lock"))
    };
    let lock = create(&one).unwrap();
    assert_eq!(create(&two).unwrap_err().raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    drop(lock);
    one.end();
    two.end();
}

#[test]
fn a_change_of_attributes_keeps_the_time_of_the_last_write() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let [one, two] = ["one", "two"].map(|name| MountedFiles::begin(&cluster, name, &[]));
    // The cluster has times of 2001; the writes of now are not published when attributes change.
    let script = r#"
import os
OLD = 10**18
changes = {
    'mode': lambda entry: os.chmod(entry, 0o700),
    'owner': lambda entry: os.chown(entry, os.geteuid(), os.getegid()),
    'named': lambda entry: os.setxattr(entry, 'user.a', b'x'),
}
def written(name, entry, change):
    before = os.stat(entry).st_mtime_ns
    assert before > OLD, name
    change(entry)
    assert os.stat(entry).st_mtime_ns == before, name
    return before
for name, change in changes.items():
    with open(name, 'w') as file:
        file.write('one')
    os.utime(name, ns=(OLD, OLD))
    with open(name, 'r+b', buffering=0) as file:
        file.write(b'two')
        time = written(name, file.fileno(), change)
    assert os.stat(name).st_mtime_ns == time, name
    print(name, time)
    folder = name + '-folder'
    os.mkdir(folder)
    os.utime(folder, ns=(OLD, OLD))
    open(folder + '/entry', 'w').close()
    time = written(folder, folder, change)
    os.rename(folder, 'moved')
    assert os.stat('moved').st_mtime_ns == time, folder
    os.rename('moved', folder)
with open('set', 'wb', buffering=0) as file:
    file.write(b'one')
    os.utime(file.fileno(), ns=(OLD, OLD))
    os.fchmod(file.fileno(), 0o600)
print('set', OLD)"#;
    let times = one.python(script).exits(0).stdout;
    let check = "import os, sys\nfor line in sys.argv[1].splitlines():\n    name, time = \
                 line.split()\n    assert os.stat(name).st_mtime_ns == int(time), line";
    two.shell(&format!("python3 -c '{check}' '{times}'")).exits(0);
    one.end();
    two.end();
}

#[test]
fn holes_take_no_space_anywhere() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    // 8 GB, of which a few bytes are written: through the mount, by `put`, and back. A program that
    // has the file open for writing reads it, too.
    let script = r#"
import os
GB = 1_000_000_000
size, at = 8 * GB, 5 * GB
def check(path):
    with open(path, 'rb', buffering=0) as file:
        stat = os.stat(path)
        assert (stat.st_size, stat.st_blocks * 512 <= 16 << 20) == (size, True), (path, stat)
        data = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        end = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        assert data <= at < at + 5 <= end <= data + (8 << 20), (path, data, end)
        assert os.pread(file.fileno(), 7, at - 1) == b'\0bytes\0'
        assert os.pread(file.fileno(), 9, size - 2) == b'\0\0'
        try:
            raise SystemExit(os.lseek(file.fileno(), end, os.SEEK_DATA))
        except OSError as error:
            assert error.errno == 6
os.truncate(os.open('mounted', os.O_CREAT | os.O_RDWR), size)
with open('mounted', 'r+b', buffering=0) as file:
    assert os.pread(file.fileno(), 3, 7 * GB) == b'\0\0\0'
    os.pwrite(file.fileno(), b'bytes', at)
    check('mounted')
check('mounted')
with open('../work/local', 'wb') as file:
    file.truncate(size)
    os.pwrite(file.fileno(), b'bytes', at)
check('../work/local')"#;
    mount.python(script).exits(0);
    cluster.run(&["dfs", "put", "local", "/put"]).exits(0);
    cluster.run(&["dfs", "get", "/mounted", "got"]).exits(0);
    let more = "\nfor path in ('put', 'mounted', '../work/got'): check(path)";
    let check = script.split("os.truncate").next().unwrap();
    mount.python(&format!("{check}{more}")).exits(0);
    // What a copy of the system sees is sparse, and so is the copy.
    mount
        .shell(
            "cp put copied && cmp -n 100000000 put copied && [ $(du -k copied | cut -f1) -le \
             16384 ]",
        )
        .exits(0);
    let usage = cluster.run(&["--json", "dfs", "du"]).exits(0).json("usage");
    let stored: u64 =
        usage["nodes"].as_array().unwrap().iter().map(|node| node["bytes"].as_u64().unwrap()).sum();
    assert!(stored < 100_000_000, "{stored}");
    mount.end();
}

#[test]
fn large_files_are_stored_while_they_are_written() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--chunk-size", "64KiB"]);
    // More files than are stored early at the same time. Their bytes are changed in all ways before
    // they are closed.
    let script = r#"
import os
block = lambda number: bytes([number % 251]) * 10_000
def write(name, model, change=None, text=False):
    file = open(name, 'xb' if 'new' in name else 'wb', buffering=0)
    for number in range(60):
        part = b'line %d\n' % number * 1000 if text else block(number)
        model += part
        assert file.write(part) == len(part)
        if change and number in (20, 40):
            change(file, model)
    return file
def over(file, model):
    os.pwrite(file.fileno(), b'changed', 100_000)
    model[100_000:100_007] = b'changed'
def cut(file, model):
    del model[90_000:]
    file.truncate(90_000)
    file.seek(90_000)
def again(file, model):
    model.clear()
    file.truncate(0)
    file.seek(0)
def synced(file, model):
    os.fsync(file.fileno())
def closed(file, model):
    os.close(os.dup(file.fileno()))
models, files = {}, {}
for change in (None, over, cut, again, synced, closed):
    for kind in ('new', 'plain', 'text'):
        name = f'{kind}-{change.__name__ if change else None}' + ('.csv' if kind == 'text' else '')
        models[name] = bytearray()
        files[name] = write(name, models[name], change, kind == 'text')
        assert open(name, 'rb').read() == models[name], name
os.rename('new-None', 'moved')
models['moved'] = models.pop('new-None')
os.unlink('plain-over')
models.pop('plain-over')
for number, file in enumerate(files.values()):
    if number % 2:
        os.fsync(file.fileno())
    file.close()
for name, model in models.items():
    assert open(name, 'rb').read() == model, name
    open('../work/' + name, 'wb').write(model)
print(' '.join(models))"#;
    let written = mount.python(script).exits(0).stdout;
    mount.end();
    for name in written.split_whitespace() {
        cluster.run(&["dfs", "get", &format!("/{name}"), "copy"]).exits(0);
        let [expected, found] =
            [name, "copy"].map(|name| fs::read(cluster.work().join(name)).unwrap());
        assert!(expected == found, "{name}");
        fs::remove_file(cluster.work().join("copy")).unwrap();
    }
}

#[test]
fn programs_set_extended_attributes_and_copies_and_renames_keep_them() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let script = r#"import errno, os, shutil, struct, subprocess
def fails(code, function, *args, **options):
    try:
        function(*args, **options)
    except OSError as e:
        assert e.errno == code, (args, e)
    else:
        raise SystemExit(f'{args} was done')
open('f', 'w').write('one')
os.mkdir('d')
for path in ('f', 'd'):
    fails(errno.ENODATA, os.getxattr, path, 'user.a')
    fails(errno.ENODATA, os.removexattr, path, 'user.a')
    fails(errno.ENODATA, os.setxattr, path, 'user.a', b'x', os.XATTR_REPLACE)
    os.setxattr(path, 'user.a', b'r\0d', os.XATTR_CREATE)
    fails(errno.EEXIST, os.setxattr, path, 'user.a', b'x', os.XATTR_CREATE)
    os.setxattr(path, 'user.empty', b'')
    assert sorted(os.listxattr(path)) == ['user.a', 'user.empty']
    assert (os.getxattr(path, 'user.a'), os.getxattr(path, 'user.empty')) == (b'r\0d', b'')
    fails(errno.ENOSPC, os.setxattr, path, 'user.big', bytes(65536))
    fails(errno.E2BIG, os.setxattr, path, 'user.big', bytes(65537))
    os.setxattr(path, 'user.big', bytes(60000))
    os.removexattr(path, 'user.big')
    os.setxattr(path, 'user.' + 250 * 'n', b'x')
    os.removexattr(path, 'user.' + 250 * 'n')
    for name in ('user.eyas.format', 'user.eyas.new'):
        fails(errno.EPERM, os.setxattr, path, name, b'x')
        fails(errno.EPERM, os.removexattr, path, name)
    if os.geteuid() == 0:
        entries = [(tag, 6, -1) for tag in (1, 4, 32)]
        acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
        capability = struct.pack('<5I', 0x02000000, 1, 0, 0, 0)
        for name, value in (
            ('security.capability', capability),
            ('system.posix_acl_access', acl),
            ('trusted.a', b'x'),
        ):
            fails(errno.ENOTSUP, os.setxattr, path, name, value)
fails(errno.ENOTSUP, os.setxattr, '.', 'user.a', b'x')
# Writes in place and a rename.
before = os.stat('f')
with open('f', 'r+') as f:
    f.write('O')
    os.setxattr(f.fileno(), 'user.b', b'while it is written')
with open('f', 'w') as f:
    f.write('two')
with open('f', 'a') as f:
    f.write('three')
os.rename('f', 'd/g')
assert sorted(os.listxattr('d/g')) == ['user.a', 'user.b', 'user.empty']
assert os.stat('d/g').st_ctime_ns > before.st_ctime_ns
os.rename('d', 'e')
assert sorted(os.listxattr('e')) == ['user.a', 'user.empty']
assert open('e/g').read() == 'twothree'
# A new file that is not in the cluster yet, and one that is removed while it is open.
with open('n', 'w') as f:
    os.setxattr(f.fileno(), 'user.early', b'1')
    fails(errno.EEXIST, os.setxattr, f.fileno(), 'user.early', b'2', os.XATTR_CREATE)
    os.setxattr(f.fileno(), 'user.gone', b'1')
    os.removexattr(f.fileno(), 'user.gone')
    assert os.listxattr(f.fileno()) == ['user.early']
    f.write('x')
assert os.listxattr('n') == ['user.early']
with open('n') as f:
    os.unlink('n')
    os.setxattr(f.fileno(), 'user.late', b'1')
    assert sorted(os.listxattr(f.fileno())) == ['user.early', 'user.late']
shutil.copy2('e/g', 'copy')
assert os.getxattr('copy', 'user.a') == b'r\0d'
subprocess.run(['cp', '-a', 'e', 'f'], check=True)
assert os.getxattr('f', 'user.a') == os.getxattr('f/g', 'user.a') == b'r\0d'
if shutil.which('rsync'):
    subprocess.run(['rsync', '-aX', 'e/', 'r'], check=True)
    assert sorted(os.listxattr('r/g')) == ['user.a', 'user.b', 'user.empty']
if shutil.which('setfattr'):
    subprocess.run(['setfattr', '-n', 'user.c', '-v', 'red', 'copy'], check=True)
    shown = subprocess.run(['getfattr', '-d', 'copy'], check=True, capture_output=True).stdout
    assert b'user.c="red"' in shown, shown
    subprocess.run(['setfattr', '-x', 'user.c', 'copy'], check=True)"#;
    mount.python(script).exits(0);
    // Other clients see the same, and a mount sees what they have changed.
    let stat = cluster.ask(&["dfs", "stat", "/e/g"], "file");
    let shown: Vec<_> = stat["attributes"].as_array().unwrap().iter().collect();
    assert_eq!(shown.len(), 3);
    assert_eq!(shown[1]["name"], "b");
    assert_eq!(shown[1]["value"], "while it is written");
    let text = cluster.run(&["dfs", "stat", "/e/g"]).exits(0).stdout;
    assert!(
        text.ends_with(
            "attribute a: r\\x00d\nattribute b: while it is written\nattribute empty: \n"
        ),
        "{text}"
    );
    cluster.run(&["dfs", "cp", "/e/g", "/copied"]).exits(0);
    let other = MountedFiles::begin(&cluster, "other", &[]);
    let script =
        "import os; os.setxattr('copied', 'user.a', b'blue'); os.removexattr('copied', 'user.b')";
    other.python(script).exits(0);
    wait_until("the mount sees the attributes that another one has set", || {
        let script =
            "import os; print(os.getxattr('copied', 'user.a'), sorted(os.listxattr('copied')))";
        mount.python(script).exits(0).stdout == "b'blue' ['user.a', 'user.empty']\n"
    });
    other.end();
    mount.end();
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
# The first chunk is zeros, which no node stores.
assert [len(nodes) for nodes in json.loads(os.getxattr('m', 'user.eyas.replicas'))] == [0, 2]
assert os.getxattr('m', 'user.eyas.format') == b'fixed:1'
# Programs that copy all attributes of a list would be refused to set these.
assert os.listxattr('m') == []
for name, code in (('user.other', errno.ENODATA), ('system.posix_acl_access', errno.ENOTSUP)):
    try:
        os.getxattr('m', name)
        raise SystemExit(name)
    except OSError as e:
        assert e.errno == code, (name, e)
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
fn a_program_that_is_running_is_not_truncated() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    let script = "original=$(command -v sleep) && cp $original program
        for _ in $(seq 20); do
            ./program 60 & until [ /proc/$!/exe -ef program ]; do :; done
            ! (: > program) 2> /dev/null && ! (: >> program) 2> /dev/null
            kill $! && ! wait $! 2> /dev/null
        done
        cmp program $original && : > program && stat -c %s program";
    assert_eq!(mount.shell(script).exits(0).stdout, "0\n");
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
    let failed =
        fs::write(mount.path("g"), "text").and_then(|()| File::open(mount.path("g"))?.sync_all());
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
    assert_eq!(
        (read.as_str(), fs::read_to_string(mount.path("g")).unwrap().as_str()),
        ("text", "more")
    );
    drop(file);
    signal(cluster.dispatcher(), Signal::CONT);
    mount.end();
}
