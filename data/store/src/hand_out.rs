//! Hand-out: an object leaves the store and becomes an ordinary file, without copying.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use eyas_types::{FileMode, ObjectId};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::index::{OBJECTS, file_name};
use crate::objects::ObjectStore;
use crate::storage::{is_stream, output_mode, stream};

impl ObjectStore {
    /// Turns an object that has no other user into the file `dest`, in an existing folder on the
    /// file system of the store. The file gets `mode`, less the umask of this process, and the
    /// current time. An existing file is replaced if `replaces` is set; the new one is open to no
    /// user to whom the old one was closed. A device, a pipe or an open file of a process, such as
    /// `/dev/stdout`, is written to. Afterwards the store does not have the object, even if this
    /// fails. An object that is not verified yet is read once. Blocks.
    ///
    /// # Errors
    /// `NotHere`; `Full` or `Io` for failures of the disk, or if `dest` exists and is not to be
    /// replaced.
    pub fn hand_out(
        &self,
        id: ObjectId,
        dest: &Path,
        mode: FileMode,
        replaces: bool,
    ) -> Result<(), StoreError> {
        let failed =
            |error: io::Error| StoreError::io(format!("cannot write `{}`", dest.display()), error);
        let (entry, _) = self.ready(id)?;
        let name = file_name(id, entry.size_bytes, entry.checksum);
        if is_stream(dest) {
            let mut object = self.open_object(id)?.file;
            let written = stream::open(dest, OFlags::NOCTTY)
                .and_then(|mut to| io::copy(&mut object, &mut to));
            self.drop_damaged(id, entry);
            return written.map(drop).map_err(failed);
        }
        // The umask cannot be read without changing it. This folder was made with what the umask
        // leaves of 0777.
        let allowed = fs::metadata(self.dir().join(OBJECTS)).map_err(failed)?.permissions().mode();
        let mode = output_mode(mode.bits(), dest) & allowed;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let out = || {
            rustix::fs::chmodat(
                self.objects(),
                &name,
                Mode::from_bits_truncate(mode),
                AtFlags::empty(),
            )?;
            let times = Timestamps { last_access: now, last_modification: now };
            rustix::fs::utimensat(self.objects(), &name, &times, AtFlags::empty())?;
            if replaces {
                return rustix::fs::renameat(self.objects(), &name, CWD, dest);
            }
            match rustix::fs::renameat_with(
                self.objects(),
                &name,
                CWD,
                dest,
                RenameFlags::NOREPLACE,
            ) {
                // Network file systems do not support this flag, but they have hard links.
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
