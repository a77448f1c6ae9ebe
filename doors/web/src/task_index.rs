//! Tasks of a job by their state and text, sorted. The dispatcher lists tasks in the order of the
//! job alone, so the index is made here, of one small row for each task; the page that is shown is
//! then read from the dispatcher. A job of 1,000,000 tasks takes some 100 MB.
//!
//! An index of an ended job stays right until the job is retried. One of a running job is made
//! again when it is older than a second and than four times the time that it took to make. Tasks
//! from the beginning of the job on that have succeeded are then not asked for again.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::view::{JobView, TaskView};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::api_error::ApiError;
use crate::dispatcher::SharedDispatcher;
use crate::freshness::Freshness;
use crate::kept::KeptOfJobs;

/// Most tasks of a job of which an index is made.
const MAX_INDEXED_TASKS: u64 = 2_000_000;
/// Indexes that are kept; the one that was used longest ago is dropped.
const MAX_INDEXES: usize = 4;
/// Characters of a task's text that are searched.
const MAX_TEXT_CHARS: usize = 120;
/// Tasks that are asked for at once.
const ASKED_AT_ONCE: u32 = 10_000;
/// Name of the state of tasks that have succeeded.
pub(crate) const SUCCEEDED: &str = "succeeded";

/// By what tasks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskOrder {
    /// By their index in the job.
    #[default]
    Index,
    /// By the microseconds that they ran.
    RanUs,
    /// By the microseconds that they were queued.
    QueuedUs,
    /// By the microseconds of processor time.
    CpuUs,
    /// By the most memory that they used.
    PeakMemoryBytes,
    /// By the number of their tries.
    Tries,
    /// By the name of their state.
    State,
}

/// Which tasks of a job are listed, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskFilter {
    /// States; all if there are none.
    pub states: Vec<String>,
    /// A text that the id, item, executor or status of the task has, in lower case.
    pub text: Option<String>,
    pub order: TaskOrder,
    pub is_descending: bool,
}

/// A task in the index.
#[derive(Clone)]
pub(crate) struct TaskRow {
    pub index: u32,
    tries: u32,
    pub ran_us: u64,
    pub queued_us: u64,
    pub waited_us: u64,
    pub suspended_us: u64,
    pub cpu_us: u64,
    peak_memory_bytes: u64,
    /// Position of its executor's name in `executors`; `None` before its first assignment.
    pub executor: Option<u32>,
    /// Position of its state in `states`.
    state: u8,
    /// Whether it has ended, and its result is not that of another task.
    pub has_run: bool,
    text: Box<str>,
}

/// The rows of a job.
#[derive(Clone)]
pub(crate) struct JobIndex {
    pub rows: Vec<TaskRow>,
    states: Vec<String>,
    pub executors: NameTable,
    /// Number of the first rows whose tasks have succeeded.
    pub settled: usize,
    freshness: Freshness,
}

/// The indexes of some jobs.
pub(crate) struct TaskIndexes(Mutex<KeptOfJobs<JobIndex>>);

impl TaskIndexes {
    pub fn new() -> Self {
        TaskIndexes(Mutex::new(KeptOfJobs::new(MAX_INDEXES)))
    }

    /// The index of a job. Requests for indexes wait for each other: two pages of one job have one
    /// made.
    pub async fn of(
        &self,
        dispatcher: &SharedDispatcher,
        job: &JobView,
    ) -> Result<Arc<JobIndex>, ApiError> {
        if job.tasks.total() > MAX_INDEXED_TASKS {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "too-many-tasks",
                format!("tasks of jobs with over {MAX_INDEXED_TASKS} tasks cannot be sorted"),
                "list them in the order of the job: with cursor and limit alone, or state=failed",
            ));
        }
        let mut indexes = self.0.lock().await;
        let before = indexes.of(job.job);
        if let Some(index) = before.as_ref().filter(|index| index.freshness.is_fresh(job)) {
            return Ok(index.clone());
        }
        let index = Arc::new(JobIndex::read(dispatcher, job, before.as_deref()).await?);
        indexes.put(job.job, index.clone());
        Ok(index)
    }
}

impl JobIndex {
    async fn read(
        dispatcher: &SharedDispatcher,
        job: &JobView,
        before: Option<&JobIndex>,
    ) -> Result<Self, ApiError> {
        let began = Instant::now();
        let mut index = match before.filter(|before| before.freshness.keeps_successes(job)) {
            Some(before) => before.with_settled_rows(job),
            None => JobIndex::empty(job),
        };
        let mut from = index.rows.last().map_or(0, |row| row.index + 1);
        loop {
            let limit = ASKED_AT_ONCE;
            let asked = FromClient::Tasks { job: job.job, from, limit, failed: false };
            // Other requests have their turns between two parts.
            let answer = dispatcher.ask(asked).await?;
            let ToClient::Tasks(tasks) = answer else { return Err(ApiError::unexpected()) };
            let Some(last) = tasks.last() else { break };
            tasks.iter().for_each(|task| index.add(task));
            from = last.task.index.saturating_add(1);
        }
        index.settled = index.rows.iter().take_while(|row| index.state(row) == SUCCEEDED).count();
        index.freshness = Freshness::of(job, began);
        Ok(index)
    }

    fn empty(job: &JobView) -> Self {
        JobIndex {
            rows: Vec::with_capacity(job.tasks.total() as usize),
            states: Vec::new(),
            executors: NameTable::default(),
            settled: 0,
            freshness: Freshness::of(job, Instant::now()),
        }
    }

    /// An index with the tasks that are known to have succeeded.
    fn with_settled_rows(&self, job: &JobView) -> Self {
        let mut index = JobIndex::empty(job);
        index.rows.extend_from_slice(&self.rows[..self.settled]);
        (index.states, index.executors) = (self.states.clone(), self.executors.clone());
        index
    }

    /// The name of the state of a task.
    pub fn state(&self, row: &TaskRow) -> &str {
        &self.states[usize::from(row.state)]
    }

    fn add(&mut self, task: &TaskView) {
        let state = position_of(&mut self.states, &task.state);
        let executor = task.executor.as_ref().map(|name| self.executors.position_of(name));
        self.rows.push(TaskRow {
            index: task.task.index,
            tries: task.tries,
            ran_us: task.ran_us,
            queued_us: task.queued_us,
            waited_us: task.waited_us,
            suspended_us: task.suspended_us,
            cpu_us: task.cpu_us,
            peak_memory_bytes: task.peak_memory_bytes,
            executor,
            state: state as u8,
            has_run: task.status.is_some() && task.reused.is_none(),
            text: text_of(task).into(),
        });
    }

    /// Indexes of the tasks that a filter selects, in its order: some from a place on, and the
    /// number of all.
    pub fn page(&self, filter: &TaskFilter, from: usize, limit: usize) -> (Vec<u32>, usize) {
        let is_wanted: Vec<_> = self
            .states
            .iter()
            .map(|state| filter.states.is_empty() || filter.states.contains(state))
            .collect();
        let has_text = |row: &&TaskRow| match &filter.text {
            Some(text) => row.text.contains(&**text),
            None => true,
        };
        let rows = self.rows.iter().filter(|row| is_wanted[usize::from(row.state)]);
        let mut rows: Vec<&TaskRow> = rows.filter(has_text).collect();
        let order = |a: &&TaskRow, b: &&TaskRow| {
            let order = self.compared(filter.order, a, b);
            let order = if filter.is_descending { order.reverse() } else { order };
            // Pages of equal tasks must not overlap.
            order.then(a.index.cmp(&b.index))
        };
        let (all, end) = (rows.len(), from.saturating_add(limit));
        if end < all {
            rows.select_nth_unstable_by(end, order);
            rows.truncate(end);
        }
        rows.sort_unstable_by(order);
        (rows.iter().skip(from).map(|row| row.index).collect(), all)
    }

    fn compared(&self, by: TaskOrder, a: &TaskRow, b: &TaskRow) -> Ordering {
        match by {
            TaskOrder::Index => a.index.cmp(&b.index),
            TaskOrder::RanUs => a.ran_us.cmp(&b.ran_us),
            TaskOrder::QueuedUs => a.queued_us.cmp(&b.queued_us),
            TaskOrder::CpuUs => a.cpu_us.cmp(&b.cpu_us),
            TaskOrder::PeakMemoryBytes => a.peak_memory_bytes.cmp(&b.peak_memory_bytes),
            TaskOrder::Tries => a.tries.cmp(&b.tries),
            TaskOrder::State => self.state(a).cmp(self.state(b)),
        }
    }
}

/// Names by their positions, of which there may be thousands.
#[derive(Clone, Default)]
pub(crate) struct NameTable {
    pub names: Vec<String>,
    positions: HashMap<String, u32>,
}

impl NameTable {
    pub fn has(&self, name: &str) -> bool {
        self.positions.contains_key(name)
    }

    /// The position of a name, which is added if it is not there.
    pub fn position_of(&mut self, name: &str) -> u32 {
        if let Some(at) = self.positions.get(name) {
            return *at;
        }
        let at = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.positions.insert(name.to_owned(), at);
        at
    }
}

/// The text of a task that is searched, in lower case.
fn text_of(task: &TaskView) -> String {
    let item = String::from_utf8_lossy(task.item.as_bytes());
    let texts =
        [task.id.as_deref(), task.executor.as_deref(), task.status.as_deref(), Some(&*item)];
    let mut text = String::with_capacity(MAX_TEXT_CHARS);
    for part in texts.into_iter().flatten() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(part);
    }
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
        text.truncate(end);
    }
    match text.is_ascii() {
        true => text.make_ascii_lowercase(),
        false => text = text.to_lowercase(),
    }
    text
}

/// Position of a name in a list of few names, to which it is added if it is not there.
fn position_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::live::tests::job;
    use eyas_client::view::JobState;

    /// A row of a task that has ended.
    pub(crate) fn row(index: u32, ran_us: u64) -> TaskRow {
        TaskRow {
            index,
            tries: 1,
            ran_us,
            queued_us: 0,
            waited_us: 0,
            suspended_us: 0,
            cpu_us: 0,
            peak_memory_bytes: 0,
            executor: None,
            state: 0,
            has_run: true,
            text: format!("item{index}.txt n1").into(),
        }
    }

    /// Tasks with the states `states` and run times that fall from task to task.
    pub(crate) fn index(states: &[&str]) -> JobIndex {
        let names = ["failed", "succeeded"].map(str::to_owned).to_vec();
        let row = |(index, state): (usize, &&str)| TaskRow {
            state: names.iter().position(|name| name == state).unwrap() as u8,
            ..row(index as u32, 100 - index as u64 / 2)
        };
        JobIndex {
            rows: states.iter().enumerate().map(row).collect(),
            states: names.clone(),
            executors: NameTable::default(),
            settled: 0,
            freshness: Freshness::of(&job(1, "a", JobState::Failed), Instant::now()),
        }
    }

    #[test]
    fn tasks_are_filtered_sorted_and_paged() {
        let index = index(&["succeeded", "failed", "succeeded", "failed", "succeeded"]);
        let page = |filter: &TaskFilter, from, limit| index.page(filter, from, limit);
        let all = TaskFilter::default();
        assert_eq!(page(&all, 0, 2), (vec![0, 1], 5));
        assert_eq!(page(&all, 4, 2), (vec![4], 5));
        assert_eq!(page(&all, 9, 2), (vec![], 5));
        let failed = TaskFilter { states: vec!["failed".into()], ..all.clone() };
        assert_eq!(page(&failed, 0, 9), (vec![1, 3], 2));
        let text = TaskFilter { text: Some("item3".into()), ..all.clone() };
        assert_eq!(page(&text, 0, 9), (vec![3], 1));
        // Run times are 100, 100, 99, 99, 98: equal ones stay in the order of the job.
        let slowest = TaskFilter { order: TaskOrder::RanUs, is_descending: true, ..all.clone() };
        assert_eq!(page(&slowest, 0, 3).0, [0, 1, 2]);
        let fastest = TaskFilter { order: TaskOrder::RanUs, ..all };
        assert_eq!(page(&fastest, 0, 3).0, [4, 2, 3]);
        assert_eq!(page(&fastest, 3, 3).0, [0, 1]);
    }
}
