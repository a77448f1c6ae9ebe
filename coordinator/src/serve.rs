//! The coordinator: whose turn it is, of all agents that read and write the same storages.
//!
//! It keeps nothing that must not be lost. When it ends, agents go ahead without it, and ask again when it is back.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use eyas_ioq::{ClientId, Effect, Event, Request, RequestId, ServerId, Servers};
use eyas_session::{Access, Listener, Outbox, Session, SessionAcceptor, SessionError, dial, outbox};
use eyas_wire::Role;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::protocol::{BEAT, MAX_NAME_BYTES, MAX_STORAGES, SILENCE, Status, ToAgent, ToCoordinator, Wish};
use crate::rules::Rules;
use crate::storages::Storages;

/// Of what agents say, so much waits to be looked at; then they wait.
const MAX_WAITING: usize = 1 << 14;
/// Of that, so much is looked at together.
const MAX_TOGETHER: usize = 1 << 10;
/// A timer is not set for less.
const LEAST_TIMER: Duration = Duration::from_micros(50);

/// How things are at the coordinator with that access.
///
/// # Errors
/// If it cannot be reached.
pub async fn status(access: &Access) -> Result<Status, SessionError> {
    let Session { mut reader, mut writer, .. } = dial(access, Role::Client).await?;
    writer.send(&[ToCoordinator::Status]).await?;
    loop {
        for message in reader.next().await? {
            if let ToAgent::Status(status) = message {
                return Ok(status);
            }
        }
    }
}

/// Takes agents' requests, until it is dropped.
pub async fn serve(listener: TcpListener, access: &Access, rules: Rules) {
    let (tell, told) = mpsc::channel(MAX_WAITING);
    let mut tasks = JoinSet::new();
    tasks.spawn(Brain::new(rules).run(told));
    accept(Listener::new(listener, SessionAcceptor::new(access, Role::Coordinator), "the coordinator's port"), tell)
        .await;
}

/// What the brain is told.
enum Told {
    /// An agent has come.
    Came(ClientId, Outbox<ToAgent>, Role),
    /// It says this.
    Said(ClientId, ToCoordinator),
    /// It has gone.
    Gone(ClientId),
}

async fn accept(listener: Listener, tell: mpsc::Sender<Told>) {
    let mut connections = JoinSet::new();
    let mut last = 0;
    loop {
        while connections.try_join_next().is_some() {}
        let greeting = listener.next().await;
        last += 1;
        let (client, tell) = (ClientId(last), tell.clone());
        connections.spawn(async move {
            let ended = match greeting.await {
                Ok((session, role @ (Role::Agent | Role::Client))) => listen(client, session, role, tell).await,
                Ok((session, role)) => {
                    return tracing::debug!(remote = %session.remote, ?role, "has no business with a coordinator");
                }
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!("{error}");
            }
        });
    }
}

/// Hands on what an agent says, as long as it says anything.
async fn listen(client: ClientId, session: Session, role: Role, tell: mpsc::Sender<Told>) -> Result<(), SessionError> {
    let Session { mut reader, writer, .. } = session;
    let (outbox, send) = outbox::<ToAgent>(writer);
    let mut sending = JoinSet::new();
    sending.spawn(async move { drop(send.await) });
    // The brain lasts as long as connections do.
    let _ = tell.send(Told::Came(client, outbox, role)).await;
    let ended = loop {
        match timeout(SILENCE, reader.next()).await {
            Ok(Ok(messages)) => {
                for message in messages {
                    let _ = tell.send(Told::Said(client, message)).await;
                }
            }
            Ok(Err(error)) => break Err(error),
            Err(_) => {
                tracing::info!(?client, "an agent is silent, and is not waited for any more");
                break Ok(());
            }
        }
    };
    let _ = tell.send(Told::Gone(client)).await;
    ended
}

/// The owner of all that a coordinator knows.
struct Brain {
    rules: Rules,
    servers: Servers,
    began: Instant,
    storages: Storages,
    agents: HashMap<ClientId, Agent>,
    last_request: u64,
    /// What the agent calls each request that is not done.
    requests: HashMap<RequestId, (ClientId, u64)>,
    effects: Vec<Effect>,
}

struct Agent {
    outbox: Outbox<ToAgent>,
    role: Role,
    /// Storages in the order in which it has named them.
    storages: Vec<ServerId>,
    /// Those that it leaves its programs alone with.
    left_alone: BTreeSet<ServerId>,
    /// Its requests that have not been granted, by what it calls them.
    waiting: HashMap<u64, RequestId>,
    said: Vec<ToAgent>,
}

impl Brain {
    fn new(rules: Rules) -> Brain {
        Brain {
            rules,
            servers: Servers::new(),
            began: Instant::now(),
            storages: Storages::default(),
            agents: HashMap::new(),
            last_request: 0,
            requests: HashMap::new(),
            effects: Vec::new(),
        }
    }

    async fn run(mut self, mut told: mpsc::Receiver<Told>) {
        let mut together = Vec::new();
        let mut beaten = Instant::now();
        loop {
            let patience = match self.servers.next_timeout() {
                Some(at_us) => Duration::from_micros(at_us.saturating_sub(self.now_us())).max(LEAST_TIMER).min(BEAT),
                None => BEAT,
            };
            match timeout(patience, told.recv_many(&mut together, MAX_TOGETHER)).await {
                Ok(0) => return,
                Ok(_) => together.drain(..).for_each(|what| self.hear(what)),
                Err(_) => self.handle(Event::Tick),
            }
            if beaten.elapsed() >= BEAT {
                beaten = Instant::now();
                self.agents.values_mut().for_each(|agent| agent.said.push(ToAgent::Alive));
            }
            self.carry_out();
        }
    }

    fn hear(&mut self, what: Told) {
        match what {
            Told::Came(client, outbox, role) => {
                let agent = Agent {
                    outbox,
                    role,
                    storages: Vec::new(),
                    left_alone: BTreeSet::new(),
                    waiting: HashMap::new(),
                    said: Vec::new(),
                };
                self.agents.insert(client, agent);
            }
            Told::Said(client, message) => self.said(client, message),
            Told::Gone(client) => self.gone(client),
        }
    }

    fn said(&mut self, client: ClientId, message: ToCoordinator) {
        let Some(agent) = self.agents.get_mut(&client) else { return };
        match message {
            ToCoordinator::Alive => {}
            ToCoordinator::Storage(name) => {
                if name.len() > MAX_NAME_BYTES || agent.storages.len() >= MAX_STORAGES {
                    tracing::warn!(?client, "an agent names too many storages; it is not listened to");
                    return self.gone(client);
                }
                let is_always = self.rules.is_always(&name);
                let server = self.server(name);
                let agent = self.agents.get_mut(&client).expect("it was there");
                if is_always {
                    agent.said.push(ToAgent::Always { storage: agent.storages.len() as u32 });
                }
                agent.storages.push(server);
            }
            ToCoordinator::Ask(wishes) => self.ask(client, wishes),
            ToCoordinator::Done { storage, grant, bytes, took_us } => {
                if let Some(server) = agent.storages.get(storage as usize).copied() {
                    self.handle(Event::Completed { client, server, grant, bytes, took_us: Some(took_us) });
                }
            }
            ToCoordinator::Cancel { storage, request } => {
                let server = agent.storages.get(storage as usize).copied();
                if let (Some(server), Some(request)) = (server, agent.waiting.remove(&request)) {
                    self.requests.remove(&request);
                    self.handle(Event::Cancelled { client, server, request });
                }
            }
            ToCoordinator::LeftAlone { storage, is_left } => {
                let Some(server) = agent.storages.get(storage as usize) else { return };
                match is_left {
                    true => agent.left_alone.insert(*server),
                    false => agent.left_alone.remove(server),
                };
            }
            ToCoordinator::Status => {
                let status = self.status();
                self.agents.get_mut(&client).expect("it was there").said.push(ToAgent::Status(status));
            }
        }
    }

    fn ask(&mut self, client: ClientId, wishes: Vec<Wish>) {
        let Some(agent) = self.agents.get_mut(&client) else { return };
        let mut requests = Vec::with_capacity(wishes.len());
        for Wish { request, storage, class, file, operation, extent } in wishes {
            let Some(server) = agent.storages.get(storage as usize).copied() else {
                agent.said.push(ToAgent::Unordered { request });
                continue;
            };
            self.last_request += 1;
            let id = RequestId(self.last_request);
            agent.waiting.insert(request, id);
            self.requests.insert(id, (client, request));
            requests.push(Request { id, client, server, class, file, operation, extent, call: None });
        }
        self.handle(Event::Asked(requests));
    }

    fn gone(&mut self, client: ClientId) {
        if self.agents.remove(&client).is_some() {
            self.requests.retain(|_, (of, _)| *of != client);
            self.handle(Event::Gone { client });
            let named = self.agents.values().flat_map(|agent| &agent.storages).copied().collect();
            for server in self.storages.forget(&named) {
                let is_forgotten = self.servers.forget(server);
                debug_assert!(is_forgotten, "nobody wants anything of {server:?}");
            }
        }
    }

    /// Tells agents what has been decided.
    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Granted(grant) => {
                    let requests = grant.requests.iter().filter_map(|request| self.name_of(*request)).collect();
                    let (server, id) = (grant.server, grant.id);
                    self.tell(grant.client, server, |storage| ToAgent::Granted { storage, grant: id, requests });
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
            if !said.is_empty() && agent.outbox.post(said).is_err() {
                deaf.push(*client);
            }
        }
        deaf.into_iter().for_each(|client| self.gone(client));
    }

    /// What its agent calls a request that does not wait any more.
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

    /// The storage of that name.
    fn server(&mut self, name: String) -> ServerId {
        let config = self.rules.of(&name);
        let (server, is_new) = self.storages.name(name);
        if is_new {
            self.servers.serve(server, config);
        }
        server
    }

    fn status(&self) -> Status {
        let stats = |(name, server): (&String, ServerId)| Some((name.clone(), self.servers.stats(server)?));
        let agents = self.agents.values().filter(|agent| agent.role == Role::Agent).count();
        let classes = self.rules.class_names();
        let left_alone =
            |server| self.agents.values().filter(|agent| agent.left_alone.contains(&server)).count() as u64;
        let left_alone = self.storages.iter().map(|(name, server)| (name.clone(), left_alone(server))).collect();
        let storages = self.storages.iter().filter_map(stats).collect();
        Status { agents: agents as u64, classes, storages, left_alone }
    }

    fn handle(&mut self, event: Event) {
        let now_us = self.now_us();
        self.servers.handle(now_us, event, &mut self.effects);
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
