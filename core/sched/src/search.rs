//! Finding the task for an executor: the paper's figure 5 by index instead of by scan.
//!
//! Figure 5 walks the window of the queue and scores each task by the share of its bytes that the executor holds;
//! one that is held entirely is taken at once, else the best of the window. Only tasks that want something the
//! executor holds can score, and those are in the waiting lists of its objects. So an executor keeps, of each held
//! object, how far it has searched that object's list. Each list entry is looked at once: a full hit is taken, a
//! partial one is remembered with its share, and later decisions go on from there. What changes a score starts a
//! new look: a stored object is searched from the beginning, a task that joins the queue alerts the holders of its
//! inputs, an evicted object is noticed when the remembered share is checked.
//!
//! The window `W` bounds the entries looked at in one decision, as in the paper; what lies beyond is looked at in the
//! next one.
//!
//! What a decision costs is the cache lines it reads for the first time. So entries are read in batches, that their
//! misses overlap, and say of a task with two inputs which the other is: the task itself is only read if it is held
//! whole, or if the executor remembers no better ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::catalog::{Catalog, ObjectKey, Wait};
use crate::choosy::suits;
use crate::executors::{Executor, ExecutorKey, Executors, Held, Level};
use crate::partial::Hit;
use crate::queue::{Queue, TaskKey};

/// The share of a task whose inputs the executor holds entirely.
pub(crate) const FULL: u16 = u16::MAX;
/// A waiting list that is searched after shorter ones.
const LONG_LIST: usize = 1024;
/// Entries of a waiting list that are read before they are looked at, so that their cache misses overlap; fewer at
/// first, because a full hit ends the search.
const LOOKS_AT_ONCE: usize = 16;
const LOOKS_AT_FIRST: usize = 4;
/// Objects to search of which the first lines are read together; one at first.
const OBJECTS_AT_ONCE: usize = 8;
/// So many holders that each is compared.
const FEW_HOLDERS: usize = 32;
/// Parked holders whose shares of a newcomer are compared.
const HOLDER_LOOKS: usize = 256;

/// The share of the task's input bytes that the executor holds: 0 for none, [`FULL`] for all.
pub(crate) fn share_held(
    queue: &Queue,
    catalog: &Catalog,
    executors: &Executors,
    task: TaskKey,
    by: ExecutorKey,
) -> u16 {
    let held = &executors[by].held;
    share_where(queue, catalog, task, |input| held.contains_key(&input))
}

fn share_where(queue: &Queue, catalog: &Catalog, task: TaskKey, is_held: impl Fn(ObjectKey) -> bool) -> u16 {
    let inputs = queue[task].inputs.as_slice();
    if let [only] = inputs {
        return if is_held(*only) { FULL } else { 0 };
    }
    let (mut local, mut all, mut missing) = (0u64, 0u64, false);
    for input in inputs {
        let bytes = catalog.weight(*input);
        all += bytes;
        if is_held(*input) {
            local += bytes;
        } else {
            missing = true;
        }
    }
    match (local, missing) {
        (0, _) => 0,
        (_, false) => FULL,
        _ => part(local, all),
    }
}

/// The share of some, not all: at least 1 and less than [`FULL`].
fn part(local: u64, all: u64) -> u16 {
    let most = u64::from(FULL - 1);
    // Division of 128 bits is slow, and products of fewer than 2^48 bytes need none.
    let share = if local < 1 << 48 {
        local * most / all
    } else {
        (u128::from(local) * u128::from(most) / u128::from(all)) as u64
    };
    (share as u16).max(1)
}

/// Who looks for what.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub by: ExecutorKey,
    pub level: Level,
    /// The least priority.
    pub floor: i32,
    /// By how much an older task may be set back, of such of which as much is held.
    pub window: u32,
}

/// The next waiting task that the executor holds entirely and has room for. Looks at no more than `looks` entries;
/// partial hits met on the way are remembered.
pub(crate) fn next_full_hit(
    queue: &Queue,
    catalog: &mut Catalog,
    executors: &mut Executors,
    look: Look,
    looks: &mut u64,
) -> Option<TaskKey> {
    let Look { by, level, floor, window } = look;
    let takes_any = takes_any(queue, &executors[by]);
    let (mut ahead, mut at_once) = (0, 1);
    while let Some((object, was_put_off)) = executors[by].to_search.first() {
        if ahead == 0 {
            read_ahead(catalog, &executors[by], at_once);
            (ahead, at_once) = (at_once, (2 * at_once).min(OBJECTS_AT_ONCE));
        }
        ahead -= 1;
        // It may have been evicted since, or be on the list twice because it was stored again.
        let Some(Held { alerted: true, list, cursor, .. }) = executors[by].held.get(&object) else {
            executors[by].to_search.pop();
            continue;
        };
        if !was_put_off && catalog[object].waiting.len() > LONG_LIST {
            executors[by].to_search.put_off();
            continue;
        }
        let start = if *list == catalog[object].list {
            first_after(*cursor, &catalog[object].waiting)
        } else {
            catalog.tidy(object, |ticket| queue.is_waiting(ticket));
            0
        };
        let mut place = start;
        let mut met = [None; LOOKS_AT_ONCE];
        let mut at_once = LOOKS_AT_FIRST;
        loop {
            let entries = catalog[object].waiting.len() - place;
            let count = entries.min(at_once).min(usize::try_from(*looks).unwrap_or(usize::MAX));
            if count == 0 {
                break;
            }
            for (met, wait) in met.iter_mut().zip(catalog[object].waiting.range(place..place + count)) {
                let is_settled = settle_half_held(queue, catalog, executors, look, object, wait, takes_any);
                *met = (!is_settled && queue.is_waiting(wait.ticket)).then_some(wait.ticket);
            }
            for met in &met[..count] {
                *looks -= 1;
                place += 1;
                let Some(ticket) = *met else { continue };
                let share = share_held(queue, catalog, executors, ticket.task, by);
                if share == FULL
                    && is_from(queue, ticket.task, floor)
                    && may_take(queue, catalog, executors, by, ticket.task, level)
                {
                    set_cursor(catalog, executors, by, object, ticket.turn);
                    return Some(ticket.task);
                }
                if share > 0 && may_ever_take(queue, executors, by, ticket.task) {
                    let hit = Hit::new(share, ticket, by, missing(queue, executors, ticket.task, by), window);
                    executors[by].partial.remember(hit);
                }
            }
            at_once = LOOKS_AT_ONCE;
        }
        if place > start {
            let last = catalog[object].waiting[place - 1].ticket;
            set_cursor(catalog, executors, by, object, last.turn);
        }
        if place < catalog[object].waiting.len() {
            return None;
        }
        executors[by].to_search.pop();
        let held = executors[by].held.get_mut(&object).expect("held: it was looked up above");
        held.alerted = false;
        catalog[object].to_tell.push(by);
    }
    None
}

/// Reads of each of the objects to search next what the search begins with, so that their cache misses overlap.
fn read_ahead(catalog: &Catalog, executor: &Executor, count: usize) {
    let upcoming = executor.to_search.upcoming().take(count);
    let newest = upcoming.map(|object| {
        let held = executor.held.get(&object).map_or(0, |held| held.cursor);
        catalog[object].waiting.back().map_or(0, |wait| wait.ticket.turn) ^ held
    });
    core::hint::black_box(newest.fold(0, |all, one| all ^ one));
}

/// Passes or remembers a task if it shows without a look at it that the executor holds one of its two inputs: passed
/// if it knows enough better ones, remembered at once if it `takes_any`. Whether the task still waits is asked when
/// it is the best.
fn settle_half_held(
    queue: &Queue,
    catalog: &Catalog,
    executors: &mut Executors,
    look: Look,
    object: ObjectKey,
    wait: &Wait,
    takes_any: bool,
) -> bool {
    let Wait { ticket, other } = *wait;
    let executor = &mut executors[look.by];
    if other == ObjectKey::NONE || executor.held.contains_key(&other) {
        return false;
    }
    let local = catalog.weight(object);
    let share = part(local, local + catalog.weight(other));
    let partial = &executor.partial;
    // Most are outdone without a look at what they lack.
    let hit = || Hit::new(share, ticket, look.by, other, look.window);
    if partial.is_outdone_at_best(share, ticket.turn) || partial.is_outdone(&hit()) {
        executor.partial.has_forgotten = executor.partial.has_forgotten || queue.is_waiting(ticket);
        return true;
    }
    if takes_any {
        executor.partial.remember(hit());
    }
    takes_any
}

/// The first input of a task that the executor lacks.
fn missing(queue: &Queue, executors: &Executors, task: TaskKey, by: ExecutorKey) -> ObjectKey {
    let mut inputs = queue[task].inputs.as_slice().iter();
    inputs.find(|input| !executors[by].held.contains_key(*input)).copied().unwrap_or(ObjectKey::NONE)
}

/// The place of the first entry that joined after the turn `cursor`. Looks from the back, in growing steps: most often
/// only a few have joined since.
fn first_after(cursor: u32, waiting: &VecDeque<Wait>) -> usize {
    let joined_after = |place: usize| waiting[place].ticket.turn.wrapping_sub(cursor) as i32 > 0;
    let (mut first, mut last, mut step) = (0, waiting.len(), 1);
    while first < last {
        // All from `last` on joined after, all before `first` did not.
        let place = last.saturating_sub(step).max(first);
        if joined_after(place) {
            last = place;
            step *= 2;
        } else {
            first = place + 1;
            step = (last - first).div_ceil(2);
        }
    }
    first
}

fn set_cursor(catalog: &Catalog, executors: &mut Executors, by: ExecutorKey, object: ObjectKey, turn: u32) {
    if let Some(held) = executors[by].held.get_mut(&object) {
        held.cursor = turn;
        held.list = catalog[object].list;
    }
}

/// The waiting task of which the executor holds the largest share, as far as searched, of those that it `may_have`.
pub(crate) fn best_partial_hit(
    queue: &Queue,
    catalog: &mut Catalog,
    executors: &mut Executors,
    Look { by, level, floor, window }: Look,
    may_have: impl Fn(&Queue, &Catalog, &Executors, TaskKey) -> bool,
) -> Option<TaskKey> {
    let mut put_back = Vec::new();
    let mut found = None;
    while let Some(hit) = executors[by].partial.pop() {
        let task = hit.ticket.task;
        if !queue.is_waiting(hit.ticket) {
            continue;
        }
        let now = share_held(queue, catalog, executors, task, by);
        if now != hit.share {
            if now > 0 {
                let hit = Hit::new(now, hit.ticket, by, missing(queue, executors, task, by), window);
                executors[by].partial.remember(hit);
            }
            continue;
        }
        let fits = is_from(queue, task, floor) && may_take(queue, catalog, executors, by, task, level);
        if fits && may_have(queue, catalog, executors, task) {
            found = Some(task);
            break;
        }
        put_back.push(hit);
    }
    if found.is_none() && put_back.is_empty() && executors[by].partial.has_forgotten {
        search_again(catalog, executors, by);
    }
    for hit in put_back.into_iter().rev() {
        executors[by].partial.remember(hit);
    }
    found
}

/// Forgets how far the executor has searched; needed when it had more partial hits than it could remember, or passed
/// tasks that it may take now.
pub(crate) fn search_again(catalog: &mut Catalog, executors: &mut Executors, by: ExecutorKey) {
    let executor = &mut executors[by];
    executor.partial.has_forgotten = false;
    let mut again = Vec::new();
    for (object, held) in executor.held.iter_mut().filter(|(object, _)| catalog[**object].wanted > 0) {
        held.list = 0;
        if !core::mem::replace(&mut held.alerted, true) {
            again.push(*object);
        }
    }
    again.sort_unstable();
    for object in again {
        catalog[object].tell_no_more(by);
        executor.to_search.push(object);
    }
}

/// Whether anybody holds more of the task than `by`.
pub(crate) fn someone_holds_more(
    queue: &Queue,
    catalog: &Catalog,
    executors: &Executors,
    task: TaskKey,
    by: ExecutorKey,
) -> bool {
    let held = &executors[by].held;
    let mut inputs: Vec<_> = queue[task].inputs.as_slice().into();
    let weight_where = |is_held: &dyn Fn(ObjectKey) -> bool| {
        let weights = queue[task].inputs.as_slice().iter().filter(|input| is_held(**input));
        weights.map(|input| catalog.weight(*input)).sum::<u64>()
    };
    let local = weight_where(&|input| held.contains_key(&input));
    // Who holds of some inputs only does not hold more than those weigh. So the holders of inputs that together weigh
    // no more than what `by` holds need no look; those that the most executors hold are left out first.
    let mut may_leave_out = local;
    inputs.sort_unstable_by_key(|input| Reverse(catalog[*input].holders.len()));
    inputs.iter().any(|input| {
        if catalog.weight(*input) <= may_leave_out {
            may_leave_out -= catalog.weight(*input);
            return false;
        }
        catalog[*input].holders.iter().any(|holder| {
            // A short list of holders is read sooner than another executor's table.
            let is_held = |input: ObjectKey| match &catalog[input].holders[..] {
                holders if holders.len() <= FEW_HOLDERS => holders.contains(holder),
                _ => executors[*holder].held.contains_key(&input),
            };
            weight_where(&is_held) > local
                && may_ever_take(queue, executors, *holder, task)
                && suits(queue, catalog, executors, *holder, task)
        })
    })
}

/// Whether the executor is large enough for the task and has not refused it.
pub(crate) fn may_ever_take(queue: &Queue, executors: &Executors, by: ExecutorKey, task: TaskKey) -> bool {
    let executor = &executors[by];
    executor.takes_tasks() && executor.is_large_enough(queue.need(queue[task].class)) && !has_refused(queue, by, task)
}

/// Whether there is no task that the executor is too small for or has refused, as far as shows without a look at it.
fn takes_any(queue: &Queue, executor: &Executor) -> bool {
    queue.refusals.is_empty() && queue.only_class().is_some_and(|class| executor.is_large_enough(queue.need(class)))
}

fn is_from(queue: &Queue, task: TaskKey, floor: i32) -> bool {
    queue.priority(queue[task].class) >= floor
}

/// Whether the executor has room for the task, has not refused it, and suits it.
pub(crate) fn may_take(
    queue: &Queue,
    catalog: &Catalog,
    executors: &Executors,
    by: ExecutorKey,
    task: TaskKey,
    level: Level,
) -> bool {
    executors[by].has_room(queue.need(queue[task].class), level)
        && !has_refused(queue, by, task)
        && suits(queue, catalog, executors, by, task)
}

pub(crate) fn has_refused(queue: &Queue, by: ExecutorKey, task: TaskKey) -> bool {
    queue[task].was_refused && queue.refusals.get(&task).is_some_and(|refusals| refusals.contains(&by))
}

/// Figure 4: of the executors parked at `level`, the one that holds the largest share of the task's inputs, as far as
/// [`HOLDER_LOOKS`] go.
pub(crate) fn best_parked_holder(
    queue: &Queue,
    catalog: &Catalog,
    executors: &Executors,
    task: TaskKey,
    level: Level,
) -> Option<(ExecutorKey, u16)> {
    let parked = executors.parked(level);
    let mut inputs: Vec<_> = queue[task].inputs.as_slice().iter().map(|input| &catalog[*input].holders).collect();
    let best = |candidates: &mut dyn Iterator<Item = ExecutorKey>| {
        let mut best: Option<(ExecutorKey, u16)> = None;
        for by in candidates.take(HOLDER_LOOKS) {
            let share = share_held(queue, catalog, executors, task, by);
            if share > best.map_or(0, |(_, most)| most) && may_take(queue, catalog, executors, by, task, level) {
                best = Some((by, share));
            }
            if best.is_some_and(|(_, most)| most == FULL) {
                break;
            }
        }
        best
    };
    if parked.len() <= HOLDER_LOOKS && parked.len() < inputs.iter().map(|holders| holders.len()).sum() {
        return best(&mut parked.into_iter());
    }
    // Who holds what few hold is likelier to hold the rest too.
    inputs.sort_by_key(|holders| holders.len());
    let holders = inputs.into_iter().flatten().copied();
    best(&mut holders.filter(|by| executors.is_parked(*by, level)))
}
