//! What derived copies cost: the content of compressed inputs, and folders that commands make of
//! inputs. Costs decide which of them are given to other nodes, and what leaves the store first.

/// Rate of a fetch before any was seen, bytes per second: that of a common link.
const NOMINAL_BYTES_PER_S: u64 = 125_000_000;

/// Rate at which a folder is packed into a file, or unpacked, bytes per second: that of a disk of
/// a node.
const PACKED_BYTES_PER_S: u64 = 200_000_000;

/// Microseconds for `bytes` at a rate. For example 25 MB at 125 MB/s take 200,000.
fn duration_us(bytes: u64, bytes_per_s: u64) -> u128 {
    u128::from(bytes) * 1_000_000 / u128::from(bytes_per_s.max(1))
}

fn known_or_nominal(rate_bytes_per_s: u64) -> u64 {
    if rate_bytes_per_s == 0 { NOMINAL_BYTES_PER_S } else { rate_bytes_per_s }
}

/// Whether a folder is given to other nodes: packing, sending and unpacking it takes less time than
/// making it took. For example at 125 MB/s, a folder of 100 MB is given if making it took more than
/// 0.5 + 0.8 + 0.5 s. `rate_bytes_per_s` is that of fetches; 0 if it is not known.
pub(crate) fn is_worth_giving(size_bytes: u64, made_us: u64, rate_bytes_per_s: u64) -> bool {
    let packed_us = duration_us(size_bytes, PACKED_BYTES_PER_S);
    let sent_us = duration_us(size_bytes, known_or_nominal(rate_bytes_per_s));
    2 * packed_us + sent_us < u128::from(made_us)
}

/// Whether an input leaves the store before what was made of it: per byte, it is restored at less
/// cost. For example at 125 MB/s, the content of a compressed file, 100 MB made in 0.5 s, leaves
/// before the file; an index of 100 MB that was made in 60 s stays longer.
pub(crate) fn source_leaves_first(copy_bytes: u64, made_us: u64, rate_bytes_per_s: u64) -> bool {
    duration_us(copy_bytes, known_or_nominal(rate_bytes_per_s)) < u128::from(made_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_slowly_is_given_and_stays() {
        let mb = 1_000_000;
        assert!(
            is_worth_giving(100 * mb, 1_900_000, 0) && !is_worth_giving(100 * mb, 1_700_000, 0)
        );
        assert!(!is_worth_giving(100 * mb, 1_900_000, 10 * mb), "the network is slow");
        assert!(!source_leaves_first(100 * mb, 500_000, 0));
        assert!(source_leaves_first(100 * mb, 500_000, 1000 * mb), "inputs are fetched fast");
        assert!(source_leaves_first(100 * mb, 60_000_000, 0));
        assert!(source_leaves_first(0, 1, 0) && !source_leaves_first(u64::MAX, u64::MAX / 2, 1));
    }
}
