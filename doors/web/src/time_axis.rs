//! The axis of a timeline: a part of a job's time, in which stretches without any task may be
//! drawn shorter.
//!
//! For example, tasks run from 0 s to 10 s and from 1,000 s to 1,010 s. Compressed, the 990 s
//! between them take as much of the axis as 1 % of the 20 s with tasks.

/// A stretch without tasks is drawn shorter if it is longer than this part of the time with tasks.
const SHORTENED_FROM: u64 = 50;
/// It is then drawn as long as this part of the time with tasks.
const SHORTENED_TO: u64 = 100;

/// A moment of the job's time, and its position on the axis, both microseconds.
pub(crate) type AxisMark = (u64, u64);

/// Maps a part of a job's time to an axis that begins at 0. Between two marks, the axis is even.
pub(crate) struct TimeAxis {
    marks: Vec<AxisMark>,
}

impl TimeAxis {
    /// An axis from one moment to a later one.
    pub fn even(from_us: u64, to_us: u64) -> Self {
        TimeAxis { marks: vec![(from_us, 0), (to_us, to_us - from_us)] }
    }

    /// The same without long stretches outside of `busy`, which are in order and do not overlap.
    pub fn compressed(from_us: u64, to_us: u64, busy: &[(u64, u64)]) -> Self {
        let inside = busy.iter().map(|(from, to)| (*from.max(&from_us), *to.min(&to_us)));
        let inside: Vec<_> = inside.filter(|(from, to)| from < to).collect();
        let busy_us: u64 = inside.iter().map(|(from, to)| to - from).sum();
        if busy_us == 0 {
            return TimeAxis::even(from_us, to_us);
        }
        let (mut marks, mut at) = (vec![(from_us, 0)], (from_us, 0));
        for (from, to) in inside.into_iter().chain([(to_us, to_us)]) {
            let idle_us = from - at.0;
            let is_long = idle_us > busy_us / SHORTENED_FROM;
            let drawn_us = if is_long { (busy_us / SHORTENED_TO).max(1) } else { idle_us };
            if is_long {
                marks.extend([at, (from, at.1 + drawn_us)]);
            }
            at = (to, at.1 + drawn_us + (to - from));
        }
        marks.push(at);
        marks.dedup();
        TimeAxis { marks }
    }

    pub fn marks(&self) -> &[AxisMark] {
        &self.marks
    }

    /// Length of the axis; at least 1.
    pub fn length_us(&self) -> u64 {
        self.marks.last().map_or(0, |(_, at)| *at).max(1)
    }

    /// The position of a moment. Moments before and after the axis are at its ends.
    pub fn position_of(&self, moment_us: u64) -> u64 {
        let after = self.marks.partition_point(|(real, _)| *real <= moment_us);
        let Some(before) = after.checked_sub(1) else { return 0 };
        let ((from, at), Some((to, end))) = (self.marks[before], self.marks.get(after)) else {
            return self.length_us();
        };
        let part = u128::from(moment_us - from) * u128::from(end - at) / u128::from(to - from);
        at + part as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stretches_without_tasks_are_drawn_shorter() {
        let even = TimeAxis::even(100, 300);
        assert_eq!([50, 100, 150, 300, 900].map(|at| even.position_of(at)), [0, 0, 50, 200, 200]);
        let axis = TimeAxis::compressed(0, 2_000, &[(0, 10), (11, 100), (1_000, 1_100)]);
        // 199 of 2,000 have tasks: a stretch above 3 is drawn as long as 1.
        assert_eq!(axis.marks(), [(0, 0), (100, 100), (1_000, 101), (1_100, 201), (2_000, 202)]);
        assert_eq!(axis.length_us(), 202);
        assert_eq!([10, 100, 1_050, 2_000].map(|at| axis.position_of(at)), [10, 100, 151, 202]);
        // Positions never go back.
        let all: Vec<_> = (0..2_100).map(|at| axis.position_of(at)).collect();
        assert!(all.is_sorted());
        let none = TimeAxis::compressed(5, 10, &[(20, 30)]);
        assert_eq!(none.marks(), TimeAxis::even(5, 10).marks());
        assert_eq!(TimeAxis::even(5, 5).position_of(5), 1);
    }
}
