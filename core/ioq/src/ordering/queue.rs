//! Waiting requests of one class at one server, and the runs that they form (virtual aggregation,
//! io-coordination §4.2).
//!
//! In the order of keys, a request *continues* its predecessor if both have the same file and
//! operation and it begins no later than the predecessor ends. Requests for the same bytes belong
//! together as well. A request that continues nothing is the head of a chain. Heads are recognised
//! by looking at the predecessor only, so an arrival or removal changes at most two chains.
//!
//! Example, the paper's: read(30,40), read(20,30) and read(10,20) form one chain with the head
//! read(10,20). They are granted in the order of offsets, as if they were read(10,40).
//!
//! The run of a chain is what could be granted now: as many requests from the head on as fit. Runs
//! are kept up to date, so that policies compare runs and never look at requests.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use crate::event::RequestId;
use crate::ordering::policies::{self, Policy, RunOrder};
use crate::ordering::run::{QueueKey, QueuedRequest, RequestRun, Stream};

/// Largest number of requests in a run; the rest of the chain is the next run. It bounds the work
/// that one request can cause. For example a run of requests of 4 KiB has up to 4 MiB.
pub(crate) const MAX_RUN_REQUESTS: usize = 1_024;

pub(crate) struct RequestQueue {
    queued: BTreeMap<QueueKey, QueuedRequest>,
    /// Runs by head. Every head has one.
    runs: BTreeMap<QueueKey, RequestRun>,
    order: Box<dyn RunOrder>,
    max_run_bytes: u64,
}

impl RequestQueue {
    pub fn new(policy: Policy, max_run_bytes: u64) -> Self {
        RequestQueue {
            queued: BTreeMap::new(),
            runs: BTreeMap::new(),
            order: policies::order_of(policy),
            max_run_bytes,
        }
    }

    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Number of rounds of the policy so far.
    pub fn round(&self) -> u64 {
        self.order.round()
    }

    pub fn contains(&self, key: &QueueKey) -> bool {
        self.queued.contains_key(key)
    }

    /// Adds a request.
    pub fn insert(&mut self, key: QueueKey, queued: QueuedRequest) {
        let before = self.queued.insert(key, queued);
        assert!(before.is_none(), "{key:?} waits already");
        let is_head = self.relink(key);
        let is_split = self.next(&key).is_some_and(|next| self.relink(next));
        if !is_head {
            // A request after the end of the run may lengthen the run; the requests in it stay the
            // same.
            let head = *self.head_of(&key).expect("a request that continues another is in a chain");
            if is_split || key < self.runs[&head].last {
                self.rebuild(head);
            } else {
                self.lengthen(head);
            }
        }
    }

    /// Removes a request that was not granted.
    pub fn remove(&mut self, key: &QueueKey) {
        self.queued.remove(key);
        if let Some(run) = self.runs.remove(key) {
            self.order.remove(&run);
        }
        if let Some(next) = self.next(key) {
            self.relink(next);
        }
        if let Some(head) = self.head_of(key).copied().filter(|head| head.stream == key.stream) {
            self.rebuild(head);
        }
    }

    /// The run that goes first.
    pub fn choose(&mut self, now_us: u64) -> Option<&RequestRun> {
        let head = self.order.choose(now_us)?;
        Some(&self.runs[&head])
    }

    /// The run that begins at this offset, if there is one.
    pub fn run_at(&self, stream: Stream, offset: u64) -> Option<&RequestRun> {
        let first = QueueKey { stream, offset, request: RequestId(0) };
        let (head, run) = self.runs.range(first..).next()?;
        (head.stream == stream && head.offset == offset).then_some(run)
    }

    /// Removes a run that is granted, and returns its requests by offset.
    pub fn take(&mut self, head: QueueKey) -> (RequestRun, Vec<(QueueKey, QueuedRequest)>) {
        let run = self.runs.remove(&head).expect("only runs are granted");
        self.order.remove(&run);
        self.order.granted();
        let keys: Vec<_> = self.queued.range(head..=run.last).map(|(key, _)| *key).collect();
        let taken = keys
            .into_iter()
            .map(|key| (key, self.queued.remove(&key).expect("it was found there")));
        let taken: Vec<_> = taken.collect();
        if let Some(next) = self.next(&run.last) {
            self.relink(next);
        }
        (run, taken)
    }

    // ---- chains

    fn next(&self, key: &QueueKey) -> Option<QueueKey> {
        self.queued.range((Excluded(key), Unbounded)).next().map(|(next, _)| *next)
    }

    fn head_of(&self, key: &QueueKey) -> Option<&QueueKey> {
        self.runs.range(..=key).next_back().map(|(head, _)| head)
    }

    fn is_head(&self, key: &QueueKey) -> bool {
        let before = self.queued.range(..key).next_back();
        !before.is_some_and(|(before, queued)| continues(before, queued, key))
    }

    /// Makes a waiting request a head, or no longer a head, as its predecessor now requires.
    /// Returns whether it has become one.
    fn relink(&mut self, key: QueueKey) -> bool {
        match (self.is_head(&key), self.runs.contains_key(&key)) {
            (true, false) => {
                self.rebuild(key);
                true
            }
            (false, true) => {
                let run = self.runs.remove(&key).expect("it is there");
                self.order.remove(&run);
                false
            }
            _ => false,
        }
    }

    fn rebuild(&mut self, head: QueueKey) {
        if let Some(run) = self.runs.remove(&head) {
            self.order.remove(&run);
        }
        let run = self.built(head);
        self.order.insert(&run);
        self.runs.insert(head, run);
    }

    fn lengthen(&mut self, head: QueueKey) {
        let mut run = self.runs[&head].clone();
        self.extend(&mut run);
        if run != self.runs[&head] {
            self.order.remove(&self.runs[&head]);
            self.order.insert(&run);
            self.runs.insert(head, run);
        }
    }

    fn built(&self, head: QueueKey) -> RequestRun {
        let mut run = RequestRun::new(head, &self.queued[&head]);
        self.extend(&mut run);
        run
    }

    /// Adds the requests that continue the run, as long as they fit. A run is cut between requests
    /// only (io-coordination §5.1).
    fn extend(&self, run: &mut RequestRun) {
        let mut last = (run.last, self.queued[&run.last]);
        for (key, queued) in self.queued.range((Excluded(run.last), Unbounded)) {
            let fits = run.requests < MAX_RUN_REQUESTS
                && run.size.bytes.saturating_add(queued.weight_bytes()) <= self.max_run_bytes;
            if !fits || !continues(&last.0, &last.1, key) {
                return;
            }
            run.push(*key, queued);
            last = (*key, *queued);
        }
    }

    /// # Panics
    /// If the index does not agree with the waiting requests.
    pub fn validate(&self) {
        let heads = self.queued.keys().filter(|key| self.is_head(key));
        assert!(heads.eq(self.runs.keys()), "every head has a run, and only heads have");
        for (head, run) in &self.runs {
            assert_eq!(*run, self.built(*head));
            assert!(run.requests == 1 || run.size.bytes <= self.max_run_bytes, "{run:?}");
            assert!(
                run.requests <= MAX_RUN_REQUESTS && run.head.stream == run.last.stream,
                "{run:?}"
            );
        }
        self.order.validate(&self.runs);
    }
}

fn continues(before: &QueueKey, queued: &QueuedRequest, key: &QueueKey) -> bool {
    before.stream == key.stream && key.offset <= queued.extent.end()
}
