//! The decider: a facade that passes events to the server they concern.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::config::Config;
use crate::event::{Effect, Event, RequestId, ServerId};
use crate::server::Server;
use crate::stats::ServerStats;

/// The decider for all servers; see the [crate's](crate) documentation.
#[derive(Default)]
pub struct Servers {
    servers: BTreeMap<ServerId, Server>,
    last_request: Option<RequestId>,
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
        let before = self.servers.insert(id, Server::new(id, config));
        assert!(before.is_none(), "{id:?} is known already");
    }

    /// Stops ordering requests to this server and forgets what was measured. Returns false, and
    /// does nothing, if a request waits or a grant is outstanding.
    pub fn forget(&mut self, id: ServerId) -> bool {
        let is_idle = self.servers.get(&id).is_some_and(Server::is_idle);
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
                    assert!(Some(request.id) > self.last_request, "{request:?} is not new");
                    self.last_request = Some(request.id);
                    match self.servers.get_mut(&request.server) {
                        Some(server) => server.enqueue(now_us, request, effects),
                        None => effects.push(Effect::Uncoordinated {
                            client: request.client,
                            request: request.id,
                        }),
                    }
                }
            }
            Event::Completed { client, server, grant, bytes, took_us } => {
                if let Some(server) = self.servers.get_mut(&server) {
                    server.completed(now_us, client, grant, bytes, took_us);
                }
            }
            Event::Cancelled { client, server, request } => {
                if let Some(server) = self.servers.get_mut(&server) {
                    server.cancelled(now_us, client, request);
                }
            }
            Event::Gone { client } => {
                self.servers.values_mut().for_each(|server| server.client_gone(now_us, client))
            }
            Event::Tick => {}
        }
        for server in self.servers.values_mut() {
            server.revoke_expired(now_us, effects);
            server.dispatch(now_us, effects);
        }
    }

    /// Time of the next [`Event::Tick`], if no other event arrives before.
    pub fn next_timeout(&self) -> Option<u64> {
        self.servers.values().filter_map(Server::next_timeout).min()
    }

    /// Statistics of a server.
    pub fn stats(&self, server: ServerId) -> Option<ServerStats> {
        self.servers.get(&server).map(Server::stats)
    }

    /// Configuration of a server.
    pub fn config(&self, server: ServerId) -> Option<&Config> {
        self.servers.get(&server).map(Server::config)
    }

    /// Checks that every request is in one place and that all indexes agree.
    ///
    /// # Panics
    /// If not.
    pub fn validate(&self) {
        self.servers.values().for_each(Server::validate);
    }
}
