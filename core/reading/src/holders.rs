//! The order in which the holders of a chunk are asked for it.

use alloc::vec::Vec;

/// How a client reaches a holder of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkHolder {
    /// Whether it is not the client's own node, which is asked first.
    pub is_other: bool,
    /// Whether it is on another machine.
    pub is_remote: bool,
    /// Estimated time of the transfer, microseconds.
    pub time_us: u64,
}

/// The holders in the order in which they are asked, as indices: the client's own node, other nodes
/// on its machine, then the fastest. Times of the same power of two are equal. Of equal ones, that
/// with index `turn` is the first, so that readers with different turns ask different holders. For
/// example 300 and 500 us are both 2^8 us.
pub fn in_order(holders: &[ChunkHolder], turn: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..holders.len()).collect();
    if !order.is_empty() {
        order.rotate_left(turn % holders.len());
    }
    order.sort_by_key(|index| {
        let ChunkHolder { is_other, is_remote, time_us } = holders[*index];
        (is_other, is_remote, time_us.checked_ilog2())
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_holders_come_first_then_fast_ones_and_equal_ones_take_turns() {
        let holder = |is_other, is_remote, time_us| ChunkHolder { is_other, is_remote, time_us };
        let slow = holder(true, true, 5000);
        let holders =
            [slow, holder(true, true, 300), holder(true, false, 9000), holder(false, true, 9000)];
        assert_eq!(in_order(&holders, 0), [3, 2, 1, 0]);
        // 300 and 500 us are both 2^8 us.
        let equal = [holder(true, true, 300), holder(true, true, 500), holder(true, true, 400)];
        assert_eq!([0, 1, 2, 3].map(|turn| in_order(&equal, turn)[0]), [0, 1, 2, 0]);
        assert_eq!(in_order(&[], 7), []);
    }
}
