//! Runs the two deciders: tells them events, and carries out their effects. `core/dispatch` passes
//! on what one says to the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use eyas_dispatch::{Effect, PlacementInputs};
use eyas_jobs::{self as jobs, Jobs, JobsAction};
use eyas_sched::{Event, Hint, MAX_HINTS, PlacementCommand, Scheduler};
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, Input, JobId, Name, ObjectId, ObjectSpec, Outcome, TaskId};
use eyas_wire::client::TaskResult;
use eyas_wire::executor::{AssignedInput, Assignment, CopyHint, INPUTS_PART, PeerHint, ToExecutor};
use eyas_wire::frame::{FULL_FRAME_BYTES, in_parts_of};
use eyas_wire::{MINOR_OF_COPIES, MINOR_OF_DERIVED, MINOR_OF_FAILURES, MINOR_OF_NAMES};

use super::DispatcherCore;
use crate::answers::ResultReader;
use crate::copies::{CopyToRead, copies_of};
use crate::events::NewEvent;
use crate::names::PlacesForReader;
use crate::outgoing::{AssignmentInParts, AssignmentPart};
use crate::service::deliveries::JobDelivery;

/// Fetches that are ended in one turn of the core.
const FETCHES_PART: usize = 16_384;

/// Why each input of an assigned task has an object.
const HAS_ALL_INPUTS: &str = "only a task with all its inputs is set free";

/// A task with more inputs is not placed by derived copies of them: few of its inputs are copies.
const MAX_INPUTS_WITH_COPIES: usize = 1024;

/// A task is placed by its inputs, by a chunk of each input that is a file of several chunks, and
/// by the derived copies that it reads.
struct InputsAndParts;

impl PlacementInputs for InputsAndParts {
    fn complete(
        &self,
        task: TaskId,
        inputs: Arc<[(ObjectId, u64)]>,
        jobs: &Jobs,
        scheduler: &mut Scheduler,
    ) -> Arc<[(ObjectId, u64)]> {
        let Some(job) = jobs.get(task.job) else { return inputs };
        let chunks = &job.spec.chunks;
        let reads_copies = job.spec.reads_copies && inputs.len() <= MAX_INPUTS_WITH_COPIES;
        if chunks.is_empty() && !reads_copies {
            return inputs;
        }
        let mut copies = Vec::new();
        if reads_copies {
            for CopyToRead { copy, source, source_bytes, packed, .. } in copies_of(job, task.index)
            {
                copies.push((copy, scheduler.name_copy(copy, (source, packed), source_bytes)));
                // Until it is packed, it counts as an empty object.
                let named = |packed| (packed, scheduler.name_copy(packed, (source, None), 0));
                copies.extend(packed.map(named));
            }
        }
        let with_chunks =
            inputs.iter().filter_map(|(object, _)| Some((*object, chunks.get(object)?)));
        let choose =
            |(object, chunks): (_, &Vec<_>)| scheduler.part_for_placement(task.job, object, chunks);
        let near: Vec<_> = with_chunks.filter_map(choose).collect();
        let mut inputs: Vec<_> = inputs.iter().copied().chain(near).chain(copies).collect();
        inputs.sort_unstable();
        inputs.dedup_by_key(|(object, _)| *object);
        inputs.into()
    }
}

impl DispatcherCore {
    /// Tells the decider of jobs what happened, and does what follows.
    pub(crate) fn tell_jobs(&mut self, event: jobs::Event) {
        self.exchange.tell_jobs(event);
        self.work_off();
    }

    /// Tells the scheduler what happened, and does what follows.
    pub(crate) fn tell_scheduler(&mut self, event: Event) {
        self.exchange.tell_scheduler(
            self.clock.now_us(),
            event,
            &mut self.jobs,
            &mut self.scheduler,
        );
        self.work_off();
    }

    /// Does what the deciders have said. What they say meanwhile waits for its turn.
    fn work_off(&mut self) {
        if std::mem::replace(&mut self.is_at_work, true) {
            return;
        }
        loop {
            let DispatcherCore { exchange, clock, jobs, scheduler, .. } = self;
            let Some(effect) = exchange.next(clock.now_us(), jobs, scheduler, &InputsAndParts)
            else {
                break;
            };
            self.perform(effect);
        }
        self.reused_results = ResultReader::in_full();
        self.is_at_work = false;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Scheduler(command) => self.perform_command(command),
            Effect::Jobs(action) => self.perform_action(action),
        }
    }

    fn perform_command(&mut self, command: PlacementCommand) {
        use PlacementCommand as Command;
        match command {
            Command::Assign { executor, task, attempt, .. }
                if let Some(lacking) = self.lacking(executor, task) =>
            {
                let name = self.executors.name(executor);
                let reason = format!(
                    "{name} runs an earlier version of eyas, which does not {lacking}: start it \
                     with the version of the dispatcher"
                );
                let outcome = Box::new(Outcome::failed(FailureKind::Node, reason));
                self.exchange.tell_jobs(jobs::Event::TaskEnded {
                    executor,
                    task,
                    attempt,
                    outcome,
                });
            }
            Command::Assign { executor, task, attempt, in_parts: true, .. } => {
                self.assign_in_parts(executor, task, attempt);
            }
            Command::Assign { executor, task, attempt, hints, .. } => {
                self.assign(executor, task, attempt, &hints)
            }
            Command::Recall { executor, task } => {
                self.end_try(executor, task, ToExecutor::Recall { task })
            }
            Command::Cancel { executor, task } => {
                self.end_try(executor, task, ToExecutor::Cancel { task })
            }
            Command::Hold { executor, object, holders } => {
                self.have_held(executor, object, &holders)
            }
            Command::Derive { executor, object, size_bytes, holders } => {
                let holders = self.executors.where_to_ask(&holders);
                self.executors.send(executor, ToExecutor::Derive { object, size_bytes, holders })
            }
            Command::Release { executor, object } => {
                self.executors.send(executor, ToExecutor::Release { object })
            }
            Command::Verify { executor, object } => {
                self.executors.send(executor, ToExecutor::Verify { object })
            }
            Command::Pushed { push } => self.pushes.is_over(push),
        }
    }

    fn perform_action(&mut self, action: JobsAction) {
        use JobsAction as Action;
        match action {
            Action::Stop { executor } => self.executors.send(executor, ToExecutor::Stop),
            Action::SetAside { executor } => {
                let name = self.executors.name(executor);
                let until_us = self.jobs.set_aside_until(executor).unwrap_or_default();
                let minutes = until_us.saturating_sub(self.clock.now_us()).div_ceil(60_000_000);
                tracing::warn!(
                    "executor {name} is set aside for {minutes} min: tasks failed on it one after \
                     the other that other executors completed; look at its node's disk, mounts \
                     and software"
                );
                let what = format!(
                    "is set aside for {minutes} min, because tasks failed on it one after the \
                     other"
                );
                self.add_executor_event(executor, "executor-set-aside", &what);
            }
            Action::TakenBack { executor } => {
                tracing::info!("executor {} is given tasks again", self.executors.name(executor));
                self.add_executor_event(executor, "executor-returned", "is given tasks again");
            }
            Action::Write(record) => self.write(record),
            Action::Deliver { job, results } => self.deliver(job, results),
            Action::NotExtended { job, why } => {
                self.attached.end_with(job, JobDelivery::Refused(why.to_string()));
            }
            Action::Detached { summary } => self.detached(&summary),
            Action::Show { job } => self.show(job),
            Action::Broadcast { job } => self.broadcast(job),
            Action::EndBroadcast { job } => self.end_broadcast(job),
            Action::Forget { job } => {
                if let Some(ended) = self.jobs.get(job) {
                    let ended = NewEvent::end_of_job(job, &ended.spec.name, &ended.counts());
                    self.replies.add_event(ended);
                }
                self.executors.forget_job(job);
            }
            Action::ReadResult { task, earlier } => {
                let outcome = self.result_of(earlier).map(|result| Box::new(result.outcome));
                self.exchange.tell_jobs(jobs::Event::EarlierResult { task, earlier, outcome });
            }
            Action::Claimed { executor, task, by_other } => {
                self.executors.send(executor, ToExecutor::Claimed { task, by_other });
            }
            Action::Check { executor, task, objects } => {
                self.executors.send(executor, ToExecutor::Check { task, objects });
            }
            Action::Replaced { task, before } => self.executors.keep_replaced(task, &before),
        }
    }

    /// Pushes the inputs that every executor must have which may run the job's tasks.
    fn broadcast(&mut self, id: JobId) {
        let job = self.jobs.get(id).filter(|job| !job.has_ended());
        if let Some(push) = job.and_then(|job| self.pushes.begin_for_job(job)) {
            self.tell_scheduler(push);
        }
    }

    /// A job has ended, or is about to: nothing more is pushed for it.
    fn end_broadcast(&mut self, id: JobId) {
        if let Some(push) = self.pushes.of_job(id) {
            self.end_push(push);
        }
    }

    /// The result of a task that has ended, if it can be read.
    fn result_of(&mut self, task: TaskId) -> Option<TaskResult> {
        if let Err(e) = self.records.load_archived(task.job, &self.jobs) {
            tracing::warn!("the result of task {task} cannot be reused: {e}");
        }
        let job = self.records.job(task.job, &self.jobs)?;
        self.reused_results.last(&self.records, job, task.index).ok()?
    }

    fn assign(&mut self, executor: ExecutorId, task: TaskId, attempt: u32, hints: &[Hint]) {
        let job = self.jobs.get(task.job).expect("the scheduler knows tasks of known jobs only");
        let item = job.spec.items.get(task.index);
        // Hints name places in the list of ids, which is sorted and has each object once.
        let ids: Vec<ObjectId> = if hints.is_empty() {
            Vec::new()
        } else if job.spec.chunks.is_empty() && !job.spec.reads_copies {
            job.input_ids(&item).into_iter().map(|(object, _)| object).collect()
        } else {
            // Chunks and derived copies are among the inputs by which it was placed.
            self.scheduler.input_ids(task)
        };
        let holders_of = |object: ObjectId| {
            let hint = hints.binary_search_by_key(&object, |hint| ids[hint.input as usize]).ok();
            self.executors.where_to_ask(hint.map_or(&[], |hint| &hints[hint].holders))
        };
        let inputs = job.inputs_with_ids(&item).map(|(input, object)| {
            let (id, object) = object.expect(HAS_ALL_INPUTS);
            assigned_input(
                input,
                object,
                if hints.is_empty() { Vec::new() } else { holders_of(id) },
            )
        });
        let mut inputs = inputs.collect::<Vec<_>>().into_iter();
        let copies = self.copy_hints(executor, task, hints, &ids);
        let places = self.messages_of_places(executor, inputs.as_mut_slice());
        let template = item.template;
        self.send_template(executor, task.job, template);
        for message in places.into_iter().chain(copies) {
            self.executors.send(executor, message);
        }
        while inputs.len() > INPUTS_PART {
            let part = inputs.by_ref().take(INPUTS_PART).collect();
            self.executors.send(executor, ToExecutor::Inputs(part));
        }
        let assignment =
            Assignment { task, attempt, template, values: item.values, inputs: inputs.collect() };
        self.executors.send(executor, ToExecutor::Assign(assignment));
    }

    /// The message with hints about derived copies that a task reads, if there are any. `ids` are
    /// the objects that hints name.
    fn copy_hints(
        &self,
        executor: ExecutorId,
        task: TaskId,
        hints: &[Hint],
        ids: &[ObjectId],
    ) -> Option<ToExecutor> {
        let job = self.jobs.get(task.job).filter(|job| job.spec.reads_copies)?;
        if hints.is_empty() {
            return None;
        }
        self.executors.get(executor).filter(|entry| entry.minor >= MINOR_OF_COPIES)?;
        let hinted: BTreeMap<_, _> =
            hints.iter().map(|hint| (ids[hint.input as usize], &hint.holders)).collect();
        let hint = |copy: CopyToRead| {
            let object = copy.given();
            let holders = self.executors.where_to_ask(hinted.get(&object)?);
            let size_bytes = self.scheduler.explain_object(object)?.size_bytes;
            Some(CopyHint { object, size_bytes, holders })
        };
        let hints: Vec<_> = copies_of(job, task.index).into_iter().filter_map(hint).collect();
        (!hints.is_empty()).then_some(ToExecutor::Copies(hints))
    }

    /// The messages with the places of named inputs for an executor, if there are any. Each source
    /// is told once, and no message is much larger than a full frame.
    pub(super) fn messages_of_places(
        &mut self,
        executor: ExecutorId,
        inputs: &mut [AssignedInput],
    ) -> Vec<ToExecutor> {
        let mut of_sources = BTreeMap::<Name, Vec<Name>>::new();
        for input in inputs.iter_mut().filter(|input| input.object.is_named()) {
            let found = self.named_places(executor, &input.object, &mut input.holders);
            let places = of_sources.entry(input.object.source.clone()).or_default();
            // There are none for a version that the name no longer has.
            if places.is_empty() {
                *places = found;
            }
        }
        let size_of = |(source, places): &(Name, Vec<Name>)| {
            source.len() + places.iter().map(|place| place.len()).sum::<usize>()
        };
        let parts = in_parts_of(FULL_FRAME_BYTES, of_sources, size_of);
        parts.into_iter().map(ToExecutor::Places).collect()
    }

    /// The places of a named object, as an executor reads them. If another node has the file on
    /// its own disk, an executor there is the last holder: others may fail. If it does not hold the
    /// object, it puts the file into its store, and relays it.
    pub(super) fn named_places(
        &mut self,
        reader: ExecutorId,
        object: &ObjectSpec,
        holders: &mut Vec<PeerHint>,
    ) -> Vec<Name> {
        let PlacesForReader { places, on_disk_of } =
            self.names.places_for(reader, object, &self.executors);
        if let Some((owner, place)) = on_disk_of.filter(|_| self.caching) {
            let is_held = self.scheduler.holders(object.id()).any(|holder| holder == owner);
            if !is_held && self.own_disk_reads.insert((owner, object.id())) {
                let (object, places) = (object.clone(), vec![place]);
                let message = ToExecutor::HoldNamed { object, holders: Vec::new(), places };
                self.executors.send(owner, message);
            }
            let owner = eyas_sched::Holder { executor: owner, is_relay: !is_held, others: 0 };
            for owner in self.executors.where_to_ask(&[owner]) {
                if holders.iter().all(|other| other.transfer != owner.transfer) {
                    holders.truncate(MAX_HINTS - 1);
                    holders.push(owner);
                }
            }
        }
        places
    }

    /// What the task needs and the executor lacks, because it is of an earlier version.
    fn lacking(&self, executor: ExecutorId, task: TaskId) -> Option<&'static str> {
        let minor = self.executors.get(executor)?.minor;
        if minor >= MINOR_OF_NAMES {
            return None;
        }
        let job = self.jobs.get(task.job)?;
        let spec = &job.spec;
        let item = spec.items.get(task.index);
        let template = &spec.templates[usize::from(item.template)];
        let mut inputs = template.inputs.iter().chain(&item.inputs);
        if minor < MINOR_OF_FAILURES && template.delivers_after_failure() {
            return Some("deliver outputs of failed tasks");
        }
        if minor < MINOR_OF_DERIVED && inputs.any(Input::is_derived) {
            return Some("decompress or prepare inputs");
        }
        let mut objects = job.inputs_with_ids(&item).filter_map(|(_, object)| object);
        objects.any(|(_, object)| object.is_named()).then_some("read inputs by names (lfn://)")
    }

    /// Assigns a task with very many inputs, which are sent in later turns.
    fn assign_in_parts(&mut self, executor: ExecutorId, task: TaskId, attempt: u32) {
        let job = self.jobs.get(task.job).expect("the scheduler knows tasks of known jobs only");
        let item = job.spec.items.get(task.index);
        let entry = self.executors.get_mut(executor);
        let needs_template =
            entry.is_some_and(|entry| entry.lacks_template(task.job, item.template));
        self.executors
            .send_in_parts(executor, AssignmentInParts::new(task, attempt, item, needs_template));
    }

    /// Has an executor end a task or give it back. Where nothing of its assignment was sent,
    /// nothing is: the task comes back at once.
    fn end_try(&mut self, executor: ExecutorId, task: TaskId, message: ToExecutor) {
        match self.executors.withdraw_in_parts(executor, task) {
            Some(attempt) => {
                self.exchange.tell_jobs(jobs::Event::TaskReturned { executor, task, attempt })
            }
            None => self.executors.send(executor, message),
        }
    }

    /// Sends an executor a template that it lacks.
    fn send_template(&mut self, executor: ExecutorId, job: JobId, template: u16) {
        let Some(entry) = self.executors.get_mut(executor) else { return };
        if entry.lacks_template(job, template)
            && let Some(message) = self.template(job, template)
        {
            self.executors.send(executor, message);
        }
    }

    /// The message with a template.
    fn template(&self, job: JobId, template: u16) -> Option<ToExecutor> {
        let spec = Box::new(self.jobs.get(job)?.spec.templates[usize::from(template)].clone());
        Some(ToExecutor::Template { job, template, spec })
    }

    /// Whether something is done in parts, and is not at its end.
    pub(super) fn has_parts(&self) -> bool {
        self.scheduler.has_fetches_to_end() || self.executors.are_sent_in_parts()
    }

    /// Does the next part of what is done in parts: fetches for tasks that have left their
    /// executors are ended, then inputs are sent.
    pub(super) fn do_part(&mut self) {
        if self.scheduler.has_fetches_to_end() {
            return self.tell_scheduler(Event::EndFetches { objects: FETCHES_PART });
        }
        if let Some((executor, part)) = self.next_part() {
            self.executors.send_part(executor, part);
        }
    }

    /// The next part of an assignment that is sent in parts.
    fn next_part(&mut self) -> Option<(ExecutorId, AssignmentPart)> {
        let (executor, assignment) = self.executors.next_in_parts()?;
        let is_template_due = assignment.needs_template && assignment.sent == 0;
        let template = is_template_due
            .then(|| self.template(assignment.task.job, assignment.item.template))
            .flatten();
        // A job that is unknown was dropped with its executor, which is about to leave.
        let job = self.jobs.get(assignment.task.job);
        let rest =
            job.into_iter().flat_map(|job| job.inputs_from(&assignment.item, assignment.sent));
        let mut rest = rest.map(|(input, object)| {
            let replaced = input.from.output().and_then(|output| assignment.replaced.get(&output));
            let replaced = replaced.map(|(id, object)| (*id, object));
            (input, replaced.unwrap_or_else(|| object.expect(HAS_ALL_INPUTS)))
        });
        let part: Vec<_> = rest.by_ref().take(INPUTS_PART).collect();
        let is_last = rest.next().is_none();
        drop(rest);
        let ids: Vec<_> = part.iter().map(|(_, (id, object))| (*id, object.size_bytes())).collect();
        let hints = self.scheduler.hints_of_part(executor, assignment.task, &ids);
        let mut hints = hints.iter().peekable();
        let inputs = part.into_iter().enumerate().map(|(index, (input, (_, object)))| {
            let hint = hints.next_if(|hint| hint.input as usize == index);
            assigned_input(
                input,
                object,
                hint.map_or(Vec::new(), |hint| self.executors.where_to_ask(&hint.holders)),
            )
        });
        let mut inputs: Vec<_> = inputs.collect();
        let places = self.messages_of_places(executor, &mut inputs);
        Some((executor, AssignmentPart { template, places, inputs, is_last }))
    }

    /// Tells an executor to hold an object that is kept or pushed.
    fn have_held(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        holders: &[eyas_sched::Holder],
    ) {
        let Some(spec) = self.jobs.kept_spec(object).or_else(|| self.pushes.spec(object)).cloned()
        else {
            return;
        };
        // From now on, the scheduler has ordered it.
        self.own_disk_reads.remove(&(executor, object));
        let mut holders = self.executors.where_to_ask(holders);
        let knows_names =
            self.executors.get(executor).is_some_and(|entry| entry.minor >= MINOR_OF_NAMES);
        let message = if spec.is_named() && knows_names {
            let places = self.named_places(executor, &spec, &mut holders);
            ToExecutor::HoldNamed { object: spec, holders, places }
        } else {
            ToExecutor::Hold { object: spec, holders }
        };
        self.executors.send(executor, message);
    }

    /// Reports the objects that others still fetch from leaving executors. An executor without such
    /// objects leaves.
    pub(super) fn let_leave_those_that_may(&mut self) {
        for executor in self.jobs.leaving().collect::<Vec<_>>() {
            let objects = self.scheduler.moving_from(executor);
            self.tell_jobs(jobs::Event::Moving { executor, objects });
        }
    }
}

fn assigned_input(input: &Input, object: &ObjectSpec, holders: Vec<PeerHint>) -> AssignedInput {
    AssignedInput {
        object: object.clone(),
        part: input.from.part(),
        name: input.name.clone(),
        holders,
    }
}
