//! A coordinator, its clients, and the messages between them, on one clock.

use std::collections::{BTreeMap, BTreeSet};

use eyas_faults::Dice;
use eyas_ioq::{
    ClassId, ClientId, Config, Effect, Event, FileLayout, Grant, GrantId, Request, RequestId,
    RequestRunId, ServerId, Servers, StripedRegion, Striping,
};
use eyas_types::{Extent, Operation, StorageFileId};

const SECOND: u64 = 1_000_000;
/// Servers that layouts of files name.
const SERVERS_OF_LAYOUTS: u32 = 6;
/// End of a run: a request that is not granted by then never is.
const LIMIT_US: u64 = 1_000 * SECOND;

/// Servers, workload and faults of a run.
#[derive(Clone, Debug)]
pub struct Case {
    pub configs: Vec<Config>,
    /// How the files of each storage are striped over servers.
    pub striping: Option<Striping>,
    pub clients: u64,
    /// Number of times each client asks, for one to four pieces at a time.
    pub asks: u64,
    /// 0: all clients read one file in turns; 1: each its own file; 2: random.
    pub pattern: u64,
    pub piece_bytes: u64,
    /// Longest delay of a message.
    pub delay_us: u64,
    /// Probabilities, for each grant, that its client disconnects, exceeds its lease, or cancels a
    /// request.
    pub vanishes: f64,
    pub stalls: f64,
    pub cancels: f64,
    pub seed: u64,
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub granted: u64,
    /// Runs with turns of several clients.
    pub together: u64,
    pub vanished: u64,
    pub revoked: u64,
    pub cancelled: u64,
    pub holds: u64,
    pub ended_us: u64,
}

enum Next {
    ToServers(Event),
    ToClient(ClientId, Effect),
    Timer,
    /// A client asks for more.
    Ask(ClientId),
}

struct Client {
    asks: u64,
    offset: u64,
    is_gone: bool,
    wants: BTreeSet<RequestId>,
}

struct World<'a> {
    case: &'a Case,
    dice: Dice,
    now_us: u64,
    /// Events by time, then in the order in which they were added.
    agenda: BTreeMap<(u64, u64), Next>,
    arrivals: u64,
    servers: Servers,
    clients: BTreeMap<ClientId, Client>,
    requests: BTreeMap<RequestId, Request>,
    /// Requests that the servers received, and those that were let go.
    asked: u64,
    let_go: BTreeSet<RequestId>,
    out: BTreeMap<(ServerId, GrantId), Grant>,
    runs: BTreeMap<(ServerId, RequestRunId), (Grant, BTreeSet<ClientId>)>,
    outcome: Outcome,
}

impl Case {
    pub fn run(&self) -> Outcome {
        let mut servers = Servers::new();
        for (config, id) in self.configs.iter().zip(0..) {
            match self.striping {
                None => servers.serve(ServerId(id), config.clone()),
                Some(striping) => servers.serve_striped(ServerId(id), config, striping),
            }
        }
        let client =
            |_| Client { asks: self.asks, offset: 0, is_gone: false, wants: BTreeSet::new() };
        let mut world = World {
            case: self,
            dice: Dice::new(self.seed),
            now_us: 0,
            agenda: BTreeMap::new(),
            arrivals: 0,
            servers,
            clients: (0..self.clients).map(|id| (ClientId(id), client(id))).collect(),
            requests: BTreeMap::new(),
            asked: 0,
            let_go: BTreeSet::new(),
            out: BTreeMap::new(),
            runs: BTreeMap::new(),
            outcome: Outcome::default(),
        };
        (0..self.clients).for_each(|id| world.after(id * 7, Next::Ask(ClientId(id))));
        while let Some(((now_us, _), next)) = world.agenda.pop_first() {
            assert!(now_us < LIMIT_US, "{self:?}");
            world.now_us = now_us;
            world.happen(next);
        }
        world.check()
    }
}

impl World<'_> {
    fn after(&mut self, us: u64, next: Next) {
        self.arrivals += 1;
        self.agenda.insert((self.now_us + us, self.arrivals), next);
    }

    /// Sends a message with a random delay, sometimes twice. Messages may overtake each other.
    fn send(&mut self, after_us: u64, event: Event) {
        let asks = matches!(event, Event::Asked(_) | Event::AskedStriped { .. });
        if !asks && self.dice.below(20) == 0 {
            let delay_us = self.dice.below(self.case.delay_us);
            self.after(after_us + delay_us, Next::ToServers(event.clone()));
        }
        let delay_us = self.dice.below(self.case.delay_us);
        self.after(after_us + delay_us, Next::ToServers(event));
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::ToServers(event) => self.tell(event),
            Next::Timer if self.servers.next_timeout().is_some_and(|us| us <= self.now_us) => {
                self.tell(Event::Tick)
            }
            Next::Timer => {}
            Next::ToClient(client, effect) => self.hear(client, effect),
            Next::Ask(client) => self.ask(client),
        }
    }

    fn ask(&mut self, id: ClientId) {
        let client = self.clients.get_mut(&id).expect("it is known");
        if client.is_gone || client.asks == 0 {
            return;
        }
        client.asks -= 1;
        let server = ServerId(self.dice.below(self.case.configs.len() as u64) as u32);
        let pieces = 1 + self.dice.below(4);
        let mut requests = Vec::new();
        for _ in 0..pieces {
            let (file, offset) = match self.case.pattern {
                0 => (0, (client.offset * self.case.clients + id.0) * self.case.piece_bytes),
                1 => (id.0, client.offset * self.case.piece_bytes),
                _ => (self.dice.below(3), self.dice.below(50) * self.case.piece_bytes / 2),
            };
            client.offset += 1;
            let operation =
                [Operation::Read, Operation::Write][usize::from(self.dice.below(5) == 0)];
            requests.push(Request {
                id: RequestId(0),
                client: id,
                server,
                class: ClassId(id.0 as u32 % 3),
                file: StorageFileId(file),
                operation,
                extent: Extent { offset, size_bytes: self.case.piece_bytes },
                call: None,
            });
        }
        // They are numbered when they arrive. Of some files, the layout is known.
        if self.case.striping.is_some() && self.dice.below(2) == 0 {
            for request in requests {
                let layout = self.layout();
                self.send(0, Event::AskedStriped { request, layout });
            }
        } else {
            self.send(0, Event::Asked(requests));
        }
    }

    /// A layout of two regions, each on some servers. Another one for each request of a file
    /// is worse than what file systems have.
    fn layout(&mut self) -> FileLayout {
        let mut region = |offset| {
            let servers = (0..=self.dice.below(4))
                .map(|_| self.dice.below(SERVERS_OF_LAYOUTS.into()) as u32)
                .collect();
            let stripe_bytes = (1 + self.dice.below(4)) << 11;
            StripedRegion { offset, stripe_bytes, servers }
        };
        let regions = vec![region(0), region(20 << 10)];
        let layout = FileLayout(regions);
        assert!(layout.is_valid());
        layout
    }

    /// A request has arrived. Returns whether its client is still there.
    fn arrived(&mut self, request: &mut Request) -> bool {
        let client = self.clients.get_mut(&request.client).expect("it is known");
        if client.is_gone {
            return false;
        }
        self.asked += 1;
        request.id = RequestId(self.asked);
        self.requests.insert(request.id, *request);
        client.wants.insert(request.id);
        true
    }

    fn tell(&mut self, mut event: Event) {
        match &mut event {
            Event::Asked(requests) => requests.retain_mut(|request| self.arrived(request)),
            Event::AskedStriped { request, .. } => {
                if !self.arrived(request) {
                    return;
                }
            }
            Event::Completed { client, server, grant, .. } => {
                if self.out.get(&(*server, *grant)).is_some_and(|grant| grant.client == *client) {
                    self.out.remove(&(*server, *grant));
                }
            }
            Event::Cancelled { client, request, .. } => {
                self.clients.get_mut(client).expect("it is known").wants.remove(request);
                for grant in self.out.values_mut() {
                    grant.requests.retain(|id| id != request);
                }
                self.out.retain(|_, grant| !grant.requests.is_empty());
                self.outcome.cancelled += 1;
            }
            Event::Gone { client } => self.out.retain(|_, grant| grant.client != *client),
            Event::Tick => {}
        }
        let mut effects = Vec::new();
        self.servers.handle(self.now_us, event, &mut effects);
        self.servers.validate();
        for effect in effects {
            let client = match &effect {
                Effect::Granted(grant) => {
                    self.check_grant(grant);
                    grant.client
                }
                Effect::Uncoordinated { client, .. } => panic!("{client:?}: nothing is full"),
                Effect::Revoked { client, server, grant } => {
                    self.out.remove(&(*server, *grant)).expect("only what is out is revoked");
                    self.outcome.revoked += 1;
                    *client
                }
            };
            let delay_us = self.dice.below(self.case.delay_us);
            self.after(delay_us, Next::ToClient(client, effect));
        }
        if let Some(timeout_us) = self.servers.next_timeout() {
            assert!(timeout_us > self.now_us, "everything due is done");
            self.after(timeout_us - self.now_us, Next::Timer);
        }
    }

    fn check_grant(&mut self, grant: &Grant) {
        for request in &grant.requests {
            assert!(self.let_go.insert(*request), "{request:?} is granted twice");
            let asked = &self.requests[request];
            let of_grant = (grant.server, grant.client, grant.file, grant.operation);
            assert_eq!((asked.server, asked.client, asked.file, asked.operation), of_grant);
            assert!(
                asked.extent.offset >= grant.extent.offset
                    && asked.extent.end() <= grant.extent.end()
            );
        }
        self.outcome.granted += grant.requests.len() as u64;
        let run =
            self.runs.entry((grant.server, grant.run)).or_insert((grant.clone(), BTreeSet::new()));
        assert_eq!((run.0.file, run.0.operation), (grant.file, grant.operation));
        assert!(run.0.extent.offset <= grant.extent.offset, "turns are in the order of offsets");
        run.1.insert(grant.client);
        self.out.insert((grant.server, grant.id), grant.clone());
        let config = &self.case.configs[grant.server.0 as usize];
        let limit = config.budget.concurrency.unwrap_or(64) as usize
            + usize::from(config.margin_us.is_some());
        let servers =
            self.case.striping.map_or(1, |striping| striping.servers.get().max(SERVERS_OF_LAYOUTS));
        let limit = limit * servers as usize;
        assert!(self.out.keys().filter(|(server, _)| *server == grant.server).count() <= limit);
    }

    fn hear(&mut self, id: ClientId, effect: Effect) {
        let Effect::Granted(grant) = effect else { return };
        if self.clients[&id].is_gone {
            return;
        }
        if self.dice.happens(self.case.vanishes) {
            self.clients.get_mut(&id).expect("it is known").is_gone = true;
            self.outcome.vanished += 1;
            self.send(0, Event::Gone { client: id });
            return;
        }
        if self.dice.happens(self.case.cancels)
            && let Some(request) = self.clients[&id].wants.first().copied()
        {
            let server = self.requests[&request].server;
            self.send(0, Event::Cancelled { client: id, server, request });
        }
        // Some 100 bytes a microsecond, after a seek.
        let mut takes_us =
            self.dice.below(8_000) + grant.extent.size_bytes / (50 + self.dice.below(100));
        if self.dice.happens(self.case.stalls) {
            takes_us += self.dice.below(SECOND);
        }
        let Grant { server, id: grant, extent, .. } = grant;
        self.send(
            takes_us,
            Event::Completed {
                client: id,
                server,
                grant,
                bytes: extent.size_bytes,
                took_us: Some(takes_us),
            },
        );
        let think_us = self.dice.below(1_000);
        self.after(takes_us + think_us, Next::Ask(id));
    }

    fn check(mut self) -> Outcome {
        for (id, client) in self.clients.iter().filter(|(_, client)| !client.is_gone) {
            let waits = client.wants.iter().find(|request| !self.let_go.contains(request));
            assert_eq!(waits, None, "{id:?} waits for ever: {:?}", self.case);
        }
        for server in (0..self.case.configs.len() as u32).map(ServerId) {
            for stats in self.servers.stats(server) {
                assert_eq!((stats.queued, stats.outstanding), (0, 0), "{stats:?}");
                assert!(stats.arrived.bytes >= stats.ordered.bytes);
                assert_eq!(
                    stats.waits.values().map(|waits| waits.requests).sum::<u64>(),
                    stats.granted
                );
                self.outcome.holds += stats.holds;
            }
            assert!(self.servers.forget(server), "{server:?} has something left");
        }
        self.outcome.together =
            self.runs.values().filter(|(_, clients)| clients.len() > 1).count() as u64;
        self.outcome.ended_us = self.now_us;
        self.outcome
    }
}
