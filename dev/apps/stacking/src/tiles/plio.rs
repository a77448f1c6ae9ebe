//! PLIO_1 (FITS standard 4.0 §10.4.3): runs of masks, as the line lists of IRAF. A word has four
//! bits of an instruction and twelve of a number.

/// The `count` numbers in the 16-bit words of `bytes`; none if they are damaged.
pub(super) fn decode(bytes: &[u8], count: usize) -> Option<Vec<i64>> {
    let words: Vec<i64> =
        bytes.as_chunks::<2>().0.iter().map(|word| i16::from_be_bytes(*word).into()).collect();
    // Lists of the old form have their length in the third word, others have a longer head.
    let short = *words.get(2)?;
    let (first, length) = if short > 0 {
        (3, short)
    } else {
        (*words.get(1)?, (*words.get(4)? << 15) + *words.get(3)?)
    };
    let list = words.get(usize::try_from(first).ok()?..usize::try_from(length).ok()?)?;
    let mut pixels = Vec::with_capacity(count);
    let mut value = 1_i64;
    let mut rest = list.iter();
    while let Some(&word) = rest.next() {
        let (instruction, number) = (word >> 12, word & 0xfff);
        match instruction {
            0 | 4 | 5 => {
                let run = (number as usize).min(count - pixels.len());
                let fill = if instruction == 4 { value } else { 0 };
                pixels.resize(pixels.len() + run, fill);
                if instruction == 5 && run > 0 && run == number as usize {
                    *pixels.last_mut()? = value;
                }
            }
            1 => value = (rest.next()? << 12) + number,
            2 => value += number,
            3 => value -= number,
            6 | 7 => {
                value += if instruction == 6 { number } else { -number };
                if pixels.len() < count {
                    pixels.push(value);
                }
            }
            _ => return None,
        }
    }
    pixels.resize(count, 0);
    Some(pixels)
}
