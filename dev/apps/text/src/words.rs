//! Word count's maps: a line for each occurrence, as Hadoop's WordCount, or for each word, as its
//! AggregateWordCount.

use std::io::{BufRead, Write};

use hashbrown::HashMap;

use crate::pieces;
use crate::trouble::Trouble;

/// Memory for words that are counted and not yet written. When it is full, the counts are written
/// and counting starts again; the reduce step adds up partial counts.
pub const MAX_TABLE_BYTES: usize = 16 << 20;

/// Memory of an entry in addition to its word: pointer, length, count, and overhead of the
/// allocator and the table.
const ENTRY_BYTES: usize = 64;

/// Writes `word TAB 1` for each word.
pub fn map(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    pieces::words(input, |word| {
        output.write_all(word)?;
        Ok(output.write_all(b"\t1\n")?)
    })
}

/// Writes `word TAB count` for each word, once or several times. Keeps words of about `table_bytes`
/// in memory, and at least one word.
pub fn aggregate(
    input: impl BufRead,
    output: &mut impl Write,
    table_bytes: usize,
) -> Result<(), Trouble> {
    let mut counts: HashMap<Box<[u8]>, u64> = HashMap::new();
    let mut rest_bytes = table_bytes;
    pieces::words(input, |word| {
        if let Some(count) = counts.get_mut(word) {
            *count += 1;
            return Ok(());
        }
        let entry_bytes = word.len() + ENTRY_BYTES;
        if entry_bytes > rest_bytes {
            write(&mut counts, output)?;
            rest_bytes = table_bytes;
        }
        rest_bytes = rest_bytes.saturating_sub(entry_bytes);
        counts.insert(word.into(), 1);
        Ok(())
    })?;
    write(&mut counts, output)
}

/// Writes the counts and clears them. In order, so that the same block gives the same bytes.
fn write(counts: &mut HashMap<Box<[u8]>, u64>, output: &mut impl Write) -> Result<(), Trouble> {
    let mut sorted: Vec<_> = counts.drain().collect();
    sorted.sort_unstable();
    for (word, count) in sorted {
        output.write_all(&word)?;
        writeln!(output, "\t{count}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregated(text: &str, table_bytes: usize) -> String {
        let mut output = Vec::new();
        aggregate(text.as_bytes(), &mut output, table_bytes).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_full_table_is_written() {
        let text = "b a b c a a b";
        assert_eq!(aggregated(text, MAX_TABLE_BYTES), "a\t3\nb\t3\nc\t1\n");
        assert_eq!(aggregated(text, 2 * (ENTRY_BYTES + 1)), "a\t1\nb\t2\na\t2\nc\t1\nb\t1\n");
        assert_eq!(aggregated(text, 0), "b\t1\na\t1\nb\t1\nc\t1\na\t2\nb\t1\n");
    }
}
