//! Waiting for jobs, for `run`, `submit --wait`, `job wait` and `map`: a progress bar, warnings
//! about tasks that can never run, and messages after an interrupt.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::{format_bytes, format_count, format_duration_us};
use eyas_client::types::{JobId, TaskId};
use eyas_client::view::{JobState, JobView, TaskView};
use eyas_client::{Client, Draft, SubmitProgress, WatchEvent};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::connect::unexpected;
use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::Interrupt;
use crate::print::say;
use crate::reasons::{FailureReasons, is_of_dependent};
use crate::show;

/// Failed tasks whose reasons are compared; further ones are only counted. The dispatcher tells no
/// more at a time.
const MAX_DESCRIBED: usize = 100;
/// At most this many failed tasks are read, to count those that never ran.
const MAX_FAILED_READ: u32 = 5000;
/// Time between two lines about the progress.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time between two frames of the animation while a job is prepared.
const TICK: Duration = Duration::from_millis(100);

/// Shows the progress of a job on standard error. Messages are always printed, the bar only on a
/// terminal.
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
    /// Warnings that were already printed.
    warned: BTreeSet<String>,
    /// Where there is no terminal: when the next line about the progress is printed.
    next_line: Option<Instant>,
}

impl ProgressDisplay {
    pub fn begin() -> Self {
        ProgressDisplay::on(ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::stderr_with_hz(10),
        ))
    }

    /// Uses a bar of the caller.
    pub fn on(bar: ProgressBar) -> Self {
        ProgressDisplay { bar, warned: BTreeSet::new(), next_line: None }
    }

    /// Where there is no terminal, prints a line about the progress from time to time.
    pub fn print_lines(&mut self) {
        self.next_line = self.bar.is_hidden().then(|| Instant::now() + LINE_EVERY);
    }

    /// Shows the preparation and submission of a job.
    pub fn preparing(&self) -> impl FnMut(SubmitProgress) + Send + 'static + use<> {
        let bar = self.bar.clone();
        move |step| {
            if bar.message().is_empty() {
                bar.set_style(
                    ProgressStyle::with_template("{spinner:.green} {msg}")
                        .expect("the template is valid"),
                );
                bar.enable_steady_tick(TICK);
            }
            bar.set_message(match step {
                SubmitProgress::Sources(count) => {
                    format!("checked {}", format_count(count, "file"))
                }
                SubmitProgress::Tasks(count) => format!("prepared {}", format_count(count, "task")),
                SubmitProgress::Sent { sent: count, tasks: all } => {
                    format!("sent {count} of {}", format_count(all, "task"))
                }
                SubmitProgress::Accepting { tasks: count } => {
                    format!("the dispatcher checks and stores {}", format_count(count, "task"))
                }
            });
        }
    }

    /// Shows the progress of a watched job.
    pub fn see(&mut self, seen: &WatchEvent) {
        match seen {
            WatchEvent::Progress(view) => {
                self.show(view);
                self.print_line(view);
                self.warn(view);
            }
            WatchEvent::Lost(_) | WatchEvent::Back => self.bar.suspend(|| show::seen(seen)),
            WatchEvent::Results(_) | WatchEvent::Failures(_) => {}
        }
    }

    fn show(&self, view: &JobView) {
        if self.bar.length() != Some(view.tasks.total()) {
            let style = ProgressStyle::with_template("{wide_bar:.green} {pos}/{len} {msg}");
            self.bar.disable_steady_tick();
            self.bar.set_style(style.expect("the template is valid"));
            self.bar.set_length(view.tasks.total());
        }
        self.bar.set_position(view.tasks.ended());
        self.bar.set_message(rates(view));
    }

    fn print_line(&mut self, view: &JobView) {
        if self.next_line.is_some_and(|next| Instant::now() >= next) {
            self.next_line = Some(Instant::now() + LINE_EVERY);
            let (done, all) = (view.tasks.ended(), format_count(view.tasks.total(), "task"));
            say!("{done} of {all} | {}", rates(view));
        }
    }

    /// Prints warnings that were not printed before.
    pub fn warn(&mut self, view: &JobView) {
        for warning in &view.warnings {
            if self.warned.insert(warning.clone()) {
                self.bar.suspend(|| say!("{warning}"));
            }
        }
    }

    pub fn message(&self, message: &'static str) {
        self.bar.set_message(message);
    }

    /// Prints something above the bar.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The rates and the remaining time of a job, beside its bar.
fn rates(view: &JobView) -> String {
    let (done, total) = (view.tasks.ended(), view.tasks.total());
    let seconds = view.elapsed_us as f64 / 1e6;
    let rate = done as f64 / seconds.max(1e-3);
    let left = if done > 0 {
        format_duration_us(((total - done) as f64 / rate * 1e6) as u64)
    } else {
        "?".into()
    };
    let reads = &view.reads;
    let blocked = match view.tasks.blocked {
        0 => String::new(),
        blocked => format!("{blocked} wait for other tasks | "),
    };
    let files = match reads.files.bytes() {
        0 => String::new(),
        bytes => format!(" files {}", format_bytes(bytes)),
    };
    format!(
        "{} tasks/s | {blocked}local {} peers {} storage {}{files} | ETA {left}",
        show::format_rate(rate),
        format_bytes(reads.local.bytes),
        format_bytes(reads.peer.bytes),
        format_bytes(reads.persistent.bytes)
    )
}

/// Submits a job. If an interrupt comes before the job is accepted, prints a message and returns
/// `None`.
pub(crate) async fn submit(
    client: &mut Client,
    draft: Draft,
    progress: &ProgressDisplay,
    interrupt: &mut Interrupt,
) -> Result<Option<JobId>, CliError> {
    interrupt.set_final_message(Some(
        "the job may have been accepted: look for it with `eyas job list`".into(),
    ));
    let submitted = client.submit_unless(draft, interrupt.received()).await;
    interrupt.set_final_message(None);
    let job = submitted?;
    if job.is_none() {
        progress.suspend(|| say!("interrupted; no job was submitted"));
    }
    Ok(job)
}

/// Waits for the end of a job; `None` after an interrupt.
async fn wait(
    client: &mut Client,
    job: JobId,
    patience: Duration,
    progress: &mut ProgressDisplay,
    interrupt: &mut Interrupt,
) -> Result<Option<JobView>, CliError> {
    let watched = tokio::select! {
        watched = client.watch(job, false, patience, |seen| progress.see(&seen)) => Some(watched),
        () = interrupt.received() => None,
    };
    Ok(watched.transpose()?)
}

/// The message about a job that continues when this command no longer waits for it.
/// `on` is the option that names the cluster.
pub(crate) fn continues(job: JobId, on: &str) -> String {
    format!(
        "job {job} continues: wait for it again with `eyas job wait {job}{on}`, or cancel it with \
         `eyas job cancel {job}{on}`"
    )
}

/// The command that runs tasks of an ended job again, if some did not succeed.
/// `on` is the option that names the cluster.
pub(crate) fn again(ended: &JobView, on: &str) -> Option<String> {
    let left = ended.tasks.failed + ended.tasks.cancelled;
    let left = (left > 0).then(|| format_count(left, "unsuccessful task"))?;
    Some(format!(
        "`eyas job retry {}{on}` runs the {left} again; with --current, also if an input has \
         changed",
        ended.job
    ))
}

/// Waits for the end of all jobs in turn, and prints the result of each.
pub(crate) async fn wait_for_all(
    client: &mut Client,
    jobs: &[JobId],
    reconnect: ReconnectArgs,
    mut progress: ProgressDisplay,
    mut interrupt: Interrupt,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let (mut ended, on) = (Vec::new(), global.named_option());
    for (index, job) in jobs.iter().enumerate() {
        let watched = wait(client, *job, reconnect.patience(), &mut progress, &mut interrupt).await;
        let Some(view) = watched.inspect_err(|_| progress.clear())? else {
            progress.clear();
            jobs[index..].iter().for_each(|job| say!("{}", continues(*job, &on)));
            return Ok(ExitCode::from(INTERRUPTED));
        };
        if !global.json {
            let prefix = if jobs.len() > 1 { format!("job {job}: ") } else { String::new() };
            progress.warn(&view);
            if view.tasks.failed > 0 {
                say_failures(client, &view, &progress).await?;
            }
            progress.suspend(|| say!("{prefix}{}", show::summary(&view)));
            again(&view, &on).iter().for_each(|line| progress.suspend(|| say!("{line}")));
        }
        ended.push(view);
    }
    progress.clear();
    if global.json {
        show::json("jobs", &ended)?;
    }
    Ok(ended
        .iter()
        .map(exit_code)
        .find(|code| *code != ExitCode::SUCCESS)
        .unwrap_or(ExitCode::SUCCESS))
}

/// The exit code of a command that has waited for a job: a failure if a task did not succeed, or if
/// output was cut that the user has not limited.
pub(crate) fn exit_code(ended: &JobView) -> ExitCode {
    match ended.state == JobState::Succeeded && !ended.is_output_cut {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Prints the failed tasks of an ended job by their reasons.
async fn say_failures(
    client: &mut Client,
    job: &JobView,
    progress: &ProgressDisplay,
) -> Result<(), CliError> {
    let failed = client.tasks(job.job, 0, MAX_FAILED_READ, true).await?;
    let mut reasons = FailureReasons::default();
    let is_own = |task: &&TaskView| !is_of_dependent(task.status.as_deref().unwrap_or_default());
    let described: Vec<_> =
        failed.iter().filter(is_own).map(|task| task.task.index).take(MAX_DESCRIBED).collect();
    let answer = match described.is_empty() {
        true => ToClient::Failures(Vec::new()),
        false => client.ask(FromClient::Failures { job: job.job, tasks: described }).await?,
    };
    let ToClient::Failures(failures) = answer else { return unexpected() };
    let name = |task: TaskId| (task.to_string(), task.index);
    for failure in &failures {
        reasons.add(name(failure.task), &failure.status, failure.stderr.as_bytes());
    }
    let mut listed = failures.len() as u64;
    for task in &failed {
        let status = task.status.as_deref().unwrap_or_default();
        if is_of_dependent(status) {
            listed += 1;
            reasons.add(name(task.task), status, b"");
        }
    }
    for reason in reasons.reasons() {
        let first = failures.iter().find(|failure| failure.task.index == reason.first.1);
        first
            .iter()
            .for_each(|first| progress.suspend(|| say!("{}", show::failures(reason, first))));
    }
    reasons.of_dependents().iter().for_each(|message| progress.suspend(|| say!("{message}")));
    let more = job.tasks.failed.saturating_sub(listed) + reasons.others();
    if more > 0 {
        let (more, job) = (format_count(more, "more task"), job.job);
        progress.suspend(|| {
            say!("{more} did not succeed: list them with `eyas task list {job} --failed`")
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::overview::tests::job;

    #[test]
    fn an_ended_job_says_how_to_go_on() {
        let mut ended = job(29, "job", 4, 4);
        assert_eq!(again(&ended, ""), None);
        (ended.tasks.succeeded, ended.tasks.failed, ended.tasks.cancelled) = (1, 1, 2);
        assert_eq!(
            again(&ended, " --cluster sky").as_deref(),
            Some(
                "`eyas job retry 29 --cluster sky` runs the 3 unsuccessful tasks again; with \
                 --current, also if an input has changed"
            )
        );
    }

    #[test]
    fn a_job_has_succeeded_if_all_tasks_have_and_no_output_was_cut() {
        let (ended, running) = (job(1, "job", 4, 4), job(1, "job", 3, 4));
        let cut = JobView { is_output_cut: true, ..ended.clone() };
        let codes = [&ended, &running, &cut].map(exit_code);
        assert_eq!(codes, [ExitCode::SUCCESS, ExitCode::FAILURE, ExitCode::FAILURE]);
    }
}
