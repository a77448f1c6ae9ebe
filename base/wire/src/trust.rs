//! The trust of a cluster: the keys that it no longer accepts, and the tokens of jobs that it
//! accepts. The dispatcher sends it to all processes.

use std::collections::BTreeMap;
use std::fmt;

use eyas_types::JobId;
use eyas_types::access::{FilesScope, KeyId, Principal};
use serde::{Deserialize, Serialize};

/// Size of a secret that processes of a cluster share.
pub const SHARED_BYTES: usize = 32;

/// A text that must not be logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// Why a key or a token is no longer accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrustRefusal {
    /// The key was replaced, and its grace period is over.
    Replaced,
    /// The key was revoked.
    Revoked,
    /// The job of the token has ended.
    JobEnded,
}

/// The trust of a cluster. Certificates state identities; this states which of them are no longer
/// accepted.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Keys that are no longer accepted.
    pub dead: BTreeMap<KeyId, TrustRefusal>,
    /// Jobs whose tokens are accepted, and the files of the cluster that the tokens allow.
    pub jobs: BTreeMap<JobId, FilesScope>,
    /// Secrets of processes that exchange data. The first is current; the others are accepted for
    /// a while.
    pub data: Vec<[u8; SHARED_BYTES]>,
    /// Secrets that only nodes have, in the same order.
    pub nodes: Vec<[u8; SHARED_BYTES]>,
}

impl Trust {
    /// Whether a principal with a valid certificate is accepted.
    ///
    /// # Errors
    /// If it is no longer accepted.
    pub fn admits(&self, principal: Principal) -> Result<(), TrustRefusal> {
        match principal {
            Principal::Dispatcher => Ok(()),
            Principal::Key(id, _) => self.dead.get(&id).map_or(Ok(()), |refusal| Err(*refusal)),
            Principal::Job(job) if self.jobs.contains_key(&job) => Ok(()),
            Principal::Job(_) => Err(TrustRefusal::JobEnded),
        }
    }

    /// The part for a principal. Only nodes get the nodes' secrets and the scopes of all jobs.
    pub fn for_principal(&self, principal: Principal) -> Trust {
        match principal {
            Principal::Key(_, role) if role.is_of_nodes() => self.clone(),
            _ => Trust { dead: self.dead.clone(), data: self.data.clone(), ..Trust::default() },
        }
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets are not for logs.
        f.debug_struct("Trust")
            .field("dead", &self.dead)
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::access::KeyRole;

    use super::*;

    #[test]
    fn dead_keys_and_ended_jobs_are_refused() {
        let mut trust = Trust::default();
        trust.dead.insert(KeyId(1), TrustRefusal::Replaced);
        trust.dead.insert(KeyId(2), TrustRefusal::Revoked);
        trust.jobs.insert(JobId(7), FilesScope::default());
        let key = |id| Principal::Key(KeyId(id), KeyRole::Admin);
        for (principal, answer) in [
            (key(1), Err(TrustRefusal::Replaced)),
            (key(2), Err(TrustRefusal::Revoked)),
            (key(3), Ok(())),
            (Principal::Job(JobId(7)), Ok(())),
            (Principal::Job(JobId(8)), Err(TrustRefusal::JobEnded)),
            (Principal::Dispatcher, Ok(())),
        ] {
            assert_eq!(trust.admits(principal), answer, "{principal}");
        }
    }

    #[test]
    fn only_nodes_get_the_secrets_of_nodes() {
        let mut trust = Trust { data: vec![[1; 32]], nodes: vec![[2; 32]], ..Trust::default() };
        trust.jobs.insert(JobId(7), FilesScope::default());
        let told = |principal| {
            let told = trust.for_principal(principal);
            (told.data.len(), told.nodes.len(), told.jobs.len())
        };
        for role in [KeyRole::Admin, KeyRole::Executor] {
            assert_eq!(told(Principal::Key(KeyId(1), role)), (1, 1, 1));
        }
        for role in [KeyRole::Submit, KeyRole::Read] {
            assert_eq!(told(Principal::Key(KeyId(1), role)), (1, 0, 0));
        }
        assert_eq!(told(Principal::Job(JobId(7))), (1, 0, 0));
    }
}
