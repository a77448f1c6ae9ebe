//! How the memory and processors of tasks are limited, as an option of the executor says.

use std::str::FromStr;

use thiserror::Error;

/// How limits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitMode {
    /// By control groups where the system lets this process make them, else by looking at
    /// processes.
    #[default]
    Auto,
    /// By control groups; the executor does not start without them.
    Cgroup,
    /// By looking at the processes of tasks from time to time. Only memory is limited.
    Poll,
    /// Not at all.
    Off,
}

/// The text is not a way to keep limits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a way to limit tasks; there are auto, cgroup, poll and off")]
pub struct UnknownLimitMode(String);

impl LimitMode {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LimitMode::Auto => "auto",
            LimitMode::Cgroup => "cgroup",
            LimitMode::Poll => "poll",
            LimitMode::Off => "off",
        }
    }
}

impl FromStr for LimitMode {
    type Err = UnknownLimitMode;

    fn from_str(text: &str) -> Result<Self, UnknownLimitMode> {
        let all = [LimitMode::Auto, LimitMode::Cgroup, LimitMode::Poll, LimitMode::Off];
        all.into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| UnknownLimitMode(text.into()))
    }
}

/// Options about limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitOptions {
    /// How limits are kept.
    pub mode: LimitMode,
    /// A task never has more processors than it asks for, also while others are idle. Needs
    /// control groups.
    pub has_cpu_quota: bool,
}
