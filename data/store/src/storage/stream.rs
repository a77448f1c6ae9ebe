//! Devices and pipes as destinations of outputs: they are written to, and not replaced.

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

/// Whether `path` leads to a device or a pipe. Such a file is written to, and not replaced.
pub(crate) fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|there| there.file_type());
    kind.is_ok_and(|kind| kind.is_char_device() || kind.is_block_device() || kind.is_fifo())
}

/// Time between two looks whether an output that waits for the reader of its pipe is still wanted.
const READER_CHECK_MS: i64 = 100;

/// Writes an output into a device or a pipe. Waits for the reader of the pipe as long as the output `is_wanted`.
pub(super) fn write(
    from: &Path,
    path: &Path,
    url: &Name,
    is_wanted: &(dyn Fn() -> bool + Sync),
) -> Result<ObjectSpec, StorageError> {
    let failed = |error: io::Error| StorageError::file("write", url, &error);
    let unreadable = |error: io::Error| StorageError::local(format!("cannot read `{}`", from.display()), error);
    let pause = || match is_wanted() {
        true => Ok(()),
        false => Err(StorageError::new(StorageErrorKind::Withdrawn, "it is no longer wanted")),
    };
    let mut source = File::open(from).map_err(unreadable)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let mut stream = loop {
        pause()?;
        match File::options().write(true).custom_flags(flags).open(path) {
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
