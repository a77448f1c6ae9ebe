//! A request of one thread of a program, and the agent's answer.
//!
//! A turn that was given may be *kept*: a stream that passes by the page cache asks for some MiB at once, and goes on with
//! one call after the other without asking again. Who has kept one enters it before each call and leaves it after; the
//! agent takes it back when nobody has been in it for a while. Both agree on that by one word, which counts the calls that are
//! under way.
//!
//! A program may be stopped at any point, and go on when the agent has long given its seat to another. So each turn has a
//! number, which stands beside the state and beside the calls: who comes late finds another there, and leaves it alone.
//!
//! Programs that go one after the other hand their turn *on*: the agent writes down with each who is next, and that one is woken by
//! who has done, without the agent's being woken in between.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use crate::{Board, LINES, SEATS, wait};

#[cfg(test)]
mod tests;

/// A place for one request. Its state says whose move it is.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Seat {
    /// A [`Move`]. Who waits for an answer waits for this word to change.
    word: AtomicU32,
    process: AtomicU32,
    kind: AtomicU32,
    line: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    offset: AtomicU64,
    length: AtomicU64,
    file_bytes: AtomicU64,
    class: AtomicU32,
    is_kept: AtomicU32,
    insists: AtomicU32,
    /// Number of the turn in the upper half, calls that are under way in it in the lower.
    hold: AtomicU64,
    /// What has been done in it.
    done_bytes: AtomicU64,
    /// How long the call took that had the turn alone, in microseconds; 0 if nobody has looked.
    took_us: AtomicU64,
    /// Who goes when it is done: the seat counted from 1 in the upper half, the number of its turn in the lower; 0 if it is the
    /// agent that decides.
    next: AtomicU64,
}

/// Whose move it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Anybody's.
    Free,
    /// A program writes down what it wants.
    Taken,
    /// The agent's: it is to answer.
    Asked,
    /// The agent has answered; what, is in the states that follow.
    OpenWanted,
    /// The program does it now, and says when it is done.
    Go,
    /// The program looks at the file's line.
    InMemory,
    /// The program does it now, and says nothing more.
    Pass,
    /// The program has done it; the agent frees the seat.
    Done,
    /// The program did not wait for an answer; the agent frees the seat.
    Left,
}

impl State {
    const ALL: [State; 9] = [
        State::Free,
        State::Taken,
        State::Asked,
        State::OpenWanted,
        State::Go,
        State::InMemory,
        State::Pass,
        State::Done,
        State::Left,
    ];
}

/// Whose move it is, in the turn of which number: a seat's turns are counted.
#[derive(Clone, Copy)]
struct Move {
    turn: u32,
    state: State,
}

impl Move {
    const STATE_BITS: u32 = 4;
    const STATE: u32 = (1 << Self::STATE_BITS) - 1;

    fn of(word: u32) -> Move {
        let state = State::ALL.get((word & Self::STATE) as usize).copied().unwrap_or(State::Left);
        Move { turn: word >> Self::STATE_BITS, state }
    }

    fn word(self) -> u32 {
        self.turn << Self::STATE_BITS | self.state as u32
    }

    fn to(self, state: State) -> Move {
        Move { state, ..self }
    }

    /// The first of the next turn.
    fn next(self) -> Move {
        Move { turn: (self.turn + 1) & (u32::MAX >> Self::STATE_BITS), state: State::Taken }
    }
}

/// A turn, and calls that are under way in it.
#[derive(Clone, Copy)]
struct Hold {
    turn: u32,
    calls: u32,
}

impl Hold {
    /// Nobody enters: no turn has this number.
    const OVER: Hold = Hold { turn: u32::MAX, calls: 0 };

    fn of(word: u64) -> Hold {
        Hold { turn: (word >> 32) as u32, calls: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.calls)
    }
}

/// What a program is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Read, through the page cache.
    Read,
    /// Read past the page cache.
    DirectRead,
    /// Write past the page cache, or what has gathered there.
    Write,
    /// Nothing: it will read soon, and does not wait.
    Hint,
    /// Close the last descriptor that it had of the file.
    Close,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Read, Kind::DirectRead, Kind::Write, Kind::Hint, Kind::Close];
}

/// A request: bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose: the process's number, or 0 if the agent cannot see it.
    pub process: u32,
    /// What it is about to do.
    pub kind: Kind,
    /// The file's.
    pub device: u64,
    /// The file's.
    pub inode: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// How large the file is.
    pub file_bytes: u64,
    /// How it is treated: the number of its program's class.
    pub class: u32,
    /// Whether the turn is kept over several calls, until these bytes are done or the agent takes it back.
    pub is_kept: bool,
    /// Whether it is to be ordered though nothing is gained by it.
    pub insists: bool,
}

/// What a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Give the agent the open file.
    OpenWanted,
    /// It is your turn: go, and say when you are done.
    Go,
    /// It is in memory, or will be: look at this line.
    InMemory(usize),
    /// Go, and say nothing more.
    Pass,
    /// The agent has not answered in time, or not with anything that makes sense.
    Silence,
}

impl Board {
    /// Takes a seat and asks; which seat, and the number of the turn that was asked for. None if all are taken.
    pub fn ask(&self, ask: Ask) -> Option<(usize, u32)> {
        let first = ask.process as usize;
        let (place, taken) = (0..SEATS).find_map(|step| {
            let place = (first + step) % SEATS;
            Some((place, self.seats[place].take()?))
        })?;
        let seat = &self.seats[place];
        seat.process.store(ask.process, Ordering::Relaxed);
        seat.kind.store(ask.kind as u32, Ordering::Relaxed);
        seat.device.store(ask.device, Ordering::Relaxed);
        seat.inode.store(ask.inode, Ordering::Relaxed);
        seat.offset.store(ask.offset, Ordering::Relaxed);
        seat.length.store(ask.length, Ordering::Relaxed);
        seat.file_bytes.store(ask.file_bytes, Ordering::Relaxed);
        seat.class.store(ask.class, Ordering::Relaxed);
        seat.is_kept.store(ask.is_kept.into(), Ordering::Relaxed);
        seat.insists.store(ask.insists.into(), Ordering::Relaxed);
        seat.done_bytes.store(0, Ordering::Relaxed);
        seat.took_us.store(0, Ordering::Relaxed);
        seat.next.store(0, Ordering::Relaxed);
        seat.hold.store(Hold { turn: taken.turn, calls: 0 }.word(), Ordering::Release);
        seat.step(taken, State::Asked).then(|| self.tell_of_seat(place))?;
        Some((place, taken.turn))
    }

    /// Waits for the agent's answer as long as `is_worth_it` says so, which is asked every `step`. The seat is free again after
    /// [`Answer::InMemory`] and [`Answer::Pass`], and the agent's after [`Answer::Silence`].
    pub fn answer(&self, place: usize, turn: u32, step: Duration, mut is_worth_it: impl FnMut() -> bool) -> Answer {
        let seat = &self.seats[place];
        loop {
            let found = seat.found();
            let answer = match found.state {
                _ if found.turn != turn => return Answer::Silence,
                State::Asked if is_worth_it() => {
                    wait(&seat.word, found.word(), step);
                    continue;
                }
                State::OpenWanted => return Answer::OpenWanted,
                State::Go => return Answer::Go,
                State::InMemory => Answer::InMemory((seat.line.load(Ordering::Relaxed) as usize).min(LINES - 1)),
                State::Pass => Answer::Pass,
                _ => {
                    self.leave(place, turn, State::Left);
                    return Answer::Silence;
                }
            };
            // The agent may have freed it, if that took long.
            seat.step(found, State::Free);
            return answer;
        }
    }

    /// Says to the agent that its file has been sent to it: it is to go on with the request.
    pub fn resume(&self, place: usize, turn: u32) {
        self.seats[place].step(Move { turn, state: State::OpenWanted }, State::Asked);
    }

    /// Begins a call in a turn that is kept; false if it is over.
    #[inline]
    pub fn enter(&self, place: usize, turn: u32) -> bool {
        let seat = &self.seats[place];
        let entered = |word| {
            let hold = Hold::of(word);
            (hold.turn == turn).then_some(Hold { calls: hold.calls.wrapping_add(1), ..hold }.word())
        };
        seat.state() == State::Go && seat.hold.fetch_update(Ordering::AcqRel, Ordering::Relaxed, entered).is_ok()
    }

    /// Ends a call in a turn that is kept, which has done so many bytes.
    #[inline]
    pub fn exit(&self, place: usize, turn: u32, bytes: u64) {
        let seat = &self.seats[place];
        let exited = |word| {
            let hold = Hold::of(word);
            (hold.turn == turn).then_some(Hold { calls: hold.calls.saturating_sub(1), ..hold }.word())
        };
        if seat.hold().turn == turn {
            seat.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let _ = seat.hold.fetch_update(Ordering::AcqRel, Ordering::Relaxed, exited);
    }

    /// Gives up a turn that is kept, unless it is over or somebody is in it.
    pub fn give_up(&self, place: usize, turn: u32) {
        if self.seats[place].close(turn) {
            self.leave(place, turn, State::Done);
        }
    }

    /// Gives a seat back to the agent: what was asked for is done, by one call that took so long.
    pub fn finish(&self, place: usize, turn: u32, took_us: u64) {
        let seat = &self.seats[place];
        if seat.found().turn == turn {
            seat.took_us.store(took_us, Ordering::Relaxed);
        }
        self.leave(place, turn, State::Done);
    }

    /// Gives a seat back to the agent: what was asked for is done, or not wanted any more. Who comes late, when the turn is over,
    /// leaves it as it is.
    pub fn leave(&self, place: usize, turn: u32, state: State) {
        let seat = &self.seats[place];
        let next = seat.next.load(Ordering::Acquire);
        loop {
            let found = seat.found();
            if found.turn != turn || matches!(found.state, State::Free | State::Done | State::Left) {
                return;
            }
            if seat.step(found, state) {
                break;
            }
        }
        if state == State::Done && self.hand_on(next) {
            // The agent hears of it with the last.
            self.asked[place / 64].fetch_or(1 << (place % 64), Ordering::Release);
        } else {
            self.tell_of_seat(place);
        }
    }

    /// Lets the next go; false if there is none that waits for it.
    fn hand_on(&self, next: u64) -> bool {
        let Some(seat) = (next >> 32).checked_sub(1).and_then(|place| self.seats.get(place as usize)) else {
            return false;
        };
        let is_there = seat.step(Move { turn: next as u32, state: State::Asked }, State::Go);
        if is_there {
            crate::wait::wake(&seat.word);
        }
        is_there
    }

    /// Who has asked at the one seat goes when the turn at the other is done. Of the agent.
    pub fn line_up(&self, next: usize, after: usize) {
        let word = (next as u64 + 1) << 32 | u64::from(self.seats[next].found().turn);
        self.seats[after].next.store(word, Ordering::Release);
    }
}

impl Seat {
    /// Whose move it is.
    pub fn state(&self) -> State {
        self.found().state
    }

    fn found(&self) -> Move {
        Move::of(self.word.load(Ordering::Acquire))
    }

    /// Moves on from what was found; false if that is not so any more.
    fn step(&self, found: Move, state: State) -> bool {
        let (from, to) = (found.word(), found.to(state).word());
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Begins a turn, if it is free.
    fn take(&self) -> Option<Move> {
        let free = self.found();
        let (from, to) = (free.word(), free.next());
        let is_mine = || self.word.compare_exchange(from, to.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        (free.state == State::Free && is_mine()).then_some(to)
    }

    /// Whose request it is.
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// What was asked for; None if it makes no sense. Of the agent.
    pub fn asked(&self) -> Option<Ask> {
        let (offset, length) = (self.offset.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        let kind = *Kind::ALL.get(self.kind.load(Ordering::Relaxed) as usize)?;
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok())?;
        let is_in_file = end <= self.file_bytes.load(Ordering::Relaxed) || kind == Kind::Write;
        (is_in_file && i32::try_from(self.process()).is_ok()).then_some(())?;
        Some(Ask {
            process: self.process(),
            kind,
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            offset,
            length,
            file_bytes: self.file_bytes.load(Ordering::Relaxed),
            class: self.class.load(Ordering::Relaxed),
            is_kept: self.is_kept.load(Ordering::Relaxed) != 0,
            insists: self.insists.load(Ordering::Relaxed) != 0,
        })
    }

    /// What has been done in a turn that is kept, so far. Of the agent.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// How long the call took that had the turn alone, if that was told. Of the agent.
    pub fn took_us(&self) -> Option<u64> {
        Some(self.took_us.load(Ordering::Relaxed)).filter(|us| *us > 0)
    }

    /// Takes back a turn that is kept; false if somebody is in it. Of the agent.
    pub fn take_back(&self) -> bool {
        self.close(self.hold().turn)
    }

    fn hold(&self) -> Hold {
        Hold::of(self.hold.load(Ordering::Acquire))
    }

    /// Nobody enters this turn any more; false if somebody is in it.
    fn close(&self, turn: u32) -> bool {
        let (from, to) = (Hold { turn, calls: 0 }.word(), Hold::OVER.word());
        self.hold.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether it is known who goes next. Of the agent.
    pub fn is_followed(&self) -> bool {
        self.next.load(Ordering::Relaxed) != 0
    }

    /// Answers, unless the program has left meanwhile; whether it was there. Of the agent.
    pub fn reply(&self, answer: Answer) -> bool {
        let state = match answer {
            Answer::OpenWanted => State::OpenWanted,
            Answer::Go => State::Go,
            Answer::InMemory(line) => {
                self.line.store(line as u32, Ordering::Relaxed);
                State::InMemory
            }
            Answer::Pass => State::Pass,
            Answer::Silence => State::Left,
        };
        let found = self.found();
        let was_there = found.state == State::Asked && self.step(found, state);
        crate::wait::wake(&self.word);
        // Its turn may have been handed on to it before.
        was_there || (answer == Answer::Go && matches!(self.state(), State::Go | State::Done))
    }

    /// Makes it free, whatever it was. Of the agent.
    pub fn free(&self) {
        self.word.fetch_and(!Move::STATE, Ordering::AcqRel);
    }
}
