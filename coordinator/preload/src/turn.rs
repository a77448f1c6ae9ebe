//! Waiting for one's turn to read or write.
//!
//! What a descriptor may read at once is remembered with it, so that most reads cost a look. Else the board is asked: whether the
//! storage is one where order gains nothing, and what of the file is in memory, or about to be; then the kernel, if it has
//! all of it anyway; and if not, the agent.

use core::ffi::c_int;
use core::ops::Range;
use core::time::Duration;
use std::os::fd::BorrowedFd;

use core::sync::atomic::Ordering;
use eyas_board::{Answer, Ask, Board, Kind, Line, PIECE_BYTES, Piece, State};

use crate::agent::{board, class, insists, is_forked, known_board, now_ms, now_us, own_beat, process, send_file};
use crate::descriptors::{self, Descriptor, Of, Writes};
use crate::memory::Look;
use crate::stat::Stat;
use crate::unordered::{self, Timed};
use crate::{memory, scope};

/// How often who waits looks whether the agent is still there.
const STEP: Duration = Duration::from_millis(100);
/// Who has waited for so long goes ahead, whatever the agent says.
const MOST_WAIT_MS: u64 = 60_000;
/// The kernel reads and writes no more in one call (read(2)).
const MOST_BYTES: u64 = 0x7fff_f000;
/// More of a mapping than this is not read ahead.
const MOST_MAPPED_BYTES: u64 = 16 << 20;

/// Leave to go ahead with one call, for which the agent may wait to hear that it is done.
#[derive(Clone, Copy)]
#[must_use = "others wait for its end"]
pub(crate) enum Turn {
    /// Nobody waits for it.
    Unordered,
    /// Nor here; but it is seen how long it takes.
    Timed(Timed),
    /// It is for this call, and has that number. If the call tells how fast the storage is: when it begins, in microseconds.
    Once(&'static Board, usize, u32, Option<u64>),
    /// The descriptor keeps it, by that number, for the calls that follow.
    Kept(&'static Board, usize, u32),
}

impl Turn {
    /// The call is done, with what it has answered: how many bytes, or that it has failed.
    #[inline]
    pub(crate) fn end(self, bytes: isize) {
        match self {
            Turn::Unordered => {}
            Turn::Timed(call) => call.end(u64::try_from(bytes).unwrap_or(0)),
            Turn::Once(board, seat, turn, began_us) => {
                board.finish(seat, turn, began_us.map_or(0, |began_us| now_us() - began_us));
            }
            Turn::Kept(board, seat, turn) => board.exit(seat, turn, u64::try_from(bytes).unwrap_or(0)),
        }
    }

    /// The same for a call that takes long, or does not, for other reasons than to read from the storage.
    pub(crate) fn untimed(self) -> Turn {
        match self {
            Turn::Timed(_) => Turn::Unordered,
            Turn::Once(board, seat, turn, _) => Turn::Once(board, seat, turn, None),
            turn => turn,
        }
    }
}

/// Whether a descriptor is of shared storage. It is looked at if that is not known.
pub(crate) fn is_shared(descriptor: c_int) -> bool {
    let is_it = |known: &Descriptor| match known.of() {
        Of::Elsewhere => false,
        Of::Unknown => look_at(descriptor, known).is_some(),
        Of::Shared | Of::Direct => true,
    };
    descriptors::get(descriptor).is_some_and(is_it)
}

/// Waits for the turn to read so many bytes at an offset.
#[inline]
pub(crate) fn to_read_at(descriptor: c_int, offset: i64, length: usize) -> Turn {
    match (descriptors::get(descriptor), u64::try_from(offset)) {
        (Some(known), Ok(offset)) => read(descriptor, known, Some(offset), length as u64),
        _ => Turn::Unordered,
    }
}

/// Waits for the turn to read so many bytes where the descriptor stands. To be followed by [`has_read`].
#[inline]
pub(crate) fn to_read(descriptor: c_int, length: usize) -> Turn {
    match descriptors::get(descriptor) {
        Some(known) => read(descriptor, known, None, length as u64),
        None => Turn::Unordered,
    }
}

#[inline]
fn read(number: c_int, known: &Descriptor, at: Option<u64>, length: u64) -> Turn {
    if known.of() == Of::Elsewhere {
        return Turn::Unordered;
    }
    if let Some(turn) = at_once(known, length) {
        return turn;
    }
    let offset = at.or_else(|| known.position());
    match offset {
        Some(offset) if known.may_read(beat(), offset, length) => Turn::Unordered,
        _ if memory::is_spared(known, offset, length) => Turn::Unordered,
        _ => wait(Kind::Read, number, known, at, length),
    }
}

/// The turn of a call that is to move so many bytes, if nobody asks at the descriptor's storage.
#[inline]
pub(crate) fn at_once(known: &Descriptor, length: u64) -> Option<Turn> {
    unordered::go(known_board()?, known, length)
}

/// The agent's beat: what is learned is good until the next. Who does not know the agent has one of its own.
#[inline]
fn beat() -> u64 {
    known_board().map_or_else(own_beat, Board::beat)
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
        0..=MOST_MAPPED_BYTES => to_read_at(descriptor, offset, length).untimed(),
        _ => Turn::Unordered,
    }
}

/// Says that these bytes will be read soon, and does not wait.
pub(crate) fn to_read_later(descriptor: c_int, offset: i64, length: usize) {
    if let (Some(known), Ok(offset)) = (descriptors::get(descriptor), u64::try_from(offset))
        && known.of() != Of::Elsewhere
        && at_once(known, 0).is_none()
        && !known.may_read(beat(), offset, length as u64)
    {
        wait(Kind::Hint, descriptor, known, Some(offset), length as u64).untimed().end(0);
    }
}

/// The descriptor is about to be closed, in the turn that is waited for if that takes more than a moment. The agent, which may
/// have the file open too, must have closed it before: there are file systems that cannot remove what somebody has open.
#[inline]
pub(crate) fn to_close(descriptor: c_int) -> Turn {
    let Some(known) = descriptors::get(descriptor).filter(|known| known.of() != Of::Unknown) else {
        return Turn::Unordered;
    };
    if known.of() == Of::Elsewhere {
        descriptors::came(descriptor);
        return Turn::Unordered;
    }
    if is_forked() {
        // What is known may be its parent's, which shares memory with it until it has another program's; nothing is its own.
        known.forbid();
        return Turn::Unordered;
    }
    let turn = finish(descriptor, known);
    descriptors::came(descriptor);
    turn
}

#[cold]
fn finish(number: c_int, known: &Descriptor) -> Turn {
    if let Some(board) = known_board() {
        known.kept().give_up(board);
    }
    if let Some(line) = known.line() {
        let_go(known, line);
    }
    match known.take_gathered() {
        Some(bytes) if known.writes() == Writes::GatherTillClose => wait_to_bring(number, known, bytes),
        _ => Turn::Unordered,
    }
}

#[cold]
fn let_go(known: &Descriptor, line: usize) {
    let Some(board) = board() else { return };
    let (line, (device, inode)) = (&board.lines[line], known.file());
    let is_of_file = line.is_of(device, inode);
    let one_less = |users: u32| users.checked_sub(1);
    if !is_of_file || line.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less) != Ok(1) {
        return;
    }
    let ask = Ask {
        process: process(),
        kind: Kind::Close,
        device,
        inode,
        offset: 0,
        length: 0,
        file_bytes: 0,
        class: 0,
        is_kept: false,
        insists: insists(),
    };
    if let Some((seat, turn)) = board.ask(ask) {
        board.answer(seat, turn, STEP, || board.is_open(now_ms()));
    }
}

/// Finds out what a descriptor is of, and waits for the turn to read there or to write past the page cache.
#[cold]
pub(crate) fn wait(kind: Kind, number: c_int, known: &Descriptor, offset: Option<u64>, length: u64) -> Turn {
    let Some((descriptor, stat)) = look_at(number, known) else { return Turn::Unordered };
    if let Some(turn) = leave_alone(known, &stat, length) {
        return if kind == Kind::Read { turn } else { turn.untimed() };
    }
    let offset = match offset {
        Some(offset) => offset,
        None => match position(kind, descriptor, known, &stat) {
            Some(position) => position,
            None => return Turn::Unordered,
        },
    };
    let kind = match (kind, known.of()) {
        (Kind::Write, _) if known.writes() != Writes::PassThrough => return Turn::Unordered,
        (Kind::Read, Of::Direct) => Kind::DirectRead,
        (kind, _) => kind,
    };
    let most = if kind == Kind::Write { i64::MAX } else { stat.st_size } as u64;
    let end = offset.saturating_add(length.min(MOST_BYTES)).min(most);
    if offset >= end {
        return Turn::Unordered;
    }
    let last = known.last();
    known.set_last(end);
    if matches!(kind, Kind::Read | Kind::Hint) && known.line().is_none() && !insists() {
        match memory::look(known, descriptor, &(offset..end), stat.st_size as u64, last) {
            Look::All(cached) => {
                memory::found();
                known.permit(beat(), cached);
                return Turn::Unordered;
            }
            Look::Just => return Turn::Unordered,
            Look::Missing => {}
        }
    }
    memory::missed(known);
    let Some(board) = board() else { return Turn::Unordered };
    Request { board, descriptor, known, stat, kind, offset, end, begun_ms: now_ms() }.wait()
}

/// Waits for the turn to have these bytes of the page cache brought to the storage.
#[cold]
pub(crate) fn wait_to_bring(number: c_int, known: &Descriptor, bytes: Range<u64>) -> Turn {
    let Some((descriptor, stat)) = look_at(number, known) else { return Turn::Unordered };
    let Range { start: offset, end } = bytes;
    if let Some(turn) = leave_alone(known, &stat, end - offset) {
        return turn.untimed();
    }
    let Some(board) = board() else { return Turn::Unordered };
    let request = Request { board, descriptor, known, stat, kind: Kind::Write, offset, end, begun_ms: now_ms() };
    request.ask(end - offset, false).unwrap_or(Turn::Unordered).untimed()
}

/// The file that a descriptor is of, if it is one of shared storage. What was known of another is forgotten.
fn look_at(number: c_int, known: &Descriptor) -> Option<(BorrowedFd<'static>, Stat)> {
    // SAFETY: what is not open, or closed meanwhile, fails the calls for which it is used.
    let descriptor = (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })?;
    let stat = Stat::of(descriptor)?;
    if !known.is_of((stat.st_dev, stat.st_ino)) {
        scope::learn(known, descriptor, number, &stat);
    }
    matches!(known.of(), Of::Shared | Of::Direct).then_some((descriptor, stat))
}

/// The turn of a call that is to move so many bytes, if nobody asks at the file's storage. Nor does who uses the descriptor until the
/// agent's next beat.
fn leave_alone(known: &Descriptor, stat: &Stat, length: u64) -> Option<Turn> {
    known_board().filter(|board| !insists() && board.unordered(stat.st_dev).is_some())?;
    // Another agent may have come meanwhile.
    let board = board()?;
    let place = board.unordered(stat.st_dev)?;
    known.leave_alone(board.beat(), place);
    memory::found();
    Some(Turn::Timed(Timed::begin(board, place, length, now_us())))
}

/// Where a call without an offset reads or writes.
fn position(kind: Kind, descriptor: BorrowedFd<'_>, known: &Descriptor, stat: &Stat) -> Option<u64> {
    let position = match kind {
        Kind::Write if known.appends() => stat.st_size as u64,
        _ => rustix::fs::tell(descriptor).ok()?,
    };
    known.set_position(position);
    Some(position)
}

/// A call that could not begin at once.
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
        if matches!(self.kind, Kind::DirectRead | Kind::Write) {
            return self.wait_in_stream();
        }
        while self.is_worth_it() {
            let line = self.line();
            match line.map_or(Seen::Nothing, |(_, line)| self.look(line)) {
                Seen::Ready(start, end) => {
                    self.known.permit(self.board.beat(), start..end);
                    return Turn::Unordered;
                }
                Seen::Coming(_) if self.kind == Kind::Hint => return Turn::Unordered,
                Seen::Coming(progress) => {
                    if let Some((_, line)) = line {
                        eyas_board::wait(&line.progress, progress, STEP);
                    }
                }
                Seen::Nothing => match self.ask(self.end - self.offset, false) {
                    Some(turn) => return turn,
                    None => continue,
                },
            }
        }
        Turn::Unordered
    }

    /// Goes past the page cache: in the turn that the descriptor keeps, or in a new one.
    fn wait_in_stream(&self) -> Turn {
        let kept = self.known.kept();
        if let Some((seat, turn)) = kept.enter(self.board, self.offset, self.end - self.offset) {
            return Turn::Kept(self.board, seat, turn);
        }
        kept.give_up(self.board);
        let (length, is_kept) = kept.plan(&(self.offset..self.end));
        self.ask(length, is_kept).unwrap_or(Turn::Unordered)
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
        if is_ready { widen(line, self.offset, ready_end) } else { Seen::Coming(progress) }
    }

    /// When the call begins, if it tells how fast the storage is: it does not if its bytes are in memory.
    fn begin(&self) -> Option<u64> {
        let is_read = matches!(self.kind, Kind::Read | Kind::DirectRead);
        (is_read && !memory::is_cached(self.known, self.descriptor, &(self.offset..self.end))).then(now_us)
    }

    /// Asks the agent for so many bytes; None if the board has news then.
    fn ask(&self, length: u64, is_kept: bool) -> Option<Turn> {
        let (device, inode, file_bytes) = (self.stat.st_dev, self.stat.st_ino, self.stat.st_size as u64);
        let (kind, offset, class) = (self.kind, self.offset, class());
        let (process, insists) = (process(), insists());
        let ask = Ask { process, kind, device, inode, offset, length, file_bytes, class, is_kept, insists };
        let Some((seat, turn)) = self.board.ask(ask) else { return Some(Turn::Unordered) };
        let asked = Turn::Once(self.board, seat, turn, None);
        loop {
            return match asked.hold(|| self.board.answer(seat, turn, STEP, || self.is_worth_it())) {
                Answer::Go if is_kept => {
                    self.known.kept().keep(seat, turn, offset..offset.saturating_add(length));
                    let is_there = self.board.enter(seat, turn);
                    Some(if is_there { Turn::Kept(self.board, seat, turn) } else { Turn::Unordered })
                }
                Answer::Go => Some(Turn::Once(self.board, seat, turn, self.begin())),
                Answer::InMemory(line) => {
                    self.learn(line);
                    None
                }
                Answer::Pass | Answer::Silence => Some(Turn::Unordered),
                Answer::OpenWanted => {
                    self.board.resume(seat, turn);
                    if send_file(seat, self.descriptor).is_some() {
                        continue;
                    }
                    self.board.leave(seat, turn, State::Left);
                    Some(Turn::Unordered)
                }
            };
        }
    }
}

/// With the pieces around that are in memory as well: who reads at random is not to look at each.
fn widen(line: &Line, offset: u64, ready_end: u64) -> Seen {
    // The agent waits to hear of an announced piece.
    let is_whole = |number| line.piece(number).is_some_and(|piece| piece.pages == Piece::PAGES && !piece.is_announced);
    let (mut first, mut end) = (offset / PIECE_BYTES, ready_end);
    while first > 0 && is_whole(first - 1) {
        first -= 1;
    }
    while end % PIECE_BYTES == 0 && is_whole(end / PIECE_BYTES) {
        end += PIECE_BYTES;
    }
    Seen::Ready(first * PIECE_BYTES, end)
}

const _: () = assert!(Piece::PAGES < 512, "a piece's pages have nine bits");
