//! Pushes: objects that executors fetch ahead of demand, for clients and for jobs. The scheduler
//! decides which executor fetches which object from which other. This file knows the objects, the
//! client or job of each push, and its outcome; the scheduler is told what is returned here.
//!
//! A push is not written to the journal. A client's ends with its connection, and what has arrived
//! by then stays; a job's begins anew when the job does.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use eyas_jobs::{Job, Jobs};
use eyas_sched::{Event, PushId, Recipients, Scheduler};
use eyas_types::task::MAX_PUSHED;
use eyas_types::{ExecutorId, JobId, Name, ObjectId, ObjectSpec, units};
use eyas_wire::client::PushRequest;
use eyas_wire::view::{PushFailure, PushView, RecipientView};
use thiserror::Error;
use tokio::sync::watch;

use crate::executors::{ConnectedExecutors, NoSuchExecutor};

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
    /// Begins a client's push. Returns what the scheduler is told, and the state of the push as it
    /// changes; the push is to be [shown](Self::show_one) once the scheduler knows it.
    pub fn begin(
        &mut self,
        request: PushRequest,
        jobs: &Jobs,
        scheduler: &Scheduler,
        executors: &ConnectedExecutors,
    ) -> Result<(PushId, Event, watch::Receiver<PushView>), PushError> {
        let PushRequest { objects, kept, to, distribution, wait } = request;
        let of_clients = self.pushes.values().filter(|push| matches!(push.whose, Whose::Client(_)));
        if of_clients.count() >= MAX_PUSHES {
            return Err(PushError::TooMany);
        }
        let kept = kept_of(&kept, jobs, scheduler)?;
        let (order, specs) = each_once(objects.into_iter().chain(kept));
        if order.is_empty() || order.len() > MAX_PUSHED {
            return Err(PushError::Objects(order.len()));
        }
        let names = recipients(&to, executors)?;
        let (failed, failures, told) =
            (BTreeSet::new(), Vec::new(), watch::Sender::new(PushView::default()));
        let mut of_client = ForClient { names, failed, failures, told, is_awaited: wait };
        let bytes = order.iter().map(|(_, size_bytes)| size_bytes).sum();
        let mut recipients = Vec::new();
        for executor in of_client.names.keys().copied().collect::<Vec<_>>() {
            let store_bytes = executors.get(executor).map_or(0, |executor| executor.store_bytes);
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
        let view = of_client.told.subscribe();
        let push = self.add(Push { specs, whose: Whose::Client(of_client) });
        let to = Recipients::Executors(recipients.into());
        Ok((push, Event::Push { push, objects: order.into(), to, distribution }, view))
    }

    /// Pushes the inputs that every executor must have which may run the job's tasks. Returns what
    /// the scheduler is told, if there is something to push.
    pub fn begin_for_job(&mut self, job: &Job) -> Option<Event> {
        let spec = &job.spec;
        let (order, specs) = each_once(spec.pushed().into_iter().cloned());
        if order.is_empty() || self.of_job(job.id).is_some() {
            return None;
        }
        let needs: BTreeSet<_> = spec.needs().collect();
        let (to, distribution) =
            (Recipients::Takers(needs.into_iter().collect()), spec.distribution);
        let push = self.add(Push { specs, whose: Whose::Job(job.id) });
        Some(Event::Push { push, objects: order.into(), to, distribution })
    }

    fn add(&mut self, push: Push) -> PushId {
        self.next += 1;
        let id = PushId(self.next);
        self.pushes.insert(id, push);
        id
    }

    /// The scheduler was told that the push has ended.
    pub fn remove(&mut self, push: PushId) {
        self.pushes.remove(&push);
        self.over.remove(&push);
    }

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

    /// The push for a job, if there is one.
    pub fn of_job(&self, job: JobId) -> Option<PushId> {
        let is_its = |push: &Push| matches!(push.whose, Whose::Job(other) if other == job);
        self.pushes.iter().find(|(_, push)| is_its(push)).map(|(id, _)| *id)
    }

    /// Notes that an executor cannot get an object, which may be pushed to it.
    pub fn not_pushed(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        reason: &str,
        scheduler: &Scheduler,
    ) {
        for id in scheduler.pushes_awaiting(executor, object) {
            let Some(Push { specs, whose }) = self.pushes.get_mut(&id) else { continue };
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

    /// A push that is over, which is to be ended. If it was for a job, also the job: its waiting
    /// tasks can be queued. If it was for a client, the client was told.
    pub fn next_over(
        &mut self,
        scheduler: &Scheduler,
        executors: &ConnectedExecutors,
    ) -> Option<(PushId, Option<JobId>)> {
        let id = self.over.pop_first()?;
        if let Some(Push { whose: Whose::Job(job), .. }) = self.pushes.get(&id) {
            return Some((id, Some(*job)));
        }
        self.finish(id, scheduler, executors);
        Some((id, None))
    }

    /// Ends a client's push: objects that did not arrive, or were evicted, count as failures.
    fn finish(&mut self, id: PushId, scheduler: &Scheduler, executors: &ConnectedExecutors) {
        let received = scheduler.explain_push(id);
        let evicted = scheduler.evicted_of_push(id);
        let Some(Push { specs, whose: Whose::Client(of_client) }) = self.pushes.get_mut(&id) else {
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
            if !has_failed && (!has_all || executors.get(executor).is_none()) {
                of_client.fail(executor, None, "it was lost or has left before it had everything");
            }
        }
        self.show_push(id, true, scheduler);
    }

    /// Shows clients how their pushes stand. Returns pushes whose client no longer waits, which are
    /// to be ended.
    pub fn show(&self, scheduler: &Scheduler) -> Vec<PushId> {
        let mut abandoned = Vec::new();
        for (id, push) in &self.pushes {
            let Whose::Client(of_client) = &push.whose else { continue };
            if of_client.is_awaited && of_client.told.is_closed() {
                abandoned.push(*id);
            } else {
                self.show_push(*id, false, scheduler);
            }
        }
        abandoned
    }

    /// Shows a client how its push stands.
    pub fn show_one(&self, push: PushId, scheduler: &Scheduler) {
        self.show_push(push, false, scheduler);
    }

    fn show_push(&self, id: PushId, is_over: bool, scheduler: &Scheduler) {
        let Some(Push { specs, whose: Whose::Client(of_client) }) = self.pushes.get(&id) else {
            return;
        };
        let received: BTreeMap<_, _> = scheduler
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

/// The objects that are kept in the cluster under these names. All are looked for at once:
/// there may be very many.
fn kept_of(
    sources: &[Name],
    jobs: &Jobs,
    scheduler: &Scheduler,
) -> Result<Vec<ObjectSpec>, PushError> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: HashSet<_> = sources.iter().collect();
    let kept = jobs.kept_objects().filter(|(_, spec)| wanted.contains(&spec.source));
    let held = kept.filter(|(object, _)| scheduler.is_held(*object));
    let held: HashMap<_, _> = held.map(|(_, spec)| (&spec.source, spec)).collect();
    let find = |source: &Name| held.get(source).map(|spec| (*spec).clone());
    let found = |source| find(source).ok_or_else(|| PushError::NoSuchObject(source.clone()));
    sources.iter().map(found).collect()
}

/// Finds executors by names, ids or labels. Returns them with their names.
fn recipients(
    to: &[String],
    executors: &ConnectedExecutors,
) -> Result<BTreeMap<ExecutorId, String>, PushError> {
    let mut recipients = BTreeMap::new();
    let all = || executors.iter().map(|(id, executor)| (id, executor.name.clone()));
    if to.is_empty() {
        recipients.extend(all());
    }
    for word in to {
        match (executors.find(word), word.split_once('=')) {
            _ if word == "all" => recipients.extend(all()),
            (Ok(id), _) => _ = recipients.insert(id, executors.name(id)),
            (Err(_), Some((label, value))) => {
                let has = |id| {
                    executors
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
