//! Entries as the cluster has them.

use std::sync::Arc;

use eyas_files::File;
use eyas_types::dfs::{Attributes, FileId, FileKind};

/// An entry as the cluster has it.
#[derive(Clone, Debug)]
pub(crate) struct ClusterEntry {
    pub id: FileId,
    pub kind: FileKind,
    pub size_bytes: u64,
    /// Size of the zeros in the content that no node stores.
    pub hole_bytes: u64,
    pub attributes: Attributes,
    /// The version of a file; `None` if the entry was only listed.
    pub file: Option<Arc<File>>,
}

impl From<File> for ClusterEntry {
    fn from(file: File) -> Self {
        ClusterEntry {
            id: file.record.id,
            kind: file.record.kind.clone(),
            size_bytes: file.record.size_bytes(),
            hole_bytes: file.record.hole_bytes(),
            attributes: file.record.attributes,
            file: Some(Arc::new(file)),
        }
    }
}
