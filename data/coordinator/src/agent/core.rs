//! State of the agent, owned by one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use eyas_board::{
    Board, CachedFile, CallKind, FilePiece, HEARTBEAT, HELLO, PART_SLOTS, PIECE_BYTES, SeatAnswer,
    SeatRequest, SeatState, SeatTurn, VERSION, ring, take_marks, wait,
};
use eyas_ioq::{ClassId, RequestId};
use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::agent_node::{AgentNode, PartJob, WindowJob};
use super::bypasses::StorageBypasses;
use super::layouts::FileLayouts;
use super::parts::{OpenPart, PartWanted, TakenPart};
use super::peers::{NoPart, PartQuestion};
use super::program_file::{FileKey, ProgramFile};
use super::read_ahead::fetch::WindowRead;
use super::read_ahead::{ReadAdvice, ReadAheadFiles, WindowReader};
use crate::coordinator_link::LinkEvent;
use crate::request_tracker::{Decision, RequestTracker, StorageRequest};

/// A kept turn is taken back when nothing has been done in it for this time.
const KEPT_IDLE: Duration = Duration::from_millis(2);
/// Longest time that a turn is kept.
const KEPT_MOST: Duration = Duration::from_millis(200);

/// The coordinator is asked this many times more for a window that another agent did not have: it
/// names the reader, and then makes this agent the reader.
const MAX_AGAIN: u32 = 2;

/// A program that runs takes or frees a seat within this time.
const LINGERING: Duration = Duration::from_secs(5);

/// Input from other threads.
pub(crate) enum AgentMessage<F> {
    /// The program at this seat has sent its file, if it could be opened again.
    File { seat: usize, file: Option<F> },
    /// A window has been read as far as possible.
    WindowRead { request: RequestId, key: FileKey, window: Range<u64>, result: WindowRead },
    /// The agent must run as long as this process lives, if the agent can see the process.
    Hello { program: UnixStream, process: Option<OwnedFd> },
    /// The session with the coordinator has changed or received messages.
    Link(LinkEvent),
    /// Another agent wants a part of a file.
    PartWanted(PartQuestion<F>),
    /// Another agent has sent a part of a file, or could not.
    PartTaken { key: FileKey, window: Range<u64>, part: Result<TakenPart, NoPart> },
    /// A client asks for the status over this socket.
    Status(UnixStream),
}

/// See the module's documentation.
pub(crate) struct AgentCore<N: AgentNode> {
    node: Rc<N>,
    board: &'static Board,
    outbox: Sender<AgentMessage<N::File>>,
    inbox: Receiver<AgentMessage<N::File>>,
    tracker: RequestTracker<Rc<N>>,
    storages: StorageBypasses,
    layouts: FileLayouts,
    files: ReadAheadFiles<N>,
    /// The entry and the number of the piece in each slot of the board's parts.
    slots: Vec<Option<(&'static CachedFile, u64)>>,
    /// Number of parts so far that other agents have sent.
    parts: usize,
    /// How often the coordinator was asked again for a window that begins there: the agents that it
    /// had named did not have it.
    asked_again: BTreeMap<(FileKey, u64), u32>,
    /// Windows that are being taken from another agent, by their beginnings.
    taking: BTreeSet<(FileKey, u64)>,
    /// Purpose of each request that waits for its turn.
    wanted: BTreeMap<RequestId, RequestPurpose>,
    /// Requests at seats, with their numbers once they have been asked for.
    seats: BTreeMap<usize, (SeatRequest, Option<RequestId>)>,
    /// Seats whose programs keep their turn.
    kept: BTreeMap<usize, RetainedTurn>,
    /// Seats without a request that are not free, and since when.
    lingering: BTreeMap<usize, (SeatTurn, Instant)>,
    programs: Vec<OwnedFd>,
    needed: Instant,
    beaten: Instant,
    /// The agent ends after this time without use.
    idle: Duration,
}

/// A turn that a program keeps.
struct RetainedTurn {
    process: u32,
    since: Instant,
    /// Bytes done in the turn, and when that was seen.
    seen: (u64, Instant),
}

/// Purpose of a request.
enum RequestPurpose {
    /// The program at this seat reads or writes itself.
    Seat(usize),
    /// The agent reads a window ahead.
    Window(FileKey, Range<u64>),
}

impl<N: AgentNode> AgentCore<N> {
    /// An agent that programs can use.
    pub fn new(
        node: Rc<N>,
        board: &'static Board,
        tracker: RequestTracker<Rc<N>>,
        outbox: Sender<AgentMessage<N::File>>,
        inbox: Receiver<AgentMessage<N::File>>,
        idle: Duration,
    ) -> Self {
        let now = node.now();
        let core = AgentCore {
            board,
            outbox,
            inbox,
            tracker,
            storages: StorageBypasses::new(board, now),
            layouts: FileLayouts::default(),
            files: ReadAheadFiles::new(node.clone(), board),
            node,
            slots: vec![None; PART_SLOTS],
            parts: 0,
            asked_again: BTreeMap::new(),
            taking: BTreeSet::new(),
            wanted: BTreeMap::new(),
            seats: BTreeMap::new(),
            kept: BTreeMap::new(),
            lingering: BTreeMap::new(),
            programs: Vec::new(),
            needed: now,
            beaten: now,
            idle,
        };
        core.send_heartbeat();
        core.publish_open();
        board.agent.version.store(VERSION, Ordering::Release);
        core
    }

    /// Serves programs until the agent has not been used for a while.
    pub fn run(&mut self) {
        let bell = &self.board.agent.bell;
        while self.node.now() - self.needed < self.idle {
            let seen = bell.load(Ordering::Acquire);
            let patience = self.step();
            wait(bell, seen, patience);
        }
        self.board.agent.open.store(0, Ordering::Release);
        self.files.forget_all();
    }

    /// Does what is to be done now. Returns the time after which there is more to do, also if the
    /// bell does not ring.
    pub fn step(&mut self) -> Duration {
        self.handle_events();
        self.take_back();
        self.carry_out();
        let now = self.node.now();
        if now - self.beaten >= HEARTBEAT {
            self.beat();
            self.beaten = now;
        }
        let most = if self.kept.is_empty() { HEARTBEAT } else { KEPT_IDLE };
        self.tracker.next_timeout_us().map_or(most, |us| Duration::from_micros(us).min(most))
    }

    /// Handles everything that has happened.
    fn handle_events(&mut self) {
        let board = self.board;
        take_marks(&board.asked).for_each(|seat| self.seat(seat));
        for line in take_marks(&board.entered_files) {
            self.needed = self.node.now();
            if let Some((key, class, windows)) = self.files.entered(line) {
                self.want(key, class, windows);
            }
        }
        while let Ok(outbox) = self.inbox.try_recv() {
            match outbox {
                AgentMessage::File { seat, file } => self.given(seat, file),
                AgentMessage::WindowRead {
                    request,
                    key,
                    window,
                    result: WindowRead { bytes, first },
                } => {
                    self.files.fetched(key);
                    self.tracker.done(request, bytes);
                    self.took(key, &window, first);
                }
                AgentMessage::Link(LinkEvent::Changed(link)) => {
                    self.tracker.link(link);
                    if let Some((group, port)) = self.node.peers() {
                        self.tracker.announce(group, port);
                    }
                    self.publish_open();
                }
                AgentMessage::PartWanted((wanted, answer)) => {
                    // The other agent may have gone.
                    let _ = answer.send(self.open_part(&wanted));
                }
                AgentMessage::PartTaken { key, window, part } => self.taken(key, window, part),
                AgentMessage::Link(LinkEvent::Received(messages)) => {
                    messages.into_iter().for_each(|message| self.tracker.receive(message))
                }
                AgentMessage::Status(mut asking) => {
                    // Clients of earlier versions read the status alone.
                    let status =
                        postcard::to_stdvec(&(self.tracker.status(), self.tracker.configs()))
                            .expect("a status can be serialized");
                    // A client that does not read has gone.
                    let _ = asking.write_all(&status);
                }
                AgentMessage::Hello { mut program, process } => {
                    // Answered here, where it is certain that the agent stays.
                    let _ = program.write_all(&[HELLO]);
                    self.programs.extend(process);
                    self.needed = self.node.now();
                }
            }
        }
    }

    /// The state of a seat has changed.
    fn seat(&mut self, index: usize) {
        let seat = &self.board.seats[index];
        let SeatTurn { turn, state } = seat.found();
        match state {
            // Known already: the bell rang twice.
            SeatState::Asked if matches!(self.seats.get(&index), Some((_, Some(_)))) => {}
            SeatState::Asked => match seat.asked() {
                Some(ask) => {
                    self.seats.insert(index, (ask, None));
                    self.needed = self.node.now();
                    self.advise(index, ask);
                }
                None => self.answer(index, SeatAnswer::Pass),
            },
            SeatState::Done => {
                // Durations of writes tell nothing: a cache may have taken them.
                if let Some((ask, _)) =
                    self.seats.get(&index).filter(|(ask, _)| ask.kind != CallKind::Write)
                {
                    let us = seat.took_us();
                    let (key, bytes) =
                        ((ask.device, ask.inode), ask.offset..ask.offset + ask.length);
                    let length = bytes.end - bytes.start;
                    self.took(key, &bytes, us.map(|us| (length, Duration::from_micros(us))));
                }
                self.leave(index, true);
                seat.free(turn);
            }
            SeatState::Left => {
                self.leave(index, false);
                seat.free(turn);
            }
            SeatState::Free
            | SeatState::Taken
            | SeatState::OpenWanted
            | SeatState::Go
            | SeatState::InMemory
            | SeatState::Pass => {}
        }
    }

    fn advise(&mut self, index: usize, ask: SeatRequest) {
        let key = (ask.device, ask.inode);
        match ask.kind {
            CallKind::Close => {
                self.layouts.closed(key);
                if !self.files.is_lent(key) {
                    self.call_off(|_, of| of == key);
                }
                self.files.close(key);
                self.answer(index, SeatAnswer::Pass);
            }
            _ if !self.storages.are_ordered(self.node.now(), ask.device, ask.must_order) => {
                self.answer(index, SeatAnswer::Pass)
            }
            _ => self.order(index, ask),
        }
    }

    /// A call waits for its turn, unless the file is read ahead for it.
    fn order(&mut self, index: usize, ask: SeatRequest) {
        let key = (ask.device, ask.inode);
        let bytes = ask.offset..ask.offset + ask.length;
        if self.layouts.look_up(key, ask.process) {
            self.tracker.set_striped(StorageLocation::Device(ask.device));
        }
        match ask.kind {
            CallKind::Close => {}
            CallKind::DirectRead => self.alone(index, ask, Operation::Read),
            CallKind::Write => self.alone(index, ask, Operation::Write),
            CallKind::Read | CallKind::Hint => {
                let takes_bytes = ask.takes_bytes || ask.kind == CallKind::Hint;
                let (process, class, file_bytes) = (ask.process, ask.class, ask.file_bytes);
                let sharing = (takes_bytes, self.can_share(key));
                match self.files.read(key, process, class, bytes, file_bytes, sharing) {
                    ReadAdvice::Alone if ask.kind == CallKind::Hint => {
                        self.answer(index, SeatAnswer::Pass)
                    }
                    ReadAdvice::Alone => self.alone(index, ask, Operation::Read),
                    ReadAdvice::SendFile => {
                        self.board.seats[index].reply(SeatAnswer::OpenWanted);
                    }
                    ReadAdvice::LookAt(line, windows) => {
                        self.want(key, ask.class, windows);
                        self.answer(index, SeatAnswer::InMemory(line));
                    }
                }
            }
        }
    }

    /// A program has sent its file and is still waiting for its answer.
    fn given(&mut self, index: usize, file: Option<N::File>) {
        let Some((ask, None)) = self.seats.get(&index).copied() else { return };
        let key = (ask.device, ask.inode);
        // The seat may belong to another program by now.
        let is_it = |file: &N::File| file.key() == Some(key);
        let windows = self.files.given(key, file.filter(is_it));
        self.want(key, ask.class, windows);
        self.advise(index, ask);
    }

    /// A program reads or writes itself, in its turn.
    fn alone(&mut self, index: usize, ask: SeatRequest, operation: Operation) {
        let key = (ask.device, ask.inode);
        let bytes = ask.offset..ask.offset + ask.length;
        let request = self.ask(key, ClassId(ask.class), operation, extent(&bytes));
        self.wanted.insert(request, RequestPurpose::Seat(index));
        if let Some((_, asked)) = self.seats.get_mut(&index) {
            *asked = Some(request);
        }
    }

    fn ask(
        &mut self,
        key: FileKey,
        class: ClassId,
        operation: Operation,
        extent: Extent,
    ) -> RequestId {
        let wanted = self.request(key, class, operation, extent);
        self.tracker.ask(wanted)
    }

    fn request(
        &self,
        key: FileKey,
        class: ClassId,
        operation: Operation,
        extent: Extent,
    ) -> StorageRequest {
        let (location, file) = (StorageLocation::Device(key.0), StorageFileId(key.1));
        let layout = self.layouts.known(key);
        StorageRequest { location, file, class, operation, extent, layout }
    }

    /// Asks for a turn for each window, or for each of its pieces if other agents may have them.
    fn want(&mut self, key: FileKey, class: u32, windows: Vec<Range<u64>>) {
        if !windows.is_empty() && self.shares(key) {
            let parts: Vec<_> = windows.iter().flat_map(pieces).collect();
            self.files.divided(key, parts.len() - windows.len());
            return parts.into_iter().for_each(|part| self.ask_shared(key, class, part));
        }
        windows.into_iter().for_each(|window| self.read(key, class, window));
    }

    /// Asks for a turn to read a window of one piece, unless another agent has it.
    fn ask_shared(&mut self, key: FileKey, class: u32, window: Range<u64>) {
        let wanted = self.request(key, ClassId(class), Operation::Read, extent(&window));
        let request = self.tracker.ask_shared(wanted);
        self.wanted.insert(request, RequestPurpose::Window(key, window));
    }

    /// Whether parts of a file may come from other agents.
    fn shares(&mut self, key: FileKey) -> bool {
        self.files.may_share(key) && self.can_share(key)
    }

    /// Whether parts of the files of this file's storage may come from other agents.
    fn can_share(&mut self, (device, _): FileKey) -> bool {
        self.node.peers().is_some() && self.tracker.can_share(&StorageLocation::Device(device))
    }

    /// Asks for a turn to read a window from the storage.
    fn read(&mut self, key: FileKey, class: u32, window: Range<u64>) {
        let request = self.ask(key, ClassId(class), Operation::Read, extent(&window));
        self.wanted.insert(request, RequestPurpose::Window(key, window));
    }

    /// A program has read or written in a turn of its own. `told`: bytes and duration that tell how
    /// fast the storage is.
    fn took(&mut self, key: FileKey, bytes: &Range<u64>, told: Option<(u64, Duration)>) {
        let now = self.node.now();
        if !self.storages.record_ordered(now, key, bytes, told) {
            return;
        }
        let location = StorageLocation::Device(key.0);
        if self.tracker.must_order(&location) || !self.storages.set_bypassed(key.0) {
            return self.storages.keep_ordering(now, key.0);
        }
        self.call_off(|_, (device, _)| device == key.0);
        self.files.set_bypassed(key.0);
        self.tracker.set_bypassed(location, true);
    }

    /// Cancels waiting windows of files for which `is_it` returns true.
    fn call_off(&mut self, is_it: impl Fn(&ReadAheadFiles<N>, FileKey) -> bool) {
        let files = &self.files;
        let is_off = |_: &RequestId, wanted: &mut RequestPurpose| match wanted {
            RequestPurpose::Window(key, _) => is_it(files, *key),
            _ => false,
        };
        let off: Vec<_> = self.wanted.extract_if(.., is_off).collect();
        for (request, wanted) in off {
            if let RequestPurpose::Window(key, window) = wanted {
                self.asked_again.remove(&(key, window.start));
                self.files.called_off(key);
            }
            self.tracker.done(request, 0);
        }
    }

    /// Carries out new decisions.
    fn carry_out(&mut self) {
        for (device, inode) in self.files.take_closed() {
            self.asked_again.retain(|(key, _), _| *key != (device, inode));
            self.tracker.closed(&StorageLocation::Device(device), StorageFileId(inode));
        }
        for (request, decision) in self.tracker.take_decisions() {
            match self.wanted.remove(&request) {
                None => self.tracker.done(request, 0),
                Some(RequestPurpose::Window(key, window)) => {
                    self.carry_out_window(request, key, window, decision)
                }
                Some(RequestPurpose::Seat(index)) => {
                    if decision == Decision::Proceed {
                        self.set_successor(request, index);
                    }
                    match decision {
                        Decision::Proceed if self.board.seats[index].reply(SeatAnswer::Go) => {
                            self.keep(index)
                        }
                        Decision::Proceed => self.leave(index, false),
                        Decision::Unordered | Decision::Elsewhere(_) => {
                            self.answer(index, SeatAnswer::Pass)
                        }
                    }
                }
            }
        }
    }

    /// Carries out the decision about a window.
    fn carry_out_window(
        &mut self,
        request: RequestId,
        key: FileKey,
        window: Range<u64>,
        decision: Decision,
    ) {
        if !matches!(decision, Decision::Elsewhere(_)) {
            self.asked_again.remove(&(key, window.start));
        }
        match decision {
            Decision::Proceed => self.fetch(request, key, window),
            // Programs read it themselves; many of them are reading now, and the agent must not add
            // to that.
            Decision::Unordered => self.give_up(request, key, window),
            Decision::Elsewhere(address) => self.take(key, window, address),
        }
    }

    /// Tells each seat of a turn which seat goes next, so that programs wake each other.
    fn set_successor(&self, request: RequestId, mut index: usize) {
        for follower in self.tracker.followers(request) {
            let Some(RequestPurpose::Seat(next)) = self.wanted.get(&follower) else { return };
            if self.board.seats[index].has_successor() {
                return;
            }
            self.board.set_successor(*next, index);
            index = *next;
        }
    }

    /// A program has its turn and may keep it.
    fn keep(&mut self, index: usize) {
        if let Some((ask, _)) = self.seats.get(&index).filter(|(ask, _)| ask.is_kept) {
            let now = self.node.now();
            self.kept
                .insert(index, RetainedTurn { process: ask.process, since: now, seen: (0, now) });
        }
    }

    /// Takes back turns that were kept long enough, and turns of programs that wait for another
    /// one.
    fn take_back(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let now = self.node.now();
        let waits = |index: &usize| self.board.seats[*index].state() == SeatState::Asked;
        let waiting: BTreeSet<u32> = self
            .seats
            .iter()
            .filter(|(index, _)| waits(index))
            .map(|(_, (ask, _))| ask.process)
            .collect();
        let mut over = Vec::new();
        for (index, kept) in &mut self.kept {
            let done = self.board.seats[*index].done_bytes();
            if done != kept.seen.0 {
                kept.seen = (done, now);
            }
            let is_over = now - kept.seen.1 >= KEPT_IDLE || now - kept.since >= KEPT_MOST;
            if (is_over || waiting.contains(&kept.process)) && self.board.seats[*index].take_back()
            {
                over.push(*index);
            }
        }
        for index in over {
            self.leave(index, true);
            self.free(index);
        }
    }

    fn fetch(&mut self, request: RequestId, key: FileKey, window: Range<u64>) {
        let Some((WindowReader { file, entry }, class, more)) = self.files.begin(key, &window)
        else {
            return self.give_up(request, key, window);
        };
        self.want(key, class, more);
        let turn_end = self.turn_end(request, key, window.end);
        // Another node may have read the part before, so that the disk does not seek.
        let is_timed = !self.files.is_shared(key);
        let range = window.clone();
        let job = WindowJob { request, key, window: range, file, entry, turn_end, is_timed };
        if let Err(error) = self.node.read(job) {
            tracing::warn!("cannot start a thread to read ahead: {error}");
            self.give_up(request, key, window);
        }
    }

    /// End of the windows of a file that are read one after the other in the turn of this request,
    /// whose own window ends at `end`.
    fn turn_end(&self, request: RequestId, key: FileKey, mut end: u64) -> u64 {
        for follower in self.tracker.followers(request) {
            match self.wanted.get(&follower) {
                Some(RequestPurpose::Window(of, next)) if *of == key && next.start == end => {
                    end = next.end;
                }
                _ => break,
            }
        }
        end
    }

    /// Takes a part of a file from another agent.
    fn take(&mut self, key: FileKey, window: Range<u64>, from: SocketAddr) {
        self.files.set_shared(key);
        let storage = self.tracker.name_of(&StorageLocation::Device(key.0));
        let (Some(storage), Some((WindowReader { file, .. }, _))) = (storage, self.files.open(key))
        else {
            return self.taken(key, window, Err(NoPart::Missing));
        };
        self.taking.insert((key, window.start));
        let wanted = PartWanted { storage, file: StorageFileId(key.1), extent: extent(&window) };
        self.node.take(PartJob { from, wanted, file, key, window });
    }

    /// Puts a part that has come from another agent on the board. If none has come, the agent reads
    /// it itself.
    fn taken(&mut self, key: FileKey, window: Range<u64>, part: Result<TakenPart, NoPart>) {
        self.taking.remove(&(key, window.start));
        let Some((WindowReader { entry, .. }, class)) = self.files.open(key) else {
            return self.files.called_off(key);
        };
        let again = self.asked_again.remove(&(key, window.start)).unwrap_or(0);
        let part = match part {
            Ok(part) => part,
            Err(NoPart::Missing) if again < MAX_AGAIN && self.shares(key) => {
                self.asked_again.insert((key, window.start), again + 1);
                return self.ask_shared(key, class, window);
            }
            Err(why) => {
                if !matches!(why, NoPart::NotConnected | NoPart::Missing) {
                    self.files.pause_sharing(key);
                }
                return self.read(key, class, window);
            }
        };
        let (number, slot) = (window.start / PIECE_BYTES, self.parts % PART_SLOTS);
        self.parts += 1;
        if let Some((entry, before)) = self.slots[slot].replace((entry, number))
            && entry.slot(before) == Some(slot)
        {
            entry.forget(before);
        }
        self.board.parts[slot].fill(&part.file, number, &part.content);
        entry.set_slot(number, slot);
        entry.grow(number, FilePiece::PAGES);
        ring(&entry.progress);
        self.files.called_off(key);
    }

    /// The part of a file that another agent wants, if this agent has the file open.
    fn open_part(&mut self, wanted: &PartWanted) -> Option<OpenPart<N::File>> {
        let locations = self.tracker.locations_of(&wanted.storage);
        locations.into_iter().find_map(|location| {
            let StorageLocation::Device(device) = location else { return None };
            let key = (device, wanted.file.0);
            let (WindowReader { file, entry }, _) = self.files.open(key)?;
            self.files.lend(key);
            let is_taken = self.taking.contains(&(key, wanted.extent.offset));
            Some(OpenPart { board: self.board, file, entry, extent: wanted.extent, is_taken })
        })
    }

    /// A window is not read; programs that wait for it read it themselves.
    fn give_up(&mut self, request: RequestId, key: FileKey, window: Range<u64>) {
        self.files.give_up(key, window.clone());
        // The receiver is this core itself.
        let _ = self.outbox.send(AgentMessage::WindowRead {
            request,
            key,
            window,
            result: WindowRead { bytes: 0, first: None },
        });
        ring(&self.board.agent.bell);
    }

    /// Answers the program at a seat, which reports nothing afterwards.
    fn answer(&mut self, index: usize, answer: SeatAnswer) {
        if let Some((_, Some(request))) = self.seats.remove(&index) {
            self.wanted.remove(&request);
        }
        if !self.board.seats[index].reply(answer) {
            self.free(index);
        }
    }

    /// The program at a seat is done, or has stopped waiting.
    fn leave(&mut self, index: usize, is_done: bool) {
        let kept = self.kept.remove(&index);
        if let Some((ask, Some(request))) = self.seats.remove(&index) {
            self.wanted.remove(&request);
            let bytes = match kept {
                Some(_) => self.board.seats[index].done_bytes(),
                None if is_done => ask.length,
                None => 0,
            };
            self.tracker.done(request, bytes);
        }
    }

    /// Sends a heartbeat, and removes programs that have ended.
    fn beat(&mut self) {
        self.send_heartbeat();
        for device in self.storages.review(self.node.now()) {
            self.tracker.set_bypassed(StorageLocation::Device(device), false);
        }
        for location in self.tracker.take_back() {
            if let StorageLocation::Device(device) = location {
                self.storages.keep_ordering(self.node.now(), device);
            }
        }
        self.files.tidy();
        let gone: Vec<usize> = self
            .seats
            .iter()
            .filter(|(_, (ask, _))| !self.node.is_alive(ask.process))
            .map(|(index, _)| *index)
            .collect();
        for index in gone {
            self.leave(index, false);
            self.free(index);
        }
        self.call_off(|files, key| files.is_bypassed(key));
        self.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.programs.retain(|program| {
            !poll(&mut [PollFd::new(program, PollFlags::IN)], Some(&at_once))
                .is_ok_and(|ended| ended > 0)
        });
        if !self.programs.is_empty() {
            self.needed = self.node.now();
        }
    }

    /// Frees a seat that was asked from, which no program frees itself.
    fn free(&self, index: usize) {
        let seat = &self.board.seats[index];
        seat.free(seat.found().turn);
    }

    /// Frees seats of programs that ended while they took or freed a seat.
    fn clear(&mut self) {
        let (now, mut lingering) = (self.node.now(), BTreeMap::new());
        for (index, seat) in
            self.board.seats.iter().enumerate().filter(|(index, _)| !self.seats.contains_key(index))
        {
            let found = seat.found();
            if found.state == SeatState::Free {
                continue;
            }
            let since = match self.lingering.get(&index) {
                Some((before, since)) if *before == found => *since,
                _ => now,
            };
            if now - since > LINGERING {
                seat.free(found.turn);
            } else {
                lingering.insert(index, (found, since));
            }
        }
        self.lingering = lingering;
    }

    /// # Panics
    /// If the agent keeps anything, though no program runs.
    #[cfg(test)]
    pub fn assert_at_rest(&self) {
        assert!(self.seats.is_empty() && self.kept.is_empty(), "seats are in use");
        assert!(self.wanted.is_empty() && self.tracker.is_empty(), "requests are under way");
        assert!(self.taking.is_empty() && self.asked_again.is_empty(), "parts are under way");
        assert!(self.files.is_empty(), "files are open");
    }

    /// Tells programs whether requests are ordered now.
    fn publish_open(&self) {
        self.board.agent.open.store(self.tracker.is_open().into(), Ordering::Release);
    }

    fn send_heartbeat(&self) {
        self.board.agent.heartbeat_ms.store(self.node.monotonic_ms(), Ordering::Relaxed);
    }
}

/// The pieces of a window, which begins at one.
fn pieces(window: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *window;
    let starts = (start..end).step_by(PIECE_BYTES as usize);
    starts.map(move |start| start..end.min(start + PIECE_BYTES))
}

fn extent(bytes: &Range<u64>) -> Extent {
    Extent { offset: bytes.start, size_bytes: bytes.end - bytes.start }
}
