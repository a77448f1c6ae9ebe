//! Outstanding grants with their leases, and the turns of the run that is being granted.
//!
//! A run is granted turn by turn, one client after the other. A grant may be *early*: sent before
//! the previous one was reported to be done, because that was predicted to be (io-coordination
//! §4.1).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::Extent;

use crate::event::{ClassId, ClientId, GrantId, RequestId, RequestRunId};
use crate::ordering::run::{QueueKey, QueuedRequest, Stream};
use crate::pacing::concurrency::OVERLAP;

/// Consecutive requests of one client in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientTurn {
    pub run: RequestRunId,
    pub class: ClassId,
    pub client: ClientId,
    pub stream: Stream,
    /// At least one request.
    pub requests: Vec<(RequestId, Extent, u64 /* arrived_us */)>,
}

impl ClientTurn {
    /// Bytes from the first to the last of the requests.
    pub fn extent(&self) -> Extent {
        let offset = self.requests[0].1.offset;
        let end = self
            .requests
            .iter()
            .map(|(_, extent, _)| extent.end())
            .max()
            .expect("a turn has requests");
        Extent { offset, size_bytes: end - offset }
    }
}

/// A turn that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutstandingGrant {
    pub turn: ClientTurn,
    /// When its execution began, as far as is known, if the grant had been sent just then.
    pub began_us: u64,
    /// When the next grant can leave, so as to arrive when this one ends.
    pub predicted_us: u64,
    /// The grant left before the previous one was reported to be done.
    pub is_early: bool,
    /// The grant is not known to have arrived before the previous one was done, so its duration
    /// tells nothing.
    pub is_late: bool,
    pub until_us: u64,
}

/// Predicted duration of a grant, and duration of its lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantTerm {
    pub predicted_us: u64,
    pub lease_us: u64,
}

pub(crate) struct Grants {
    /// Turns of the current run that have not been granted.
    turns: VecDeque<ClientTurn>,
    outstanding: BTreeMap<GrantId, OutstandingGrant>,
    leases: BTreeSet<(u64, GrantId)>,
    /// The grant that left before the previous one was reported to be done.
    early: Option<GrantId>,
    granted: u64,
    is_predicted: bool,
}

impl Grants {
    pub fn new(is_predicted: bool) -> Self {
        Grants {
            turns: VecDeque::new(),
            outstanding: BTreeMap::new(),
            leases: BTreeSet::new(),
            early: None,
            granted: 0,
            is_predicted,
        }
    }

    /// Whether the next grant may leave now, if `limit` grants may be outstanding. One more may
    /// leave if ends are predicted, when the first of the outstanding grants is predicted to end;
    /// or, with `overlap`, when it has a part of its time left. Otherwise returns when the next may
    /// leave; `None`: when a grant has ended. For example, if one grant may be outstanding, and one
    /// that began at 0 is predicted to end at 80 ms, the next may leave at 80 ms, or at 70 ms with
    /// `overlap`.
    pub fn may_leave(&self, now_us: u64, limit: usize, overlap: bool) -> Result<(), Option<u64>> {
        if self.outstanding.len() < limit {
            return Ok(());
        }
        if !(self.is_predicted || overlap) || self.outstanding.len() > limit {
            return Err(None);
        }
        let ahead_us = |out: &OutstandingGrant| {
            if overlap { (out.predicted_us - out.began_us) / OVERLAP } else { 0 }
        };
        let soonest_us =
            self.outstanding.values().map(|out| out.predicted_us - ahead_us(out)).min();
        if soonest_us <= Some(now_us) { Ok(()) } else { Err(soonest_us) }
    }

    /// Begins a run: splits it into turns of consecutive requests of one client.
    pub fn begin_run(
        &mut self,
        run: RequestRunId,
        class: ClassId,
        taken: Vec<(QueueKey, QueuedRequest)>,
    ) {
        assert!(self.turns.is_empty(), "runs are granted one after the other");
        for (key, QueuedRequest { client, extent, arrived_us, .. }) in taken {
            let request = (key.request, extent, arrived_us);
            match self.turns.back_mut() {
                Some(turn) if turn.client == client => turn.requests.push(request),
                _ => {
                    let turn = ClientTurn {
                        run,
                        class,
                        client,
                        stream: key.stream,
                        requests: [request].into(),
                    };
                    self.turns.push_back(turn);
                }
            }
        }
    }

    /// The next turn of the run.
    pub fn front(&self) -> Option<&ClientTurn> {
        self.turns.front()
    }

    /// Grants the next turn.
    pub fn grant(
        &mut self,
        now_us: u64,
        limit: usize,
        term: GrantTerm,
    ) -> Option<(GrantId, &OutstandingGrant)> {
        let turn = self.turns.pop_front()?;
        self.granted += 1;
        let id = GrantId(self.granted);
        if self.is_predicted && self.outstanding.len() >= limit {
            self.early = Some(id);
        }
        let predicted_us = now_us.saturating_add(term.predicted_us);
        let until_us = now_us.saturating_add(term.lease_us);
        self.leases.insert((until_us, id));
        let is_early = self.early == Some(id);
        let out = OutstandingGrant {
            turn,
            began_us: now_us,
            predicted_us,
            until_us,
            is_early,
            is_late: is_early,
        };
        Some((id, self.outstanding.entry(id).or_insert(out)))
    }

    pub fn get(&self, id: GrantId) -> Option<&OutstandingGrant> {
        self.outstanding.get(&id)
    }

    /// Ends a grant. `messages_us` is the time of two messages, there and back.
    ///
    /// If another grant left early, its execution begins now, less the messages. So a wrong
    /// prediction does not spoil the next one (io-coordination §6.3.3).
    pub fn end(&mut self, now_us: u64, messages_us: u64, id: GrantId) -> Option<OutstandingGrant> {
        let out = self.outstanding.remove(&id)?;
        self.leases.remove(&(out.until_us, id));
        self.early.take_if(|early| *early == id);
        if let Some(early) = self.early.take() {
            let out = self.outstanding.get_mut(&early).expect("the early grant is outstanding");
            let term_us = out.predicted_us - out.began_us;
            let began_us = now_us.saturating_sub(messages_us);
            out.is_late = out.began_us > began_us;
            out.began_us = out.began_us.max(began_us);
            out.predicted_us = out.began_us.saturating_add(term_us);
        }
        Some(out)
    }

    /// The first grant whose lease has expired.
    pub fn expired(&self, now_us: u64) -> Option<GrantId> {
        self.leases.first().filter(|(until_us, _)| *until_us <= now_us).map(|(_, id)| *id)
    }

    /// When the next lease expires.
    pub fn next_expiry(&self) -> Option<u64> {
        self.leases.first().map(|(until_us, _)| *until_us)
    }

    /// Removes a request from a turn that is not granted yet.
    pub fn withdraw(&mut self, request: RequestId) {
        for turn in &mut self.turns {
            turn.requests.retain(|(id, ..)| *id != request);
        }
        self.turns.retain(|turn| !turn.requests.is_empty());
    }

    /// Removes a request from a granted turn, unless it is the only one. Returns whether it is.
    pub fn withdraw_granted(&mut self, id: GrantId, request: RequestId) -> bool {
        let turn = &mut self.outstanding.get_mut(&id).expect("the grant is outstanding").turn;
        if turn.requests.len() > 1 {
            turn.requests.retain(|(id, ..)| *id != request);
            return false;
        }
        true
    }

    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Predicted durations of all outstanding grants together.
    pub fn predicted_us(&self) -> u64 {
        self.outstanding
            .values()
            .map(|out| out.predicted_us - out.began_us)
            .fold(0, u64::saturating_add)
    }

    /// All requests of waiting turns, and of outstanding ones with their grants.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, ClientId, Option<GrantId>)> {
        let of = |turn: &'_ ClientTurn, grant: Option<GrantId>| {
            let client = turn.client;
            turn.requests.iter().map(move |(id, ..)| (*id, client, grant)).collect::<Vec<_>>()
        };
        let next = self.turns.iter().flat_map(move |turn| of(turn, None));
        next.chain(self.outstanding.iter().flat_map(move |(id, out)| of(&out.turn, Some(*id))))
    }

    /// # Panics
    /// If more than `limit` grants are outstanding, or the leases do not agree with them.
    pub fn validate(&self, limit: usize) {
        assert!(self.outstanding.len() <= limit);
        assert!(self.early.is_none_or(|early| self.outstanding.contains_key(&early)));
        let leases = self.outstanding.iter().map(|(id, out)| (out.until_us, *id));
        assert_eq!(self.leases, leases.collect());
        assert!(self.turns.iter().all(|turn| !turn.requests.is_empty()));
    }
}
