//! Handing out: an object leaves the store and becomes a file like any other, without moving a byte.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use eyas_types::ObjectId;
use rustix::fs::{AtFlags, CWD, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::index::file_name;
use crate::objects::ObjectStore;

impl ObjectStore {
    /// Makes an object that no one else uses the file `dest`, on the store's own file system and in a folder that exists:
    /// with the mode that new files of this process have, and written just now. A file that is there is replaced if that
    /// is wanted. The store does not have the object afterwards, also if this fails. Reads it once if it has not been
    /// verified yet; blocks.
    ///
    /// # Errors
    /// `NotHere`; `Full` or `Io` as the disk says, also if something is there.
    pub fn hand_out(&self, id: ObjectId, dest: &Path, replaces: bool) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StoreError::io(format!("cannot write `{}`", dest.display()), error);
        let (entry, _) = self.ready(id)?;
        let name = file_name(id, entry.size_bytes, entry.checksum);
        // Asking for the process's umask would change it. The lock was made with what it leaves of 0666.
        let plain = fs::metadata(self.dir().join("lock")).map_err(failed)?.permissions().mode() & 0o666;
        let mode = if entry.executable { plain | (plain & 0o444) >> 2 } else { plain };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let out = || {
            rustix::fs::chmodat(self.objects(), &name, Mode::from_bits_truncate(mode), AtFlags::empty())?;
            let times = Timestamps { last_access: now, last_modification: now };
            rustix::fs::utimensat(self.objects(), &name, &times, AtFlags::empty())?;
            if replaces {
                return rustix::fs::renameat(self.objects(), &name, CWD, dest);
            }
            match rustix::fs::renameat_with(self.objects(), &name, CWD, dest, RenameFlags::NOREPLACE) {
                // Network file systems do not know how, but have hard links.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::linkat(self.objects(), &name, CWD, dest, AtFlags::empty())?;
                    rustix::fs::unlinkat(self.objects(), &name, AtFlags::empty())
                }
                renamed => renamed,
            }
        };
        let done = out();
        self.drop_damaged(id, entry);
        done.map_err(|errno| failed(errno.into()))
    }
}
