//! Folders as one file, in which nodes give them to each other: folders that commands have made.
//! A packed folder has names, content, permissions (without set-user-id, set-group-id and sticky
//! bits), times, symbolic links, and files with several names; owners and extended attributes are
//! left out. Entries are in the order of their names, so the same folder gives the same bytes.
//!
//! ```text
//! "eyas folder 1\n", then entries, each a byte and what belongs to it; numbers are little-endian
//! D   a folder: name, mode, then its entries up to `.`
//! F   a file: name, mode, time, size u64, content
//! N   a file with several names: the same; its later names are `H` with its number, from 0
//! H   another name of such a file: name, number u64
//! L   a symbolic link: name, target
//! .   the end of a folder: mode, time; the last one ends the file
//! ```
//!
//! Names and targets are a length u32 and bytes; modes are u32, times are seconds i64 and
//! nanoseconds u32.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use thiserror::Error;

const MAGIC: &[u8; 14] = b"eyas folder 1\n";

/// Bytes of the content of files between two calls of `may_continue`, and the size of buffers.
const BUFFER_BYTES: usize = 256 << 10;

/// Longest name or target: the longest path of Linux.
const MAX_NAME_BYTES: u32 = 4096;

/// Unit in which the system tells what a file takes on the disk.
const BLOCK_BYTES: u64 = 512;

/// A file may be larger than what it takes on the disk by at most this: its holes are filled with
/// zeros.
const MAX_HOLES_BYTES: u64 = 1 << 20;

/// Most folders in each other.
const MAX_DEPTH: usize = 512;

/// Why a folder cannot be packed or unpacked.
#[derive(Debug, Error)]
pub enum PackError {
    /// A file or folder cannot be read or written.
    #[error("{}: {error}", path.display())]
    Disk {
        /// Its path.
        path: PathBuf,
        /// What has failed.
        error: io::Error,
    },
    /// Something that is no file, folder or symbolic link.
    #[error("{} is no file, folder or symbolic link", .0.display())]
    Special(PathBuf),
    /// A file with holes, which would be filled.
    #[error("{} has holes", .0.display())]
    Sparse(PathBuf),
    /// Folders are in each other too deeply.
    #[error("{} is more than {MAX_DEPTH} folders deep", .0.display())]
    Deep(PathBuf),
    /// The file is no packed folder.
    #[error("the packed folder is damaged: {0}")]
    Damaged(&'static str),
    /// The caller wants it no longer.
    #[error("the task was stopped")]
    Stopped,
}

impl PackError {
    fn disk(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |error| PackError::Disk { path: path.to_owned(), error }
    }

    /// Whether the disk is full.
    pub fn is_no_room(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, PackError::Disk { error, .. } if full.contains(&error.kind()))
    }
}

/// Packs a folder into a new file at a path. Goes on as long as `may_continue` returns true.
///
/// # Errors
/// If something in the folder is not readable, or cannot be packed; if the disk fails.
pub fn pack(folder: &Path, into: &Path, may_continue: &dyn Fn() -> bool) -> Result<(), PackError> {
    let file = File::create_new(into).map_err(PackError::disk(into))?;
    let mut packer = Packer {
        into: BufWriter::with_capacity(BUFFER_BYTES, file),
        path: into,
        linked: HashMap::new(),
        may_continue,
    };
    packer.write(MAGIC)?;
    packer.folder(folder, 0)?;
    packer.into.flush().map_err(PackError::disk(into))
}

/// Unpacks a folder from a file into a new folder at a path. Goes on as long as `may_continue`
/// returns true.
///
/// # Errors
/// If the file is no packed folder; if the disk fails.
pub fn unpack(file: File, folder: &Path, may_continue: &dyn Fn() -> bool) -> Result<(), PackError> {
    let from = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut unpacker = Unpacker { from, linked: Vec::new(), may_continue };
    if unpacker.bytes::<14>()? != *MAGIC {
        return Err(PackError::Damaged("it does not begin as one"));
    }
    fs::create_dir(folder).map_err(PackError::disk(folder))?;
    unpacker.folder(folder, 0)?;
    match unpacker.from.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(PackError::Damaged("something follows its end")),
        Err(error) => Err(PackError::disk(folder)(error)),
    }
}

struct Packer<'a> {
    into: BufWriter<File>,
    path: &'a Path,
    /// The numbers of files with several names, by file system and inode.
    linked: HashMap<(u64, u64), u64>,
    may_continue: &'a dyn Fn() -> bool,
}

impl Packer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.into.write_all(bytes).map_err(PackError::disk(self.path))
    }

    fn name(&mut self, kind: u8, name: &[u8]) -> Result<(), PackError> {
        self.write(&[kind])?;
        self.text(name)
    }

    fn text(&mut self, text: &[u8]) -> Result<(), PackError> {
        self.write(&(text.len() as u32).to_le_bytes())?;
        self.write(text)
    }

    fn mode_and_time(&mut self, found: &Metadata) -> Result<(), PackError> {
        self.write(&(found.mode() & 0o777).to_le_bytes())?;
        self.write(&found.mtime().to_le_bytes())?;
        self.write(&(found.mtime_nsec() as u32).to_le_bytes())
    }

    /// The entries of a folder, and its end.
    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), PackError> {
        if depth > MAX_DEPTH {
            return Err(PackError::Deep(folder.to_owned()));
        }
        let failed = PackError::disk(folder);
        let entries = fs::read_dir(folder).map_err(&failed)?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>().map_err(&failed)?;
        names.sort_unstable();
        for name in names {
            if !(self.may_continue)() {
                return Err(PackError::Stopped);
            }
            self.entry(&folder.join(&name), name.as_bytes(), depth)?;
        }
        self.write(b".")?;
        self.mode_and_time(&fs::metadata(folder).map_err(failed)?)
    }

    fn entry(&mut self, path: &Path, name: &[u8], depth: usize) -> Result<(), PackError> {
        let failed = PackError::disk(path);
        let found = fs::symlink_metadata(path).map_err(&failed)?;
        if found.is_dir() {
            self.name(b'D', name)?;
            return self.folder(path, depth + 1);
        }
        if found.is_symlink() {
            self.name(b'L', name)?;
            return self.text(fs::read_link(path).map_err(failed)?.as_os_str().as_bytes());
        }
        if !found.is_file() {
            return Err(PackError::Special(path.to_owned()));
        }
        if found.len() > found.blocks() * BLOCK_BYTES + MAX_HOLES_BYTES {
            return Err(PackError::Sparse(path.to_owned()));
        }
        let mut kind = b'F';
        if found.nlink() > 1 {
            let next = self.linked.len() as u64;
            let number = *self.linked.entry((found.dev(), found.ino())).or_insert(next);
            if number != next {
                self.name(b'H', name)?;
                return self.write(&number.to_le_bytes());
            }
            kind = b'N';
        }
        self.name(kind, name)?;
        self.mode_and_time(&found)?;
        self.write(&found.len().to_le_bytes())?;
        let content = File::open(path).map_err(&failed)?;
        copy((content, path), (&mut self.into, self.path), found.len(), self.may_continue)
    }
}

struct Unpacker<'a> {
    from: BufReader<File>,
    /// Paths of the files with several names, by their numbers.
    linked: Vec<PathBuf>,
    may_continue: &'a dyn Fn() -> bool,
}

impl Unpacker<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], PackError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|_| PackError::Damaged("it ends early"))?;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<PathBuf, PackError> {
        let length = u32::from_le_bytes(self.bytes()?);
        if length > MAX_NAME_BYTES {
            return Err(PackError::Damaged("a name is too long"));
        }
        let mut text = vec![0; length as usize];
        self.from.read_exact(&mut text).map_err(|_| PackError::Damaged("it ends early"))?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(text)))
    }

    /// A name in a folder, as a path. Never one outside of the folder.
    fn name(&mut self, folder: &Path) -> Result<PathBuf, PackError> {
        let name = self.text()?;
        match name.as_os_str().as_bytes() {
            b"" | b"." | b".." => Err(PackError::Damaged("a name is none")),
            bytes if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => {
                Err(PackError::Damaged("a name is a path"))
            }
            _ => Ok(folder.join(name)),
        }
    }

    fn mode_and_time(&mut self) -> Result<(u32, Timespec), PackError> {
        let mode = u32::from_le_bytes(self.bytes()?) & 0o777;
        let tv_sec = i64::from_le_bytes(self.bytes()?);
        let tv_nsec = u32::from_le_bytes(self.bytes()?).min(999_999_999).into();
        Ok((mode, Timespec { tv_sec, tv_nsec }))
    }

    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), PackError> {
        if depth > MAX_DEPTH {
            return Err(PackError::Damaged("it is too deep"));
        }
        loop {
            if !(self.may_continue)() {
                return Err(PackError::Stopped);
            }
            let [kind] = self.bytes()?;
            match kind {
                b'D' => {
                    let path = self.name(folder)?;
                    fs::create_dir(&path).map_err(PackError::disk(&path))?;
                    self.folder(&path, depth + 1)?;
                }
                b'F' | b'N' => self.file(folder, kind == b'N')?,
                b'H' => {
                    let path = self.name(folder)?;
                    let number = usize::try_from(u64::from_le_bytes(self.bytes()?)).ok();
                    let first = number.and_then(|number| self.linked.get(number));
                    let first = first.ok_or(PackError::Damaged("a link leads nowhere"))?;
                    fs::hard_link(first, &path).map_err(PackError::disk(&path))?;
                }
                b'L' => {
                    let (path, target) = (self.name(folder)?, self.text()?);
                    let linked = std::os::unix::fs::symlink(target, &path);
                    linked.map_err(PackError::disk(&path))?;
                }
                b'.' => {
                    let (mode, time) = self.mode_and_time()?;
                    return set(folder, mode, time);
                }
                _ => return Err(PackError::Damaged("an entry is of no kind")),
            }
        }
    }

    fn file(&mut self, folder: &Path, has_names: bool) -> Result<(), PackError> {
        let path = self.name(folder)?;
        let (mode, time) = self.mode_and_time()?;
        let size_bytes = u64::from_le_bytes(self.bytes()?);
        let mut file = File::create_new(&path).map_err(PackError::disk(&path))?;
        let may_continue = self.may_continue;
        copy((&mut self.from, &path), (&mut file, &path), size_bytes, may_continue)?;
        set(&path, mode, time)?;
        if has_names {
            self.linked.push(path);
        }
        Ok(())
    }
}

/// Sets the mode of a new file or folder, and the time of its last change.
fn set(path: &Path, mode: u32, time: Timespec) -> Result<(), PackError> {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: now, last_modification: time };
    let timed = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    timed.map_err(|errno| PackError::disk(path)(errno.into()))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(PackError::disk(path))
}

/// Copies the content of a file.
fn copy(
    (mut from, from_path): (impl Read, &Path),
    (into, into_path): (&mut impl Write, &Path),
    size_bytes: u64,
    may_continue: &dyn Fn() -> bool,
) -> Result<(), PackError> {
    let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(size_bytes).unwrap_or(usize::MAX))];
    let mut left = size_bytes;
    while left > 0 {
        if !may_continue() {
            return Err(PackError::Stopped);
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = match from.read(&mut buffer[..most]) {
            Ok(0) => return Err(PackError::Damaged("it ends early")),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(PackError::disk(from_path)(error)),
        };
        into.write_all(&buffer[..read]).map_err(PackError::disk(into_path))?;
        left -= read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(folder: &Path) -> Vec<u8> {
        let into = tempfile::tempdir().unwrap();
        pack(folder, &into.path().join("packed"), &|| true).unwrap();
        fs::read(into.path().join("packed")).unwrap()
    }

    fn unpacked(bytes: &[u8], at: &Path) -> Result<(), PackError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        unpack(file, at, &|| true)
    }

    fn sample(at: &Path) {
        fs::create_dir_all(at.join("a/empty")).unwrap();
        fs::create_dir_all(at.join("b")).unwrap();
        fs::write(at.join("a/text"), "text\n".repeat(100_000)).unwrap();
        fs::hard_link(at.join("a/text"), at.join("b/same")).unwrap();
        fs::write(at.join("b/tool"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(at.join("b/tool"), Permissions::from_mode(0o555)).unwrap();
        std::os::unix::fs::symlink("../a/text", at.join("b/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at.join("b/broken")).unwrap();
        let odd = std::ffi::OsString::from_vec(b"odd\xff name".to_vec());
        fs::write(at.join(odd), "").unwrap();
        let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        set(&at.join("b/tool"), 0o555, time).unwrap();
        set(&at.join("a/empty"), 0o500, time).unwrap();
    }

    #[test]
    fn a_folder_is_the_same_after_it_was_packed_and_packs_alike() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (home.path().join("one"), home.path().join("other"));
        fs::create_dir(&one).unwrap();
        sample(&one);
        let bytes = packed(&one);
        unpacked(&bytes, &other).unwrap();
        assert!(packed(&other) == bytes);
        assert_eq!(fs::read(other.join("b/link")).unwrap().len(), 500_000);
        let ino = |name: &str| fs::metadata(other.join(name)).unwrap().ino();
        assert_eq!(ino("a/text"), ino("b/same"));
        let tool = fs::metadata(other.join("b/tool")).unwrap();
        assert_eq!((tool.mode() & 0o777, tool.mtime()), (0o555, 1_000_000_000));
        assert_eq!(fs::read_link(other.join("b/broken")).unwrap(), Path::new("nowhere"));
    }

    #[test]
    fn what_is_cut_or_leads_outside_is_damaged_and_what_cannot_be_packed_is_said() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("folder");
        fs::create_dir(&folder).unwrap();
        sample(&folder);
        let bytes = packed(&folder);
        for cut in [0, 10, 20, 300, bytes.len() - 1] {
            let why = unpacked(&bytes[..cut], &home.path().join(format!("cut{cut}"))).unwrap_err();
            assert!(matches!(why, PackError::Damaged(_)), "{cut}: {why}");
        }
        let more = [&bytes[..], b"x"].concat();
        assert!(unpacked(&more, &home.path().join("more")).is_err());
        for name in ["..", "a/b", "/etc/x", "", "."] {
            let mut bytes = MAGIC.to_vec();
            bytes.push(b'L');
            for text in [name, "target"] {
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            let at = tempfile::tempdir().unwrap();
            let why = unpacked(&bytes, &at.path().join("x")).unwrap_err();
            assert!(why.to_string().contains("a name is"), "{name}: {why}");
        }
        rustix::fs::mknodat(
            CWD,
            folder.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let why = pack(&folder, &home.path().join("packed"), &|| true).unwrap_err();
        assert!(matches!(why, PackError::Special(_)), "{why}");
        let stopped = pack(&folder, &home.path().join("stopped"), &|| false).unwrap_err();
        assert!(matches!(stopped, PackError::Stopped), "{stopped}");
    }

    fn open_up(folder: &Path) {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open_up(&entry.path());
            }
        }
    }

    /// Bytes from another node do no harm, whatever they are.
    #[test]
    fn changed_bytes_are_unpacked_inside_the_folder_or_refused() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("folder");
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("x"), "text").unwrap();
        fs::hard_link(folder.join("x"), folder.join("a/y")).unwrap();
        std::os::unix::fs::symlink("x", folder.join("link")).unwrap();
        let bytes = packed(&folder);
        let into = home.path().join("into");
        for at in 0..bytes.len() {
            for byte in [0, b'.', b'/', b'D', b'F', b'H', b'L', 0xff, bytes[at] ^ 1] {
                let mut bytes = bytes.clone();
                bytes[at] = byte;
                fs::create_dir(&into).unwrap();
                let _ = unpacked(&bytes, &into.join("out"));
                let beside: Vec<_> = fs::read_dir(&into).unwrap().flatten().collect();
                assert!(beside.iter().all(|entry| entry.file_name() == "out"), "{beside:?}");
                open_up(&into);
                fs::remove_dir_all(&into).unwrap();
            }
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
