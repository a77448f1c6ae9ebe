//! Requests of this process on their way to storage. Their order is decided by `core/ioq`: by the
//! coordinator's decider for all nodes, or by this process's own for the node alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use eyas_ioq::{
    ClassId, ClientId, Effect, Event, FileLayout, GrantId, Request, RequestId, ServerId, Servers,
};
use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};

use crate::coordinator_link::CoordinatorLink;
use crate::node::NodeFacts;
use crate::protocol::{
    AgentRequest, IoStatus, MAX_STORAGES, StorageConfigs, ToAgent, ToCoordinator,
};
use crate::rules::Rules;
use crate::storage_name::server_names;

/// The only client of this process's own decider.
const CLIENT: ClientId = ClientId(0);

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request proceeds, and its end must be reported.
    Proceed,
    /// The request proceeds unordered, and its end is not reported.
    Unordered,
    /// The agent at this address has the part, or will have it. The end is not reported.
    Elsewhere(SocketAddr),
}

/// All requests of this process that are not done.
pub(crate) struct RequestTracker<N> {
    node: N,
    decider: Decider,
    /// Numbers of storages, in order of first use.
    storages: BTreeMap<StorageLocation, u32>,
    /// The same numbers by name.
    names: BTreeMap<String, u32>,
    last: u64,
    /// Storage of each request that is not done, and its grant.
    under_way: BTreeMap<RequestId, (u32, Option<GrantId>)>,
    grants: BTreeMap<(u32, GrantId), OpenGrant>,
    /// Bypassed storages.
    bypassed: BTreeSet<StorageLocation>,
    /// Storages that the coordinator always wants ordered.
    always: BTreeSet<u32>,
    /// Storages, and whether parts of their files are passed on.
    sharing: BTreeMap<u32, bool>,
    /// Storages whose files have layouts.
    striped: BTreeSet<StorageLocation>,
    decisions: Vec<(RequestId, Decision)>,
}

/// A turn that this process wants.
pub(crate) struct StorageRequest {
    pub location: StorageLocation,
    pub file: StorageFileId,
    pub class: ClassId,
    pub operation: Operation,
    pub extent: Extent,
    /// Layout of the file, if it is known.
    pub layout: Option<Arc<FileLayout>>,
}

/// A grant. Its requests proceed one after the other.
struct OpenGrant {
    /// Requests that are not done, by offset. The first one proceeds.
    left: VecDeque<RequestId>,
    /// Bytes done.
    bytes: u64,
    since: Instant,
}

/// The decider that orders the requests.
enum Decider {
    Local { servers: Servers, rules: Box<Rules>, began: Instant },
    Remote { link: Option<CoordinatorLink> },
}

impl<N: NodeFacts> RequestTracker<N> {
    /// Requests are ordered by a decider of this process.
    pub fn local(node: N, rules: Rules) -> Self {
        let (rules, began) = (Box::new(rules), node.now());
        RequestTracker::of(node, Decider::Local { servers: Servers::new(), rules, began })
    }

    /// Requests are ordered by a coordinator, which is not connected yet.
    pub fn remote(node: N) -> Self {
        RequestTracker::of(node, Decider::Remote { link: None })
    }

    fn of(node: N, decider: Decider) -> Self {
        RequestTracker {
            node,
            decider,
            storages: BTreeMap::new(),
            names: BTreeMap::new(),
            last: 0,
            under_way: BTreeMap::new(),
            grants: BTreeMap::new(),
            bypassed: BTreeSet::new(),
            always: BTreeSet::new(),
            sharing: BTreeMap::new(),
            striped: BTreeSet::new(),
            decisions: Vec::new(),
        }
    }

    /// Whether requests are ordered now.
    pub fn is_open(&self) -> bool {
        !matches!(self.decider, Decider::Remote { link: None })
    }

    /// Whether agents pass parts of a storage's files on to each other.
    pub fn can_share(&mut self, location: &StorageLocation) -> bool {
        let is_possible =
            matches!(&self.decider, Decider::Remote { link: Some(link) } if link.can_share);
        let storage = if is_possible { self.storage(location.clone()) } else { None };
        storage.is_some_and(|storage| {
            let has_versions = || self.node.has_versions(location);
            *self.sharing.entry(storage).or_insert_with(has_versions)
        })
    }

    /// The coordinator has been connected or lost. A new coordinator knows nothing: requests to the
    /// previous one proceed unordered.
    pub fn link(&mut self, new: Option<CoordinatorLink>) {
        if let Decider::Remote { link } = &mut self.decider {
            *link = new;
            self.storages.clear();
            self.names.clear();
            self.always.clear();
            self.sharing.clear();
            // The first request of each grant has already proceeded.
            let went: BTreeSet<RequestId> = std::mem::take(&mut self.grants)
                .values()
                .filter_map(|granted| granted.left.front().copied())
                .collect();
            let left = std::mem::take(&mut self.under_way)
                .into_keys()
                .filter(|request| !went.contains(request));
            self.decisions.extend(left.map(|request| (request, Decision::Unordered)));
            self.bypassed
                .clone()
                .into_iter()
                .for_each(|location| self.set_bypassed(location, true));
        }
    }

    /// Tells the coordinator where other agents of a group find this one.
    pub fn announce(&self, group: [u8; 32], port: u16) {
        if let Decider::Remote { link: Some(link) } = &self.decider
            && link.can_share
        {
            let address = SocketAddr::new(link.own, port);
            let _ = link.sender.send(ToCoordinator::Agent { group, address });
        }
    }

    /// This process has closed a file, and gives no parts of it to others any longer.
    pub fn closed(&self, location: &StorageLocation, file: StorageFileId) {
        if let (Decider::Remote { link }, Some(storage)) =
            (&self.decider, self.storages.get(location).copied())
            && self.sharing.get(&storage) == Some(&true)
        {
            send(link, ToCoordinator::Closed { storage, file });
        }
    }

    /// The storage's files have layouts.
    pub fn set_striped(&mut self, location: StorageLocation) {
        self.striped.insert(location);
    }

    /// Asks for a turn.
    pub fn ask(&mut self, wanted: StorageRequest) -> RequestId {
        self.ask_as(wanted, false)
    }

    /// Asks for a turn to read a part of a file, unless another agent has it; only if that
    /// [is possible](Self::can_share).
    pub fn ask_shared(&mut self, wanted: StorageRequest) -> RequestId {
        self.ask_as(wanted, true)
    }

    fn ask_as(&mut self, wanted: StorageRequest, may_share: bool) -> RequestId {
        let StorageRequest { location, file, class, operation, extent, layout } = wanted;
        self.last += 1;
        let id = RequestId(self.last);
        let Some(storage) = self.storage(location) else {
            self.decisions.push((id, Decision::Unordered));
            return id;
        };
        self.under_way.insert(id, (storage, None));
        match &mut self.decider {
            Decider::Local { .. } => {
                let server = ServerId(storage);
                let request = Request {
                    id,
                    client: CLIENT,
                    server,
                    class,
                    file,
                    operation,
                    extent,
                    call: None,
                };
                self.handle(match layout {
                    Some(layout) => {
                        Event::AskedStriped { request, layout: FileLayout::clone(&layout) }
                    }
                    None => Event::Asked(vec![request]),
                });
            }
            Decider::Remote { link: Some(link) } => {
                let request =
                    AgentRequest { request: id.0, storage, class, file, operation, extent };
                let message = match layout.filter(|_| link.has_layouts) {
                    Some(layout) => {
                        let layout = FileLayout::clone(&layout);
                        ToCoordinator::AskStriped { request, layout, may_share }
                    }
                    None if may_share => ToCoordinator::AskShared(vec![request]),
                    None => ToCoordinator::Ask(vec![request]),
                };
                // If the session has ended, the link reports that.
                let _ = link.sender.send(message);
            }
            Decider::Remote { link: None } => {
                self.under_way.remove(&id);
                self.decisions.push((id, Decision::Unordered));
            }
        }
        id
    }

    /// Whether rules require that a storage's requests are always ordered.
    pub fn must_order(&self, location: &StorageLocation) -> bool {
        match &self.decider {
            Decider::Local { rules, .. } => rules.must_order(&self.node.storage_name(location)),
            Decider::Remote { .. } => {
                self.storages.get(location).is_some_and(|storage| self.always.contains(storage))
            }
        }
    }

    /// Ends the bypass of storages that must always be ordered, and returns them.
    pub fn take_back(&mut self) -> Vec<StorageLocation> {
        let back = |location: &&StorageLocation| {
            self.storages.get(location).is_some_and(|storage| self.always.contains(storage))
        };
        let back: Vec<StorageLocation> = self.bypassed.iter().filter(back).cloned().collect();
        back.iter().for_each(|location| self.set_bypassed(location.clone(), false));
        back
    }

    /// Begins or ends the bypass of a storage.
    pub fn set_bypassed(&mut self, location: StorageLocation, is_bypassed: bool) {
        if self.is_open()
            && let Some(storage) = self.storage(location.clone())
            && let Decider::Remote { link } = &self.decider
        {
            send(link, ToCoordinator::Bypassed { storage, is_bypassed });
        }
        if is_bypassed {
            self.bypassed.insert(location);
        } else {
            self.bypassed.remove(&location);
        }
    }

    /// A request is done with this many bytes; or it is no longer wanted, if it was not granted.
    pub fn done(&mut self, request: RequestId, bytes: u64) {
        let Some((storage, grant)) = self.under_way.remove(&request) else { return };
        let Some(grant) = grant else {
            return match &mut self.decider {
                Decider::Local { .. } => {
                    self.handle(Event::Cancelled {
                        client: CLIENT,
                        server: ServerId(storage),
                        request,
                    });
                }
                Decider::Remote { link } => {
                    send(link, ToCoordinator::Cancel { storage, request: request.0 })
                }
            };
        };
        let Some(granted) = self.grants.get_mut(&(storage, grant)) else { return };
        let was_first = granted.left.front() == Some(&request);
        granted.left.retain(|left| *left != request);
        granted.bytes += bytes;
        match granted.left.front() {
            Some(next) if was_first => self.decisions.push((*next, Decision::Proceed)),
            Some(_) => {}
            None => self.finish(storage, grant),
        }
    }

    /// Requests of the same grant that proceed after this one.
    pub fn followers(&self, request: RequestId) -> impl Iterator<Item = RequestId> + '_ {
        let granted = self
            .under_way
            .get(&request)
            .and_then(|(storage, grant)| self.grants.get(&(*storage, (*grant)?)));
        let left = granted.into_iter().flat_map(|granted| &granted.left).copied();
        left.skip_while(move |left| *left != request).skip(1)
    }

    /// All requests of a grant are done.
    fn finish(&mut self, storage: u32, grant: GrantId) {
        if let Some(OpenGrant { bytes, since, .. }) = self.grants.remove(&(storage, grant)) {
            let took_us = micros_between(since, self.node.now());
            match &mut self.decider {
                Decider::Local { .. } => {
                    let server = ServerId(storage);
                    self.handle(Event::Completed {
                        client: CLIENT,
                        server,
                        grant,
                        bytes,
                        took_us: Some(took_us),
                    });
                }
                Decider::Remote { link } => {
                    send(link, ToCoordinator::Done { storage, grant, bytes, took_us })
                }
            }
        }
    }

    /// Whether no request waits or proceeds.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.grants.is_empty()
    }

    /// A message from the coordinator.
    pub fn receive(&mut self, message: ToAgent) {
        match message {
            ToAgent::Granted { storage, grant, requests } => {
                self.granted(storage, grant, requests.into_iter().map(RequestId).collect());
            }
            ToAgent::Unordered { request } => self.unordered(RequestId(request)),
            ToAgent::Elsewhere { request, address } => {
                let request = RequestId(request);
                if self.under_way.remove(&request).is_some() {
                    self.decisions.push((request, Decision::Elsewhere(address)));
                }
            }
            ToAgent::Revoked { storage, grant } => self.revoked(storage, grant),
            ToAgent::MustOrder { storage } => drop(self.always.insert(storage)),
            ToAgent::Sharing { storage, is_on } => drop(self.sharing.insert(storage, is_on)),
            ToAgent::Alive | ToAgent::Status(_) | ToAgent::Configs(_) => {}
        }
    }

    /// Decisions since the last call.
    pub fn take_decisions(&mut self) -> Vec<(RequestId, Decision)> {
        if let Decider::Local { .. } = self.decider {
            self.handle(Event::Tick);
        }
        std::mem::take(&mut self.decisions)
    }

    /// The storages of this name, as far as requests to them were asked for.
    pub fn locations_of(&self, name: &str) -> Vec<StorageLocation> {
        let Some(number) = self.names.get(name) else { return Vec::new() };
        let named = self.storages.iter().filter(|(_, storage)| *storage == number);
        named.map(|(location, _)| location.clone()).collect()
    }

    /// The name of a storage for all nodes, if requests to it were asked for.
    pub fn name_of(&self, location: &StorageLocation) -> Option<String> {
        let number = self.storages.get(location)?;
        let mut names = self.names.iter();
        names.find_map(|(name, storage)| (storage == number).then(|| name.clone()))
    }

    /// Microseconds until `take_decisions` must be called again.
    pub fn next_timeout_us(&self) -> Option<u64> {
        match &self.decider {
            Decider::Local { servers, began, .. } => {
                let now_us = micros_between(*began, self.node.now());
                servers.next_timeout().map(|at_us| at_us.saturating_sub(now_us))
            }
            Decider::Remote { .. } => None,
        }
    }

    /// Status, if requests are ordered by this process.
    pub fn status(&self) -> IoStatus {
        let Decider::Local { servers, rules, .. } = &self.decider else {
            return IoStatus::default();
        };
        IoStatus {
            agents: 1,
            classes: rules.class_names(),
            storages: self
                .names
                .iter()
                .flat_map(|(name, number)| {
                    let stats = servers.stats(ServerId(*number));
                    server_names(name, stats.len()).into_iter().zip(stats)
                })
                .collect(),
            bypassed: self
                .bypassed
                .iter()
                .flat_map(|location| {
                    let name = self.node.storage_name(location);
                    let number = self.names.get(&name).copied();
                    let all = number.map_or(1, |number| servers.stats(ServerId(number)).len());
                    server_names(&name, all).into_iter().map(|name| (name, 1))
                })
                .collect(),
        }
    }

    /// Configuration of the storages, if requests are ordered by this process.
    pub fn configs(&self) -> StorageConfigs {
        let Decider::Local { servers, .. } = &self.decider else {
            return StorageConfigs::default();
        };
        let config = |(name, number): (&String, &u32)| {
            let config = servers.config(ServerId(*number))?.clone();
            let all = servers.stats(ServerId(*number)).len();
            Some(server_names(name, all).into_iter().map(move |name| (name, config.clone())))
        };
        self.names.iter().filter_map(config).flatten().collect()
    }

    /// Number of a storage; `None` if there are too many.
    fn storage(&mut self, location: StorageLocation) -> Option<u32> {
        if let Some(storage) = self.storages.get(&location) {
            return Some(*storage);
        }
        if let Decider::Local { servers, .. } = &mut self.decider
            && self.names.len().max(self.storages.len()) >= MAX_STORAGES
        {
            if !self.under_way.is_empty() {
                return None;
            }
            // All are forgotten. The coordinator closes the session of an agent that names too
            // many, which has the same effect.
            *servers = Servers::new();
            self.storages.clear();
            self.names.clear();
        }
        // Several devices with one name are one storage.
        let (next, name) = (self.names.len() as u32, self.node.storage_name(&location));
        let number = *self.names.entry(name.clone()).or_insert(next);
        let is_striped = self.striped.contains(&location);
        self.storages.insert(location, number);
        if number != next {
            return Some(number);
        }
        match &mut self.decider {
            // When the link is lost, numbers begin again from 0; in this process nothing is lost.
            Decider::Local { servers, rules, .. } => {
                rules.serve(servers, ServerId(next), &name, is_striped);
            }
            Decider::Remote { link } => {
                let has_layouts = link.as_ref().is_some_and(|link| link.has_layouts);
                send(
                    link,
                    match is_striped && has_layouts {
                        true => ToCoordinator::StripedStorage(name),
                        false => ToCoordinator::Storage(name),
                    },
                );
            }
        }
        Some(next)
    }

    fn handle(&mut self, event: Event) {
        let Decider::Local { servers, began, .. } = &mut self.decider else { return };
        let mut effects = Vec::new();
        let now_us = micros_between(*began, self.node.now());
        servers.handle(now_us, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Granted(grant) => self.granted(grant.server.0, grant.id, grant.requests),
                Effect::Uncoordinated { request, .. } => self.unordered(request),
                Effect::Revoked { server, grant, .. } => self.revoked(server.0, grant),
            }
        }
    }

    fn granted(&mut self, storage: u32, grant: GrantId, requests: Vec<RequestId>) {
        let mut left = VecDeque::new();
        for request in requests {
            if let Some((_, granted)) = self.under_way.get_mut(&request) {
                *granted = Some(grant);
                left.push_back(request);
            }
        }
        let first = left.front().copied();
        let since = self.node.now();
        self.grants.insert((storage, grant), OpenGrant { left, bytes: 0, since });
        match first {
            Some(first) => self.decisions.push((first, Decision::Proceed)),
            // All of its requests were cancelled meanwhile.
            None => self.finish(storage, grant),
        }
    }

    fn unordered(&mut self, request: RequestId) {
        if self.under_way.remove(&request).is_some() {
            self.decisions.push((request, Decision::Unordered));
        }
    }

    fn revoked(&mut self, storage: u32, grant: GrantId) {
        let Some(OpenGrant { left, .. }) = self.grants.remove(&(storage, grant)) else { return };
        for request in left.iter().skip(1) {
            // They had not proceeded, and their end is not reported.
            self.decisions.push((*request, Decision::Unordered));
        }
        self.under_way.retain(|request, _| !left.contains(request));
    }
}

/// Sends a message, if the coordinator is connected.
fn send(link: &Option<CoordinatorLink>, message: ToCoordinator) {
    if let Some(link) = link {
        let _ = link.sender.send(message);
    }
}

fn micros_between(began: Instant, now: Instant) -> u64 {
    u64::try_from((now - began).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::ThisNode;

    #[test]
    fn storages_are_forgotten_when_there_are_too_many() {
        let mut order = RequestTracker::local(ThisNode, Rules::default());
        let ask = |order: &mut RequestTracker<ThisNode>, number: usize| {
            order.ask(StorageRequest {
                location: StorageLocation::Url(format!("s3://{number}")),
                file: StorageFileId(0),
                class: ClassId::default(),
                operation: Operation::Read,
                extent: Extent { offset: 0, size_bytes: 1 },
                layout: None,
            })
        };
        for number in 0..MAX_STORAGES {
            let request = ask(&mut order, number);
            assert_eq!(order.take_decisions(), [(request, Decision::Proceed)]);
            order.done(request, 1);
        }
        let last = ask(&mut order, 0);
        assert_eq!(order.take_decisions(), [(last, Decision::Proceed)], "it is known");
        let more = ask(&mut order, MAX_STORAGES);
        assert_eq!(order.take_decisions(), [(more, Decision::Unordered)], "something is under way");
        order.done(last, 1);
        let more = ask(&mut order, MAX_STORAGES);
        assert_eq!(
            (order.take_decisions(), order.status().storages.len()),
            (vec![(more, Decision::Proceed)], 1)
        );
    }
}
