//! Messages to other nodes, over one connection to each node, which is opened when there is a message. Messages that
//! cannot be sent are lost; the ring repeats them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_session::{Access, Session, SessionError, dial};
use eyas_types::dfs::{FileSystemId, NodeId};
use eyas_wire::Role;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::protocol::ToPeer;

/// Maximum number of messages that wait for one node. Further ones are lost.
const MAX_WAITING: usize = 4096;

/// Maximum number of messages that are sent together.
const MAX_TOGETHER: usize = 256;

/// Pause after a failed connection attempt. Messages wait in the meantime, or are lost.
const REDIAL: Duration = Duration::from_millis(200);

/// Connections to other nodes.
pub(crate) struct NodeLinks {
    node: NodeId,
    system: FileSystemId,
    access: Access,
    runtime: Handle,
    links: Mutex<HashMap<NodeId, Link>>,
}

struct Link {
    address: SocketAddr,
    waiting: mpsc::Sender<ToPeer>,
}

impl NodeLinks {
    pub fn new(node: NodeId, system: FileSystemId, access: Access) -> Self {
        NodeLinks { node, system, access, runtime: Handle::current(), links: Mutex::default() }
    }

    /// Sends a message to a node at `address`.
    pub fn send(&self, to: NodeId, address: SocketAddr, message: ToPeer) {
        let mut links = self.links();
        let link = links.entry(to).or_insert_with(|| self.link(address));
        if link.address != address || link.waiting.is_closed() {
            *link = self.link(address);
        }
        if link.waiting.try_send(message).is_err() {
            tracing::debug!(%to, "dropped a message: too many wait for this node");
        }
    }

    /// Closes connections to nodes that are not `alive`.
    pub fn keep(&self, alive: impl Fn(NodeId) -> bool) {
        self.links().retain(|node, _| alive(*node));
    }

    fn link(&self, address: SocketAddr) -> Link {
        let (waiting, messages) = mpsc::channel(MAX_WAITING);
        let access = self.access.of_node(address);
        self.runtime.spawn(carry((self.node, self.system), access, messages));
        Link { address, waiting }
    }

    fn links(&self) -> MutexGuard<'_, HashMap<NodeId, Link>> {
        // No update of the map can panic half-way.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends messages until the channel is closed.
async fn carry(own: (NodeId, FileSystemId), access: Access, mut messages: mpsc::Receiver<ToPeer>) {
    let mut session = None;
    let mut together = Vec::new();
    while messages.recv_many(&mut together, MAX_TOGETHER).await > 0 {
        let carried = async {
            let session = match &mut session {
                Some(session) => session,
                None => session.insert(greet(own, &access).await?),
            };
            session.writer.send(&together).await
        };
        if let Err(error) = carried.await {
            tracing::debug!(address = access.dispatcher, %error, "messages to a node were lost");
            session = None;
            sleep(REDIAL).await;
        }
        together.clear();
    }
}

async fn greet((node, system): (NodeId, FileSystemId), access: &Access) -> Result<Session, SessionError> {
    let mut session = dial(access, Role::Node).await?;
    session.writer.send(&[ToPeer::From(node, system)]).await?;
    Ok(session)
}
