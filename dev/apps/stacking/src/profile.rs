//! The time that a task spends in each of the code blocks of section 6.4 (figure 43).

use std::fmt;
use std::time::{Duration, Instant};

/// A code block of section 6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeBlock {
    /// Open the FITS file for reading.
    Open,
    /// Convert coordinates from right ascension and declination to x and y.
    Radec2xy,
    /// Read header and image data; with gzip, inflate them.
    ReadHdu,
    /// Arrange the pixels as rows.
    Curl,
    /// Extract the ROI from memory.
    GetTile,
    /// Convert the ROI from stored integers to doubles.
    ConvertArray,
    /// Apply SKY and CAL to the ROI.
    Calibration,
    /// Shift the ROI so that the object's centre is a whole pixel.
    Interpolation,
    /// Add the ROI to the sum.
    DoStacking,
    /// Write the stacked image to a file.
    WriteStacking,
}

/// The blocks and their names in the paper.
const BLOCKS: [(CodeBlock, &str); 10] = [
    (CodeBlock::Open, "open"),
    (CodeBlock::Radec2xy, "radec2xy"),
    (CodeBlock::ReadHdu, "readHDU"),
    (CodeBlock::Curl, "curl"),
    (CodeBlock::GetTile, "getTile"),
    (CodeBlock::ConvertArray, "convertArray"),
    (CodeBlock::Calibration, "calibration"),
    (CodeBlock::Interpolation, "interpolation"),
    (CodeBlock::DoStacking, "doStacking"),
    (CodeBlock::WriteStacking, "writeStacking"),
];

/// Time spent in each block, summed over frames and objects. Displays as `open=0.12 radec2xy=0.01
/// …`, milliseconds.
#[derive(Debug, Default)]
pub struct BlockProfile([Duration; BLOCKS.len()]);

impl BlockProfile {
    /// Does `work`, and adds its time to `block`.
    pub fn time<T>(&mut self, block: CodeBlock, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.0[block as usize] += start.elapsed();
        done
    }
}

impl fmt::Display for BlockProfile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (block, name) in BLOCKS {
            let separator = if block == CodeBlock::Open { "" } else { "\t" };
            write!(out, "{separator}{name}={:.3}", self.0[block as usize].as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}
