//! Delivers the outputs of a task: to persistent storage, to this node's store, or to both.
//!
//! Every file that a task wrote and its outputs name is delivered, or the task fails with the
//! reason. The task also fails if two of its files would get the same place, or if another task of
//! the job has the place (see [`output_claim`](super::output_claim)).
//!
//! Delivery has two steps. First the outputs are copied to hidden files at their destinations, and
//! their places are claimed. Then they are synced, renamed, and their folders are synced. The
//! second step only waits for the disk, so the slot can be free meanwhile. The file systems of
//! Linux write the files of all waiting threads together, so several tasks in this step take little
//! longer than one. A task has ended when both steps are done.
//!
//! A task that has failed may have outputs for that case (`when = "failure"`, `"always"`). They are
//! delivered in the slot, one after the other, once the dispatcher has answered that the task is
//! not tried again. What goes wrong then is told, and the task has failed as it had before. A
//! cancelled task delivers them, too, but not a task that this executor leaves to others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyas_store::{
    Checksum, Spot, StorageError, StorageErrorKind, StoreError, StoreErrorKind, UnpublishedOutput,
    UnsyncedOutput, url_of,
};
use eyas_types::name::without_slashes;
use eyas_types::outcome::{Delivered, FailureKind};
use eyas_types::task::STREAMS;
use eyas_types::template::Expansion;
use eyas_types::{FileMode, Name, ObjectId, ObjectSpec, Outcome, OutputSpec, PlaceId, Status};

use super::failed_outputs::{said_of_delivered, said_of_undelivered};
use super::in_place::how_to_write;
use super::output_claim::Claim;
use super::sandbox::{CollectedOutput, Sandbox, pattern_of};
use super::status::failed;
use super::written_instead::written_instead;
use super::{TaskRun, TaskRunner};
use crate::process::ProcessControl;
use crate::process::spool::Spool;

/// A file or empty folder that a task has written, with its destination.
struct TaskOutput {
    /// Index in the template's outputs.
    number: u16,
    written: CollectedOutput,
    /// The destination in persistent storage, if there is one.
    spot: Option<Spot>,
    /// Whether the task has to claim its place.
    is_claimed: bool,
    /// Whether executors keep a replica.
    is_kept: bool,
}

/// Files of one task that are synced after the task has left its slot. They are open until then; a
/// task with more files syncs them in its slot.
const MAX_FILES_OUT_OF_SLOT: usize = 8;

/// An output that was copied or kept.
enum CopiedOutput {
    /// Copied to persistent storage, and not visible yet. With the file in the sandbox if executors
    /// keep it too, and the place if the task has claimed it.
    Persistent(UnsyncedOutput, Option<PathBuf>, Option<PlaceId>),
    /// An empty folder to be made in persistent storage.
    Folder(Spot),
    /// In the node's store only.
    Kept(ObjectSpec),
}

/// The same, on disk.
enum PreparedOutput {
    Persistent(UnpublishedOutput, Option<PathBuf>, Option<PlaceId>),
    Folder(Spot),
    Kept(ObjectSpec),
}

/// The end of a task after which its outputs are delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliveryAfter {
    Success,
    Failure,
}

impl DeliveryAfter {
    /// Whether outputs of the task are still wanted.
    fn is_wanted(self, control: &ProcessControl) -> bool {
        match self {
            DeliveryAfter::Success => !control.is_cancelled(),
            DeliveryAfter::Failure => !control.is_abandoned(),
        }
    }
}

impl TaskRun {
    /// Whether outputs of the task may still appear.
    fn may_deliver(&self, after: DeliveryAfter) -> bool {
        after.is_wanted(&self.control)
    }
}

/// The outputs of a task that are copied and not published. If it is dropped, the copies are
/// removed.
pub(crate) struct Delivery {
    after: DeliveryAfter,
    /// Each with its index in the template's outputs.
    outputs: Vec<(u16, CopiedOutput)>,
    claim: Option<Arc<Claim>>,
    /// The URLs of the claimed places.
    claimed: Vec<(PlaceId, Name)>,
}

impl Delivery {
    /// Whether it neither needs the sandbox again nor keeps many files open.
    pub fn can_leave_slot(&self) -> bool {
        let is_copy = |output: &CopiedOutput| match output {
            CopiedOutput::Persistent(copied, file, _) => file.is_none() && !copied.needs_source(),
            CopiedOutput::Folder(_) => true,
            CopiedOutput::Kept(_) => false,
        };
        !self.outputs.is_empty()
            && self.outputs.len() <= MAX_FILES_OUT_OF_SLOT
            && self.outputs.iter().all(|(_, output)| is_copy(output))
    }
}

impl TaskRunner {
    /// Copies the outputs of a task that has succeeded, so that none is visible in persistent
    /// storage yet, and claims their places. Objects that are put into the store are added to
    /// `kept`, also if delivery fails afterwards.
    pub fn copy_outputs(
        &self,
        run: &TaskRun,
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Delivery, Status> {
        let specs = (0..).zip(&run.task.template.outputs);
        let specs: Vec<_> = specs.filter(|(_, spec)| spec.when.is_after_success()).collect();
        self.copy_some((run, DeliveryAfter::Success), with, sandbox, &specs, kept)
    }

    /// Delivers the outputs of a task that has failed, if it is not tried again. Adds to its
    /// standard error where they are.
    pub fn deliver_after_failure(
        &self,
        run: &TaskRun,
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        outcome: &mut Outcome,
    ) {
        let after = DeliveryAfter::Failure;
        let (task, attempt) = (run.task.id(), run.task.assignment.attempt);
        let question = run
            .claims
            .upgrade()
            .map(|dispatcher| dispatcher.ask_if_last(task, attempt, outcome.status.clone()));
        let answer = question.and_then(|question| question.wait(|| run.may_deliver(after)));
        if answer != Some(true) {
            return;
        }
        for spec in (0..).zip(&run.task.template.outputs) {
            if !spec.1.when.is_after_failure() {
                continue;
            }
            let kept = &mut Vec::new();
            let delivered = self
                .copy_some((run, after), with, sandbox, &[spec], kept)
                .and_then(|delivery| self.publish(run, delivery, kept));
            let (file, base) = (pattern_of(&spec.1.pattern, with).0, &run.task.template.base);
            let said = match &delivered {
                Ok(delivered) => said_of_delivered(&file, delivered, base),
                // The executor leaves.
                Err(Status::Cancelled) => return,
                Err(why) => Some(said_of_undelivered(&file, why)),
            };
            add_line(&mut outcome.stderr, said);
            outcome.outputs.extend(delivered.into_iter().flatten());
        }
    }

    /// Copies some outputs and claims their places.
    fn copy_some(
        &self,
        (run, after): (&TaskRun, DeliveryAfter),
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        specs: &[(u16, &OutputSpec)],
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Delivery, Status> {
        let outputs = self.outputs((run, after), with, sandbox, specs)?;
        let claim = claim(run, &outputs)?;
        let claimed = outputs
            .iter()
            .filter(|output| output.is_claimed)
            .filter_map(|output| output.spot.as_ref());
        let claimed = claimed.map(|spot| (spot.place(), spot.url().clone())).collect();
        Ok(Delivery { after, outputs: self.copy((run, after), &outputs, kept)?, claim, claimed })
    }

    /// Adds the whole streams of a task that has succeeded to what it delivers.
    pub fn with_streams(
        &self,
        run: &TaskRun,
        outcome: Outcome,
        mut delivery: Option<Delivery>,
        streams: [Option<Spool>; 2],
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<(Outcome, Option<Delivery>), Status> {
        let task = run.task.id();
        let outputs =
            run.task.template.outputs.iter().enumerate().filter(|(_, spec)| spec.is_stream());
        for (((number, _), name), spool) in outputs.zip(STREAMS).zip(streams) {
            let Some(spool) = spool.filter(|_| outcome.status.is_success()) else { continue };
            let object = |size_bytes, checksum: Checksum, _| {
                ObjectSpec::kept(task, name, size_bytes, &checksum.to_string(), FileMode::READABLE)
            };
            let object = match self.store.adopt(spool.path(), object) {
                Ok(object) => object,
                Err(e) => return Ok((Outcome { status: self.cannot_keep(&e), ..outcome }, None)),
            };
            kept.push((object.id(), object.size_bytes()));
            let nothing = || Delivery {
                after: DeliveryAfter::Success,
                outputs: Vec::new(),
                claim: None,
                claimed: Vec::new(),
            };
            delivery
                .get_or_insert_with(nothing)
                .outputs
                .push((number as u16, CopiedOutput::Kept(object)));
        }
        Ok((outcome, delivery))
    }

    /// Publishes the outputs. All of them are on disk before the first one appears in persistent
    /// storage. None appears unless this executor still has the task and its places.
    pub fn publish(
        &self,
        run: &TaskRun,
        delivery: Delivery,
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Vec<Delivered>, Status> {
        let Delivery { after, outputs, claim, claimed } = delivery;
        let mut prepared = Vec::with_capacity(outputs.len());
        for (number, output) in outputs {
            if !run.may_deliver(after) {
                return Err(Status::Cancelled);
            }
            let output = match output {
                CopiedOutput::Persistent(copied, file, place) => {
                    let synced =
                        self.movers.block_on(self.storage.sync(copied)).map_err(cannot_deliver)?;
                    PreparedOutput::Persistent(synced, file, place)
                }
                CopiedOutput::Folder(spot) => PreparedOutput::Folder(spot),
                CopiedOutput::Kept(object) => PreparedOutput::Kept(object),
            };
            prepared.push((number, output));
        }
        if let Some(claim) = claim {
            // Without an answer the task has been given to another executor, or was cancelled.
            let answer = claim.wait(|| run.may_deliver(after)).ok_or(Status::Cancelled)?;
            if let Some((place, other)) = answer {
                return Err(claimed_by_other(&claimed, place, other));
            }
        }
        let may_appear = || run.lease.wait(|| run.may_deliver(after));
        let mut delivered = Vec::new();
        for (number, output) in prepared {
            let (object, place) = match output {
                PreparedOutput::Kept(object) => (object, None),
                PreparedOutput::Folder(spot) => {
                    let made = self.movers.block_on(self.storage.make_folder(&spot));
                    made.map_err(cannot_deliver)?;
                    continue;
                }
                PreparedOutput::Persistent(prepared, file, place) => {
                    let published =
                        self.movers.block_on(self.storage.publish(prepared, may_appear));
                    let object = published.map_err(|e| match e.kind {
                        StorageErrorKind::Withdrawn => Status::Cancelled,
                        _ => cannot_deliver(e),
                    })?;
                    if let Some(file) = file {
                        // As the object that persistent storage has now, so that it can be fetched
                        // from there again.
                        let adopted = self.store.adopt(&file, |_, _, _| object.clone());
                        let adopted = adopted.map_err(|e| self.cannot_keep(&e))?;
                        kept.push((adopted.id(), adopted.size_bytes()));
                    }
                    (object, place)
                }
            };
            delivered.push(Delivered { output: number, object, place });
        }
        Ok(delivered)
    }

    /// All files that these outputs of the task name, with their destinations.
    fn outputs(
        &self,
        (run, after): (&TaskRun, DeliveryAfter),
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        specs: &[(u16, &OutputSpec)],
    ) -> Result<Vec<TaskOutput>, Status> {
        let (mut outputs, mut urls) = (Vec::new(), Vec::new());
        for (number, spec) in specs.iter().filter(|(_, spec)| !spec.is_stream()) {
            let (pattern, is_glob) = pattern_of(&spec.pattern, with);
            let written = sandbox.collect(&pattern, is_glob).map_err(|error| {
                failed(
                    FailureKind::Output,
                    format!("an output of the task cannot be delivered: {error}"),
                )
            })?;
            if written.is_empty() && !spec.optional && after == DeliveryAfter::Success {
                let how = how_to_write(&run.task.template, &pattern);
                let instead = written_instead(&run.task.template, spec, with, sandbox);
                let reason = format!(
                    "the task ended well but did not write its output `{pattern}`{how}{instead}"
                );
                return Err(failed(FailureKind::Output, reason));
            }
            for written in written {
                match destination(run, with, spec, is_glob, &written.name) {
                    Some(place) => urls.push(url_of(&place).map_err(cannot_deliver)?),
                    None if written.is_folder => {
                        let reason = format!(
                            "`{}` is an empty folder, which executors cannot keep",
                            written.name
                        );
                        return Err(failed(FailureKind::Output, reason));
                    }
                    None => {}
                }
                outputs.push(TaskOutput {
                    number: *number,
                    written,
                    spot: None,
                    is_claimed: false,
                    is_kept: spec.replicas > 0,
                });
            }
        }
        let has_destination = |output: &TaskOutput| {
            run.task.template.outputs[usize::from(output.number)].destination.is_some()
        };
        let mut spots =
            self.movers.block_on(self.storage.locate(urls)).map_err(cannot_deliver)?.into_iter();
        for output in outputs.iter_mut().filter(|output| has_destination(output)) {
            output.spot = spots.next();
            let spec = &run.task.template.outputs[usize::from(output.number)];
            let is_declared = spec.is_declared(&run.task.assignment.values);
            // The places that a job declares were compared when it was submitted.
            output.is_claimed = !(is_declared && output.spot.as_ref().is_some_and(Spot::is_direct));
        }
        Ok(outputs)
    }

    /// Copies all outputs. Returns each with its number.
    fn copy(
        &self,
        (run, after): (&TaskRun, DeliveryAfter),
        outputs: &[TaskOutput],
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Vec<(u16, CopiedOutput)>, Status> {
        let mut copied = Vec::new();
        for TaskOutput { number, written, spot, is_claimed, is_kept } in outputs {
            if !run.may_deliver(after) {
                return Err(Status::Cancelled);
            }
            let output = match spot {
                Some(spot) if written.is_folder => CopiedOutput::Folder(spot.clone()),
                Some(spot) => {
                    if let Some(Err(e)) = spot.folder().map(|folder| self.copy_folders.add(folder))
                    {
                        tracing::warn!(
                            "if this executor is killed, a hidden copy of `{}` may stay: {e}",
                            spot.url()
                        );
                    }
                    let control = run.control.clone();
                    let is_wanted = move || after.is_wanted(&control);
                    let copy = self.storage.copy(&written.path, spot, is_wanted);
                    let file = self.movers.block_on(copy).map_err(|error| match error.kind {
                        StorageErrorKind::Withdrawn => Status::Cancelled,
                        _ => cannot_deliver(error),
                    })?;
                    let place = is_claimed.then(|| spot.place());
                    CopiedOutput::Persistent(file, is_kept.then(|| written.path.clone()), place)
                }
                None => {
                    let task = run.task.id();
                    let name = |size_bytes, checksum: Checksum, mode| {
                        ObjectSpec::kept(
                            task,
                            &written.name,
                            size_bytes,
                            &checksum.to_string(),
                            mode,
                        )
                    };
                    let object =
                        self.store.adopt(&written.path, name).map_err(|e| self.cannot_keep(&e))?;
                    kept.push((object.id(), object.size_bytes()));
                    CopiedOutput::Kept(object)
                }
            };
            copied.push((*number, output));
        }
        Ok(copied)
    }

    fn cannot_keep(&self, error: &StoreError) -> Status {
        let kind = if error.kind == StoreErrorKind::Full {
            FailureKind::NodeFull
        } else {
            FailureKind::Output
        };
        failed(kind, format!("{} cannot keep an output: {error}", self.name))
    }
}

/// Adds a line to what a task has written.
fn add_line(printed: &mut Vec<u8>, line: Option<String>) {
    let Some(line) = line else { return };
    if !matches!(printed.last(), None | Some(b'\n')) {
        printed.push(b'\n');
    }
    printed.extend(format!("eyas: {line}\n").into_bytes());
}

fn cannot_deliver(error: StorageError) -> Status {
    failed(FailureKind::Output, error.message)
}

/// Claims those output places of a task that have to be claimed. No two files of the task may have
/// the same place, nor the same name in the cluster.
fn claim(run: &TaskRun, outputs: &[TaskOutput]) -> Result<Option<Arc<Claim>>, Status> {
    let (mut places, mut names) =
        (BTreeMap::<PlaceId, &Path>::new(), BTreeMap::<&Name, &Path>::new());
    let mut claimed = BTreeSet::new();
    for TaskOutput { written, spot, is_claimed, .. } in
        outputs.iter().filter(|output| !output.written.is_folder)
    {
        let before = match spot {
            Some(spot) => places.insert(spot.place(), &written.path),
            None => names.insert(&written.name, &written.path),
        };
        if before.is_some_and(|before| before != written.path) {
            let name = spot.as_ref().map_or(&written.name, Spot::url);
            let reason = format!(
                "two files that the task wrote would both be `{name}`: let its outputs go to \
                 different places"
            );
            return Err(failed(FailureKind::Claimed, reason));
        }
        claimed.extend(spot.as_ref().filter(|_| *is_claimed).map(Spot::place));
    }
    if claimed.is_empty() {
        return Ok(None);
    }
    let claims = run.claims.upgrade().ok_or(Status::Cancelled)?;
    let attempt = run.task.assignment.attempt;
    Ok(Some(claims.claim(run.task.id(), attempt, claimed.into_iter().collect())))
}

fn claimed_by_other(claimed: &[(PlaceId, Name)], place: PlaceId, other: u32) -> Status {
    let url =
        claimed.iter().find(|(of, _)| *of == place).map(|(_, url)| url.clone()).unwrap_or_default();
    let reason = format!(
        "task {other} of the job writes `{url}`, which this task would replace: put `{{#}}` or a \
         part of the item into the name or the folder of the output"
    );
    failed(FailureKind::Claimed, reason)
}

/// The destination of a file in persistent storage, if it has one.
fn destination(
    run: &TaskRun,
    with: &Expansion<'_>,
    spec: &OutputSpec,
    is_glob: bool,
    name: &Name,
) -> Option<Name> {
    let mut place = spec.destination.as_ref()?.expand(with);
    if is_glob || place.ends_with(b"/") {
        place = Name::concat(&[without_slashes(&place), b"/", name]);
    }
    if !place.is_url() && !place.starts_with(b"/") {
        place = Name::concat(&[without_slashes(&run.task.template.base), b"/", &place]);
    }
    Some(place)
}
