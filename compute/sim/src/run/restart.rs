//! Dispatchers that die and are started again. State that was not on disk is lost, and executors
//! lose their connections.

use eyas_jobs::{Event as JobsEvent, JournalRecord};

use super::journal::WRITTEN_AFTER_NS;
use super::{Run, SimEvent};
use crate::audit::Audited;

/// Number of results that are written at once when journals are not kept.
const WRITTEN_AT_ONCE: u64 = 1_024;

impl Run<'_> {
    /// Keeps journals, even if no dispatcher dies.
    pub(super) fn keep_journals(&mut self) {
        for number in 0..self.dispatchers.count() {
            self.dispatchers[number].journal.is_kept = true;
        }
    }

    pub(super) fn plan_restarts(&mut self) {
        if self.cluster.failures.dispatcher_dies_after_ns.is_some() {
            self.keep_journals();
            (0..self.dispatchers.count()).for_each(|number| self.plan_death(number));
        }
    }

    fn plan_death(&mut self, number: usize) {
        let failures = &self.cluster.failures;
        if let Some(mean_ns) = failures.dispatcher_dies_after_ns
            && let Some(at) = failures.at(self.now, self.membership.after(mean_ns))
        {
            self.events.schedule(at, SimEvent::DispatcherDies { dispatcher: number as u32 });
        }
    }

    /// A dispatcher writes a record to its journal.
    pub(super) fn write(&mut self, number: usize, record: JournalRecord) {
        if let (Some(audit), JournalRecord::Entry { entry, .. }) = (&mut self.audit, &record) {
            audit.written(number, entry);
        }
        let journal = &mut self.dispatchers[number].journal;
        if journal.write(record) {
            let (dispatcher, deaths) = (number as u32, journal.deaths);
            self.events
                .schedule(self.now + WRITTEN_AFTER_NS, SimEvent::OnDisk { dispatcher, deaths });
        }
    }

    /// Writes the accumulated results, unless others are being written.
    pub(super) fn write_results(&mut self, number: usize) {
        let dispatcher = &self.dispatchers[number];
        let journal = &dispatcher.journal;
        let is_time = if journal.is_kept {
            journal.is_behind && journal.written() == journal.on_disk()
        } else {
            journal.gathered >= WRITTEN_AT_ONCE
        };
        if is_time && !dispatcher.is_down {
            let journal = &mut self.dispatchers[number].journal;
            (journal.is_behind, journal.gathered) = (false, 0);
            self.tell_jobs(number, JobsEvent::Flush);
        }
    }

    /// The oldest entry in flight is on disk, unless the dispatcher has died since.
    pub(super) fn on_disk(&mut self, number: usize, deaths: u32) {
        let journal = &mut self.dispatchers[number].journal;
        if journal.deaths != deaths {
            return;
        }
        let entry = journal.arrived();
        if let Some(audit) = &mut self.audit {
            audit.acknowledged(number, &entry);
        }
        self.answer_client(number);
        self.write_results(number);
    }

    pub(super) fn dies(&mut self, number: usize) {
        self.outcome.restarts += 1;
        let dispatcher = &mut self.dispatchers[number];
        dispatcher.is_down = true;
        dispatcher.inbox.clear();
        dispatcher.journal.die();
        let waited = dispatcher.scheduler.waiting();
        self.end_sessions_of(number);
        self.dispatchers.waiting -= waited;
        self.dispatchers[number].replace(&self.policies, self.now);
        if let Some(audit) = &mut self.audit {
            audit.died(number);
        }
        self.ask_again(number);
        let back = self.now + self.cluster.failures.dispatcher_back_after_ns;
        self.events.schedule(back, SimEvent::DispatcherRestarts { dispatcher: number as u32 });
    }

    pub(super) fn restarts(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        dispatcher.is_down = false;
        let (replay, arrived) = (Box::new(dispatcher.journal.replay()), dispatcher.arrived);
        dispatcher.replace(&self.policies, self.now);
        self.tell_jobs(number, JobsEvent::Recovered { replay });
        self.tell_jobs(number, JobsEvent::QueueMore { tasks: arrived });
        self.plan_death(number);
    }

    /// Shows the state after a step to the audit.
    pub(super) fn show_step(&mut self) {
        if let Some(audit) = &mut self.audit {
            let running = self.dispatchers.all().enumerate().filter(|(_, of)| !of.is_down);
            let mut shown = running.map(|(number, of)| Audited {
                number,
                job: of.job(),
                scheduler: &of.scheduler,
            });
            audit.stepped(&mut shown);
        }
    }
}
