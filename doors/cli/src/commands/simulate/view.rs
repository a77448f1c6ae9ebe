//! A simulated run as the report of a job, so that both have the same page, CSV and JSON.

use eyas_client::types::{JobId, Reads};
use eyas_client::view::{JobOwner, JobReport, JobState, JobView, Metrics, Sample, TaskCounts};
use eyas_sim::cluster::{Policies, SimCluster};
use eyas_sim::outcome::RunOutcome;
use eyas_sim::scenario::Scenario;

/// The report of a run with this `outcome`; `warning` has the reason if not all tasks have
/// succeeded.
pub(super) fn report(
    scenario: &Scenario,
    cluster: &SimCluster,
    policies: &Policies,
    outcome: &RunOutcome,
    warning: Option<String>,
) -> JobReport {
    let metrics = metrics(outcome);
    let tasks = scenario.workload.tasks();
    let counts = TaskCounts {
        succeeded: outcome.done,
        failed: outcome.failed,
        cancelled: tasks - outcome.done - outcome.failed,
        ..TaskCounts::default()
    };
    let job = JobView {
        job: JobId(1),
        name: scenario.name.clone(),
        owner: JobOwner::default(),
        state: if outcome.done == tasks { JobState::Succeeded } else { JobState::Failed },
        tasks: counts,
        retried: outcome.retried,
        reused: 0,
        recomputed: outcome.recomputed,
        peak_memory_bytes: 0,
        reads: outcome.reads,
        // A simulated job has no time of submission.
        submitted_unix_ms: 0,
        elapsed_us: metrics.elapsed_us,
        executors: cluster.nodes.into(),
        capacity_milli: cluster.processors() * 1000,
        is_stuck: false,
        is_output_cut: false,
        warnings: warning.into_iter().collect(),
    };
    let samples = samples(scenario, cluster, outcome);
    JobReport {
        job,
        policy: policies.placement.to_string(),
        samples,
        metrics,
        failures: Vec::new(),
        pools: Vec::new(),
    }
}

/// The samples of the run, with the arrivals of the workload.
fn samples(scenario: &Scenario, cluster: &SimCluster, outcome: &RunOutcome) -> Vec<Sample> {
    let workload = &scenario.workload;
    let (end_us, every_us) = (outcome.makespan_ns.div_ceil(1000), outcome.course.every_ns / 1000);
    let mut arrivals = workload.arrivals().peekable();
    let (mut at_us, mut unfinished) = (0, 0);
    let mut samples = Vec::with_capacity(outcome.course.samples.len());
    for part in &outcome.course.samples {
        let began_us = at_us;
        at_us = (began_us + every_us).min(end_us);
        if at_us == began_us {
            break;
        }
        let (mut arrived, mut arrived_bytes) = (0, 0);
        while let Some(task) = arrivals.next_if(|task| task.at_us < at_us) {
            arrived += 1;
            arrived_bytes +=
                task.inputs.iter().map(|object| workload.size_bytes(*object)).sum::<u64>();
        }
        unfinished += arrived;
        unfinished -= part.done.min(unfinished);
        samples.push(Sample {
            at_us,
            interval_us: at_us - began_us,
            arrived,
            arrived_bytes,
            ended: part.done,
            reads: part.reads,
            waiting: part.waiting,
            assigned: unfinished.saturating_sub(part.waiting),
            executors: part.nodes,
            capacity_milli: part.nodes * u64::from(cluster.cpus) * 1000,
            busy_milli: part.running * 1000,
        });
    }
    samples
}

/// Sums and averages, by the same equations as for a real job.
pub(super) fn metrics(outcome: &RunOutcome) -> Metrics {
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let us = |ns: u128| ns as f64 / 1e3;
    let mean_us = |ns: u128| ratio(us(ns), outcome.done as f64);
    let Reads { local, peer, persistent, files } = outcome.reads;
    let share = |bytes: u64| ratio(bytes as f64, outcome.reads.bytes() as f64);
    let (elapsed_us, held_us) = (outcome.makespan_ns as f64 / 1e3, us(outcome.held_cpu_ns));
    let speedup = ratio(us(outcome.ran_ns), elapsed_us);
    let (queue_us, response_us) = (mean_us(outcome.queued_ns), mean_us(outcome.responded_ns));
    let at_executor_ns = (outcome.waited_ns + outcome.ran_ns).saturating_sub(outcome.queued_ns);
    let execution_us = mean_us(at_executor_ns).min(response_us - queue_us);
    Metrics {
        elapsed_us: elapsed_us as u64,
        serial_us: us(outcome.ran_ns) as u64,
        speedup,
        efficiency: Some(ratio(speedup, ratio(held_us, elapsed_us))),
        held_cpu_us: Some(held_us as u64),
        used_cpu_us: us(outcome.computed_ns) as u64,
        performance_index: Some(ratio(speedup, held_us / 3.6e9)),
        unsampled_us: 0,
        response_us,
        queue_us,
        execution_us,
        delivery_us: response_us - queue_us - execution_us,
        slowdown: ratio(elapsed_us, outcome.ideal_ns as f64 / 1e3),
        local_share: share(local.bytes),
        peer_share: share(peer.bytes),
        persistent_share: share(persistent.bytes),
        files_share: share(files.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::path::Path;

    use super::*;
    use crate::report::{csv, html};

    #[test]
    fn a_run_is_a_report_without_gaps() {
        let text = "[cluster]\nnodes = 2\n\
            [workload.uniform]\nobjects = 20\nsize = \"5 MB\"\ntasks = 300\n\
            interval = \"10 ms\"\ncompute = \"20 ms\"\n";
        let scenario = Scenario::parse(text, "name", Path::new("")).unwrap();
        let Scenario { cluster, policies, .. } = &scenario;
        let outcome = scenario.run(cluster, policies, &mut |_| ControlFlow::Continue(()));
        let report = report(&scenario, cluster, policies, &outcome, None);
        let JobReport { job, samples, metrics, .. } = &report;
        assert_eq!(
            (job.state, job.tasks.succeeded, job.tasks.total()),
            (JobState::Succeeded, 300, 300)
        );
        let mut began_us = 0;
        for sample in samples {
            assert_eq!(sample.at_us - sample.interval_us, began_us);
            assert!(sample.busy_milli <= sample.capacity_milli && sample.capacity_milli == 4000);
            began_us = sample.at_us;
        }
        assert_eq!(began_us, outcome.makespan_ns.div_ceil(1000));
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
        assert_eq!((sum(|s| s.arrived), sum(|s| s.ended)), (300, 300));
        assert_eq!(
            (sum(|s| s.arrived_bytes), sum(|s| s.reads.bytes())),
            (1_500_000_000, 1_500_000_000)
        );
        let parts_us = metrics.queue_us + metrics.execution_us + metrics.delivery_us;
        assert!(
            (parts_us / metrics.response_us - 1.0).abs() < 1e-9 && metrics.delivery_us > 0.0,
            "{metrics:?}"
        );
        assert!(
            (0.3..=1.0).contains(&metrics.efficiency.unwrap()) && metrics.slowdown >= 1.0,
            "{metrics:?}"
        );
        assert_eq!(csv(&report).lines().count(), samples.len() + 1);
        assert!(html(&report, None, None).contains("Simulated job"));
    }
}
