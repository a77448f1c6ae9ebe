//! Where a task's outputs go when it has succeeded: to persistent storage, into this node's store, or both.

//!
//! Nothing that a task wrote and its outputs name may vanish. What cannot be delivered fails the task, which says why; so does
//! a place that two of its files, or a file of another task of its job, would have (see [`crate::places`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyas_store::{Checksum, Prepared, Spot, StorageError, StorageErrorKind, StoreError, StoreErrorKind, url_of};
use eyas_types::outcome::{Delivered, FailureKind};
use eyas_types::template::Expansion;
use eyas_types::{Name, ObjectId, ObjectSpec, OutputSpec, PlaceId, Status};

use crate::places::Claim;
use crate::sandbox::{Sandbox, Written, pattern_of};
use crate::work::{Work, Workshop, failed};

/// Something that a task has written, and where it goes.
struct Output {
    /// Place in the template's outputs.
    number: u16,
    written: Written,
    /// Where in persistent storage, if anywhere.
    spot: Option<Spot>,
    /// Whether executors keep it.
    is_kept: bool,
}

/// An output that has been taken from the sandbox.
enum Taken {
    /// It is on its way to persistent storage; if it is kept too, the file.
    Prepared(Prepared, Option<PathBuf>, PlaceId),
    /// A folder with nothing in it, which is not there yet.
    Folder(Spot),
    /// It is in the store, and nowhere else.
    Kept(ObjectSpec),
}

impl Workshop {
    /// Delivers the outputs: first all of them are written, then they appear in persistent storage, as long as the task
    /// is still ours, and so are their places. What is put into the store is added to `kept`, also if the rest fails.
    pub fn deliver(
        &self,
        work: &Work,
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Vec<Delivered>, Status> {
        let outputs = self.outputs(work, with, sandbox)?;
        let claim = claim(work, &outputs)?;
        let taken = self.take(work, &outputs, kept)?;
        if let Some(claim) = claim {
            // Without an answer the task is no longer ours.
            let answer = claim.wait(|| !work.control.is_cancelled()).ok_or(Status::Cancelled)?;
            if let Some((place, other)) = answer {
                return Err(claimed_by_other(&outputs, place, other));
            }
        }
        let may_appear = || work.lease.wait(|| !work.control.is_cancelled());
        let mut delivered = Vec::new();
        for (number, taken) in taken {
            let (object, place) = match taken {
                Taken::Kept(object) => (object, None),
                Taken::Folder(spot) => {
                    let made = self.movers.block_on(self.storage.make_folder(&spot));
                    made.map_err(cannot_deliver)?;
                    continue;
                }
                Taken::Prepared(prepared, file, place) => {
                    let published = self.movers.block_on(self.storage.publish(prepared, may_appear));
                    let object = published.map_err(|e| match e.kind {
                        StorageErrorKind::Withdrawn => Status::Cancelled,
                        _ => cannot_deliver(e),
                    })?;
                    if let Some(file) = file {
                        // By the name that persistent storage gives it, so that it can always be had from there.
                        let adopted = self.store.adopt(&file, |_, _, _| object.clone());
                        let adopted = adopted.map_err(|e| self.cannot_keep(&e))?;
                        kept.push((adopted.id(), adopted.size_bytes()));
                    }
                    (object, Some(place))
                }
            };
            delivered.push(Delivered { output: number, object, place });
        }
        Ok(delivered)
    }

    /// All that the task's outputs name, and where it goes.
    fn outputs(&self, work: &Work, with: &Expansion<'_>, sandbox: &Sandbox) -> Result<Vec<Output>, Status> {
        let (mut outputs, mut urls) = (Vec::new(), Vec::new());
        for (number, spec) in work.template.outputs.iter().enumerate() {
            let (pattern, is_glob) = pattern_of(&spec.pattern, with);
            let written = sandbox.collect(&pattern, is_glob).map_err(|why| {
                failed(FailureKind::Output, format!("an output of the task cannot be delivered: {why}"))
            })?;
            if written.is_empty() && !spec.optional {
                let reason = format!("the task ended well but did not write its output `{pattern}`");
                return Err(failed(FailureKind::Output, reason));
            }
            for written in written {
                match destination(work, with, spec, is_glob, &written.name) {
                    Some(place) => urls.push(url_of(&place).map_err(cannot_deliver)?),
                    None if written.is_folder => {
                        let reason = format!("`{}` is an empty folder, which executors cannot keep", written.name);
                        return Err(failed(FailureKind::Output, reason));
                    }
                    None => {}
                }
                outputs.push(Output { number: number as u16, written, spot: None, is_kept: spec.replicas > 0 });
            }
        }
        let goes = |output: &Output| work.template.outputs[usize::from(output.number)].destination.is_some();
        let mut spots = self.movers.block_on(self.storage.locate(urls)).map_err(cannot_deliver)?.into_iter();
        for output in outputs.iter_mut().filter(|output| goes(output)) {
            output.spot = spots.next();
        }
        Ok(outputs)
    }

    /// Takes all outputs so that none appears in persistent storage yet; each with its number.
    fn take(
        &self,
        work: &Work,
        outputs: &[Output],
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Vec<(u16, Taken)>, Status> {
        let mut taken = Vec::new();
        for Output { number, written, spot, is_kept } in outputs {
            if work.control.is_cancelled() {
                return Err(Status::Cancelled);
            }
            let one = match spot {
                Some(spot) if written.is_folder => Taken::Folder(spot.clone()),
                Some(spot) => {
                    let prepared = self.movers.block_on(self.storage.prepare(&written.path, spot));
                    let prepared = prepared.map_err(cannot_deliver)?;
                    Taken::Prepared(prepared, is_kept.then(|| written.path.clone()), spot.place())
                }
                None => {
                    let task = work.assignment.task;
                    let name = |size_bytes, checksum: Checksum, executable| {
                        ObjectSpec::kept(task, &written.name, size_bytes, &checksum.to_string(), executable)
                    };
                    let object = self.store.adopt(&written.path, name).map_err(|e| self.cannot_keep(&e))?;
                    kept.push((object.id(), object.size_bytes()));
                    Taken::Kept(object)
                }
            };
            taken.push((*number, one));
        }
        Ok(taken)
    }

    fn cannot_keep(&self, error: &StoreError) -> Status {
        let kind = if error.kind == StoreErrorKind::Full { FailureKind::NodeFull } else { FailureKind::Output };
        failed(kind, format!("{} cannot keep an output: {error}", self.name))
    }
}

fn cannot_deliver(error: StorageError) -> Status {
    failed(FailureKind::Output, error.message)
}

/// Claims the places of the outputs, if there are any. No two files of the task may have one, nor one name in the cluster.
fn claim(work: &Work, outputs: &[Output]) -> Result<Option<Arc<Claim>>, Status> {
    let (mut places, mut names) = (BTreeMap::<PlaceId, &Path>::new(), BTreeMap::<&Name, &Path>::new());
    for Output { written, spot, .. } in outputs.iter().filter(|output| !output.written.is_folder) {
        let before = match spot {
            Some(spot) => places.insert(spot.place(), &written.path),
            None => names.insert(&written.name, &written.path),
        };
        if before.is_some_and(|before| before != written.path) {
            let name = spot.as_ref().map_or(&written.name, Spot::url);
            let reason =
                format!("two files that the task wrote would both be `{name}`: let its outputs go to different places");
            return Err(failed(FailureKind::Claimed, reason));
        }
    }
    if places.is_empty() {
        return Ok(None);
    }
    let desk = work.desk.upgrade().ok_or(Status::Cancelled)?;
    let assignment = &work.assignment;
    Ok(Some(desk.brain().claim(assignment.task, assignment.attempt, places.into_keys().collect())))
}

fn claimed_by_other(outputs: &[Output], place: PlaceId, other: u32) -> Status {
    let spot = outputs.iter().filter_map(|output| output.spot.as_ref()).find(|spot| spot.place() == place);
    let url = spot.map(Spot::url).cloned().unwrap_or_default();
    let reason = format!(
        "task {other} of the job has written `{url}` already, which this task would replace: put `{{#}}` or a part of the item \
         into the name or the folder of the output"
    );
    failed(FailureKind::Claimed, reason)
}

/// Where in persistent storage a file goes, if it does.
fn destination(work: &Work, with: &Expansion<'_>, spec: &OutputSpec, is_glob: bool, name: &Name) -> Option<Name> {
    let mut place = spec.destination.as_ref()?.expand(with);
    if is_glob || place.ends_with(b"/") {
        place = Name::concat(&[without_slashes(&place), b"/", name]);
    }
    match place.is_url() || place.starts_with(b"/") {
        true => Some(place),
        false => Some(Name::concat(&[without_slashes(&work.template.base), b"/", &place])),
    }
}

fn without_slashes(folder: &[u8]) -> &[u8] {
    let slashes = folder.iter().rev().take_while(|byte| **byte == b'/').count();
    &folder[..folder.len() - slashes]
}
