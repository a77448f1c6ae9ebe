//! Inputs that are a part of a file: a range of bytes, or of records. The whole object is in the
//! store, and the sandbox gets a copy of the part, so it takes room on the disk of the sandboxes. A
//! part is never shared between tasks. All bytes of a file are a copy that the task may write.

use std::path::Path;

use eyas_files::{RecordsError, bytes_of_records};
use eyas_store::{ObjectStore, StoreError, StoreErrorKind};
use eyas_types::outcome::FailureKind;
use eyas_types::{ObjectId, PartOfFile, Status, shown};
use eyas_wire::executor::AssignedInput;
use thiserror::Error;

use super::Sandbox;
use crate::task::contents::ContentError;
use crate::task::status::failed;

/// Why a part of an input cannot be staged.
#[derive(Debug, Error)]
pub(crate) enum PartError {
    /// The store or the disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The input cannot be decompressed.
    #[error(transparent)]
    Content(ContentError),
    /// The records cannot be found.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The file has none of the bytes.
    #[error(
        "the file has {size_bytes} bytes, and so none from {first} on: the range is beyond its end"
    )]
    BeyondEnd {
        /// Size of the file.
        size_bytes: u64,
        /// The first byte that was asked for.
        first: u64,
    },
}

impl PartError {
    /// Whether the input has gone from the store.
    pub fn is_missing(&self) -> bool {
        match self {
            PartError::Store(error) | PartError::Content(ContentError::Store(error)) => {
                error.kind == StoreErrorKind::NotHere
            }
            _ => false,
        }
    }

    /// How the task ends.
    pub fn status(&self, reason: String) -> Status {
        let kind = match self {
            PartError::Store(error) if error.kind == StoreErrorKind::Full => FailureKind::NodeFull,
            PartError::Store(_) | PartError::Records(RecordsError::Unreadable(_)) => {
                FailureKind::Node
            }
            PartError::Content(error) => return error.status(reason),
            PartError::Records(_) | PartError::BeyondEnd { .. } => FailureKind::Start,
        };
        failed(kind, reason)
    }
}

impl Sandbox {
    /// Puts a copy of a part of an object at the name that the task expects.
    pub fn stage_part(
        &mut self,
        store: &ObjectStore,
        object: ObjectId,
        input: &AssignedInput,
        part: PartOfFile,
        name: &Path,
        remember: bool,
    ) -> Result<(), PartError> {
        if part == PartOfFile::ALL {
            return Ok(self.stage_copy(store, object, name, remember)?);
        }
        let place = self.prepare(name);
        let mut opened = store.open_object(object)?;
        let bytes = match part {
            PartOfFile::Bytes { first, .. } if first >= opened.size_bytes => {
                return Err(PartError::BeyondEnd { size_bytes: opened.size_bytes, first });
            }
            PartOfFile::Bytes { first, end } => first..end.min(opened.size_bytes),
            PartOfFile::Records { first, end } => bytes_of_records(
                &mut opened.file,
                &shown(input.object.base_name()).to_string(),
                first,
                end,
            )?,
            PartOfFile::Decompressed { .. } | PartOfFile::Prepared { .. } => {
                unreachable!("what is made of a file is another object")
            }
        };
        store.stage_part(object, &place, bytes)?;
        if remember {
            self.remember(name, &place);
        }
        Ok(())
    }
}
