//! `--dry-run` of `eyas run` and `eyas submit`: prints the command of each task as a shell would
//! read it.

use std::io::{self, BufWriter, IsTerminal, Write};

use eyas_client::TaskTexts;
use eyas_client::types::shown;

use crate::print::PrintError;
use crate::words::command_line;

/// Prints the command of each task that an earlier run has not `done` on a line. On a terminal,
/// characters that would act on it are escaped.
pub(crate) fn print_commands(tasks: &TaskTexts, done: &[bool]) -> Result<(), PrintError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let escapes = io::stdout().is_terminal();
    let is_left = |index: &u32| done.get(*index as usize) != Some(&true);
    for index in (0..tasks.len() as u32).filter(is_left) {
        let line = command_line(&tasks.command(index));
        match escapes {
            true => writeln!(out, "{}", shown(&line))?,
            false => out.write_all(&[&line[..], b"\n"].concat())?,
        }
    }
    Ok(out.flush()?)
}
