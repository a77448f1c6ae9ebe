//! Runs in which everything breaks: small clusters with workloads, policies and failures that a
//! seed decides.
//!
//! Nodes are lost, leave and come back. Connections break. Dispatchers die and are started again.
//! Tasks fail and are retried, and clients cancel and retry. Tasks write outputs that are kept in
//! the cluster, and other tasks read them. After each step, [`Books`] checks that no acknowledged
//! result is lost, that no task ends twice, and that no cancelled task starts. Each run ends, and
//! all promised outputs are then in the cluster. The same seed gives the same run. The simulator
//! itself asserts that no executor runs more tasks than it has processors, or stores more
//! than it has room for. The deciders assert that no event contradicts earlier ones.
//!
//! [`eyas_faults::try_seeds`] says how to choose the seeds and how to repeat one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use eyas_faults::{Dice, try_seeds};
use eyas_jobs::{Entry, MAX_RECOMPUTATIONS, Phase};
use eyas_sim::audit::{Audit, AuditedDispatcher};
use eyas_sim::clock::SECOND;
use eyas_sim::cluster::{Policies, SimCluster, TaskPartitioning};
use eyas_sim::nodes::{Batch, Failures};
use eyas_sim::outcome::RunOutcome;
use eyas_sim::run_audited;
use eyas_sim::workload::{
    AdaptedWorkload, AllPairs, ClientRequests, Derivation, KeepRule, Order, SharedWorkload,
    StagedWorkload, Workload, Zipf,
};
use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy, ProvisioningPolicy, Status};

/// Number of seeds of an ordinary test run.
const SEEDS: u64 = 60;
/// Simulated time from which nothing fails. A dispatcher fails a task for which no executor has
/// room after some minutes. If dispatchers died more often than that until the end, a job without
/// room would never end.
const CALM: u64 = 4 * 3_600 * SECOND;
/// A run that has not ended after this simulated time never ends. Without failures, an hour is
/// enough for each.
const LIMIT: u64 = 30 * 86_400 * SECOND;

#[test]
fn whatever_breaks_nothing_acknowledged_is_lost_and_everything_ends() {
    let Some(outcomes) = try_seeds(SEEDS, try_seed) else { return };
    let seeds = outcomes.len() as u64;
    let sum = |of: fn(&RunOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(
        sum(|of| of.lost_nodes) > seeds && sum(|of| of.broken_connections) > seeds,
        "too little breaks"
    );
    assert!(
        sum(|of| of.restarts) > seeds / 4 && sum(|of| of.left_nodes) > seeds / 4,
        "too little restarts"
    );
    assert!(
        sum(|of| of.copies_made) > seeds
            && sum(|of| of.recomputed) > seeds / 4
            && sum(|of| of.cancelled) > seeds,
        "too little is lost"
    );
    assert!(sum(|of| of.done) > sum(|of| of.tasks) / 2, "too little succeeds");
}

fn try_seed(seed: u64) -> RunOutcome {
    let case = Case::of(seed);
    let _shown = ShownOnPanic(&case);
    let (outcome, books) = case.run();
    let RunOutcome { tasks, done, failed, cancelled, makespan_ns, .. } = outcome;
    assert!(makespan_ns < LIMIT, "the run does not end");
    assert_eq!(
        done.max(tasks - failed - cancelled),
        done,
        "{failed} failed, {cancelled} cancelled, of {tasks}"
    );
    assert_eq!(outcome.course.samples.iter().map(|part| part.done).sum::<u64>(), done);
    books.check_end();
    if !case.may_fail() {
        assert!(outcome.is_complete(), "{done} of {tasks} tasks were done");
    }
    if seed < SEEDS {
        assert_eq!(
            format!("{outcome:?}"),
            format!("{:?}", case.run().0),
            "the same seed gives another run"
        );
    }
    outcome
}

/// Prints a case when its run panics.
struct ShownOnPanic<'a>(&'a Case);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}", self.0);
        }
    }
}

/// What the client knows of each dispatcher's job, and checks after each step.
#[derive(Default)]
struct Books(BTreeMap<usize, JobBooks>);

#[derive(Default)]
struct JobBooks {
    /// How tasks have ended, by the entries that were written.
    written: Results,
    /// How tasks have ended, by the entries on disk, of which the client was told.
    told: Results,
    /// Tasks that the client was told are cancelled, and that had not succeeded or failed before.
    cancelled: BTreeSet<u32>,
    has_ended: bool,
    /// Tasks with promised outputs that no executor has and that can be recomputed.
    lacking: Vec<u32>,
}

/// How tasks have ended that do not run again.
#[derive(Clone, Default)]
struct Results(BTreeMap<u32, Phase>);

impl Results {
    fn apply(&mut self, entry: &Entry) {
        for end in entry.ends() {
            let phase = match end.result.outcome.status {
                Status::Succeeded => Phase::Succeeded,
                Status::Cancelled => Phase::Cancelled,
                _ => Phase::Failed,
            };
            let before = self.0.insert(end.result.index, phase);
            assert_eq!(before, None, "task {} ends twice", end.result.index);
        }
        if let Entry::Retried { tasks, .. } | Entry::Recomputed { tasks, .. } = entry {
            for task in tasks {
                assert!(
                    self.0.remove(task).is_some(),
                    "task {task} runs again before it has ended"
                );
            }
        }
    }
}

impl Books {
    fn of(&mut self, dispatcher: usize) -> &mut JobBooks {
        self.0.entry(dispatcher).or_default()
    }

    fn check_end(&self) {
        for (dispatcher, books) in &self.0 {
            assert!(books.has_ended, "the job of dispatcher {dispatcher} has not ended");
            assert!(
                books.lacking.is_empty(),
                "promised outputs of tasks {:?} are in no store",
                books.lacking
            );
        }
    }
}

impl Audit for Books {
    fn assigned(&mut self, dispatcher: usize, index: u32) {
        let books = self.of(dispatcher);
        assert!(!books.cancelled.contains(&index), "task {index} starts after it was cancelled");
        assert_eq!(books.written.0.get(&index), None, "task {index} starts after it has ended");
    }

    fn written(&mut self, dispatcher: usize, entry: &Entry) {
        let books = self.of(dispatcher);
        books.written.apply(entry);
        let succeeded = entry.ends().iter().filter(|end| end.result.outcome.status.is_success());
        succeeded.for_each(|end| _ = books.cancelled.remove(&end.result.index));
    }

    fn acknowledged(&mut self, dispatcher: usize, entry: &Entry) {
        self.of(dispatcher).told.apply(entry);
    }

    fn cancelled(&mut self, dispatcher: usize, indices: Range<u32>) {
        let books = self.of(dispatcher);
        let is_over = |index: &u32| {
            matches!(books.written.0.get(index), Some(Phase::Succeeded | Phase::Failed))
        };
        let cancelled: Vec<_> = indices.filter(|index| !is_over(index)).collect();
        books.cancelled.extend(cancelled);
    }

    fn retried(&mut self, dispatcher: usize) {
        self.of(dispatcher).cancelled.clear();
    }

    fn died(&mut self, dispatcher: usize) {
        let books = self.of(dispatcher);
        books.written = books.told.clone();
    }

    fn stepped(&mut self, dispatchers: &mut dyn Iterator<Item = AuditedDispatcher<'_>>) {
        for AuditedDispatcher { number, job, scheduler } in dispatchers {
            let books = self.of(number);
            for (index, phase) in &books.written.0 {
                let now = job.tasks[*index as usize].phase;
                assert_eq!(now, *phase, "task {index}: its result is lost");
            }
            books.has_ended = job.has_ended();
            books.lacking.clear();
            let has_executors = scheduler.utilisation().total_milli > 0;
            if books.has_ended && has_executors {
                let lacks = |index: &u32| {
                    let mut promised = job.kept_by(*index).filter(|(_, left)| left.is_promised());
                    let may_be_made = job.tasks[*index as usize].recomputed < MAX_RECOMPUTATIONS;
                    may_be_made && promised.any(|(object, _)| !scheduler.is_held(object))
                };
                books.lacking = (0..job.tasks.len() as u32).filter(lacks).collect();
            }
        }
    }
}

#[derive(Debug)]
struct Case {
    cluster: SimCluster,
    policies: Policies,
    zipf: Option<Zipf>,
    pairs: AllPairs,
    /// Number of outputs of each task, and the size of an object divided by the size of an output.
    outputs: (u32, u64),
    keep: Option<KeepRule>,
    stages: u32,
    reads: u32,
    requests: ClientRequests,
    /// What is made of objects, if they are compressed.
    derivation: Option<Derivation>,
    seed: u64,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut below = |count| dice.below(count);
        let object_bytes = 1_000_000 << below(6);
        let compute_us = 1_000 << below(11);
        let order = [Order::Rows, Order::Random(seed)][below(2) as usize];
        let pairs = AllPairs { side: 5 + below(15) as u32, object_bytes, compute_us, order };
        let zipf = Zipf {
            objects: 5 + below(60) as u32,
            tasks: 100 + below(400),
            interval_us: below(2) * 20_000,
            object_bytes,
            compute_us,
            seed,
            ..Zipf::default()
        };
        let batch = Batch {
            policy: ProvisioningPolicy::ALL[below(ProvisioningPolicy::ALL.len() as u64) as usize],
            min_nodes: below(2) as u32,
            idle_ns: (1 + below(60)) * SECOND,
            walltime_ns: (121 + below(1_000)) * SECOND,
            ..Batch::default()
        };
        let (batch, nodes) = ((below(3) == 0).then_some(batch), 1 + below(12));
        let data_bytes = object_bytes * u64::from(zipf.objects.max(2 * pairs.side));
        // Objects are pushed to existing nodes, and only one dispatcher can request nodes, so these
        // exclude each other.
        let distribution =
            [None, Some(Distribution::Chain), Some(Distribution::SpanningTree), None, None]
                [below(5) as usize]
                .filter(|_| batch.is_none());
        // Nodes stay long enough for some task to end on them. Otherwise no task would ever end.
        let failures = Failures {
            lost_after_ns: (below(2) == 0).then(|| (10 + below(60)) * SECOND),
            back_after_ns: Some((1 + below(60)) * SECOND),
            disconnected_after_ns: (below(2) == 0).then(|| (5 + below(30)) * SECOND),
            leaves: (below(3) == 0).then(|| ((5 + below(60)) * SECOND, (1 + below(30)) * SECOND)),
            dispatcher_dies_after_ns: (below(3) == 0 && batch.is_none() && distribution.is_none())
                .then(|| (5 + below(60)) * SECOND),
            dispatcher_back_after_ns: (1 + below(10)) * SECOND,
            failed_tries: 0.1 * [0, 0, 1, 3][below(4) as usize] as f64,
            slow_disks: 0.1 * below(4) as f64,
            failed_requests: 0.2 * below(4) as f64,
            until_ns: Some(CALM),
        };
        let dispatchers = if batch.is_some() { 1 } else { 1 + below(nodes.min(3)) as u32 };
        let placement = PlacementPolicy::ALL[below(PlacementPolicy::ALL.len() as u64) as usize];
        let policies = if below(3) == 0 {
            Policies::of_the_paper(placement)
        } else {
            Policies::of_eyas(placement)
        };
        let eviction = EvictionPolicy::ALL[below(EvictionPolicy::ALL.len() as u64) as usize];
        let partitioning =
            [TaskPartitioning::FirstInput, TaskPartitioning::RoundRobin][below(2) as usize];
        let policies = Policies { eviction, distribution, partitioning, ..policies };
        let keep = KeepRule { replicas: 1 + below(2) as u8, until_read: below(2) == 0 };
        let keep = (below(3) > 0 && policies.caches()).then_some(keep);
        let outputs = (below(3) as u32, 4 << below(4));
        let cancel = |from: u64, count: u64| from as u32..(from + count) as u32;
        let cancels =
            (0..below(3)).map(|_| (below(40_000_000), cancel(below(400), 1 + below(200))));
        let cancels = cancels.collect();
        let requests =
            ClientRequests { retries: below(3) as u32, cancels, job_retries: below(3) as u32 };
        let (stages, reads) =
            if dispatchers == 1 { (1 + below(4) as u32, 1 + below(2) as u32) } else { (1, 1) };
        let has_kept = keep.is_some() && outputs.0 > 0;
        let cluster = SimCluster {
            nodes: nodes as u32,
            dispatchers,
            cpus: 1 + below(4) as u32,
            cache_bytes: match distribution {
                Some(_) => 2 * data_bytes,
                // A task of a later stage reads up to two objects, and outputs as large as one.
                None => {
                    (if has_kept {
                        8
                    } else if stages > 1 {
                        3
                    } else {
                        2
                    } + below(30))
                        * object_bytes
                }
            },
            page_cache_bytes: below(10) * object_bytes,
            catalog_delay_ns: below(3) * SECOND,
            batch,
            failures,
            ..SimCluster::teragrid_64(0)
        };
        let zipf = (below(2) == 0).then_some(zipf);
        let derivation = Derivation {
            size_bytes: object_bytes * (1 + below(4)),
            takes_us: 1_000 << below(12),
            is_kept: below(4) > 0,
        };
        let derivation = (below(2) == 0).then_some(derivation);
        Case {
            cluster,
            policies,
            zipf,
            pairs,
            outputs,
            keep,
            stages,
            reads,
            requests,
            derivation,
            seed,
        }
    }

    /// Whether tasks may fail or be cancelled.
    fn may_fail(&self) -> bool {
        let Failures {
            lost_after_ns,
            disconnected_after_ns,
            failed_tries,
            dispatcher_dies_after_ns,
            ..
        } = self.cluster.failures;
        let breaks = lost_after_ns.is_some()
            || disconnected_after_ns.is_some()
            || dispatcher_dies_after_ns.is_some();
        breaks || failed_tries > 0.0 || !self.requests.cancels.is_empty() || self.keep.is_some()
    }

    fn run(&self) -> (RunOutcome, Books) {
        let workload: SharedWorkload = match &self.zipf {
            Some(zipf) => Box::new(zipf.clone()),
            None => Box::new(self.pairs.clone()),
        };
        let workload: SharedWorkload = match self.derivation {
            Some(derivation) => Box::new(AdaptedWorkload::derived(workload, derivation)),
            None => workload,
        };
        let (outputs, smaller) = self.outputs;
        let output_bytes = workload.object_bytes() / smaller;
        let staged = StagedWorkload {
            workload,
            outputs,
            output_bytes,
            keep: self.keep,
            stages: self.stages,
            reads: self.reads,
            requests: self.requests.clone(),
        };
        let mut books = Books::default();
        let outcome =
            run_audited(&self.cluster, &self.policies, &staged, self.seed, LIMIT, &mut books);
        (outcome, books)
    }
}
