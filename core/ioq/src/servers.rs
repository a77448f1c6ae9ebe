//! The decider: a facade that passes events to the server they concern, or to the servers that a
//! storage is striped over.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::config::Config;
use crate::event::{Effect, Event, Request, RequestId, ServerId};
use crate::server::Server;
use crate::stats::ServerStats;
use crate::striped::StripedServers;
use crate::striping::{FileLayout, Striping};

/// The decider for all servers; see the [crate's](crate) documentation.
#[derive(Default)]
pub struct Servers {
    servers: BTreeMap<ServerId, OrderedStorage>,
    last_request: Option<RequestId>,
}

/// What is ordered as one for its clients.
enum OrderedStorage {
    One(Box<Server>),
    Striped(StripedServers),
}

/// The same call for either kind of storage.
macro_rules! either {
    ($storage:expr, $server:ident => $call:expr) => {
        match $storage {
            OrderedStorage::One($server) => $call,
            OrderedStorage::Striped($server) => $call,
        }
    };
}

impl Servers {
    /// A decider without servers.
    pub fn new() -> Self {
        Servers::default()
    }

    /// Orders requests to this server from now on.
    ///
    /// # Panics
    /// If the server is known already.
    pub fn serve(&mut self, id: ServerId, config: Config) {
        self.add(id, OrderedStorage::One(Box::new(Server::new(id, config))));
    }

    /// Orders requests to this storage from now on, whose files are striped over servers: as their
    /// layouts say, or all alike if those are unknown. Each server has the configuration. The
    /// storage gets more servers when layouts name them.
    ///
    /// # Panics
    /// If the storage is known already.
    pub fn serve_striped(&mut self, id: ServerId, config: &Config, striping: Striping) {
        self.add(id, OrderedStorage::Striped(StripedServers::new(id, config, striping)));
    }

    fn add(&mut self, id: ServerId, storage: OrderedStorage) {
        let before = self.servers.insert(id, storage);
        assert!(before.is_none(), "{id:?} is known already");
    }

    /// Whether the storage may have several servers.
    pub fn is_striped(&self, id: ServerId) -> bool {
        matches!(self.servers.get(&id), Some(OrderedStorage::Striped(_)))
    }

    /// Stops ordering requests to this server and forgets what was measured. Returns false, and
    /// does nothing, if a request waits or a grant is outstanding.
    pub fn forget(&mut self, id: ServerId) -> bool {
        let is_idle = self.servers.get(&id);
        let is_idle = is_idle.is_some_and(|storage| either!(storage, it => it.is_idle()));
        is_idle && self.servers.remove(&id).is_some()
    }

    /// Applies one event and appends its effects. `now_us` never decreases. Late reports, and
    /// reports about other clients' requests, are ignored.
    ///
    /// # Panics
    /// If a request's number is not greater than all numbers before it.
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked(requests) => {
                for request in &requests {
                    self.enqueue(now_us, request, None, effects);
                }
            }
            Event::AskedStriped { request, layout } => {
                self.enqueue(now_us, &request, Some(&layout), effects);
            }
            Event::Completed { client, server, grant, bytes, took_us } => {
                if let Some(storage) = self.servers.get_mut(&server) {
                    either!(storage, it => it.completed(now_us, client, grant, bytes, took_us));
                }
            }
            Event::Cancelled { client, server, request } => {
                if let Some(storage) = self.servers.get_mut(&server) {
                    either!(storage, it => it.cancelled(now_us, client, request));
                }
            }
            Event::Gone { client } => {
                let gone = |storage: &mut OrderedStorage| {
                    either!(storage, it => it.client_gone(now_us, client));
                };
                self.servers.values_mut().for_each(gone);
            }
            Event::Tick => {}
        }
        for storage in self.servers.values_mut() {
            either!(storage, it => {
                it.revoke_expired(now_us, effects);
                it.dispatch(now_us, effects);
            });
        }
    }

    fn enqueue(
        &mut self,
        now_us: u64,
        request: &Request,
        layout: Option<&FileLayout>,
        effects: &mut Vec<Effect>,
    ) {
        assert!(Some(request.id) > self.last_request, "{request:?} is not new");
        self.last_request = Some(request.id);
        match self.servers.get_mut(&request.server) {
            Some(OrderedStorage::One(server)) => server.enqueue(now_us, request, effects),
            Some(OrderedStorage::Striped(servers)) => {
                servers.enqueue(now_us, request, layout, effects);
            }
            None => {
                effects.push(Effect::Uncoordinated { client: request.client, request: request.id })
            }
        }
    }

    /// Time of the next [`Event::Tick`], if no other event arrives before.
    pub fn next_timeout(&self) -> Option<u64> {
        let timeout = |storage: &OrderedStorage| either!(storage, it => it.next_timeout());
        self.servers.values().filter_map(timeout).min()
    }

    /// Statistics of a server, or of each of the servers that the storage's files are striped over.
    pub fn stats(&self, server: ServerId) -> Vec<ServerStats> {
        match self.servers.get(&server) {
            None => Vec::new(),
            Some(OrderedStorage::One(server)) => [server.stats()].into(),
            Some(OrderedStorage::Striped(servers)) => servers.stats(),
        }
    }

    /// Configuration of a server.
    pub fn config(&self, server: ServerId) -> Option<&Config> {
        self.servers.get(&server).map(|storage| either!(storage, it => it.config()))
    }

    /// Checks that every request is in one place and that all indexes agree.
    ///
    /// # Panics
    /// If not.
    pub fn validate(&self) {
        self.servers.values().for_each(|storage| either!(storage, it => it.validate()));
    }
}
