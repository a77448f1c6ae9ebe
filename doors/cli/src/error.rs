//! Errors and exit codes of the command.

use eyas_client::types::units::AmountError;
use thiserror::Error;

/// Why a command failed, for a person. The command ends with exit code [`FAILED`]; with 2 for a
/// [`clap::Error`].
pub(crate) type CliError = Box<dyn std::error::Error + Send + Sync>;

/// Exit code if a task or a request failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code after an interrupt, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;
/// Exit code of a program that SIGPIPE has ended, as in shells.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// Why a value on the command line is refused, and what to write instead.
#[derive(Debug, Error)]
pub(crate) enum ValueError {
    #[error("`{0}` is not a share: write a number from 0 to 1, such as 0.9")]
    Share(String),
    #[error("`{0}` is not a number of tasks: write a whole number from 1, such as 1000, or `off`")]
    HolderPatience(String),
    #[error("`{0}` is not a share: write a number from 0 to 1, or `auto`")]
    ShareOrAuto(String),
    #[error("`{0}` is not a number of processors: write a number from 0.001 to 1000000, such as 2")]
    Processors(String),
    #[error("`{0}` is not a resource: write NAME=N with a whole number, such as gpu=1")]
    Resource(String),
    #[error(
        "`{text}` is not a label: write NAME=VALUE, such as site=a, with at most {max_bytes} \
         bytes on each side"
    )]
    Label { text: String, max_bytes: usize },
    #[error("`{0}` is not NAME=VALUE: write for example DEBUG=1")]
    Variable(String),
    #[error("`{0}` does not say when an output is delivered: write success, failure or always")]
    When(String),
    #[error("`{0}` is not a policy: write lean, static, multiwave or io-aware")]
    BlockPolicy(String),
    #[error("`{0}` is not a rate of tasks: write the number of tasks per second, such as 2.5")]
    TaskRate(String),
    #[error("`{0}` is not a chunk size: write a size from 1KiB to 1GiB, such as 4MiB")]
    ChunkSize(String),
    #[error("`{0}` is not a mode: write an octal number, such as 640 or 1777")]
    Mode(String),
    #[error("`{0}` is not an owner: write numbers as USER, USER:GROUP or :GROUP, such as 1000:100")]
    Owner(String),
    #[error("`{0}` is too short: write 100ms or more")]
    Interval(String),
    #[error("`{0}` does not name the format of a report: end the name in .html, .csv or .json")]
    ReportPath(String),
    #[error(
        "`{0}` is not a folder of this machine. To write outputs to another place, set `to` in \
         the job file"
    )]
    LocalFolder(String),
    #[error("`{0}` is not a number of at least 0")]
    Number(String),
    #[error("`{0}` is not a request of a pool: write POOL/NUMBER")]
    Request(String),
    #[error(transparent)]
    Amount(#[from] AmountError),
}
