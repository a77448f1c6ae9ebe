//! The version of a file. Bytes that another node has read count only if the file has the same
//! version on this node.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp, makedev, statx};

use crate::parts::PartFile;

/// From where the version is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOf {
    /// From the kernel, which asks the storage if a read would make it ask.
    Kernel,
    /// From the storage, now.
    Storage,
}

impl PartFile {
    /// The present version of an open file. `None` if the system does not tell it.
    pub fn of(file: impl AsFd, of: VersionOf) -> Option<PartFile> {
        let sync = match of {
            VersionOf::Kernel => AtFlags::empty(),
            VersionOf::Storage => AtFlags::STATX_FORCE_SYNC,
        };
        let found = statx(file, c"", AtFlags::EMPTY_PATH | sync, StatxFlags::BASIC_STATS).ok()?;
        Some(PartFile {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size_bytes: found.stx_size,
            modified_ns: nanoseconds(&found.stx_mtime),
            changed_ns: nanoseconds(&found.stx_ctime),
        })
    }
}

fn nanoseconds(time: &StatxTimestamp) -> u64 {
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.into())
}
