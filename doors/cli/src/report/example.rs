//! Example jobs for tests of reports: the monotonically increasing workload of the paper
//! (data-diffusion §5.1, equation
//! 12) as a fluid model, so that the pages of tests look like figures 17 and 20.

use eyas_types::outcome::{Amount, Reads};
use eyas_types::{JobId, TaskId};
use eyas_wire::view::graph::{JobGraph, TemplateReads, TemplateView};
use eyas_wire::view::{
    FailureView, JobOwner, JobReport, JobState, JobView, Metrics, Sample, TaskCounts, TaskView,
};

use super::details::{FailureGroup, JobDetails};

const TASKS: f64 = 250_000.0;
const INPUT_BYTES: u64 = 10_000_000;
const FILES: f64 = 10_000.0;
const INTERVAL_S: f64 = 6.0;
const EXECUTORS: f64 = 64.0;

/// Figure 20: good-cache-compute with room for the whole working set. Demand rises, replicas
/// spread, and hits increase.
pub fn diffusion() -> JobReport {
    monotonically_increasing(true)
}

/// Figure 17: every read is from persistent storage, with 4.4 Gb/s at most.
pub fn persistent_only() -> JobReport {
    monotonically_increasing(false)
}

/// As [`diffusion`], stretched to 1,000 samples.
pub fn long() -> JobReport {
    let mut report = diffusion();
    let pattern = report.samples.clone();
    report.samples = (0..1000)
        .map(|i| Sample { at_us: (i as u64 + 1) * 6_000_000, ..pattern[i * pattern.len() / 1000] })
        .collect();
    report
}

/// A job that has just been submitted, with no task.
pub fn empty() -> JobReport {
    JobReport {
        job: job(JobState::Running, TaskCounts::default(), Reads::default(), 0),
        policy: "gcc".into(),
        samples: Vec::new(),
        metrics: Metrics::default(),
        failures: Vec::new(),
        pools: Vec::new(),
    }
}

/// A job whose names and failures try to act as markup, script and terminal control.
pub fn hostile() -> JobReport {
    let act = "</script><script>alert(1)</script><img src=x onerror=\"alert(2)\"> & 'q' \
               \u{1b}[31mred\u{0}";
    let mut report = diffusion();
    report.job.name = act.into();
    report.job.state = JobState::Failed;
    report.job.tasks.failed = 3;
    report.job.warnings = vec![act.into()];
    report.policy = act.into();
    let failure = |index, status: &str, stderr: String| FailureView {
        task: TaskId { job: JobId(7), index },
        id: None,
        item: act.into(),
        command: vec!["stack".into(), act.into()],
        status: status.into(),
        stderr,
    };
    let long = "stack: cannot open /data/sdss/".to_string()
        + &"very-long-name-".repeat(30)
        + "\nline two\n    line three";
    report.failures = vec![
        failure(3, act, act.into()),
        failure(17, "exit code 2", long),
        failure(40, "exit code 1", String::new()),
    ];
    report
}

/// Details of a job with 90 tasks on three executors. 41 tasks have failed. The names of one task
/// contain markup.
pub fn details() -> JobDetails {
    let act = "<script>alert(3)</script>.fits";
    let task = |index: u32| TaskView {
        task: TaskId { job: JobId(7), index },
        id: None,
        state: if index % 2 == 1 && index < 82 { "failed" } else { "succeeded" }.into(),
        priority: 0,
        item: if index == 5 { act.into() } else { format!("/data/{index}.fits").as_str().into() },
        command: vec!["stack".into(), act.into()],
        tries: 1,
        executor: Some(if index == 5 { act.into() } else { format!("node-{}", index % 3) }),
        status: Some(if index % 2 == 1 { "exit code 2" } else { "succeeded" }.into()),
        queued_us: 1000,
        waited_us: 2000,
        ran_us: u64::from(index + 1) * 100_000,
        suspended_us: 0,
        cpu_us: 50_000,
        peak_memory_bytes: 1_000_000,
        reused: None,
        estimate: None,
        reads: Reads::default(),
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let template = |template, id: Option<&str>, command, succeeded| TemplateView {
        template,
        id: id.map(str::to_owned),
        command,
        tasks: TaskCounts { succeeded, ..TaskCounts::default() },
    };
    let graph = JobGraph {
        templates: vec![
            template(0, None, words(&["stack", "{}", "a b"]), 89),
            template(1, Some(act), words(&["merge", act]), 1),
        ],
        reads: vec![TemplateReads { from: 0, to: 1, pairs: 89, in_order: None }],
        inputs: 12,
        input_bytes: 1200,
        input_digest: "0123abcd".into(),
    };
    let example = |index| FailureView {
        task: TaskId { job: JobId(7), index },
        id: Some(act.into()),
        item: act.into(),
        command: vec!["stack".into(), act.into()],
        status: "exit code 2".into(),
        stderr: format!("cannot open {act}\nsecond line"),
    };
    JobDetails {
        graph: Some(graph),
        tasks: (0..90).map(task).collect(),
        failures: vec![FailureGroup {
            reason: "exit code 2".into(),
            count: 41,
            examples: vec![example(1), example(3), example(5)],
        }],
    }
}

fn job(state: JobState, tasks: TaskCounts, reads: Reads, elapsed_us: u64) -> JobView {
    JobView {
        job: JobId(7),
        name: "mi-250k-10MB-10ms".into(),
        owner: JobOwner::default(),
        state,
        tasks,
        retried: 0,
        recomputed: 0,
        peak_memory_bytes: 0,
        reused: 0,
        reads,
        submitted_unix_ms: 1_795_242_517_000,
        elapsed_us,
        executors: if elapsed_us == 0 { 0 } else { EXECUTORS as u64 },
        capacity_milli: if elapsed_us == 0 { 0 } else { EXECUTORS as u64 * 2000 },
        is_stuck: false,
        is_output_cut: false,
        warnings: Vec::new(),
    }
}

/// Deterministic noise from -1 to 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }
}

/// Tasks that arrive each second at `at_s`: 1, and 1.3 times as many every minute, up to 1000
/// (equation 12).
fn arrival_rate(at_s: f64) -> f64 {
    (0..(at_s / 60.0) as u32).fold(1.0, |rate: f64, _| (rate * 1.3).ceil().min(1000.0))
}

fn monotonically_increasing(diffuse: bool) -> JobReport {
    let mut noise = Noise(20);
    let (mut at_s, mut arrived_all, mut ended_all, mut waiting) = (0.0, 0.0, 0.0, 0.0_f64);
    let (mut replicas, mut executors) = (0.0_f64, 1.0_f64);
    let (mut samples, mut reads, mut sums) = (Vec::new(), Reads::default(), Sums::default());
    while ended_all < TASKS {
        at_s += INTERVAL_S;
        let arrived =
            (arrival_rate(at_s - INTERVAL_S) * INTERVAL_S).min(TASKS - arrived_all).round();
        // Executors start some seconds after the queue has grown.
        let wanted = 1.0 + arrived / INTERVAL_S / 15.0 + waiting / 400.0;
        executors += ((wanted - executors) * 0.1).clamp(0.0, 2.0);
        let here = executors.floor().min(EXECUTORS);
        let hit = if diffuse { (replicas / FILES).min(0.985) } else { 0.0 };
        // The limits by the 2 processors of each executor, and by persistent storage with 4.4 Gb/s.
        let by_processors = here * 16.5 * INTERVAL_S * (1.0 + 0.04 * noise.next());
        let by_storage = 55.0 * INTERVAL_S * (1.0 + 0.08 * noise.next()) / (1.0 - hit);
        let ended =
            (waiting + arrived).min(by_processors).min(by_storage).min(TASKS - ended_all).round();
        arrived_all += arrived;
        ended_all += ended;
        waiting = (waiting + arrived - ended).max(0.0);
        let missed = (ended * (1.0 - hit)).round();
        let by_peers =
            ((ended - missed) * (0.05 + 0.25 * (1.0 - hit)) * (1.0 + 0.3 * noise.next())).round();
        let amount = |count: f64| Amount { count: count as u64, bytes: count as u64 * INPUT_BYTES };
        let from = Reads {
            local: amount(ended - missed - by_peers),
            peer: amount(by_peers),
            persistent: amount(missed),
            ..Reads::default()
        };
        // A miss of a file without a replica makes a replica.
        replicas += FILES * (1.0 - replicas / FILES) * (1.0 - (-missed / FILES).exp());
        let load = (ended / by_processors)
            .max(if ended >= by_storage.floor() { 0.97 } else { 0.0 })
            .min(1.0);
        let busy_milli = ((load * here * 2000.0) as u64).min(here as u64 * 2000);
        let sample = Sample {
            at_us: (at_s * 1e6) as u64,
            interval_us: (INTERVAL_S * 1e6) as u64,
            arrived: arrived as u64,
            arrived_bytes: arrived as u64 * INPUT_BYTES,
            ended: ended as u64,
            reads: from,
            waiting: waiting as u64,
            assigned: busy_milli / 1000,
            executors: here as u64,
            capacity_milli: here as u64 * 2000,
            busy_milli,
        };
        reads += from;
        sums.add(waiting, busy_milli, here);
        samples.push(sample);
    }
    ended(diffuse, samples, reads, sums.metrics(at_s, &reads))
}

/// The report of a job of which all tasks have succeeded.
fn ended(diffuse: bool, samples: Vec<Sample>, reads: Reads, metrics: Metrics) -> JobReport {
    let tasks = TaskCounts { succeeded: TASKS as u64, ..TaskCounts::default() };
    let mut job = job(JobState::Succeeded, tasks, reads, metrics.elapsed_us);
    if !diffuse {
        job.job = JobId(6);
    }
    let policy = if diffuse { "gcc" } else { "fa" };
    JobReport {
        job,
        policy: policy.into(),
        samples,
        metrics,
        failures: Vec::new(),
        pools: Vec::new(),
    }
}

/// Integrals over a job's time.
#[derive(Default)]
struct Sums {
    /// Tasks that wait, times seconds.
    waiting_integral: f64,
    /// Processor seconds: in use, held, and in use as one processor would need them.
    busy_s: f64,
    held_s: f64,
    serial_s: f64,
}

impl Sums {
    /// Adds an interval, with its tasks that wait, processors in use and executors.
    fn add(&mut self, waiting: f64, busy_milli: u64, executors: f64) {
        self.waiting_integral += waiting * INTERVAL_S;
        self.busy_s += busy_milli as f64 / 1e3 * INTERVAL_S;
        self.held_s += executors * 2.0 * INTERVAL_S;
        self.serial_s += busy_milli as f64 / 1e3 * INTERVAL_S * 0.93;
    }

    fn metrics(&self, at_s: f64, reads: &Reads) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.elapsed_us = (at_s * 1e6) as u64;
        metrics.serial_us = (self.serial_s * 1e6) as u64;
        metrics.speedup = self.serial_s / at_s;
        metrics.efficiency = Some(metrics.speedup / (self.held_s / at_s));
        metrics.held_cpu_us = Some((self.held_s * 1e6) as u64);
        metrics.used_cpu_us = (self.serial_s * 0.88e6) as u64;
        metrics.performance_index = Some(metrics.speedup / (self.held_s / 3600.0));
        metrics.queue_us = self.waiting_integral / TASKS * 1e6;
        metrics.execution_us = self.busy_s / TASKS * 1e6;
        metrics.delivery_us = 2_400.0;
        metrics.response_us = metrics.queue_us + metrics.execution_us + metrics.delivery_us;
        metrics.slowdown = at_s / 1415.0;
        let bytes = reads.bytes() as f64;
        metrics.local_share = reads.local.bytes as f64 / bytes;
        metrics.peer_share = reads.peer.bytes as f64 / bytes;
        metrics.persistent_share = reads.persistent.bytes as f64 / bytes;
        metrics
    }
}
