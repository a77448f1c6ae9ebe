//! Pushes: objects that executors are to have ahead of demand, because somebody says so, or because a job's tasks will
//! want them wherever they run.
//!
//! What is pushed goes the way of simultaneous demand: each executor is told to fetch each object from whoever the relays
//! plan, so that a push to many is a chain. Each holds an object while it comes, so that tasks that give up do not take it
//! along, and is told to release it as soon as it is there: from then on it is cached as any other. An executor is told of
//! a few objects at a time, in the order of the push, so that one that ends leaves little behind.
//!
//! Along a [spanning tree](crate::tree) executors are told in rounds instead.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::{Distribution, ExecutorId, ObjectId};

use crate::catalog::ObjectKey;
use crate::event::{Effect, Holder, PushId, Recipients};
use crate::executors::ExecutorKey;
use crate::relay::Wish;
use crate::scheduler::Scheduler;
use crate::tree::Tree;
use eyas_types::Need;

/// Objects of one push that an executor is told of and does not have yet.
pub(crate) const MAX_PUSHED_AT_ONCE: usize = 8;

/// All pushes that have not ended.
pub(crate) type Pushes = BTreeMap<PushId, Push>;

/// One push.
pub(crate) struct Push {
    objects: Box<[ObjectKey]>,
    /// Who may take tasks of these needs and joins later gets it, too.
    open_to: Box<[Need]>,
    recipients: BTreeMap<ExecutorId, Recipient>,
    tree: Option<Tree>,
}

#[derive(Default)]
struct Recipient {
    /// So many of the push's objects it was told of.
    told: usize,
    /// Those of them that it has not answered for.
    awaited: Vec<ObjectKey>,
    stored: u32,
    stored_bytes: u64,
    /// Those that it could not have.
    missed: BTreeSet<ObjectKey>,
    has_left: bool,
}

/// How far a push is with one executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which executor.
    pub executor: ExecutorId,
    /// Objects that it has stored.
    pub stored: u32,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Objects that it could not have.
    pub missed: u32,
    /// Nothing more will come of it.
    pub is_over: bool,
}

impl Push {
    fn is_over_with(&self, recipient: &Recipient) -> bool {
        recipient.has_left || recipient.told == self.objects.len() && recipient.awaited.is_empty()
    }

    fn awaits(&self, executor: ExecutorId, object: ObjectKey) -> bool {
        self.recipients.get(&executor).is_some_and(|recipient| recipient.awaited.contains(&object))
    }

    #[cfg(test)]
    pub fn validate(&self) {
        for recipient in self.recipients.values() {
            let Recipient { told, awaited, stored, missed, has_left, .. } = recipient;
            assert!(awaited.len() <= MAX_PUSHED_AT_ONCE);
            assert!(*has_left || *told == awaited.len() + *stored as usize + missed.len(), "each is answered for once");
        }
    }
}

impl Scheduler {
    /// How far a push is with each of its recipients.
    pub fn explain_push(&self, id: PushId) -> Vec<Received> {
        let Some(push) = self.pushes.get(&id) else { return Vec::new() };
        let received = push.recipients.iter().map(|(executor, recipient)| Received {
            executor: *executor,
            stored: recipient.stored,
            stored_bytes: recipient.stored_bytes,
            missed: recipient.missed.len() as u32,
            is_over: push.is_over_with(recipient),
        });
        received.collect()
    }

    /// Pushes that wait for an executor's answer about an object.
    pub fn pushes_awaiting(&self, executor: ExecutorId, object: ObjectId) -> Vec<PushId> {
        let Some(key) = self.catalog.find(object) else { return Vec::new() };
        self.pushes.iter().filter(|(_, push)| push.awaits(executor, key)).map(|(id, _)| *id).collect()
    }

    /// Objects of a push that executors have stored, and evicted since.
    pub fn evicted_of_push(&self, id: PushId) -> Vec<(ExecutorId, ObjectId)> {
        let Some(push) = self.pushes.get(&id) else { return Vec::new() };
        let mut evicted = Vec::new();
        for (executor, recipient) in push.recipients.iter().filter(|(_, recipient)| !recipient.has_left) {
            let Some(by) = self.executors.find(*executor) else { continue };
            let told = push.objects[..recipient.told].iter();
            let gone = told.filter(|object| {
                let is_known = recipient.missed.contains(object) || recipient.awaited.contains(object);
                !is_known && !self.executors[by].held.contains_key(*object)
            });
            evicted.extend(gone.map(|object| (*executor, self.catalog[*object].id)));
        }
        evicted
    }

    /// Whether an executor is told to hold an object because it is pushed.
    pub(crate) fn is_pushed_to(&self, executor: ExecutorId, object: ObjectId) -> bool {
        let key = self.catalog.find(object);
        key.is_some_and(|key| self.pushes.values().any(|push| push.awaits(executor, key)))
    }

    pub(crate) fn push(
        &mut self,
        id: PushId,
        objects: &[(ObjectId, u64)],
        to: Recipients,
        distribution: Distribution,
        effects: &mut Vec<Effect>,
    ) {
        let objects: Box<[_]> = objects.iter().map(|(id, size_bytes)| self.catalog.refer(*id, *size_bytes)).collect();
        let executors: Vec<_> = match &to {
            Recipients::Executors(executors) => {
                let there = executors.iter().filter_map(|executor| self.executors.find(*executor));
                there.filter(|by| !self.executors[*by].is_draining).collect()
            }
            Recipients::Takers(needs) => {
                self.executors.all().map(|(by, _)| by).filter(|by| self.may_take_one_of(*by, needs)).collect()
            }
        };
        let has_all = |by: &ExecutorKey| objects.iter().all(|object| self.executors[*by].held.contains_key(object));
        let tree = (distribution == Distribution::SpanningTree).then(|| {
            let (has, lacks): (Vec<_>, Vec<_>) = executors.iter().copied().partition(has_all);
            let ids = |keys: Vec<ExecutorKey>| keys.into_iter().map(|by| self.executors[by].id).collect();
            Tree::new(ids(has), ids(lacks))
        });
        let mut recipients = BTreeMap::new();
        for by in executors {
            recipients.insert(self.executors[by].id, Recipient::default());
        }
        let to_tell: Vec<_> = match &tree {
            // Those that have everything are asked whether it is so; others wait for their round.
            Some(tree) => recipients.keys().copied().filter(|executor| tree.has(*executor)).collect(),
            None => recipients.keys().copied().collect(),
        };
        let open_to = match to {
            Recipients::Takers(needs) if tree.is_none() => needs,
            _ => Box::default(),
        };
        let before = self.pushes.insert(id, Push { objects, open_to, recipients, tree });
        assert!(before.is_none(), "{id:?} is pushed twice");
        to_tell.into_iter().for_each(|executor| self.tell_of_push(id, executor, effects));
        self.go_on_with_push(id, effects);
    }

    /// Nobody is told of the push's objects any longer, and what has not begun to come does not.
    pub(crate) fn end_push(&mut self, id: PushId, effects: &mut Vec<Effect>) {
        let Some(push) = self.pushes.remove(&id) else { return };
        for (executor, recipient) in &push.recipients {
            self.let_go(*executor, &recipient.awaited, true, effects);
        }
        push.objects.iter().for_each(|object| self.catalog.release(*object));
    }

    /// An executor that has joined gets what its tasks will want.
    pub(crate) fn push_to_newcomer(&mut self, by: ExecutorKey, effects: &mut Vec<Effect>) {
        let wanted = self.pushes.iter().filter(|(_, push)| self.may_take_one_of(by, &push.open_to));
        let wanted: Vec<_> = wanted.map(|(id, _)| *id).collect();
        let executor = self.executors[by].id;
        for id in wanted {
            self.pushes.get_mut(&id).expect("just looked up").recipients.insert(executor, Recipient::default());
            self.tell_of_push(id, executor, effects);
        }
    }

    /// An executor leaves. Nobody is to get anything from it.
    pub(crate) fn push_no_more_to(&mut self, by: ExecutorKey) {
        let Scheduler { pushes, executors, relays, .. } = self;
        let executor = executors[by].id;
        for push in pushes.values_mut() {
            let Some(recipient) = push.recipients.get_mut(&executor) else { continue };
            relays.done_with(executors, None, by, &core::mem::take(&mut recipient.awaited));
            recipient.has_left = true;
            if !push.open_to.is_empty() {
                push.recipients.remove(&executor);
            }
            push.tree.iter_mut().for_each(|tree| tree.left(executor));
        }
    }

    /// With one recipient less, a round may be over, or a whole push.
    pub(crate) fn go_on_pushing(&mut self, effects: &mut Vec<Effect>) {
        let ids: Vec<_> = self.pushes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.go_on_with_push(id, effects));
    }

    /// An executor has answered for an object: it is there, or cannot be.
    pub(crate) fn note_pushed(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        is_there: bool,
        effects: &mut Vec<Effect>,
    ) {
        let (false, Some(key)) = (self.pushes.is_empty(), self.catalog.find(object)) else { return };
        let ids = self.pushes_awaiting(executor, object);
        for id in &ids {
            let push = self.pushes.get_mut(id).expect("just looked up");
            let recipient = push.recipients.get_mut(&executor).expect("it is awaited from one");
            recipient.awaited.retain(|other| *other != key);
            if is_there {
                recipient.stored += 1;
                recipient.stored_bytes += self.catalog.size_bytes(key);
            } else {
                recipient.missed.insert(key);
            }
        }
        if !ids.is_empty() {
            self.let_go(executor, &[key], is_there, effects);
        }
        for id in ids {
            self.tell_of_push(id, executor, effects);
            let push = &self.pushes[&id];
            if push.is_over_with(&push.recipients[&executor]) {
                self.go_on_with_push(id, effects);
            }
        }
    }

    fn may_take_one_of(&self, by: ExecutorKey, needs: &[Need]) -> bool {
        needs.iter().any(|need| self.may_ever_take(by, need))
    }

    /// Nothing more comes of telling an executor to hold these for a push. If it does, it need not any longer, but for
    /// another push, or if they are kept there.
    fn let_go(&mut self, executor: ExecutorId, objects: &[ObjectKey], is_held: bool, effects: &mut Vec<Effect>) {
        let Some(by) = self.executors.find(executor) else { return };
        self.relays.done_with(&mut self.executors, None, by, objects);
        if !is_held {
            return;
        }
        for object in objects.iter().map(|object| self.catalog[*object].id) {
            let is_kept = self.kept.get(&object).is_some_and(|keeping| keeping.told.contains_key(&executor));
            if !is_kept && !self.is_pushed_to(executor, object) {
                effects.push(Effect::Release { executor, object });
            }
        }
    }

    /// Tells an executor of as many objects as it may be told of.
    fn tell_of_push(&mut self, id: PushId, executor: ExecutorId, effects: &mut Vec<Effect>) {
        let turn = self.events as usize;
        let Scheduler { pushes, catalog, executors, relays, kept, .. } = self;
        let push = pushes.get_mut(&id).expect("the caller knows it");
        let (Some(by), Some(recipient)) = (executors.find(executor), push.recipients.get_mut(&executor)) else {
            return;
        };
        while recipient.awaited.len() < MAX_PUSHED_AT_ONCE && recipient.told < push.objects.len() {
            let key = push.objects[recipient.told];
            recipient.told += 1;
            recipient.awaited.push(key);
            let object = catalog[key].id;
            let holders = match &push.tree {
                // It is asked whether that is so.
                _ if executors[by].held.contains_key(&key) => Box::default(),
                Some(tree) => tree.giver_of(executor).map(Holder::of_whole).into_iter().collect(),
                None => {
                    let crosses = kept.contains_key(&object);
                    let wish = Wish { object: key, by, task: None, crosses, from_relays: true };
                    relays.plan(catalog, executors, wish, turn)
                }
            };
            effects.push(Effect::Hold { executor, object, holders });
        }
    }

    /// Begins the next round if the last is over, and says so when all is.
    fn go_on_with_push(&mut self, id: PushId, effects: &mut Vec<Effect>) {
        let Some(push) = self.pushes.get_mut(&id) else { return };
        let mut receives = Vec::new();
        if let Some(tree) = &mut push.tree {
            let ended = push.recipients.iter().filter(|(_, r)| r.told == push.objects.len() && r.awaited.is_empty());
            for (executor, recipient) in ended {
                match recipient.missed.is_empty() {
                    true => tree.received(*executor),
                    false => tree.left(*executor),
                }
            }
            receives = tree.next_round();
        }
        if push.open_to.is_empty() && push.recipients.values().all(|recipient| push.is_over_with(recipient)) {
            effects.push(Effect::Pushed { push: id });
        }
        receives.into_iter().for_each(|executor| self.tell_of_push(id, executor, effects));
    }
}
