//! A program that reads and writes files under the library of `eyas io run`, step by step as
//! `preload/src/waiting.rs` does.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use eyas_board::{
    Board, CachedFile, CallKind, PIECE_BYTES, SeatAnswer, SeatRequest, SeatState, VersionOf,
};

use super::node::monotonic_ms;
use super::storage::{ATTRIBUTES_US, PieceContent, SharedStorage, SimulatedFile};
use crate::agent::core::AgentMessage;
use crate::agent::program_file::ProgramFile;

/// Interval at which a waiting call checks that the agent is alive.
const STEP_US: u64 = 100_000;
/// Longest wait; then the call proceeds, whatever the agent says.
const MAX_WAIT_MS: u64 = 60_000;
/// Times that a call asks for bytes that are to come to the board.
const MAX_ASKED: u32 = 8;

/// What a program does.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Opens the file of this name at this mount of its node.
    Open { name: usize, mount: u64 },
    /// Reads or writes these pieces.
    Call { kind: CallKind, pieces: Range<u64>, takes_bytes: bool },
    /// Writes these pieces one after the other, in a turn that it keeps.
    Stream { pieces: Range<u64> },
    /// Computes for this time.
    Compute { us: u64 },
    /// Closes the file.
    Close,
}

/// A program.
pub struct IoProgram {
    pub node: usize,
    pub process: u32,
    pub deeds: VecDeque<Deed>,
    pub open: Option<OpenFile>,
    pub state: ProgramState,
    /// Whether it is to look at its board soon.
    pub is_called: bool,
}

/// The file that a program has open.
pub struct OpenFile {
    pub file: SimulatedFile,
    pub opened_us: u64,
    /// The board's entry that the agent has named.
    entry: Option<usize>,
}

impl OpenFile {
    pub fn new(file: SimulatedFile, opened_us: u64) -> OpenFile {
        OpenFile { file, opened_us, entry: None }
    }
}

/// What a program is about.
#[derive(Clone)]
pub enum ProgramState {
    /// It goes on at this time.
    Idle { until_us: u64 },
    /// Its call looks at the board, at this time at the latest.
    Looks { call: ProgramCall, until_us: u64, progress: Option<u32> },
    /// Its call waits for an answer.
    Waits { call: ProgramCall, seat: usize, turn: u32, until_us: u64 },
    /// Its call is made, and ends at this time; in the turn at this seat, if it has one.
    Calls { call: ProgramCall, turn: Option<(usize, u32)>, until_us: u64 },
    /// It was killed, or is done.
    Over,
}

/// A call to read or write.
#[derive(Clone)]
pub struct ProgramCall {
    pub kind: CallKind,
    pub pieces: Range<u64>,
    takes_bytes: bool,
    is_kept: bool,
    pub began_us: u64,
    board: Option<&'static Board>,
    asked: u32,
}

/// What becomes of a program's state.
enum Next {
    /// The program goes on in this state.
    Now(ProgramState),
    /// The program waits in this state.
    Later(ProgramState),
    /// The call has ended with what was on the board.
    Copied(ProgramCall, Vec<SeenPiece>),
}

/// What a program finds on its node.
pub struct Surroundings<'a> {
    pub storage: &'a SharedStorage,
    pub now_us: u64,
    /// The board of the agent that runs, and where the agent takes files.
    pub agent: Option<(&'static Board, Sender<AgentMessage<SimulatedFile>>)>,
    /// How long a call takes.
    pub cost_us: u64,
}

/// Something that a program has read.
pub struct SeenPiece {
    pub piece: u64,
    pub content: PieceContent,
    /// What its node had in memory.
    pub cached: Option<PieceContent>,
    pub is_from_board: bool,
}

impl IoProgram {
    /// When the program goes on by itself.
    pub fn due_us(&self) -> Option<u64> {
        match &self.state {
            ProgramState::Idle { until_us }
            | ProgramState::Looks { until_us, .. }
            | ProgramState::Waits { until_us, .. }
            | ProgramState::Calls { until_us, .. } => Some(*until_us),
            ProgramState::Over => None,
        }
    }

    /// Begins a call.
    pub fn call(&mut self, at: &Surroundings, kind: CallKind, pieces: Range<u64>, takes: bool) {
        let call = ProgramCall {
            kind,
            pieces,
            takes_bytes: takes,
            is_kept: false,
            began_us: at.now_us,
            board: at.agent.as_ref().map(|(board, _)| *board),
            asked: 0,
        };
        self.state = ProgramState::Looks { call, until_us: at.now_us, progress: None };
    }

    /// Begins to write in a turn that is kept.
    pub fn stream(&mut self, at: &Surroundings, pieces: Range<u64>) {
        self.call(at, CallKind::Write, pieces, false);
        if let ProgramState::Looks { call, .. } = &mut self.state {
            call.is_kept = true;
        }
    }

    /// Goes on, as far as it can. Returns what it has read when its call ends.
    pub fn go_on(&mut self, at: &Surroundings) -> Option<(ProgramCall, Vec<SeenPiece>)> {
        loop {
            let next = match self.state.clone() {
                ProgramState::Looks { call, until_us, progress } => {
                    self.look(at, call, until_us, progress)
                }
                ProgramState::Waits { call, seat, turn, until_us } => {
                    self.hear(at, call, seat, turn, until_us)
                }
                ProgramState::Calls { call, turn, until_us } if until_us <= at.now_us => {
                    let (state, ended) = self.end_call(at, call, turn);
                    self.state = state;
                    return Some(ended);
                }
                ProgramState::Calls { .. } | ProgramState::Idle { .. } | ProgramState::Over => {
                    return None;
                }
            };
            match next {
                Next::Later(state) => {
                    self.state = state;
                    return None;
                }
                Next::Now(state) => self.state = state,
                Next::Copied(call, seen) => {
                    self.state = ProgramState::Idle { until_us: at.now_us };
                    return Some((call, seen));
                }
            }
        }
    }

    fn keeps_waiting(at: &Surroundings, call: &ProgramCall) -> Option<&'static Board> {
        let (now_ms, began_ms) = (monotonic_ms(at.now_us), monotonic_ms(call.began_us));
        let board = call.board?;
        (board.is_open(now_ms) && now_ms - began_ms < MAX_WAIT_MS).then_some(board)
    }

    /// The file's entry on the board, if the agent has named it.
    fn entry(&self, board: &'static Board) -> Option<&'static CachedFile> {
        let open = self.open.as_ref()?;
        let entry = &board.files[open.entry?];
        entry.is_of(open.file.device, open.file.inode).then_some(entry)
    }

    /// The call is made now, without a turn.
    fn plain(at: &Surroundings, call: ProgramCall) -> Next {
        Next::Now(ProgramState::Calls { call, turn: None, until_us: at.now_us + at.cost_us })
    }

    /// Looks at the board.
    fn look(
        &mut self,
        at: &Surroundings,
        call: ProgramCall,
        until_us: u64,
        seen_progress: Option<u32>,
    ) -> Next {
        let device = self.open.as_ref().map_or(0, |open| open.file.device);
        let Some(board) = Self::keeps_waiting(at, &call) else { return Self::plain(at, call) };
        if call.kind != CallKind::Close && board.bypass_index(device).is_some() {
            return Self::plain(at, call);
        }
        if !matches!(call.kind, CallKind::Read | CallKind::Hint) {
            return self.ask(at, board, call);
        }
        let Some(entry) = self.entry(board) else { return self.ask(at, board, call) };
        let progress = entry.progress.load(Ordering::Acquire);
        if until_us > at.now_us && seen_progress == Some(progress) {
            return Next::Later(ProgramState::Looks { call, until_us, progress: seen_progress });
        }
        let (mut is_ready, mut is_in_parts) = (true, false);
        for number in call.pieces.clone() {
            let Some(piece) = entry.piece(number) else {
                return match call.asked {
                    MAX_ASKED => Self::plain(at, call),
                    _ => self.ask(at, board, call),
                };
            };
            if entry.enter(piece) {
                let index = self.open.as_ref().and_then(|open| open.entry);
                board.ring_for_file(index.unwrap_or_default());
            }
            is_ready &= piece.ready_end() >= piece.start() + PIECE_BYTES;
            is_in_parts |= entry.slot(number).is_some();
        }
        if is_ready && is_in_parts && call.takes_bytes {
            let seen = self.copy(at, board, entry, &call);
            return seen.map_or_else(
                || Self::plain(at, call.clone()),
                |seen| Next::Copied(call.clone(), seen),
            );
        }
        if is_ready || call.kind == CallKind::Hint {
            return Self::plain(at, call);
        }
        let (until_us, progress) = (at.now_us + STEP_US, Some(progress));
        Next::Later(ProgramState::Looks { call, until_us, progress })
    }

    /// Copies what is on the board, and reads the rest.
    fn copy(
        &self,
        at: &Surroundings,
        board: &'static Board,
        entry: &CachedFile,
        call: &ProgramCall,
    ) -> Option<Vec<SeenPiece>> {
        let OpenFile { file, .. } = self.open.as_ref()?;
        let version = file.version(VersionOf::Kernel)?;
        let see = |piece: u64| {
            let slot = entry.slot(piece).and_then(|slot| board.parts.get(slot));
            let mut bytes = [0; size_of::<PieceContent>()];
            match slot.and_then(|slot| slot.copy(&version, piece, 0, &mut bytes)) {
                Some(()) => {
                    let cached = at.storage.lock().cached(file.device, file.inode, piece);
                    let content = PieceContent::from_ne_bytes(bytes);
                    SeenPiece { piece, content, cached, is_from_board: true }
                }
                None => Self::read(at, file, piece),
            }
        };
        Some(call.pieces.clone().map(see).collect())
    }

    fn ask(&self, at: &Surroundings, board: &'static Board, mut call: ProgramCall) -> Next {
        call.asked += 1;
        let Some(open) = &self.open else { return Self::plain(at, call) };
        let size = at.storage.lock().size_at(open.file.device, open.file.inode);
        let ask = SeatRequest {
            process: self.process,
            kind: call.kind,
            device: open.file.device,
            inode: open.file.inode,
            offset: call.pieces.start * PIECE_BYTES,
            length: (call.pieces.end - call.pieces.start) * PIECE_BYTES,
            file_bytes: size,
            class: 0,
            is_kept: call.is_kept,
            must_order: false,
            takes_bytes: call.takes_bytes,
        };
        match board.ask(ask) {
            Some((seat, turn)) => {
                Next::Later(ProgramState::Waits { call, seat, turn, until_us: at.now_us + STEP_US })
            }
            None => Self::plain(at, call),
        }
    }

    /// Looks at its seat.
    fn hear(
        &mut self,
        at: &Surroundings,
        call: ProgramCall,
        seat: usize,
        turn: u32,
        until_us: u64,
    ) -> Next {
        let Some(board) = call.board else { return Self::plain(at, call) };
        let found = board.seats[seat].found();
        let is_patient = Self::keeps_waiting(at, &call).is_some();
        if found.turn == turn && found.state == SeatState::Asked && is_patient {
            let until_us = if until_us <= at.now_us { at.now_us + STEP_US } else { until_us };
            return Next::Later(ProgramState::Waits { call, seat, turn, until_us });
        }
        match board.await_answer(seat, turn, Duration::ZERO, || false) {
            SeatAnswer::Go => {
                if call.is_kept && !board.enter(seat, turn) {
                    return Self::plain(at, call);
                }
                let until_us = at.now_us + at.cost_us;
                Next::Later(ProgramState::Calls { call, turn: Some((seat, turn)), until_us })
            }
            SeatAnswer::InMemory(index) => {
                if let Some(open) = &mut self.open {
                    open.entry = Some(index);
                }
                Next::Now(ProgramState::Looks { call, until_us: at.now_us, progress: None })
            }
            SeatAnswer::Pass | SeatAnswer::Silence => Self::plain(at, call),
            SeatAnswer::OpenWanted => {
                board.resume(seat, turn);
                let file = self.open.as_ref().map(|open| open.file.clone());
                let agent = at.agent.as_ref().filter(|(of, _)| std::ptr::eq(*of, board));
                let given = AgentMessage::File { seat, file };
                if agent.is_some_and(|(_, news)| news.send(given).is_ok()) {
                    eyas_board::ring(&board.agent.bell);
                    let until_us = at.now_us + STEP_US;
                    return Next::Later(ProgramState::Waits { call, seat, turn, until_us });
                }
                board.leave(seat, turn, SeatState::Left);
                Self::plain(at, call)
            }
        }
    }

    fn read(at: &Surroundings, file: &SimulatedFile, piece: u64) -> SeenPiece {
        let mut storage = at.storage.lock();
        let cached = storage.cached(file.device, file.inode, piece);
        let content = storage.read(file.device, file.inode, piece);
        SeenPiece { piece, content, cached, is_from_board: false }
    }

    /// The call ends. A kept turn is used for one piece after the other.
    fn end_call(
        &self,
        at: &Surroundings,
        call: ProgramCall,
        turn: Option<(usize, u32)>,
    ) -> (ProgramState, (ProgramCall, Vec<SeenPiece>)) {
        let mut seen = Vec::new();
        if let Some(OpenFile { file, .. }) = &self.open {
            match call.kind {
                CallKind::Read => {
                    seen = call.pieces.clone().map(|piece| Self::read(at, file, piece)).collect();
                }
                CallKind::Write => {
                    let mut written = call.pieces.clone();
                    if call.is_kept {
                        written.end = written.start + 1;
                    }
                    written.for_each(|piece| {
                        at.storage.lock().write_at(file.device, file.inode, piece);
                    });
                }
                CallKind::DirectRead | CallKind::Hint | CallKind::Close => {}
            }
        }
        let mut next = ProgramState::Idle { until_us: at.now_us };
        if let (Some(board), Some((seat, number))) = (call.board, turn) {
            if call.is_kept {
                board.exit(seat, number, PIECE_BYTES);
            } else {
                board.finish(seat, number, 0);
            }
        }
        if call.is_kept && call.pieces.end > call.pieces.start + 1 {
            let pieces = call.pieces.start + 1..call.pieces.end;
            let rest = ProgramCall { pieces, began_us: at.now_us, ..call.clone() };
            let goes_on = |(seat, number)| call.board.is_some_and(|it| it.enter(seat, number));
            next = match turn.is_some_and(goes_on) {
                true => ProgramState::Calls { call: rest, turn, until_us: at.now_us + at.cost_us },
                // The agent has taken the turn back.
                false => ProgramState::Looks { call: rest, until_us: at.now_us, progress: None },
            };
        } else if call.is_kept
            && let (Some(board), Some((seat, number))) = (call.board, turn)
        {
            board.give_up(seat, number);
        }
        (next, (call, seen))
    }

    /// Whether what the program has seen is what a plain read could have given at some time during
    /// the call: the content at that time, or what its node believes to be the content for some
    /// seconds; and nothing from before the file was opened.
    pub fn is_allowed(&self, at: &Surroundings, call: &ProgramCall, seen: &SeenPiece) -> bool {
        let Some(OpenFile { file, opened_us, .. }) = &self.open else { return true };
        let written = at.storage.lock().written_at(file.device, file.inode, seen.piece);
        // Numbers of writes grow, and 0 is the end of the file.
        if seen.content != 0 && seen.content < written {
            return false;
        }
        let believed_us = call.began_us.saturating_sub(ATTRIBUTES_US).max(*opened_us);
        let times = believed_us..at.now_us;
        Some(seen.content) == seen.cached
            || at.storage.lock().had(file.inode, seen.piece, seen.content, times)
    }
}
