//! Homes: where waiting tasks would be done the soonest (`cost` placement).
//!
//! A task that comes to wait gets a home: the one of the executors that hold or are receiving its
//! inputs where it would be done first. So the load that waits for each executor is known, not only
//! the load that it was assigned. An executor goes on finding tasks that it holds by search,
//! whatever their homes are. Homes decide when data moves: an executor that holds less of a task,
//! or nothing, takes it only if the task would be done there sooner than at its home. While
//! fetching takes longer than waiting, tasks wait for their data. When a home has too many tasks
//! for that, idle executors take from the end of its list, and with the tasks come replicas, which
//! shorten the list further.
//!
//! For example A holds a task's input of 1 GB, and B is idle and would fetch it in 8 s. Each has
//! one slot, and tasks run for 10 s. While A has one task, the task would be done there after 5 +
//! 10 s and on B after 8 + 10 s: it waits for A. With another task before it there, it would be
//! done on A after 15 + 10 s: B takes it.
//!
//! Tasks of which no executor holds or receives anything have no home; they are
//! [holderless](super::holderless).

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::ops::Bound;

use eyas_types::Estimate;

use crate::estimate::Estimator;
use crate::hash::FixedHash;
#[cfg(test)]
use crate::state::PlacementState;
use crate::state::{
    ExecutorKey, LoadPpm, PlacementLevel, SchedulerState, TaskKey, TaskQueue, Ticket,
};
use crate::tight_deque;

/// Holders, and receivers, of each input that are compared for a task's home: the better of two
/// taken at random leaves the loads nearly as even as the best of all does (Mitzenmacher, "The
/// Power of Two Choices", 2001). For example, for a task with three inputs, up to 12 executors are
/// compared.
const HOME_LOOKS: usize = 2;
/// Executors that are compared for a task's home. A task of many inputs names the same executors
/// again and again, and each comparison looks at all inputs. The last input that is looked at may
/// add up to three more.
const HOME_CANDIDATES: usize = 64;
/// Homes that are compared for the longest wait, in one decision.
const LONGEST_LOOKS: usize = 16;
/// Tasks at either end of a home's list that are checked in one decision.
const TASK_LOOKS_AT_HOME: usize = 8;
/// Slack before the list of a home is compacted: when `entries > 2 * waiting + 16`. For example, 10
/// waiting tasks allow 36 entries.
const STALE_ENTRIES: u32 = 16;

/// All homes.
#[derive(Default)]
pub(super) struct Homes {
    /// The home of each task, by its index in the queue's table; small, because every decision
    /// reads it.
    homes: Vec<ExecutorKey>,
    /// The load at each home.
    loads: Vec<HomeLoad>,
    /// The tasks at each home, oldest first; may name tasks that have left.
    tickets: Vec<VecDeque<Ticket>>,
    /// Executors that are the home of a task.
    used: BTreeSet<ExecutorKey>,
    /// The last home that was compared for the longest wait.
    compared: Option<ExecutorKey>,
}

#[derive(Clone, Copy, Default)]
struct HomeLoad {
    tasks: u32,
    /// Entries of tasks at this home, and of tasks that have left.
    entries: u32,
    /// The load of all tasks at this home.
    load: LoadPpm,
}

impl Homes {
    /// The task's home.
    pub fn of(&self, task: TaskKey) -> Option<ExecutorKey> {
        self.homes.get(task.index()).copied().filter(|home| *home != ExecutorKey::NONE)
    }

    /// The load of all tasks at a home.
    fn load(&self, home: ExecutorKey) -> LoadPpm {
        self.loads.get(home.index()).map_or(LoadPpm::NONE, |home| home.load)
    }

    /// The home of a task or the executor that it is assigned to, and how soon it would be done
    /// there after all other tasks.
    pub fn estimate(
        &self,
        state: &SchedulerState,
        task: TaskKey,
    ) -> Option<(ExecutorKey, Estimate)> {
        let home = self.of(task).map(|home| (home, self.load(home)));
        Estimator::new(state).at_home(task, home)
    }

    /// Whether the task would be done no later on the executor than at its home or where it is
    /// assigned. Before a task of the job has ended, nothing is known of how long a slot takes to
    /// become free; until then no slot is waited for.
    pub fn is_soonest(&self, state: &SchedulerState, task: TaskKey, executor: ExecutorKey) -> bool {
        self.estimate(state, task).is_none_or(|(home, there)| {
            home == executor
                || (there.wait_us > 0 && !state.run_times.is_known(state.queue[task].id.job))
                || Estimator::new(state).behind_assigned(task, executor).finish_us()
                    <= there.finish_us()
                || !state.may_ever_take(home, task)
        })
    }

    /// Gives a waiting task a home, if an executor that could take it holds or is receiving one of
    /// its inputs. Whether it has one.
    pub fn give_home(&mut self, state: &SchedulerState, ticket: Ticket) -> bool {
        let task = ticket.task;
        if state.queue[task].was_refused {
            return false;
        }
        let can_take = |executor: &ExecutorKey| state.may_ever_take(*executor, task);
        let mut candidates: Vec<ExecutorKey> = Vec::new();
        // Different holders for each task, so that equals take turns.
        let turn = FixedHash.hash_one(ticket.turn) as usize;
        for input in state.inputs(task) {
            let holders = &state.catalog[*input].holders;
            let (before, after) = holders.split_at(turn % holders.len().max(1));
            let some_holders =
                after.iter().chain(before).copied().filter(can_take).take(HOME_LOOKS);
            let some_receivers =
                state.transfers.receivers(*input).filter(can_take).take(HOME_LOOKS);
            for candidate in some_holders.chain(some_receivers) {
                if !candidates.contains(&candidate) {
                    candidates.push(candidate);
                }
            }
            if candidates.len() >= HOME_CANDIDATES {
                break;
            }
        }
        let finish_us = |executor: &ExecutorKey| {
            let ahead = state.executors[*executor].load() + self.load(*executor);
            Estimator::new(state).estimate(task, *executor, ahead).finish_us()
        };
        let home = candidates.into_iter().min_by_key(finish_us);
        if let Some(home) = home {
            let load = state.executors[home].load_of(state.resources_of(task));
            self.join(ticket, home, load);
        }
        home.is_some()
    }

    fn join(&mut self, ticket: Ticket, home: ExecutorKey, load: LoadPpm) {
        if self.homes.len() <= ticket.task.index() {
            self.homes.resize(ticket.task.index() + 1, ExecutorKey::NONE);
        }
        if self.loads.len() <= home.index() {
            self.loads.resize(home.index() + 1, HomeLoad::default());
            self.tickets.resize_with(home.index() + 1, VecDeque::new);
        }
        assert_eq!(self.of(ticket.task), None, "a task has one home");
        self.homes[ticket.task.index()] = home;
        tight_deque::push_back(&mut self.tickets[home.index()], ticket);
        let at_home = &mut self.loads[home.index()];
        at_home.tasks += 1;
        at_home.entries += 1;
        at_home.load += load;
        if at_home.tasks == 1 {
            self.used.insert(home);
        }
    }

    /// The task, if it has a home, does not wait there any longer.
    pub fn leave(&mut self, queue: &TaskQueue, task: TaskKey) {
        let Some(home) = self.of(task) else { return };
        self.homes[task.index()] = ExecutorKey::NONE;
        let at_home = &mut self.loads[home.index()];
        // The mean of the tasks there, so that the executor need not be read. For example, of tasks
        // with loads of 0.25, 0.25 and 1, the first one that leaves takes 0.5 along, and the last
        // one takes what is left.
        at_home.load -= at_home.load.mean_of(at_home.tasks);
        at_home.tasks -= 1;
        if at_home.tasks == 0 {
            at_home.entries = 0;
            self.tickets[home.index()] = VecDeque::new();
            self.used.remove(&home);
        } else if at_home.entries > 2 * at_home.tasks + STALE_ENTRIES {
            let (homes, tickets) = (&self.homes, &mut self.tickets[home.index()]);
            // Most tasks that have left are known by their homes, without a look at the queue.
            tickets
                .retain(|ticket| homes[ticket.task.index()] == home && queue.is_waiting(*ticket));
            at_home.entries = at_home.tasks;
        }
    }

    /// The executor takes no more tasks and is the home of none. Returns the tasks whose home it
    /// was.
    pub fn dissolve(&mut self, queue: &TaskQueue, home: ExecutorKey) -> Vec<Ticket> {
        let Some(tickets) = self.tickets.get_mut(home.index()) else { return Vec::new() };
        let mut homeless: Vec<_> = core::mem::take(tickets).into();
        homeless.retain(|ticket| queue.is_waiting(*ticket) && self.of(ticket.task) == Some(home));
        homeless.iter().for_each(|ticket| self.homes[ticket.task.index()] = ExecutorKey::NONE);
        self.loads[home.index()] = HomeLoad::default();
        self.used.remove(&home);
        homeless
    }

    /// A task that the executor may take: an old one whose home it is, otherwise one from the end
    /// of the list of another home with too many.
    pub fn task_for(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        floor: i32,
    ) -> Option<TaskKey> {
        let may_have = |task: TaskKey| {
            state.queue.priority(state.queue[task].class) >= floor
                && state.may_take(executor, task, level)
        };
        let own = self.oldest(&state.queue, executor).into_iter().find(|task| may_have(*task));
        own.or_else(|| {
            let home = self.longest_wait(state, executor)?;
            let newest = self.newest(&state.queue, home);
            newest
                .into_iter()
                .find(|task| may_have(*task) && self.is_soonest(state, *task, executor))
        })
    }

    /// Of a few homes, different ones each time, the one with the longest wait; not `but`.
    fn longest_wait(&mut self, state: &SchedulerState, but: ExecutorKey) -> Option<ExecutorKey> {
        let after = self.compared.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.used.range((after, Bound::Unbounded)).chain(self.used.iter());
        let some: Vec<_> = rest.copied().take(LONGEST_LOOKS.min(self.used.len())).collect();
        self.compared = some.last().copied();
        let others = some.into_iter().filter(|home| *home != but).map(|home| {
            let executor = &state.executors[home];
            (home, executor.wait_seconds(executor.load() + self.load(home), LoadPpm::NONE, 0.0))
        });
        others.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(home, _)| home)
    }

    /// The oldest tasks at a home. Entries before them of tasks that have left are dropped.
    fn oldest(&mut self, queue: &TaskQueue, home: ExecutorKey) -> Vec<TaskKey> {
        let Some(mut tickets) = self.take_tickets(home) else { return Vec::new() };
        let is_here =
            |ticket: &Ticket| self.of(ticket.task) == Some(home) && queue.is_waiting(*ticket);
        while tickets.pop_front_if(|ticket| !is_here(ticket)).is_some() {}
        let here = tickets.iter().filter(|ticket| is_here(ticket)).take(TASK_LOOKS_AT_HOME);
        let tasks = here.map(|ticket| ticket.task).collect();
        self.put_tickets(home, tickets);
        tasks
    }

    /// The newest tasks at a home, the newest first. Entries behind them of tasks that have left
    /// are dropped.
    fn newest(&mut self, queue: &TaskQueue, home: ExecutorKey) -> Vec<TaskKey> {
        let Some(mut tickets) = self.take_tickets(home) else { return Vec::new() };
        let is_here =
            |ticket: &Ticket| self.of(ticket.task) == Some(home) && queue.is_waiting(*ticket);
        while tickets.pop_back_if(|ticket| !is_here(ticket)).is_some() {}
        let here = tickets.iter().filter(|ticket| is_here(ticket)).rev().take(TASK_LOOKS_AT_HOME);
        let tasks = here.map(|ticket| ticket.task).collect();
        self.put_tickets(home, tickets);
        tasks
    }

    fn take_tickets(&mut self, home: ExecutorKey) -> Option<VecDeque<Ticket>> {
        self.tickets.get_mut(home.index()).map(core::mem::take)
    }

    fn put_tickets(&mut self, home: ExecutorKey, tickets: VecDeque<Ticket>) {
        self.loads[home.index()].entries = tickets.len() as u32;
        self.tickets[home.index()] = tickets;
    }

    #[cfg(test)]
    pub fn validate(&self, queue: &TaskQueue) {
        for (index, (at_home, tickets)) in self.loads.iter().zip(&self.tickets).enumerate() {
            let mut here: Vec<_> =
                tickets.iter().filter(|ticket| queue.is_waiting(**ticket)).collect();
            here.retain(|ticket| self.of(ticket.task).is_some_and(|home| home.index() == index));
            assert!(
                at_home.tasks > 0 || at_home.load == LoadPpm::NONE,
                "a home without tasks has a load"
            );
            assert_eq!(
                (here.len(), tickets.len()),
                (at_home.tasks as usize, at_home.entries as usize)
            );
        }
        assert_eq!(self.used.len(), self.loads.iter().filter(|at_home| at_home.tasks > 0).count());
        let homes: Vec<_> = queue.tasks().filter(|(task, _)| self.of(*task).is_some()).collect();
        assert!(
            homes.iter().all(|(_, task)| task.state == PlacementState::Waiting),
            "only waiting tasks have a home"
        );
        assert_eq!(
            homes.len(),
            self.loads.iter().map(|at_home| at_home.tasks as usize).sum::<usize>()
        );
    }
}
