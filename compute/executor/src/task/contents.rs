//! Content of compressed inputs. The first task of a node that reads such an input decompresses it,
//! and the content becomes an object of the store, to which later tasks get links. The store's
//! decider counts it like any other object, and may evict it before the input.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Instant;

use eyas_node::StoreLimits;
use eyas_store::compressed::{Compression, DecompressError, compression_of, decompress};
use eyas_store::{ObjectStore, Presence, StoreError, StoreErrorKind};
use eyas_types::outcome::FailureKind;
use eyas_types::{FileMode, ObjectId, units};
use thiserror::Error;

use super::copy_request::{CopyRequest, MIN_GIVEN_BYTES, ObtainedCopy};
use super::derived_copy::CopyOrigin;
use super::disk_full;
use super::makings::Makings;

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
        "its content has more than {}, and the store holds no more: give executors a larger store \
         (--cache)",
        units::format_bytes(*.0)
    )]
    TooLarge(u64),
    /// The disk has too little room for the content, of which these bytes were written.
    #[error("the disk has no room for its content: free some space, or give the node another one")]
    NoRoom(u64),
}

impl ContentError {
    /// How the task ends. `None` if it was stopped.
    pub fn kind(&self) -> Option<FailureKind> {
        Some(match self {
            ContentError::Content(DecompressError::Stopped) => return None,
            ContentError::Store(error) if error.kind == StoreErrorKind::Full => {
                FailureKind::NodeFull
            }
            ContentError::NoRoom(_) => FailureKind::NodeFull,
            ContentError::Content(
                DecompressError::NotCompressed | DecompressError::Damaged { .. },
            ) => FailureKind::Start,
            ContentError::Store(_) | ContentError::Content(_) | ContentError::TooLarge(_) => {
                FailureKind::Node
            }
        })
    }

    /// Bytes that were written before there was no room.
    pub fn written_bytes(&self) -> u64 {
        match self {
            ContentError::NoRoom(bytes) => *bytes,
            _ => 0,
        }
    }
}

/// The content of an input, which is in the store.
pub(super) struct Content {
    /// The input itself if it is not compressed.
    pub object: ObjectId,
    pub origin: CopyOrigin,
    /// The request for it, to be ended when it is counted.
    pub request: Option<CopyRequest>,
}

impl Content {
    fn here(object: ObjectId) -> Self {
        Content { object, origin: CopyOrigin::Here, request: None }
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
    /// new file at this path. `name` is the name of the file. Blocks as long as `is_wanted` returns
    /// true. `obtain` gets a large content, of this mode, from another executor; `None` if it is no
    /// longer wanted.
    pub(super) fn make(
        &self,
        (source, name): (ObjectId, &[u8]),
        path: &Path,
        is_wanted: impl Fn() -> bool,
        obtain: impl FnOnce(ObjectId, FileMode) -> Option<ObtainedCopy>,
    ) -> Result<Content, ContentError> {
        let object = source.decompressed();
        if self.store.contains(object) {
            return Ok(Content::here(object));
        }
        let compressed = self.store.open_object(source)?;
        let Some(how) = compression_of(&compressed.file, name)? else {
            return Ok(Content::here(source));
        };
        let Some(_making) = self.makings.begin(object, &is_wanted) else {
            return Err(DecompressError::Stopped.into());
        };
        if self.store.contains(object) {
            return Ok(Content::here(object));
        }
        let mode = match self.store.presence(source) {
            Presence::Ready { executable: true, .. } => FileMode::EXECUTABLE,
            _ => FileMode::READABLE,
        };
        let request = if compressed.size_bytes < MIN_GIVEN_BYTES {
            None
        } else {
            match obtain(object, mode) {
                None => return Err(DecompressError::Stopped.into()),
                Some(ObtainedCopy::Fetched { took_us, request }) => {
                    let origin = CopyOrigin::Fetched { took_us };
                    return Ok(Content { object, origin, request: Some(request) });
                }
                Some(ObtainedCopy::ToMake(request)) => request,
            }
        };
        let began = Instant::now();
        let made = self.write(compressed.file, how, path, is_wanted);
        let kept = made.and_then(|()| Ok(self.store.adopt_as(path, object, mode)?));
        // It has a name in the store now, or is of no use.
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), "cannot remove a file: {error}");
        }
        kept?;
        Ok(Content { object, origin: CopyOrigin::made_since(began), request })
    }

    fn write(
        &self,
        compressed: File,
        how: Compression,
        path: &Path,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), ContentError> {
        let mut into = File::create_new(path).map_err(DecompressError::Write)?;
        let (mut written, mut next_look, mut has_room) = (0, LOOK_BYTES, true);
        let may_continue = |bytes: u64| {
            written = bytes;
            if written >= next_look {
                next_look += LOOK_BYTES;
                has_room = self.store.free_space().is_ok_and(|free| free.bytes >= self.floor_bytes);
            }
            if has_room && is_wanted() { Ok(()) } else { Err(DecompressError::Stopped) }
        };
        match decompress(compressed, how, &mut into, self.store_bytes, may_continue) {
            Ok(_) => Ok(()),
            Err(DecompressError::Stopped) if !has_room => Err(ContentError::NoRoom(written)),
            Err(DecompressError::Write(error)) if disk_full::is_no_room(&error) => {
                Err(ContentError::NoRoom(written))
            }
            Err(DecompressError::TooLarge(most_bytes)) => Err(ContentError::TooLarge(most_bytes)),
            Err(error) => Err(error.into()),
        }
    }
}
