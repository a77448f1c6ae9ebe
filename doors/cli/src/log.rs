//! The log of this process on standard error. Lines have a time if standard error is a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write, stderr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::fs::{FileType, fstat};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::door;

/// Whether standard error is the log file of a process of a cluster.
static IS_FILE: OnceLock<bool> = OnceLock::new();

/// Starts logging to standard error. `EYAS_LOG` has the filter, in the syntax of `tracing`.
/// `is_process` is true if this command is a process of a cluster.
pub(crate) fn start(is_process: bool) {
    let is_file = || {
        fstat(stderr().as_fd())
            .is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::RegularFile)
    };
    // This is called once; a second call would set the same value.
    let _ = IS_FILE.set(is_process && is_file());
    let filter = tracing_subscriber::EnvFilter::try_from_env("EYAS_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| OwnWords)
        .with_target(false);
    // An error of writing to standard error cannot be reported there.
    log.log_internal_errors(false).init();
}

/// Standard error, with messages in the words of the door of this process.
struct OwnWords;

impl Write for OwnWords {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => stderr().write_all(door::in_own_words(text).as_bytes())?,
            Err(_) => stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// The beginning of a line in a log file: the time, as in lines of `tracing`. Empty on a terminal.
pub(crate) fn stamp() -> String {
    let mut stamp = String::new();
    if IS_FILE.get() == Some(&true) && SystemTime.format_time(&mut Writer::new(&mut stamp)).is_ok()
    {
        stamp.push_str("  ");
    }
    stamp
}

/// The last `count` lines that were added to a log since it had `before` bytes.
pub(crate) fn added(log: &mut File, before: u64, count: usize) -> String {
    let mut bytes = Vec::new();
    let read = log.seek(SeekFrom::Start(before)).and_then(|_| log.read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_lines_of_a_log_are_shown() {
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(b"old 1\nold 2\n").unwrap();
        assert_eq!(added(&mut log, 12, 5), "");
        log.write_all(b"new 1\nnew 2\nnew 3\n").unwrap();
        assert_eq!(added(&mut log, 12, 2), "new 2\nnew 3");
        assert_eq!(added(&mut log, 12, 5), "new 1\nnew 2\nnew 3");
    }
}
