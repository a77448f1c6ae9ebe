//! Storages whose files are striped over servers that work at the same time.

use core::num::{NonZeroU32, NonZeroU64};

use super::*;
use crate::{FileLayout, Mlf, Sojf, StripedRegion, Striping};

/// Two servers that read a byte in a microsecond each, with stripes of 5 units.
struct TwoServers {
    servers: Servers,
    striping: Striping,
    busy_until_us: [u64; 2],
    /// Ends of grants.
    ends: BTreeMap<(u64, GrantId), Grant>,
    extents: BTreeMap<RequestId, Extent>,
    finished_us: BTreeMap<ClientId, u64>,
}

impl TwoServers {
    fn new(policy: Policy) -> Self {
        let striping = Striping {
            servers: NonZeroU32::new(2).unwrap(),
            stripe_bytes: NonZeroU64::new(5 * UNIT).unwrap(),
        };
        let mut servers = Servers::new();
        servers.serve_striped(ServerId(0), &plain(policy), striping);
        TwoServers {
            servers,
            striping,
            busy_until_us: [0; 2],
            ends: BTreeMap::new(),
            extents: BTreeMap::new(),
            finished_us: BTreeMap::new(),
        }
    }

    fn hear(&mut self, now_us: u64, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Granted(grant) = effect else { panic!("{effect:?}") };
            let mut end_us = now_us;
            for request in &grant.requests {
                for part in self.striping.parts(self.extents[request]) {
                    let busy_us = &mut self.busy_until_us[part.server as usize];
                    *busy_us = now_us.max(*busy_us) + part.extent.size_bytes;
                    end_us = end_us.max(*busy_us);
                }
            }
            self.ends.insert((end_us, grant.id), grant);
        }
    }

    /// When the call of each client ends, if all arrive at once.
    fn run(mut self, calls: &[Request]) -> BTreeMap<ClientId, u64> {
        self.extents = calls.iter().map(|call| (call.id, call.extent)).collect();
        let effects = self.servers.tell(0, Event::Asked(calls.to_vec()));
        self.hear(0, effects);
        while let Some(((now_us, id), grant)) = self.ends.pop_first() {
            self.finished_us.insert(grant.client, now_us / UNIT);
            let done = Event::Completed {
                client: grant.client,
                server: ServerId(0),
                grant: id,
                bytes: grant.extent.size_bytes,
                took_us: None,
            };
            let effects = self.servers.tell(now_us, done);
            self.hear(now_us, effects);
        }
        assert!(self.servers.forget(ServerId(0)), "nothing is left");
        self.finished_us
    }
}

fn ends(policy: Policy) -> [u64; 2] {
    let calls = [read(1, 1, 0, 15 * UNIT), read(2, 2, 0, 10 * UNIT)];
    let ended = TwoServers::new(policy).run(&calls);
    [ended[&ClientId(1)], ended[&ClientId(2)]]
}

#[test]
fn the_shortest_call_goes_first_on_all_servers() {
    assert_eq!(ends(Policy::Fifo), [10, 15], "25 in all");
    assert_eq!(ends(Policy::Sojf(Sojf::DEFAULT)), [15, 5], "20 in all, the paper's figure 5");
}

#[test]
fn calls_to_different_servers_proceed_at_the_same_time() {
    let of_one_stripe = |id, stripe| read(id, id, stripe * 5 * UNIT, 5 * UNIT);
    for policy in [Policy::Fifo, Policy::Sojf(Sojf::DEFAULT), Policy::Mlf(Mlf::DEFAULT)] {
        let calls: Vec<_> = (1..=4).map(|id| of_one_stripe(id, id)).collect();
        let ended = TwoServers::new(policy).run(&calls);
        assert_eq!(ended.into_values().collect::<Vec<_>>(), [5, 5, 10, 10], "{policy:?}");
    }
}

#[test]
fn a_call_that_is_cancelled_frees_all_servers() {
    let mut two = TwoServers::new(Policy::Fifo);
    let calls = [read(1, 1, 0, 15 * UNIT), read(2, 2, 0, 10 * UNIT), read(3, 3, 0, 10 * UNIT)];
    let effects = two.servers.tell(0, Event::Asked(calls.to_vec()));
    let [Effect::Granted(first)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(first.requests, [RequestId(1)]);
    let cancel = |client, request| Event::Cancelled {
        client: ClientId(client),
        server: ServerId(0),
        request: RequestId(request),
    };
    assert_eq!(two.servers.tell(1, cancel(2, 2)), [], "it has waited");
    let effects = two.servers.tell(2, cancel(1, 1));
    let [Effect::Granted(next)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(next.requests, [RequestId(3)]);
    assert_eq!(two.servers.tell(3, Event::Gone { client: ClientId(3) }), []);
    assert!(two.servers.forget(ServerId(0)));
}

#[test]
fn a_call_that_exceeds_its_lease_frees_all_servers() {
    let mut servers = Servers::new();
    let striping = TwoServers::new(Policy::Fifo).striping;
    let config = Config { lease_us: 1_000, ..plain(Policy::Fifo) };
    servers.serve_striped(ServerId(0), &config, striping);
    let calls = [read(1, 1, 0, 10 * UNIT), read(2, 2, 0, 10 * UNIT)];
    let _ = servers.tell(0, Event::Asked(calls.to_vec()));
    let mut revoked = Vec::new();
    while revoked.len() < 2 {
        let now_us = servers.next_timeout().expect("a lease ends");
        let effects = servers.tell(now_us, Event::Tick);
        revoked.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Revoked { client, .. } => Some(client),
            _ => None,
        }));
    }
    assert_eq!(revoked, [ClientId(1), ClientId(2)]);
    assert!(servers.forget(ServerId(0)));
}

#[test]
fn files_with_layouts_wait_only_for_their_own_servers() {
    let mut servers = Servers::new();
    servers.serve_striped(ServerId(0), &plain(Policy::Fifo), Striping::ONE_SERVER);
    let asked = |id, on: &[u32]| Event::AskedStriped {
        request: read(id, id, 0, 10 * UNIT),
        layout: FileLayout(vec![StripedRegion {
            offset: 0,
            stripe_bytes: 5 * UNIT,
            servers: on.to_vec(),
        }]),
    };
    let granted = |effects: Vec<Effect>| {
        let id = |effect| match effect {
            Effect::Granted(grant) => grant.requests[0].0,
            effect => panic!("{effect:?}"),
        };
        effects.into_iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(granted(servers.tell(0, asked(1, &[1, 3]))), [1]);
    assert_eq!(granted(servers.tell(0, asked(2, &[3, 1]))), [], "both are busy");
    assert_eq!(granted(servers.tell(0, asked(3, &[0, 7]))), [3], "others are not");
    assert_eq!(granted(servers.tell(0, asked(4, &[7, 2]))), [4], "one of them is not");
    // A file without a layout is on the first server.
    assert_eq!(granted(servers.tell(0, Event::Asked(vec![read(5, 5, 0, UNIT)]))), []);
    assert_eq!(servers.stats(ServerId(0)).len(), 8);
    servers.validate();
    for client in 1..=5 {
        let _ = servers.tell(1, Event::Gone { client: ClientId(client) });
    }
    assert!(servers.forget(ServerId(0)));
}
