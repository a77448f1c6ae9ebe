//! A file as a client knows it.

use eyas_ring::RecordVersion;
use eyas_types::dfs::{FileName, FileRecord};
use serde::{Deserialize, Serialize};

/// A file at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Name of the file.
    pub name: FileName,
    /// The metadata and chunks of the file.
    pub record: FileRecord,
    /// The version, by which changes are detected.
    pub(crate) version: RecordVersion,
}
