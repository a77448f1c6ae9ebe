//! The files that the agent reads for its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use eyas_board::{Board, CachedFile, FilePiece, PIECE_BYTES, ring};
use rustix::process::{Pid, test_kill_process};

use super::streams::{Plan, Streams};

/// A file that nothing was heard of for so long is closed, and forgotten.
const IDLE: Duration = Duration::from_secs(10);
/// What was read ahead is taken to be in memory while somebody uses the file at least that often.
const FRESH: Duration = Duration::from_secs(1);
/// A program that was asked for a file gives it within this time, or not at all.
const OPENING: Duration = Duration::from_millis(500);

/// No more windows of a stream are fetched ahead, however many the storage serves at a time.
const MAX_AHEAD: usize = 8;

/// What reads a file's windows, and where it tells of them.
pub(super) struct Reader {
    pub file: Arc<File>,
    pub line: &'static CachedFile,
}

/// Device and inode.
pub(super) type Key = (u64, u64);

/// One file.
pub(super) struct Shared {
    line: usize,
    /// Of the program that last wanted something that was not there.
    class: u32,
    bytes: u64,
    streams: Streams,
    access: Access,
    /// Processes that read it, by their numbers.
    readers: BTreeSet<u32>,
    used: Instant,
    /// Windows that wait for their turn, or are read;
    under_way: usize,
    /// those of them that are read.
    reading: usize,
    /// It is to be closed when they have been.
    is_closing: bool,
}

/// Whether the agent can read it.
enum Access {
    /// It has not needed to.
    NotYet,
    /// A program is to give it, since that moment; then these windows are to be fetched.
    Wanted(Instant, Vec<Range<u64>>),
    /// It can.
    Open(Arc<File>),
    /// It cannot: programs read it themselves.
    Refused,
}

/// What to do about a program's read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// It reads itself, in its turn.
    Alone,
    /// It looks at this line, once these windows have been asked for.
    Look(usize, Vec<Range<u64>>),
    /// It gives the file first, and is advised again.
    Give,
}

/// All of them.
pub(super) struct Files {
    board: &'static Board,
    files: BTreeMap<Key, Shared>,
}

impl Files {
    pub fn new(board: &'static Board) -> Files {
        Files { board, files: BTreeMap::new() }
    }

    /// A process is about to read these bytes of a file of so many.
    pub fn read(&mut self, key: Key, process: u32, class: u32, bytes: Range<u64>, file_bytes: u64) -> Advice {
        let board = self.board;
        let Some(file) = self.file(key) else { return Advice::Alone };
        file.is_closing = false;
        if file.readers.insert(process) {
            file.readers.retain(|reader| *reader == process || is_alive(*reader));
            if file.readers.len() == 1 {
                // Others read it some time ago. What is left of that in memory is not known.
                file.forget_streams(board);
            }
        }
        (file.used, file.bytes, file.class) = (Instant::now(), file_bytes, class);
        if matches!(file.access, Access::Refused) {
            return Advice::Alone;
        }
        let Plan::Stream(windows) = file.streams.read(bytes.clone(), file_bytes) else { return Advice::Alone };
        let (line, place) = (&board.files[file.line], file.line);
        // The board has room for less than the agent knows of.
        publish_again(line, bytes, &windows);
        windows.iter().for_each(|window| announce(line, window));
        match &mut file.access {
            Access::Open(_) => {
                file.under_way += windows.len();
                Advice::Look(place, windows)
            }
            Access::Wanted(_, wanted) => {
                wanted.extend(windows);
                Advice::Look(place, Vec::new())
            }
            _ => {
                file.access = Access::Wanted(Instant::now(), windows);
                Advice::Give
            }
        }
    }

    /// A program has given a file that was wanted, if it could; the windows that are to be fetched now.
    pub fn given(&mut self, key: Key, given: Option<File>) -> Vec<Range<u64>> {
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

    /// Somebody has entered what was announced on a line; what is to be fetched next of which file.
    pub fn entered(&mut self, line: usize) -> Option<(Key, u32, Vec<Range<u64>>)> {
        let place = &self.board.files[line];
        let key = (place.device.load(Ordering::Relaxed), place.inode.load(Ordering::Relaxed));
        let file = self.files.get_mut(&key).filter(|file| file.line == line)?;
        file.used = Instant::now();
        if !matches!(file.access, Access::Open(_)) {
            return None;
        }
        let is_entered = |last: &u64| place.piece(last / PIECE_BYTES).is_some_and(|piece| !piece.is_announced);
        let entered: Vec<u64> = file.streams.ahead().filter(is_entered).collect();
        let ahead = file.ahead();
        let next = |start| file.streams.entered(start, file.bytes, ahead);
        let windows: Vec<_> = entered.into_iter().flat_map(next).collect();
        windows.iter().for_each(|window| announce(place, window));
        file.under_way += windows.len();
        Some((key, file.class, windows))
    }

    /// The window that begins there is read now: by what, where it is told, and which others are to be fetched besides. None if
    /// it cannot be read any more.
    pub fn begin(&mut self, key: Key, start: u64) -> Option<(Reader, u32, Vec<Range<u64>>)> {
        let file = self.files.get_mut(&key)?;
        let Access::Open(open) = &file.access else { return None };
        let line = &self.board.files[file.line];
        let reader = Reader { file: open.clone(), line };
        file.reading += 1;
        let windows = match file.ahead() {
            1 => Vec::new(),
            ahead => file.streams.begun(start, file.bytes, ahead),
        };
        windows.iter().for_each(|window| announce(line, window));
        file.under_way += windows.len();
        Some((reader, file.class, windows))
    }

    /// A window has been read, as far as that was possible.
    pub fn fetched(&mut self, key: Key) {
        if let Some(file) = self.files.get_mut(&key) {
            file.reading = file.reading.saturating_sub(1);
        }
        self.called_off(key);
    }

    /// A window is not wanted any more, or has been read.
    pub fn called_off(&mut self, key: Key) {
        let Some(file) = self.files.get_mut(&key) else { return };
        file.under_way = file.under_way.saturating_sub(1);
        file.used = Instant::now();
        if file.is_closing && file.under_way == 0 {
            self.forget(key);
        }
    }

    /// The last of a node's programs is about to close a file: the agent does, too, once it is not reading it.
    pub fn close(&mut self, key: Key) {
        match self.files.get_mut(&key) {
            Some(file) if file.under_way == 0 => self.forget(key),
            Some(file) => {
                // What was to be fetched after this is not.
                file.forget_streams(self.board);
                file.is_closing = true;
            }
            None => {}
        }
    }

    /// A window is not fetched: whoever waits for it reads it.
    pub fn give_up(&self, key: Key, window: Range<u64>) {
        let Some(file) = self.files.get(&key) else { return };
        let line = &self.board.files[file.line];
        for number in window.start / PIECE_BYTES..window.end.div_ceil(PIECE_BYTES) {
            line.grow(number, FilePiece::PAGES);
        }
        ring(&line.progress);
    }

    /// Closes what nobody uses, and does without what nobody gives.
    pub fn tidy(&mut self) {
        let idle = |file: &Shared| file.under_way == 0 && (file.used.elapsed() > IDLE || file.is_left());
        let leaving: Vec<Key> = self.files.iter().filter(|(_, file)| idle(file)).map(|(key, _)| *key).collect();
        leaving.into_iter().for_each(|key| self.forget(key));
        for file in self.files.values_mut() {
            if file.under_way == 0 && file.used.elapsed() > FRESH {
                file.forget_streams(self.board);
            }
            if matches!(&file.access, Access::Wanted(since, _) if since.elapsed() > OPENING) {
                // Another program may give it.
                file.access = Access::NotYet;
                file.forget_streams(self.board);
            }
        }
    }

    /// Whether all that have read a file are gone.
    pub fn is_left(&self, key: Key) -> bool {
        self.files.get(&key).is_none_or(Shared::is_left)
    }

    /// Programs read the files of a device by themselves from now on.
    pub fn leave_alone(&mut self, device: u64) {
        for (_, file) in self.files.range_mut((device, 0)..=(device, u64::MAX)) {
            file.forget_streams(self.board);
        }
    }

    /// Closes all.
    pub fn forget_all(&mut self) {
        let keys: Vec<Key> = self.files.keys().copied().collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    fn forget(&mut self, key: Key) {
        if let Some(file) = self.files.remove(&key) {
            let line = &self.board.files[file.line];
            line.inode.store(0, Ordering::Release);
            line.clear();
            line.users.store(0, Ordering::Relaxed);
            ring(&line.progress);
        }
    }

    /// The file, with a line of its own; None if there is none to be had.
    fn file(&mut self, key: Key) -> Option<&mut Shared> {
        if !self.files.contains_key(&key) {
            let place = self.board.free_index_for(key.0, key.1)?;
            let line = &self.board.files[place];
            line.device.store(key.0, Ordering::Relaxed);
            line.inode.store(key.1, Ordering::Release);
            let file = Shared {
                line: place,
                class: 0,
                bytes: 0,
                streams: Streams::default(),
                access: Access::NotYet,
                readers: BTreeSet::new(),
                used: Instant::now(),
                under_way: 0,
                reading: 0,
                is_closing: false,
            };
            self.files.insert(key, file);
        }
        self.files.get_mut(&key)
    }
}

impl Shared {
    /// How many windows of a stream are fetched ahead: where several are read at a time, one more waits for its turn.
    fn ahead(&self) -> usize {
        if self.reading > 1 { (self.reading + 1).min(MAX_AHEAD) } else { 1 }
    }

    fn is_left(&self) -> bool {
        !self.readers.iter().any(|reader| is_alive(*reader))
    }

    fn refuse(&mut self, board: &Board) {
        self.access = Access::Refused;
        self.forget_streams(board);
    }

    /// What was read ahead may not be in memory any more.
    fn forget_streams(&mut self, board: &Board) {
        self.streams = Streams::default();
        let line = &board.files[self.line];
        line.clear();
        ring(&line.progress);
    }
}

/// Whether a process lives; one that the agent cannot see is taken to.
fn is_alive(process: u32) -> bool {
    Pid::from_raw(process as i32).is_none_or(|pid| test_kill_process(pid).is_ok())
}

/// Says that a window is coming, and that the agent wants to know when somebody comes to it.
fn announce(line: &CachedFile, window: &Range<u64>) {
    for number in window.start / PIECE_BYTES..window.end.div_ceil(PIECE_BYTES) {
        line.set(FilePiece { number, pages: 0, is_announced: number == window.start / PIECE_BYTES });
    }
}

/// Says once more that these bytes are in memory, where that has made room for others and they are not to be fetched.
fn publish_again(line: &CachedFile, bytes: Range<u64>, windows: &[Range<u64>]) {
    for number in bytes.start / PIECE_BYTES..bytes.end.div_ceil(PIECE_BYTES) {
        let is_coming = windows.iter().any(|window| window.contains(&(number * PIECE_BYTES)));
        if !is_coming && line.piece(number).is_none() {
            line.set(FilePiece { number, pages: FilePiece::PAGES, is_announced: false });
        }
    }
}
