//! Multiwave: each wave has half of the remaining chunks, so workers that finish early get small
//! blocks (elastic-blocks §2.6, listing 4).

use alloc::vec::Vec;

use super::{AssignedChunks, AssignmentInput, BlockScheduler, evenly};

/// Minimum number of chunks that a wave gives each slot: the paper's MIN_BLOCK_SIZE of 8 MiB with
/// chunks of 4 MiB.
const MIN_BLOCK_CHUNKS: usize = 2;

pub(super) struct Multiwave;

impl BlockScheduler for Multiwave {
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks> {
        let mut rest = input.free;
        let mut shares = Vec::new();
        for (wave, chunks) in (0..).zip(waves(rest.len(), input.slots.len())) {
            let (first, later) = rest.split_at(chunks);
            shares.extend(evenly(wave, input.chunks, first, input.slots));
            rest = later;
        }
        shares
    }
}

/// Number of chunks of each wave, largest first; half is rounded down. 70 chunks on 4 slots come in
/// waves of 35, 17, 9 and 9: another half would give a slot fewer than 2 chunks.
fn waves(chunks: usize, slots: usize) -> Vec<usize> {
    let mut waves = Vec::new();
    let mut rest = chunks;
    // The rest is divided if both halves are large enough for a wave; the second half is the larger
    // one.
    while (rest - rest / 2) / slots >= MIN_BLOCK_CHUNKS {
        waves.push(rest / 2);
        rest -= rest / 2;
    }
    waves.push(rest);
    waves.sort_unstable_by_key(|chunks| core::cmp::Reverse(*chunks));
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_are_those_of_the_worked_examples() {
        for (chunks, slots, expected) in [
            (64, 4, &[32, 16, 8, 8][..]),
            (70, 4, &[35, 17, 9, 9]),
            (256, 8, &[128, 64, 32, 16, 16]),
            (7, 4, &[7]),
            (0, 4, &[0]),
            (5, 1, &[2, 2, 1]),
        ] {
            assert_eq!(waves(chunks, slots), expected, "{chunks} chunks on {slots} slots");
        }
    }
}
