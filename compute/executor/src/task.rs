//! Runs one task on its slot's thread, which may block: sandbox, inputs, process, outputs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use eyas_store::{ObjectStore, Seal, Storage, path_of};
use eyas_transfer::Fetcher;
use eyas_types::dfs::NodeId;
use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::task::DEFAULT_CAPTURE_BYTES;
use eyas_types::template::Expansion;
use eyas_types::{ObjectId, Outcome, Program, Reads, Status, TaskTemplate, WorkingFolder};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::leftovers::cgroup::EnteringCgroup;
use crate::leftovers::copies::CopyFolders;
use crate::process::spool::Capture;
use crate::process::strays::Strays;
use crate::process::{self, ProcessControl, ProcessResult};
use crate::resources::TaskResources;
use crate::resources::gpus::Gpus;
use crate::resources::task_group::SlotGroups;
use crate::stop::StopSignal;

mod advice;
mod assigned;
mod call;
pub(crate) mod contents;
pub(crate) mod copies;
mod copy_request;
mod deliver;
pub(crate) mod derived_copy;
mod disk_full;
mod failed_outputs;
mod in_place;
mod input_list;
pub(crate) mod lease;
mod makings;
mod node_shutdown;
pub(crate) mod output_claim;
pub(crate) mod prepared;
pub(crate) mod sandbox;
mod stage;
mod start_failure;
mod status;
pub(crate) mod tokens;
mod written_instead;

use advice::add_advice;
pub(crate) use assigned::AssignedTask;
use call::Worker;
use contents::Contents;
use deliver::Delivery;
use in_place::OutputPaths;
use input_list::InputLists;
use lease::Lease;
use node_shutdown::SIGNAL_SPREAD;
use output_claim::ClaimPlaces;
use prepared::PreparedFolders;
use sandbox::Sandbox;
use sandbox::kept::KeptSandboxes;
use start_failure::cannot_start;
pub(crate) use status::failed;
use status::status_of;
use tokens::Tokens;

/// Environment variable with the executor's name, in every process of its tasks and in all
/// processes that they start.
pub(crate) const EXECUTOR_VARIABLE: &str = "EYAS_EXECUTOR";

/// Environment variable with the task's id.
pub(crate) const TASK_VARIABLE: &str = "EYAS_TASK_ID";

/// One run of a task in a slot.
pub(crate) struct TaskRun {
    pub task: Arc<AssignedTask>,
    pub reads: Reads,
    /// From 0.
    pub slot: u32,
    /// Indices of the GPUs that only this task has.
    pub gpus: Vec<u32>,
    /// Cores to which the task is pinned; none if it is not.
    pub cores: Vec<u32>,
    pub control: Arc<ProcessControl>,
    pub lease: Arc<Lease>,
    /// Sends claims of output places to the dispatcher; gone when the session has ended.
    pub claims: Weak<dyn ClaimPlaces>,
}

/// State of a slot's thread between tasks.
#[derive(Default)]
pub(crate) struct SlotState {
    /// An empty sandbox for the next task that needs one.
    pub spare: Option<Sandbox>,
    pub groups: SlotGroups,
    /// The workers that stay; the last one answered the last call.
    pub workers: Vec<Worker>,
}

/// State that all tasks of an executor share.
pub(crate) struct TaskRunner {
    /// The executor's name for people.
    pub name: String,
    /// The value of [`EXECUTOR_VARIABLE`].
    pub marker: String,
    /// The `eyas` program on this node.
    pub eyas: PathBuf,
    pub tokens: Tokens,
    /// The executor's node of the file system, if it has one.
    pub files_node: Option<NodeId>,
    /// The folder with all sandboxes.
    pub sandboxes: PathBuf,
    /// Number of sandboxes made so far.
    pub folders: AtomicU64,
    /// Sandboxes of tasks that have ended, for later tasks.
    pub kept: KeptSandboxes,
    pub copy_folders: CopyFolders,
    pub store: ObjectStore,
    pub storage: Storage,
    /// Fetches derived copies from other executors.
    pub fetcher: Fetcher,
    /// `None` where the system cannot find stray processes.
    pub strays: Option<Strays>,
    /// The control groups that this process makes and enters while it joins the cluster.
    pub group: EnteringCgroup,
    pub resources: TaskResources,
    /// The GPUs of this node.
    pub gpus: Gpus,
    /// The order to this executor to stop.
    pub stop: StopSignal,
    /// With less free space than this the node counts as short of disk.
    pub floor_bytes: u64,
    pub contents: Contents,
    pub prepared: PreparedFolders,
    /// The runtime that moves bytes.
    pub movers: Handle,
    /// Bounds the tasks that deliver outputs outside of their slots.
    pub deliveries: Arc<Semaphore>,
}

/// Most tasks of an executor that deliver outputs outside of their slots. File systems write the
/// outputs of tasks that wait for the disk at the same time together; more than this gain nothing.
pub(crate) const MAX_DELIVERIES: usize = 32;

/// How far a task has come when its program has ended and its slot has no more to do.
pub(crate) enum RunProgress {
    Ended(TaskEnd),
    /// Only [`TaskRunner::complete`] is left. The sandbox is removed.
    Copied(PendingEnd),
}

/// A successful task whose outputs are copied and not published.
pub(crate) struct PendingEnd {
    outcome: Outcome,
    delivery: Delivery,
}

/// The end of a run, and how the run has changed the store.
pub(crate) struct TaskEnd {
    pub outcome: Outcome,
    pub changes: StoreChanges,
}

/// Changes of the store that a run has made or found.
#[derive(Default)]
pub(crate) struct StoreChanges {
    /// Inputs that have gone from the store meanwhile, or were changed there.
    pub damaged: Vec<ObjectId>,
    /// Inputs that were staged and have been removed by another program. The task has not run.
    pub missing: Vec<ObjectId>,
    /// Outputs that the task has put into the store, with their sizes.
    pub kept: Vec<(ObjectId, u64)>,
    /// Bytes that the task had written when it found the disk of the store full.
    pub out_of_disk: Option<u64>,
    /// Of these, bytes of what it was making of an input.
    pub made_bytes: u64,
    /// Derived copies that other executors have sent.
    pub fetched: Reads,
}

/// A program that was just stored may still be open for writing in another thread's child, between
/// fork and exec. Starting it is tried this many times, with [`BUSY_WAIT`] between two tries.
const BUSY_TRIES: u32 = 50;
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// What is left to do for the outputs of a task whose program has ended.
enum OutputsLeft {
    Nothing,
    Publish(Delivery),
    /// All was done, and what the node has to do with a failure is known.
    Settled,
}

/// Folders on the node's own disks that a task writes to.
#[derive(Default)]
struct TaskFolders {
    sandbox: Option<Sandbox>,
    /// The task's temporary folder, unless it is that of this process.
    temporary: Option<PathBuf>,
    /// Files with the paths of its inputs.
    lists: InputLists,
    /// Whether a process of the task may still be alive.
    are_in_use: bool,
}

impl TaskFolders {
    /// Folders on this node's own disks to which the task may have written.
    fn written(&self) -> Vec<PathBuf> {
        let temporary = self.temporary.clone().unwrap_or_else(std::env::temp_dir);
        // Other nodes may share it.
        let temporary = Some(temporary).filter(|folder| disk_full::is_local(folder));
        self.sandbox.iter().map(|sandbox| sandbox.folder().to_path_buf()).chain(temporary).collect()
    }
}

fn fail_if_damaged(outcome: &mut Outcome, is_damaged: bool) {
    if outcome.status.is_success() && is_damaged {
        let reason = "the task wrote to one of its inputs, which other tasks read too: let it \
                      work on a copy, or add --copy-inputs, in a job file copy_inputs = true";
        outcome.status = failed(FailureKind::Input, reason);
    }
}

fn retry_busy<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 1..BUSY_TRIES {
        match start() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(BUSY_WAIT)
            }
            other => return other,
        }
    }
    start()
}

impl TaskRunner {
    /// Runs a task. Takes the spare sandbox if the task needs one.
    pub fn run(&self, run: &TaskRun, slot: &mut SlotState) -> RunProgress {
        let started = Instant::now();
        let mut changes = StoreChanges::default();
        let mut folders = TaskFolders::default();
        let ran = self.try_run(run, slot, &mut folders, &mut changes);
        let (mut outcome, left) =
            ran.unwrap_or_else(|status| (Outcome::of(status), OutputsLeft::Nothing));
        let left = match left {
            OutputsLeft::Publish(delivery) if !delivery.can_leave_slot() => {
                self.publish_into(&mut outcome, run, delivery, &mut changes.kept);
                OutputsLeft::Nothing
            }
            left => left,
        };
        outcome.waited_us = (started - run.task.arrived).as_micros() as u64;
        outcome.ran_us =
            (started.elapsed().as_micros() as u64).saturating_sub(outcome.suspended_us);
        outcome.reads = run.reads;
        outcome.reads += changes.fetched;
        let progress = match left {
            OutputsLeft::Publish(delivery) => RunProgress::Copied(PendingEnd { outcome, delivery }),
            OutputsLeft::Nothing | OutputsLeft::Settled => {
                if matches!(left, OutputsLeft::Nothing)
                    && let Some(status) =
                        self.node_failure(&outcome, Instant::now(), || folders.written())
                {
                    outcome.status = status;
                }
                let written = self.out_of_disk(&outcome.status, &folders);
                changes.out_of_disk = written.map(|bytes| bytes + changes.made_bytes);
                RunProgress::Ended(TaskEnd { outcome, changes })
            }
        };
        if !folders.are_in_use
            && let Some(sandbox) = folders.sandbox
        {
            self.kept.keep(sandbox);
        }
        progress
    }

    /// Publishes the outputs of a task that has left its slot.
    pub fn complete(&self, run: &TaskRun, pending: PendingEnd) -> TaskEnd {
        let PendingEnd { mut outcome, delivery } = pending;
        let mut changes = StoreChanges::default();
        self.publish_into(&mut outcome, run, delivery, &mut changes.kept);
        if let Some(status) =
            self.node_failure(&outcome, Instant::now(), || vec![self.sandboxes.clone()])
        {
            outcome.status = status;
        }
        TaskEnd { outcome, changes }
    }

    fn publish_into(
        &self,
        outcome: &mut Outcome,
        run: &TaskRun,
        delivery: Delivery,
        kept: &mut Vec<(ObjectId, u64)>,
    ) {
        match self.publish(run, delivery, kept) {
            Ok(outputs) => outcome.outputs = outputs,
            Err(status) => outcome.status = status,
        }
    }

    /// The bytes that a task had written when it found the disk of the store full, if it did.
    /// Objects that leave the store make room for the task.
    fn out_of_disk(&self, status: &Status, folders: &TaskFolders) -> Option<u64> {
        let is_full = matches!(status, Status::Failed(Failure { kind: FailureKind::NodeFull, .. }));
        // The sandboxes are on the disk of the store; the temporary folder of a task may be on
        // another one.
        (is_full && disk_full::share_disk(&self.sandboxes, self.store.dir())).then(|| {
            let sandbox =
                folders.sandbox.iter().map(|sandbox| disk_full::written_bytes(sandbox.folder()));
            sandbox.sum()
        })
    }

    /// The status that replaces a task's failure if the node has caused it: the node shut down, or
    /// the disk of a folder to which the task wrote was full.
    fn node_failure(
        &self,
        outcome: &Outcome,
        ended: Instant,
        written: impl FnOnce() -> Vec<PathBuf>,
    ) -> Option<Status> {
        let status = &outcome.status;
        // A timer takes up to a millisecond even for no time at all; most tasks do not need one.
        let told = if node_shutdown::may_be_node_shutdown(status) {
            self.movers.block_on(self.stop.within(SIGNAL_SPREAD))
        } else {
            self.stop.told()
        };
        if told.is_some_and(|told| node_shutdown::was_node_shutdown(status, ended, told)) {
            tracing::info!(
                "a task ended because its node shuts down ({status}); it runs again on another \
                 node"
            );
            return Some(Status::Cancelled);
        }
        let may_be_disk = match status {
            Status::Exited(_) | Status::Signalled(_) => true,
            Status::Failed(failure) => failure.kind == FailureKind::Output,
            Status::Succeeded | Status::TimedOut | Status::Cancelled => false,
        };
        if !may_be_disk {
            return None;
        }
        let printed = [&outcome.stdout[..], &outcome.stderr[..]];
        let folders = written();
        let short_bytes = match disk_full::says_full(&printed) {
            true => {
                let sandboxes = folders
                    .iter()
                    .filter(|folder| folder.parent() == Some(self.sandboxes.as_path()));
                disk_full::short_bytes(
                    self.floor_bytes,
                    sandboxes.map(|folder| disk_full::written_bytes(folder)).sum(),
                )
            }
            false => self.floor_bytes,
        };
        let full =
            folders.into_iter().find(|folder| disk_full::is_full(folder, short_bytes, &printed))?;
        let reason = format!(
            "{status}, and the disk of {} is full at {}: free some space there, or give the \
             executor another folder",
            self.name,
            full.display()
        );
        Some(failed(FailureKind::NodeFull, reason))
    }

    fn try_run(
        &self,
        run: &TaskRun,
        slot: &mut SlotState,
        folders: &mut TaskFolders,
        changes: &mut StoreChanges,
    ) -> Result<(Outcome, OutputsLeft), Status> {
        let worker = run.known_worker(slot);
        if worker.is_none() || !run.needs_no_files() {
            folders.sandbox = self.sandbox(run, &mut slot.spare)?;
        }
        let staged = self.stage(run, folders.sandbox.as_mut(), &mut slot.groups, changes)?;
        folders.lists = self.list_inputs(run, &staged)?;
        let sandbox = folders.sandbox.as_ref();
        let with = Expansion {
            values: &run.task.assignment.values,
            staged: &staged,
            template_inputs: run.task.template.inputs.len(),
            number: run.task.id().index + 1,
            slot: run.slot + 1,
            input_list: folders.lists.base.as_bytes(),
        };
        if let Program::Call(words) = &run.task.template.program {
            let (outcome, is_damaged, made) =
                self.call(run, words, &with, sandbox, (worker, slot), changes)?;
            folders.are_in_use = is_damaged;
            folders.sandbox = folders.sandbox.take().or(made);
            let ended = self.copied(run, &with, folders.sandbox.as_ref(), outcome, changes)?;
            return Ok(self.settle_failure(run, &with, folders, ended, changes));
        }
        let command = self.command(run, &with, sandbox)?;
        let temporary =
            command.get_envs().find(|(name, _)| *name == "TMPDIR").and_then(|(_, value)| value);
        folders.temporary = temporary.filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let marks = [
            format!("{TASK_VARIABLE}={}", run.task.id()),
            format!("{EXECUTOR_VARIABLE}={}", self.marker),
        ];
        let ran = self.run_process(run, &command, &marks, &mut slot.groups)?;
        folders.are_in_use =
            !self.strays.as_ref().is_some_and(|strays| strays.kill(ran.group, &marks));
        let is_damaged = self.find_damaged(run, changes);
        folders.are_in_use |= is_damaged;
        let mut outcome = Outcome::of(status_of(ran.end));
        outcome.cpu_us = ran.cpu_us;
        outcome.peak_memory_bytes = ran.peak_memory_bytes;
        outcome.suspended_us = ran.suspended.as_micros() as u64;
        outcome.cut_bytes = ran.stdout.cut_bytes + ran.stderr.cut_bytes;
        outcome.stdout = ran.stdout.bytes;
        outcome.stderr = ran.stderr.bytes;
        fail_if_damaged(&mut outcome, is_damaged);
        let task = (&*run.task.template, &run.task.assignment.inputs[..]);
        add_advice(&mut outcome, task, &with, sandbox);
        let (outcome, delivery) = self.copied(run, &with, sandbox, outcome, changes)?;
        let streams = [ran.stdout.spool, ran.stderr.spool];
        let ended = self.with_streams(run, outcome, delivery, streams, &mut changes.kept)?;
        Ok(self.settle_failure(run, &with, folders, ended, changes))
    }

    /// Delivers the outputs of a task that has some for the case that it fails, here in its slot:
    /// all of them if it has succeeded, and those for a failure if it has not.
    fn settle_failure(
        &self,
        run: &TaskRun,
        with: &Expansion<'_>,
        folders: &TaskFolders,
        (mut outcome, delivery): (Outcome, Option<Delivery>),
        changes: &mut StoreChanges,
    ) -> (Outcome, OutputsLeft) {
        let sandbox = folders.sandbox.as_ref();
        let Some(sandbox) = sandbox.filter(|_| run.task.template.delivers_after_failure()) else {
            return (outcome, delivery.map_or(OutputsLeft::Nothing, OutputsLeft::Publish));
        };
        if let Some(delivery) = delivery {
            self.publish_into(&mut outcome, run, delivery, &mut changes.kept);
        }
        if let Some(status) = self.node_failure(&outcome, Instant::now(), || folders.written()) {
            outcome.status = status;
        }
        if !outcome.status.is_success() {
            let values = sandbox::values_in_outputs(with);
            let with = Expansion { values: &values, ..*with };
            self.deliver_after_failure(run, &with, sandbox, &mut outcome);
        }
        (outcome, OutputsLeft::Settled)
    }

    /// Runs the process of a task to its end, within the task's limits. `marks` are the variables
    /// by which its processes are found.
    fn run_process(
        &self,
        run: &TaskRun,
        command: &Command,
        marks: &[String],
        slot_groups: &mut SlotGroups,
    ) -> Result<ProcessResult, Status> {
        let template = &run.task.template;
        let timeout = template.timeout_us.map(Duration::from_micros);
        let capture = self.capture(template);
        // Without groups, the processes of tasks are found by their environment.
        let groups = self.group.wait().tasks.as_ref().ok();
        let limits =
            self.resources.prepare(groups, slot_groups, &template.resources, &run.cores, false);
        let mut limits = limits.map_err(|e| {
            let reason = format!("cannot make the control group of the task on {}: {e}", self.name);
            failed(FailureKind::Node, reason)
        })?;
        let ran = retry_busy(|| {
            process::run(command, capture.clone(), timeout, &run.control, marks, &mut limits)
        });
        ran.map_err(|e| cannot_start(&self.name, command, &e))
    }

    /// How much of the streams of a task is captured.
    fn capture(&self, template: &TaskTemplate) -> Capture {
        match template.keeps_streams() {
            true => Capture {
                inline_bytes: template.capture_bytes.min(DEFAULT_CAPTURE_BYTES),
                spool: Some((self.new_folder("output"), template.capture_bytes)),
            },
            false => template.capture_bytes.into(),
        }
    }

    /// Notes inputs that have gone from the store meanwhile, or were changed there. Whether one was
    /// changed.
    fn find_damaged(&self, run: &TaskRun, changes: &mut StoreChanges) -> bool {
        let mut is_damaged = false;
        let contents = run.task.contents().filter(|content| self.store.contains(*content));
        for object in run.task.linked_sources(&self.store).chain(contents) {
            let seal = self.store.verify_seal(object);
            if seal != Seal::Intact {
                is_damaged |= seal == Seal::Broken;
                changes.damaged.push(object);
            }
        }
        is_damaged
    }

    /// Copies the outputs of a task if it has succeeded.
    fn copied(
        &self,
        run: &TaskRun,
        with: &Expansion<'_>,
        sandbox: Option<&Sandbox>,
        outcome: Outcome,
        changes: &mut StoreChanges,
    ) -> Result<(Outcome, Option<Delivery>), Status> {
        let (true, Some(sandbox)) = (outcome.status.is_success(), sandbox) else {
            return Ok((outcome, None));
        };
        let values = sandbox::values_in_outputs(with);
        match self.copy_outputs(
            run,
            &Expansion { values: &values, ..*with },
            sandbox,
            &mut changes.kept,
        ) {
            Ok(delivery) => Ok((outcome, Some(delivery))),
            Err(status) => Ok((Outcome { status, ..outcome }, None)),
        }
    }

    /// An empty sandbox for a later task, unless one is kept. `None` also if the disk does not
    /// allow it; that task will report the reason.
    pub fn spare_sandbox(&self) -> Option<Sandbox> {
        if self.kept.has_empty() { None } else { Sandbox::create(self.new_folder("spare")).ok() }
    }

    fn new_folder(&self, name: &str) -> PathBuf {
        self.sandboxes.join(format!("{name}-{}", self.folders.fetch_add(1, Ordering::Relaxed)))
    }

    /// The folder of a task's sandbox. The number keeps it apart from what an earlier try of the
    /// task has left.
    fn folder_of(&self, run: &TaskRun) -> PathBuf {
        self.new_folder(&run.task.id().to_string())
    }

    /// The task's sandbox, if it needs one before it runs. A call that writes optional outputs
    /// makes the folder itself.
    fn sandbox(
        &self,
        run: &TaskRun,
        spare: &mut Option<Sandbox>,
    ) -> Result<Option<Sandbox>, Status> {
        let template = &run.task.template;
        let outside = matches!(template.folder, WorkingFolder::Path(_));
        let is_call = matches!(template.program, Program::Call(_));
        let has_outputs = template
            .outputs
            .iter()
            .any(|output| !(output.is_stream() || is_call && output.optional));
        if outside && run.task.assignment.inputs.is_empty() && !has_outputs {
            return Ok(None);
        }
        let folder = self.folder_of(run);
        let (inputs, objects) = run.task.shared_inputs();
        let made = self.kept.take(inputs, objects, &self.store).or_else(|| spare.take());
        if let Some(sandbox) = made.and_then(|made| made.rename(folder.clone()).ok()) {
            return Ok(Some(sandbox));
        }
        Sandbox::create(folder.clone()).map(Some).map_err(|e| {
            let reason =
                format!("cannot make a sandbox at {} on {}: {e}", folder.display(), self.name);
            failed(
                if disk_full::is_no_room(&e) { FailureKind::NodeFull } else { FailureKind::Node },
                reason,
            )
        })
    }

    fn command(
        &self,
        run: &TaskRun,
        with: &Expansion<'_>,
        sandbox: Option<&Sandbox>,
    ) -> Result<Command, Status> {
        let (Program::Command(words) | Program::Call(words)) = &run.task.template.program else {
            return Err(failed(FailureKind::Start, "a task without a command needs no process"));
        };
        let outputs = OutputPaths::of(&run.task.template, with, sandbox);
        if let Some(sandbox) = sandbox {
            sandbox.make_output_folders(&run.task.template.outputs, with);
        }
        let mut words = words.iter().map(|word| outputs.replace(word.expand(with)));
        let folder = match (&run.task.template.folder, sandbox) {
            (WorkingFolder::Path(folder), _) => path_of(folder),
            (WorkingFolder::Sandbox, Some(sandbox)) => sandbox.folder(),
            (WorkingFolder::Sandbox, None) => {
                unreachable!("a task that works in a sandbox has one")
            }
        };
        let program = words.next().unwrap_or_default();
        // A program that is an input is in the sandbox, not on the PATH.
        let is_here = program.contains(&b'/') || with.staged.contains(&program);
        let program = match program.as_bytes() {
            // The executor's own program, wherever it is on this node.
            b"eyas" if !is_here => self.eyas.clone(),
            program if is_here && !program.starts_with(b"/") => folder.join(path_of(program)),
            program => path_of(program).to_owned(),
        };
        let mut command = Command::new(program);
        command.args(words.map(|word| OsString::from_vec(word.into_bytes()))).current_dir(folder);
        let (variables, others) = self.gpus.variables(&run.gpus);
        for name in others {
            command.env_remove(name);
        }
        command.envs(variables);
        for (name, value) in &run.task.template.env {
            command.env(name, OsStr::from_bytes(&value.expand(with)));
        }
        let task = run.task.id();
        command.env("EYAS_JOB_ID", task.job.to_string()).env(TASK_VARIABLE, task.to_string());
        command.env("EYAS_SLOT", (run.slot + 1).to_string()).env(EXECUTOR_VARIABLE, &self.marker);
        match self.tokens.path_of(task.job) {
            Ok(Some(token)) => command.env("EYAS_ACCESS", token),
            // The executor's own access file is not for tasks.
            Ok(None) => command.env_remove("EYAS_ACCESS"),
            Err(e) => {
                return Err(failed(
                    FailureKind::Node,
                    format!("cannot keep the token of its job: {e}"),
                ));
            }
        };
        if let Some(node) = self.files_node {
            command.env("EYAS_DFS_NODE", node.to_string()).env("EYAS_DFS_STORE", self.store.dir());
        }
        if let Some(sandbox) = sandbox {
            command.env("EYAS_SANDBOX", sandbox.folder());
        }
        Ok(command)
    }
}
