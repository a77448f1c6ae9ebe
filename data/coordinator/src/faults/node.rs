//! A node with its agent: what the agent asks of it, and what it gives to its agent's care.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use eyas_board::Board;
use eyas_ioq::ClientId;
use eyas_types::StorageLocation;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::mpsc::UnboundedReceiver;

use super::storage::{SharedStorage, SimulatedFile};
use crate::agent::agent_node::{AgentNode, PartJob, WindowJob};
use crate::agent::core::{AgentCore, AgentMessage};
use crate::node::NodeFacts;
use crate::protocol::{ToAgent, ToCoordinator};
use crate::request_tracker::RequestTracker;
use crate::serve::core::AgentOutbox;

/// Devices of a node: mounts of the same storage.
pub const MOUNTS: u64 = 2;
/// No device of the machine has a number as large as this.
const FIRST_DEVICE: u64 = 0xfff0_0000;

/// The device of a mount of a node.
pub fn device(node: usize, mount: u64) -> u64 {
    FIRST_DEVICE + node as u64 * MOUNTS + mount % MOUNTS
}

/// Work that an agent has handed on.
pub enum AgentJob {
    Read(WindowJob<SimulatedFile>),
    Take(PartJob<SimulatedFile>),
}

/// What the world and the node of an agent share.
pub struct SimulatedNode {
    pub storage: SharedStorage,
    pub began: Instant,
    /// The agents of one user have the same number.
    pub user: u8,
    /// Names the agent to other agents.
    pub port: u16,
    pub jobs: RefCell<Vec<AgentJob>>,
    /// Processes that have ended.
    pub ended: Rc<RefCell<Vec<u32>>>,
}

impl NodeFacts for SimulatedNode {
    fn now(&self) -> Instant {
        self.began + Duration::from_micros(self.storage.lock().now_us)
    }

    fn storage_name(&self, _: &StorageLocation) -> String {
        "server:/data".to_owned()
    }

    fn has_versions(&self, _: &StorageLocation) -> bool {
        true
    }
}

impl AgentNode for SimulatedNode {
    type File = SimulatedFile;

    fn monotonic_ms(&self) -> u64 {
        monotonic_ms(self.storage.lock().now_us)
    }

    fn is_alive(&self, process: u32) -> bool {
        !self.ended.borrow().contains(&process)
    }

    fn peers(&self) -> Option<([u8; 32], u16)> {
        Some(([self.user; 32], self.port))
    }

    fn read(&self, job: WindowJob<SimulatedFile>) -> io::Result<()> {
        self.jobs.borrow_mut().push(AgentJob::Read(job));
        Ok(())
    }

    fn take(&self, job: PartJob<SimulatedFile>) {
        self.jobs.borrow_mut().push(AgentJob::Take(job));
    }
}

/// The clock of heartbeats. It is never 0, which a new board has.
pub fn monotonic_ms(now_us: u64) -> u64 {
    1_000 + now_us / 1_000
}

/// An agent's process.
pub struct Agent {
    pub node: Rc<SimulatedNode>,
    pub board: &'static Board,
    pub core: AgentCore<SimulatedNode>,
    pub news: Sender<AgentMessage<SimulatedFile>>,
    pub session: Option<AgentSession>,
    /// When the agent has to look again, also if the bell does not ring.
    pub due_us: u64,
    pub heard_bell: u32,
}

/// A session of an agent with the coordinator. Messages under way keep their order.
pub struct AgentSession {
    pub client: ClientId,
    pub from_agent: UnboundedReceiver<ToCoordinator>,
    pub to_coordinator: VecDeque<ToCoordinator>,
    pub said: SessionOutbox,
}

/// Messages to an agent that are under way.
#[derive(Clone, Default)]
pub struct SessionOutbox(pub Rc<RefCell<Vec<ToAgent>>>);

impl AgentOutbox for SessionOutbox {
    fn post(&self, messages: Vec<ToAgent>) -> bool {
        self.0.borrow_mut().extend(messages);
        true
    }
}

impl Agent {
    pub fn start(node: SimulatedNode, board: &'static Board) -> Agent {
        let (news, told) = mpsc::channel();
        let node = Rc::new(node);
        let tracker = RequestTracker::remote(node.clone());
        let idle = Duration::MAX;
        let core = AgentCore::new(node.clone(), board, tracker, news.clone(), told, idle);
        Agent { node, board, core, news, session: None, due_us: 0, heard_bell: 0 }
    }

    /// Whether the agent's bell has rung since it last looked.
    pub fn is_called(&self) -> bool {
        self.board.agent.bell.load(Ordering::Acquire) != self.heard_bell
    }

    /// Lets the agent do what is to be done now.
    pub fn step(&mut self, now_us: u64) {
        self.heard_bell = self.board.agent.bell.load(Ordering::Acquire);
        let patience = self.core.step();
        self.due_us = now_us + patience.as_micros().max(1) as u64;
    }
}

/// Boards, which are mapped for the rest of the process's life and so used again.
#[derive(Default)]
pub struct Boards {
    boards: Vec<(File, &'static Board)>,
    used: usize,
}

impl Boards {
    /// An empty board.
    pub fn next(&mut self) -> &'static Board {
        if self.used == self.boards.len() {
            let memory = eyas_board::make().expect("there is memory");
            let board = eyas_board::map(&memory).expect("there is memory");
            self.boards.push((memory.into(), board));
        }
        self.used += 1;
        self.boards[self.used - 1].1
    }

    /// Empties all boards. No agent or program has one any longer.
    pub fn clear(&mut self) {
        for (memory, _) in &self.boards[..self.used] {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let bytes = memory.metadata().expect("it is open").len();
            fallocate(memory, flags, 0, bytes).expect("a memory file can have holes");
        }
        self.used = 0;
    }
}
