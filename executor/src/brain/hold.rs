//! What this executor holds for the dispatcher: outputs that its tasks keep in the cluster, and replicas that it was told
//! to have.

use eyas_node::Event;
use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::{ObjectId, ObjectSpec, Outcome, Status, TaskId};
use eyas_wire::executor::{FromExecutor, PeerHint};

use super::Brain;

impl Brain {
    pub(super) fn hold(&mut self, spec: ObjectSpec, holders: Vec<PeerHint>) {
        let (object, size_bytes) = (spec.id(), spec.size_bytes());
        self.to_hold.insert(object, (spec, holders));
        self.events.push_back(Event::Hold { object, size_bytes });
    }

    /// Asks the dispatcher to let this executor leave, if there is anything that others may have to fetch first.
    pub fn retire(&mut self) -> bool {
        let holds_any = self.node.holds_any();
        if holds_any {
            self.tell(FromExecutor::Retiring);
            self.settle();
        }
        holds_any
    }

    /// It is here and is held from now on.
    pub(super) fn held(&mut self, object: ObjectId) {
        self.answer_pin(object, Ok(()));
        if let Some((spec, _)) = self.to_hold.remove(&object) {
            self.tell(FromExecutor::Stored { object, size_bytes: spec.size_bytes() });
        }
    }

    /// It is not here, and cannot be had.
    pub(super) fn not_held(&mut self, object: ObjectId, reason: String) {
        if self.pins.remove(&object) {
            return self.answer_pin(object, Err(reason));
        }
        self.to_hold.remove(&object);
        let reason = self.unavailable.get(&object).map_or(reason, |(_, message)| message.clone());
        self.tell(FromExecutor::NotHeld { object, reason });
    }

    /// Reads an object that others could not get from here, and says whether it is here.
    pub(super) fn verify(&mut self, object: ObjectId) {
        let (workshop, desk) = (self.workshop.clone(), self.desk.clone());
        self.workshop.movers.clone().spawn_blocking(move || {
            let verified = workshop.store.verify_again(object);
            let is_here = verified.unwrap_or_else(|e| {
                tracing::warn!(%object, "cannot read an object: {e}");
                false
            });
            if let (false, Some(desk)) = (is_here, desk.upgrade()) {
                let mut brain = desk.brain();
                brain.events.push_back(Event::Lost { object });
                brain.tell(FromExecutor::Evicted { object });
                brain.settle();
            }
        });
    }

    /// Looks whether outputs in persistent storage are as they were written.
    pub(super) fn check(&mut self, task: TaskId, objects: Vec<ObjectSpec>) {
        let (workshop, desk, checks) = (self.workshop.clone(), self.desk.clone(), self.checks.clone());
        self.workshop.movers.spawn(async move {
            // It is never closed.
            let _turn = checks.acquire().await;
            let mut is_unchanged = true;
            for object in &objects {
                let now = workshop.storage.stat(&object.source, None).await;
                is_unchanged &= now.is_ok_and(|now| now.version == object.version);
            }
            if let Some(desk) = desk.upgrade() {
                let mut brain = desk.brain();
                brain.tell(FromExecutor::Checked { task, is_unchanged });
                brain.settle();
            }
        });
    }

    /// Takes what a task has put into the store into the books, and holds it if the task has succeeded. If there is no
    /// room for it, the task has not: another executor may have room.
    pub(super) fn keep(&mut self, task: TaskId, kept: &[(ObjectId, u64)], outcome: &mut Outcome) {
        for (object, size_bytes) in kept {
            let (object, size_bytes) = (*object, *size_bytes);
            self.tell(FromExecutor::Stored { object, size_bytes });
            self.events.push_back(match outcome.status.is_success() {
                true => Event::Produced { task, object, size_bytes },
                false => Event::Found { object, size_bytes },
            });
        }
        self.decide();
        if let Some(reason) = self.cannot_keep.take() {
            let reason = format!("{} cannot take the task: {reason}", self.workshop.name);
            outcome.status = Status::Failed(Failure { kind: FailureKind::NodeFull, reason });
            outcome.outputs.clear();
            self.events.extend(kept.iter().map(|(object, _)| Event::Release { object: *object }));
        }
    }

    /// There is no room for what a task has put into the store.
    pub(super) fn remove_unkept(&mut self, object: ObjectId, reason: String) {
        self.evict(object);
        self.cannot_keep = Some(reason);
    }
}
