//! The mount when a cluster or a disk cannot take what programs write: programs get errors, and
//! changes are kept and published later if that is possible.

use std::fs;

use rustix::io::Errno;

use crate::dfs::{NODE, cluster, joined};
use crate::support::{Cluster, MountedFiles, SmallDisk, can_mount, can_use, wait_until};

/// Functions for scripts. They return the number of the error with which an operation ends, or 0.
const FUNCTIONS: &str = r#"
import os, signal
def number_of(operation, *arguments):
    try:
        operation(*arguments)
    except OSError as e:
        return e.errno
    return 0
def write(name, content, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    def written():
        file = os.open(name, flags)
        try:
            rest = content
            while rest:
                rest = rest[os.write(file, rest):]
        finally:
            os.close(file)
    return number_of(written)
def kill(*nodes):
    for node in nodes:
        os.kill(node, signal.SIGKILL)
"#;

impl MountedFiles {
    /// Runs lines of Python after [`FUNCTIONS`], and returns what they print.
    #[track_caller]
    fn printed(&self, lines: &str) -> String {
        self.python(&format!("{FUNCTIONS}{lines}")).exits(0).stdout.trim().to_owned()
    }
}

fn cat(cluster: &Cluster, name: &str) -> String {
    cluster.run(&["dfs", "cat", name]).stdout
}

#[test]
fn changes_that_could_not_be_published_are_published_when_the_quorum_is_back() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let mut cluster = cluster(3);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--timeout", "2s"]);
    fs::write(mount.path("old"), "0123456789").unwrap();
    let [one, two] = [1, 2].map(|node| cluster.executor(node).process());
    // The cluster is away when the files are closed.
    let lines = format!(
        r#"
old, new = os.open('old', os.O_WRONLY), os.open('new', os.O_WRONLY | os.O_CREAT)
kill({one}, {two})
os.write(old, b'AB'), os.write(new, b'new')
print(number_of(os.close, old), number_of(os.close, new))"#
    );
    let io = Errno::IO.raw_os_error();
    assert_eq!(mount.printed(&lines), format!("{io} {io}"));
    // Programs of the mount see the changes, and can change them further.
    assert_eq!(fs::read_to_string(mount.path("old")).unwrap(), "AB23456789");
    assert_eq!(
        mount.printed("print(write('new', b'er', os.O_WRONLY | os.O_APPEND))"),
        io.to_string()
    );
    assert_eq!(fs::read_to_string(mount.path("new")).unwrap(), "newer");
    for node in [1, 2] {
        let folder = cluster.executor(node).folder().to_str().unwrap().to_owned();
        cluster.add_executor(&[NODE, &["--folder", &folder]].concat());
    }
    wait_until("the changes are in the cluster", || {
        cat(&cluster, "/old") == "AB23456789" && cat(&cluster, "/new") == "newer"
    });
    assert_eq!(mount.printed("print(write('new', b'est'))"), "0");
    assert_eq!(cat(&cluster, "/new"), "est");
    let said = mount.end().stderr;
    assert!(said.contains("changes of /old are published now"), "{said}");
}

#[test]
fn changes_that_cannot_be_published_until_the_end_are_named() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let mut cluster = cluster(3);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--timeout", "1s"]);
    let [one, two] = [1, 2].map(|node| cluster.executor(node).process());
    let lines = format!(
        r#"
files = [os.open(f'file-{{number}}', os.O_WRONLY | os.O_CREAT) for number in range(3)]
kill({one}, {two})
print(*[number_of(os.close, file) for file in files])"#
    );
    assert_eq!(mount.printed(&lines), vec![Errno::IO.raw_os_error().to_string(); 3].join(" "));
    let said = mount.end().stderr;
    for number in 0..3 {
        assert!(said.contains(&format!("changes of /file-{number} are lost: ")), "{said}");
    }
}

#[test]
fn changes_beyond_a_quota_are_published_when_there_is_space_and_dropped_if_the_file_has_changed() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    fs::create_dir(mount.path("q")).unwrap();
    for name in ["one", "two", "whole"] {
        fs::write(mount.path("q").join(name), "0123456789").unwrap();
    }
    cluster.run(&["dfs", "quota", "set", "/q", "--bytes", "50"]).exits(0);
    // A new quota is noticed after a moment.
    let quota = Errno::DQUOT.raw_os_error().to_string();
    let probe = "print(write('q/probe', b'x' * 100))\nos.unlink('q/probe')";
    wait_until("the quota is noticed", || mount.printed(probe) == quota);
    let append =
        |name: &str| format!("print(write('q/{name}', b'x' * 100, os.O_WRONLY | os.O_APPEND))");
    for name in ["one", "two"] {
        assert_eq!(mount.printed(&append(name)), quota);
        assert_eq!(fs::metadata(mount.path("q").join(name)).unwrap().len(), 110);
    }
    for name in ["whole", "new"] {
        assert_eq!(mount.printed(&format!("print(write('q/{name}', b'x' * 100))")), quota);
    }
    // Another client replaces three of them.
    for name in ["two", "whole", "new"] {
        cluster.write(name, name);
        cluster.run(&["dfs", "put", name, "/put"]).exits(0);
        cluster.run(&["dfs", "rename", "--force", "/put", &format!("/q/{name}")]).exits(0);
    }
    cluster.run(&["dfs", "quota", "remove", "/q"]).exits(0);
    wait_until("one file is published", || cat(&cluster, "/q/one").len() == 110);
    for name in ["two", "whole", "new"] {
        wait_until((name, "is the file of the cluster"), || {
            fs::read_to_string(mount.path("q").join(name)).is_ok_and(|content| content == name)
        });
        assert_eq!(cat(&cluster, &format!("/q/{name}")), name);
    }
    let said = mount.end().stderr;
    for name in ["two", "whole", "new"] {
        let line = format!("changes of /q/{name} are dropped: another client has changed");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn a_program_that_writes_beyond_a_quota_gets_an_error_from_a_write() {
    if !can_mount() || !can_use(&["python3"]) {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    fs::create_dir(mount.path("q")).unwrap();
    fs::write(mount.path("q/before"), "before").unwrap();
    cluster.run(&["dfs", "quota", "set", "/q", "--bytes", "8MiB"]).exits(0);
    // The mount knows the use of the folder a moment after the first MiB. Then each write beyond
    // the quota fails.
    let lines = r#"
import time
file, block = os.open('q/new', os.O_WRONLY | os.O_CREAT), b'x' * (1 << 16)
def extend():
    os.lseek(file, 9 << 20, os.SEEK_SET)
    return number_of(os.write, file, block)
until = time.monotonic() + 60
while not (refused := extend()) and time.monotonic() < until:
    os.ftruncate(file, 0)
os.ftruncate(file, 0)
os.lseek(file, 0, os.SEEK_SET)
while not (full := number_of(os.write, file, block)):
    pass
print(refused, full, os.fstat(file).st_size, number_of(os.close, file))"#;
    let quota = Errno::DQUOT.raw_os_error();
    // A block less than 8 MiB, as `before` needs a part of it.
    let most = (8 << 20) - (1 << 16);
    assert_eq!(mount.printed(lines), format!("{quota} {quota} {most} 0"));
    assert_eq!(cat(&cluster, "/q/before"), "before");
    assert_eq!(cat(&cluster, "/q/new").len(), most);
    mount.end();
}

#[test]
fn a_full_scratch_folder_and_full_nodes_are_errors_of_the_program() {
    let Some(disk) = SmallDisk::mount("size=1m").filter(|_| can_mount() && can_use(&["python3"]))
    else {
        return;
    };
    let cluster = Cluster::start(&[&["--dfs", "--cache", "8MB"], &["--dfs", "--cache", "8MB"]]);
    joined(&cluster, 2);
    let full = Errno::NOSPC.raw_os_error().to_string();
    let scratch = disk.path().to_str().unwrap();
    let mount = MountedFiles::begin(&cluster, "small", &["--scratch", scratch]);
    assert_eq!(mount.printed("print(write('f', b'x' * (4 << 20)))"), full);
    fs::remove_file(mount.path("f")).unwrap();
    assert_eq!(mount.printed("print(write('f', b'x' * 1000))"), "0");
    mount.end();
    let mount = MountedFiles::begin(&cluster, "mnt", &[]);
    assert_eq!(mount.printed("print(write('g', b'x' * (32 << 20)))"), full);
    assert_eq!(fs::metadata(mount.path("g")).unwrap().len(), 32 << 20);
    assert_eq!(cluster.run(&["dfs", "cat", "/g"]).code, 1);
    // A program can remove it, or make it smaller.
    assert_eq!(mount.printed("print(write('g', b'small'))"), "0");
    assert_eq!(cat(&cluster, "/g"), "small");
    mount.end();
}
