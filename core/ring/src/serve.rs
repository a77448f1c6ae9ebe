//! What a leader does for clients.
//!
//! One thing is done to a name at a time; further requests for it wait in line. Nothing is shown that a write quorum does
//! not have.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::event::{Effect, FileAnswer, FileOperation, Refusal};
use crate::message::MessageBody;
use crate::node::{RingNode, Step};
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::rename::PendingRename;

/// So many requests are under way or in line on a node; more are refused for now.
pub const MAX_PENDING_REQUESTS: usize = 4096;

/// What is being done to a name.
pub(crate) struct PendingName {
    partition: u16,
    pub operation: PendingOperation,
    /// Requests that wait for it.
    waiting: VecDeque<(u64, FileOperation)>,
    /// When others were last asked to take part.
    asked_us: u64,
}

pub(crate) enum PendingOperation {
    /// Something is being written.
    QuorumWrite(Box<QuorumWrite>),
    /// The file that is to come is asked for.
    PendingRename(PendingRename),
    /// The leader of the new name is told of the file that was here, before another takes its place.
    Leaving,
}

pub(crate) struct QuorumWrite {
    stored: Stored,
    /// What was there before, and is as long as this is not acknowledged.
    before: Option<Stored>,
    /// Who has it.
    acks: BTreeSet<NodeId>,
    then: AfterWrite,
}

/// What is done when a write is acknowledged.
pub(crate) enum AfterWrite {
    /// Whoever asked is told that it is done; nobody, if it was not a client. Chunks that no file has any more are dropped.
    Done { request: Option<u64>, dropped: BTreeMap<NodeId, Vec<ObjectId>> },
    /// Whoever asked is told that it is not done.
    Refuse { request: Option<u64>, refusal: Refusal },
    /// The file that is to come is asked for.
    Move { request: u64 },
    /// The leader of the new name is told that it has the file.
    Moved,
    /// The leader of the old name is told that the file has come.
    Arrived { from: FileName, token: RecordVersion, request: Option<u64> },
}

impl FileOperation {
    /// The name that it is about; none, for what is about all of them.
    fn name(&self) -> Option<&FileName> {
        match self {
            FileOperation::Create { name, .. }
            | FileOperation::Replace { name, .. }
            | FileOperation::Remove { name, .. }
            | FileOperation::Stat { name } => Some(name),
            FileOperation::Rename { to, .. } => Some(to),
            FileOperation::List { .. } | FileOperation::Recover { .. } => None,
        }
    }
}

impl RingNode {
    /// A client wants something.
    pub(crate) fn requested(&mut self, request: u64, operation: FileOperation, step: &mut Step) {
        self.asked += 1;
        let Some(current) = &self.current else {
            return self.answer(request, Err(Refusal::OtherView { view: 0 }), step);
        };
        let Some(name) = operation.name() else { return self.handle_unnamed(request, operation, step) };
        let (leader, view) = (current.ring.leader(name), current.view.number);
        if leader != self.config.node {
            return self.answer(request, Err(Refusal::NotLeader { leader, view }), step);
        }
        if self.asked > MAX_PENDING_REQUESTS {
            return self.answer(request, Err(Refusal::Busy), step);
        }
        match self.pending.get_mut(name) {
            Some(pending) => pending.waiting.push_back((request, operation)),
            None => self.process_queue(&name.clone(), [(request, operation)].into(), step),
        }
    }

    fn handle_unnamed(&mut self, request: u64, operation: FileOperation, step: &mut Step) {
        match operation {
            FileOperation::List { view, folder, after, most } => {
                self.list(request, view, (&folder, &after), most, step)
            }
            FileOperation::Recover { without, now_s } => self.recover(request, &without, now_s, step),
            _ => unreachable!("{operation:?} is of a name"),
        }
    }

    /// Does what waits in line for a name to which nothing is being done.
    fn process_queue(&mut self, name: &FileName, mut waiting: VecDeque<(u64, FileOperation)>, step: &mut Step) {
        let Some(current) = &self.current else { return };
        let partition = current.ring.partition(name);
        while let Some((request, operation)) = waiting.pop_front() {
            if !self.answers(partition, step.now_us) {
                self.answer(request, Err(Refusal::NotYet), step);
                continue;
            }
            let stored = step.records.get(partition, name);
            if let Some(moving) = stored.as_ref().and_then(PendingRename::of) {
                waiting.push_front((request, operation));
                self.start(name, PendingOperation::PendingRename(moving), waiting, step);
                return;
            }
            let is_leaving = |stored: &Stored| matches!(stored.entry, NameEntry::Departed { .. });
            if matches!(operation, FileOperation::Create { .. } | FileOperation::Rename { .. })
                && stored.as_ref().is_some_and(is_leaving)
            {
                waiting.push_front((request, operation));
                self.start(name, PendingOperation::Leaving, waiting, step);
                return;
            }
            match self.decide(request, operation, stored.as_ref()) {
                Ok((entry, then)) => {
                    let writing = self.writing(partition, entry, stored, then);
                    self.start(name, PendingOperation::QuorumWrite(Box::new(writing)), waiting, step);
                    return;
                }
                Err(answer) => self.answer(request, answer, step),
            }
        }
    }

    /// What is to be written for a request, or the answer to it.
    fn decide(
        &self,
        request: u64,
        operation: FileOperation,
        stored: Option<&Stored>,
    ) -> Result<(NameEntry, AfterWrite), Result<FileAnswer, Refusal>> {
        let file = stored.and_then(|stored| Some((stored.version, stored.entry.file()?)));
        let done = |dropped| AfterWrite::Done { request: Some(request), dropped };
        match (operation, file) {
            (FileOperation::Stat { .. }, Some((version, record))) => {
                Err(Ok(FileAnswer::Found { version, record: record.clone() }))
            }
            (FileOperation::Create { record, .. }, Some((version, present))) => Err(if present.id == record.id {
                Ok(FileAnswer::Done { version })
            } else {
                Err(Refusal::Exists { id: present.id })
            }),
            (FileOperation::Create { record, .. }, None) => match stored.map(|stored| &stored.entry) {
                // It was here, and this request comes late.
                Some(NameEntry::Removed { id, .. }) if *id == record.id => Err(Err(Refusal::Changed)),
                _ => Ok((NameEntry::File(record), done(BTreeMap::new()))),
            },
            (FileOperation::Replace { record, .. }, Some((version, present))) if *present == record => {
                Err(Ok(FileAnswer::Done { version }))
            }
            (FileOperation::Replace { version, record, .. }, Some((is, present))) if is == version => {
                let dropped = dropped(present, Some(&record));
                Ok((NameEntry::File(record), done(dropped)))
            }
            (FileOperation::Remove { id, .. }, Some((_, present))) if present.id == id => {
                Ok((NameEntry::Removed { id, is_gone: true }, done(dropped(present, None))))
            }
            (FileOperation::Replace { .. } | FileOperation::Remove { .. }, Some(_)) => Err(Err(Refusal::Changed)),
            (FileOperation::Remove { id, .. }, None) => match stored {
                Some(Stored { version, entry: NameEntry::Removed { id: removed, is_gone: true } })
                    if *removed == id =>
                {
                    Err(Ok(FileAnswer::Done { version: *version }))
                }
                _ => Err(Err(Refusal::NotFound)),
            },
            (FileOperation::Rename { id, .. }, Some((version, present))) => Err(if present.id == id {
                Ok(FileAnswer::Done { version })
            } else {
                Err(Refusal::Exists { id: present.id })
            }),
            (FileOperation::Rename { from, version, id, .. }, None) => {
                Ok((NameEntry::Arriving { from, version, id }, AfterWrite::Move { request }))
            }
            (FileOperation::Stat { .. } | FileOperation::Replace { .. }, None) => Err(Err(Refusal::NotFound)),
            (FileOperation::List { .. } | FileOperation::Recover { .. }, _) => unreachable!("they are of no name"),
        }
    }

    fn writing(&mut self, partition: u16, entry: NameEntry, before: Option<Stored>, then: AfterWrite) -> QuorumWrite {
        let round = self.round();
        let leading = self.leading.get_mut(&partition).expect("only leaders write");
        leading.sequence += 1;
        let version = RecordVersion { round, sequence: leading.sequence };
        QuorumWrite { stored: Stored { version, entry }, before, acks: [self.config.node].into(), then }
    }

    /// Writes to a name to which nothing else is being done; tells as which version.
    pub(crate) fn put(
        &mut self,
        name: &FileName,
        entry: NameEntry,
        then: AfterWrite,
        step: &mut Step,
    ) -> RecordVersion {
        let current = self.current.as_ref().expect("who serves a name has a view");
        let partition = current.ring.partition(name);
        let waiting = self.pending.remove(name).map_or_else(VecDeque::new, |pending| pending.waiting);
        let before = step.records.get(partition, name);
        let writing = self.writing(partition, entry, before, then);
        let version = writing.stored.version;
        self.start(name, PendingOperation::QuorumWrite(Box::new(writing)), waiting, step);
        version
    }

    pub(crate) fn start(
        &mut self,
        name: &FileName,
        operation: PendingOperation,
        waiting: VecDeque<(u64, FileOperation)>,
        step: &mut Step,
    ) {
        let Some(current) = &self.current else { return };
        let partition = current.ring.partition(name);
        if let PendingOperation::QuorumWrite(writing) = &operation {
            step.records.save(partition, name, writing.stored.clone());
        }
        self.pending.insert(name.clone(), PendingName { partition, operation, waiting, asked_us: step.now_us });
        self.request_participation(name, step);
        self.commit_if_written(name, step);
    }

    /// Asks others to take part in what is being done to a name.
    fn request_participation(&mut self, name: &FileName, step: &mut Step) {
        let round = self.round();
        let (Some(current), Some(pending)) = (&self.current, self.pending.get_mut(name)) else { return };
        let partition = pending.partition;
        pending.asked_us = step.now_us;
        match &pending.operation {
            PendingOperation::QuorumWrite(writing) => {
                let QuorumWrite { stored, acks, .. } = &**writing;
                let body = MessageBody::Write { partition, round, name: name.clone(), stored: stored.clone() };
                let replicas = current.ring.replicas(partition).iter();
                let under_replicated: Vec<NodeId> = replicas.filter(|node| !acks.contains(node)).copied().collect();
                under_replicated.into_iter().for_each(|node| self.send(node, body.clone(), step));
            }
            PendingOperation::PendingRename(moving) => {
                let (leader, body) = (current.ring.leader(&moving.from), moving.asked(name));
                self.send(leader, body, step);
            }
            PendingOperation::Leaving => {
                if let Some(Stored { entry, .. }) = step.records.get(partition, name) {
                    self.tell_moved(name, &entry, step);
                }
            }
        }
    }

    /// A replica has written.
    pub(crate) fn written(&mut self, from: NodeId, name: &FileName, version: RecordVersion, step: &mut Step) {
        let Some(PendingName { operation: PendingOperation::QuorumWrite(writing), .. }) = self.pending.get_mut(name)
        else {
            return;
        };
        if writing.stored.version == version {
            writing.acks.insert(from);
            self.commit_if_written(name, step);
        }
    }

    fn commit_if_written(&mut self, name: &FileName, step: &mut Step) {
        let (Some(current), Some(pending)) = (&self.current, self.pending.get(name)) else { return };
        let PendingOperation::QuorumWrite(writing) = &pending.operation else { return };
        if writing.acks.len() < current.write_quorum(pending.partition) {
            return;
        }
        let Some(PendingName { operation: PendingOperation::QuorumWrite(writing), waiting, .. }) =
            self.pending.remove(name)
        else {
            return;
        };
        let QuorumWrite { stored: Stored { version, entry }, then, .. } = *writing;
        match then {
            AfterWrite::Done { request, dropped } => {
                self.answer_if(request, Ok(FileAnswer::Done { version }), step);
                dropped.into_iter().for_each(|(node, objects)| self.send(node, MessageBody::Drop(objects), step));
            }
            AfterWrite::Refuse { request, refusal } => self.answer_if(request, Err(refusal), step),
            AfterWrite::Arrived { from, token, request } => {
                self.answer_if(request, Ok(FileAnswer::Done { version }), step);
                self.tell_arrived(from, token, step);
            }
            AfterWrite::Moved => self.tell_moved(name, &entry, step),
            AfterWrite::Move { request } => {
                let mut moving = PendingRename::of(&Stored { version, entry }).expect("it was written for that");
                moving.request = Some(request);
                return self.start(name, PendingOperation::PendingRename(moving), waiting, step);
            }
        }
        self.process_queue(name, waiting, step);
    }

    /// Asks again where no answer came.
    pub(crate) fn resend_pending(&mut self, step: &mut Step) {
        let is_due = |pending: &PendingName| step.now_us >= pending.asked_us + self.config.resend_us;
        let due: Vec<FileName> =
            self.pending.iter().filter(|(_, pending)| is_due(pending)).map(|(name, _)| name.clone()).collect();
        due.iter().for_each(|name| self.request_participation(name, step));
    }

    /// A view has begun: what is being done to names that are not served any more is left to who serves them.
    pub(crate) fn abandon_pending(&mut self, step: &mut Step) {
        let continues =
            |name: &FileName| self.current.as_ref().is_some_and(|current| self.serves(current.ring.partition(name)));
        let left: Vec<FileName> = self.pending.keys().filter(|name| !continues(name)).cloned().collect();
        for name in left {
            let PendingName { operation, waiting, .. } = self.pending.remove(&name).expect("it was just there");
            self.answer_if(operation.request(), Err(Refusal::Unknown), step);
            waiting.into_iter().for_each(|(request, _)| self.answer(request, Err(Refusal::NotYet), step));
        }
        let me = self.config.node;
        for pending in self.pending.values_mut() {
            // Those who have it must have it in this view.
            pending.asked_us = 0;
            if let PendingOperation::QuorumWrite(writing) = &mut pending.operation {
                writing.acks = [me].into();
            }
        }
        // Where nobody else is left, that is all.
        let going_on: Vec<FileName> = self.pending.keys().cloned().collect();
        going_on.iter().for_each(|name| self.commit_if_written(name, step));
    }

    pub(crate) fn validate_pending(&self) {
        let mut asked = 0;
        for (name, PendingName { partition, operation, waiting, .. }) in &self.pending {
            assert!(self.serves(*partition), "{name} is changed by who does not serve it");
            asked += usize::from(operation.request().is_some()) + waiting.len();
            let is_for_it = |(_, operation): &(u64, FileOperation)| operation.name() == Some(name);
            assert!(waiting.iter().all(is_for_it), "{name}: a request waits in the wrong line");
        }
        assert_eq!(asked, self.asked, "requests are answered or in line");
        assert!(asked <= MAX_PENDING_REQUESTS);
    }

    fn answer_if(&mut self, request: Option<u64>, answer: Result<FileAnswer, Refusal>, step: &mut Step) {
        if let Some(request) = request {
            self.answer(request, answer, step);
        }
    }

    pub(crate) fn answer(&mut self, request: u64, answer: Result<FileAnswer, Refusal>, step: &mut Step) {
        self.asked -= 1;
        step.records.effects.push(Effect::Answer { request, answer });
    }
}

impl PendingOperation {
    /// Who waits for it.
    fn request(&self) -> Option<u64> {
        match self {
            PendingOperation::PendingRename(moving) => moving.request,
            PendingOperation::Leaving => None,
            PendingOperation::QuorumWrite(writing) => match &writing.then {
                AfterWrite::Done { request, .. }
                | AfterWrite::Refuse { request, .. }
                | AfterWrite::Arrived { request, .. } => *request,
                AfterWrite::Move { request } => Some(*request),
                AfterWrite::Moved => None,
            },
        }
    }

    /// What is shown meanwhile, if something is being written.
    pub fn before(&self) -> Option<Option<&Stored>> {
        match self {
            PendingOperation::QuorumWrite(writing) => Some(writing.before.as_ref()),
            PendingOperation::PendingRename(_) | PendingOperation::Leaving => None,
        }
    }
}

/// Replicas of a file that its new record does not have.
fn dropped(old: &FileRecord, new: Option<&FileRecord>) -> BTreeMap<NodeId, Vec<ObjectId>> {
    let of = |chunk: &Chunk| {
        let object = chunk.object;
        chunk.replicas.iter().map(move |node| (*node, object)).collect::<Vec<_>>()
    };
    let kept: BTreeSet<(NodeId, ObjectId)> = new.iter().flat_map(|new| &new.chunks).flat_map(of).collect();
    let mut dropped = BTreeMap::<NodeId, Vec<ObjectId>>::new();
    for (node, object) in old.chunks.iter().flat_map(of).filter(|replica| !kept.contains(replica)) {
        dropped.entry(node).or_default().push(object);
    }
    dropped
}
