//! Tests of the whole decider: the paper's worked examples, single histories, and properties of
//! random histories.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{Extent, Operation, StorageFileId};

use crate::{
    Budget, Call, ClassId, ClassQos, ClientId, Config, Effect, Event, Grant, GrantId, Policy,
    Request, RequestId, ServerId, Servers,
};

mod concurrency;
mod examples;
mod histories;
mod messages;
mod properties;
mod striped;

/// Unit of the worked examples: this many bytes. A server takes a microsecond for each byte.
const UNIT: u64 = 1_000;

impl Servers {
    fn tell(&mut self, now_us: u64, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.handle(now_us, event, &mut effects);
        self.validate();
        effects
    }
}

/// The configuration of the worked examples, without everything that they do not mention.
fn plain(policy: Policy) -> Config {
    Config {
        policy,
        max_run_bytes: u64::MAX,
        window_us: 0,
        bandwidth_bytes_per_s: 1_000_000,
        budget: Budget { concurrency: Some(1), ..Budget::default() },
        lease_us: 1 << 40,
        ..Config::default()
    }
}

/// A read by a client from its own file, which has the client's number.
fn read(id: u64, client: u64, offset: u64, size_bytes: u64) -> Request {
    Request {
        id: RequestId(id),
        client: ClientId(client),
        server: ServerId(0),
        class: ClassId(0),
        file: StorageFileId(client),
        operation: Operation::Read,
        extent: Extent { offset, size_bytes },
        call: None,
    }
}

/// What happens at a time, in this order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Arrive,
    Complete(ServerId, GrantId),
    Tick,
}

/// Servers that execute one grant at a time, a byte in a microsecond, and the history of their
/// requests.
struct World {
    servers: Servers,
    now_us: u64,
    agenda: BTreeSet<(u64, Next)>,
    arrivals: BTreeMap<u64, Vec<Request>>,
    /// When each server has executed all grants so far.
    busy_until_us: BTreeMap<ServerId, u64>,
    out: BTreeMap<(ServerId, GrantId), Grant>,
    requests: BTreeMap<RequestId, (u64 /* arrived_us */, Request)>,
    /// Grants in the order in which they left, each with the time at which its execution began.
    grants: Vec<(u64, Grant)>,
    finished_us: BTreeMap<RequestId, u64>,
}

impl World {
    fn new(configs: impl IntoIterator<Item = Config>) -> Self {
        let mut servers = Servers::new();
        configs.into_iter().zip(0..).for_each(|(config, id)| servers.serve(ServerId(id), config));
        World {
            servers,
            now_us: 0,
            agenda: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            busy_until_us: BTreeMap::new(),
            out: BTreeMap::new(),
            requests: BTreeMap::new(),
            grants: Vec::new(),
            finished_us: BTreeMap::new(),
        }
    }

    fn arrive(&mut self, at_us: u64, request: Request) {
        self.agenda.insert((at_us, Next::Arrive));
        self.arrivals.entry(at_us).or_default().push(request);
    }

    /// Runs until nothing more happens. `more` returns the requests that follow one that is done.
    fn run(&mut self, mut more: impl FnMut(&Request, u64) -> Vec<(u64, Request)>) {
        while let Some((now_us, next)) = self.agenda.pop_first() {
            self.now_us = now_us;
            let event = match next {
                Next::Arrive => {
                    let mut requests = self.arrivals.remove(&now_us).unwrap_or_default();
                    requests
                        .iter_mut()
                        .zip(self.requests.len() as u64..)
                        .for_each(|(request, id)| request.id.0 = id);
                    self.requests
                        .extend(requests.iter().map(|request| (request.id, (now_us, *request))));
                    Event::Asked(requests)
                }
                Next::Complete(server, id) => {
                    let grant = self.out.remove(&(server, id)).expect("the grant is outstanding");
                    Event::Completed {
                        client: grant.client,
                        server,
                        grant: id,
                        bytes: grant.extent.size_bytes,
                        took_us: None,
                    }
                }
                Next::Tick => Event::Tick,
            };
            for effect in self.servers.tell(now_us, event) {
                let Effect::Granted(grant) = effect else {
                    panic!("only grants are expected: {effect:?}")
                };
                for (at_us, request) in self.serve(grant, &mut more) {
                    self.arrive(at_us, request);
                }
            }
            if let Some(timeout_us) = self.servers.next_timeout().filter(|_| !self.is_done()) {
                assert!(timeout_us > now_us, "everything due is done");
                self.agenda.insert((timeout_us, Next::Tick));
            }
        }
        assert!(self.is_done() && self.out.is_empty(), "all requests are granted in the end");
    }

    fn is_done(&self) -> bool {
        self.finished_us.len() == self.requests.len() && self.arrivals.is_empty()
    }

    fn serve(
        &mut self,
        grant: Grant,
        mut more: impl FnMut(&Request, u64) -> Vec<(u64, Request)>,
    ) -> Vec<(u64, Request)> {
        let busy_until_us = self.busy_until_us.entry(grant.server).or_default();
        *busy_until_us = (*busy_until_us).max(self.now_us);
        self.grants.push((*busy_until_us, grant.clone()));
        let mut later = Vec::new();
        for id in &grant.requests {
            let (_, request) = &self.requests[id];
            *busy_until_us += request.extent.size_bytes;
            assert!(
                self.finished_us.insert(*id, *busy_until_us).is_none(),
                "{id:?} is granted twice"
            );
            later.extend(more(request, *busy_until_us));
        }
        self.agenda.insert((*busy_until_us, Next::Complete(grant.server, grant.id)));
        self.out.insert((grant.server, grant.id), grant);
        later
    }

    /// Response times, in microseconds.
    fn responses_us(&self) -> Vec<u64> {
        self.requests
            .iter()
            .map(|(id, (arrived_us, _))| self.finished_us[id] - arrived_us)
            .collect()
    }

    /// When a client's requests were done, in units.
    fn finishes(&self, client: u64) -> Vec<u64> {
        let of_client =
            self.requests.values().filter(|(_, request)| request.client == ClientId(client));
        let mut finishes: Vec<_> =
            of_client.map(|(_, request)| self.finished_us[&request.id] / UNIT).collect();
        finishes.sort_unstable();
        finishes
    }

    /// The runs in order: start of execution, range of bytes in units, and number of requests.
    fn runs(&self) -> Vec<(u64, core::ops::Range<u64>, usize)> {
        let mut runs: BTreeMap<_, (u64, core::ops::Range<u64>, usize)> = BTreeMap::new();
        for (began_us, grant) in &self.grants {
            let Extent { offset, .. } = grant.extent;
            let (from, to) = (offset / UNIT, grant.extent.end() / UNIT);
            let run =
                runs.entry((grant.run, grant.server)).or_insert((began_us / UNIT, from..to, 0));
            assert!(run.1.end >= from && run.1.start <= from, "turns are in order");
            run.1.end = run.1.end.max(to);
            run.2 += grant.requests.len();
        }
        runs.into_values().collect()
    }
}

fn nothing_more(_: &Request, _: u64) -> Vec<(u64, Request)> {
    vec![]
}
