//! Derived copies: compressed inputs whose content nodes keep and give to each other.

use super::*;
use crate::clock::SECOND;
use crate::outcome::RunOutcome;
use crate::workload::{Derivation, Scan};

const MB: u64 = 1_000_000;

/// Each task reads one of these files of 10 MB in turn, whose content has 30 MB, and computes 10
/// ms. A task comes every 20 ms.
fn of_content(
    (cluster, policies): (&SimCluster, &Policies),
    (files, tasks): (u32, u32),
    (takes_us, is_kept): (u64, bool),
) -> RunOutcome {
    let scan =
        Scan { objects: files, object_bytes: 10 * MB, rounds: tasks / files, ..Scan::default() };
    let scan = Scan { interval_us: 20_000, compute_us: 10_000, ..scan };
    let derivation = Derivation { size_bytes: 30 * MB, takes_us, is_kept };
    let outcome = run(cluster, policies, &AdaptedWorkload::derived(&scan, derivation), 1);
    assert!(outcome.is_complete(), "{} of {} tasks", outcome.done, outcome.tasks);
    outcome
}

fn cost() -> Policies {
    Policies::of_eyas(PlacementPolicy::Cost)
}

#[test]
fn a_node_makes_a_content_once_or_each_task_does() {
    let cluster = plain(1, 1);
    let of = |is_kept| of_content((&cluster, &cost()), (1, 20), (1_000_000, is_kept));
    let (once, each) = (of(true), of(false));
    // 10 MB at 50 MB/s; then a second for each content, and 10 ms for each task.
    assert!((1.4..1.5).contains(&once.makespan_s()), "{}", once.makespan_s());
    assert!((20.4..20.5).contains(&each.makespan_s()), "{}", each.makespan_s());
    assert_eq!((once.copies_made, each.copies_made), (1, 0));
    // First-available keeps nothing.
    let policies = Policies::of_the_paper(PlacementPolicy::FirstAvailable);
    let all = of_content((&cluster, &policies), (1, 20), (1_000_000, true));
    assert_eq!((all.copies_made, all.storage_bytes), (0, 20 * 10 * MB));
}

#[test]
fn nodes_get_a_content_from_each_other_if_that_is_sooner_than_to_make_it() {
    // A card carries 30 MB in 0.24 s.
    let of = |takes_us| of_content((&plain(8, 1), &cost()), (1, 80), (takes_us, true));
    let (slow, fast) = (of(5_000_000), of(1_000));
    assert_eq!(slow.copies_made, 1);
    assert!(slow.peer_bytes >= 7 * 30 * MB, "{}", slow.peer_bytes);
    assert!(slow.makespan_s() < 7.5, "{}", slow.makespan_s());
    assert_eq!(fast.copies_made, 8);
    assert!(fast.peer_bytes < 8 * 10 * MB, "the compressed file alone: {}", fast.peer_bytes);
}

#[test]
fn a_store_that_is_too_small_for_all_contents_makes_them_again() {
    let of = |cache_bytes| {
        let cluster = SimCluster { cache_bytes, ..plain(2, 1) };
        of_content((&cluster, &cost()), (8, 160), (100_000, true))
    };
    let (large, small) = (of(1_000 * MB), of(90 * MB));
    assert!(large.copies_made <= 16, "{}", large.copies_made);
    let of_both = [&large, &small].map(|of| (of.copies_made, of.makespan_s()));
    assert!(small.copies_made > large.copies_made, "{of_both:?}");
    assert!(small.makespan_ns > large.makespan_ns, "{of_both:?}");
    // A content that does not fit beside its file is made, and read, too.
    assert!(of(35 * MB).copies_made >= small.copies_made);
}

#[test]
fn nodes_that_are_lost_take_their_contents_with_them() {
    let failures = Failures {
        lost_after_ns: Some(20 * SECOND),
        back_after_ns: Some(5 * SECOND),
        until_ns: Some(300 * SECOND),
        ..Failures::default()
    };
    let cluster = SimCluster { failures, ..plain(8, 2) };
    let outcome = of_content((&cluster, &cost()), (20, 2_000), (2_000_000, true));
    assert!(outcome.lost_nodes > 0, "nothing breaks");
    assert!(outcome.copies_made >= 20);
}
