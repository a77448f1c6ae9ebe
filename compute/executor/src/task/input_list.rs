//! Files that list the inputs of a task, for programs whose inputs are more than a command line
//! holds: the placeholder `{inputs}` stands for a file with one path on each line, `{inputs0}` for
//! one with a NUL byte after each path. They are beside the sandbox and not in it, so that no
//! output pattern finds them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use eyas_store::{name_of, path_of};
use eyas_types::Name;
use eyas_types::template::{InputListEnd, Template, TemplatePart};
use thiserror::Error;

/// Why a list cannot be written.
#[derive(Debug, Error)]
pub(super) enum InputListError {
    /// A path has a line break in it.
    #[error("`{{inputs}}` cannot list `{0}`, which has a line break in it: use `{{inputs0}}`")]
    LineBreak(Name),
    /// The disk fails.
    #[error("cannot list its inputs at {}: {error}", path.display())]
    Disk {
        /// The list.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// The lists of one task; removed when dropped.
#[derive(Default)]
pub(super) struct InputLists {
    /// Path of the lists, without the end that tells them apart.
    pub base: Name,
    written: Vec<PathBuf>,
}

impl Drop for InputLists {
    fn drop(&mut self) {
        for list in &self.written {
            if let Err(e) = std::fs::remove_file(list) {
                tracing::warn!(list = %list.display(), "cannot remove a list of inputs: {e}");
            }
        }
    }
}

impl InputLists {
    /// Writes the lists for which these words have a placeholder. `base` makes the path of the
    /// lists.
    pub fn write<'a>(
        words: impl Iterator<Item = &'a Template>,
        base: impl Fn() -> PathBuf,
        staged: &[Name],
    ) -> Result<InputLists, InputListError> {
        let mut lists = InputLists::default();
        for part in words.flat_map(|word| &word.0) {
            if let TemplatePart::InputList(end) = part {
                if lists.base.is_empty() {
                    lists.base = name_of(base());
                }
                lists.add(*end, staged)?;
            }
        }
        Ok(lists)
    }

    fn add(&mut self, end: InputListEnd, staged: &[Name]) -> Result<(), InputListError> {
        let path = path_of(&end.list_at(&self.base)).to_owned();
        if self.written.contains(&path) {
            return Ok(());
        }
        let has_break = |name: &&Name| end == InputListEnd::Line && name.contains(&b'\n');
        if let Some(name) = staged.iter().find(has_break) {
            return Err(InputListError::LineBreak(name.clone()));
        }
        self.written.push(path.clone());
        write(&path, end.byte(), staged).map_err(|error| InputListError::Disk { path, error })
    }
}

fn write(path: &Path, end: u8, staged: &[Name]) -> io::Result<()> {
    let mut list = BufWriter::new(File::create(path)?);
    for name in staged {
        list.write_all(name)?;
        list.write_all(&[end])?;
    }
    list.flush()
}
