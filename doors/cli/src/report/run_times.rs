//! Run times of tasks: the slowest tasks, and a histogram as a picture of lines and rectangles,
//! which needs no script. The times are on a logarithmic scale if they differ much.

use std::fmt::Write;

use eyas_client::types::units::format_duration_us;
use eyas_client::view::TaskView;

use super::amount::{count, counted};

/// Number of bars of a linear histogram, about.
const BARS: u64 = 20;
/// Ratio of the longest to the shortest time from which on the scale is logarithmic.
const WIDE_SPREAD: u64 = 50;
/// Labels below the bars.
const MAX_LABELS: usize = 9;

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;
const HOUR_US: u64 = 60 * MINUTE_US;
const DAY_US: u64 = 24 * HOUR_US;

/// Run times of tasks. A task that reused a result has none.
pub(super) struct TimesOfTasks<'a> {
    /// The tasks, the slowest first.
    pub tasks: Vec<&'a TaskView>,
}

impl<'a> TimesOfTasks<'a> {
    /// The run times of those of these tasks that ran to an end.
    pub fn of(tasks: &'a [TaskView]) -> Self {
        let has_run = |task: &&TaskView| {
            task.reused.is_none() && matches!(task.state.as_str(), "succeeded" | "failed")
        };
        let mut tasks: Vec<_> =
            tasks.iter().filter(has_run).filter(|task| task.ran_us > 0).collect();
        tasks.sort_by_key(|task| (u64::MAX - task.ran_us, task.task.index));
        TimesOfTasks { tasks }
    }

    /// The time that this share of the tasks does not exceed.
    ///
    /// # Panics
    /// If no task ran.
    fn quantile(&self, share: f64) -> u64 {
        let last = self.tasks.len() - 1;
        self.tasks[last - (share * last as f64).round() as usize].ran_us
    }

    /// Median and longest time in a sentence; `None` if no task ran.
    pub fn summary(&self) -> Option<String> {
        let longest = self.tasks.first()?.ran_us;
        Some(format!(
            "median {}; 90\u{a0}% of the tasks took at most {}, the slowest {}",
            format_duration_us(self.quantile(0.5)),
            format_duration_us(self.quantile(0.9)),
            format_duration_us(longest)
        ))
    }

    /// The histogram; `None` if fewer than two tasks ran.
    pub fn histogram(&self) -> Option<Histogram> {
        let times: Vec<u64> = self.tasks.iter().map(|task| task.ran_us).collect();
        (times.len() > 1).then(|| Histogram::of(&times))
    }
}

/// Numbers of tasks by their run time.
#[derive(Debug, PartialEq)]
pub(super) struct Histogram {
    /// Whether each bar has a longer range of times than the bar before it.
    pub is_logarithmic: bool,
    /// Borders of the bars, microseconds; one more than there are bars.
    edges: Vec<u64>,
    counts: Vec<u64>,
}

impl Histogram {
    /// The histogram of these times, of which none is 0.
    fn of(times: &[u64]) -> Self {
        let shortest = times.iter().copied().min().unwrap_or(1).max(1);
        let longest = times.iter().copied().max().unwrap_or(1).max(shortest);
        let is_logarithmic = longest / shortest >= WIDE_SPREAD;
        let edges = if is_logarithmic {
            let edges: Vec<u64> = round_times().collect();
            let first = edges.partition_point(|edge| *edge <= shortest).saturating_sub(1);
            let first = first.min(edges.len() - 2);
            let last = edges.partition_point(|edge| *edge <= longest).min(edges.len() - 1);
            edges[first..=last].to_vec()
        } else {
            // Times that hardly differ need no border with more than three digits.
            let wanted = ((longest - shortest) / BARS).max(longest / 100).max(1);
            let step = round_times().find(|step| *step >= wanted).unwrap_or(wanted);
            let first = shortest / step;
            (first..=longest / step + 1).map(|number| number.saturating_mul(step)).collect()
        };
        let mut counts = vec![0; edges.len() - 1];
        for time in times {
            let bar = edges.partition_point(|edge| edge <= time).saturating_sub(1);
            counts[bar.min(edges.len() - 2)] += 1;
        }
        Histogram { is_logarithmic, edges, counts }
    }

    /// A border with its unit.
    fn label(&self, edge_us: u64) -> String {
        let (mut unit_us, mut unit) = unit_of(edge_us);
        if !self.is_logarithmic {
            // All borders have one unit: that of the last one, if two decimals are enough.
            let step_us = self.edges[1] - self.edges[0];
            (unit_us, unit) = unit_of(self.edges[self.edges.len() - 1]);
            if !step_us.is_multiple_of(unit_us.div_ceil(100)) {
                (unit_us, unit) = unit_of(step_us);
            }
        }
        let hundredths = edge_us % unit_us * 100 / unit_us;
        let decimals = format!(".{hundredths:02}");
        let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
        format!("{}{decimals} {unit}", count(edge_us / unit_us))
    }

    /// The picture.
    pub fn svg(&self) -> String {
        const LEFT: f64 = 60.0;
        const TOP: f64 = 14.0;
        const WIDTH: f64 = 660.0;
        const HEIGHT: f64 = 170.0;
        let most = self.counts.iter().copied().max().unwrap_or(1).max(1);
        let bar = WIDTH / self.counts.len() as f64;
        let bottom = TOP + HEIGHT;
        let mut svg = format!(
            r#"<svg class="histogram" viewBox="0 0 760 230" role="img"
aria-label="Histogram of run times: {}">"#,
            counted(self.counts.iter().sum(), "task")
        );
        let marks = if most >= 4 { vec![0, most / 2, most] } else { vec![0, most] };
        for value in marks {
            let y = bottom - HEIGHT * value as f64 / most as f64;
            // Writing to a String cannot fail, here and below.
            let _ = write!(
                svg,
                r#"<line x1="{LEFT}" y1="{y:.1}" x2="{}" y2="{y:.1}"/>
<text x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT + WIDTH,
                LEFT - 8.0,
                y + 4.0,
                count(value)
            );
        }
        for (number, tasks) in self.counts.iter().enumerate() {
            let height = HEIGHT * *tasks as f64 / most as f64;
            let (from, to) = (self.label(self.edges[number]), self.label(self.edges[number + 1]));
            let _ = write!(
                svg,
                r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{height:.1}">
<title>{from} to {to}: {}</title></rect>"#,
                LEFT + bar * number as f64 + 1.0,
                bottom - height,
                (bar - 2.0).max(1.0),
                counted(*tasks, "task")
            );
        }
        let every = self.edges.len().div_ceil(MAX_LABELS);
        for (number, edge) in self.edges.iter().enumerate().step_by(every) {
            let x = LEFT + bar * number as f64;
            let _ = write!(
                svg,
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 18.0,
                self.label(*edge)
            );
        }
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">Run time of a task</text></svg>"#,
            LEFT + WIDTH / 2.0,
            bottom + 38.0
        );
        svg
    }
}

/// The largest unit of which there is at least one in a time, and its name.
fn unit_of(us: u64) -> (u64, &'static str) {
    match us {
        DAY_US.. => (DAY_US, "d"),
        HOUR_US.. => (HOUR_US, "h"),
        MINUTE_US.. => (MINUTE_US, "min"),
        SECOND_US.. => (SECOND_US, "s"),
        1000.. => (1000, "ms"),
        _ => (1, "µs"),
    }
}

/// Round times in ascending order, each about twice the one before: 1, 2, 5, 10 µs, …, 20 s,
/// 1 min, 2 min, 5 min, …, 1 h, …, 1 d, …
fn round_times() -> impl Iterator<Item = u64> {
    let steps =
        |unit_us: u64, factors: &'static [u64]| factors.iter().map(move |factor| unit_us * factor);
    let decades = (0..7).flat_map(move |power| steps(10_u64.pow(power), &[1, 2, 5]));
    decades
        .chain(steps(SECOND_US, &[10, 20]))
        .chain(steps(MINUTE_US, &[1, 2, 5, 10, 20]))
        .chain(steps(HOUR_US, &[1, 2, 5, 10]))
        .chain((0..5).flat_map(move |power| steps(DAY_US * 10_u64.pow(power), &[1, 2, 5])))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_scale_follows_the_spread() {
        let near = Histogram::of(&[2_000_000, 2_400_000, 2_400_001, 4_000_000]);
        assert!(!near.is_logarithmic);
        assert_eq!(near.edges.first(), Some(&2_000_000));
        assert!(near.edges.last() > Some(&4_000_000));
        assert_eq!(near.counts.iter().sum::<u64>(), 4);
        assert_eq!((near.counts[0], near.counts[4]), (1, 2), "{near:?}");
        assert_eq!([near.label(2_000_000), near.label(2_400_000)], ["2 s", "2.4 s"]);
        let minutes = Histogram::of(&[125 * SECOND_US, 330 * SECOND_US]);
        assert_eq!(minutes.label(130 * SECOND_US), "130 s", "one unit without many decimals");

        let far = Histogram::of(&[900, 1_000_000, 3 * MINUTE_US]);
        assert!(far.is_logarithmic);
        assert_eq!((far.edges[0], far.edges[1]), (500, 1000));
        assert_eq!(far.edges.last(), Some(&(5 * MINUTE_US)));
        assert_eq!(far.counts.iter().sum::<u64>(), 3);
        assert_eq!((far.counts.first(), far.counts.last()), (Some(&1), Some(&1)));
        assert_eq!([far.label(500), far.label(2 * MINUTE_US)], ["500 µs", "2 min"]);
    }

    #[test]
    fn any_times_have_a_histogram() {
        for times in [&[1, 1][..], &[u64::MAX, 1], &[u64::MAX / 2, u64::MAX / 2], &[7, 8, 9]] {
            let histogram = Histogram::of(times);
            assert_eq!(histogram.counts.iter().sum::<u64>(), times.len() as u64, "{times:?}");
            assert!(histogram.counts.len() < 60, "{times:?}: {}", histogram.counts.len());
            assert!(!histogram.svg().contains("NaN"));
        }
        let edges: Vec<u64> = round_times().collect();
        assert!(edges.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 4 * pair[0]));
    }

    #[test]
    fn only_tasks_that_ran_count() {
        let mut tasks = example::details().tasks;
        let times = TimesOfTasks::of(&tasks);
        let count = times.tasks.len();
        assert!(times.tasks.windows(2).all(|pair| pair[0].ran_us >= pair[1].ran_us));
        let slowest = times.tasks[0].task.index as usize;
        assert!(times.summary().is_some_and(|summary| summary.starts_with("median ")));
        tasks[slowest].reused = Some(tasks[0].task);
        tasks[0].state = "waiting".into();
        assert_eq!(TimesOfTasks::of(&tasks).tasks.len(), count - 2);
        assert!(
            TimesOfTasks::of(&[]).summary().is_none()
                && TimesOfTasks::of(&[]).histogram().is_none()
        );
    }
}
