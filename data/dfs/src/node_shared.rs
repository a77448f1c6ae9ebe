//! What the parts of a node share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use eyas_files::protocol::{DfsMembership, Member, NodeLoad};
use eyas_ring::{Event, View};
use eyas_session::Credentials;
use eyas_types::dfs::{FileSystemId, NodeId};
use tokio::sync::{Notify, watch};

use crate::auditors::Auditors;
use crate::change_log::ChangeLog;
use crate::chunks::NodeChunks;
use crate::database::Database;
use crate::gossip::{Gossip, Neighbour};
use crate::links::{NodeLinks, ToPeer};
use crate::ring_thread::{RingInput, RingState};
use crate::runs;
use crate::space::ChunkSpace;

/// The file system that a node's folder belongs to.
pub(crate) struct Identity {
    pub folder: PathBuf,
    pub system: FileSystemId,
}

pub(crate) struct NodeShared {
    pub node: NodeId,
    pub identity: Identity,
    pub address: SocketAddr,
    pub database: Arc<Database>,
    pub chunks: NodeChunks,
    pub links: NodeLinks,
    /// Decides what tokens of jobs permit.
    pub credentials: Credentials,
    /// The audit log.
    pub changes: ChangeLog,
    pub ring_inputs: mpsc::SyncSender<RingInput>,
    pub runs: mpsc::SyncSender<runs::RunInput>,
    pub state: watch::Receiver<RingState>,
    pub gossip: Gossip,
    pub room: Arc<dyn ChunkSpace>,
    pub neighbours: Mutex<BTreeMap<NodeId, Neighbour>>,
    pub auditors: Mutex<Auditors>,
    /// A node asks for an audit.
    pub audit_soon: Notify,
}

impl NodeShared {
    /// The file system as this node sees it.
    pub fn membership(&self) -> DfsMembership {
        let member = |(node, neighbour): (&NodeId, &Neighbour)| {
            let Neighbour { address, transfer, free_bytes, .. } = *neighbour;
            Member { node: *node, address, transfer, free_bytes }
        };
        let alive = self.neighbours().iter().map(member).collect();
        let RingState { view, is_settled } = self.state.borrow().clone();
        DfsMembership { system: self.identity.system, view, is_settled, alive }
    }

    /// The view, if this node serves all partitions that it leads in it.
    pub fn settled_view(&self) -> Option<View> {
        let state = self.state.borrow();
        state.view.clone().filter(|_| state.is_settled)
    }

    /// The leaders that have audited their files.
    pub fn auditors(&self) -> MutexGuard<'_, Auditors> {
        // No update of it can panic half-way.
        self.auditors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an event to the ring's thread. If the thread is overloaded the event is dropped; such
    /// events are repeated.
    pub fn tell(&self, event: Event) {
        self.tell_all(vec![event]);
    }

    /// Passes events to the ring's thread, in order.
    pub fn tell_all(&self, events: Vec<Event>) {
        if !events.is_empty() && self.ring_inputs.try_send(RingInput::Events(events)).is_err() {
            tracing::debug!("dropped events: the ring's thread is overloaded or has ended");
        }
    }

    /// Sends a message to another node, if its address is known.
    pub fn send(&self, to: NodeId, message: ToPeer) {
        self.send_all(to, vec![message]);
    }

    /// Sends messages to another node, in order.
    pub fn send_all(&self, to: NodeId, messages: Vec<ToPeer>) {
        let address = self.neighbours().get(&to).map(|neighbour| neighbour.address);
        match address {
            Some(address) => self.links.send(to, address, messages),
            None => tracing::trace!(%to, "dropped messages to a node that is not alive"),
        }
    }

    /// The addresses at which these nodes send chunks, if they are alive.
    pub fn transfers(&self, nodes: &[NodeId]) -> Vec<SocketAddr> {
        let neighbours = self.neighbours();
        nodes
            .iter()
            .filter_map(|node| neighbours.get(node))
            .map(|neighbour| neighbour.transfer)
            .collect()
    }

    /// The loads of the nodes that are alive and have measured theirs.
    pub fn loads(&self) -> BTreeMap<NodeId, NodeLoad> {
        let neighbours = self.neighbours();
        neighbours.iter().filter_map(|(node, neighbour)| Some((*node, neighbour.load?))).collect()
    }

    pub fn neighbours(&self) -> MutexGuard<'_, BTreeMap<NodeId, Neighbour>> {
        // The value is only ever replaced as a whole.
        self.neighbours.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
