//! Inputs of an ended job that have changed since it was submitted. A node that still has the old content would run a
//! task again with it, so the client looks at the sources before the job is retried.

use std::collections::BTreeMap;

use eyas_store::{Limits, Storage, StorageError};
use eyas_types::{JobId, ObjectSpec};
use eyas_wire::client::{FromClient, ToClient};
use tokio::task::JoinSet;

use crate::client::{Client, ClientError};

/// Sources that are looked at together; others wait.
const LOOKED_AT_TOGETHER: usize = 32;

/// An input that has another version than when its job was submitted.
#[derive(Debug)]
pub struct ChangedInput {
    /// Its place among the objects of the job.
    pub place: u32,
    /// As the job has it.
    pub before: ObjectSpec,
    /// As it is now, or why it cannot be read.
    pub now: Result<ObjectSpec, StorageError>,
}

impl Client {
    /// The changed inputs of failed and cancelled tasks of an ended job, in the order of the job. Kept outputs do not
    /// change. Files of the cluster are not looked at: their nodes do that.
    ///
    /// # Errors
    /// If the dispatcher does not answer, or refuses.
    pub async fn changed_inputs(&mut self, job: JobId) -> Result<Vec<ChangedInput>, ClientError> {
        let (mut inputs, mut next) = (BTreeMap::new(), Some(0));
        while let Some(from) = next {
            let ToClient::Inputs(part) = self.ask(FromClient::Inputs { job, from }).await? else {
                return Err(ClientError::Unexpected);
            };
            inputs.extend(part.objects.into_iter().filter(|(_, object)| !object.is_in_cluster()));
            next = part.next;
        }
        let storage = Storage::new(Limits::default());
        let (mut looks, mut changed) = (JoinSet::new(), Vec::new());
        for (place, before) in inputs {
            if looks.len() >= LOOKED_AT_TOGETHER {
                changed.extend(looks.join_next().await.and_then(finished));
            }
            let storage = storage.clone();
            looks.spawn(async move {
                let now = storage.stat(&before.source, None).await;
                let is_same = now.as_ref().is_ok_and(|now| now.version.is_same(&before.version));
                (!is_same).then_some(ChangedInput { place, before, now })
            });
        }
        while let Some(look) = looks.join_next().await {
            changed.extend(finished(look));
        }
        changed.sort_unstable_by_key(|input| input.place);
        Ok(changed)
    }
}

fn finished<T>(look: Result<T, tokio::task::JoinError>) -> T {
    look.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
}
