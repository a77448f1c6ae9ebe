//! Runs in which everything breaks: small clusters, workloads, policies and failures, all of them thrown with one seed.
//!
//! Nodes are lost, leave and come back, connections break, dispatchers die and are started again, tasks fail and are tried
//! again, clients cancel and retry, tasks write outputs that are kept in the cluster, and others read them. After each step,
//! [`Books`] checks that no acknowledged result is lost, none is told twice, and no cancelled task starts. Each run ends,
//! and what was promised is in the cluster then. The same seed gives the same run. The simulator itself asserts that no
//! executor has more tasks than slots, nor more in its store than there is room; the deciders assert what contradicts
//! earlier events.
//!
//! `cargo test` tries a few seeds, `EYAS_SEEDS=10000` more of them, `make soak MINUTES=10` others for that long. A seed that
//! fails is tried again by `EYAS_SEED=17 make soak`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eyas_jobs::{Entry, MAX_RECOMPUTATIONS, Phase};
use eyas_sim::audit::{Audit, Audited};
use eyas_sim::clock::SECOND;
use eyas_sim::cluster::{Cluster, Deal, Policies};
use eyas_sim::nodes::{Batch, Failures};
use eyas_sim::outcome::Outcome;
use eyas_sim::random::Random;
use eyas_sim::run_audited;
use eyas_sim::workload::{AllPairs, KeepRule, Order, Requests, SharedWorkload, Staged, Workload, Zipf};
use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy, ProvisioningPolicy, Status};

/// Seeds of each ordinary test run.
const SEEDS: u64 = 60;
/// Nothing fails from then on. A task for which no executor has room fails after some minutes of one dispatcher: where
/// dispatchers die more often than that, and for ever, a job without room never ends.
const CALM: u64 = 4 * 3_600 * SECOND;
/// A run that has not ended by then, in its own time, never does: without failures, an hour is enough for each.
const LIMIT: u64 = 30 * 86_400 * SECOND;

#[test]
fn whatever_breaks_nothing_acknowledged_is_lost_and_everything_ends() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("EYAS_SEED"), number("EYAS_SOAK_MINUTES")) {
        (Some(seed), _) => println!("{:?}", try_seed(seed)),
        (None, Some(minutes)) => soak(Duration::from_secs(60 * minutes)),
        (None, None) => {
            let seeds = number("EYAS_SEEDS").unwrap_or(SEEDS);
            let outcomes: Vec<_> = (0..seeds).map(try_seed).collect();
            let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
            assert!(sum(|of| of.lost_nodes) > seeds && sum(|of| of.broken_connections) > seeds, "too little breaks");
            assert!(sum(|of| of.restarts) > seeds / 4 && sum(|of| of.left_nodes) > seeds / 4, "too little restarts");
            assert!(sum(|of| of.recomputed) > seeds / 4 && sum(|of| of.cancelled) > seeds, "too little is lost");
            assert!(sum(|of| of.done) > sum(|of| of.tasks) / 2, "too little succeeds");
        }
    }
}

/// Tries new seeds for that long.
fn soak(time: Duration) {
    let began = Instant::now();
    let first = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis() as u64;
    let seeds = (first..).take_while(|_| began.elapsed() < time).map(try_seed).count();
    println!("{seeds} seeds from {first} on: nothing has failed");
}

fn try_seed(seed: u64) -> Outcome {
    let _replay = Replay(seed);
    let case = Case::of(seed);
    let (outcome, books) = case.run();
    let Outcome { tasks, done, failed, cancelled, makespan_ns, .. } = outcome;
    assert!(makespan_ns < LIMIT, "it does not end");
    assert_eq!(done.max(tasks - failed - cancelled), done, "{failed} failed, {cancelled} were cancelled, of {tasks}");
    assert_eq!(outcome.course.samples.iter().map(|part| part.done).sum::<u64>(), done);
    books.check_end();
    if !case.may_fail() {
        assert!(outcome.is_complete(), "{done} of {tasks} tasks were done");
    }
    if seed < SEEDS {
        assert_eq!(format!("{outcome:?}"), format!("{:?}", case.run().0), "the same seed is another run");
    }
    outcome
}

/// Says how a seed is tried again when it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}", Case::of(self.0));
            eprintln!("to try this seed again: EYAS_SEED={} make soak", self.0);
        }
    }
}

/// What must hold of each dispatcher's job.
#[derive(Default)]
struct Books(BTreeMap<usize, JobBooks>);

#[derive(Default)]
struct JobBooks {
    /// How tasks have ended, as the entries have it that were written.
    written: Results,
    /// The same, as the entries have it that are on disk: the client was told so.
    told: Results,
    /// Tasks of which the client was told that they are cancelled, and that have not succeeded or failed before.
    cancelled: BTreeSet<u32>,
    has_ended: bool,
    /// Promised outputs that no executor has and that can be made again.
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
                assert!(self.0.remove(task).is_some(), "task {task} runs again and had not ended");
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
            assert!(books.lacking.is_empty(), "outputs of these tasks are promised and in no store");
        }
    }
}

impl Audit for Books {
    fn assigned(&mut self, dispatcher: usize, index: u32) {
        let books = self.of(dispatcher);
        assert!(!books.cancelled.contains(&index), "task {index} is cancelled and starts");
        assert_eq!(books.written.0.get(&index), None, "task {index} has ended and starts");
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
        let is_over = |index: &u32| matches!(books.written.0.get(index), Some(Phase::Succeeded | Phase::Failed));
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

    fn stepped(&mut self, dispatchers: &mut dyn Iterator<Item = Audited<'_>>) {
        for Audited { number, job, scheduler } in dispatchers {
            let books = self.of(number);
            for (index, phase) in &books.written.0 {
                let now = job.tasks[*index as usize].phase;
                assert_eq!(now, *phase, "task {index}: its result is lost");
            }
            books.has_ended = job.has_ended();
            books.lacking.clear();
            if books.has_ended {
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
    cluster: Cluster,
    policies: Policies,
    zipf: Option<Zipf>,
    pairs: AllPairs,
    /// Outputs of each task, and how many times an object is as large as one.
    outputs: (u32, u64),
    keep: Option<KeepRule>,
    stages: u32,
    reads: u32,
    requests: Requests,
    seed: u64,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut dice = Random::new(seed);
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
        // All objects are pushed to the nodes that are there, and one dispatcher asks for nodes.
        let distribution = [None, Some(Distribution::Chain), Some(Distribution::SpanningTree), None, None]
            [below(5) as usize]
            .filter(|_| batch.is_none());
        // A node is there for long enough that some task ends there, else none of these would ever be done.
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
        let policies = if below(3) == 0 { Policies::of_the_paper(placement) } else { Policies::of_eyas(placement) };
        let eviction = EvictionPolicy::ALL[below(EvictionPolicy::ALL.len() as u64) as usize];
        let deal = [Deal::Objects, Deal::Turns][below(2) as usize];
        let policies = Policies { eviction, distribution, deal, ..policies };
        let keep = KeepRule { replicas: 1 + below(2) as u8, until_read: below(2) == 0 };
        let keep = (below(3) > 0 && policies.caches()).then_some(keep);
        let outputs = (below(3) as u32, 4 << below(4));
        let cancel = |from: u64, count: u64| from as u32..(from + count) as u32;
        let cancels = (0..below(3)).map(|_| (below(40_000_000), cancel(below(400), 1 + below(200))));
        let cancels = cancels.collect();
        let requests = Requests { retries: below(3) as u32, cancels, job_retries: below(3) as u32 };
        let (stages, reads) = if dispatchers == 1 { (1 + below(4) as u32, 1 + below(2) as u32) } else { (1, 1) };
        let has_kept = keep.is_some() && outputs.0 > 0;
        let cluster = Cluster {
            nodes: nodes as u32,
            dispatchers,
            cpus: 1 + below(4) as u32,
            cache_bytes: match distribution {
                Some(_) => 2 * data_bytes,
                None => (if has_kept { 8 } else { 2 } + below(30)) * object_bytes,
            },
            page_cache_bytes: below(10) * object_bytes,
            catalog_delay_ns: below(3) * SECOND,
            batch,
            failures,
            ..Cluster::teragrid_64(0)
        };
        let zipf = (below(2) == 0).then_some(zipf);
        Case { cluster, policies, zipf, pairs, outputs, keep, stages, reads, requests, seed }
    }

    /// Whether tasks may end otherwise than well.
    fn may_fail(&self) -> bool {
        let Failures { lost_after_ns, disconnected_after_ns, failed_tries, dispatcher_dies_after_ns, .. } =
            self.cluster.failures;
        let breaks = lost_after_ns.is_some() || disconnected_after_ns.is_some() || dispatcher_dies_after_ns.is_some();
        breaks || failed_tries > 0.0 || !self.requests.cancels.is_empty() || self.keep.is_some()
    }

    fn run(&self) -> (Outcome, Books) {
        let workload: SharedWorkload = match &self.zipf {
            Some(zipf) => Box::new(zipf.clone()),
            None => Box::new(self.pairs.clone()),
        };
        let (outputs, smaller) = self.outputs;
        let output_bytes = workload.object_bytes() / smaller;
        let staged = Staged {
            workload,
            outputs,
            output_bytes,
            keep: self.keep,
            stages: self.stages,
            reads: self.reads,
            requests: self.requests.clone(),
        };
        let mut books = Books::default();
        let outcome = run_audited(&self.cluster, &self.policies, &staged, self.seed, LIMIT, &mut books);
        (outcome, books)
    }
}
