//! State of a disk, shared by its mounts: a file with some numbers, and behind them the contents of
//! the server's memory. It is read, changed and written back under a lock, which the kernel
//! releases when a process is killed. The numbers fit in a page and are written by one call, so
//! they are never torn; a block of the memory may be lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::FlockOperation;

use crate::memory::{Block, Memory, Set, Sets};
use crate::model::{Channel, Disk, Rates, Request};

/// Marks a file as the state of a disk in this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"slowdsk4");
/// Numbers of a disk; those of each channel follow.
const NUMBERS: usize = 21;
const CHANNEL_NUMBERS: usize = 3;
/// Channels whose numbers fit in a page.
pub const MAX_CHANNELS: u64 = 64;
/// Offset of the server's memory.
const SETS_BEGIN: u64 = 4096;
const BLOCK_NUMBERS: usize = 5;

/// Costs that all mounts of a disk must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    pub rates: Rates,
    pub memory_sets: u64,
    pub memory_bytes_per_s: u64,
}

/// A disk, as one mount sees it.
pub struct SharedDisk {
    /// The file lock excludes other processes, the mutex other threads.
    file: Mutex<File>,
}

impl SharedDisk {
    /// Opens the disk with this state file, or creates it. An existing one must have the same
    /// costs.
    pub fn open(path: &Path, costs: Costs) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        if file.metadata()?.len() == 0 {
            let memory = Memory { bytes_per_s: costs.memory_bytes_per_s, ..Memory::default() };
            State { costs, disk: Disk::new(&costs.rates), memory }.write(&file)?;
            file.set_len(SETS_BEGIN + costs.memory_sets * size_of::<Set>() as u64)?;
        }
        let found = State::read(&file)?.costs;
        rustix::fs::flock(&file, FlockOperation::Unlock)?;
        if found != costs {
            return Err(io::Error::other("another mount has given this disk other rates"));
        }
        Ok(Self { file: Mutex::new(file) })
    }

    /// Serves a request that arrives now. Returns when it is done, by the monotonic clock.
    pub fn serve(&self, now_ns: u64, request: Request) -> io::Result<u64> {
        self.update(|file, State { costs, disk, memory }| {
            let mut sets = FileSets { file, count: costs.memory_sets };
            memory.serve(&mut sets, disk, &costs.rates, now_ns, request)
        })
    }

    /// Serves a change of a folder that arrives now. Returns when it is done.
    pub fn change(&self, now_ns: u64) -> io::Result<u64> {
        self.update(|_, State { costs, disk, .. }| Ok(disk.change(&costs.rates, now_ns)))
    }

    /// Has the disk do something while no other mount uses it.
    fn update(&self, act: impl FnOnce(&File, &mut State) -> io::Result<u64>) -> io::Result<u64> {
        let file = self.file.lock().expect("nobody panics with it");
        rustix::fs::flock(&*file, FlockOperation::LockExclusive)?;
        let mut state = State::read(&file)?;
        let done_ns = act(&file, &mut state)?;
        state.write(&file)?;
        rustix::fs::flock(&*file, FlockOperation::Unlock)?;
        Ok(done_ns)
    }

    /// Counters of the disk with this state file.
    pub fn counters(path: &Path) -> io::Result<serde_json::Value> {
        let State { disk, memory, .. } = File::open(path).and_then(|file| {
            rustix::fs::flock(&file, FlockOperation::LockShared)?;
            State::read(&file)
        })?;
        Ok(serde_json::json!({
            "requests": disk.requests,
            "seeks": disk.seeks,
            "read_bytes": disk.read_bytes,
            "written_bytes": disk.written_bytes,
            "memory_bytes": memory.bytes,
            "busy_us": disk.busy_ns / 1000,
            "changes": disk.changes,
        }))
    }

    /// Clears the server's memory.
    pub fn forget(path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let State { costs, .. } = State::read(&file)?;
        file.set_len(SETS_BEGIN)?;
        file.set_len(SETS_BEGIN + costs.memory_sets * size_of::<Set>() as u64)
    }
}

/// The server's memory in the file.
struct FileSets<'a> {
    file: &'a File,
    count: u64,
}

impl Sets for FileSets<'_> {
    fn count(&self) -> u64 {
        self.count
    }

    fn load(&self, place: u64) -> io::Result<Set> {
        let numbers = read_numbers(self.file, at(place), size_of::<Set>() / 8)?;
        let block = |numbers: &[u64]| match *numbers {
            [file, number, pages, ready_ns, used] => Block { file, number, pages, ready_ns, used },
            _ => unreachable!("as many as a block has"),
        };
        let blocks: Vec<Block> = numbers.chunks_exact(BLOCK_NUMBERS).map(block).collect();
        Ok(blocks.try_into().expect("as many as a set has"))
    }

    fn save(&mut self, place: u64, set: &Set) -> io::Result<()> {
        let numbers = set.map(|Block { file, number, pages, ready_ns, used }| {
            [file, number, pages, ready_ns, used]
        });
        write_numbers(self.file, at(place), &numbers.concat())
    }
}

fn at(place: u64) -> u64 {
    SETS_BEGIN + place * size_of::<Set>() as u64
}

/// Numbers of a disk.
struct State {
    costs: Costs,
    disk: Disk,
    memory: Memory,
}

impl State {
    fn read(file: &File) -> io::Result<Self> {
        let numbers: [u64; NUMBERS] =
            read_numbers(file, 0, NUMBERS)?.try_into().expect("as many as were asked for");
        let [
            magic,
            seek_ns,
            bytes_per_s,
            written_bytes_per_s,
            open_ns,
            change_ns,
            least_ns,
            channels,
            stripe_bytes,
            memory_sets,
            memory_bytes_per_s,
            free_at_ns,
            bytes,
            uses,
            requests,
            seeks,
            read_bytes,
            written_bytes,
            busy_ns,
            changing_until_ns,
            changes,
        ] = numbers;
        if magic != MAGIC {
            return Err(io::Error::other("this is not the state of a slow disk"));
        }
        let rest = read_numbers(file, NUMBERS as u64 * 8, channels as usize * CHANNEL_NUMBERS)?;
        let channel =
            |numbers: &[u64]| Channel { free_at_ns: numbers[0], file: numbers[1], end: numbers[2] };
        let all = rest.chunks_exact(CHANNEL_NUMBERS).map(channel).collect();
        let rates = Rates {
            seek_ns,
            bytes_per_s,
            written_bytes_per_s,
            open_ns,
            change_ns,
            least_ns,
            channels,
            stripe_bytes,
        };
        Ok(State {
            costs: Costs { rates, memory_sets, memory_bytes_per_s },
            disk: Disk {
                channels: all,
                requests,
                seeks,
                read_bytes,
                written_bytes,
                busy_ns,
                changing_until_ns,
                changes,
            },
            memory: Memory { bytes_per_s: memory_bytes_per_s, free_at_ns, bytes, uses },
        })
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let State { costs: Costs { rates, memory_sets, memory_bytes_per_s }, disk, memory } = self;
        let numbers: [u64; NUMBERS] = [
            MAGIC,
            rates.seek_ns,
            rates.bytes_per_s,
            rates.written_bytes_per_s,
            rates.open_ns,
            rates.change_ns,
            rates.least_ns,
            rates.channels,
            rates.stripe_bytes,
            *memory_sets,
            *memory_bytes_per_s,
            memory.free_at_ns,
            memory.bytes,
            memory.uses,
            disk.requests,
            disk.seeks,
            disk.read_bytes,
            disk.written_bytes,
            disk.busy_ns,
            disk.changing_until_ns,
            disk.changes,
        ];
        let channels = disk
            .channels
            .iter()
            .flat_map(|channel| [channel.free_at_ns, channel.file, channel.end]);
        let all: Vec<u64> = numbers.into_iter().chain(channels).collect();
        write_numbers(file, 0, &all)
    }
}

fn read_numbers(file: &File, offset: u64, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    file.read_exact_at(&mut bytes, offset)?;
    let number =
        |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
    Ok(bytes.chunks_exact(8).map(number).collect())
}

fn write_numbers(file: &File, offset: u64, numbers: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    file.write_all_at(&bytes, offset)
}
