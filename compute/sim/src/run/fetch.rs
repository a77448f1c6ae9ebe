//! Fetches: the choice of the source, and the flow of the bytes.
//!
//! Sources are tried in the order that `transfer` uses: the hinted peers first, beginning with the
//! peer that should be done first given its load, then persistent storage. A peer that is still
//! receiving the object relays it. A peer that is expected to receive the object soon is waited
//! for.

use std::collections::{BTreeMap, BTreeSet};

use eyas_sched::Holder;
use eyas_types::ObjectId;
use smallvec::{SmallVec, smallvec};

use super::event::{FetchEvent, SimEvent};
use super::executor::{Replica, SimExecutors};
use super::network::{FlowLinks, Network, Tag};
use super::world::{Setup, World};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::flows::FlowId;

/// How long a fetch waits for an object that its source is expected to receive.
const RELAY_TIMEOUT: Ns = 2 * SECOND;

pub(super) struct Fetch {
    /// The executor that fetches.
    pub by: u32,
    pub id: ObjectId,
    pub object: u32,
    /// The fetch is for a task, not only to hold the object.
    pub is_for_task: bool,
    /// The fetch is of a derived copy, for a task that has a slot.
    pub is_derived: bool,
    pub began: Ns,
    /// Sources that have not been tried; the last one is next.
    sources: SmallVec<[Source; 5]>,
    /// The source that is being asked.
    pub from: Source,
    /// Number of the current request, which tells it from earlier requests of this fetch.
    asked: u32,
    flow: Option<FlowId>,
    /// Missing bytes, while none flow.
    lacks: f64,
    /// Fetches that will be relayed from this one as soon as its bytes flow.
    waiting: Vec<u32>,
}

/// A source of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Peer {
        executor: u32,
        is_relay: bool,
    },
    Storage,
    /// The node's own store.
    Here,
}

#[derive(Default)]
pub(super) struct Fetches {
    fetches: Vec<Option<Fetch>>,
    free: Vec<u32>,
    asked: u32,
    /// Fetches that wait until a peer begins to receive an object, by peer and object.
    expecting: BTreeMap<(u32, u32), Vec<u32>>,
}

/// Expected duration of a transfer as a power of two, in microseconds. Smaller differences do not
/// tell sources apart.
fn magnitude(setup: &Setup, object: u32, others: u32) -> Option<u32> {
    let cluster = setup.cluster;
    let bytes = setup.size_bytes(object) as f64;
    let ns = bytes * f64::from(1 + others) / cluster.card_bytes_per_s * 1e9;
    ((ns as Ns + cluster.peer_latency_ns) / MICROSECOND).checked_ilog2()
}

/// The peers that the dispatcher's hints name.
fn holders(world: &World, by: u32, object: u32, task: Option<u32>) -> SmallVec<[Holder; 4]> {
    let holders = match task {
        Some(task) => {
            let task = &world.tasks[task];
            let mut placed_by = world.setup.placed_by(&task.inputs).into_iter();
            let place = placed_by.position(|input| input == object).expect("the task reads it");
            let hint = task.hints.iter().find(|hint| hint.input as usize == place);
            hint.map(|hint| &*hint.holders)
        }
        None => world.holds.get(by, object),
    };
    holders.map_or(SmallVec::new(), Into::into)
}

/// Sources of an object for an executor; the last one is to be asked first.
fn sources(world: &World, by: u32, object: u32, task: Option<u32>) -> SmallVec<[Source; 5]> {
    let setup = world.setup;
    let mut sources = SmallVec::new();
    if !setup.plan.outputs.is_kept(object) && !setup.is_copy(object) {
        sources.push(if setup.is_warm { Source::Here } else { Source::Storage });
    }
    if setup.caches {
        let mut holders = holders(world, by, object, task);
        holders.sort_by_key(|holder| magnitude(setup, object, holder.others));
        sources.extend(holders.into_iter().rev().map(|Holder { executor, is_relay, .. }| {
            let executor = executor.0;
            Source::Peer { executor, is_relay }
        }));
    }
    sources
}

impl Fetches {
    /// An executor begins to fetch an object, for a task that is staged or to hold it; a derived
    /// copy also for a task that has a slot.
    pub fn begin(
        &mut self,
        by: u32,
        id: ObjectId,
        task: Option<u32>,
        executors: &mut SimExecutors,
        network: &mut Network,
        world: &mut World,
    ) {
        let setup = world.setup;
        let object = setup.plan.outputs.object_of(id);
        let fetch = Fetch {
            by,
            id,
            object,
            is_for_task: task.is_some() || setup.is_copy(object),
            is_derived: task.is_none() && setup.is_copy(object),
            began: world.agenda.now(),
            sources: sources(world, by, object, task),
            from: Source::Storage,
            asked: 0,
            flow: None,
            lacks: setup.size_bytes(object) as f64,
            waiting: Vec::new(),
        };
        let fetch = self.add(fetch);
        if setup.caches {
            executors[by].expect(object, fetch);
            for expecting in self.expecting.remove(&(by, object)).unwrap_or_default() {
                self.answered(expecting, executors, network, world);
            }
        }
        self.ask_next(fetch, world);
    }

    /// Whether a fetch still waits for the answer to this request.
    pub fn awaits(&self, number: u32, asked: u32) -> bool {
        self.fetches[number as usize].as_ref().is_some_and(|fetch| fetch.asked == asked)
    }

    /// The source that a fetch asks.
    pub fn source(&self, number: u32) -> Source {
        self.get(number).from
    }

    /// All bytes of a fetch are there.
    pub fn end(&mut self, number: u32) -> Fetch {
        self.free.push(number);
        self.fetches[number as usize].take().expect("the fetch has not ended")
    }

    /// All sources of a kept object have failed. Fetches that were to be relayed from this one look
    /// elsewhere.
    pub fn fail(
        &mut self,
        number: u32,
        executors: &mut SimExecutors,
        network: &mut Network,
        world: &mut World,
    ) -> Fetch {
        let mut fetch = self.end(number);
        executors[fetch.by].no_longer_expect(fetch.object, world.setup);
        for other in std::mem::take(&mut fetch.waiting) {
            self.answered(other, executors, network, world);
        }
        fetch
    }

    /// An executor will not have an object that it was to fetch. Fetches that wait for it look
    /// elsewhere.
    pub fn given_up(
        &mut self,
        by: u32,
        object: u32,
        executors: &mut SimExecutors,
        network: &mut Network,
        world: &mut World,
    ) {
        for expecting in self.expecting.remove(&(by, object)).unwrap_or_default() {
            self.answered(expecting, executors, network, world);
        }
    }

    /// The peer has not received the object in time. Otherwise the bytes flow.
    pub fn relay_timed_out(&mut self, number: u32, world: &mut World) {
        let fetch = self.get(number);
        let Source::Peer { executor, .. } = fetch.from else { return };
        if let Some(expecting) = self.expecting.get_mut(&(executor, fetch.object))
            && expecting.contains(&number)
        {
            expecting.retain(|other| *other != number);
            self.ask_next(number, world);
        }
    }

    // ---- requests and answers

    fn ask_next(&mut self, number: u32, world: &mut World) {
        self.asked = self.asked.wrapping_add(1);
        let asked = self.asked;
        let fetch = self.get_mut(number);
        fetch.asked = asked;
        let cluster = world.setup.cluster;
        let (after_ns, what) = match fetch.sources.pop() {
            Some(from) => {
                fetch.from = from;
                let latency_ns = match from {
                    Source::Peer { .. } => cluster.peer_latency_ns,
                    Source::Storage => cluster.storage.latency_ns,
                    Source::Here => 0,
                };
                (latency_ns, FetchEvent::Requested)
            }
            // Persistent storage is always the last source; it has all objects except kept outputs
            // and derived copies.
            None => (0, FetchEvent::Fails),
        };
        let event = SimEvent::OfFetch { fetch: number, asked, what };
        world.agenda.schedule_after(after_ns, event);
    }

    /// The source answers, and so do the sources of fetches that waited for these bytes. This is a
    /// loop and not a recursion because a chain can be as long as the number of nodes.
    pub fn answered(
        &mut self,
        number: u32,
        executors: &mut SimExecutors,
        network: &mut Network,
        world: &mut World,
    ) {
        let mut answered: SmallVec<[u32; 4]> = smallvec![number];
        while let Some(number) = answered.pop() {
            if let Some((way, above)) = self.way_of(number, executors, network, world) {
                let fetch = self.get_mut(number);
                let (now, tag) = (world.agenda.now(), Tag::Fetch(number));
                fetch.flow = Some(network.start(now, fetch.lacks, &way, above, tag));
                answered.extend(fetch.waiting.drain(..).rev());
            }
        }
    }

    /// The links that the bytes of a fetch pass, and the flow that they are relayed from, if any.
    /// `None` if the fetch has to wait for its source, or asks the next source.
    fn way_of(
        &mut self,
        number: u32,
        executors: &mut SimExecutors,
        network: &Network,
        world: &mut World,
    ) -> Option<(FlowLinks, Option<FlowId>)> {
        let Fetch { by, object, from, asked, .. } = *self.get(number);
        let to = executors.machine_of(by);
        // Under first-available, tasks read inputs at their source and nothing is written.
        let stores = world.setup.caches;
        let (executor, is_relay) = match from {
            Source::Peer { executor, is_relay } => (executor, is_relay),
            Source::Storage => return Some((network.way_from_storage(to, stores), None)),
            Source::Here => unreachable!("no bytes flow from a node's own store"),
        };
        let giver = executors.machine_of(executor);
        match executors.get(executor).map(|giver| giver.replica(object)) {
            Some(Some(Replica::Whole)) => {
                let is_on_disk =
                    world.setup.cluster.disk.is_some() && !executors[executor].touch(object);
                return Some((network.way_from_peer(giver, is_on_disk, to, stores), None));
            }
            Some(Some(Replica::Partial(above))) if !self.is_above(number, executors, above) => {
                let above = self.get_mut(above);
                match above.flow {
                    Some(flow) => {
                        return Some((network.way_from_peer(giver, false, to, stores), Some(flow)));
                    }
                    None => above.waiting.push(number),
                }
            }
            Some(None) if is_relay && !executors[executor].has_given_up(object) => {
                self.expecting.entry((executor, object)).or_default().push(number);
                let what = FetchEvent::RelayTimeout;
                let timeout = SimEvent::OfFetch { fetch: number, asked, what };
                world.agenda.schedule_after(RELAY_TIMEOUT, timeout);
            }
            _ => self.ask_next(number, world),
        }
        None
    }

    // ---- executors that are gone

    /// Ends the fetches of an executor that is gone. If its node no longer `serves`, fetches from
    /// that node get the missing bytes from other sources.
    pub fn end_of_executor(
        &mut self,
        gone: u32,
        serves: bool,
        executors: &mut SimExecutors,
        network: &mut Network,
        world: &mut World,
    ) {
        // The request may have gone to an earlier executor of that node.
        let machine = executors.machine_of(gone);
        let (mut ended, mut halted, mut orphans) = (BTreeSet::new(), Vec::new(), Vec::new());
        for number in 0..self.fetches.len() as u32 {
            let Some(fetch) = &mut self.fetches[number as usize] else { continue };
            if fetch.by == gone {
                ended.insert(number);
                orphans.append(&mut fetch.waiting);
            }
            let is_from_there = |of: u32| executors.machine_of(of) == machine;
            let is_cut = match fetch.from {
                Source::Peer { executor, .. } => !serves && is_from_there(executor),
                Source::Storage | Source::Here => false,
            };
            if fetch.by == gone || is_cut {
                self.halt(number, &mut halted, network, world.agenda.now());
            }
        }
        if ended.is_empty() && halted.is_empty() {
            return;
        }
        self.expecting.retain(|_, expecting| {
            expecting.retain(|other| !ended.contains(other));
            !expecting.is_empty()
        });
        for fetch in self.fetches.iter_mut().flatten() {
            fetch.waiting.retain(|other| !ended.contains(other));
        }
        ended.iter().for_each(|number| _ = self.end(*number));
        halted.extend(orphans);
        halted
            .into_iter()
            .filter(|number| !ended.contains(number))
            .for_each(|number| self.answered(number, executors, network, world));
    }

    /// Stops the flow of a fetch and of all fetches that are relayed from it.
    fn halt(&mut self, number: u32, halted: &mut Vec<u32>, network: &mut Network, now: Ns) {
        let flow = self.get_mut(number).flow.take();
        let mut to_stop: Vec<_> = flow.map(|flow| (number, flow)).into_iter().collect();
        let mut place = 0;
        while let Some((_, flow)) = to_stop.get(place).copied() {
            for (number, below) in network.relayed_from(flow) {
                self.get_mut(number).flow = None;
                to_stop.push((number, below));
            }
            place += 1;
        }
        // Relayed flows are stopped before the flow above.
        for (number, flow) in to_stop.into_iter().rev() {
            self.get_mut(number).lacks = network.stop(now, flow);
            halted.push(number);
        }
    }

    // ---- fetches by their numbers

    fn add(&mut self, fetch: Fetch) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.fetches.push(None);
            self.fetches.len() as u32 - 1
        });
        self.fetches[number as usize] = Some(fetch);
        number
    }

    fn get(&self, number: u32) -> &Fetch {
        self.fetches[number as usize].as_ref().expect("the fetch has not ended")
    }

    fn get_mut(&mut self, number: u32) -> &mut Fetch {
        self.fetches[number as usize].as_mut().expect("the fetch has not ended")
    }

    /// Whether relaying `below`, which does not flow yet, from `from` would close a cycle.
    fn is_above(&self, below: u32, executors: &SimExecutors, from: u32) -> bool {
        // Nearly always no fetch waits for `below`, so there is no cycle.
        if self.get(below).waiting.is_empty() {
            return false;
        }
        // Requests that no source has answered yet can form a cycle without `below` (found as by
        // Brent).
        let (mut at, mut mark, mut steps, mut limit) = (from, from, 0_u32, 1_u32);
        loop {
            if at == below {
                return true;
            }
            let fetch = self.get(at);
            // If this fetch flows, all fetches above it flow. This avoids walks through chains of
            // thousands.
            if fetch.flow.is_some() {
                return false;
            }
            let Source::Peer { executor, .. } = fetch.from else { return false };
            let giver = executors.get(executor);
            let Some(Replica::Partial(above)) = giver.and_then(|giver| giver.replica(fetch.object))
            else {
                return false;
            };
            at = above;
            if at == mark {
                return false;
            }
            steps += 1;
            if steps == limit {
                (mark, steps, limit) = (at, 0, limit.saturating_mul(2));
            }
        }
    }
}
