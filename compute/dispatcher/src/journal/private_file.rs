//! Files that only their owner reads and writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the file, and makes it if it is not there, so that only its owner can read what commands
/// were run and what they wrote.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
