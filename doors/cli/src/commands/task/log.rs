//! `eyas task log`: what a task has printed. A task that runs is asked for it piece by piece; with
//! `--follow`, until the task has ended, through all of its tries.

use std::time::Duration;

use clap::Args;
use eyas_client::messages::{FromClient, NO_SUCH_JOB, TaskResult, ToClient};
use eyas_client::printed::{Printed, PrintedPiece, PrintedPosition};
use eyas_client::types::shown::{MAX_QUOTED_CHARS, shortened};
use eyas_client::types::task::MAX_CAPTURE_BYTES;
use eyas_client::types::{Name, Status, TaskId};
use eyas_client::view::TaskView;
use eyas_client::{Client, ClientError};
use serde_json::json;

use crate::connect::{task_of, unexpected};
use crate::error::CliError;
use crate::global::{GlobalArgs, ReconnectArgs, WhichTask};
use crate::print::{self, say};
use crate::show;

/// Pauses between two questions: after output, and the longest, while the task prints nothing.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct LogArgs {
    /// The task, as JOB.INDEX; JOB may be `last`
    task: WhichTask,
    /// Print the standard error of the task instead
    #[arg(long)]
    stderr: bool,
    /// Print standard output and standard error while the task runs, until the task has ended
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    reconnect: ReconnectArgs,
}

pub(super) async fn log(
    client: &mut Client,
    args: &LogArgs,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    if args.follow && global.json {
        return Err("--follow prints the output of the task as it is: leave --json out".into());
    }
    let task = task_of(client, args.task).await?;
    let mut log = TaskLog::new(task, args.stderr);
    if let Some(result) = result_of(client, task).await? {
        if global.json {
            return print_result_as_json(client, task, &result).await;
        }
        say_how_it_ran(&view_of(client, task).await?);
        return match args.follow {
            true => log.finish(&result),
            false => print_result(&result, args.stderr),
        };
    }
    match args.follow {
        true => follow(client, &mut log, args).await,
        false => print_so_far(client, &mut log, global.json).await,
    }
}

async fn result_of(client: &mut Client, task: TaskId) -> Result<Option<TaskResult>, CliError> {
    match client.ask(FromClient::Log { task }).await? {
        ToClient::Log(result) => Ok(result.map(|result| *result)),
        _ => unexpected(),
    }
}

async fn view_of(client: &mut Client, task: TaskId) -> Result<TaskView, CliError> {
    match client.ask(FromClient::Explain { task }).await? {
        ToClient::Explained(explanation) => Ok(explanation.task),
        _ => unexpected(),
    }
}

/// Says the command of a task that has ended, and where it ran. Standard output has the output of
/// the task alone.
fn say_how_it_ran(task: &TaskView) {
    if !task.command.is_empty() {
        let on = task.executor.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
        let command = shortened(&show::command_line(&task.command), MAX_QUOTED_CHARS).into_owned();
        say!("task {}{on}: {command}", task.task);
    }
}

/// Prints what a task prints until it has ended.
async fn follow(client: &mut Client, log: &mut TaskLog, args: &LogArgs) -> Result<(), CliError> {
    let (task, patience) = (log.task, args.reconnect.patience());
    let mut pause = PAUSE_FIRST;
    loop {
        let printed = match client.printed(task, log.position, patience, show::seen).await {
            Ok(Printed::Ended) => break,
            Err(ClientError::Refused(why)) if log.has_begun() && why.starts_with(NO_SUCH_JOB) => {
                say!("task {task} has ended, and its job is no longer remembered");
                return Ok(());
            }
            printed => printed?,
        };
        log.say_state(&printed);
        let Printed::Running { piece, .. } = printed else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            continue;
        };
        let before = log.position;
        log.print(&piece)?;
        pause = if log.position == before { (pause * 2).min(PAUSE_MAX) } else { PAUSE_FIRST };
        if !piece.has_more {
            tokio::time::sleep(pause).await;
        }
    }
    match result_of(client, task).await? {
        Some(result) => log.finish(&result),
        None => {
            say!("task {task} has ended; the program that has submitted it has the result");
            Ok(())
        }
    }
}

/// Prints what a task that has not ended has printed so far.
async fn print_so_far(
    client: &mut Client,
    log: &mut TaskLog,
    as_json: bool,
) -> Result<(), CliError> {
    let task = log.task;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let no_log = |why: &str| {
        format!("task {task} has no log yet: {why} `eyas explain {task}` shows its state")
    };
    loop {
        let (executor, piece) = match client
            .printed(task, log.position, Duration::ZERO, show::seen)
            .await
        {
            Ok(Printed::Running { executor, piece, .. }) => (executor, piece),
            Ok(Printed::Waiting { why }) => return Err(no_log(&why).into()),
            Ok(Printed::NotRunning { executor }) => {
                return Err(no_log(&format!("it is on {executor}, and no program runs.")).into());
            }
            Ok(Printed::Silent { executor }) => {
                return Err(no_log(&format!("executor {executor} does not answer.")).into());
            }
            Ok(Printed::Ended) => match result_of(client, task).await? {
                Some(result) if as_json => {
                    return print_result_as_json(client, task, &result).await;
                }
                Some(result) => return print_result(&result, log.only_stderr),
                None => return Err(no_log("its result went to its program.").into()),
            },
            Err(ClientError::Earlier { .. }) => return Err(no_log("it has not ended.").into()),
            Err(why) => return Err(why.into()),
        };
        if as_json {
            if log.start_at(&piece) {
                (stdout, stderr) = Default::default();
            }
            stdout.extend_from_slice(&piece.stdout);
            stderr.extend_from_slice(&piece.stderr);
            log.position = piece.end();
        } else {
            log.print(&piece)?;
        }
        if piece.has_more {
            continue;
        }
        if as_json {
            let command = view_of(client, task).await?.command;
            return print_as_json(&command, "running", (&stdout, &stderr), piece.cut_bytes);
        }
        if piece.cut_bytes > 0 {
            say!("{}", show::cut(piece.cut_bytes));
        }
        say!("task {task} still runs on {executor}: --follow shows what it prints until its end");
        return Ok(());
    }
}

/// What was printed of a task so far.
struct TaskLog {
    task: TaskId,
    only_stderr: bool,
    position: PrintedPosition,
    /// The beginnings of both streams of the run, as they were printed.
    printed: [Vec<u8>; 2],
    /// The state that was said last.
    state: State,
}

/// How a task is, which is said when it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Waiting,
    NotRunning,
    Running,
    Suspended,
    Silent,
}

impl TaskLog {
    fn new(task: TaskId, only_stderr: bool) -> Self {
        let position = PrintedPosition::default();
        TaskLog { task, only_stderr, position, printed: Default::default(), state: State::Unknown }
    }

    /// Whether a run was followed.
    fn has_begun(&self) -> bool {
        self.position.run != 0
    }

    /// Says how the task is, if that has changed.
    fn say_state(&mut self, printed: &Printed) {
        let task = self.task;
        let state = match printed {
            Printed::Waiting { .. } => State::Waiting,
            Printed::NotRunning { .. } => State::NotRunning,
            Printed::Running { is_suspended: true, .. } => State::Suspended,
            Printed::Running { .. } => State::Running,
            Printed::Silent { .. } => State::Silent,
            Printed::Ended => return,
        };
        let before = std::mem::replace(&mut self.state, state);
        if before == state {
            return;
        }
        match printed {
            Printed::Waiting { why } => say!("task {task}: {why}"),
            // The program may have ended just now.
            Printed::NotRunning { .. } if self.has_begun() => {}
            Printed::NotRunning { executor } => {
                say!("task {task} is on {executor}, and its program has not started")
            }
            Printed::Silent { executor } => {
                say!("executor {executor} does not answer, or is gone")
            }
            Printed::Running { is_suspended: true, executor, .. } => say!(
                "task {task} is suspended on {executor}: tasks of higher priority have its \
                 processors"
            ),
            Printed::Running { .. } if before == State::Suspended => say!("task {task} continues"),
            Printed::Running { .. } | Printed::Ended => {}
        }
    }

    /// Prints a piece, and says which try it is of, if that has changed.
    fn print(&mut self, piece: &PrintedPiece) -> Result<(), CliError> {
        self.start_at(piece);
        self.position = piece.end();
        for (printed, new) in self.printed.iter_mut().zip([&piece.stdout, &piece.stderr]) {
            let room = (MAX_CAPTURE_BYTES as usize).saturating_sub(printed.len());
            printed.extend_from_slice(&new[..new.len().min(room)]);
        }
        self.print_streams(&piece.stdout, &piece.stderr)
    }

    /// Begins with another run if the piece is of one. Whether it is.
    fn start_at(&mut self, piece: &PrintedPiece) -> bool {
        let is_other = piece.from.run != self.position.run;
        if is_other {
            self.begin_try(piece.from.attempt);
            self.position = piece.from;
        }
        is_other
    }

    fn begin_try(&mut self, attempt: u32) {
        if self.has_begun() || attempt > 0 {
            say!("task {}: attempt {}", self.task, attempt + 1);
        }
        self.printed = Default::default();
        (self.position.stdout_bytes, self.position.stderr_bytes) = (0, 0);
    }

    fn print_streams(&self, stdout: &[u8], stderr: &[u8]) -> Result<(), CliError> {
        if self.only_stderr {
            print::bytes(stderr)?;
        } else {
            // The reader of standard output may be gone; an empty piece must not fail for that.
            if !stdout.is_empty() {
                print::bytes(stdout)?;
            }
            print::bytes_to_stderr(stderr);
        }
        Ok(())
    }

    /// Prints what is left of the output of a task that has ended, and how it has ended.
    fn finish(&mut self, result: &TaskResult) -> Result<(), CliError> {
        let outcome = &result.outcome;
        let streams = [&outcome.stdout, &outcome.stderr];
        let is_same_run = result.attempt == self.position.attempt
            && self.printed.iter().zip(streams).all(|(printed, whole)| {
                let count = printed.len().min(whole.len());
                printed[..count] == whole[..count]
            });
        if !is_same_run {
            self.begin_try(result.attempt);
        }
        let PrintedPosition { stdout_bytes, stderr_bytes, .. } = self.position;
        let rest = |whole: &[u8], printed: u64| {
            whole.get(printed as usize..).map(<[u8]>::to_vec).unwrap_or_default()
        };
        let (stdout, stderr) =
            (rest(&outcome.stdout, stdout_bytes), rest(&outcome.stderr, stderr_bytes));
        self.print_streams(&stdout, &stderr)?;
        if outcome.status != Status::Succeeded {
            say!("the task did not succeed: {}", outcome.in_words(None));
        }
        let all_bytes = (outcome.stdout.len() + outcome.stderr.len()) as u64 + outcome.cut_bytes;
        let shown_bytes = stdout_bytes + stderr_bytes + (stdout.len() + stderr.len()) as u64;
        if all_bytes > shown_bytes {
            say!("{}", show::cut(all_bytes - shown_bytes));
        }
        Ok(())
    }
}

fn print_result(result: &TaskResult, only_stderr: bool) -> Result<(), CliError> {
    let outcome = &result.outcome;
    if only_stderr {
        print::bytes(&outcome.stderr)?;
    } else {
        print::bytes(&outcome.stdout)?;
        if outcome.status != Status::Succeeded {
            print::bytes_to_stderr(&outcome.stderr);
            say!("the task did not succeed: {}", outcome.in_words(None));
        }
    }
    if outcome.cut_bytes > 0 {
        say!("{}", show::cut(outcome.cut_bytes));
    }
    Ok(())
}

async fn print_result_as_json(
    client: &mut Client,
    task: TaskId,
    result: &TaskResult,
) -> Result<(), CliError> {
    let command = view_of(client, task).await?.command;
    let outcome = &result.outcome;
    let streams = (&outcome.stdout[..], &outcome.stderr[..]);
    print_as_json(&command, &outcome.in_words(None), streams, outcome.cut_bytes)
}

fn print_as_json(
    command: &[Name],
    status: &str,
    (stdout, stderr): (&[u8], &[u8]),
    cut_bytes: u64,
) -> Result<(), CliError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let log = json!({
        "command": command,
        "status": status,
        "stdout": text(stdout),
        "stderr": text(stderr),
        "cut_bytes": cut_bytes,
    });
    show::json("log", &log)
}
