//! The disk that mounts share: a small file of numbers, read, changed and written back under its lock. The kernel takes the
//! lock from whoever is killed. What is changed is less than a page and is written by one call, so it is never half written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::FlockOperation;

use crate::model::{Disk, Rates, Request};

/// Says that a file is the state of a disk, in this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"slowdsk1");
const NUMBERS: usize = 12;

/// The disk as one mount has it.
pub struct SharedDisk {
    /// The lock excludes other processes; the mutex, other threads.
    file: Mutex<File>,
}

impl SharedDisk {
    /// The disk with this state, which is made if it is not there; else it must have these rates.
    pub fn open(path: &Path, rates: Rates) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        if file.metadata()?.len() == 0 {
            write(&file, &rates, &Disk::default())?;
        }
        let (found, _) = read(&file)?;
        rustix::fs::flock(&file, FlockOperation::Unlock)?;
        if found != rates {
            return Err(io::Error::other("another mount has given this disk other rates"));
        }
        Ok(Self { file: Mutex::new(file) })
    }

    /// Takes a request that comes now; when it is done, by the monotonic clock.
    pub fn serve(&self, now_ns: u64, request: Request) -> io::Result<u64> {
        let file = self.file.lock().expect("nobody panics with it");
        rustix::fs::flock(&*file, FlockOperation::LockExclusive)?;
        let (rates, mut disk) = read(&file)?;
        let done_ns = disk.serve(&rates, now_ns, request);
        write(&file, &rates, &disk)?;
        rustix::fs::flock(&*file, FlockOperation::Unlock)?;
        Ok(done_ns)
    }

    /// What the disk with this state has done.
    pub fn counters(path: &Path) -> io::Result<serde_json::Value> {
        let (_, disk) = File::open(path).and_then(|file| {
            rustix::fs::flock(&file, FlockOperation::LockShared)?;
            read(&file)
        })?;
        Ok(serde_json::json!({
            "requests": disk.requests,
            "seeks": disk.seeks,
            "read_bytes": disk.read_bytes,
            "written_bytes": disk.written_bytes,
            "busy_us": disk.busy_ns / 1000,
        }))
    }
}

fn read(file: &File) -> io::Result<(Rates, Disk)> {
    let mut bytes = [0; NUMBERS * 8];
    file.read_exact_at(&mut bytes, 0)?;
    let mut numbers = [0; NUMBERS];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
    }
    let [
        magic,
        seek_ns,
        bytes_per_s,
        least_ns,
        free_at_ns,
        file,
        end,
        requests,
        seeks,
        read_bytes,
        written_bytes,
        busy_ns,
    ] = numbers;
    if magic != MAGIC {
        return Err(io::Error::other("this is not the state of a slow disk"));
    }
    let disk = Disk { free_at_ns, file, end, requests, seeks, read_bytes, written_bytes, busy_ns };
    Ok((Rates { seek_ns, bytes_per_s, least_ns }, disk))
}

fn write(file: &File, rates: &Rates, disk: &Disk) -> io::Result<()> {
    let numbers: [u64; NUMBERS] = [
        MAGIC,
        rates.seek_ns,
        rates.bytes_per_s,
        rates.least_ns,
        disk.free_at_ns,
        disk.file,
        disk.end,
        disk.requests,
        disk.seeks,
        disk.read_bytes,
        disk.written_bytes,
        disk.busy_ns,
    ];
    file.write_all_at(&numbers.map(u64::to_le_bytes).concat(), 0)
}
