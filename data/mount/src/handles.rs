//! Open files and folders.

use std::sync::Arc;

use crate::folders::FolderReader;
use crate::nodes::Inode;

/// An open file or folder.
pub(crate) enum OpenHandle {
    File(OpenContent),
    Folder(tokio::sync::Mutex<FolderReader>),
}

/// An open file.
pub(crate) struct OpenContent {
    pub node: Arc<Inode>,
    pub may_write: bool,
}
