//! What dispatchers' deciders are told, and how the effects are performed: messages to executors,
//! entries of journals, and timeouts.

use eyas_dispatch::Effect;
use eyas_jobs::{Event as JobsEvent, JobsAction, JournalRecord};
use eyas_sched::{Event, PlacementCommand};
use eyas_types::ExecutorId;

use super::Dispatchers;
use super::dispatcher::Dispatcher;
use crate::run::event::{Departure, ExecutorEvent, SimEvent};
use crate::run::journal::WRITTEN_AFTER_NS;
use crate::run::push::Push;
use crate::run::world::{DispatcherInputs, World};

impl Dispatchers<'_> {
    /// Passes an event to `core/jobs`, and performs the effects.
    pub fn tell_jobs(&mut self, number: usize, event: JobsEvent, world: &mut World) {
        self.all[number].tell_jobs(event);
        self.perform_effects(number, world);
        self.report_moves_of_leaving(number, world);
        let dispatcher = &mut self.all[number];
        let now = world.agenda.now();
        if dispatcher.have_tasks_ended() {
            world.metrics.ends(now);
        }
        if let Some(due) = dispatcher.next_due(now) {
            let dispatcher = number as u32;
            world.agenda.schedule(due, SimEvent::JobsTimeout { dispatcher });
        }
    }

    /// Passes an event to the scheduler, and performs the effects.
    pub(super) fn tell_scheduler(&mut self, number: usize, event: Event, world: &mut World) {
        self.pass_to_scheduler(number, event, world);
        self.perform_effects(number, world);
    }

    /// Tells `core/jobs` how many objects are still being moved away from each leaving executor. An
    /// executor may leave when there are none.
    pub(super) fn report_moves_of_leaving(&mut self, number: usize, world: &mut World) {
        for executor in self[number].jobs().leaving().collect::<Vec<ExecutorId>>() {
            let objects = self[number].scheduler().moving_from(executor);
            self.all[number].tell_jobs(JobsEvent::Moving { executor, objects });
            self.perform_effects(number, world);
        }
    }

    /// Handles a timeout of `core/jobs`.
    pub fn jobs_timeout(&mut self, number: usize, world: &mut World) {
        if self.all[number].take_due(world.agenda.now()) {
            self.tell_jobs(number, JobsEvent::Flush, world);
        }
    }

    /// All objects are pushed to all nodes, if the policies say so.
    pub fn begin_push(&mut self, world: &mut World) {
        let Some(push) = &self.push else { return };
        for (number, event) in push.begin(world.setup).into_iter().enumerate() {
            self.tell_scheduler(number, event, world);
        }
    }

    /// Whether tasks wait until all nodes have all objects.
    pub fn are_pushing_first(&self) -> bool {
        self.push.as_ref().is_some_and(Push::is_first)
    }

    /// Writes the accumulated results of a dispatcher, unless others are being written.
    pub fn write_results(&mut self, number: usize, world: &mut World) {
        if self.all[number].take_results() {
            self.tell_jobs(number, JobsEvent::Flush, world);
        }
    }

    /// The oldest entry in flight is on disk. Returns `false` if the dispatcher has died since it
    /// was written.
    pub fn on_disk(&mut self, number: usize, deaths: u32) -> bool {
        let journal = &mut self.all[number].journal;
        if journal.deaths() != deaths {
            return false;
        }
        let entry = journal.arrived();
        if let Some(audit) = &mut self.audit {
            audit.acknowledged(number, &entry);
        }
        true
    }

    // ---- effects

    fn pass_to_scheduler(&mut self, number: usize, event: Event, world: &World) {
        let now_us = world.agenda.now_us();
        self.count_waiting(number, |dispatcher| dispatcher.tell_scheduler(now_us, event));
    }

    /// Performs the outstanding effects of a dispatcher's deciders.
    fn perform_effects(&mut self, number: usize, world: &mut World) {
        while let Some(effect) = self.next_effect(number, world) {
            match effect {
                Effect::Scheduler(command) => self.perform_command(number, command, world),
                Effect::Jobs(action) => self.perform_action(number, action, world),
            }
        }
    }

    fn next_effect(&mut self, number: usize, world: &World) -> Option<Effect> {
        let World { setup, tasks, .. } = world;
        let inputs = DispatcherInputs { dispatcher: number, setup, tasks };
        let now_us = world.agenda.now_us();
        self.count_waiting(number, |dispatcher| dispatcher.next_effect(now_us, &inputs))
    }

    /// Counts the tasks that begin or cease to wait at a dispatcher.
    fn count_waiting<T>(&mut self, number: usize, change: impl FnOnce(&mut Dispatcher) -> T) -> T {
        let dispatcher = &mut self.all[number];
        self.waiting -= dispatcher.scheduler().waiting();
        let answer = change(dispatcher);
        self.waiting += dispatcher.scheduler().waiting();
        answer
    }

    fn perform_command(&mut self, number: usize, command: PlacementCommand, world: &mut World) {
        use PlacementCommand as Command;
        let plan = &world.setup.plan;
        let (executor, what) = match command {
            Command::Assign { executor, task, attempt, hints, .. } => {
                let now = world.agenda.now();
                self.all[number].decide(world.setup.cluster.decision_ns, now);
                if let Some(audit) = &mut self.audit {
                    audit.assigned(number, task.index);
                }
                let task = plan.number(number, task);
                world.tasks.assign(task, hints, attempt, now);
                self.task_assigned(executor.0);
                (executor, ExecutorEvent::Assigned { task })
            }
            Command::Recall { executor, task } => {
                (executor, ExecutorEvent::Recall { task: plan.number(number, task) })
            }
            Command::Cancel { executor, task } => {
                (executor, ExecutorEvent::Cancel { task: plan.number(number, task) })
            }
            Command::Hold { executor, object, holders } => {
                let object = plan.outputs.object_of(object);
                world.holds.insert(executor.0, object, holders);
                (executor, ExecutorEvent::Hold { object })
            }
            Command::Release { executor, object } => {
                (executor, ExecutorEvent::Release { object: plan.outputs.object_of(object) })
            }
            Command::Verify { executor, object } => {
                (executor, ExecutorEvent::Verify { object: plan.outputs.object_of(object) })
            }
            Command::Derive { executor, object, holders, .. } => {
                let copy = plan.outputs.object_of(object);
                world.holds.insert(executor.0, copy, holders);
                (executor, ExecutorEvent::Derive { copy })
            }
            Command::Pushed { push } => {
                self.pushed(world);
                return self.pass_to_scheduler(number, Event::PushEnded { push }, world);
            }
        };
        self.send(number, SimEvent::AtExecutor { executor: executor.0, what }, world);
    }

    fn perform_action(&mut self, number: usize, action: JobsAction, world: &mut World) {
        use JobsAction as Action;
        match action {
            Action::Stop { executor } => {
                let how = Departure::Stops;
                self.send(number, SimEvent::Goes { executor: executor.0, how }, world);
            }
            Action::Write(record) => self.write(number, record, world),
            // No client watches the job, and objects are pushed as `Policies` say.
            Action::Show { .. }
            | Action::Broadcast { .. }
            | Action::EndBroadcast { .. }
            | Action::Forget { .. } => {}
            Action::SetAside { .. } | Action::TakenBack { .. } => {}
            // An executor has all inputs of a task from the moment of its assignment.
            Action::Replaced { .. } => {}
            Action::ReadResult { .. } | Action::Check { .. } => {
                unreachable!("jobs do not reuse results")
            }
            Action::Claimed { .. } => unreachable!("outputs of tasks are at places of their own"),
            Action::Deliver { .. } | Action::NotExtended { .. } | Action::Detached { .. } => {
                unreachable!("no job is attached to a client")
            }
        }
    }

    /// The push to the nodes of one dispatcher has ended.
    fn pushed(&mut self, world: &mut World) {
        let Some(push) = &mut self.push else { return };
        if push.end_of_dispatcher() {
            if push.is_first() {
                world.tasks.await_arrival(&mut world.agenda);
            }
            self.push = None;
        }
    }

    /// A dispatcher writes a record to its journal.
    fn write(&mut self, number: usize, record: JournalRecord, world: &mut World) {
        if let (Some(audit), JournalRecord::Entry { entry, .. }) = (&mut self.audit, &record) {
            audit.written(number, entry);
        }
        let journal = &mut self.all[number].journal;
        if journal.write(record) {
            let (dispatcher, deaths) = (number as u32, journal.deaths());
            let on_disk = SimEvent::OnDisk { dispatcher, deaths };
            world.agenda.schedule_after(WRITTEN_AFTER_NS, on_disk);
        }
    }

    /// Sends a dispatcher's decision to an executor.
    fn send(&mut self, number: usize, message: SimEvent, world: &mut World) {
        let leaves_at = self[number].sends_at(world.agenda.now());
        world.agenda.schedule(leaves_at + world.setup.cluster.message_ns, message);
    }
}
