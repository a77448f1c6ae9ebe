//! The last events of the cluster, for any number of readers. Each reader has a position of its
//! own, and no queue: a slow reader costs nothing, and is told of the gap if it falls behind.

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::Mutex;

use eyas_client::messages::{EventPosition, EventsPart};
use eyas_client::view::EventView;
use tokio::sync::watch;

/// Events that are remembered; the oldest are forgotten.
const MAX_EVENTS: usize = 4096;
/// Kind of the event that an executor was lost.
const EXECUTOR_LOST: &str = "executor-lost";
/// Most events that a reader takes at once.
const MAX_TAKEN: usize = 256;

/// Where a reader is: the id of the last event that it has, as `EPOCH-NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedPosition(pub EventPosition);

impl std::fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0.epoch, self.0.number)
    }
}

impl FromStr for FeedPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (epoch, number) = text.split_once('-').ok_or(())?;
        let (epoch, number) = (epoch.parse().map_err(|_| ())?, number.parse().map_err(|_| ())?);
        Ok(FeedPosition(EventPosition { epoch, number }))
    }
}

/// Events that a reader takes at once.
#[derive(Debug, PartialEq)]
pub(crate) struct TakenEvents {
    /// Whether events before these are no longer remembered.
    pub is_gap: bool,
    /// The events, in order.
    pub events: Vec<EventView>,
    /// The position behind them; `None` while nothing is known of the cluster.
    pub position: Option<FeedPosition>,
}

/// The last events.
pub(crate) struct EventFeed {
    ring: Mutex<EventRing>,
    /// Counts the changes, for readers that wait.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct EventRing {
    events: VecDeque<EventView>,
    /// Executors that were lost, as far as events told.
    lost_executors: u64,
    position: Option<EventPosition>,
}

impl EventFeed {
    pub fn new() -> Self {
        EventFeed { ring: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// The position from which the dispatcher is asked for more.
    pub fn position(&self) -> Option<EventPosition> {
        self.ring().position
    }

    /// Adds events of the dispatcher.
    pub fn add(&self, part: EventsPart) {
        let mut ring = self.ring();
        let is_same = ring.position.is_some_and(|at| at.epoch == part.position.epoch);
        if part.is_gap || !is_same {
            ring.events.clear();
        }
        let lost = part.events.iter().filter(|event| event.kind == EXECUTOR_LOST);
        ring.lost_executors += lost.count() as u64;
        ring.events.extend(part.events);
        let surplus = ring.events.len().saturating_sub(MAX_EVENTS);
        ring.events.drain(..surplus);
        ring.position = Some(part.position);
        drop(ring);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Events after a position; without one, all that are remembered.
    pub fn after(&self, position: Option<FeedPosition>) -> TakenEvents {
        let ring = self.ring();
        let Some(newest) = ring.position else {
            return TakenEvents { is_gap: false, events: Vec::new(), position };
        };
        let first = ring.events.front().map_or(newest.number + 1, |event| event.number);
        let (is_gap, from) = match position {
            None => (false, 0),
            Some(FeedPosition(at)) if at.epoch != newest.epoch || at.number > newest.number => {
                (true, 0)
            }
            Some(FeedPosition(at)) => (at.number + 1 < first, at.number),
        };
        let events = ring.events.iter().skip_while(|event| event.number <= from);
        let events: Vec<_> = events.take(MAX_TAKEN).cloned().collect();
        let number = match events.last() {
            Some(last) if events.len() == MAX_TAKEN => last.number,
            _ => newest.number,
        };
        let position = FeedPosition(EventPosition { epoch: newest.epoch, number });
        TakenEvents { is_gap, events, position: Some(position) }
    }

    /// The position behind the last event.
    pub fn newest(&self) -> Option<FeedPosition> {
        self.ring().position.map(FeedPosition)
    }

    /// Executors that were lost, as far as events told.
    pub fn lost_executors(&self) -> u64 {
        self.ring().lost_executors
    }

    /// Tells of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn ring(&self) -> std::sync::MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(epoch: u64, numbers: std::ops::RangeInclusive<u64>, is_gap: bool) -> EventsPart {
        let number = *numbers.end();
        let event = |number| EventView {
            number,
            unix_ms: 0,
            kind: "job-ended".into(),
            job: None,
            executor: None,
            text: String::new(),
        };
        EventsPart {
            is_gap,
            events: numbers.map(event).collect(),
            position: EventPosition { epoch, number },
            is_current: true,
        }
    }

    fn taken(feed: &EventFeed, at: Option<&str>) -> (bool, Vec<u64>) {
        let taken = feed.after(at.map(|at| at.parse().unwrap()));
        (taken.is_gap, taken.events.iter().map(|event| event.number).collect())
    }

    #[test]
    fn readers_continue_where_they_were_or_are_told_of_a_gap() {
        let feed = EventFeed::new();
        assert_eq!(taken(&feed, Some("7-3")), (false, Vec::new()));
        feed.add(part(7, 1..=3, false));
        assert_eq!(taken(&feed, None), (false, vec![1, 2, 3]));
        assert_eq!(taken(&feed, Some("7-2")), (false, vec![3]));
        assert_eq!(taken(&feed, Some("7-3")), (false, Vec::new()));
        // Another dispatcher has numbered them, or they are not of this one.
        assert_eq!(taken(&feed, Some("6-3")), (true, vec![1, 2, 3]));
        assert_eq!(taken(&feed, Some("7-9")), (true, vec![1, 2, 3]));
        // The dispatcher has forgotten some.
        feed.add(part(7, 10..=11, true));
        assert_eq!(taken(&feed, Some("7-3")), (true, vec![10, 11]));
        assert_eq!(taken(&feed, Some("7-9")), (false, vec![10, 11]));
        feed.add(part(8, 1..=1, false));
        assert_eq!(taken(&feed, Some("7-11")), (true, vec![1]));
        assert!("7".parse::<FeedPosition>().is_err() && "7-x".parse::<FeedPosition>().is_err());
    }

    #[test]
    fn the_ring_is_bounded_and_is_taken_in_parts() {
        let feed = EventFeed::new();
        let all = MAX_EVENTS as u64 + 100;
        feed.add(part(1, 1..=all, false));
        assert!(feed.after(Some("1-99".parse().unwrap())).is_gap);
        let (mut at, mut seen) = (Some("1-100".parse().unwrap()), 0);
        loop {
            let taken = feed.after(at);
            assert!(!taken.is_gap && taken.events.len() <= MAX_TAKEN);
            if taken.events.is_empty() {
                break;
            }
            (at, seen) = (taken.position, seen + taken.events.len());
        }
        assert_eq!((seen, at), (MAX_EVENTS, feed.newest()));
    }
}
