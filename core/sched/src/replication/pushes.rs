//! Pushes: objects that executors get ahead of demand, because a user asks for it, or because the
//! tasks of a job will read them wherever they run.
//!
//! Pushed objects take the way of simultaneous demand: each executor is told to fetch each object
//! from the source that is planned for it, so a push to many executors is a chain. An executor
//! holds an object while it is fetched, so that tasks that are cancelled do not take it along, and
//! is told to release it as soon as it is there: from then on it is cached as any other. An
//! executor is told of a few objects at a time, in the order of the push, so that a push that
//! ends leaves little behind.
//!
//! Along a [spanning tree](super::spanning_tree), executors are told in rounds instead.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::{Distribution, ExecutorId, Need, ObjectId};

use super::kept::KeptObjects;
use super::sources::{self, SourceRequest};
use super::spanning_tree::SpanningTree;
use crate::event::{Effect, Holder, PlacementCommand, PushId, Recipients};
use crate::state::{ExecutorKey, ObjectKey, SchedulerState};

/// Objects of one push that an executor is told of and does not have yet. For example a push to 50
/// executors has up to 400 fetches at a time.
pub(crate) const MAX_PUSHED_AT_ONCE: usize = 8;

/// All pushes that have not ended.
#[derive(Default)]
pub(crate) struct PushTable {
    pushes: BTreeMap<PushId, ActivePush>,
}

/// A push that begins.
pub(crate) struct NewPush<'a> {
    pub id: PushId,
    pub objects: &'a [(ObjectId, u64)],
    pub to: Recipients,
    pub distribution: Distribution,
}

struct ActivePush {
    objects: Box<[ObjectKey]>,
    /// An executor that joins later and may take tasks with one of these needs gets the objects,
    /// too.
    open_to: Box<[Need]>,
    recipients: BTreeMap<ExecutorId, Recipient>,
    tree: Option<SpanningTree>,
}

#[derive(Default)]
struct Recipient {
    /// The number of objects that it was told to fetch so far, in the order of the push.
    sent: usize,
    /// Those of them for which it has not answered.
    awaited: Vec<ObjectKey>,
    stored: u32,
    stored_bytes: u64,
    /// Objects that it could not get.
    missed: BTreeSet<ObjectKey>,
    has_left: bool,
}

/// How far a push is with one executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushProgress {
    /// The executor.
    pub executor: ExecutorId,
    /// The number of objects that it has stored.
    pub stored: u32,
    /// Their sizes together, bytes.
    pub stored_bytes: u64,
    /// The number of objects that it could not get.
    pub missed: u32,
    /// The executor gets nothing more from this push.
    pub is_over: bool,
}

impl ActivePush {
    fn has_answered(&self, recipient: &Recipient) -> bool {
        recipient.sent == self.objects.len() && recipient.awaited.is_empty()
    }

    fn is_over_with(&self, recipient: &Recipient) -> bool {
        recipient.has_left || self.has_answered(recipient)
    }

    fn awaits(&self, executor: ExecutorId, object: ObjectKey) -> bool {
        self.recipients.get(&executor).is_some_and(|recipient| recipient.awaited.contains(&object))
    }
}

impl PushTable {
    /// How far a push is with each of its recipients.
    pub fn explain(&self, id: PushId) -> Vec<PushProgress> {
        let Some(push) = self.pushes.get(&id) else { return Vec::new() };
        let received = push.recipients.iter().map(|(executor, recipient)| PushProgress {
            executor: *executor,
            stored: recipient.stored,
            stored_bytes: recipient.stored_bytes,
            missed: recipient.missed.len() as u32,
            is_over: push.is_over_with(recipient),
        });
        received.collect()
    }

    /// Pushes that wait for an executor's answer about an object.
    pub fn awaiting(
        &self,
        state: &SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
    ) -> Vec<PushId> {
        let Some(key) = state.catalog.find(object) else { return Vec::new() };
        self.pushes
            .iter()
            .filter(|(_, push)| push.awaits(executor, key))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Objects of a push that executors have stored, and evicted since.
    pub fn evicted(&self, state: &SchedulerState, id: PushId) -> Vec<(ExecutorId, ObjectId)> {
        let Some(push) = self.pushes.get(&id) else { return Vec::new() };
        let mut evicted = Vec::new();
        for (executor, recipient) in
            push.recipients.iter().filter(|(_, recipient)| !recipient.has_left)
        {
            let Some(key) = state.executors.find(*executor) else { continue };
            let sent = push.objects[..recipient.sent].iter();
            let gone = sent.filter(|object| {
                let is_known =
                    recipient.missed.contains(object) || recipient.awaited.contains(object);
                !is_known && !state.executors[key].replicas.contains_key(*object)
            });
            evicted.extend(gone.map(|object| (*executor, state.catalog[*object].id)));
        }
        evicted
    }

    /// Whether an executor is told to hold an object because it is pushed.
    pub fn is_pushed_to(
        &self,
        state: &SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
    ) -> bool {
        let key = state.catalog.find(object);
        key.is_some_and(|key| self.pushes.values().any(|push| push.awaits(executor, key)))
    }

    pub(super) fn begin(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        push: NewPush,
        effects: &mut Vec<Effect>,
    ) {
        let NewPush { id, objects, to, distribution } = push;
        let objects: Box<[_]> =
            objects.iter().map(|(id, size_bytes)| state.catalog.refer(*id, *size_bytes)).collect();
        let executors: Vec<_> = match &to {
            Recipients::Executors(executors) => executors
                .iter()
                .filter_map(|executor| state.executors.find_staying(*executor))
                .collect(),
            Recipients::Takers(needs) => {
                let all = state.executors.all().map(|(executor, _)| executor);
                all.filter(|executor| could_take_one_of(state, *executor, needs)).collect()
            }
        };
        let id_of = |executor: &ExecutorKey| state.executors[*executor].id;
        let tree = (distribution == Distribution::SpanningTree).then(|| {
            let has_all = |executor: &ExecutorKey| {
                objects
                    .iter()
                    .all(|object| state.executors[*executor].replicas.contains_key(object))
            };
            let (complete, pending): (Vec<_>, Vec<_>) =
                executors.iter().copied().partition(has_all);
            SpanningTree::new(
                complete.iter().map(id_of).collect(),
                pending.iter().map(id_of).collect(),
            )
        });
        let recipients: BTreeMap<_, _> =
            executors.iter().map(|executor| (id_of(executor), Recipient::default())).collect();
        // In a tree, executors that have everything are asked whether it is so; others wait for
        // their round.
        let is_recipient_now =
            |executor: &ExecutorId| tree.as_ref().is_none_or(|tree| tree.is_complete(*executor));
        let first: Vec<_> = recipients.keys().copied().filter(is_recipient_now).collect();
        let open_to = match to {
            Recipients::Takers(needs) if tree.is_none() => needs,
            _ => Box::default(),
        };
        let before = self.pushes.insert(id, ActivePush { objects, open_to, recipients, tree });
        assert!(before.is_none(), "{id:?} is pushed twice");
        first.into_iter().for_each(|executor| self.send(state, kept, id, executor, effects));
        self.go_on(state, kept, id, effects);
    }

    /// No executor is told of the push's objects any longer, and fetches that have not begun do not
    /// begin.
    pub(super) fn end(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        id: PushId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(push) = self.pushes.remove(&id) else { return };
        for (executor, recipient) in &push.recipients {
            self.let_go(state, kept, *executor, &recipient.awaited, true, effects);
        }
        push.objects.iter().for_each(|object| _ = state.catalog.release(*object));
    }

    /// An executor that has joined gets the objects that its tasks will read.
    pub(super) fn joined(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        executor: ExecutorKey,
        effects: &mut Vec<Effect>,
    ) {
        let wanted = self
            .pushes
            .iter()
            .filter(|(_, push)| could_take_one_of(state, executor, &push.open_to));
        let wanted: Vec<_> = wanted.map(|(id, _)| *id).collect();
        let executor = state.executors[executor].id;
        for id in wanted {
            self.pushes
                .get_mut(&id)
                .expect("just looked up")
                .recipients
                .insert(executor, Recipient::default());
            self.send(state, kept, id, executor, effects);
        }
    }

    /// An executor leaves, and gets nothing more.
    pub(super) fn draining(&mut self, state: &mut SchedulerState, key: ExecutorKey) {
        let executor = state.executors[key].id;
        for push in self.pushes.values_mut() {
            let Some(recipient) = push.recipients.get_mut(&executor) else { continue };
            state.transfers.done_with(None, key, &core::mem::take(&mut recipient.awaited));
            recipient.has_left = true;
            if !push.open_to.is_empty() {
                push.recipients.remove(&executor);
            }
            if let Some(tree) = &mut push.tree {
                tree.left(executor);
            }
        }
    }

    pub(super) fn continue_all(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        effects: &mut Vec<Effect>,
    ) {
        let ids: Vec<_> = self.pushes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.go_on(state, kept, id, effects));
    }

    /// An executor has answered for an object: it is there, or cannot be.
    pub(super) fn answered(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        executor: ExecutorId,
        (object, is_there): (ObjectId, bool),
        effects: &mut Vec<Effect>,
    ) {
        let (false, Some(key)) = (self.pushes.is_empty(), state.catalog.find(object)) else {
            return;
        };
        let ids = self.awaiting(state, executor, object);
        for id in &ids {
            let push = self.pushes.get_mut(id).expect("just looked up");
            let recipient =
                push.recipients.get_mut(&executor).expect("an answer is awaited from a recipient");
            recipient.awaited.retain(|other| *other != key);
            if is_there {
                recipient.stored += 1;
                recipient.stored_bytes += state.catalog.size_bytes(key);
            } else {
                recipient.missed.insert(key);
            }
        }
        if !ids.is_empty() {
            self.let_go(state, kept, executor, &[key], is_there, effects);
        }
        for id in ids {
            self.send(state, kept, id, executor, effects);
            let push = &self.pushes[&id];
            if push.is_over_with(&push.recipients[&executor]) {
                self.go_on(state, kept, id, effects);
            }
        }
    }

    /// A push does not wait any longer for these objects at an executor. The executor need not hold
    /// them, unless another push waits for them there or they are kept there.
    fn let_go(
        &self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        executor: ExecutorId,
        objects: &[ObjectKey],
        is_held: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(key) = state.executors.find(executor) else { return };
        state.transfers.done_with(None, key, objects);
        if !is_held {
            return;
        }
        for object in objects.iter().map(|object| state.catalog[*object].id) {
            if !kept.is_appointed(executor, object) && !self.is_pushed_to(state, executor, object) {
                effects.push(Effect::Command(PlacementCommand::Release { executor, object }));
            }
        }
    }

    /// Has an executor fetch as many further objects as it may fetch at once.
    fn send(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        id: PushId,
        executor: ExecutorId,
        effects: &mut Vec<Effect>,
    ) {
        let turn = state.events as usize;
        let push = self.pushes.get_mut(&id).expect("the caller has looked it up");
        let (Some(key), Some(recipient)) =
            (state.executors.find(executor), push.recipients.get_mut(&executor))
        else {
            return;
        };
        while recipient.awaited.len() < MAX_PUSHED_AT_ONCE && recipient.sent < push.objects.len() {
            let object = push.objects[recipient.sent];
            recipient.sent += 1;
            recipient.awaited.push(object);
            let id = state.catalog[object].id;
            let holders = match &push.tree {
                // The executor is asked whether it has the object.
                _ if state.executors[key].replicas.contains_key(&object) => Box::default(),
                Some(tree) => tree.giver_of(executor).map(Holder::of_whole).into_iter().collect(),
                None => {
                    let crosses_sites = kept.contains(id);
                    let request = SourceRequest {
                        object,
                        executor: key,
                        task: None,
                        crosses_sites,
                        from_relays: true,
                    };
                    sources::plan(state, request, turn)
                }
            };
            effects.push(Effect::Command(PlacementCommand::Hold { executor, object: id, holders }));
        }
    }

    /// Begins the next round if the last is over, and reports when the push is complete.
    fn go_on(
        &mut self,
        state: &mut SchedulerState,
        kept: &KeptObjects,
        id: PushId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(push) = self.pushes.get_mut(&id) else { return };
        let mut receivers = Vec::new();
        if let Some(mut tree) = push.tree.take() {
            for (executor, recipient) in &push.recipients {
                if push.has_answered(recipient) {
                    if recipient.missed.is_empty() {
                        tree.received(*executor);
                    } else {
                        tree.left(*executor);
                    }
                }
            }
            receivers = tree.next_round();
            push.tree = Some(tree);
        }
        if push.open_to.is_empty()
            && push.recipients.values().all(|recipient| push.is_over_with(recipient))
        {
            effects.push(Effect::Command(PlacementCommand::Pushed { push: id }));
        }
        receivers.into_iter().for_each(|executor| self.send(state, kept, id, executor, effects));
    }

    #[cfg(test)]
    pub fn validate(&self) {
        for recipient in self.pushes.values().flat_map(|push| push.recipients.values()) {
            let Recipient { sent, awaited, stored, missed, has_left, .. } = recipient;
            assert!(awaited.len() <= MAX_PUSHED_AT_ONCE);
            assert!(
                *has_left || *sent == awaited.len() + *stored as usize + missed.len(),
                "each is answered for once"
            );
        }
    }
}

fn could_take_one_of(state: &SchedulerState, executor: ExecutorKey, needs: &[Need]) -> bool {
    needs.iter().any(|need| state.could_ever_take(executor, need))
}
