//! OPT: the least cost of requests with foresight, by exhaustive search.
//!
//! An arrangement says where each object is. After each request, the least cost of every
//! arrangement follows from the costs before the request (the *work function*). The search goes
//! over arrangements times requests and leaves nothing out: OPT may load, move, exchange and drop
//! any object at any time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use thiserror::Error;

use super::{CacheRequest, Problem};

/// Most arrangements that are searched.
const MAX_ARRANGEMENTS: usize = 100_000;

/// The problem has too many arrangements to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the problem has more than {MAX_ARRANGEMENTS} arrangements: use fewer objects, stores or slots"
)]
pub struct TooMany;

/// Place of each object: 0 for no store, `n + 1` for store `n`.
type Arrangement = Vec<u8>;

/// All arrangements of a problem's objects, and the costs of changing one into another.
pub struct Arrangements {
    all: Vec<Arrangement>,
    /// For each arrangement, the arrangements one step away, with the cost of the step.
    steps: Vec<Vec<(usize, u64)>>,
}

impl Arrangements {
    /// All arrangements of `objects` objects.
    ///
    /// # Errors
    /// If there are more than `MAX_ARRANGEMENTS`.
    pub fn new(problem: Problem, objects: usize) -> Result<Self, TooMany> {
        let stores = u8::try_from(problem.stores).map_err(|_| TooMany)?;
        let mut all: Vec<Arrangement> = vec![Vec::new()];
        for _ in 0..objects {
            let longer = |shorter: &Arrangement, place: u8| [shorter.as_slice(), &[place]].concat();
            let more = all
                .iter()
                .flat_map(|shorter| (0..=stores).map(move |place| longer(shorter, place)));
            all = more
                .filter(|arrangement| is_possible(arrangement, problem))
                .take(MAX_ARRANGEMENTS + 1)
                .collect();
            if all.len() > MAX_ARRANGEMENTS {
                return Err(TooMany);
            }
        }
        let numbers: BTreeMap<&Arrangement, usize> = all.iter().zip(0..).collect();
        let number = |(to, cost)| Some((*numbers.get(&to)?, cost));
        let steps = all
            .iter()
            .map(|from| steps(from, problem).into_iter().filter_map(number).collect())
            .collect();
        Ok(Arrangements { all, steps })
    }

    /// Cost of each arrangement before the first request, when all stores are empty.
    pub fn beginning(&self) -> Vec<u64> {
        let nothing = |arrangement: &Arrangement| arrangement.iter().all(|place| *place == 0);
        self.spread(self.all.iter().map(|arrangement| nothing(arrangement).then_some(0)).collect())
    }

    /// Cost of each arrangement after one more request.
    pub fn after(&self, costs: &[u64], request: CacheRequest) -> Vec<u64> {
        let serves = |arrangement: &Arrangement| {
            usize::from(arrangement[request.object as usize]) == request.store + 1
        };
        let served = self
            .all
            .iter()
            .zip(costs)
            .map(|(arrangement, cost)| serves(arrangement).then_some(*cost));
        self.spread(served.collect())
    }

    /// The least cost of all requests.
    pub fn optimum(&self, requests: &[CacheRequest]) -> u64 {
        let costs =
            requests.iter().fold(self.beginning(), |costs, request| self.after(&costs, *request));
        costs.into_iter().min().unwrap_or(0)
    }

    /// The least cost of each arrangement, from those whose cost is known (Dijkstra).
    fn spread(&self, known: Vec<Option<u64>>) -> Vec<u64> {
        let mut costs: Vec<u64> = known.iter().map(|cost| cost.unwrap_or(u64::MAX)).collect();
        let mut next: BinaryHeap<_> = known
            .iter()
            .zip(0..)
            .filter_map(|(cost, number)| cost.map(|cost| Reverse((cost, number))))
            .collect();
        while let Some(Reverse((cost, number))) = next.pop() {
            if cost > costs[number] {
                continue;
            }
            for (to, more) in &self.steps[number] {
                if cost + more < costs[*to] {
                    costs[*to] = cost + more;
                    next.push(Reverse((cost + more, *to)));
                }
            }
        }
        costs
    }
}

fn is_possible(arrangement: &[u8], problem: Problem) -> bool {
    (1..=problem.stores).all(|store| {
        arrangement.iter().filter(|place| usize::from(**place) == store).count() <= problem.slots
    })
}

/// All single steps, whether there is room for them or not: move, load or drop an object, or
/// exchange two.
fn steps(from: &Arrangement, problem: Problem) -> Vec<(Arrangement, u64)> {
    let mut steps = Vec::new();
    for object in 0..from.len() {
        for place in 0..=problem.stores as u8 {
            let cost = match (from[object], place) {
                (here, there) if here == there => continue,
                (_, 0) => 0,
                (0, _) => problem.storage_cost,
                _ => 1,
            };
            let mut to = from.clone();
            to[object] = place;
            steps.push((to, cost));
        }
        for other in 0..object {
            if from[object] != from[other] && from[object] != 0 && from[other] != 0 {
                let mut to = from.clone();
                to.swap(object, other);
                steps.push((to, 1));
            }
        }
    }
    steps
}
