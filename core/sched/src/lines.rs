//! Lines: where waiting tasks would be done the soonest (`cost` placement).
//!
//! A task that comes to wait lines up at one of those who hold its inputs, or are receiving them: where it would be done
//! first. So it is known how long each of them is still to be busy with what waits for it, not only with what it has
//! been given. An executor goes on finding what it holds by [search](crate::search), whoever's line that is in. What the
//! lines decide is when data moves: who holds less of a task, or nothing, takes it only if it would be done there before
//! its turn comes in its line. As long as fetching takes longer than waiting, tasks wait for their data; when a line is
//! too long for that, idle executors take from its end, and with the tasks come replicas, which shorten it further.
//!
//! Tasks of which nobody holds or receives anything stand in no line; they are [cold](crate::cold).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::ops::Bound;

use eyas_types::Estimate;

use crate::estimate::Estimator;
use crate::executors::{ExecutorKey, Level};
use crate::growth;
use crate::hash::Fixed;
use crate::queue::{Queue, State, TaskKey, Ticket};
use crate::scheduler::Scheduler;
use crate::search;

/// Holders, and receivers, of each input that are compared for a task to line up at: the best of two taken at random
/// leaves lines nearly as even as the best of all does (Mitzenmacher, "The Power of Two Choices", 2001).
const HOME_LOOKS: usize = 2;
/// Lines that are looked at for the longest, in one decision.
const LONGEST_LOOKS: usize = 16;
/// Tasks at the end of a line, or at the beginning, that are looked at in one decision.
const LINE_LOOKS: usize = 8;
/// Entries of tasks that have left which a line may hold beyond as many as live ones.
const STALE_ENTRIES: u32 = 16;

/// All lines.
#[derive(Default)]
pub(crate) struct Lines {
    /// Where each task is lined up, by its place in the queue's table; small, as every decision looks at it.
    homes: Vec<ExecutorKey>,
    /// How long each executor's line is.
    lengths: Vec<Length>,
    /// Each executor's line, oldest first; may name tasks that have left.
    tickets: Vec<VecDeque<Ticket>>,
    /// Executors with a line.
    lined: BTreeSet<ExecutorKey>,
    /// The last whose line was looked at.
    looked_at: Option<ExecutorKey>,
}

#[derive(Clone, Copy, Default)]
struct Length {
    tasks: u32,
    /// Of tasks that stand there, and of such that have left.
    entries: u32,
    /// What part of the executor the tasks ask for together, millionths; see [`Executor::share_of`].
    ///
    /// [`Executor::share_of`]: crate::executors::Executor::share_of
    share: u64,
}

impl Lines {
    /// Where the task is lined up.
    pub fn home(&self, task: TaskKey) -> Option<ExecutorKey> {
        self.homes.get(task.place()).copied().filter(|home| *home != ExecutorKey::NONE)
    }

    /// What part of an executor the tasks lined up there ask for, in millionths.
    pub fn share(&self, home: ExecutorKey) -> u64 {
        self.lengths.get(home.place()).map_or(0, |line| line.share)
    }

    fn join(&mut self, ticket: Ticket, home: ExecutorKey, share: u64) {
        if self.homes.len() <= ticket.task.place() {
            self.homes.resize(ticket.task.place() + 1, ExecutorKey::NONE);
        }
        if self.lengths.len() <= home.place() {
            self.lengths.resize(home.place() + 1, Length::default());
            self.tickets.resize_with(home.place() + 1, VecDeque::new);
        }
        assert_eq!(self.home(ticket.task), None, "a task stands in one line");
        self.homes[ticket.task.place()] = home;
        growth::push_back(&mut self.tickets[home.place()], ticket);
        let line = &mut self.lengths[home.place()];
        line.tasks += 1;
        line.entries += 1;
        line.share += share;
        if line.tasks == 1 {
            self.lined.insert(home);
        }
    }

    /// The task, if it stands in a line, does no more.
    pub fn leave(&mut self, queue: &Queue, task: TaskKey) {
        let Some(home) = self.home(task) else { return };
        self.homes[task.place()] = ExecutorKey::NONE;
        let line = &mut self.lengths[home.place()];
        // The mean of those that stand there, so that no look at the executor is needed.
        line.share -= line.share / u64::from(line.tasks);
        line.tasks -= 1;
        if line.tasks == 0 {
            line.entries = 0;
            self.tickets[home.place()] = VecDeque::new();
            self.lined.remove(&home);
        } else if line.entries > 2 * line.tasks + STALE_ENTRIES {
            let (homes, tickets) = (&self.homes, &mut self.tickets[home.place()]);
            // Most of those that have left show by their homes, without a look at the task.
            tickets.retain(|ticket| homes[ticket.task.place()] == home && queue.is_waiting(*ticket));
            line.entries = line.tasks;
        }
    }

    /// The line of an executor that takes no more is no more; who stood in it.
    pub fn dissolve(&mut self, queue: &Queue, home: ExecutorKey) -> Vec<Ticket> {
        let Some(tickets) = self.tickets.get_mut(home.place()) else { return Vec::new() };
        let mut stood: Vec<_> = core::mem::take(tickets).into();
        stood.retain(|ticket| queue.is_waiting(*ticket) && self.home(ticket.task) == Some(home));
        stood.iter().for_each(|ticket| self.homes[ticket.task.place()] = ExecutorKey::NONE);
        self.lengths[home.place()] = Length::default();
        self.lined.remove(&home);
        stood
    }

    /// Of some lines, another few each time, the one that takes longest. Not that of `but`. `seconds` is told whose it is,
    /// and what part of that it asks for.
    fn longest(&mut self, but: ExecutorKey, seconds: impl Fn(ExecutorKey, u64) -> f64) -> Option<ExecutorKey> {
        let after = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.lined.range((after, Bound::Unbounded)).chain(self.lined.iter());
        let some: Vec<_> = rest.copied().take(LONGEST_LOOKS.min(self.lined.len())).collect();
        self.looked_at = some.last().copied();
        let others = some.into_iter().filter(|home| *home != but);
        let others = others.map(|home| (home, seconds(home, self.share(home))));
        others.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(home, _)| home)
    }

    /// Some tasks of a line, from its end or from its beginning on, which is rid of those that have left.
    fn some(&mut self, queue: &Queue, home: ExecutorKey, is_from_end: bool) -> Vec<TaskKey> {
        let Some(mut tickets) = self.tickets.get_mut(home.place()).map(core::mem::take) else { return Vec::new() };
        let stands = |ticket: &Ticket| self.home(ticket.task) == Some(home) && queue.is_waiting(*ticket);
        while let Some(_left) = match is_from_end {
            true => tickets.pop_back_if(|ticket| !stands(ticket)),
            false => tickets.pop_front_if(|ticket| !stands(ticket)),
        } {}
        let standing = tickets.iter().filter(|ticket| stands(ticket));
        let some: Vec<_> = match is_from_end {
            true => standing.rev().take(LINE_LOOKS).collect(),
            false => standing.take(LINE_LOOKS).collect(),
        };
        let some = some.into_iter().map(|ticket| ticket.task).collect();
        self.lengths[home.place()].entries = tickets.len() as u32;
        self.tickets[home.place()] = tickets;
        some
    }

    #[cfg(test)]
    pub fn validate(&self, queue: &Queue) {
        for (place, (line, tickets)) in self.lengths.iter().zip(&self.tickets).enumerate() {
            let mut stand: Vec<_> = tickets.iter().filter(|ticket| queue.is_waiting(**ticket)).collect();
            stand.retain(|ticket| self.home(ticket.task).is_some_and(|home| home.place() == place));
            assert!(line.tasks > 0 || line.share == 0, "nobody stands there and asks for something");
            assert_eq!((stand.len(), tickets.len()), (line.tasks as usize, line.entries as usize));
        }
        assert_eq!(self.lined.len(), self.lengths.iter().filter(|line| line.tasks > 0).count());
        let homes: Vec<_> = queue.tasks().filter(|(task, _)| self.home(*task).is_some()).collect();
        assert!(homes.iter().all(|(_, task)| task.state == State::Waiting), "only who waits stands in a line");
        assert_eq!(homes.len(), self.lengths.iter().map(|line| line.tasks as usize).sum::<usize>());
    }
}

impl Estimator<'_> {
    /// Where a task is lined up or assigned, and how soon it would be done there if all others there went before it.
    pub fn at_home(&self, lines: &Lines, task: TaskKey) -> Option<(ExecutorKey, Estimate)> {
        let (home, ahead) = match self.queue[task].state {
            State::Assigned { executor, .. } => (executor, self.executors[executor].assigned_share()),
            _ => {
                let home = lines.home(task)?;
                (home, self.executors[home].assigned_share() + lines.share(home))
            }
        };
        let own = self.executors[home].share_of(self.queue.resources(self.queue[task].class));
        Some((home, self.estimate(task, home, ahead.saturating_sub(own))))
    }

    /// Whether the task would be done no later on the executor than where it is lined up or assigned. Of how long a slot
    /// takes to become free nothing is known before a task of the job has ended; until then none is waited for.
    pub fn is_soonest(&self, lines: &Lines, task: TaskKey, by: ExecutorKey) -> bool {
        self.at_home(lines, task).is_none_or(|(home, there)| {
            let here = || self.estimate(task, by, self.executors[by].assigned_share());
            home == by
                || (there.wait_us > 0 && !self.run_times.is_known(self.queue[task].id.job))
                || here().finish_us() <= there.finish_us()
                || !search::may_ever_take(self.queue, self.executors, home, task)
        })
    }
}

impl Scheduler {
    pub(crate) fn estimator(&self) -> Estimator<'_> {
        let Scheduler { queue, catalog, executors, relays, run_times, .. } = self;
        Estimator { queue, catalog, executors, relays, run_times }
    }

    pub(crate) fn is_soonest(&self, task: TaskKey, by: ExecutorKey) -> bool {
        self.estimator().is_soonest(&self.lines, task, by)
    }

    /// Lines a waiting task up where it would be done the soonest, if anybody holds or is receiving one of its inputs who
    /// can ever take it. Whether it stands in a line; if not, it is cold.
    pub(crate) fn line_up(&mut self, ticket: Ticket) -> bool {
        let task = ticket.task;
        if self.queue[task].was_refused {
            return false;
        }
        let Scheduler { queue, catalog, executors, relays, .. } = &*self;
        let can_take = |by: &ExecutorKey| search::may_ever_take(queue, executors, *by, task);
        let mut candidates = Vec::new();
        // Others for each task, so that equals take turns.
        let turn = Fixed.hash_one(ticket.turn) as usize;
        for input in queue[task].inputs.as_slice() {
            let holders = &catalog[*input].holders;
            let (before, after) = holders.split_at(turn % holders.len().max(1));
            candidates.extend(after.iter().chain(before).copied().filter(can_take).take(HOME_LOOKS));
            candidates.extend(relays.receivers(*input).filter(can_take).take(HOME_LOOKS));
        }
        let estimator = self.estimator();
        let ahead = |by: ExecutorKey| executors[by].assigned_share() + self.lines.share(by);
        let finish_us = |by: &ExecutorKey| estimator.estimate(task, *by, ahead(*by)).finish_us();
        let home = candidates.into_iter().min_by_key(finish_us);
        if let Some(home) = home {
            let share = executors[home].share_of(queue.resources(queue[task].class));
            self.lines.join(ticket, home, share);
        }
        home.is_some()
    }

    /// A task of the executor's own line, an old one; or one from the end of another's that is too long.
    pub(crate) fn lined_up_for(&mut self, by: ExecutorKey, level: Level, floor: i32) -> Option<TaskKey> {
        let may_have = |scheduler: &Scheduler, task: TaskKey| {
            let Scheduler { queue, catalog, executors, .. } = scheduler;
            queue.priority(queue[task].class) >= floor && search::may_take(queue, catalog, executors, by, task, level)
        };
        let own = self.lines.some(&self.queue, by, false).into_iter().find(|task| may_have(self, *task));
        if own.is_some() {
            return own;
        }
        let Scheduler { lines, executors, .. } = self;
        let home = lines.longest(by, |home, share| {
            let executor = &executors[home];
            executor.wait_seconds(executor.assigned_share() + share, 0, 0.0)
        })?;
        let last = self.lines.some(&self.queue, home, true);
        last.into_iter().find(|task| may_have(self, *task) && self.is_soonest(*task, by))
    }
}
