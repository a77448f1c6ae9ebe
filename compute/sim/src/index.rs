//! A central index of replicas beside a distributed one (data-diffusion §2.2, figure 3).
//!
//! The distributed index is P-RLS, a replica location service on a distributed hash table, with a
//! million entries. The paper quotes measured latencies of a lookup, 0.5 ms on one node and "just
//! over 3 ms" on 15 nodes, and predicts 15 ms on a million nodes. All three lie on one line over
//! the logarithm of the number of nodes; the line here goes through the first and the last. The
//! nodes answer in parallel, so the throughput is the number of nodes divided by the latency of one
//! lookup.

/// Latency of a lookup on one node, in milliseconds.
const ONE_NODE_MS: f64 = 0.5;
/// Latency of a lookup on a million nodes, in milliseconds.
const MILLION_NODES_MS: f64 = 15.0;
/// Largest number of nodes for which the paper makes a prediction.
pub const MAX_NODES: u32 = 1_000_000;

/// Lookups per second of the paper's central index, a hash table in Java.
pub const PAPER_LOOKUPS_PER_S: f64 = 4.18e6;

/// Latency of a lookup in the distributed index, in seconds.
///
/// # Panics
/// If `nodes` is 0.
pub fn latency_s(nodes: u32) -> f64 {
    assert!(nodes > 0, "an index is somewhere");
    let grown = libm::log(f64::from(nodes)) / libm::log(f64::from(MAX_NODES));
    (ONE_NODE_MS + (MILLION_NODES_MS - ONE_NODE_MS) * grown) / 1e3
}

/// Lookups per second of all nodes of the distributed index together.
pub fn lookups_per_s(nodes: u32) -> f64 {
    f64::from(nodes) / latency_s(nodes)
}

/// Smallest number of nodes at which the distributed index answers at least `central_per_s` lookups
/// per second, the rate of a central index. `None` if a million nodes are too few.
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
            let nodes =
                crossover(central_per_s).expect("a million nodes answer 67 million times a second");
            assert!(lookups_per_s(nodes) >= central_per_s);
            assert!(nodes == 1 || lookups_per_s(nodes - 1) < central_per_s);
        }
        assert_eq!(crossover(7e7), None);
    }
}
