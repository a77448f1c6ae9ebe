//! Aliases: an object with the content of another one, for a chunk of a file that is made of a cached object, or of a
//! chunk of another file.

use std::io::Read;

use eyas_types::ObjectId;
use rustix::fs::AtFlags;

use crate::checksum::Checksum;
use crate::error::StoreError;
use crate::index::{IndexEntry, file_name};
use crate::objects::{ObjectStore, Seal, not_here};

/// Bytes copied at a time.
const BUFFER_BYTES: usize = 1 << 20;

impl ObjectStore {
    /// Makes the object `id` with the content of the object `of`, which is verified first unless it was verified
    /// before. Both are one inode, so no byte is copied. An executable object is copied: the new object is not
    /// executable. Returns size and checksum of the content. Blocks.
    ///
    /// # Errors
    /// `NotHere` if `of` is not here, or is damaged; `Full` or `Io` for failures of the disk.
    pub fn alias(&self, of: ObjectId, id: ObjectId) -> Result<(u64, Checksum), StoreError> {
        let (entry, _) = self.ready(of)?;
        self.check_seal(of)?;
        let IndexEntry { size_bytes, checksum, executable, .. } = entry;
        let partial = self.new_partial();
        let name = file_name(of, size_bytes, checksum);
        let link = || rustix::fs::linkat(self.objects(), &name, self.partial(), &partial, AtFlags::empty());
        if executable || link().is_err() {
            self.copy_object(of, id)?;
            return Ok((size_bytes, checksum));
        }
        match self.publish(&partial, id, IndexEntry { executable: false, verified: true, ..entry }) {
            Ok(true) => {}
            // A verified copy was in the store already.
            Ok(false) => self.discard_partial(&partial),
            Err(error) => {
                self.discard_partial(&partial);
                return Err(error);
            }
        }
        Ok((size_bytes, checksum))
    }

    /// Checks that no task has written to an object through its link, so that what is read of it is what was verified.
    /// A changed object is removed.
    ///
    /// # Errors
    /// `NotHere` if it was changed, or is not here.
    pub fn check_seal(&self, id: ObjectId) -> Result<(), StoreError> {
        match self.verify_seal(id) {
            Seal::Intact => Ok(()),
            Seal::Broken | Seal::Missing => Err(not_here(id)),
        }
    }

    fn copy_object(&self, of: ObjectId, id: ObjectId) -> Result<(), StoreError> {
        let mut from = self.open_object(of)?;
        let mut into = self.begin(id, from.size_bytes, false)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = from.file.read(&mut buffer);
            match read.map_err(|error| StoreError::io(format!("cannot read object {of}"), error))? {
                0 => break,
                count => into.write(&buffer[..count])?,
            }
        }
        if into.checksum() != from.checksum {
            return Err(not_here(of));
        }
        into.commit().map(drop)
    }
}
