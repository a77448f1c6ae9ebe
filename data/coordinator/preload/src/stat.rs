//! Identity and size of a descriptor's file, as far as the kernel knows them without asking the
//! storage. `fstat` may ask the storage, on FUSE after each write; a call that is about to wait for
//! a turn there must not do that first.

use rustix::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, fstat, makedev, statx};

/// Fields as in `stat(2)`.
pub(crate) struct Stat {
    pub st_dev: u64,
    pub st_ino: u64,
    pub st_mode: u32,
    pub st_size: i64,
}

impl Stat {
    /// `None` if the descriptor is not open.
    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> Option<Stat> {
        let (flags, wanted) =
            (AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS);
        if let Ok(found) = statx(descriptor, c"", flags, wanted) {
            return Some(Stat {
                st_dev: makedev(found.stx_dev_major, found.stx_dev_minor),
                st_ino: found.stx_ino,
                st_mode: found.stx_mode.into(),
                st_size: i64::try_from(found.stx_size).unwrap_or(i64::MAX),
            });
        }
        // Some sandboxes forbid `statx`.
        let found = fstat(descriptor).ok()?;
        Some(Stat {
            st_dev: found.st_dev,
            st_ino: found.st_ino,
            st_mode: found.st_mode,
            st_size: found.st_size,
        })
    }
}
