//! Fetches inputs of tasks and objects to be held, and reports how each fetch ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_node::{Event, FetchFailure};
use eyas_store::PlacesOfFile;
use eyas_transfer::{FetchError, FetchErrorKind, FetchSource, FetchedObject, Fetcher, PeerHolder};
use eyas_types::named::name_in;
use eyas_types::outcome::FailureKind;
use eyas_types::{Name, ObjectId, ObjectSpec, Origin, TaskId};
use eyas_wire::executor::{AssignedInput, Assignment, FromExecutor, PeerHint};
use tokio::task::AbortHandle;

use super::{ActiveFetch, ExecutorCore, ObjectToHold};
use crate::task::TaskRunner;

impl ExecutorCore {
    /// The ids of a task's inputs in the store. Tasks that are assigned one after the other often
    /// read the same objects, so the ids that the last task had are not computed again.
    pub(super) fn store_ids(&self, assignment: &Assignment) -> Vec<ObjectId> {
        let inputs = assignment.inputs.iter();
        if !self.caching {
            // First-available shares nothing, not even between the tasks of one node.
            return inputs.map(|input| private_id(assignment.task, &input.object)).collect();
        }
        let last = self.last_assigned.upgrade();
        let last = |index: usize, object: &ObjectSpec| {
            let last = last.as_ref()?;
            (last.assignment.inputs.get(index)?.object == *object).then(|| last.objects[index])
        };
        let id = |(index, input): (usize, &AssignedInput)| {
            last(index, &input.object).unwrap_or_else(|| input.object.id())
        };
        inputs.enumerate().map(id).collect()
    }

    /// Starts the fetch of an input of a task, or of an object to be held.
    pub(super) fn fetch(&mut self, object: ObjectId, task: Option<TaskId>) {
        let wanted = match task {
            Some(task) => {
                let task = &self.tasks[&task].task;
                let input = task.input(object).expect("the task needs it");
                let places = task.places.get(&input.object.source).cloned().unwrap_or_default();
                let (object, holders) = (input.object.clone(), input.holders.clone());
                ObjectToHold { object, holders, places }
            }
            None => match self.to_hold.get(&object) {
                Some(held) => held.clone(),
                // It is a chunk that the file system's node wants, and the task that needed it has
                // gone. The node learns that the chunk is not here, and fetches it itself.
                None => {
                    let failure = FetchFailure::Unavailable;
                    return self.events.push_back(Event::FetchFailed { object, failure });
                }
            },
        };
        let ObjectToHold { object: spec, holders: hints, places } = wanted;
        let (size_bytes, is_kept) = (spec.size_bytes(), spec.is_kept());
        let places = self.places_of(&spec, places);
        let (fetcher, runner, core) =
            (self.fetcher.clone(), self.runner.clone(), self.handle.clone());
        let caching = self.caching;
        let fetch = self.runner.movers.spawn(async move {
            let began = Instant::now();
            let result = if caching {
                fetch_shared(&fetcher, &spec, hints, places).await
            } else {
                fetch_private(&runner, &spec, object, &places).await
            };
            // Without a core the session has ended.
            if let Some(core) = core.upgrade() {
                core.lock().fetched(object, result, began.elapsed());
            }
        });
        let abort = Some(fetch.abort_handle());
        self.fetching.insert(object, ActiveFetch { size_bytes, is_kept, abort });
    }

    /// The places of a named object, and that the dispatcher is told which are passed over.
    fn places_of(&self, spec: &ObjectSpec, places: Vec<Name>) -> PlacesOfFile {
        let (core, name) = (self.handle.clone(), name_in(&spec.source).map(Name::from));
        let passed_over = move |place: &Name, why: &str| {
            if let (Some(core), Some(name)) = (core.upgrade(), name.clone()) {
                let (place, why) = (place.clone(), why.to_owned());
                core.lock().tell_at_once(FromExecutor::PassedOver { name, place, why });
            }
        };
        PlacesOfFile { places, passed_over: Arc::new(passed_over) }
    }

    /// A fetch has ended.
    fn fetched(&mut self, object: ObjectId, result: Result<Origin, FetchError>, took: Duration) {
        let Some(ActiveFetch { size_bytes, is_kept, .. }) = self.fetching.remove(&object) else {
            return;
        };
        let event = match result {
            Ok(from) => {
                self.to_hold.remove(&object);
                let took_us = took.as_micros() as u64;
                if self.caching {
                    if from != Origin::Local {
                        self.tell(FromExecutor::Fetched { object, from, took_us });
                    }
                    self.tell(FromExecutor::Stored { object, size_bytes });
                }
                Event::Fetched { object, from, took_us }
            }
            Err(error) => {
                Event::FetchFailed { object, failure: self.fetch_failed(object, error, is_kept) }
            }
        };
        self.events.push_back(event);
        self.settle();
    }

    fn fetch_failed(&mut self, object: ObjectId, error: FetchError, is_kept: bool) -> FetchFailure {
        tracing::info!(%object, "fetch failed: {error}");
        let kind = match error.kind {
            FetchErrorKind::Full => {
                self.measure_disk();
                return FetchFailure::Full;
            }
            FetchErrorKind::Local => FailureKind::Node,
            _ if is_kept => FailureKind::Lost,
            FetchErrorKind::Changed => FailureKind::InputChanged,
            _ => FailureKind::Input,
        };
        self.unavailable.insert(object, (kind, error.message));
        FetchFailure::Unavailable
    }

    /// Aborts all fetches: no task will read the objects here.
    pub fn abandon_fetches(&mut self) {
        self.fetching.retain(|_, fetch| {
            fetch.abort.iter().for_each(AbortHandle::abort);
            fetch.abort.is_none()
        });
    }
}

async fn fetch_shared(
    fetcher: &Fetcher,
    spec: &ObjectSpec,
    hints: Vec<PeerHint>,
    places: PlacesOfFile,
) -> Result<Origin, FetchError> {
    let holders = hints.into_iter().map(|PeerHint { transfer, is_relay, others }| PeerHolder {
        addr: transfer.address,
        proxy: transfer.proxy,
        is_relay,
        others,
    });
    let holders: Vec<_> = holders.collect();
    let FetchedObject { from, near_bytes, .. } = fetcher.fetch_from(spec, &holders, places).await?;
    Ok(match from {
        FetchSource::Local => Origin::Local,
        FetchSource::Peer(_) if spec.is_cluster_file() => Origin::Files { own_bytes: 0 },
        FetchSource::Peer(_) => Origin::Peer,
        FetchSource::Persistent => from_storage(spec, near_bytes),
    })
}

/// Fetches an object from persistent storage, under an id that only one task uses.
async fn fetch_private(
    runner: &TaskRunner,
    spec: &ObjectSpec,
    id: ObjectId,
    places: &PlacesOfFile,
) -> Result<Origin, FetchError> {
    let fetched = if spec.is_named() {
        let into = runner.store.begin_object(id, spec)?;
        runner.storage.fetch_named(spec, places, into, &runner.store).await
    } else {
        let into = runner.store.begin(id, spec.size_bytes(), spec.mode)?;
        runner.storage.fetch(spec, into).await
    };
    let fetched = fetched.map_err(|e| FetchError { kind: e.kind.into(), message: e.message })?;
    Ok(from_storage(spec, fetched.near_bytes))
}

/// The origin of an object that no executor sent. The bytes of a file of the cluster are in stores
/// of nodes.
fn from_storage(spec: &ObjectSpec, near_bytes: u64) -> Origin {
    match spec.is_cluster_file() {
        true => Origin::Files { own_bytes: near_bytes },
        false => Origin::Persistent,
    }
}

/// The id of an input that only one task uses, where nothing is shared.
pub(super) fn private_id(task: TaskId, object: &ObjectSpec) -> ObjectId {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&task.job.0.to_le_bytes())
        .update(&task.index.to_le_bytes())
        .update(&object.id().0);
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(id)
}
