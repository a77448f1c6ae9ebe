//! Where a task's outputs go when it has succeeded: to persistent storage, into this node's store, or both.

use std::path::PathBuf;

use eyas_store::{Checksum, Prepared, StorageErrorKind, StoreError, StoreErrorKind, url_of};
use eyas_types::outcome::{Delivered, FailureKind};
use eyas_types::template::Expansion;
use eyas_types::{ObjectId, ObjectSpec, OutputSpec, Status};

use crate::sandbox::{Sandbox, pattern_of};
use crate::work::{Work, Workshop, failed};

/// An output that has been taken from the sandbox.
enum Taken {
    /// It is on its way to persistent storage; if it is kept too, the file.
    Prepared(Prepared, Option<PathBuf>),
    /// It is in the store, and nowhere else.
    Kept(ObjectSpec),
}

impl Workshop {
    /// Delivers the outputs: first all of them are written, then they appear in persistent storage, as long as the task
    /// is still ours. What is put into the store is added to `kept`, also if the rest fails.
    pub fn deliver(
        &self,
        work: &Work,
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Vec<Delivered>, Status> {
        let may_appear = || work.lease.wait(|| !work.control.is_cancelled());
        let mut delivered = Vec::new();
        for (output, taken) in self.take(work, with, sandbox, kept)? {
            let object = match taken {
                Taken::Kept(object) => object,
                Taken::Prepared(prepared, file) => {
                    let published = self.movers.block_on(self.storage.publish(prepared, may_appear));
                    let object = published.map_err(|e| match e.kind {
                        StorageErrorKind::Withdrawn => Status::Cancelled,
                        _ => failed(FailureKind::Output, e.message),
                    })?;
                    if let Some(file) = file {
                        // By the name that persistent storage gives it, so that it can always be had from there.
                        let adopted = self.store.adopt(&file, |_, _, _| object.clone());
                        let adopted = adopted.map_err(|e| self.cannot_keep(&e))?;
                        kept.push((adopted.id(), adopted.size_bytes()));
                    }
                    object
                }
            };
            delivered.push(Delivered { output, object });
        }
        Ok(delivered)
    }

    /// Takes all outputs so that none appears in persistent storage yet; each with its number.
    fn take(
        &self,
        work: &Work,
        with: &Expansion<'_>,
        sandbox: &Sandbox,
        kept: &mut Vec<(ObjectId, u64)>,
    ) -> Result<Vec<(u16, Taken)>, Status> {
        let mut taken = Vec::new();
        for (output, spec) in work.template.outputs.iter().enumerate() {
            let (pattern, is_glob) = pattern_of(&spec.pattern, with);
            let files = sandbox.collect(&pattern, is_glob).map_err(|e| failed(FailureKind::Output, e))?;
            if files.is_empty() && !spec.optional {
                let reason = format!("the task ended well but did not write its output `{pattern}`");
                return Err(failed(FailureKind::Output, reason));
            }
            for (file, name) in files {
                if work.control.is_cancelled() {
                    return Err(Status::Cancelled);
                }
                taken.push((
                    output as u16,
                    match destination(work, with, spec, is_glob, &name) {
                        Some(place) => {
                            let url = url_of(&place).map_err(|e| failed(FailureKind::Output, e.message))?;
                            let written = self.movers.block_on(self.storage.prepare(&file, &url));
                            let prepared = written.map_err(|e| failed(FailureKind::Output, e.message))?;
                            Taken::Prepared(prepared, (spec.replicas > 0).then_some(file))
                        }
                        None => {
                            let task = work.assignment.task;
                            let name = |size_bytes, checksum: Checksum, executable| {
                                ObjectSpec::kept(task, &name, size_bytes, &checksum.to_string(), executable)
                            };
                            let object = self.store.adopt(&file, name).map_err(|e| self.cannot_keep(&e))?;
                            kept.push((object.id(), object.size_bytes()));
                            Taken::Kept(object)
                        }
                    },
                ));
            }
        }
        Ok(taken)
    }

    fn cannot_keep(&self, error: &StoreError) -> Status {
        let kind = if error.kind == StoreErrorKind::Full { FailureKind::NodeFull } else { FailureKind::Output };
        failed(kind, format!("{} cannot keep an output: {error}", self.name))
    }
}

/// Where in persistent storage a file goes, if it does.
fn destination(work: &Work, with: &Expansion<'_>, spec: &OutputSpec, is_glob: bool, name: &str) -> Option<String> {
    let destination = spec.destination.as_ref()?.expand(with);
    let place = if is_glob || destination.ends_with('/') {
        format!("{}/{name}", destination.trim_end_matches('/'))
    } else {
        destination
    };
    let is_absolute = place.contains("://") || place.starts_with('/');
    Some(if is_absolute { place } else { format!("{}/{place}", work.template.base.trim_end_matches('/')) })
}
