//! Multiwave: each wave has half of the remaining chunks, so workers that finish early get small
//! blocks (elastic-blocks §2.6, listing 4).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::scheduler::{AssignedChunks, AssignmentInput, BlockScheduler, evenly};

/// The multiwave scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multiwave {
    /// Each wave gives each slot at least this number of bytes; the paper's MIN_BLOCK_SIZE.
    pub min_block_bytes: u64,
    /// Maximum number of waves.
    pub max_waves: Option<u32>,
}

impl Multiwave {
    /// The paper's minimum of 8 MiB, and any number of waves.
    pub const DEFAULT: Multiwave = Multiwave { min_block_bytes: 8 << 20, max_waves: None };

    /// Number of chunks of each wave, largest first; half is rounded down. 70 chunks of 4 MiB on 4
    /// slots come in waves of 35, 17, 9 and 9: another half would give a slot one chunk, and the
    /// minimum is 8 MiB.
    fn waves(self, chunks: usize, chunk_bytes: u64, slots: usize) -> Vec<usize> {
        let mut waves = Vec::new();
        let mut rest = chunks;
        // The rest is divided if both halves are large enough for a wave; the second half is the
        // larger one.
        let is_enough = |half: usize| {
            let share = (half / slots) as u64;
            share > 0 && share.saturating_mul(chunk_bytes) >= self.min_block_bytes
        };
        let may_follow = |waves: usize| self.max_waves.is_none_or(|most| waves + 1 < most as usize);
        while may_follow(waves.len()) && is_enough(rest - rest / 2) {
            waves.push(rest / 2);
            rest -= rest / 2;
        }
        waves.push(rest);
        waves.sort_unstable_by_key(|chunks| core::cmp::Reverse(*chunks));
        waves
    }
}

impl BlockScheduler for Multiwave {
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks> {
        let mut rest = input.free;
        let bytes: u64 = rest.iter().map(|chunk| input.chunks.size_bytes(*chunk)).sum();
        let mean_bytes = bytes / (rest.len() as u64).max(1);
        let mut shares = Vec::new();
        for (wave, chunks) in (0..).zip(self.waves(rest.len(), mean_bytes, input.slots.len())) {
            let (first, later) = rest.split_at(chunks);
            shares.extend(evenly(wave, input.chunks, first, input.slots));
            rest = later;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

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
            let waves = Multiwave::DEFAULT.waves(chunks, 4 * MIB, slots);
            assert_eq!(waves, expected, "{chunks} chunks on {slots} slots");
        }
    }

    #[test]
    fn waves_follow_the_minimum_and_the_maximum() {
        let waves = |min_block_bytes, max_waves, chunk_bytes| {
            Multiwave { min_block_bytes, max_waves }.waves(64, chunk_bytes, 4)
        };
        assert_eq!(waves(64 * MIB, None, 4 * MIB), [64], "a slot would get 32 MiB");
        assert_eq!(waves(32 * MIB, None, 4 * MIB), [32, 32]);
        assert_eq!(waves(8 * MIB, None, 64 * MIB), [32, 16, 8, 4, 4], "a slot gets a whole chunk");
        assert_eq!(waves(0, None, 0), [32, 16, 8, 4, 4]);
        assert_eq!(waves(0, Some(1), MIB), [64]);
        assert_eq!(waves(0, Some(3), MIB), [32, 16, 16]);
        assert_eq!(waves(u64::MAX, Some(3), u64::MAX / 2), [32, 16, 16], "saturated");
    }
}
