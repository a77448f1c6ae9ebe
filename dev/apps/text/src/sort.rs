//! Sort: copies lines. The shuffle between map and reduce sorts them.

use std::io::{BufRead, Write};

use crate::pieces;
use crate::trouble::Trouble;

/// Writes every line with a line feed, also the last: otherwise it would merge with the first line
/// of the next block.
pub fn copy(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    pieces::lines(input, |line| {
        output.write_all(line)?;
        Ok(output.write_all(b"\n")?)
    })
}
