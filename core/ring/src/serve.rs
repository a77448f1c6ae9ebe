//! Requests of clients, as a leader handles them.
//!
//! A name has one operation in progress at a time; further requests for it wait in a queue. An
//! entry is visible only when a write quorum has it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileRecord, NodeId};

use crate::after_write::AfterWrite;
use crate::decision::decide;
use crate::event::{FileAnswer, FileOperation, Refusal};
use crate::folder_use::FolderUses;
use crate::list::ListQuery;
use crate::membership::RingMembership;
use crate::message::MessageBody;
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::rename::{PendingRename, tell_moved};
use crate::replica::PartitionReplicas;
use crate::step::Step;
use crate::syncing::SyncingFiles;
use crate::view_change::LedPartitions;

/// Maximum number of requests that are in progress or waiting on a node. Further ones are refused
/// with `Busy`.
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
    /// The leader of the new name is told of a file that has departed, before another file may take
    /// the name.
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
            FileOperation::List { .. }
            | FileOperation::Use { .. }
            | FileOperation::Recover { .. } => None,
        }
    }
}

/// The names that this node leads: the operations in progress on them, and what follows from each
/// write.
pub(crate) struct LedNames {
    pub partitions: LedPartitions,
    /// Names with an operation in progress, and the requests that wait for them.
    pub pending: BTreeMap<FileName, PendingName>,
    /// Number of requests that are in progress or waiting.
    asked: usize,
    uses: FolderUses,
    pub syncing: SyncingFiles,
}

impl LedNames {
    pub fn new(partitions: LedPartitions) -> Self {
        LedNames {
            partitions,
            pending: BTreeMap::new(),
            asked: 0,
            uses: FolderUses::default(),
            syncing: SyncingFiles::default(),
        }
    }

    /// A client requests an operation.
    pub fn requested(
        &mut self,
        here: &RingMembership,
        request: u64,
        operation: FileOperation,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else {
            return step.answer(request, Err(Refusal::OtherView { view: 0 }));
        };
        let Some(name) = operation.name() else {
            let answer = self.answer_unnamed(here, operation, step);
            return step.answer(request, answer);
        };
        let (leader, view) = (current.ring.leader(name), current.view.number);
        if leader != here.config.node {
            return step.answer(request, Err(Refusal::NotLeader { leader, view }));
        }
        if self.asked >= MAX_PENDING_REQUESTS {
            return step.answer(request, Err(Refusal::Busy));
        }
        self.asked += 1;
        match self.pending.get_mut(name) {
            Some(pending) => pending.waiting.push_back((request, operation)),
            None => self.process_queue(here, &name.clone(), [(request, operation)].into(), step),
        }
    }

    /// The answer to an operation on many names.
    fn answer_unnamed(
        &mut self,
        here: &RingMembership,
        operation: FileOperation,
        step: &mut Step,
    ) -> Result<FileAnswer, Refusal> {
        let (FileOperation::List { view, .. } | FileOperation::Use { view, .. }) = operation else {
            unreachable!("{operation:?} is of a name, or for the whole node")
        };
        if view != here.number() {
            return Err(Refusal::OtherView { view: here.number() });
        }
        if !self.partitions.answers_all(here, step.now_us) {
            return Err(Refusal::NotYet);
        }
        match operation {
            FileOperation::List { folder, from, most, depth, .. } => {
                ListQuery::new(&folder, &from, most, depth).answer(self, here, step)
            }
            FileOperation::Use { folder, .. } => {
                self.uses.used(&self.partitions, folder.trim_end_matches('/'), &step.records)
            }
            _ => unreachable!("looked at above"),
        }
    }

    /// Handles the waiting requests of a name that has no operation in progress.
    fn process_queue(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        mut waiting: VecDeque<(u64, FileOperation)>,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        let partition = current.ring.partition(name);
        while let Some((request, operation)) = waiting.pop_front() {
            if !self.partitions.answers(here, partition, step.now_us) {
                self.answer(request, Err(Refusal::NotYet), step);
                continue;
            }
            let stored = step.records.get(partition, name);
            if let Some(moving) = stored.as_ref().and_then(PendingRename::of) {
                waiting.push_front((request, operation));
                self.start(
                    here,
                    name,
                    PendingOperation::PendingRename(Box::new(moving)),
                    waiting,
                    step,
                );
                return;
            }
            let is_leaving = |stored: &Stored| matches!(stored.entry, NameEntry::Departed { .. });
            if matches!(operation, FileOperation::Create { .. } | FileOperation::Rename { .. })
                && stored.as_ref().is_some_and(is_leaving)
            {
                waiting.push_front((request, operation));
                self.start(here, name, PendingOperation::Leaving, waiting, step);
                return;
            }
            match decide(request, operation, stored.as_ref()) {
                Ok((entry, then)) => {
                    let writing = self.writing(here, partition, entry, stored, then);
                    self.start(
                        here,
                        name,
                        PendingOperation::QuorumWrite(Box::new(writing)),
                        waiting,
                        step,
                    );
                    return;
                }
                Err(answer) => self.answer(request, *answer, step),
            }
        }
    }

    fn writing(
        &mut self,
        here: &RingMembership,
        partition: u16,
        entry: NameEntry,
        before: Option<Stored>,
        then: AfterWrite,
    ) -> QuorumWrite {
        let version = self.partitions.next_version(here, partition);
        QuorumWrite {
            stored: Stored { version, entry },
            before,
            acks: [here.config.node].into(),
            then,
        }
    }

    /// Writes an entry to a name that has no other operation in progress. Returns its version.
    pub fn put(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        entry: NameEntry,
        then: AfterWrite,
        step: &mut Step,
    ) -> RecordVersion {
        let current = here.current.as_ref().expect("a node that serves names has a view");
        let partition = current.ring.partition(name);
        let waiting =
            self.pending.remove(name).map_or_else(VecDeque::new, |pending| pending.waiting);
        let before = step.records.get(partition, name);
        let writing = self.writing(here, partition, entry, before, then);
        let version = writing.stored.version;
        self.start(here, name, PendingOperation::QuorumWrite(Box::new(writing)), waiting, step);
        version
    }

    /// Writes the record of a file that the leader has changed of its own accord.
    pub fn put_record(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        record: FileRecord,
        step: &mut Step,
    ) -> RecordVersion {
        let then = AfterWrite::Done { request: None, dropped: BTreeMap::new() };
        self.put(here, name, NameEntry::File(record), then, step)
    }

    pub fn start(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        operation: PendingOperation,
        waiting: VecDeque<(u64, FileOperation)>,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        let partition = current.ring.partition(name);
        if let PendingOperation::QuorumWrite(writing) = &operation {
            self.uses.saved(partition, name, writing.before.as_ref(), &writing.stored);
            step.records.save(partition, name, writing.stored.clone());
        }
        self.pending.insert(
            name.clone(),
            PendingName { partition, operation, waiting, asked_us: step.now_us },
        );
        self.request_participation(here, name, step);
        self.commit_if_written(here, name, step);
    }

    /// Asks other nodes to take part in the operation on a name.
    fn request_participation(&mut self, here: &RingMembership, name: &FileName, step: &mut Step) {
        let round = here.round();
        let (Some(current), Some(pending)) = (&here.current, self.pending.get_mut(name)) else {
            return;
        };
        let partition = pending.partition;
        pending.asked_us = step.now_us;
        match &pending.operation {
            PendingOperation::QuorumWrite(writing) => {
                let QuorumWrite { stored, acks, .. } = &**writing;
                let body = MessageBody::Write {
                    partition,
                    round,
                    name: name.clone(),
                    stored: stored.clone(),
                };
                let without =
                    current.ring.replicas(partition).iter().filter(|node| !acks.contains(node));
                without.for_each(|node| here.send(*node, body.clone(), step));
            }
            PendingOperation::PendingRename(moving) => {
                here.send(current.ring.leader(&moving.from), moving.asked(name), step);
            }
            PendingOperation::Leaving => {
                if let Some(Stored { entry, .. }) = step.records.get(partition, name) {
                    tell_moved(here, name, &entry, step);
                }
            }
        }
    }

    /// A replica has stored an entry.
    pub fn written(
        &mut self,
        here: &RingMembership,
        from: NodeId,
        name: &FileName,
        version: RecordVersion,
        step: &mut Step,
    ) {
        let Some(PendingName { operation: PendingOperation::QuorumWrite(writing), .. }) =
            self.pending.get_mut(name)
        else {
            return;
        };
        if writing.stored.version == version {
            writing.acks.insert(from);
            self.commit_if_written(here, name, step);
        }
    }

    fn commit_if_written(&mut self, here: &RingMembership, name: &FileName, step: &mut Step) {
        let (Some(current), Some(pending)) = (&here.current, self.pending.get(name)) else {
            return;
        };
        let PendingOperation::QuorumWrite(writing) = &pending.operation else { return };
        if writing.acks.len() < current.write_quorum(pending.partition) {
            return;
        }
        let Some(PendingName {
            operation: PendingOperation::QuorumWrite(writing), waiting, ..
        }) = self.pending.remove(name)
        else {
            return;
        };
        let QuorumWrite { stored: Stored { version, entry }, then, .. } = *writing;
        self.syncing.written(&here.config, name, (version, &entry), &then, step.now_us);
        match then {
            AfterWrite::Done { request, dropped } => {
                self.answer_if(request, Ok(FileAnswer::Done { version }), step);
                drop_chunks(here, dropped, step);
            }
            AfterWrite::Refuse { request, refusal } => self.answer_if(request, Err(refusal), step),
            AfterWrite::Arrived { from, token, request, dropped } => {
                self.answer_if(request, Ok(FileAnswer::Done { version }), step);
                here.send(current.ring.leader(&from), MessageBody::Arrived { from, token }, step);
                drop_chunks(here, dropped, step);
            }
            AfterWrite::Moved => tell_moved(here, name, &entry, step),
            AfterWrite::Move { request } => {
                let mut moving =
                    PendingRename::of(&Stored { version, entry }).expect("it was written for that");
                moving.request = Some(request);
                return self.start(
                    here,
                    name,
                    PendingOperation::PendingRename(Box::new(moving)),
                    waiting,
                    step,
                );
            }
        }
        self.process_queue(here, name, waiting, step);
    }

    /// Repeats requests to other nodes that did not answer.
    pub fn resend_pending(&mut self, here: &RingMembership, step: &mut Step) {
        let is_due =
            |pending: &PendingName| step.now_us >= pending.asked_us + here.config.resend_us;
        let due: Vec<FileName> = self
            .pending
            .iter()
            .filter(|(_, pending)| is_due(pending))
            .map(|(name, _)| name.clone())
            .collect();
        due.iter().for_each(|name| self.request_participation(here, name, step));
    }

    /// A view has begun, in which this node leads these partitions. Operations on names that it no
    /// longer serves are left to their new leaders.
    pub fn enter_view(
        &mut self,
        here: &RingMembership,
        partitions: LedPartitions,
        step: &mut Step,
    ) {
        self.partitions = partitions;
        self.syncing.enter_view();
        self.uses.forget();
        let continues = |name: &FileName| {
            here.current
                .as_ref()
                .is_some_and(|current| self.partitions.serves(here, current.ring.partition(name)))
        };
        let left: Vec<FileName> =
            self.pending.keys().filter(|name| !continues(name)).cloned().collect();
        for name in left {
            let PendingName { operation, waiting, .. } =
                self.pending.remove(&name).expect("it was just there");
            self.answer_if(operation.request(), Err(Refusal::Unknown), step);
            waiting
                .into_iter()
                .for_each(|(request, _)| self.answer(request, Err(Refusal::NotYet), step));
        }
        let me = here.config.node;
        for pending in self.pending.values_mut() {
            // Replicas must store the entry in the new view.
            pending.asked_us = 0;
            if let PendingOperation::QuorumWrite(writing) = &mut pending.operation {
                writing.acks = [me].into();
            }
        }
        // A single remaining replica may be a quorum.
        let going_on: Vec<FileName> = self.pending.keys().cloned().collect();
        going_on.iter().for_each(|name| self.commit_if_written(here, name, step));
    }

    /// The entry of a name that clients see: the one before a write that is not acknowledged yet.
    pub fn shown(&self, name: &FileName, stored: Stored) -> Option<Stored> {
        match self.pending.get(name).and_then(|pending| pending.operation.before()) {
            Some(before) => before.cloned(),
            None => Some(stored),
        }
    }

    pub fn validate(&self, here: &RingMembership, replicas: &PartitionReplicas) {
        self.partitions.validate(here, replicas);
        self.syncing.validate();
        let mut asked = 0;
        for (name, PendingName { partition, operation, waiting, .. }) in &self.pending {
            assert!(
                self.partitions.serves(here, *partition),
                "{name} is changed by a node that does not serve it"
            );
            asked += usize::from(operation.request().is_some()) + waiting.len();
            let is_for_it = |(_, operation): &(u64, FileOperation)| operation.name() == Some(name);
            assert!(waiting.iter().all(is_for_it), "{name}: a request waits in the wrong queue");
        }
        assert_eq!(asked, self.asked, "requests are answered or waiting");
        assert!(asked <= MAX_PENDING_REQUESTS);
    }

    fn answer_if(
        &mut self,
        request: Option<u64>,
        answer: Result<FileAnswer, Refusal>,
        step: &mut Step,
    ) {
        if let Some(request) = request {
            self.answer(request, answer, step);
        }
    }

    /// Answers a request that was in progress or waiting.
    fn answer(&mut self, request: u64, answer: Result<FileAnswer, Refusal>, step: &mut Step) {
        self.asked -= 1;
        step.answer(request, answer);
    }
}

/// Has nodes delete the chunks that a file no longer needs.
fn drop_chunks(here: &RingMembership, dropped: BTreeMap<NodeId, Vec<ObjectId>>, step: &mut Step) {
    dropped
        .into_iter()
        .for_each(|(node, objects)| here.send(node, MessageBody::Drop(objects), step));
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
