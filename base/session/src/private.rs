//! Folders and files that only their user can read, write or replace.
//!
//! Secrets are written through a handle on a folder that belongs to this user, and that other users
//! can neither write to nor replace ([`trusted`]). A new file is made under a temporary name, which
//! must not exist, and is renamed once it is complete.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};

pub use crate::trusted::PrivateError;
use crate::trusted::{self, check_mode, check_owner, failed};

/// Largest secret file.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// Suffix of incomplete files.
const PARTIAL: &str = ".partial";

/// The folder for temporary files. An empty `TMPDIR` counts as none, as in a shell; the standard
/// library would take it for the current folder.
pub fn temporary_folder() -> PathBuf {
    std::env::var_os("TMPDIR")
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| "/tmp".into(), PathBuf::from)
}

/// A folder of this user that no other user can write to.
#[derive(Debug)]
pub struct PrivateFolder {
    handle: OwnedFd,
    path: PathBuf,
}

impl PrivateFolder {
    /// Makes or opens a folder for secrets. Missing folders above it are made, for this user alone.
    ///
    /// # Errors
    /// If the folder cannot be made, or another user can change it or a folder above it.
    pub fn make(path: &Path) -> Result<Self, PrivateError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        PrivateFolder::claim(&trusted::walk(path, Some(0o700))?)
    }

    /// Makes or opens a folder for data, such as one on a node's disk. Folders above it may be
    /// shared with other users.
    ///
    /// # Errors
    /// If the folder cannot be made, is a link, belongs to another user, or is writable for others.
    pub fn claim(path: &Path) -> Result<Self, PrivateError> {
        let failed = |e| failed(path)(e);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
            rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => PrivateError::OtherKind {
                path: path.to_owned(),
                expected: "folder (links are not followed)",
            },
            e => failed(e.into()),
        })?;
        let found = rustix::fs::fstat(&handle).map_err(|e| failed(e.into()))?;
        check_owner(path, &found)?;
        check_mode(path, &found)?;
        Ok(PrivateFolder { handle, path: path.to_owned() })
    }

    /// Checks that no other user can enter the folder.
    ///
    /// # Errors
    /// If another user can, or the system call fails.
    pub fn check_closed(&self) -> Result<(), PrivateError> {
        let found = rustix::fs::fstat(&self.handle).map_err(|e| failed(&self.path)(e.into()))?;
        check_closed(&self.path, &found)
    }

    /// Sets the folder's mode so that only this user can enter.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn close(&self) -> Result<(), PrivateError> {
        rustix::fs::fchmod(&self.handle, Mode::RWXU).map_err(|e| failed(&self.path)(e.into()))
    }

    /// Writes a file with mode 0600, atomically and durably. An existing file is replaced.
    ///
    /// # Errors
    /// If a system call fails. Nothing of `content` is left on disk then.
    pub fn write(&self, name: &OsStr, content: &[u8]) -> Result<(), PrivateError> {
        self.put(name, content, true)
    }

    /// Like [`write`](Self::write), for a file that may be lost when the machine stops.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_for_now(&self, name: &OsStr, content: &[u8]) -> Result<(), PrivateError> {
        self.put(name, content, false)
    }

    fn put(&self, name: &OsStr, content: &[u8], is_synced: bool) -> Result<(), PrivateError> {
        let path = self.path.join(name);
        let partial = self.partial_name(name);
        let unfinished = TemporaryFile { folder: self, name: &partial };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let write = || -> io::Result<()> {
            let file =
                rustix::fs::openat(&self.handle, unfinished.name, flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = File::from(file);
            file.write_all(content)?;
            if is_synced {
                file.sync_all()?;
            }
            rustix::fs::renameat(&self.handle, unfinished.name, &self.handle, name)?;
            if is_synced {
                rustix::fs::fsync(&self.handle)?;
            }
            Ok(())
        };
        write().map_err(failed(&path))
    }

    /// Removes all files.
    ///
    /// # Errors
    /// If a system call fails.
    pub fn clear(&self) -> Result<(), PrivateError> {
        for entry in fs::read_dir(&self.path).map_err(failed(&self.path))? {
            self.remove(&entry.map_err(failed(&self.path))?.file_name())?;
        }
        Ok(())
    }

    /// Removes a file if it exists.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn remove(&self, name: &OsStr) -> Result<(), PrivateError> {
        match rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(failed(&self.path.join(name))(e.into())),
        }
    }

    /// Removes incomplete files that killed writers of `name` have left. Only the process that
    /// writes `name` may call this.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn sweep(&self, name: &OsStr) -> Result<(), PrivateError> {
        let begin = partial_prefix(name);
        for entry in fs::read_dir(&self.path).map_err(failed(&self.path))? {
            let found = entry.map_err(failed(&self.path))?.file_name();
            let bytes = found.as_encoded_bytes();
            if bytes.starts_with(begin.as_encoded_bytes()) && bytes.ends_with(PARTIAL.as_bytes()) {
                self.remove(&found)?;
            }
        }
        Ok(())
    }

    /// A temporary name that other processes cannot guess. If it exists, the file is not made.
    fn partial_name(&self, name: &OsStr) -> std::ffi::OsString {
        // Each state has random keys from the system.
        let random = RandomState::new().hash_one(std::process::id());
        let mut partial = partial_prefix(name);
        partial.push(format!("{random:016x}{PARTIAL}"));
        partial
    }
}

/// A file under its temporary name, which is removed on drop.
struct TemporaryFile<'a> {
    folder: &'a PrivateFolder,
    name: &'a OsStr,
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        // After the rename this name does not exist.
        if let Err(e) = self.folder.remove(self.name) {
            tracing::warn!("cannot remove an incomplete secret file: {e}");
        }
    }
}

/// Reads a file that only this user can read. Links are followed, and their target is checked.
///
/// # Errors
/// If the file does not exist, belongs to another user, is readable by others, or is not an
/// ordinary file.
pub fn read(path: &Path) -> Result<Vec<u8>, PrivateError> {
    // Non-blocking, because opening a pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|e| failed(path)(e.into()))?;
    let found = rustix::fs::fstat(&file).map_err(|e| failed(path)(e.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(PrivateError::OtherKind { path: path.to_owned(), expected: "file" });
    }
    check_owner(path, &found)?;
    check_closed(path, &found)?;
    let mut content = Vec::new();
    File::from(file).take(MAX_SECRET_BYTES).read_to_end(&mut content).map_err(failed(path))?;
    Ok(content)
}

fn check_closed(path: &Path, found: &Stat) -> Result<(), PrivateError> {
    if found.st_mode & 0o077 != 0 {
        return Err(PrivateError::Exposed { path: path.to_owned(), mode: found.st_mode & 0o777 });
    }
    Ok(())
}

fn partial_prefix(name: &OsStr) -> std::ffi::OsString {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    prefix
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::process::geteuid;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn folders_and_files_are_private_and_keep_their_content() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("deep/er");
        let folder = PrivateFolder::make(&path).unwrap();
        assert_eq!((mode(&path), mode(&outer.path().join("deep"))), (0o700, 0o700));
        for content in ["first", "second"] {
            folder.write("secret".as_ref(), content.as_bytes()).unwrap();
            assert_eq!(read(&path.join("secret")).unwrap(), content.as_bytes());
        }
        assert_eq!((mode(&path.join("secret")), names(&path)), (0o600, vec!["secret".to_owned()]));
    }

    /// What a folder and the one above it may be like; whether it may have secrets, and data.
    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        for (outer_mode, mode, takes_secrets, takes_data) in [
            (0o700, 0o700, true, true),
            (0o755, 0o755, true, true),
            (0o1777, 0o700, true, true),
            (0o775, 0o700, false, true),
            (0o777, 0o700, false, true),
            (0o700, 0o770, false, false),
            (0o700, 0o702, false, false),
            (0o700, 0o1777, false, false),
        ] {
            let outer = tempfile::tempdir().unwrap();
            let folder = outer.path().join("folder");
            fs::create_dir(&folder).unwrap();
            set_mode(&folder, mode);
            set_mode(outer.path(), outer_mode);
            let which = format!("{mode:o} in {outer_mode:o}");
            assert_eq!(PrivateFolder::make(&folder).is_ok(), takes_secrets, "{which}");
            assert_eq!(PrivateFolder::claim(&folder).is_ok(), takes_data, "{which}");
        }
    }

    #[test]
    fn links_and_other_things_are_no_folder() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, link, file) =
            (outer.path().join("folder"), outer.path().join("link"), outer.path().join("file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        symlink(&folder, &link).unwrap();
        assert!(matches!(PrivateFolder::claim(&link), Err(PrivateError::OtherKind { .. })));
        assert!(PrivateFolder::claim(&file).is_err());
        // A link above it is followed, and what it leads to is looked at.
        PrivateFolder::make(&link.join("inner")).unwrap();
        set_mode(&folder, 0o777);
        assert!(matches!(
            PrivateFolder::make(&link.join("inner")),
            Err(PrivateError::Writable { .. })
        ));
    }

    #[test]
    fn a_file_that_others_have_made_or_can_read_is_not_read() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("secret");
        assert!(matches!(read(&path), Err(PrivateError::Io { .. })));
        fs::write(&path, "secret").unwrap();
        for exposed in [0o644, 0o640, 0o602] {
            set_mode(&path, exposed);
            assert!(
                matches!(read(&path), Err(PrivateError::Exposed { mode, .. }) if mode == exposed),
                "{exposed:o}"
            );
        }
        set_mode(&path, 0o600);
        read(&path).unwrap();
        assert!(matches!(read(outer.path()), Err(PrivateError::OtherKind { .. })));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4321), None).unwrap();
            assert!(matches!(read(&path), Err(PrivateError::Foreign { owner: 4321, .. })));
            std::os::unix::fs::chown(outer.path(), Some(4321), None).unwrap();
            assert!(matches!(
                PrivateFolder::claim(outer.path()),
                Err(PrivateError::Foreign { owner: 4321, .. })
            ));
            let inner = outer.path().join("inner");
            assert!(matches!(
                PrivateFolder::make(&inner),
                Err(PrivateError::Foreign { owner: 4321, .. })
            ));
        }
    }

    #[test]
    fn a_secret_that_cannot_be_written_leaves_no_file() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::make(outer.path()).unwrap();
        // It is whole under its other name, and cannot take the place of a folder.
        fs::create_dir_all(outer.path().join("secret/full")).unwrap();
        folder.write("secret".as_ref(), b"key").unwrap_err();
        assert_eq!(names(outer.path()), ["secret"]);
    }

    #[test]
    fn only_partial_files_of_a_killed_writer_are_swept() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::make(outer.path()).unwrap();
        for name in
            [".keys.toml.0123.partial", ".other.toml.0123.partial", "keys.toml", ".keys.toml.swp"]
        {
            folder.write(name.as_ref(), b"").unwrap();
        }
        folder.sweep("keys.toml".as_ref()).unwrap();
        let mut left = names(outer.path());
        left.sort();
        assert_eq!(left, [".keys.toml.swp", ".other.toml.0123.partial", "keys.toml"]);
    }
}
