//! Files that the agent reads ahead for its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use eyas_board::{Board, CachedFile, FilePiece, PIECE_BYTES, ring};

use super::agent_node::AgentNode;
use super::program_file::{FileKey, ProgramFile};
use streams::{StreamPlan, Streams};

pub(crate) mod fetch;
mod streams;

/// A file is closed and forgotten after this time without use.
const IDLE: Duration = Duration::from_secs(10);
/// Bytes that were read ahead are assumed to be in memory while the file is used at least this
/// often.
const FRESH: Duration = Duration::from_secs(1);
/// Time within which a program has to send its open file.
const OPENING: Duration = Duration::from_millis(500);

/// A file stays open for this time after another node has wanted a part of it, also if the programs
/// of this node have closed it: they may be ahead of those of the other nodes.
const LENDING: Duration = Duration::from_secs(1);
/// A file stays open for at most this time after the programs of this node have closed it.
const MAX_LENDING: Duration = Duration::from_secs(10);

/// After another node could not give a part of a file, parts come from the storage for this time.
const SHARING_PAUSE: Duration = Duration::from_secs(3);

/// Windows of one stream that are read ahead at a time.
const MAX_AHEAD: usize = 8;
/// The same if parts come from other nodes, for which the board has less memory.
const MAX_AHEAD_SHARED: usize = 3;

/// Open file of a window, and the board entry where progress is reported.
pub(super) struct WindowReader<F> {
    pub file: Arc<F>,
    pub entry: &'static CachedFile,
}

/// A window that is about to be read: its reader, its class, and further windows to be read.
type BegunWindow<F> = (WindowReader<F>, u32, Vec<Range<u64>>);

/// One file. `entry` is its index on the board.
pub(super) struct ReadAheadFile<F> {
    entry: usize,
    /// Class of the program that last missed bytes.
    class: u32,
    bytes: u64,
    streams: Streams,
    access: Access<F>,
    /// Ids of processes that read the file.
    readers: BTreeSet<u32>,
    used: Instant,
    /// Windows, or parts of windows, that wait for their turn or are being read.
    under_way: usize,
    /// Windows, or parts of windows, that are being read.
    reading: usize,
    /// Whether to close the file when `under_way` is 0.
    is_closing: bool,
    /// Whether parts of the file may come from other nodes.
    sharing: Sharing,
    /// Whether parts came from other nodes, or could have, when the file was last read.
    is_divided: bool,
    /// Whether this agent has taken parts from another one, or has given some.
    is_shared: bool,
    /// When another agent last wanted a part.
    lent: Option<Instant>,
    /// When the programs of this node closed the file, unless they have it open again.
    closed: Option<Instant>,
}

/// Whether parts of a file may come from other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// They may.
    Open,
    /// Another node could not give one at this time. It may later, when the file no longer changes.
    Paused(Instant),
    /// A program reads the file in a way in which it cannot copy bytes from the board.
    Impossible,
}

/// Whether the agent can read the file.
enum Access<F> {
    /// Not needed so far.
    NotYet,
    /// A program was asked for its open file at this time; then these windows are to be read.
    Wanted(Instant, Vec<Range<u64>>),
    /// The agent has the file open.
    Open(Arc<F>),
    /// The agent cannot open the file; programs read it themselves.
    Refused,
}

/// What to do about a program's read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadAdvice {
    /// The program reads itself, in its turn.
    Alone,
    /// The program looks at this board entry, and these windows are to be read.
    LookAt(usize, Vec<Range<u64>>),
    /// The program sends its open file first, and is advised again.
    SendFile,
}

/// All files that are read ahead.
pub(super) struct ReadAheadFiles<N: AgentNode> {
    node: Rc<N>,
    board: &'static Board,
    files: BTreeMap<FileKey, ReadAheadFile<N::File>>,
    /// Files that were closed since they were last taken from here.
    closed: Vec<FileKey>,
}

impl<N: AgentNode> ReadAheadFiles<N> {
    pub fn new(node: Rc<N>, board: &'static Board) -> Self {
        ReadAheadFiles { node, board, files: BTreeMap::new(), closed: Vec::new() }
    }

    /// A process is about to read these bytes of a file with `file_bytes` bytes. `takes_bytes`:
    /// whether it can copy them from the board; `can_share`: whether parts of the storage's files
    /// may come from other nodes.
    pub fn read(
        &mut self,
        key: FileKey,
        process: u32,
        class: u32,
        bytes: Range<u64>,
        file_bytes: u64,
        (takes_bytes, can_share): (bool, bool),
    ) -> ReadAdvice {
        let (board, node, now) = (self.board, self.node.clone(), self.node.now());
        let Some(file) = self.file(key) else { return ReadAdvice::Alone };
        if !takes_bytes {
            file.sharing = Sharing::Impossible;
        }
        file.is_divided = can_share && file.may_share(now);
        (file.is_closing, file.closed) = (false, None);
        if file.readers.insert(process) {
            file.readers.retain(|reader| *reader == process || node.is_alive(*reader));
            if file.readers.len() == 1 {
                // The previous readers have gone; what is left of their data in memory is unknown.
                file.forget_streams(board);
            }
        }
        (file.used, file.bytes, file.class) = (now, file_bytes, class);
        if matches!(file.access, Access::Refused) {
            return ReadAdvice::Alone;
        }
        let plan = file.streams.read(bytes.clone(), file_bytes, file.is_divided);
        let StreamPlan::Stream(mut windows) = plan else {
            return ReadAdvice::Alone;
        };
        let (entry, index) = (&board.files[file.entry], file.entry);
        for number in forgotten(entry, &bytes, &windows) {
            let start = number * PIECE_BYTES;
            let piece = start..file_bytes.min(start + PIECE_BYTES);
            if file.is_divided && !file.has_cached(&piece) {
                // It was not read ahead, or has left the board's memory.
                windows.push(piece);
            } else {
                // The board remembers fewer pieces than the agent.
                entry.set(FilePiece { number, pages: FilePiece::PAGES, is_announced: false });
            }
        }
        windows.iter().for_each(|window| announce(entry, window, file.is_divided));
        match &mut file.access {
            Access::Open(_) => {
                file.under_way += windows.len();
                ReadAdvice::LookAt(index, windows)
            }
            Access::Wanted(_, wanted) => {
                wanted.extend(windows);
                ReadAdvice::LookAt(index, Vec::new())
            }
            _ => {
                file.access = Access::Wanted(now, windows);
                ReadAdvice::SendFile
            }
        }
    }

    /// A program has sent its file, or could not. Returns the windows to be read now.
    pub fn given(&mut self, key: FileKey, given: Option<N::File>) -> Vec<Range<u64>> {
        let Some(file) = self.files.get_mut(&key) else { return Vec::new() };
        let Access::Wanted(_, windows) = &mut file.access else { return Vec::new() };
        let windows = std::mem::take(windows);
        match given {
            Some(given) => {
                file.access = Access::Open(Arc::new(given));
                file.under_way += windows.len();
                windows
            }
            None => {
                file.refuse(self.board);
                Vec::new()
            }
        }
    }

    /// A program has entered an announced piece. Returns the file, its class and the windows to be
    /// read next.
    pub fn entered(&mut self, entry: usize) -> Option<(FileKey, u32, Vec<Range<u64>>)> {
        let index = &self.board.files[entry];
        let key = (index.device.load(Ordering::Relaxed), index.inode.load(Ordering::Relaxed));
        let file = self.files.get_mut(&key).filter(|file| file.entry == entry)?;
        file.used = self.node.now();
        if !matches!(file.access, Access::Open(_)) {
            return None;
        }
        let is_entered =
            |last: &u64| index.piece(last / PIECE_BYTES).is_some_and(|piece| !piece.is_announced);
        let entered: Vec<u64> = file.streams.announced().filter(is_entered).collect();
        let ahead = file.ahead();
        let next = |start| file.streams.entered(start, file.bytes, ahead);
        let windows: Vec<_> = entered.into_iter().flat_map(next).collect();
        windows.iter().for_each(|window| announce(index, window, file.is_divided));
        file.under_way += windows.len();
        Some((key, file.class, windows))
    }

    /// This window is about to be read. `None`: the file cannot be read any longer.
    pub fn begin(&mut self, key: FileKey, window: &Range<u64>) -> Option<BegunWindow<N::File>> {
        let file = self.files.get_mut(&key)?;
        let Access::Open(open) = &file.access else { return None };
        let entry = &self.board.files[file.entry];
        let reader = WindowReader { file: open.clone(), entry };
        file.reading += 1;
        let windows = file.streams.begun(window, file.bytes, file.ahead());
        windows.iter().for_each(|window| announce(entry, window, file.is_divided));
        file.under_way += windows.len();
        Some((reader, file.class, windows))
    }

    /// A window has been read as far as possible.
    pub fn fetched(&mut self, key: FileKey) {
        if let Some(file) = self.files.get_mut(&key) {
            file.reading = file.reading.saturating_sub(1);
        }
        self.called_off(key);
    }

    /// A window has been read, or is no longer wanted.
    pub fn called_off(&mut self, key: FileKey) {
        let now = self.node.now();
        let Some(file) = self.files.get_mut(&key) else { return };
        file.under_way = file.under_way.saturating_sub(1);
        file.used = now;
        if file.is_closing && file.is_unused(now) {
            self.forget(key);
        }
    }

    /// The last program is about to close a file. The agent closes it, too, when no window is being
    /// read, for itself or for another agent.
    pub fn close(&mut self, key: FileKey) {
        let now = self.node.now();
        match self.files.get_mut(&key) {
            Some(file) if file.is_unused(now) => self.forget(key),
            Some(file) if file.is_lent(now) => {
                (file.is_closing, file.closed) = (true, Some(now));
            }
            Some(file) => {
                // No further windows are read after these.
                file.forget_streams(self.board);
                file.is_closing = true;
            }
            None => {}
        }
    }

    /// Whether parts of a file may come from other nodes.
    pub fn may_share(&self, key: FileKey) -> bool {
        let now = self.node.now();
        self.files.get(&key).is_some_and(|file| file.may_share(now))
    }

    /// Parts of a file come from the storage for a while.
    pub fn pause_sharing(&mut self, key: FileKey) {
        if let Some(file) = self.files.get_mut(&key)
            && file.sharing != Sharing::Impossible
        {
            file.sharing = Sharing::Paused(self.node.now());
        }
    }

    /// Whether this agent has exchanged parts of a file with another one.
    pub fn is_shared(&self, key: FileKey) -> bool {
        self.files.get(&key).is_some_and(|file| file.is_shared)
    }

    /// Whether other agents have wanted parts of a file lately.
    pub fn is_lent(&self, key: FileKey) -> bool {
        let now = self.node.now();
        self.files.get(&key).is_some_and(|file| file.is_lent(now))
    }

    /// Another agent wants a part of a file.
    pub fn lend(&mut self, key: FileKey) {
        if let Some(file) = self.files.get_mut(&key) {
            (file.is_shared, file.lent) = (true, Some(self.node.now()));
        }
    }

    /// This agent takes parts of a file from another one.
    pub fn set_shared(&mut self, key: FileKey) {
        if let Some(file) = self.files.get_mut(&key) {
            file.is_shared = true;
        }
    }

    /// Windows were divided into this many parts more.
    pub fn divided(&mut self, key: FileKey, more: usize) {
        if let Some(file) = self.files.get_mut(&key) {
            file.under_way += more;
        }
    }

    /// Files that were closed since the last call.
    pub fn take_closed(&mut self) -> Vec<FileKey> {
        std::mem::take(&mut self.closed)
    }

    /// The open file, and its entry on the board.
    pub fn open(&self, key: FileKey) -> Option<(WindowReader<N::File>, u32)> {
        let file = self.files.get(&key)?;
        let Access::Open(open) = &file.access else { return None };
        let entry = &self.board.files[file.entry];
        Some((WindowReader { file: open.clone(), entry }, file.class))
    }

    /// A window is not read; programs that wait for it read it themselves.
    pub fn give_up(&self, key: FileKey, window: Range<u64>) {
        let Some(file) = self.files.get(&key) else { return };
        let entry = &self.board.files[file.entry];
        for number in window.start / PIECE_BYTES..window.end.div_ceil(PIECE_BYTES) {
            entry.grow(number, FilePiece::PAGES);
        }
        ring(&entry.progress);
    }

    /// Closes unused files, and stops waiting for files that programs do not send.
    pub fn tidy(&mut self) {
        let now = self.node.now();
        let idle = |file: &ReadAheadFile<N::File>| {
            let is_over = file.is_closing || now - file.used > IDLE || !file.is_read(&*self.node);
            file.is_unused(now) && is_over
        };
        let leaving: Vec<FileKey> =
            self.files.iter().filter(|(_, file)| idle(file)).map(|(key, _)| *key).collect();
        leaving.into_iter().for_each(|key| self.forget(key));
        for file in self.files.values_mut() {
            if file.under_way == 0 && now - file.used > FRESH {
                file.forget_streams(self.board);
            }
            if matches!(&file.access, Access::Wanted(since, _) if now - *since > OPENING) {
                // Another program may send it.
                file.access = Access::NotYet;
                file.forget_streams(self.board);
            }
        }
    }

    /// Whether all readers of a file have ended, those on other nodes too.
    pub fn is_bypassed(&self, key: FileKey) -> bool {
        let now = self.node.now();
        self.files.get(&key).is_none_or(|file| !file.is_read(&*self.node) && !file.is_lent(now))
    }

    /// Stops reading ahead on a device that is bypassed.
    pub fn set_bypassed(&mut self, device: u64) {
        for (_, file) in self.files.range_mut((device, 0)..=(device, u64::MAX)) {
            file.forget_streams(self.board);
        }
    }

    /// Whether no file is open.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Closes all files.
    pub fn forget_all(&mut self) {
        let keys: Vec<FileKey> = self.files.keys().copied().collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    fn forget(&mut self, key: FileKey) {
        if let Some(file) = self.files.remove(&key) {
            self.closed.push(key);
            let entry = &self.board.files[file.entry];
            entry.inode.store(0, Ordering::Release);
            entry.clear();
            entry.users.store(0, Ordering::Relaxed);
            ring(&entry.progress);
        }
    }

    /// The file, with a board entry; `None` if no entry is free.
    fn file(&mut self, key: FileKey) -> Option<&mut ReadAheadFile<N::File>> {
        if !self.files.contains_key(&key) {
            let index = self.board.free_index_for(key.0, key.1)?;
            let entry = &self.board.files[index];
            entry.device.store(key.0, Ordering::Relaxed);
            entry.inode.store(key.1, Ordering::Release);
            let file = ReadAheadFile {
                entry: index,
                class: 0,
                bytes: 0,
                streams: Streams::default(),
                access: Access::NotYet,
                readers: BTreeSet::new(),
                used: self.node.now(),
                under_way: 0,
                reading: 0,
                is_closing: false,
                sharing: Sharing::Open,
                is_divided: false,
                is_shared: false,
                lent: None,
                closed: None,
            };
            self.files.insert(key, file);
        }
        self.files.get_mut(&key)
    }
}

impl<F: ProgramFile> ReadAheadFile<F> {
    /// Number of windows to read ahead: one, or one more than are being read at a time.
    fn ahead(&self) -> usize {
        let most = if self.is_shared { MAX_AHEAD_SHARED } else { MAX_AHEAD };
        if self.reading > 1 { (self.reading + 1).min(most) } else { 1 }
    }

    /// Whether neither this agent nor another one needs the file for the moment.
    fn is_unused(&self, now: Instant) -> bool {
        let is_held = matches!(&self.access, Access::Open(file) if Arc::strong_count(file) > 1);
        self.under_way == 0 && !is_held && !self.is_lent(now)
    }

    fn is_lent(&self, now: Instant) -> bool {
        let is_over = self.closed.is_some_and(|closed| now - closed > MAX_LENDING);
        !is_over && self.lent.is_some_and(|lent| now - lent < LENDING)
    }

    /// Whether the page cache has these bytes, as far as the kernel tells.
    fn has_cached(&self, bytes: &Range<u64>) -> bool {
        let Access::Open(file) = &self.access else { return false };
        file.is_cached(bytes).unwrap_or(false)
    }

    fn may_share(&self, now: Instant) -> bool {
        match self.sharing {
            Sharing::Open => true,
            Sharing::Paused(since) => now - since > SHARING_PAUSE,
            Sharing::Impossible => false,
        }
    }

    /// Whether a program of this node that reads the file is alive.
    fn is_read(&self, node: &impl AgentNode) -> bool {
        self.readers.iter().any(|reader| node.is_alive(*reader))
    }

    fn refuse(&mut self, board: &Board) {
        self.access = Access::Refused;
        self.forget_streams(board);
    }

    /// Forgets what was read ahead; it may have left memory.
    fn forget_streams(&mut self, board: &Board) {
        self.streams = Streams::default();
        let entry = &board.files[self.entry];
        entry.clear();
        ring(&entry.progress);
    }
}

/// Reports on the board that a window is coming, and asks to be told when a program enters it, or
/// each of its pieces.
fn announce(entry: &CachedFile, window: &Range<u64>, is_divided: bool) {
    for number in window.start / PIECE_BYTES..window.end.div_ceil(PIECE_BYTES) {
        let is_announced = is_divided || number == window.start / PIECE_BYTES;
        entry.set(FilePiece { number, pages: 0, is_announced });
    }
}

/// Pieces with some of these bytes that the board does not know, and that are not about to be read.
fn forgotten(entry: &CachedFile, bytes: &Range<u64>, windows: &[Range<u64>]) -> Vec<u64> {
    let pieces = bytes.start / PIECE_BYTES..bytes.end.div_ceil(PIECE_BYTES);
    let is_coming =
        |number: u64| windows.iter().any(|window| window.contains(&(number * PIECE_BYTES)));
    pieces.filter(|number| !is_coming(*number) && entry.piece(*number).is_none()).collect()
}
