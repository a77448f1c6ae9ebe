//! A request of one thread of a program, and the agent's answer.
//!
//! A turn that was given may be *kept*: a stream that passes by the page cache asks for some MiB at once, and goes on with
//! one call after the other without asking again. Who has kept one enters it before each call and leaves it after; the
//! agent takes it back when nobody has been in it for a while. Both agree on that by one word, which counts the calls that are
//! under way, beside the number of the turn: so a program sees that the seat is another's by now.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use crate::{Board, LINES, SEATS, wait};

/// A place for one request. Its state says whose move it is.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Seat {
    state: AtomicU32,
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

    fn from_word(word: u32) -> State {
        State::ALL.get(word as usize).copied().unwrap_or(State::Left)
    }
}

/// A turn, and calls that are under way in it.
#[derive(Clone, Copy)]
struct Hold {
    turn: u32,
    calls: u32,
}

impl Hold {
    fn of(word: u64) -> Hold {
        Hold { turn: (word >> 32) as u32, calls: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.calls)
    }

    fn next(self) -> Hold {
        Hold { turn: self.turn.wrapping_add(1), calls: 0 }
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
    /// Takes a seat and asks; which seat. None if all that were looked at are taken.
    pub fn ask(&self, ask: Ask) -> Option<usize> {
        let first = ask.process as usize;
        let place = (0..SEATS).map(|step| (first + step) % SEATS).find(|place| {
            let state = &self.seats[*place].state;
            let taken = State::Taken as u32;
            state.load(Ordering::Relaxed) == State::Free as u32
                && state.compare_exchange(State::Free as u32, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
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
        // Whoever was in the turn before is not counted in this one.
        let _ = seat.hold.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |hold| Some(Hold::of(hold).next().word()));
        seat.state.store(State::Asked as u32, Ordering::Release);
        self.tell_of_seat(place);
        Some(place)
    }

    /// Waits for the agent's answer as long as `is_worth_it` says so, which is asked every `step`. The seat is free again after
    /// [`Answer::InMemory`] and [`Answer::Pass`], and the agent's after [`Answer::Silence`].
    pub fn answer(&self, place: usize, step: Duration, mut is_worth_it: impl FnMut() -> bool) -> Answer {
        let seat = &self.seats[place];
        loop {
            let answer = match seat.state() {
                State::Asked if is_worth_it() => {
                    wait(&seat.state, State::Asked as u32, step);
                    continue;
                }
                State::OpenWanted => return Answer::OpenWanted,
                State::Go => return Answer::Go,
                State::InMemory => Answer::InMemory((seat.line.load(Ordering::Relaxed) as usize).min(LINES - 1)),
                State::Pass => Answer::Pass,
                _ => {
                    self.leave(place, State::Left);
                    return Answer::Silence;
                }
            };
            // The agent may have freed it, if that took long.
            let said = if answer == Answer::Pass { State::Pass } else { State::InMemory };
            let _ = seat.state.compare_exchange(said as u32, State::Free as u32, Ordering::AcqRel, Ordering::Relaxed);
            return answer;
        }
    }

    /// Says to the agent that its file has been sent to it: it is to go on with the request.
    pub fn resume(&self, place: usize) {
        let (from, to) = (State::OpenWanted as u32, State::Asked as u32);
        let _ = self.seats[place].state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The number of the turn that was asked for at this seat.
    pub fn turn_at(&self, place: usize) -> u32 {
        self.seats[place].hold().turn
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
        let seat = &self.seats[place];
        if seat.hold().turn == turn && seat.state() == State::Go && seat.close(turn) {
            self.leave(place, State::Done);
        }
    }

    /// Gives a seat back to the agent: what was asked for is done, by one call that took so long.
    pub fn finish(&self, place: usize, took_us: u64) {
        self.seats[place].took_us.store(took_us, Ordering::Relaxed);
        self.leave(place, State::Done);
    }

    /// Gives a seat back to the agent: what was asked for is done, or not wanted any more.
    pub fn leave(&self, place: usize, state: State) {
        self.seats[place].state.store(state as u32, Ordering::Release);
        self.tell_of_seat(place);
    }
}

impl Seat {
    /// Whose move it is.
    pub fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
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
        let hold = Hold { turn, calls: 0 };
        self.hold.compare_exchange(hold.word(), hold.next().word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
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
        let asked = State::Asked as u32;
        let was_there = self.state.compare_exchange(asked, state as u32, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        crate::wait::wake(&self.state);
        was_there
    }

    /// Makes it free, whatever it was. Of the agent.
    pub fn free(&self) {
        self.state.store(State::Free as u32, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::anonymous;

    const STEP: Duration = Duration::from_millis(1);

    fn ask() -> Ask {
        Ask {
            process: 7,
            kind: Kind::Read,
            device: 1,
            inode: 2,
            offset: 3,
            length: 4,
            file_bytes: 7,
            class: 6,
            is_kept: false,
            insists: true,
        }
    }

    #[test]
    fn an_answer_reaches_who_asked() {
        let board = anonymous();
        let place = board.ask(ask()).unwrap();
        let asked = board.seats[place].asked();
        assert_eq!(asked, Some(ask()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| board.answer(place, STEP, || true));
            assert!(board.seats[place].reply(Answer::InMemory(9)));
            assert_eq!(waiting.join().unwrap(), Answer::InMemory(9));
        });
        assert_eq!(board.seats[place].state(), State::Free);
    }

    #[test]
    fn who_does_not_wait_leaves_the_seat_to_the_agent() {
        let board = anonymous();
        let place = board.ask(ask()).unwrap();
        assert_eq!(board.answer(place, STEP, || false), Answer::Silence);
        assert_eq!(board.seats[place].state(), State::Left);
        assert!(!board.seats[place].reply(Answer::Go), "nobody is there");
    }

    #[test]
    fn all_seats_can_be_taken() {
        let board = anonymous();
        assert!((0..SEATS).all(|_| board.ask(ask()).is_some()));
        assert_eq!(board.ask(ask()), None);
    }

    #[test]
    fn a_turn_is_kept_until_it_is_taken_back() {
        let board = anonymous();
        let place = board.ask(Ask { is_kept: true, ..ask() }).unwrap();
        let turn = board.turn_at(place);
        assert!(!board.enter(place, turn), "it has not come yet");
        board.seats[place].reply(Answer::Go);
        assert!(board.enter(place, turn));
        assert!(!board.seats[place].take_back(), "somebody is in it");
        board.exit(place, turn, 100);
        assert_eq!(board.seats[place].done_bytes(), 100);
        assert!(board.seats[place].take_back());
        assert!(!board.enter(place, turn));
        board.give_up(place, turn);
        assert_eq!(board.seats[place].state(), State::Go, "what is over is not given up");
    }

    #[test]
    fn who_was_in_an_earlier_turn_is_not_counted_in_the_next() {
        let board = anonymous();
        let [first, second] = [(); 2].map(|()| {
            let place = board.ask(Ask { is_kept: true, ..ask() }).unwrap();
            board.seats[place].reply(Answer::Go);
            let turn = board.turn_at(place);
            assert!(board.enter(place, turn));
            board.seats[place].free();
            (place, turn)
        });
        assert!(first.0 == second.0 && first.1 != second.1);
        board.exit(first.0, first.1, 7);
        assert_eq!(board.seats[second.0].done_bytes(), 0);
        assert!(!board.seats[second.0].take_back(), "the second is still in it");
    }

    #[test]
    fn garbage_is_no_request() {
        let board = anonymous();
        let place = board.ask(Ask { offset: u64::MAX, ..ask() }).unwrap();
        assert_eq!(board.seats[place].asked(), None);
        board.seats[place].offset.store(0, Ordering::Relaxed);
        board.seats[place].kind.store(77, Ordering::Relaxed);
        assert_eq!(board.seats[place].asked(), None);
        board.seats[place].state.store(77, Ordering::Relaxed);
        assert_eq!(board.seats[place].state(), State::Left, "the agent frees it");
    }
}
