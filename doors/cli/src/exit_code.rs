//! Exit codes, as numbers: other programs than `eyas` may run its commands, too.

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(u8);

impl ExitCode {
    /// Everything succeeded.
    pub const SUCCESS: ExitCode = ExitCode(0);
    /// A task or a request failed.
    pub const FAILURE: ExitCode = ExitCode(1);

    /// The code as a number.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> Self {
        ExitCode(number)
    }
}
