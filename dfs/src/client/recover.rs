//! Having those who are left go on when more than half of the nodes are lost for good. A person says so, and names them all.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use eyas_ring::{FileAnswer, FileOperation, Refusal};
use eyas_types::dfs::NodeId;

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::{DfsClient, PAUSE, unexpected};
use crate::protocol::{RequestBody, ResponseBody};

/// What came of an attempt to recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// These are the members now.
    Recovered(BTreeSet<NodeId>),
    /// Nothing was done: these are missing, and not those that were named.
    Missing(BTreeSet<NodeId>),
}

impl DfsClient {
    /// Has the file system go on without these nodes, which must be all that are missing. What only they had is lost.
    ///
    /// # Errors
    /// `Invalid` if it needs no recovery, or one of the nodes lives; `Unreachable`.
    pub async fn recover(&self, without: &BTreeSet<NodeId>) -> Result<Recovery, FilesError> {
        self.find_alive(without).await?;
        let (deadline, mut pause) = (self.deadline(), PAUSE);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32);
        let (op, mut first) = (FileOperation::Recover { without: without.clone(), now_s }, None);
        loop {
            let known = self.known();
            let live = || known.view.members.iter().copied().find(|node| known.members.contains_key(node));
            let asked = first.take().or_else(live).and_then(|node| known.members.get(&node));
            let refusal = match asked {
                Some(member) => match self.0.calls.ask_once(member.address, RequestBody::Operate(op.clone())).await {
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
                    let why = "more than half of its nodes are there: the file system goes on by itself";
                    return Err(FilesError::invalid(why));
                }
                Some(Refusal::NotLeader { leader, .. }) => first = Some(leader),
                _ if Instant::now() >= deadline => {
                    return Err(FilesError::unreachable("its nodes do not agree on who is missing; try again later"));
                }
                _ => {}
            }
            self.pause(&mut pause).await;
            self.refresh(deadline).await?;
        }
    }

    /// Whether one of these answers whom the dispatcher knows, though the others do not hear it.
    async fn find_alive(&self, lost: &BTreeSet<NodeId>) -> Result<(), FilesError> {
        for address in &self.0.seeds {
            if let Ok(ResponseBody::Membership(node, _)) =
                self.0.calls.ask_once(*address, RequestBody::Membership).await
                && lost.contains(&node)
            {
                let why = format!("node {node} is not lost, it answers at {address}: have the others reach it");
                return Err(FilesError::new(FilesErrorKind::Invalid, why));
            }
        }
        Ok(())
    }
}
