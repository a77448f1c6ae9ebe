//! Timelines of jobs: which executor did what at which time.
//!
//! The dispatcher tells an executor with the view of each task, and the time at which it could run
//! with the trace of the job. Traces have no indexes of tasks, so both are matched by the times
//! that both have. Of tasks that have failed or were cancelled there is no trace: their beginnings
//! are estimated from the task before that has succeeded. Of tasks that run, the dispatcher tells
//! no times at all: they began after the last look at the job in which they were not at an
//! executor.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use eyas_client::messages::{FromClient, RecordedTask, ToClient};
use eyas_client::types::JobId;
use eyas_client::view::{ExecutorView, JobState, JobView, SCHEMA_VERSION};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::answer::json_text;
use crate::api_error::ApiError;
use crate::dispatcher::SharedDispatcher;
use crate::freshness::Freshness;
use crate::kept::KeptOfJobs;
use crate::task_index::{JobIndex, SUCCEEDED, TaskIndexes, TaskRow};
use crate::timeline::{BarState, OpenTask, TaskBar, Timeline, TimelineExecutor};
use crate::timeline_picture::{PictureWindow, TimelinePicture};

/// Timelines that are kept; the one that was used longest ago is dropped.
const MAX_TIMELINES: usize = 2;

/// Pictures of a timeline that are kept, for pages that show the same.
const MAX_PICTURES: usize = 16;

/// The times of a task that only the trace of its job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TracedTimes {
    ready_us: u64,
    delivery_us: u64,
}

/// The timeline of a job.
pub(crate) struct JobTimeline {
    index: Arc<JobIndex>,
    /// For each row of the index.
    times: Vec<Option<TracedTimes>>,
    /// Tasks at executors, each with a time at which it was not.
    open: BTreeMap<u32, u64>,
    timeline: Timeline,
    freshness: Freshness,
    /// Pictures that were drawn, as answers.
    drawn: std::sync::Mutex<VecDeque<(PictureWindow, Arc<str>)>>,
    /// Held while a picture is drawn, so that one is drawn at a time.
    drawing: Arc<Mutex<()>>,
}

/// The fields of an answer.
#[derive(Serialize)]
struct TimelineAnswer {
    schema_version: u32,
    timeline: TimelinePicture,
}

/// The timelines of some jobs.
pub(crate) struct JobTimelines {
    kept: Mutex<KeptOfJobs<JobTimeline>>,
    /// Of all pictures, one is drawn at a time: drawing keeps at most one processor busy.
    drawing: Arc<Mutex<()>>,
}

impl JobTimelines {
    pub fn new() -> Self {
        let kept = Mutex::new(KeptOfJobs::new(MAX_TIMELINES));
        JobTimelines { kept, drawing: Arc::default() }
    }

    /// The timeline of a job. Requests for timelines wait for each other, as those for indexes.
    pub async fn of(
        &self,
        dispatcher: &SharedDispatcher,
        indexes: &TaskIndexes,
        job: &JobView,
    ) -> Result<Arc<JobTimeline>, ApiError> {
        let mut timelines = self.kept.lock().await;
        let before = timelines.of(job.job);
        if let Some(timeline) = before.as_ref().filter(|one| one.freshness.is_fresh(job)) {
            return Ok(timeline.clone());
        }
        let drawing = self.drawing.clone();
        let read = JobTimeline::read(dispatcher, indexes, job, before.as_deref(), drawing).await?;
        let timeline = Arc::new(read);
        timelines.put(job.job, timeline.clone());
        Ok(timeline)
    }
}

impl JobTimeline {
    async fn read(
        dispatcher: &SharedDispatcher,
        indexes: &TaskIndexes,
        job: &JobView,
        before: Option<&JobTimeline>,
        drawing: Arc<Mutex<()>>,
    ) -> Result<Self, ApiError> {
        let began = Instant::now();
        let before = before.filter(|before| before.freshness.is_of(job));
        let index = indexes.of(dispatcher, job).await?;
        let before_times = before.filter(|before| before.freshness.keeps_successes(job));
        let settled = before_times.map_or(&[][..], |before| &before.times[..before.index.settled]);
        let times = read_times(dispatcher, job.job, &index, settled).await?;
        let answer = dispatcher.look(FromClient::Executors).await?;
        let ToClient::Executors(executors) = &*answer else { return Err(ApiError::unexpected()) };
        let executors = executors_of(&index, job, executors);
        let bars = ended_bars(&index, &times, job.elapsed_us);
        let open = open_tasks(&index, before);
        // Tasks may have ended after the state of the job was read.
        let last_us = bars.iter().map(|bar| bar.delivered_us).max();
        let end_us = job.elapsed_us.max(last_us.unwrap_or_default());
        let opened = open.iter().map(|task| (task.index, task.after_us)).collect();
        // A job of 1,000,000 tasks keeps a processor busy for a second.
        let timeline = spawn_blocking(move || Timeline::of(executors, bars, open, end_us))
            .await
            .map_err(ApiError::away)?;
        let freshness = Freshness::of(job, began);
        let drawn = Default::default();
        Ok(JobTimeline { index, times, open: opened, timeline, freshness, drawn, drawing })
    }

    /// The position of an executor in the timeline.
    pub fn position_of(&self, name: &str) -> Option<usize> {
        self.timeline.executors.iter().position(|executor| executor.name == name)
    }

    /// A picture as an answer. Drawing 1,000,000 tasks takes a tenth of a second, during which
    /// other requests are answered. Requests for one picture have it drawn once.
    pub async fn picture(self: Arc<Self>, window: PictureWindow) -> Result<Arc<str>, ApiError> {
        if let Some(text) = self.drawn(&window) {
            return Ok(text);
        }
        let turn = self.drawing.clone().lock_owned().await;
        if let Some(text) = self.drawn(&window) {
            return Ok(text);
        }
        let draw = move || {
            // The turn ends with the drawing, also if nobody waits for that any more.
            let _turn = turn;
            let (schema_version, timeline) = (SCHEMA_VERSION, self.timeline.picture(&window));
            let text: Arc<str> = json_text(&TimelineAnswer { schema_version, timeline }).into();
            let mut drawn = self.lock_drawn();
            if drawn.len() >= MAX_PICTURES {
                drawn.pop_front();
            }
            drawn.push_back((window, text.clone()));
            text
        };
        spawn_blocking(draw).await.map_err(ApiError::away)
    }

    fn drawn(&self, window: &PictureWindow) -> Option<Arc<str>> {
        let drawn = self.lock_drawn();
        drawn.iter().find(|(of, _)| of == window).map(|(_, text)| text.clone())
    }

    fn lock_drawn(&self) -> std::sync::MutexGuard<'_, VecDeque<(PictureWindow, Arc<str>)>> {
        self.drawn.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Reads the trace of a job. Of the first rows, the times are known.
async fn read_times(
    dispatcher: &SharedDispatcher,
    job: JobId,
    index: &JobIndex,
    known: &[Option<TracedTimes>],
) -> Result<Vec<Option<TracedTimes>>, ApiError> {
    let mut times = known.to_vec();
    times.truncate(index.rows.len());
    let mut next = index.rows.get(times.len()).map(|row| row.index);
    while let Some(from) = next {
        let asked = FromClient::Trace { job, from };
        let ToClient::Trace(part) = dispatcher.ask(asked).await? else {
            return Err(ApiError::unexpected());
        };
        let rows = &index.rows[times.len()..];
        let count = part.next.map_or(rows.len(), |to| rows.partition_point(|row| row.index < to));
        let is_traced = |row: &TaskRow| row.has_run && index.state(row) == SUCCEEDED;
        times.extend(matched(&rows[..count], is_traced, &part.tasks));
        next = part.next.filter(|_| times.len() < index.rows.len());
    }
    Ok(times)
}

/// The times of rows in a part of a trace. The trace may have more tasks, which have succeeded
/// after the rows were read.
fn matched(
    rows: &[TaskRow],
    is_traced: impl Fn(&TaskRow) -> bool,
    traced: &[RecordedTask],
) -> Vec<Option<TracedTimes>> {
    let mut left = rows.iter().filter(|row| is_traced(row)).count();
    let mut rest = traced;
    let mut times = Vec::with_capacity(rows.len());
    for row in rows {
        if !is_traced(row) {
            times.push(None);
            continue;
        }
        let more = rest.len().saturating_sub(left);
        left -= 1;
        let found = rest.iter().take(more + 1).position(|task| is_of(task, row));
        times.push(found.map(|at| {
            let RecordedTask { ready_us, delivery_us, .. } = rest[at];
            rest = &rest[at + 1..];
            TracedTimes { ready_us, delivery_us }
        }));
    }
    times
}

fn is_of(task: &RecordedTask, row: &TaskRow) -> bool {
    let traced = [task.queued_us, task.waited_us, task.ran_us, task.suspended_us, task.cpu_us];
    traced == [row.queued_us, row.waited_us, row.ran_us, row.suspended_us, row.cpu_us]
}

/// The executors that the rows name, and, if the job runs, the other connected ones. Each has as
/// many slots as processors.
fn executors_of(
    index: &JobIndex,
    job: &JobView,
    connected: &[ExecutorView],
) -> Vec<TimelineExecutor> {
    let slots = |view: &ExecutorView| view.capacity.cpus_milli / 1000;
    let by_name: HashMap<_, _> = connected.iter().map(|view| (&view.name, slots(view))).collect();
    let of_name = |name: &String| {
        let slots = by_name.get(name).copied().unwrap_or(1);
        TimelineExecutor { name: name.clone(), slots }
    };
    let mut executors: Vec<_> = index.executors.names.iter().map(of_name).collect();
    if job.state == JobState::Running {
        let others = connected.iter().filter(|view| !index.executors.has(&view.name));
        let other =
            |view: &ExecutorView| TimelineExecutor { name: view.name.clone(), slots: slots(view) };
        executors.extend(others.map(other));
    }
    executors
}

/// Bars of tasks that have run to an end.
fn ended_bars(index: &JobIndex, times: &[Option<TracedTimes>], end_us: u64) -> Vec<TaskBar> {
    let mut ready_us = times.iter().flatten().next().map_or(0, |times| times.ready_us);
    let mut bars = Vec::with_capacity(times.len());
    for (row, times) in index.rows.iter().zip(times) {
        if let Some(times) = times {
            ready_us = times.ready_us;
        }
        let state = match index.state(row) {
            SUCCEEDED => BarState::Succeeded,
            "failed" => BarState::Failed,
            "cancelled" => BarState::Cancelled,
            _ => continue,
        };
        let Some(executor) = row.executor.filter(|_| row.has_run) else { continue };
        if state == BarState::Cancelled && row.waited_us + row.ran_us == 0 {
            continue;
        }
        let at_executor_us = row.waited_us + row.ran_us + row.suspended_us;
        let delivery_us = times.map_or(0, |times| times.delivery_us);
        let assigned_us = ready_us + row.queued_us;
        // An estimate may not lead beyond the end of the job.
        let staged_us = match times {
            Some(_) => assigned_us,
            None => assigned_us.min(end_us.saturating_sub(at_executor_us)),
        };
        let started_us = staged_us + row.waited_us;
        let ended_us = staged_us + at_executor_us;
        bars.push(TaskBar {
            index: row.index,
            executor,
            slot: 0,
            state,
            is_estimated: times.is_none(),
            staged_us,
            started_us,
            ended_us,
            delivered_us: ended_us + delivery_us,
        });
    }
    bars
}

/// Tasks that are at executors.
fn open_tasks(index: &JobIndex, before: Option<&JobTimeline>) -> Vec<OpenTask> {
    let is_open = |row: &&TaskRow| matches!(index.state(row), "assigned" | "suspended");
    let open = index.rows[index.settled..].iter().filter(is_open);
    let task = |row: &TaskRow| {
        let known = before.and_then(|before| before.open.get(&row.index).copied());
        let last_look_us = before.map_or(0, |before| before.timeline.end_us);
        Some(OpenTask {
            index: row.index,
            executor: row.executor?,
            after_us: known.unwrap_or(last_look_us),
        })
    };
    open.filter_map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::job;
    use crate::task_index::tests::{index, row};

    fn traced(row: &TaskRow, ready_us: u64) -> RecordedTask {
        RecordedTask {
            ready_us,
            queued_us: row.queued_us,
            waited_us: row.waited_us,
            ran_us: row.ran_us,
            suspended_us: row.suspended_us,
            delivery_us: 1,
            cpu_us: row.cpu_us,
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn a_beginning_that_is_not_told_is_that_of_the_task_before() {
        // They run for 100, 100 and 99 microseconds.
        let mut index = index(&["succeeded", "failed", "succeeded"]);
        index.executors.position_of("n1");
        index.rows.iter_mut().for_each(|row| (row.executor, row.waited_us) = (Some(0), 5));
        let times = |ready_us| Some(TracedTimes { ready_us, delivery_us: 7 });
        let times = [times(10), None, times(20)];
        let drawn = |end_us| -> Vec<_> {
            let bars = ended_bars(&index, &times, end_us).into_iter();
            bars.map(|bar| (bar.is_estimated, bar.staged_us, bar.started_us, bar.delivered_us))
                .collect()
        };
        let told = [(false, 10, 15, 122), (true, 10, 15, 115), (false, 20, 25, 131)];
        assert_eq!(drawn(1000), told);
        // An estimate leads to no end behind that of the job.
        assert_eq!(drawn(112)[1], (true, 7, 12, 112));
        assert!(open_tasks(&index, None).is_empty());
    }

    #[tokio::test]
    async fn a_picture_that_is_asked_for_twice_at_once_is_drawn_once() {
        let timeline = Arc::new(JobTimeline {
            index: Arc::new(index(&["succeeded"])),
            times: vec![None],
            open: BTreeMap::new(),
            timeline: Timeline::of(Vec::new(), Vec::new(), Vec::new(), 100),
            freshness: Freshness::of(&job(1, "a", JobState::Failed), Instant::now()),
            drawn: Default::default(),
            drawing: Arc::default(),
        });
        let picture = |to_us| {
            let window = PictureWindow { to_us: Some(to_us), ..PictureWindow::default() };
            timeline.clone().picture(window)
        };
        let (one, other, part) = tokio::join!(picture(100), picture(100), picture(50));
        assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()) && part.is_ok());
        assert_eq!(timeline.lock_drawn().len(), 2);
        // Who is given a turn draws alone, also of another timeline.
        let turn = timeline.drawing.clone().lock_owned().await;
        assert!(picture(100).await.is_ok(), "a known picture needs no turn");
        let late = tokio::spawn(picture(10));
        tokio::task::yield_now().await;
        assert_eq!(timeline.lock_drawn().len(), 2);
        drop(turn);
        assert!(late.await.unwrap().is_ok());
    }

    #[test]
    fn a_trace_is_matched_by_its_times_also_if_it_is_newer() {
        // Tasks 1 and 4 have not ended when the rows are read; the trace has 4, and not 1.
        let rows: Vec<_> = (0..6).map(|index| row(index, 100 + u64::from(index))).collect();
        let is_traced = |row: &TaskRow| row.index != 1 && row.index != 4;
        let trace = [0, 2, 3, 4, 5].map(|at| traced(&rows[at], at as u64));
        let ready = |times: Vec<Option<TracedTimes>>| -> Vec<_> {
            times.into_iter().map(|times| times.map(|times| times.ready_us)).collect()
        };
        let found = ready(matched(&rows, is_traced, &trace));
        assert_eq!(found, [Some(0), None, Some(2), Some(3), None, Some(5)]);
        // A task that the trace lacks does not cost the next ones their times.
        let found = ready(matched(&rows, |_| true, &trace[1..4]));
        assert_eq!(found, [None, None, Some(2), Some(3), Some(4), None]);
    }
}
