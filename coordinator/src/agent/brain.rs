//! The owner of all that an agent knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use eyas_board::{
    Board, CallKind, HEARTBEAT, HELLO, SeatAnswer, SeatRequest, SeatState, VERSION, ring, take_marks, wait,
};
use eyas_ioq::{ClassId, RequestId};
use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::fetch::{Fetched, fetch};
use super::files::{Advice, Files, Key, Reader};
use super::storages::Storages;
use crate::link::Heard;
use crate::order::{Order, Verdict};

/// A turn that a program keeps is taken back when nothing has been done in it for so long,
const KEPT_IDLE: Duration = Duration::from_millis(2);
/// or when it has had it for so long: others wait.
const KEPT_MOST: Duration = Duration::from_millis(200);

/// A program takes and frees a seat within this time, if it lives.
const LINGERING: Duration = Duration::from_secs(5);

/// What other threads tell.
pub(super) enum News {
    /// The program at that seat has given its file, if it could be opened again.
    File { seat: usize, file: Option<File> },
    /// A window has been read, as far as there was anything.
    Fetched { request: RequestId, key: Key, window: Range<u64>, fetched: Fetched },
    /// Somebody wants the agent to be there for as long as that process lives, if it can be seen.
    Hello { program: UnixStream, process: Option<OwnedFd> },
    /// Of the session with the coordinator.
    Link(Heard),
    /// Somebody wants to know how things are.
    Status(UnixStream),
}

/// See the module's documentation.
pub(super) struct Brain {
    board: &'static Board,
    news: Sender<News>,
    told: Receiver<News>,
    order: Order,
    storages: Storages,
    files: Files,
    /// What is behind each request that waits for its turn.
    wanted: BTreeMap<RequestId, Wanted>,
    /// Seats that have asked, and what for; with their requests, once there are any.
    seats: BTreeMap<usize, (SeatRequest, Option<RequestId>)>,
    /// Seats whose programs keep their turn.
    kept: BTreeMap<usize, Kept>,
    /// Seats that nothing is to be done about, and that are not free, since when.
    lingering: BTreeMap<usize, (SeatState, Instant)>,
    programs: Vec<OwnedFd>,
    needed: Instant,
    /// An agent that nobody has needed for so long ends.
    idle: Duration,
}

/// A turn that a program keeps.
struct Kept {
    process: u32,
    since: Instant,
    /// What has been done in it, and when that was seen.
    seen: (u64, Instant),
}

/// What a request is for.
enum Wanted {
    /// A program reads or writes itself.
    Seat(usize),
    /// The agent reads ahead.
    Window(Key, Range<u64>),
}

impl Brain {
    pub fn new(board: &'static Board, order: Order, news: Sender<News>, told: Receiver<News>, idle: Duration) -> Brain {
        Brain {
            board,
            news,
            told,
            order,
            storages: Storages::new(board),
            files: Files::new(board),
            wanted: BTreeMap::new(),
            seats: BTreeMap::new(),
            kept: BTreeMap::new(),
            lingering: BTreeMap::new(),
            programs: Vec::new(),
            needed: Instant::now(),
            idle,
        }
    }

    /// Answers until nobody has needed it for a while.
    pub fn run(&mut self) {
        let agent = &self.board.agent;
        self.live();
        self.open();
        agent.version.store(VERSION, Ordering::Release);
        let mut beaten = Instant::now();
        while self.needed.elapsed() < self.idle {
            let seen = agent.bell.load(Ordering::Acquire);
            self.look();
            self.take_back();
            self.carry_out();
            if beaten.elapsed() >= HEARTBEAT {
                self.beat();
                beaten = Instant::now();
            }
            let most = if self.kept.is_empty() { HEARTBEAT } else { KEPT_IDLE };
            let patience = self.order.next_timeout_us().map_or(most, |us| Duration::from_micros(us).min(most));
            wait(&agent.bell, seen, patience);
        }
        agent.open.store(0, Ordering::Release);
        self.files.forget_all();
    }

    /// Looks at all that has happened.
    fn look(&mut self) {
        let board = self.board;
        take_marks(&board.asked).for_each(|seat| self.seat(seat));
        for line in take_marks(&board.entered_files) {
            self.needed = Instant::now();
            if let Some((key, class, windows)) = self.files.entered(line) {
                self.want(key, class, windows);
            }
        }
        while let Ok(news) = self.told.try_recv() {
            match news {
                News::File { seat, file } => self.given(seat, file),
                News::Fetched { request, key, window, fetched: Fetched { bytes, first } } => {
                    self.files.fetched(key);
                    self.order.done(request, bytes);
                    self.took(key, &window, first);
                }
                News::Link(Heard::Linked(say)) => {
                    self.order.link(say);
                    self.open();
                }
                News::Link(Heard::Said(messages)) => messages.into_iter().for_each(|message| self.order.hear(message)),
                News::Status(mut asking) => {
                    let status = postcard::to_stdvec(&self.order.status()).expect("a status has a form");
                    // Who does not read has gone.
                    let _ = asking.write_all(&status);
                }
                News::Hello { mut program, process } => {
                    // It is answered here, where it is known that the agent stays. Who does not listen has gone.
                    let _ = program.write_all(&[HELLO]);
                    self.programs.extend(process);
                    self.needed = Instant::now();
                }
            }
        }
    }

    /// Something has happened at a seat.
    fn seat(&mut self, place: usize) {
        let seat = &self.board.seats[place];
        match seat.state() {
            // It is known already: somebody has rung twice.
            SeatState::Asked if matches!(self.seats.get(&place), Some((_, Some(_)))) => {}
            SeatState::Asked => match seat.asked() {
                Some(ask) => {
                    self.seats.insert(place, (ask, None));
                    self.needed = Instant::now();
                    self.advise(place, ask);
                }
                None => self.answer(place, SeatAnswer::Pass),
            },
            SeatState::Done => {
                // Writes say nothing: what takes them may bring them to the storage later, or before.
                if let Some((ask, _)) = self.seats.get(&place).filter(|(ask, _)| ask.kind != CallKind::Write) {
                    let us = seat.took_us();
                    let (key, bytes) = ((ask.device, ask.inode), ask.offset..ask.offset + ask.length);
                    let length = bytes.end - bytes.start;
                    self.took(key, &bytes, us.map(|us| (length, Duration::from_micros(us))));
                }
                self.leave(place, true);
                seat.free();
            }
            SeatState::Left => {
                self.leave(place, false);
                seat.free();
            }
            SeatState::Free
            | SeatState::Taken
            | SeatState::OpenWanted
            | SeatState::Go
            | SeatState::InMemory
            | SeatState::Pass => {}
        }
    }

    fn advise(&mut self, place: usize, ask: SeatRequest) {
        let key = (ask.device, ask.inode);
        let bytes = ask.offset..ask.offset + ask.length;
        match ask.kind {
            CallKind::Close => {
                self.call_off(|_, of| of == key);
                self.files.close(key);
                self.answer(place, SeatAnswer::Pass);
            }
            _ if !ask.must_order && !self.storages.are_ordered(ask.device) => self.answer(place, SeatAnswer::Pass),
            CallKind::DirectRead => self.alone(place, ask, Operation::Read),
            CallKind::Write => self.alone(place, ask, Operation::Write),
            CallKind::Read | CallKind::Hint => {
                match self.files.read(key, ask.process, ask.class, bytes, ask.file_bytes) {
                    Advice::Alone if ask.kind == CallKind::Hint => self.answer(place, SeatAnswer::Pass),
                    Advice::Alone => self.alone(place, ask, Operation::Read),
                    Advice::Give => {
                        self.board.seats[place].reply(SeatAnswer::OpenWanted);
                    }
                    Advice::Look(line, windows) => {
                        self.want(key, ask.class, windows);
                        self.answer(place, SeatAnswer::InMemory(line));
                    }
                }
            }
        }
    }

    /// A program has given its file, and goes on waiting.
    fn given(&mut self, place: usize, file: Option<File>) {
        let Some((ask, None)) = self.seats.get(&place).copied() else { return };
        let key = (ask.device, ask.inode);
        // The seat may be another program's by now.
        let is_it = |file: &File| file.metadata().is_ok_and(|found| (found.dev(), found.ino()) == key);
        let windows = self.files.given(key, file.filter(is_it));
        self.want(key, ask.class, windows);
        self.advise(place, ask);
    }

    /// A program is to go alone, in its turn.
    fn alone(&mut self, place: usize, ask: SeatRequest, operation: Operation) {
        let key = (ask.device, ask.inode);
        let bytes = ask.offset..ask.offset + ask.length;
        let request = self.ask(key, ClassId(ask.class), operation, extent(&bytes));
        self.wanted.insert(request, Wanted::Seat(place));
        if let Some((_, asked)) = self.seats.get_mut(&place) {
            *asked = Some(request);
        }
    }

    fn ask(&mut self, (device, inode): Key, class: ClassId, operation: Operation, extent: Extent) -> RequestId {
        self.order.ask(StorageLocation::Device(device), StorageFileId(inode), class, operation, extent)
    }

    /// Windows of a file are to be read, each in its turn.
    fn want(&mut self, key: Key, class: u32, windows: Vec<Range<u64>>) {
        for window in windows {
            let request = self.ask(key, ClassId(class), Operation::Read, extent(&window));
            self.wanted.insert(request, Wanted::Window(key, window));
        }
    }

    /// A request that went alone is done; what of it tells of the storage, and how long that took.
    fn took(&mut self, key: Key, bytes: &Range<u64>, told: Option<(u64, Duration)>) {
        if !self.storages.took(key, bytes, told) {
            return;
        }
        let place = StorageLocation::Device(key.0);
        if self.order.is_always(&place) || !self.storages.leave_alone(key.0) {
            return self.storages.keep(key.0);
        }
        self.call_off(|_, (device, _)| device == key.0);
        self.files.leave_alone(key.0);
        self.order.leave_alone(place, true);
    }

    /// Nobody wants the windows of these files any more: those that wait for their turn are not read.
    fn call_off(&mut self, is_it: impl Fn(&Files, Key) -> bool) {
        let files = &self.files;
        let is_off =
            |_: &RequestId, wanted: &mut Wanted| matches!(wanted, Wanted::Window(key, _) if is_it(files, *key));
        let off: Vec<_> = self.wanted.extract_if(.., is_off).collect();
        for (request, wanted) in off {
            if let Wanted::Window(key, _) = wanted {
                self.files.called_off(key);
            }
            self.order.done(request, 0);
        }
    }

    /// Lets go what has been decided.
    fn carry_out(&mut self) {
        for (request, verdict) in self.order.verdicts() {
            match self.wanted.remove(&request) {
                None => self.order.done(request, 0),
                Some(Wanted::Window(key, window)) => match verdict {
                    Verdict::Go => self.fetch(request, key, window),
                    // Programs read it themselves: many at once are not to be read here as well.
                    Verdict::Unordered => self.give_up(request, key, window),
                },
                Some(Wanted::Seat(place)) => {
                    if verdict == Verdict::Go {
                        self.set_successor(request, place);
                    }
                    match verdict {
                        Verdict::Go if self.board.seats[place].reply(SeatAnswer::Go) => self.keep(place),
                        Verdict::Go => self.leave(place, false),
                        Verdict::Unordered => self.answer(place, SeatAnswer::Pass),
                    }
                }
            }
        }
    }

    /// Who goes after the program at a seat hears it from that program.
    fn set_successor(&self, request: RequestId, mut place: usize) {
        for follower in self.order.followers(request) {
            let Some(Wanted::Seat(next)) = self.wanted.get(&follower) else { return };
            if self.board.seats[place].has_successor() {
                return;
            }
            self.board.set_successor(*next, place);
            place = *next;
        }
    }

    /// A program has its turn; perhaps it keeps it.
    fn keep(&mut self, place: usize) {
        if let Some((ask, _)) = self.seats.get(&place).filter(|(ask, _)| ask.is_kept) {
            let now = Instant::now();
            self.kept.insert(place, Kept { process: ask.process, since: now, seen: (0, now) });
        }
    }

    /// Takes back the turns that were kept long enough; also those of programs that wait for another one.
    fn take_back(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let now = Instant::now();
        let waits = |place: &usize| self.board.seats[*place].state() == SeatState::Asked;
        let waiting: BTreeSet<u32> =
            self.seats.iter().filter(|(place, _)| waits(place)).map(|(_, (ask, _))| ask.process).collect();
        let mut over = Vec::new();
        for (place, kept) in &mut self.kept {
            let done = self.board.seats[*place].done_bytes();
            if done != kept.seen.0 {
                kept.seen = (done, now);
            }
            let is_over = now - kept.seen.1 >= KEPT_IDLE || now - kept.since >= KEPT_MOST;
            if (is_over || waiting.contains(&kept.process)) && self.board.seats[*place].take_back() {
                over.push(*place);
            }
        }
        for place in over {
            self.leave(place, true);
            self.board.seats[place].free();
        }
    }

    fn fetch(&mut self, request: RequestId, key: Key, window: Range<u64>) {
        let (news, bell) = (self.news.clone(), &self.board.agent.bell);
        let Some((Reader { file, line }, class, more)) = self.files.begin(key, window.start) else {
            return self.give_up(request, key, window);
        };
        self.want(key, class, more);
        let range = window.clone();
        let reading = move || {
            let fetched = fetch(&file, &range, line);
            // The agent may have ended.
            let _ = news.send(News::Fetched { request, key, window: range, fetched });
            ring(bell);
        };
        if let Err(error) = thread::Builder::new().name("reader".to_owned()).spawn(reading) {
            tracing::warn!("there is no thread to read with: {error}");
            self.give_up(request, key, window);
        }
    }

    /// A window is not read: whoever waits for it is to read it.
    fn give_up(&mut self, request: RequestId, key: Key, window: Range<u64>) {
        self.files.give_up(key, window.clone());
        // The brain listens as long as it lives.
        let _ = self.news.send(News::Fetched { request, key, window, fetched: Fetched { bytes: 0, first: None } });
        ring(&self.board.agent.bell);
    }

    /// The program at a seat is answered, and nothing more is heard of it.
    fn answer(&mut self, place: usize, answer: SeatAnswer) {
        if let Some((_, Some(request))) = self.seats.remove(&place) {
            self.wanted.remove(&request);
        }
        if !self.board.seats[place].reply(answer) {
            self.board.seats[place].free();
        }
    }

    /// The program at a seat has done what it was to do, or has gone without.
    fn leave(&mut self, place: usize, is_done: bool) {
        let kept = self.kept.remove(&place);
        if let Some((ask, Some(request))) = self.seats.remove(&place) {
            self.wanted.remove(&request);
            let bytes = match kept {
                Some(_) => self.board.seats[place].done_bytes(),
                None if is_done => ask.length,
                None => 0,
            };
            self.order.done(request, bytes);
        }
    }

    /// Says that it lives, and looks who else does.
    fn beat(&mut self) {
        self.live();
        for device in self.storages.look() {
            self.order.leave_alone(StorageLocation::Device(device), false);
        }
        for place in self.order.take_back() {
            if let StorageLocation::Device(device) = place {
                self.storages.keep(device);
            }
        }
        self.files.tidy();
        let is_gone =
            |ask: &SeatRequest| Pid::from_raw(ask.process as i32).is_some_and(|pid| test_kill_process(pid).is_err());
        let gone: Vec<usize> =
            self.seats.iter().filter(|(_, (ask, _))| is_gone(ask)).map(|(place, _)| *place).collect();
        for place in gone {
            self.leave(place, false);
            self.board.seats[place].free();
        }
        self.call_off(|files, key| files.is_left(key));
        self.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.programs.retain(|program| {
            !poll(&mut [PollFd::new(program, PollFlags::IN)], Some(&at_once)).is_ok_and(|ended| ended > 0)
        });
        if !self.programs.is_empty() {
            self.needed = Instant::now();
        }
    }

    /// Frees seats of programs that have ended in the middle of what is done in no time.
    fn clear(&mut self) {
        let mut lingering = BTreeMap::new();
        for (place, seat) in self.board.seats.iter().enumerate().filter(|(place, _)| !self.seats.contains_key(place)) {
            let state = seat.state();
            if state == SeatState::Free {
                continue;
            }
            let since = match self.lingering.get(&place) {
                Some((before, since)) if *before == state => *since,
                _ => Instant::now(),
            };
            if since.elapsed() > LINGERING {
                seat.free();
            } else {
                lingering.insert(place, (state, since));
            }
        }
        self.lingering = lingering;
    }

    /// Programs ask as long as somebody decides.
    fn open(&self) {
        self.board.agent.open.store(self.order.is_open().into(), Ordering::Release);
    }

    fn live(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ms = now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000;
        self.board.agent.heartbeat_ms.store(now_ms, Ordering::Relaxed);
    }
}

fn extent(bytes: &Range<u64>) -> Extent {
    Extent { offset: bytes.start, size_bytes: bytes.end - bytes.start }
}
