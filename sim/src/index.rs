//! A central index of replicas beside a distributed one (data-diffusion §2.2, figure 3).
//!
//! The distributed one is P-RLS, a replica location service on a distributed hash table, with a million entries. What was
//! measured of it, and the paper took over: a lookup takes 0.5 ms on one node and "just over 3 ms" on 15; and what the paper
//! predicts from that: 15 ms on a million nodes. All three lie on one line over the logarithm of the number of nodes,
//! that through the first and the last. Its nodes answer beside each other, so together they answer as often in a second
//! as there are nodes in the latency of one lookup.

/// Milliseconds that a lookup takes on one node.
const ONE_NODE_MS: f64 = 0.5;
/// Milliseconds that it takes on a million.
const MILLION_NODES_MS: f64 = 15.0;
/// Nodes at most, for which the paper predicts something.
pub const MAX_NODES: u32 = 1_000_000;

/// Lookups a second of the paper's central index, a hash table in Java.
pub const PAPER_LOOKUPS_PER_S: f64 = 4.18e6;

/// How long a lookup in the distributed index takes, seconds.
///
/// # Panics
/// If there is no node.
pub fn latency_s(nodes: u32) -> f64 {
    assert!(nodes > 0, "an index is somewhere");
    let grown = libm::log(f64::from(nodes)) / libm::log(f64::from(MAX_NODES));
    (ONE_NODE_MS + (MILLION_NODES_MS - ONE_NODE_MS) * grown) / 1e3
}

/// Lookups a second of all its nodes together.
pub fn lookups_per_s(nodes: u32) -> f64 {
    f64::from(nodes) / latency_s(nodes)
}

/// From how many nodes on the distributed index answers as often as a central one that makes `central_per_s`
/// lookups a second; none, if a million are too few.
pub fn crossover(central_per_s: f64) -> Option<u32> {
    let (mut too_few, mut enough) = (0, MAX_NODES);
    if lookups_per_s(enough) < central_per_s {
        return None;
    }
    while enough - too_few > 1 {
        let nodes = too_few.midpoint(enough);
        if lookups_per_s(nodes) < central_per_s { too_few = nodes } else { enough = nodes }
    }
    Some(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_what_the_paper_says() {
        let ms = |nodes| latency_s(nodes) * 1e3;
        assert_eq!((ms(1), ms(MAX_NODES)), (0.5, 15.0));
        assert!((3.0..3.5).contains(&ms(15)), "just over 3 ms: {}", ms(15));
        let nodes = crossover(PAPER_LOOKUPS_PER_S).expect("a million nodes are enough");
        assert!((32_768..65_536).contains(&nodes), "more than 32K: {nodes}");
    }

    #[test]
    fn the_crossover_is_where_the_distributed_index_begins_to_win() {
        for central_per_s in [1.0, 2_000.0, 2_001.0, 1e5, 6e7] {
            let nodes = crossover(central_per_s).expect("a million nodes answer 67 million times a second");
            assert!(lookups_per_s(nodes) >= central_per_s);
            assert!(nodes == 1 || lookups_per_s(nodes - 1) < central_per_s);
        }
        assert_eq!(crossover(7e7), None);
    }
}
