//! Spanning trees: the number of rounds, the givers, and nodes that leave.

use super::*;
use crate::replication::SpanningTree;

fn nodes(count: u32) -> Vec<ExecutorId> {
    (0..count).map(ExecutorId).collect()
}

/// Plays rounds to the end; after each of `leave` receptions the next to receive leaves instead.
/// How many rounds there were, and the executors that had everything at the end.
fn play(tree: &mut SpanningTree, has: &mut BTreeSet<ExecutorId>, leave: &BTreeSet<usize>) -> usize {
    let (mut rounds, mut receptions, mut reads) = (0, 0, 0);
    let mut served = has.clone();
    loop {
        let receives = tree.next_round();
        if receives.is_empty() {
            return rounds;
        }
        rounds += 1;
        let before = has.clone();
        let mut givers = BTreeSet::new();
        for node in &receives {
            assert!(served.insert(*node), "{node} is served once");
            match tree.giver_of(*node) {
                Some(giver) => {
                    assert!(
                        before.contains(&giver),
                        "{giver} gives what it had when the round began"
                    );
                    assert!(givers.insert(giver), "{giver} gives to one at a time");
                }
                None => {
                    assert!(
                        before.is_empty(),
                        "persistent storage is read only while no executor has it"
                    );
                    reads += 1;
                }
            }
        }
        for node in receives {
            assert_eq!(tree.next_round(), [], "a round begins when the last has ended");
            receptions += 1;
            if leave.contains(&receptions) {
                tree.left(node);
            } else {
                tree.received(node);
                has.insert(node);
            }
        }
        assert!(reads <= leave.len() + 1);
    }
}

#[test]
fn replicas_double_with_each_round() {
    for count in 0..70u32 {
        let mut has = BTreeSet::new();
        let rounds =
            play(&mut SpanningTree::new(Vec::new(), nodes(count)), &mut has, &BTreeSet::new());
        assert_eq!(has.len(), count as usize);
        // One reads persistent storage; then there are n others.
        let others = count.saturating_sub(1);
        let expected = if count == 0 { 0 } else { 1 + (others + 1).next_power_of_two().ilog2() };
        assert_eq!(rounds, expected as usize, "{count} nodes");
    }
}

proptest! {
    #[test]
    fn each_executor_that_stays_receives_the_object_once(
        has in 0u32..6,
        count in 0u32..60,
        leave in prop::collection::btree_set(1usize..60, 0..20),
    ) {
        let all = nodes(has + count);
        let (whole, lacking) = all.split_at(has as usize);
        let mut tree = SpanningTree::new(whole.to_vec(), lacking.to_vec());
        let mut served: BTreeSet<_> = whole.iter().copied().collect();
        play(&mut tree, &mut served, &leave);
        let left = leave.iter().filter(|reception| **reception <= count as usize).count();
        prop_assert_eq!(served.len(), all.len() - left);
    }
}

#[test]
fn executors_that_have_left_neither_give_nor_receive() {
    let mut tree = SpanningTree::new(nodes(2), vec![ExecutorId(2), ExecutorId(3), ExecutorId(4)]);
    tree.left(ExecutorId(0));
    tree.left(ExecutorId(3));
    assert_eq!(tree.next_round(), [ExecutorId(2)]);
    assert_eq!(tree.giver_of(ExecutorId(2)), Some(ExecutorId(1)));
    tree.left(ExecutorId(1));
    tree.left(ExecutorId(2));
    assert_eq!(tree.next_round(), [ExecutorId(4)]);
    assert_eq!(tree.giver_of(ExecutorId(4)), None, "no executor is left to give");
}
