//! The node on the machine of a client.

use std::path::PathBuf;

use eyas_types::dfs::NodeId;

/// The node of the file system on the machine of a client, which its executor has told it.
#[derive(Clone, Debug)]
pub struct NearNode {
    /// The node.
    pub node: NodeId,
    /// The folder of its store, if the client may read it.
    pub store: Option<PathBuf>,
}
