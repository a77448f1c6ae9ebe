//! The log of a process: what it and its parts say on standard error, with the time where that is a file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, stderr};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::fs::{FileType, fstat};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Whether standard error is the log of a process that goes on, and is read later.
static IS_FILE: OnceLock<bool> = OnceLock::new();

/// Logs go to standard error; `EYAS_LOG` says how much, as `tracing` filters are written. `is_process` says whether this
/// command is a process of a cluster.
pub(crate) fn start(is_process: bool) {
    let is_file =
        || fstat(stderr().as_fd()).is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::RegularFile);
    // Set once; another try would find the same.
    let _ = IS_FILE.set(is_process && is_file());
    let filter = tracing_subscriber::EnvFilter::try_from_env("EYAS_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_target(false);
    // What cannot be written to standard error cannot be complained of there.
    log.log_internal_errors(false).init();
}

/// What a line in a log begins with: the time, as in those of `tracing`. Nothing where a person reads along.
pub(crate) fn stamp() -> String {
    let mut stamp = String::new();
    if IS_FILE.get() == Some(&true) && SystemTime.format_time(&mut Writer::new(&mut stamp)).is_ok() {
        stamp.push_str("  ");
    }
    stamp
}

/// The lines that were added to a log since it had `before` bytes, the last `count` of them.
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
    use std::io::Write;

    use super::*;

    #[test]
    fn only_what_was_added_to_a_log_is_shown() {
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(b"old 1\nold 2\n").unwrap();
        assert_eq!(added(&mut log, 12, 5), "");
        log.write_all(b"new 1\nnew 2\nnew 3\n").unwrap();
        assert_eq!(added(&mut log, 12, 2), "new 2\nnew 3");
        assert_eq!(added(&mut log, 12, 5), "new 1\nnew 2\nnew 3");
    }
}
