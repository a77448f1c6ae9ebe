//! `--halt`: when a job stops before all its tasks have ended. Without the option, the dispatcher
//! stops a job whose first tasks fail in the same way.

use std::str::FromStr;

use eyas_client::types::Status;
use eyas_client::types::units::format_count;
use thiserror::Error;

/// The text is no rule for `--halt`.
#[derive(Debug, Error)]
#[error(
    "`{0}` is no rule: write never, or now or soon, a comma, and fail, success or done with a \
     number or a share of all tasks, such as now,fail=1 or soon,fail=10%"
)]
pub(super) struct HaltRuleError(String);

/// What `--halt` says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HaltRule {
    Never,
    After { urgency: Urgency, counted: CountedTasks, limit: TaskCount },
}

/// What happens to tasks that executors have when a job stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// They are cancelled.
    Now,
    /// They run to their end.
    Soon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedTasks {
    Failed,
    Succeeded,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TaskCount {
    Tasks(u64),
    /// Percent of all tasks of the job.
    Percent(f64),
}

impl FromStr for HaltRule {
    type Err = HaltRuleError;

    fn from_str(text: &str) -> Result<Self, HaltRuleError> {
        let rule = || {
            let (urgency, condition) = text.split_once(',')?;
            let (counted, limit) = condition.split_once('=')?;
            let urgency = match urgency {
                "now" => Urgency::Now,
                "soon" => Urgency::Soon,
                _ => return None,
            };
            let counted = match counted {
                "fail" => CountedTasks::Failed,
                "success" => CountedTasks::Succeeded,
                "done" => CountedTasks::Ended,
                _ => return None,
            };
            let limit = match limit.strip_suffix('%') {
                Some(percent) => TaskCount::Percent(
                    percent.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0)?,
                ),
                None => TaskCount::Tasks(limit.parse().ok().filter(|tasks| *tasks > 0)?),
            };
            Some(HaltRule::After { urgency, counted, limit })
        };
        match text {
            "never" => Ok(HaltRule::Never),
            _ => rule().ok_or_else(|| HaltRuleError(text.to_owned())),
        }
    }
}

/// A job stops.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Halt {
    pub urgency: Urgency,
    /// Whether the user wanted no more than what has succeeded.
    pub is_success: bool,
    /// For people.
    pub why: String,
}

/// Counts the tasks of a job that have ended, by a rule.
pub(super) struct HaltWatch {
    rule: Option<HaltRule>,
    /// Number of tasks of the job.
    tasks: u64,
    failed: u64,
    succeeded: u64,
    is_over: bool,
}

impl HaltWatch {
    pub fn new(rule: Option<HaltRule>, tasks: u64) -> Self {
        HaltWatch { rule, tasks, failed: 0, succeeded: 0, is_over: false }
    }

    /// Notes the end of a task. Says once that the job stops.
    pub fn note(&mut self, status: &Status) -> Option<Halt> {
        match status {
            Status::Cancelled => return None,
            Status::Succeeded => self.succeeded += 1,
            _ => self.failed += 1,
        }
        let are_left = self.failed + self.succeeded < self.tasks;
        let halt = self.halt().filter(|_| are_left && !self.is_over)?;
        self.is_over = true;
        Some(halt)
    }

    fn halt(&self) -> Option<Halt> {
        let HaltRule::After { urgency, counted, limit } = self.rule.as_ref()? else { return None };
        let (count, words) = match counted {
            CountedTasks::Failed => (self.failed, "did not succeed"),
            CountedTasks::Succeeded => (self.succeeded, "succeeded"),
            CountedTasks::Ended => (self.failed + self.succeeded, "ended"),
        };
        let is_reached = match limit {
            TaskCount::Tasks(tasks) => count >= *tasks,
            TaskCount::Percent(percent) => count as f64 >= self.tasks as f64 * percent / 100.0,
        };
        is_reached.then(|| Halt {
            urgency: *urgency,
            is_success: *counted != CountedTasks::Failed && self.failed == 0
                || *counted == CountedTasks::Succeeded,
            why: format!("{} {words}, so the job stops", format_count(count, "task")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When and why a job of 100 tasks with these ends stops, and after how many ends.
    fn halt(rule: &str, ends: &[Status]) -> Option<(usize, Halt)> {
        let mut watch = HaltWatch::new(Some(rule.parse().unwrap()), 100);
        let halts: Vec<_> = (1..)
            .zip(ends)
            .filter_map(|(count, status)| Some((count, watch.note(status)?)))
            .collect();
        assert!(halts.len() <= 1, "a job stops once");
        halts.into_iter().next()
    }

    fn ends(succeeded: usize, failed: usize) -> Vec<Status> {
        [vec![Status::Succeeded; succeeded], vec![Status::Exited(2); failed]].concat()
    }

    #[test]
    fn rules_count_what_they_name() {
        let stops = |rule, ends: &[Status]| halt(rule, ends).map(|(count, _)| count);
        assert_eq!(stops("now,fail=3", &ends(5, 9)), Some(8));
        assert_eq!(stops("soon,fail=10%", &ends(5, 20)), Some(15));
        assert_eq!(stops("now,success=2", &ends(5, 0)), Some(2));
        assert_eq!(stops("soon,done=50%", &ends(40, 20)), Some(50));
        assert_eq!(stops("now,fail=3", &vec![Status::Cancelled; 9]), None);
        assert_eq!(stops("never", &ends(0, 99)), None);
        assert_eq!(stops("now,fail=100", &ends(0, 100)), None, "nothing is left");
        let of = |rule, ends: &[Status]| halt(rule, ends).unwrap().1;
        assert_eq!(of("soon,fail=1", &ends(1, 1)).urgency, Urgency::Soon);
        assert!(of("now,success=1", &ends(1, 0)).is_success);
        assert!(!of("now,done=2", &ends(1, 1)).is_success);
    }

    #[test]
    fn other_rules_are_refused() {
        for wrong in [
            "",
            "now",
            "now,fail",
            "now,fail=0",
            "later,fail=1",
            "now,fail=0%",
            "soon,x=1",
            "now,fail=101%",
            "now,fail=1.5",
        ] {
            let error = wrong.parse::<HaltRule>().unwrap_err().to_string();
            assert!(error.contains("soon,fail=10%"), "{error}");
        }
    }
}
