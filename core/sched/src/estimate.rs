//! How soon a task would be done where: the wait for a slot or for its inputs, whichever is longer, since inputs are
//! staged while others compute; then its computing. What `cost` placement compares, and what `explain` tells.
//!
//! All of it is learned: what fetches take ([`Rates`](crate::rates::Rates)), how long the tasks of each job run, and how
//! executors differ in that. The decider has no clock, so what runs is taken to be half done.

use eyas_types::{Estimate, JobId};

use crate::catalog::{Catalog, ObjectKey};
use crate::executors::{ExecutorKey, Executors};
use crate::hash::Map;
use crate::queue::{Queue, TaskKey};
use crate::rates::Distance;
use crate::relay::Relays;

/// Of those who could give an object, so many are compared.
const ESTIMATE_LOOKS: usize = 4;
/// Executors whose tasks run at most so much longer or shorter than others' are alike: it is their tasks that differ.
const ALIKE: f64 = 1.25;
/// What a run still counts when another has come.
const REMEMBERED: f64 = 15.0 / 16.0;

/// How long tasks run.
#[derive(Default)]
pub(crate) struct RunTimes {
    of_job: Map<JobId, f64>,
}

impl RunTimes {
    /// A task ran so long. Returns how many times as long that is as tasks of its job usually run.
    pub fn learn(&mut self, job: JobId, seconds: f64) -> Option<f64> {
        match self.of_job.get_mut(&job) {
            Some(mean) => {
                let ratio = (*mean > 0.0).then(|| seconds / *mean);
                *mean = *mean * REMEMBERED + seconds * (1.0 - REMEMBERED);
                ratio
            }
            None => {
                self.of_job.insert(job, seconds);
                None
            }
        }
    }

    /// Whether a task of the job has ended.
    pub fn is_known(&self, job: JobId) -> bool {
        self.of_job.contains_key(&job)
    }

    pub fn forget(&mut self, job: JobId) {
        self.of_job.remove(&job);
    }

    /// Seconds that a task of the job computes on an executor whose tasks run `slowness` times as long as others'; none
    /// before one has ended.
    fn of(&self, job: JobId, slowness: f64) -> f64 {
        let is_alike = slowness < ALIKE && slowness > 1.0 / ALIKE;
        self.of_job.get(&job).map_or(0.0, |mean| mean * if is_alike { 1.0 } else { slowness })
    }
}

/// What an executor's slowness is when a task of it has run `ratio` times as long as usual.
pub(crate) fn learn_slowness(slowness: &mut f64, ratio: f64) {
    *slowness = *slowness * REMEMBERED + ratio.min(10.0) * (1.0 - REMEMBERED);
}

/// What estimates are made of.
pub(crate) struct Estimator<'a> {
    pub queue: &'a Queue,
    pub catalog: &'a Catalog,
    pub executors: &'a Executors,
    pub relays: &'a Relays,
    pub run_times: &'a RunTimes,
}

impl Estimator<'_> {
    /// Of the task on the executor, when tasks that have `ahead` of it together, millionths, go before it there.
    pub fn estimate(&self, task: TaskKey, by: ExecutorKey, ahead: u64) -> Estimate {
        let task = &self.queue[task];
        let executor = &self.executors[by];
        let need = executor.share_of(self.queue.resources(task.class));
        let run_seconds = self.run_times.of(task.id.job, executor.slowness);
        let coming = |object| self.relays.coming(object, by);
        let transfer = transfer_seconds(self.catalog, self.executors, task.inputs.as_slice(), by, coming);
        Estimate {
            wait_us: microseconds(executor.wait_seconds(ahead, need, run_seconds)),
            transfer_us: microseconds(transfer),
            compute_us: microseconds(run_seconds),
        }
    }
}

fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// Seconds that it takes to bring those of the objects that the executor lacks. One that nobody holds comes from who is
/// receiving it, which may be the executor itself, and has it in so many seconds, as far as `coming` knows; else from
/// persistent storage.
pub(crate) fn transfer_seconds(
    catalog: &Catalog,
    executors: &Executors,
    objects: &[ObjectKey],
    by: ExecutorKey,
    coming: impl Fn(ObjectKey) -> Option<(ExecutorKey, f64)>,
) -> f64 {
    let executor = &executors[by];
    let (mut seconds, mut from_storage) = (0.0, 0);
    for object in objects.iter().filter(|object| !executor.held.contains_key(*object)) {
        let bytes = catalog.size_bytes(*object);
        let near_enough = |giver: &ExecutorKey| executors.way(*giver).site == executors.way(by).site;
        let holders = catalog[*object].holders.iter().copied().take(ESTIMATE_LOOKS);
        let whole = holders.map(|giver| (giver, 0.0));
        let givers = whole.chain(coming(*object)).filter(|(giver, _)| near_enough(giver));
        let seconds_from = |(giver, until_there): (ExecutorKey, f64)| match giver == by {
            true => until_there,
            false => peer_seconds(executors, giver, by, bytes).max(until_there),
        };
        let from_peer = givers.map(seconds_from).min_by(f64::total_cmp);
        match from_peer {
            Some(from_peer) => seconds += from_peer,
            None => from_storage += bytes,
        }
    }
    if from_storage > 0 {
        seconds += executors.rates.storage_seconds(from_storage, executors.from_storage);
    }
    seconds
}

/// Seconds that it takes to bring so many bytes from one executor to another.
pub(crate) fn peer_seconds(executors: &Executors, giver: ExecutorKey, by: ExecutorKey, bytes: u64) -> f64 {
    executors.rates.peer_seconds(distance(executors, giver, by), bytes, executors.way(giver).gives)
}

pub(crate) fn distance(executors: &Executors, giver: ExecutorKey, by: ExecutorKey) -> Distance {
    if executors.way(giver).rack == executors.way(by).rack { Distance::Near } else { Distance::Far }
}
