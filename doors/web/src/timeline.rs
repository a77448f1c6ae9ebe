//! Tasks of a job on the slots of executors over time: staging, computing and delivering. A slot
//! without a task is waste, which a picture of this shows at a glance.
//!
//! The dispatcher tells a task's executor and times, and no slot. So tasks of an executor are laid
//! on as few slots as they need, each where the slot was free for the shortest time before it. On a
//! slot, staging is drawn from the end of the task before: until then, the inputs of a task were
//! fetched while the slot computed.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The times with tasks are told apart if this part of the job's time is between them.
const BUSY_PARTS: u64 = 1000;

/// What has become of a task on a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarState {
    Succeeded,
    Failed,
    Cancelled,
    /// At its executor, staging or computing.
    Open,
}

/// A task on a slot. All times are of the job, microseconds, and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskBar {
    pub index: u32,
    /// Position of the executor in the timeline.
    pub executor: u32,
    /// Slot of the executor, from 0.
    pub slot: u32,
    pub state: BarState,
    /// Whether the beginning is estimated, because the dispatcher does not tell it.
    pub is_estimated: bool,
    pub staged_us: u64,
    pub started_us: u64,
    pub ended_us: u64,
    pub delivered_us: u64,
}

/// A task at an executor, which has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenTask {
    pub index: u32,
    pub executor: u32,
    /// A time at which it was not at an executor.
    pub after_us: u64,
}

/// An executor with its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimelineExecutor {
    pub name: String,
    pub slots: u32,
}

/// The tasks of a job on the slots of executors.
pub(crate) struct Timeline {
    /// In the order of their names.
    pub executors: Vec<TimelineExecutor>,
    /// By executor, then by start.
    pub bars: Vec<TaskBar>,
    /// The job's time now, or at its end.
    pub end_us: u64,
    /// Times with tasks, in order. Those with little time between them are one.
    pub busy: Vec<(u64, u64)>,
}

impl Timeline {
    /// Lays tasks on slots. An executor has at least the slots that are given.
    pub fn of(
        executors: Vec<TimelineExecutor>,
        ended: Vec<TaskBar>,
        open: Vec<OpenTask>,
        end_us: u64,
    ) -> Self {
        let mut timeline = Timeline { executors, bars: ended, end_us, busy: Vec::new() };
        let open = timeline.sort_executors(open);
        timeline.lay_out(&open);
        timeline.busy = timeline.busy_times();
        timeline
    }

    /// Puts the executors into the order of their names, n2 before n10, and the open tasks into
    /// that of their executors.
    fn sort_executors(&mut self, mut open: Vec<OpenTask>) -> Vec<OpenTask> {
        let mut order: Vec<u32> = (0..self.executors.len() as u32).collect();
        order.sort_by_cached_key(|at| name_parts(&self.executors[*at as usize].name));
        let mut new = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, old)| new[*old as usize] = at as u32);
        self.executors = order.iter().map(|old| self.executors[*old as usize].clone()).collect();
        self.bars.iter_mut().for_each(|bar| bar.executor = new[bar.executor as usize]);
        open.iter_mut().for_each(|task| task.executor = new[task.executor as usize]);
        // Those of an executor stay in their order.
        open.sort_by_key(|task| task.executor);
        open
    }

    /// Lays tasks on slots. The open ones are in the order of their executors.
    fn lay_out(&mut self, open: &[OpenTask]) {
        self.bars.sort_unstable_by_key(|bar| (bar.executor, bar.started_us, bar.index));
        let (mut first, mut opened) = (0, Vec::new());
        let mut open_of = open.chunk_by(|a, b| a.executor == b.executor).peekable();
        for (at, executor) in self.executors.iter_mut().enumerate() {
            let is_own = |bar: &&TaskBar| bar.executor == at as u32;
            let count = self.bars[first..].iter().take_while(is_own).count();
            let slots = lay_ended(&mut self.bars[first..first + count], executor.slots);
            first += count;
            executor.slots = executor.slots.max(slots.last.len() as u32).max(1);
            let own = open_of.next_if(|tasks| tasks[0].executor == at as u32);
            opened.extend(open_bars(slots, executor.slots, own.unwrap_or_default(), self.end_us));
        }
        self.bars.extend(opened);
    }

    fn busy_times(&self) -> Vec<(u64, u64)> {
        let mut times: Vec<_> =
            self.bars.iter().map(|bar| (bar.staged_us, bar.delivered_us)).collect();
        times.sort_unstable();
        let mut busy: Vec<(u64, u64)> = Vec::new();
        for (from, to) in times {
            match busy.last_mut() {
                Some(last) if from <= last.1 + self.end_us / BUSY_PARTS => last.1 = last.1.max(to),
                _ => busy.push((from, to)),
            }
        }
        busy
    }
}

/// The parts of a name, each a text with the number behind it.
fn name_parts(name: &str) -> Vec<(String, u64)> {
    let (mut parts, mut is_in_number) = (vec![(String::new(), 0_u64)], false);
    for c in name.chars() {
        let digit = c.to_digit(10);
        if is_in_number && digit.is_none() {
            parts.push((String::new(), 0));
        }
        is_in_number = digit.is_some();
        if let Some((text, number)) = parts.last_mut() {
            match digit {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(digit.into()),
                None => text.push(c),
            }
        }
    }
    parts
}

/// The slots of one executor while tasks are laid on them.
#[derive(Default)]
struct Slots {
    /// Until when each slot is taken, with its number.
    free_from: BTreeSet<(u64, Reverse<u32>)>,
    /// The last bar of each slot.
    last: Vec<Option<usize>>,
}

impl Slots {
    /// Takes the slot that was free for the shortest time before a bar starts. The bar may be moved
    /// later by up to its delivery: of that, the time of sending the task was before its start. A
    /// bar with an estimated beginning is moved rather than that there are more slots than `count`.
    fn take(&mut self, bar: &mut TaskBar, count: u32) -> u32 {
        let until = (bar.started_us, Reverse(0));
        let free = self.free_from.range(..=until).next_back().copied();
        let soon = self.free_from.first().copied();
        let is_full = bar.is_estimated && self.last.len() >= count as usize;
        let taken = free.or_else(|| soon.filter(|(at, _)| move_to(bar, *at, is_full)));
        match taken {
            Some(slot) => {
                self.free_from.remove(&slot);
                slot.1.0
            }
            None => {
                self.last.push(None);
                self.last.len() as u32 - 1
            }
        }
    }
}

/// Moves a bar to a later start, if its delivery has room for that, or if it has to.
fn move_to(bar: &mut TaskBar, start_us: u64, has_to: bool) -> bool {
    let by = start_us.saturating_sub(bar.started_us);
    if !has_to && bar.ended_us + by > bar.delivered_us {
        return false;
    }
    bar.started_us += by;
    bar.ended_us += by;
    bar.delivered_us = bar.delivered_us.max(bar.ended_us);
    true
}

/// Lays the bars of an executor, which are sorted by start, on slots.
fn lay_ended(bars: &mut [TaskBar], count: u32) -> Slots {
    let mut slots = Slots::default();
    for at in 0..bars.len() {
        let mut bar = bars[at];
        bar.slot = slots.take(&mut bar, count);
        if let Some(before) = slots.last[bar.slot as usize] {
            bar.staged_us = bar.staged_us.max(bars[before].ended_us).min(bar.started_us);
            bars[before].delivered_us = bars[before].delivered_us.min(bar.staged_us);
        }
        slots.last[bar.slot as usize] = Some(at);
        slots.free_from.insert((bar.ended_us, Reverse(bar.slot)));
        bars[at] = bar;
    }
    slots
}

/// Bars of tasks that have not ended: on the slots that are free for the longest time. The others
/// wait at the executor, and are not drawn.
fn open_bars(slots: Slots, count: u32, open: &[OpenTask], end_us: u64) -> Vec<TaskBar> {
    let unused = (slots.last.len() as u32..count).map(|slot| (0, Reverse(slot)));
    let mut free: Vec<(u64, Reverse<u32>)> = unused.chain(slots.free_from).collect();
    free.sort_unstable_by_key(|(at, slot)| (*at, slot.0));
    let bar = |(task, (at, slot)): (&OpenTask, (u64, Reverse<u32>))| {
        let from = at.max(task.after_us).min(end_us);
        TaskBar {
            index: task.index,
            executor: task.executor,
            slot: slot.0,
            state: BarState::Open,
            is_estimated: true,
            staged_us: from,
            started_us: from,
            ended_us: end_us,
            delivered_us: end_us,
        }
    };
    open.iter().zip(free).map(bar).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn executor(name: &str, slots: u32) -> TimelineExecutor {
        TimelineExecutor { name: name.into(), slots }
    }

    /// A bar of an executor with its four times.
    pub(crate) fn bar(index: u32, executor: u32, times: [u64; 4]) -> TaskBar {
        let [staged_us, started_us, ended_us, delivered_us] = times;
        TaskBar {
            index,
            executor,
            slot: 0,
            state: BarState::Succeeded,
            is_estimated: false,
            staged_us,
            started_us,
            ended_us,
            delivered_us,
        }
    }

    fn slots(timeline: &Timeline) -> Vec<(u32, u32, u32)> {
        timeline.bars.iter().map(|bar| (bar.index, bar.executor, bar.slot)).collect()
    }

    #[test]
    fn tasks_take_the_slot_that_was_free_for_the_shortest_time() {
        // Two at once on n2; then one after each, in the order of their ends.
        let tasks = vec![
            bar(0, 0, [0, 10, 50, 60]),
            bar(1, 0, [0, 10, 40, 40]),
            bar(2, 0, [5, 45, 90, 95]),
            bar(3, 0, [5, 55, 80, 80]),
            bar(4, 1, [0, 10, 20, 20]),
        ];
        let executors = vec![executor("n10", 0), executor("n2", 4)];
        let timeline = Timeline::of(executors, tasks, Vec::new(), 100);
        assert_eq!(timeline.executors, [executor("n2", 4), executor("n10", 2)]);
        let n10: Vec<_> = slots(&timeline).into_iter().filter(|(_, at, _)| *at == 1).collect();
        assert_eq!(n10, [(0, 1, 0), (1, 1, 1), (2, 1, 1), (3, 1, 0)]);
        let task = |index| timeline.bars.iter().find(|bar| bar.index == index).unwrap();
        // Inputs of the task were fetched while the slot computed: only 40 to 45 is waste.
        assert_eq!((task(2).staged_us, task(2).started_us), (40, 45));
        // The delivery of the task before ends where the staging of the next begins.
        assert_eq!((task(0).delivered_us, task(3).staged_us), (50, 50));
        assert_eq!(timeline.busy, [(0, 95)]);
    }

    #[test]
    fn a_start_is_moved_by_up_to_the_delivery_so_that_no_slot_is_made_up() {
        let tasks = vec![bar(0, 0, [0, 0, 50, 60]), bar(1, 0, [0, 45, 90, 96])];
        let timeline = Timeline::of(vec![executor("n1", 1)], tasks.clone(), Vec::new(), 100);
        assert_eq!(timeline.executors[0].slots, 1);
        assert_eq!((timeline.bars[1].started_us, timeline.bars[1].ended_us), (50, 95));
        let slots = |late: TaskBar| {
            let tasks = vec![tasks[0], late];
            Timeline::of(vec![executor("n1", 1)], tasks, Vec::new(), 100).executors[0].slots
        };
        let early = bar(1, 0, [0, 40, 90, 96]);
        assert_eq!(slots(early), 2);
        assert_eq!(slots(TaskBar { is_estimated: true, ..early }), 1);
    }

    #[test]
    fn open_tasks_are_on_free_slots_since_the_task_before() {
        let tasks = vec![bar(0, 0, [0, 0, 50, 50]), bar(1, 0, [0, 0, 70, 70])];
        let open = |index, after_us| OpenTask { index, executor: 0, after_us };
        // Another executor, which has one slot and runs two, is after it by name.
        let other = |index| OpenTask { executor: 1, ..open(index, 0) };
        let all = [other(3), open(5, 60), open(6, 0), other(4), open(7, 0), open(8, 0)].to_vec();
        let executors = vec![executor("n1", 3), executor("n2", 1)];
        let timeline = Timeline::of(executors, tasks, all, 100);
        let open: Vec<_> = timeline.bars.iter().filter(|bar| bar.state == BarState::Open).collect();
        let drawn: Vec<_> = open.iter().map(|bar| (bar.index, bar.slot, bar.staged_us)).collect();
        // Task 5 was not there at 60; task 8 waits for a slot.
        assert_eq!(drawn, [(5, 2, 60), (6, 0, 50), (7, 1, 70), (3, 0, 0)]);
        assert!(open.iter().all(|bar| bar.ended_us == 100 && bar.is_estimated));
    }

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let mut names = ["n10", "n2", "a", "n2b", "1", "n"];
        names.sort_by_cached_key(|name| name_parts(name));
        assert_eq!(names, ["1", "a", "n", "n2", "n2b", "n10"]);
    }
}
