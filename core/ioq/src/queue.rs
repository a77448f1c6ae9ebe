//! The requests of one class that wait at a server, and the runs that they make (virtual aggregation, io-coordination §4.2).
//!
//! In the order of places a request *continues* the one just before it if that is of the same file and operation and ends no
//! sooner than it begins: requests for the same bytes belong together as well. A request that continues nothing is the head
//! of a chain. To look at the one before is enough to know heads, so whatever comes or goes changes two chains at most.
//!
//! A chain's run is what could be granted of it now: requests from the head on, as many as fit. It is kept up to date, so
//! that policies compare runs and never look at requests.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use crate::event::RequestId;
use crate::policies::{self, Order, Policy};
use crate::run::{Place, Run, Stream, Waiting};

/// Requests of a run at most: the rest of its chain is the next run. It bounds the work that one request can make.
pub(crate) const MAX_RUN_REQUESTS: usize = 1_024;

pub(crate) struct Queue {
    waiting: BTreeMap<Place, Waiting>,
    /// By their heads, which are all heads.
    runs: BTreeMap<Place, Run>,
    order: Box<dyn Order>,
    max_run_bytes: u64,
}

impl Queue {
    pub fn new(policy: Policy, max_run_bytes: u64) -> Self {
        Queue { waiting: BTreeMap::new(), runs: BTreeMap::new(), order: policies::of(policy), max_run_bytes }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many runs its policy has chosen, or passed over all of.
    pub fn round(&self) -> u64 {
        self.order.round()
    }

    pub fn contains(&self, place: &Place) -> bool {
        self.waiting.contains_key(place)
    }

    /// A request comes.
    pub fn insert(&mut self, place: Place, waiting: Waiting) {
        let before = self.waiting.insert(place, waiting);
        assert!(before.is_none(), "{place:?} waits already");
        let is_head = self.relink(place);
        let is_split = self.next(&place).is_some_and(|next| self.relink(next));
        if !is_head {
            // What comes after the last of a run may lengthen it, and does not change what it has.
            let head = *self.head_of(&place).expect("what continues something is in a chain");
            if is_split || place < self.runs[&head].last {
                self.rebuild(head);
            } else {
                self.lengthen(head);
            }
        }
    }

    /// A request goes, without having been granted.
    pub fn remove(&mut self, place: &Place) {
        self.waiting.remove(place);
        if let Some(run) = self.runs.remove(place) {
            self.order.remove(&run);
        }
        if let Some(next) = self.next(place) {
            self.relink(next);
        }
        if let Some(head) = self.head_of(place).copied().filter(|head| head.stream == place.stream) {
            self.rebuild(head);
        }
    }

    /// The run that is to go first.
    pub fn choose(&mut self, now_us: u64) -> Option<&Run> {
        let head = self.order.choose(now_us)?;
        Some(&self.runs[&head])
    }

    /// The run that begins there, if one does.
    pub fn run_at(&self, stream: Stream, offset: u64) -> Option<&Run> {
        let first = Place { stream, offset, request: RequestId(0) };
        let (head, run) = self.runs.range(first..).next()?;
        (head.stream == stream && head.offset == offset).then_some(run)
    }

    /// Grants that run: its requests leave, in the order of their offsets.
    pub fn take(&mut self, head: Place) -> (Run, Vec<(Place, Waiting)>) {
        let run = self.runs.remove(&head).expect("what is granted is a run");
        self.order.remove(&run);
        self.order.granted();
        let places: Vec<_> = self.waiting.range(head..=run.last).map(|(place, _)| *place).collect();
        let taken = places.into_iter().map(|place| (place, self.waiting.remove(&place).expect("it was found there")));
        let taken: Vec<_> = taken.collect();
        if let Some(next) = self.next(&run.last) {
            self.relink(next);
        }
        (run, taken)
    }

    // ---- chains

    fn next(&self, place: &Place) -> Option<Place> {
        self.waiting.range((Excluded(place), Unbounded)).next().map(|(next, _)| *next)
    }

    fn head_of(&self, place: &Place) -> Option<&Place> {
        self.runs.range(..=place).next_back().map(|(head, _)| head)
    }

    fn is_head(&self, place: &Place) -> bool {
        let before = self.waiting.range(..place).next_back();
        !before.is_some_and(|(before, waiting)| continues(before, waiting, place))
    }

    /// Makes a request that waits a head or not, as it is now. Whether it has become one.
    fn relink(&mut self, place: Place) -> bool {
        match (self.is_head(&place), self.runs.contains_key(&place)) {
            (true, false) => {
                self.rebuild(place);
                true
            }
            (false, true) => {
                let run = self.runs.remove(&place).expect("it is there");
                self.order.remove(&run);
                false
            }
            _ => false,
        }
    }

    fn rebuild(&mut self, head: Place) {
        if let Some(run) = self.runs.remove(&head) {
            self.order.remove(&run);
        }
        let run = self.built(head);
        self.order.insert(&run);
        self.runs.insert(head, run);
    }

    fn lengthen(&mut self, head: Place) {
        let mut run = self.runs[&head].clone();
        self.extend(&mut run);
        if run != self.runs[&head] {
            self.order.remove(&self.runs[&head]);
            self.order.insert(&run);
            self.runs.insert(head, run);
        }
    }

    fn built(&self, head: Place) -> Run {
        let mut run = Run::new(head, &self.waiting[&head]);
        self.extend(&mut run);
        run
    }

    /// Adds what follows the run's last request, as long as it fits (io-coordination §5.1: a run is cut, at the borders of
    /// requests).
    fn extend(&self, run: &mut Run) {
        let mut last = (run.last, self.waiting[&run.last]);
        for (place, waiting) in self.waiting.range((Excluded(run.last), Unbounded)) {
            let fits =
                run.requests < MAX_RUN_REQUESTS && run.bytes.saturating_add(waiting.weight()) <= self.max_run_bytes;
            if !fits || !continues(&last.0, &last.1, place) {
                return;
            }
            run.push(*place, waiting);
            last = (*place, *waiting);
        }
    }

    /// # Panics
    /// If what is kept to find things does not agree with what waits.
    pub fn validate(&self) {
        let heads = self.waiting.keys().filter(|place| self.is_head(place));
        assert!(heads.eq(self.runs.keys()), "heads have runs, and nobody else");
        for (head, run) in &self.runs {
            assert_eq!(*run, self.built(*head));
            assert!(run.requests == 1 || run.bytes <= self.max_run_bytes, "{run:?}");
            assert!(run.requests <= MAX_RUN_REQUESTS && run.head.stream == run.last.stream, "{run:?}");
        }
        self.order.validate(&self.runs);
    }
}

fn continues(before: &Place, waiting: &Waiting, place: &Place) -> bool {
    before.stream == place.stream && place.offset <= waiting.extent.end()
}
