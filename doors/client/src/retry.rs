//! Inputs of an ended job that have changed since it was submitted. A node that still has the old
//! content would run a task again with it, so the client looks at the sources before the job is
//! retried.

use std::collections::BTreeMap;
use std::sync::Arc;

use eyas_store::{Limits, Storage, StorageError, StorageErrorKind};
use eyas_types::{JobId, Name, ObjectSpec, Version};
use eyas_wire::client::{FromClient, ToClient};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::client_error::ClientError;
use crate::clusters::Cluster;
use crate::draft_files::{ClusterNames, files_storage};

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
    /// The changed inputs of failed and cancelled tasks of an ended job of `cluster`, in the order
    /// of the job. Kept outputs do not change.
    ///
    /// # Errors
    /// If the dispatcher does not answer, or refuses.
    pub async fn changed_inputs(
        &mut self,
        cluster: &Cluster,
        job: JobId,
    ) -> Result<Vec<ChangedInput>, ClientError> {
        let (mut inputs, mut next) = (BTreeMap::new(), Some(0));
        while let Some(from) = next {
            let ToClient::Inputs(part) = self.ask(FromClient::Inputs { job, from }).await? else {
                return Err(ClientError::Unexpected);
            };
            inputs.extend(part.objects.into_iter().filter(|(_, object)| !object.is_kept()));
            next = part.next;
        }
        let storage = Storage::new(Limits::default());
        storage.provide_files(Arc::new(files_storage(cluster.clone())));
        storage.provide_names(Arc::new(ClusterNames::of(cluster.clone())));
        // A file is looked at once, however many of its parts are read.
        let mut sources = BTreeMap::<Name, Vec<(u32, ObjectSpec)>>::new();
        for (place, object) in inputs {
            sources.entry(object.source.clone()).or_default().push((place, object));
        }
        let (mut looks, mut changed) = (JoinSet::new(), Vec::new());
        for (source, inputs) in sources {
            if looks.len() >= LOOKED_AT_TOGETHER {
                let look = looks.join_next().await;
                changed.extend(
                    look.into_iter().flat_map(|look| look.unwrap_or_else(eyas_panics::resume)),
                );
            }
            let storage = storage.clone();
            looks.spawn(async move { changed_of(&storage, &source, inputs).await });
        }
        while let Some(look) = looks.join_next().await {
            changed.extend(look.unwrap_or_else(eyas_panics::resume));
        }
        changed.sort_unstable_by_key(|input| input.place);
        Ok(changed)
    }
}

/// Those of the inputs from one source that have changed.
async fn changed_of(
    storage: &Storage,
    source: &Name,
    inputs: Vec<(u32, ObjectSpec)>,
) -> Vec<ChangedInput> {
    let mut changed = Vec::new();
    if !inputs.iter().any(|(_, object)| object.is_cluster_file()) {
        for (place, before) in inputs {
            let now = storage.stat(source).await;
            let is_same = now.as_ref().is_ok_and(|now| now.version.is_same(&before.version));
            changed.extend((!is_same).then_some(ChangedInput { place, before, now }));
        }
        return changed;
    }
    let file = storage.cluster_file(source).await;
    for (place, before) in inputs {
        let now = match &file {
            Ok(file)
                if file.whole().version == before.version || !file.chunks(&before).is_empty() =>
            {
                continue;
            }
            Ok(file) => match before.version {
                Version::Etag { .. } => Ok(file.whole()),
                // The version of a part does not say which part it was.
                _ => Err(StorageError::new(
                    StorageErrorKind::Invalid,
                    format!(
                        "`{source}` has other chunks now, and tasks may read one of them: submit \
                         the job again"
                    ),
                )),
            },
            Err(e) => Err(StorageError::new(e.kind, e.to_string())),
        };
        changed.push(ChangedInput { place, before, now });
    }
    changed
}
