//! What the state of a process asks of the node that it runs on. Tests put a simulated node in its
//! place.

use std::rc::Rc;
use std::time::Instant;

use eyas_types::StorageLocation;

use crate::storage_name::{has_versions, shared_name};

/// Facts that a node answers at once.
pub(crate) trait NodeFacts {
    /// The present time.
    fn now(&self) -> Instant;
    /// Name of a storage, the same on all nodes that share it.
    fn storage_name(&self, location: &StorageLocation) -> String;
    /// Whether the number of a file is the same on all nodes, and its times tell its version.
    fn has_versions(&self, location: &StorageLocation) -> bool;
}

/// The node that this process runs on.
pub(crate) struct ThisNode;

impl NodeFacts for ThisNode {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn storage_name(&self, location: &StorageLocation) -> String {
        shared_name(location)
    }

    fn has_versions(&self, location: &StorageLocation) -> bool {
        has_versions(location)
    }
}

impl<N: NodeFacts> NodeFacts for Rc<N> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn storage_name(&self, location: &StorageLocation) -> String {
        (**self).storage_name(location)
    }

    fn has_versions(&self, location: &StorageLocation) -> bool {
        (**self).has_versions(location)
    }
}
