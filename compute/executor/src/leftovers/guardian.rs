//! A guardian is a process that outlives its executor by a moment. When the executor is gone
//! without taking leave (`kill -9`, a crash), the guardian kills the processes that the executor's
//! tasks have left, and removes their sandboxes and the copies of outputs that have not appeared.
//!
//! The executor starts the guardian, which waits on a pipe that closes when the executor ends. A
//! guardian that dies is replaced. It is outside the executor's control group, and ignores the
//! signals by which batch systems end all processes of a job. It has a process name of its own, so
//! that `pkill eyas` does not kill it with its executor.

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::{cgroup, copies};
use crate::leftovers;
use crate::task::{EXECUTOR_VARIABLE, TASK_VARIABLE, sandbox};

/// The executor writes this when it has left nothing behind.
const FAREWELL: &[u8] = b"done";
/// A process that was just killed may still write files. Removing the sandboxes is tried up to this
/// number of times, with [`PAUSE`] between two tries.
const SWEEPS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// Wait before a dead guardian is replaced, so that a guardian that dies at once does not keep its
/// executor busy.
const REPLACE_AFTER: Duration = Duration::from_millis(100);
/// The name of a guardian in lists of processes.
const NAME: &CStr = c"guardian";

/// The command that starts guardians of an executor. The executor's name and the folder with its
/// sandboxes are appended.
struct GuardianCommand {
    command: Vec<String>,
    executor: String,
    sandboxes: PathBuf,
}

/// The executor's side: the current guardian and the thread that replaces it.
pub(crate) struct Guardian {
    watched: Arc<GuardianState>,
    watcher: JoinHandle<()>,
}

struct GuardianState {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The pipe to the guardian; `None` while there is none.
    pipe: Option<ChildStdin>,
    is_dismissed: bool,
}

impl GuardianState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guardian {
    /// Starts a guardian, and replaces it whenever it dies before it is dismissed.
    pub fn start(command: &[String], executor: &str, sandboxes: &Path) -> io::Result<Self> {
        let recipe = GuardianCommand {
            command: command.to_vec(),
            executor: executor.to_owned(),
            sandboxes: sandboxes.to_owned(),
        };
        let (child, pipe) = recipe.start()?;
        let state = Mutex::new(State { pipe: Some(pipe), is_dismissed: false });
        let watched = Arc::new(GuardianState { state, changed: Condvar::new() });
        let watch = {
            let watched = watched.clone();
            move || watched.watch(child, &recipe)
        };
        let watcher = std::thread::Builder::new().name("guardian".into()).spawn(watch)?;
        Ok(Guardian { watched, watcher })
    }

    /// Ends the guardian: no task runs.
    pub fn dismiss(self) {
        {
            let mut state = self.watched.state();
            state.is_dismissed = true;
            if let Some(mut pipe) = state.pipe.take() {
                // The guardian may have just died.
                let _ = pipe.write_all(FAREWELL);
            }
        }
        self.watched.changed.notify_all();
        // Even if the thread has panicked, the guardian has been told.
        let _ = self.watcher.join();
    }
}

impl GuardianState {
    /// Waits for the guardian's end, and replaces the guardian unless it was dismissed.
    fn watch(&self, mut guardian: Child, recipe: &GuardianCommand) {
        loop {
            // Waiting for an own child cannot fail.
            let _ = guardian.wait();
            let mut state = self.state();
            state.pipe = None;
            guardian = loop {
                let wait = self
                    .changed
                    .wait_timeout_while(state, REPLACE_AFTER, |state| !state.is_dismissed);
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
                if state.is_dismissed {
                    return;
                }
                match recipe.start() {
                    Ok((child, pipe)) => {
                        tracing::warn!(
                            "the guardian of this executor was killed and has been replaced"
                        );
                        state.pipe = Some(pipe);
                        break child;
                    }
                    Err(e) => tracing::debug!("cannot start another guardian yet: {e}"),
                }
            };
        }
    }
}

impl GuardianCommand {
    fn start(&self) -> io::Result<(Child, ChildStdin)> {
        let (program, args) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(args).arg(&self.executor).arg(&self.sandboxes);
        // A process group of its own keeps an interrupt at the terminal away. The variables are
        // removed because this executor may itself run in a task, and the guardian must not count
        // as a process of that task.
        command.process_group(0).env_remove(EXECUTOR_VARIABLE).env_remove(TASK_VARIABLE);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, pipe))
    }
}

/// The main function of a guardian's process.
pub fn run(executor: &str, sandboxes: &Path) {
    cgroup::step_out(executor);
    // The name is only shown to people.
    let _ = rustix::thread::set_name(NAME);
    // While the runtime exists, these signals are caught, and ignored.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let _caught = runtime.as_ref().map(|runtime| {
        let _inside = runtime.enter();
        let kinds = [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::from_raw(XCPU),
        ];
        kinds.map(signal)
    });
    guard(io::stdin(), executor, sandboxes);
}

const XCPU: i32 = rustix::process::Signal::XCPU.as_raw();

/// Waits for the executor's end and cleans up after it. `input` is the pipe from the executor.
fn guard(mut input: impl Read, executor: &str, sandboxes: &Path) {
    let mut said = Vec::new();
    let _ = input.read_to_end(&mut said);
    if said == FAREWELL {
        return;
    }
    // A process that cannot be killed may still write into a sandbox while it is removed.
    leftovers::end(executor);
    copies::remove(sandboxes, executor);
    for _ in 0..SWEEPS {
        if sandbox::remove(sandboxes).is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    // The folder that contains them; a new executor may already have sandboxes there, and then this
    // fails.
    let _ = sandboxes.parent().map(std::fs::remove_dir);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn processes_of_a_dead_executor_are_killed() {
        let executor = format!("guardian-test-{}", std::process::id());
        let mut left =
            Command::new("sleep").arg("1000").env(EXECUTOR_VARIABLE, &executor).spawn().unwrap();
        // A process's environment cannot be read right after it was started.
        let environment =
            || std::fs::read(format!("/proc/{}/environ", left.id())).unwrap_or_default();
        let deadline = Instant::now() + Duration::from_secs(20);
        while environment().is_empty() {
            assert!(Instant::now() < deadline, "it has no environment");
            std::thread::yield_now();
        }
        let folder = tempfile::tempdir().unwrap();
        let sandboxes = folder.path().join("sandboxes").join(&executor);
        std::fs::create_dir_all(&sandboxes).unwrap();
        guard(io::empty(), &executor, &sandboxes);
        assert!(!left.wait().unwrap().success());
        assert!(!sandboxes.parent().unwrap().exists());
    }

    #[test]
    fn after_a_farewell_nothing_is_removed() {
        let sandboxes = tempfile::tempdir().unwrap();
        guard(FAREWELL, "nobody", sandboxes.path());
        assert!(sandboxes.path().exists());
    }

    #[test]
    fn a_guardian_that_dies_is_replaced_until_it_is_dismissed() {
        let folder = tempfile::tempdir().unwrap();
        // Writes its number, and ends with its input.
        let script = "echo $$ > $1/$$.new; mv $1/$$.new $1/$$; cat";
        let command = ["sh", "-c", script].map(str::to_owned);
        let guardian = Guardian::start(&command, "replaced", folder.path()).unwrap();
        let known = || {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let numbers = entries
                .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
            numbers.collect::<Vec<_>>()
        };
        for count in 1..=3 {
            let deadline = Instant::now() + Duration::from_secs(20);
            while known().len() < count {
                assert!(Instant::now() < deadline, "there is no guardian");
                std::thread::yield_now();
            }
            if count < 3 {
                known()
                    .into_iter()
                    .filter_map(Pid::from_raw)
                    .for_each(|pid| _ = kill_process(pid, Signal::KILL));
            }
        }
        guardian.dismiss();
        assert_eq!(known().len(), 3);
    }
}
