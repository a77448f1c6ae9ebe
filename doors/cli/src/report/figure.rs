//! The metrics of a job for people: the name, value and meaning of each, and the section of the
//! paper that defines it. The page and the terminal show the same list.

use super::amount::{
    NOTHING, bits_per_second, counted, duration, number, processor_time, share, times,
};
use super::course::{average_throughput, peak_throughput};
use eyas_types::course::Metrics;
use eyas_types::outcome::Amount;
use eyas_types::units::format_bytes;
use eyas_wire::view::JobReport;

/// A metric that is one number.
pub struct Figure {
    /// Name of the metric.
    pub name: &'static str,
    /// Symbol of the metric in the paper.
    pub sign: &'static str,
    /// Value with its unit.
    pub value: String,
    /// A second value beside the first, such as the peak beside the average.
    pub beside: String,
    /// Meaning of the metric, in a line.
    pub meaning: &'static str,
    /// Section of data-diffusion that defines the metric.
    pub section: &'static str,
}

/// The metrics of a job that are one number each.
pub fn figures(report: &JobReport) -> [Figure; 5] {
    let metrics = &report.metrics;
    let elapsed_us = metrics.elapsed_us as f64;
    // Before any time has passed, a ratio of times is unknown, and not 0.
    let measured = |ratio| if metrics.elapsed_us == 0 { f64::NAN } else { ratio };
    let processors = number(known(metrics.held_cpu_us) / elapsed_us);
    let mut figures = [
        Figure {
            name: "Throughput",
            sign: "",
            value: bits_per_second(average_throughput(report)),
            beside: format!("peak {}", bits_per_second(peak_throughput(&report.samples))),
            meaning: "Input bytes read per second, from all sources. The peak is the 99th \
                      percentile.",
            section: "§5.1.4",
        },
        Figure {
            name: "Speedup",
            sign: "SP",
            value: times(measured(metrics.speedup)),
            beside: format!("{} of work in sequence", duration(metrics.serial_us as f64)),
            meaning: "Run time of all tasks in sequence on one processor, divided by the elapsed \
                      time.",
            section: "§3.1, eq. 6",
        },
        Figure {
            name: "Efficiency",
            sign: "EF",
            value: share(measured(metrics.efficiency.unwrap_or(f64::NAN))),
            beside: format!("of {processors} processors"),
            meaning: "Speedup divided by the average number of processors; 100\u{a0}% if all are \
                      always busy.",
            section: "§3.1, eq. 7",
        },
        Figure {
            name: "Slowdown",
            sign: "SL",
            value: times(measured(metrics.slowdown)),
            beside: format!("ideal {}", duration(elapsed_us / metrics.slowdown)),
            meaning: "Elapsed time divided by the ideal time with unlimited processors and local \
                      data; 1 is the ideal.",
            section: "§5.1.6",
        },
        Figure {
            name: "Performance index",
            sign: "PI",
            value: number(measured(metrics.performance_index.unwrap_or(f64::NAN))),
            beside: "per CPU hour".into(),
            meaning: "Speedup for each processor hour held: the gain of the job for its cost.",
            section: "§5.1.5",
        },
    ];
    for figure in &mut figures {
        if figure.value == NOTHING {
            figure.beside.clear();
        }
    }
    figures
}

/// Processor time, microseconds; not a number if samples were lost.
fn known(us: Option<u64>) -> f64 {
    us.map_or(f64::NAN, |us| us as f64)
}

/// A metric that is a whole and its parts, shown as a bar.
pub struct Breakdown {
    /// Name of the whole.
    pub name: &'static str,
    /// Symbol of the metric in the paper.
    pub sign: &'static str,
    /// The whole, with its unit.
    pub value: String,
    /// Meaning of the metric, in a line.
    pub meaning: &'static str,
    /// Section of data-diffusion that defines the metric.
    pub section: &'static str,
    /// The parts, in the order of the bar.
    pub parts: Vec<BreakdownPart>,
    /// Shown instead of the parts if the whole is 0 or unknown.
    pub nothing: &'static str,
}

/// A part of a whole.
pub struct BreakdownPart {
    /// Name of the part.
    pub name: &'static str,
    /// Size, in a unit that all parts share.
    pub size: f64,
    /// Size as text, with its unit.
    pub value: String,
    /// CSS class of the part's colour.
    pub class: &'static str,
}

impl Breakdown {
    /// The share of a part in the whole, from 0 to 1; not a number if the whole is 0.
    pub fn share(&self, part: &BreakdownPart) -> f64 {
        part.size / self.parts.iter().map(|part| part.size).sum::<f64>()
    }

    /// Whether the whole is known and not 0.
    pub fn is_something(&self) -> bool {
        let whole: f64 = self.parts.iter().map(|part| part.size).sum();
        whole.is_finite() && whole > 0.0
    }
}

/// The metrics of a job that are a whole and its parts.
pub fn breakdowns(report: &JobReport) -> [Breakdown; 3] {
    let mut breakdowns = all_breakdowns(report);
    for breakdown in &mut breakdowns {
        if !breakdown.is_something() {
            breakdown.value = NOTHING.into();
        }
    }
    breakdowns
}

fn all_breakdowns(report: &JobReport) -> [Breakdown; 3] {
    let (metrics, reads) = (&report.metrics, &report.job.reads);
    let part = |name, size, value, class| BreakdownPart { name, size, value, class };
    let time = |name, us: f64, class| part(name, us, duration(us), class);
    let read = |name, amount: &Amount, class| {
        let value = format!("{}, {}", format_bytes(amount.bytes), counted(amount.count, "input"));
        part(name, amount.bytes as f64, value, class)
    };
    let mut inputs = vec![
        read("Local", &reads.local, "local"),
        read("Peer", &reads.peer, "peer"),
        read("Persistent", &reads.persistent, "persistent"),
    ];
    if reads.files.count > 0 {
        let files = |name, bytes: u64| part(name, bytes as f64, format_bytes(bytes), "files");
        inputs.push(files("Cluster files, own node", reads.files.own_bytes));
        inputs.push(files("Cluster files, other nodes", reads.files.other_bytes));
    }
    let held_us = metrics.held_cpu_us.unwrap_or_default();
    let unused_us = held_us.saturating_sub(metrics.used_cpu_us);
    let is_known = metrics.held_cpu_us.is_some();
    [
        Breakdown {
            name: "Response time",
            sign: "AR = WQ + TK + D",
            value: duration(metrics.response_us),
            meaning: "Average time from when a task is ready until the dispatcher learns of its \
                      end.",
            section: "§5.1.7",
            parts: vec![
                time("Queue", metrics.queue_us, "queue"),
                time("Execution", metrics.execution_us, "execution"),
                time("Delivery", metrics.delivery_us, "delivery"),
            ],
            nothing: "No task has ended yet.",
        },
        Breakdown {
            name: "Inputs",
            sign: "HR",
            value: format_bytes(reads.bytes()),
            meaning: "Where inputs came from. Local: the disk of the task's own node (a hit). \
                      Peer: the disk of another node. Persistent: the storage that the job named.",
            section: "§5.1.3",
            parts: inputs,
            nothing: "No input has been read yet.",
        },
        Breakdown {
            name: "CPU time held",
            sign: "CPU_T",
            value: processor_time(held_us),
            meaning: "Processor time that was reserved for the job, whether its tasks used it or \
                      not.",
            section: "§5.1.5",
            parts: vec![
                part(
                    "Used",
                    if is_known { metrics.used_cpu_us as f64 } else { f64::NAN },
                    processor_time(metrics.used_cpu_us),
                    "used",
                ),
                part("Not used", unused_us as f64, processor_time(unused_us), "unused"),
            ],
            nothing: match is_known {
                true => "No processor has been held yet.",
                false => "Not known: samples were lost when the dispatcher was restarted.",
            },
        },
    ]
}

/// A metric of the job beside the baseline's.
pub struct Comparison {
    /// Name of the metric.
    pub name: &'static str,
    /// Value for this job.
    pub this: String,
    /// Value for the baseline.
    pub baseline: String,
    /// This job's value divided by the baseline's; not a number if that is not possible.
    pub ratio: f64,
    /// Whether more is better; `None` if more is neither better nor worse.
    pub more_is_better: Option<bool>,
    /// Meaning of the metric, in a line.
    pub meaning: &'static str,
}

/// The metrics of the job beside those of a baseline. The relative metrics of the paper come first:
/// `SP = T(baseline) / T(this)` and `PI = SP / CPU_T`, scaled so that the larger of the two jobs'
/// indices is 1 (data-diffusion §5.1).
pub fn comparisons(report: &JobReport, baseline: &JobReport) -> Vec<Comparison> {
    let mut rows = relative_metrics(&report.metrics, &baseline.metrics);
    rows.extend(throughput_and_times(report, baseline));
    rows.extend(sources_of_input(&report.metrics, &baseline.metrics));
    rows
}

/// The metrics of the paper that need a baseline, and those of which they are made.
fn relative_metrics(this: &Metrics, that: &Metrics) -> Vec<Comparison> {
    let speedup = that.elapsed_us as f64 / this.elapsed_us as f64;
    let (index, base_index) = (speedup / known(this.held_cpu_us), 1.0 / known(that.held_cpu_us));
    let best = index.max(base_index);
    let cpu = |us: f64| if us.is_nan() { NOTHING.into() } else { processor_time(us as u64) };
    vec![
        row(
            "Speedup",
            [speedup, 1.0],
            &times,
            Some(true),
            "SP: elapsed time of the baseline divided by that of this job (§5.1.5)",
        ),
        row(
            "Performance index",
            [index / best, base_index / best],
            &number,
            Some(true),
            "PI: speedup divided by CPU time; 1 for the better of the two jobs (§5.1.5)",
        ),
        row(
            "Elapsed time",
            [this.elapsed_us as f64, that.elapsed_us as f64],
            &duration,
            Some(false),
            "T (§5.1)",
        ),
        row(
            "CPU time held",
            [known(this.held_cpu_us), known(that.held_cpu_us)],
            &cpu,
            Some(false),
            "CPU_T, used or not (§5.1.5)",
        ),
    ]
}

/// How fast the inputs came, and the tasks were done.
fn throughput_and_times(report: &JobReport, baseline: &JobReport) -> Vec<Comparison> {
    let (this, that) = (&report.metrics, &baseline.metrics);
    vec![
        row(
            "Throughput, average",
            [average_throughput(report), average_throughput(baseline)],
            &bits_per_second,
            Some(true),
            "Input bytes from all sources, over the elapsed time (§5.1.4)",
        ),
        row(
            "Throughput, peak",
            [peak_throughput(&report.samples), peak_throughput(&baseline.samples)],
            &bits_per_second,
            Some(true),
            "99th percentile (§5.1.4)",
        ),
        row(
            "Response time",
            [this.response_us, that.response_us],
            &duration,
            Some(false),
            "AR, on average (§5.1.7)",
        ),
        row(
            "Slowdown",
            [this.slowdown, that.slowdown],
            &times,
            Some(false),
            "SL, elapsed time divided by the ideal time (§5.1.6)",
        ),
        row(
            "Efficiency",
            [this.efficiency, that.efficiency].map(|share| share.unwrap_or(f64::NAN)),
            &share,
            Some(true),
            "EF, speedup for each processor (§3.1, eq. 7)",
        ),
    ]
}

/// The sources of the input bytes.
fn sources_of_input(this: &Metrics, that: &Metrics) -> Vec<Comparison> {
    let source =
        |name, shares, more_is_better, meaning| row(name, shares, &share, more_is_better, meaning);
    let of_bytes = "Of input bytes (§5.1.3)";
    vec![
        source("From local stores", [this.local_share, that.local_share], Some(true), of_bytes),
        source("From peers", [this.peer_share, that.peer_share], None, of_bytes),
        source(
            "From persistent storage",
            [this.persistent_share, that.persistent_share],
            Some(false),
            of_bytes,
        ),
        source(
            "From files of the cluster",
            [this.files_share, that.files_share],
            None,
            "Of input bytes",
        ),
    ]
}

fn row(
    name: &'static str,
    [this, baseline]: [f64; 2],
    write: &dyn Fn(f64) -> String,
    more_is_better: Option<bool>,
    meaning: &'static str,
) -> Comparison {
    Comparison {
        name,
        this: write(this),
        baseline: write(baseline),
        ratio: this / baseline,
        more_is_better,
        meaning,
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_baseline_gives_the_papers_speedup_and_index() {
        let (mut this, mut baseline) = (example::diffusion(), example::persistent_only());
        (this.metrics.elapsed_us, this.metrics.held_cpu_us) =
            (1_427_000_000, Some(17 * 3_600_000_000));
        (baseline.metrics.elapsed_us, baseline.metrics.held_cpu_us) =
            (5_011_000_000, Some(2 * 17 * 3_600_000_000));
        let rows = comparisons(&this, &baseline);
        assert_eq!((rows[0].this.as_str(), rows[0].baseline.as_str()), ("3.51×", "1.00×"));
        // Half the processor time and 3.51 times the speed: 7.02 times the index.
        assert_eq!((rows[1].this.as_str(), rows[1].baseline.as_str()), ("1.00", "0.142"));
        let other = comparisons(&baseline, &this);
        assert_eq!((other[1].this.as_str(), other[1].baseline.as_str()), ("0.142", "1.00"));
    }

    #[test]
    fn metrics_that_need_lost_samples_are_left_out() {
        let mut report = example::diffusion();
        let metrics = &mut report.metrics;
        (metrics.efficiency, metrics.held_cpu_us, metrics.performance_index) = (None, None, None);
        metrics.unsampled_us = 1_000_000;
        for name in ["Efficiency", "Performance index"] {
            let figure = figures(&report).into_iter().find(|figure| figure.name == name).unwrap();
            assert_eq!((figure.value.as_str(), figure.beside.as_str()), (NOTHING, ""));
        }
        let [.., held] = breakdowns(&report);
        assert_eq!((held.value.as_str(), held.is_something()), (NOTHING, false));
        assert!(held.nothing.contains("samples were lost"));
    }

    #[test]
    fn a_job_without_measurements_shows_no_numbers() {
        let empty = example::empty();
        for figure in figures(&empty) {
            assert!(
                !figure.value.contains("NaN") && !figure.beside.contains("NaN"),
                "{}",
                figure.name
            );
            assert!(
                !figure.value.contains("inf") && !figure.beside.contains("inf"),
                "{}",
                figure.name
            );
        }
        assert!(breakdowns(&empty).iter().all(|breakdown| !breakdown.is_something()));
    }
}
