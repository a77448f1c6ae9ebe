//! State of the coordinator: it passes what agents ask to the decider, and the decisions back to
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use eyas_ioq::{
    ClientId, Effect, Event, FileLayout, PartSource, Request, RequestId, ServerId, Servers,
    SharedParts,
};
use eyas_session::Outbox;
use eyas_wire::Role;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::known_storages::KnownStorages;
use crate::protocol::{
    AgentRequest, HEARTBEAT, IoStatus, MAX_NAME_BYTES, MAX_STORAGES, StorageConfigs, ToAgent,
    ToCoordinator,
};
use crate::rules::Rules;
use crate::storage_name::server_names;

/// Messages that are handled together.
const MAX_TOGETHER: usize = 1 << 10;
/// Shortest timer.
const MIN_TIMER: Duration = Duration::from_micros(50);

/// Input of the core.
pub(crate) enum CoordinatorMessage<O> {
    /// An agent, or a client that asks for the status, has connected.
    Connected(ClientId, O, Role),
    /// It has sent this message.
    Received(ClientId, ToCoordinator),
    /// It has disconnected.
    Disconnected(ClientId),
}

/// Where messages to one agent go. When it is dropped, the session is closed.
pub(crate) trait AgentOutbox {
    /// Sends messages. Returns false if the agent does not take them.
    fn post(&self, messages: Vec<ToAgent>) -> bool;
}

impl AgentOutbox for Outbox<ToAgent> {
    fn post(&self, messages: Vec<ToAgent>) -> bool {
        Outbox::post(self, messages).is_ok()
    }
}

/// State of the coordinator, owned by one task.
pub(crate) struct CoordinatorCore<O> {
    rules: Rules,
    servers: Servers,
    /// The present time, in microseconds since the coordinator began.
    now_us: u64,
    /// When agents were last told that the coordinator is alive.
    beaten_us: u64,
    storages: KnownStorages,
    agents: HashMap<ClientId, Agent<O>>,
    last_request: u64,
    /// For each waiting request, its agent and the agent's own number for it.
    requests: HashMap<RequestId, (ClientId, u64)>,
    /// The agents that read parts of files, for each group.
    shared: HashMap<Group, SharedParts>,
    effects: Vec<Effect>,
}

/// Agents of one user, which pass parts of files on to each other.
type Group = [u8; 32];

struct Agent<O> {
    outbox: O,
    role: Role,
    /// Its group, and its address for other agents.
    peers: Option<(Group, SocketAddr)>,
    /// Storages in the order in which the agent has named them.
    storages: Vec<ServerId>,
    /// Storages that the agent bypasses.
    bypassed: BTreeSet<ServerId>,
    /// Requests that are not granted, by the agent's numbers.
    waiting: HashMap<u64, RequestId>,
    said: Vec<ToAgent>,
}

impl CoordinatorCore<Outbox<ToAgent>> {
    /// Serves agents until no message can come any longer.
    pub async fn run(mut self, mut told: mpsc::Receiver<CoordinatorMessage<Outbox<ToAgent>>>) {
        let (began, mut together) = (Instant::now(), Vec::new());
        let now_us = || u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        loop {
            let patience = self.patience(now_us());
            match timeout(patience, told.recv_many(&mut together, MAX_TOGETHER)).await {
                Ok(0) => return,
                Ok(_) | Err(_) => self.step(now_us(), together.drain(..)),
            }
        }
    }
}

impl<O: AgentOutbox> CoordinatorCore<O> {
    pub fn new(rules: Rules) -> Self {
        CoordinatorCore {
            rules,
            servers: Servers::new(),
            now_us: 0,
            beaten_us: 0,
            storages: KnownStorages::default(),
            agents: HashMap::new(),
            last_request: 0,
            requests: HashMap::new(),
            shared: HashMap::new(),
            effects: Vec::new(),
        }
    }

    /// Time after which there is something to do, also if no message comes.
    pub fn patience(&self, now_us: u64) -> Duration {
        match self.servers.next_timeout() {
            Some(at_us) => {
                Duration::from_micros(at_us.saturating_sub(now_us)).clamp(MIN_TIMER, HEARTBEAT)
            }
            None => HEARTBEAT,
        }
    }

    /// Handles these messages, or what is due now if there are none, and answers.
    pub fn step(
        &mut self,
        now_us: u64,
        messages: impl ExactSizeIterator<Item = CoordinatorMessage<O>>,
    ) {
        self.now_us = now_us;
        match messages.len() {
            0 => self.handle(Event::Tick),
            _ => messages.for_each(|message| self.hear(message)),
        }
        if now_us - self.beaten_us >= HEARTBEAT.as_micros() as u64 {
            self.beaten_us = now_us;
            self.agents.values_mut().for_each(|agent| agent.said.push(ToAgent::Alive));
        }
        self.carry_out();
    }

    fn hear(&mut self, what: CoordinatorMessage<O>) {
        match what {
            CoordinatorMessage::Connected(client, outbox, role) => {
                let agent = Agent {
                    outbox,
                    role,
                    peers: None,
                    storages: Vec::new(),
                    bypassed: BTreeSet::new(),
                    waiting: HashMap::new(),
                    said: Vec::new(),
                };
                self.agents.insert(client, agent);
            }
            CoordinatorMessage::Received(client, message) => self.said(client, message),
            CoordinatorMessage::Disconnected(client) => self.gone(client),
        }
    }

    fn said(&mut self, client: ClientId, message: ToCoordinator) {
        let Some(agent) = self.agents.get_mut(&client) else { return };
        match message {
            ToCoordinator::Alive => {}
            ToCoordinator::Storage(name) => self.named(client, name, false),
            ToCoordinator::StripedStorage(name) => self.named(client, name, true),
            ToCoordinator::Agent { group, address } => {
                agent.peers.get_or_insert((group, address));
            }
            ToCoordinator::Closed { storage, file } => {
                let server = agent.storages.get(storage as usize).copied();
                if let Some((server, (group, _))) = server.zip(agent.peers)
                    && let Some(parts) = self.shared.get_mut(&group)
                {
                    parts.closed(client, server, file);
                }
            }
            ToCoordinator::Ask(wanted) => self.ask(client, wanted, None),
            ToCoordinator::AskShared(wanted) => self.ask_shared(client, wanted, None),
            ToCoordinator::AskStriped { request, layout, may_share } => {
                let layout = Some(layout).filter(FileLayout::is_valid);
                match may_share {
                    true => self.ask_shared(client, vec![request], layout),
                    false => self.ask(client, vec![request], layout),
                }
            }
            ToCoordinator::Done { storage, grant, bytes, took_us } => {
                if let Some(server) = agent.storages.get(storage as usize).copied() {
                    self.handle(Event::Completed {
                        client,
                        server,
                        grant,
                        bytes,
                        took_us: Some(took_us),
                    });
                }
            }
            ToCoordinator::Cancel { storage, request } => {
                let server = agent.storages.get(storage as usize).copied();
                if let (Some(server), Some(request)) = (server, agent.waiting.remove(&request)) {
                    self.requests.remove(&request);
                    self.shared.values_mut().for_each(|parts| parts.cancelled(request));
                    self.handle(Event::Cancelled { client, server, request });
                }
            }
            ToCoordinator::Bypassed { storage, is_bypassed } => {
                let Some(server) = agent.storages.get(storage as usize) else { return };
                if is_bypassed {
                    agent.bypassed.insert(*server);
                } else {
                    agent.bypassed.remove(server);
                }
            }
            ToCoordinator::Status => self.answer(client, ToAgent::Status(self.status())),
            ToCoordinator::Configs => self.answer(client, ToAgent::Configs(self.configs())),
        }
    }

    /// An agent names a storage. `is_striped`: its files have layouts.
    fn named(&mut self, client: ClientId, name: String, is_striped: bool) {
        let Some(agent) = self.agents.get_mut(&client) else { return };
        if name.len() > MAX_NAME_BYTES || agent.storages.len() >= MAX_STORAGES {
            tracing::warn!(?client, "an agent names too many storages; its session is closed");
            return self.gone(client);
        }
        let (must_order, shares) = (self.rules.must_order(&name), self.rules.shares(&name));
        let server = self.server(name, is_striped);
        let agent = self.agents.get_mut(&client).expect("the agent is connected");
        if must_order {
            agent.said.push(ToAgent::MustOrder { storage: agent.storages.len() as u32 });
        }
        if let Some((is_on, _)) = shares.zip(agent.peers) {
            let storage = agent.storages.len() as u32;
            agent.said.push(ToAgent::Sharing { storage, is_on });
        }
        agent.storages.push(server);
    }

    fn answer(&mut self, client: ClientId, answer: ToAgent) {
        self.agents.get_mut(&client).expect("the agent is connected").said.push(answer);
    }

    /// Asks for turns; for one, if the layout of its file is known.
    fn ask(&mut self, client: ClientId, wanted: Vec<AgentRequest>, layout: Option<FileLayout>) {
        let requests =
            wanted.into_iter().filter_map(|wanted| self.request(client, &wanted)).collect();
        self.queue(client, requests, layout);
    }

    /// Asks for parts of files. A part that another agent of the group reads is not queued.
    fn ask_shared(
        &mut self,
        client: ClientId,
        wanted: Vec<AgentRequest>,
        layout: Option<FileLayout>,
    ) {
        let Some(agent) = self.agents.get(&client) else { return };
        let Some((group, _)) = agent.peers else { return self.ask(client, wanted, layout) };
        let now_us = self.now_us;
        let mut requests = Vec::new();
        for wanted in wanted {
            let Some((name, request)) = self.request(client, &wanted) else { continue };
            let source = self.shared.entry(group).or_default().ask(now_us, &request);
            let address = match source {
                PartSource::Client(reader) => {
                    self.agents.get(&reader).and_then(|reader| reader.peers)
                }
                PartSource::Storage => None,
            };
            match address {
                Some((_, address)) => {
                    self.answer(client, ToAgent::Elsewhere { request: name, address });
                }
                None => requests.push((name, request)),
            }
        }
        self.queue(client, requests, layout);
    }

    /// A request, and the agent's own number for it. A storage that the agent has not named has no
    /// server.
    fn request(&mut self, client: ClientId, wanted: &AgentRequest) -> Option<(u64, Request)> {
        let AgentRequest { request, storage, class, file, operation, extent } = *wanted;
        let agent = self.agents.get_mut(&client)?;
        let Some(server) = agent.storages.get(storage as usize).copied() else {
            agent.said.push(ToAgent::Unordered { request });
            return None;
        };
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let wanted = Request { id, client, server, class, file, operation, extent, call: None };
        Some((request, wanted))
    }

    fn queue(
        &mut self,
        client: ClientId,
        requests: Vec<(u64, Request)>,
        layout: Option<FileLayout>,
    ) {
        let Some(agent) = self.agents.get_mut(&client) else { return };
        for (name, request) in &requests {
            agent.waiting.insert(*name, request.id);
            self.requests.insert(request.id, (client, *name));
        }
        let mut requests: Vec<_> = requests.into_iter().map(|(_, request)| request).collect();
        match layout {
            Some(layout) => {
                if let Some(request) = requests.pop() {
                    self.handle(Event::AskedStriped { request, layout });
                }
            }
            None => self.handle(Event::Asked(requests)),
        }
    }

    fn gone(&mut self, client: ClientId) {
        if self.agents.remove(&client).is_some() {
            self.requests.retain(|_, (of, _)| *of != client);
            let agents = &self.agents;
            let is_left = |group: &Group| {
                agents.values().any(|agent| agent.peers.is_some_and(|(of, _)| of == *group))
            };
            self.shared.retain(|group, _| is_left(group));
            self.shared.values_mut().for_each(|parts| parts.gone(client));
            self.handle(Event::Gone { client });
            let named = self.agents.values().flat_map(|agent| &agent.storages).copied().collect();
            for server in self.storages.forget(&named) {
                let is_forgotten = self.servers.forget(server);
                debug_assert!(is_forgotten, "no agent has requests at {server:?}");
                self.shared.values_mut().for_each(|parts| parts.forget_server(server));
            }
        }
    }

    /// Sends the decider's effects to the agents.
    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Granted(grant) => {
                    let requests = grant
                        .requests
                        .iter()
                        .filter_map(|request| self.name_of(*request))
                        .collect();
                    let (server, id) = (grant.server, grant.id);
                    self.tell(grant.client, server, |storage| ToAgent::Granted {
                        storage,
                        grant: id,
                        requests,
                    });
                }
                Effect::Uncoordinated { client, request } => {
                    if let Some(request) = self.name_of(request)
                        && let Some(agent) = self.agents.get_mut(&client)
                    {
                        agent.said.push(ToAgent::Unordered { request });
                    }
                }
                Effect::Revoked { client, server, grant } => {
                    self.tell(client, server, |storage| ToAgent::Revoked { storage, grant });
                }
            }
        }
        let mut deaf = Vec::new();
        for (client, agent) in &mut self.agents {
            let said = std::mem::take(&mut agent.said);
            if !said.is_empty() && !agent.outbox.post(said) {
                deaf.push(*client);
            }
        }
        deaf.into_iter().for_each(|client| self.gone(client));
    }

    /// The agent's number of a request, which no longer waits.
    fn name_of(&mut self, request: RequestId) -> Option<u64> {
        let (client, name) = self.requests.remove(&request)?;
        self.agents.get_mut(&client)?.waiting.remove(&name);
        Some(name)
    }

    fn tell(&mut self, client: ClientId, server: ServerId, message: impl FnOnce(u32) -> ToAgent) {
        let Some(agent) = self.agents.get_mut(&client) else { return };
        if let Some(storage) = agent.storages.iter().position(|known| *known == server) {
            agent.said.push(message(storage as u32));
        }
    }

    /// The server with this storage name.
    fn server(&mut self, name: String, is_striped: bool) -> ServerId {
        let (server, is_new) = self.storages.name(name.clone());
        // Programs that know no layouts, such as executors, may have named the storage first.
        let becomes_striped = !is_new
            && is_striped
            && self.rules.stripe_of(&name).is_none()
            && !self.servers.is_striped(server)
            && self.servers.forget(server);
        if is_new || becomes_striped {
            self.rules.serve(&mut self.servers, server, &name, is_striped);
        }
        server
    }

    fn status(&self) -> IoStatus {
        let agents = self.agents.values().filter(|agent| agent.role == Role::Agent).count();
        let classes = self.rules.class_names();
        let bypassed = |server| {
            self.agents.values().filter(|agent| agent.bypassed.contains(&server)).count() as u64
        };
        let (mut storages, mut by_name) = (Vec::new(), BTreeMap::new());
        for (storage, server) in self.storages.iter() {
            let stats = self.servers.stats(server);
            for (name, stats) in server_names(storage, stats.len()).into_iter().zip(stats) {
                by_name.insert(name.clone(), bypassed(server));
                storages.push((name, stats));
            }
        }
        IoStatus { agents: agents as u64, classes, storages, bypassed: by_name }
    }

    fn configs(&self) -> StorageConfigs {
        let config = |(name, server): (&String, ServerId)| {
            let config = self.servers.config(server)?.clone();
            let names = server_names(name, self.servers.stats(server).len());
            Some(names.into_iter().map(move |name| (name, config.clone())))
        };
        self.storages.iter().filter_map(config).flatten().collect()
    }

    /// # Panics
    /// If anything waits or is granted, though no program runs.
    #[cfg(test)]
    pub fn assert_at_rest(&self) {
        let waiting: Vec<_> = self.agents.values().map(|agent| agent.waiting.len()).collect();
        assert!(self.requests.is_empty() && waiting.iter().all(|count| *count == 0));
        for (name, stats) in self.status().storages {
            assert_eq!((stats.queued, stats.outstanding), (0, 0), "requests at {name}");
        }
    }

    fn handle(&mut self, event: Event) {
        self.servers.handle(self.now_us, event, &mut self.effects);
    }
}
