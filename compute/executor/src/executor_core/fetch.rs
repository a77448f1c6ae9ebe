//! Fetches inputs of tasks and objects to be held, and reports how each fetch ended. Also reports
//! derived copies: what tasks have made of their inputs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_node::{Event, FetchFailure};
use eyas_store::PlacesOfFile;
use eyas_transfer::{
    DamagedDelivery, FetchError, FetchErrorKind, FetchSource, FetchedObject, Fetcher,
};
use eyas_types::named::name_in;
use eyas_types::outcome::FailureKind;
use eyas_types::{
    CopyNews, FileMode, Name, ObjectId, ObjectSpec, Origin, PartOfFile, TaskId, shown,
};
use eyas_wire::executor::{AssignedInput, Assignment, FromExecutor, PeerHint};
use tokio::task::AbortHandle;

use super::{ActiveFetch, ExecutorCore, ObjectToHold};
use crate::task::copies::peer_holder;
use crate::task::derived_copy::{CopyOfInput, CopyOrigin, CopySource, NoCopy};
use crate::task::output_claim::Question;
use crate::task::{AssignedTask, TaskRunner};

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
                let task = self.tasks[&task].task.clone();
                let Some(input) = task.input(object) else {
                    return self.fetch_copy(object, &task);
                };
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

    /// Starts the fetch of a derived copy that a task reads. If no executor gives it, the task
    /// reads the source.
    fn fetch_copy(&mut self, object: ObjectId, task: &AssignedTask) {
        // There is none if the copy was here, and was damaged before the task has started.
        let hint = task.copies.get(&object).cloned().zip(task.source_of(object));
        let Some(((size_bytes, holders), source)) = hint else {
            let failure = FetchFailure::Unavailable;
            return self.events.push_back(Event::FetchFailed { object, failure });
        };
        let mode = match source.part {
            Some(PartOfFile::Prepared { .. }) => FileMode::READABLE,
            _ => FileMode::of_source(source.object.mode.bits()),
        };
        let name = format!("what was made of {}", shown(source.object.base_name()));
        let holders: Vec<_> = holders.into_iter().map(peer_holder).collect();
        let (fetcher, core) = (self.fetcher.clone(), self.handle.clone());
        let fetch = self.runner.movers.spawn(async move {
            let began = Instant::now();
            let fetched = fetcher.fetch_copy((object, size_bytes, mode), &name, &holders).await;
            if let Some(core) = core.upgrade() {
                core.lock().fetched(object, fetched.map(|_| Origin::Peer), began.elapsed());
            }
        });
        let abort = Some(fetch.abort_handle());
        self.fetching.insert(object, ActiveFetch { size_bytes, is_kept: false, abort });
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

    /// Tells the dispatcher which executors have sent damaged objects: they verify them.
    fn tell_damage(&mut self) {
        let damaged = self.fetcher.take_damaged().into_iter().filter(|_| self.tells_damage);
        self.facts.extend(
            damaged
                .map(|DamagedDelivery { object, giver }| FromExecutor::Damaged { object, giver }),
        );
    }

    /// A fetch has ended.
    fn fetched(&mut self, object: ObjectId, result: Result<Origin, FetchError>, took: Duration) {
        self.tell_damage();
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

    // ---- derived copies

    /// A task reads a derived copy, which is here. What others may fetch, the dispatcher is told
    /// before the node decides: the node may evict the copy.
    pub(super) fn derived(&mut self, task: TaskId, copy: CopyOfInput) {
        let CopyOfInput { source, object, size_bytes, origin } = copy;
        match origin {
            CopyOrigin::Made { took_us } if self.gives_copies => {
                self.tell_copy(object, CopyNews::Made { size_bytes, took_us });
            }
            CopyOrigin::Fetched { took_us } => {
                self.tell_damage();
                let from = Origin::Peer;
                self.tell_at_once(FromExecutor::Fetched { object, from, took_us });
                self.tell_at_once(FromExecutor::Stored { object, size_bytes });
            }
            CopyOrigin::Here | CopyOrigin::Made { .. } => {}
        }
        let took_us = origin.took_us();
        self.events.push_back(Event::Derived { task, source, object, size_bytes, took_us });
        self.settle();
    }

    /// A task needs a derived copy. Its node asks for each copy once at a time.
    pub(super) fn want_copy(&mut self, object: ObjectId) -> Option<Arc<Question<CopySource>>> {
        if !self.gives_copies {
            return None;
        }
        let question = Arc::new(Question::default());
        self.wanted_copies.insert(object, question.clone());
        self.tell_copy(object, CopyNews::Wanted);
        Some(question)
    }

    /// The dispatcher says where to get a copy. If no task waits for that any longer, it is told.
    pub(super) fn answer_copy(&mut self, object: ObjectId, source: CopySource) {
        match self.wanted_copies.remove(&object) {
            Some(question) => question.answer(source),
            None => self.no_copy(object, NoCopy::Stopped),
        }
    }

    /// A copy that was wanted is not here, or is given to no others.
    pub(super) fn no_copy(&mut self, object: ObjectId, why: NoCopy) {
        self.wanted_copies.remove(&object);
        let news = match why {
            NoCopy::Private => CopyNews::Private,
            NoCopy::Stopped if self.tells_damage => CopyNews::Stopped,
            NoCopy::Stopped | NoCopy::Failed => CopyNews::Missing,
        };
        self.tell_copy(object, news);
    }

    /// A copy was fetched for a task that has gone.
    pub(super) fn found_copy(&mut self, object: ObjectId, size_bytes: u64) {
        self.tell(FromExecutor::Stored { object, size_bytes });
        self.events.push_back(Event::Found { object, size_bytes });
        self.settle();
    }

    fn tell_copy(&mut self, object: ObjectId, news: CopyNews) {
        self.tell_damage();
        self.tell_at_once(FromExecutor::Copy { object, news });
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
    let holders: Vec<_> = hints.into_iter().map(peer_holder).collect();
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
