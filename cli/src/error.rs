//! Errors and exit codes of the command.

/// Why a command failed, for a person. The command ends with exit code [`FAILED`]; with 2 for a [`clap::Error`].
pub(crate) type CliError = Box<dyn std::error::Error + Send + Sync>;

/// Exit code if a task or a request failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code after an interrupt, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit code of a program that SIGPIPE has ended, as shells have it.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;
