//! The job's metrics in words: what each is called, what it came to, what it means, and where the paper defines it. The
//! page and the terminal show the same list.

use super::amount::{NOTHING, bits_per_second, counted, duration, number, processor_time, share, times};
use super::course::{average_throughput, peak_throughput};
use eyas_types::outcome::Amount;
use eyas_types::units::format_bytes;
use eyas_wire::view::JobReport;

/// One metric.
pub struct Figure {
    /// What it is called.
    pub name: &'static str,
    /// The paper's sign for it.
    pub sign: &'static str,
    /// What it came to, with its unit.
    pub value: String,
    /// What belongs to it: a peak, an average.
    pub beside: String,
    /// What it means, in a line.
    pub meaning: &'static str,
    /// Where the paper has it, in data-diffusion.
    pub section: &'static str,
}

/// The metrics of a job that are one number each.
pub fn figures(report: &JobReport) -> [Figure; 5] {
    let metrics = &report.metrics;
    let elapsed_us = metrics.elapsed_us as f64;
    // Before any time has passed a ratio of times is 0 because there is none, not because it is bad.
    let measured = |ratio| if metrics.elapsed_us == 0 { f64::NAN } else { ratio };
    let processors = number(known(metrics.held_cpu_us) / elapsed_us);
    let mut figures = [
        Figure {
            name: "Throughput",
            sign: "",
            value: bits_per_second(average_throughput(report)),
            beside: format!("peak {}", bits_per_second(peak_throughput(&report.samples))),
            meaning: "Input bytes read each second, from every source. The peak is the 99th percentile.",
            section: "§5.1.4",
        },
        Figure {
            name: "Speedup",
            sign: "SP",
            value: times(measured(metrics.speedup)),
            beside: format!("{} of work in a row", duration(metrics.serial_us as f64)),
            meaning: "How many times faster than its tasks one after another on one processor.",
            section: "§3.1, eq. 6",
        },
        Figure {
            name: "Efficiency",
            sign: "EF",
            value: share(measured(metrics.efficiency.unwrap_or(f64::NAN))),
            beside: format!("of {processors} processors"),
            meaning: "Speedup over the average number of processors: 100\u{a0}% is all of them at work all the time.",
            section: "§3.1, eq. 7",
        },
        Figure {
            name: "Slowdown",
            sign: "SL",
            value: times(measured(metrics.slowdown)),
            beside: format!("ideal {}", duration(elapsed_us / metrics.slowdown)),
            meaning: "Elapsed time over the ideal, with endless processors and data at hand: 1 is perfect.",
            section: "§5.1.6",
        },
        Figure {
            name: "Performance index",
            sign: "PI",
            value: number(measured(metrics.performance_index.unwrap_or(f64::NAN))),
            beside: "per CPU hour".into(),
            meaning: "Speedup for each processor hour held: what the job gave for what it cost.",
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

/// Processor time, microseconds; not a number where samples were lost.
fn known(us: Option<u64>) -> f64 {
    us.map_or(f64::NAN, |us| us as f64)
}

/// A whole and its parts, for a bar.
pub struct Split {
    /// What the whole is called.
    pub name: &'static str,
    /// The paper's sign for it.
    pub sign: &'static str,
    /// The whole, with its unit.
    pub value: String,
    /// What it means, in a line.
    pub meaning: &'static str,
    /// Where the paper has it, in data-diffusion.
    pub section: &'static str,
    /// Its parts.
    pub parts: Vec<Part>,
    /// What is said where the parts come to nothing.
    pub nothing: &'static str,
}

/// A part of a whole.
pub struct Part {
    /// What it is called.
    pub name: &'static str,
    /// How much of the whole, in any unit that all parts share.
    pub size: f64,
    /// How much, with its unit.
    pub value: String,
    /// Names its colour.
    pub class: &'static str,
}

impl Split {
    /// A part's share of the whole, from 0 to 1; not a number where there is no whole.
    pub fn share(&self, part: &Part) -> f64 {
        part.size / self.parts.iter().map(|part| part.size).sum::<f64>()
    }

    /// Whether there is something to show.
    pub fn is_something(&self) -> bool {
        let whole: f64 = self.parts.iter().map(|part| part.size).sum();
        whole.is_finite() && whole > 0.0
    }
}

/// The metrics of a job that are a whole and its parts.
pub fn splits(report: &JobReport) -> [Split; 3] {
    let mut splits = all_splits(report);
    for split in &mut splits {
        if !split.is_something() {
            split.value = NOTHING.into();
        }
    }
    splits
}

fn all_splits(report: &JobReport) -> [Split; 3] {
    let (metrics, reads) = (&report.metrics, &report.job.reads);
    let part = |name, size, value, class| Part { name, size, value, class };
    let time = |name, us: f64, class| part(name, us, duration(us), class);
    let read = |name, amount: &Amount, class| {
        let value = format!("{}, {}", format_bytes(amount.bytes), counted(amount.count, "input"));
        part(name, amount.bytes as f64, value, class)
    };
    let held_us = metrics.held_cpu_us.unwrap_or_default();
    let unused_us = held_us.saturating_sub(metrics.used_cpu_us);
    let is_known = metrics.held_cpu_us.is_some();
    [
        Split {
            name: "Response time",
            sign: "AR = WQ + TK + D",
            value: duration(metrics.response_us),
            meaning: "From a task's being ready to the news of its end, on average.",
            section: "§5.1.7",
            parts: vec![
                time("Queue", metrics.queue_us, "queue"),
                time("Execution", metrics.execution_us, "execution"),
                time("Delivery", metrics.delivery_us, "delivery"),
            ],
            nothing: "No task has ended yet.",
        },
        Split {
            name: "Inputs",
            sign: "HR",
            value: format_bytes(reads.bytes()),
            meaning: "Where tasks found their inputs: in their own executor's store, a peer's, or persistent storage.",
            section: "§5.1.3",
            parts: vec![
                read("Local", &reads.local, "local"),
                read("Peer", &reads.peer, "peer"),
                read("Persistent", &reads.persistent, "persistent"),
            ],
            nothing: "No input has been read.",
        },
        Split {
            name: "CPU time held",
            sign: "CPU_T",
            value: processor_time(held_us),
            meaning: "Processor time the job kept from others, used by its tasks or not.",
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
                true => "No processor has been held.",
                false => "It is not known: samples were lost when the dispatcher was restarted.",
            },
        },
    ]
}

/// A metric of the job beside the baseline's.
pub struct Comparison {
    /// What it is called.
    pub name: &'static str,
    /// This job's.
    pub this: String,
    /// The baseline's.
    pub baseline: String,
    /// This job's over the baseline's; not a number where they cannot be divided.
    pub ratio: f64,
    /// Whether more is better; `None` where it is neither.
    pub more_is_better: Option<bool>,
    /// What it means, in a line.
    pub meaning: &'static str,
}

/// The job beside a baseline, with the paper's relative metrics first: `SP = T(baseline) / T(this)` and
/// `PI = SP / CPU_T`, the larger of the two being 1 (data-diffusion §5.1).
pub fn comparisons(report: &JobReport, baseline: &JobReport) -> Vec<Comparison> {
    let (this, that) = (&report.metrics, &baseline.metrics);
    let speedup = that.elapsed_us as f64 / this.elapsed_us as f64;
    let (index, base_index) = (speedup / known(this.held_cpu_us), 1.0 / known(that.held_cpu_us));
    let best = index.max(base_index);
    let row = |name, [a, b]: [f64; 2], write: &dyn Fn(f64) -> String, more_is_better, meaning| Comparison {
        name,
        this: write(a),
        baseline: write(b),
        ratio: a / b,
        more_is_better,
        meaning,
    };
    let cpu = |us: f64| if us.is_nan() { NOTHING.into() } else { processor_time(us as u64) };
    vec![
        row("Speedup", [speedup, 1.0], &times, Some(true), "SP: the baseline's elapsed time over this job's (§5.1.5)"),
        row(
            "Performance index",
            [index / best, base_index / best],
            &number,
            Some(true),
            "PI: speedup over CPU time, the better of the two being 1 (§5.1.5)",
        ),
        row("Elapsed time", [this.elapsed_us as f64, that.elapsed_us as f64], &duration, Some(false), "T (§5.1)"),
        row(
            "CPU time held",
            [known(this.held_cpu_us), known(that.held_cpu_us)],
            &cpu,
            Some(false),
            "CPU_T, used or not (§5.1.5)",
        ),
        row(
            "Throughput, average",
            [average_throughput(report), average_throughput(baseline)],
            &bits_per_second,
            Some(true),
            "Input bytes from every source, start to finish (§5.1.4)",
        ),
        row(
            "Throughput, peak",
            [peak_throughput(&report.samples), peak_throughput(&baseline.samples)],
            &bits_per_second,
            Some(true),
            "99th percentile (§5.1.4)",
        ),
        row("Response time", [this.response_us, that.response_us], &duration, Some(false), "AR, on average (§5.1.7)"),
        row("Slowdown", [this.slowdown, that.slowdown], &times, Some(false), "SL, against the ideal (§5.1.6)"),
        row(
            "Efficiency",
            [this.efficiency, that.efficiency].map(|share| share.unwrap_or(f64::NAN)),
            &share,
            Some(true),
            "EF, speedup a processor (§3.1, eq. 7)",
        ),
        row("From local stores", [this.local_share, that.local_share], &share, Some(true), "Of input bytes (§5.1.3)"),
        row("From peers", [this.peer_share, that.peer_share], &share, None, "Of input bytes (§5.1.3)"),
        row(
            "From persistent storage",
            [this.persistent_share, that.persistent_share],
            &share,
            Some(false),
            "Of input bytes (§5.1.3)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_baseline_gives_the_papers_speedup_and_index() {
        let (mut this, mut baseline) = (example::diffusion(), example::persistent_only());
        (this.metrics.elapsed_us, this.metrics.held_cpu_us) = (1_427_000_000, Some(17 * 3_600_000_000));
        (baseline.metrics.elapsed_us, baseline.metrics.held_cpu_us) = (5_011_000_000, Some(2 * 17 * 3_600_000_000));
        let rows = comparisons(&this, &baseline);
        assert_eq!((rows[0].this.as_str(), rows[0].baseline.as_str()), ("3.51×", "1.00×"));
        // Half the processor time and 3.51 times the speed: 7.02 times the index.
        assert_eq!((rows[1].this.as_str(), rows[1].baseline.as_str()), ("1.00", "0.142"));
        let other = comparisons(&baseline, &this);
        assert_eq!((other[1].this.as_str(), other[1].baseline.as_str()), ("0.142", "1.00"));
    }

    #[test]
    fn what_lost_samples_would_tell_is_left_out() {
        let mut report = example::diffusion();
        let metrics = &mut report.metrics;
        (metrics.efficiency, metrics.held_cpu_us, metrics.performance_index) = (None, None, None);
        metrics.unsampled_us = 1_000_000;
        for name in ["Efficiency", "Performance index"] {
            let figure = figures(&report).into_iter().find(|figure| figure.name == name).unwrap();
            assert_eq!((figure.value.as_str(), figure.beside.as_str()), (NOTHING, ""));
        }
        let [.., held] = splits(&report);
        assert_eq!((held.value.as_str(), held.is_something()), (NOTHING, false));
        assert!(held.nothing.contains("samples were lost"));
    }

    #[test]
    fn nothing_measured_is_nothing_shown() {
        let empty = example::empty();
        for figure in figures(&empty) {
            assert!(!figure.value.contains("NaN") && !figure.beside.contains("NaN"), "{}", figure.name);
            assert!(!figure.value.contains("inf") && !figure.beside.contains("inf"), "{}", figure.name);
        }
        assert!(splits(&empty).iter().all(|split| !split.is_something()));
    }
}
