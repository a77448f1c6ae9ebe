//! Errors of tasks of a job over blocks.

use std::io;

use eyas_files::FilesError;
use eyas_types::dfs::FileName;
use thiserror::Error;

use super::header::MAX_HEADER_BYTES;
use super::pipeline::PipelineError;

/// Why a task of a job over blocks failed.
#[derive(Debug, Error)]
pub enum WorkError {
    /// The file system failed, or the leader of the run does not answer.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A program failed.
    #[error(transparent)]
    Program(#[from] PipelineError),
    /// The standard input of the program cannot be written to.
    #[error("the program's standard input cannot be written to: {0}")]
    Input(io::Error),
    /// An output of the map has no valid trailer.
    #[error("{0} is not an output of this job's map: run the job again")]
    Damaged(FileName),
    /// The header of a file is longer than any header.
    #[error(
        "{0} has no header that ends within {MAX_HEADER_BYTES} bytes: leave out `--header \
         repeat`, or give the file the name of its kind (`.csv`, `.vcf`, `.sam`)"
    )]
    Header(FileName),
    /// The header of a file cannot be found, because the file is no text, or compressed as a whole.
    #[error(
        "{0} is neither text nor text that `bgzip` has compressed, so its header cannot be read: \
         leave out `--header repeat`, or store the file as text or compressed with `bgzip`"
    )]
    NoHeader(FileName),
    /// A compressed header is damaged.
    #[error("the header of {0} cannot be decompressed ({1}): store the file again")]
    CompressedHeader(FileName, io::Error),
    /// A temporary file on this node cannot be used.
    #[error("the program's output cannot be written to a temporary file: {0}")]
    Scratch(#[from] io::Error),
}
