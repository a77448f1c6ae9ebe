//! Processes in the background: starting them, waiting until they are ready, and waiting until they
//! have ended.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use eyas_client::types::shown;
use eyas_client::{Client, Cluster};
use eyas_executor::Incarnation;
use eyas_session::private::PrivateFolder;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::error::CliError;
use crate::global::GlobalArgs;
use crate::own_process::{READY, own_path, own_words};
use crate::{log, print};

/// A process has this long to start.
pub(crate) const UP_DEADLINE: Duration = Duration::from_secs(30);
/// A running dispatcher answers within this time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// Number of lines of the log that an error shows if a process does not start.
const LINES_SHOWN: usize = 5;
/// Time between two checks whether processes have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Refuses to start a cluster that is running.
pub(crate) async fn refuse_if_running(
    cluster: &Cluster,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    let Ok(access) = cluster.access() else { return Ok(()) };
    if !matches!(timeout(ANSWER_DEADLINE, Client::connect(&access)).await, Ok(Ok(_))) {
        return Ok(());
    }
    let option = global.cluster_option();
    Err(format!(
        "the cluster `{}` is already running, at {}: use it with {option}, stop it with `eyas \
         stop {option}`, or start another cluster with --cluster NAME",
        access.cluster, access.dispatcher
    )
    .into())
}

/// A process in the background.
pub(crate) struct BackgroundProcess {
    /// Path of its log.
    pub log: PathBuf,
    /// Messages of the process: the jobs that continue.
    pub messages: Vec<String>,
}

/// Prints the messages of a process in the background.
pub(crate) fn print_messages(messages: &[String]) {
    messages
        .iter()
        .for_each(|line| print::bytes_to_stderr(format!("{}\n", shown(line)).as_bytes()));
}

/// Starts this command in the background, without `--detach`, and returns once the process is
/// ready. The process writes the log at this path.
pub(crate) async fn detach(log_path: PathBuf, what: &str) -> Result<BackgroundProcess, CliError> {
    if let Some(folder) = log_path.parent() {
        PrivateFolder::make(folder)?;
    }
    let cannot = |e| format!("cannot write the log {}: {e}", log_path.display());
    let mut log =
        File::options().create(true).append(true).read(true).open(&log_path).map_err(cannot)?;
    let before = log.metadata().map_err(cannot)?.len();
    let mut command = Command::new(own_path()?);
    // In a process group of its own, the process gets no interrupts of the terminal.
    command.args(own_words().filter(|word| word != "--detach")).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone()?);
    match wait_until_ready(&mut command.spawn()?).await {
        Ok(messages) => Ok(BackgroundProcess { log: log_path, messages }),
        Err(e) => {
            let said = log::added(&mut log, before, LINES_SHOWN);
            Err(format!(
                "{what} did not start: {e}. Its log, {}, says:\n{said}",
                log_path.display()
            )
            .into())
        }
    }
}

/// Waits until a process prints [`READY`]; returns the lines that it printed before that.
pub(crate) async fn wait_until_ready(process: &mut Child) -> Result<Vec<String>, CliError> {
    let output = process.stdout.take().ok_or("its output is not piped")?;
    let mut lines = BufReader::new(output).lines();
    let ready = async {
        let mut before = Vec::new();
        while let Some(line) = lines.next_line().await? {
            if line == READY {
                return Ok(before);
            }
            before.push(line);
        }
        Err::<_, CliError>("it ended at once".into())
    };
    timeout(UP_DEADLINE, ready)
        .await
        .map_err(|_| format!("it was not ready within {} s", UP_DEADLINE.as_secs()))?
}

/// The names of this process, and of its parent if the parent is also eyas.
pub(crate) fn own_names() -> Vec<String> {
    let is_eyas = |process: &Incarnation| {
        let program = |process: String| std::fs::read_link(format!("/proc/{process}/exe")).ok();
        let parent = process.local().and_then(|number| program(number.to_string()));
        parent.is_some() && parent == program("self".into())
    };
    let own = Incarnation::own().ok();
    let parent = Incarnation::parent().ok().filter(is_eyas);
    own.into_iter().chain(parent).map(|process| process.to_string()).collect()
}

/// Waits until all of the named processes that run on this machine have ended.
pub(crate) async fn wait_until_ended(names: &[String]) {
    let processes = names.iter().filter_map(|name| name.parse::<Incarnation>().ok());
    let mut here: Vec<_> = processes.filter(|process| process.local().is_some()).collect();
    loop {
        here.retain(|process| !process.is_gone());
        if here.is_empty() {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}
