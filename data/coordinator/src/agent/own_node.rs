//! The node that an agent's process runs on: its processes, and the threads that read and take.

use std::fs::File;
use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use eyas_board::{Board, ring};
use eyas_types::StorageLocation;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::agent_node::{AgentNode, PartJob, WindowJob};
use super::core::AgentMessage;
use super::peers::{AgentPeers, NoPart};
use super::read_ahead::fetch::fetch;
use crate::node::{NodeFacts, ThisNode};

/// The node that this process runs on.
pub(super) struct OwnNode {
    pub board: &'static Board,
    pub outbox: Sender<AgentMessage<File>>,
    /// The other agents of the user.
    pub peers: Option<AgentPeers>,
}

impl NodeFacts for OwnNode {
    fn now(&self) -> Instant {
        ThisNode.now()
    }

    fn storage_name(&self, location: &StorageLocation) -> String {
        ThisNode.storage_name(location)
    }

    fn has_versions(&self, location: &StorageLocation) -> bool {
        ThisNode.has_versions(location)
    }
}

impl AgentNode for OwnNode {
    type File = File;

    fn monotonic_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
    }

    fn is_alive(&self, process: u32) -> bool {
        Pid::from_raw(process as i32).is_none_or(|pid| test_kill_process(pid).is_ok())
    }

    fn peers(&self) -> Option<([u8; 32], u16)> {
        self.peers.as_ref().map(|peers| (peers.group(), peers.port()))
    }

    fn read(&self, job: WindowJob<File>) -> io::Result<()> {
        let (outbox, bell) = (self.outbox.clone(), &self.board.agent.bell);
        let reading = move || {
            let WindowJob { request, key, window, file, entry, turn_end, is_timed } = job;
            let result = fetch(&file, &window, turn_end, entry, is_timed);
            drop(file);
            // The agent may have ended.
            let _ = outbox.send(AgentMessage::WindowRead { request, key, window, result });
            ring(bell);
        };
        thread::Builder::new().name("reader".to_owned()).spawn(reading).map(drop)
    }

    fn take(&self, job: PartJob<File>) {
        let PartJob { from, wanted, file, key, window } = job;
        let (outbox, bell) = (self.outbox.clone(), &self.board.agent.bell);
        let done = move |part| {
            // The agent may have ended.
            let _ = outbox.send(AgentMessage::PartTaken { key, window, part });
            ring(bell);
        };
        match &self.peers {
            Some(peers) => peers.take(from, wanted, file, done),
            None => done(Err(NoPart::Missing)),
        }
    }
}
