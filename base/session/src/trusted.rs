//! Decides whether other users could replace what a path names. Everything that reads code, keys or
//! pickles, or loads a library, asks here first, or has a
//! [`PrivateFolder`](crate::private::PrivateFolder), which asks here.
//!
//! The rule is that of `ssh` for its own files. Each folder above belongs to this user or to root,
//! and only its owner can write to it; a sticky folder such as `/tmp` may be open to all, because
//! other users cannot replace entries there. A link on the way belongs to this user or to root,
//! too. So a path that was checked leads to the same place later.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use thiserror::Error;

/// Why a folder or a file is not private.
#[derive(Debug, Error)]
pub enum PrivateError {
    /// Another user owns it.
    #[error(
        "{path} belongs to another user (uid {owner}), who could read or replace its content: use \
         a folder of your own (with EYAS_HOME, EYAS_CACHE, TMPDIR, --access, --folder or objects=)"
    )]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// Other users can write to it.
    #[error(
        "other users can write to {path} (mode {mode:o}): run `chmod go-w {path}`, or `chmod +t \
         {path}` if the folder is to be shared, or use another folder (with EYAS_HOME, \
         EYAS_CACHE, TMPDIR, --access, --folder or objects=)"
    )]
    Writable {
        /// The folder.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// Other users can read or write it.
    #[error("other users can read or write {path} (mode {mode:o})")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// It is not of the expected kind.
    #[error("{path} is not a {expected}")]
    OtherKind {
        /// The path.
        path: PathBuf,
        /// The expected kind.
        expected: &'static str,
    },
    /// A system call has failed.
    #[error("cannot use {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// The user id that the system shows for owners that this namespace does not know.
pub(crate) const UNKNOWN_USER: u32 = 65_534;

/// Largest number of links that are followed on one way, as in the kernel.
const MAX_LINKS: usize = 40;

/// Checks a folder in which this user's files are read by name. Missing folders are made with this
/// mode. Returns its path without links.
///
/// # Errors
/// If the folder cannot be made, or another user can replace files of this user in it.
pub fn folder(path: &Path, mode: u32) -> Result<PathBuf, PrivateError> {
    let real = walk(path, Some(mode))?;
    let found = rustix::fs::stat(&real).map_err(|e| failed(&real)(e.into()))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => check_above(&real, &found)?,
        _ => return Err(PrivateError::OtherKind { path: real, expected: "folder" }),
    }
    Ok(real)
}

/// Checks a file that this user or root has made. Returns its path without links.
///
/// # Errors
/// If there is no such file, or another user can write to it or replace it.
pub fn file(path: &Path) -> Result<PathBuf, PrivateError> {
    let real = walk(path, None)?;
    let found = rustix::fs::lstat(&real).map_err(|e| failed(&real)(e.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(PrivateError::OtherKind { path: real, expected: "file" });
    }
    check_own_or_root(&real, &found)?;
    check_mode(&real, &found)?;
    Ok(real)
}

/// Follows a path, and checks each folder before a name in it is used, and each link. The last
/// entry is not checked. Missing folders are made with `new_mode`. Returns the path without links.
pub(crate) fn walk(path: &Path, new_mode: Option<u32>) -> Result<PathBuf, PrivateError> {
    let mut left = std::path::absolute(path).map_err(failed(path))?;
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    loop {
        let mut names = left.components();
        let Some(name) = names.next() else { return Ok(at) };
        let mut rest = names.as_path().to_owned();
        match name {
            Component::Normal(name) => {
                let above = rustix::fs::stat(&at).map_err(|e| failed(&at)(e.into()))?;
                check_above(&at, &above)?;
                let entry = at.join(name);
                let found =
                    found_or_made(&entry, new_mode).map_err(|e| failed(&entry)(e.into()))?;
                if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
                    check_own_or_root(&entry, &found)?;
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(failed(&entry)(Errno::LOOP.into()));
                    }
                    rest = fs::read_link(&entry).map_err(failed(&entry))?.join(rest);
                } else {
                    at = entry;
                }
            }
            Component::ParentDir => _ = at.pop(),
            Component::RootDir => at = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => {}
        }
        left = rest;
    }
}

fn found_or_made(entry: &Path, new_mode: Option<u32>) -> rustix::io::Result<Stat> {
    match (rustix::fs::lstat(entry), new_mode) {
        (Err(Errno::NOENT), Some(mode)) => {
            match rustix::fs::mkdir(entry, Mode::from_raw_mode(mode)) {
                // Another process may have made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => rustix::fs::lstat(entry),
                Err(e) => Err(e),
            }
        }
        (found, _) => found,
    }
}

/// Checks that this user owns an entry.
pub(crate) fn check_owner(path: &Path, found: &Stat) -> Result<(), PrivateError> {
    if found.st_uid != geteuid().as_raw() {
        return Err(PrivateError::Foreign { path: path.to_owned(), owner: found.st_uid });
    }
    Ok(())
}

/// Checks that only the owner can write to an entry.
pub(crate) fn check_mode(path: &Path, found: &Stat) -> Result<(), PrivateError> {
    if found.st_mode & 0o022 != 0 {
        return Err(PrivateError::Writable { path: path.to_owned(), mode: found.st_mode & 0o7777 });
    }
    Ok(())
}

/// Checks that no other user can replace this user's entries of a folder.
fn check_above(path: &Path, found: &Stat) -> Result<(), PrivateError> {
    check_own_or_root(path, found)?;
    let is_sticky = found.st_mode & 0o1000 != 0;
    if is_sticky { Ok(()) } else { check_mode(path, found) }
}

fn check_own_or_root(path: &Path, found: &Stat) -> Result<(), PrivateError> {
    let owner = found.st_uid;
    if owner == 0 || owner == UNKNOWN_USER && hides_users() {
        Ok(())
    } else {
        check_owner(path, found)
    }
}

/// Whether this process is in a container that maps only some users. Folders of the host's root
/// then show [`UNKNOWN_USER`] as their owner.
fn hides_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let known: u64 =
        map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum();
    known < u64::from(u32::MAX)
}

pub(crate) fn failed(path: &Path) -> impl FnOnce(io::Error) -> PrivateError {
    let path = path.to_owned();
    move |source| PrivateError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    const STRANGER: Option<u32> = Some(4321);

    /// Changes of `above/place/file`, and of the link `above/link` that leads to `place`: whether
    /// this user may read files by name in `place` and in `link`, and the file.
    #[test]
    fn files_that_another_user_could_replace_are_refused() {
        type Change = fn(&Path);
        let table: &[(&str, Change, [bool; 3], bool)] = &[
            ("as made", |_| {}, [true; 3], false),
            ("sticky above", |above| set_mode(above, 0o1777), [true; 3], false),
            ("open above", |above| set_mode(above, 0o777), [false; 3], false),
            ("group above", |above| set_mode(above, 0o775), [false; 3], false),
            ("open folder", |above| set_mode(&above.join("place"), 0o777), [false; 3], false),
            ("sticky folder", |above| set_mode(&above.join("place"), 0o1777), [true; 3], false),
            (
                "open file",
                |above| set_mode(&above.join("place/file"), 0o666),
                [true, true, false],
                false,
            ),
            (
                "their file",
                |above| chown(above.join("place/file"), STRANGER, None).unwrap(),
                [true, true, false],
                true,
            ),
            (
                "their folder",
                |above| chown(above.join("place"), STRANGER, None).unwrap(),
                [false; 3],
                true,
            ),
            ("their folder above", |above| chown(above, STRANGER, None).unwrap(), [false; 3], true),
            (
                "their link",
                |above| lchown(above.join("link"), STRANGER, None).unwrap(),
                [true, false, true],
                true,
            ),
        ];
        for (which, change, right, needs_root) in table {
            if *needs_root && !geteuid().is_root() {
                continue;
            }
            let outer = tempfile::tempdir().unwrap();
            let above = outer.path().join("above");
            fs::create_dir_all(above.join("place")).unwrap();
            fs::write(above.join("place/file"), "").unwrap();
            for (name, mode) in [("", 0o755), ("place", 0o755), ("place/file", 0o644)] {
                set_mode(&above.join(name), mode);
            }
            symlink("place", above.join("link")).unwrap();
            change(&above);
            let allowed = [
                folder(&above.join("place"), 0o755).is_ok(),
                folder(&above.join("link"), 0o755).is_ok(),
                file(&above.join("place/file")).is_ok(),
            ];
            assert_eq!(allowed, *right, "{which}");
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn missing_folders_are_made_only_where_no_other_user_could_replace_them() {
        let outer = tempfile::tempdir().unwrap();
        let real = outer.path().canonicalize().unwrap();
        symlink("inner", real.join("link")).unwrap();
        assert_eq!(folder(&real.join("link/./deep/../er"), 0o755).unwrap(), real.join("inner/er"));
        assert_eq!(fs::metadata(real.join("inner/deep")).unwrap().permissions().mode() & 0o7022, 0);
        set_mode(&real.join("inner"), 0o777);
        assert!(matches!(
            folder(&real.join("link/other"), 0o755),
            Err(PrivateError::Writable { .. })
        ));
        assert!(!real.join("inner/other").exists());
        symlink("circle", real.join("circle")).unwrap();
        assert!(matches!(folder(&real.join("circle/x"), 0o755), Err(PrivateError::Io { .. })));
        assert!(matches!(file(&real.join("missing/x")), Err(PrivateError::Io { .. })));
        assert!(!real.join("missing").exists());
    }
}
