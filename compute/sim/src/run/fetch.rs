//! Fetches: the choice of the source, and the flow of the bytes.
//!
//! Sources are tried in the order that `transfer` uses: the hinted peers first, beginning with the
//! peer that should be done first given its load, then persistent storage. A peer that is still
//! receiving the object relays it. A peer that is expected to receive the object soon is waited
//! for.

use std::collections::{BTreeMap, BTreeSet};

use eyas_node::{Event, FetchFailure};
use eyas_types::{ObjectId, Origin};
use smallvec::{SmallVec, smallvec};

use super::executor::{Replica, SimExecutors};
use super::{Fact, Holder, Run, SimEvent, Tag};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::flows::{FlowId, LinkId};

/// How long a fetch waits for an object that its source is expected to receive.
const RELAY_TIMEOUT: Ns = 2 * SECOND;

pub(super) struct Fetch {
    by: u32,
    id: ObjectId,
    object: u32,
    /// The fetch is for a task, not only to hold the object.
    is_for_task: bool,
    began: Ns,
    /// Sources that have not been tried; the last one is next.
    sources: SmallVec<[Source; 5]>,
    /// The source that is being asked.
    from: Source,
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

impl Fetches {
    fn add(&mut self, fetch: Fetch) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.fetches.push(None);
            self.fetches.len() as u32 - 1
        });
        self.fetches[number as usize] = Some(fetch);
        number
    }

    fn remove(&mut self, number: u32) -> Fetch {
        self.free.push(number);
        self.fetches[number as usize].take().expect("the fetch has not ended")
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
            let Some(Replica::Partial(above)) =
                giver.and_then(|giver| giver.replicas.get(&fetch.object))
            else {
                return false;
            };
            at = *above;
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

impl Run<'_> {
    /// Starts to fetch an object, for a task or to hold it.
    pub(super) fn fetch(&mut self, by: u32, id: ObjectId, task: Option<u32>) {
        let object = self.plan.outputs.object_of(id);
        let mut sources = SmallVec::new();
        if !self.plan.outputs.is_kept(object) {
            sources.push(if self.is_warm { Source::Here } else { Source::Storage });
        }
        if self.caches {
            let mut holders = self.holders(by, object, task);
            holders.sort_by_key(|holder| self.magnitude(object, holder.others));
            sources.extend(holders.into_iter().rev().map(
                |Holder { executor, is_relay, .. }| {
                    let executor = executor.0;
                    Source::Peer { executor, is_relay }
                },
            ));
        }
        let (began, from, flow, waiting) = (self.now, Source::Storage, None, Vec::new());
        let lacks = self.workload.size_bytes(object) as f64;
        let is_for_task = task.is_some();
        let fetch = Fetch {
            by,
            id,
            object,
            is_for_task,
            began,
            sources,
            from,
            asked: 0,
            flow,
            lacks,
            waiting,
        };
        let fetch = self.fetches.add(fetch);
        if self.caches {
            self.executors[by as usize].replicas.insert(object, Replica::Partial(fetch));
            for expecting in self.fetches.expecting.remove(&(by, object)).unwrap_or_default() {
                self.asked(expecting);
            }
        }
        self.ask_next(fetch);
    }

    /// The peers that the dispatcher's hints name.
    fn holders(&self, by: u32, object: u32, task: Option<u32>) -> SmallVec<[Holder; 4]> {
        let holders = match task {
            Some(task) => {
                let task = &self.tasks[task];
                let place = task
                    .inputs
                    .iter()
                    .position(|input| *input == object)
                    .expect("the task reads it");
                let hint = task.hints.iter().find(|hint| hint.input as usize == place);
                hint.map(|hint| &hint.holders)
            }
            None => self.executors[by as usize].to_hold.get(&object),
        };
        holders.map_or(SmallVec::new(), |holders| (**holders).into())
    }

    /// Expected duration of a transfer as a power of two, in microseconds. Smaller differences do
    /// not tell sources apart.
    fn magnitude(&self, object: u32, others: u32) -> Option<u32> {
        let bytes = self.workload.size_bytes(object) as f64;
        let ns = bytes * f64::from(1 + others) / self.cluster.card_bytes_per_s * 1e9;
        ((ns as Ns + self.cluster.peer_latency_ns) / MICROSECOND).checked_ilog2()
    }

    fn ask_next(&mut self, number: u32) {
        self.fetches.asked = self.fetches.asked.wrapping_add(1);
        let asked = self.fetches.asked;
        let fetch = self.fetches.get_mut(number);
        fetch.asked = asked;
        let Some(from) = fetch.sources.pop() else {
            // Persistent storage is always the last source; it has all objects except kept outputs.
            self.events.schedule(self.now, SimEvent::FetchFails { fetch: number, asked });
            return;
        };
        fetch.from = from;
        let latency = match fetch.from {
            Source::Peer { .. } => self.cluster.peer_latency_ns,
            Source::Storage => self.cluster.storage.latency_ns,
            Source::Here => 0,
        };
        self.events.schedule(self.now + latency, SimEvent::FetchRequested { fetch: number, asked });
    }

    /// The source answers a request, if the fetch still waits for it.
    pub(super) fn answer(&mut self, number: u32, asked: u32) {
        if self.fetches.fetches[number as usize].as_ref().is_some_and(|fetch| fetch.asked == asked)
        {
            self.asked(number);
        }
    }

    /// The source answers, and so do the sources of fetches that waited for these bytes. This is a
    /// loop and not a recursion because a chain can be as long as the number of nodes.
    fn asked(&mut self, number: u32) {
        let mut asked: SmallVec<[u32; 4]> = smallvec![number];
        while let Some(number) = asked.pop() {
            if let Some((way, above)) = self.way_of(number) {
                let lacks = self.fetches.get(number).lacks;
                let flow =
                    self.flows.start(self.now, lacks, &way, above, Tag::Fetch(number).number());
                let fetch = self.fetches.get_mut(number);
                fetch.flow = Some(flow);
                asked.extend(fetch.waiting.drain(..).rev());
            }
        }
    }

    /// The links that the bytes of a fetch pass, and the flow that they are relayed from, if any.
    /// `None` if the fetch has to wait for its source, ends at once, or asks the next source.
    fn way_of(&mut self, number: u32) -> Option<(SmallVec<[LinkId; 6]>, Option<FlowId>)> {
        let Fetch { by, object, from, asked, .. } = *self.fetches.get(number);
        let to = &self.executors[by as usize].links;
        // Under first-available, tasks read inputs at their source and nothing is written.
        let disk_write = to.disk_write.filter(|_| self.caches);
        let shared = [self.bisection, Some(to.card_in), disk_write].into_iter().flatten();
        let mut way: SmallVec<[LinkId; 6]> = shared.collect();
        let (executor, is_relay) = match from {
            Source::Peer { executor, is_relay } => (executor, is_relay),
            Source::Storage => {
                way.extend([Some(self.storage), to.client].into_iter().flatten());
                return Some((way, None));
            }
            Source::Here => {
                self.fetched(number);
                return None;
            }
        };
        let Some(giver) = self.executors.get_mut(executor) else {
            self.ask_next(number);
            return None;
        };
        way.push(giver.links.card_out);
        match giver.replicas.get(&object).copied() {
            Some(Replica::Whole) => {
                way.extend(giver.links.disk_read.filter(|_| !giver.pages.touch(object)));
                return Some((way, None));
            }
            Some(Replica::Partial(above))
                if !self.fetches.is_above(number, &self.executors, above) =>
            {
                let above = self.fetches.get_mut(above);
                match above.flow {
                    Some(flow) => return Some((way, Some(flow))),
                    None => above.waiting.push(number),
                }
            }
            None if is_relay => {
                self.fetches.expecting.entry((executor, object)).or_default().push(number);
                self.events.schedule(
                    self.now + RELAY_TIMEOUT,
                    SimEvent::RelayTimeout { fetch: number, asked },
                );
            }
            _ => self.ask_next(number),
        }
        None
    }

    /// Ends the fetches of an executor that is gone. If its node no longer `serves`, fetches from
    /// that node get the missing bytes from other sources.
    pub(super) fn end_fetches_of(&mut self, gone: u32, serves: bool) {
        // The request may have gone to an earlier executor of that node.
        let machine = self.membership.machine_of(gone);
        let (mut ended, mut halted, mut orphans) = (BTreeSet::new(), Vec::new(), Vec::new());
        for number in 0..self.fetches.fetches.len() as u32 {
            let Some(fetch) = &mut self.fetches.fetches[number as usize] else { continue };
            if fetch.by == gone {
                ended.insert(number);
                orphans.append(&mut fetch.waiting);
            }
            let is_from_there = |of: u32| self.membership.machine_of(of) == machine;
            let is_cut = match fetch.from {
                Source::Peer { executor, .. } => !serves && is_from_there(executor),
                _ => false,
            };
            if fetch.by == gone || is_cut {
                self.halt(number, &mut halted);
            }
        }
        if ended.is_empty() && halted.is_empty() {
            return;
        }
        self.fetches.expecting.retain(|_, expecting| {
            expecting.retain(|other| !ended.contains(other));
            !expecting.is_empty()
        });
        for fetch in self.fetches.fetches.iter_mut().flatten() {
            fetch.waiting.retain(|other| !ended.contains(other));
        }
        ended.iter().for_each(|number| _ = self.fetches.remove(*number));
        halted.extend(orphans);
        halted
            .into_iter()
            .filter(|number| !ended.contains(number))
            .for_each(|number| self.asked(number));
    }

    /// Stops the flow of a fetch and of all fetches that are relayed from it.
    fn halt(&mut self, number: u32, halted: &mut Vec<u32>) {
        let mut to_stop: Vec<_> = self
            .fetches
            .get_mut(number)
            .flow
            .take()
            .map(|flow| (number, flow))
            .into_iter()
            .collect();
        let mut place = 0;
        while let Some((_, flow)) = to_stop.get(place).copied() {
            for below in self.flows.below(flow) {
                if let Tag::Fetch(number) = Tag::of(self.flows.tag(*below)) {
                    self.fetches.get_mut(number).flow = None;
                    to_stop.push((number, *below));
                }
            }
            place += 1;
        }
        // Relayed flows are stopped before the flow above.
        for (number, flow) in to_stop.into_iter().rev() {
            self.fetches.get_mut(number).lacks = self.flows.stop(self.now, flow);
            halted.push(number);
        }
    }

    /// All sources of a kept object have failed.
    pub(super) fn fetch_fails(&mut self, number: u32, asked: u32) {
        if self.fetches.fetches[number as usize].as_ref().is_none_or(|fetch| fetch.asked != asked) {
            return;
        }
        let Fetch { by, id, object, waiting, .. } = self.fetches.remove(number);
        let size_bytes = self.workload.size_bytes(object);
        self.executors[by as usize].unstore(object, size_bytes);
        // Fetches that were to be relayed from this one look elsewhere.
        waiting.into_iter().for_each(|other| self.asked(other));
        self.tell_node(by, Event::FetchFailed { object: id, failure: FetchFailure::Unavailable });
    }

    /// The peer has not received the object in time.
    pub(super) fn relay_timed_out(&mut self, number: u32, asked: u32) {
        let Some(fetch) = &self.fetches.fetches[number as usize] else { return };
        let Source::Peer { executor, .. } = fetch.from else { return };
        let expecting = self.fetches.expecting.get_mut(&(executor, fetch.object));
        // Otherwise the number belongs to another fetch by now, another source is asked, or the
        // bytes flow.
        if let Some(expecting) = expecting
            && fetch.asked == asked
            && expecting.contains(&number)
        {
            expecting.retain(|other| *other != number);
            self.ask_next(number);
        }
    }

    pub(super) fn fetched(&mut self, number: u32) {
        let Fetch { by, id, object, is_for_task, began, from, .. } = self.fetches.remove(number);
        let bytes = self.workload.size_bytes(object);
        let loads = is_for_task.then_some(&mut self.outcome.loads);
        let took_us = (self.now - began) / MICROSECOND;
        let from = match from {
            Source::Peer { .. } => {
                self.outcome.peer_bytes += bytes;
                loads.into_iter().for_each(|loads| loads.peer.add(bytes));
                Origin::Peer
            }
            Source::Storage => {
                self.outcome.storage_bytes += bytes;
                loads.into_iter().for_each(|loads| loads.persistent.add(bytes));
                Origin::Persistent
            }
            Source::Here => Origin::Local,
        };
        self.say(Fact::Fetched {
            executor: by,
            object,
            from,
            took_us: took_us.try_into().unwrap_or(u32::MAX),
        });
        if self.caches {
            let executor = &mut self.executors[by as usize];
            executor.replicas.insert(object, Replica::Whole);
            executor.pages.touch(object);
            self.say(Fact::Stored { executor: by, object });
        }
        self.tell_node(by, Event::Fetched { object: id, from, took_us });
    }
}
