//! Objects that this executor holds for the dispatcher: outputs that its tasks keep in the cluster,
//! and replicas that the dispatcher has ordered.

use eyas_dfs::SpaceError;
use eyas_node::Event;
use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::{Name, ObjectId, ObjectSpec, Outcome, Status, TaskId};
use eyas_wire::executor::{FromExecutor, PeerHint};

use super::{ExecutorCore, ObjectToHold};

impl ExecutorCore {
    pub(super) fn hold(&mut self, spec: ObjectSpec, holders: Vec<PeerHint>, places: Vec<Name>) {
        let (object, size_bytes) = (spec.id(), spec.size_bytes());
        self.to_hold.insert(object, ObjectToHold { object: spec, holders, places });
        self.runner.store.expect(object);
        self.events.push_back(Event::Hold { object, size_bytes });
    }

    /// Asks the dispatcher for leave if other executors may have to fetch objects from here first.
    /// Whether it has asked.
    pub fn retire(&mut self) -> bool {
        let holds_any = self.node.holds_any();
        if holds_any {
            self.tell(FromExecutor::Retiring);
            self.settle();
        }
        holds_any
    }

    /// An object is here, and is held from now on.
    pub(super) fn held(&mut self, object: ObjectId) {
        self.answer_reservations(object, Ok(()));
        if let Some(held) = self.to_hold.remove(&object) {
            self.tell(FromExecutor::Stored { object, size_bytes: held.object.size_bytes() });
        }
    }

    /// An object is not here, and cannot be fetched.
    pub(super) fn not_held(&mut self, object: ObjectId, reason: String) {
        if self.chunks.remove(&object) {
            self.answer_reservations(object, Err(SpaceError::NoSpace(reason.clone())));
            if !self.to_hold.contains_key(&object) {
                return;
            }
        }
        self.to_hold.remove(&object);
        let reason = self.unavailable.get(&object).map_or(reason, |(_, message)| message.clone());
        self.tell(FromExecutor::NotHeld { object, reason });
    }

    /// Verifies an object that other executors could not get from here, and reports it lost if it
    /// is damaged or missing.
    pub(super) fn verify(&mut self, object: ObjectId) {
        let (runner, core) = (self.runner.clone(), self.handle.clone());
        self.runner.movers.clone().spawn_blocking(move || {
            let verified = runner.store.verify_again(object);
            let is_here = verified.unwrap_or_else(|e| {
                tracing::warn!(%object, "cannot read an object: {e}");
                false
            });
            if let (false, Some(core)) = (is_here, core.upgrade()) {
                let mut core = core.lock();
                core.events.push_back(Event::Lost { object });
                core.tell(FromExecutor::Evicted { object });
                core.settle();
            }
        });
    }

    /// Compares outputs in persistent storage with their versions when they were written.
    pub(super) fn check(&mut self, task: TaskId, objects: Vec<ObjectSpec>) {
        let (runner, core, checks) =
            (self.runner.clone(), self.handle.clone(), self.checks.clone());
        self.runner.movers.spawn(async move {
            // The semaphore is never closed.
            let _turn = checks.acquire().await;
            let mut is_unchanged = true;
            for object in &objects {
                let now = runner.storage.stat(&object.source).await;
                is_unchanged &= now.is_ok_and(|now| now.version.is_same(&object.version));
            }
            if let Some(core) = core.upgrade() {
                let mut core = core.lock();
                core.tell(FromExecutor::Checked { task, is_unchanged });
                core.settle();
            }
        });
    }

    /// Reports outputs that a task has put into the store to the node, which holds them if the task
    /// has succeeded. If there is no space for them, the task has failed here: another executor may
    /// have space.
    pub(super) fn keep(&mut self, task: TaskId, kept: &[(ObjectId, u64)], outcome: &mut Outcome) {
        for (object, size_bytes) in kept {
            let (object, size_bytes) = (*object, *size_bytes);
            self.tell(FromExecutor::Stored { object, size_bytes });
            self.events.push_back(if outcome.status.is_success() {
                Event::Produced { task, object, size_bytes }
            } else {
                Event::Found { object, size_bytes }
            });
        }
        self.decide();
        if let Some(reason) = self.cannot_keep.take() {
            let reason = format!("{} cannot take the task: {reason}", self.runner.name);
            outcome.status = Status::Failed(Failure { kind: FailureKind::NodeFull, reason });
            outcome.outputs.clear();
            let kept_for_job = kept.iter().filter(|(object, _)| !self.chunks.contains(object));
            self.events.extend(kept_for_job.map(|(object, _)| Event::Release { object: *object }));
        }
    }

    /// There is no space for an output that a task has put into the store.
    pub(super) fn remove_unkept(&mut self, object: ObjectId, reason: String) {
        self.evict(object);
        self.cannot_keep = Some(reason);
    }
}
