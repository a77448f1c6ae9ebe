//! The decider: who may go where, when.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::config::Config;
use crate::event::{Effect, Event, RequestId, ServerId};
use crate::measures::Measures;
use crate::server::Server;

/// See the [crate's](crate) documentation.
#[derive(Default)]
pub struct Servers {
    servers: BTreeMap<ServerId, Server>,
    last_request: Option<RequestId>,
}

impl Servers {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Servers::default()
    }

    /// From now on requests to that server are put in order.
    ///
    /// # Panics
    /// If they are already.
    pub fn serve(&mut self, id: ServerId, config: Config) {
        let before = self.servers.insert(id, Server::new(id, config));
        assert!(before.is_none(), "{id:?} is served already");
    }

    /// Requests to that server are put in order no more, if none waits or is out; what was learned of it is forgotten. Whether
    /// it is so.
    pub fn forget(&mut self, id: ServerId) -> bool {
        let is_idle = self.servers.get(&id).is_some_and(Server::is_idle);
        is_idle && self.servers.remove(&id).is_some()
    }

    /// Applies one event, and adds to `effects` what is to be done about it. Time may stand still between events, and never
    /// goes back. What clients say late, or of what is not theirs, is ignored.
    ///
    /// # Panics
    /// If a request's number is not greater than those before.
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Asked(requests) => {
                for request in &requests {
                    assert!(Some(request.id) > self.last_request, "{request:?} is not new");
                    self.last_request = Some(request.id);
                    match self.servers.get_mut(&request.server) {
                        Some(server) => server.ask(now_us, request, effects),
                        None => effects.push(Effect::Uncoordinated { client: request.client, request: request.id }),
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
            Event::Gone { client } => self.servers.values_mut().for_each(|server| server.gone(now_us, client)),
            Event::Tick => {}
        }
        for server in self.servers.values_mut() {
            server.expire(now_us, effects);
            server.dispatch(now_us, effects);
        }
    }

    /// When it wants to be told [`Event::Tick`], if nothing else happens before.
    pub fn next_timeout(&self) -> Option<u64> {
        self.servers.values().filter_map(Server::next_timeout).min()
    }

    /// What became of the requests to a server.
    pub fn measures(&self, server: ServerId) -> Option<Measures> {
        self.servers.get(&server).map(Server::measures)
    }

    /// Checks that every request is in one place, and that what is kept to find things agrees.
    ///
    /// # Panics
    /// If it is not so.
    pub fn validate(&self) {
        self.servers.values().for_each(Server::validate);
    }
}
