//! Requests of clients, as a leader handles them.
//!
//! A name has one operation in progress at a time; further requests for it wait in a queue. An entry is visible only
//! when a write quorum has it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, NodeId};

use crate::decision::decide;
use crate::event::{Effect, FileAnswer, FileOperation, Refusal};
use crate::message::MessageBody;
use crate::node::{RingNode, Step};
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::rename::PendingRename;

/// Maximum number of requests that are in progress or waiting on a node. Further ones are refused with `Busy`.
pub const MAX_PENDING_REQUESTS: usize = 4096;

/// The operation in progress on a name.
pub(crate) struct PendingName {
    partition: u16,
    pub operation: PendingOperation,
    /// Requests that wait until the operation has ended.
    waiting: VecDeque<(u64, FileOperation)>,
    /// The time when other nodes were last asked to take part.
    asked_us: u64,
}

pub(crate) enum PendingOperation {
    /// An entry is being written to the replicas.
    QuorumWrite(Box<QuorumWrite>),
    /// The leader of the old name is asked for a file.
    PendingRename(Box<PendingRename>),
    /// The leader of the new name is told of a file that has departed, before another file may take the name.
    Leaving,
}

pub(crate) struct QuorumWrite {
    stored: Stored,
    /// The entry before this write, which stays visible until the write is acknowledged.
    before: Option<Stored>,
    /// The replicas that have stored the entry.
    acks: BTreeSet<NodeId>,
    then: AfterWrite,
}

/// What happens when a write is acknowledged.
pub(crate) enum AfterWrite {
    /// The client, if there is one, is told that the operation is done. Replicas of chunks that the file no longer has
    /// are deleted.
    Done { request: Option<u64>, dropped: BTreeMap<NodeId, Vec<ObjectId>> },
    /// The client is told that the operation was refused.
    Refuse { request: Option<u64>, refusal: Refusal },
    /// The leader of the old name is asked for the file.
    Move { request: u64 },
    /// The leader of the new name is told that the file has departed.
    Moved,
    /// The leader of the old name is told that the file has arrived. Replicas of chunks of the file that it has
    /// replaced are deleted.
    Arrived { from: FileName, token: RecordVersion, request: Option<u64>, dropped: BTreeMap<NodeId, Vec<ObjectId>> },
}

impl FileOperation {
    /// The name that the operation concerns; none for operations on all names.
    fn name(&self) -> Option<&FileName> {
        match self {
            FileOperation::Create { name, .. }
            | FileOperation::Replace { name, .. }
            | FileOperation::SetAttributes { name, .. }
            | FileOperation::Remove { name, .. }
            | FileOperation::Stat { name } => Some(name),
            FileOperation::Rename { to, .. } => Some(to),
            FileOperation::List { .. } | FileOperation::Use { .. } | FileOperation::Recover { .. } => None,
        }
    }
}

impl RingNode {
    /// A client requests an operation.
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
            FileOperation::List { view, folder, from, most, depth } => {
                self.list(request, view, (&folder, &from), most, depth, step);
            }
            FileOperation::Use { view, folder } => self.answer_use(request, view, &folder, step),
            FileOperation::Recover { without, now_s } => self.recover(request, &without, now_s, step),
            _ => unreachable!("{operation:?} is of a name"),
        }
    }

    /// Handles the waiting requests of a name that has no operation in progress.
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
                self.start(name, PendingOperation::PendingRename(Box::new(moving)), waiting, step);
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
            match decide(request, operation, stored.as_ref()) {
                Ok((entry, then)) => {
                    let writing = self.writing(partition, entry, stored, then);
                    self.start(name, PendingOperation::QuorumWrite(Box::new(writing)), waiting, step);
                    return;
                }
                Err(answer) => self.answer(request, *answer, step),
            }
        }
    }

    fn writing(&mut self, partition: u16, entry: NameEntry, before: Option<Stored>, then: AfterWrite) -> QuorumWrite {
        let round = self.round();
        let leading = self.leading.get_mut(&partition).expect("only leaders write");
        leading.sequence += 1;
        let version = RecordVersion { round, sequence: leading.sequence };
        QuorumWrite { stored: Stored { version, entry }, before, acks: [self.config.node].into(), then }
    }

    /// Writes an entry to a name that has no other operation in progress. Returns its version.
    pub(crate) fn put(
        &mut self,
        name: &FileName,
        entry: NameEntry,
        then: AfterWrite,
        step: &mut Step,
    ) -> RecordVersion {
        let current = self.current.as_ref().expect("a node that serves names has a view");
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
            self.uses.saved(partition, name, writing.before.as_ref(), &writing.stored);
            step.records.save(partition, name, writing.stored.clone());
        }
        self.pending.insert(name.clone(), PendingName { partition, operation, waiting, asked_us: step.now_us });
        self.request_participation(name, step);
        self.commit_if_written(name, step);
    }

    /// Asks other nodes to take part in the operation on a name.
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

    /// A replica has stored an entry.
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
        self.expect_sync(name, version, &entry, &then, step);
        match then {
            AfterWrite::Done { request, dropped } => {
                self.answer_if(request, Ok(FileAnswer::Done { version }), step);
                dropped.into_iter().for_each(|(node, objects)| self.send(node, MessageBody::Drop(objects), step));
            }
            AfterWrite::Refuse { request, refusal } => self.answer_if(request, Err(refusal), step),
            AfterWrite::Arrived { from, token, request, dropped } => {
                self.answer_if(request, Ok(FileAnswer::Done { version }), step);
                self.tell_arrived(from, token, step);
                dropped.into_iter().for_each(|(node, objects)| self.send(node, MessageBody::Drop(objects), step));
            }
            AfterWrite::Moved => self.tell_moved(name, &entry, step),
            AfterWrite::Move { request } => {
                let mut moving = PendingRename::of(&Stored { version, entry }).expect("it was written for that");
                moving.request = Some(request);
                return self.start(name, PendingOperation::PendingRename(Box::new(moving)), waiting, step);
            }
        }
        self.process_queue(name, waiting, step);
    }

    /// Repeats requests to other nodes that did not answer.
    pub(crate) fn resend_pending(&mut self, step: &mut Step) {
        let is_due = |pending: &PendingName| step.now_us >= pending.asked_us + self.config.resend_us;
        let due: Vec<FileName> =
            self.pending.iter().filter(|(_, pending)| is_due(pending)).map(|(name, _)| name.clone()).collect();
        due.iter().for_each(|name| self.request_participation(name, step));
    }

    /// A view has begun: operations on names that this node no longer serves are left to their new leaders.
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
            // Replicas must store the entry in the new view.
            pending.asked_us = 0;
            if let PendingOperation::QuorumWrite(writing) = &mut pending.operation {
                writing.acks = [me].into();
            }
        }
        // A single remaining replica may be a quorum.
        let going_on: Vec<FileName> = self.pending.keys().cloned().collect();
        going_on.iter().for_each(|name| self.commit_if_written(name, step));
    }

    pub(crate) fn validate_pending(&self) {
        let mut asked = 0;
        for (name, PendingName { partition, operation, waiting, .. }) in &self.pending {
            assert!(self.serves(*partition), "{name} is changed by a node that does not serve it");
            asked += usize::from(operation.request().is_some()) + waiting.len();
            let is_for_it = |(_, operation): &(u64, FileOperation)| operation.name() == Some(name);
            assert!(waiting.iter().all(is_for_it), "{name}: a request waits in the wrong queue");
        }
        assert_eq!(asked, self.asked, "requests are answered or waiting");
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
    /// The client's request that the operation answers.
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

    /// The entry that is visible during a write.
    pub fn before(&self) -> Option<Option<&Stored>> {
        match self {
            PendingOperation::QuorumWrite(writing) => Some(writing.before.as_ref()),
            PendingOperation::PendingRename(_) | PendingOperation::Leaving => None,
        }
    }
}
