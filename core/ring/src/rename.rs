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
use crate::message::Body;
use crate::node::{Node, Turn};
use crate::record::{Entry, Stored, Version};
use crate::serve::{Doing, Then, Work};

/// A file is asked for by the leader of its new name.
pub(crate) struct Moving {
    pub from: FileName,
    /// That it must have there.
    version: Version,
    id: FileId,
    /// Of what stands under the new name meanwhile.
    token: Version,
    /// The client that waits for it.
    pub request: Option<u64>,
}

impl Moving {
    /// What is to be done about an entry, if a file is to arrive there.
    pub fn of(stored: &Stored) -> Option<Self> {
        match &stored.entry {
            Entry::Arriving { from, version, id } => {
                let (from, version, id) = (from.clone(), *version, *id);
                Some(Moving { from, version, id, token: stored.version, request: None })
            }
            _ => None,
        }
    }

    /// What the leader of the old name is asked.
    pub fn asked(&self, to: &FileName) -> Body {
        Body::Move { from: self.from.clone(), version: self.version, to: to.clone(), token: self.token }
    }
}

impl Node {
    /// The leader of the new name asks that of the old one.
    pub(crate) fn move_away(
        &mut self,
        asking: NodeId,
        from: FileName,
        version: Version,
        to: FileName,
        token: Version,
        turn: &mut Turn,
    ) {
        match self.known(&from, turn) {
            None => {}
            Some(Some(Stored { version: is, entry: Entry::File(record) })) if is == version => {
                self.put(&from, Entry::Departed { to, token, record }, Then::Moved, turn);
            }
            Some(Some(Stored { entry: Entry::Departed { to: known, token: known_token, record }, .. }))
                if known == to && known_token == token =>
            {
                self.send(asking, Body::Moved { to, token, from, record }, turn);
            }
            Some(_) => self.send(asking, Body::Gone { to, token }, turn),
        }
    }

    /// The file has departed: its new leader is told.
    pub(crate) fn tell_moved(&mut self, from: &FileName, entry: &Entry, turn: &mut Turn) {
        let (Some(place), Entry::Departed { to, token, record }) = (&self.place, entry) else { return };
        let (to, token, record) = (to.clone(), *token, record.clone());
        self.send(place.ring.leader(&to), Body::Moved { to, token, from: from.clone(), record }, turn);
    }

    /// The old name's leader says that the file is this node's.
    pub(crate) fn moved(
        &mut self,
        asked: NodeId,
        to: &FileName,
        token: Version,
        from: FileName,
        record: FileRecord,
        turn: &mut Turn,
    ) {
        if let Some(moving) = self.moving(to, token) {
            let request = moving.request;
            self.put(to, Entry::File(record), Then::Arrived { from, token, request }, turn);
            return;
        }
        match self.served(to, turn) {
            Some(Some(Stored { version, entry: Entry::Arriving { .. } })) if version == token => {
                self.put(to, Entry::File(record), Then::Arrived { from, token, request: None }, turn);
            }
            Some(_) => self.send(asked, Body::Arrived { from, token }, turn),
            None => {}
        }
    }

    /// The old name's leader says that there is no such file.
    pub(crate) fn gone(&mut self, to: &FileName, token: Version, turn: &mut Turn) {
        let Some(moving) = self.moving(to, token) else { return };
        let (id, request) = (moving.id, moving.request);
        let then = Then::Refuse { request, refusal: Refusal::Changed };
        self.put(to, Entry::Removed { id, is_gone: false }, then, turn);
    }

    /// The file has arrived: its old leader is told.
    pub(crate) fn tell_arrived(&mut self, from: FileName, token: Version, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        self.send(place.ring.leader(&from), Body::Arrived { from, token }, turn);
    }

    /// The new name's leader has the file.
    pub(crate) fn arrived(&mut self, from: &FileName, token: Version, turn: &mut Turn) {
        let stored = self.known(from, turn).flatten();
        let Some(Stored { entry: Entry::Departed { token: known, record, .. }, .. }) = stored else { return };
        if known == token {
            let then = Then::Done { request: None, dropped: Default::default() };
            self.put(from, Entry::Removed { id: record.id, is_gone: false }, then, turn);
        }
    }

    /// Whether a file is to arrive under a name; it is asked for.
    pub(crate) fn expects(&mut self, name: &FileName, stored: &Stored, turn: &mut Turn) -> bool {
        let moving = Moving::of(stored);
        let expects = moving.is_some();
        if let Some(moving) = moving.filter(|_| !self.work.contains_key(name)) {
            self.start(name, Doing::Moving(moving), VecDeque::new(), turn);
        }
        expects
    }

    fn moving(&self, to: &FileName, token: Version) -> Option<&Moving> {
        match self.work.get(to) {
            Some(Work { doing: Doing::Moving(moving), .. }) if moving.token == token => Some(moving),
            _ => None,
        }
    }

    /// What is under a name, if this node serves it and nothing is being written to it.
    fn known(&self, name: &FileName, turn: &Turn) -> Option<Option<Stored>> {
        let partition = self.place.as_ref()?.ring.partition(name);
        let is_written = |work: &Work| matches!(work.doing, Doing::Writing(_));
        let is_known = self.serves(partition) && !self.work.get(name).is_some_and(is_written);
        is_known.then(|| turn.disk.get(partition, name))
    }

    /// What is under a name, if this node serves it and nothing is being done to it.
    pub(crate) fn served(&self, name: &FileName, turn: &Turn) -> Option<Option<Stored>> {
        self.known(name, turn).filter(|_| !self.work.contains_key(name))
    }
}
