//! Single histories: turns, clients that disconnect, leases, prediction, budgets, classes,
//! anticipation.

use super::*;
use crate::{MAX_QUEUED, Wsjf};

fn served(config: Config) -> Servers {
    let mut servers = Servers::new();
    servers.serve(ServerId(0), config);
    servers
}

/// A read from one file that all clients share.
fn shared(id: u64, client: u64, offset: u64, size_bytes: u64) -> Request {
    Request { file: StorageFileId(0), ..read(id, client, offset, size_bytes) }
}

fn completed(client: u64, grant: u64, bytes: u64) -> Event {
    Event::Completed {
        client: ClientId(client),
        server: ServerId(0),
        grant: GrantId(grant),
        bytes,
        took_us: None,
    }
}

fn cancelled(client: u64, request: u64) -> Event {
    Event::Cancelled { client: ClientId(client), server: ServerId(0), request: RequestId(request) }
}

/// Client and requests of each grant.
fn granted(effects: &[Effect]) -> Vec<(u64, Vec<u64>)> {
    let grants = effects
        .iter()
        .filter_map(|effect| if let Effect::Granted(grant) = effect { Some(grant) } else { None });
    grants
        .map(|grant| (grant.client.0, grant.requests.iter().map(|request| request.0).collect()))
        .collect()
}

#[test]
fn clients_of_a_run_are_granted_one_after_the_other_without_others_between() {
    let mut servers = served(plain(Policy::Sjf));
    let asked = vec![
        shared(1, 7, 30, 10),
        shared(2, 7, 10, 10),
        shared(3, 8, 20, 10),
        shared(4, 7, 40, 10),
    ];
    let effects = servers.tell(0, Event::Asked(asked));
    assert_eq!(granted(&effects), [(7, vec![2])]);
    let short = servers.tell(1, Event::Asked(vec![read(5, 9, 0, 1)]));
    assert_eq!(short, [], "the run goes on");
    assert_eq!(granted(&servers.tell(10, completed(7, 1, 10))), [(8, vec![3])]);
    let effects = servers.tell(20, completed(8, 2, 10));
    assert_eq!(granted(&effects), [(7, vec![1, 4])], "what follows each other goes together");
    let [Effect::Granted(last)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((last.run.0, last.extent), (1, Extent { offset: 30, size_bytes: 20 }));
    assert_eq!(granted(&servers.tell(40, completed(7, 3, 20))), [(9, vec![5])]);
}

#[test]
fn requests_for_the_same_bytes_belong_together() {
    let mut servers = served(plain(Policy::Fifo));
    let asked = (0..4).map(|client| shared(client, client, 0, 10)).chain([shared(4, 9, 10, 10)]);
    servers.tell(0, Event::Asked(asked.collect()));
    assert_eq!(servers.stats(ServerId(0))[0].runs, 1);
    assert_eq!(servers.stats(ServerId(0))[0].queued, 0);
}

#[test]
fn a_client_that_vanishes_takes_its_turns_with_it() {
    let mut servers = served(plain(Policy::Fifo));
    let asked = vec![
        shared(1, 7, 0, 10),
        shared(2, 8, 10, 10),
        shared(3, 7, 20, 10),
        read(4, 7, 0, 5),
        read(5, 9, 0, 1),
    ];
    assert_eq!(granted(&servers.tell(0, Event::Asked(asked))), [(7, vec![1])]);
    let effects = servers.tell(1, Event::Gone { client: ClientId(7) });
    assert_eq!(granted(&effects), [(8, vec![2])]);
    assert_eq!(granted(&servers.tell(2, completed(8, 2, 10))), [(9, vec![5])]);
    assert_eq!(servers.tell(3, completed(9, 3, 1)), []);
    assert_eq!(servers.next_timeout(), None, "nothing is left");
}

#[test]
fn an_expired_lease_is_revoked() {
    let mut servers = served(Config { lease_us: 1_000, ..plain(Policy::Fifo) });
    servers.tell(0, Event::Asked(vec![read(1, 1, 0, 100), read(2, 2, 0, 100)]));
    let until_us = 1_000 + 4 * 100;
    assert_eq!(servers.next_timeout(), Some(until_us));
    assert_eq!(servers.tell(until_us - 1, Event::Tick), []);
    let effects = servers.tell(until_us, Event::Tick);
    let revoked = Effect::Revoked { client: ClientId(1), server: ServerId(0), grant: GrantId(1) };
    assert_eq!((&effects[0], granted(&effects)), (&revoked, vec![(2, vec![2])]));
    assert_eq!(servers.tell(until_us + 1, completed(1, 1, 100)), [], "it is late");
    assert_eq!(servers.tell(until_us + 1, completed(1, 2, 100)), [], "it is another's");
    let stats = servers.stats(ServerId(0)).remove(0);
    assert_eq!((stats.revoked, stats.outstanding, stats.granted), (1, 1, 2));
}

#[test]
fn leases_grow_until_a_slow_server_keeps_them() {
    let mut servers = served(Config { lease_us: 1_000, ..plain(Policy::Fifo) });
    let (mut revoked, mut now_us) = (0, 0);
    for id in 1..=50 {
        let [Effect::Granted(grant)] =
            &servers.tell(now_us, Event::Asked(vec![read(id, 1, 0, 1_000)]))[..]
        else {
            panic!("nothing else is out")
        };
        // It is predicted to take 1 ms and takes 100 ms.
        let done_us = now_us + 100_000;
        if grant.until_us < done_us {
            servers.tell(grant.until_us, Event::Tick);
            revoked += 1;
        }
        servers.tell(done_us, completed(1, grant.id.0, 1_000));
        now_us = done_us;
    }
    assert!((1..=4).contains(&revoked), "{revoked} of 50");
    assert_eq!(servers.stats(ServerId(0))[0].revoked, revoked);
}

#[test]
fn an_idle_server_can_be_forgotten() {
    let mut servers = served(plain(Policy::Fifo));
    servers.tell(0, Event::Asked(vec![read(1, 1, 0, 10)]));
    assert!(!servers.forget(ServerId(0)), "something is out");
    servers.tell(1, completed(1, 1, 10));
    assert!(servers.forget(ServerId(0)) && servers.stats(ServerId(0)).is_empty());
    let effects = servers.tell(2, Event::Asked(vec![read(2, 1, 0, 10)]));
    assert_eq!(effects, [Effect::Uncoordinated { client: ClientId(1), request: RequestId(2) }]);
}

#[test]
fn requests_are_cancelled_wherever_they_are() {
    let mut servers = served(plain(Policy::Fifo));
    let run =
        vec![shared(1, 7, 0, 10), shared(2, 7, 10, 10), shared(3, 8, 20, 10), shared(4, 9, 30, 10)];
    assert_eq!(granted(&servers.tell(0, Event::Asked(run))), [(7, vec![1, 2])]);
    servers.tell(0, Event::Asked(vec![read(5, 5, 0, 10), read(6, 5, 10, 10), read(7, 5, 20, 10)]));
    assert_eq!(servers.tell(1, cancelled(8, 1)), [], "it is another's");
    assert_eq!(servers.tell(1, cancelled(8, 3)), [], "its turn was to come");
    assert_eq!(servers.tell(1, cancelled(5, 6)), [], "it waited, between two");
    assert_eq!(servers.tell(2, cancelled(7, 1)), [], "the other is still to be done");
    assert_eq!(granted(&servers.tell(3, cancelled(7, 2))), [(9, vec![4])]);
    assert_eq!(granted(&servers.tell(4, completed(9, 2, 10))), [(5, vec![5])]);
    assert_eq!(granted(&servers.tell(5, completed(5, 3, 10))), [(5, vec![7])]);
}

#[test]
fn with_prediction_the_next_grant_leaves_in_time_and_never_a_third() {
    let config = Config { margin_us: Some(50), ..plain(Policy::Fifo) };
    let mut servers = served(config);
    let effects = servers
        .tell(0, Event::Asked((1..=4).map(|client| read(client, client, 0, 1_000)).collect()));
    assert_eq!(granted(&effects), [(1, vec![1])]);
    assert_eq!(servers.next_timeout(), Some(1_050), "size by bandwidth, and the margin");
    assert_eq!(granted(&servers.tell(1_050, Event::Tick)), [(2, vec![2])]);
    assert_eq!(servers.tell(9_000, Event::Tick), [], "two are out");
    // The first took five times as long as predicted. The second begins now and is predicted to
    // take as long as the first was.
    assert_eq!(servers.tell(10_000, completed(1, 1, 1_000)), []);
    assert_eq!(servers.next_timeout(), Some(11_050));
    assert_eq!(granted(&servers.tell(11_050, Event::Tick)), [(3, vec![3])]);
    assert_eq!(
        servers.tell(15_000, completed(2, 2, 1_000)),
        [],
        "what was measured is predicted from now on"
    );
    let predicted_us = servers.next_timeout().unwrap() - 15_000;
    assert!((4_000..10_100).contains(&predicted_us), "{predicted_us}");
}

#[test]
fn an_object_store_is_coalesced_and_not_serialised() {
    let budget = Budget { concurrency: Some(3), requests_per_s: Some(100), ..Budget::default() };
    let mut servers = served(Config { budget, ..plain(Policy::Fifo) });
    let asked =
        vec![shared(1, 7, 0, 10), shared(2, 7, 10, 10), shared(3, 8, 20, 10), shared(4, 9, 30, 10)];
    assert_eq!(
        granted(&servers.tell(0, Event::Asked(asked))),
        [(7, vec![1, 2]), (8, vec![3]), (9, vec![4])]
    );
    servers.tell(1, completed(8, 2, 10));
    assert_eq!(
        servers.tell(2, Event::Asked(vec![read(5, 5, 0, 1)])),
        [],
        "its requests of this moment are used up"
    );
    assert_eq!(servers.next_timeout(), Some(40_000));
    assert_eq!(granted(&servers.tell(40_000, Event::Tick)), [(5, vec![5])]);
}

#[test]
fn requests_beyond_the_bound_go_unordered_and_are_counted() {
    let mut servers = served(plain(Policy::Wsjf(Wsjf::DEFAULT)));
    let all = MAX_QUEUED as u64 + 2;
    let mut effects = Vec::new();
    servers.handle(0, Event::Asked((0..all).map(|id| read(id, id, 0, 10)).collect()), &mut effects);
    let last = [all - 2, all - 1]
        .map(|id| Effect::Uncoordinated { client: ClientId(id), request: RequestId(id) });
    assert_eq!(effects[..2], last);
    let elsewhere = Request { server: ServerId(5), ..read(all, 1, 0, 10) };
    let effects = &mut Vec::new();
    servers.handle(0, Event::Asked(vec![elsewhere]), effects);
    assert_eq!(*effects, [Effect::Uncoordinated { client: ClientId(1), request: RequestId(all) }]);
    assert_eq!(servers.stats(ServerId(0))[0].uncoordinated, 2);
    servers.validate();
}

#[test]
fn a_run_has_as_much_as_it_may_and_one_request_may_have_more() {
    let mut servers = served(Config { max_run_bytes: 25, ..plain(Policy::Fifo) });
    let sizes = [10, 10, 10, 100, 10];
    let asked = sizes.iter().zip(1..).scan(0, |offset, (size, id)| {
        *offset += size;
        Some(read(id, 1, *offset - size, *size))
    });
    let mut runs = granted(&servers.tell(0, Event::Asked(asked.collect())));
    for grant in 1..4 {
        runs.extend(granted(&servers.tell(grant, completed(1, grant, 1))));
    }
    assert_eq!(
        runs.into_iter().map(|(_, requests)| requests).collect::<Vec<_>>(),
        [vec![1, 2], vec![3], vec![4], vec![5]]
    );
}

#[test]
fn classes_share_by_weight_and_limits_are_waited_for() {
    let [heavy, limited] = [ClassId(1), ClassId(2)];
    let qualities = [
        (heavy, ClassQos { weight: 3, ..ClassQos::default() }),
        (limited, ClassQos { limit_bytes_per_s: Some(100_000), ..ClassQos::default() }),
    ];
    let mut world = World::new([Config { classes: qualities.into(), ..plain(Policy::Fifo) }]);
    for client in 0..200 {
        world.arrive(
            0,
            Request { class: ClassId((client % 2) as u32), ..read(0, client, 0, 1_000) },
        );
    }
    world.arrive(0, Request { class: limited, ..read(0, 1_000, 0, 1_000) });
    world.arrive(0, Request { class: limited, ..read(0, 1_001, 0, 1_000) });
    world.run(nothing_more);
    let of_heavy = world.grants[..80]
        .iter()
        .filter(|(_, grant)| grant.client.0 < 1_000 && grant.client.0 % 2 == 1);
    assert!((57..=60).contains(&of_heavy.count()), "three of four");
    let began: Vec<_> = world.grants.iter().filter(|(_, grant)| grant.client.0 >= 1_000).collect();
    assert!(began[1].0 >= 10_000, "{} microseconds after the first", began[1].0 - began[0].0);
    assert_eq!(world.servers.stats(ServerId(0))[0].waits[&heavy].requests, 100);
}

#[test]
fn a_class_that_begins_between_the_requests_of_another_starves_nothing() {
    // A client of the default class reads alone, piece by piece. While a piece is read, no request
    // waits.
    let late = ClassId(1);
    let mut world = World::new([Config {
        classes: [(late, ClassQos::default())].into(),
        ..plain(Policy::Fifo)
    }]);
    world.arrive(0, read(0, 1, 0, UNIT));
    let begins_us = 1_000 * UNIT + UNIT / 2;
    world.arrive(begins_us, Request { class: late, ..read(0, 2, 0, UNIT) });
    world.run(|request, done_us| {
        let next = Request {
            extent: Extent { offset: request.extent.end(), ..request.extent },
            ..*request
        };
        if done_us < 1_200 * UNIT { vec![(done_us, next)] } else { vec![] }
    });
    let both: Vec<_> =
        world.grants.iter().filter(|(began_us, _)| *began_us > begins_us).take(100).collect();
    assert!(
        both[..2].iter().any(|(_, grant)| grant.client == ClientId(2)),
        "the late class is served at once"
    );
    let of_first = both.iter().filter(|(_, grant)| grant.client == ClientId(1)).count();
    assert!(
        (49..=51).contains(&of_first),
        "{of_first} of 100: the late class gets its half, and no more"
    );
}

#[test]
fn ordered_requests_are_sequential() {
    let mut world = World::new([plain(Policy::Wsjf(Wsjf::DEFAULT))]);
    for piece in 0..100 {
        for client in [1, 2] {
            world.arrive(0, read(0, client, piece * UNIT, UNIT));
        }
    }
    world.run(nothing_more);
    let stats = world.servers.stats(ServerId(0)).remove(0);
    assert_eq!(
        (stats.arrived.contiguous_fraction(), stats.ordered.contiguous_fraction()),
        (0.0, 0.99)
    );
    assert_eq!((stats.runs, stats.longest_run_bytes), (2, 100 * UNIT));
}

#[test]
fn holds_that_are_wasted_end() {
    // Each read is at an offset of its own, and asked for when the previous one is done.
    for is_one_file in [true, false] {
        let mut world =
            World::new([Config { window_us: 500, ..plain(Policy::Wsjf(Wsjf::DEFAULT)) }]);
        let piece = |n: u64| Request {
            file: StorageFileId(if is_one_file { 0 } else { n }),
            ..read(0, 1, (n * 7 + 3) % 101 * UNIT, 100)
        };
        world.arrive(0, piece(0));
        let mut n = 0;
        world.run(|_, done_us| {
            n += 1;
            if n < 100 { vec![(done_us, piece(n))] } else { vec![] }
        });
        let holds = world.servers.stats(ServerId(0))[0].holds;
        assert!((1..=6).contains(&holds), "{holds} holds, one file: {is_one_file}");
    }
}

#[test]
fn a_sequential_reader_is_anticipated_before_the_server_moves_on() {
    let seeks = |window_us| {
        let config =
            Config { window_us, max_run_bytes: 20 * UNIT, ..plain(Policy::Wsjf(Wsjf::DEFAULT)) };
        let mut world = World::new([config]);
        // Each of the two asks again a tenth of a piece's duration after it had the last.
        [1, 2].into_iter().for_each(|client| world.arrive(0, read(0, client, 0, UNIT)));
        world.run(|request, done_us| {
            let next = read(0, request.client.0, request.extent.end(), UNIT);
            if next.extent.offset < 100 * UNIT { vec![(done_us + UNIT / 10, next)] } else { vec![] }
        });
        world.grants.windows(2).filter(|pair| pair[0].1.file != pair[1].1.file).count()
    };
    assert!(seeks(0) >= 190, "they take turns: {}", seeks(0));
    assert!((9..=14).contains(&seeks(UNIT / 5)), "and now by 20 pieces: {}", seeks(UNIT / 5));
}

/// Waiting time of one request that arrives after `after` others, which all have the same size and
/// are more than the server can execute. `None`: it is not granted.
fn wait(policy: Policy, size: u64, others: u64, after: u64) -> Option<u64> {
    let mut servers = served(plain(policy));
    let mut out: Option<(u64, Grant)> = None;
    let period_us = others * 4 / 5;
    for n in 0..3_000 {
        let now_us = n * period_us;
        let mut effects = Vec::new();
        if let Some((_, grant)) = out.take_if(|(done_us, _)| *done_us <= now_us) {
            servers.handle(
                now_us,
                completed(grant.client.0, grant.id.0, grant.extent.size_bytes),
                &mut effects,
            );
        }
        let odd = (n == after).then(|| read(2 * n, 0, 0, size));
        servers.handle(
            now_us,
            Event::Asked(odd.into_iter().chain([read(2 * n + 1, n + 1, 0, others)]).collect()),
            &mut effects,
        );
        for effect in effects {
            let Effect::Granted(grant) = effect else { panic!("{effect:?}") };
            if grant.client == ClientId(0) {
                return Some(now_us - after * period_us);
            }
            out = Some((now_us + others, grant));
        }
    }
    None
}

#[test]
fn no_request_starves() {
    let wsjf = Wsjf { patience_us: 5_000, ..Wsjf::DEFAULT };
    let paper = Policy::Wsjf(Wsjf { is_clamped: false, ..wsjf });
    let sojf = Policy::Sojf(crate::Sojf { patience_us: 5_000 });
    let mlf = Policy::Mlf(crate::Mlf { quantum_bytes: 10, factor: 2 });
    let large = |policy| wait(policy, 1_000, 10, 1);
    assert_eq!(large(Policy::Sjf), None, "but by size alone");
    for policy in [Policy::Wsjf(wsjf), paper, sojf] {
        assert!(
            (4_900..6_500).contains(&large(policy).unwrap()),
            "{:?} under {policy:?}",
            large(policy)
        );
    }
    assert!((50..200).contains(&large(mlf).unwrap()), "{:?}", large(mlf));
    let small = |policy| wait(policy, 10, 1_000, 200);
    assert_eq!(small(paper), None, "what is below 0 is lower the larger it is");
    // A hundred of the others precede it, and each takes two periods, because completions are
    // reported once a period.
    for policy in [Policy::Wsjf(wsjf), sojf, mlf] {
        assert!(
            (140_000..200_000).contains(&small(policy).unwrap()),
            "{:?} under {policy:?}",
            small(policy)
        );
    }
}
