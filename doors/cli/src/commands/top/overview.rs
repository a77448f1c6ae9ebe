//! The data of `eyas top`: the state of a cluster, and rates, which are differences between two
//! snapshots. It is pure: each snapshot has its time. Without an earlier snapshot, there is no
//! rate.

use std::collections::BTreeMap;

use eyas_client::types::{ExecutorId, JobId, Reads};
use eyas_client::view::{ExecutorView, JobState, JobView};
use eyas_wire::view::pool::PoolView;
use serde::Serialize;

/// The remaining time of a job is computed from the last interval if at least this number of tasks
/// ended in it. With fewer tasks, the average since submission is a better estimate.
const MIN_TASKS_FOR_ETA: u64 = 10;

/// The state of a cluster at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Time of the snapshot on any clock; only differences matter.
    pub at_us: u64,
    /// All jobs of the cluster.
    pub jobs: Vec<JobView>,
    /// All executors of the cluster.
    pub executors: Vec<ExecutorView>,
    /// All pools of the cluster.
    pub pools: Vec<PoolView>,
}

/// The state of a cluster, with rates since the snapshot before.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Overview {
    /// The interval of the rates; `None` without an earlier snapshot, and then there are no rates.
    pub interval_us: Option<u64>,
    /// Sums over all jobs and executors.
    pub cluster: ClusterRow,
    /// Running jobs, the oldest first; then ended jobs, the newest first.
    pub jobs: Vec<JobRow>,
    /// In the order of their names, n2 before n10.
    pub executors: Vec<ExecutorRow>,
    /// Pools of nodes from batch systems.
    pub pools: Vec<PoolView>,
}

/// The cluster as a whole.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ClusterRow {
    /// Number of executors.
    pub executors: u64,
    /// Processors of all executors, thousandths.
    pub capacity_milli: u64,
    /// Processors that run a task, thousandths.
    pub busy_milli: u64,
    /// Jobs with tasks that have not ended.
    pub running_jobs: u64,
    /// Tasks in the queue, and tasks that wait for other tasks.
    pub waiting: u64,
    /// Tasks that are assigned to executors.
    pub assigned: u64,
    /// Running tasks by the last reports of executors; the other assigned tasks fetch inputs or
    /// wait for a slot.
    pub running: u64,
    /// Tasks that ended in a second, without cancelled tasks.
    pub tasks_per_s: Option<f64>,
    /// Rates by the sources of the inputs of ended tasks.
    pub reads: Option<ReadRates>,
}

/// A job, with its rates.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobRow {
    #[serde(flatten)]
    pub view: JobView,
    /// Tasks that ended in a second, without cancelled tasks.
    pub tasks_per_s: Option<f64>,
    /// Estimated time until the end of the job, microseconds.
    pub remaining_us: Option<u64>,
}

/// An executor, with its rates.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExecutorRow {
    #[serde(flatten)]
    pub view: ExecutorView,
    /// Processors that run a task, thousandths.
    pub busy_milli: u64,
    /// Rates by the sources of the inputs of its tasks.
    pub read_rates: Option<ReadRates>,
}

/// Bytes of inputs per second, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ReadRates {
    /// From the stores of the executors themselves.
    pub local_bytes_per_s: f64,
    /// From the stores of other executors.
    pub peer_bytes_per_s: f64,
    /// From persistent storage.
    pub persistent_bytes_per_s: f64,
    /// From files of the cluster.
    pub files_bytes_per_s: f64,
}

impl Overview {
    /// The state of the cluster at `later`, with rates since `earlier`.
    pub fn between(earlier: Option<&Snapshot>, later: &Snapshot) -> Self {
        let rates = earlier.and_then(|earlier| Rates::between(earlier, later));
        let rates = rates.as_ref();
        let mut jobs: Vec<_> = later.jobs.iter().map(|job| job_line(job, rates)).collect();
        jobs.sort_by_key(|line| match line.view.state {
            JobState::Running => (0, line.view.job.0),
            _ => (1, u32::MAX - line.view.job.0),
        });
        let mut executors: Vec<_> =
            later.executors.iter().map(|executor| executor_line(executor, rates)).collect();
        executors.sort_by_cached_key(|line| (name_parts(&line.view.name), line.view.executor));
        let cluster = ClusterRow {
            executors: executors.len() as u64,
            capacity_milli: executors
                .iter()
                .map(|line| u64::from(line.view.capacity.cpus_milli))
                .sum(),
            busy_milli: executors.iter().map(|line| line.busy_milli).sum(),
            running_jobs: jobs.iter().filter(|line| line.view.state == JobState::Running).count()
                as u64,
            waiting: jobs
                .iter()
                .map(|line| line.view.tasks.waiting + line.view.tasks.blocked)
                .sum(),
            assigned: jobs.iter().map(|line| line.view.tasks.assigned).sum(),
            running: executors.iter().map(|line| line.view.computing).sum(),
            // The sum of no numbers at all would be -0.
            tasks_per_s: rates.map(|_| {
                jobs.iter().filter_map(|line| line.tasks_per_s).fold(0.0, |sum, rate| sum + rate)
            }),
            reads: rates.map(|rates| rates.cluster_reads(&later.jobs)),
        };
        let interval_us = rates.map(|rates| rates.interval_us);
        Overview { interval_us, cluster, jobs, executors, pools: later.pools.clone() }
    }
}

/// Computes rates from an earlier snapshot. A count that fell, as after the retry of a job, counts
/// as unchanged. A job or an executor that is not in the earlier snapshot began with counts of 0.
struct Rates<'a> {
    interval_us: u64,
    jobs: BTreeMap<JobId, &'a JobView>,
    executors: BTreeMap<ExecutorId, &'a ExecutorView>,
}

impl<'a> Rates<'a> {
    fn between(earlier: &'a Snapshot, later: &Snapshot) -> Option<Self> {
        let interval_us = later.at_us.checked_sub(earlier.at_us).filter(|us| *us > 0)?;
        Some(Rates {
            interval_us,
            jobs: earlier.jobs.iter().map(|job| (job.job, job)).collect(),
            executors: earlier
                .executors
                .iter()
                .map(|executor| (executor.executor, executor))
                .collect(),
        })
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 * 1e6 / self.interval_us as f64
    }

    /// Number of tasks of a job that ended in the interval.
    fn ended(&self, job: &JobView) -> u64 {
        tried(job).saturating_sub(self.jobs.get(&job.job).map_or(0, |earlier| tried(earlier)))
    }

    /// Sums over jobs, not over executors: the reads of a task count also if its executor has left
    /// since.
    fn cluster_reads(&self, jobs: &[JobView]) -> ReadRates {
        jobs.iter().fold(ReadRates::default(), |sum, job| {
            let rates =
                self.reads(self.jobs.get(&job.job).map(|earlier| &earlier.reads), &job.reads);
            ReadRates {
                local_bytes_per_s: sum.local_bytes_per_s + rates.local_bytes_per_s,
                peer_bytes_per_s: sum.peer_bytes_per_s + rates.peer_bytes_per_s,
                persistent_bytes_per_s: sum.persistent_bytes_per_s + rates.persistent_bytes_per_s,
                files_bytes_per_s: sum.files_bytes_per_s + rates.files_bytes_per_s,
            }
        })
    }

    fn reads(&self, earlier: Option<&Reads>, later: &Reads) -> ReadRates {
        let earlier = earlier.copied().unwrap_or_default();
        let rate = |earlier: u64, later: u64| self.per_s(later.saturating_sub(earlier));
        ReadRates {
            local_bytes_per_s: rate(earlier.local.bytes, later.local.bytes),
            peer_bytes_per_s: rate(earlier.peer.bytes, later.peer.bytes),
            persistent_bytes_per_s: rate(earlier.persistent.bytes, later.persistent.bytes),
            files_bytes_per_s: rate(earlier.files.bytes(), later.files.bytes()),
        }
    }
}

/// Tasks that ended by themselves: cancelled tasks do not count as throughput.
fn tried(job: &JobView) -> u64 {
    job.tasks.succeeded + job.tasks.failed
}

fn job_line(job: &JobView, rates: Option<&Rates>) -> JobRow {
    let recent = rates.map(|rates| (rates.ended(job), rates.interval_us));
    let tasks_per_s = rates.map(|rates| rates.per_s(rates.ended(job)));
    JobRow { view: job.clone(), tasks_per_s, remaining_us: remaining_us(job, recent) }
}

/// A name without the number at its end, and the number.
fn name_parts(name: &str) -> (String, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0))
}

/// Estimated time until the end of the job. `recent` has the number of tasks that ended in the last
/// interval, and the length of the interval.
fn remaining_us(job: &JobView, recent: Option<(u64, u64)>) -> Option<u64> {
    let left = job.tasks.total() - job.tasks.ended();
    let (ended, us) = recent
        .filter(|(ended, _)| *ended >= MIN_TASKS_FOR_ETA)
        .unwrap_or((tried(job), job.elapsed_us));
    (left > 0 && ended > 0).then(|| (left as f64 / ended as f64 * us as f64) as u64)
}

fn executor_line(executor: &ExecutorView, rates: Option<&Rates>) -> ExecutorRow {
    let read_rates = rates.map(|rates| {
        rates.reads(
            rates.executors.get(&executor.executor).map(|earlier| &earlier.reads),
            &executor.reads,
        )
    });
    let busy_milli = executor.assigned_milli.min(u64::from(executor.capacity.cpus_milli));
    ExecutorRow { view: executor.clone(), busy_milli, read_rates }
}

#[cfg(test)]
pub(crate) mod tests {
    use eyas_client::types::Resources;
    use eyas_client::types::outcome::Amount;
    use eyas_client::view::{JobOwner, TaskCounts};

    use super::*;

    pub(crate) fn job(id: u32, name: &str, succeeded: u64, total: u64) -> JobView {
        let state = if succeeded == total { JobState::Succeeded } else { JobState::Running };
        let assigned = (total - succeeded).min(4);
        JobView {
            job: JobId(id),
            name: name.into(),
            owner: JobOwner::default(),
            state,
            tasks: TaskCounts {
                waiting: total - succeeded - assigned,
                assigned,
                succeeded,
                ..TaskCounts::default()
            },
            retried: 0,
            recomputed: 0,
            peak_memory_bytes: 0,
            reused: 0,
            reads: Reads::default(),
            submitted_unix_ms: 0,
            elapsed_us: 10_000_000,
            executors: 2,
            capacity_milli: 4000,
            is_stuck: false,
            is_output_cut: false,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn executor(id: u32, assigned_milli: u64) -> ExecutorView {
        ExecutorView {
            executor: ExecutorId(id),
            name: format!("n{id}"),
            host: "h".into(),
            process: 1,
            labels: Default::default(),
            accept: None,
            capacity: Resources { cpus_milli: 2000, ..Resources::default() },
            assigned_milli,
            assigned: assigned_milli / 1000,
            state: "computing".into(),
            computing: 1,
            staging: 0,
            suspended: 0,
            ended: 0,
            objects: 0,
            held_bytes: 250,
            store_bytes: 1000,
            free_disk_bytes: None,
            reads: Reads::default(),
            silent_us: 0,
            files: None,
            proxy: None,
        }
    }

    fn bytes(bytes: u64) -> Amount {
        Amount { bytes, ..Amount::default() }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let mut earlier = Snapshot {
            at_us: 5_000_000,
            jobs: vec![job(1, "a", 100, 1000)],
            executors: vec![],
            pools: vec![],
        };
        earlier.jobs[0].reads.local = bytes(1000);
        earlier.executors.push(executor(1, 5000));
        earlier.executors[0].reads.peer = bytes(10);
        let mut later = earlier.clone();
        later.at_us = 7_000_000;
        later.jobs[0] = job(1, "a", 140, 1000);
        later.jobs[0].reads = Reads {
            local: bytes(5000),
            peer: bytes(600),
            persistent: bytes(8),
            ..Reads::default()
        };
        // A job that is not in the earlier snapshot began with counts of 0.
        later.jobs.push(job(2, "b", 10, 10));
        later.executors[0].reads.peer = bytes(610);

        let seen = Overview::between(Some(&earlier), &later);
        assert_eq!(seen.interval_us, Some(2_000_000));
        assert_eq!(seen.jobs[0].tasks_per_s, Some(20.0));
        assert_eq!(seen.jobs[1].tasks_per_s, Some(5.0));
        assert_eq!(seen.cluster.tasks_per_s, Some(25.0));
        let reads = |local, peer, persistent| {
            Some(ReadRates {
                local_bytes_per_s: local,
                peer_bytes_per_s: peer,
                persistent_bytes_per_s: persistent,
                files_bytes_per_s: 0.0,
            })
        };
        assert_eq!(seen.cluster.reads, reads(2000.0, 300.0, 4.0));
        assert_eq!(seen.executors[0].read_rates, reads(0.0, 300.0, 0.0));
        assert_eq!(
            (seen.cluster.capacity_milli, seen.cluster.busy_milli),
            (2000, 2000),
            "tasks that wait at an executor are not busy"
        );
        assert_eq!(
            (seen.cluster.waiting, seen.cluster.assigned, seen.cluster.running_jobs),
            (856, 4, 1)
        );
        assert_eq!(seen.jobs[0].remaining_us, Some(43_000_000), "860 tasks at 20/s");
        assert_eq!(seen.jobs[1].remaining_us, None);
    }

    #[test]
    fn no_rate_is_shown_without_an_earlier_snapshot() {
        let snapshot = |at_us, succeeded| Snapshot {
            at_us,
            jobs: vec![job(1, "a", succeeded, 100)],
            executors: vec![],
            pools: vec![],
        };
        for earlier in [None, Some(&snapshot(9, 0)), Some(&snapshot(10, 0))] {
            let seen = Overview::between(earlier, &snapshot(9, 50));
            assert_eq!(
                (seen.interval_us, seen.cluster.tasks_per_s, seen.cluster.reads),
                (None, None, None)
            );
            assert_eq!(seen.jobs[0].tasks_per_s, None);
        }
        let nothing = |at_us| Snapshot { at_us, jobs: vec![], executors: vec![], pools: vec![] };
        let seen = Overview::between(Some(&nothing(0)), &nothing(1));
        assert_eq!(seen.cluster.tasks_per_s.map(f64::to_bits), Some(0), "and not -0.0");
        // Counts fall when a job is retried; cancelled tasks are no throughput.
        let seen = Overview::between(Some(&snapshot(0, 50)), &snapshot(1_000_000, 20));
        assert_eq!(seen.cluster.tasks_per_s, Some(0.0));
        let mut cancelled = snapshot(1_000_000, 50);
        cancelled.jobs[0].tasks =
            TaskCounts { succeeded: 50, cancelled: 50, ..TaskCounts::default() };
        assert_eq!(
            Overview::between(Some(&snapshot(0, 50)), &cancelled).cluster.tasks_per_s,
            Some(0.0)
        );
    }

    #[test]
    fn few_tasks_of_late_do_not_say_when_a_job_ends() {
        let with = |ended| remaining_us(&job(1, "a", 50, 100), Some((ended, 1_000_000)));
        assert_eq!(with(MIN_TASKS_FOR_ETA), Some(5_000_000));
        assert_eq!(
            with(MIN_TASKS_FOR_ETA - 1),
            Some(10_000_000),
            "as in the 10 s since submission"
        );
        assert_eq!(remaining_us(&job(1, "a", 0, 100), Some((0, 1_000_000))), None);
        assert_eq!(remaining_us(&job(1, "a", 100, 100), Some((20, 1_000_000))), None);
    }

    #[test]
    fn running_jobs_come_first() {
        let jobs = vec![job(1, "", 1, 1), job(2, "", 0, 1), job(3, "", 1, 1), job(4, "", 0, 1)];
        let seen =
            Overview::between(None, &Snapshot { at_us: 0, jobs, executors: vec![], pools: vec![] });
        assert_eq!(seen.jobs.iter().map(|line| line.view.job.0).collect::<Vec<_>>(), [2, 4, 3, 1]);
    }

    #[test]
    fn executors_are_in_the_order_of_their_names() {
        let executors = [10, 2, 1].map(|id| executor(id, 0)).to_vec();
        let seen =
            Overview::between(None, &Snapshot { at_us: 0, jobs: vec![], executors, pools: vec![] });
        assert_eq!(
            seen.executors.iter().map(|line| &*line.view.name).collect::<Vec<_>>(),
            ["n1", "n2", "n10"]
        );
    }
}
