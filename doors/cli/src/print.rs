//! All output of this program: results go to standard output, messages of eyas to standard error. A
//! failed write never panics. If results cannot be written, the command ends with a message and
//! exit code 1; if the reader of a pipe has closed it (`| head`), the command ends quietly. Errors
//! of writing to standard error are ignored.
//!
//! Names, errors and other texts from outside must not act on the terminal, and are escaped.
//! Content (the output of a task, a file of the cluster) is passed on unchanged.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyas_client::types::dfs::is_text;
use eyas_client::types::shown::{MAX_QUOTED_CHARS, shortened, with_short_quotes};
use eyas_client::types::{shown, shown_lines};
use serde::Serialize;

use crate::door;
use crate::error::{BROKEN_PIPE, CliError};
use crate::exit_code::ExitCode;
use crate::log;

/// Characters of a line of a message; the middle of a longer line is left out.
const MAX_LINE_CHARS: usize = 4000;

/// A result could not be written to standard output.
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
    /// Whether the reader of the pipe has closed it, which is not a failure of this command.
    pub fn is_broken_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Prints a line of results, as `println!` does. Returns an error that the caller must pass on.
macro_rules! out {
    () => { $crate::print::text("\n") };
    ($($words:tt)*) => { $crate::print::line(format_args!($($words)*)) };
}

/// Prints a message for the user on standard error, on a line that begins with `eyas:`.
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

/// Prints content unchanged.
pub(crate) fn bytes(content: &[u8]) -> Result<(), PrintError> {
    let mut out = io::stdout().lock();
    out.write_all(content)?;
    Ok(out.flush()?)
}

/// What ends a part of the content that several programs have written: a line feed that a text
/// lacks. Without it, the last line of the part and the first line of the next part would be one.
/// Other content stays as it is: a line feed between two streams of bzip2 would hide the second
/// one.
pub(crate) fn end_of_part(content: &[u8]) -> &'static [u8] {
    let is_complete = content.is_empty() || content.ends_with(b"\n");
    if is_complete || !is_text(content) || std::str::from_utf8(content).is_err() {
        b""
    } else {
        b"\n"
    }
}

/// Prints a path on a line: escaped on a terminal, unchanged otherwise.
pub(crate) fn path(path: &Path) -> Result<(), PrintError> {
    let path = path.as_os_str().as_bytes();
    match io::stdout().is_terminal() {
        true => text(&format!("{}\n", shown(path))),
        false => bytes(&[path, b"\n"].concat()),
    }
}

/// Prints a value as JSON. Only strings can have characters that act on a terminal; such characters
/// are escaped.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    json_text(serde_json::to_string_pretty(value)?)
}

/// Prints a value as JSON on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), CliError> {
    json_text(serde_json::to_string(value)?)
}

fn json_text(mut json: String) -> Result<(), CliError> {
    let acts = |c: char| eyas_client::types::shown::acts(c) && c != '\n';
    if json.contains(acts) {
        let escaped =
            |c: char| if acts(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
        json = json.chars().map(escaped).collect();
    }
    json.push('\n');
    Ok(bytes(json.as_bytes())?)
}

/// See [`say!`].
pub(crate) fn speak(words: fmt::Arguments<'_>) {
    let words = without_long_lines(&door::in_own_words(&words.to_string()));
    bytes_to_stderr(format!("{}eyas: {}\n", log::stamp(), shown_lines(&words)).as_bytes());
}

/// Shortens what each line quotes, and the line itself, in their middles. A message may repeat an
/// item or a word of a command, which may have megabytes.
fn without_long_lines(words: &str) -> String {
    let short = |line| shortened(&with_short_quotes(line), MAX_LINE_CHARS).into_owned();
    words.split('\n').map(short).collect::<Vec<_>>().join("\n")
}

fn with_short_words(line: &str) -> String {
    line.split(' ').map(|word| shortened(word, MAX_QUOTED_CHARS)).collect::<Vec<_>>().join(" ")
}

/// Writes content to standard error, unchanged.
pub(crate) fn bytes_to_stderr(content: &[u8]) {
    // An error cannot be reported anywhere else.
    let _ = io::stderr().lock().write_all(content);
}

/// Prints the error of a command, and returns the exit code.
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

/// Prints an error in the command line, or the requested help or version, and returns the exit
/// code.
pub(crate) fn explain(wrong: &clap::Error) -> ExitCode {
    let rendered = wrong.render().to_string();
    // clap quotes words in another way than messages of eyas do.
    let short = rendered.split('\n').map(with_short_words).collect::<Vec<_>>().join("\n");
    let words = shown_lines(&without_long_lines(&short)).to_string();
    let is_harmless = words == rendered;
    // clap prints in colours, but repeats words that may act on the terminal, or be very long.
    let printed = match wrong.use_stderr() {
        true if is_harmless => wrong.print().or(Ok(())),
        true => {
            bytes_to_stderr(words.as_bytes());
            Ok(())
        }
        false => wrong.print().and_then(|()| io::stdout().flush()),
    };
    match printed {
        Ok(()) => ExitCode::from(wrong.exit_code() as u8),
        Err(e) => fail(&PrintError(e).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_of_messages_and_their_quotes_are_shortened() {
        let item = "x".repeat(400_000);
        let words =
            without_long_lines(&format!("task 1 failed: `{item}`: no such file\nthe next line"));
        assert!(
            words.starts_with("task 1 failed: `x")
                && words.ends_with("x`: no such file\nthe next line"),
            "{words}"
        );
        assert!(
            words.chars().count() < MAX_QUOTED_CHARS + 100 && words.contains(" more …"),
            "{words}"
        );
        assert!(without_long_lines(&item).chars().count() < MAX_LINE_CHARS + 100);
    }
}
