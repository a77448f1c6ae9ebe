//! `file` URLs: a file system that every node mounts. Uses plain system calls, because versions
//! need nanoseconds and modes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{LazyLock, Mutex, PoisonError};

use eyas_types::{
    Extent, FileMode, Name, ObjectSpec, Operation, StorageFileId, StorageLocation, Version,
};
use rustix::fs::{OFlags, StatFs, StatVfs, fstatfs, fstatvfs, statfs, statvfs};

use super::CHUNK_BYTES;
use super::sink::Sink;
use crate::emulation::Limits;
use crate::error::{StorageError, StorageErrorKind};
use crate::holes::{Part, Segment, Segments, copy_range, each_part, is_sparse, without_zeros};
use crate::order::{ORDERED_OUTPUT_BYTES, StorageTurn, TURN_BYTES, TurnRequest, WaitForTurn};

/// Bytes read at a time. A relay can pass a range on when all of it has been read.
const RANGE_BYTES: usize = 256 << 10;

/// Ranges of one file that are read at the same time or wait to be written. With [`RANGE_BYTES`],
/// this bounds the memory.
const CONCURRENT_RANGES: usize = 4;

/// The current version of the object at `path`.
pub(super) fn stat(path: &Path, url: &Name) -> Result<ObjectSpec, StorageError> {
    let metadata = fs::metadata(path).map_err(|error| StorageError::file("read", url, &error))?;
    let version = version(&metadata, url, || Ok((statfs(path)?, statvfs(path)?)))?;
    if metadata.len() == 0 && has_content(path) {
        let message = format!(
            "`{url}` has content, but the system says that its size is 0, as of files in /proc: \
             copy it, and name the copy"
        );
        return Err(StorageError::new(StorageErrorKind::Invalid, message));
    }
    Ok(ObjectSpec { source: url.clone(), version, mode: FileMode::of_source(metadata.mode()) })
}

/// Whether the first byte of a file can be read.
fn has_content(path: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    opened.and_then(|mut file| file.read(&mut [0])).is_ok_and(|count| count > 0)
}

/// Reads the rest of the file at the version of `spec`. Each part waits for its turn, if there are
/// turns.
pub(super) fn read(
    path: &Path,
    spec: &ObjectSpec,
    into: &mut impl Sink,
    limits: &Limits,
    turns: Option<&WaitForTurn>,
) -> Result<(), StorageError> {
    let url = &spec.source;
    let failed = |error: io::Error| StorageError::file("read", url, &error);
    // Non-blocking: a pipe in place of the file must not block the thread.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = check(&file, spec)?;
    let is_sparse = is_sparse(&file, &metadata);
    // A shorter hole saves no answer of the storage.
    let segments = Segments::of(&file, into.written_bytes()..spec.size_bytes());
    'file: for segment in segments.with_holes_from((CONCURRENT_RANGES * RANGE_BYTES) as u64) {
        let data = match segment {
            Segment::Data(data) => data,
            Segment::Hole(hole) => {
                into.skip(hole.end - hole.start)?;
                continue;
            }
        };
        while into.written_bytes() < data.end {
            let start = into.written_bytes();
            let size_bytes = TURN_BYTES.min(data.end - start);
            let bytes = start..start + size_bytes;
            let turn = turns.and_then(|turns| turns(request(&metadata, Operation::Read, &bytes)));
            // Without turns, the rest of the file is read at once.
            let end = if turn.is_some() { bytes.end } else { data.end };
            read_in_order(&file, start..end, |bytes| {
                let bytes = bytes.map_err(failed)?;
                limits.read_blocking(bytes.len() as u64);
                match is_sparse {
                    false => into.write(&bytes),
                    true => without_zeros(&bytes).try_for_each(|part| match part {
                        Part::Data(bytes) => into.write(bytes),
                        Part::Hole(bytes) => into.skip(bytes),
                    }),
                }
            })?;
            if into.written_bytes() < end {
                break 'file;
            }
        }
    }
    check(&file, spec)?;
    if into.written_bytes() < spec.size_bytes() {
        let message = format!(
            "`{url}` ended after {} of its {} bytes",
            into.written_bytes(),
            spec.size_bytes()
        );
        return Err(StorageError::new(StorageErrorKind::Unreachable, message));
    }
    Ok(())
}

fn request(file: &fs::Metadata, operation: Operation, bytes: &Range<u64>) -> TurnRequest {
    TurnRequest {
        location: StorageLocation::Device(file.dev()),
        file: StorageFileId(file.ino()),
        operation,
        extent: Extent { offset: bytes.start, size_bytes: bytes.end - bytes.start },
    }
}

/// Reads the rest of a file, several ranges at a time, and passes them on in their order. The last
/// range is short if the file ends early. With one read after the other, the storage would be idle
/// between an answer and the next request; and on a relay, requests would wait behind the data that
/// it sends.
fn read_in_order(
    file: &File,
    missing: Range<u64>,
    mut take: impl FnMut(io::Result<Vec<u8>>) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let ranges = || {
        missing.clone().step_by(RANGE_BYTES).map(|at| at..missing.end.min(at + RANGE_BYTES as u64))
    };
    if ranges().nth(1).is_none() {
        return ranges().try_for_each(|range| take(read_range(file, &range)));
    }
    std::thread::scope(|scope| {
        let readers = (0..CONCURRENT_RANGES).map(|first| {
            let (give, given) = sync_channel(0);
            let mut own = ranges().skip(first).step_by(CONCURRENT_RANGES);
            // Ends early if the receiver is gone.
            scope.spawn(move || own.try_for_each(|range| give.send(read_range(file, &range))));
            given
        });
        for (given, range) in readers.collect::<Vec<_>>().iter().cycle().zip(ranges()) {
            let bytes = given.recv().expect("a reader gives each of its ranges");
            let is_short =
                bytes.as_ref().is_ok_and(|bytes| (bytes.len() as u64) < range.end - range.start);
            take(bytes)?;
            if is_short {
                break;
            }
        }
        Ok(())
    })
}

/// The bytes of a range, fewer if the file ends early.
fn read_range(file: &File, range: &Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let mut count = 0;
    while count < bytes.len() {
        match file.read_at(&mut bytes[count..], range.start + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(count);
    Ok(bytes)
}

/// The mode of a file that takes the place `path`, before the umask: that of the written file,
/// without bits for other users that a file at the place denies them.
pub fn output_mode(written: u32, path: &Path) -> u32 {
    let mode = FileMode::of_copy(written);
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => mode.replacing(there.mode()).bits(),
        _ => mode.bits(),
    }
}

/// The real location of `path`: symbolic links in its folder are resolved, and missing folders are
/// created. An existing file or link at `path` itself will be replaced and not followed, so the
/// last component is not resolved. `folders` caches resolved folders.
pub(super) fn locate(
    path: &Path,
    url: &Name,
    folders: &mut HashMap<PathBuf, PathBuf>,
) -> Result<PathBuf, StorageError> {
    let failed = |error: io::Error| StorageError::file("write", url, &error);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let Some(name) = path.file_name() else {
        let message = format!("cannot write `{url}`: it ends in `..`; name a file");
        return Err(StorageError::new(StorageErrorKind::Invalid, message));
    };
    if let Some(real) = folders.get(folder) {
        return Ok(real.join(name));
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let real = fs::canonicalize(folder).map_err(failed)?;
    let path = real.join(name);
    folders.insert(folder.to_path_buf(), real);
    Ok(path)
}

/// A copy of an output in a temporary file of the destination's folder. It may not be on disk yet.
pub struct CopiedFile {
    temporary: Temporary,
    file: File,
    place: PathBuf,
    url: Name,
}

/// A temporary file in the folder of an output that is on disk and not published yet.
pub struct PreparedFile {
    temporary: Temporary,
    place: PathBuf,
    /// The object that it will be once published.
    spec: ObjectSpec,
}

/// Copies `from` to a hidden file in the folder of `path`, which patterns like `*` do not match.
/// Each part of a large file waits for its turn, if there are turns, and as long as it is wanted.
pub(super) fn copy(
    from: &Path,
    (path, url): (&Path, &Name),
    limits: &Limits,
    turns: Option<(&WaitForTurn, &dyn Fn() -> bool)>,
    mark: &str,
) -> Result<CopiedFile, StorageError> {
    let failed = |error: io::Error| StorageError::file("write", url, &error);
    let unreadable =
        |error: io::Error| StorageError::local(format!("cannot read `{}`", from.display()), error);
    let mut source = File::open(from).map_err(unreadable)?;
    let metadata = source.metadata().map_err(unreadable)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let there = fs::symlink_metadata(path).map(|there| there.file_type());
    let what = there.ok().and_then(|kind| match kind {
        kind if kind.is_dir() => Some("it is a folder; name a file in it"),
        kind if kind.is_socket() => Some("it is a socket; name a file"),
        _ => None,
    });
    if let Some(what) = what {
        return Err(StorageError::new(
            StorageErrorKind::Invalid,
            format!("cannot write `{url}`: {what}"),
        ));
    }
    let mode = output_mode(metadata.mode(), path);
    let (temporary, mut file) = Temporary::create(folder, mode, mark).map_err(failed)?;
    let turns = turns.filter(|_| metadata.len() >= ORDERED_OUTPUT_BYTES);
    if turns.is_some() || limits.storage.is_limited() || limits.link_out.is_limited() {
        let (mut buffer, mut written_bytes) = (vec![0; CHUNK_BYTES], 0);
        let mut writes = turns
            .map(|(turns, _)| WritesInTurn::of(&file, metadata.len(), turns))
            .transpose()
            .map_err(failed)?;
        each_part(&source, 0..metadata.len(), &mut buffer, &unreadable, |part| {
            let start = written_bytes;
            written_bytes += part.size_bytes();
            match part {
                Part::Data(bytes) => {
                    if turns.is_some_and(|(_, is_wanted)| !is_wanted()) {
                        let kind = StorageErrorKind::Withdrawn;
                        return Err(StorageError::new(kind, "it is no longer wanted"));
                    }
                    let is_turn = writes.as_mut().map_or(Ok(()), |writes| writes.wait(start));
                    limits.write_blocking(bytes.len() as u64);
                    is_turn.and_then(|()| file.write_all_at(bytes, start))
                }
                Part::Hole(_) => file.set_len(written_bytes),
            }
            .map_err(failed)
        })?;
        writes.map_or(Ok(()), WritesInTurn::end).map_err(failed)?;
    } else if is_sparse(&source, &metadata) {
        copy_range(&source, 0..metadata.len(), &file).map_err(failed)?;
    } else {
        // Copies within the kernel or shares blocks, if the file systems support it.
        io::copy(&mut source, &mut file).map_err(failed)?;
    }
    Ok(CopiedFile { temporary, file, place: path.to_path_buf(), url: url.clone() })
}

/// A file that is written part by part, each in a turn if the coordinator gives one. The page cache
/// would take all of it at once, so a part is on the disk before its turn ends.
struct WritesInTurn<'a> {
    file: &'a File,
    metadata: fs::Metadata,
    size_bytes: u64,
    turns: &'a WaitForTurn,
    turn: Option<StorageTurn>,
    /// End of the part that is being written.
    end: u64,
}

impl<'a> WritesInTurn<'a> {
    fn of(file: &'a File, size_bytes: u64, turns: &'a WaitForTurn) -> io::Result<Self> {
        Ok(WritesInTurn { file, metadata: file.metadata()?, size_bytes, turns, turn: None, end: 0 })
    }

    /// Waits for the turn to write at `offset`. Offsets rise.
    fn wait(&mut self, offset: u64) -> io::Result<()> {
        if offset < self.end {
            return Ok(());
        }
        self.sync()?;
        let bytes = offset..self.size_bytes.min(offset + TURN_BYTES);
        self.end = bytes.end;
        self.turn = (self.turns)(request(&self.metadata, Operation::Write, &bytes));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.turn.take() {
            Some(_turn) => self.file.sync_data(),
            None => Ok(()),
        }
    }

    fn end(mut self) -> io::Result<()> {
        self.sync()
    }
}

impl CopiedFile {
    /// Waits until the copy is on disk. Many threads may wait at once: the file system then writes
    /// their files together.
    pub(super) fn sync(self) -> Result<PreparedFile, StorageError> {
        let CopiedFile { temporary, file, place, url } = self;
        let failed = |error: io::Error| StorageError::file("write", &url, &error);
        file.sync_all().map_err(failed)?;
        // Afterwards, because some servers set the time of a file when they write it.
        let written = file.metadata().map_err(failed)?;
        let version = version(&written, &url, || Ok((fstatfs(&file)?, fstatvfs(&file)?)))?;
        let spec = ObjectSpec { source: url, version, mode: FileMode::of_source(written.mode()) };
        Ok(PreparedFile { temporary, place, spec })
    }
}

impl PreparedFile {
    /// Renames the file to its final path.
    pub(super) fn publish(self) -> Result<ObjectSpec, StorageError> {
        let PreparedFile { temporary, place, mut spec } = self;
        temporary
            .rename(&place)
            .map_err(|error| StorageError::file("write", &spec.source, &error))?;
        if let Ok(found) = fs::symlink_metadata(&place)
            && let Ok(now) =
                version(&found, &spec.source, || Ok((statfs(&place)?, statvfs(&place)?)))
        {
            spec.version = renamed(spec.version, now);
        }
        // A published result must survive a power failure of the server. Some file systems cannot
        // sync a folder.
        let _ = File::open(place.parent().unwrap_or(Path::new("/")))
            .and_then(|folder| folder.sync_all());
        Ok(spec)
    }
}

/// The version of an output: the rename has changed its inode. If another program has replaced the
/// file since, `now` is not the output's.
fn renamed(before: Version, now: Version) -> Version {
    let inode_of = |version: &Version| match version {
        Version::File { mtime_ns, size_bytes, inode, system, .. } => {
            Some((*mtime_ns, *size_bytes, *inode, *system))
        }
        _ => None,
    };
    if inode_of(&before).is_some() && inode_of(&before) == inode_of(&now) { now } else { before }
}

/// The version of a file. `system` looks at its file system.
fn version(
    metadata: &fs::Metadata,
    url: &Name,
    system: impl FnOnce() -> rustix::io::Result<(StatFs, StatVfs)>,
) -> Result<Version, StorageError> {
    if !metadata.is_file() {
        let what =
            if metadata.is_dir() { "a folder; name the files in it" } else { "no regular file" };
        return Err(StorageError::new(StorageErrorKind::Invalid, format!("`{url}` is {what}")));
    }
    let ns = |seconds: i64, ns| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    let (mtime_ns, size_bytes) = (ns(metadata.mtime(), metadata.mtime_nsec()), metadata.len());
    Ok(match system_of(metadata.dev(), system) {
        None => Version::Modified { mtime_ns, size_bytes },
        Some(system) => {
            let changed_ns = ns(metadata.ctime(), metadata.ctime_nsec());
            Version::File { mtime_ns, size_bytes, inode: metadata.ino(), changed_ns, system }
        }
    })
}

/// File systems whose inodes are those of one node or one mount, by their numbers in `statfs(2)`.
const OWN_INODES: [u32; 9] = [
    0x6573_5546, // FUSE
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x0000_517b, // SMB
    0x0102_1997, // 9p
    0x5346_414f, // AFS
    0x0000_4d44, // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS
];

/// File systems that are remembered; at this number all are forgotten.
const MAX_REMEMBERED_SYSTEMS: usize = 256;

/// The number of a file system if its inodes are the same for all nodes. To ask a server for it
/// takes as long as to look at a file, so it is remembered by the number of the device.
fn system_of(
    device: u64,
    look: impl FnOnce() -> rustix::io::Result<(StatFs, StatVfs)>,
) -> Option<u64> {
    static KNOWN: LazyLock<Mutex<HashMap<u64, Option<u64>>>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(system) = known().get(&device) {
        return *system;
    }
    let (found, numbered) = look().ok()?;
    let kind = found.f_type as u32;
    let system = (!OWN_INODES.contains(&kind)).then_some(numbered.f_fsid ^ u64::from(kind));
    let mut known = known();
    if known.len() >= MAX_REMEMBERED_SYSTEMS {
        known.clear();
    }
    known.insert(device, system);
    system
}

fn check(file: &File, spec: &ObjectSpec) -> Result<fs::Metadata, StorageError> {
    let metadata =
        file.metadata().map_err(|error| StorageError::file("read", &spec.source, &error))?;
    let now = version(&metadata, &spec.source, || Ok((fstatfs(file)?, fstatvfs(file)?)))?;
    if now.is_same(&spec.version) {
        return Ok(metadata);
    }
    let how = match (&spec.version, &now) {
        (was, is) if was.size_bytes() != is.size_bytes() => {
            format!("it had {} bytes, now {}", was.size_bytes(), is.size_bytes())
        }
        (Version::File { mtime_ns: was, .. }, Version::File { mtime_ns: is, .. }) if was == is => {
            "it was replaced, or its name, mode or owner was changed".into()
        }
        _ => "it was modified".into(),
    };
    Err(StorageError::changed(&spec.source, how))
}

/// The end of the names of hidden copies.
const HIDDEN_END: &str = ".tmp";

/// The beginning of the names of hidden copies.
fn hidden_start(mark: &str) -> String {
    if mark.is_empty() { ".eyas-".into() } else { format!(".eyas-{mark}-") }
}

/// Removes the hidden copies that a process with that `mark` has left in a folder when it was
/// killed. The process must have ended.
///
/// # Errors
/// If the folder cannot be read, or a copy cannot be removed.
pub fn remove_copies(folder: &Path, mark: &str) -> io::Result<()> {
    let start = hidden_start(mark);
    let is_copy =
        |name: &[u8]| name.starts_with(start.as_bytes()) && name.ends_with(HIDDEN_END.as_bytes());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_copy(entry.file_name().as_encoded_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A hidden file, which is removed unless it is renamed.
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// Creates the file with a mode, less the umask.
    fn create(folder: &Path, mode: u32, mark: &str) -> io::Result<(Self, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            // Processes on other nodes may have the same process id. The random part and
            // `create_new` make names unique.
            let random = std::hash::BuildHasher::hash_one(
                &std::hash::RandomState::new(),
                (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            );
            let path = folder.join(format!("{}{random:016x}{HIDDEN_END}", hidden_start(mark)));
            match File::options().write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => return Ok((Temporary { path, renamed: false }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // The cause that made the write fail may also prevent the removal.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use crate::checksum::Checksum;

    /// Changes the source when the first bytes arrive.
    struct Meddler<'a> {
        size_bytes: u64,
        written_bytes: u64,
        meddle: Option<&'a dyn Fn()>,
    }

    impl Sink for Meddler<'_> {
        fn size_bytes(&self) -> u64 {
            self.size_bytes
        }

        fn written_bytes(&self) -> u64 {
            self.written_bytes
        }

        fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
            self.written_bytes += bytes.len() as u64;
            if let Some(meddle) = self.meddle.take() {
                meddle();
            }
            Ok(())
        }

        fn skip(&mut self, bytes: u64) -> Result<(), StorageError> {
            self.written_bytes += bytes;
            Ok(())
        }

        fn finish(self) -> Result<Checksum, StorageError> {
            unreachable!("only read into")
        }
    }

    #[test]
    fn ranges_that_are_read_at_once_come_in_order() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..7 * RANGE_BYTES + 1000).map(|at| (at / 1000) as u8).collect();
        file.write_all(&content).unwrap();
        let all = content.len();
        for (start, end) in
            [(0, 0), (0, 10), (0, all), (1234, all), (all - 10, all), (0, all + 3 * RANGE_BYTES)]
        {
            let mut taken = Vec::new();
            let take = |bytes: io::Result<Vec<u8>>| {
                taken.extend(bytes.unwrap());
                Ok(())
            };
            read_in_order(&file, start as u64..end as u64, take).unwrap();
            assert!(taken == content[start..end.min(all)], "{start}..{end}");
        }
        let full = || StorageError::new(StorageErrorKind::Full, "no room");
        assert_eq!(
            read_in_order(&file, 0..all as u64, |_| Err(full())).unwrap_err().kind,
            StorageErrorKind::Full
        );
    }

    #[test]
    fn hidden_copies_of_a_process_that_has_ended_are_found_by_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("from"), "x").unwrap();
        let copy = |mark| {
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            copy(&from, (&to, &"file:///to".into()), &Limits::default(), None, mark).unwrap()
        };
        let (left, other) = (copy("1-2"), copy("1-21"));
        let names = || {
            let entries = fs::read_dir(dir.path()).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(names().len(), 3);
        remove_copies(dir.path(), "1-2").unwrap();
        let left_over = names();
        assert!(
            left_over.len() == 2 && left_over.iter().any(|name| name.starts_with(".eyas-1-21-"))
        );
        drop((left, other));
        assert_eq!(names(), ["from"]);
    }

    /// Counts the turns that have not ended.
    struct Held(Arc<AtomicU64>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn large_outputs_are_written_in_turns_and_small_ones_at_once() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let held = Arc::new(AtomicU64::new(0));
        let (give, given) = std::sync::mpsc::channel();
        let turns = {
            let held = held.clone();
            move |request: TurnRequest| {
                assert_eq!(held.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
                assert_eq!(request.operation, Operation::Write);
                give.send((request.extent.offset / MIB, request.extent.size_bytes / MIB)).unwrap();
                Some(Box::new(Held(held.clone())) as StorageTurn)
            }
        };
        let from = dir.path().join("from");
        let copied = || {
            let to = (&*dir.path().join("to"), &"file:///to".into());
            let turns: (&WaitForTurn, &dyn Fn() -> bool) = (&turns, &|| true);
            let copied = copy(&from, to, &Limits::default(), Some(turns), "1").unwrap();
            assert_eq!(held.load(Ordering::Relaxed), 0, "all have ended");
            copied.sync().unwrap().publish().unwrap();
            assert!(fs::read(&from).unwrap() == fs::read(to.0).unwrap());
            given.try_iter().collect::<Vec<_>>()
        };
        fs::write(&from, vec![1; 255 << 10]).unwrap();
        assert_eq!(copied(), []);
        fs::write(&from, vec![2; 19 * MIB as usize]).unwrap();
        assert_eq!(copied(), [(0, 8), (8, 8), (16, 3)]);
        let file = File::create(&from).unwrap();
        file.set_len(200 * MIB).unwrap();
        file.write_all_at(&[3; MIB as usize], MIB).unwrap();
        file.write_all_at(&[4; 10 * MIB as usize], 100 * MIB).unwrap();
        assert_eq!(copied(), [(1, 8), (100, 8), (108, 8)], "a hole needs no turn");
        let to = (&*dir.path().join("to"), &"file:///to".into());
        let unwanted: (&WaitForTurn, &dyn Fn() -> bool) = (&turns, &|| false);
        let copied = copy(&from, to, &Limits::default(), Some(unwanted), "1");
        assert_eq!(copied.err().unwrap().kind, StorageErrorKind::Withdrawn);
    }

    #[test]
    fn a_file_that_changes_under_the_reader_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input");
        let size_bytes = 3 * CHUNK_BYTES as u64;
        let file = || File::options().write(true).open(&path).unwrap();
        type Case<'a> = (&'a str, &'a dyn Fn(), Option<StorageErrorKind>);
        let changed = Some(StorageErrorKind::Changed);
        let cases: [Case<'_>; 4] = [
            ("left alone", &|| {}, None),
            ("cut", &|| file().set_len(5).unwrap(), changed),
            ("grown", &|| file().set_len(size_bytes + 1).unwrap(), changed),
            ("touched", &|| file().set_modified(std::time::UNIX_EPOCH).unwrap(), changed),
        ];
        for (how, meddle, expected) in cases {
            fs::write(&path, vec![1; size_bytes as usize]).unwrap();
            let spec = stat(&path, &"file:///input".into()).unwrap();
            let mut into = Meddler { size_bytes, written_bytes: 0, meddle: Some(meddle) };
            let result = read(&path, &spec, &mut into, &Limits::default(), None);
            assert_eq!(result.err().map(|error| error.kind), expected, "{how}");
        }
    }
}
