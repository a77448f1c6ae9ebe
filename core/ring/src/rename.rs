//! Renaming a file, which involves the leaders of two names.
//!
//! 1. The leader of the new name writes an `Arriving` entry with the version of the file under its
//!    old name, and asks the leader of the old name to move the file.
//! 2. The leader of the old name writes a `Departed` entry. At this moment the file changes its
//!    name.
//! 3. The leader of the new name writes the file. The leader of the old name then removes its
//!    entry; until then no other file can get the old name.
//!
//! Requests for the new name wait in the meantime, so no reader finds both files or neither.
//!
//! A rename may replace the entry of the new name. The `Arriving` entry then keeps the record of
//! that entry, and puts it back if no file arrives. Its chunks are deleted when the file has
//! arrived; if the content of the file may not be on the disks of its nodes, they stay until it is
//! there.
//!
//! Versions are never used again. So a late request to move moves nothing. When the leader of the
//! old name answers that no file has that version, this will always be true, and the new name is as
//! it was.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileId, FileName, FileRecord, NodeId};

use crate::after_write::AfterWrite;
use crate::decision::dropped;
use crate::event::Refusal;
use crate::membership::RingMembership;
use crate::message::MessageBody;
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::serve::{LedNames, PendingName, PendingOperation};
use crate::step::Step;

/// A rename that waits for the leader of the old name.
pub(crate) struct PendingRename {
    pub from: FileName,
    /// The version that the file must have under its old name.
    version: RecordVersion,
    id: FileId,
    /// The record that is replaced.
    over: Option<FileRecord>,
    /// Version of the `Arriving` entry under the new name.
    token: RecordVersion,
    /// The client's request.
    pub request: Option<u64>,
}

impl PendingRename {
    /// The rename that an `Arriving` entry stands for.
    pub fn of(stored: &Stored) -> Option<Self> {
        match &stored.entry {
            NameEntry::Arriving { from, version, id, over } => {
                let (from, version, id, over) = (from.clone(), *version, *id, over.clone());
                Some(PendingRename {
                    from,
                    version,
                    id,
                    over,
                    token: stored.version,
                    request: None,
                })
            }
            _ => None,
        }
    }

    /// The message to the leader of the old name.
    pub fn asked(&self, to: &FileName) -> MessageBody {
        MessageBody::Move {
            from: self.from.clone(),
            version: self.version,
            to: to.clone(),
            token: self.token,
        }
    }
}

/// A rename as the leader of the new name has asked for it.
pub(crate) struct MoveRequest {
    pub from: FileName,
    /// The version that the file must have under its old name.
    pub version: RecordVersion,
    pub to: FileName,
    pub token: RecordVersion,
}

/// A file that has left its old name.
pub(crate) struct MovedFile {
    pub to: FileName,
    pub token: RecordVersion,
    pub from: FileName,
    pub record: FileRecord,
}

impl LedNames {
    /// The leader of the new name asks to move a file away.
    pub fn move_away(
        &mut self,
        here: &RingMembership,
        asking: NodeId,
        request: MoveRequest,
        step: &mut Step,
    ) {
        let MoveRequest { from, version, to, token } = request;
        match self.known(here, &from, step) {
            None => {}
            Some(Some(Stored { version: is, entry: NameEntry::File(record) })) if is == version => {
                self.put(
                    here,
                    &from,
                    NameEntry::Departed { to, token, record },
                    AfterWrite::Moved,
                    step,
                );
            }
            Some(Some(Stored {
                entry: NameEntry::Departed { to: known, token: known_token, record },
                ..
            })) if known == to && known_token == token => {
                here.send(asking, MessageBody::Moved { to, token, from, record }, step);
            }
            Some(_) => here.send(asking, MessageBody::Gone { to, token }, step),
        }
    }

    /// The leader of the old name has moved the file to this node.
    pub fn moved(
        &mut self,
        here: &RingMembership,
        asked: NodeId,
        moved: MovedFile,
        step: &mut Step,
    ) {
        let MovedFile { to, token, from, record } = moved;
        if let Some(PendingRename { request, over, .. }) = self.moving(&to, token) {
            let (request, record) = (*request, record.in_place_of(over.as_ref()));
            let then =
                AfterWrite::Arrived { from, token, request, dropped: replaced(over, &record) };
            self.put(here, &to, NameEntry::File(record), then, step);
            return;
        }
        match self.served(here, &to, step) {
            Some(Some(Stored { version, entry: NameEntry::Arriving { over, .. } }))
                if version == token =>
            {
                let record = record.in_place_of(over.as_ref());
                let then = AfterWrite::Arrived {
                    from,
                    token,
                    request: None,
                    dropped: replaced(&over, &record),
                };
                self.put(here, &to, NameEntry::File(record), then, step);
            }
            Some(_) => here.send(asked, MessageBody::Arrived { from, token }, step),
            None => {}
        }
    }

    /// The leader of the old name has no such file.
    pub fn gone(
        &mut self,
        here: &RingMembership,
        to: &FileName,
        token: RecordVersion,
        step: &mut Step,
    ) {
        let Some(moving) = self.moving(to, token) else { return };
        let (id, request, over) = (moving.id, moving.request, moving.over.clone());
        let then = AfterWrite::Refuse { request, refusal: Refusal::Changed };
        self.put(
            here,
            to,
            over.map_or(NameEntry::Removed { id, is_gone: false }, NameEntry::File),
            then,
            step,
        );
    }

    /// The leader of the new name has the file.
    pub fn arrived(
        &mut self,
        here: &RingMembership,
        from: &FileName,
        token: RecordVersion,
        step: &mut Step,
    ) {
        let stored = self.known(here, from, step).flatten();
        let Some(Stored { entry: NameEntry::Departed { token: known, record, .. }, .. }) = stored
        else {
            return;
        };
        if known == token {
            let then = AfterWrite::Done { request: None, dropped: BTreeMap::new() };
            self.put(here, from, NameEntry::Removed { id: record.id, is_gone: false }, then, step);
        }
    }

    /// Whether a file is arriving under this name. If so, it is asked for.
    pub fn expects(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        stored: &Stored,
        step: &mut Step,
    ) -> bool {
        let moving = PendingRename::of(stored);
        let expects = moving.is_some();
        if let Some(moving) = moving.filter(|_| !self.pending.contains_key(name)) {
            self.start(
                here,
                name,
                PendingOperation::PendingRename(Box::new(moving)),
                VecDeque::new(),
                step,
            );
        }
        expects
    }

    fn moving(&self, to: &FileName, token: RecordVersion) -> Option<&PendingRename> {
        match self.pending.get(to) {
            Some(PendingName { operation: PendingOperation::PendingRename(moving), .. })
                if moving.token == token =>
            {
                Some(moving)
            }
            _ => None,
        }
    }

    /// The entry of a name, if this node serves it and no write of it is in progress.
    fn known(&self, here: &RingMembership, name: &FileName, step: &Step) -> Option<Option<Stored>> {
        let partition = here.current.as_ref()?.ring.partition(name);
        let is_written =
            |pending: &PendingName| matches!(pending.operation, PendingOperation::QuorumWrite(_));
        let is_known = self.partitions.serves(here, partition)
            && !self.pending.get(name).is_some_and(is_written);
        is_known.then(|| step.records.get(partition, name))
    }

    /// The entry of a name, if this node serves it and no operation on it is in progress.
    pub fn served(
        &self,
        here: &RingMembership,
        name: &FileName,
        step: &Step,
    ) -> Option<Option<Stored>> {
        self.known(here, name, step).filter(|_| !self.pending.contains_key(name))
    }
}

/// Tells the leader of the new name that the file has departed.
pub(crate) fn tell_moved(
    here: &RingMembership,
    from: &FileName,
    entry: &NameEntry,
    step: &mut Step,
) {
    let (Some(current), NameEntry::Departed { to, token, record }) = (&here.current, entry) else {
        return;
    };
    let (to, token, record) = (to.clone(), *token, record.clone());
    here.send(
        current.ring.leader(&to),
        MessageBody::Moved { to, token, from: from.clone(), record },
        step,
    );
}

/// The replicas of chunks of a replaced record that the record in its place does not have.
fn replaced(over: &Option<FileRecord>, by: &FileRecord) -> BTreeMap<NodeId, Vec<ObjectId>> {
    over.as_ref().map_or_else(BTreeMap::new, |over| dropped(over, Some(by)))
}
