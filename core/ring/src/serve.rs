//! What a leader does for clients.
//!
//! One thing is done to a name at a time; further requests for it wait in line. Nothing is shown that a write quorum does
//! not have.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::event::{Answer, Effect, Op, Refusal};
use crate::message::Body;
use crate::node::{Node, Turn};
use crate::record::{Entry, Stored, Version};
use crate::rename::Moving;

/// So many requests are under way or in line on a node; more are refused for now.
pub const MAX_ASKED: usize = 4096;

/// What is being done to a name.
pub(crate) struct Work {
    partition: u16,
    pub doing: Doing,
    /// Requests that wait for it.
    waiting: VecDeque<(u64, Op)>,
    /// When others were last asked to take part.
    asked_us: u64,
}

pub(crate) enum Doing {
    /// Something is being written.
    Writing(Box<Writing>),
    /// The file that is to come is asked for.
    Moving(Moving),
    /// The leader of the new name is told of the file that was here, before another takes its place.
    Leaving,
}

pub(crate) struct Writing {
    stored: Stored,
    /// What was there before, and is as long as this is not acknowledged.
    before: Option<Stored>,
    /// Who has it.
    acks: BTreeSet<NodeId>,
    then: Then,
}

/// What is done when a write is acknowledged.
pub(crate) enum Then {
    /// Whoever asked is told that it is done; nobody, if it was not a client. Chunks that no file has any more are dropped.
    Done { request: Option<u64>, dropped: BTreeMap<NodeId, Vec<ObjectId>> },
    /// Whoever asked is told that it is not done.
    Refuse { request: Option<u64>, refusal: Refusal },
    /// The file that is to come is asked for.
    Move { request: u64 },
    /// The leader of the new name is told that it has the file.
    Moved,
    /// The leader of the old name is told that the file has come.
    Arrived { from: FileName, token: Version, request: Option<u64> },
}

impl Op {
    /// The name that it is about; none, for what is about all of them.
    fn name(&self) -> Option<&FileName> {
        match self {
            Op::Create { name, .. } | Op::Replace { name, .. } | Op::Remove { name, .. } | Op::Stat { name } => {
                Some(name)
            }
            Op::Rename { to, .. } => Some(to),
            Op::List { .. } | Op::Recover { .. } => None,
        }
    }
}

impl Node {
    /// A client wants something.
    pub(crate) fn asked(&mut self, request: u64, op: Op, turn: &mut Turn) {
        self.asked += 1;
        let Some(place) = &self.place else {
            return self.answer(request, Err(Refusal::OtherView { view: 0 }), turn);
        };
        let Some(name) = op.name() else { return self.asked_of_all(request, op, turn) };
        let (leader, view) = (place.ring.leader(name), place.view.number);
        if leader != self.config.node {
            return self.answer(request, Err(Refusal::NotLeader { leader, view }), turn);
        }
        if self.asked > MAX_ASKED {
            return self.answer(request, Err(Refusal::Busy), turn);
        }
        match self.work.get_mut(name) {
            Some(work) => work.waiting.push_back((request, op)),
            None => self.do_next(&name.clone(), [(request, op)].into(), turn),
        }
    }

    fn asked_of_all(&mut self, request: u64, op: Op, turn: &mut Turn) {
        match op {
            Op::List { view, folder, after, most } => self.list(request, view, (&folder, &after), most, turn),
            Op::Recover { without, now_s } => self.recover(request, &without, now_s, turn),
            _ => unreachable!("{op:?} is of a name"),
        }
    }

    /// Does what waits in line for a name to which nothing is being done.
    fn do_next(&mut self, name: &FileName, mut waiting: VecDeque<(u64, Op)>, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let partition = place.ring.partition(name);
        while let Some((request, op)) = waiting.pop_front() {
            if !self.answers(partition, turn.now_us) {
                self.answer(request, Err(Refusal::NotYet), turn);
                continue;
            }
            let stored = turn.disk.get(partition, name);
            if let Some(moving) = stored.as_ref().and_then(Moving::of) {
                waiting.push_front((request, op));
                self.start(name, Doing::Moving(moving), waiting, turn);
                return;
            }
            let is_leaving = |stored: &Stored| matches!(stored.entry, Entry::Departed { .. });
            if matches!(op, Op::Create { .. } | Op::Rename { .. }) && stored.as_ref().is_some_and(is_leaving) {
                waiting.push_front((request, op));
                self.start(name, Doing::Leaving, waiting, turn);
                return;
            }
            match self.decide(request, op, stored.as_ref()) {
                Ok((entry, then)) => {
                    let writing = self.writing(partition, entry, stored, then);
                    self.start(name, Doing::Writing(Box::new(writing)), waiting, turn);
                    return;
                }
                Err(answer) => self.answer(request, answer, turn),
            }
        }
    }

    /// What is to be written for a request, or the answer to it.
    fn decide(&self, request: u64, op: Op, stored: Option<&Stored>) -> Result<(Entry, Then), Result<Answer, Refusal>> {
        let file = stored.and_then(|stored| Some((stored.version, stored.entry.file()?)));
        let done = |dropped| Then::Done { request: Some(request), dropped };
        match (op, file) {
            (Op::Stat { .. }, Some((version, record))) => Err(Ok(Answer::Found { version, record: record.clone() })),
            (Op::Create { record, .. }, Some((version, present))) => Err(if present.id == record.id {
                Ok(Answer::Done { version })
            } else {
                Err(Refusal::Exists { id: present.id })
            }),
            (Op::Create { record, .. }, None) => match stored.map(|stored| &stored.entry) {
                // It was here, and this request comes late.
                Some(Entry::Removed { id, .. }) if *id == record.id => Err(Err(Refusal::Changed)),
                _ => Ok((Entry::File(record), done(BTreeMap::new()))),
            },
            (Op::Replace { record, .. }, Some((version, present))) if *present == record => {
                Err(Ok(Answer::Done { version }))
            }
            (Op::Replace { version, record, .. }, Some((is, present))) if is == version => {
                let dropped = dropped(present, Some(&record));
                Ok((Entry::File(record), done(dropped)))
            }
            (Op::Remove { id, .. }, Some((_, present))) if present.id == id => {
                Ok((Entry::Removed { id, is_gone: true }, done(dropped(present, None))))
            }
            (Op::Replace { .. } | Op::Remove { .. }, Some(_)) => Err(Err(Refusal::Changed)),
            (Op::Remove { id, .. }, None) => match stored {
                Some(Stored { version, entry: Entry::Removed { id: removed, is_gone: true } }) if *removed == id => {
                    Err(Ok(Answer::Done { version: *version }))
                }
                _ => Err(Err(Refusal::NotFound)),
            },
            (Op::Rename { id, .. }, Some((version, present))) => Err(if present.id == id {
                Ok(Answer::Done { version })
            } else {
                Err(Refusal::Exists { id: present.id })
            }),
            (Op::Rename { from, version, id, .. }, None) => {
                Ok((Entry::Arriving { from, version, id }, Then::Move { request }))
            }
            (Op::Stat { .. } | Op::Replace { .. }, None) => Err(Err(Refusal::NotFound)),
            (Op::List { .. } | Op::Recover { .. }, _) => unreachable!("they are of no name"),
        }
    }

    fn writing(&mut self, partition: u16, entry: Entry, before: Option<Stored>, then: Then) -> Writing {
        let round = self.round();
        let leading = self.leading.get_mut(&partition).expect("only leaders write");
        leading.sequence += 1;
        let version = Version { round, sequence: leading.sequence };
        Writing { stored: Stored { version, entry }, before, acks: [self.config.node].into(), then }
    }

    /// Writes to a name to which nothing else is being done; tells as which version.
    pub(crate) fn put(&mut self, name: &FileName, entry: Entry, then: Then, turn: &mut Turn) -> Version {
        let place = self.place.as_ref().expect("who serves a name has a view");
        let partition = place.ring.partition(name);
        let waiting = self.work.remove(name).map_or_else(VecDeque::new, |work| work.waiting);
        let before = turn.disk.get(partition, name);
        let writing = self.writing(partition, entry, before, then);
        let version = writing.stored.version;
        self.start(name, Doing::Writing(Box::new(writing)), waiting, turn);
        version
    }

    pub(crate) fn start(&mut self, name: &FileName, doing: Doing, waiting: VecDeque<(u64, Op)>, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let partition = place.ring.partition(name);
        if let Doing::Writing(writing) = &doing {
            turn.disk.save(partition, name, writing.stored.clone());
        }
        self.work.insert(name.clone(), Work { partition, doing, waiting, asked_us: turn.now_us });
        self.ask_for(name, turn);
        self.commit_if_written(name, turn);
    }

    /// Asks others to take part in what is being done to a name.
    fn ask_for(&mut self, name: &FileName, turn: &mut Turn) {
        let round = self.round();
        let (Some(place), Some(work)) = (&self.place, self.work.get_mut(name)) else { return };
        let partition = work.partition;
        work.asked_us = turn.now_us;
        match &work.doing {
            Doing::Writing(writing) => {
                let Writing { stored, acks, .. } = &**writing;
                let body = Body::Write { partition, round, name: name.clone(), stored: stored.clone() };
                let replicas = place.ring.replicas(partition).iter();
                let lacking: Vec<NodeId> = replicas.filter(|node| !acks.contains(node)).copied().collect();
                lacking.into_iter().for_each(|node| self.send(node, body.clone(), turn));
            }
            Doing::Moving(moving) => {
                let (leader, body) = (place.ring.leader(&moving.from), moving.asked(name));
                self.send(leader, body, turn);
            }
            Doing::Leaving => {
                if let Some(Stored { entry, .. }) = turn.disk.get(partition, name) {
                    self.tell_moved(name, &entry, turn);
                }
            }
        }
    }

    /// A replica has written.
    pub(crate) fn written(&mut self, from: NodeId, name: &FileName, version: Version, turn: &mut Turn) {
        let Some(Work { doing: Doing::Writing(writing), .. }) = self.work.get_mut(name) else { return };
        if writing.stored.version == version {
            writing.acks.insert(from);
            self.commit_if_written(name, turn);
        }
    }

    fn commit_if_written(&mut self, name: &FileName, turn: &mut Turn) {
        let (Some(place), Some(work)) = (&self.place, self.work.get(name)) else { return };
        let Doing::Writing(writing) = &work.doing else { return };
        if writing.acks.len() < place.write_quorum(work.partition) {
            return;
        }
        let Some(Work { doing: Doing::Writing(writing), waiting, .. }) = self.work.remove(name) else { return };
        let Writing { stored: Stored { version, entry }, then, .. } = *writing;
        match then {
            Then::Done { request, dropped } => {
                self.answer_if(request, Ok(Answer::Done { version }), turn);
                dropped.into_iter().for_each(|(node, objects)| self.send(node, Body::Drop(objects), turn));
            }
            Then::Refuse { request, refusal } => self.answer_if(request, Err(refusal), turn),
            Then::Arrived { from, token, request } => {
                self.answer_if(request, Ok(Answer::Done { version }), turn);
                self.tell_arrived(from, token, turn);
            }
            Then::Moved => self.tell_moved(name, &entry, turn),
            Then::Move { request } => {
                let mut moving = Moving::of(&Stored { version, entry }).expect("it was written for that");
                moving.request = Some(request);
                return self.start(name, Doing::Moving(moving), waiting, turn);
            }
        }
        self.do_next(name, waiting, turn);
    }

    /// Asks again where no answer came.
    pub(crate) fn work_again(&mut self, turn: &mut Turn) {
        let is_due = |work: &Work| turn.now_us >= work.asked_us + self.config.resend_us;
        let due: Vec<FileName> =
            self.work.iter().filter(|(_, work)| is_due(work)).map(|(name, _)| name.clone()).collect();
        due.iter().for_each(|name| self.ask_for(name, turn));
    }

    /// A view has begun: what is being done to names that are not served any more is left to who serves them.
    pub(crate) fn leave_work(&mut self, turn: &mut Turn) {
        let goes_on =
            |name: &FileName| self.place.as_ref().is_some_and(|place| self.serves(place.ring.partition(name)));
        let left: Vec<FileName> = self.work.keys().filter(|name| !goes_on(name)).cloned().collect();
        for name in left {
            let Work { doing, waiting, .. } = self.work.remove(&name).expect("it was just there");
            self.answer_if(doing.request(), Err(Refusal::Unknown), turn);
            waiting.into_iter().for_each(|(request, _)| self.answer(request, Err(Refusal::NotYet), turn));
        }
        let me = self.config.node;
        for work in self.work.values_mut() {
            // Those who have it must have it in this view.
            work.asked_us = 0;
            if let Doing::Writing(writing) = &mut work.doing {
                writing.acks = [me].into();
            }
        }
        // Where nobody else is left, that is all.
        let going_on: Vec<FileName> = self.work.keys().cloned().collect();
        going_on.iter().for_each(|name| self.commit_if_written(name, turn));
    }

    pub(crate) fn validate_work(&self) {
        let mut asked = 0;
        for (name, Work { partition, doing, waiting, .. }) in &self.work {
            assert!(self.serves(*partition), "{name} is changed by who does not serve it");
            asked += usize::from(doing.request().is_some()) + waiting.len();
            let is_for_it = |(_, op): &(u64, Op)| op.name() == Some(name);
            assert!(waiting.iter().all(is_for_it), "{name}: a request waits in the wrong line");
        }
        assert_eq!(asked, self.asked, "requests are answered or in line");
        assert!(asked <= MAX_ASKED);
    }

    fn answer_if(&mut self, request: Option<u64>, answer: Result<Answer, Refusal>, turn: &mut Turn) {
        if let Some(request) = request {
            self.answer(request, answer, turn);
        }
    }

    pub(crate) fn answer(&mut self, request: u64, answer: Result<Answer, Refusal>, turn: &mut Turn) {
        self.asked -= 1;
        turn.disk.effects.push(Effect::Answer { request, answer });
    }
}

impl Doing {
    /// Who waits for it.
    fn request(&self) -> Option<u64> {
        match self {
            Doing::Moving(moving) => moving.request,
            Doing::Leaving => None,
            Doing::Writing(writing) => match &writing.then {
                Then::Done { request, .. } | Then::Refuse { request, .. } | Then::Arrived { request, .. } => *request,
                Then::Move { request } => Some(*request),
                Then::Moved => None,
            },
        }
    }

    /// What is shown meanwhile, if something is being written.
    pub fn before(&self) -> Option<Option<&Stored>> {
        match self {
            Doing::Writing(writing) => Some(writing.before.as_ref()),
            Doing::Moving(_) | Doing::Leaving => None,
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
