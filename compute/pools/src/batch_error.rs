//! Errors of batch systems.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::systems::kubernetes::error::KubernetesError;

/// A command that has not ended after this time is killed.
pub(crate) const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// Most bytes of a message that are shown.
const MAX_MESSAGE_BYTES: usize = 2_000;

/// Words in the messages of commands that have lost the batch system, rather than were refused by
/// it.
const LOST_WORDS: &[&str] = &[
    "timed out",
    "timeout",
    "time-out",
    "contact",
    "connect",
    "communicat",
    "commlib",
    "receiv",
    "transmi",
    "reset by",
    "closed by",
    "broken pipe",
    "end of file",
    "protocol",
    "commit",
];

/// A command of a batch system did not do its work.
#[derive(Clone, Debug, Error)]
pub enum BatchError {
    /// It is not installed.
    #[error(
        "there is no program `{program}` here: start the dispatcher on a host that can submit to \
         the batch system"
    )]
    Missing {
        /// Name of the program.
        program: String,
    },
    /// It could not be started.
    #[error("`{program}` cannot be started: {why}")]
    NotStarted {
        /// Name of the program.
        program: String,
        /// The error of the system.
        why: String,
    },
    /// It did not end in time, and was killed.
    #[error("`{program}` did not answer within {} s", COMMAND_DEADLINE.as_secs())]
    Slow {
        /// Name of the program.
        program: String,
    },
    /// It failed.
    #[error("`{program}` failed: {says}")]
    Failed {
        /// Name of the program.
        program: String,
        /// What it has printed.
        says: String,
    },
    /// No host has started a node, and none will start one later.
    #[error("`ssh` failed: {says}")]
    NoHost {
        /// The failures, by hosts.
        says: String,
    },
    /// Its output is not understood.
    #[error("`{program}` answered in a form that is not known: {says}")]
    Unknown {
        /// Name of the program.
        program: String,
        /// What it has printed.
        says: String,
    },
    /// A file of the request could not be written or read.
    #[error("cannot use {path}: {why}")]
    File {
        /// The path.
        path: String,
        /// The error of the system.
        why: String,
    },
    /// The pool has options of another batch system.
    #[error(
        "pools of `{system}` have none of the options --image, --namespace, --service-account, \
         --template, --kubeconfig and --context, which are for Kubernetes"
    )]
    ForeignOptions {
        /// The pool's batch system.
        system: String,
    },
    /// A Kubernetes cluster refuses a request, or is not reached.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
}

impl BatchError {
    /// A file or folder cannot be used.
    pub(crate) fn file(path: &std::path::Path, why: &io::Error) -> Self {
        BatchError::File { path: path.display().to_string(), why: why.to_string() }
    }

    /// Whether what was asked for may have been done, or may still be done: there was no answer, or
    /// none that is understood.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            BatchError::Slow { .. } | BatchError::Unknown { .. } => true,
            BatchError::Failed { says, .. } => {
                let says = says.to_lowercase();
                LOST_WORDS.iter().any(|word| says.contains(word))
            }
            BatchError::Kubernetes(why) => why.leaves_open(),
            BatchError::Missing { .. }
            | BatchError::NotStarted { .. }
            | BatchError::NoHost { .. }
            | BatchError::File { .. }
            | BatchError::ForeignOptions { .. } => false,
        }
    }

    /// The output of `program` is not understood.
    pub(crate) fn unknown(program: &str, says: &str) -> Self {
        BatchError::Unknown { program: program.into(), says: shortened(says) }
    }
}

/// The end of a message, on one line.
pub(crate) fn shortened(text: &str) -> String {
    let line = text
        .split('\n')
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    let mut first = line.len().saturating_sub(MAX_MESSAGE_BYTES);
    while !line.is_char_boundary(first) {
        first += 1;
    }
    match &line[first..] {
        "" => "it printed no message".into(),
        text => text.into(),
    }
}
