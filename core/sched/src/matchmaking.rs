//! Whether a task and an executor suit each other (the paper's matchmaker): what both ask for by expressions, and
//! whether the node's disk has room.
//!
//! Most of what is asked for never changes while an executor is there: labels, processors, memory. That is answered
//! once for each class of tasks and each executor, and kept with the executor, beside whether it is large enough. Only
//! what is of one task or of the moment is asked at each decision; see [`choosy`](crate::choosy).
//!
//! The expressions come compiled, with the tasks and executors that they are of, and are asked through a trait: so this
//! crate needs no language, and stays without a standard library.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::matching::{Attribute, Expression, Fact, Facts, Labels};

use crate::catalog::Catalog;
use crate::estimate::transfer_seconds;
use crate::executors::{Executor, ExecutorKey, Executors};
use crate::queue::{Class, Queue, TaskKey};
use crate::scheduler::Scheduler;
use eyas_types::Need;

/// What is said of an executor, and what it says of tasks.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Its name.
    pub name: Box<str>,
    /// Its host's name.
    pub host: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// It takes a task only if all of these hold.
    pub accept: Box<[Arc<dyn Expression>]>,
}

impl Profile {
    /// Where it is, as far as is said: executors at one site are near each other.
    pub(crate) fn site(&self) -> Option<&str> {
        self.labels.get("site").map(String::as_str)
    }

    /// Where at its site it is, as far as is said: executors in one rack are nearest.
    pub(crate) fn rack(&self) -> Option<&str> {
        self.labels.get("rack").map(String::as_str)
    }

    /// Whether it accepts by what is of one task or of the moment.
    pub(crate) fn is_choosy(&self) -> bool {
        self.accept.iter().any(|part| !part.is_fixed())
    }
}

/// Something that keeps a task from an executor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// The executor has less than the task holds while it runs.
    TooSmall,
    /// This part of the task's requirements does not hold.
    Requirement(String),
    /// This part of what the executor accepts does not hold.
    Accept(String),
    /// An expression has no value there: its text, and why.
    Error(String, String),
    /// The node's disk has no room for the task's inputs and what it needs beside.
    Disk,
}

/// Classes that an executor is not for.
#[derive(Default)]
pub(crate) struct ClassSet(Vec<u64>);

impl ClassSet {
    pub fn contains(&self, class: Class) -> bool {
        self.0.get(class.0 as usize / 64).is_some_and(|word| word >> (class.0 % 64) & 1 == 1)
    }

    fn set(&mut self, class: Class, is_in: bool) {
        let place = class.0 as usize / 64;
        if self.0.len() <= place {
            if !is_in {
                return;
            }
            self.0.resize(place + 1, 0);
        }
        let bit = 1 << (class.0 % 64);
        if is_in {
            self.0[place] |= bit;
        } else {
            self.0[place] &= !bit;
        }
    }
}

/// A class of tasks, or one task of it, and an executor.
pub(crate) struct Meeting<'a> {
    need: &'a Need,
    executor: &'a Executor,
    task: Option<Candidate<'a>>,
}

/// One task, and what is known of the two at this moment.
struct Candidate<'a> {
    queue: &'a Queue,
    catalog: &'a Catalog,
    executors: &'a Executors,
    by: ExecutorKey,
    task: TaskKey,
}

impl<'a> Meeting<'a> {
    pub fn of_task(
        queue: &'a Queue,
        catalog: &'a Catalog,
        executors: &'a Executors,
        by: ExecutorKey,
        task: TaskKey,
    ) -> Self {
        let candidate = Candidate { queue, catalog, executors, by, task };
        Meeting { need: &queue.need(queue[task].class).need, executor: &executors[by], task: Some(candidate) }
    }

    /// Parts of the requirements, and then of what the executor accepts.
    fn parts(&self) -> impl Iterator<Item = (bool, &'a Arc<dyn Expression>)> {
        let required = self.need.terms.iter().flat_map(|terms| &terms.requirements).map(|part| (true, part));
        required.chain(self.executor.profile.accept.iter().map(|part| (false, part)))
    }

    /// Whether everything that never changes holds.
    fn suits_for_ever(&self) -> bool {
        self.parts().all(|(_, part)| !part.is_fixed() || part.holds(self) == Ok(true))
    }

    /// Whether everything else holds.
    pub fn suits_now(&self) -> bool {
        self.has_disk() && self.parts().all(|(_, part)| part.is_fixed() || part.holds(self) == Ok(true))
    }

    /// How good the executor is for the task; where that cannot be told, no other is worse.
    pub fn rank(&self) -> f64 {
        let rank = self.need.terms.as_ref().and_then(|terms| terms.rank.as_ref());
        rank.map_or(0.0, |rank| rank.number(self).unwrap_or(f64::NEG_INFINITY))
    }

    /// Inputs that are there already take room as those that are missing do: what the disk has for them counts what
    /// the store has.
    fn has_disk(&self) -> bool {
        self.input_bytes().saturating_add(self.need.resources.disk_bytes) <= self.executor.free_disk_bytes
    }

    /// All that keeps the task from the executor.
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
        all
    }

    fn candidate(&self) -> &Candidate<'a> {
        self.task.as_ref().expect("what is fixed mentions nothing of one task")
    }

    fn inputs(&self) -> &'a [crate::ObjectKey] {
        let Candidate { queue, task, .. } = self.candidate();
        queue[*task].inputs.as_slice()
    }

    fn bytes_where(&self, counts: impl Fn(crate::ObjectKey) -> bool) -> u64 {
        let inputs = self.inputs().iter().filter(|input| counts(**input));
        inputs.map(|input| self.candidate().catalog.size_bytes(*input)).fold(0, u64::saturating_add)
    }

    fn input_bytes(&self) -> u64 {
        self.bytes_where(|_| true)
    }

    fn local_bytes(&self) -> u64 {
        self.bytes_where(|input| self.executor.held.contains_key(&input))
    }
}

impl Facts for Meeting<'_> {
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
                let Candidate { queue, task, .. } = self.candidate();
                Fact::Text(queue.job_name(queue[*task].id.job))
            }
            Attribute::TaskCpus => cpus(needed.cpus_milli),
            Attribute::TaskMemory => Fact::Whole(needed.memory_bytes),
            Attribute::TaskDisk => Fact::Whole(needed.disk_bytes),
            Attribute::TaskInputs => Fact::Whole(self.inputs().len() as u64),
            Attribute::TaskInputBytes => Fact::Whole(self.input_bytes()),
            Attribute::TaskAttempt => {
                let Candidate { queue, task, .. } = self.candidate();
                Fact::Whole(queue[*task].attempt.into())
            }
            Attribute::LocalBytes => Fact::Whole(self.local_bytes()),
            Attribute::TransferSeconds => {
                let Candidate { catalog, executors, by, .. } = *self.candidate();
                Fact::Fraction(transfer_seconds(catalog, executors, self.inputs(), by, |_| None))
            }
        }
    }
}

impl Scheduler {
    /// Answers what is fixed between a new class and all executors.
    pub(crate) fn match_class(&mut self, class: Class) {
        let executors: Vec<_> = self.executors.all().map(|(by, _)| by).collect();
        executors.into_iter().for_each(|by| self.match_one(class, by));
    }

    /// Answers what is fixed between a new executor and all classes.
    pub(crate) fn match_executor(&mut self, by: ExecutorKey) {
        let classes: Vec<_> = self.queue.classes().collect();
        classes.into_iter().for_each(|class| self.match_one(class, by));
    }

    /// Whether the executor may be given a task of that need some time: it is large enough, and matches it by all that
    /// never changes.
    pub(crate) fn may_ever_take(&self, by: ExecutorKey, need: &Need) -> bool {
        let executor = &self.executors[by];
        let is_large_enough = !executor.is_draining && executor.capacity.covers(&need.resources);
        is_large_enough && Meeting { need, executor, task: None }.suits_for_ever()
    }

    fn match_one(&mut self, class: Class, by: ExecutorKey) {
        let meeting = Meeting { need: &self.queue.need(class).need, executor: &self.executors[by], task: None };
        let suits = meeting.suits_for_ever();
        self.executors[by].excluded.set(class, !suits);
    }
}
