//! Running one task: sandbox, process, outputs. On a thread of its slot's, which may block.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use eyas_store::{ObjectStore, Storage, StoreErrorKind, name_of, path_of};
use eyas_types::dfs::NodeId;
use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::template::Expansion;
use eyas_types::{Name, ObjectId, Outcome, Program, Reads, Status, TaskTemplate, WorkingFolder};
use eyas_wire::executor::Assignment;
use tokio::runtime::Handle;

use crate::blame::{self, SIGNAL_SPREAD};
use crate::brain::Desk;
use crate::lease::Lease;
use crate::process::{self, Control, End};
use crate::room;
use crate::sandbox::{self, Sandbox};
use crate::stop::Stop;
use crate::strays::Strays;
use crate::tokens::Tokens;

/// Marks every process that an executor has started, and all that they start, with the executor's name.
pub(crate) const MARKER: &str = "EYAS_EXECUTOR";

/// Tells a process which task it is of.
pub(crate) const TASK: &str = "EYAS_TASK_ID";

/// A task that is to run now.
pub(crate) struct Work {
    pub assignment: Assignment,
    pub template: Arc<TaskTemplate>,
    /// What its inputs are called in the store.
    pub objects: Vec<ObjectId>,
    pub reads: Reads,
    pub slot: u32,
    pub arrived: Instant,
    pub control: Arc<Control>,
    pub lease: Arc<Lease>,
    /// Where the dispatcher is asked for the places of its outputs.
    pub desk: Weak<Desk>,
}

/// What all tasks of an executor share.
pub(crate) struct Workshop {
    pub name: String,
    pub marker: String,
    pub eyas: PathBuf,
    pub tokens: Tokens,
    /// The executor's node of the file system, if it is one.
    pub files_node: Option<NodeId>,
    pub sandboxes: PathBuf,
    /// Sandboxes made so far.
    pub folders: AtomicU64,
    pub store: ObjectStore,
    pub storage: Storage,
    /// Where the system can tell of them.
    pub strays: Option<Strays>,
    /// Whether this executor was told to end.
    pub stop: Stop,
    /// Below this much free space the node counts as short of it.
    pub floor_bytes: u64,
    /// Where bytes are moved.
    pub movers: Handle,
}

/// A task's end, and what has changed in the store.
pub(crate) struct Done {
    pub outcome: Outcome,
    pub found: Found,
}

/// What a task has changed in the store, or found to have changed.
#[derive(Default)]
pub(crate) struct Found {
    /// Inputs that it damaged.
    pub damaged: Vec<ObjectId>,
    /// Inputs that are not there, though they were: someone else has removed them. The task has not run.
    pub missing: Vec<ObjectId>,
    /// Outputs that it put there, with their sizes.
    pub kept: Vec<(ObjectId, u64)>,
}

/// A program that was just stored can be held open for writing by another thread's child between fork and exec; so
/// often is starting it tried again, each time after a moment.
const BUSY_TRIES: u32 = 50;
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// Where on the node's own disks a task writes.
#[derive(Default)]
struct Ground {
    sandbox: Option<Sandbox>,
    /// Its temporary folder, if that is not shared with other nodes.
    temporary: Option<PathBuf>,
}

/// A failure of eyas's own, as the task's end.
pub(crate) fn failed(kind: FailureKind, reason: impl Into<String>) -> Status {
    Status::Failed(Failure { kind, reason: reason.into() })
}

/// The temporary folder of a process to be.
fn temporary_folder(command: &Command) -> PathBuf {
    let given = command.get_envs().find(|(name, _)| *name == "TMPDIR").and_then(|(_, value)| value);
    given.filter(|value| !value.is_empty()).map_or_else(std::env::temp_dir, PathBuf::from)
}

fn retry_busy<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 1..BUSY_TRIES {
        match start() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::sleep(BUSY_WAIT),
            other => return other,
        }
    }
    start()
}

impl Workshop {
    /// Runs a task; takes the `spare` sandbox if it needs one.
    pub fn run(&self, work: &Work, spare: &mut Option<Sandbox>) -> Done {
        let started = Instant::now();
        let (mut found, mut ground) = (Found::default(), Ground::default());
        let mut outcome = self.try_run(work, spare, &mut ground, &mut found).unwrap_or_else(Outcome::of);
        outcome.waited_us = (started - work.arrived).as_micros() as u64;
        outcome.ran_us = (started.elapsed().as_micros() as u64).saturating_sub(outcome.suspended_us);
        outcome.reads = work.reads;
        if let Some(status) = self.excuse(&outcome, Instant::now(), &ground) {
            outcome.status = status;
        }
        Done { outcome, found }
    }

    /// What a task's failure is instead, where its node is to blame: it was ended with the node, or met a full disk.
    fn excuse(&self, outcome: &Outcome, ended: Instant, ground: &Ground) -> Option<Status> {
        let status = &outcome.status;
        // A timer takes up to a millisecond even for no time at all, which most tasks need not lose.
        let told = match blame::may_be_the_nodes(status) {
            true => self.movers.block_on(self.stop.within(SIGNAL_SPREAD)),
            false => self.stop.told(),
        };
        if told.is_some_and(|told| blame::was_the_nodes(status, ended, told)) {
            tracing::info!("a task ended with its node ({status}); it runs again elsewhere");
            return Some(Status::Cancelled);
        }
        let is_own = match status {
            Status::Exited(_) | Status::Signalled(_) => true,
            Status::Failed(failure) => failure.kind == FailureKind::Output,
            Status::Succeeded | Status::TimedOut | Status::Cancelled => false,
        };
        let folders = ground.sandbox.as_ref().map(Sandbox::folder).into_iter().chain(ground.temporary.as_deref());
        let said = [&outcome.stdout[..], &outcome.stderr[..]];
        let full = folders.filter(|_| is_own).find(|folder| room::is_full(folder, self.floor_bytes, &said))?;
        let reason = format!(
            "{status}, and the disk of {} is full at {}: free some space there, or give the executor another folder",
            self.name,
            full.display()
        );
        Some(failed(FailureKind::NodeFull, reason))
    }

    fn try_run(
        &self,
        work: &Work,
        spare: &mut Option<Sandbox>,
        ground: &mut Ground,
        found: &mut Found,
    ) -> Result<Outcome, Status> {
        ground.sandbox = self.sandbox(work, spare)?;
        let staged = self.stage(work, ground.sandbox.as_mut(), &mut found.missing)?;
        let sandbox = ground.sandbox.as_ref();
        let with = Expansion {
            values: &work.assignment.values,
            staged: &staged,
            template_inputs: work.template.inputs.len(),
            number: work.assignment.task.index + 1,
            slot: work.slot + 1,
        };
        let command = self.command(work, &with, sandbox)?;
        ground.temporary = Some(temporary_folder(&command)).filter(|folder| room::is_local(folder));
        let timeout = work.template.timeout_us.map(Duration::from_micros);
        let marks = [format!("{TASK}={}", work.assignment.task), format!("{MARKER}={}", self.marker)];
        let capture_bytes = work.template.capture_bytes;
        let ran = retry_busy(|| process::run(&command, capture_bytes, timeout, &work.control, &marks));
        let ran = ran.map_err(|e| self.cannot_start(&command, &e))?;
        if let Some(strays) = &self.strays {
            strays.kill(ran.group, &marks);
        }
        found.damaged.extend(work.objects.iter().copied().filter(|object| !self.store.verify_untouched(*object)));
        let status = match ran.end {
            End::Exited(0) => Status::Succeeded,
            End::Exited(code) => Status::Exited(code),
            End::Signalled(signal) => Status::Signalled(signal),
            End::TimedOut => Status::TimedOut,
            End::Cancelled => Status::Cancelled,
        };
        let mut outcome = Outcome::of(status);
        outcome.cpu_us = ran.cpu_us;
        outcome.suspended_us = ran.suspended.as_micros() as u64;
        outcome.cut_bytes = ran.stdout.cut_bytes + ran.stderr.cut_bytes;
        outcome.stdout = ran.stdout.bytes;
        outcome.stderr = ran.stderr.bytes;
        if outcome.status.is_success() && !found.damaged.is_empty() {
            let reason = "the task wrote to one of its inputs, which other tasks read too: let it work on a copy";
            outcome.status = failed(FailureKind::Input, reason);
        }
        if let (true, Some(sandbox)) = (outcome.status.is_success(), sandbox) {
            match self.deliver(work, &with, sandbox, &mut found.kept) {
                Ok(outputs) => outcome.outputs = outputs,
                Err(status) => outcome.status = status,
            }
        }
        Ok(outcome)
    }

    /// An empty sandbox for a task to come, if the disk lets us; if not, that task will say why.
    pub fn spare_sandbox(&self) -> Option<Sandbox> {
        Sandbox::create(self.new_folder("spare")).ok()
    }

    fn new_folder(&self, name: &str) -> PathBuf {
        self.sandboxes.join(format!("{name}-{}", self.folders.fetch_add(1, Ordering::Relaxed)))
    }

    /// The task's sandbox, if it needs one.
    fn sandbox(&self, work: &Work, spare: &mut Option<Sandbox>) -> Result<Option<Sandbox>, Status> {
        let template = &work.template;
        let outside = matches!(template.folder, WorkingFolder::Path(_));
        if outside && work.assignment.inputs.is_empty() && template.outputs.is_empty() {
            return Ok(None);
        }
        // With a number of its own: what is left of an earlier try is in its own folder.
        let folder = self.new_folder(&work.assignment.task.to_string());
        if let Some(sandbox) = spare.take().and_then(|spare| spare.rename(folder.clone()).ok()) {
            return Ok(Some(sandbox));
        }
        Sandbox::create(folder.clone()).map(Some).map_err(|e| {
            let reason = format!("cannot make a sandbox at {} on {}: {e}", folder.display(), self.name);
            failed(if room::is_no_room(&e) { FailureKind::NodeFull } else { FailureKind::Node }, reason)
        })
    }

    /// Stages all inputs; their paths as the task is told them.
    fn stage(
        &self,
        work: &Work,
        sandbox: Option<&mut Sandbox>,
        missing: &mut Vec<ObjectId>,
    ) -> Result<Vec<Name>, Status> {
        let Some(sandbox) = sandbox else { return Ok(Vec::new()) };
        let places = sandbox::places(&work.assignment.inputs);
        let places = places.map_err(|reason| failed(FailureKind::Start, reason))?;
        // What was staged is told from what the task wrote where a pattern may name both.
        let matters = work.template.outputs.iter().any(|output| output.pattern.is_glob());
        let mut staged = Vec::with_capacity(places.len());
        let mut failure = None;
        for (place, object) in places.iter().zip(&work.objects) {
            if let Err(e) = sandbox.stage(&self.store, *object, place, matters) {
                let is_missing = e.kind == StoreErrorKind::NotHere;
                let reason = format!("cannot stage {} on {}: {e}", place.display(), self.name);
                let is_full = e.kind == StoreErrorKind::Full;
                failure = Some(failed(if is_full { FailureKind::NodeFull } else { FailureKind::Node }, reason));
                if !is_missing {
                    break;
                }
                missing.push(*object);
            }
            // In its sandbox a task sees plain names, but none that it would take for an option; elsewhere they must
            // lead there.
            let path = match work.template.folder {
                WorkingFolder::Sandbox if place.as_os_str().as_encoded_bytes().starts_with(b"-") => {
                    Path::new(".").join(place)
                }
                WorkingFolder::Sandbox => place.clone(),
                WorkingFolder::Path(_) => sandbox.folder().join(place),
            };
            staged.push(name_of(path));
        }
        failure.map_or(Ok(staged), Err)
    }

    fn command(&self, work: &Work, with: &Expansion<'_>, sandbox: Option<&Sandbox>) -> Result<Command, Status> {
        let Program::Command(words) = &work.template.program else {
            return Err(failed(FailureKind::Start, "a task without a command needs no process"));
        };
        let mut words = words.iter().map(|word| word.expand(with));
        let folder = match (&work.template.folder, sandbox) {
            (WorkingFolder::Path(folder), _) => path_of(folder),
            (WorkingFolder::Sandbox, Some(sandbox)) => sandbox.folder(),
            (WorkingFolder::Sandbox, None) => unreachable!("a task that works in a sandbox has one"),
        };
        let program = words.next().unwrap_or_default();
        // A program that was brought along is in the sandbox, not on the PATH.
        let is_here = program.contains(&b'/') || with.staged.contains(&program);
        let program = match program.as_bytes() {
            // The executor's own, wherever it is on this node.
            b"eyas" if !is_here => self.eyas.clone(),
            program if is_here && !program.starts_with(b"/") => folder.join(path_of(program)),
            program => path_of(program).to_owned(),
        };
        let mut command = Command::new(program);
        command.args(words.map(|word| OsString::from_vec(word.into_bytes()))).current_dir(folder);
        for (name, value) in &work.template.env {
            command.env(name, OsStr::from_bytes(&value.expand(with)));
        }
        let task = work.assignment.task;
        command.env("EYAS_JOB_ID", task.job.to_string()).env(TASK, task.to_string());
        command.env("EYAS_SLOT", (work.slot + 1).to_string()).env(MARKER, &self.marker);
        match self.tokens.path_of(task.job) {
            Ok(Some(token)) => command.env("EYAS_ACCESS", token),
            // What the executor has in its own environment is not for tasks either.
            Ok(None) => command.env_remove("EYAS_ACCESS"),
            Err(e) => return Err(failed(FailureKind::Node, format!("cannot keep the token of its job: {e}"))),
        };
        if let Some(node) = self.files_node {
            command.env("EYAS_DFS_NODE", node.to_string());
        }
        if let Some(sandbox) = sandbox {
            command.env("EYAS_SANDBOX", sandbox.folder());
        }
        Ok(command)
    }

    fn cannot_start(&self, command: &Command, error: &std::io::Error) -> Status {
        let program = Path::new(command.get_program()).display();
        let folder = command.get_current_dir().unwrap_or(Path::new(".")).display();
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => {
                " (is the program there, its interpreter, and the working folder? A program can be brought along with --input)"
            }
            std::io::ErrorKind::PermissionDenied => " (is it executable? chmod +x)",
            _ => "",
        };
        let reason = format!("cannot start `{program}` in {folder} on {}: {error}{hint}", self.name);
        failed(FailureKind::Start, reason)
    }
}
