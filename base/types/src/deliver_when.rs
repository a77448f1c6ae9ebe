//! When an output of a task is delivered: after success, after failure, or after both. GitLab has
//! `artifacts: when` for it, HTCondor `when_to_transfer_output`, and TaskVine `TransferOnFailure`.

use serde::{Deserialize, Serialize};

/// After which ends of a task an output is delivered. A task that is cancelled, that exceeds its
/// time or its memory, or that lacks another output, has not succeeded. A try that is followed by
/// another one is no end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DeliverWhen {
    /// When the task has succeeded.
    #[default]
    Success,
    /// When the task has not succeeded.
    Failure,
    /// In both cases.
    Always,
}

impl DeliverWhen {
    /// All of them, with the words that users write.
    pub const ALL: [(DeliverWhen, &str); 3] = [
        (DeliverWhen::Success, "success"),
        (DeliverWhen::Failure, "failure"),
        (DeliverWhen::Always, "always"),
    ];

    /// The one with this word.
    pub fn of_word(word: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, own)| own.as_bytes() == word).map(|(when, _)| *when)
    }

    /// Whether the output is delivered when the task has succeeded.
    pub fn is_after_success(self) -> bool {
        self != DeliverWhen::Failure
    }

    /// Whether the output is delivered when the task has not succeeded.
    pub fn is_after_failure(self) -> bool {
        self != DeliverWhen::Success
    }
}
