//! Waiting for one's turn to read or write.
//!
//! What a descriptor may read at once is remembered with it, so that most reads cost a look. Else the board is asked: what of
//! the file is in memory, or about to be; and if nobody has begun with it, the agent.

use core::ffi::c_int;
use core::time::Duration;
use std::os::fd::BorrowedFd;

use core::sync::atomic::Ordering;
use eyas_board::{Answer, Ask, Board, Kind, Line, PIECE_BYTES, Piece, State};
use rustix::fs::Stat;

use crate::agent::{board, class, now_ms, process, send_file};
use crate::descriptors::{self, Descriptor, Of};
use crate::scope;

/// How often who waits looks whether the agent is still there.
const STEP: Duration = Duration::from_millis(100);
/// Who has waited for so long goes ahead, whatever the agent says.
const MOST_WAIT_MS: u64 = 60_000;
/// More of a mapping than this is not read ahead.
const MOST_MAPPED_BYTES: u64 = 16 << 20;

/// Leave to go ahead with one call, for which the agent may wait to hear that it is done.
#[derive(Clone, Copy)]
#[must_use = "others wait for its end"]
pub(crate) struct Turn(Option<(&'static Board, usize)>);

impl Turn {
    /// Nobody waits for it.
    pub(crate) const UNORDERED: Turn = Turn(None);

    /// It is done.
    #[inline]
    pub(crate) fn end(self) {
        if let Turn(Some((board, seat))) = self {
            board.leave(seat, State::Done);
        }
    }
}

/// Waits for the turn to read so many bytes at an offset.
#[inline]
pub(crate) fn to_read_at(descriptor: c_int, offset: i64, length: usize) -> Turn {
    match descriptors::get(descriptor) {
        Some(known) if known.of() != Of::Elsewhere => match u64::try_from(offset) {
            Ok(offset) if !known.may_read(offset, length as u64) => {
                wait(Kind::Read, descriptor, known, Some(offset), length as u64)
            }
            _ => Turn::UNORDERED,
        },
        _ => Turn::UNORDERED,
    }
}

/// Waits for the turn to read so many bytes where the descriptor stands. To be followed by [`has_read`].
#[inline]
pub(crate) fn to_read(descriptor: c_int, length: usize) -> Turn {
    match descriptors::get(descriptor) {
        Some(known) if known.of() != Of::Elsewhere => match known.position() {
            Some(offset) if known.may_read(offset, length as u64) => Turn::UNORDERED,
            _ => wait(Kind::Read, descriptor, known, None, length as u64),
        },
        _ => Turn::UNORDERED,
    }
}

/// A read where the descriptor stands has given so many bytes.
#[inline]
pub(crate) fn has_read(descriptor: c_int, bytes: isize) {
    if let Some(known) = descriptors::get(descriptor) {
        known.advance(bytes);
    }
}

/// The descriptor stands there now.
#[inline]
pub(crate) fn has_moved(descriptor: c_int, position: i64) {
    if let (Some(known), Ok(position)) = (descriptors::get(descriptor), u64::try_from(position)) {
        known.set_position(position);
    }
}

/// Waits until what is to be mapped is in memory, if it is not too much.
pub(crate) fn to_map(descriptor: c_int, offset: i64, length: usize) -> Turn {
    match length as u64 {
        0..=MOST_MAPPED_BYTES => to_read_at(descriptor, offset, length),
        _ => Turn::UNORDERED,
    }
}

/// Says that these bytes will be read soon, and does not wait.
pub(crate) fn to_read_later(descriptor: c_int, offset: i64, length: usize) {
    if let (Some(known), Ok(offset)) = (descriptors::get(descriptor), u64::try_from(offset))
        && known.of() != Of::Elsewhere
        && !known.may_read(offset, length as u64)
    {
        wait(Kind::Hint, descriptor, known, Some(offset), length as u64).end();
    }
}

/// The descriptor is about to be closed. The agent, which may have the file open too, must have closed it before: there are
/// file systems that cannot remove what somebody has open.
#[inline]
pub(crate) fn to_close(descriptor: c_int) {
    if let Some(known) = descriptors::get(descriptor) {
        if let Some(line) = known.line() {
            let_go(known, line);
        }
        descriptors::came(descriptor);
    }
}

#[cold]
fn let_go(known: &Descriptor, line: usize) {
    let Some(board) = board() else { return };
    let (line, inode) = (&board.lines[line], known.inode());
    let is_of_file = line.inode.load(Ordering::Relaxed) == inode;
    if !is_of_file || line.users.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    let device = line.device.load(Ordering::Relaxed);
    let ask =
        Ask { process: process(), kind: Kind::Close, device, inode, offset: 0, length: 0, file_bytes: 0, class: 0 };
    if let Some(seat) = board.ask(ask) {
        board.answer(seat, STEP, || board.is_open(now_ms()));
    }
}

#[cold]
fn wait(kind: Kind, number: c_int, known: &Descriptor, offset: Option<u64>, length: u64) -> Turn {
    // SAFETY: what is not open, or closed meanwhile, fails the calls below.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    if number < 0 {
        return Turn::UNORDERED;
    }
    let Some(board) = board() else { return Turn::UNORDERED };
    let Ok(stat) = rustix::fs::fstat(descriptor) else { return Turn::UNORDERED };
    if !known.is_of(stat.st_ino) {
        known.learn(scope::of(descriptor, number, &stat), stat.st_ino);
    }
    let kind = match (kind, known.of()) {
        (_, Of::Elsewhere | Of::Unknown) => return Turn::UNORDERED,
        (Kind::Read, Of::Direct) => Kind::DirectRead,
        (kind, _) => kind,
    };
    let offset = match offset {
        Some(offset) => offset,
        None => match rustix::fs::tell(descriptor) {
            Ok(position) => {
                known.set_position(position);
                position
            }
            Err(_) => return Turn::UNORDERED,
        },
    };
    let end = offset.saturating_add(length).min(stat.st_size as u64);
    if offset >= end {
        return Turn::UNORDERED;
    }
    Request { board, descriptor, known, stat, kind, offset, end, begun_ms: now_ms() }.wait()
}

/// A read that could not begin at once.
struct Request<'a> {
    board: &'static Board,
    descriptor: BorrowedFd<'a>,
    known: &'a Descriptor,
    stat: Stat,
    kind: Kind,
    offset: u64,
    end: u64,
    begun_ms: u64,
}

/// What the board says of some bytes.
enum Seen {
    /// They are in memory, as is everything between these offsets.
    Ready(u64, u64),
    /// They are being brought, or a part of them; this is what progress was seen.
    Coming(u32),
    /// Nothing.
    Nothing,
}

impl Request<'_> {
    fn wait(&self) -> Turn {
        while self.is_worth_it() {
            let line = self.line();
            match line.map_or(Seen::Nothing, |(_, line)| self.look(line)) {
                Seen::Ready(start, end) => {
                    self.known.permit(start, end);
                    return Turn::UNORDERED;
                }
                Seen::Coming(progress) => {
                    if let Some((_, line)) = line {
                        eyas_board::wait(&line.progress, progress, STEP);
                    }
                }
                Seen::Nothing => match self.ask() {
                    Some(turn) => return turn,
                    None => continue,
                },
            }
        }
        Turn::UNORDERED
    }

    fn is_worth_it(&self) -> bool {
        let now_ms = now_ms();
        self.board.is_open(now_ms) && now_ms - self.begun_ms < MOST_WAIT_MS
    }

    /// The file's line, if the agent has told it to this descriptor.
    fn line(&self) -> Option<(usize, &'static Line)> {
        let place = self.known.line()?;
        let line = &self.board.lines[place];
        line.is_of(self.stat.st_dev, self.stat.st_ino).then_some((place, line))
    }

    /// The descriptor is one of the line's users from now on.
    fn learn(&self, line: usize) {
        if self.known.line() != Some(line) {
            if let Some(line) = self.board.lines.get(line) {
                line.users.fetch_add(1, Ordering::AcqRel);
            }
            self.known.set_line(line);
        }
    }

    fn look(&self, line: &Line) -> Seen {
        let progress = line.progress.load(Ordering::Acquire);
        let mut ready_end = self.offset;
        let mut is_ready = true;
        for number in self.offset / PIECE_BYTES..=(self.end - 1) / PIECE_BYTES {
            let Some(piece) = line.piece(number) else { return Seen::Nothing };
            if line.enter(piece) {
                self.board.tell_of_line(self.known.line().unwrap_or_default());
            }
            is_ready &= piece.ready_end() >= self.end.min(piece.start() + PIECE_BYTES);
            ready_end = piece.ready_end();
        }
        if is_ready { Seen::Ready(self.offset / PIECE_BYTES * PIECE_BYTES, ready_end) } else { Seen::Coming(progress) }
    }

    /// Asks the agent; None if the board has news then.
    fn ask(&self) -> Option<Turn> {
        let (device, inode, file_bytes) = (self.stat.st_dev, self.stat.st_ino, self.stat.st_size as u64);
        let length = self.end - self.offset;
        let (kind, offset, class) = (self.kind, self.offset, class());
        let ask = Ask { process: process(), kind, device, inode, offset, length, file_bytes, class };
        let Some(seat) = self.board.ask(ask) else { return Some(Turn::UNORDERED) };
        loop {
            return match self.board.answer(seat, STEP, || self.is_worth_it()) {
                Answer::Go => Some(Turn(Some((self.board, seat)))),
                Answer::InMemory(line) => {
                    self.learn(line);
                    None
                }
                Answer::Pass | Answer::Silence => Some(Turn::UNORDERED),
                Answer::OpenWanted => {
                    self.board.resume(seat);
                    if send_file(seat, self.descriptor).is_some() {
                        continue;
                    }
                    self.board.leave(seat, State::Left);
                    Some(Turn::UNORDERED)
                }
            };
        }
    }
}

const _: () = assert!(Piece::PAGES < 512, "a piece's pages have nine bits");
