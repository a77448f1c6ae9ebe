//! Content of compressed inputs. The first task of a node that reads such an input decompresses it,
//! and the content becomes an object of the store, to which later tasks get links. The store's
//! decider counts it like any other object, and may evict it before the input.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use eyas_node::StoreLimits;
use eyas_store::compressed::{DecompressError, decompress};
use eyas_store::{ObjectStore, StoreError, StoreErrorKind};
use eyas_types::outcome::FailureKind;
use eyas_types::{ObjectId, Status, units};
use thiserror::Error;

use super::disk_full;
use super::makings::Makings;
use super::status::failed;

/// Bytes of content between two looks at the free space of the disk.
const LOOK_BYTES: u64 = 64 << 20;

/// Why the content of an input cannot be staged.
#[derive(Debug, Error)]
pub(crate) enum ContentError {
    /// The store or its disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The input cannot be decompressed.
    #[error(transparent)]
    Content(#[from] DecompressError),
    /// The content is larger than the store.
    #[error(
        "it has more than {} when it is decompressed, and the store holds no more: give executors \
         a larger store (--cache)",
        units::format_bytes(*.0)
    )]
    TooLarge(u64),
    /// The disk has too little room for the content.
    #[error("the disk has no room for its content: free some space, or give the node another one")]
    NoRoom,
}

impl ContentError {
    /// How the task ends.
    pub fn status(&self, reason: String) -> Status {
        match self {
            ContentError::Content(DecompressError::Stopped) => Status::Cancelled,
            _ => failed(self.kind(), reason),
        }
    }

    fn kind(&self) -> FailureKind {
        match self {
            ContentError::Store(error) if error.kind == StoreErrorKind::Full => {
                FailureKind::NodeFull
            }
            ContentError::NoRoom => FailureKind::NodeFull,
            ContentError::Content(DecompressError::Write(error))
                if disk_full::is_no_room(error) =>
            {
                FailureKind::NodeFull
            }
            ContentError::Content(
                DecompressError::NotCompressed | DecompressError::Damaged { .. },
            ) => FailureKind::Start,
            ContentError::Store(_) | ContentError::Content(_) | ContentError::TooLarge(_) => {
                FailureKind::Node
            }
        }
    }
}

/// The contents of compressed inputs in a node's store.
pub(crate) struct Contents {
    store: ObjectStore,
    /// Most bytes of the store.
    store_bytes: u64,
    /// Bytes of the disk that are left free.
    floor_bytes: u64,
    makings: Makings,
}

impl Contents {
    pub fn new(store: ObjectStore, limits: &StoreLimits) -> Self {
        let StoreLimits { bytes: store_bytes, floor_bytes, .. } = *limits;
        Contents { store, store_bytes, floor_bytes, makings: Makings::default() }
    }

    /// Puts the content of an object of the store into the store, unless it is there, by way of a
    /// new file at this path. `name` is the name of the compressed file. Blocks as long as
    /// `is_wanted` returns true.
    pub fn make(
        &self,
        (source, name): (ObjectId, &[u8]),
        path: &Path,
        is_wanted: impl Fn() -> bool,
    ) -> Result<ObjectId, ContentError> {
        let object = source.decompressed();
        if self.store.contains(object) {
            return Ok(object);
        }
        let Some(_making) = self.makings.begin(object, &is_wanted) else {
            return Err(DecompressError::Stopped.into());
        };
        if self.store.contains(object) {
            return Ok(object);
        }
        let opened = self.store.open_object(source)?;
        let made = self.write(opened.file, name, path, is_wanted);
        let kept = made.and_then(|()| Ok(self.store.adopt_as(path, object)?));
        // It has a name in the store now, or is of no use.
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), "cannot remove a file: {error}");
        }
        kept.map(|_| object)
    }

    fn write(
        &self,
        compressed: File,
        name: &[u8],
        path: &Path,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), ContentError> {
        let mut into = File::create_new(path).map_err(DecompressError::Write)?;
        let (mut next_look, mut has_room) = (LOOK_BYTES, true);
        let may_continue = |written: u64| {
            if written >= next_look {
                next_look += LOOK_BYTES;
                has_room = self.store.free_space().is_ok_and(|free| free.bytes >= self.floor_bytes);
            }
            if has_room && is_wanted() { Ok(()) } else { Err(DecompressError::Stopped) }
        };
        match decompress(compressed, name, &mut into, self.store_bytes, may_continue) {
            Ok(_) => Ok(()),
            Err(DecompressError::Stopped) if !has_room => Err(ContentError::NoRoom),
            Err(DecompressError::TooLarge(most_bytes)) => Err(ContentError::TooLarge(most_bytes)),
            Err(error) => Err(error.into()),
        }
    }
}
