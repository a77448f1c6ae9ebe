//! The reasons for which tasks failed, so that a reason that many tasks share is told once.

use std::collections::BTreeMap;

use eyas_client::types::TaskId;
use eyas_client::types::outcome::NEEDS_OUTPUT;
use eyas_client::types::shown::with_short_quotes;
use eyas_client::types::units::format_count;

/// Reasons that are told apart; failures for further reasons are only counted.
const MAX_REASONS: usize = 20;
/// Tasks that a message names; further ones are only counted.
const MAX_NAMED: usize = 3;

/// Tasks that a message names.
#[derive(Debug, Default)]
pub(crate) struct NamedTasks {
    /// The first of them.
    named: Vec<String>,
    count: u64,
}

impl NamedTasks {
    pub fn add(&mut self, task: String) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(task);
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// For example `task 29.3`, `tasks 29.3 and 29.7`, `tasks 29.3, 29.7, 29.11 and 5 others`.
    pub fn in_words(&self) -> String {
        let others = self.count - self.named.len() as u64;
        let others = match others {
            0 => None,
            others => Some(format_count(others, "other")),
        };
        let words: Vec<_> = self.named.iter().cloned().chain(others).collect();
        match &words[..] {
            [one] => format!("task {one}"),
            [first @ .., last] => format!("tasks {} and {last}", first.join(", ")),
            [] => "no task".into(),
        }
    }
}

/// Tasks that failed for the same reason.
#[derive(Debug)]
pub(crate) struct SharedReason {
    /// What all of them have in common.
    common: String,
    pub tasks: NamedTasks,
    /// All of them but the first.
    pub further: NamedTasks,
    /// The first of them: its name in messages, and its index.
    pub first: (String, u32),
}

/// Whether a failure is to be described.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It is the first one for its reason.
    First,
    /// The reason was told before, or there are too many reasons.
    Counted,
}

/// The failed tasks of a job by their reasons.
#[derive(Debug, Default)]
pub(crate) struct FailureReasons {
    reasons: Vec<SharedReason>,
    /// Tasks that never ran, because tasks whose outputs they need did not succeed.
    dependents: NamedTasks,
    /// Tasks whose reason is none of those that are told apart.
    others: u64,
}

impl FailureReasons {
    /// Takes a failed task: its name in messages, its index, how it has ended in words, and what it
    /// wrote to standard error.
    pub fn add(&mut self, (task, index): (String, u32), status: &str, stderr: &[u8]) -> Told {
        if is_of_dependent(status) {
            self.dependents.add(task);
            return Told::Counted;
        }
        let common = format!("{}\n{}", common_part(status), common_line(stderr));
        if let Some(known) = self.reasons.iter_mut().find(|known| known.common == common) {
            known.tasks.add(task.clone());
            known.further.add(task);
            return Told::Counted;
        }
        if self.reasons.len() == MAX_REASONS {
            self.others += 1;
            return Told::Counted;
        }
        let mut tasks = NamedTasks::default();
        tasks.add(task.clone());
        let (first, further) = ((task, index), NamedTasks::default());
        self.reasons.push(SharedReason { common, tasks, further, first });
        Told::First
    }

    /// The reasons that are told apart, in the order in which they came.
    pub fn reasons(&self) -> &[SharedReason] {
        &self.reasons
    }

    /// The message about tasks that never ran, if there are any.
    pub fn of_dependents(&self) -> Option<String> {
        let their = if self.dependents.count() == 1 { "it needs" } else { "they need" };
        (self.dependents.count() > 0).then(|| {
            format!(
                "{} did not run, because tasks whose outputs {their} did not succeed",
                self.dependents.in_words()
            )
        })
    }

    /// Number of failed tasks whose reason is not told.
    pub fn others(&self) -> u64 {
        self.others
    }
}

/// Whether a task with this end never ran, because a task whose output it needs did not succeed.
pub(crate) fn is_of_dependent(status: &str) -> bool {
    status.strip_prefix("failed: ").is_some_and(|reason| reason.starts_with(NEEDS_OUTPUT))
}

/// The last line of what a task wrote to standard error, without what may differ from task to task:
/// paths, numbers and quoted names.
fn common_line(stderr: &[u8]) -> String {
    let mut lines = stderr.rsplit(|byte| *byte == b'\n');
    let last = lines.find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let differs = |c: char| c.is_ascii_digit() || "/.`'\"=".contains(c);
    let text = String::from_utf8_lossy(last);
    let words = text.split_whitespace().map(|word| if word.contains(differs) { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The indices of tasks by the reason for which they failed; the most frequent reason first.
pub(crate) fn by_reason<'a>(
    failed: impl Iterator<Item = (TaskId, &'a str)>,
) -> Vec<(String, Vec<u32>)> {
    let mut groups = BTreeMap::<String, (String, Vec<u32>)>::new();
    for (task, status) in failed {
        let (_, indices) =
            groups.entry(common_part(status)).or_insert_with(|| (status.into(), Vec::new()));
        indices.push(task.index);
    }
    // The reason of one task is its own status.
    let named = groups.into_iter().map(|(common, (status, indices))| {
        let reason = if indices.len() == 1 { status } else { common };
        (with_short_quotes(&reason).into_owned(), indices)
    });
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|(_, indices)| (usize::MAX - indices.len(), indices[0]));
    named
}

/// A status without what differs from task to task: quoted names, ids of tasks and times.
fn common_part(status: &str) -> String {
    if status.starts_with("timed out") {
        return "timed out".into();
    }
    let mut parts: Vec<_> = status.split('`').collect();
    // Text after the last backquote of an odd number is not quoted.
    let is_closed = parts.len() % 2 == 1;
    let last = parts.len() - 1;
    for (number, part) in parts.iter_mut().enumerate() {
        if number % 2 == 1 && (is_closed || number != last) {
            *part = "…";
        }
    }
    let is_digit = |c: char| c.is_ascii_digit();
    let is_id = |word: &str| {
        word.split_once('.').is_some_and(|(job, task)| {
            [job, task].iter().all(|part| !part.is_empty() && part.chars().all(is_digit))
        })
    };
    let without_ids = parts.join("`");
    let words = without_ids.split(' ').map(|word| {
        let bare = word.trim_end_matches([',', '.', ':', ';']);
        if is_id(bare) { word.replacen(bare, "…", 1) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use eyas_client::types::JobId;

    use super::*;

    fn failed(statuses: &[&'static str]) -> Vec<(TaskId, &'static str)> {
        let id = |index| TaskId { job: JobId(3), index };
        statuses.iter().enumerate().map(|(index, status)| (id(index as u32), *status)).collect()
    }

    #[test]
    fn failures_are_grouped_by_their_reason() {
        let tasks = failed(&[
            "exit code 2",
            "failed: cannot read `/data/a`: no such file",
            "exit code 1",
            "failed: cannot read `/data/b`: no such file",
            "timed out: it ran 1.01 s and may run 1.00 s: give it more time with --timeout",
            "failed: cannot read `/data/c`: no such file",
            "timed out: it ran 1.07 s and may run 1.00 s: give it more time with --timeout",
            "failed: it needs an output of task 3.1, which failed",
            "failed: it needs an output of task 3.5, which failed",
        ]);
        let groups = by_reason(tasks.into_iter());
        let expected = [
            ("failed: cannot read `…`: no such file", vec![1, 3, 5]),
            ("timed out", vec![4, 6]),
            ("failed: it needs an output of task …, which failed", vec![7, 8]),
            ("exit code 2", vec![0]),
            ("exit code 1", vec![2]),
        ];
        assert_eq!(groups, expected.map(|(reason, tasks)| (reason.to_owned(), tasks)));
        let one = by_reason(failed(&["failed: cannot read `/data/a`"]).into_iter());
        assert_eq!(one[0].0, "failed: cannot read `/data/a`", "one task has its own reason");
        assert_eq!(common_part("it's `open"), "it's `open");
    }

    #[test]
    fn a_reason_is_told_once_with_the_tasks_that_it_hit() {
        let mut reasons = FailureReasons::default();
        let mut add = |index: u32, status: &str, stderr: &str| {
            reasons.add((format!("29.{index}"), index), status, stderr.as_bytes())
        };
        assert_eq!(add(3, "exit code 1", "x.fits: the frame is too short\n"), Told::First);
        for index in [7, 11, 12, 13] {
            let stderr = format!("in {index}\ny{index}.fits: the frame is too short\n\n");
            assert_eq!(add(index, "exit code 1", &stderr), Told::Counted);
        }
        assert_eq!(add(4, "exit code 1", "x.fits: no such frame"), Told::First, "another reason");
        assert_eq!(add(5, "exit code 2", "x.fits: no such frame"), Told::First, "another code");
        let needs = "failed: it needs an output of task 29.3, which did not succeed";
        assert_eq!(add(20, needs, ""), Told::Counted);
        let first = &reasons.reasons()[0];
        assert_eq!(first.tasks.in_words(), "tasks 29.3, 29.7, 29.11 and 2 others");
        assert_eq!(first.further.in_words(), "tasks 29.7, 29.11, 29.12 and 1 other");
        assert_eq!(reasons.reasons().len(), 3);
        assert_eq!(
            reasons.of_dependents().as_deref(),
            Some("task 29.20 did not run, because tasks whose outputs it needs did not succeed")
        );
        for code in 0..100 {
            reasons.add((code.to_string(), code), &format!("exit code {}", code + 10), b"");
        }
        assert_eq!((reasons.reasons().len(), reasons.others()), (MAX_REASONS, 83));
    }

    #[test]
    fn few_tasks_are_all_named() {
        let mut tasks = NamedTasks::default();
        let mut words = Vec::new();
        for index in 0..4 {
            tasks.add(index.to_string());
            words.push(tasks.in_words());
        }
        let expected = ["task 0", "tasks 0 and 1", "tasks 0, 1 and 2", "tasks 0, 1, 2 and 1 other"];
        assert_eq!(words, expected);
    }
}
