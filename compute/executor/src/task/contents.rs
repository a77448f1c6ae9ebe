//! Content of compressed inputs. The first task of a node that reads such an input decompresses it,
//! and the content becomes an object of the store, to which later tasks get links. The store's
//! decider counts it like any other object, and may evict it before the input.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_node::StoreLimits;
use eyas_store::compressed::{DecompressError, decompress};
use eyas_store::{ObjectStore, StoreError, StoreErrorKind};
use eyas_types::outcome::FailureKind;
use eyas_types::{ObjectId, Status, units};
use thiserror::Error;

use super::disk_full;
use super::status::failed;

/// Bytes of content between two looks at the free space of the disk.
const LOOK_BYTES: u64 = 64 << 20;
/// Time between two checks whether a task still waits.
const CHECK_EVERY: Duration = Duration::from_millis(100);

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
    /// Contents that are being made.
    under_way: Mutex<HashSet<ObjectId>>,
    ended: Condvar,
}

impl Contents {
    pub fn new(store: ObjectStore, limits: &StoreLimits) -> Self {
        let StoreLimits { bytes: store_bytes, floor_bytes, .. } = *limits;
        let (under_way, ended) = (Mutex::default(), Condvar::new());
        Contents { store, store_bytes, floor_bytes, under_way, ended }
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
        let Some(_making) = self.begin(object, &is_wanted) else {
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

    /// Begins to make a content. Waits while another task makes it, as long as `is_wanted` returns
    /// true.
    fn begin(&self, object: ObjectId, is_wanted: impl Fn() -> bool) -> Option<MadeContent<'_>> {
        let mut under_way = self.under_way();
        while !under_way.insert(object) {
            if !is_wanted() {
                return None;
            }
            let waited = self.ended.wait_timeout(under_way, CHECK_EVERY);
            under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(MadeContent { contents: self, object })
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<ObjectId>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A content that one task makes; over when dropped.
struct MadeContent<'a> {
    contents: &'a Contents,
    object: ObjectId,
}

impl Drop for MadeContent<'_> {
    fn drop(&mut self) {
        self.contents.under_way().remove(&self.object);
        self.contents.ended.notify_all();
    }
}
