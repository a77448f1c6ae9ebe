//! The audit log of a node: the changes of files that it has acknowledged as their leader, as JSON
//! lines.
//!
//! A thread writes the lines, so that requests never wait for them. They are not forced to the
//! disk: after a loss of power, the last lines may be missing. When the thread is too slow, lines
//! are left out, and a later line says how many.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use eyas_files::protocol::{ChangeEntry, FilesOrigin, LogPosition};
use eyas_ring::FileOperation;
use eyas_types::dfs::{FileKind, FileName};

/// Default of the maximum size of the log, which is in two files. When the newer one has half of
/// this size, it replaces the older one.
pub const DEFAULT_AUDIT_BYTES: u64 = 128 << 20;

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

/// From where a change comes.
#[derive(Clone, Copy)]
pub(crate) struct ChangeOrigin<'a> {
    /// The key or the job of the session.
    pub holder: &'a str,
    /// The user for whom it has asked.
    pub principal: Option<&'a str>,
    /// The door that the client states.
    pub door: FilesOrigin,
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
            FileOperation::Replace { name, record, .. } => {
                change("write", name, None, Some(record.size_bytes()))
            }
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
    left_out: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    /// Held while the files are replaced or opened.
    files: Arc<Mutex<LogFiles>>,
    /// The time when the log was opened: positions of another start of the node mean nothing in
    /// this one.
    opened_us: u64,
}

/// The places of the two files in the log, whose offsets never become smaller.
#[derive(Default)]
struct LogFiles {
    /// Offset at which the present file begins, and the older one ends.
    start: u64,
}

impl ChangeLog {
    /// Opens or creates the log in the folder of a node. Its two files together have at most about
    /// `max_bytes`: a file may exceed half of them by one line. With 0 bytes, nothing is logged;
    /// what was logged before can be read.
    pub fn open(folder: &Path, max_bytes: u64) -> io::Result<Self> {
        let path = folder.join("audit.log");
        let older_bytes = fs::metadata(older(&path)).map_or(0, |older| older.len());
        let files = Arc::new(Mutex::new(LogFiles { start: older_bytes }));
        let left_out = Arc::<AtomicU64>::default();
        if max_bytes == 0 {
            return Ok(ChangeLog {
                path,
                lines: None,
                left_out,
                thread: None,
                files,
                opened_us: now_us(),
            });
        }
        let (lines, waiting) = mpsc::sync_channel(MAX_LINES_WAITING);
        let mut file = open(&path)?;
        let bytes = file.get_ref().metadata()?.len();
        if bytes > 0 {
            // The last line may be incomplete.
            file.write_all(b"\n")?;
        }
        let writer = LogWriter {
            path: path.clone(),
            files: files.clone(),
            file,
            bytes,
            max_bytes: (max_bytes / 2).max(1),
            left_out: left_out.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("dfs-audit".into())
            .spawn(move || writer.run(&waiting))?;
        Ok(ChangeLog {
            path,
            lines: Some(lines),
            left_out,
            thread: Some(thread),
            files,
            opened_us: now_us(),
        })
    }

    /// Logs an acknowledged change. Never waits.
    pub fn add(&self, origin: ChangeOrigin, change: LoggedChange) {
        if self.lines.is_none() {
            return;
        }
        let LoggedChange { operation, name, to, size } = change;
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            self.put(origin, ("left out", None, None, Some(left_out)), left_out);
        }
        self.put(origin, (operation, Some(name), to, size), 1);
    }

    /// Hands a line to the thread; if that is too slow, counts `lines` lines as left out.
    fn put(
        &self,
        origin: ChangeOrigin,
        (operation, name, to, size): (&str, Option<FileName>, Option<FileName>, Option<u64>),
        lines: u64,
    ) {
        let ChangeOrigin { holder, principal, door } = origin;
        let entry = ChangeEntry {
            time_us: now_us(),
            holder: holder.to_owned(),
            principal: principal.map(str::to_owned),
            door,
            operation: operation.to_owned(),
            name,
            to,
            size,
        };
        if self.lines.as_ref().is_none_or(|sender| sender.try_send(entry).is_err()) {
            self.left_out.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Entries of a folder since a time, from a position or the beginning on, and the position from
    /// which to continue. Fails if the entries of the position are no longer there. Blocks.
    pub fn read(
        &self,
        folder: &str,
        since_us: u64,
        from: Option<LogPosition>,
    ) -> io::Result<(Vec<ChangeEntry>, Option<LogPosition>)> {
        let (older, present, border) = {
            let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            let present = match File::open(&self.path) {
                Err(error) if self.lines.is_none() && error.kind() == io::ErrorKind::NotFound => {
                    None
                }
                opened => Some(opened?),
            };
            (File::open(older(&self.path)).ok(), present, files.start)
        };
        let older_bytes =
            older.as_ref().map_or(Ok(0), |older| older.metadata().map(|older| older.len()))?;
        let mut start = border.saturating_sub(older_bytes);
        let LogPosition { opened_us, offset: mut position } =
            from.unwrap_or(LogPosition { opened_us: self.opened_us, offset: start });
        if opened_us != self.opened_us || position < start {
            return Err(io::Error::other(
                "its entries were replaced by later ones while they were read: read it again",
            ));
        }
        let (mut entries, mut read) = (Vec::new(), 0);
        for mut file in older.into_iter().chain(present) {
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
                entries.extend(
                    entry.filter(|entry| entry.time_us >= since_us && concerns(entry, folder)),
                );
                if entries.len() >= MAX_ENTRIES || read >= MAX_LINES_READ {
                    return Ok((entries, Some(LogPosition { opened_us, offset: position })));
                }
                line.clear();
            }
            (start, position) = (end, position.max(end));
        }
        Ok((entries, None))
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
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
    files: Arc<Mutex<LogFiles>>,
    file: BufWriter<File>,
    /// Size of the file.
    bytes: u64,
    /// Maximum size of the file.
    max_bytes: u64,
    /// As in [`ChangeLog`].
    left_out: Arc<AtomicU64>,
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
                tracing::warn!(
                    "cannot write {}: {error}; changes are not logged",
                    self.path.display()
                );
            }
            if written.is_err() {
                let lines = if entry.name.is_none() { entry.size.unwrap_or(0) } else { 1 };
                self.left_out.fetch_add(lines, Ordering::Relaxed);
            }
            has_failed = written.is_err();
        }
        let _ = self.file.flush();
    }

    fn write(&mut self, entry: &ChangeEntry) -> io::Result<()> {
        if self.bytes >= self.max_bytes {
            self.begin_file()?;
        }
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.bytes += line.len() as u64;
        self.file.write_all(&line)
    }

    /// Begins a new file; the present one becomes the older one.
    fn begin_file(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::rename(&self.path, older(&self.path)) {
            // A person has removed the file, or an earlier call could not create the new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        let ended_bytes = self.file.get_ref().metadata()?.len();
        self.file = open(&self.path)?;
        (self.bytes, files.start) = (0, files.start + ended_bytes);
        Ok(())
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

    fn by(holder: &str, door: FilesOrigin) -> ChangeOrigin<'_> {
        ChangeOrigin { holder, principal: None, door }
    }

    fn change(name: &str, size: u64) -> LoggedChange {
        LoggedChange {
            operation: "create",
            name: name.parse().unwrap(),
            to: None,
            size: Some(size),
        }
    }

    #[test]
    fn lines_are_found_by_folder_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(folder.path(), DEFAULT_AUDIT_BYTES).unwrap();
        log.add(by("key k1", FilesOrigin::Dfs), change("/a/1\n2", 5));
        log.add(by("key k1", FilesOrigin::Task), change("/b/1", 6));
        let renamed = LoggedChange {
            operation: "rename",
            to: Some("/a/2".parse().unwrap()),
            ..change("/c", 0)
        };
        log.add(by("key k2", FilesOrigin::Mount), renamed);
        drop(log);
        let log = ChangeLog::open(folder.path(), DEFAULT_AUDIT_BYTES).unwrap();
        let names = |of: &str, since_us| {
            let (entries, next) = log.read(of, since_us, None).unwrap();
            assert_eq!(next, None);
            entries.into_iter().map(|entry| entry.name.unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("", 0), ["/a/1\n2", "/b/1", "/c"]);
        assert_eq!(names("/a", 0), ["/a/1\n2", "/c"]);
        assert_eq!(names("/a", u64::MAX), [""; 0]);
    }

    #[test]
    fn a_log_has_two_files_of_bounded_size_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = ChangeLog::open(folder.path(), 10_000).unwrap();
        for number in 0..500 {
            log.add(by("key k1", FilesOrigin::Dfs), change("/a", number));
        }
        drop(log);
        let longest = 200;
        let sizes = [&path, &older(&path)].map(|file| fs::metadata(file).unwrap().len());
        assert!(sizes[1] >= 5000 && sizes.iter().all(|bytes| *bytes < 5000 + longest), "{sizes:?}");
        let sizes = |log: &ChangeLog| {
            let (entries, _) = log.read("", 0, None).unwrap();
            entries.into_iter().map(|entry| entry.size.unwrap()).collect::<Vec<_>>()
        };
        // The last changes are there, without a gap.
        let log = ChangeLog::open(folder.path(), 10_000).unwrap();
        let left = sizes(&log);
        assert!(left.len() > 20 && left.len() < 200, "{}", left.len());
        assert!(left.iter().copied().eq(500 - left.len() as u64..500), "{left:?}");
        drop(log);
        // Without a log, what was logged before can still be read.
        let log = ChangeLog::open(folder.path(), 0).unwrap();
        log.add(by("key k1", FilesOrigin::Dfs), change("/a", 500));
        assert_eq!(sizes(&log), left);
        drop(log);
        let empty = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(empty.path(), 0).unwrap();
        log.add(by("key k1", FilesOrigin::Dfs), change("/a", 1));
        assert!(sizes(&log).is_empty() && fs::read_dir(empty.path()).unwrap().next().is_none());
    }

    #[test]
    fn readers_get_pages_and_skip_damaged_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(folder.path(), DEFAULT_AUDIT_BYTES).unwrap();
        for number in 0..2 * MAX_ENTRIES as u64 + 7 {
            log.add(by("key k1", FilesOrigin::Map), change("/a", number));
        }
        drop(log);
        let path = folder.path().join("audit.log");
        let mut whole = fs::read(&path).unwrap();
        fs::write(older(&path), &whole).unwrap();
        whole.splice(0..1, *b"x");
        whole.extend(b"{\"time_us\":1,");
        fs::write(&path, &whole).unwrap();
        let log = ChangeLog::open(folder.path(), DEFAULT_AUDIT_BYTES).unwrap();
        let (mut sizes, mut from) = (Vec::new(), None);
        loop {
            let (entries, next) = log.read("/", 0, from).unwrap();
            assert!(entries.len() <= MAX_ENTRIES);
            sizes.extend(entries.iter().map(|entry| entry.size.unwrap()));
            match next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        let each = 0..2 * MAX_ENTRIES as u64 + 7;
        assert!(sizes.into_iter().eq(each.clone().chain(each.skip(1))));
    }

    const MAX_BYTES: u64 = DEFAULT_AUDIT_BYTES / 2;

    /// A writer whose file is full.
    fn full(folder: &Path, log: &ChangeLog) -> LogWriter {
        let path = folder.join("audit.log");
        let file = open(&path).unwrap();
        let (files, left_out) = (log.files.clone(), log.left_out.clone());
        LogWriter { path, files, file, bytes: MAX_BYTES, max_bytes: MAX_BYTES, left_out }
    }

    fn entry(number: u64) -> ChangeEntry {
        let (holder, operation, name) =
            ("key k1".to_owned(), "create".to_owned(), Some("/a".parse().unwrap()));
        ChangeEntry {
            time_us: 1,
            holder,
            principal: None,
            door: FilesOrigin::Dfs,
            operation,
            name,
            to: None,
            size: Some(number),
        }
    }

    #[test]
    fn a_log_whose_file_was_removed_begins_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(folder.path(), DEFAULT_AUDIT_BYTES).unwrap();
        let mut writer = full(folder.path(), &log);
        fs::remove_file(folder.path().join("audit.log")).unwrap();
        writer.write(&entry(7)).unwrap();
        writer.file.flush().unwrap();
        assert_eq!(log.read("/", 0, None).unwrap().0, [entry(7)]);
    }

    #[test]
    fn readers_lose_nothing_when_a_new_file_begins_and_learn_when_entries_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let log = ChangeLog::open(folder.path(), DEFAULT_AUDIT_BYTES).unwrap();
        let mut writer = LogWriter { bytes: 0, ..full(folder.path(), &log) };
        let count = MAX_ENTRIES as u64 + 10;
        (0..count).for_each(|number| writer.write(&entry(number)).unwrap());
        writer.file.flush().unwrap();
        let (first, next) = log.read("/", 0, None).unwrap();
        writer.bytes = MAX_BYTES;
        writer.write(&entry(count)).unwrap();
        writer.file.flush().unwrap();
        let (rest, end) = log.read("/", 0, next).unwrap();
        assert!(end.is_none() && first.into_iter().chain(rest).eq((0..=count).map(entry)));
        writer.bytes = MAX_BYTES;
        writer.write(&entry(0)).unwrap();
        assert!(log.read("/", 0, next).unwrap_err().to_string().contains("read it again"));
        let other = next.map(|next| LogPosition { opened_us: next.opened_us + 1, ..next });
        assert!(log.read("/", 0, other).is_err(), "the node has started again");
    }
}
