//! Messages to other nodes, over one connection to each node, which is opened when there is a
//! message. Messages that cannot be sent are lost; the ring repeats them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_ring::{FileChunks, RingMessage};
use eyas_session::{Access, Session, SessionError, dial};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileSystemId, NodeId};
use eyas_wire::Role;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;

/// Maximum number of messages that wait for one node. Further ones are lost.
const MAX_WAITING: usize = 4096;

/// Pause after a failed connection attempt. Messages wait in the meantime, or are lost.
const REDIAL: Duration = Duration::from_millis(200);

/// Messages between nodes. Each of them may be lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToPeer {
    /// The sender and its file system; the first message of each connection.
    From(NodeId, FileSystemId),
    /// A message of the ring.
    Ring(Box<RingMessage>),
    /// Chunks of a file that the sender leads, which the receiver should have.
    Audit { name: FileName, objects: Vec<ObjectId> },
    /// The sender has audited all files that it leads.
    Audited,
    /// The sender has chunks of clients that have gone. The receiver is to audit soon, so that the
    /// sender learns which of them belong to no file.
    AuditSoon,
    /// The chunks of an audit that the sender does not have.
    Missing { name: FileName, objects: Vec<ObjectId> },
    /// Chunks of a file that the sender leads, for which it knows no good replica.
    Search { name: FileName, objects: Vec<ObjectId> },
    /// Force chunks of files that the sender leads to the disk.
    Sync(Vec<FileChunks>),
    /// The sender has done so for these files, but for these bad chunks.
    Synced(Vec<FileChunks>),
    /// The chunks of a search that the sender has, undamaged.
    Found { name: FileName, objects: Vec<ObjectId> },
}

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
    messages: mpsc::UnboundedSender<Vec<ToPeer>>,
    /// Space for further messages.
    space: Arc<Semaphore>,
}

impl NodeLinks {
    pub fn new(node: NodeId, system: FileSystemId, access: Access) -> Self {
        NodeLinks { node, system, access, runtime: Handle::current(), links: Mutex::default() }
    }

    /// Sends messages to a node at `address`.
    pub fn send(&self, to: NodeId, address: SocketAddr, mut messages: Vec<ToPeer>) {
        let mut links = self.links();
        let link = links.entry(to).or_insert_with(|| self.link(address));
        if link.address != address || link.messages.is_closed() {
            *link = self.link(address);
        }
        let space = link.space.available_permits();
        if messages.len() > space {
            tracing::debug!(
                %to,
                "dropped {} messages: too many wait for this node",
                messages.len() - space
            );
            messages.truncate(space);
        }
        if !messages.is_empty() {
            link.space.forget_permits(messages.len());
            let _ = link.messages.send(messages);
        }
    }

    /// Closes connections to nodes that are not `alive`.
    pub fn keep(&self, alive: impl Fn(NodeId) -> bool) {
        self.links().retain(|node, _| alive(*node));
    }

    fn link(&self, address: SocketAddr) -> Link {
        let (messages, waiting) = mpsc::unbounded_channel();
        let (access, space) = (self.access.of_node(address), Arc::new(Semaphore::new(MAX_WAITING)));
        self.runtime.spawn(carry((self.node, self.system), access, waiting, space.clone()));
        Link { address, messages, space }
    }

    fn links(&self) -> MutexGuard<'_, HashMap<NodeId, Link>> {
        // No update of the map can panic half-way.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends messages until the channel is closed.
async fn carry(
    own: (NodeId, FileSystemId),
    access: Access,
    mut waiting: mpsc::UnboundedReceiver<Vec<ToPeer>>,
    space: Arc<Semaphore>,
) {
    let mut session = None;
    while let Some(mut together) = waiting.recv().await {
        while let Ok(more) = waiting.try_recv() {
            together.extend(more);
        }
        space.add_permits(together.len());
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
    }
}

async fn greet(
    (node, system): (NodeId, FileSystemId),
    access: &Access,
) -> Result<Session, SessionError> {
    let mut session = dial(access, Role::Node).await?;
    session.writer.send(&[ToPeer::From(node, system)]).await?;
    Ok(session)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use eyas_formats::Formats;
    use eyas_ring::{MessageBody, NameEntry};
    use eyas_types::dfs::FileKind;
    use eyas_wire::PROTOCOL_VERSION;

    use super::*;

    #[test]
    fn messages_have_the_formats_that_were_recorded() {
        Formats::default()
            .with::<ToPeer>()
            .with::<MessageBody>()
            .with::<NameEntry>()
            .with::<FileKind>()
            .assert_recorded(
                &Path::new(env!("CARGO_MANIFEST_DIR")).join("formats.txt"),
                PROTOCOL_VERSION,
            );
    }
}
