//! The worked examples of io-coordination: figures 3, 4, 5 and 8, §5 and §6.3.1.

use super::*;
use crate::{Mlf, Sojf, Wsjf};

/// For each application, when it asks and for how many contiguous requests of 5 units.
type Applications = &'static [(u64, &'static [(u64, u64)])];

fn of_five(config: Config, applications: Applications) -> World {
    let mut world = World::new([config]);
    let mut arrivals = Vec::new();
    for (client, bursts) in applications {
        let mut offset = 0;
        for (at, count) in *bursts {
            for _ in 0..*count {
                arrivals.push((at * UNIT, read(0, *client, offset, 5 * UNIT)));
                offset += 5 * UNIT;
            }
        }
    }
    arrivals.into_iter().for_each(|(at_us, request)| world.arrive(at_us, request));
    world.run(nothing_more);
    world
}

fn wsjf(max: u64) -> Config {
    let wsjf = Wsjf { patience_us: max * UNIT, ..Wsjf::DEFAULT };
    Config { max_run_bytes: max * UNIT, ..plain(Policy::Wsjf(wsjf)) }
}

fn sum(responses_us: &[u64]) -> u64 {
    responses_us.iter().sum::<u64>() / UNIT
}

#[test]
fn t1_the_shortest_first_responds_sooner() {
    for (policy, expected, total) in
        [(Policy::Fifo, [10, 11, 16], 37), (Policy::Sjf, [16, 1, 6], 23)]
    {
        let mut world = World::new([plain(policy)]);
        for (size, client) in [10, 1, 5].into_iter().zip(1..) {
            world.arrive(0, read(0, client, 0, size * UNIT));
        }
        world.run(nothing_more);
        assert_eq!(world.responses_us(), expected.map(|units| units * UNIT), "{policy:?}");
        assert_eq!(sum(&world.responses_us()), total, "{policy:?}");
    }
}

#[test]
fn t2_weighted_shortest_job_first() {
    for is_clamped in [true, false] {
        let Config { policy: Policy::Wsjf(wsjf), .. } = wsjf(30) else { unreachable!() };
        let config =
            Config { max_run_bytes: 30 * UNIT, ..plain(Policy::Wsjf(Wsjf { is_clamped, ..wsjf })) };
        let world =
            of_five(config, &[(1, &[(0, 4), (15, 1)]), (2, &[(0, 3)]), (3, &[(15, 4), (20, 3)])]);
        assert_eq!(world.finishes(2), [5, 10, 15]);
        assert_eq!(world.finishes(1), [20, 25, 30, 35, 40]);
        assert_eq!(world.finishes(3), [45, 50, 55, 60, 65, 70, 75]);
        assert_eq!(sum(&world.responses_us()), 465);
        let runs = [(0, 0..15, 3), (15, 0..25, 5), (40, 0..30, 6), (70, 30..35, 1)];
        assert_eq!(world.runs(), runs, "the last is cut: 35 are more than a run may have");
    }
}

#[test]
fn t3_multilevel_feedback() {
    let config = plain(Policy::Mlf(Mlf { quantum_bytes: 10 * UNIT, factor: 2 }));
    let world = of_five(
        config,
        &[(1, &[(0, 4)]), (2, &[(0, 3), (3, 2), (10, 1)]), (3, &[(0, 1), (3, 1), (10, 3)])],
    );
    let runs = [(0, 0..5, 1), (5, 0..20, 4), (25, 0..30, 6), (55, 5..25, 4)];
    assert_eq!(world.runs(), runs);
    assert_eq!(world.finishes(3), [5, 60, 65, 70, 75]);
    assert_eq!(world.finishes(1), [10, 15, 20, 25]);
    assert_eq!(world.finishes(2), [30, 35, 40, 45, 50, 55]);
    assert_eq!(sum(&world.responses_us()), 551);
}

#[test]
fn t4_a_smaller_offset_goes_first_if_it_is_not_much_longer() {
    for (size_us, first) in [(10_500, 10), (11_000, 10), (11_500, 40)] {
        let mut world = World::new([wsjf(1_000)]);
        world.arrive(0, read(0, 1, 40 * UNIT, 10 * UNIT));
        world.arrive(0, read(0, 1, 10 * UNIT, size_us));
        world.run(nothing_more);
        assert_eq!(world.runs()[0].1.start, first, "of {size_us}");
    }
}

#[test]
fn t5_requests_between_others_make_one_run() {
    let mut world = World::new([wsjf(1_000)]);
    for (at, offset) in [(0, 10), (0, 30), (5, 20), (5, 40)] {
        world.arrive(at * UNIT, read(0, 1, offset * UNIT, 10 * UNIT));
    }
    world.run(nothing_more);
    assert_eq!(world.runs(), [(0, 10..20, 1), (10, 20..50, 3)]);
}

/// When the calls of two clients end. On two servers, client 1 has three stripes of 5 and client 2
/// has two.
fn striped(policy: Policy) -> [u64; 2] {
    let mut world = World::new([plain(policy), plain(policy)]);
    for (client, server, units) in [(1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 1, 1)] {
        let call = Some(Call { number: 1, size_bytes: [15, 10][client as usize - 1] * UNIT });
        for unit in 0..units {
            let request = read(0, client, unit * 5 * UNIT, 5 * UNIT);
            world.arrive(0, Request { server: ServerId(server), call, ..request });
        }
    }
    world.run(nothing_more);
    [1, 2].map(|client| *world.finishes(client).last().expect("it asked for something"))
}

#[test]
fn t6_parts_of_one_call_go_at_the_same_time_everywhere() {
    assert_eq!(striped(Policy::Sjf), [15, 10]);
    assert_eq!(striped(Policy::Sojf(Sojf { patience_us: 30 * UNIT })), [15, 5]);
    assert_eq!(striped(Policy::Sojf(Sojf::DEFAULT)), [15, 5]);
}

/// Four processes read a file in turns for ten rounds; the first is always 0.2 later than the
/// others. With `is_in_step`, a round begins when the previous one is over; else for each process
/// when its own request is done.
fn shifted(policy: Policy, window_us: u64, is_in_step: bool) -> World {
    let mut world = World::new([Config { window_us, ..plain(policy) }]);
    let late_us = |process| if process == 0 { UNIT / 5 } else { 0 };
    let piece = |round: u64, process: u64| Request {
        file: StorageFileId(9),
        ..read(0, process, (4 * round + process) * UNIT, UNIT)
    };
    (0..4).for_each(|process| world.arrive(late_us(process), piece(0, process)));
    let mut done = 0;
    world.run(|request, done_us| {
        done += 1;
        let (process, round) = (request.client.0, request.extent.offset / UNIT / 4 + 1);
        match (round, is_in_step) {
            (10, _) => vec![],
            (_, false) => vec![(done_us + late_us(process), piece(round, process))],
            (_, true) if done % 4 > 0 => vec![],
            (_, true) => {
                (0..4).map(|process| (done_us + late_us(process), piece(round, process))).collect()
            }
        }
    });
    world
}

#[test]
fn t7_a_late_process_is_anticipated() {
    let policies = [
        Policy::Fifo,
        Policy::Sjf,
        Policy::Wsjf(Wsjf::DEFAULT),
        Policy::Mlf(Mlf { quantum_bytes: UNIT, factor: 2 }),
    ];
    for (policy, is_in_step) in
        policies.into_iter().flat_map(|policy| [(policy, true), (policy, false)])
    {
        let world = shifted(policy, UNIT / 5, is_in_step);
        assert_eq!(world.runs().len(), 10, "{policy:?}");
        let last_us = world.finished_us.values().max().expect("there were some");
        assert!(*last_us <= 40 * UNIT + 10 * UNIT / 5, "at most 0.2 a round is lost: {last_us}");
        let without = shifted(policy, 0, is_in_step).runs().len();
        // By size, the late single request is granted as soon as it is there, and from then on the
        // others with it.
        let expected = if policy == Policy::Sjf && !is_in_step { without } else { 20 };
        assert_eq!(without, expected, "{policy:?}, {is_in_step}");
    }
}
