//! Extended attributes of entries, which may be longer than a program has room for.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::{getxattr, getxattr_query, listxattr, listxattr_query};
use rustix::io::{Errno, Result};

/// Largest value and largest list of names in Linux.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// Default access control list of a folder, which new entries inherit.
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// Answer to a program that asks for a value or for the list of names.
pub(crate) enum ExtendedAnswer {
    /// The program has asked for the size, bytes.
    Size(u32),
    Data(Vec<u8>),
}

/// Value of an attribute, for a program with room for this many bytes.
pub(crate) fn value(path: &Path, name: &OsStr, room: u32) -> Result<ExtendedAnswer> {
    match room {
        0 => size(getxattr_query(path, name)?),
        _ => data(room, |into| getxattr(path, name, into)),
    }
}

/// Names of the attributes, each ended by a NUL byte.
pub(crate) fn names(path: &Path, room: u32) -> Result<ExtendedAnswer> {
    match room {
        0 => size(listxattr_query(path)?),
        _ => data(room, |into| listxattr(path, into)),
    }
}

/// Whether new entries of a folder get their rights from its default access control list.
pub(crate) fn has_default_acl(folder: &Path) -> bool {
    getxattr_query(folder, DEFAULT_ACL).is_ok_and(|bytes| bytes > 0)
}

fn size(bytes: usize) -> Result<ExtendedAnswer> {
    u32::try_from(bytes).map(ExtendedAnswer::Size).map_err(|_| Errno::TOOBIG)
}

fn data(room: u32, get: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<ExtendedAnswer> {
    let mut data = vec![0; MAX_ATTRIBUTE_BYTES.min(room as usize)];
    let bytes = get(&mut data)?;
    data.truncate(bytes);
    Ok(ExtendedAnswer::Data(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_can_ask_for_the_size_first() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("user.name");
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(folder.path(), name, b"value", flags).is_err() {
            return eprintln!("SKIPPED: the temporary folder has no extended attributes");
        }
        assert!(matches!(value(folder.path(), name, 0), Ok(ExtendedAnswer::Size(5))));
        assert!(matches!(value(folder.path(), name, 4), Err(Errno::RANGE)));
        let Ok(ExtendedAnswer::Data(data)) = value(folder.path(), name, 100) else { panic!() };
        assert_eq!(data, b"value");
        assert!(matches!(names(folder.path(), 0), Ok(ExtendedAnswer::Size(10))));
        assert!(!has_default_acl(folder.path()));
    }
}
