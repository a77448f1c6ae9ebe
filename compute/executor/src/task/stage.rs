//! Staging: the inputs of a task appear in its sandbox. What a node makes of an input, the first
//! task that needs it makes, in its slot.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use eyas_store::{Presence, StoreErrorKind, name_of, path_of};
use eyas_types::outcome::FailureKind;
use eyas_types::{Name, ObjectId, PartOfFile, Program, Status, WorkingFolder, shown};
use eyas_wire::executor::AssignedInput;

use super::contents::ContentError;
use super::input_list::{InputListError, InputLists};
use super::prepared::PreparedFolder;
use super::sandbox::{self, PartError, Sandbox};
use super::status::{failed, status_of};
use super::{EXECUTOR_VARIABLE, TASK_VARIABLE, TaskRun, TaskRunner, disk_full};
use crate::resources::task_group::SlotGroups;

impl TaskRunner {
    /// Writes the lists of inputs for which the task has a placeholder.
    pub(super) fn list_inputs(&self, run: &TaskRun, staged: &[Name]) -> Result<InputLists, Status> {
        let template = &run.task.template;
        let Program::Command(words) = &template.program else { return Ok(InputLists::default()) };
        let words = words.iter().chain(template.env.iter().map(|(_, value)| value));
        let base = || self.new_folder(&run.task.id().to_string());
        InputLists::write(words, base, staged).map_err(|why| match &why {
            InputListError::LineBreak(_) => failed(FailureKind::Start, why.to_string()),
            InputListError::Disk { error, .. } => {
                let is_full = disk_full::is_no_room(error);
                let kind = if is_full { FailureKind::NodeFull } else { FailureKind::Node };
                failed(kind, format!("{why} on {}", self.name))
            }
        })
    }

    /// Stages all inputs. Returns the paths by which the task finds them.
    pub(super) fn stage(
        &self,
        run: &TaskRun,
        sandbox: Option<&mut Sandbox>,
        groups: &mut SlotGroups,
        missing: &mut Vec<ObjectId>,
    ) -> Result<Vec<Name>, Status> {
        let Some(sandbox) = sandbox else { return Ok(Vec::new()) };
        let template = &run.task.template;
        let paths = sandbox::input_paths(&run.task.assignment.inputs, sandbox.shared());
        let paths = paths.map_err(|error| failed(FailureKind::Start, error.to_string()))?;
        let (inputs, objects) = run.task.shared_inputs();
        let are_staged = sandbox.shared().map(|shared| shared.paths().len());
        let are_staged = are_staged.unwrap_or_else(|| {
            sandbox.share(&self.store, inputs, objects, &paths[..objects.len()])
        });
        // A pattern may match inputs too; they are remembered to be told from what the task wrote.
        let remember = template.outputs.iter().any(|output| output.pattern.is_glob());
        let mut failure = None;
        let all = paths.iter().zip(&run.task.objects).zip(&run.task.assignment.inputs);
        for ((path, object), input) in all.skip(are_staged) {
            let (is_missing, status) =
                match self.stage_input(run, (sandbox, groups), (input, *object), path, remember) {
                    Ok(()) => continue,
                    Err(failed) => failed,
                };
            failure = Some(status);
            if !is_missing {
                break;
            }
            missing.push(*object);
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let name = |path: PathBuf| match template.folder {
            // A program would take a name with a leading `-` for an option.
            WorkingFolder::Sandbox if path.as_os_str().as_encoded_bytes().starts_with(b"-") => {
                name_of(Path::new(".").join(path))
            }
            WorkingFolder::Sandbox => name_of(path),
            // The task works elsewhere, and needs the whole path.
            WorkingFolder::Path(_) => name_of(sandbox.folder().join(path)),
        };
        Ok(paths.into_iter().map(name).collect())
    }

    /// Stages one input. A failure says whether the input has gone from the store.
    fn stage_input(
        &self,
        run: &TaskRun,
        (sandbox, groups): (&mut Sandbox, &mut SlotGroups),
        (input, object): (&AssignedInput, ObjectId),
        path: &Path,
        remember: bool,
    ) -> Result<(), (bool, Status)> {
        let staged = match input.part {
            None => sandbox
                .stage(&self.store, object, path, remember)
                .map(drop)
                .map_err(PartError::Store),
            Some(PartOfFile::Decompressed { copied }) => self
                .stage_content(run, sandbox, (input, object), (path, copied), remember)
                .map_err(PartError::Content),
            Some(PartOfFile::Prepared { by }) => {
                return self.stage_folder(
                    run,
                    (sandbox, groups),
                    (input, object, by),
                    path,
                    remember,
                );
            }
            Some(part) => sandbox.stage_part(&self.store, object, input, part, path, remember),
        };
        staged.map_err(|error| {
            let reason = match &error {
                PartError::Content(why) => {
                    format!(
                        "cannot decompress {} on {}: {why}",
                        shown(input.object.base_name()),
                        self.name
                    )
                }
                why => format!("cannot stage {} on {}: {why}", path.display(), self.name),
            };
            (error.is_missing(), error.status(reason))
        })
    }

    /// Puts the content of a compressed input at the name that the task expects: a link to the
    /// store, or a copy.
    fn stage_content(
        &self,
        run: &TaskRun,
        sandbox: &mut Sandbox,
        (input, source): (&AssignedInput, ObjectId),
        (path, is_copied): (&Path, bool),
        remember: bool,
    ) -> Result<(), ContentError> {
        let (name, at) = (input.object.base_name(), self.new_folder("content"));
        let make = || self.contents.make((source, name), &at, || !run.control.is_cancelled());
        let mut stage = |object| match is_copied {
            true => sandbox.stage_copy(&self.store, object, path, remember),
            false => sandbox.stage(&self.store, object, path, remember).map(drop),
        };
        let object = make()?;
        match stage(object) {
            // It was evicted meanwhile, or damaged.
            Err(error) if error.kind == StoreErrorKind::NotHere => stage(make()?)?,
            staged => staged?,
        }
        if let Presence::Ready { size_bytes, .. } = self.store.presence(object)
            && let Some(session) = run.claims.upgrade()
        {
            session.derived(run.task.id(), source, object, size_bytes);
        }
        Ok(())
    }

    /// Puts a link to the folder that a command makes of an input at the name that the task
    /// expects. A failure says whether the input has gone from the store.
    fn stage_folder(
        &self,
        run: &TaskRun,
        (sandbox, groups): (&mut Sandbox, &mut SlotGroups),
        (input, source, by): (&AssignedInput, ObjectId, u16),
        path: &Path,
        remember: bool,
    ) -> Result<(), (bool, Status)> {
        let stop = |kind, reason: String| (false, failed(kind, reason));
        let command = run.task.template.preparations.get(usize::from(by));
        let Some(command) = command else {
            return Err(stop(FailureKind::Start, "its template lacks a command".into()));
        };
        let object = source.prepared(command);
        loop {
            let folder = match self.prepared.get(object) {
                Some(folder) => folder,
                None => self.prepare(run, groups, (input, source), (command, object))?,
            };
            // From here on, the folder stays until the task has ended.
            if let Some(session) = run.claims.upgrade() {
                session.derived(run.task.id(), source, object, folder.size_bytes);
            }
            // It may have been evicted just before.
            if self.prepared.get(object).is_some() {
                return sandbox.link(&folder.path, path, remember).map_err(|error| {
                    let reason =
                        format!("cannot stage {} on {}: {error}", path.display(), self.name);
                    stop(FailureKind::Node, reason)
                });
            }
        }
    }

    /// Makes a folder of an input, unless another task has made it meanwhile.
    fn prepare(
        &self,
        run: &TaskRun,
        groups: &mut SlotGroups,
        (input, source): (&AssignedInput, ObjectId),
        (command, object): (&Name, ObjectId),
    ) -> Result<PreparedFolder, (bool, Status)> {
        let is_wanted = || !run.control.is_cancelled();
        let Some(_making) = self.prepared.begin(object, is_wanted) else {
            return Err((false, Status::Cancelled));
        };
        if let Some(folder) = self.prepared.get(object) {
            return Ok(folder);
        }
        let scratch = Scratch(self.new_folder("prepare"));
        let name = shown(input.object.base_name());
        let node = |error: io::Error| {
            let kind = if disk_full::is_no_room(&error) {
                FailureKind::NodeFull
            } else {
                FailureKind::Node
            };
            (false, failed(kind, format!("cannot prepare {name} on {}: {error}", self.name)))
        };
        let (inner, out) = (scratch.0.join("in"), scratch.0.join("out"));
        fs::create_dir_all(&inner).and_then(|()| fs::create_dir(&out)).map_err(node)?;
        let file = inner.join(path_of(input.object.base_name()));
        self.store.stage(source, &file).map_err(|error| {
            let is_missing = error.kind == StoreErrorKind::NotHere;
            let reason = format!("cannot prepare {name} on {}: {error}", self.name);
            (is_missing, failed(FailureKind::Node, reason))
        })?;
        self.run_preparation(run, groups, (command, &name), (&file, &out))
            .map_err(|status| (false, status))?;
        let made = self.new_folder("prepared");
        fs::rename(&out, &made).map_err(node)?;
        self.prepared.add(object, made).map_err(node)
    }

    /// Runs the command of a preparation, within the limits of the task.
    fn run_preparation(
        &self,
        run: &TaskRun,
        groups: &mut SlotGroups,
        (line, name): (&Name, &impl Display),
        (file, out): (&Path, &Path),
    ) -> Result<(), Status> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(OsString::from_vec(script(line))).arg("sh").args([file, out]);
        command.current_dir(file.parent().unwrap_or(out));
        let marks =
            [(TASK_VARIABLE, run.task.id().to_string()), (EXECUTOR_VARIABLE, self.marker.clone())];
        command.envs(marks.iter().map(|(name, value)| (name, value))).env_remove("EYAS_ACCESS");
        let marks = marks.map(|(name, value)| format!("{name}={value}"));
        let ran = self.run_process(run, &command, &marks, groups)?;
        if let Some(strays) = &self.strays {
            strays.kill(ran.group, &marks);
        }
        let status = status_of(ran.end);
        if !matches!(status, Status::Exited(_) | Status::Signalled(_)) {
            return if status.is_success() { Ok(()) } else { Err(status) };
        }
        let said = ran.stderr.bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        let said = shown(said.unwrap_or_default());
        let printed = [&ran.stdout.bytes[..], &ran.stderr.bytes[..]];
        let is_full = disk_full::is_full(out, self.floor_bytes, &printed);
        let kind = if is_full { FailureKind::NodeFull } else { FailureKind::Start };
        let node = &self.name;
        Err(failed(kind, format!("cannot prepare {name} on {node}: `{line}`: {status}: {said}")))
    }
}

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = sandbox::remove(&self.0) {
            tracing::warn!(folder = %self.0.display(), "cannot remove a folder: {error}");
        }
    }
}

/// The line of a preparation for `sh`: `{in}` is its first argument and `{out}` its second.
fn script(line: &[u8]) -> Vec<u8> {
    let places: [(&[u8], &[u8]); 2] = [(b"{in}", br#""$1""#), (b"{out}", br#""$2""#)];
    let mut script = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.first() {
        let placeholder = places.iter().find(|(placeholder, _)| rest.starts_with(placeholder));
        match placeholder {
            Some((placeholder, argument)) => {
                script.extend_from_slice(argument);
                rest = &rest[placeholder.len()..];
            }
            None => {
                script.push(*first);
                rest = &rest[1..];
            }
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_a_preparation_are_arguments_of_the_shell() {
        let line = b"tar xf {in} -C {out} && ls {out}/x >{in}.txt {other}";
        let expected = br#"tar xf "$1" -C "$2" && ls "$2"/x >"$1".txt {other}"#;
        assert_eq!(script(line), expected);
    }
}
