//! Renaming, where two leaders have a part in it.
//!
//! The new name's leader writes that the file is to arrive, with the version that it has under its old name, and asks the old
//! name's leader to move it. That is the one moment at which the file changes its name: when it is written that it has
//! departed. Then the new name's leader writes the file, and the old one's forgets its part, before which nothing else gets
//! the old name. Whoever asks for the new name meanwhile waits; so no reader finds both, or neither.
//!
//! Versions are never used again. So a request to move that comes late moves nothing, and when the old name's leader says
//! that no file is there with that version, it will always be so, and the new name is free again.

use alloc::collections::VecDeque;

use eyas_types::dfs::{FileId, FileName, FileRecord, NodeId};

use crate::event::Refusal;
use crate::message::MessageBody;
use crate::node::{RingNode, Step};
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::serve::{AfterWrite, PendingName, PendingOperation};

/// A file is asked for by the leader of its new name.
pub(crate) struct PendingRename {
    pub from: FileName,
    /// That it must have there.
    version: RecordVersion,
    id: FileId,
    /// Of what stands under the new name meanwhile.
    token: RecordVersion,
    /// The client that waits for it.
    pub request: Option<u64>,
}

impl PendingRename {
    /// What is to be done about an entry, if a file is to arrive there.
    pub fn of(stored: &Stored) -> Option<Self> {
        match &stored.entry {
            NameEntry::Arriving { from, version, id } => {
                let (from, version, id) = (from.clone(), *version, *id);
                Some(PendingRename { from, version, id, token: stored.version, request: None })
            }
            _ => None,
        }
    }

    /// What the leader of the old name is asked.
    pub fn asked(&self, to: &FileName) -> MessageBody {
        MessageBody::Move { from: self.from.clone(), version: self.version, to: to.clone(), token: self.token }
    }
}

impl RingNode {
    /// The leader of the new name asks that of the old one.
    pub(crate) fn move_away(
        &mut self,
        asking: NodeId,
        from: FileName,
        version: RecordVersion,
        to: FileName,
        token: RecordVersion,
        step: &mut Step,
    ) {
        match self.known(&from, step) {
            None => {}
            Some(Some(Stored { version: is, entry: NameEntry::File(record) })) if is == version => {
                self.put(&from, NameEntry::Departed { to, token, record }, AfterWrite::Moved, step);
            }
            Some(Some(Stored { entry: NameEntry::Departed { to: known, token: known_token, record }, .. }))
                if known == to && known_token == token =>
            {
                self.send(asking, MessageBody::Moved { to, token, from, record }, step);
            }
            Some(_) => self.send(asking, MessageBody::Gone { to, token }, step),
        }
    }

    /// The file has departed: its new leader is told.
    pub(crate) fn tell_moved(&mut self, from: &FileName, entry: &NameEntry, step: &mut Step) {
        let (Some(current), NameEntry::Departed { to, token, record }) = (&self.current, entry) else { return };
        let (to, token, record) = (to.clone(), *token, record.clone());
        self.send(current.ring.leader(&to), MessageBody::Moved { to, token, from: from.clone(), record }, step);
    }

    /// The old name's leader says that the file is this node's.
    pub(crate) fn moved(
        &mut self,
        asked: NodeId,
        to: &FileName,
        token: RecordVersion,
        from: FileName,
        record: FileRecord,
        step: &mut Step,
    ) {
        if let Some(moving) = self.moving(to, token) {
            let request = moving.request;
            self.put(to, NameEntry::File(record), AfterWrite::Arrived { from, token, request }, step);
            return;
        }
        match self.served(to, step) {
            Some(Some(Stored { version, entry: NameEntry::Arriving { .. } })) if version == token => {
                self.put(to, NameEntry::File(record), AfterWrite::Arrived { from, token, request: None }, step);
            }
            Some(_) => self.send(asked, MessageBody::Arrived { from, token }, step),
            None => {}
        }
    }

    /// The old name's leader says that there is no such file.
    pub(crate) fn gone(&mut self, to: &FileName, token: RecordVersion, step: &mut Step) {
        let Some(moving) = self.moving(to, token) else { return };
        let (id, request) = (moving.id, moving.request);
        let then = AfterWrite::Refuse { request, refusal: Refusal::Changed };
        self.put(to, NameEntry::Removed { id, is_gone: false }, then, step);
    }

    /// The file has arrived: its old leader is told.
    pub(crate) fn tell_arrived(&mut self, from: FileName, token: RecordVersion, step: &mut Step) {
        let Some(current) = &self.current else { return };
        self.send(current.ring.leader(&from), MessageBody::Arrived { from, token }, step);
    }

    /// The new name's leader has the file.
    pub(crate) fn arrived(&mut self, from: &FileName, token: RecordVersion, step: &mut Step) {
        let stored = self.known(from, step).flatten();
        let Some(Stored { entry: NameEntry::Departed { token: known, record, .. }, .. }) = stored else { return };
        if known == token {
            let then = AfterWrite::Done { request: None, dropped: Default::default() };
            self.put(from, NameEntry::Removed { id: record.id, is_gone: false }, then, step);
        }
    }

    /// Whether a file is to arrive under a name; it is asked for.
    pub(crate) fn expects(&mut self, name: &FileName, stored: &Stored, step: &mut Step) -> bool {
        let moving = PendingRename::of(stored);
        let expects = moving.is_some();
        if let Some(moving) = moving.filter(|_| !self.pending.contains_key(name)) {
            self.start(name, PendingOperation::PendingRename(moving), VecDeque::new(), step);
        }
        expects
    }

    fn moving(&self, to: &FileName, token: RecordVersion) -> Option<&PendingRename> {
        match self.pending.get(to) {
            Some(PendingName { operation: PendingOperation::PendingRename(moving), .. }) if moving.token == token => {
                Some(moving)
            }
            _ => None,
        }
    }

    /// What is under a name, if this node serves it and nothing is being written to it.
    fn known(&self, name: &FileName, step: &Step) -> Option<Option<Stored>> {
        let partition = self.current.as_ref()?.ring.partition(name);
        let is_written = |pending: &PendingName| matches!(pending.operation, PendingOperation::QuorumWrite(_));
        let is_known = self.serves(partition) && !self.pending.get(name).is_some_and(is_written);
        is_known.then(|| step.records.get(partition, name))
    }

    /// What is under a name, if this node serves it and nothing is being done to it.
    pub(crate) fn served(&self, name: &FileName, step: &Step) -> Option<Option<Stored>> {
        self.known(name, step).filter(|_| !self.pending.contains_key(name))
    }
}
