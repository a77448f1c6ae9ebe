//! Memory of nodes for chunks that are read again and again (elastic-blocks §2.3, the in-memory
//! cache of EclipseMR).
//!
//! A client opens an *account*, and tells its number to those that read chunks: a reader lets the
//! node on its machine keep each chunk that it opens, as far as the account has room there. What a
//! node keeps stays until the account is released, or no client has renewed it for
//! [`MEMORY_TERM`](crate::protocol::MEMORY_TERM): passes read the same chunks in the same order, so
//! of more than fits the memory, what was read last is never what is read next.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::error::{FilesError, unexpected};
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
        let asked = RequestBody::KeepInMemory { account, objects: Vec::new() };
        ask_members(&routes, &asked).await;
        let renewing = tokio::spawn(renew(routes.clone(), account));
        Ok(ChunkMemory { account, routes, renewing })
    }

    /// The account, for readers.
    pub fn account(&self) -> MemoryAccount {
        self.account
    }

    /// What the account has on all nodes that answer.
    pub async fn usage(&self) -> MemoryUse {
        let MemoryAccount { number, .. } = self.account;
        let asked = RequestBody::KeepInMemory { account: self.account, objects: Vec::new() };
        let mut all = MemoryUse::default();
        for answer in ask_members(&self.routes, &asked).await {
            match answer {
                Ok(MemoryUse { chunks, bytes, failure }) => {
                    all.chunks += chunks;
                    all.bytes += bytes;
                    all.failure = all.failure.or(failure);
                }
                Err(error) => {
                    tracing::debug!("a node does not renew memory account {number:x}: {error}");
                    all.failure = all.failure.or(Some(error.to_string()));
                }
            }
        }
        all
    }

    /// Releases the memory. A node that does not answer releases it later.
    pub async fn release(self) {
        self.renewing.abort();
        let asked = RequestBody::ReleaseMemory { number: self.account.number };
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
        let asked = RequestBody::KeepInMemory { account, objects: Vec::new() };
        ask_members(&routes, &asked).await;
    }
}

/// The answers of all members that are alive.
async fn ask_members(routes: &Routes, asked: &RequestBody) -> Vec<Result<MemoryUse, FilesError>> {
    let mut asking = JoinSet::new();
    for member in routes.known().members.values() {
        let (calls, address, asked) = (routes.calls.clone(), member.address, asked.clone());
        asking.spawn(async move {
            match calls.ask_once(address, asked).await? {
                ResponseBody::Memory(used) => Ok(used),
                _ => Err(unexpected()),
            }
        });
    }
    asking.join_all().await
}

/// A text is not an account.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a memory account: write NUMBER:BYTES, the number in hexadecimal digits")]
pub struct MemoryAccountError(String);

/// `NUMBER:BYTES`, as on command lines.
impl fmt::Display for MemoryAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}:{}", self.number, self.limit_bytes)
    }
}

impl FromStr for MemoryAccount {
    type Err = MemoryAccountError;

    fn from_str(text: &str) -> Result<Self, MemoryAccountError> {
        let parsed = text.split_once(':').and_then(|(number, bytes)| {
            let number = u128::from_str_radix(number, 16).ok()?;
            Some(MemoryAccount { number, limit_bytes: bytes.parse().ok()? })
        });
        parsed.ok_or_else(|| MemoryAccountError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_its_text() {
        let account = MemoryAccount { number: u128::MAX - 7, limit_bytes: 2_000_000_000 };
        assert_eq!(account.to_string().parse(), Ok(account));
        for wrong in ["", "7", "x:1", "7:", "7:1MB", ":1"] {
            let error = wrong.parse::<MemoryAccount>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is not a memory account")), "{error}");
        }
    }
}
