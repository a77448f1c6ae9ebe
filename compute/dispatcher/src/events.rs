//! What happens in the cluster, numbered. The last events are in memory; whoever has missed more
//! than these is told so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_types::JobId;
use eyas_wire::client::{EventPosition, EventsPart};
use eyas_wire::view::{EventView, TaskCounts};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::service::answer::{Answer, ServiceError};

/// Events that are remembered.
const MAX_EVENTS: usize = 10_000;
/// Events in one part of a stream.
const MAX_EVENTS_TOLD: usize = 1000;

/// Numbers events. Streams of them end when this is dropped.
pub(crate) struct ClusterEvents {
    clock: Clock,
    last: watch::Sender<u64>,
    recent: RecentEvents,
}

/// The last events of a cluster. Clones share them.
#[derive(Clone)]
pub(crate) struct RecentEvents {
    /// Tells the events of this dispatcher from those of the one before, whose numbers are used
    /// again.
    epoch: u64,
    events: Arc<Mutex<VecDeque<EventView>>>,
    /// The number of the last event; events count from 1.
    last: watch::Receiver<u64>,
}

/// What has happened; it has no number yet.
#[derive(Debug)]
pub(crate) struct NewEvent {
    pub kind: &'static str,
    pub job: Option<JobId>,
    pub executor: Option<String>,
    pub text: String,
}

impl NewEvent {
    /// Something about a job, which `what` follows: "job 3 (stack) has ended".
    pub fn of_job(id: JobId, name: &str, kind: &'static str, what: &str) -> Self {
        let text = if name.is_empty() {
            format!("job {id} {what}")
        } else {
            format!("job {id} ({name}) {what}")
        };
        NewEvent { kind, job: Some(id), executor: None, text }
    }

    /// The end of a job.
    pub fn end_of_job(id: JobId, name: &str, counts: &TaskCounts) -> Self {
        let ends = [
            (counts.succeeded, "succeeded"),
            (counts.failed, "failed"),
            (counts.cancelled, "cancelled"),
        ];
        let ends = ends.into_iter().filter(|(count, how)| *count > 0 || *how == "succeeded");
        let ends: Vec<_> = ends.map(|(count, how)| format!("{count} {how}")).collect();
        NewEvent::of_job(id, name, "job-ended", &format!("has ended: {}", ends.join(", ")))
    }

    /// Something about an executor, which `what` follows: "executor n3 has joined".
    pub fn of_executor(name: &str, kind: &'static str, what: &str) -> Self {
        NewEvent {
            kind,
            job: None,
            executor: Some(name.into()),
            text: format!("executor {name} {what}"),
        }
    }
}

/// Events of a cluster, from a position on, without an end.
pub struct EventStream {
    recent: RecentEvents,
    /// The last event that was told.
    told: u64,
    /// Whether events before the next part were missed.
    is_gap: bool,
    /// Whether the first part was told.
    is_begun: bool,
}

impl ClusterEvents {
    pub fn new(clock: Clock) -> Self {
        let (last, receiver) = watch::channel(0);
        let recent = RecentEvents { epoch: clock.now_us(), events: Arc::default(), last: receiver };
        ClusterEvents { clock, last, recent }
    }

    pub fn recent(&self) -> RecentEvents {
        self.recent.clone()
    }

    /// Numbers an event and tells it.
    pub fn add(&self, event: NewEvent) {
        let NewEvent { kind, job, executor, text } = event;
        let unix_ms = self.clock.now_us() / 1000;
        let mut events = self.recent.events();
        let number = *self.last.borrow() + 1;
        if events.len() >= MAX_EVENTS {
            events.pop_front();
        }
        events.push_back(EventView { number, unix_ms, kind: kind.into(), job, executor, text });
        self.last.send_replace(number);
    }
}

impl RecentEvents {
    /// The events after a position; all that are remembered if there is none.
    pub fn stream(&self, after: Option<EventPosition>) -> EventStream {
        let last = *self.last.borrow();
        // A position of another dispatcher, or one that is yet to come, says nothing about these
        // events.
        let known = after.filter(|after| after.epoch == self.epoch && after.number <= last);
        EventStream {
            recent: self.clone(),
            told: known.map_or(0, |after| after.number),
            is_gap: after.is_some() && known.is_none(),
            is_begun: false,
        }
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<EventView>> {
        // No change can panic half-way.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventStream {
    /// The next events. The first part comes at once, also if it is empty. Cancelling this future
    /// loses nothing.
    ///
    /// # Errors
    /// If the dispatcher ends.
    pub async fn next(&mut self) -> Answer<EventsPart> {
        loop {
            self.recent.last.mark_unchanged();
            let events = self.read();
            if self.is_begun && events.is_empty() {
                self.recent.last.changed().await.map_err(|_| ServiceError::Stopping)?;
                continue;
            }
            self.is_begun = true;
            self.told = events.last().map_or(self.told, |event| event.number);
            let position = EventPosition { epoch: self.recent.epoch, number: self.told };
            let (is_gap, is_current) =
                (std::mem::take(&mut self.is_gap), events.len() < MAX_EVENTS_TOLD);
            return Ok(EventsPart { is_gap, events, position, is_current });
        }
    }

    /// The events after the last one that was told, as far as they are remembered.
    fn read(&mut self) -> Vec<EventView> {
        let recent = self.recent.events();
        let next = self.told + 1;
        let first = recent.front().map_or(next, |event| event.number);
        // Who asks for what there is misses nothing.
        self.is_gap |= first > next && self.told > 0;
        recent
            .iter()
            .skip(next.saturating_sub(first) as usize)
            .take(MAX_EVENTS_TOLD)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: String) -> NewEvent {
        NewEvent { kind: "executor-joined", job: None, executor: None, text }
    }

    fn numbers(part: &EventsPart) -> Vec<u64> {
        part.events.iter().map(|event| event.number).collect()
    }

    #[tokio::test]
    async fn a_stream_goes_on_after_a_number_and_tells_a_gap() {
        let events = ClusterEvents::new(Clock::new());
        let mut empty = events.recent().stream(None);
        let first = empty.next().await.unwrap();
        assert_eq!((numbers(&first), first.is_gap, first.position.number), (vec![], false, 0));
        (1..=3).for_each(|number| events.add(event(format!("{number}"))));
        let part = empty.next().await.unwrap();
        assert_eq!((numbers(&part), part.position.number), (vec![1, 2, 3], 3));
        let mut later = events.recent().stream(Some(EventPosition { number: 2, ..part.position }));
        let part = later.next().await.unwrap();
        assert_eq!((numbers(&part), part.is_gap), (vec![3], false));
        // More than are remembered.
        (0..MAX_EVENTS + 5).for_each(|number| events.add(event(format!("{number}"))));
        let part = later.next().await.unwrap();
        assert!(part.is_gap);
        assert_eq!((part.events[0].number, part.events.len()), (9, MAX_EVENTS_TOLD));
        let part = later.next().await.unwrap();
        assert_eq!((part.events[0].number, part.is_gap), (9 + MAX_EVENTS_TOLD as u64, false));
        let all = events.recent().stream(None).next().await.unwrap();
        assert!(!all.is_gap, "who asks for what there is misses nothing");
    }

    #[tokio::test]
    async fn a_position_of_another_dispatcher_is_a_gap() {
        let events = ClusterEvents::new(Clock::new());
        events.add(event("1".into()));
        for after in [
            EventPosition { epoch: 1, number: 1 },
            EventPosition { epoch: events.recent.epoch, number: 9 },
        ] {
            let part = events.recent().stream(Some(after)).next().await.unwrap();
            assert_eq!((numbers(&part), part.is_gap), (vec![1], true), "{after:?}");
        }
    }
}
