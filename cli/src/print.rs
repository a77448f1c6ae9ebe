//! The one way in which words leave this program: results to standard output, eyas's own words to standard error. A write
//! that fails never panics. Where results cannot be written, the command ends with a message and an exit code of its own;
//! if their reader has gone away (`| head`), it ends quietly. What cannot be said on standard error cannot be said.
//!
//! Names, errors and the like come from outside, and must not act on the terminal: they are shown escaped. Content (what a
//! task has written, a file of the cluster) is passed on as it is.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use eyas_client::types::{shown, shown_lines};
use serde::Serialize;

use crate::error::{BROKEN_PIPE, CliError};
use crate::log;

/// Results could not be written.
#[derive(Debug)]
pub(crate) struct PrintError(io::Error);

impl std::error::Error for PrintError {}

impl fmt::Display for PrintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        PrintError(error)
    }
}

impl PrintError {
    /// Whether the reader has gone away, which is no failure of this command.
    pub fn is_broken_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Prints a line of results, as `println!` does; its error is to be passed on.
macro_rules! out {
    () => { $crate::print::text("\n") };
    ($($words:tt)*) => { $crate::print::line(format_args!($($words)*)) };
}

/// Says something to the user, on a line that begins with `eyas:`.
macro_rules! say {
    ($($words:tt)*) => { $crate::print::speak(format_args!($($words)*)) };
}

pub(crate) use {out, say};

/// See [`out!`].
pub(crate) fn line(words: fmt::Arguments<'_>) -> Result<(), PrintError> {
    text(&format!("{words}\n"))
}

/// Prints lines of results.
pub(crate) fn text(lines: &str) -> Result<(), PrintError> {
    bytes(shown_lines(lines).to_string().as_bytes())
}

/// Prints content, as it is.
pub(crate) fn bytes(content: &[u8]) -> Result<(), PrintError> {
    let mut out = io::stdout().lock();
    out.write_all(content)?;
    Ok(out.flush()?)
}

/// Prints a path on a line: for a person as it can be shown, for a program as it is.
pub(crate) fn path(path: &Path) -> Result<(), PrintError> {
    let path = path.as_os_str().as_bytes();
    match io::stdout().is_terminal() {
        true => text(&format!("{}\n", shown(path))),
        false => bytes(&[path, b"\n"].concat()),
    }
}

/// Prints a value as JSON. What a terminal would act on is in its strings only, and escaped there.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let mut json = String::new();
    for c in serde_json::to_string_pretty(value)?.chars() {
        match eyas_client::types::shown::acts(c) && c != '\n' {
            true => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => json.push(c),
        }
    }
    json.push('\n');
    Ok(bytes(json.as_bytes())?)
}

/// See [`say!`].
pub(crate) fn speak(words: fmt::Arguments<'_>) {
    complain(format!("{}eyas: {}\n", log::stamp(), shown_lines(&words.to_string())).as_bytes());
}

/// Writes content to standard error, as it is.
pub(crate) fn complain(content: &[u8]) {
    // There is nowhere else to say it.
    let _ = io::stderr().lock().write_all(content);
}

/// What a command that failed says, and its exit code.
pub(crate) fn fail(error: &CliError) -> ExitCode {
    if let Some(wrong) = error.downcast_ref::<clap::Error>() {
        return explain(wrong);
    }
    match error.downcast_ref::<PrintError>() {
        Some(error) if error.is_broken_pipe() => return ExitCode::from(BROKEN_PIPE),
        _ => say!("{error}"),
    }
    ExitCode::FAILURE
}

/// What is said of a wrong command line; or the help or version that was asked for, which is a result.
pub(crate) fn explain(wrong: &clap::Error) -> ExitCode {
    let words = wrong.render().to_string();
    let is_harmless = shown_lines(&words).to_string() == words;
    // As clap does it, in colours, unless it repeats a word that would act on the terminal.
    let printed = match wrong.use_stderr() {
        true if is_harmless => wrong.print().or(Ok(())),
        true => {
            complain(shown_lines(&words).to_string().as_bytes());
            Ok(())
        }
        false => wrong.print().and_then(|()| io::stdout().flush()),
    };
    match printed {
        Ok(()) => ExitCode::from(wrong.exit_code() as u8),
        Err(e) => fail(&PrintError(e).into()),
    }
}
