//! The client of the jobs: it cancels tasks, and retries failed and cancelled ones.

use std::ops::Range;

use eyas_jobs::Event as JobsEvent;

use super::agenda::Agenda;
use super::dispatchers::Dispatchers;
use super::event::SimEvent;
use super::job::JOB;
use super::world::{Setup, World};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::workload::{ClientRequests, Workload};

/// The client repeats a request after this time if the dispatcher is down, or died before the
/// request was on disk.
const ASKS_AGAIN_NS: Ns = SECOND / 10;

pub(super) struct SimClient {
    requests: ClientRequests,
    /// Requests that no dispatcher has confirmed as being on disk: the dispatcher, the request,
    /// and the number of entries that the dispatcher had written then.
    unanswered: Vec<(usize, u32, u64)>,
}

impl SimClient {
    pub fn new(workload: &dyn Workload) -> Self {
        SimClient { requests: workload.requests(), unanswered: Vec::new() }
    }

    pub fn plan_requests(&self, dispatchers: u32, agenda: &mut Agenda) {
        for (request, (at_us, _)) in (0..).zip(&self.requests.cancels) {
            for dispatcher in 0..dispatchers {
                let asks = SimEvent::ClientRequest { dispatcher, request };
                agenda.schedule(at_us * MICROSECOND, asks);
            }
        }
    }

    /// The client asks a dispatcher to cancel tasks.
    pub fn ask(
        &mut self,
        number: usize,
        request: u32,
        dispatchers: &mut Dispatchers,
        world: &mut World,
    ) {
        if dispatchers[number].is_down() {
            return ask_later(number, request, &mut world.agenda);
        }
        let tasks = self.indices(number, request, world.setup);
        dispatchers.tell_jobs(number, JobsEvent::Cancel { job: JOB, tasks }, world);
        // A confirmed request must not be lost.
        dispatchers.tell_jobs(number, JobsEvent::Flush, world);
        let written = dispatchers[number].journal().written();
        self.unanswered.push((number, request, written));
        self.hear_answers(number, dispatchers, world.setup);
    }

    /// The dispatcher confirms to the client the requests that are on disk.
    pub fn hear_answers(&mut self, number: usize, dispatchers: &mut Dispatchers, setup: &Setup) {
        let on_disk = dispatchers[number].journal().on_disk();
        let is_done =
            |(of, _, written): &mut (usize, u32, u64)| *of == number && *written <= on_disk;
        let answered: Vec<_> = self.unanswered.extract_if(.., is_done).collect();
        for (_, request, _) in answered {
            let indices = self.indices(number, request, setup);
            if let Some(audit) = dispatchers.audit() {
                audit.cancelled(number, indices);
            }
        }
    }

    /// Repeats the requests that a dispatcher had not confirmed before it died.
    pub fn ask_again(&mut self, number: usize, agenda: &mut Agenda) {
        let unanswered = self.unanswered.extract_if(.., |(of, ..)| *of == number);
        unanswered.for_each(|(_, request, _)| ask_later(number, request, agenda));
    }

    /// After all jobs have ended, retries failed and cancelled tasks if the client wants that.
    /// Returns whether any task runs again.
    pub fn retry(&mut self, dispatchers: &mut Dispatchers, world: &mut World) -> bool {
        if self.requests.job_retries == 0 || !self.unanswered.is_empty() {
            return !self.unanswered.is_empty();
        }
        self.requests.job_retries -= 1;
        let mut retries = false;
        for number in 0..dispatchers.count() {
            if dispatchers[number].job().retryable() > 0 {
                retries = true;
                if let Some(audit) = dispatchers.audit() {
                    audit.retried(number);
                }
                let retry = JobsEvent::Retry { job: JOB, current: Vec::new() };
                dispatchers.tell_jobs(number, retry, world);
            }
        }
        retries
    }

    /// Indices of a request's tasks in the job of a dispatcher.
    fn indices(&self, number: usize, request: u32, setup: &Setup) -> Range<u32> {
        let (_, tasks) = &self.requests.cancels[request as usize];
        setup.plan.indices(number, tasks)
    }
}

fn ask_later(number: usize, request: u32, agenda: &mut Agenda) {
    let dispatcher = number as u32;
    agenda.schedule_after(ASKS_AGAIN_NS, SimEvent::ClientRequest { dispatcher, request });
}
