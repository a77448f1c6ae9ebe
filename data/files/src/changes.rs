//! The audit logs of all nodes, merged in order of time.

use std::collections::VecDeque;
use std::sync::Arc;

use eyas_types::dfs::NodeId;

use crate::error::{FilesError, unexpected};
use crate::protocol::{ChangeEntry, DfsMembership, LogPosition, Member, RequestBody, ResponseBody};
use crate::routes::Routes;

/// A reader of the audit logs of all nodes that are alive.
pub struct Changes {
    routes: Arc<Routes>,
    folder: String,
    since_us: u64,
    logs: Vec<NodeLog>,
    absent: Vec<NodeId>,
}

/// The log of one node.
struct NodeLog {
    member: Member,
    /// Entries that were fetched and not returned yet.
    fetched: VecDeque<ChangeEntry>,
    /// The position from which to continue; `None` to begin.
    next: Option<LogPosition>,
    is_at_end: bool,
}

impl Changes {
    /// The changes of files below a folder since a time in microseconds since 1970.
    pub(crate) async fn since(
        routes: Arc<Routes>,
        folder: &str,
        since_us: u64,
    ) -> Result<Self, FilesError> {
        let DfsMembership { view, alive, .. } = routes.membership().await?;
        let is_absent = |node: &NodeId| alive.iter().all(|member| member.node != *node);
        let absent =
            view.iter().flat_map(|view| &view.members).copied().filter(is_absent).collect();
        let log =
            |member| NodeLog { member, fetched: VecDeque::new(), next: None, is_at_end: false };
        let logs = alive.iter().copied().map(log).collect();
        Ok(Changes { routes, folder: folder.to_owned(), since_us, logs, absent })
    }

    /// The members of the file system that are not reachable, whose logs are not read.
    pub fn absent(&self) -> &[NodeId] {
        &self.absent
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// `NotAllowed`, `Unreachable`.
    pub async fn next(&mut self) -> Result<Option<ChangeEntry>, FilesError> {
        for log in &mut self.logs {
            while log.fetched.is_empty() && !log.is_at_end {
                let (folder, since_us) = (self.folder.clone(), self.since_us);
                let request = RequestBody::Changes { folder, since_us, from: log.next };
                match self.routes.calls.ask_once(log.member.address, request).await? {
                    ResponseBody::Changes(entries, next) => {
                        (log.fetched, log.next, log.is_at_end) =
                            (entries.into(), next, next.is_none());
                    }
                    ResponseBody::NoChanges(why) => {
                        let message =
                            format!("node {} cannot read its audit log: {why}", log.member.node);
                        return Err(FilesError::unreachable(message));
                    }
                    _ => return Err(unexpected()),
                }
            }
        }
        let first = self.logs.iter_mut().filter(|log| !log.fetched.is_empty());
        let first = first.min_by_key(|log| log.fetched.front().map(|entry| entry.time_us));
        Ok(first.and_then(|log| log.fetched.pop_front()))
    }
}
