//! When requests go to storage: as `core/ioq` decides, for all nodes at their coordinator, or for this node alone here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use eyas_ioq::{ClassId, ClientId, Effect, Event, GrantId, Request, RequestId, ServerId, Servers};
use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};

use crate::link::Say;
use crate::protocol::{MAX_STORAGES, Status, ToAgent, ToCoordinator, Wish};
use crate::rules::Rules;
use crate::storage::shared_name;

/// The agent is the only client of its own decider.
const CLIENT: ClientId = ClientId(0);

/// What was decided of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to go, and its end is waited for.
    Go,
    /// It is to go, and nothing is to be heard of it.
    Unordered,
}

/// Requests on their way through the order.
pub(crate) struct Order {
    decider: Decider,
    /// Storages, numbered as they came.
    storages: BTreeMap<StorageLocation, u32>,
    /// Their numbers by their names.
    names: BTreeMap<String, u32>,
    last: u64,
    /// Where each is that has been asked for and is not done.
    under_way: BTreeMap<RequestId, (u32, Option<GrantId>)>,
    grants: BTreeMap<(u32, GrantId), Granted>,
    /// Storages that programs are left alone with.
    left_alone: BTreeSet<StorageLocation>,
    /// Those that the coordinator wants ordered in any case.
    always: BTreeSet<u32>,
    verdicts: Vec<(RequestId, Verdict)>,
}

/// A turn: its requests go one after the other.
struct Granted {
    /// Those that are not done, in the order of their offsets. The first goes now.
    left: VecDeque<RequestId>,
    /// What has been done.
    bytes: u64,
    since: Instant,
}

/// Who decides.
enum Decider {
    Here { servers: Servers, rules: Box<Rules>, began: Instant },
    There { say: Option<Say> },
}

impl Order {
    /// Decides here.
    pub fn here(rules: Rules) -> Order {
        let rules = Box::new(rules);
        Order::of(Decider::Here { servers: Servers::new(), rules, began: Instant::now() })
    }

    /// Leaves it to a coordinator, which has not been reached yet.
    pub fn there() -> Order {
        Order::of(Decider::There { say: None })
    }

    fn of(decider: Decider) -> Order {
        Order {
            decider,
            storages: BTreeMap::new(),
            names: BTreeMap::new(),
            last: 0,
            under_way: BTreeMap::new(),
            grants: BTreeMap::new(),
            left_alone: BTreeSet::new(),
            always: BTreeSet::new(),
            verdicts: Vec::new(),
        }
    }

    /// Whether there is somebody who decides.
    pub fn is_open(&self) -> bool {
        !matches!(self.decider, Decider::There { say: None })
    }

    /// The coordinator has been reached, or lost. It begins with nothing: what was asked of one before goes unordered.
    pub fn link(&mut self, link: Option<Say>) {
        if let Decider::There { say } = &mut self.decider {
            *say = link;
            self.storages.clear();
            self.names.clear();
            self.always.clear();
            // Of a grant, the first has been told to go.
            let went: BTreeSet<RequestId> =
                std::mem::take(&mut self.grants).values().filter_map(|granted| granted.left.front().copied()).collect();
            let left = std::mem::take(&mut self.under_way).into_keys().filter(|request| !went.contains(request));
            self.verdicts.extend(left.map(|request| (request, Verdict::Unordered)));
            self.left_alone.clone().into_iter().for_each(|place| self.leave_alone(place, true));
        }
    }

    /// Asks for a turn.
    pub fn ask(
        &mut self,
        place: StorageLocation,
        file: StorageFileId,
        class: ClassId,
        operation: Operation,
        extent: Extent,
    ) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        let Some(storage) = self.storage(place) else {
            self.verdicts.push((id, Verdict::Unordered));
            return id;
        };
        self.under_way.insert(id, (storage, None));
        match &mut self.decider {
            Decider::Here { .. } => {
                let server = ServerId(storage);
                let request = Request { id, client: CLIENT, server, class, file, operation, extent, call: None };
                self.handle(Event::Asked(vec![request]));
            }
            Decider::There { say: Some(say) } => {
                let wish = Wish { request: id.0, storage, class, file, operation, extent };
                // If the link has ended, the brain will hear of it.
                let _ = say.send(ToCoordinator::Ask(vec![wish]));
            }
            Decider::There { say: None } => {
                self.under_way.remove(&id);
                self.verdicts.push((id, Verdict::Unordered));
            }
        }
        id
    }

    /// Whether there are rules that cannot be kept at a storage unless its requests are ordered.
    pub fn is_always(&self, place: &StorageLocation) -> bool {
        match &self.decider {
            Decider::Here { rules, .. } => rules.is_always(&shared_name(place)),
            Decider::There { .. } => self.storages.get(place).is_some_and(|storage| self.always.contains(storage)),
        }
    }

    /// Those with which programs are left alone and must not be.
    pub fn take_back(&mut self) -> Vec<StorageLocation> {
        let back =
            |place: &&StorageLocation| self.storages.get(place).is_some_and(|storage| self.always.contains(storage));
        let back: Vec<StorageLocation> = self.left_alone.iter().filter(back).cloned().collect();
        back.iter().for_each(|place| self.leave_alone(place.clone(), false));
        back
    }

    /// Programs are left alone with a storage from now on, or not any more.
    pub fn leave_alone(&mut self, place: StorageLocation, is_left: bool) {
        if self.is_open()
            && let Some(storage) = self.storage(place.clone())
            && let Decider::There { say } = &self.decider
        {
            tell(say, ToCoordinator::LeftAlone { storage, is_left });
        }
        match is_left {
            true => self.left_alone.insert(place),
            false => self.left_alone.remove(&place),
        };
    }

    /// A request is done, with so many bytes; or nobody wants it any more, if it was not granted.
    pub fn done(&mut self, request: RequestId, bytes: u64) {
        let Some((storage, grant)) = self.under_way.remove(&request) else { return };
        let Some(grant) = grant else {
            return match &mut self.decider {
                Decider::Here { .. } => {
                    self.handle(Event::Cancelled { client: CLIENT, server: ServerId(storage), request });
                }
                Decider::There { say } => tell(say, ToCoordinator::Cancel { storage, request: request.0 }),
            };
        };
        let Some(granted) = self.grants.get_mut(&(storage, grant)) else { return };
        let was_first = granted.left.front() == Some(&request);
        granted.left.retain(|left| *left != request);
        granted.bytes += bytes;
        match granted.left.front() {
            Some(next) if was_first => self.verdicts.push((*next, Verdict::Go)),
            Some(_) => {}
            None => self.finish(storage, grant),
        }
    }

    /// Those that go one after the other when this one is done, in the same turn.
    pub fn followers(&self, request: RequestId) -> impl Iterator<Item = RequestId> + '_ {
        let granted = self.under_way.get(&request).and_then(|(storage, grant)| self.grants.get(&(*storage, (*grant)?)));
        let left = granted.into_iter().flat_map(|granted| &granted.left).copied();
        left.skip_while(move |left| *left != request).skip(1)
    }

    /// All of a turn is done.
    fn finish(&mut self, storage: u32, grant: GrantId) {
        if let Some(Granted { bytes, since, .. }) = self.grants.remove(&(storage, grant)) {
            let took_us = micros_since(since);
            match &mut self.decider {
                Decider::Here { .. } => {
                    let server = ServerId(storage);
                    self.handle(Event::Completed { client: CLIENT, server, grant, bytes, took_us: Some(took_us) });
                }
                Decider::There { say } => tell(say, ToCoordinator::Done { storage, grant, bytes, took_us }),
            }
        }
    }

    /// The coordinator says something.
    pub fn hear(&mut self, message: ToAgent) {
        match message {
            ToAgent::Granted { storage, grant, requests } => {
                self.granted(storage, grant, requests.into_iter().map(RequestId).collect());
            }
            ToAgent::Unordered { request } => self.unordered(RequestId(request)),
            ToAgent::Revoked { storage, grant } => self.revoked(storage, grant),
            ToAgent::Always { storage } => drop(self.always.insert(storage)),
            ToAgent::Alive | ToAgent::Status(_) => {}
        }
    }

    /// What has been decided since it was last asked.
    pub fn verdicts(&mut self) -> Vec<(RequestId, Verdict)> {
        if let Decider::Here { .. } = self.decider {
            self.handle(Event::Tick);
        }
        std::mem::take(&mut self.verdicts)
    }

    /// In how many microseconds the order wants to be looked at again.
    pub fn next_timeout_us(&self) -> Option<u64> {
        match &self.decider {
            Decider::Here { servers, began, .. } => {
                servers.next_timeout().map(|at_us| at_us.saturating_sub(micros_since(*began)))
            }
            Decider::There { .. } => None,
        }
    }

    /// How things are, if it is decided here.
    pub fn status(&self) -> Status {
        let Decider::Here { servers, rules, .. } = &self.decider else { return Status::default() };
        let stats = |(name, number): (&String, &u32)| Some((name.clone(), servers.stats(ServerId(*number))?));
        Status {
            agents: 1,
            classes: rules.class_names(),
            storages: self.names.iter().filter_map(stats).collect(),
            left_alone: self.left_alone.iter().map(|place| (shared_name(place), 1)).collect(),
        }
    }

    /// The number of a storage, if it can have one.
    fn storage(&mut self, place: StorageLocation) -> Option<u32> {
        if let Some(storage) = self.storages.get(&place) {
            return Some(*storage);
        }
        if let Decider::Here { servers, .. } = &mut self.decider
            && self.names.len().max(self.storages.len()) >= MAX_STORAGES
        {
            if !self.under_way.is_empty() {
                return None;
            }
            // All are forgotten. A coordinator that is named too many hangs up, which comes to the same.
            *servers = Servers::new();
            self.storages.clear();
            self.names.clear();
        }
        // What several devices show is one storage, if it has one name.
        let (next, name) = (self.names.len() as u32, shared_name(&place));
        let number = *self.names.entry(name.clone()).or_insert(next);
        self.storages.insert(place, number);
        if number != next {
            return Some(number);
        }
        match &mut self.decider {
            // After a loss of all that was known, the numbers begin anew; here nothing is ever lost.
            Decider::Here { servers, rules, .. } => servers.serve(ServerId(next), rules.of(&name)),
            Decider::There { say } => tell(say, ToCoordinator::Storage(name)),
        }
        Some(next)
    }

    fn handle(&mut self, event: Event) {
        let Decider::Here { servers, began, .. } = &mut self.decider else { return };
        let mut effects = Vec::new();
        servers.handle(micros_since(*began), event, &mut effects);
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
        self.grants.insert((storage, grant), Granted { left, bytes: 0, since: Instant::now() });
        match first {
            Some(first) => self.verdicts.push((first, Verdict::Go)),
            // Nobody wanted it any more when it was granted.
            None => self.finish(storage, grant),
        }
    }

    fn unordered(&mut self, request: RequestId) {
        if self.under_way.remove(&request).is_some() {
            self.verdicts.push((request, Verdict::Unordered));
        }
    }

    fn revoked(&mut self, storage: u32, grant: GrantId) {
        let Some(Granted { left, .. }) = self.grants.remove(&(storage, grant)) else { return };
        for request in left.iter().skip(1) {
            // They were not told to go before, and are not waited for.
            self.verdicts.push((*request, Verdict::Unordered));
        }
        self.under_way.retain(|request, _| !left.contains(request));
    }
}

/// Says it, if there is somebody to hear it.
fn tell(say: &Option<Say>, message: ToCoordinator) {
    if let Some(say) = say {
        let _ = say.send(message);
    }
}

fn micros_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storages_are_forgotten_when_there_are_too_many() {
        let mut order = Order::here(Rules::default());
        let ask = |order: &mut Order, number: usize| {
            let (place, extent) = (StorageLocation::Url(format!("s3://{number}")), Extent { offset: 0, size_bytes: 1 });
            order.ask(place, StorageFileId(0), ClassId::default(), Operation::Read, extent)
        };
        for number in 0..MAX_STORAGES {
            let request = ask(&mut order, number);
            assert_eq!(order.verdicts(), [(request, Verdict::Go)]);
            order.done(request, 1);
        }
        let last = ask(&mut order, 0);
        assert_eq!(order.verdicts(), [(last, Verdict::Go)], "it is known");
        let more = ask(&mut order, MAX_STORAGES);
        assert_eq!(order.verdicts(), [(more, Verdict::Unordered)], "something is under way");
        order.done(last, 1);
        let more = ask(&mut order, MAX_STORAGES);
        assert_eq!((order.verdicts(), order.status().storages.len()), (vec![(more, Verdict::Go)], 1));
    }
}
