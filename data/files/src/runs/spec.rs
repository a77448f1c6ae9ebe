//! The specification, the address and the status of a run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use eyas_blocks::{BlockPolicy, WorkerId};
use eyas_types::dfs::{Chunk, FileName, Format, NodeId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::File;

/// Maximum number of chunks of a run, whose specification is sent in one frame. With chunks of the
/// default size, this is 1 TiB.
const MAX_RUN_CHUNKS: usize = 1 << 18;

/// Maximum number of pieces of a chunk.
const MAX_PIECES: u32 = 16;

/// Chunks are divided until each slot has this number of pieces, so that slots that end last are at
/// work on little.
const SLOT_PIECES: usize = 256;

/// Smaller pieces are not made.
const MIN_PIECE_BYTES: u64 = 16 << 10;

/// The random id of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockRunId(pub u128);

impl fmt::Display for BlockRunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The folder of the file system's own files. It has no entry, and lists of the root do not show
/// it.
pub(crate) const OWN_FOLDER: &str = "/.eyas";

impl BlockRunId {
    /// The folder for the output of its tasks, before the output appears at its destination.
    pub fn folder(self) -> String {
        format!("{OWN_FOLDER}/runs/{self}")
    }

    /// A file in that folder.
    pub fn file(self, name: impl fmt::Display) -> FileName {
        format!("{}/{name}", self.folder())
            .parse()
            .expect("it has short components without dots alone")
    }
}

/// A run and the node that leads it. Written as `NODE:RUN` in hexadecimal digits on command lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAddress {
    /// The node that leads it.
    pub node: NodeId,
    /// The run.
    pub run: BlockRunId,
}

impl fmt::Display for RunAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.run)
    }
}

/// A text is not the address of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the address of a run: write NODE:RUN, both in hexadecimal digits")]
pub struct RunAddressError(String);

impl FromStr for RunAddress {
    type Err = RunAddressError;

    fn from_str(text: &str) -> Result<Self, RunAddressError> {
        let parsed = text.split_once(':').and_then(|(node, run)| {
            let node = NodeId(u64::from_str_radix(node, 16).ok()?);
            Some(RunAddress { node, run: BlockRunId(u128::from_str_radix(run, 16).ok()?) })
        });
        parsed.ok_or_else(|| RunAddressError(text.to_owned()))
    }
}

/// A job over the blocks of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The files that it reads, at the versions when the job began.
    pub files: Vec<File>,
    /// How chunks are assigned to workers.
    pub policy: BlockPolicy,
    /// The expected node of each of its tasks.
    pub slots: Vec<NodeId>,
    /// Number of pieces of each chunk. Workers lease pieces; a piece has whole records.
    pub pieces: u32,
    /// A worker that is silent for this time loses its block, microseconds.
    pub term_us: u64,
    /// If no client asks for the run within this time, its client has died: the run is forgotten,
    /// and its folder is removed.
    pub idle: Duration,
}

/// Why no node leads such a run; the message tells it.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum RunSpecError {
    #[error("a job over blocks needs at least one file")]
    NoFile,
    #[error(
        "the files have {0} chunks in total, and a job over blocks may have up to \
         {MAX_RUN_CHUNKS}: write the files with larger chunks"
    )]
    TooManyChunks(usize),
    #[error("a chunk cannot have {0} pieces: choose a number from 1 to {MAX_PIECES}")]
    Pieces(u32),
}

impl RunSpec {
    /// Number of pieces into which the chunks of these files are divided for this number of slots,
    /// if a worker may read a part of a chunk. A part may be empty, and programs that decompress
    /// fail without input: chunks of compressed files are not divided.
    pub fn pieces_of(files: &[File], slots: usize) -> u32 {
        let is_divisible = |format: Format| format != Format::Whole && !format.is_compressed();
        if !files.iter().all(|file| is_divisible(*file.record.format)) {
            return 1;
        }
        let sizes =
            || files.iter().flat_map(|file| &file.record.chunks).map(|chunk| chunk.size_bytes);
        let chunks = sizes().count().max(1);
        let by_size = sizes().sum::<u64>() / chunks as u64 / MIN_PIECE_BYTES;
        let by_slots = (slots * SLOT_PIECES / chunks) as u64;
        by_size.min(by_slots).clamp(1, MAX_PIECES.into()) as u32
    }

    /// Checks that the run can be led.
    pub fn check(&self) -> Result<(), RunSpecError> {
        match self.chunks().count() {
            _ if self.files.is_empty() => Err(RunSpecError::NoFile),
            _ if !(1..=MAX_PIECES).contains(&self.pieces) => Err(RunSpecError::Pieces(self.pieces)),
            0..=MAX_RUN_CHUNKS => Ok(()),
            chunks => Err(RunSpecError::TooManyChunks(chunks)),
        }
    }

    /// The chunks of all files in order: index of the file in `files`, index of the chunk in the
    /// file, and the chunk. A file that is one record counts as one chunk, of which the first
    /// stored one has the index.
    pub fn chunks(&self) -> impl Iterator<Item = (usize, usize, &[Chunk])> {
        self.files.iter().enumerate().flat_map(|(file, of)| {
            of.record.blocks().enumerate().map(move |(place, chunks)| (file, place, chunks))
        })
    }
}

/// The output of one worker, which counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPart {
    /// The worker.
    pub worker: WorkerId,
    /// The first of its pieces, in the order of the run's pieces.
    pub first: u32,
    /// Number of pieces that it has read.
    pub pieces: u32,
}

/// The status of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Number of chunks that are committed: the committed pieces, as whole chunks.
    pub committed_chunks: u32,
    /// Whether all chunks are committed.
    pub is_complete: bool,
    /// The committed outputs, in the order of their first pieces.
    pub parts: Vec<OutputPart>,
    /// Number of times that pieces were taken from one worker, which had not begun them, and given
    /// to another.
    pub stolen: u32,
    /// Number of times that a second worker was started on a block.
    pub speculated: u32,
}

#[cfg(test)]
mod tests {
    use eyas_ring::{RecordVersion, Round};
    use eyas_types::ObjectId;
    use eyas_types::dfs::{Attributes, FileId, FileKind, FileRecord};

    use super::*;

    fn file(format: Format, sizes: &[u64]) -> File {
        let chunk = |size_bytes: &u64| Chunk {
            object: ObjectId([0; 16]),
            size_bytes: *size_bytes,
            checksum: 0,
            replicas: vec![NodeId(1)],
        };
        let record = FileRecord::without_content(FileId(1), FileKind::File, Attributes::default());
        let record = FileRecord {
            format: format.into(),
            chunks: sizes.iter().map(chunk).collect(),
            ..record
        };
        let version = RecordVersion { round: Round { view: 1, boot: 1 }, sequence: 1 };
        File { name: "/a".parse().unwrap(), record, version }
    }

    #[test]
    fn chunks_of_compressed_files_have_no_pieces_and_one_record_is_one_chunk() {
        let large = [1 << 20, 1 << 20, 5];
        let text = file(Format::Lines, &large);
        assert_eq!(RunSpec::pieces_of(std::slice::from_ref(&text), 2), MAX_PIECES);
        for format in [Format::Whole, Format::Bgzf, Format::Zstd] {
            assert_eq!(RunSpec::pieces_of(&[text.clone(), file(format, &large)], 2), 1, "{format}");
        }
        let files = vec![file(Format::Whole, &large), file(Format::Whole, &[]), text];
        let (policy, slots, idle) = (eyas_blocks::POLICIES[0].1, vec![NodeId(1)], Duration::ZERO);
        let spec = RunSpec { files, policy, slots, pieces: 1, term_us: 1, idle };
        let chunks: Vec<_> =
            spec.chunks().map(|(file, place, chunks)| (file, place, chunks.len())).collect();
        assert_eq!(chunks, [(0, 0, 3), (2, 0, 1), (2, 1, 1), (2, 2, 1)]);
    }

    #[test]
    fn places_have_text() {
        let place = RunAddress { node: NodeId(7), run: BlockRunId(1 << 127) };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "7", "7:", ":7", "7:x", "7:7:7", "10000000000000000:1"] {
            assert!(wrong.parse::<RunAddress>().is_err(), "{wrong}");
        }
    }
}
