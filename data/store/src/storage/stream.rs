//! Devices, pipes and open files of processes as destinations of outputs: they are written to, and
//! not replaced.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use eyas_types::{FileMode, Name, ObjectSpec, Version};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, Timespec};
use rustix::io::Errno;

use super::CHUNK_BYTES;
use crate::error::{StorageError, StorageErrorKind};

/// Links that lead to a destination.
const MAX_LINKS: usize = 40;

/// Whether `path` leads to a device, a pipe or an open file of a process. Such a file is written
/// to, and not replaced.
pub(crate) fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|there| there.file_type());
    kind.is_ok_and(|kind| {
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || is_open_file(path)
    })
}

/// Whether `path` leads to an open file of a process, as `/dev/stdout` does.
fn is_open_file(path: &Path) -> bool {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Ok(folder) = fs::canonicalize(folder) else { return false };
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            return true;
        }
        let Ok(target) = fs::read_link(folder.join(name)) else { return false };
        path = folder.join(target);
    }
    false
}

/// Opens such a file. What a regular file has stays.
pub(crate) fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    File::options().append(true).custom_flags(flags.bits() as i32).open(path)
}

/// Time between two looks whether an output that waits for the reader of its pipe is still wanted.
const READER_CHECK_MS: i64 = 100;

/// Writes an output into a device, a pipe or an open file. Waits for the reader of a pipe as long
/// as the output `is_wanted`.
pub(super) fn write(
    from: &Path,
    path: &Path,
    url: &Name,
    is_wanted: &(dyn Fn() -> bool + Sync),
) -> Result<ObjectSpec, StorageError> {
    let failed = |error: io::Error| StorageError::file("write", url, &error);
    let unreadable =
        |error: io::Error| StorageError::local(format!("cannot read `{}`", from.display()), error);
    let pause = || match is_wanted() {
        true => Ok(()),
        false => Err(StorageError::new(StorageErrorKind::Withdrawn, "it is no longer wanted")),
    };
    let mut source = File::open(from).map_err(unreadable)?;
    let mut stream = loop {
        pause()?;
        match open(path, OFlags::NONBLOCK | OFlags::NOCTTY) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                std::thread::sleep(Duration::from_millis(READER_CHECK_MS as u64));
            }
            opened => break opened.map_err(failed)?,
        }
    };
    let (mut buffer, mut size_bytes) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = source.read(&mut buffer).map_err(unreadable)?;
        if count == 0 {
            break;
        }
        size_bytes += count as u64;
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    pause()?;
                    let timeout = Timespec { tv_sec: 0, tv_nsec: READER_CHECK_MS * 1_000_000 };
                    // After an error, the next write says what is wrong.
                    let _ = poll(&mut [PollFd::new(&stream, PollFlags::OUT)], Some(&timeout));
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
    // What was written cannot be read again, so it has no version.
    let version = Version::Modified { mtime_ns: 0, size_bytes };
    Ok(ObjectSpec { source: url.clone(), version, mode: FileMode::READABLE })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_open_file_of_a_process_is_written_to_behind_all_links() {
        let folder = tempfile::tempdir().unwrap();
        let [printed, link, plain] =
            ["printed", "link", "plain"].map(|name| folder.path().join(name));
        fs::write(&printed, "before ").unwrap();
        let file = File::options().append(true).open(&printed).unwrap();
        symlink("/proc/self/fd", folder.path().join("fd")).unwrap();
        symlink(format!("fd/{}", file.as_raw_fd()), &link).unwrap();
        symlink("printed", &plain).unwrap();
        assert!(is_stream(&link) && !is_stream(&plain) && !is_stream(&printed));
        open(&link, OFlags::NOCTTY).unwrap().write_all(b"output").unwrap();
        assert_eq!(fs::read_to_string(&printed).unwrap(), "before output");
        let circle = folder.path().join("circle");
        symlink("circle", &circle).unwrap();
        assert!(
            !is_stream(&circle)
                && !is_stream(Path::new("nowhere"))
                && is_stream(Path::new("/dev/null"))
        );
    }
}
