//! Unmodified programs under `eyas io run` read and write the same bytes as without it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{CommandOutput, Home, SlowDisk, can_use, eyas, is_root, signal, wait_until};

/// The library that `eyas io run` loads into programs, beside the command.
const PRELOAD: &str = "libeyas_preload.so";

/// A home with an agent of its own, which ends with the home.
struct CoordinatedHome {
    home: Home,
}

impl CoordinatedHome {
    fn new() -> Self {
        let home = Home::new();
        fs::create_dir(home.path("run")).expect("a new folder");
        CoordinatedHome { home }
    }

    /// Runs a shell command in a folder, with ordered I/O if `ordered` is true.
    #[track_caller]
    fn sh(&self, folder: &Path, words: &str, is_ordered: bool) -> CommandOutput {
        let mut command = match is_ordered {
            true => {
                let path = folder.to_str().expect("a plain name");
                self.home.command(&[
                    "io", "run", "--here", "--always", "--path", path, "--", "bash", "-euo",
                    "pipefail", "-c", words,
                ])
            }
            false => self.home.command_of(Command::new("bash"), &["-euo", "pipefail", "-c", words]),
        };
        command.current_dir(folder).env("XDG_RUNTIME_DIR", self.home.path("run"));
        self.home.finish(command)
    }

    /// The agent's status of its storages, if there is an agent.
    fn storages(&self) -> Vec<Value> {
        let mut command = self.home.command(&["--json", "io", "status"]);
        command.env("XDG_RUNTIME_DIR", self.home.path("run"));
        let done = self.home.finish(command);
        if done.code == 0 {
            done.json("io")["storages"].as_array().expect("a list").clone()
        } else {
            Vec::new()
        }
    }

    /// Whether programs have sent requests to the agent.
    fn has_asked(&self) -> bool {
        !self.storages().is_empty()
    }

    /// Runs a command in two new folders, in one of them with ordered I/O, and checks that the
    /// results are equal.
    #[track_caller]
    fn compare(&self, programs: &[&str], words: &str) {
        self.compare_in(&self.home.work(), programs, words);
    }

    #[track_caller]
    fn compare_in(&self, parent: &Path, programs: &[&str], words: &str) {
        if !can_use(programs) {
            return;
        }
        let [plain, ordered] = [("plain", false), ("ordered", true)].map(|(name, is_ordered)| {
            let folder = parent.join(name);
            fs::create_dir(&folder).expect("a new folder");
            write_inputs(&folder);
            let CommandOutput { code, stdout, stderr } = self.sh(&folder, words, is_ordered);
            assert_eq!(code, 0, "{name}: {stderr}");
            assert_eq!(self.has_asked(), is_ordered, "{name}");
            let stderr = stderr.replace(name, "FOLDER");
            let mut files = BTreeMap::new();
            read_all(&folder, &folder, &mut files);
            (stdout.replace(name, "FOLDER"), stderr, files)
        });
        assert_eq!((&plain.0, &plain.1), (&ordered.0, &ordered.1));
        assert!(
            plain.2.keys().eq(ordered.2.keys()),
            "{:?}\n{:?}",
            plain.2.keys(),
            ordered.2.keys()
        );
        for (name, content) in &plain.2 {
            assert!(ordered.2[name] == *content, "{name} has other bytes");
        }
    }
}

impl Drop for CoordinatedHome {
    fn drop(&mut self) {
        for (process, words) in self.home.processes() {
            assert!(words.contains(" io agent "), "{words} is left");
            signal(process, Signal::TERM);
        }
    }
}

/// Files that the programs are to read: large enough to be read ahead, and many small ones.
fn write_inputs(folder: &Path) {
    let line = |number: u64| {
        format!("{:016x} line {number}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    fs::write(folder.join("lines"), (0..100_000).map(line).collect::<String>())
        .expect("our own folder");
    fs::create_dir(folder.join("many")).expect("our own folder");
    for number in 0..40 {
        fs::write(folder.join(format!("many/{number}")), line(number).repeat(number as usize * 20))
            .expect("our own folder");
    }
}

/// All files below a folder, without the file times that git records.
fn read_all(base: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("our own folder") {
        let path = entry.expect("readable").path();
        match path.symlink_metadata().expect("it is there") {
            kind if kind.is_dir() => read_all(base, &path, files),
            kind if kind.is_file() && !path.ends_with(".git/index") => {
                let name = path.strip_prefix(base).expect("it is below").display().to_string();
                files.insert(name, fs::read(&path).expect("readable"));
            }
            _ => {}
        }
    }
}

#[test]
fn copies_and_archives_are_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["tar", "cp", "gzip", "dd"],
        "cp lines copy; cp -r many others; cat lines lines > twice; cp --sparse=always twice \
         sparse
         tar --sort=name --mtime=@0 --owner=0 --group=0 -cf all.tar lines many
         gzip -nk lines; gzip -dc lines.gz | cmp - lines
         mkdir out; tar -xf all.tar -C out; rm all.tar
         dd if=lines of=blocks bs=4096 status=none; dd if=lines of=synced bs=65536 oflag=sync \
         status=none
         dd if=lines of=middle bs=1000 skip=7 seek=3 conv=notrunc,fsync status=none
         truncate -s 6G huge; echo end >> huge; tail -c 10 huge | od -c; rm huge
         : > empty; cat empty; wc -c lines many/* | tail -1; split -b 100000 lines part.; mv copy \
         moved",
    );
}

#[test]
fn text_tools_do_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["grep", "sort", "sed", "awk"],
        "grep -rc 'line [1-9]*7' . | sort; sort -S 1M -T . lines > sorted; sort -c sorted
         sed -i 's/line/row/' many/*; awk '{ n += $3 } END { print n }' lines; grep -n 'line \
         99999$' lines
         while read -r a b c; do [ \"$c\" != 77 ] || echo \"$a $b $c\"; done < many/20
         tail -n 3 lines; head -c 100 lines
         cut -c1-5 lines | sort -u | md5sum; tac lines | tail -1; comm -12 sorted sorted | wc -l",
    );
}

#[test]
fn sqlite_does_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["sqlite3"],
        "sqlite3 db 'create table t (a integer primary key, b text)' 'pragma \
         journal_mode=truncate'
         for part in 1 2 3; do
             sqlite3 db 'begin' \"insert into t (b)
                 select printf('%d-%d', $part, value) from generate_series(1, 20000)\" 'commit'
         done
         sqlite3 db 'create index i on t (b)' 'delete from t where a % 3 = 0' 'vacuum' 'pragma \
         integrity_check'
         sqlite3 db 'pragma journal_mode=wal' \"update t set b = b || 'x' where a % 5 = 0\" \\
             'pragma wal_checkpoint(truncate)'
         sqlite3 db 'select count(*), sum(length(b)), max(b) from t' '.dump' | md5sum
         printf '1,one\\n2,two\\n' > in.csv; sqlite3 db '.import --csv in.csv u' 'select * from u'",
    );
}

#[test]
fn git_does_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["git"],
        "export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' \
         HOME=$PWD
         git config --global user.email a@example.org; git config --global user.name a
         git config --global pack.threads 1; git config --global init.defaultBranch main; git \
         config --global gc.auto 0
         git init -q .; git add lines many; git commit -qm one; rm -r many; git commit -qam two; \
         git log --format=%H
         git clone -q --no-hardlinks . clone; git -C clone checkout -q HEAD~1; git -C clone fsck; \
         rm -rf clone/.git
         git diff --stat HEAD~1 | tail -1; git status --short --ignored; git gc -q; git fsck; rm \
         -rf .git",
    );
}

#[test]
fn threads_and_forks_read_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["python3"],
        r#"python3 - <<'END'
import hashlib, mmap, os, signal, subprocess, threading

def part(number):
    with open("lines", "rb") as f:
        f.seek(number * 300_000)
        content = f.read(300_000)
    with open(f"part{number}", "wb", buffering=1000) as f:
        for start in range(0, len(content), 777):
            f.write(content[start:start + 777])

threads = [threading.Thread(target=part, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]

shared = os.open("shared", os.O_RDWR | os.O_CREAT)
def stripe(number):
    for block in range(number, 800, 8):
        os.pwrite(shared, bytes([number]) * 4096, block * 4096)
threads = [threading.Thread(target=stripe, args=(n,)) for n in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
os.fsync(shared)
copy = os.dup(shared)
os.close(shared)
os.lseek(copy, -5000, os.SEEK_END)
print(
    len(os.read(copy, 10_000)),
    os.read(copy, 10),
    os.pread(copy, 0, 5),
    os.pread(copy, 10, 1 << 40),
)
with mmap.mmap(copy, 0) as m:
    print(hashlib.md5(m).hexdigest())

# Everything that a program may do to its descriptors and its environment.
os.environ.clear()
os.closerange(3, 60_000)
print(len(open("lines").read()))
append = os.open("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for number in range(1000):
    child = os.fork()
    if child == 0:
        os.write(append, b"x" * (number % 7))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
shown = subprocess.run(["/bin/cat", "many/3"], capture_output=True).stdout
print(os.fstat(append).st_size, shown[:20])

# Read while it becomes shorter, and after it is gone.
with open("lines", "rb", buffering=0) as f:
    print(len(f.read(4096)), len(f.read(4096)))
    os.truncate("lines", 10_000)
    print(len(f.read(4096)), f.read(4096), f.seek(0), len(f.read(20_000)))
    os.remove("lines")
    print(f.seek(9_990), f.read(100))

# A signal in a read of an empty pipe interrupts it, as always; reads of files are not interrupted.
r, w = os.pipe()
os.set_blocking(r, False)
try: os.read(r, 1)
except BlockingIOError as e: print(e.errno)
class Alarm(Exception): pass
def alarm(*_): raise Alarm
signal.signal(signal.SIGALRM, alarm)
signal.setitimer(signal.ITIMER_REAL, 0.01)
os.set_blocking(r, True)
try: os.read(r, 1)
except Alarm: print("interrupted")
try: os.read(99, 1)
except OSError as e: print(e.errno)
try: os.write(os.open("many/1", os.O_RDONLY), b"1")
except OSError as e: print(e.errno)
END"#,
    );
}

#[test]
fn programs_with_low_limits_do_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["python3"],
        r#"(ulimit -n 6; md5sum lines; cp lines few)
           (ulimit -v 60000; md5sum lines; cp lines little)
           ulimit -n 200000 2>/dev/null || true
           python3 - <<'END'
import os, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
number = min(most - 1, 70_000)
os.dup2(os.open("lines", os.O_RDONLY), number)
print(len(os.read(number, 100_000)), len(os.pread(number, 100_000, 50_000)))
END"#,
    );
}

#[test]
fn fio_finds_what_it_has_written() {
    let ordered = CoordinatedHome::new();
    ordered.compare(
        &["fio"],
        "for how in write randwrite; do for engine in sync psync pvsync posixaio mmap; do
             fio --name=a --thread --numjobs=4 --size=2M --bs=16k --verify=crc32c --rw=$how \
         --ioengine=$engine --end_fsync=1 --minimal > report
             rm -f report a.* *.state
         done; done",
    );
}

#[test]
fn streams_of_the_c_library_are_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/decompose/streams.c");
    let words = format!(
        "gcc -O0 -o streams {source}; gcc -O2 -D_FORTIFY_SOURCE=2 -o checked {source}
         ./streams < lines > copy; ./checked < lines > again; cmp lines copy; cmp copy again; rm \
         streams checked"
    );
    ordered.compare(&["gcc"], &words);
}

#[test]
fn an_mpi_program_reads_the_same_with_ordered_io() {
    let ordered = CoordinatedHome::new();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/decompose");
    let words = format!(
        "gcc -O2 -o write {sources}/decompose.c {sources}/shared.c -lpthread
         mpicc -O2 -o read {sources}/decompose_mpi.c {sources}/shared.c; shape='--bytes 4194304 \
         --block 4096'
         ./write $shape --processes 4 --write cube > /dev/null
         for how in '' --independent; do
             mpiexec -n 4 ./read $shape $how cube | grep -o '\"bytes\": [0-9]*\\|\"wrong_words\": \
         [0-9]*'
         done; rm read write"
    );
    ordered.compare(&["gcc", "mpicc", "mpiexec"], &words);
}

#[test]
fn a_disk_is_written_in_order() {
    let ordered = CoordinatedHome::new();
    let Some(disk) = SlowDisk::new(&ordered.home) else { return };
    let words =
        "for n in 1 2 3 4; do dd if=/dev/zero of=file$n bs=64k count=32 status=none & done; wait";
    let seeks = [("plain", false), ("ordered", true)].map(|(name, is_ordered)| {
        let mount = disk.mount(name, &["--seek-ms", "2"]);
        let before = disk.count("seeks");
        ordered.sh(&mount.path(""), words, is_ordered).exits(0);
        disk.count("seeks") - before
    });
    assert!(seeks[1] * 3 < seeks[0], "{seeks:?}");
}

#[test]
fn read_ahead_ends_when_the_program_stops_reading() {
    let ordered = CoordinatedHome::new();
    let Some(disk) = SlowDisk::new(&ordered.home) else { return };
    let file = fs::File::create(disk.source().join("file")).expect("our own folder");
    file.set_len(64 << 20).expect("a sparse file");
    let mount = disk.mount("mount", &["--megabytes-per-second", "5"]);
    // Windows end at 15, 23 and 31 MiB; the last of these has been asked for by then, and waits for
    // its turn.
    ordered.sh(&mount.path(""), "head -c 17M file > /dev/null", true).exits(0);
    wait_until("nothing is under way", || {
        ordered.storages().iter().all(|storage| storage["outstanding"] == 0)
    });
    let read = disk.count("read_bytes");
    assert!((17 << 20..24 << 20).contains(&read), "{read} bytes are read");
}

#[test]
fn the_overhead_can_be_measured() {
    let ordered = CoordinatedHome::new();
    if !can_use(&["python3", "gcc"]) {
        return;
    }
    let mut experiment = Command::new("python3");
    experiment.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/io_overhead.py"));
    experiment.env("EYAS_BIN", eyas()).env("XDG_RUNTIME_DIR", ordered.home.path("run"));
    let done = ordered.home.finish(ordered.home.command_of(experiment, &["--tiny"])).exits(0);
    assert!(done.stdout.contains("times as long"), "{}", done.stdout);
    assert!(ordered.has_asked());
}

#[test]
fn many_processes_write_one_file_in_order() {
    let ordered = CoordinatedHome::new();
    let Some(disk) = SlowDisk::new(&ordered.home).filter(|_| can_use(&["gcc"])) else { return };
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/decompose");
    let program = ordered.home.path("decompose");
    let program = program.to_str().expect("a plain name");
    ordered
        .sh(
            &ordered.home.work(),
            &format!("gcc -O2 -o {program} {sources}/decompose.c {sources}/shared.c"),
            false,
        )
        .exits(0);
    let shape = format!("{program} --bytes 4194304 --block 16384");
    let seeks = [("plain", false), ("ordered", true)].map(|(name, is_ordered)| {
        let mount = disk.mount(name, &["--seek-ms", "2"]);
        let before = disk.count("seeks");
        let write = format!("{shape} --processes 8 --write {name}.cube > written && rm written");
        ordered.sh(&mount.path(""), &write, is_ordered).exits(0);
        let seeks = disk.count("seeks") - before;
        ordered.sh(&disk.source(), &format!("{shape} {name}.cube"), false).exits(0);
        seeks
    });
    assert!(seeks[1] * 3 < seeks[0], "{seeks:?}");
}

#[test]
fn an_agent_of_another_user_is_not_asked() {
    const NOBODY: u32 = 65_534;
    let ordered = CoordinatedHome::new();
    let home = &ordered.home;
    let (run, work) = (home.path("run"), home.work());
    // The build folder may be in one that only root can enter.
    fs::create_dir(home.path("bin")).expect("our own folder");
    // Another process writes the program: children of this process would inherit its open file and
    // keep it busy.
    let mut copy = Command::new("cp");
    copy.args([eyas(), &eyas().with_file_name(PRELOAD), &home.path("bin")]);
    assert!(copy.status().expect("cp").success());
    let command = home.path("bin/eyas");
    let [command, folder] = [&command, &work].map(|path| path.to_str().expect("a plain name"));
    let as_nobody = |words: &[&str]| {
        let who = [&["--reuid=65534", "--clear-groups", "--", command], words].concat();
        let mut command = home.command_of(Command::new("setpriv"), &who);
        command.env("XDG_RUNTIME_DIR", &run);
        home.finish(command)
    };
    if !is_root() || !can_use(&["setpriv"]) {
        return;
    }
    for path in [&run, &work] {
        chown(path, Some(NOBODY), None).expect("our own folder");
    }
    let write =
        ["dd", "if=/dev/zero", "of=file", "bs=64k", "count=16", "conv=fsync", "status=none"];
    as_nobody(&[&["io", "run", "--here", "--path", folder, "--"], &write[..]].concat()).exits(0);
    let requests = || {
        let status = as_nobody(&["--json", "io", "status"]).exits(0).json("io");
        status["storages"][0]["requests"].as_u64().expect("they were counted")
    };
    let before = requests();
    let mut program = home.command_of(Command::new(write[0]), &write[1..]);
    program.env("LD_PRELOAD", eyas().with_file_name(PRELOAD)).env("EYAS_IO_PATHS", folder);
    program.env("EYAS_IO_AGENT", run.join("eyas-io/here/agent.sock"));
    home.finish(program).exits(0);
    assert_eq!(requests(), before);
}
