//! Whether a task and an executor suit each other (the paper's matchmaker): what both require by
//! expressions, and whether the node's disk has room.
//!
//! Most requirements never change while an executor is there: labels, processors, memory. They are
//! evaluated once for each class of tasks and each executor, and the result is kept as a bit with
//! the executor. Only attributes of one task or of the moment are evaluated at each decision.
//!
//! Expressions come compiled, with the tasks and executors that they belong to, and are evaluated
//! through a trait. So this crate needs no language, and no standard library.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::Need;
use eyas_types::matching::{Attribute, Expression, Fact, Facts};

use super::SchedulerState;
use super::executors::Executor;
use super::keys::{ClassKey, ExecutorKey, ObjectKey, PlacementLevel, TaskKey};
use super::shares::LocalShare;
use super::task_inputs::TaskInputs;

/// Something that keeps a task from an executor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// The executor has fewer resources than the task holds while it runs.
    TooSmall,
    /// This part of the task's requirements does not hold.
    Requirement(String),
    /// This part of what the executor accepts does not hold.
    Accept(String),
    /// An expression has no value there: its text, and the reason.
    Error(String, String),
    /// The node's disk has no room for the task's inputs and its own disk need.
    Disk,
    /// The batch system ends the executor before the task could end.
    Time,
}

/// An executor and a class of tasks, or one task of the class.
pub(crate) struct Pairing<'a> {
    need: &'a Need,
    executor: &'a Executor,
    task: Option<Candidate<'a>>,
}

/// One task, and what is known of the two at this moment.
struct Candidate<'a> {
    state: &'a SchedulerState,
    executor: ExecutorKey,
    task: TaskKey,
}

impl<'a> Pairing<'a> {
    pub fn of_task(state: &'a SchedulerState, executor: ExecutorKey, task: TaskKey) -> Self {
        let need = &state.need_of(task).need;
        let candidate = Candidate { state, executor, task };
        Pairing { need, executor: &state.executors[executor], task: Some(candidate) }
    }

    /// Parts of the requirements, and then parts of what the executor accepts; whether the part is
    /// a requirement.
    fn parts(&self) -> impl Iterator<Item = (bool, &'a Arc<dyn Expression>)> {
        let required =
            self.need.terms.iter().flat_map(|terms| &terms.requirements).map(|part| (true, part));
        required.chain(self.executor.profile.accept.iter().map(|part| (false, part)))
    }

    /// Whether all parts hold that never change.
    fn suits_for_ever(&self) -> bool {
        self.parts().all(|(_, part)| !part.is_fixed() || part.holds(self) == Ok(true))
    }

    /// Whether all other parts hold.
    fn suits_now(&self) -> bool {
        self.has_disk()
            && self.has_time(true)
            && self.parts().all(|(_, part)| part.is_fixed() || part.holds(self) == Ok(true))
    }

    /// How good the executor is for the task. If the expression has no value there, no executor is
    /// worse.
    pub fn rank(&self) -> f64 {
        let rank = self.need.terms.as_ref().and_then(|terms| terms.rank.as_ref());
        rank.map_or(0.0, |rank| rank.number(self).unwrap_or(f64::NEG_INFINITY))
    }

    /// Inputs that the node holds count as those that are missing: the free disk includes what the
    /// store could give up.
    fn has_disk(&self) -> bool {
        self.input_bytes().saturating_add(self.need.resources.disk_bytes)
            <= self.executor.free_disk_bytes
    }

    /// Whether the task can end before the executor is ended, by its
    /// [expected](SchedulerState::expected_seconds) time. `is_behind`: behind the tasks that are
    /// there. A task whose run time is not known may start. For example a task of 600 s waits for
    /// 300 s behind one task on one slot: it may start there if 900 s are left.
    fn has_time(&self, is_behind: bool) -> bool {
        if self.executor.left_us == u64::MAX {
            return true;
        }
        let Candidate { state, task, .. } = self.candidate();
        let Executor { left_us, slowness, .. } = *self.executor;
        let seconds = state.expected_seconds(*task, slowness);
        let own = self.executor.load_of(&self.need.resources);
        let wait = if is_behind {
            self.executor.wait_seconds(self.executor.load(), own, seconds)
        } else {
            0.0
        };
        seconds == 0.0 || (wait + seconds) * 1e6 <= left_us as f64
    }

    /// Everything that keeps the task from the executor.
    pub fn mismatches(&self) -> Vec<Mismatch> {
        let mut all = Vec::new();
        if !self.executor.capacity.covers(&self.need.resources) {
            all.push(Mismatch::TooSmall);
        }
        for (is_required, part) in self.parts() {
            let text = part.text().to_string();
            all.extend(match part.holds(self) {
                Ok(true) => None,
                Ok(false) if is_required => Some(Mismatch::Requirement(text)),
                Ok(false) => Some(Mismatch::Accept(text)),
                Err(why) => Some(Mismatch::Error(text, why.to_string())),
            });
        }
        if !self.has_disk() {
            all.push(Mismatch::Disk);
        }
        if !self.has_time(false) {
            all.push(Mismatch::Time);
        }
        all
    }

    fn candidate(&self) -> &Candidate<'a> {
        self.task.as_ref().expect("a fixed expression mentions no attribute of one task")
    }

    fn inputs(&self) -> &'a TaskInputs {
        let Candidate { state, task, .. } = self.candidate();
        &state.queue[*task].inputs
    }

    fn bytes_where(&self, counts: impl Fn(ObjectKey) -> bool) -> u64 {
        let inputs = self
            .inputs()
            .placed(&self.candidate().state.catalog)
            .filter(|input| counts(input.object));
        inputs.map(|input| input.bytes).fold(0, u64::saturating_add)
    }

    fn input_bytes(&self) -> u64 {
        self.bytes_where(|_| true)
    }

    fn local_bytes(&self) -> u64 {
        self.bytes_where(|input| self.executor.replicas.contains_key(&input))
    }
}

impl Facts for Pairing<'_> {
    fn fact(&self, attribute: Attribute) -> Fact<'_> {
        let Executor { profile, capacity, .. } = self.executor;
        let needed = &self.need.resources;
        let cpus = |milli: u32| Fact::Fraction(f64::from(milli) / 1000.0);
        match attribute {
            Attribute::NodeName => Fact::Text(&profile.name),
            Attribute::NodeHost => Fact::Text(&profile.host),
            Attribute::NodeLabels => Fact::Labels(&profile.labels),
            Attribute::NodeCpus => cpus(capacity.cpus_milli),
            Attribute::NodeMemory => Fact::Whole(capacity.memory_bytes),
            Attribute::NodeDisk => Fact::Whole(capacity.disk_bytes),
            Attribute::NodeFreeDisk => Fact::Whole(self.executor.free_disk_bytes),
            Attribute::NodeLoad => {
                let all = f64::from(capacity.cpus_milli.max(1));
                Fact::Fraction(self.executor.busy_milli() as f64 / all)
            }
            Attribute::TaskJob => {
                let Candidate { state, task, .. } = self.candidate();
                Fact::Text(state.queue.job_name(state.queue[*task].id.job))
            }
            Attribute::TaskCpus => cpus(needed.cpus_milli),
            Attribute::TaskMemory => Fact::Whole(needed.memory_bytes),
            Attribute::TaskDisk => Fact::Whole(needed.disk_bytes),
            Attribute::TaskInputs => Fact::Whole(self.inputs().count() as u64),
            Attribute::TaskInputBytes => Fact::Whole(self.input_bytes()),
            Attribute::TaskAttempt => {
                let Candidate { state, task, .. } = self.candidate();
                Fact::Whole(state.queue[*task].attempt.into())
            }
            Attribute::LocalBytes => Fact::Whole(self.local_bytes()),
            Attribute::TransferSeconds => {
                let Candidate { state, executor, task } = self.candidate();
                Fact::Fraction(state.transfer_seconds(*task, *executor, |_| None))
            }
        }
    }
}

impl SchedulerState {
    /// Seconds that a task runs on an executor with that slowness: the mean of its job, or its own
    /// timeout if that is shorter; but at least as long as it ran before it was interrupted. For
    /// example a mean of 60 s, a timeout of 30 s and an interrupted run of 45 s give 45 s.
    ///
    /// While the mean is not known, the timeout says nothing: most tasks end long before, and a job
    /// whose timeout is longer than nodes stay would never start. The time is 0 then, unless the
    /// task was interrupted.
    pub fn expected_seconds(&self, task: TaskKey, slowness: f64) -> f64 {
        let id = self.queue[task].id;
        let usual = self.run_times.seconds(id.job, slowness);
        let timeout_us = self.need_of(task).need.timeout_us;
        let at_most = timeout_us.map_or(usual, |timeout_us| usual.min(timeout_us as f64 / 1e6));
        at_most.max(self.run_times.at_least(id))
    }

    /// Evaluates what is fixed between a new class and all executors.
    pub(super) fn match_class(&mut self, class: ClassKey) {
        let executors: Vec<_> = self.executors.all().map(|(executor, _)| executor).collect();
        executors.into_iter().for_each(|executor| self.match_one(class, executor));
    }

    /// Evaluates what is fixed between a new executor and all classes.
    pub(super) fn match_executor(&mut self, executor: ExecutorKey) {
        let classes: Vec<_> = self.queue.classes().collect();
        classes.into_iter().for_each(|class| self.match_one(class, executor));
    }

    fn match_one(&mut self, class: ClassKey, executor: ExecutorKey) {
        let need = &self.queue.need(class).need;
        let suits =
            Pairing { need, executor: &self.executors[executor], task: None }.suits_for_ever();
        self.executors.get_mut(executor).excluded.set(class, !suits);
    }

    /// Whether the executor could ever be given a task with that need: it is large enough, and
    /// matches the task by everything that never changes.
    pub fn could_ever_take(&self, executor: ExecutorKey, need: &Need) -> bool {
        let executor = &self.executors[executor];
        let is_large_enough = !executor.is_draining && executor.capacity.covers(&need.resources);
        is_large_enough && Pairing { need, executor, task: None }.suits_for_ever()
    }

    /// Whether tasks of the class are constrained: which executors may take them, or which is the
    /// best, depends on the moment.
    pub fn is_constrained(&self, class: ClassKey) -> bool {
        let need = self.queue.need(class);
        need.is_constrained
            || self.executors.is_any_constraining()
            || need.most_bytes > self.executors.least_free_disk_bytes()
            || self.is_short_of_time
    }

    /// Whether there may be a constrained class.
    pub fn is_any_constrained(&self) -> bool {
        self.queue.has_constrained()
            || self.executors.is_any_constraining()
            || self.queue.most_bytes() > self.executors.least_free_disk_bytes()
            || self.is_short_of_time
    }

    /// Whether the task and the executor, which is large enough for its class, suit each other at
    /// this moment.
    pub fn suits(&self, executor: ExecutorKey, task: TaskKey) -> bool {
        !self.is_constrained(self.queue[task].class)
            || Pairing::of_task(self, executor, task).suits_now()
    }

    /// Whether the executor takes tasks, is large enough for the task and has not refused it.
    pub fn may_ever_take(&self, executor: ExecutorKey, task: TaskKey) -> bool {
        let entry = &self.executors[executor];
        entry.takes_tasks()
            && entry.is_large_enough(self.need_of(task))
            && !self.queue.has_refused(executor, task)
    }

    /// Whether the executor has room for the task, has not refused it, and suits it.
    pub fn may_take(&self, executor: ExecutorKey, task: TaskKey, level: PlacementLevel) -> bool {
        self.executors[executor].has_room(self.need_of(task), level)
            && !self.queue.has_refused(executor, task)
            && self.suits(executor, task)
    }

    /// Whether the executor has room for a task of the class at `level`.
    pub fn has_room(&self, executor: ExecutorKey, class: ClassKey, level: PlacementLevel) -> bool {
        self.executors[executor].has_room(self.queue.need(class), level)
    }

    /// The first executor that has room for tasks of the class, of those parked at that number or
    /// later; with the number of its parking. Room does not grow while an executor is parked, so
    /// each is checked once for each class.
    pub fn parked_with_room(
        &mut self,
        class: ClassKey,
        level: PlacementLevel,
        first: u64,
    ) -> Option<(u64, ExecutorKey)> {
        let known = *self.queue.no_room_before(class, level);
        let mut parked = self.executors.parked_from(level, first.max(known));
        let found = parked.find(|(_, executor)| self.has_room(*executor, class, level));
        if first <= known {
            *self.queue.no_room_before(class, level) =
                found.map_or(self.executors.next_parking(), |(parking, _)| parking);
        }
        found
    }

    /// Whether tasks wait that the executor is large enough for, and of the oldest none could end
    /// there before the executor is ended.
    pub fn lacks_time(&self, executor: ExecutorKey) -> bool {
        const LOOKS: usize = 32;
        if !self.is_short_of_time {
            return false;
        }
        let entry = &self.executors[executor];
        let classes =
            self.queue.classes().filter(|class| entry.is_large_enough(self.queue.need(*class)));
        let mut tasks =
            classes.flat_map(|class| self.queue.waiting_in(class).take(LOOKS)).peekable();
        tasks.peek().is_some()
            && tasks.all(|task| !Pairing::of_task(self, executor, task).has_time(false))
    }

    /// The share of the task's input bytes that the executor holds.
    pub fn share_held(&self, task: TaskKey, executor: ExecutorKey) -> LocalShare {
        let replicas = &self.executors[executor].replicas;
        let inputs = self.inputs(task);
        if let [only] = inputs {
            return if replicas.contains_key(only) { LocalShare::FULL } else { LocalShare::NONE };
        }
        let (mut local, mut all, mut is_missing) = (0, 0, false);
        for input in self.queue[task].inputs.placed(&self.catalog) {
            let bytes = input.weight();
            all += bytes;
            if replicas.contains_key(&input.object) {
                local += bytes;
            } else {
                is_missing = true;
            }
        }
        match (local, is_missing) {
            (0, _) => LocalShare::NONE,
            (_, false) => LocalShare::FULL,
            _ => LocalShare::partial(local, all),
        }
    }
}
