//! One server: its waiting requests and its outstanding grants.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::Operation;

use crate::config::Config;
use crate::event::{
    ClassId, ClientId, Effect, Grant, GrantId, Request, RequestId, RequestRunId, ServerId,
};
use crate::grants::{ClientTurn, GrantTerm, Grants, OutstandingGrant};
use crate::ordering::mclock::{self, ClassTags, VirtualTime};
use crate::ordering::queue::RequestQueue;
use crate::ordering::run::{QueueKey, QueuedRequest};
use crate::pacing::anticipation::{Anticipation, HoldAdvice};
use crate::pacing::budget::BudgetUse;
use crate::pacing::concurrency::{ConcurrencySearch, GrantSize, MAX_CONCURRENCY, ServerLoad};
use crate::pacing::forecast::Forecast;
use crate::pacing::prediction::BandwidthModel;
use crate::stats::ServerStats;

/// Largest number of requests of a server that wait or are granted. Further requests are let go at
/// once, unordered: the coordinator must never block a program.
pub const MAX_QUEUED: usize = 1 << 17;

/// A lease lasts the configured time and this many times the predicted duration of the grant. For
/// example 16 MiB at 100 MB/s are predicted to take 168 ms: with 1 s as configured by default, the
/// lease lasts for 1.67 s, and the time of two messages.
const PREDICTED_TIMES: u64 = 4;
/// A lease ends after this time even if the server has been measured to be slower.
const MAX_LEASE_US: u64 = 600_000_000;

/// Grants up to this size are small. The best concurrency for small grants says little about the
/// best for large ones.
const SMALL_BYTES: u64 = 256 << 10;

pub(crate) struct Server {
    id: ServerId,
    config: Config,
    classes: BTreeMap<ClassId, Class>,
    virtual_time: VirtualTime,
    /// Requests that wait or are granted.
    requests: BTreeMap<RequestId, RequestState>,
    by_client: BTreeSet<(ClientId, RequestId)>,
    grants: Grants,
    bandwidth: BandwidthModel,
    /// Time of the two messages of a grant, there and back, where clients report how long the
    /// grant took.
    messages_us: Option<Forecast>,
    /// For small grants and for large ones.
    concurrency: [ConcurrencySearch; 2],
    anticipation: Anticipation,
    used: BudgetUse,
    stats: ServerStats,
    /// When something can be granted, if no event arrives before.
    wake_us: Option<u64>,
}

struct Class {
    tags: ClassTags,
    queue: RequestQueue,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Queued(ClassId, QueueKey),
    /// In the run that is being granted; its turn is still to come.
    NextInRun,
    Granted(GrantId),
}

impl Server {
    pub fn new(id: ServerId, config: Config) -> Self {
        let mut qualities = config.classes.clone();
        qualities.entry(ClassId::default()).or_default();
        let class = |qos| Class {
            tags: ClassTags::new(qos),
            queue: RequestQueue::new(config.policy, config.max_run_bytes),
        };
        Server {
            id,
            classes: qualities.into_iter().map(|(id, qos)| (id, class(qos))).collect(),
            virtual_time: VirtualTime::default(),
            requests: BTreeMap::new(),
            by_client: BTreeSet::new(),
            grants: Grants::new(config.margin_us.is_some()),
            bandwidth: BandwidthModel::new(config.bandwidth_bytes_per_s),
            messages_us: None,
            concurrency: [GrantSize::Small, GrantSize::Large]
                .map(|size| ConcurrencySearch::new(config.budget.concurrency, size)),
            anticipation: Anticipation::new(config.window_us, config.max_run_bytes),
            used: BudgetUse::default(),
            stats: ServerStats::default(),
            wake_us: None,
            config,
        }
    }

    // ---- events

    pub fn enqueue(&mut self, now_us: u64, request: &Request, effects: &mut Vec<Effect>) {
        let Request { id, client, file, operation, extent, call, .. } = *request;
        let stream = (file, operation);
        self.stats.requests += 1;
        self.stats.arrived.add(stream, extent);
        if self.requests.len() >= MAX_QUEUED {
            self.stats.uncoordinated += 1;
            effects.push(Effect::Uncoordinated { client, request: id });
            return;
        }
        let class = Some(request.class)
            .filter(|class| self.classes.contains_key(class))
            .unwrap_or_default();
        if self.is_idle() {
            self.virtual_time.idle(self.classes.values().map(|class| &class.tags));
        }
        let Class { tags, queue } =
            self.classes.get_mut(&class).expect("the default class is always there");
        if queue.len() == 0 {
            tags.wake(now_us, self.virtual_time);
        }
        let key = QueueKey { stream, offset: extent.offset, request: id };
        queue.insert(
            key,
            QueuedRequest { client, extent, call, arrived_us: now_us, round: queue.round() },
        );
        self.requests.insert(id, RequestState::Queued(class, key));
        self.by_client.insert((client, id));
    }

    /// A report about another client's grant, or about a revoked one, is ignored.
    pub fn completed(
        &mut self,
        now_us: u64,
        client: ClientId,
        grant: GrantId,
        bytes: u64,
        took_us: Option<u64>,
    ) {
        if self.grants.get(grant).is_some_and(|out| out.turn.client == client) {
            self.observe_load(now_us);
            let out = self.end_grant(now_us, grant);
            if self.record_end(&out, bytes, self.bandwidth.known_us(bytes)) && !out.is_late {
                let heard_us = now_us - out.began_us;
                if let Some(took_us) = took_us.filter(|_| !out.is_early) {
                    self.learn_messages(heard_us.saturating_sub(took_us));
                }
                self.bandwidth.learn(bytes, heard_us.saturating_sub(self.messages_us()));
            }
        }
    }

    /// A grant has ended whose duration tells nothing about this server.
    pub fn released(&mut self, now_us: u64, client: ClientId, grant: GrantId) {
        if self.grants.get(grant).is_some_and(|out| out.turn.client == client) {
            self.observe_load(now_us);
            self.end_grant(now_us, grant);
        }
    }

    /// Time of two messages, there and back.
    fn messages_us(&self) -> u64 {
        self.messages_us.as_ref().map_or(0, |forecast| forecast.value() as u64)
    }

    fn learn_messages(&mut self, us: u64) {
        match &mut self.messages_us {
            Some(forecast) => forecast.learn(us as f64),
            None => self.messages_us = Some(Forecast::new(us as f64)),
        }
    }

    /// Tells the concurrency searches that a turn has ended. Returns whether its duration says how
    /// long such turns usually take.
    fn record_end(
        &mut self,
        out: &OutstandingGrant,
        bytes: u64,
        predicted_us: Option<u64>,
    ) -> bool {
        let small_level = self.concurrency[0].level();
        let out_us = self.grants.predicted_us();
        let ended = |search: &mut ConcurrencySearch| {
            search.grant_ended(size(&out.turn), bytes, predicted_us, out_us, small_level)
        };
        // Both searches must see the end.
        self.concurrency.iter_mut().map(ended).fold(true, |all, is_usual| all & is_usual)
    }

    /// Tells the concurrency searches the load up to now, and from now on.
    fn observe_load(&mut self, now_us: u64) {
        let out = self.grants.outstanding();
        let waits = !self.is_empty();
        for search in &mut self.concurrency {
            let load = match out {
                0 => ServerLoad::Idle,
                _ if waits && out >= search.limit() as usize => ServerLoad::Full,
                _ => ServerLoad::Busy,
            };
            search.observe(now_us, load);
        }
    }

    pub fn cancelled(&mut self, now_us: u64, client: ClientId, request: RequestId) {
        if self.by_client.contains(&(client, request)) {
            self.withdraw(now_us, client, request);
        }
    }

    pub fn client_gone(&mut self, now_us: u64, client: ClientId) {
        let of_client = (client, RequestId(0))..=(client, RequestId(u64::MAX));
        while let Some((client, request)) = self.by_client.range(of_client.clone()).next().copied()
        {
            self.withdraw(now_us, client, request);
        }
    }

    fn withdraw(&mut self, now_us: u64, client: ClientId, request: RequestId) {
        match self.requests[&request] {
            RequestState::Queued(class, key) => {
                self.classes.get_mut(&class).expect("it waits there").queue.remove(&key);
            }
            RequestState::NextInRun => self.grants.withdraw(request),
            RequestState::Granted(grant) => {
                if self.grants.withdraw_granted(grant, request) {
                    self.end_grant(now_us, grant);
                    return;
                }
            }
        }
        self.forget(client, request);
    }

    fn forget(&mut self, client: ClientId, request: RequestId) {
        self.requests.remove(&request);
        self.by_client.remove(&(client, request));
    }

    fn end_grant(&mut self, now_us: u64, grant: GrantId) -> OutstandingGrant {
        let out = self
            .grants
            .end(now_us, self.messages_us(), grant)
            .expect("a grant that ends is outstanding");
        for (request, ..) in &out.turn.requests {
            self.forget(out.turn.client, *request);
        }
        out
    }

    pub fn revoke_expired(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        while let Some(grant) = self.grants.expired(now_us) {
            self.observe_load(now_us);
            let out = self.end_grant(now_us, grant);
            if self.record_end(&out, 0, Some(0)) && !out.is_late {
                // It would have taken longer. Without this, a server that is slower than its leases
                // would exceed all of them.
                self.bandwidth.learn(out.turn.extent().size_bytes, now_us - out.began_us);
            }
            self.stats.revoked += 1;
            effects.push(Effect::Revoked { client: out.turn.client, server: self.id, grant });
        }
    }

    // ---- granting

    /// Grants everything that can be granted now.
    pub fn dispatch(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        self.wake_us = loop {
            if let Err(until_us) = self.grants.may_leave(now_us, self.limit(), self.overlaps()) {
                break until_us.filter(|_| !self.is_empty());
            }
            if self.grants.front().is_none() {
                if let Err(until_us) = self.begin_run(now_us) {
                    break until_us;
                }
                // The limit depends on the size of the chosen run's first turn.
                continue;
            }
            self.grant(now_us, effects);
        };
        self.observe_load(now_us);
    }

    /// Permitted number of outstanding grants, for the next turn or, if that is not chosen yet, for
    /// any size.
    fn limit(&self) -> usize {
        let [small, large] = &self.concurrency;
        // A server that handles many large grants handles as many small ones.
        let any = small.limit().max(large.limit());
        self.grants
            .front()
            .map_or(any, |turn| if size(turn) == GrantSize::Small { any } else { large.limit() })
            as usize
    }

    /// Whether the next grant leaves a little early, as a trial.
    fn overlaps(&self) -> bool {
        let next = self.grants.front().map(|turn| size(turn) as usize);
        next.map_or(self.concurrency.iter().any(ConcurrencySearch::overlaps), |size| {
            self.concurrency[size].overlaps()
        })
    }

    /// Whether no request waits and no grant is outstanding.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether no request waits to be granted.
    fn is_empty(&self) -> bool {
        self.grants.front().is_none() && self.classes.values().all(|class| class.queue.len() == 0)
    }

    /// Chooses the next run. Otherwise returns when to try again, if that does not need an event.
    fn begin_run(&mut self, now_us: u64) -> Result<(), Option<u64>> {
        // A server with several grants at a time is never idle between them.
        if self.limit() == 1 {
            self.anticipation.idle(now_us);
        }
        let awake = self.classes.iter().filter(|(_, class)| class.queue.len() > 0);
        let awake = awake.map(|(id, class)| (*id, &class.tags));
        let next = mclock::next(now_us, awake.clone()).ok_or(None)?;
        let free_us = self.used.free_us();
        if free_us > now_us {
            return Err(Some(free_us));
        }
        let (class, chosen_by) = next.map_err(Some)?;
        self.virtual_time.advance(now_us, awake.map(|(_, tags)| tags));
        let Class { tags, queue } = self.classes.get_mut(&class).expect("it was found there");
        let chosen = queue.choose(now_us).expect("a class with requests has a run").clone();
        let head = match self.anticipation.advise(now_us, class, queue, &chosen) {
            HoldAdvice::Grant(head) => head,
            HoldAdvice::HoldUntil(until_us) => return Err(Some(until_us)),
        };
        let (run, taken) = queue.take(head);
        let end = taken
            .iter()
            .map(|(_, waiting)| waiting.extent.end())
            .max()
            .expect("a run has requests");
        self.anticipation.granted(class, &run, end);
        tags.spend(chosen_by, run.size.bytes);
        self.used.spend(&self.config.budget, now_us, run.size.bytes, run.requests as u64);
        for (key, _) in &taken {
            self.requests.insert(key.request, RequestState::NextInRun);
        }
        self.stats.runs += 1;
        self.stats.longest_run_bytes = self.stats.longest_run_bytes.max(run.size.bytes);
        self.grants.begin_run(RequestRunId(self.stats.runs), class, taken);
        Ok(())
    }

    fn grant(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let extent = self.grants.front().expect("a run has turns").extent();
        let predicted_us = self.bandwidth.predict_us(extent.size_bytes);
        let term = GrantTerm {
            predicted_us: predicted_us.saturating_add(self.config.margin_us.unwrap_or(0)),
            lease_us: predicted_us
                .saturating_mul(PREDICTED_TIMES)
                .saturating_add(self.config.lease_us)
                .saturating_add(self.messages_us())
                .min(MAX_LEASE_US.max(self.config.lease_us)),
        };
        let (id, out) = self.grants.grant(now_us, self.limit(), term).expect("there is one");
        let (turn, until_us) = (&out.turn, out.until_us);
        let waits = self.stats.waits.entry(turn.class).or_default();
        for (request, extent, arrived_us) in &turn.requests {
            self.requests.insert(*request, RequestState::Granted(id));
            self.stats.ordered.add(turn.stream, *extent);
            self.stats.granted_bytes += extent.size_bytes;
            waits.add(now_us - arrived_us, extent.size_bytes);
        }
        self.stats.grants += 1;
        self.stats.granted += turn.requests.len() as u64;
        effects.push(Effect::Granted(Grant {
            id,
            run: turn.run,
            client: turn.client,
            server: self.id,
            file: turn.stream.0,
            operation: turn.stream.1,
            extent,
            requests: turn.requests.iter().map(|(request, ..)| *request).collect(),
            until_us,
        }));
    }

    // ---- queries

    pub fn next_timeout(&self) -> Option<u64> {
        self.grants.next_expiry().into_iter().chain(self.wake_us).min()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn stats(&self) -> ServerStats {
        ServerStats {
            queued: self.classes.values().map(|class| class.queue.len() as u64).sum(),
            outstanding: self.grants.outstanding() as u64,
            concurrency: self.concurrency[1].limit().into(),
            small_concurrency: self.concurrency[0].limit().into(),
            holds: self.anticipation.holds(),
            bandwidth_bytes_per_s: self.bandwidth.bytes_per_s(),
            ..self.stats.clone()
        }
    }

    /// # Panics
    /// If the state is inconsistent.
    pub fn validate(&self) {
        // One more is outstanding if ends are predicted, or while overlapping is tried.
        self.grants.validate(
            self.config.budget.concurrency.unwrap_or(MAX_CONCURRENCY).max(1) as usize + 1,
        );
        self.anticipation.validate();
        assert!(self.requests.len() <= MAX_QUEUED && self.requests.len() == self.by_client.len());
        let mut found = 0;
        for (request, client, grant) in self.grants.requests() {
            let state = grant.map_or(RequestState::NextInRun, RequestState::Granted);
            assert_eq!(self.requests[&request], state);
            assert!(self.by_client.contains(&(client, request)));
            found += 1;
        }
        for class in self.classes.values() {
            class.queue.validate();
            found += class.queue.len();
        }
        assert_eq!(found, self.requests.len(), "each request is in one place");
        for (request, state) in &self.requests {
            if let RequestState::Queued(class, key) = state {
                assert!(key.request == *request && self.classes[class].queue.contains(key));
            }
        }
    }
}

fn size(turn: &ClientTurn) -> GrantSize {
    // Small reads come from random access. Small writes continue each other, and several at a time
    // would break that order.
    let is_read = turn.stream.1 == Operation::Read;
    if is_read && turn.extent().size_bytes <= SMALL_BYTES {
        GrantSize::Small
    } else {
        GrantSize::Large
    }
}
