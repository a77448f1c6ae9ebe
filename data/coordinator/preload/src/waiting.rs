//! Waiting for a turn.
//!
//! A descriptor remembers which bytes may be read without asking, so most reads cost one check.
//! Otherwise the board is consulted: is the storage bypassed, and what of the file is in memory or
//! being read? Then the kernel is asked whether it has all of the bytes anyway. Only then the agent
//! is asked.

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::fd::BorrowedFd;

use eyas_board::{
    Board, CachedFile, CallKind, FilePiece, PIECE_BYTES, SeatAnswer, SeatRequest, SeatState,
};

use crate::agent::{
    board, class, known_board, must_order, now_ms, now_us, own_heartbeat, process, send_file,
};
use crate::bypass::{self};
use crate::descriptors::{self, Descriptor, StorageKind, WritePath};
use crate::page_cache::CacheLookup;
use crate::parts::Room;
use crate::stat::Stat;
use crate::timed_call::TimedCall;
use crate::turn::{CallTurn, HeldTurn, OpenTurn, WantedTurn, WantedWork};
use crate::{page_cache, shared_files};

/// Interval at which a waiting call checks that the agent is alive.
pub(crate) const STEP: Duration = Duration::from_millis(100);
/// Longest wait; then the call proceeds, whatever the agent says.
const MAX_WAIT_MS: u64 = 60_000;
/// Times that a call asks for bytes that are to come to the board; then it proceeds.
const MAX_ASKED: u32 = 8;
/// The kernel reads and writes at most this much in one call (read(2)).
const MAX_CALL_BYTES: u64 = 0x7fff_f000;

/// Whether a descriptor is of shared storage; determined now if unknown.
pub(crate) fn is_shared(descriptor: c_int) -> bool {
    let is_it = |known: &Descriptor| match known.storage() {
        StorageKind::NotShared => false,
        StorageKind::Unknown => look_at(descriptor, known).is_some(),
        StorageKind::Shared | StorageKind::Direct => true,
    };
    descriptors::get(descriptor).is_some_and(is_it)
}

/// The turn of a call of `length` bytes, if the descriptor's storage is bypassed.
#[inline]
pub(crate) fn at_once(known: &Descriptor, length: u64) -> Option<CallTurn> {
    bypass::proceed(known_board()?, known, length)
}

/// The agent's heartbeat: what is learned is valid until the next one. Without an agent, a
/// heartbeat of this process's own.
#[inline]
pub(crate) fn heartbeat() -> u64 {
    known_board().map_or_else(own_heartbeat, Board::heartbeat_ms)
}

impl WantedTurn {
    /// Waits for the turn, which `open` has from before the agent sees the request.
    #[cold]
    pub(crate) fn wait(self, open: &OpenTurn) -> HeldTurn {
        let WantedTurn { number, work, is_timed } = self;
        let Some(known) = descriptors::get(number) else { return HeldTurn::Unordered };
        let turn = match work {
            WantedWork::Call { kind, offset, length, room } => {
                let kept = if kind == CallKind::Write {
                    write_on(known, offset, length, open)
                } else {
                    None
                };
                let wait = || wait_to_call(kind, number, known, offset, length, room, open);
                kept.unwrap_or_else(wait)
            }
            WantedWork::Sync { bytes, closes } => {
                let turn = wait_to_sync(number, known, bytes, open);
                if closes {
                    descriptors::opened(number);
                }
                turn
            }
        };
        if is_timed { turn } else { turn.untimed() }
    }
}

/// Continues to write in the turn that the descriptor keeps.
fn write_on(
    known: &Descriptor,
    offset: Option<u64>,
    length: u64,
    open: &OpenTurn,
) -> Option<HeldTurn> {
    if known.storage() == StorageKind::Unknown || known.writes() != WritePath::PassThrough {
        return None;
    }
    let (board, offset) = (known_board()?, offset.or_else(|| known.position())?);
    let (seat, turn) = known.kept_turn().enter(board, offset, length, open)?;
    Some(HeldTurn::Kept { board, seat, turn })
}

/// Determines what a descriptor refers to, and waits for the turn to read there or to write past
/// the page cache.
fn wait_to_call(
    kind: CallKind,
    number: c_int,
    known: &Descriptor,
    offset: Option<u64>,
    length: u64,
    room: Option<Room>,
    open: &OpenTurn,
) -> HeldTurn {
    let Some((descriptor, stat)) = look_at(number, known) else { return HeldTurn::Unordered };
    if let Some(turn) = bypass_turn(known, &stat, length) {
        return if kind == CallKind::Read { turn } else { turn.untimed() };
    }
    let offset = match offset {
        Some(offset) => offset,
        None => match position(kind, descriptor, known, &stat) {
            Some(position) => position,
            None => return HeldTurn::Unordered,
        },
    };
    let kind = match (kind, known.storage()) {
        (CallKind::Write, _) if known.writes() != WritePath::PassThrough => {
            return HeldTurn::Unordered;
        }
        (CallKind::Read, StorageKind::Direct) => CallKind::DirectRead,
        (kind, _) => kind,
    };
    let most = if kind == CallKind::Write { i64::MAX } else { stat.st_size } as u64;
    let end = offset.saturating_add(length.min(MAX_CALL_BYTES)).min(most);
    if offset >= end {
        return HeldTurn::Unordered;
    }
    let last_end = known.last_end();
    known.set_last_end(end);
    if matches!(kind, CallKind::Read | CallKind::Hint)
        && known.file_index().is_none()
        && !must_order()
    {
        match page_cache::look_up(known, descriptor, &(offset..end), stat.st_size as u64, last_end)
        {
            CacheLookup::Surroundings(cached) => {
                page_cache::record_hit();
                known.permit_reads(heartbeat(), cached);
                return HeldTurn::Unordered;
            }
            CacheLookup::OnlyThese => return HeldTurn::Unordered,
            CacheLookup::Missing => {}
        }
    }
    page_cache::record_miss(known);
    let Some(board) = board() else { return HeldTurn::Unordered };
    let begun_ms = now_ms();
    WaitingCall { board, descriptor, known, stat, kind, offset, end, begun_ms, room, open }.wait()
}

/// Waits for the turn to flush these bytes from the page cache to the storage.
fn wait_to_sync(number: c_int, known: &Descriptor, bytes: Range<u64>, open: &OpenTurn) -> HeldTurn {
    let Some((descriptor, stat)) = look_at(number, known) else { return HeldTurn::Unordered };
    let Range { start: offset, end } = bytes;
    if let Some(turn) = bypass_turn(known, &stat, end - offset) {
        return turn;
    }
    let Some(board) = board() else { return HeldTurn::Unordered };
    let (kind, begun_ms, room) = (CallKind::Write, now_ms(), None);
    let request =
        WaitingCall { board, descriptor, known, stat, kind, offset, end, begun_ms, room, open };
    request.ask(end - offset, false).unwrap_or(HeldTurn::Unordered)
}

/// The file of a descriptor, if it is of shared storage. State of another file is forgotten.
fn look_at(number: c_int, known: &Descriptor) -> Option<(BorrowedFd<'static>, Stat)> {
    // SAFETY: if the descriptor is not open, the calls that use it fail.
    let descriptor = (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })?;
    let stat = Stat::of(descriptor)?;
    if !known.is_of((stat.st_dev, stat.st_ino)) {
        shared_files::learn(known, descriptor, number, &stat);
    }
    matches!(known.storage(), StorageKind::Shared | StorageKind::Direct)
        .then_some((descriptor, stat))
}

/// The turn of a call of `length` bytes, if the file's storage is bypassed. Until the next
/// heartbeat, the descriptor does not ask again.
fn bypass_turn(known: &Descriptor, stat: &Stat, length: u64) -> Option<HeldTurn> {
    known_board().filter(|board| !must_order() && board.bypass_index(stat.st_dev).is_some())?;
    // Another agent may have started meanwhile.
    let board = board()?;
    let index = board.bypass_index(stat.st_dev)?;
    known.set_bypassed(board.heartbeat_ms(), index);
    page_cache::record_hit();
    Some(HeldTurn::Timed(TimedCall::begin(board, index, length, now_us())))
}

/// Offset of a call that reads or writes at the descriptor's position.
fn position(
    kind: CallKind,
    descriptor: BorrowedFd<'_>,
    known: &Descriptor,
    stat: &Stat,
) -> Option<u64> {
    let position = match kind {
        CallKind::Write if known.appends() => stat.st_size as u64,
        _ => rustix::fs::tell(descriptor).ok()?,
    };
    known.set_position(position);
    Some(position)
}

/// A call that could not proceed at once.
struct WaitingCall<'a> {
    board: &'static Board,
    descriptor: BorrowedFd<'a>,
    known: &'a Descriptor,
    stat: Stat,
    kind: CallKind,
    offset: u64,
    end: u64,
    begun_ms: u64,
    room: Option<Room>,
    open: &'a OpenTurn,
}

/// State of some bytes on the board.
enum BoardView {
    /// They are in memory, with everything between these offsets.
    Ready(u64, u64),
    /// Some of them are in the board's parts, and the others in memory.
    InParts,
    /// Some of them are being read; the file's progress counter had this value.
    Coming(u32),
    /// They are neither in memory nor being read.
    Nothing,
}

impl WaitingCall<'_> {
    fn wait(&self) -> HeldTurn {
        if matches!(self.kind, CallKind::DirectRead | CallKind::Write) {
            return self.wait_in_stream();
        }
        let mut asked = 0;
        while self.keep_waiting() {
            let file = self.board_file();
            match file.map_or(BoardView::Nothing, |file| self.look(file)) {
                BoardView::Ready(start, end) => {
                    self.known.permit_reads(self.board.heartbeat_ms(), start..end);
                    return HeldTurn::Unordered;
                }
                BoardView::InParts => {
                    let copied = file.and_then(|file| self.copy(file));
                    return copied.map_or(HeldTurn::Unordered, HeldTurn::Copied);
                }
                BoardView::Coming(_) if self.kind == CallKind::Hint => return HeldTurn::Unordered,
                BoardView::Coming(progress) => {
                    if let Some(file) = file {
                        eyas_board::wait(&file.progress, progress, STEP);
                    }
                }
                // The board has no room for all that is read at this time.
                BoardView::Nothing if asked == MAX_ASKED => return HeldTurn::Unordered,
                BoardView::Nothing => match self.ask(self.end - self.offset, false) {
                    Some(turn) => return turn,
                    None => asked += 1,
                },
            }
        }
        HeldTurn::Unordered
    }

    /// Bypasses the page cache: in the turn that the descriptor keeps, or in a new one.
    fn wait_in_stream(&self) -> HeldTurn {
        let kept_turn = self.known.kept_turn();
        if let Some((seat, turn)) =
            kept_turn.enter(self.board, self.offset, self.end - self.offset, self.open)
        {
            return HeldTurn::Kept { board: self.board, seat, turn };
        }
        kept_turn.give_up(self.board);
        let (length, is_kept) = kept_turn.plan(&(self.offset..self.end));
        self.ask(length, is_kept).unwrap_or(HeldTurn::Unordered)
    }

    fn keep_waiting(&self) -> bool {
        let now_ms = now_ms();
        self.board.is_open(now_ms) && now_ms - self.begun_ms < MAX_WAIT_MS
    }

    /// The file's entry on the board, if the agent has named it to this descriptor.
    fn board_file(&self) -> Option<&'static CachedFile> {
        let file = &self.board.files[self.known.file_index()?];
        file.is_of(self.stat.st_dev, self.stat.st_ino).then_some(file)
    }

    /// Counts the descriptor as a user of this entry.
    fn count_user(&self, index: usize) {
        if self.known.file_index() != Some(index) {
            if let Some(file) = self.board.files.get(index) {
                file.users.fetch_add(1, Ordering::AcqRel);
            }
            self.known.set_file_index(index);
        }
    }

    fn look(&self, file: &CachedFile) -> BoardView {
        let progress = file.progress.load(Ordering::Acquire);
        let mut ready_end = self.offset;
        let (mut is_ready, mut is_in_parts) = (true, false);
        for number in self.offset / PIECE_BYTES..=(self.end - 1) / PIECE_BYTES {
            let Some(piece) = file.piece(number) else { return BoardView::Nothing };
            if file.enter(piece) {
                self.board.ring_for_file(self.known.file_index().unwrap_or_default());
            }
            is_ready &= piece.ready_end() >= self.end.min(piece.start() + PIECE_BYTES);
            is_in_parts |= file.slot(number).is_some();
            ready_end = piece.ready_end();
        }
        match is_ready {
            false => BoardView::Coming(progress),
            true if is_in_parts => BoardView::InParts,
            true => widen(file, self.offset, ready_end),
        }
    }

    /// Copies the bytes from the board's parts, and returns their number.
    fn copy(&self, file: &CachedFile) -> Option<usize> {
        self.room?.fill(self.board, file, self.descriptor, self.offset)
    }

    /// When the call begins, if its duration says how fast the storage is: not if its bytes are in
    /// memory.
    fn begin(&self) -> Option<u64> {
        let is_read = matches!(self.kind, CallKind::Read | CallKind::DirectRead);
        (is_read && !page_cache::is_cached(self.known, self.descriptor, &(self.offset..self.end)))
            .then(now_us)
    }

    /// Asks the agent for this many bytes. `None`: look at the board again.
    fn ask(&self, length: u64, is_kept: bool) -> Option<HeldTurn> {
        let (device, inode, file_bytes) =
            (self.stat.st_dev, self.stat.st_ino, self.stat.st_size as u64);
        let (kind, offset, class) = (self.kind, self.offset, class());
        let (process, must_order, takes_bytes) = (process(), must_order(), self.room.is_some());
        let ask = SeatRequest {
            process,
            kind,
            device,
            inode,
            offset,
            length,
            file_bytes,
            class,
            is_kept,
            must_order,
            takes_bytes,
        };
        let before = |seat, turn| self.open.set_once(self.board, seat, turn);
        let Some((seat, turn)) = self.board.ask_after(ask, before) else {
            return Some(HeldTurn::Unordered);
        };
        loop {
            return match self.board.await_answer(seat, turn, STEP, || self.keep_waiting()) {
                SeatAnswer::Go if is_kept => {
                    self.known.kept_turn().keep(seat, turn, offset..offset.saturating_add(length));
                    let is_there = self.board.enter(seat, turn);
                    Some(if is_there {
                        HeldTurn::Kept { board: self.board, seat, turn }
                    } else {
                        HeldTurn::Unordered
                    })
                }
                SeatAnswer::Go => {
                    Some(HeldTurn::Once { board: self.board, seat, turn, began_us: self.begin() })
                }
                SeatAnswer::InMemory(index) => {
                    self.count_user(index);
                    None
                }
                SeatAnswer::Pass | SeatAnswer::Silence => Some(HeldTurn::Unordered),
                SeatAnswer::OpenWanted => {
                    self.board.resume(seat, turn);
                    if send_file(seat, self.descriptor).is_some() {
                        continue;
                    }
                    self.board.leave(seat, turn, SeatState::Left);
                    Some(HeldTurn::Unordered)
                }
            };
        }
    }
}

/// Includes neighbouring pieces that are in memory, so that random readers need not check each.
fn widen(file: &CachedFile, offset: u64, ready_end: u64) -> BoardView {
    // The agent waits to hear about an announced piece.
    let is_whole = |number| {
        file.slot(number).is_none()
            && file
                .piece(number)
                .is_some_and(|piece| piece.pages == FilePiece::PAGES && !piece.is_announced)
    };
    let (mut first, mut end) = (offset / PIECE_BYTES, ready_end);
    while first > 0 && is_whole(first - 1) {
        first -= 1;
    }
    while end % PIECE_BYTES == 0 && is_whole(end / PIECE_BYTES) {
        end += PIECE_BYTES;
    }
    BoardView::Ready(first * PIECE_BYTES, end)
}

const _: () = assert!(FilePiece::PAGES < 512, "a piece's pages have nine bits");
