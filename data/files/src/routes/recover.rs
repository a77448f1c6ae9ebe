//! Recovery of a file system that has lost more than half of its nodes for good. A person starts
//! it, and names all lost nodes.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use eyas_ring::{FileAnswer, FileOperation, Refusal};
use eyas_types::dfs::NodeId;

use crate::backoff::Backoff;
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::protocol::{RequestBody, ResponseBody};
use crate::routes::Routes;

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The file system continues with these members.
    Recovered(BTreeSet<NodeId>),
    /// Nothing was done: these nodes are missing, and they are not the nodes that were named.
    Missing(BTreeSet<NodeId>),
}

impl Routes {
    /// Lets the file system continue without these nodes, which must be all that are missing. Data
    /// that only they had is lost.
    pub async fn recover(&self, without: &BTreeSet<NodeId>) -> Result<Recovery, FilesError> {
        self.find_alive(without).await?;
        let (deadline, mut pause) = (self.deadline(), Backoff::default());
        let now_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32);
        let (op, mut first) = (FileOperation::Recover { without: without.clone(), now_s }, None);
        loop {
            let known = self.known();
            let live =
                || known.view.members.iter().copied().find(|node| known.members.contains_key(node));
            let asked = first.take().or_else(live).and_then(|node| known.members.get(&node));
            let refusal = match asked {
                Some(member) => match self
                    .calls
                    .ask_once(member.address, RequestBody::Operate(op.clone()))
                    .await
                {
                    Ok(ResponseBody::Operated(Ok(FileAnswer::Recovered { members }))) => {
                        return Ok(Recovery::Recovered(members));
                    }
                    Ok(ResponseBody::Operated(Err(refusal))) => Some(refusal),
                    Ok(_) => return Err(unexpected()),
                    Err(_) => None,
                },
                None => None,
            };
            match refusal {
                Some(Refusal::Missing(missing)) => return Ok(Recovery::Missing(missing)),
                Some(Refusal::HasMajority) => {
                    let why = "more than half of the nodes are alive: the file system continues \
                               by itself";
                    return Err(FilesError::invalid(why));
                }
                Some(Refusal::NotLeader { leader, .. }) => first = Some(leader),
                _ if Instant::now() >= deadline => {
                    return Err(FilesError::unreachable(
                        "the nodes do not agree on which nodes are missing; try again later",
                    ));
                }
                _ => {}
            }
            pause.wait().await;
            self.refresh(deadline).await?;
        }
    }

    /// Refuses if one of the nodes answers at an address that the dispatcher knows, even if the
    /// other nodes do not hear it.
    async fn find_alive(&self, lost: &BTreeSet<NodeId>) -> Result<(), FilesError> {
        for address in &self.seeds {
            if let Ok(ResponseBody::Membership(node, _)) =
                self.calls.ask_once(*address, RequestBody::Membership).await
                && lost.contains(&node)
            {
                let why = format!(
                    "node {node} is not lost, since it answers at {address}: check the network \
                     between it and the other nodes"
                );
                return Err(FilesError::new(FilesErrorKind::Invalid, why));
            }
        }
        Ok(())
    }
}
