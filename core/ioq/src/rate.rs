//! Time that an amount takes at a rate.

/// Microseconds that `amount` takes at `per_s` a second: 5 MB at 100 MB/s take 50,000.
pub(crate) fn duration_us(amount: u64, per_s: u64) -> u64 {
    let us = u128::from(amount) * 1_000_000 / u128::from(per_s.max(1));
    u64::try_from(us).unwrap_or(u64::MAX)
}
