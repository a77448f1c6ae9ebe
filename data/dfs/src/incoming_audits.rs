//! Audits that another node has sent, carried out in their order and apart from its other messages.
//! An audit may read chunks, and messages of the ring, such as heartbeats, cannot wait for that.

use std::sync::Arc;
use std::time::Instant;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, NodeId};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::links::ToPeer;
use crate::node_shared::NodeShared;

/// Maximum number of audits of one connection that wait. Further ones are dropped, and the audit of
/// all files counts as not completed.
const MAX_WAITING: usize = 1024;

/// The audits that came over a connection.
#[derive(Default)]
pub(crate) struct IncomingAudits {
    waiting: Option<Sender<IncomingAudit>>,
    /// Whether one was dropped since the leader has last audited all its files.
    is_incomplete: bool,
}

enum IncomingAudit {
    /// Chunks of a file, which this node should have.
    File(FileName, Vec<ObjectId>),
    /// The leader has audited all its files, as it said at this time.
    End(Instant),
}

impl IncomingAudits {
    /// A leader asks for chunks of a file.
    pub fn add(
        &mut self,
        shared: &Arc<NodeShared>,
        leader: NodeId,
        name: FileName,
        objects: Vec<ObjectId>,
    ) {
        let is_dropped = !self.queue(shared, leader, IncomingAudit::File(name, objects));
        self.is_incomplete |= is_dropped;
    }

    /// A leader has audited all its files.
    pub fn end(&mut self, shared: &Arc<NodeShared>, leader: NodeId) {
        if !std::mem::take(&mut self.is_incomplete) {
            // If it does not fit, a later audit is the next one that counts.
            self.queue(shared, leader, IncomingAudit::End(Instant::now()));
        }
    }

    /// Returns whether there was room.
    fn queue(&mut self, shared: &Arc<NodeShared>, leader: NodeId, audit: IncomingAudit) -> bool {
        let waiting = self.waiting.get_or_insert_with(|| {
            let (waiting, audits) = mpsc::channel(MAX_WAITING);
            tokio::spawn(carry_out(shared.clone(), leader, audits));
            waiting
        });
        waiting.try_send(audit).is_ok()
    }
}

/// Ends with the connection.
async fn carry_out(shared: Arc<NodeShared>, leader: NodeId, mut audits: Receiver<IncomingAudit>) {
    while let Some(audit) = audits.recv().await {
        match audit {
            IncomingAudit::File(name, objects) => {
                let missing = shared.chunks.audited(&objects).await;
                if !missing.is_empty() {
                    shared.send(leader, ToPeer::Missing { name, objects: missing });
                }
            }
            IncomingAudit::End(at) => shared.auditors().heard(leader, at),
        }
    }
}
