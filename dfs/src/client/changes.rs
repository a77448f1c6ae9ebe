//! The audit logs of all nodes, merged in order of time.

use std::collections::VecDeque;

use crate::client::error::FilesError;
use crate::client::{DfsClient, unexpected};
use crate::protocol::{ChangeEntry, FilesDoor, Member, RequestBody, ResponseBody};

/// A reader of the audit logs of all nodes that are alive.
pub struct Changes {
    files: DfsClient,
    folder: String,
    since_us: u64,
    logs: Vec<NodeLog>,
}

/// The log of one node: the entries that were fetched, and the position from which to continue.
struct NodeLog {
    member: Member,
    fetched: VecDeque<ChangeEntry>,
    next: Option<u64>,
}

impl DfsClient {
    /// States the door through which this process uses the files, for the audit log.
    pub fn set_door(&self, door: FilesDoor) {
        self.0.calls.set_door(door);
    }

    /// The acknowledged changes of files below a folder since a time in microseconds since 1970, in order of time.
    ///
    /// # Errors
    /// `NotAllowed`, `Unreachable`.
    pub async fn changes(&self, folder: &str, since_us: u64) -> Result<Changes, FilesError> {
        let members = self.membership().await?.alive;
        let log = |member| NodeLog { member, fetched: VecDeque::new(), next: Some(0) };
        let logs = members.into_iter().map(log).collect();
        Ok(Changes { files: self.clone(), folder: folder.to_owned(), since_us, logs })
    }
}

impl Changes {
    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// `NotAllowed`, `Unreachable`.
    pub async fn next(&mut self) -> Result<Option<ChangeEntry>, FilesError> {
        for log in &mut self.logs {
            while log.fetched.is_empty()
                && let Some(from) = log.next
            {
                let (folder, since_us) = (self.folder.clone(), self.since_us);
                let request = RequestBody::Changes { folder, since_us, from };
                match self.files.0.calls.ask_once(log.member.address, request).await? {
                    ResponseBody::Changes(Ok((entries, next))) => (log.fetched, log.next) = (entries.into(), next),
                    ResponseBody::Changes(Err(why)) => {
                        let message = format!("node {} cannot read its audit log: {why}", log.member.node);
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
