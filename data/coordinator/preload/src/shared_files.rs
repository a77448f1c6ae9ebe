//! Which files are ordered: those below the configured paths; without any, those on file systems
//! that nodes share.

use core::ffi::{CStr, c_int};
use rustix::fd::BorrowedFd;

use rustix::fs::{FileType, OFlags};

use crate::descriptors::{Descriptor, StorageKind, WritePath};
use crate::environment::PATHS;
use crate::stat::Stat;

/// Longest path that is compared. It lies on the stack, which may be a small one in signal
/// handlers; so a folder with a longer path cannot be configured.
const PATH_BYTES: usize = 1024;

/// File systems that nodes share, by their magic number in `statfs(2)`.
const SHARED: &[u32] = &[
    0x6969,      // NFS
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x00c3_6400, // Ceph
    0x6573_5546, // FUSE: SSHFS, GlusterFS, CernVM-FS and others
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and later
    0x2003_0528, // OrangeFS
    0xaad7_aaea, // PanFS
    0x7461_636f, // OCFS2
    0x0116_1970, // GFS2
    0x5346_414f, // AFS
    0x0102_1997, // 9P
];

/// Those of them that pass each write on to the storage. FUSE can be configured not to, which
/// cannot be seen from outside; then an unneeded turn is asked for.
const PASS_THROUGH: &[u32] = &[0x6573_5546, 0x0102_1997, 0x2003_0528];

/// Those of them whose `close` waits until the storage has all written bytes.
const TILL_CLOSE: &[u32] = &[0x6969, 0x1983_0326, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f];

/// Determines what an open descriptor refers to.
pub(crate) fn learn(known: &Descriptor, descriptor: BorrowedFd<'_>, number: c_int, stat: &Stat) {
    let file = (stat.st_dev, stat.st_ino);
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return known.learn(StorageKind::NotShared, WritePath::Buffered, false, file);
    }
    let system = rustix::fs::fstatfs(descriptor).map_or(0, |system| system.f_type as u32);
    let flags = rustix::fs::fcntl_getfl(descriptor).unwrap_or(OFlags::empty());
    let storage = match flags {
        _ if !is_ordered(number, system) || flags.contains(OFlags::PATH) => StorageKind::NotShared,
        _ if flags.contains(OFlags::DIRECT) => StorageKind::Direct,
        _ => StorageKind::Shared,
    };
    let writes = match system {
        _ if flags.intersects(OFlags::DIRECT | OFlags::DSYNC) || PASS_THROUGH.contains(&system) => {
            WritePath::PassThrough
        }
        _ if TILL_CLOSE.contains(&system) => WritePath::BufferedUntilClose,
        _ => WritePath::Buffered,
    };
    known.learn(storage, writes, flags.contains(OFlags::APPEND), file);
}

fn is_ordered(number: c_int, system: u32) -> bool {
    let Some(named) = PATHS.get() else { return SHARED.contains(&system) };
    let mut room = [0_u8; PATH_BYTES];
    let mut paths = named.to_bytes().split(|byte| *byte == b':');
    path_of(number, &mut room).is_some_and(|path| paths.any(|named| is_below(path, named)))
}

/// Path of a descriptor as the kernel knows it.
fn path_of(number: c_int, room: &mut [u8; PATH_BYTES]) -> Option<&[u8]> {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut end = b"/proc/self/fd/".len();
    let mut place = 1_000_000_000;
    while place > 0 {
        let digit = number / place % 10;
        if digit > 0 || end > b"/proc/self/fd/".len() || place == 1 {
            link[end] = b'0' + u8::try_from(digit).ok()?;
            end += 1;
        }
        place /= 10;
    }
    let link = CStr::from_bytes_until_nul(&link).ok()?;
    let bytes = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, room.as_mut_slice()).ok()?;
    room.get(..bytes)
}

fn is_below(path: &[u8], folder: &[u8]) -> bool {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
