//! Pushes: objects that executors fetch ahead of demand, for clients and for jobs. The scheduler
//! decides which executor fetches which object from which other. This file knows the objects, the
//! client or job of each push, and its outcome.
//!
//! A push is not written to the journal. A client's ends with its connection, and what has arrived
//! by then stays; a job's begins anew when the job does.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use eyas_jobs as jobs;
use eyas_sched::{Event, PushId, Recipients};
use eyas_types::task::MAX_PUSHED;
use eyas_types::{ExecutorId, JobId, Name, ObjectId, ObjectSpec, units};
use eyas_wire::client::PushRequest;
use eyas_wire::view::{PushFailure, PushView, RecipientView};
use thiserror::Error;
use tokio::sync::watch;

use super::DispatcherCore;
use crate::executors::NoSuchExecutor;

/// Pushes of clients at a time.
const MAX_PUSHES: usize = 64;
/// Failures of a push that are described.
const MAX_PUSH_FAILURES: usize = 100;

/// Why a push cannot begin.
#[derive(Debug, Error)]
pub enum PushError {
    /// Executors keep nothing under this policy.
    #[error(
        "with policy {0}, executors store no objects: start the dispatcher with another policy"
    )]
    NoCaching(String),
    /// Too many pushes go on.
    #[error("{MAX_PUSHES} pushes are under way: wait until one of them is over")]
    TooMany,
    /// It has no object, or too many.
    #[error("a push has at least one object and at most {MAX_PUSHED}, this one has {0}")]
    Objects(usize),
    /// The object is not kept.
    #[error("no executor keeps an object `{0}`")]
    NoSuchObject(Name),
    /// No executor has this label.
    #[error("no executor has the label `{0}`: see `eyas executor list`")]
    NoSuchLabel(String),
    /// There are no executors.
    #[error("no executor has joined: start some with `eyas start executor`")]
    NoExecutors,
    /// There is no such executor.
    #[error(transparent)]
    NoSuchExecutor(#[from] NoSuchExecutor),
}

/// All pushes under way.
#[derive(Default)]
pub(crate) struct ActivePushes {
    pushes: BTreeMap<PushId, Push>,
    next: u64,
    /// Pushes that no executor is still to receive.
    over: BTreeSet<PushId>,
}

struct Push {
    specs: HashMap<ObjectId, ObjectSpec>,
    whose: Whose,
}

enum Whose {
    Job(JobId),
    Client(ForClient),
}

struct ForClient {
    /// The executors that are to have the objects, and their names.
    names: BTreeMap<ExecutorId, String>,
    /// Executors that could not get all objects.
    failed: BTreeSet<ExecutorId>,
    failures: Vec<PushFailure>,
    told: watch::Sender<PushView>,
    /// It ends when its client no longer watches it.
    is_awaited: bool,
}

impl ActivePushes {
    /// Notes that a push is over.
    pub fn is_over(&mut self, push: PushId) {
        self.over.insert(push);
    }

    /// Whether clients wait for a push.
    pub fn are_shown(&self) -> bool {
        self.pushes.values().any(|push| matches!(push.whose, Whose::Client(_)))
    }

    /// A pushed object's spec.
    pub fn spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        self.pushes.values().find_map(|push| push.specs.get(&object))
    }

    fn of_job(&self, job: JobId) -> Option<PushId> {
        let is_its = |push: &Push| matches!(push.whose, Whose::Job(other) if other == job);
        self.pushes.iter().find(|(_, push)| is_its(push)).map(|(id, _)| *id)
    }

    fn new_id(&mut self) -> PushId {
        self.next += 1;
        PushId(self.next)
    }
}

impl ForClient {
    fn fail(&mut self, executor: ExecutorId, source: Option<&Name>, reason: &str) {
        let Some(name) = self.names.get(&executor) else { return };
        self.failed.insert(executor);
        if self.failures.len() < MAX_PUSH_FAILURES {
            let (executor, source) = (name.clone(), source.cloned());
            self.failures.push(PushFailure { executor, source, reason: reason.to_owned() });
        }
    }
}

impl DispatcherCore {
    /// Begins a client's push, and returns its state as it changes.
    pub(crate) fn push(
        &mut self,
        request: PushRequest,
    ) -> Result<watch::Receiver<PushView>, PushError> {
        let PushRequest { objects, kept, to, distribution, wait } = request;
        if !self.caching {
            return Err(PushError::NoCaching(self.policy.clone()));
        }
        let of_clients =
            self.pushes.pushes.values().filter(|push| matches!(push.whose, Whose::Client(_)));
        if of_clients.count() >= MAX_PUSHES {
            return Err(PushError::TooMany);
        }
        let kept = self.kept_of(&kept)?;
        let (order, specs) = each_once(objects.into_iter().chain(kept));
        if order.is_empty() || order.len() > MAX_PUSHED {
            return Err(PushError::Objects(order.len()));
        }
        let names = self.recipients(&to)?;
        let (failed, failures, told) =
            (BTreeSet::new(), Vec::new(), watch::Sender::new(PushView::default()));
        let mut of_client = ForClient { names, failed, failures, told, is_awaited: wait };
        let bytes = order.iter().map(|(_, size_bytes)| size_bytes).sum();
        let mut recipients = Vec::new();
        for executor in of_client.names.keys().copied().collect::<Vec<_>>() {
            let store_bytes =
                self.executors.get(executor).map_or(0, |executor| executor.store_bytes);
            if store_bytes >= bytes {
                recipients.push(executor);
            } else {
                let (store, all) = (units::format_bytes(store_bytes), units::format_bytes(bytes));
                let reason = format!(
                    "its store has {store}, all of it takes {all}: give it a larger one (--cache)"
                );
                of_client.fail(executor, None, &reason);
            }
        }
        let id = self.pushes.new_id();
        let view = of_client.told.subscribe();
        self.pushes.pushes.insert(id, Push { specs, whose: Whose::Client(of_client) });
        let to = Recipients::Executors(recipients.into());
        self.tell_scheduler(Event::Push { push: id, objects: order.into(), to, distribution });
        self.show_push(id, false);
        Ok(view)
    }

    /// The objects that are kept in the cluster under these names. All are looked for at once:
    /// there may be very many.
    fn kept_of(&self, sources: &[Name]) -> Result<Vec<ObjectSpec>, PushError> {
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: HashSet<_> = sources.iter().collect();
        let kept = self.jobs.kept_objects().filter(|(_, spec)| wanted.contains(&spec.source));
        let held = kept.filter(|(object, _)| self.scheduler.is_held(*object));
        let held: HashMap<_, _> = held.map(|(_, spec)| (&spec.source, spec)).collect();
        let find = |source: &Name| held.get(source).map(|spec| (*spec).clone());
        let found = |source| find(source).ok_or_else(|| PushError::NoSuchObject(source.clone()));
        sources.iter().map(found).collect()
    }

    /// Finds executors by names, ids or labels. Returns them with their names.
    fn recipients(&self, to: &[String]) -> Result<BTreeMap<ExecutorId, String>, PushError> {
        let mut recipients = BTreeMap::new();
        let all = || self.executors.iter().map(|(id, executor)| (id, executor.name.clone()));
        if to.is_empty() {
            recipients.extend(all());
        }
        for word in to {
            match (self.executors.find(word), word.split_once('=')) {
                _ if word == "all" => recipients.extend(all()),
                (Ok(id), _) => _ = recipients.insert(id, self.executors.name(id)),
                (Err(_), Some((label, value))) => {
                    let has = |id| {
                        self.executors
                            .get(id)
                            .is_some_and(|e| e.labels.get(label).is_some_and(|v| v == value))
                    };
                    let before = recipients.len();
                    recipients.extend(all().filter(|(id, _)| has(*id)));
                    if recipients.len() == before && !all().any(|(id, _)| has(id)) {
                        return Err(PushError::NoSuchLabel(word.clone()));
                    }
                }
                (Err(e), None) => return Err(e.into()),
            }
        }
        if recipients.is_empty() { Err(PushError::NoExecutors) } else { Ok(recipients) }
    }

    /// Notes that an executor cannot get an object, which may be pushed to it.
    pub(super) fn not_pushed(&mut self, executor: ExecutorId, object: ObjectId, reason: &str) {
        for id in self.scheduler.pushes_awaiting(executor, object) {
            let Some(Push { specs, whose }) = self.pushes.pushes.get_mut(&id) else { continue };
            let source = specs.get(&object).map(|spec| &spec.source);
            match whose {
                Whose::Job(job) => {
                    let source = source.map(tracing::field::display);
                    tracing::info!(%job, %executor, source, reason, "could not be pushed");
                }
                Whose::Client(of_client) => of_client.fail(executor, source, reason),
            }
        }
    }

    /// Pushes the inputs that every executor must have which may run the job's tasks.
    pub(super) fn broadcast(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| !job.has_ended()) else { return };
        let spec = &job.spec;
        let (order, specs) = each_once(spec.pushed().into_iter().cloned());
        if order.is_empty() || self.pushes.of_job(id).is_some() {
            return;
        }
        let needs: BTreeSet<_> = spec.needs().collect();
        let (to, distribution) =
            (Recipients::Takers(needs.into_iter().collect()), spec.distribution);
        let push = self.pushes.new_id();
        self.pushes.pushes.insert(push, Push { specs, whose: Whose::Job(id) });
        self.tell_scheduler(Event::Push { push, objects: order.into(), to, distribution });
    }

    /// A job has ended, or is about to: nothing more is pushed for it.
    pub(super) fn end_broadcast(&mut self, id: JobId) {
        if let Some(push) = self.pushes.of_job(id) {
            self.end_push(push);
        }
    }

    fn end_push(&mut self, id: PushId) {
        self.tell_scheduler(Event::PushEnded { push: id });
        self.pushes.pushes.remove(&id);
        self.pushes.over.remove(&id);
    }

    /// Goes on after pushes that are over: tells clients that wait, and has waiting tasks queued.
    pub(super) fn finish_pushes(&mut self) {
        while let Some(id) = self.pushes.over.pop_first() {
            match self.pushes.pushes.get(&id).map(|push| &push.whose) {
                Some(Whose::Job(job)) => {
                    let job = *job;
                    self.tell_jobs(jobs::Event::Pushed { job });
                }
                Some(Whose::Client(_)) => self.finish_push(id),
                None => {}
            }
            self.end_push(id);
        }
    }

    /// Ends a client's push: objects that did not arrive, or were evicted, count as failures.
    fn finish_push(&mut self, id: PushId) {
        let received = self.scheduler.explain_push(id);
        let evicted = self.scheduler.evicted_of_push(id);
        let Some(Push { specs, whose: Whose::Client(of_client) }) = self.pushes.pushes.get_mut(&id)
        else {
            return;
        };
        for (executor, object) in evicted {
            let source = specs.get(&object).map(|spec| &spec.source);
            of_client.fail(executor, source, "its store has evicted it again, to make room");
        }
        for executor in of_client.names.keys().copied().collect::<Vec<_>>() {
            let received = received.iter().find(|received| received.executor == executor);
            let has_all = received.is_some_and(|received| received.stored as usize == specs.len());
            let has_failed = of_client.failed.contains(&executor);
            if !has_failed && (!has_all || self.executors.get(executor).is_none()) {
                of_client.fail(executor, None, "it was lost or has left before it had everything");
            }
        }
        self.show_push(id, true);
    }

    /// Shows clients how their pushes stand, and ends pushes whose client no longer waits.
    pub(super) fn show_pushes(&mut self) {
        for id in self.pushes.pushes.keys().copied().collect::<Vec<_>>() {
            let Some(Push { whose: Whose::Client(of_client), .. }) = self.pushes.pushes.get(&id)
            else {
                continue;
            };
            if of_client.is_awaited && of_client.told.is_closed() {
                self.end_push(id);
            } else {
                self.show_push(id, false);
            }
        }
    }

    fn show_push(&self, id: PushId, is_over: bool) {
        let Some(Push { specs, whose: Whose::Client(of_client) }) = self.pushes.pushes.get(&id)
        else {
            return;
        };
        let received: BTreeMap<_, _> = self
            .scheduler
            .explain_push(id)
            .into_iter()
            .map(|received| (received.executor, received))
            .collect();
        let executors = of_client.names.iter().map(|(executor, name)| {
            let received = received.get(executor);
            let state = match of_client.failed.contains(executor) {
                true if received.is_none_or(|received| received.is_over) => "incomplete",
                false if received.is_some_and(|received| received.is_over) => "complete",
                _ => "receiving",
            };
            RecipientView {
                executor: name.clone(),
                state: state.into(),
                objects: received.map_or(0, |received| received.stored.into()),
                bytes: received.map_or(0, |received| received.stored_bytes),
            }
        });
        of_client.told.send_replace(PushView {
            objects: specs.len() as u64,
            bytes: specs.values().map(ObjectSpec::size_bytes).sum(),
            is_over,
            executors: executors.collect(),
            failures: of_client.failures.clone(),
        });
    }
}

/// Objects with their sizes, in their order, and by their ids.
fn each_once(
    objects: impl Iterator<Item = ObjectSpec>,
) -> (Vec<(ObjectId, u64)>, HashMap<ObjectId, ObjectSpec>) {
    let (mut order, mut specs) = (Vec::new(), HashMap::new());
    for spec in objects {
        let (id, size_bytes) = (spec.id(), spec.size_bytes());
        if specs.insert(id, spec).is_none() {
            order.push((id, size_bytes));
        }
    }
    (order, specs)
}
