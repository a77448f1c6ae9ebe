//! Memory of nodes for chunks that are read again and again (elastic-blocks §2.3, the in-memory
//! cache of EclipseMR).
//!
//! A client opens an *account* on all nodes, and passes its number on to those that read chunks.
//! When such a reader opens a chunk of the node on its machine, it asks the node to keep the chunk
//! in memory. The chunk stays there until the client releases the account, or does not renew it for
//! [`MEMORY_TERM`](crate::protocol::MEMORY_TERM).

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::protocol::{MemoryAccount, MemoryUse, RequestBody, ResponseBody};
use crate::random::random;
use crate::routes::Routes;

/// Interval at which an account is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(15);

/// Memory of all nodes in which chunks stay. Dropped, it is no longer renewed; call
/// [`release`](Self::release) to give it back at once.
pub struct ChunkMemory {
    account: MemoryAccount,
    routes: Arc<Routes>,
    renewing: JoinHandle<()>,
}

impl ChunkMemory {
    pub(crate) async fn begin(routes: Arc<Routes>, limit_bytes: u64) -> Result<Self, FilesError> {
        let account = MemoryAccount { number: random()?, limit_bytes };
        open(&routes, account).await;
        let renewing = tokio::spawn(renew(routes.clone(), account));
        Ok(ChunkMemory { account, routes, renewing })
    }

    /// The number of the account, for readers.
    pub fn number(&self) -> u128 {
        self.account.number
    }

    /// Renews the account. Returns what it has on all nodes that answer.
    pub async fn usage(&self) -> MemoryUse {
        let mut all = MemoryUse::default();
        for answer in open(&self.routes, self.account).await {
            match answer {
                Ok(MemoryUse { chunks, bytes, failure }) => {
                    all.chunks += chunks;
                    all.bytes += bytes;
                    all.failure = all.failure.or(failure);
                }
                // A node of an earlier version.
                Err(error) if error.kind == FilesErrorKind::Invalid => {
                    all.failure = all.failure.or(Some(error.to_string()));
                }
                Err(error) => tracing::debug!("a node does not renew an account: {error}"),
            }
        }
        all
    }

    /// Releases the memory. A node that does not answer releases it later.
    pub async fn release(self) {
        self.renewing.abort();
        let asked = RequestBody::ReleaseMemory { account: self.account.number };
        ask_members(&self.routes, &asked).await;
    }
}

impl Drop for ChunkMemory {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews an account for ever.
async fn renew(routes: Arc<Routes>, account: MemoryAccount) {
    let mut ticks = interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Nodes may have joined. Those that are known are told in any case.
        let _ = routes.refresh(routes.deadline()).await;
        open(&routes, account).await;
    }
}

/// Opens an account on all members that are alive, or renews it. Returns what each says.
async fn open(routes: &Routes, account: MemoryAccount) -> Vec<Result<MemoryUse, FilesError>> {
    let answers = ask_members(routes, &RequestBody::OpenMemory(account)).await;
    let used = |answer: Result<ResponseBody, FilesError>| match answer? {
        ResponseBody::Memory(used) => Ok(used),
        _ => Err(unexpected()),
    };
    answers.into_iter().map(used).collect()
}

/// The answers of all members that are alive.
async fn ask_members(
    routes: &Routes,
    asked: &RequestBody,
) -> Vec<Result<ResponseBody, FilesError>> {
    let mut asking = JoinSet::new();
    for member in routes.known().members.values() {
        let (calls, address, asked) = (routes.calls.clone(), member.address, asked.clone());
        asking.spawn(async move { calls.ask_once(address, asked).await });
    }
    asking.join_all().await
}
