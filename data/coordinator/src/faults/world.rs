//! Nodes, their agents and programs, the coordinator, and everything between them, on one clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use eyas_board::{CallKind, FilePiece, PIECE_BYTES, SeatState, VersionOf, ring};
use eyas_faults::Dice;
use eyas_ioq::ClientId;
use eyas_wire::Role;
use tokio::sync::mpsc;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::node::{
    Agent, AgentJob, AgentSession, Boards, MOUNTS, SessionOutbox, SimulatedNode, device,
};
use super::program::{Deed, IoProgram, OpenFile, ProgramState, SeenPiece, Surroundings};
use super::storage::{SharedStorage, SimulatedFile, time_of_day};
use crate::agent::agent_node::{PartJob, WindowJob};
use crate::agent::core::AgentMessage;
use crate::agent::parts::{GivenPart, OpenPart, PartAnswer};
use crate::agent::peers::NoPart;
use crate::agent::program_file::ProgramFile;
use crate::agent::read_ahead::fetch::WindowRead;
use crate::coordinator_link::{CoordinatorLink, LinkEvent};
use crate::protocol::{HEARTBEAT_TIMEOUT, ToCoordinator};
use crate::rules::Rules;
use crate::serve::core::{CoordinatorCore, CoordinatorMessage};

const SECOND: u64 = 1_000_000;
/// An agent that says nothing for this time is taken to be gone, as in `agent/peers.rs`.
const SILENCE_US: u64 = SECOND / 2;
/// Longest wait for a part, and for one that the giver is taking itself, as there.
const MAX_WAIT_US: u64 = 60 * SECOND;
const MAX_TAKING_US: u64 = 2 * SECOND;
/// Interval between attempts to reach the coordinator.
const REDIAL_US: u64 = SECOND / 2;
/// When the first program starts: until then, files have not changed for a while.
pub const BEGIN_US: u64 = 3 * SECOND;
/// Longest call: it does not wait for a process that has failed, and faults last two seconds.
const MAX_CALL_US: u64 = 4 * SECOND;
/// Time after the last program within which all state is given back.
const REST_US: u64 = 13 * SECOND;
/// End of a run.
const LIMIT_US: u64 = 600 * SECOND;

/// Nodes, programs and faults of a run.
#[derive(Clone, Debug)]
pub struct Case {
    /// The user of each node.
    pub users: Vec<u8>,
    /// By how much the clock of each node is wrong.
    pub skews_us: Vec<i64>,
    /// Pieces of each file.
    pub files: Vec<u64>,
    /// The node of each program, and what the program does.
    pub programs: Vec<(usize, Vec<Deed>)>,
    /// Faults, and when they happen.
    pub faults: Vec<(u64, Fault)>,
    /// Nodes whose agents give parts of other versions, or not all of a part.
    pub liars: Vec<usize>,
    /// Time within which the programs start.
    pub spread_us: u64,
    /// Whether the storage has no seeks.
    pub is_flash: bool,
    /// Share of the pages that each second loses.
    pub lost_pages: f64,
    pub seed: u64,
}

/// What goes wrong, or is done by others.
#[derive(Clone, Debug)]
pub enum Fault {
    AgentDies(usize),
    AgentStops(usize, u64),
    CoordinatorDies(u64),
    CutOff(usize, u64),
    ProgramDies(usize),
    Rewritten { name: usize, piece: u64 },
    Resized { name: usize, pieces: u64 },
    Replaced { name: usize, pieces: u64 },
    StorageIsSlow(u64),
    PagesLost(usize),
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoOutcome {
    /// Pieces that programs have read, and those from the board.
    pub read: u64,
    pub copied: u64,
    /// Pieces that the storage has sent.
    pub sent: u64,
    /// Changes that the times of a file do not tell, of pieces that a node had read before.
    pub unseen: u64,
    /// Parts that agents wanted from each other, and those that came.
    pub wanted: u64,
    pub given: u64,
    /// Sessions with the coordinator that were lost.
    pub lost_sessions: u64,
    pub killed: u64,
    /// The longest call.
    pub longest_us: u64,
    pub ended_us: u64,
}

/// What happens at a time.
enum Happening {
    AgentLooks {
        node: usize,
        start: u64,
    },
    ProgramLooks(usize),
    WindowGoesOn {
        node: usize,
        start: u64,
        window: WindowUnderWay,
    },
    PartAsked(PartUnderWay),
    PartLooks(PartUnderWay),
    PartComes {
        node: usize,
        start: u64,
        job: PartJob<SimulatedFile>,
        part: Result<GivenPart, NoPart>,
    },
    ToCoordinator {
        node: usize,
        client: ClientId,
    },
    ToAgent {
        node: usize,
        client: ClientId,
    },
    CoordinatorLooks,
    Redial {
        node: usize,
        start: u64,
    },
    CoordinatorStarts,
    AgentStarts(usize),
    AgentGone(ClientId),
    Cut(usize),
    CutLasts(usize),
    Fault(Fault),
    PagesAreLost,
}

/// A window that an agent reads.
struct WindowUnderWay {
    job: WindowJob<SimulatedFile>,
    at: u64,
    was_there: bool,
    began_us: u64,
}

/// A part that an agent takes from another one.
struct PartUnderWay {
    node: usize,
    start: u64,
    job: PartJob<SimulatedFile>,
    giver: Option<(usize, u64)>,
    asked_us: u64,
    answer: Option<oneshot::Receiver<Option<OpenPart<SimulatedFile>>>>,
    open: Option<OpenPart<SimulatedFile>>,
    until_us: u64,
}

/// A node.
struct Node {
    agent: Option<Agent>,
    /// Number of agents so far that were started here.
    starts: u64,
    is_called: bool,
    stopped_until_us: u64,
    cut_until_us: u64,
}

pub struct IoWorld<'a> {
    case: &'a Case,
    boards: &'a mut Boards,
    began: Instant,
    dice: Dice,
    storage: SharedStorage,
    agenda: BTreeMap<(u64, u64), Happening>,
    arrivals: u64,
    /// The file of each name.
    names: Vec<u64>,
    nodes: Vec<Node>,
    programs: Vec<IoProgram>,
    ended: Rc<RefCell<Vec<u32>>>,
    coordinator: Option<CoordinatorCore<SessionOutbox>>,
    coordinator_began_us: u64,
    coordinator_due_us: u64,
    last_client: u64,
    last_port: u16,
    storage_free_us: u64,
    slow_until_us: u64,
    outcome: IoOutcome,
}

impl Case {
    /// Runs the case.
    pub fn run(&self, boards: &mut Boards) -> IoOutcome {
        let mut world = IoWorld::new(self, boards);
        world.begin();
        while let Some(((at_us, _), happening)) = world.agenda.pop_first() {
            assert!(at_us < LIMIT_US, "it does not end: {self:?}");
            world.storage.lock().now_us = at_us;
            let is_over = world.programs.iter().all(|it| matches!(it.state, ProgramState::Over));
            if !is_over {
                world.outcome.ended_us = at_us;
            } else if at_us > world.outcome.ended_us + REST_US {
                break;
            }
            world.happen(happening);
            world.call_agents();
        }
        world.check()
    }
}

impl<'a> IoWorld<'a> {
    fn new(case: &'a Case, boards: &'a mut Boards) -> IoWorld<'a> {
        let storage = SharedStorage::default();
        let names = case.files.iter().map(|pieces| storage.lock().create(*pieces)).collect();
        let program = |(place, (node, deeds)): (usize, &(usize, Vec<Deed>))| IoProgram {
            node: *node,
            process: 1 + place as u32,
            deeds: deeds.iter().cloned().collect(),
            open: None,
            state: ProgramState::Idle { until_us: 0 },
            is_called: false,
        };
        let node = |_: &u8| Node {
            agent: None,
            starts: 0,
            is_called: false,
            stopped_until_us: 0,
            cut_until_us: 0,
        };
        IoWorld {
            case,
            boards,
            began: Instant::now(),
            dice: Dice::new(case.seed),
            storage,
            agenda: BTreeMap::new(),
            arrivals: 0,
            names,
            nodes: case.users.iter().map(node).collect(),
            programs: case.programs.iter().enumerate().map(program).collect(),
            ended: Rc::default(),
            coordinator: None,
            coordinator_began_us: 0,
            coordinator_due_us: u64::MAX,
            last_client: 0,
            last_port: 0,
            storage_free_us: 0,
            slow_until_us: 0,
            outcome: IoOutcome::default(),
        }
    }

    fn begin(&mut self) {
        self.after(0, Happening::CoordinatorStarts);
        for node in 0..self.nodes.len() {
            let delay_us = self.dice.below(SECOND / 10);
            self.after(delay_us, Happening::AgentStarts(node));
        }
        for program in 0..self.programs.len() {
            // Files have not changed for a while.
            let delay_us = BEGIN_US + self.dice.below(self.case.spread_us);
            self.programs[program].state = ProgramState::Idle { until_us: delay_us };
            self.after(delay_us, Happening::ProgramLooks(program));
        }
        for (at_us, fault) in &self.case.faults {
            self.after(*at_us, Happening::Fault(fault.clone()));
        }
        self.after(SECOND, Happening::PagesAreLost);
    }

    fn now_us(&self) -> u64 {
        self.storage.lock().now_us
    }

    fn after(&mut self, delay_us: u64, happening: Happening) {
        self.arrivals += 1;
        self.agenda.insert((self.now_us() + delay_us, self.arrivals), happening);
    }

    /// Time for which a message is under way.
    fn latency_us(&mut self) -> u64 {
        50 + self.dice.below(400)
    }

    fn is_cut(&self, node: usize) -> bool {
        self.nodes[node].cut_until_us > self.now_us()
    }

    /// Time until the storage has sent a piece. It sends one after the other.
    fn storage_us(&mut self) -> u64 {
        let now_us = self.now_us();
        let factor = if now_us < self.slow_until_us { 20 } else { 1 };
        let seek_us = if self.case.is_flash { 0 } else { 2_000 + self.dice.below(4_000) };
        let cost_us = factor * (500 + seek_us + self.dice.below(1_000));
        self.storage_free_us = self.storage_free_us.max(now_us) + cost_us;
        self.storage_free_us - now_us
    }

    /// The agent that was started at a node as this one, if it still runs.
    fn agent(&mut self, node: usize, start: u64) -> Option<&mut Agent> {
        let node = &mut self.nodes[node];
        if node.starts == start { node.agent.as_mut() } else { None }
    }

    /// Tells an agent what has happened.
    fn tell(&mut self, node: usize, start: u64, message: AgentMessage<SimulatedFile>) {
        if let Some(agent) = self.agent(node, start) {
            // The receiver is the agent itself.
            let _ = agent.news.send(message);
            ring(&agent.board.agent.bell);
        }
    }

    /// Agents whose bells have rung look soon.
    fn call_agents(&mut self) {
        for place in 0..self.nodes.len() {
            let now_us = self.now_us();
            let node = &self.nodes[place];
            let start = node.starts;
            if node.agent.as_ref().is_some_and(Agent::is_called) && !node.is_called {
                let wait_us = node.stopped_until_us.saturating_sub(now_us);
                self.nodes[place].is_called = true;
                let delay_us = wait_us + self.dice.below(200);
                self.after(delay_us, Happening::AgentLooks { node: place, start });
            }
        }
    }

    fn call_programs(&mut self, node: usize) {
        for place in 0..self.programs.len() {
            let program = &mut self.programs[place];
            if program.node == node && !program.is_called {
                program.is_called = true;
                let delay_us = self.dice.below(100);
                self.after(delay_us, Happening::ProgramLooks(place));
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::AgentLooks { node, start } => self.step_agent(node, start),
            Happening::ProgramLooks(program) => self.step_program(program),
            Happening::WindowGoesOn { node, start, window } => {
                self.step_window(node, start, window)
            }
            Happening::PartAsked(part) => self.ask_part(part),
            Happening::PartLooks(part) => self.step_part(part),
            Happening::PartComes { node, start, job, part } => {
                self.outcome.given += u64::from(part.is_ok());
                let part = part.and_then(|part| part.taken(&*job.file).ok_or(NoPart::Refused));
                let PartJob { key, window, .. } = job;
                self.tell(node, start, AgentMessage::PartTaken { key, window, part });
            }
            Happening::ToCoordinator { node, client } => self.reach_coordinator(node, client),
            Happening::ToAgent { node, client } => self.reach_agent(node, client),
            Happening::CoordinatorLooks => {
                if self.now_us() >= self.coordinator_due_us {
                    self.step_coordinator(Vec::new());
                }
            }
            Happening::Redial { node, start } => self.dial(node, start),
            Happening::CoordinatorStarts => {
                self.coordinator = Some(CoordinatorCore::new(Rules::default()));
                self.coordinator_began_us = self.now_us();
                self.step_coordinator(Vec::new());
            }
            Happening::AgentStarts(node) => self.start_agent(node),
            Happening::AgentGone(client) => {
                self.step_coordinator(vec![CoordinatorMessage::Disconnected(client)])
            }
            Happening::Cut(node) => self.mend(node),
            Happening::CutLasts(node) => {
                if self.is_cut(node) {
                    self.lose_session(node, 0);
                }
            }
            Happening::Fault(fault) => self.fail(fault),
            Happening::PagesAreLost => {
                let (share, seed) = (self.case.lost_pages, self.dice.next_u64());
                let mut dice = Dice::new(seed);
                for node in 0..self.nodes.len() {
                    for mount in 0..MOUNTS {
                        let device = device(node, mount);
                        self.storage.lock().drop_pages(device, || dice.happens(share));
                    }
                }
                self.after(SECOND, Happening::PagesAreLost);
            }
        }
    }

    fn start_agent(&mut self, place: usize) {
        self.last_port += 1;
        let node = SimulatedNode {
            storage: self.storage.clone(),
            began: self.began,
            user: self.case.users[place],
            port: self.last_port,
            jobs: RefCell::default(),
            ended: self.ended.clone(),
        };
        let agent = Agent::start(node, self.boards.next());
        let node = &mut self.nodes[place];
        node.starts += 1;
        let start = node.starts;
        (node.agent, node.is_called) = (Some(agent), false);
        self.after(1, Happening::AgentLooks { node: place, start });
        self.after(1, Happening::Redial { node: place, start });
    }

    /// Lets an agent look, unless it is stopped, and takes over what it hands on.
    fn step_agent(&mut self, place: usize, start: u64) {
        let now_us = self.now_us();
        let stopped_us = self.nodes[place].stopped_until_us.saturating_sub(now_us);
        if stopped_us > 0 {
            return self.after(stopped_us, Happening::AgentLooks { node: place, start });
        }
        let Some(agent) = self.agent(place, start) else { return };
        if !agent.is_called() && now_us < agent.due_us {
            self.nodes[place].is_called = false;
            return;
        }
        agent.step(now_us);
        let (due_us, jobs) = (agent.due_us, std::mem::take(&mut *agent.node.jobs.borrow_mut()));
        let said = agent.session.as_mut().and_then(|session| {
            let before = session.to_coordinator.len();
            while let Ok(message) = session.from_agent.try_recv() {
                session.to_coordinator.push_back(message);
            }
            (session.to_coordinator.len() > before).then_some(session.client)
        });
        self.nodes[place].is_called = false;
        if let Some(client) = said {
            let latency_us = self.latency_us();
            self.after(latency_us, Happening::ToCoordinator { node: place, client });
        }
        for job in jobs {
            self.begin_job(place, start, job);
        }
        self.after(due_us - now_us, Happening::AgentLooks { node: place, start });
        self.call_programs(place);
    }

    fn begin_job(&mut self, node: usize, start: u64, job: AgentJob) {
        match job {
            AgentJob::Read(job) => {
                let at = job.window.start;
                let beginning = at..at + 1;
                let was_there = job.file.is_cached(&beginning) == Some(true);
                let began_us = self.now_us();
                let window = WindowUnderWay { job, at, was_there, began_us };
                let delay_us = if was_there { 100 } else { self.storage_us() };
                self.after(delay_us, Happening::WindowGoesOn { node, start, window });
            }
            AgentJob::Take(job) => {
                self.outcome.wanted += 1;
                let asked_us = self.now_us();
                let part = PartUnderWay {
                    node,
                    start,
                    job,
                    giver: None,
                    asked_us,
                    answer: None,
                    open: None,
                    until_us: 0,
                };
                let latency_us = self.latency_us();
                self.after(latency_us, Happening::PartAsked(part));
            }
        }
    }

    /// The next piece of a window has been read.
    fn step_window(&mut self, node: usize, start: u64, mut window: WindowUnderWay) {
        if self.agent(node, start).is_none() {
            return;
        }
        let SimulatedFile { device, inode, .. } = *window.job.file;
        let piece = window.at / PIECE_BYTES;
        let content = self.storage.lock().read(device, inode, piece);
        if content != 0 {
            window.job.entry.grow(piece, FilePiece::PAGES);
            ring(&window.job.entry.progress);
            window.at = window.job.window.end.min((piece + 1) * PIECE_BYTES);
            self.call_programs(node);
            if window.at < window.job.window.end {
                let is_there = window.job.file.is_cached(&(window.at..window.at + 1));
                let delay_us = if is_there == Some(true) { 100 } else { self.storage_us() };
                return self.after(delay_us, Happening::WindowGoesOn { node, start, window });
            }
        }
        let took = Duration::from_micros(self.now_us() - window.began_us);
        let WindowUnderWay { job, at, was_there, .. } = window;
        for piece in at / PIECE_BYTES..job.window.end.div_ceil(PIECE_BYTES) {
            job.entry.grow(piece, FilePiece::PAGES);
        }
        ring(&job.entry.progress);
        self.call_programs(node);
        let WindowJob { request, key, window, is_timed, .. } = job;
        let bytes = at - window.start;
        let first = (is_timed && !was_there && bytes > 0).then_some((64 << 10, took));
        let result = WindowRead { bytes, first };
        self.tell(node, start, AgentMessage::WindowRead { request, key, window, result });
    }

    /// A part does not come.
    fn no_part(&mut self, part: PartUnderWay, delay_us: u64, why: NoPart) {
        let PartUnderWay { node, start, job, .. } = part;
        self.after(delay_us, Happening::PartComes { node, start, job, part: Err(why) });
    }

    /// Another agent is asked for a part.
    fn ask_part(&mut self, mut part: PartUnderWay) {
        let port = part.job.from.port();
        let is_it = |agent: &Agent| agent.node.port == port;
        let giver = self.nodes.iter().position(|node| node.agent.as_ref().is_some_and(is_it));
        let Some(giver) = giver else { return self.no_part(part, 100, NoPart::Silent) };
        if self.is_cut(giver) || self.is_cut(part.node) {
            return self.no_part(part, SILENCE_US, NoPart::Silent);
        }
        let users = (self.case.users[giver], self.case.users[part.node]);
        assert_eq!(users.0, users.1, "agents of two users talk to each other");
        let start = self.nodes[giver].starts;
        let (answer, told) = oneshot::channel();
        (part.giver, part.answer) = (Some((giver, start)), Some(told));
        self.tell(giver, start, AgentMessage::PartWanted((part.job.wanted.clone(), answer)));
        self.after(300, Happening::PartLooks(part));
    }

    /// Looks whether another agent has a part now.
    fn step_part(&mut self, mut part: PartUnderWay) {
        let now_us = self.now_us();
        let Some((giver, start)) = part.giver else { return };
        if self.agent(giver, start).is_none() {
            return self.no_part(part, 100, NoPart::Silent);
        }
        if self.is_cut(giver) || self.is_cut(part.node) {
            return self.no_part(part, SILENCE_US, NoPart::Silent);
        }
        if let Some(answer) = &mut part.answer {
            match answer.try_recv() {
                Err(TryRecvError::Empty) if now_us < part.asked_us + SILENCE_US => {
                    return self.after(500, Happening::PartLooks(part));
                }
                Err(TryRecvError::Empty) => return self.no_part(part, 0, NoPart::Silent),
                Err(TryRecvError::Closed) | Ok(None) => {
                    return self.no_part(part, 200, NoPart::Missing);
                }
                Ok(Some(open)) => {
                    let limit_us = if open.is_taken { MAX_TAKING_US } else { MAX_WAIT_US };
                    part.until_us = now_us + limit_us;
                    (part.answer, part.open) = (None, Some(open));
                }
            }
        }
        let Some(open) = &part.open else { return };
        let version = open.file.version(VersionOf::Kernel).expect("a version is always told");
        if open.is_coming(&version) && now_us < part.until_us {
            let delay_us = 200 + self.dice.below(1_500);
            return self.after(delay_us, Happening::PartLooks(part));
        }
        let answer = open.answer(time_of_day(now_us, self.case.skews_us[giver]));
        let latency_us = self.latency_us() + self.dice.below(8_000);
        match answer {
            PartAnswer::Part(given) => {
                let given = match self.case.liars.contains(&giver) {
                    true => self.lie(given),
                    false => given,
                };
                let PartUnderWay { node, start, job, .. } = part;
                self.after(latency_us, Happening::PartComes { node, start, job, part: Ok(given) });
            }
            PartAnswer::Refused => self.no_part(part, latency_us, NoPart::Refused),
            PartAnswer::Wait | PartAnswer::Closed => {
                self.no_part(part, latency_us, NoPart::Missing)
            }
        }
    }

    /// A part as an agent gives it that does not do what it should. It cannot be helped that an
    /// agent of the same user gives other bytes of the right version.
    fn lie(&mut self, part: GivenPart) -> GivenPart {
        let mut part = part;
        match self.dice.below(4) {
            0 => (part.changed_ns, part.content[0]) = (part.changed_ns + 1, 0xff),
            1 => (part.size_bytes, part.content[0]) = (part.size_bytes + 1, 0xff),
            2 => part.content.truncate(3),
            _ => part.content.extend_from_slice(&[1; 100]),
        }
        part
    }

    fn dial(&mut self, place: usize, start: u64) {
        if self.agent(place, start).is_none_or(|agent| agent.session.is_some()) {
            return;
        }
        if self.is_cut(place) || self.coordinator.is_none() {
            return self.after(REDIAL_US, Happening::Redial { node: place, start });
        }
        self.last_client += 1;
        let (client, said) = (ClientId(self.last_client), SessionOutbox::default());
        let (sender, from_agent) = mpsc::unbounded_channel();
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let link = CoordinatorLink { sender, can_share: true, has_layouts: true, own };
        let session =
            AgentSession { client, from_agent, to_coordinator: [].into(), said: said.clone() };
        if let Some(agent) = self.agent(place, start) {
            agent.session = Some(session);
        }
        self.tell(place, start, AgentMessage::Link(LinkEvent::Changed(Some(link))));
        self.step_coordinator(vec![CoordinatorMessage::Connected(client, said, Role::Agent)]);
    }

    /// The session of a node's agent ends, on both sides.
    fn lose_session(&mut self, place: usize, delay_us: u64) {
        let start = self.nodes[place].starts;
        let Some(session) = self.agent(place, start).and_then(|agent| agent.session.take()) else {
            return;
        };
        self.outcome.lost_sessions += 1;
        self.after(delay_us, Happening::AgentGone(session.client));
        self.tell(place, start, AgentMessage::Link(LinkEvent::Changed(None)));
        self.after(REDIAL_US, Happening::Redial { node: place, start });
    }

    fn session(&mut self, place: usize, client: ClientId) -> Option<&mut AgentSession> {
        let session = self.nodes[place].agent.as_mut()?.session.as_mut()?;
        (session.client == client).then_some(session)
    }

    fn reach_coordinator(&mut self, place: usize, client: ClientId) {
        if self.is_cut(place) {
            return;
        }
        let Some(session) = self.session(place, client) else { return };
        let messages: Vec<ToCoordinator> = session.to_coordinator.drain(..).collect();
        let received = |message| CoordinatorMessage::Received(client, message);
        self.step_coordinator(messages.into_iter().map(received).collect());
    }

    fn reach_agent(&mut self, place: usize, client: ClientId) {
        if self.is_cut(place) {
            return;
        }
        let Some(session) = self.session(place, client) else { return };
        let said = std::mem::take(&mut *session.said.0.borrow_mut());
        let start = self.nodes[place].starts;
        self.tell(place, start, AgentMessage::Link(LinkEvent::Received(said)));
    }

    fn step_coordinator(&mut self, messages: Vec<CoordinatorMessage<SessionOutbox>>) {
        let now_us = self.now_us();
        let Some(coordinator) = &mut self.coordinator else { return };
        let own_us = now_us - self.coordinator_began_us;
        coordinator.step(own_us, messages.into_iter());
        let patience_us = coordinator.patience(own_us).as_micros() as u64;
        self.coordinator_due_us = now_us + patience_us;
        self.after(patience_us, Happening::CoordinatorLooks);
        for place in 0..self.nodes.len() {
            let session = self.nodes[place].agent.as_ref().and_then(|it| it.session.as_ref());
            if let Some(session) = session.filter(|it| !it.said.0.borrow().is_empty()) {
                let client = session.client;
                let latency_us = self.latency_us();
                self.after(latency_us, Happening::ToAgent { node: place, client });
            }
        }
    }

    /// A node that was cut off reaches the others again.
    fn mend(&mut self, node: usize) {
        if self.is_cut(node) {
            return;
        }
        let session = self.nodes[node].agent.as_ref().and_then(|agent| agent.session.as_ref());
        if let Some(client) = session.map(|session| session.client) {
            self.after(1, Happening::ToCoordinator { node, client });
            self.after(1, Happening::ToAgent { node, client });
        }
    }

    fn fail(&mut self, fault: Fault) {
        let now_us = self.now_us();
        match fault {
            Fault::AgentDies(node) => {
                if self.nodes[node].agent.is_some() {
                    self.lose_session(node, 200);
                    self.nodes[node].agent = None;
                    self.outcome.killed += 1;
                    let delay_us = self.dice.below(2 * SECOND);
                    self.after(delay_us, Happening::AgentStarts(node));
                }
            }
            Fault::AgentStops(node, us) => self.nodes[node].stopped_until_us = now_us + us,
            Fault::CoordinatorDies(us) => {
                if self.coordinator.take().is_some() {
                    (0..self.nodes.len()).for_each(|node| self.lose_session(node, 0));
                    self.after(us, Happening::CoordinatorStarts);
                }
            }
            Fault::CutOff(node, us) => {
                self.nodes[node].cut_until_us = now_us + us;
                self.after(us, Happening::Cut(node));
                let silence_us = HEARTBEAT_TIMEOUT.as_micros() as u64;
                self.after(silence_us, Happening::CutLasts(node));
            }
            Fault::ProgramDies(program) => {
                let program = &mut self.programs[program];
                if !matches!(program.state, ProgramState::Over) {
                    (program.state, program.open) = (ProgramState::Over, None);
                    self.ended.borrow_mut().push(program.process);
                    self.outcome.killed += 1;
                }
            }
            Fault::Rewritten { name, piece } => {
                self.storage.lock().write(self.names[name], piece);
            }
            Fault::Resized { name, pieces } => {
                self.storage.lock().resize(self.names[name], pieces);
            }
            Fault::Replaced { name, pieces } => {
                self.names[name] = self.storage.lock().create(pieces);
            }
            Fault::StorageIsSlow(us) => self.slow_until_us = now_us + us,
            Fault::PagesLost(node) => {
                for mount in 0..MOUNTS {
                    self.storage.lock().drop_pages(device(node, mount), || true);
                }
            }
        }
    }

    fn surroundings<'s>(
        storage: &'s SharedStorage,
        node: &Node,
        now_us: u64,
        cost_us: u64,
    ) -> Surroundings<'s> {
        let agent = node.agent.as_ref().map(|agent| (agent.board, agent.news.clone()));
        Surroundings { storage, now_us, agent, cost_us }
    }

    fn step_program(&mut self, place: usize) {
        let now_us = self.now_us();
        let storage = self.storage.clone();
        let program = &mut self.programs[place];
        program.is_called = false;
        let pieces = match &program.state {
            ProgramState::Over => return,
            ProgramState::Idle { until_us } if *until_us > now_us => {
                let delay_us = until_us - now_us;
                return self.after(delay_us, Happening::ProgramLooks(place));
            }
            ProgramState::Idle { .. } => return self.next_deed(place),
            ProgramState::Looks { call, .. }
            | ProgramState::Waits { call, .. }
            | ProgramState::Calls { call, .. } => call.pieces.clone(),
        };
        let node = self.programs[place].node;
        // Only a call that is made now takes the storage's time.
        let free_us = self.storage_free_us;
        let cost_us = self.cost_us(place, &pieces);
        let busy_us = std::mem::replace(&mut self.storage_free_us, free_us);
        let at = Self::surroundings(&storage, &self.nodes[node], now_us, cost_us);
        let program = &mut self.programs[place];
        let was_called = matches!(program.state, ProgramState::Calls { .. });
        let ended = program.go_on(&at);
        if !was_called && matches!(program.state, ProgramState::Calls { .. }) {
            self.storage_free_us = busy_us;
        }
        if let Some((call, seen)) = ended {
            let took_us = now_us - call.began_us;
            self.outcome.longest_us = self.outcome.longest_us.max(took_us);
            assert!(took_us <= MAX_CALL_US, "a call took {took_us} us: {:?}", self.case);
            for seen in &seen {
                let SeenPiece { piece, content, is_from_board, .. } = seen;
                assert!(
                    program.is_allowed(&at, &call, seen),
                    "at {now_us} us, process {} got content {content} of piece {piece}, which it \
                     cannot have read; from the board: {is_from_board}; {:?}",
                    program.process,
                    self.case
                );
            }
            self.outcome.read += seen.len() as u64;
            self.outcome.copied += seen.iter().filter(|seen| seen.is_from_board).count() as u64;
        }
        if let Some(due_us) = self.programs[place].due_us() {
            let delay_us = due_us.saturating_sub(now_us);
            self.after(delay_us, Happening::ProgramLooks(place));
        }
    }

    /// Time that a call of a program takes.
    fn cost_us(&mut self, place: usize, pieces: &Range<u64>) -> u64 {
        let missing = self.programs[place].open.as_ref().map_or(0, |open| {
            let storage = self.storage.lock();
            let SimulatedFile { device, inode, .. } = open.file;
            let is_missing = |piece: &u64| storage.cached(device, inode, *piece).is_none();
            pieces.clone().filter(is_missing).count() as u64
        });
        20 + (0..missing).map(|_| self.storage_us()).last().unwrap_or(0)
    }

    /// A program does what it does next.
    fn next_deed(&mut self, place: usize) {
        let now_us = self.now_us();
        let storage = self.storage.clone();
        let node = self.programs[place].node;
        let at = Self::surroundings(&storage, &self.nodes[node], now_us, 20);
        let program = &mut self.programs[place];
        match program.deeds.pop_front() {
            None => {
                program.state = ProgramState::Over;
                self.ended.borrow_mut().push(program.process);
                return;
            }
            Some(Deed::Open { name, mount }) => {
                let file = storage.open(device(node, mount), self.names[name]);
                program.open = Some(OpenFile::new(file, now_us));
            }
            Some(Deed::Compute { us }) => {
                program.state = ProgramState::Idle { until_us: now_us + us };
            }
            Some(Deed::Close) => program.call(&at, CallKind::Close, 0..1, false),
            Some(deed @ (Deed::Call { .. } | Deed::Stream { .. })) => {
                let pieces = match &deed {
                    Deed::Call { pieces, .. } | Deed::Stream { pieces } => pieces.clone(),
                    _ => 0..0,
                };
                let size = program
                    .open
                    .as_ref()
                    .map_or(0, |open| storage.lock().size_at(open.file.device, open.file.inode));
                let pieces = pieces.start..pieces.end.min(size / PIECE_BYTES);
                match deed {
                    _ if pieces.is_empty() => {}
                    Deed::Call { kind, takes_bytes, .. } => {
                        program.call(&at, kind, pieces, takes_bytes)
                    }
                    _ => program.stream(&at, pieces),
                }
            }
        }
        self.after(1, Happening::ProgramLooks(place));
    }

    /// No process keeps anything once the programs have ended.
    fn check(mut self) -> IoOutcome {
        let case = self.case;
        for node in &mut self.nodes {
            let Some(agent) = &node.agent else { continue };
            agent.core.assert_at_rest();
            for seat in &agent.board.seats {
                assert_eq!(seat.state(), SeatState::Free, "a seat is taken: {case:?}");
            }
            for file in &agent.board.files {
                let inode = file.inode.load(Ordering::Acquire);
                assert_eq!(inode, 0, "a file is open: {case:?}");
            }
        }
        if let Some(coordinator) = &self.coordinator {
            coordinator.assert_at_rest();
        }
        (self.outcome.sent, self.outcome.unseen) = {
            let storage = self.storage.lock();
            (storage.sent, storage.unseen)
        };
        let outcome = self.outcome.clone();
        drop(self.nodes);
        drop(self.programs);
        self.agenda.clear();
        self.boards.clear();
        outcome
    }
}
