//! Inputs that are a part of a file: a range of bytes, or of records. The whole object is in the
//! store, and the sandbox gets a copy of the part, so it takes room on the disk of the sandboxes. A
//! part is never shared between tasks. All bytes of a file are a copy that the task may write.

use std::path::Path;

use eyas_files::{RecordsError, bytes_of_records};
use eyas_store::{ObjectStore, StoreError};
use eyas_types::{ObjectId, PartOfFile, shown};
use eyas_wire::executor::AssignedInput;
use thiserror::Error;

use super::Sandbox;

/// Why a part of an input cannot be staged.
#[derive(Debug, Error)]
pub(crate) enum PartError {
    /// The store or the disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
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
        let place = self.prepare(name);
        if part == PartOfFile::ALL {
            store.stage_copy(object, &place)?;
            if remember {
                self.remember(name, &place);
            }
            return Ok(());
        }
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
        };
        store.stage_part(object, &place, bytes)?;
        if remember {
            self.remember(name, &place);
        }
        Ok(())
    }
}
