//! Rates of flows beside a naive reference, and their course over time.

use proptest::prelude::*;

use super::*;
use crate::clock::{SECOND, seconds};
use crate::random::Random;

/// A running flow, the indices of its links, and the flow that it is relayed from.
struct ReferenceFlow {
    flow: FlowId,
    way: Vec<usize>,
    above: Option<FlowId>,
}

/// Rates by progressive filling: all rates rise together. The flows on a link that becomes full
/// keep their rate, and so do the flows that are relayed from them.
fn reference(capacities: &[f64], flows: &[ReferenceFlow]) -> Vec<f64> {
    let above = |flow: &ReferenceFlow| {
        flow.above.map(|above| flows.iter().position(|other| other.flow == above))
    };
    let above: Vec<_> = flows
        .iter()
        .map(|flow| above(flow).map(|place| place.expect("it has not ended")))
        .collect();
    let mut rates = vec![None; flows.len()];
    while rates.iter().any(Option::is_none) {
        let share_of = |link: usize| {
            let crossing = || flows.iter().zip(&rates).filter(|(flow, _)| flow.way.contains(&link));
            let free = crossing().filter(|(_, rate)| rate.is_none()).count();
            let taken: f64 = crossing().filter_map(|(_, rate)| *rate).sum();
            (free > 0).then(|| (capacities[link] - taken) / free as f64)
        };
        let shares = (0..capacities.len()).filter_map(|link| Some((share_of(link)?, link)));
        let (share, link) =
            shares.min_by(|one, other| one.0.total_cmp(&other.0)).expect("each flow has a link");
        let stays = |place: usize, rates: &[Option<f64>]| {
            flows[place].way.contains(&link)
                || above[place].is_some_and(|above| rates[above].is_some())
        };
        while let Some(place) =
            (0..flows.len()).find(|place| rates[*place].is_none() && stays(*place, &rates))
        {
            rates[place] = Some(share);
        }
    }
    rates.into_iter().flatten().collect()
}

struct Net {
    flows: Flows,
    capacities: Vec<f64>,
    links: Vec<LinkId>,
    running: Vec<ReferenceFlow>,
}

impl Net {
    fn new(capacities: &[f64], tolerance: f64) -> Self {
        let mut flows = Flows::new(tolerance);
        let links = capacities.iter().map(|capacity| flows.link(*capacity)).collect();
        Net { flows, capacities: capacities.into(), links, running: Vec::new() }
    }

    fn start(
        &mut self,
        now: Ns,
        bytes: f64,
        way: &[usize],
        above: Option<FlowId>,
        tag: u32,
    ) -> FlowId {
        let links: Vec<_> = way.iter().map(|link| self.links[*link]).collect();
        let flow = self.flows.start(now, bytes, &links, above, tag);
        self.running.push(ReferenceFlow { flow, way: way.into(), above });
        flow
    }

    /// Removes the flows that have ended, and returns their tags.
    fn end_by(&mut self, now: Ns) -> Vec<u32> {
        let tags: Vec<_> =
            self.running.iter().map(|running| self.flows.tag(running.flow)).collect();
        let mut ended = Vec::new();
        self.flows.end_by(now, &mut ended);
        let (gone, running): (Vec<_>, Vec<_>) =
            self.running.drain(..).zip(tags).partition(|(_, tag)| ended.contains(tag));
        let is_gone = |flow: &FlowId| gone.iter().any(|(running, _)| running.flow == *flow);
        let mut relays = gone.iter().filter_map(|(running, _)| running.above);
        assert!(relays.all(|above| is_gone(&above)), "a relay has ended before the flow above");
        let rest = running.into_iter().map(|(running, _)| running);
        self.running = rest
            .map(|rest| ReferenceFlow { above: rest.above.filter(|above| !is_gone(above)), ..rest })
            .collect();
        ended
    }

    fn rates(&self) -> Vec<f64> {
        self.running.iter().map(|running| self.flows.bytes_per_s(running.flow)).collect()
    }

    fn assert_fair(&self) {
        for (rate, expected) in
            self.rates().into_iter().zip(reference(&self.capacities, &self.running))
        {
            assert!((rate - expected).abs() <= 1e-6 * expected, "{rate} instead of {expected}");
        }
    }

    /// Asserts that no link carries more than its capacity, within `tolerance`.
    fn assert_within_capacities(&self, tolerance: f64) {
        for (link, capacity) in self.capacities.iter().enumerate() {
            let crossing = self.running.iter().filter(|running| running.way.contains(&link));
            let sum: f64 = crossing.map(|running| self.flows.bytes_per_s(running.flow)).sum();
            assert!(sum <= capacity * (1.0 + tolerance), "{sum} over {capacity}");
        }
    }

    /// Asserts that a relay has passed on only bytes that it has received, except for the last
    /// piece.
    fn assert_behind_what_is_above(&self) {
        for ReferenceFlow { flow, above, .. } in &self.running {
            let (lacks, lacks_above) =
                (self.flows.lacks(*flow), above.map_or(0.0, |above| self.flows.lacks(above)));
            assert!(lacks >= lacks_above - PIECE_BYTES, "{lacks} are lacking, {lacks_above} above");
        }
    }
}

fn ways(links: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::btree_set(0..links, 1..=links.min(4))
        .prop_map(|way| way.into_iter().collect())
}

/// Chooses the running flow that a new flow is relayed from, if any.
fn relays() -> impl Strategy<Value = Option<prop::sample::Index>> {
    prop::option::of(any::<prop::sample::Index>())
}

proptest! {
    #[test]
    fn rates_are_max_min_fair(
        capacities in prop::collection::vec(1u32..1000, 6),
        flows in prop::collection::vec((ways(6), relays()), 1..24),
        leaving in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let capacities: Vec<_> = capacities.into_iter().map(f64::from).collect();
        let mut net = Net::new(&capacities, 1e-12);
        for (tag, (way, relayed)) in flows.iter().enumerate() {
            let above = relayed
                .filter(|_| !net.running.is_empty())
                .map(|which| which.get(&net.running).flow);
            net.start(0, 1e9, way, above, tag as u32);
            net.flows.settle();
            net.assert_fair();
        }
        for which in leaving {
            let last = |place: &usize| net.flows.below(net.running[*place].flow).is_empty();
            let last: Vec<_> = (0..net.running.len()).filter(last).collect();
            if !last.is_empty() {
                let ReferenceFlow { flow, .. } = net.running.swap_remove(*which.get(&last));
                prop_assert!((net.flows.stop(0, flow) - 1e9).abs() < 1.0);
                net.flows.settle();
                net.assert_fair();
            }
        }
    }

    #[test]
    fn every_byte_arrives_once_and_no_link_carries_too_much(
        capacities in prop::collection::vec(1000u32..1_000_000, 5),
        flows in prop::collection::vec((ways(5), 1u32..100_000_000, 0u64..100, relays()), 1..40),
        is_exact in any::<bool>(),
    ) {
        let capacities: Vec<_> = capacities.into_iter().map(f64::from).collect();
        let tolerance = if is_exact { 1e-12 } else { TOLERANCE };
        let mut net = Net::new(&capacities, tolerance);
        let mut coming: Vec<_> = flows.iter().enumerate().collect();
        coming.sort_by_key(|(_, (_, _, at, _))| std::cmp::Reverse(*at));
        // A relayed flow has as many bytes as the flow above.
        let mut bytes: Vec<_> = flows.iter().map(|(_, bytes, ..)| f64::from(*bytes)).collect();
        let (mut arrived, mut hops) = (vec![0.0; flows.len()], vec![0; flows.len()]);
        let mut now = 0;
        loop {
            let next_start = coming.last().map(|(_, (_, _, at, _))| at * SECOND);
            let next = [next_start, net.flows.next_end()].into_iter().flatten().min();
            let Some(next) = next else { break };
            for (running, rate) in net.running.iter().zip(net.rates()) {
                arrived[net.flows.tag(running.flow) as usize] += rate * seconds(next - now);
            }
            now = next;
            net.end_by(now);
            while next_start == Some(now)
                && coming.last().is_some_and(|(_, (_, _, at, _))| at * SECOND == now)
            {
                let (tag, (way, _, _, relayed)) = coming.pop().expect("looked at above");
                let above = relayed
                    .filter(|_| !net.running.is_empty())
                    .map(|which| which.get(&net.running).flow);
                if let Some(above) = above {
                    let above = net.flows.tag(above) as usize;
                    (bytes[tag], hops[tag]) = (bytes[above], hops[above] + 1);
                }
                net.start(now, bytes[tag], way, above, tag as u32);
            }
            net.flows.settle();
            net.assert_within_capacities(tolerance + 1e-9);
            if is_exact {
                net.assert_behind_what_is_above();
                net.assert_fair();
            }
        }
        prop_assert!(net.running.is_empty());
        for ((bytes, arrived), hops) in bytes.iter().zip(arrived).zip(hops) {
            // A flow ends on the nanosecond after its last byte; a relayed flow ends one piece
            // after the flow above.
            let more = f64::from(hops) * PIECE_BYTES;
            prop_assert!(
                arrived > bytes - 1.0 && arrived < bytes + more + 1.0,
                "{} of {}",
                arrived,
                bytes
            );
        }
    }
}

#[test]
fn a_new_flow_of_thousands_is_not_told_to_all() {
    let mut net = Net::new(&[1e9], TOLERANCE);
    let cards: Vec<_> = (0..2000).map(|_| net.flows.link(1e8)).collect();
    let storage = net.links[0];
    for card in &cards {
        net.flows.start(0, 1e9, &[storage, *card], None, 0);
    }
    net.flows.settle();
    let told = net.flows.links[0].told;
    let flow = net.flows.start(1, 1e9, &[storage, cards[0]], None, 0);
    net.flows.settle();
    assert_eq!(net.flows.links[0].told, told);
    assert!(
        (net.flows.bytes_per_s(flow) - 1e9 / 2001.0).abs() < 1.0,
        "it has its share all the same"
    );
}

#[test]
fn a_relay_passes_on_what_it_has_received() {
    // Storage of 10 MB/s, cards of 100 MB/s: the chain is as fast as storage.
    let mut net = Net::new(&[1e7, 1e8, 1e8, 1e8], 1e-12);
    let first = net.start(0, 1e7, &[0, 1], None, 0);
    let second = net.start(0, 1e7, &[2], Some(first), 1);
    net.flows.settle();
    net.start(SECOND / 2, 1e7, &[3], Some(second), 2);
    net.flows.settle();
    assert!(net.rates().into_iter().all(|rate| (rate - 1e7).abs() < 1.0), "{:?}", net.rates());
    let mut ends = Vec::new();
    while let Some(at) = net.flows.next_end() {
        let ended = net.end_by(at);
        net.flows.settle();
        ends.extend(ended.into_iter().map(|tag| (tag, at)));
    }
    let piece_ns = (PIECE_BYTES / 1e8 * 1e9) as Ns;
    let near = |at: Ns, expected: Ns| at.abs_diff(expected) < 1000;
    assert!(matches!(ends[..], [(0, _), (1, _), (2, _)]), "{ends:?}");
    assert!(near(ends[0].1, SECOND) && near(ends[1].1, SECOND + piece_ns), "{ends:?}");
    // The third flow began half a second later. When the others have ended, only its own card
    // bounds it.
    assert!(ends[2].1 > ends[1].1 + piece_ns && ends[2].1 < SECOND + SECOND / 10, "{ends:?}");
}

#[test]
fn same_flows_same_ends() {
    let run = || {
        let mut random = Random::new(3);
        let mut net = Net::new(&[1e6; 20], TOLERANCE);
        let (mut now, mut ends) = (0, Vec::new());
        for tag in 0..2000 {
            now += random.below(SECOND / 10);
            while net.flows.next_end().is_some_and(|at| at <= now) {
                let at = net.flows.next_end().expect("looked at above");
                let ended = net.end_by(at);
                net.flows.settle();
                ends.extend(ended.into_iter().map(|tag| (tag, at)));
            }
            let one = random.below(20) as usize;
            net.start(now, 1e6 * random.share(), &[one, (one + 1) % 20], None, tag);
            net.flows.settle();
        }
        ends
    };
    let ends = run();
    assert!(ends.len() > 100);
    assert_eq!(ends, run());
}
