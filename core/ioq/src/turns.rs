//! The turns of the run that is being granted, one client's after the other's, and those that are out.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::Extent;

use crate::climb::OVERLAP;
use crate::event::{ClassId, ClientId, GrantId, RequestId, RunId};
use crate::run::{Place, Stream, Waiting};

/// Consecutive requests of one client in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub run: RunId,
    pub class: ClassId,
    pub client: ClientId,
    pub stream: Stream,
    /// Each with its bytes and when it came; never none.
    pub requests: Vec<(RequestId, Extent, u64 /* arrived_us */)>,
}

impl Turn {
    /// From the first to the last byte.
    pub fn extent(&self) -> Extent {
        let offset = self.requests[0].1.offset;
        let end = self.requests.iter().map(|(_, extent, _)| extent.end()).max().expect("a turn has requests");
        Extent { offset, size_bytes: end - offset }
    }
}

/// A turn that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    pub turn: Turn,
    /// When it began, as far as is known, had it left just then.
    pub began_us: u64,
    /// When the next can leave so as to come when this is done.
    pub predicted_us: u64,
    /// It left before another was heard to be done,
    pub is_early: bool,
    /// and is not known to have been there by then: what it takes says nothing.
    pub is_late: bool,
    pub until_us: u64,
}

/// How long a turn takes and may take, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub predicted: u64,
    pub lease: u64,
}

pub(crate) struct Turns {
    /// Of the run that is being granted.
    next: VecDeque<Turn>,
    out: BTreeMap<GrantId, Out>,
    leases: BTreeSet<(u64, GrantId)>,
    /// The one that left before another was heard to be done.
    early: Option<GrantId>,
    granted: u64,
    is_predicted: bool,
}

impl Turns {
    pub fn new(is_predicted: bool) -> Self {
        let (next, out, leases) = (VecDeque::new(), BTreeMap::new(), BTreeSet::new());
        Turns { next, out, leases, early: None, granted: 0, is_predicted }
    }

    /// Whether one may leave now, if so many are out at a time at most, and one more if ends are predicted, or while one has a
    /// part of its time left if they are to overlap; else when, if that does not take a completion.
    pub fn room(&self, now_us: u64, limit: usize, overlap: bool) -> Result<(), Option<u64>> {
        if self.out.len() < limit {
            return Ok(());
        }
        if !(self.is_predicted || overlap) || self.out.len() > limit {
            return Err(None);
        }
        let ahead_us = |out: &Out| if overlap { (out.predicted_us - out.began_us) / OVERLAP } else { 0 };
        let soonest_us = self.out.values().map(|out| out.predicted_us - ahead_us(out)).min();
        if soonest_us <= Some(now_us) { Ok(()) } else { Err(soonest_us) }
    }

    /// A run is to be granted: what follows each other and is of one client is a turn.
    pub fn begin_run(&mut self, run: RunId, class: ClassId, taken: Vec<(Place, Waiting)>) {
        assert!(self.next.is_empty(), "runs are granted one after the other");
        for (place, Waiting { client, extent, arrived_us, .. }) in taken {
            let request = (place.request, extent, arrived_us);
            match self.next.back_mut() {
                Some(turn) if turn.client == client => turn.requests.push(request),
                _ => {
                    let stream = place.stream;
                    self.next.push_back(Turn { run, class, client, stream, requests: [request].into() });
                }
            }
        }
    }

    /// The turn that is next in the run.
    pub fn front(&self) -> Option<&Turn> {
        self.next.front()
    }

    /// The next turn leaves.
    pub fn grant(&mut self, now_us: u64, limit: usize, term: Term) -> Option<(GrantId, &Out)> {
        let turn = self.next.pop_front()?;
        self.granted += 1;
        let id = GrantId(self.granted);
        if self.is_predicted && self.out.len() >= limit {
            self.early = Some(id);
        }
        let (predicted_us, until_us) = (now_us.saturating_add(term.predicted), now_us.saturating_add(term.lease));
        self.leases.insert((until_us, id));
        let is_early = self.early == Some(id);
        let out = Out { turn, began_us: now_us, predicted_us, until_us, is_early, is_late: is_early };
        Some((id, self.out.entry(id).or_insert(out)))
    }

    pub fn get(&self, id: GrantId) -> Option<&Out> {
        self.out.get(&id)
    }

    /// A turn is over; there and back, messages take so long.
    ///
    /// One that left early begins in earnest with that, so that no prediction carries the error of the one before: now, but
    /// for the messages.
    pub fn end(&mut self, now_us: u64, messages_us: u64, id: GrantId) -> Option<Out> {
        let out = self.out.remove(&id)?;
        self.leases.remove(&(out.until_us, id));
        self.early.take_if(|early| *early == id);
        if let Some(early) = self.early.take() {
            let out = self.out.get_mut(&early).expect("the early one is out");
            let (term_us, began_us) = (out.predicted_us - out.began_us, now_us.saturating_sub(messages_us));
            out.is_late = out.began_us > began_us;
            out.began_us = out.began_us.max(began_us);
            out.predicted_us = out.began_us.saturating_add(term_us);
        }
        Some(out)
    }

    /// The first that has taken too long.
    pub fn expired(&self, now_us: u64) -> Option<GrantId> {
        self.leases.first().filter(|(until_us, _)| *until_us <= now_us).map(|(_, id)| *id)
    }

    /// When the first of them will have.
    pub fn next_expiry(&self) -> Option<u64> {
        self.leases.first().map(|(until_us, _)| *until_us)
    }

    /// A request of a turn that has not left goes.
    pub fn withdraw(&mut self, request: RequestId) {
        for turn in &mut self.next {
            turn.requests.retain(|(id, ..)| *id != request);
        }
        self.next.retain(|turn| !turn.requests.is_empty());
    }

    /// A request of a turn that is out goes. Whether it was the last.
    pub fn withdraw_granted(&mut self, id: GrantId, request: RequestId) -> bool {
        let turn = &mut self.out.get_mut(&id).expect("it is out").turn;
        if turn.requests.len() > 1 {
            turn.requests.retain(|(id, ..)| *id != request);
            return false;
        }
        true
    }

    pub fn outstanding(&self) -> usize {
        self.out.len()
    }

    /// What all that are out were predicted to take.
    pub fn predicted_us(&self) -> u64 {
        self.out.values().map(|out| out.predicted_us - out.began_us).fold(0, u64::saturating_add)
    }

    /// Requests of turns that have not left, and of those that have, with their grant.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, ClientId, Option<GrantId>)> {
        let of = |turn: &'_ Turn, grant: Option<GrantId>| {
            let client = turn.client;
            turn.requests.iter().map(move |(id, ..)| (*id, client, grant)).collect::<Vec<_>>()
        };
        let next = self.next.iter().flat_map(move |turn| of(turn, None));
        next.chain(self.out.iter().flat_map(move |(id, out)| of(&out.turn, Some(*id))))
    }

    /// # Panics
    /// If more are out than may ever be, or leases do not agree with them.
    pub fn validate(&self, most: usize) {
        assert!(self.out.len() <= most);
        assert!(self.early.is_none_or(|early| self.out.contains_key(&early)));
        let leases = self.out.iter().map(|(id, out)| (out.until_us, *id));
        assert_eq!(self.leases, leases.collect());
        assert!(self.next.iter().all(|turn| !turn.requests.is_empty()));
    }
}
