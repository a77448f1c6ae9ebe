//! Files that programs on several nodes read at once: each part crosses the storage once.
//!
//! A node is a folder for its agent, and a mount of the slow disk that it shares with the others.
//! The disk counts the bytes that it sends.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::support::io::Order;
use crate::support::{Home, SlowDisk, SlowMount, can_use, finish, signal, wait_until};

const MEGABYTE: usize = 1 << 20;
/// Options of a disk on which agents have long known each other when a file ends.
const SLOW: [&str; 4] = ["--seek-ms", "1", "--megabytes-per-second", "12"];

/// A file in which each word of four bytes is its own number.
fn numbered(disk: &SlowDisk, name: &str, megabytes: usize) -> PathBuf {
    let words = (0..megabytes * MEGABYTE / 4).flat_map(|word| (word as u32).to_le_bytes());
    let path = disk.source().join(name);
    fs::write(&path, words.collect::<Vec<_>>()).unwrap();
    path
}

/// Waits until a file has not changed for as long as agents want before they pass parts on.
#[track_caller]
fn wait_until_settled(file: &Path) {
    let changed = fs::metadata(file).unwrap().ctime() as u64;
    let settled = SystemTime::UNIX_EPOCH + Duration::from_secs(changed + 4);
    wait_until("the file has settled", || SystemTime::now() > settled);
}

/// A disk with a numbered file, its mounts, and a coordinator.
struct Shared {
    order: Order,
    nodes: Vec<SlowMount>,
    disk: SlowDisk,
    file: PathBuf,
    megabytes: usize,
}

impl Shared {
    fn new(megabytes: usize, nodes: usize, options: &[&str]) -> Option<Shared> {
        let rules = "default.always = true\ndefault.share = true\n";
        Shared::with_rules(megabytes, nodes, options, rules)
    }

    fn with_rules(megabytes: usize, nodes: usize, options: &[&str], rules: &str) -> Option<Shared> {
        let home = Home::new();
        let disk = SlowDisk::new(&home).filter(|_| can_use(&["python3"]))?;
        let file = numbered(&disk, "file", megabytes);
        let mount = |node| disk.mount(&format!("node-{node}"), options);
        let nodes = (0..nodes).map(mount).collect();
        let rules = home.write("rules.toml", rules);
        let order = Order::new(home, &["--rules", rules.to_str().unwrap()]);
        wait_until_settled(&file);
        Some(Shared { order, nodes, disk, file, megabytes })
    }

    /// A Python program with the file's path as its first argument, under `eyas io run` on a node.
    fn python(&self, node: usize, program: &str, words: &[&str]) -> Command {
        let file = self.nodes[node].path("file");
        let words = [&["--", "python3", "-c", program, file.to_str().unwrap()], words].concat();
        let mut command = self.order.command(&format!("n{node}"), &words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// How many times the disk has sent the file.
    fn times_sent(&self) -> f64 {
        self.disk.count("read_bytes") as f64 / (self.megabytes * MEGABYTE) as f64
    }
}

/// Reads blocks `own`, `own + of` and so on of 64 KiB, and checks every word.
const INTERLEAVED: &str = "
import array, os, sys
path, own, of, block = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 64 << 10
file = os.open(path, os.O_RDONLY)
for offset in range(own * block, os.fstat(file).st_size, of * block):
    words = array.array('I', os.pread(file, block, offset))
    assert words == array.array('I', range(offset // 4, (offset + block) // 4)), offset
";

/// Reads the whole file by its position, in pieces of odd sizes, and checks every word.
const WHOLE: &str = "
import array, os, sys
file, found, size = os.open(sys.argv[1], os.O_RDONLY), [], 1
while piece := os.read(file, size):
    found.append(piece)
    size = size % 90_000 + 1237
content = b''.join(found)
assert os.lseek(file, 0, os.SEEK_CUR) == len(content) == os.fstat(file).st_size
words = array.array('I', content)
assert words == array.array('I', range(len(words)))
";

#[track_caller]
fn ends_well(programs: Vec<Child>) {
    for program in programs {
        finish(program).exits(0);
    }
}

#[test]
fn a_file_that_three_nodes_read_crosses_the_storage_once() {
    let Some(shared) = Shared::new(24, 3, &SLOW) else { return };
    let whole = (0..3).map(|node| shared.python(node, WHOLE, &[]).spawn().unwrap()).collect();
    ends_well(whole);
    let sent = shared.times_sent();
    // 3 without sharing. On a busy machine, an agent may be late with a part.
    assert!((1.0..2.6).contains(&sent), "the disk has sent the file {sent} times");
}

/// Reads the whole file in pieces of 3 MiB, and checks every word.
const LARGE: &str = "
import array, os, sys
file, place = os.open(sys.argv[1], os.O_RDONLY), 0
while piece := os.read(file, 3 << 20):
    words = array.array('I', piece)
    assert words == array.array('I', range(place, place + len(words))), place
    place += len(words)
assert place * 4 == os.fstat(file).st_size
";

#[test]
fn reads_over_several_parts_cross_the_storage_once() {
    let Some(shared) = Shared::new(24, 3, &SLOW) else { return };
    ends_well((0..3).map(|node| shared.python(node, LARGE, &[]).spawn().unwrap()).collect());
    let sent = shared.times_sent();
    assert!((1.0..2.6).contains(&sent), "the disk has sent the file {sent} times");
}

#[test]
fn without_a_rule_nodes_of_a_file_system_without_versions_read_alone() {
    let Some(shared) = Shared::with_rules(8, 2, &SLOW, "default.always = true\n") else { return };
    ends_well((0..2).map(|node| shared.python(node, WHOLE, &[]).spawn().unwrap()).collect());
    assert!(shared.times_sent() >= 2.0, "a node has taken parts");
}

#[test]
fn interleaved_blocks_of_several_nodes_cross_the_storage_once() {
    let Some(shared) = Shared::new(24, 3, &SLOW) else { return };
    let read =
        |node: usize| shared.python(node, INTERLEAVED, &[&node.to_string(), "3"]).spawn().unwrap();
    ends_well((0..3).map(read).collect());
    let sent = shared.times_sent();
    // 3 without sharing. On a busy machine, an agent may be late with a part.
    assert!((1.0..2.6).contains(&sent), "the disk has sent the file {sent} times");
}

/// Reads the file, and its second page again and again until the first word there is another one.
/// It takes some seconds, so that the kernel asks for the file's version meanwhile, and reads often
/// enough that the agent keeps what it has on the board.
const UNTIL_CHANGED: &str = "
import array, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
for offset in range(0, os.fstat(file).st_size, 64 << 10):
    os.pread(file, 64 << 10, offset)
    if array.array('I', os.pread(file, 4096, 4096))[0] != 1024:
        break
    time.sleep(0.004)
else:
    raise AssertionError('it has read what was there before')
";

#[test]
fn a_program_that_has_parts_of_a_file_sees_its_change() {
    let Some(shared) = Shared::new(1, 2, &["--seek-ms", "1"]) else { return };
    let file = fs::OpenOptions::new().write(true).open(&shared.file).unwrap();
    file.set_len(128 * MEGABYTE as u64).unwrap();
    wait_until_settled(&shared.file);
    let readers: Vec<_> =
        (0..2).map(|node| shared.python(node, UNTIL_CHANGED, &[]).spawn().unwrap()).collect();
    let sent = || shared.disk.count("read_bytes") as usize;
    wait_until("the disk has sent more than the first part", || sent() > 4 * MEGABYTE);
    file.write_all_at(&[0xff; 8192], 0).unwrap();
    ends_well(readers);
}

#[test]
fn a_file_that_has_changed_is_read_as_it_is_now() {
    let Some(shared) = Shared::new(16, 2, &["--seek-ms", "1"]) else { return };
    ends_well((0..2).map(|node| shared.python(node, WHOLE, &[]).spawn().unwrap()).collect());
    // The same size, other content.
    let negative = (0..16 * MEGABYTE as u32 / 4).flat_map(|word| (!word).to_le_bytes());
    fs::write(&shared.file, negative.collect::<Vec<_>>()).unwrap();
    // Until then, the kernel of each node may take the file to be unchanged.
    wait_until_settled(&shared.file);
    let program =
        WHOLE.replace("range(len(words))", "(~word & 0xffffffff for word in range(len(words)))");
    ends_well((0..2).map(|node| shared.python(node, &program, &[]).spawn().unwrap()).collect());
}

#[test]
fn programs_continue_when_the_agent_that_reads_for_them_is_killed() {
    let Some(shared) = Shared::new(64, 2, &SLOW) else { return };
    let first = shared.python(0, WHOLE, &[]).spawn().unwrap();
    shared.order.wait_for_requests();
    let agents = shared.order.agents();
    let second = shared.python(1, WHOLE, &[]).spawn().unwrap();
    wait_until("both nodes read", || shared.order.agents().len() == 2);
    shared.order.wait_for_requests();
    agents.into_iter().for_each(|agent| signal(agent, Signal::KILL));
    ends_well(vec![first, second]);
}

#[test]
fn processes_that_share_a_position_read_each_byte_once() {
    let Some(shared) = Shared::new(16, 2, &["--seek-ms", "1"]) else { return };
    // Children share the parent's descriptor. Each writes which words it has read.
    let program = "
import array, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
ends = []
for child in range(4):
    get, put = os.pipe()
    if os.fork() == 0:
        with os.fdopen(put, 'wb') as out:
            while piece := os.read(file, 8192):
                out.write(piece[:4])
        os._exit(0)
    os.close(put)
    ends.append(get)
firsts = array.array('I')
for end in ends:
    with os.fdopen(end, 'rb') as done:
        firsts.frombytes(done.read())
assert sorted(firsts) == list(range(0, os.fstat(file).st_size // 4, 2048))
";
    ends_well((0..2).map(|node| shared.python(node, program, &[]).spawn().unwrap()).collect());
}
