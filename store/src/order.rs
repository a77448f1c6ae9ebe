//! Turns at persistent storage that others read, too, if there is somebody who gives them.

use std::pin::Pin;

use eyas_types::{Extent, FileId};

/// Read of a file in one turn: what a disk does in some 50 ms, for which others wait.
pub(crate) const TURN_BYTES: u64 = 8 << 20;

/// Which storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The file system that this node sees as that device.
    Device(u64),
    /// A bucket or a web server, by its URL without any path.
    Url(String),
}

/// What is to be read.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where it is.
    pub place: Place,
    /// Of which file, by a name that all nodes give it.
    pub file: FileId,
    /// Which bytes.
    pub extent: Extent,
}

/// Leave to read. It ends when it is dropped.
pub type Turn = Box<dyn Send>;

/// Gives turns.
pub trait Order: Send + Sync {
    /// Comes back when it may be read. It must not stand in the way: if nobody can be asked, that is at once.
    fn turn(&self, wish: Wish) -> Pin<Box<dyn Future<Output = Turn> + Send + '_>>;
}
