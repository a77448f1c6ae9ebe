//! The decider in a small world: a first-come scheduler, executors that come, go and hold objects,
//! clients, a journal, and dispatchers that die. Whatever the history, books agree after every
//! step, nothing written is lost, and all ends.

mod attached;
mod borrowing;
mod halting;
mod last_try;
mod left_out;
mod pushing;
mod queueing;
mod reuse;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::outcome::{Delivered, FailureKind};
use eyas_types::{
    AssignmentEnd, DeliverWhen, ExecutorId, FileMode, Input, InputFrom, JobId, ObjectId,
    ObjectSpec, Outcome, OutputSpec, Program, Resources, Status, TaskId, TaskItem, TaskTemplate,
    Template, Version,
};
use proptest::prelude::*;

use self::attached::extension;
use crate::{
    Config, Effect, Entry, Event, JobSnapshot, JobSpec, Jobs, JobsAction, JournalRecord, NewJob,
    Phase, RETURN_GRACE_US, Replay, SchedulerOrder,
};

/// Tasks that an executor has at a time.
const SLOTS: usize = 2;

/// A task ends without its output, which is optional.
const LEAVES_OUT: u8 = 5;

#[derive(Debug, Default)]
struct Executor {
    tasks: BTreeSet<TaskId>,
    held: BTreeSet<ObjectId>,
    is_idle: bool,
}

enum ToDo {
    Effect(Effect),
    Event(Event),
}

struct World {
    jobs: Jobs,
    now_us: u64,
    log: BTreeMap<JobId, (Arc<JobSpec>, Vec<Entry>)>,
    snapshots: BTreeMap<JobId, Arc<JobSnapshot>>,
    queue: VecDeque<TaskId>,
    executors: BTreeMap<ExecutorId, Executor>,
    joined: u32,
    kept: BTreeMap<ObjectId, bool>,
    to_cancel: BTreeSet<TaskId>,
    /// Tasks of attached jobs whose results their clients have; a job that is not here has been
    /// detached.
    delivered: BTreeMap<JobId, BTreeSet<u32>>,
    /// Tasks of attached jobs whose outputs their clients do not need any more.
    unneeded: BTreeSet<TaskId>,
    /// Jobs for which inputs are pushed.
    pushing: BTreeSet<JobId>,
    to_do: VecDeque<ToDo>,
    /// What executors and the journal are going to answer.
    answers: Vec<Event>,
}

/// Few ended jobs are in memory, and few tasks are queued by one event.
fn config() -> Config {
    Config { max_ended_in_memory: 1, inputs_at_once: 8, ..Config::default() }
}

impl World {
    fn new() -> Self {
        World {
            jobs: Jobs::new(config(), 1),
            now_us: 1,
            log: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            queue: VecDeque::new(),
            executors: BTreeMap::new(),
            joined: 0,
            kept: BTreeMap::new(),
            to_cancel: BTreeSet::new(),
            delivered: BTreeMap::new(),
            unneeded: BTreeSet::new(),
            pushing: BTreeSet::new(),
            to_do: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        self.to_do.push_back(ToDo::Event(event));
        let mut done = 0;
        while let Some(to_do) = self.to_do.pop_front() {
            done += 1;
            assert!(done < 10_000, "one event has no end of consequences");
            match to_do {
                ToDo::Effect(effect) => self.perform(effect),
                ToDo::Event(event) => {
                    let mut effects = Vec::new();
                    self.jobs.handle(self.now_us, event, &mut effects);
                    effects
                        .into_iter()
                        .rev()
                        .for_each(|effect| self.to_do.push_front(ToDo::Effect(effect)));
                }
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Action(JobsAction::Write(JournalRecord::Job { job, spec })) => {
                self.log.insert(job, (spec, Vec::new()));
                self.to_do.push_back(ToDo::Event(Event::Accepted { job }));
            }
            Effect::Action(JobsAction::Write(JournalRecord::Objects { job, current })) => {
                let spec =
                    &mut self.log.get_mut(&job).expect("a job is written before its objects").0;
                Arc::make_mut(spec).replace_objects(current);
            }
            Effect::Action(JobsAction::Write(JournalRecord::Entry { job, number, entry })) => {
                let entries =
                    &mut self.log.get_mut(&job).expect("a job is written before its entries").1;
                assert_eq!(entries.len() as u64, number, "entries have no gaps");
                entries.push((*entry).clone());
            }
            Effect::Action(JobsAction::Write(JournalRecord::Snapshot {
                job, snapshot, ..
            })) => {
                assert_eq!(
                    snapshot.entries(),
                    self.log[&job].1.len() as u64,
                    "all entries before it are covered"
                );
                assert!(
                    self.replay(job).job.snapshot().agrees_with(&snapshot),
                    "job {job} is not as it is written"
                );
                self.snapshots.insert(job, snapshot);
            }
            Effect::Action(JobsAction::Write(JournalRecord::Forget { job })) => {
                self.log.remove(&job);
                self.snapshots.remove(&job);
            }
            Effect::Action(JobsAction::Deliver { job, results }) => {
                let delivered =
                    self.delivered.get_mut(&job).expect("only attached jobs are delivered");
                delivered.extend(results.iter().map(|result| result.index));
            }
            Effect::Action(JobsAction::NotExtended { why, .. }) => {
                panic!("only sound extensions are made here: {why}")
            }
            Effect::Action(JobsAction::Detached { summary }) => {
                let delivered =
                    self.delivered.remove(&summary.job).expect("a job is detached once");
                assert_eq!(
                    delivered.len() as u64,
                    summary.counts.total(),
                    "every result was delivered"
                );
                assert!(self.jobs.get(summary.job).is_none());
            }
            Effect::Order(SchedulerOrder::Queue { task, .. }) => {
                assert!(!self.queue.contains(&task), "{task} is queued twice");
                assert!(
                    !self.executors.values().any(|by| by.tasks.contains(&task)),
                    "{task} is queued and assigned"
                );
                self.queue.push_back(task);
            }
            Effect::Order(SchedulerOrder::Withdraw { tasks }) => {
                self.queue.retain(|task| !tasks.contains(task))
            }
            Effect::Order(SchedulerOrder::Cancel { task }) => _ = self.to_cancel.insert(task),
            Effect::Order(SchedulerOrder::Drop { task }) => {
                self.executors.values_mut().for_each(|by| _ = by.tasks.remove(&task));
                // The order to cancel was for the executor that had the task.
                self.to_cancel.remove(&task);
            }
            Effect::Order(SchedulerOrder::Done { executor, task, ended, .. }) => {
                let by = self
                    .executors
                    .get_mut(&executor)
                    .expect("only executors that are here are done with tasks");
                assert!(
                    by.tasks.remove(&task),
                    "{executor} had done with {task}, which it did not have"
                );
                self.to_cancel.remove(&task);
                if ended != AssignmentEnd::Finished {
                    self.queue.push_front(task);
                }
            }
            Effect::Order(SchedulerOrder::Drain { executor }) => {
                if let Some(by) = self.executors.get_mut(&executor) {
                    by.is_idle = true;
                    by.held.clear();
                }
            }
            Effect::Order(SchedulerOrder::Left { executor }) => {
                let gone = self.executors.remove(&executor).expect("it was here");
                gone.tasks.iter().for_each(|task| _ = self.to_cancel.remove(task));
                gone.tasks.into_iter().for_each(|task| self.queue.push_front(task));
            }
            Effect::Order(SchedulerOrder::SetAside { executor }) => {
                self.executors.get_mut(&executor).expect("it is here").is_idle = true
            }
            Effect::Order(SchedulerOrder::TakeBack { executor }) => {
                self.executors.get_mut(&executor).expect("it is here").is_idle = false
            }
            Effect::Order(SchedulerOrder::Keep { object, .. }) => {
                _ = self.kept.entry(object).or_insert(true)
            }
            Effect::Order(SchedulerOrder::Release { object }) => _ = self.kept.remove(&object),
            Effect::Order(SchedulerOrder::Locate { objects }) => {
                self.to_do.push_back(ToDo::Event(Event::Located {
                    moving: Vec::new(),
                    nowhere: objects,
                }));
            }
            Effect::Action(JobsAction::ReadResult { task, earlier }) => {
                let outcome = self.result_of(earlier).map(Box::new);
                self.answers.push(Event::EarlierResult { task, earlier, outcome });
            }
            Effect::Action(JobsAction::Check { executor, task, .. }) => {
                let is_unchanged = task.index % 3 != 2;
                self.answers.push(Event::Checked { executor, task, is_unchanged });
            }
            Effect::Action(JobsAction::Claimed { .. }) => panic!("no task claims a place here"),
            Effect::Action(JobsAction::Broadcast { job }) => {
                assert!(self.pushing.insert(job), "what is pushed for job {job} is begun twice")
            }
            Effect::Action(JobsAction::EndBroadcast { job }) => {
                assert!(self.pushing.remove(&job), "nothing is pushed for job {job}")
            }
            Effect::Action(JobsAction::Show { .. })
            | Effect::Order(SchedulerOrder::Name { .. })
            | Effect::Order(SchedulerOrder::ForgetJob { .. })
            | Effect::Action(
                JobsAction::SetAside { .. }
                | JobsAction::TakenBack { .. }
                | JobsAction::Forget { .. },
            )
            | Effect::Action(JobsAction::Replaced { .. })
            | Effect::Order(SchedulerOrder::Evacuate)
            | Effect::Action(JobsAction::Stop { .. })
            | Effect::Order(SchedulerOrder::Verify { .. })
            | Effect::Order(SchedulerOrder::HoldAgain) => {}
        }
        self.note_held();
        self.place();
    }

    /// How a task ended last, as the journal says.
    fn result_of(&self, task: TaskId) -> Option<Outcome> {
        let pending = self.jobs.get(task.job).and_then(|job| job.pending_result(task.index));
        let entries = &self.log.get(&task.job)?.1;
        let written = entries.iter().rev().flat_map(|entry| entry.ends().iter().rev());
        let written = written.map(|end| &end.result).find(|result| result.index == task.index);
        pending.or(written).map(|result| result.outcome.clone())
    }

    /// Says which kept objects are lost and found.
    fn note_held(&mut self) {
        for (object, was_held) in &mut self.kept {
            let is_held = self.executors.values().any(|by| by.held.contains(object));
            if core::mem::replace(was_held, is_held) != is_held {
                let object = *object;
                let event = if is_held {
                    Event::ObjectFound { object }
                } else {
                    Event::ObjectLost { object }
                };
                self.to_do.push_back(ToDo::Event(event));
            }
        }
    }

    /// Gives waiting tasks to executors with room.
    fn place(&mut self) {
        for (executor, by) in &mut self.executors {
            while !by.is_idle
                && by.tasks.len() < SLOTS
                && let Some(task) = self.queue.pop_front()
            {
                let phase = self.jobs.table.phase(task);
                assert_eq!(phase, Some(Phase::Waiting), "{task} starts while it is {phase:?}");
                let job = self.jobs.get(task.job).expect("it waits");
                let item = job.spec.items.get(task.index);
                let is_complete = job.inputs(&item).all(|(_, object)| object.is_some());
                assert!(is_complete, "{task} starts without an input");
                by.tasks.insert(task);
                let mut effects = Vec::new();
                self.jobs.handle(
                    self.now_us,
                    Event::Assigned { task, executor: *executor },
                    &mut effects,
                );
                effects.into_iter().for_each(|effect| self.to_do.push_back(ToDo::Effect(effect)));
            }
        }
    }

    fn join(&mut self) {
        let executor = ExecutorId(self.joined);
        self.joined += 1;
        self.tell(Event::ExecutorJoined { executor, name: alloc::format!("n{}", executor.0) });
        self.executors.insert(executor, Executor::default());
        self.tell(Event::Flush);
        self.place();
        self.tell(Event::Flush);
    }

    fn lose(&mut self, executor: ExecutorId, is_loss: bool) {
        let tasks = self.executors[&executor].tasks.iter().copied().collect();
        let lost_with =
            is_loss.then(|| Resources { cpus_milli: 1000 * SLOTS as u32, ..Resources::default() });
        self.tell(Event::ExecutorGone { executor, tasks, lost_with, suspended: BTreeSet::new() });
    }

    /// Ends one of an executor's tasks.
    fn end(&mut self, executor: ExecutorId, task: TaskId, how: u8) {
        let outcome = match how {
            _ if self.to_cancel.contains(&task) => Outcome::of(Status::Cancelled),
            0 => Outcome::of(Status::Exited(1)),
            1 => Outcome::failed(FailureKind::Lost, "an input is gone"),
            2 => Outcome::of(Status::Cancelled),
            3 => return self.tell(Event::TaskReturned { executor, task, attempt: 0 }),
            LEAVES_OUT => Outcome::of(Status::Succeeded),
            _ => {
                // A task that runs again may write something else.
                let content = if how == 4 { "other content" } else { "content" };
                let mut object = ObjectSpec::kept(task, "out", 7, content, FileMode::READABLE);
                let job = self.jobs.get(task.job).expect("it runs");
                let output = job.template_at(task.index).outputs.first();
                if output.is_some_and(|output| output.replicas == 0) {
                    object.source = alloc::format!("file:///{content}").into();
                }
                let by = self.executors.get_mut(&executor).expect("it is here");
                if !by.is_idle && object.is_kept() {
                    by.held.insert(object.id());
                }
                self.note_held();
                Outcome {
                    outputs: vec![Delivered { output: 0, object, place: None }],
                    ..Outcome::of(Status::Succeeded)
                }
            }
        };
        self.tell(Event::TaskEnded { executor, task, attempt: 0, outcome: Box::new(outcome) });
    }

    /// The dispatcher dies and is started again. Executors lose what they run, and keep what they
    /// hold.
    fn restart(&mut self) {
        self.jobs = Jobs::new(config(), self.now_us);
        let executors = core::mem::take(&mut self.executors);
        (self.queue, self.kept, self.to_cancel, self.to_do) = Default::default();
        self.answers.clear();
        // Attached jobs are in no journal.
        self.delivered.clear();
        self.unneeded.clear();
        self.pushing.clear();
        for job in self.log.keys().copied().collect::<Vec<_>>() {
            self.load(job);
        }
        for gone in executors.into_values() {
            let executor = ExecutorId(self.joined);
            self.join();
            self.executors.get_mut(&executor).expect("it has joined").held = gone.held;
            self.note_held();
            self.tell(Event::Flush);
        }
    }

    /// All of a job's entries, read again.
    fn replay(&self, job: JobId) -> Replay {
        let (spec, entries) = &self.log[&job];
        let mut replay = Replay::new(job, (**spec).clone());
        entries.iter().for_each(|entry| replay.apply(entry.clone()));
        replay
    }

    /// Its last snapshot, and the entries after it.
    fn replay_from_snapshot(&self, job: JobId) -> Replay {
        let Some(snapshot) = self.snapshots.get(&job) else { return self.replay(job) };
        let (spec, entries) = &self.log[&job];
        let after = snapshot.entries() as usize;
        let replay = Replay::from_snapshot(job, (**spec).clone(), (**snapshot).clone());
        let mut replay = replay.expect("a snapshot of this job");
        entries[after..].iter().for_each(|entry| replay.apply(entry.clone()));
        replay
    }

    fn load(&mut self, job: JobId) {
        let replay = self.replay_from_snapshot(job);
        self.tell(Event::Recovered { replay: Box::new(replay) });
    }

    fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.tell(Event::Tick { capacity_milli: 1000, busy_milli: 0, watched: BTreeSet::new() });
        while self.jobs.has_more_to_queue() {
            self.tell(Event::QueueMore { tasks: 3 });
        }
    }

    /// All that is asked is answered.
    fn answer(&mut self) {
        while !self.answers.is_empty() {
            let answer = self.answers.remove(0);
            self.tell(answer);
        }
    }

    fn validate(&mut self) {
        self.tell(Event::Flush);
        self.tell(Event::Deliver);
        let mut placed: BTreeMap<TaskId, Option<ExecutorId>> =
            self.queue.iter().map(|task| (*task, None)).collect();
        for (executor, by) in &self.executors {
            placed.extend(by.tasks.iter().map(|task| (*task, Some(*executor))));
        }
        for job in self.jobs.all() {
            let is_held = |object| self.kept.contains_key(&object);
            assert!(
                job.has_ended() || job.borrowed().all(is_held),
                "job {} reads what need not be held",
                job.id
            );
            assert!(
                !job.has_ended() || !self.pushing.contains(&job.id),
                "inputs are pushed for job {}, which has ended",
                job.id
            );
            for (index, state) in job.tasks.iter().enumerate() {
                let task = job.task_id(index as u32);
                match state.phase {
                    Phase::Assigned => {
                        assert_eq!(placed.remove(&task), Some(state.executor), "{task}")
                    }
                    // It may wait for its turn in the first queueing, or to be offered again.
                    Phase::Waiting => {
                        assert!(matches!(placed.remove(&task), None | Some(None)), "{task}")
                    }
                    _ => assert_eq!(placed.remove(&task), None, "{task} is {:?}", state.phase),
                }
            }
            if job.spec.is_attached {
                let delivered = &self.delivered[&job.id];
                let have_ended = |index: &u32| job.tasks[*index as usize].phase.has_ended();
                let ended = (0..job.tasks.len() as u32).filter(have_ended);
                assert!(
                    ended.into_iter().all(|index| delivered.contains(&index)),
                    "each result is delivered at once"
                );
                continue;
            }
            let mut again = self.replay(job.id);
            let (live, read) = (job.snapshot(), again.job.snapshot());
            assert!(
                live.agrees_with(&read),
                "job {} is not as it is written:\n{live:?}\n{read:?}",
                job.id
            );
            let from_snapshot = self.replay_from_snapshot(job.id).job.snapshot();
            assert!(
                from_snapshot.agrees_with(&read),
                "its snapshot is another job:\n{from_snapshot:?}\n{read:?}"
            );
            for (live, read) in job.tasks.iter().zip(&*again.job.tasks) {
                assert_eq!(
                    live.phase.has_ended(),
                    read.phase.has_ended(),
                    "job {} is not as it is written",
                    job.id
                );
                assert!(!live.phase.has_ended() || live.phase == read.phase);
                assert_eq!(live.recomputed, read.recomputed);
            }
            assert_eq!(job.has_ended(), again.job.has_ended());
            let time_us = again.job.time_us(self.now_us);
            again.job.course.resume(time_us);
            if job.has_ended() {
                assert_eq!(job.samples(), again.job.samples());
                assert_eq!(
                    (job.metrics(0), job.time_us(0)),
                    (again.job.metrics(0), again.job.time_us(0))
                );
            }
        }
        assert!(placed.is_empty(), "these are queued or assigned, and of no job: {placed:?}");
    }
}

/// A job of tasks each of which may read the output of one before it.
fn job(readers: &[u8], retries: u32, until_read: bool) -> JobSpec {
    let mut template = TaskTemplate::new(Program::Noop);
    template.retries = retries;
    let (pattern, destination) = (Template::literal("out"), None);
    template.outputs.push(OutputSpec {
        pattern,
        destination,
        replicas: 1,
        until_read,
        optional: true,
        when: DeliverWhen::Success,
    });
    // Some jobs stop when their first tasks fail.
    let halts = readers.len().is_multiple_of(2);
    let mut spec = JobSpec { templates: vec![template], halts, ..JobSpec::default() };
    for (index, reads) in readers.iter().enumerate() {
        let input = |task| Input { from: InputFrom::Output { task, output: 0 }, name: None };
        let inputs = (*reads as usize).checked_rem(index + 1).filter(|task| *task < index);
        let inputs = inputs.map(|task| input(task as u32)).into_iter().collect();
        spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs }]).expect("few tasks");
    }
    spec.validate(&|_, _| Ok(None)).expect("a sound job");
    spec
}

/// The same, but it takes what earlier tasks wrote. If the outputs are stored, they are in
/// persistent storage.
fn reusing(readers: &[u8], is_stored: bool) -> JobSpec {
    let mut spec = job(readers, 1, false);
    spec.reuse = true;
    spec.templates[0].program = Program::Command(vec![Template::literal("write")]);
    if is_stored {
        let output = &mut spec.templates[0].outputs[0];
        (output.destination, output.replicas) = (Some(Template::parse("/out-{#}")), 0);
    }
    spec.validate(&|_, _| Ok(None)).expect("a sound job");
    spec
}

fn submitted(spec: JobSpec) -> Event {
    Event::Submitted { job: Box::new(NewJob::new(spec)) }
}

/// A job each of whose tasks reads one of these kept outputs of other jobs, and may read the output
/// of one before it.
fn borrower(lent: &[ObjectSpec], readers: &[u8], retries: u32) -> JobSpec {
    let mut spec = job(readers, retries, false);
    let mut items: Vec<_> =
        (0..spec.items.len() as u32).map(|index| spec.items.get(index)).collect();
    for (item, reads) in items.iter_mut().zip(readers) {
        let index = usize::from(*reads) % lent.len();
        item.inputs.push(Input { from: InputFrom::Object(index as u32), name: None });
    }
    spec.items = crate::Items::default();
    spec.push(&items).expect("few tasks");
    spec.push_objects(lent.to_vec()).expect("few objects");
    spec.validate(&|_, _| Ok(None)).expect("a sound job");
    spec
}

#[derive(Clone, Debug)]
enum Step {
    Attach,
    Extend(u8, Vec<u8>),
    Detach(u8, bool),
    Unneeded(u8, u8),
    Submit(Vec<u8>, u32, bool),
    Borrow(Vec<u8>, u32),
    Reuse(Vec<u8>, bool),
    Answer,
    Join,
    Lose(u8, bool),
    Leave(u8),
    End(u8, u8, u8),
    Evict(u8, u8),
    Cancel(u8, Option<u8>),
    Retry(u8),
    Release(u8),
    Forget(u8),
    Pass(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (any, pick) = (any::<u8>, any::<u8>);
    prop_oneof![
        2 => (prop::collection::vec(any(), 1..7), 0u32..3, prop::bool::ANY)
            .prop_map(|(r, n, u)| Step::Submit(r, n, u)),
        2 => (prop::collection::vec(any(), 1..5), 0u32..3)
            .prop_map(|(reads, retries)| Step::Borrow(reads, retries)),
        1 => (prop::collection::vec(any(), 1..5), prop::bool::ANY)
            .prop_map(|(r, s)| Step::Reuse(r, s)),
        4 => Just(Step::Answer),
        1 => Just(Step::Attach),
        4 => (pick(), prop::collection::vec(any(), 1..5))
            .prop_map(|(job, readers)| Step::Extend(job, readers)),
        1 => (pick(), prop::bool::ANY).prop_map(|(job, is_gone)| Step::Detach(job, is_gone)),
        4 => (pick(), pick()).prop_map(|(job, task)| Step::Unneeded(job, task)),
        2 => Just(Step::Join),
        1 => (pick(), prop::bool::ANY).prop_map(|(which, is_loss)| Step::Lose(which, is_loss)),
        1 => pick().prop_map(Step::Leave),
        12 => (pick(), pick(), 0u8..12).prop_map(|(by, task, how)| Step::End(by, task, how)),
        2 => (pick(), pick()).prop_map(|(by, object)| Step::Evict(by, object)),
        1 => (pick(), prop::option::of(pick())).prop_map(|(job, task)| Step::Cancel(job, task)),
        1 => pick().prop_map(Step::Retry),
        1 => pick().prop_map(Step::Release),
        1 => pick().prop_map(Step::Forget),
        3 => prop_oneof![Just(1), Just(100_000), Just(1_000_000), Just(RETURN_GRACE_US)]
            .prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ]
}

fn nth<T: Copy>(mut of: impl ExactSizeIterator<Item = T>, which: u8) -> Option<T> {
    let count = of.len();
    if count == 0 { None } else { of.nth(usize::from(which) % count) }
}

fn apply(world: &mut World, step: Step) {
    let executor = |world: &World, which| nth(world.executors.keys().copied(), which);
    let ids: Vec<JobId> = world.log.keys().copied().collect();
    match step {
        Step::Attach => {
            let job = world.jobs.next_job();
            world.tell(Event::Attached {
                spec: Box::new(JobSpec { is_attached: true, ..JobSpec::default() }),
            });
            world.delivered.insert(job, BTreeSet::new());
        }
        Step::Extend(which, readers) => {
            if let Some(job) = nth(world.delivered.keys().copied(), which) {
                let extension = extension(
                    world.jobs.get(job).expect("it is attached"),
                    &readers,
                    &world.unneeded,
                );
                world.tell(Event::Extended { job, extension: Box::new(extension) });
            }
        }
        Step::Detach(which, is_gone) => {
            let Some(job) = nth(world.delivered.keys().copied(), which) else { return };
            if is_gone {
                let tasks = 0..world.jobs.get(job).expect("it is attached").tasks.len() as u32;
                world.tell(Event::Cancel { job, tasks });
            }
            world.tell(Event::Closed { job });
        }
        Step::Unneeded(which, task) => {
            let Some(id) = nth(world.delivered.keys().copied(), which) else { return };
            let tasks = &world.jobs.get(id).expect("it is attached").tasks;
            let ended = (0..)
                .zip(&**tasks)
                .filter(|(_, state)| state.phase.has_ended())
                .map(|(index, _)| index);
            if let Some(task) = nth(ended.collect::<Vec<_>>().into_iter(), task) {
                world.unneeded.insert(TaskId { job: id, index: task });
                world.tell(Event::Unneeded { job: id, tasks: vec![task] });
            }
        }
        Step::Submit(readers, retries, until_read) => {
            world.tell(submitted(job(&readers, retries, until_read)));
            world.pass(1);
        }
        Step::Borrow(readers, retries) => {
            let lent = world.jobs.kept_objects().filter(|(object, _)| world.jobs.lends(*object));
            let lent: Vec<_> = lent.map(|(_, spec)| spec.clone()).take(3).collect();
            if !lent.is_empty() {
                world.tell(submitted(borrower(&lent, &readers, retries)));
                world.pass(1);
            }
        }
        Step::Reuse(readers, is_stored) => {
            world.tell(submitted(reusing(&readers, is_stored)));
            world.pass(1);
        }
        Step::Answer => world.answer(),
        Step::Join => world.join(),
        Step::Lose(which, is_loss) => {
            if let Some(executor) = executor(world, which) {
                world.lose(executor, is_loss);
            }
        }
        Step::Leave(which) => {
            if let Some(executor) = executor(world, which) {
                world.tell(Event::ExecutorLeaves { executor });
                world.tell(Event::Moving { executor, objects: 0 });
            }
        }
        Step::End(by, task, how) => {
            if let Some(executor) = executor(world, by)
                && let Some(task) = nth(world.executors[&executor].tasks.iter().copied(), task)
            {
                world.end(executor, task, how);
            }
        }
        Step::Evict(by, object) => {
            if let Some(executor) = executor(world, by)
                && let Some(object) = nth(world.executors[&executor].held.iter().copied(), object)
            {
                world.executors.get_mut(&executor).expect("found above").held.remove(&object);
                world.note_held();
                world.tell(Event::Flush);
            }
        }
        Step::Cancel(which, task) => {
            if let Some(job) = nth(ids.iter().copied(), which)
                && let Some(count) = world.jobs.get(job).map(|job| job.tasks.len() as u32)
            {
                let tasks = task
                    .map_or(0..count, |task| u32::from(task) % count..u32::from(task) % count + 1);
                world.tell(Event::Cancel { job, tasks });
            }
        }
        Step::Retry(which) | Step::Release(which) => {
            let Some(id) = nth(ids.iter().copied(), which) else { return };
            if world.jobs.is_archived(id) {
                world.load(id);
            }
            if let Some(job) = world.jobs.get(id)
                && job.has_ended()
            {
                let (job, is_released) = (job.id, job.is_released());
                match step {
                    Step::Retry(_) if !is_released => {
                        world.tell(Event::Retry { job, current: Vec::new() })
                    }
                    Step::Retry(_) => {}
                    _ => world.tell(Event::Release { job }),
                }
            }
        }
        Step::Forget(which) => {
            if let Some(job) = nth(ids.iter().copied(), which) {
                world.tell(Event::Forget { job });
                let is_running = world.jobs.get(job).is_some_and(|job| !job.has_ended());
                assert_eq!(
                    world.log.contains_key(&job),
                    is_running,
                    "only an ended job is forgotten"
                );
            }
        }
        Step::Pass(us) => world.pass(us),
        Step::Restart => world.restart(),
    }
    world.pass(0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn books_agree_after_every_step_nothing_written_is_lost_and_all_ends(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new();
        for step in steps {
            apply(&mut world, step);
            world.validate();
        }
        for job in world.delivered.keys().copied().collect::<Vec<_>>() {
            world.tell(Event::Closed { job });
        }
        world.validate();
        // In peace, everything ends.
        (0..2).for_each(|_| world.join());
        for _ in 0..300 {
            world.answer();
            let next = world
                .executors
                .iter()
                .find_map(|(executor, by)| Some((*executor, *by.tasks.first()?)));
            match next {
                Some((executor, task)) => world.end(executor, task, 9),
                None if world.jobs.all().all(|job| job.has_ended()) => break,
                None => world.pass(RETURN_GRACE_US),
            }
            world.pass(0);
            world.validate();
        }
        for job in world.jobs.all() {
            prop_assert!(job.has_ended(), "job {} does not end: {:?}", job.id, job.counts());
        }
    }
}

#[test]
fn the_journal_of_a_job_restores_its_state() {
    let mut world = World::new();
    apply(&mut world, Step::Submit(vec![0, 0, 1], 1, false));
    world.join();
    for _ in 0..3 {
        let task = *world.executors[&ExecutorId(0)].tasks.first().expect("one runs");
        world.end(ExecutorId(0), task, 9);
        world.validate();
    }
    let job = world.jobs.get(JobId(1)).expect("it was submitted");
    assert_eq!((job.has_ended(), job.counts().succeeded), (true, 3));
    let written: Vec<String> =
        world.log[&JobId(1)].1.iter().map(|entry| alloc::format!("{entry:?}")).collect();
    assert_eq!(written.iter().filter(|entry| entry.starts_with("Results")).count(), 3);
    world.restart();
    world.validate();
    assert_eq!(world.jobs.get(JobId(1)).map(|job| job.counts().succeeded), Some(3));
}

/// The order to cancel a task ends with the executor that had it: the task may be tried again.
#[test]
fn a_job_that_is_cancelled_as_its_executor_leaves_can_be_retried() {
    let mut world = World::new();
    for step in [
        Step::Submit(vec![0, 19], 0, false),
        Step::Join,
        Step::Cancel(72, None),
        Step::Lose(0, false),
        Step::Retry(0),
    ] {
        apply(&mut world, step);
        world.validate();
    }
    world.join();
    for index in 0..2 {
        world.end(ExecutorId(1), TaskId { job: JobId(1), index }, 9);
        world.validate();
    }
    let job = world.jobs.get(JobId(1)).expect("it is not archived yet");
    assert!(job.has_ended() && job.counts().succeeded == 2, "{:?}", job.counts());
}
