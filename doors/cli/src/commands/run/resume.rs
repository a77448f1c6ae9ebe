//! `eyas run --resume`: goes on with an earlier run in the same folder, and leaves out the tasks
//! that it has done.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Args;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name};
use eyas_client::view::JobState;
use eyas_client::{Client, Draft, TaskFingerprint};
use eyas_session::Access;

use super::lists::CommandAndLists;
use super::run_records::{EarlierEnd, EarlierRun, RunHeader, RunRecord};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::own_process::own_words;
use crate::print::say;

/// Whether a run goes on with an earlier one.
#[derive(Args, Clone, Default)]
pub(crate) struct ResumeArgs {
    /// Go on with the last run in this folder that has tasks left, and run those that have not
    /// run. Write `eyas run --resume` alone, or with the whole command
    #[arg(long, conflicts_with = "resume_failed")]
    resume: bool,
    /// Go on with it, and run the tasks that have failed again, too
    #[arg(long)]
    resume_failed: bool,
    /// The words of the earlier run, if this one has none of its own.
    #[arg(skip)]
    words: Option<Vec<Name>>,
}

impl ResumeArgs {
    pub fn is_given(&self) -> bool {
        self.resume || self.resume_failed
    }

    /// The option that is given.
    pub(super) fn option(&self) -> &'static str {
        if self.resume_failed { "--resume-failed" } else { "--resume" }
    }

    /// Whether the command line is that of the earlier run.
    pub(super) fn has_earlier_words(&self) -> bool {
        self.words.is_some()
    }

    /// The words of the run that is to go on, and the arguments that go with them.
    ///
    /// # Errors
    /// If there is no such run.
    pub(super) fn earlier_words(&self) -> Result<(Vec<OsString>, ResumeArgs), CliError> {
        let earlier = EarlierRun::with_tasks_left()?.ok_or(
            "no run in this folder has tasks left. A run that has failed tasks, or was \
             interrupted, is remembered for a week, for the folder in which it was started",
        )?;
        say!("goes on with {}", earlier.in_words());
        let words = earlier.header.words;
        let of_system = words.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
        Ok((of_system, ResumeArgs { words: Some(words), ..self.clone() }))
    }

    /// The words that describe this run.
    fn own_words(&self) -> Vec<Name> {
        if let Some(words) = &self.words {
            return words.clone();
        }
        let mut is_option = true;
        let is_of_run = |word: &OsString| {
            is_option &= word != "--";
            !is_option || word != "--resume" && word != "--resume-failed"
        };
        own_words().filter(is_of_run).map(|word| Name::from(word.into_vec())).collect()
    }
}

/// What a run does of a draft, and what is written for the run that goes on with it.
#[derive(Default)]
pub(super) struct Resumption {
    /// How the tasks that an earlier run has done have ended, by their indices; empty without such
    /// a run.
    done: Vec<Option<EarlierEnd>>,
    fingerprints: Vec<TaskFingerprint>,
    earlier: Option<EarlierRun>,
}

impl Resumption {
    /// Looks up what an earlier run has done, if this one goes on with it.
    ///
    /// # Errors
    /// If the earlier run is under way, or records cannot be read.
    pub fn of(draft: &Draft, command: &[Name], args: &ResumeArgs) -> Result<Self, CliError> {
        // What a run of one task leaves is as simple to run anew.
        if draft.len() < 2 && !args.is_given() {
            return Ok(Resumption::default());
        }
        let fingerprints = draft.fingerprints();
        if !args.is_given() {
            return Ok(Resumption { fingerprints, ..Resumption::default() });
        }
        let command = CommandAndLists::of(command).command;
        let earlier = EarlierRun::of_tasks(&fingerprints, &command)?;
        let done = match &earlier {
            Some(earlier) => earlier.ends(&fingerprints, args.resume_failed),
            None => {
                say!(
                    "no earlier run in this folder has done one of these tasks, so all of them run"
                );
                Vec::new()
            }
        };
        Ok(Resumption { done, fingerprints, earlier })
    }

    /// The tasks that were done before, by their indices; empty if there is no earlier run.
    pub fn done(&self) -> Vec<bool> {
        self.done.iter().map(Option::is_some).collect()
    }

    /// Number of tasks that have succeeded before, and that have failed.
    pub fn counts(&self) -> [u64; 2] {
        let count = |end| self.done.iter().filter(|done| **done == Some(end)).count() as u64;
        [count(EarlierEnd::Succeeded), count(EarlierEnd::Failed)]
    }

    /// Says what is left of this number of tasks. Returns the exit code if none is.
    pub fn say(&self, tasks: u64) -> Option<ExitCode> {
        if self.done.is_empty() {
            return None;
        }
        let [succeeded, failed] = self.counts();
        let (done, has_failed) = (succeeded + failed, failed > 0);
        let of_them =
            if has_failed { format!(", and {failed} of them failed") } else { String::new() };
        say!("{done} of {} ran before{of_them}", format_count(tasks, "task"));
        if done < tasks {
            return None;
        }
        how_to_resume([failed, 0]).iter().for_each(|line| say!("{line}"));
        Some(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Refuses to run tasks that a job of the earlier run still runs, on a cluster that stays.
    ///
    /// # Errors
    /// If it does, or the dispatcher does not answer.
    pub async fn refuse_if_job_goes_on(
        &self,
        client: &mut Client,
        access: &Access,
        on: &str,
    ) -> Result<(), CliError> {
        let job = self.earlier.as_ref().and_then(|earlier| earlier.header.job.as_ref());
        let Some((_, job)) = job.filter(|(dispatcher, _)| *dispatcher == access.dispatcher) else {
            return Ok(());
        };
        if let Ok(ToClient::Jobs(jobs)) = client.ask(FromClient::Jobs { job: Some(*job) }).await
            && jobs.iter().any(|job| job.state == JobState::Running)
        {
            return Err(format!(
                "job {job} of the earlier run goes on: wait for it with `eyas job wait {job}{on}`, \
                 or cancel it with `eyas job cancel {job}{on}`, and then go on"
            )
            .into());
        }
        Ok(())
    }

    /// Begins the record of this run. `None` if it needs none. `job` is the job on a cluster that
    /// stays, with the dispatcher's address.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn begin_record(
        &mut self,
        command: &[Name],
        args: &ResumeArgs,
        job: Option<(String, JobId)>,
    ) -> Result<Option<RunRecord>, CliError> {
        let fingerprints = std::mem::take(&mut self.fingerprints);
        if fingerprints.is_empty() {
            return Ok(None);
        }
        let command = CommandAndLists::of(command).command;
        let header = RunHeader::new(args.own_words(), command, fingerprints.len(), job)?;
        RunRecord::begin(&header, fingerprints, &self.done, self.earlier.take(), args.is_given())
    }
}

/// What an interrupted or failed run says of how to go on.
pub(super) fn how_to_resume([failed, left]: [u64; 2]) -> Option<String> {
    let again = || {
        let failed = format_count(failed, "failed task");
        format!("`eyas run --resume-failed` runs the {failed} again")
    };
    let rest = || {
        let are_left = if left == 1 { "task that is" } else { "tasks that are" };
        format!("`eyas run --resume` runs the {left} {are_left} left")
    };
    match (failed, left) {
        (0, 0) => None,
        (_, 0) => Some(again()),
        (0, _) => Some(rest()),
        _ => Some(format!("{}; {}, too", rest(), again())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_names_the_option_for_what_is_left() {
        let said = |failed, left| how_to_resume([failed, left]).unwrap_or_default();
        assert_eq!(said(0, 0), "");
        assert_eq!(said(0, 1), "`eyas run --resume` runs the 1 task that is left");
        assert_eq!(said(2, 0), "`eyas run --resume-failed` runs the 2 failed tasks again");
        assert_eq!(
            said(1, 3),
            "`eyas run --resume` runs the 3 tasks that are left; `eyas run --resume-failed` runs \
             the 1 failed task again, too"
        );
    }
}
