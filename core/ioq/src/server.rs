//! One server: what waits there, and what is out.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::Operation;

use crate::anticipation::{Advice, Anticipation};
use crate::budget::Used;
use crate::climb::{Climb, Load, MAX_CONCURRENCY, Size};
use crate::config::Config;
use crate::event::{ClassId, ClientId, Effect, Grant, GrantId, Request, RequestId, RunId, ServerId};
use crate::forecast::Forecast;
use crate::measures::Measures;
use crate::prediction::Bandwidth;
use crate::quality::{self, Tags};
use crate::queue::Queue;
use crate::run::{Place, Waiting};
use crate::turns::{Out, Term, Turn, Turns};

/// Requests of a server that wait or are out. Further ones are let go at once, out of order: coordination must never stand
/// in the way.
pub const MAX_QUEUED: usize = 1 << 17;

/// A lease is longer than was said by what its grant is predicted to take, so many times.
const PREDICTED_TIMES: u64 = 4;
/// But no longer than this, however slow a server has shown to be.
const MAX_LEASE_US: u64 = 600_000_000;

/// A grant of no more is small: how many of them a server does at a time says little about large ones.
const SMALL_BYTES: u64 = 256 << 10;

pub(crate) struct Server {
    id: ServerId,
    config: Config,
    classes: BTreeMap<ClassId, Class>,
    /// What is not done.
    requests: BTreeMap<RequestId, State>,
    by_client: BTreeSet<(ClientId, RequestId)>,
    turns: Turns,
    bandwidth: Bandwidth,
    /// How long messages take that grant and tell of the end, as far as ends are told with how long it took.
    messages_us: Option<Forecast>,
    /// Small grants at a time, and large ones.
    climbs: [Climb; 2],
    anticipation: Anticipation,
    used: Used,
    measures: Measures,
    /// When something can be granted, if nothing happens before.
    wake_us: Option<u64>,
}

struct Class {
    tags: Tags,
    queue: Queue,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits(ClassId, Place),
    /// In the run that is being granted, and its turn is to come.
    IsNext,
    Granted(GrantId),
}

impl Server {
    pub fn new(id: ServerId, config: Config) -> Self {
        let mut qualities = config.classes.clone();
        qualities.entry(ClassId::default()).or_default();
        let class =
            |quality| Class { tags: Tags::new(quality), queue: Queue::new(config.policy, config.max_run_bytes) };
        Server {
            id,
            classes: qualities.into_iter().map(|(id, quality)| (id, class(quality))).collect(),
            requests: BTreeMap::new(),
            by_client: BTreeSet::new(),
            turns: Turns::new(config.margin_us.is_some()),
            bandwidth: Bandwidth::new(config.bandwidth_bytes_per_s),
            messages_us: None,
            climbs: [Size::Small, Size::Large].map(|size| Climb::new(config.budget.concurrency, size)),
            anticipation: Anticipation::new(config.window_us, config.max_run_bytes),
            used: Used::default(),
            measures: Measures::default(),
            wake_us: None,
            config,
        }
    }

    // ---- what happens

    pub fn ask(&mut self, now_us: u64, request: &Request, effects: &mut Vec<Effect>) {
        let Request { id, client, file, operation, extent, call, .. } = *request;
        let stream = (file, operation);
        self.measures.requests += 1;
        self.measures.arrived.add(stream, extent);
        if self.requests.len() >= MAX_QUEUED {
            self.measures.uncoordinated += 1;
            effects.push(Effect::Uncoordinated { client, request: id });
            return;
        }
        let class = Some(request.class).filter(|class| self.classes.contains_key(class)).unwrap_or_default();
        let awake = self.classes.values().filter(|class| class.queue.len() > 0);
        let share = awake.map(|class| class.tags.share).min();
        let Class { tags, queue } = self.classes.get_mut(&class).expect("the default class is always there");
        if queue.len() == 0 {
            tags.wake(now_us, share);
        }
        let place = Place { stream, offset: extent.offset, request: id };
        queue.insert(place, Waiting { client, extent, call, arrived_us: now_us, round: queue.round() });
        self.requests.insert(id, State::Waits(class, place));
        self.by_client.insert((client, id));
    }

    /// What a client says of another's grant, or of one that was revoked, does not count.
    pub fn completed(&mut self, now_us: u64, client: ClientId, grant: GrantId, bytes: u64, took_us: Option<u64>) {
        if self.turns.get(grant).is_some_and(|out| out.turn.client == client) {
            self.see(now_us);
            let out = self.end(now_us, grant);
            if self.climb(&out, bytes, self.bandwidth.known_us(bytes)) && !out.is_late {
                let heard_us = now_us - out.began_us;
                if let Some(took_us) = took_us.filter(|_| !out.is_early) {
                    self.learn_messages(heard_us.saturating_sub(took_us));
                }
                self.bandwidth.learn(bytes, heard_us.saturating_sub(self.messages_us()));
            }
        }
    }

    /// How long messages take, there and back.
    fn messages_us(&self) -> u64 {
        self.messages_us.as_ref().map_or(0, |forecast| forecast.value() as u64)
    }

    fn learn_messages(&mut self, us: u64) {
        match &mut self.messages_us {
            Some(forecast) => forecast.learn(us as f64),
            None => self.messages_us = Some(Forecast::new(us as f64)),
        }
    }

    /// Tells the climbs that a turn has ended. Whether what it took says how long such turns take.
    fn climb(&mut self, out: &Out, bytes: u64, predicted_us: Option<u64>) -> bool {
        let (small, out_us) = (self.climbs[0].level(), self.turns.predicted_us());
        let ended = |climb: &mut Climb| climb.ended(size(&out.turn), bytes, predicted_us, out_us, small);
        // None of the two may miss it.
        self.climbs.iter_mut().map(ended).fold(true, |all, is_usual| all & is_usual)
    }

    /// Has the climbs reckon with how things are until now, and from now on.
    fn see(&mut self, now_us: u64) {
        let (out, waits) = (self.turns.outstanding(), !self.is_empty());
        for climb in &mut self.climbs {
            let load = match out {
                0 => Load::Idle,
                _ if waits && out >= climb.limit() as usize => Load::Full,
                _ => Load::Busy,
            };
            climb.see(now_us, load);
        }
    }

    pub fn cancelled(&mut self, now_us: u64, client: ClientId, request: RequestId) {
        if self.by_client.contains(&(client, request)) {
            self.withdraw(now_us, client, request);
        }
    }

    pub fn gone(&mut self, now_us: u64, client: ClientId) {
        let of_client = (client, RequestId(0))..=(client, RequestId(u64::MAX));
        while let Some((client, request)) = self.by_client.range(of_client.clone()).next().copied() {
            self.withdraw(now_us, client, request);
        }
    }

    fn withdraw(&mut self, now_us: u64, client: ClientId, request: RequestId) {
        match self.requests[&request] {
            State::Waits(class, place) => {
                self.classes.get_mut(&class).expect("it waits there").queue.remove(&place);
            }
            State::IsNext => self.turns.withdraw(request),
            State::Granted(grant) => {
                if self.turns.withdraw_granted(grant, request) {
                    self.end(now_us, grant);
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

    fn end(&mut self, now_us: u64, grant: GrantId) -> Out {
        let out = self.turns.end(now_us, self.messages_us(), grant).expect("what ends is out");
        for (request, ..) in &out.turn.requests {
            self.forget(out.turn.client, *request);
        }
        out
    }

    pub fn expire(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        while let Some(grant) = self.turns.expired(now_us) {
            self.see(now_us);
            let out = self.end(now_us, grant);
            if self.climb(&out, 0, Some(0)) && !out.is_late {
                // It would have taken longer. Else a server that is slower than its leases allow would be so for ever.
                self.bandwidth.learn(out.turn.extent().size_bytes, now_us - out.began_us);
            }
            self.measures.revoked += 1;
            effects.push(Effect::Revoked { client: out.turn.client, server: self.id, grant });
        }
    }

    // ---- granting

    /// Grants all that can be granted now.
    pub fn dispatch(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        self.wake_us = loop {
            if let Err(until_us) = self.turns.room(now_us, self.limit(), self.overlaps()) {
                break until_us.filter(|_| !self.is_empty());
            }
            if self.turns.front().is_none() {
                if let Err(until_us) = self.begin_run(now_us) {
                    break until_us;
                }
                // What was chosen may be of those of which there are fewer at a time.
                continue;
            }
            self.grant(now_us, effects);
        };
        self.see(now_us);
    }

    /// Grants at a time: such as the next one, or of whatever size if it is not known yet.
    fn limit(&self) -> usize {
        let [small, large] = &self.climbs;
        // Where many large ones are good, so are small ones.
        let any = small.limit().max(large.limit());
        self.turns.front().map_or(any, |turn| if size(turn) == Size::Small { any } else { large.limit() }) as usize
    }

    /// Whether it is tried to have the next one leave a little before its time.
    fn overlaps(&self) -> bool {
        let next = self.turns.front().map(|turn| size(turn) as usize);
        next.map_or(self.climbs.iter().any(Climb::overlaps), |size| self.climbs[size].overlaps())
    }

    /// Whether nothing waits, and nothing is out.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether nothing is to be granted.
    fn is_empty(&self) -> bool {
        self.turns.front().is_none() && self.classes.values().all(|class| class.queue.len() == 0)
    }

    /// Chooses what is granted next. Or when to look again.
    fn begin_run(&mut self, now_us: u64) -> Result<(), Option<u64>> {
        // Where much goes on at a time nothing is ever idle.
        if self.limit() == 1 {
            self.anticipation.idle(now_us);
        }
        let awake = self.classes.iter().filter(|(_, class)| class.queue.len() > 0);
        let next = quality::next(now_us, awake.map(|(id, class)| (*id, &class.tags))).ok_or(None)?;
        let free_us = self.used.free_us();
        if free_us > now_us {
            return Err(Some(free_us));
        }
        let (class, turn) = next.map_err(Some)?;
        let Class { tags, queue } = self.classes.get_mut(&class).expect("it was found there");
        let chosen = queue.choose(now_us).expect("who wants something has a run").clone();
        let head = match self.anticipation.advise(now_us, class, queue, &chosen) {
            Advice::Go(head) => head,
            Advice::Hold(until_us) => return Err(Some(until_us)),
        };
        let (run, taken) = queue.take(head);
        let end = taken.iter().map(|(_, waiting)| waiting.extent.end()).max().expect("a run has requests");
        self.anticipation.granted(class, &run, end);
        tags.spend(turn, run.bytes);
        self.used.spend(&self.config.budget, now_us, run.bytes, run.requests as u64);
        for (place, _) in &taken {
            self.requests.insert(place.request, State::IsNext);
        }
        self.measures.runs += 1;
        self.measures.longest_run_bytes = self.measures.longest_run_bytes.max(run.bytes);
        self.turns.begin_run(RunId(self.measures.runs), class, taken);
        Ok(())
    }

    fn grant(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let extent = self.turns.front().expect("a run has turns").extent();
        let predicted_us = self.bandwidth.predict_us(extent.size_bytes);
        let term = Term {
            predicted: predicted_us.saturating_add(self.config.margin_us.unwrap_or(0)),
            lease: predicted_us
                .saturating_mul(PREDICTED_TIMES)
                .saturating_add(self.config.lease_us)
                .saturating_add(self.messages_us())
                .min(MAX_LEASE_US.max(self.config.lease_us)),
        };
        let (id, out) = self.turns.grant(now_us, self.limit(), term).expect("there is one");
        let (turn, until_us) = (&out.turn, out.until_us);
        let waits = self.measures.waits.entry(turn.class).or_default();
        for (request, extent, arrived_us) in &turn.requests {
            self.requests.insert(*request, State::Granted(id));
            self.measures.ordered.add(turn.stream, *extent);
            self.measures.granted_bytes += extent.size_bytes;
            waits.add(now_us - arrived_us, extent.size_bytes);
        }
        self.measures.grants += 1;
        self.measures.granted += turn.requests.len() as u64;
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

    // ---- what is asked of it

    pub fn next_timeout(&self) -> Option<u64> {
        self.turns.next_expiry().into_iter().chain(self.wake_us).min()
    }

    pub fn measures(&self) -> Measures {
        Measures {
            queued: self.classes.values().map(|class| class.queue.len() as u64).sum(),
            outstanding: self.turns.outstanding() as u64,
            concurrency: self.climbs[1].limit().into(),
            small_concurrency: self.climbs[0].limit().into(),
            holds: self.anticipation.holds(),
            bandwidth_bytes_per_s: self.bandwidth.bytes_per_s(),
            ..self.measures.clone()
        }
    }

    /// # Panics
    /// If what it keeps does not agree.
    pub fn validate(&self) {
        // One more leaves where ends are predicted, and while it is tried whether turns may overlap.
        self.turns.validate(self.config.budget.concurrency.unwrap_or(MAX_CONCURRENCY).max(1) as usize + 1);
        self.anticipation.validate();
        assert!(self.requests.len() <= MAX_QUEUED && self.requests.len() == self.by_client.len());
        let mut found = 0;
        for (request, client, grant) in self.turns.requests() {
            let state = grant.map_or(State::IsNext, State::Granted);
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
            if let State::Waits(class, place) = state {
                assert!(place.request == *request && self.classes[class].queue.contains(place));
            }
        }
    }
}

fn size(turn: &Turn) -> Size {
    // Small reads are of those who jump about. Small writes go on where others end: several at a time take that away.
    let is_read = turn.stream.1 == Operation::Read;
    if is_read && turn.extent().size_bytes <= SMALL_BYTES { Size::Small } else { Size::Large }
}
