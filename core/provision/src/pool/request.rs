//! A request for nodes: its phase, and what is known of it.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

/// A request that the batch system does not know this many times in a row is over.
pub const MAX_UNKNOWN: u32 = 3;

/// Moves of a request that its story has; of more, the first ones are forgotten.
const MAX_STORY: usize = 16;

/// Name of a request in the batch system, by which the request is looked for.
pub fn request_name(pool: &str, number: u64, mark: &str) -> String {
    format!("eyas-{pool}-{number}-{mark}")
}

/// The mark of a request: 8 hexadecimal digits that differ for each seed and number (SplitMix64).
pub(super) fn mark_of(seed: u64, number: u64) -> String {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{:08x}", z >> 32)
}

/// A submitted request, as its batch system knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchJobId {
    /// The batch system's id.
    pub id: String,
    /// The cluster of the batch system, if there are several.
    pub cluster: Option<String>,
}

/// The phase of a request. `RequestPhase::may_become` has the moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestPhase {
    /// Its submission has not ended.
    Submitting,
    /// Its submission is over, and it is not known whether the batch system has the request.
    Unclear,
    /// The batch system has it.
    Pending,
    /// The batch system has granted it.
    Running,
    /// It is over.
    Ended,
}

impl RequestPhase {
    /// All phases.
    #[cfg(test)]
    const ALL: [RequestPhase; 5] = [
        RequestPhase::Submitting,
        RequestPhase::Unclear,
        RequestPhase::Pending,
        RequestPhase::Running,
        RequestPhase::Ended,
    ];

    /// Whether a request may go from this phase to the next one. From `Submitting` and `Unclear` it
    /// goes to `Running` when a node of it has joined before the batch system has answered; from
    /// `Running` back to `Pending` when the batch system queues it again. No command is run again
    /// for a request that has ended.
    fn may_become(self, next: RequestPhase) -> bool {
        use RequestPhase::{Ended, Pending, Running, Submitting, Unclear};
        matches!(
            (self, next),
            (Submitting, Unclear | Pending | Running | Ended)
                | (Unclear, Pending | Running | Ended)
                | (Pending, Running | Ended)
                | (Running, Pending | Ended)
        )
    }

    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            RequestPhase::Submitting | RequestPhase::Unclear => "submitting",
            RequestPhase::Pending => "pending",
            RequestPhase::Running => "running",
            RequestPhase::Ended => "ended",
        }
    }
}

/// A move of a request, or another thing that was decided about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    at_us: u64,
    /// The phase since then.
    phase: RequestPhase,
    why: &'static str,
}

/// The state of a request, as it is kept on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolRequest {
    /// Number of nodes.
    pub nodes: u32,
    phase: RequestPhase,
    /// Number of nodes that ever joined.
    pub joined: u32,
    is_withdrawn: bool,
    /// It ended before a node joined, and was not withdrawn.
    pub has_failed: bool,
    /// When it was made.
    pub requested_unix_ms: u64,
    /// The part of its name that no other request has, also none of another dispatcher or an
    /// earlier pool.
    #[serde(default)]
    pub mark: String,
    /// The request in the batch system, once it is submitted.
    pub job: Option<BatchJobId>,
    /// What the batch system says of it.
    pub says: Option<String>,
    /// The host on which it runs or ran, if the batch system says it and it is one host.
    pub host: Option<String>,
    /// Number of its nodes that are connected.
    #[serde(skip)]
    pub present: u32,
    /// Time from which a node that should have joined, or an end that should have come, is
    /// overdue, microseconds.
    #[serde(skip)]
    pub waits_since_us: Option<u64>,
    /// Number of times in a row that the batch system did not know it.
    #[serde(skip)]
    pub unknown: u32,
    /// What became of it since the dispatcher started, the latest last.
    #[serde(skip)]
    story: VecDeque<Move>,
}

impl PoolRequest {
    pub(super) fn new(nodes: u32, mark: String, now_us: u64) -> Self {
        let made = Move { at_us: now_us, phase: RequestPhase::Submitting, why: "it was made" };
        PoolRequest {
            nodes,
            phase: RequestPhase::Submitting,
            joined: 0,
            is_withdrawn: false,
            has_failed: false,
            requested_unix_ms: now_us / 1000,
            mark,
            job: None,
            says: None,
            host: None,
            present: 0,
            waits_since_us: None,
            unknown: 0,
            story: [made].into(),
        }
    }

    /// Its phase.
    pub fn phase(&self) -> RequestPhase {
        self.phase
    }

    /// Whether no node of it is wanted any longer.
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    /// Moves it to another phase.
    ///
    /// # Panics
    /// If the move is not allowed.
    pub(super) fn enter(&mut self, now_us: u64, phase: RequestPhase, why: &'static str) {
        let before = self.phase;
        assert!(
            before.may_become(phase),
            "a request cannot go from {before:?} to {phase:?} ({why}): {self:?}"
        );
        self.phase = phase;
        self.tell(now_us, why);
    }

    /// No node of it is wanted any longer. It stays so.
    pub(super) fn unwant(&mut self, now_us: u64, why: &'static str) {
        self.is_withdrawn = true;
        self.tell(now_us, why);
    }

    /// Its state was read from disk, when the dispatcher started. What was not saved is not known.
    pub(super) fn take_up(&mut self, now_us: u64) {
        (self.present, self.unknown, self.waits_since_us) = (0, 0, Some(now_us));
        self.story.clear();
        self.tell(now_us, "it was read from disk");
    }

    fn tell(&mut self, at_us: u64, why: &'static str) {
        if self.story.len() == MAX_STORY {
            self.story.pop_front();
        }
        self.story.push_back(Move { at_us, phase: self.phase, why });
    }

    /// Whether the batch system may have it.
    pub fn is_open(&self) -> bool {
        self.phase != RequestPhase::Ended
    }

    /// Number of nodes that may still join and are wanted.
    pub fn missing(&self) -> u32 {
        if !self.is_open() || self.is_withdrawn {
            0
        } else {
            self.nodes.saturating_sub(self.joined)
        }
    }

    /// Whether it has ended and has no node.
    pub fn is_over(&self) -> bool {
        !self.is_open() && self.present == 0
    }

    /// Whether a node that joins now is of no use.
    pub fn is_unwanted(&self) -> bool {
        (self.is_withdrawn || !self.is_open()) && self.present == 0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use alloc::vec::Vec;

    use super::*;

    fn request(phase: RequestPhase) -> PoolRequest {
        PoolRequest { phase, ..PoolRequest::new(1, mark_of(7, 0), 0) }
    }

    #[test]
    fn a_request_goes_only_where_the_table_says() {
        use RequestPhase::{Ended, Pending, Running, Submitting, Unclear};
        let allowed = |from: RequestPhase| {
            let enters = |to: &RequestPhase| {
                let mut request = request(from);
                let is_done =
                    catch_unwind(AssertUnwindSafe(|| request.enter(0, *to, "a test"))).is_ok();
                assert_eq!(
                    request.phase,
                    if is_done { *to } else { from },
                    "a refused move changes nothing"
                );
                is_done
            };
            RequestPhase::ALL.into_iter().filter(enters).collect::<Vec<_>>()
        };
        assert_eq!(allowed(Submitting), [Unclear, Pending, Running, Ended]);
        assert_eq!(allowed(Unclear), [Pending, Running, Ended]);
        assert_eq!(allowed(Pending), [Running, Ended]);
        assert_eq!(allowed(Running), [Pending, Ended]);
        assert_eq!(allowed(Ended), []);
    }

    #[test]
    #[should_panic(expected = "a request cannot go from Ended to Pending (it is listed): \
                               PoolRequest { nodes: 1, ")]
    fn a_request_that_has_ended_does_not_wait_again() {
        let mut request = request(RequestPhase::Submitting);
        request.enter(1, RequestPhase::Ended, "it was refused");
        request.enter(2, RequestPhase::Pending, "it is listed");
    }

    #[test]
    fn a_request_tells_its_last_moves() {
        let mut request = request(RequestPhase::Pending);
        for at_us in 1..=MAX_STORY as u64 {
            let next = if at_us % 2 == 1 { RequestPhase::Running } else { RequestPhase::Pending };
            request.enter(at_us, next, "the batch system says so");
        }
        assert_eq!(request.story.len(), MAX_STORY);
        let last =
            Move { at_us: 16, phase: RequestPhase::Pending, why: "the batch system says so" };
        assert_eq!((request.story[0].at_us, request.story.back()), (1, Some(&last)));
    }

    #[test]
    fn marks_differ_by_seed_and_by_number() {
        let marks = [mark_of(1, 0), mark_of(1, 1), mark_of(2, 0)];
        assert!(marks.iter().all(|mark| mark.len() == 8));
        assert!(marks[0] != marks[1] && marks[0] != marks[2] && marks[1] != marks[2], "{marks:?}");
    }
}
