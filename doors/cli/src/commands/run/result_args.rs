//! Options of `eyas run` for what is printed and written beside results, and for when it stops.

use std::path::PathBuf;

use clap::Args;
use eyas_client::types::Name;
use eyas_client::{Draft, TaskTexts};

use super::halt::HaltRule;
use super::result_files::{ResultFiles, ResultsFolder, TaskLog};
use crate::error::CliError;
use crate::words;

#[derive(Args)]
pub(super) struct ResultArgs {
    /// Begin each line of output with the item of its task and a tab
    #[arg(long)]
    pub tag: bool,
    /// Also write the output of each task to the files stdout and stderr in DIR/INDEX, or in DIR
    /// if it has placeholders, such as 'out/{/.}'
    #[arg(long, value_name = "DIR", value_parser = words::name())]
    pub results: Option<Name>,
    /// Write a line to FILE when a task has ended, as CSV: times, exit code, memory, command
    #[arg(long, value_name = "FILE")]
    pub joblog: Option<PathBuf>,
    /// Show the progress and the remaining time also where standard error is no terminal, in a
    /// line every 10 s
    #[arg(long, visible_alias = "eta")]
    pub bar: bool,
    /// Print the commands, and run none
    #[arg(long, help_heading = "Job")]
    pub dry_run: bool,
    /// Stop before all tasks have ended: never, or WHEN,WHAT=N with now or soon (running tasks end
    /// first), and fail, success or done, such as now,fail=1 or soon,fail=10%. Without this
    /// option, a job stops when its first 20 tasks have failed in the same way
    #[arg(long, value_name = "RULE", help_heading = "Job")]
    pub halt: Option<HaltRule>,
}

impl ResultArgs {
    /// The texts of the tasks, if an option needs them.
    pub fn texts(&self, draft: &Draft) -> Option<TaskTexts> {
        (self.tag || self.results.is_some() || self.joblog.is_some()).then(|| TaskTexts::of(draft))
    }

    /// Begins the files. A run that goes on with an earlier one adds to its log of tasks.
    pub fn files(&self, texts: Option<&TaskTexts>, goes_on: bool) -> Result<ResultFiles, CliError> {
        let mut files = ResultFiles::default();
        let Some(texts) = texts else { return Ok(files) };
        if let Some(folder) = &self.results {
            files.folder = Some(ResultsFolder::new(folder, texts.clone())?);
        }
        if let Some(path) = &self.joblog {
            files.log = Some(TaskLog::begin(path, texts.clone(), goes_on)?);
        }
        Ok(files)
    }
}
