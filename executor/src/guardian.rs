//! A guardian outlives its executor by a moment: when the executor is gone without a farewell (`kill -9`, a crash), it
//! kills what the executor's tasks left running and removes their sandboxes.
//!
//! It is a process of its own, started by the executor, and waits on a pipe that closes when the executor ends. One that dies
//! is replaced. It is outside of the executor's control group, has a name of its own, so that `pkill eyas` does not take it
//! with its executor, and does not heed the signals by which batch systems end all processes of a job.

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::work::{MARKER, TASK};
use crate::{cgroup, leftovers, sandbox};

/// What the executor says when it has left nothing behind.
const FAREWELL: &[u8] = b"done";
/// What was just killed may still be writing files; removing them is tried up to this number of times, with a pause between.
const SWEEPS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// A guardian is replaced no sooner after its death, so that one that cannot live does not keep its executor busy.
const REPLACE_AFTER: Duration = Duration::from_millis(100);
/// What a guardian is called in lists of processes.
const NAME: &CStr = c"guardian";

/// How guardians of an executor are started: a command, to which the executor's name and the folder with its sandboxes are
/// added.
struct Recipe {
    command: Vec<String>,
    executor: String,
    sandboxes: PathBuf,
}

/// The executor's end of the pipe to whichever guardian it has now.
pub(crate) struct Guardian {
    watched: Arc<Watched>,
    watcher: JoinHandle<()>,
}

struct Watched {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// None while there is no guardian.
    pipe: Option<ChildStdin>,
    is_dismissed: bool,
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guardian {
    /// Starts a guardian, and others after it as long as they die before they are dismissed.
    pub fn start(command: &[String], executor: &str, sandboxes: &Path) -> io::Result<Self> {
        let recipe =
            Recipe { command: command.to_vec(), executor: executor.to_owned(), sandboxes: sandboxes.to_owned() };
        let (child, pipe) = recipe.start()?;
        let state = Mutex::new(State { pipe: Some(pipe), is_dismissed: false });
        let watched = Arc::new(Watched { state, changed: Condvar::new() });
        let watch = {
            let watched = watched.clone();
            move || watched.watch(child, &recipe)
        };
        let watcher = std::thread::Builder::new().name("guardian".into()).spawn(watch)?;
        Ok(Guardian { watched, watcher })
    }

    /// Nothing runs any longer: the guardian may go.
    pub fn dismiss(self) {
        {
            let mut state = self.watched.state();
            state.is_dismissed = true;
            if let Some(mut pipe) = state.pipe.take() {
                // One that has just died needs no farewell.
                let _ = pipe.write_all(FAREWELL);
            }
        }
        self.watched.changed.notify_all();
        // It has no reason to panic, and if it did, the guardian has still heard.
        let _ = self.watcher.join();
    }
}

impl Watched {
    /// Waits for the guardian's end, and replaces it unless it was dismissed.
    fn watch(&self, mut guardian: Child, recipe: &Recipe) {
        loop {
            // A child of our own can be waited for.
            let _ = guardian.wait();
            let mut state = self.state();
            state.pipe = None;
            guardian = loop {
                let wait = self.changed.wait_timeout_while(state, REPLACE_AFTER, |state| !state.is_dismissed);
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
                if state.is_dismissed {
                    return;
                }
                match recipe.start() {
                    Ok((child, pipe)) => {
                        tracing::warn!("the guardian of this executor was killed; another one has replaced it");
                        state.pipe = Some(pipe);
                        break child;
                    }
                    Err(e) => tracing::debug!("cannot start another guardian yet: {e}"),
                }
            };
        }
    }
}

impl Recipe {
    fn start(&self) -> io::Result<(Child, ChildStdin)> {
        let (program, args) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(args).arg(&self.executor).arg(&self.sandboxes);
        // In a group of its own: an interrupt at the terminal is not for it. And of no task, if this executor is in one.
        command.process_group(0).env_remove(MARKER).env_remove(TASK);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, pipe))
    }
}

/// What the process of a guardian does.
pub fn run(executor: &str, sandboxes: &Path) {
    cgroup::step_out(executor);
    // A name is for people.
    let _ = rustix::thread::set_name(NAME);
    // As long as the runtime is there, these signals are caught, and nothing is done about them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let _caught = runtime.as_ref().map(|runtime| {
        let _inside = runtime.enter();
        let kinds =
            [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate(), SignalKind::from_raw(XCPU)];
        kinds.map(signal)
    });
    guard(io::stdin(), executor, sandboxes);
}

const XCPU: i32 = rustix::process::Signal::XCPU.as_raw();

/// Waits for the executor's end and cleans up after it. `input` is its pipe.
fn guard(mut input: impl Read, executor: &str, sandboxes: &Path) {
    let mut said = Vec::new();
    let _ = input.read_to_end(&mut said);
    if said == FAREWELL {
        return;
    }
    // What cannot be killed can still write, and what it has written is removed again.
    leftovers::end(executor);
    for _ in 0..SWEEPS {
        if sandbox::remove(sandboxes).is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    // The folder that they were in, unless a new executor has others there.
    let _ = sandboxes.parent().map(std::fs::remove_dir);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn what_a_dead_executor_left_is_killed() {
        let executor = format!("guardian-test-{}", std::process::id());
        let mut left = Command::new("sleep").arg("1000").env(MARKER, &executor).spawn().unwrap();
        // It has been started a moment before its environment can be read.
        let environment = || std::fs::read(format!("/proc/{}/environ", left.id())).unwrap_or_default();
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
    fn after_a_farewell_nothing_is_touched() {
        let sandboxes = tempfile::tempdir().unwrap();
        guard(FAREWELL, "nobody", sandboxes.path());
        assert!(sandboxes.path().exists());
    }

    #[test]
    fn one_that_dies_is_replaced_until_it_is_dismissed() {
        let folder = tempfile::tempdir().unwrap();
        // Says who it is, and ends with its input.
        let script = "echo $$ > $1/$$.new; mv $1/$$.new $1/$$; cat";
        let command = ["sh", "-c", script].map(str::to_owned);
        let guardian = Guardian::start(&command, "replaced", folder.path()).unwrap();
        let known = || {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let numbers = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
            numbers.collect::<Vec<_>>()
        };
        for count in 1..=3 {
            let deadline = Instant::now() + Duration::from_secs(20);
            while known().len() < count {
                assert!(Instant::now() < deadline, "there is no guardian");
                std::thread::yield_now();
            }
            if count < 3 {
                known().into_iter().filter_map(Pid::from_raw).for_each(|pid| _ = kill_process(pid, Signal::KILL));
            }
        }
        guardian.dismiss();
        assert_eq!(known().len(), 3);
    }
}
