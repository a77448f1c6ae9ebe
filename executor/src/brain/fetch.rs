//! Fetching what tasks read and what is to be held: from where, by whom, and what becomes of it.

use std::time::{Duration, Instant};

use eyas_node::{Event, FetchFailure};
use eyas_transfer::{FetchError, FetchErrorKind, Fetched, Fetcher, Holder, Source};
use eyas_types::outcome::FailureKind;
use eyas_types::{ObjectId, ObjectSpec, Origin, TaskId};
use eyas_wire::executor::{self, FromExecutor};
use tokio::task::AbortHandle;

use super::{Brain, Fetching};
use crate::work::Workshop;

impl Brain {
    /// Has an input fetched for a task, or an object that is to be held.
    pub(super) fn fetch(&mut self, object: ObjectId, task: Option<TaskId>) {
        let (spec, holders) = match task {
            Some(task) => {
                let given = &self.tasks[&task];
                let place = given.objects.iter().position(|other| *other == object).expect("the task needs it");
                let input = &given.assignment.as_ref().expect("it has not started").inputs[place];
                (input.object.clone(), input.holders.clone())
            }
            None => self.to_hold[&object].clone(),
        };
        let (size_bytes, is_kept) = (spec.size_bytes(), spec.is_kept());
        let (fetcher, workshop, desk, caching) =
            (self.fetcher.clone(), self.workshop.clone(), self.desk.clone(), self.caching);
        let moving = self.workshop.movers.spawn(async move {
            let began = Instant::now();
            let result = match caching {
                true => fetch_shared(&fetcher, &spec, holders).await,
                false => fetch_private(&workshop, &spec, object).await,
            };
            // If it is gone, the session has ended.
            if let Some(desk) = desk.upgrade() {
                desk.brain().fetched(object, result, began.elapsed());
            }
        });
        let mover = Some(moving.abort_handle());
        self.fetching.insert(object, Fetching { size_bytes, is_kept, mover });
    }

    /// A fetch has ended.
    fn fetched(&mut self, object: ObjectId, result: Result<Origin, FetchError>, took: Duration) {
        let Some(Fetching { size_bytes, is_kept, .. }) = self.fetching.remove(&object) else { return };
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
            Err(error) => Event::FetchFailed { object, failure: self.fetch_failed(object, error, is_kept) },
        };
        self.events.push_back(event);
        self.settle();
    }

    fn fetch_failed(&mut self, object: ObjectId, error: FetchError, is_kept: bool) -> FetchFailure {
        tracing::info!(%object, "fetch failed: {error}");
        let kind = match error.kind {
            FetchErrorKind::Full => {
                self.look_at_disk();
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

    /// Gives up what is being fetched: nothing will read it here.
    pub fn abandon_fetches(&mut self) {
        self.fetching.retain(|_, fetching| {
            fetching.mover.iter().for_each(AbortHandle::abort);
            fetching.mover.is_none()
        });
    }
}

async fn fetch_shared(
    fetcher: &Fetcher,
    spec: &ObjectSpec,
    holders: Vec<executor::PeerHint>,
) -> Result<Origin, FetchError> {
    let holders = holders.into_iter().map(|executor::PeerHint { transfer, is_relay, others }| Holder {
        addr: transfer,
        is_relay,
        others,
    });
    let holders: Vec<_> = holders.collect();
    let Fetched { from, .. } = fetcher.fetch(spec, &holders).await?;
    Ok(match from {
        Source::Local => Origin::Local,
        Source::Peer(_) => Origin::Peer,
        Source::Persistent => Origin::Persistent,
    })
}

/// Straight from persistent storage, under a name that only one task uses.
async fn fetch_private(workshop: &Workshop, spec: &ObjectSpec, name: ObjectId) -> Result<Origin, FetchError> {
    let into = workshop.store.begin(name, spec.size_bytes(), spec.executable)?;
    workshop.storage.fetch(spec, into).await.map_err(|e| FetchError { kind: e.kind.into(), message: e.message })?;
    Ok(Origin::Persistent)
}

/// What one task alone calls an input, where nothing is shared.
pub(super) fn private_id(task: TaskId, object: &ObjectSpec) -> ObjectId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&task.job.0.to_le_bytes()).update(&task.index.to_le_bytes()).update(&object.id().0);
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(id)
}
