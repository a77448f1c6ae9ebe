//! Results that an executor on this machine holds, read from the folder of its store. No byte
//! passes through a connection.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use eyas_store::{Checksum, object_path};
use eyas_types::{ObjectSpec, Version};

/// The file of a kept output, in the folder of a store.
#[derive(Debug)]
pub struct NearFile {
    file: File,
    size_bytes: usize,
    checksum: Checksum,
}

impl NearFile {
    /// Opens the file, if the store has the object and this process may read it.
    pub fn open(store: &Path, object: &ObjectSpec) -> Option<Self> {
        let Version::Etag { etag, size_bytes } = &object.version else { return None };
        let checksum = etag.parse().ok()?;
        let file = File::open(object_path(store, object.id(), *size_bytes, checksum)).ok()?;
        (file.metadata().ok()?.len() == *size_bytes).then_some(NearFile {
            file,
            size_bytes: usize::try_from(*size_bytes).ok()?,
            checksum,
        })
    }

    /// Size of the content.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Reads the content into a buffer of its size, and tells whether it is the one that the task
    /// has written: another task may have damaged it.
    pub fn read(&self, into: &mut [u8]) -> bool {
        into.len() == self.size_bytes
            && self.file.read_exact_at(into, 0).is_ok()
            && Checksum::of(into) == self.checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{FileMode, JobId, TaskId};

    #[test]
    fn a_near_file_is_read_if_it_is_whole() {
        let store = tempfile::tempdir().unwrap();
        let (content, checksum) = (b"content", Checksum::of(b"content"));
        let task = TaskId { job: JobId(1), index: 2 };
        let object = ObjectSpec::kept(task, "a", 7, &checksum.to_string(), FileMode::READABLE);
        assert!(NearFile::open(store.path(), &object).is_none(), "the store does not have it");
        let path = object_path(store.path(), object.id(), 7, checksum);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let read = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let near = NearFile::open(store.path(), &object)?;
            let mut found = vec![0; near.size_bytes()];
            near.read(&mut found).then_some(found)
        };
        assert_eq!(read(content), Some(content.to_vec()));
        assert_eq!(read(b"damaged"), None);
        assert_eq!(read(b"short"), None);
    }
}
