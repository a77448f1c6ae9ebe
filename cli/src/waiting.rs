//! A job on its way, in front of the command that waits for it: a bar, warnings of what can never run, and what becomes of the
//! job when the user no longer waits. One for all commands: `run`, `submit --wait`, `job wait` and `map`.

use std::collections::BTreeSet;
use std::time::Duration;

use eyas_client::types::JobId;
use eyas_client::types::units::{format_bytes, format_count, format_duration_us};
use eyas_client::view::JobView;
use eyas_client::{Client, Draft, Preparing, Seen};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;
use crate::print::say;
use crate::{Failure, show};

/// Between two pictures of a bar that shows only that something is done.
const TICK: Duration = Duration::from_millis(100);

/// What is shown on standard error. The bar is there on a terminal alone, words are everywhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Warnings that were shown.
    warned: BTreeSet<String>,
}

impl Progress {
    pub fn begin() -> Self {
        Progress::on(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10)))
    }

    /// Words beside a bar of the caller's own.
    pub fn on(bar: ProgressBar) -> Self {
        Progress { bar, warned: BTreeSet::new() }
    }

    /// Shows how a job is put together and sent.
    pub fn preparing(&self) -> impl FnMut(Preparing) + Send + 'static + use<> {
        let bar = self.bar.clone();
        move |step| {
            if bar.message().is_empty() {
                bar.set_style(ProgressStyle::with_template("{spinner:.green} {msg}").expect("the template is valid"));
                bar.enable_steady_tick(TICK);
            }
            bar.set_message(match step {
                Preparing::Sources(count) => format!("looked at {}", format_count(count, "file")),
                Preparing::Tasks(count) => format!("prepared {}", format_count(count, "task")),
                Preparing::Sent(count, all) => format!("sent {count} of {}", format_count(all, "task")),
                Preparing::Accepting(count) => {
                    format!("the dispatcher checks {} and writes them down", format_count(count, "task"))
                }
            });
        }
    }

    /// Shows how a watched job stands.
    pub fn see(&mut self, seen: &Seen) {
        match seen {
            Seen::Progress(view) => {
                self.show(view);
                self.warn(view);
            }
            Seen::Lost(_) | Seen::Back => self.bar.suspend(|| show::seen(seen)),
            Seen::Results(_) | Seen::Failures(_) => {}
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
        self.bar.set_message(standing(view));
    }

    /// Says once what a person should know.
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

    /// Lets something be printed above the bar.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A job's rates and what is left, beside its bar.
fn standing(view: &JobView) -> String {
    let (done, total) = (view.tasks.ended(), view.tasks.total());
    let seconds = view.elapsed_us as f64 / 1e6;
    let rate = done as f64 / seconds.max(1e-3);
    let left = if done > 0 { format_duration_us(((total - done) as f64 / rate * 1e6) as u64) } else { "?".into() };
    let reads = &view.reads;
    let blocked = match view.tasks.blocked {
        0 => String::new(),
        blocked => format!("{blocked} wait for others | "),
    };
    format!(
        "{} tasks/s | {blocked}local {} peers {} storage {} | ETA {left}",
        show::format_rate(rate),
        format_bytes(reads.local.bytes),
        format_bytes(reads.peer.bytes),
        format_bytes(reads.persistent.bytes)
    )
}

/// Submits a job, unless there is an interrupt before it is accepted. Then there is no job, which is said.
pub(crate) async fn submit(
    client: &mut Client,
    draft: Draft,
    progress: &Progress,
    interrupt: &mut Interrupt,
) -> Result<Option<JobId>, Failure> {
    interrupt.last_words(Some("the job may have been accepted: `eyas job list` shows it then".into()));
    let submitted = client.submit_unless(draft, interrupt.comes()).await;
    interrupt.last_words(None);
    let job = submitted?;
    if job.is_none() {
        progress.suspend(|| say!("interrupted; no job was submitted"));
    }
    Ok(job)
}

/// Waits for a job's end; none if there is an interrupt before.
pub(crate) async fn wait(
    client: &mut Client,
    job: JobId,
    patience: Duration,
    progress: &mut Progress,
    interrupt: &mut Interrupt,
) -> Result<Option<JobView>, Failure> {
    let watched = tokio::select! {
        watched = client.watch(job, false, patience, |seen| progress.see(&seen)) => Some(watched),
        () = interrupt.comes() => None,
    };
    Ok(watched.transpose()?)
}

/// What is said of a job that nothing waits for any longer.
pub(crate) fn goes_on(job: JobId) -> String {
    format!("job {job} goes on: `eyas job wait {job}` waits for it again, `eyas job cancel {job}` ends it")
}
