//! Files that list the inputs of a task, for programs whose inputs are more than a command line
//! holds: the placeholder `{inputs}` stands for a file with one path on each line, `{inputs0}` for
//! one with a NUL byte after each path. They are beside the sandbox and not in it, so that no
//! output pattern finds them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use eyas_store::{name_of, path_of};
use eyas_types::outcome::FailureKind;
use eyas_types::template::{InputListEnd, TemplatePart};
use eyas_types::{Name, Program, Status};

use super::status::failed;
use super::{TaskRun, TaskRunner, disk_full};

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

impl TaskRunner {
    /// Writes the lists for which the task has a placeholder.
    pub(super) fn list_inputs(&self, run: &TaskRun, staged: &[Name]) -> Result<InputLists, Status> {
        let template = &run.task.template;
        let Program::Command(words) = &template.program else { return Ok(InputLists::default()) };
        let mut lists = InputLists::default();
        for word in words.iter().chain(template.env.iter().map(|(_, value)| value)) {
            for part in &word.0 {
                if let TemplatePart::InputList(end) = part {
                    self.list(run, *end, staged, &mut lists)?;
                }
            }
        }
        Ok(lists)
    }

    fn list(
        &self,
        run: &TaskRun,
        end: InputListEnd,
        staged: &[Name],
        lists: &mut InputLists,
    ) -> Result<(), Status> {
        if lists.base.is_empty() {
            lists.base = name_of(self.new_folder(&run.task.id().to_string()));
        }
        let path = path_of(&end.list_at(&lists.base)).to_owned();
        if lists.written.contains(&path) {
            return Ok(());
        }
        if let Some(name) =
            staged.iter().find(|name| end == InputListEnd::Line && name.contains(&b'\n'))
        {
            let reason = format!(
                "`{{inputs}}` cannot list `{name}`, which has a line break in it: use \
                 `{{inputs0}}`"
            );
            return Err(failed(FailureKind::Start, reason));
        }
        lists.written.push(path.clone());
        write(&path, end.byte(), staged).map_err(|e| {
            let reason =
                format!("cannot list its inputs at {} on {}: {e}", path.display(), self.name);
            failed(
                if disk_full::is_no_room(&e) { FailureKind::NodeFull } else { FailureKind::Node },
                reason,
            )
        })
    }
}

fn write(path: &std::path::Path, end: u8, staged: &[Name]) -> io::Result<()> {
    let mut list = BufWriter::new(File::create(path)?);
    for name in staged {
        list.write_all(name)?;
        list.write_all(&[end])?;
    }
    list.flush()
}
