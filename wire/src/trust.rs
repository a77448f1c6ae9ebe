//! Which keys a cluster accepts no longer, and which tokens of jobs it does: the dispatcher says so to all.

use std::collections::BTreeMap;
use std::fmt;

use eyas_types::JobId;
use eyas_types::access::{FilesScope, KeyId, Principal};
use serde::{Deserialize, Serialize};

/// Bytes of a secret that the members of a cluster share.
pub const SHARED_BYTES: usize = 32;

/// A text that is not for logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

/// Why a key or a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrustRefusal {
    /// The key was replaced, and its grace is over.
    Replaced,
    /// The key was revoked.
    Revoked,
    /// The job of the token has ended.
    JobEnded,
}

/// What a cluster trusts. Certificates say who their holders are; this says which of them count no longer.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Keys that are not accepted.
    pub dead: BTreeMap<KeyId, TrustRefusal>,
    /// Jobs whose tokens are accepted, and what those may do with files of the cluster.
    pub jobs: BTreeMap<JobId, FilesScope>,
    /// Secrets of those who exchange data, the current one first; those behind it are accepted for a while.
    pub data: Vec<[u8; SHARED_BYTES]>,
    /// Secrets of nodes alone, likewise.
    pub nodes: Vec<[u8; SHARED_BYTES]>,
}

impl Trust {
    /// Whether a holder of a valid certificate is accepted.
    ///
    /// # Errors
    /// Why it is not.
    pub fn admits(&self, holder: Principal) -> Result<(), TrustRefusal> {
        match holder {
            Principal::Dispatcher => Ok(()),
            Principal::Key(id, _) => self.dead.get(&id).map_or(Ok(()), |refusal| Err(*refusal)),
            Principal::Job(job) if self.jobs.contains_key(&job) => Ok(()),
            Principal::Job(_) => Err(TrustRefusal::JobEnded),
        }
    }

    /// What a holder is told of it: who is no node needs neither the nodes' secrets nor others' jobs.
    pub fn told_to(&self, holder: Principal) -> Trust {
        match holder {
            Principal::Key(_, role) if role.is_of_nodes() => self.clone(),
            _ => Trust { dead: self.dead.clone(), data: self.data.clone(), ..Trust::default() },
        }
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets are not for logs.
        f.debug_struct("Trust").field("dead", &self.dead).field("jobs", &self.jobs).finish_non_exhaustive()
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
        for (holder, answer) in [
            (key(1), Err(TrustRefusal::Replaced)),
            (key(2), Err(TrustRefusal::Revoked)),
            (key(3), Ok(())),
            (Principal::Job(JobId(7)), Ok(())),
            (Principal::Job(JobId(8)), Err(TrustRefusal::JobEnded)),
            (Principal::Dispatcher, Ok(())),
        ] {
            assert_eq!(trust.admits(holder), answer, "{holder}");
        }
    }

    #[test]
    fn only_nodes_learn_what_is_for_nodes() {
        let mut trust = Trust { data: vec![[1; 32]], nodes: vec![[2; 32]], ..Trust::default() };
        trust.jobs.insert(JobId(7), FilesScope::default());
        let told = |holder| {
            let told = trust.told_to(holder);
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
