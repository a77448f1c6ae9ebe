//! The exact competitive ratio of 2Mark on small groups: the worst ratio of its cost to OPT over
//! all endless sequences of requests.
//!
//! The relevant state is 2Mark's state, and for each arrangement its extra cost for OPT over the
//! best arrangement. There are finitely many such pairs. Each request leads from one pair to
//! another, at a cost for either policy. The competitive ratio is that of the worst cycle. The
//! search starts with a guess, and replaces it by the ratio of a better cycle until there is none.

use std::collections::BTreeMap;

use super::{Arrangements, CacheRequest, Group, Problem, TooMany, TwoMarked};

/// A request that leads from one pair to another, with its costs for 2Mark and OPT.
struct Edge {
    from: usize,
    to: usize,
    cost: u64,
    optimum: u64,
}

/// The worst ratio of 2Mark's cost to the optimum over endless sequences of requests for `objects`
/// objects.
///
/// # Errors
/// If there is too much to search.
pub fn worst_ratio(problem: Problem, objects: usize) -> Result<f64, TooMany> {
    let (edges, pairs) = edges(problem, objects)?;
    let (mut cost, mut optimum) = (0, 1);
    while let Some((higher, for_optimum)) = better_cycle(&edges, pairs, cost, optimum) {
        (cost, optimum) = (higher, for_optimum);
    }
    Ok(cost as f64 / optimum as f64)
}

/// All requests in all reachable pairs, and the number of pairs.
fn edges(problem: Problem, objects: usize) -> Result<(Vec<Edge>, usize), TooMany> {
    let arrangements = Arrangements::new(problem, objects)?;
    let beginning = (TwoMarked::new(problem), arrangements.beginning());
    let mut numbers = BTreeMap::from([(beginning.clone(), 0)]);
    let mut to_visit = vec![beginning];
    let mut edges = Vec::new();
    while let Some(pair) = to_visit.pop() {
        let from = numbers[&pair];
        for (object, store) in (0..objects as u32)
            .flat_map(|object| (0..problem.stores).map(move |store| (object, store)))
        {
            let request = CacheRequest { object, store };
            let (mut group, costs) = pair.clone();
            let cost = group.request(request);
            let mut costs = arrangements.after(&costs, request);
            let optimum = costs.iter().min().copied().unwrap_or(0);
            costs.iter_mut().for_each(|cost| *cost -= optimum);
            let next = (group, costs);
            let unseen = numbers.len();
            let to = *numbers.entry(next).or_insert_with_key(|next| {
                to_visit.push(next.clone());
                unseen
            });
            edges.push(Edge { from, to, cost, optimum });
        }
    }
    Ok((edges, numbers.len()))
}

/// The costs, for 2Mark and OPT, of a cycle whose ratio is higher than `cost` to `optimum`, if
/// there is one (Bellman and Ford, for longest paths).
fn better_cycle(edges: &[Edge], pairs: usize, cost: u64, optimum: u64) -> Option<(u64, u64)> {
    let weight = |edge: &Edge| (edge.cost * optimum) as i64 - (edge.optimum * cost) as i64;
    let mut longest = vec![0_i64; pairs];
    let mut by: Vec<Option<usize>> = vec![None; pairs];
    loop {
        let mut is_longer = false;
        for (number, edge) in edges.iter().enumerate() {
            let length = longest[edge.from] + weight(edge);
            if length > longest[edge.to] {
                longest[edge.to] = length;
                by[edge.to] = Some(number);
                is_longer = true;
            }
        }
        // Paths that still grow after as many rounds as there are pairs contain a cycle, so the
        // loop ends.
        match cycle(edges, &by) {
            None if is_longer => {}
            found => return found,
        }
    }
}

/// The costs of a cycle of edges in `by`, if there is one. `by` has the last edge of each pair's
/// longest path.
fn cycle(edges: &[Edge], by: &[Option<usize>]) -> Option<(u64, u64)> {
    // The start from which each pair was first visited on the way back.
    let mut seen_from = vec![usize::MAX; by.len()];
    for start in 0..by.len() {
        let mut at = start;
        while seen_from[at] == usize::MAX {
            seen_from[at] = start;
            let Some(edge) = by[at] else { break };
            at = edges[edge].from;
        }
        if seen_from[at] == start && by[at].is_some() {
            let around = |edge: &usize| by[edges[*edge].from].filter(|edge| edges[*edge].to != at);
            let way = std::iter::successors(by[at], around).map(|edge| &edges[edge]);
            return Some(
                way.fold((0, 0), |(cost, optimum), edge| {
                    (cost + edge.cost, optimum + edge.optimum)
                }),
            );
        }
    }
    None
}
