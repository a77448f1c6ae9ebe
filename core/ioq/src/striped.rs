//! A storage whose files are striped over several servers, each with a queue of its own
//! (io-coordination §5.3).
//!
//! A request is divided into a part for each server that has some of its bytes: by the layout of
//! its file if that is known, else by the striping of the storage. The client makes one call, which
//! reads all parts at once, so it may proceed as soon as one of them is granted. The other servers
//! hear of its end with it. Parts of one call should be granted at about the same time everywhere,
//! which shortest outstanding job first achieves: it orders parts by the size of the whole call,
//! which is the same number on each server.
//!
//! To wait until all parts are granted would leave servers idle, and two calls could wait for each
//! other.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::Extent;

use crate::config::Config;
use crate::event::{
    Call, ClientId, Effect, Grant, GrantId, Request, RequestId, RequestRunId, ServerId,
};
use crate::server::Server;
use crate::stats::ServerStats;
use crate::striping::{FileLayout, StripedPart, Striping};

pub(crate) struct StripedServers {
    id: ServerId,
    striping: Striping,
    servers: Vec<Server>,
    /// Calls that wait or proceed.
    calls: BTreeMap<RequestId, StripedCall>,
    by_client: BTreeSet<(ClientId, RequestId)>,
    /// Grants that clients have, each with its calls that are not done.
    grants: BTreeMap<GrantId, ClientGrant>,
    /// Grants of the servers.
    of_servers: BTreeMap<(usize, GrantId), PartsGrant>,
    granted: u64,
}

struct StripedCall {
    client: ClientId,
    extent: Extent,
    parts: Vec<CallPart>,
    /// The client's grant, once it may proceed.
    grant: Option<GrantId>,
}

struct CallPart {
    server: usize,
    size_bytes: u64,
    state: PartState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Waiting,
    Granted(GrantId),
    /// The server no longer counts on it.
    Over,
}

struct ClientGrant {
    client: ClientId,
    calls: Vec<RequestId>,
}

/// A grant of one server.
struct PartsGrant {
    client: ClientId,
    /// Calls that are not done.
    left: BTreeSet<RequestId>,
    /// Bytes of its calls that are done.
    done_bytes: u64,
    /// The client's grant that began with this one.
    began: Option<GrantId>,
}

impl StripedServers {
    pub fn new(id: ServerId, config: &Config, striping: Striping) -> Self {
        let server = |_| Server::new(id, config.clone());
        StripedServers {
            id,
            striping,
            servers: (0..striping.servers.get()).map(server).collect(),
            calls: BTreeMap::new(),
            by_client: BTreeSet::new(),
            grants: BTreeMap::new(),
            of_servers: BTreeMap::new(),
            granted: 0,
        }
    }

    // ---- events

    pub fn enqueue(
        &mut self,
        now_us: u64,
        request: &Request,
        layout: Option<&FileLayout>,
        effects: &mut Vec<Effect>,
    ) {
        let Request { id, client, extent, .. } = *request;
        let mut parts = match layout {
            Some(layout) => layout.parts(extent),
            None => self.striping.parts(extent),
        };
        if parts.is_empty() {
            parts = vec![StripedPart { server: 0, extent }];
        }
        let last = parts.iter().map(|part| part.server as usize).max().unwrap_or_default();
        while self.servers.len() <= last {
            self.servers.push(Server::new(self.id, self.config().clone()));
        }
        let call = Some(Call { number: id.0, size_bytes: extent.size_bytes });
        let mut refused = Vec::new();
        for StripedPart { server, extent } in &parts {
            let part = Request { extent: *extent, call, ..*request };
            self.servers[*server as usize].enqueue(now_us, &part, &mut refused);
        }
        if !refused.is_empty() {
            for part in parts {
                self.servers[part.server as usize].cancelled(now_us, client, id);
            }
            effects.push(Effect::Uncoordinated { client, request: id });
            return;
        }
        let part = |part: StripedPart| CallPart {
            server: part.server as usize,
            size_bytes: part.extent.size_bytes,
            state: PartState::Waiting,
        };
        let parts = parts.into_iter().map(part).collect();
        self.calls.insert(id, StripedCall { client, extent, parts, grant: None });
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
        if self.grants.get(&grant).is_none_or(|given| given.client != client) {
            return;
        }
        let done = self.grants.remove(&grant).expect("it was found there");
        let is_done = bytes > 0;
        for call in done.calls {
            self.end_call(now_us, call, is_done, Some((grant, took_us)));
        }
    }

    pub fn cancelled(&mut self, now_us: u64, client: ClientId, request: RequestId) {
        if self.by_client.contains(&(client, request)) {
            if let Some(grant) = self.calls[&request].grant {
                self.forget_in_grant(grant, request);
            }
            self.end_call(now_us, request, false, None);
        }
    }

    pub fn client_gone(&mut self, now_us: u64, client: ClientId) {
        self.servers.iter_mut().for_each(|server| server.client_gone(now_us, client));
        let of_client = (client, RequestId(0))..=(client, RequestId(u64::MAX));
        let calls: Vec<_> = self.by_client.range(of_client).map(|(_, call)| *call).collect();
        for call in calls {
            self.calls.remove(&call);
            self.by_client.remove(&(client, call));
        }
        self.grants.retain(|_, grant| grant.client != client);
        self.of_servers.retain(|_, grant| grant.client != client);
    }

    pub fn revoke_expired(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let mut revoked = Vec::new();
        for server in 0..self.servers.len() {
            self.servers[server].revoke_expired(now_us, &mut revoked);
            for effect in revoked.drain(..) {
                if let Effect::Revoked { grant, .. } = effect {
                    self.revoked(now_us, (server, grant), effects);
                }
            }
        }
    }

    /// The lease of a server's grant has expired. The client loses its own grant if that began with
    /// this one.
    fn revoked(&mut self, now_us: u64, grant: (usize, GrantId), effects: &mut Vec<Effect>) {
        let Some(ended) = self.of_servers.remove(&grant) else { return };
        for call in &ended.left {
            self.set_state(*call, grant.0, PartState::Over);
        }
        if let Some(began) = ended.began
            && let Some(ClientGrant { client, calls }) = self.grants.remove(&began)
        {
            for call in calls {
                self.end_call(now_us, call, false, None);
            }
            effects.push(Effect::Revoked { client, server: self.id, grant: began });
        }
    }

    /// Grants everything that can be granted now.
    pub fn dispatch(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let mut granted = Vec::new();
        for server in 0..self.servers.len() {
            self.servers[server].dispatch(now_us, &mut granted);
            for effect in granted.drain(..) {
                if let Effect::Granted(grant) = effect {
                    self.granted(server, grant, effects);
                }
            }
        }
    }

    /// A server has granted parts of calls.
    fn granted(&mut self, server: usize, grant: Grant, effects: &mut Vec<Effect>) {
        let mut begins = Vec::new();
        for id in &grant.requests {
            self.set_state(*id, server, PartState::Granted(grant.id));
            if self.calls[id].grant.is_none() {
                begins.push(*id);
            }
        }
        let began = (!begins.is_empty()).then(|| {
            self.granted += 1;
            GrantId(self.granted)
        });
        let left = grant.requests.iter().copied().collect();
        let parts = PartsGrant { client: grant.client, left, done_bytes: 0, began };
        self.of_servers.insert((server, grant.id), parts);
        let Some(began) = began else { return };
        for id in &begins {
            self.calls.get_mut(id).expect("it is under way").grant = Some(began);
        }
        let extents = begins.iter().map(|id| self.calls[id].extent);
        let offset = extents.clone().map(|extent| extent.offset).min().unwrap_or_default();
        let end = extents.map(|extent| extent.end()).max().unwrap_or_default();
        let extent = Extent { offset, size_bytes: end - offset };
        self.grants.insert(began, ClientGrant { client: grant.client, calls: begins.clone() });
        let run = RequestRunId(self.granted);
        effects.push(Effect::Granted(Grant { id: began, run, extent, requests: begins, ..grant }));
    }

    fn set_state(&mut self, call: RequestId, server: usize, state: PartState) {
        let call = self.calls.get_mut(&call).expect("a part is of a call that is under way");
        let part = call.parts.iter_mut().find(|part| part.server == server);
        part.expect("the server has a part of the call").state = state;
    }

    fn forget_in_grant(&mut self, grant: GrantId, call: RequestId) {
        if let Some(given) = self.grants.get_mut(&grant) {
            given.calls.retain(|of| *of != call);
            if given.calls.is_empty() {
                self.grants.remove(&grant);
            }
        }
    }

    /// A call no longer needs its servers. `is_done`: it has read or written its bytes; `took`: in
    /// this grant of the client, which took this time.
    fn end_call(
        &mut self,
        now_us: u64,
        id: RequestId,
        is_done: bool,
        took: Option<(GrantId, Option<u64>)>,
    ) {
        let call = self.calls.remove(&id).expect("the call is under way");
        self.by_client.remove(&(call.client, id));
        for CallPart { server, size_bytes, state } in call.parts {
            match state {
                PartState::Waiting => self.servers[server].cancelled(now_us, call.client, id),
                PartState::Granted(grant) => {
                    let bytes = if is_done { size_bytes } else { 0 };
                    self.end_part(now_us, (server, grant), id, bytes, took);
                }
                PartState::Over => {}
            }
        }
    }

    fn end_part(
        &mut self,
        now_us: u64,
        grant: (usize, GrantId),
        call: RequestId,
        bytes: u64,
        took: Option<(GrantId, Option<u64>)>,
    ) {
        let out = self.of_servers.get_mut(&grant).expect("the grant is outstanding");
        out.left.remove(&call);
        out.done_bytes += bytes;
        if !out.left.is_empty() {
            return;
        }
        let PartsGrant { client, done_bytes, began, .. } =
            self.of_servers.remove(&grant).expect("it was found there");
        let server = &mut self.servers[grant.0];
        match took.filter(|(of, _)| began == Some(*of)) {
            Some((_, took_us)) if done_bytes > 0 => {
                server.completed(now_us, client, grant.1, done_bytes, took_us);
            }
            // Nothing was done in it, or the client was busy with another server first.
            _ => server.released(now_us, client, grant.1),
        }
    }

    // ---- queries

    pub fn next_timeout(&self) -> Option<u64> {
        self.servers.iter().filter_map(Server::next_timeout).min()
    }

    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub fn config(&self) -> &Config {
        self.servers[0].config()
    }

    pub fn stats(&self) -> Vec<ServerStats> {
        self.servers.iter().map(Server::stats).collect()
    }

    /// # Panics
    /// If the state is inconsistent.
    pub fn validate(&self) {
        self.servers.iter().for_each(Server::validate);
        assert_eq!(self.calls.len(), self.by_client.len());
        for (id, call) in &self.calls {
            let is_given = |grant: &GrantId| self.grants[grant].calls.contains(id);
            assert!(call.grant.as_ref().is_none_or(is_given), "{id:?} proceeds in its grant");
            let mut begun = call.parts.iter().filter(|part| part.state != PartState::Waiting);
            assert_eq!(call.grant.is_some(), begun.next().is_some(), "{id:?}");
            for part in &call.parts {
                if let PartState::Granted(grant) = part.state {
                    assert!(self.of_servers[&(part.server, grant)].left.contains(id));
                }
            }
        }
        for ((server, _), grant) in &self.of_servers {
            assert!(!grant.left.is_empty());
            for call in &grant.left {
                assert!(self.calls[call].parts.iter().any(|part| part.server == *server));
            }
        }
        if self.calls.is_empty() {
            assert!(self.servers.iter().all(Server::is_idle));
            assert!(self.grants.is_empty() && self.of_servers.is_empty());
        }
    }
}
