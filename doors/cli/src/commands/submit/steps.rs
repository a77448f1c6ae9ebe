//! The steps of a job file with map steps, which this command drives one after the other: the tasks
//! of a step are a job, and each pass of a map step is what `eyas map` does.

use std::process::Stdio;

use clap::Parser;
use eyas_client::files::{ChunkMemory, DfsClient, RenameOptions};
use eyas_client::types::Name;
use eyas_client::types::dfs::FileName;
use eyas_client::types::units::{format_bytes, format_count};
use eyas_client::{JobStep, JobSteps, MapError, MapStep, PassOutput, StepTasks, TaskFieldsError};
use indicatif::ProgressBar;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::SubmitArgs;
use crate::commands::map::{MapArgs, bar, run_pass, summary};
use crate::connect::connect;
use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::Interrupt;
use crate::print::{out, say};
use crate::waiting::{self, ProgressDisplay};
use crate::words::command_line;

/// The exit code with which `until` says that another pass follows.
const ANOTHER_PASS: i32 = 1;

/// Options of `eyas map`, as a step writes them.
const OPTIONS: &[&str] = &[
    "reducers",
    "reduce",
    "combine",
    "to",
    "policy",
    "alpha",
    "beta",
    "min-block",
    "waves",
    "tasks",
    "term",
    "retries",
    "header",
    "by-file",
];

/// A step as a command line of `eyas map`, so that both have the same values and refusals.
#[derive(Parser)]
struct MapLine {
    #[command(flatten)]
    args: MapArgs,
}

/// Runs the steps of a file, or prints them.
pub(super) async fn run(
    args: &SubmitArgs,
    steps: &JobSteps,
    global: &GlobalArgs,
    interrupt: Interrupt,
) -> Result<ExitCode, CliError> {
    check(args, steps, global)?;
    if args.dry_run {
        return print(steps);
    }
    let mut driver = Driver { args, steps, global, interrupt, bar: bar(false), files: None };
    driver.refuse_folders_in_use().await?;
    for step in &steps.steps {
        let code = match step {
            JobStep::Tasks(tasks) => driver.tasks(tasks).await?,
            JobStep::Map(line, step) => driver.map(*line, step).await?,
        };
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses options that have no meaning for map steps, and steps that `eyas map` would refuse.
fn check(args: &SubmitArgs, steps: &JobSteps, global: &GlobalArgs) -> Result<(), CliError> {
    if args.reuse || steps.reuses() {
        return Err(
            "a file with map steps cannot reuse results, because the outputs of map steps \
                    are not recorded as results: leave `reuse` out"
                .into(),
        );
    }
    if global.json && !args.dry_run {
        return Err("a file with map steps has no answer in JSON: leave --json out".into());
    }
    for step in &steps.steps {
        if let JobStep::Map(line, step) = step {
            let args = parse(steps, *line, &step.pass(1, None))?;
            args.job(&global.cluster()?).map_err(|why| mistake(steps, *line, &why.to_string()))?;
        }
    }
    Ok(())
}

/// Prints each step: a map step as the command line of its first pass.
fn print(steps: &JobSteps) -> Result<ExitCode, CliError> {
    for (number, step) in (1..).zip(&steps.steps) {
        match step {
            JobStep::Tasks(tasks) => {
                let lines: Vec<_> = tasks.lines().map(|line| line.to_string()).collect();
                out!("# step {number}: the job of the tasks at line {}", lines.join(", "))?;
            }
            JobStep::Map(_, step) => {
                let passes = match step.passes() {
                    1 => "one pass".to_owned(),
                    passes => format!("up to {}, of which the first is", format_passes(passes)),
                };
                out!("# step {number}: {}, {passes}", name_of(step))?;
                let first = step.pass(1, None);
                let words = words(&first).into_iter().map(Name::from).collect::<Vec<_>>();
                out!("eyas {}", String::from_utf8_lossy(&command_line(&words)))?;
                if let Some(memory) = &first.memory {
                    out!("# memory: {} on each node", format_bytes(memory.0))?;
                }
                if let Some(until) = &first.until {
                    out!("# until: {until}")?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn format_passes(passes: u32) -> String {
    let end = if passes == 1 { "" } else { "es" };
    format!("{passes} pass{end}")
}

fn name_of(step: &MapStep) -> String {
    let id = step.id.as_ref().map(|id| format!(" `{id}`"));
    format!("map step{}", id.unwrap_or_default())
}

/// The words of the command `eyas` that runs a pass.
fn words(pass: &MapStep) -> Vec<String> {
    let mut words = vec!["map".to_owned()];
    let term = pass.term.map(|term| format!("{}us", term.0));
    let values = [
        ("to", pass.to.clone()),
        ("reduce", pass.reduce.clone()),
        ("reducers", pass.reducers.map(|number| number.to_string())),
        ("combine", pass.combine.clone()),
        ("policy", pass.policy.clone()),
        ("alpha", pass.alpha.clone()),
        ("beta", pass.beta.map(|weight| weight.to_string())),
        ("min-block", pass.min_block.map(|size| size.0.to_string())),
        ("waves", pass.waves.map(|number| number.to_string())),
        ("tasks", pass.tasks.map(|number| number.to_string())),
        ("term", term),
        ("retries", pass.retries.map(|number| number.to_string())),
        ("header", pass.header.clone()),
    ];
    words.extend(
        values.into_iter().filter_map(|(option, value)| Some(format!("--{option}={}", value?))),
    );
    words.extend(pass.inputs.iter().map(|input| format!("--input={input}")));
    words.extend(pass.by_file.then(|| "--by-file".to_owned()));
    words.extend(pass.files.iter().cloned());
    words.push("--".into());
    words.extend(pass.command());
    words
}

/// The pass as `eyas map` reads it.
fn parse(steps: &JobSteps, line: usize, pass: &MapStep) -> Result<MapArgs, CliError> {
    match MapLine::try_parse_from(words(pass)) {
        Ok(read) => Ok(read.args),
        Err(error) => {
            let said = error.to_string();
            let said = said.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
            Err(mistake(steps, line, said))
        }
    }
}

/// A mistake in a step, in which options of `eyas map` have the names of keys.
fn mistake(steps: &JobSteps, line: usize, why: &str) -> CliError {
    let mut why = why.to_owned();
    for option in OPTIONS {
        why = why.replace(&format!("--{option}"), &option.replace('-', "_"));
    }
    steps.mistake(line, TaskFieldsError::Syntax(why)).to_string().into()
}

/// Runs one step after the other.
struct Driver<'a> {
    args: &'a SubmitArgs,
    steps: &'a JobSteps,
    global: &'a GlobalArgs,
    interrupt: Interrupt,
    bar: ProgressBar,
    /// The connection to the file system, once it was needed.
    files: Option<DfsClient>,
}

impl Driver<'_> {
    async fn files(&mut self) -> Result<DfsClient, CliError> {
        if self.files.is_none() {
            self.files = Some(connect(self.global).await?.files().await?);
        }
        Ok(self.files.clone().expect("it was connected"))
    }

    /// Refuses to begin if a folder for the output of a step has files: no step should run for
    /// hours and have no place for its output then.
    async fn refuse_folders_in_use(&mut self) -> Result<(), CliError> {
        for step in &self.steps.steps {
            let JobStep::Map(_, step) = step else { continue };
            let folders = [step.last_folder().map(str::to_owned), step.folder_of(1)];
            for folder in folders.into_iter().flatten() {
                if !self.files().await?.list(&folder).await?.is_empty() {
                    return Err(MapError::FolderInUse(folder).into());
                }
            }
        }
        Ok(())
    }

    /// Runs the tasks of a step as a job.
    async fn tasks(&mut self, tasks: &StepTasks) -> Result<ExitCode, CliError> {
        let progress = ProgressDisplay::begin();
        let cluster = self.global.cluster()?;
        let drafting = self.steps.draft(tasks, self.args.priority, &cluster, progress.preparing());
        let mut draft = tokio::select! {
            draft = drafting => draft.inspect_err(|_| progress.clear())?,
            () = self.interrupt.received() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        self.args.apply(&mut draft);
        let mut client = connect(self.global).await?;
        let submitted = waiting::submit(&mut client, draft, &progress, &mut self.interrupt).await;
        let Some(job) = submitted.inspect_err(|_| progress.clear())? else {
            progress.clear();
            return Ok(ExitCode::from(INTERRUPTED));
        };
        let (reconnect, interrupt) = (self.args.reconnect, self.interrupt.clone());
        waiting::wait_for_all(&mut client, &[job], reconnect, progress, interrupt, self.global)
            .await
    }

    /// Runs all passes of a map step.
    async fn map(&mut self, line: usize, step: &MapStep) -> Result<ExitCode, CliError> {
        let memory = match &step.memory {
            Some(limit) => Some(self.files().await?.keep_in_memory(limit.0).await?),
            None => None,
        };
        let mut last = None;
        let ended = self.passes(line, step, memory.as_ref(), &mut last).await;
        if let Some(memory) = memory {
            memory.release().await;
        }
        match ended {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => {
                say_what_stays(step, last.as_ref());
                Ok(ExitCode::from(INTERRUPTED))
            }
            Err(error) => {
                say_what_stays(step, last.as_ref());
                Err(error)
            }
        }
    }

    /// Runs the passes of a step, whose chunks stay in `memory`; `last` becomes the output of the
    /// last one that is complete. Returns `false` after an interrupt.
    async fn passes(
        &mut self,
        line: usize,
        step: &MapStep,
        memory: Option<&ChunkMemory>,
        last: &mut Option<PassOutput>,
    ) -> Result<bool, CliError> {
        let account = memory.map(ChunkMemory::number);
        let mut says_failure = true;
        for number in 1..=step.passes() {
            let pass = step.pass(number, last.as_ref());
            let args = parse(self.steps, line, &pass)?;
            let title = match step.repeat {
                Some(passes) => format!("{}, pass {number} of {passes}", name_of(step)),
                None => name_of(step),
            };
            self.bar.set_prefix(format!("{title} "));
            let ran = run_pass(&args, account, self.global, &mut self.interrupt, &self.bar).await;
            let Some(view) = ran.map_err(|why| format!("{title}: {why}"))? else {
                return Ok(false);
            };
            say!("{title}: {}", summary(&view));
            if let Some(memory) = memory {
                let used = memory.usage().await;
                let chunks = format_count(used.chunks, "chunk");
                say!("{title}: {chunks} in memory, {}", format_bytes(used.bytes));
                // Once is enough.
                if let Some(why) = used.failure.filter(|_| std::mem::take(&mut says_failure)) {
                    say!("{title}: not all chunks stay in memory: {why}");
                }
            }
            let output = pass.to.as_ref().map(|folder| PassOutput {
                folder: folder.clone(),
                files: view.files.unwrap_or_default(),
            });
            let before = std::mem::replace(last, output);
            let is_settled = match &pass.until {
                Some(until) => self.until(until).await,
                None => Ok(Some(false)),
            };
            // Also if `until` has failed: one output stays.
            if let Some(before) = before.filter(|_| !step.keep) {
                remove(&self.files().await?, &before).await?;
            }
            match is_settled? {
                None => return Ok(false),
                Some(true) => break,
                Some(false) => {}
            }
            if number == step.passes() && pass.until.is_some() {
                say!("{title}: `until` has not ended the step, which ends after its last pass");
            }
        }
        if let (Some(to), Some(output)) = (step.last_folder(), last.as_mut()) {
            move_to(&self.files().await?, output, to).await?;
        }
        Ok(true)
    }

    /// Whether the command says that no pass follows; `None` after an interrupt.
    async fn until(&mut self, command: &str) -> Result<Option<bool>, CliError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
        // Commands of eyas in it use the same cluster.
        if let Some(access) = &self.global.access {
            shell.env("EYAS_ACCESS", access);
        } else if let Some(cluster) = &self.global.cluster {
            shell.env("EYAS_CLUSTER", cluster).env_remove("EYAS_ACCESS");
        }
        let mut running = shell.spawn()?;
        let status = tokio::select! {
            status = running.wait() => status?,
            () = self.interrupt.received() => {
                if let Some(group) = running.id().and_then(|id| Pid::from_raw(id as i32)) {
                    // A group that has just ended needs no signal.
                    let _ = kill_process_group(group, Signal::TERM);
                }
                running.wait().await?;
                return Ok(None);
            }
        };
        match status.code() {
            Some(0) => Ok(Some(true)),
            Some(ANOTHER_PASS) => Ok(Some(false)),
            _ => Err(format!(
                "`until` failed ({status}): `{command}` must end with the exit code 0 if no pass \
                 follows, and with {ANOTHER_PASS} if another one does"
            )
            .into()),
        }
    }
}

fn say_what_stays(step: &MapStep, last: Option<&PassOutput>) {
    if let (Some(_), Some(output)) = (step.repeat, last) {
        say!(
            "the output of the last complete pass is in {}: remove it, or begin with it (`first`)",
            output.folder
        );
    }
}

/// Removes the output of a pass.
async fn remove(files: &DfsClient, output: &PassOutput) -> Result<(), CliError> {
    for file in &output.files {
        files.remove(file).await?;
    }
    remove_folder(files, &output.folder).await
}

async fn remove_folder(files: &DfsClient, folder: &str) -> Result<(), CliError> {
    // Another program may have written files there.
    let folder: FileName = folder.parse()?;
    if files.list(folder.as_str()).await?.iter().all(|listing| listing.name == folder) {
        files.remove_folder(&folder).await?;
    }
    Ok(())
}

/// Moves the output of a pass to another folder.
async fn move_to(files: &DfsClient, output: &mut PassOutput, to: &str) -> Result<(), CliError> {
    let options = RenameOptions { replaces: false, makes_parents: true, keeps_format: true };
    for (number, file) in output.files.iter_mut().enumerate() {
        let name: FileName = format!("{}/part-{number:05}", to.trim_end_matches('/')).parse()?;
        files.rename(file, &name, options).await?;
        *file = name;
    }
    let before = std::mem::replace(&mut output.folder, to.to_owned());
    remove_folder(files, &before).await
}
