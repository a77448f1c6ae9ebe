//! A seat: the request of one thread of a program, and the agent's answer.
//!
//! A turn that was granted may be *kept*: a stream that bypasses the page cache asks for some MiB
//! at once, and makes one call after the other without asking again. The program enters the turn
//! before each call and exits it afterwards; the agent takes the turn back when no call has been
//! made for a while. Both agree through one word that counts the calls under way.
//!
//! A program may be stopped at any point and continue when the agent has given its seat to another
//! program. So every turn has a number, which stands beside the state and beside the count of
//! calls: a process that is late finds another number there and does nothing.
//!
//! Turns that follow each other are *passed on*: the agent writes the next seat into each, and a
//! program that is done wakes the next one without waking the agent.

use core::time::Duration;

use crate::sizes::{MAX_FILES, SEATS};
use crate::words::{AtomicU32, AtomicU64, Ordering};
use crate::{Board, ring, wait};

#[cfg(test)]
mod tests;

/// A seat. Its state says which side acts next.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Seat {
    /// A [`SeatTurn`]. A program that waits for an answer waits for this word to change.
    word: AtomicU32,
    process: AtomicU32,
    kind: AtomicU32,
    file: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    offset: AtomicU64,
    length: AtomicU64,
    file_bytes: AtomicU64,
    class: AtomicU32,
    is_kept: AtomicU32,
    must_order: AtomicU32,
    takes_bytes: AtomicU32,
    /// A [`Hold`]: number of the turn in the upper half, calls under way in the lower.
    hold: AtomicU64,
    /// Bytes done in the turn.
    done_bytes: AtomicU64,
    /// Duration of the call in microseconds, if the turn was for one call; 0 if it was not
    /// measured.
    took_us: AtomicU64,
    /// Seat that goes next when this one is done: its index counted from 1 in the upper half, the
    /// number of its turn in the lower. 0: the agent decides.
    successor: AtomicU64,
}

/// State of a seat: which side acts next. [`SeatState::may_become`] has the moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SeatState {
    /// Any program may take the seat.
    Free,
    /// A program is writing down its request.
    Taken,
    /// The agent has to answer.
    Asked,
    /// Answered: the program sends its open file to the agent.
    OpenWanted,
    /// Answered: the program proceeds, and reports the end.
    Go,
    /// Answered: the program looks at the file's entry on the board.
    InMemory,
    /// Answered: the program proceeds, and reports nothing.
    Pass,
    /// The program is done; the agent frees the seat.
    Done,
    /// The program stopped waiting for an answer; the agent frees the seat.
    Left,
}

impl SeatState {
    const ALL: [SeatState; 9] = [
        SeatState::Free,
        SeatState::Taken,
        SeatState::Asked,
        SeatState::OpenWanted,
        SeatState::Go,
        SeatState::InMemory,
        SeatState::Pass,
        SeatState::Done,
        SeatState::Left,
    ];

    /// Whether a seat may go from this state to the next one. A program may leave its turn in every
    /// state of it, since a signal handler may jump out of its call at any instruction. Beside
    /// these moves, the agent may [free](Seat::free) a seat in every state, for a program that is
    /// gone.
    pub fn may_become(self, next: SeatState) -> bool {
        use SeatState::{Asked, Done, Free, Go, InMemory, Left, OpenWanted, Pass, Taken};
        matches!(
            (self, next),
            (Free, Taken)
                | (Taken, Asked | Left)
                | (Asked, OpenWanted | Go | InMemory | Pass | Left)
                | (OpenWanted, Asked | Left)
                | (Go, Done | Left)
                | (InMemory | Pass, Free | Left)
        )
    }

    /// The state in which a program leaves its turn, when it wants to leave it as `Done` or `Left`:
    /// only a program that had its turn can be done.
    fn when_left_as(self, wanted: SeatState) -> SeatState {
        let is_done = self == SeatState::Go || wanted != SeatState::Done;
        if is_done { wanted } else { SeatState::Left }
    }
}

/// State of a seat, and the number of its current turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatTurn {
    /// Number of the turn. It changes when a program takes the seat.
    pub turn: u32,
    /// State of the seat in this turn.
    pub state: SeatState,
}

impl SeatTurn {
    const STATE_BITS: u32 = 4;
    const STATE: u32 = (1 << Self::STATE_BITS) - 1;

    fn of(word: u32) -> SeatTurn {
        let state =
            SeatState::ALL.get((word & Self::STATE) as usize).copied().unwrap_or(SeatState::Left);
        SeatTurn { turn: word >> Self::STATE_BITS, state }
    }

    fn word(self) -> u32 {
        self.turn << Self::STATE_BITS | self.state as u32
    }

    fn to(self, state: SeatState) -> SeatTurn {
        SeatTurn { state, ..self }
    }

    /// The first state of the next turn.
    fn next(self) -> SeatTurn {
        SeatTurn { turn: (self.turn + 1) & (u32::MAX >> Self::STATE_BITS), state: SeatState::Taken }
    }
}

/// Number of a kept turn, and the calls under way in it. [`Hold::after`] has the moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    turn: u32,
    calls: u32,
}

/// What happens to a kept turn.
#[derive(Clone, Copy, Debug)]
enum HoldMove {
    /// A call begins.
    Enter,
    /// A call ends.
    Exit,
    /// The turn ends.
    Close,
}

impl Hold {
    /// The turn is over: no turn has this number, so no call can enter.
    const OVER: Hold = Hold { turn: u32::MAX, calls: 0 };

    fn of(word: u64) -> Hold {
        Hold { turn: (word >> 32) as u32, calls: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.calls)
    }

    /// The count after a move in this turn. `None` if the move is not allowed: the turn is over or
    /// another one, a call would end that has not begun, or the turn would end while a call is
    /// under way. With 2 calls under way in turn 5, an entry makes 3 and an exit 1; a close of turn
    /// 5 and an exit in turn 4 are refused.
    fn after(self, turn: u32, by: HoldMove) -> Option<Hold> {
        let calls = match by {
            _ if self.turn != turn => return None,
            HoldMove::Enter => self.calls.checked_add(1)?,
            HoldMove::Exit => self.calls.checked_sub(1)?,
            HoldMove::Close => return (self.calls == 0).then_some(Hold::OVER),
        };
        Some(Hold { turn, calls })
    }
}

/// What a program is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CallKind {
    /// Read through the page cache.
    Read,
    /// Read past the page cache.
    DirectRead,
    /// Write past the page cache, or flush the page cache.
    Write,
    /// Read soon, without waiting now.
    Hint,
    /// Close its last descriptor of the file.
    Close,
}

impl CallKind {
    const ALL: [CallKind; 5] =
        [CallKind::Read, CallKind::DirectRead, CallKind::Write, CallKind::Hint, CallKind::Close];
}

/// A request for some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatRequest {
    /// Process id in the agent's namespace, or 0 if the agent cannot see the process.
    pub process: u32,
    /// What the program is about to do.
    pub kind: CallKind,
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// Number of the program's job class.
    pub class: u32,
    /// Whether the turn is kept over several calls, until these bytes are done or the agent takes
    /// it back.
    pub is_kept: bool,
    /// Whether to order the request even at a bypassed storage.
    pub must_order: bool,
    /// Whether the program can copy the bytes from the board. Otherwise only the kernel can give
    /// them to it.
    pub takes_bytes: bool,
}

/// Answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatAnswer {
    /// Send the open file to the agent.
    OpenWanted,
    /// Proceed, and report the end.
    Go,
    /// The bytes are or will be in memory: look at this entry of the board's files.
    InMemory(usize),
    /// Proceed, and report nothing.
    Pass,
    /// The agent did not answer in time, or its answer is invalid.
    Silence,
}

impl Board {
    /// Takes a seat and asks. Returns the index of the seat and the number of the turn; `None` if
    /// all seats are taken.
    pub fn ask(&self, ask: SeatRequest) -> Option<(usize, u32)> {
        self.ask_after(ask, |_, _| ())
    }

    /// Does the same, and calls `before` with the seat and the turn just before the agent can see
    /// the request.
    pub fn ask_after(
        &self,
        ask: SeatRequest,
        before: impl FnOnce(usize, u32),
    ) -> Option<(usize, u32)> {
        let first = ask.process as usize;
        let (index, taken) = (0..SEATS).find_map(|step| {
            let index = (first + step) % SEATS;
            Some((index, self.seats[index].take()?))
        })?;
        let seat = &self.seats[index];
        seat.process.store(ask.process, Ordering::Relaxed);
        seat.kind.store(ask.kind as u32, Ordering::Relaxed);
        seat.device.store(ask.device, Ordering::Relaxed);
        seat.inode.store(ask.inode, Ordering::Relaxed);
        seat.offset.store(ask.offset, Ordering::Relaxed);
        seat.length.store(ask.length, Ordering::Relaxed);
        seat.file_bytes.store(ask.file_bytes, Ordering::Relaxed);
        seat.class.store(ask.class, Ordering::Relaxed);
        seat.is_kept.store(ask.is_kept.into(), Ordering::Relaxed);
        seat.must_order.store(ask.must_order.into(), Ordering::Relaxed);
        seat.takes_bytes.store(ask.takes_bytes.into(), Ordering::Relaxed);
        seat.done_bytes.store(0, Ordering::Relaxed);
        seat.took_us.store(0, Ordering::Relaxed);
        seat.successor.store(0, Ordering::Relaxed);
        seat.hold.store(Hold { turn: taken.turn, calls: 0 }.word(), Ordering::Release);
        before(index, taken.turn);
        seat.step(taken, SeatState::Asked).then(|| self.ring_for_seat(index))?;
        Some((index, taken.turn))
    }

    /// Waits for the agent's answer, as long as `keep_waiting` returns true; it is called every
    /// `step`. After [`SeatAnswer::InMemory`] and [`SeatAnswer::Pass`] the seat is free; after
    /// [`SeatAnswer::Silence`] it is the agent's.
    pub fn await_answer(
        &self,
        index: usize,
        turn: u32,
        step: Duration,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> SeatAnswer {
        let seat = &self.seats[index];
        loop {
            let found = seat.found();
            let answer = match found.state {
                _ if found.turn != turn => return SeatAnswer::Silence,
                SeatState::Asked if keep_waiting() => {
                    wait(&seat.word, found.word(), step);
                    continue;
                }
                SeatState::OpenWanted => return SeatAnswer::OpenWanted,
                SeatState::Go => return SeatAnswer::Go,
                SeatState::InMemory => SeatAnswer::InMemory(
                    (seat.file.load(Ordering::Relaxed) as usize).min(MAX_FILES - 1),
                ),
                SeatState::Pass => SeatAnswer::Pass,
                _ => {
                    self.leave(index, turn, SeatState::Left);
                    return SeatAnswer::Silence;
                }
            };
            // The agent may have freed it meanwhile.
            seat.step(found, SeatState::Free);
            return answer;
        }
    }

    /// Tells the agent that the file has been sent and that it can continue with the request.
    pub fn resume(&self, index: usize, turn: u32) {
        self.seats[index].step(SeatTurn { turn, state: SeatState::OpenWanted }, SeatState::Asked);
    }

    /// Begins a call in a kept turn. Returns false if the turn is over.
    #[inline]
    pub fn enter(&self, index: usize, turn: u32) -> bool {
        let seat = &self.seats[index];
        seat.state() == SeatState::Go && seat.step_hold(turn, HoldMove::Enter)
    }

    /// Ends a call in a kept turn that has done this many bytes.
    #[inline]
    pub fn exit(&self, index: usize, turn: u32, bytes: u64) {
        let seat = &self.seats[index];
        if seat.hold().turn == turn {
            seat.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        seat.step_hold(turn, HoldMove::Exit);
    }

    /// Gives up a kept turn, unless it is over or a call is under way.
    pub fn give_up(&self, index: usize, turn: u32) {
        if self.seats[index].step_hold(turn, HoldMove::Close) {
            self.leave(index, turn, SeatState::Done);
        }
    }

    /// Returns a seat to the agent: the request is done, by one call of this duration, or the
    /// program no longer waits for its turn.
    pub fn finish(&self, index: usize, turn: u32, took_us: u64) {
        let seat = &self.seats[index];
        if seat.found().turn == turn {
            seat.took_us.store(took_us, Ordering::Relaxed);
        }
        self.leave(index, turn, SeatState::Done);
    }

    /// Returns a seat to the agent: the request is done or no longer wanted. Only a program that
    /// has its turn passes it on. If the seat is free or in another turn, this does nothing.
    pub fn leave(&self, index: usize, turn: u32, wanted: SeatState) {
        let seat = &self.seats[index];
        let successor = seat.successor.load(Ordering::Acquire);
        let state = loop {
            let found = seat.found();
            if found.turn != turn || found.state == SeatState::Free {
                return;
            }
            if matches!(found.state, SeatState::Done | SeatState::Left) {
                // A signal handler may have jumped out of this function before the bell was rung.
                return self.ring_for_seat(index);
            }
            let state = found.state.when_left_as(wanted);
            if !seat.allows(found, state) {
                return;
            }
            if seat.step(found, state) {
                break state;
            }
        };
        // Before the next seat can ring: the agent sees this one with the last one.
        self.mark_seat(index);
        if state != SeatState::Done || !self.pass_turn(successor) {
            ring(&self.agent.bell);
        }
    }

    /// Lets the next seat go. Returns false if there is none that waits.
    fn pass_turn(&self, successor: u64) -> bool {
        let Some(seat) =
            (successor >> 32).checked_sub(1).and_then(|index| self.seats.get(index as usize))
        else {
            return false;
        };
        let is_there =
            seat.step(SeatTurn { turn: successor as u32, state: SeatState::Asked }, SeatState::Go);
        if is_there {
            crate::wait::wake(&seat.word);
        }
        is_there
    }

    /// Lets the seat `next` go when the turn at `after` is done. For the agent.
    pub fn set_successor(&self, next: usize, after: usize) {
        let word = (next as u64 + 1) << 32 | u64::from(self.seats[next].found().turn);
        self.seats[after].successor.store(word, Ordering::Release);
    }
}

impl Seat {
    /// State of the seat.
    pub fn state(&self) -> SeatState {
        self.found().state
    }

    /// State of the seat and number of its turn, as they are at one moment.
    pub fn found(&self) -> SeatTurn {
        SeatTurn::of(self.word.load(Ordering::Acquire))
    }

    /// Whether the seat may go from a state to another one. The board's memory may have any bits,
    /// so a move that is not allowed is refused, and neither a program nor its agent fails because
    /// of it. In a debug build it is a defect of the caller.
    fn allows(&self, found: SeatTurn, state: SeatState) -> bool {
        let SeatTurn { turn, state: before } = found;
        let is_allowed = before.may_become(state);
        debug_assert!(
            is_allowed,
            "a seat cannot go from {before:?} to {state:?} in turn {turn}: {self:?}"
        );
        is_allowed
    }

    /// Changes the state. Returns false if it is no longer `found`, or if the move is not allowed.
    fn step(&self, found: SeatTurn, state: SeatState) -> bool {
        if !self.allows(found, state) {
            return false;
        }
        let (from, to) = (found.word(), found.to(state).word());
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Begins a turn, if the seat is free.
    fn take(&self) -> Option<SeatTurn> {
        let free = self.found();
        let (from, to) = (free.word(), free.next());
        let is_mine = || {
            self.word.compare_exchange(from, to.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        (free.state == SeatState::Free && is_mine()).then_some(to)
    }

    /// Process of the request.
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// The request; `None` if it is invalid. For the agent.
    pub fn asked(&self) -> Option<SeatRequest> {
        let (offset, length) =
            (self.offset.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        let kind = *CallKind::ALL.get(self.kind.load(Ordering::Relaxed) as usize)?;
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok())?;
        let is_in_file = end <= self.file_bytes.load(Ordering::Relaxed) || kind == CallKind::Write;
        (is_in_file && i32::try_from(self.process()).is_ok()).then_some(())?;
        Some(SeatRequest {
            process: self.process(),
            kind,
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            offset,
            length,
            file_bytes: self.file_bytes.load(Ordering::Relaxed),
            class: self.class.load(Ordering::Relaxed),
            is_kept: self.is_kept.load(Ordering::Relaxed) != 0,
            must_order: self.must_order.load(Ordering::Relaxed) != 0,
            takes_bytes: self.takes_bytes.load(Ordering::Relaxed) != 0,
        })
    }

    /// Bytes done in a kept turn so far. For the agent.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// Duration of the call, if it was measured. For the agent.
    pub fn took_us(&self) -> Option<u64> {
        Some(self.took_us.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    /// Takes back a kept turn. Returns false if a call is under way; true also if the program has
    /// given the turn up meanwhile. For the agent.
    pub fn take_back(&self) -> bool {
        let close = |word| {
            let hold = Hold::of(word);
            hold.after(hold.turn, HoldMove::Close).map(Hold::word)
        };
        self.hold.fetch_update(Ordering::AcqRel, Ordering::Relaxed, close).is_ok()
    }

    fn hold(&self) -> Hold {
        Hold::of(self.hold.load(Ordering::Acquire))
    }

    /// Counts a move of a kept turn. Returns false if it is not allowed.
    #[inline]
    fn step_hold(&self, turn: u32, by: HoldMove) -> bool {
        let after = |word| Hold::of(word).after(turn, by).map(Hold::word);
        self.hold.fetch_update(Ordering::AcqRel, Ordering::Relaxed, after).is_ok()
    }

    /// Whether the next seat is known. For the agent.
    pub fn has_successor(&self) -> bool {
        self.successor.load(Ordering::Relaxed) != 0
    }

    /// Answers. Returns false if the program has stopped waiting. For the agent.
    pub fn reply(&self, answer: SeatAnswer) -> bool {
        let state = match answer {
            SeatAnswer::OpenWanted => SeatState::OpenWanted,
            SeatAnswer::Go => SeatState::Go,
            SeatAnswer::InMemory(file) => {
                self.file.store(file as u32, Ordering::Relaxed);
                SeatState::InMemory
            }
            SeatAnswer::Pass => SeatState::Pass,
            SeatAnswer::Silence => SeatState::Left,
        };
        let found = self.found();
        let was_there = found.state == SeatState::Asked && self.step(found, state);
        crate::wait::wake(&self.word);
        // The turn may have been passed on to it before.
        was_there
            || (answer == SeatAnswer::Go && matches!(self.state(), SeatState::Go | SeatState::Done))
    }

    /// Frees the seat in whatever state of this turn it is: the program is done, has left, or is
    /// gone. A program that takes a free seat begins another turn, which stays. For the agent.
    pub fn free(&self, turn: u32) {
        let free = |word| {
            let found = SeatTurn::of(word);
            (found.turn == turn).then_some(found.to(SeatState::Free).word())
        };
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, free);
    }
}
