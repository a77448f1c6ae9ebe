//! Aliases: an object with the content of another one, for a chunk of a file that is made of a
//! cached object, or of a chunk of another file.

use eyas_types::{FileMode, ObjectId};
use rustix::fs::AtFlags;

use crate::checksum::Checksum;
use crate::error::StoreError;
use crate::holes::each_part;
use crate::index::{IndexEntry, file_name};
use crate::objects::{ObjectStore, Seal, not_here, sealed, with_execution};

/// Bytes copied at a time.
const BUFFER_BYTES: usize = 1 << 20;

impl ObjectStore {
    /// Makes the object `id` with the content of the object `of`, which is verified first unless it
    /// was verified before. Both are one inode, so no byte is copied. An executable object is
    /// copied: the new object is not executable. Returns size and checksum of the content. Blocks.
    ///
    /// # Errors
    /// `NotHere` if `of` is not here, or is damaged; `Full` or `Io` for failures of the disk.
    pub fn alias(&self, of: ObjectId, id: ObjectId) -> Result<(u64, Checksum), StoreError> {
        let (entry, _) = self.ready(of)?;
        self.check_seal(of)?;
        let IndexEntry { size_bytes, checksum, mode, .. } = entry;
        let partial = self.new_partial();
        let name = file_name(of, size_bytes, checksum);
        let link = || {
            rustix::fs::linkat(self.objects(), &name, self.partial(), &partial, AtFlags::empty())
        };
        if mode.is_executable() || link().is_err() {
            self.copy_object(of, id, mode.without_execution())?;
            return Ok((size_bytes, checksum));
        }
        match self.publish(&partial, id, entry) {
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

    /// Makes an object executable for all that may read it, for an input whose source became
    /// executable without becoming another version. If another object or a task has a link to the
    /// file, a copy takes the place of the object, because the mode belongs to all links.
    ///
    /// # Errors
    /// `NotHere`; `Full` or `Io` if the disk fails.
    pub fn make_executable(&self, id: ObjectId) -> Result<(), StoreError> {
        let mode = {
            let mut index = self.index();
            let entry = index.get_mut(id).ok_or_else(|| not_here(id))?;
            if entry.mode.is_executable() {
                return Ok(());
            }
            let mode = with_execution(entry.mode);
            let failed =
                |errno| StoreError::io(format!("cannot make object {id} executable"), errno);
            let name = file_name(id, entry.size_bytes, entry.checksum);
            let found = rustix::fs::statat(self.objects(), &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed)?;
            if found.st_nlink == 1 {
                rustix::fs::chmodat(self.objects(), name, sealed(mode), AtFlags::empty())
                    .map_err(failed)?;
                entry.mode = mode;
                return Ok(());
            }
            mode
        };
        self.copy_object(id, id, mode)
    }

    /// Checks that no task has written to an object through its link, so that what is read of it is
    /// what was verified. A changed object is removed.
    ///
    /// # Errors
    /// `NotHere` if it was changed, or is not here.
    pub fn check_seal(&self, id: ObjectId) -> Result<(), StoreError> {
        match self.verify_seal(id) {
            Seal::Intact => Ok(()),
            Seal::Broken | Seal::Missing => Err(not_here(id)),
        }
    }

    /// Makes the object `id` with a copy of the content of the object `of`.
    pub(crate) fn copy_object(
        &self,
        of: ObjectId,
        id: ObjectId,
        mode: FileMode,
    ) -> Result<(), StoreError> {
        let from = self.open_object(of)?;
        let mut into = self.begin(id, from.size_bytes, mode)?;
        let failed = |error| StoreError::io(format!("cannot read object {of}"), error);
        each_part(&from.file, 0..from.size_bytes, &mut vec![0; BUFFER_BYTES], &failed, |part| {
            into.take(part)
        })?;
        if into.checksum() != from.checksum {
            return Err(not_here(of));
        }
        into.commit().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_alias_stays_when_its_origin_becomes_executable() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(folder.path().join("store")).unwrap();
        let [origin, alias, lone] = [1, 2, 3].map(|number| ObjectId([number; 16]));
        store.put(origin, b"#!/bin/sh").unwrap();
        store.put(lone, b"x").unwrap();
        store.alias(origin, alias).unwrap();
        let copies = store.copies(&[origin]).unwrap();
        for object in [origin, lone] {
            store.make_executable(object).unwrap();
            store.make_executable(object).unwrap();
        }
        // Sandboxes that have a link to the earlier file are not used again.
        assert_ne!(store.copies(&[origin]).unwrap(), copies);
        for (number, (object, mode)) in
            [(origin, 0o555), (alias, 0o444), (lone, 0o555)].into_iter().enumerate()
        {
            assert_eq!(store.verify_seal(object), Seal::Intact, "{number}");
            let staged = folder.path().join(number.to_string());
            store.stage(object, &staged).unwrap();
            assert_eq!(
                std::fs::metadata(&staged).unwrap().permissions().mode() & 0o777,
                mode,
                "{number}"
            );
        }
        assert_eq!(store.content(origin).unwrap(), b"#!/bin/sh");
        assert_eq!(store.content(alias).unwrap(), b"#!/bin/sh");
        assert!(store.make_executable(ObjectId([4; 16])).is_err());
        store.remove(origin).unwrap();
        assert_eq!(store.verify_seal(alias), Seal::Intact);
    }
}
