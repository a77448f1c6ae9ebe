//! Finding the task for an executor: the paper's figure 5 by an index instead of a scan.
//!
//! Figure 5 walks the window of the queue and scores each task by the share of its bytes that the
//! executor holds. A task that is held entirely is taken at once, otherwise the best of the window.
//! Only tasks that want something the executor holds can score, and those are in the waiting lists
//! of its objects. So each list entry is read once: a full hit is taken, a partial hit is
//! remembered with its share, and later decisions go on from there. A remembered share is checked
//! before the task is taken, because objects may have been evicted since.
//!
//! The window `W` bounds the entries read in one decision, as in the paper; the next decision goes
//! on beyond it.
//!
//! The cost of a decision is the number of cache lines that it reads for the first time. So entries
//! are read in batches, so that their misses overlap, and the entry of a task with two inputs names
//! the other input: the task itself is read only if it is held entirely, or if the executor does
//! not remember enough better tasks.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::state::{
    ExecutorKey, LocalShare, ObjectKey, PartialHit, PlacementLevel, ReadAhead, SchedulerState,
    TaskKey, Ticket, WaitingTask,
};

/// Entries of a waiting list that are read before any is processed, so that their cache misses
/// overlap; fewer at first, because a full hit ends the search.
const LOOKS_AT_ONCE: usize = 16;
const LOOKS_AT_FIRST: usize = 4;
/// Lists of up to this many holders are compared one by one.
const FEW_HOLDERS: usize = 32;
/// A task with more inputs is met in many lists by one search, which scores it once.
const FEW_INPUTS: usize = if cfg!(test) { 1 } else { 16 };
/// Parked holders whose shares of a new task are compared.
const HOLDER_LOOKS: usize = 256;

/// What an executor looks for.
#[derive(Clone, Copy)]
pub(super) struct TaskSearch {
    pub executor: ExecutorKey,
    pub level: PlacementLevel,
    /// The lowest priority.
    pub floor: i32,
    /// The most turns by which a partial hit is set back behind others of the same share.
    pub window: u32,
}

/// The next waiting task that the executor holds entirely and has room for. Reads up to `looks`
/// entries; partial hits met on the way are remembered.
pub(super) fn next_full_hit(
    state: &mut SchedulerState,
    search: TaskSearch,
    looks: &mut u64,
) -> Option<TaskKey> {
    let TaskSearch { executor, level, floor, window } = search;
    let takes_any = takes_any(state, executor);
    let mut read_ahead = ReadAhead::default();
    let mut scored = BTreeSet::new();
    while let Some((object, start)) = state.next_to_search(executor, &mut read_ahead) {
        let mut index = start;
        let mut met = [None; LOOKS_AT_ONCE];
        let mut at_once = LOOKS_AT_FIRST;
        loop {
            let entries = state.catalog[object].waiting.len() - index;
            let count = entries.min(at_once).min(usize::try_from(*looks).unwrap_or(usize::MAX));
            if count == 0 {
                break;
            }
            read_batch(state, search, object, index, takes_any, &mut met[..count]);
            for met in &met[..count] {
                index += 1;
                let mut is_again =
                    |task| state.inputs(task).len() > FEW_INPUTS && !scored.insert(task);
                if met.is_some_and(|ticket| is_again(ticket.task)) {
                    continue;
                }
                *looks -= 1;
                let Some(ticket) = *met else { continue };
                let share = state.share_held(ticket.task, executor);
                if share.is_full()
                    && is_from(state, ticket.task, floor)
                    && state.may_take(executor, ticket.task, level)
                {
                    state.note_searched(executor, object, ticket.turn);
                    return Some(ticket.task);
                }
                if !share.is_none() && state.may_ever_take(executor, ticket.task) {
                    let missing = state.missing_input(ticket.task, executor);
                    let hit = PartialHit::new(share, ticket, executor, missing, window);
                    state.executors.partial_hits_mut(executor).remember(hit);
                }
            }
            at_once = LOOKS_AT_ONCE;
        }
        if index > start {
            let last = state.catalog[object].waiting.turn_at(index - 1);
            state.note_searched(executor, object, last);
        }
        if index < state.catalog[object].waiting.len() {
            return None;
        }
        state.finish_search(executor, object);
    }
    None
}

/// Reads entries of a waiting list from `index` on. Those that still have to be processed are put
/// into `met`.
fn read_batch(
    state: &mut SchedulerState,
    search: TaskSearch,
    object: ObjectKey,
    index: usize,
    takes_any: bool,
    met: &mut [Option<Ticket>],
) {
    let SchedulerState { queue, catalog, executors, .. } = state;
    let weight = catalog.weight(object);
    let entries = catalog[object].waiting.range(index..index + met.len());
    for (met, entry) in met.iter_mut().zip(entries) {
        let WaitingTask { ticket, other } = *entry;
        let is_half_held =
            other != ObjectKey::NONE && !executors[search.executor].replicas.contains_key(&other);
        let is_settled = is_half_held && {
            let share = LocalShare::partial(weight, weight + catalog.weight(other));
            let hits = executors.partial_hits_mut(search.executor);
            // Most are outdone, whatever they lack.
            let hit = || PartialHit::new(share, ticket, search.executor, other, search.window);
            if hits.is_outdone_at_best(share, ticket.turn) || hits.is_outdone(&hit()) {
                if !hits.has_forgotten() && queue.is_waiting(ticket) {
                    hits.note_forgotten();
                }
                true
            } else {
                // Whether the task still waits is asked when it is the best.
                if takes_any {
                    hits.remember(hit());
                }
                takes_any
            }
        };
        *met = (!is_settled && queue.is_waiting(ticket)).then_some(ticket);
    }
}

/// The waiting task of which the executor holds the largest share, as far as searched, of those
/// that it `may_have`.
pub(super) fn best_partial_hit(
    state: &mut SchedulerState,
    search: TaskSearch,
    may_have: impl Fn(&SchedulerState, TaskKey) -> bool,
) -> Option<TaskKey> {
    let TaskSearch { executor, level, floor, window } = search;
    let mut put_back = Vec::new();
    let mut found = None;
    while let Some(hit) = state.executors.partial_hits_mut(executor).pop() {
        let task = hit.ticket.task;
        if !state.queue.is_waiting(hit.ticket) {
            continue;
        }
        let share = state.share_held(task, executor);
        if share != hit.share {
            if !share.is_none() {
                let missing = state.missing_input(task, executor);
                let hit = PartialHit::new(share, hit.ticket, executor, missing, window);
                state.executors.partial_hits_mut(executor).remember(hit);
            }
            continue;
        }
        if is_from(state, task, floor)
            && state.may_take(executor, task, level)
            && may_have(state, task)
        {
            found = Some(task);
            break;
        }
        put_back.push(hit);
    }
    if found.is_none()
        && put_back.is_empty()
        && state.executors.partial_hits_mut(executor).has_forgotten()
    {
        state.search_again(executor);
    }
    for hit in put_back.into_iter().rev() {
        state.executors.partial_hits_mut(executor).remember(hit);
    }
    found
}

/// Whether another executor, which could take the task, holds more of it than `executor`.
pub(super) fn is_outdone(state: &SchedulerState, task: TaskKey, executor: ExecutorKey) -> bool {
    let SchedulerState { catalog, executors, .. } = state;
    let replicas = &executors[executor].replicas;
    let placed = || state.queue[task].inputs.placed(catalog);
    let mut inputs: Vec<_> = placed().collect();
    let weight_where = |is_held: &dyn Fn(ObjectKey) -> bool| {
        placed().filter(|input| is_held(input.object)).map(|input| input.weight()).sum::<u64>()
    };
    let local = weight_where(&|input| replicas.contains_key(&input));
    // An executor that holds only some inputs holds no more than their weight. So the holders of
    // inputs that together weigh no more than `local` need no look; those with the most holders are
    // left out first. For example a task has inputs of 60, 30 and 10 MB. The executor holds that of
    // 60 MB, and so do most others: only the holders of the other two inputs are compared.
    let mut may_leave_out = local;
    // Holders of one of many inputs mostly hold others too.
    let mut compared = BTreeSet::new();
    inputs.sort_unstable_by_key(|input| Reverse(catalog[input.object].holders.len()));
    inputs.iter().any(|input| {
        if input.weight() <= may_leave_out {
            may_leave_out -= input.weight();
            return false;
        }
        catalog[input.object].holders.iter().any(|holder| {
            if inputs.len() > FEW_INPUTS && !compared.insert(*holder) {
                return false;
            }
            // A short list of holders is read sooner than another executor's table.
            let is_held = |input: ObjectKey| match &catalog[input].holders[..] {
                holders if holders.len() <= FEW_HOLDERS => holders.contains(holder),
                _ => executors[*holder].replicas.contains_key(&input),
            };
            weight_where(&is_held) > local
                && state.may_ever_take(*holder, task)
                && state.suits(*holder, task)
        })
    })
}

/// Whether the executor could take every waiting task, as far as that shows without reading them.
fn takes_any(state: &SchedulerState, executor: ExecutorKey) -> bool {
    let SchedulerState { queue, executors, .. } = state;
    let is_large_enough = |class| executors[executor].is_large_enough(queue.need(class));
    queue.is_none_refused() && queue.only_class().is_some_and(is_large_enough)
}

fn is_from(state: &SchedulerState, task: TaskKey, floor: i32) -> bool {
    state.queue.priority(state.queue[task].class) >= floor
}

/// Figure 4: of the executors parked at `level`, the one that holds the largest share of the task's
/// inputs, among [`HOLDER_LOOKS`] of them.
pub(super) fn best_parked_holder(
    state: &SchedulerState,
    task: TaskKey,
    level: PlacementLevel,
) -> Option<(ExecutorKey, LocalShare)> {
    let SchedulerState { catalog, executors, .. } = state;
    let parked = executors.parked(level);
    let mut holders_of: Vec<_> =
        state.inputs(task).iter().map(|input| &catalog[*input].holders).collect();
    let best = |candidates: &mut dyn Iterator<Item = ExecutorKey>| {
        let mut best: Option<(ExecutorKey, LocalShare)> = None;
        for executor in candidates.take(HOLDER_LOOKS) {
            let share = state.share_held(task, executor);
            let most = best.map_or(LocalShare::NONE, |(_, most)| most);
            if share > most && state.may_take(executor, task, level) {
                best = Some((executor, share));
            }
            if best.is_some_and(|(_, most)| most.is_full()) {
                break;
            }
        }
        best
    };
    if parked.len() <= HOLDER_LOOKS
        && parked.len() < holders_of.iter().map(|holders| holders.len()).sum()
    {
        return best(&mut parked.into_iter());
    }
    // An executor that holds an object with few holders is likelier to hold the rest too.
    holders_of.sort_by_key(|holders| holders.len());
    let holders = holders_of.into_iter().flatten().copied();
    best(&mut holders.filter(|executor| executors.is_parked(*executor, level)))
}
