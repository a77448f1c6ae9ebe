//! RICE_1 (FITS standard 4.0 §10.4.1): differences of neighbours, in blocks. A block has its own
//! number of low bits that are written as they are; the rest is a run of zeros.

use super::bits::BitReader;

/// The `count` numbers in `bytes`; none if they are damaged. Numbers of one byte have no sign.
pub(super) fn decode(
    bytes: &[u8],
    count: usize,
    block: usize,
    pixel_bytes: usize,
) -> Option<Vec<i64>> {
    // Bits of the number of low bits, and the number that says that differences are written whole.
    let (split_bits, whole) = match pixel_bytes {
        1 => (3, 6),
        2 => (4, 14),
        _ => (5, 25),
    };
    let bits = 8 * pixel_bytes;
    let mut reader = BitReader::new(bytes);
    let mut last = reader.take(bits)?;
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let length = block.min(count - numbers.len());
        let split = reader.take(split_bits)?;
        for _ in 0..length {
            let difference = match split {
                0 => 0,
                _ if split - 1 == whole => reader.take(bits)?,
                _ => {
                    let low = split as usize - 1;
                    let high = reader.zeros()?;
                    high.checked_shl(low as u32)? | reader.take(low)?
                }
            };
            // Even numbers are differences from zero up, odd ones those below.
            let half = difference >> 1;
            last = last.wrapping_add(if difference & 1 == 1 { !half } else { half });
            numbers.push(match pixel_bytes {
                1 => i64::from(last as u8),
                2 => i64::from(last as u16 as i16),
                _ => i64::from(last as i32),
            });
        }
    }
    Some(numbers)
}
