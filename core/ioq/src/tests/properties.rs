//! Properties of all histories: every policy chooses as a linear search over all requests would,
//! and keeps its promises.

use proptest::prelude::*;

use super::*;
use crate::ordering::policies::POLICIES;
use crate::ordering::queue::RequestQueue;
use crate::ordering::run::{QueueKey, QueuedRequest, RequestRun};
use crate::{Mlf, Wsjf};

/// All policies with small parameters, so that much happens in a short history.
fn policies() -> impl Iterator<Item = Policy> {
    POLICIES.iter().map(|(_, policy)| match *policy {
        Policy::Wsjf(wsjf) => Policy::Wsjf(Wsjf { patience_us: 60, ..wsjf }),
        Policy::Sojf(_) => Policy::Sojf(crate::Sojf { patience_us: 60 }),
        Policy::Mlf(_) => Policy::Mlf(Mlf { quantum_bytes: 2, factor: 2 }),
        other => other,
    })
}

/// A queue without indexes.
struct Plain {
    policy: Policy,
    max_run_bytes: u64,
    waiting: BTreeMap<QueueKey, (QueuedRequest, u128 /* quantum */)>,
}

impl Plain {
    fn runs(&self) -> Vec<(RequestRun, u128)> {
        let mut runs: Vec<(RequestRun, u128, u64)> = Vec::new();
        let mut chain: Option<(QueueKey, u64)> = None;
        let mut is_open = false;
        for (key, (waiting, quantum)) in &self.waiting {
            let continues =
                chain.is_some_and(|(last, end)| last.stream == key.stream && key.offset <= end);
            chain = Some((*key, waiting.extent.end()));
            match runs.last_mut() {
                Some((run, of_oldest, oldest_us)) if continues => {
                    is_open &= run.size.bytes + waiting.weight_bytes() <= self.max_run_bytes;
                    if is_open {
                        run.push(*key, waiting);
                        if waiting.arrived_us < *oldest_us {
                            (*of_oldest, *oldest_us) = (*quantum, waiting.arrived_us);
                        }
                    }
                }
                _ => {
                    runs.push((RequestRun::new(*key, waiting), *quantum, waiting.arrived_us));
                    is_open = true;
                }
            }
        }
        runs.into_iter().map(|(run, quantum, _)| (run, quantum)).collect()
    }

    /// Tv by the paper's formula, times M.
    fn value(
        &self,
        run: &RequestRun,
        now_us: u64,
        patience_us: u64,
        is_clamped: bool,
        is_demand: bool,
    ) -> i128 {
        let members = self.waiting.range(run.head..=run.last).map(|(_, (waiting, _))| waiting);
        let mut last_call = None;
        let values = members.map(|waiting| {
            let call = waiting.call.map(|call| (waiting.client, call.number));
            let bytes = match waiting.call {
                Some(_) if is_demand && call == last_call => 0,
                Some(call) if is_demand => call.size_bytes,
                _ => waiting.weight_bytes(),
            };
            last_call = call;
            i128::from(bytes) * (i128::from(patience_us) - i128::from(now_us - waiting.arrived_us))
        });
        let value = values.sum();
        if is_clamped { i128::max(value, 0) } else { value }
    }

    fn choose(&mut self, now_us: u64) -> Option<QueueKey> {
        let mut runs = self.runs();
        runs.sort_by_key(|(run, _)| run.seniority());
        let by_value = |value: &dyn Fn(&RequestRun) -> i128, junction: i128| {
            let (first, _) = runs.iter().min_by_key(|(run, _)| (value(run), run.seniority()))?;
            let least = value(first);
            let junction = junction * least.abs();
            let close = runs.iter().filter(|(run, _)| 100 * value(run) <= 100 * least + junction);
            let close = close
                .filter(|(run, _)| run.head.stream == first.head.stream)
                .map(|(run, _)| run.head);
            if junction == 0 && least != 0 { Some(first.head) } else { close.min() }
        };
        match self.policy {
            Policy::Fifo => runs.first().map(|(run, _)| run.head),
            Policy::Sjf => runs
                .iter()
                .min_by_key(|(run, _)| (run.size.bytes, run.seniority()))
                .map(|(run, _)| run.head),
            Policy::Wsjf(Wsjf { patience_us, junction_percent, is_clamped }) => by_value(
                &|run| self.value(run, now_us, patience_us, is_clamped, false),
                junction_percent.into(),
            ),
            Policy::Sojf(sojf) => {
                let value =
                    |run: &RequestRun| self.value(run, now_us, sojf.patience_us, true, true);
                runs.iter()
                    .min_by_key(|(run, _)| (value(run), run.seniority()))
                    .map(|(run, _)| run.head)
            }
            Policy::Mlf(Mlf { factor, .. }) => loop {
                let runs = self.runs();
                let content =
                    runs.iter().filter(|(run, quantum)| u128::from(run.size.bytes) <= *quantum);
                if let Some((oldest, _)) = content.clone().min_by_key(|(run, _)| run.seniority()) {
                    let of_file = content.filter(|(run, _)| run.head.stream == oldest.head.stream);
                    return of_file.map(|(run, _)| run.head).min();
                }
                if runs.is_empty() {
                    return None;
                }
                self.waiting.values_mut().for_each(|(_, quantum)| *quantum *= u128::from(factor));
            },
        }
    }

    fn take(&mut self, head: QueueKey) -> Vec<QueueKey> {
        let (run, _) =
            self.runs().into_iter().find(|(run, _)| run.head == head).expect("it was chosen");
        let taken: Vec<_> = self.waiting.range(head..=run.last).map(|(key, _)| *key).collect();
        self.waiting.retain(|key, _| !taken.contains(key));
        if let Policy::Mlf(Mlf { factor, .. }) = self.policy {
            self.waiting.values_mut().for_each(|(_, quantum)| *quantum *= u128::from(factor));
        }
        taken
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask { file: u64, offset: u64, size: u64, call: Option<u64> },
    Cancel(usize),
    Wait(u64),
    Grant,
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0..3_u64, 0..30_u64, 0..8_u64, prop::option::of(0..3_u64))
        .prop_map(|(file, offset, size, call)| Step::Ask { file, offset, size, call });
    prop_oneof![
        6 => ask,
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (0..40_u64).prop_map(Step::Wait),
        2 => Just(Step::Grant),
    ]
}

proptest! {
    #[test]
    fn policies_choose_as_a_linear_search_would(
        steps in prop::collection::vec(step(), 1..100),
        max in 5..30_u64,
    ) {
        for policy in policies() {
            let mut queue = RequestQueue::new(policy, max);
            let mut plain = Plain { policy, max_run_bytes: max, waiting: BTreeMap::new() };
            let mut now_us = 0;
            for (id, step) in (1..).zip(&steps) {
                // No two requests arrive at the same time, so their order of age is unique.
                now_us += 1;
                match *step {
                    Step::Ask { file, offset, size, call } => {
                        let operation = [Operation::Read, Operation::Write][file as usize % 2];
                        let stream = (StorageFileId(file / 2), operation);
                        let key = QueueKey { stream, offset, request: RequestId(id) };
                        let call = call.map(|number| Call { number, size_bytes: 10 + 5 * number });
                        let extent = Extent { offset, size_bytes: size };
                        let client = ClientId(file);
                        let waiting = QueuedRequest {
                            client,
                            extent,
                            call,
                            arrived_us: now_us,
                            round: queue.round(),
                        };
                        queue.insert(key, waiting);
                        plain.waiting.insert(key, (waiting, 2));
                    }
                    Step::Cancel(which) => {
                        if let Some(key) =
                            plain.waiting.keys().nth(which % plain.waiting.len().max(1)).copied()
                        {
                            plain.waiting.remove(&key);
                            queue.remove(&key);
                        }
                    }
                    Step::Wait(us) => now_us += us,
                    Step::Grant => {
                        let chosen = queue.choose(now_us).map(|run| run.head);
                        prop_assert_eq!(chosen, plain.choose(now_us), "{:?} at {}", policy, now_us);
                        if let Some(head) = chosen {
                            let (run, taken) = queue.take(head);
                            let taken: Vec<_> = taken.into_iter().map(|(key, _)| key).collect();
                            prop_assert!(taken.len() == 1 || run.size.bytes <= max);
                            prop_assert_eq!(taken, plain.take(head));
                        }
                    }
                }
                queue.validate();
            }
        }
    }

    /// Each request is of a file of its own, so that none continues another.
    #[test]
    fn fifo_has_the_smallest_longest_response(
        all in prop::collection::vec((0..200_u64, 1..50_u64), 1..25),
    ) {
        let longest = |policy| responses(policy, &all).into_iter().max();
        let by_fifo = longest(Policy::Fifo);
        for policy in policies() {
            prop_assert!(by_fifo <= longest(policy), "{:?}", policy);
        }
    }

    /// For requests that arrive together only. A short request that arrives while a long one is
    /// executed shows that no online order is best for all arrivals.
    #[test]
    fn sjf_has_the_smallest_mean_response(sizes in prop::collection::vec(1..50_u64, 1..25)) {
        let all: Vec<_> = sizes.into_iter().map(|size| (0, size)).collect();
        let sum = |policy| responses(policy, &all).into_iter().sum::<u64>();
        let by_sjf = sum(Policy::Sjf);
        for policy in policies() {
            prop_assert!(by_sjf <= sum(policy), "{:?}", policy);
        }
    }
}

fn responses(policy: Policy, all: &[(u64, u64)]) -> Vec<u64> {
    let mut world = World::new([plain(policy)]);
    for ((at_us, size), client) in all.iter().zip(0..) {
        world.arrive(*at_us, read(0, client, 0, *size));
    }
    world.run(nothing_more);
    world.responses_us()
}
