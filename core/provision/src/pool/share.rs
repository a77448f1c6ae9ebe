//! Which pool should have nodes for which tasks, when tasks fit the nodes of several.

use alloc::vec;
use alloc::vec::Vec;

use super::event::FittingWork;

/// What one of several pools can offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolOffer {
    /// Cost of a node for an hour.
    pub price: f64,
    /// See [`PoolDecider::can_grow`](crate::PoolDecider::can_grow).
    pub can_grow: bool,
}

/// The tasks that each pool should have nodes for, in the order of the pools; [`FittingWork::fits`]
/// has a bit for each. The cheapest pool has all tasks that fit it. A pool that cannot get more
/// nodes leaves them to the next pool, too.
pub fn share_work(work: &[FittingWork], pools: &[PoolOffer]) -> Vec<FittingWork> {
    let mut left = work.to_vec();
    let mut shares = vec![FittingWork::default(); pools.len()];
    let mut order: Vec<_> = (0..pools.len()).collect();
    order.sort_by(|one, other| pools[*one].price.total_cmp(&pools[*other].price));
    for pool in order {
        for group in left.iter_mut().filter(|group| group.fits & (1 << pool) != 0) {
            shares[pool].add(group);
            if pools[pool].can_grow {
                *group = FittingWork::default();
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_pool_that_can_grow_has_the_tasks() {
        let work = [(0b011, 5), (0b110, 7), (0b100, 1)];
        let work = work.map(|(fits, tasks)| FittingWork { fits, tasks, ..FittingWork::default() });
        let shares = |offers: [(f64, bool); 3]| {
            let offers = offers.map(|(price, can_grow)| PoolOffer { price, can_grow });
            share_work(&work, &offers).iter().map(|share| share.tasks).collect::<Vec<_>>()
        };
        assert_eq!(shares([(1.0, true), (2.0, true), (3.0, true)]), [5, 7, 1]);
        assert_eq!(shares([(3.0, true), (2.0, true), (1.0, true)]), [0, 5, 8]);
        assert_eq!(
            shares([(1.0, false), (2.0, true), (3.0, true)]),
            [5, 12, 1],
            "one that is full counts them, too"
        );
        assert_eq!(
            shares([(1.0, true), (1.0, true), (1.0, true)]),
            [5, 7, 1],
            "of equal prices, the first"
        );
        assert!(share_work(&work, &[]).is_empty());
    }
}
