//! The audit log of a node: the changes of files that it has acknowledged as their leader, as JSON lines.
//!
//! A thread writes the lines, so that requests never wait for them. They are not forced to the disk: after a loss of
//! power, the last lines may be missing. When the thread is too slow, lines are left out, and a later line says how
//! many.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use eyas_ring::FileOperation;
use eyas_types::dfs::{FileKind, FileName};

use crate::protocol::{ChangeEntry, FilesDoor};

/// Maximum size of the log's file. Then it becomes the older one of two files, in place of the one before.
const MAX_LOG_BYTES: u64 = 64 << 20;

/// Maximum number of lines that wait to be written. Further ones are left out.
const MAX_LINES_WAITING: usize = 1 << 16;

/// Maximum number of entries in one answer to a reader.
const MAX_ENTRIES: usize = 4096;

/// A reader gets an answer after this number of lines, also if few of them are of interest.
const MAX_LINES_READ: usize = 200_000;

/// The parts of an entry that follow from the request.
pub(crate) struct LoggedChange {
    operation: &'static str,
    name: FileName,
    to: Option<FileName>,
    size: Option<u64>,
}

impl LoggedChange {
    /// The change that an operation makes, if it makes any.
    pub fn of(operation: &FileOperation) -> Option<Self> {
        let change = |operation, name: &FileName, to: Option<&FileName>, size| {
            Some(LoggedChange { operation, name: name.clone(), to: to.cloned(), size })
        };
        match operation {
            FileOperation::Create { name, record } => match record.kind {
                FileKind::File => change("create", name, None, Some(record.size_bytes())),
                FileKind::Folder => change("folder", name, None, None),
                FileKind::SymbolicLink(_) => change("link", name, None, None),
            },
            FileOperation::Replace { name, record, .. } => change("write", name, None, Some(record.size_bytes())),
            FileOperation::SetAttributes { name, .. } => change("attributes", name, None, None),
            FileOperation::Remove { name, .. } => change("remove", name, None, None),
            FileOperation::Rename { from, to, .. } => change("rename", from, Some(to), None),
            FileOperation::Stat { .. }
            | FileOperation::List { .. }
            | FileOperation::Use { .. }
            | FileOperation::Recover { .. } => None,
        }
    }
}

/// The log of a node. Its thread ends when the log is dropped.
pub(crate) struct ChangeLog {
    path: PathBuf,
    lines: Option<SyncSender<ChangeEntry>>,
    /// Number of lines that were left out since the last line.
    left_out: AtomicU64,
    thread: Option<JoinHandle<()>>,
    /// Held while the files are replaced or opened.
    files: Arc<Mutex<()>>,
}

impl ChangeLog {
    /// Opens or creates the log in the folder of a node.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("audit.log");
        let (lines, waiting) = mpsc::sync_channel(MAX_LINES_WAITING);
        let files = Arc::new(Mutex::default());
        let mut file = open(&path)?;
        let bytes = file.get_ref().metadata()?.len();
        if bytes > 0 {
            // The last line may be incomplete.
            file.write_all(b"\n")?;
        }
        let writer = LogWriter { path: path.clone(), files: files.clone(), file, bytes };
        let thread = std::thread::Builder::new().name("dfs-audit".into()).spawn(move || writer.run(&waiting))?;
        Ok(ChangeLog { path, lines: Some(lines), left_out: AtomicU64::new(0), thread: Some(thread), files })
    }

    /// Logs an acknowledged change. Never waits.
    pub fn add(&self, holder: &str, door: FilesDoor, change: LoggedChange) {
        let LoggedChange { operation, name, to, size } = change;
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            self.put(holder, door, ("left out", None, None, Some(left_out)), left_out);
        }
        self.put(holder, door, (operation, Some(name), to, size), 1);
    }

    /// Hands a line to the thread; if that is too slow, counts `lines` lines as left out.
    fn put(
        &self,
        holder: &str,
        door: FilesDoor,
        (operation, name, to, size): (&str, Option<FileName>, Option<FileName>, Option<u64>),
        lines: u64,
    ) {
        let time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let (holder, operation) = (holder.to_owned(), operation.to_owned());
        let entry = ChangeEntry { time_us, holder, door, operation, name, to, size };
        if self.lines.as_ref().is_none_or(|sender| sender.try_send(entry).is_err()) {
            self.left_out.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Entries of a folder since a time, from a position on, and the position from which to continue. Positions change
    /// when the log starts a new file; a reader then misses or repeats entries. Blocks.
    pub fn read(&self, folder: &str, since_us: u64, from: u64) -> io::Result<(Vec<ChangeEntry>, Option<u64>)> {
        let opened = {
            let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            [File::open(older(&self.path)).ok(), Some(File::open(&self.path)?)]
        };
        let (mut entries, mut start, mut position, mut read) = (Vec::new(), 0, from, 0);
        for mut file in opened.into_iter().flatten() {
            let end = start + file.metadata()?.len();
            if position >= end {
                start = end;
                continue;
            }
            file.seek(SeekFrom::Start(position - start))?;
            let (mut lines, mut line) = (BufReader::new(file), Vec::new());
            while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
                position += line.len() as u64;
                read += 1;
                // A line that a crash has damaged is left out.
                let entry = serde_json::from_slice::<ChangeEntry>(&line).ok();
                entries.extend(entry.filter(|entry| entry.time_us >= since_us && concerns(entry, folder)));
                if entries.len() >= MAX_ENTRIES || read >= MAX_LINES_READ {
                    return Ok((entries, Some(position)));
                }
                line.clear();
            }
            (start, position) = (end, position.max(end));
        }
        Ok((entries, None))
    }
}

fn concerns(entry: &ChangeEntry, folder: &str) -> bool {
    let mut names = entry.name.iter().chain(&entry.to).peekable();
    names.peek().is_none() || names.any(|name| name.is_within(folder))
}

impl Drop for ChangeLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic itself.
            let _ = thread.join();
        }
    }
}

/// The thread of the log.
struct LogWriter {
    path: PathBuf,
    files: Arc<Mutex<()>>,
    file: BufWriter<File>,
    /// Size of the file.
    bytes: u64,
}

impl LogWriter {
    fn run(mut self, waiting: &Receiver<ChangeEntry>) {
        let mut has_failed = false;
        loop {
            let next = match waiting.try_recv() {
                Err(TryRecvError::Empty) => {
                    // Readers find the lines when no further one waits.
                    let _ = self.file.flush();
                    waiting.recv()
                }
                Err(TryRecvError::Disconnected) => Err(RecvError),
                Ok(entry) => Ok(entry),
            };
            let Ok(entry) = next else { break };
            let written = self.write(&entry);
            if let (Err(error), false) = (&written, has_failed) {
                tracing::warn!("cannot write {}: {error}; changes are not logged", self.path.display());
            }
            has_failed = written.is_err();
        }
        let _ = self.file.flush();
    }

    fn write(&mut self, entry: &ChangeEntry) -> io::Result<()> {
        if self.bytes >= MAX_LOG_BYTES {
            self.file.flush()?;
            let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            fs::rename(&self.path, older(&self.path))?;
            self.file = open(&self.path)?;
            self.bytes = 0;
        }
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.bytes += line.len() as u64;
        self.file.write_all(&line)
    }
}

fn open(path: &Path) -> io::Result<BufWriter<File>> {
    // Readable for this user only.
    Ok(BufWriter::new(OpenOptions::new().create(true).append(true).mode(0o600).open(path)?))
}

/// The file before the present one.
fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, size: u64) -> LoggedChange {
        LoggedChange { operation: "create", name: name.parse().unwrap(), to: None, size: Some(size) }
    }

    #[test]
    fn lines_are_found_by_folder_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(folder.path()).unwrap();
        log.add("key k1", FilesDoor::Dfs, change("/a/1\n2", 5));
        log.add("key k1", FilesDoor::Task, change("/b/1", 6));
        let renamed = LoggedChange { operation: "rename", to: Some("/a/2".parse().unwrap()), ..change("/c", 0) };
        log.add("key k2", FilesDoor::Mount, renamed);
        drop(log);
        let log = ChangeLog::open(folder.path()).unwrap();
        let names = |of: &str, since_us| {
            let (entries, next) = log.read(of, since_us, 0).unwrap();
            assert_eq!(next, None);
            entries.into_iter().map(|entry| entry.name.unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("", 0), ["/a/1\n2", "/b/1", "/c"]);
        assert_eq!(names("/a", 0), ["/a/1\n2", "/c"]);
        assert_eq!(names("/a", u64::MAX), [""; 0]);
    }

    #[test]
    fn readers_get_pages_and_skip_damaged_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(folder.path()).unwrap();
        for number in 0..2 * MAX_ENTRIES as u64 + 7 {
            log.add("key k1", FilesDoor::Map, change("/a", number));
        }
        drop(log);
        let path = folder.path().join("audit.log");
        let mut whole = fs::read(&path).unwrap();
        fs::write(older(&path), &whole).unwrap();
        whole.splice(0..1, *b"x");
        whole.extend(b"{\"time_us\":1,");
        fs::write(&path, &whole).unwrap();
        let log = ChangeLog::open(folder.path()).unwrap();
        let (mut sizes, mut from) = (Vec::new(), Some(0));
        while let Some(position) = from {
            let (entries, next) = log.read("/", 0, position).unwrap();
            assert!(entries.len() <= MAX_ENTRIES);
            sizes.extend(entries.iter().map(|entry| entry.size.unwrap()));
            from = next;
        }
        let each = 0..2 * MAX_ENTRIES as u64 + 7;
        assert!(sizes.into_iter().eq(each.clone().chain(each.skip(1))));
    }
}
