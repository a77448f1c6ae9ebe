//! Derived copies: what executors make of inputs, such as the content of a compressed file. An
//! executor that lacks a copy asks for it. It is told to fetch the copy from executors that have
//! it, to wait while another executor makes it, or to make it.
//!
//! A copy is fetched if that takes no longer than making it took. For example, a copy of 100 MB
//! that was made in 3 s is fetched at 125 MB/s, in 0.8 s, and one that was made in 0.2 s is made
//! again. While it is not known how long making takes, one executor makes the copy, and the others
//! wait: that takes them at most as long as making it and fetching it, and spares their processors.
//!
//! If the executor that makes a copy leaves, or is stopped before it has the copy, the next of
//! those that wait makes it. If it fails, all of them make it: the failure may be that node's, and
//! if it is not, each of them is to say so.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, ObjectId};

use super::sources::{self, SourceRequest};
use crate::event::{Effect, PlacementCommand};
use crate::state::{ExecutorKey, KnownCopy, ObjectKey, SITE_LOOKS, SchedulerState};

/// Copies that no executor has are forgotten when there are this many copies, or twice as many as
/// the last time.
const LEAST_FORGOTTEN_AT: usize = if cfg!(test) { 4 } else { 1024 };

/// Executors with a copy of which the transfer times are compared.
const GIVER_LOOKS: usize = 16;

/// All derived copies that executors have, make or want.
pub(crate) struct DerivedCopies {
    copies: BTreeMap<ObjectId, DerivedCopy>,
    /// Number of copies at which those are forgotten that no executor has.
    forgotten_at: usize,
    /// Whether a copy that is still arriving may be given on.
    from_relays: bool,
}

#[derive(Default)]
struct DerivedCopy {
    /// The executor that makes it, for which others wait.
    maker: Option<ExecutorId>,
    /// Executors that wait for it, in the order in which they asked.
    waiting: Vec<ExecutorId>,
    /// Executors that were told to fetch it. Each refers to the object in the catalog.
    fetching: Vec<ExecutorId>,
    /// The time in which it was last made, microseconds.
    made_us: Option<u64>,
    /// Each executor makes its own: giving it to others is not worthwhile.
    is_private: bool,
}

impl DerivedCopy {
    fn is_idle(&self) -> bool {
        self.maker.is_none() && self.waiting.is_empty() && self.fetching.is_empty()
    }
}

impl DerivedCopies {
    pub fn new(from_relays: bool) -> Self {
        DerivedCopies { copies: BTreeMap::new(), forgotten_at: LEAST_FORGOTTEN_AT, from_relays }
    }

    /// An executor lacks a copy.
    pub fn wanted(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(key) = state.executors.find(executor) else { return };
        self.forget_unused(state);
        let from_relays = self.from_relays;
        let copy = self.copies.entry(object).or_default();
        // An executor asks for a copy once at a time.
        Self::end_request(copy, state, executor, object);
        let near = state.catalog.find(object).and_then(|object| nearest(state, key, object));
        let is_fetched = near.is_some_and(|(_, seconds)| {
            copy.made_us.is_none_or(|made_us| seconds <= made_us as f64 / 1e6)
        });
        if let Some((object_key, _)) = near.filter(|_| is_fetched && !copy.is_private) {
            let size_bytes = state.catalog.size_bytes(object_key);
            state.catalog.refer(object, size_bytes);
            copy.fetching.push(executor);
            let request = SourceRequest {
                object: object_key,
                executor: key,
                task: None,
                crosses_sites: false,
                from_relays,
            };
            // Different holders for each executor, so that none serves all of them.
            let holders = sources::plan(state, request, copy.fetching.len());
            return effects.push(derive(executor, object, size_bytes, holders));
        }
        let is_made = near.is_some() || copy.is_private;
        let waits = !is_made
            && copy.maker.is_some_and(|maker| maker != executor && is_one_site(state, maker, key));
        if waits {
            return copy.waiting.push(executor);
        }
        // What an executor makes that is leaving is no longer given to others.
        if !is_made && copy.maker.is_none() && !state.executors[key].is_draining {
            copy.maker = Some(executor);
        }
        effects.push(derive(executor, object, 0, Box::default()));
    }

    /// An executor has made a copy, which the catalog knows.
    pub fn made(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        (object, took_us): (ObjectId, u64),
        effects: &mut Vec<Effect>,
    ) {
        let copy = self.copies.entry(object).or_default();
        (copy.made_us, copy.is_private) = (Some(took_us), false);
        self.settle(state, executor, object, effects);
    }

    /// An executor has not got a copy that it wanted, or does not give it to others.
    pub fn not_made(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        (object, is_private): (ObjectId, bool),
        effects: &mut Vec<Effect>,
    ) {
        let Some(copy) = self.copies.get_mut(&object) else { return };
        copy.is_private |= is_private;
        Self::end_request(copy, state, executor, object);
        if copy.maker != Some(executor) {
            return;
        }
        copy.maker = None;
        let waiting = core::mem::take(&mut copy.waiting);
        effects.extend(waiting.into_iter().map(|other| derive(other, object, 0, Box::default())));
    }

    /// The task for which an executor wanted a copy was stopped. If the executor was to make it,
    /// the next of those that wait does.
    pub fn stopped(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(copy) = self.copies.get_mut(&object) else { return };
        if copy.maker == Some(executor) {
            return self.settle(state, executor, object, effects);
        }
        Self::end_request(copy, state, executor, object);
    }

    /// An executor has a copy. If it waits for the copy, it need not any longer.
    pub fn stored(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(copy) = self.copies.get_mut(&object) else { return };
        if copy.waiting.contains(&executor) {
            effects.push(derive(executor, object, 0, Box::default()));
        }
        Self::end_request(copy, state, executor, object);
    }

    /// An executor gives nothing from now on. Those that wait for what it makes wait for another.
    /// While it waits itself, its tasks still run: it makes what it waits for.
    pub fn gone(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        effects: &mut Vec<Effect>,
    ) {
        let mut unmade = Vec::new();
        for (object, copy) in &mut self.copies {
            if copy.waiting.contains(&executor) {
                effects.push(derive(executor, *object, 0, Box::default()));
            }
            Self::end_request(copy, state, executor, *object);
            if copy.maker == Some(executor) {
                unmade.push(*object);
            }
        }
        for object in unmade {
            self.settle(state, executor, object, effects);
        }
    }

    /// An executor no longer makes or fetches a copy: those that wait for it ask again.
    fn settle(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(copy) = self.copies.get_mut(&object) else { return };
        Self::end_request(copy, state, executor, object);
        if copy.maker == Some(executor) {
            copy.maker = None;
        }
        for other in core::mem::take(&mut copy.waiting) {
            self.wanted(state, other, object, effects);
        }
    }

    /// An executor neither waits for the copy nor fetches it.
    fn end_request(
        copy: &mut DerivedCopy,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
    ) {
        copy.waiting.retain(|other| *other != executor);
        let Some(index) = copy.fetching.iter().position(|other| *other == executor) else { return };
        copy.fetching.swap_remove(index);
        let object = state.catalog.find(object).expect("it is referred to");
        if let Some(executor) = state.executors.find(executor) {
            state.transfers.done_with(None, executor, &[object]);
        }
        state.catalog.release(object);
    }

    /// Forgets copies that no executor has, makes or wants, if there are many copies.
    fn forget_unused(&mut self, state: &SchedulerState) {
        if self.copies.len() < self.forgotten_at {
            return;
        }
        self.copies.retain(|object, copy| !copy.is_idle() || state.replicas(*object) > 0);
        self.forgotten_at = (2 * self.copies.len()).max(LEAST_FORGOTTEN_AT);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    #[cfg(test)]
    pub fn has_waiting(&self, executor: ExecutorId) -> bool {
        self.copies.values().any(|copy| copy.waiting.contains(&executor))
    }

    /// Checks that each executor waits for another one, and that fetches are of known objects.
    #[cfg(test)]
    pub fn validate(&self, state: &SchedulerState) {
        for (object, copy) in &self.copies {
            assert!(copy.waiting.is_empty() || copy.maker.is_some(), "{object}: for whom?");
            let known = |executor: &ExecutorId| state.executors.find(*executor).is_some();
            assert!(copy.waiting.iter().chain(&copy.maker).chain(&copy.fetching).all(known));
            assert!(copy.maker.is_none_or(|maker| !copy.waiting.contains(&maker)));
            assert!(copy.fetching.is_empty() || state.catalog.find(*object).is_some());
        }
    }
}

fn derive(
    executor: ExecutorId,
    object: ObjectId,
    size_bytes: u64,
    holders: Box<[crate::event::Holder]>,
) -> Effect {
    Effect::Command(PlacementCommand::Derive { executor, object, size_bytes, holders })
}

/// Whether an executor that lacks an input of a task is to fetch it. A derived copy is fetched if
/// another executor has it, this one lacks the source, and fetching it takes no longer than making
/// it took. A folder is fetched as what it is packed in.
pub(super) fn is_fetched(state: &SchedulerState, executor: ExecutorKey, object: ObjectKey) -> bool {
    let Some(KnownCopy { of: Some(of), made_s, packed }) = state.catalog.copy(object) else {
        return true;
    };
    if packed.is_some() {
        return false;
    }
    let source = state.catalog.find(of);
    let has_source =
        source.is_some_and(|key| state.executors[executor].replicas.contains_key(&key));
    let near = nearest(state, executor, object).filter(|_| !has_source);
    near.is_some_and(|(_, seconds)| made_s.is_none_or(|made_s| seconds <= made_s))
}

/// The object, and the seconds in which the executor would get it from the executor that gives it
/// the soonest. `None` if no executor at its site has it.
fn nearest(
    state: &SchedulerState,
    executor: ExecutorKey,
    object: ObjectKey,
) -> Option<(ObjectKey, f64)> {
    let gives =
        |giver: &ExecutorKey| *giver != executor && state.transfers.is_one_site(*giver, executor);
    let holders = state.catalog[object].holders.iter().copied().take(SITE_LOOKS).filter(gives);
    let mut holders = holders.take(GIVER_LOOKS).peekable();
    holders.peek()?;
    let receivers = state.transfers.receivers(object).filter(gives).take(GIVER_LOOKS);
    let bytes = state.catalog.size_bytes(object);
    let seconds =
        holders.chain(receivers).map(|giver| state.transfers.peer_seconds(giver, executor, bytes));
    Some((object, seconds.min_by(f64::total_cmp)?))
}

fn is_one_site(state: &SchedulerState, maker: ExecutorId, executor: ExecutorKey) -> bool {
    let maker = state.executors.find(maker);
    maker.is_some_and(|maker| state.transfers.is_one_site(maker, executor))
}
