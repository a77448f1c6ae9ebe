//! Files of any format: where their records end.

use eyas_blocks::format::{Cutter, piece_ends};
use eyas_types::dfs::Format;

use crate::choice;

const FORMATS: [&str; 16] = [
    "lines",
    "json-lines",
    "csv",
    "csv:delimiter=^",
    "csv:quote='",
    "csv:escape=\\",
    "fixed:1",
    "fixed:7",
    "fasta",
    "fastq",
    "length-prefixed:4le",
    "length-prefixed:8be",
    "bgzf",
    "bzip2",
    "zstd",
    "whole",
];

/// The first byte says the format, the second one the size of chunks and of the parts in which the
/// content comes.
pub(crate) fn formats(bytes: &[u8]) {
    let (format, bytes) = choice(bytes);
    let (sizes, content) = choice(bytes);
    let format = FORMATS[format % FORMATS.len()];
    let format: Format = format.parse().unwrap_or_else(|error| panic!("{format}: {error}"));
    let guessed =
        Format::guess("file", &content[..content.len().min(eyas_types::dfs::PROBED_BYTES)]);
    for format in [format, guessed] {
        let (chunk_bytes, part_bytes) = (1 + sizes as u64 / 4, 1 + sizes % 16);
        let whole = ends(format, chunk_bytes, content, content.len().max(1));
        let in_parts = ends(format, chunk_bytes, content, part_bytes);
        assert_eq!(
            whole.0, in_parts.0,
            "chunks of {format} do not depend on how the content comes"
        );
        // What is refused may be seen a little earlier or later.
        let pieces = 1 + sizes as u32 % 9;
        if let Ok(ends) = piece_ends(format, content, pieces) {
            assert_eq!((ends.len(), ends.last()), (pieces as usize, Some(&content.len())));
            assert!(ends.is_sorted());
        }
    }
}

/// Where chunks end, and whether the content has the format.
fn ends(format: Format, chunk_bytes: u64, content: &[u8], part_bytes: usize) -> (Vec<usize>, bool) {
    let mut cutter = Cutter::new(format, chunk_bytes);
    let (mut ends, mut at) = (Vec::new(), 0);
    for part in content.chunks(part_bytes) {
        let mut rest = part;
        loop {
            match cutter.cut(rest) {
                Ok(Some(taken)) => {
                    at += taken;
                    rest = &rest[taken..];
                    assert!(ends.last() < Some(&at), "no chunk is empty");
                    ends.push(at);
                }
                Ok(None) => break,
                Err(error) => {
                    let _ = error.to_string();
                    return (ends, false);
                }
            }
        }
        at += rest.len();
    }
    (ends, cutter.finish().is_ok())
}
