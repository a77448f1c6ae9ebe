//! Staging: the inputs of a task appear in its sandbox. What a node makes of an input, the first
//! task that needs it makes, in its slot.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use eyas_store::{StoreErrorKind, name_of, path_of};
use eyas_types::outcome::FailureKind;
use eyas_types::{
    FileMode, Name, ObjectId, Origin, PartOfFile, Program, Reads, Status, WorkingFolder, shown,
};
use eyas_wire::executor::AssignedInput;

use super::contents::{Content, ContentError};
use super::copies::CopyExchange;
use super::copy_request::{CopyRequest, ObtainedCopy};
use super::derived_copy::{CopyOfInput, CopyOrigin};
use super::input_list::{InputListError, InputLists};
use super::prepared::{FolderInMaking, PreparedFolder, WalkError, is_folder, open_up};
use super::sandbox::{self, PartError, Sandbox};
use super::status::{failed, status_of};
use super::{EXECUTOR_VARIABLE, StoreChanges, TASK_VARIABLE, TaskRun, TaskRunner, disk_full};
use crate::resources::task_group::SlotGroups;

/// Lines of what a preparation has printed that its failure shows.
const SHOWN_LINES: usize = 3;

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
        changes: &mut StoreChanges,
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
        let timeout = template.timeout_us.map(Duration::from_micros);
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let fetched = Reads::default();
        let mut staging = Staging { run, sandbox, groups, remember, deadline, fetched };
        let mut failure = None;
        let all = paths.iter().zip(&run.task.objects).zip(&run.task.assignment.inputs);
        for ((path, object), input) in all.skip(are_staged) {
            let source = StagedSource { input, object: *object, path };
            if let Err(why) = self.stage_input(&mut staging, &source) {
                let StageFailure { status, is_missing, written_bytes } = why;
                changes.made_bytes += written_bytes;
                failure = Some(status);
                if !is_missing {
                    break;
                }
                changes.missing.push(*object);
            }
        }
        changes.fetched = staging.fetched;
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

    fn stage_input(
        &self,
        staging: &mut Staging<'_>,
        source: &StagedSource<'_>,
    ) -> Result<(), StageFailure> {
        let StagedSource { input, object, path } = *source;
        let (remember, store) = (staging.remember, &self.store);
        let staged = match input.part {
            None => {
                let staged = staging.sandbox.stage(store, object, path, remember);
                staged.map(drop).map_err(PartError::Store)
            }
            Some(PartOfFile::Decompressed { copied }) => {
                self.stage_content(staging, source, copied).map_err(PartError::Content)
            }
            Some(PartOfFile::Prepared { by }) => return self.stage_folder(staging, source, by),
            Some(part) => staging.sandbox.stage_part(store, object, input, part, path, remember),
        };
        staged.map_err(|error| {
            let Some(kind) = error.kind() else { return staging.stopped().into() };
            let (reason, written_bytes) = match &error {
                PartError::Content(why) => {
                    let name = shown(input.object.base_name());
                    let reason = format!("cannot decompress {name} on {}: {why}", self.name);
                    (reason, why.written_bytes())
                }
                why => (format!("cannot stage {} on {}: {why}", path.display(), self.name), 0),
            };
            let (status, is_missing) = (failed(kind, reason), error.is_missing());
            StageFailure { status, is_missing, written_bytes }
        })
    }

    /// Puts the content of a compressed input at the name that the task expects: a link to the
    /// store, or a copy.
    fn stage_content(
        &self,
        staging: &mut Staging<'_>,
        source: &StagedSource<'_>,
        is_copied: bool,
    ) -> Result<(), ContentError> {
        let StagedSource { input, object, path } = *source;
        let (name, at) = (input.object.base_name(), self.new_folder("content"));
        loop {
            let goes_on = || staging.goes_on();
            let copies = CopyExchange { runner: self, run: staging.run };
            let content = self.contents.make((object, name), &at, goes_on, |content, mode| {
                copies.obtain((content, mode, name), &goes_on)
            })?;
            let Content { object: content, origin, request } = content;
            // One that an earlier executor has left is read once.
            if content != object && self.store.verify(content)? {
                let size_bytes = self.store.size_of(content);
                staging.count((object, content, size_bytes), origin, request);
            }
            let staged = match is_copied {
                true => staging.sandbox.stage_copy(&self.store, content, path, staging.remember),
                false => {
                    let staged =
                        staging.sandbox.stage(&self.store, content, path, staging.remember);
                    staged.map(drop)
                }
            };
            match staged {
                // It was evicted just before it was counted.
                Err(error) if error.kind == StoreErrorKind::NotHere && content != object => {}
                staged => return Ok(staged?),
            }
        }
    }

    /// Puts a link to the folder that a command makes of an input at the name that the task
    /// expects.
    fn stage_folder(
        &self,
        staging: &mut Staging<'_>,
        source: &StagedSource<'_>,
        by: u16,
    ) -> Result<(), StageFailure> {
        let command = staging.run.task.template.preparations.get(usize::from(by));
        let Some(command) = command else {
            return Err(failed(FailureKind::Start, "its template lacks a command").into());
        };
        let object = source.object.prepared(command);
        loop {
            let (folder, origin) = match self.prepared.get(object) {
                Some(folder) => (folder, CopyOrigin::Here),
                None => self.prepare(staging, source, (command, object))?,
            };
            // From here on, the folder stays until the task has ended.
            staging.count((source.object, object, Some(folder.size_bytes)), origin, None);
            // It may have been evicted just before.
            let Some(folder) = self.prepared.get(object) else { continue };
            let linked = staging.sandbox.link(&folder.path, source.path, staging.remember);
            return linked.map_err(|error| {
                let path = source.path.display();
                let reason = format!("cannot stage {path} on {}: {error}", self.name);
                failed(FailureKind::Node, reason).into()
            });
        }
    }

    /// Makes a folder of an input, or gets it from another executor, unless another task has done
    /// so meanwhile.
    fn prepare(
        &self,
        staging: &mut Staging<'_>,
        source: &StagedSource<'_>,
        (command, object): (&Name, ObjectId),
    ) -> Result<(PreparedFolder, CopyOrigin), StageFailure> {
        let Some(_making) = self.prepared.begin(object, || staging.goes_on()) else {
            return Err(staging.stopped().into());
        };
        if let Some(folder) = self.prepared.get(object) {
            return Ok((folder, CopyOrigin::Here));
        }
        let began = Instant::now();
        // It came before the task had a slot, or an earlier executor has left it.
        if self.store.verify(object.packed()).unwrap_or(false)
            && let Some(folder) = self.unpack(staging, source, (object, CopyOrigin::Here, None))?
        {
            return Ok((folder, CopyOrigin::made_since(began)));
        }
        let name = source.input.object.base_name();
        let copies = CopyExchange { runner: self, run: staging.run };
        let copy = (object.packed(), FileMode::READABLE, name);
        let request = match copies.obtain(copy, &|| staging.goes_on()) {
            None => return Err(staging.stopped().into()),
            Some(ObtainedCopy::ToMake(request)) => request,
            Some(ObtainedCopy::Fetched { took_us, request }) => {
                let fetched = (object, CopyOrigin::Fetched { took_us }, Some(request));
                if let Some(folder) = self.unpack(staging, source, fetched)? {
                    return Ok((folder, CopyOrigin::made_since(began)));
                }
                None
            }
        };
        let began = Instant::now();
        let folder = self.make_folder(staging, source, (command, object))?;
        let origin = CopyOrigin::made_since(began);
        if let Some(request) = request {
            self.give_folder(staging, (source.object, object), &folder, (origin, request));
        }
        Ok((folder, origin))
    }

    /// Unpacks a folder that is in the store. `None` if that fails: then the folder is made here.
    fn unpack(
        &self,
        staging: &mut Staging<'_>,
        source: &StagedSource<'_>,
        (object, origin, request): (ObjectId, CopyOrigin, Option<CopyRequest>),
    ) -> Result<Option<PreparedFolder>, StageFailure> {
        let copy = (source.object, object.packed(), self.store.size_of(object.packed()));
        staging.count(copy, origin, request);
        let copies = CopyExchange { runner: self, run: staging.run };
        match copies.unpack_folder(object, &|| staging.goes_on()) {
            Ok(folder) => Ok(Some(folder)),
            Err(_) if !staging.goes_on() => Err(staging.stopped().into()),
            Err(why) => {
                tracing::warn!("a folder is made here, not unpacked: {why}");
                Ok(None)
            }
        }
    }

    /// Lets other executors fetch a folder that was made, if that is worthwhile.
    fn give_folder(
        &self,
        staging: &mut Staging<'_>,
        (source, object): (ObjectId, ObjectId),
        folder: &PreparedFolder,
        (origin, request): (CopyOrigin, CopyRequest),
    ) {
        let took_us = origin.took_us().unwrap_or_default();
        let session = staging.run.claims.upgrade();
        let gives = session.is_some_and(|it| it.gives_folder(folder.size_bytes, took_us));
        let copies = CopyExchange { runner: self, run: staging.run };
        let goes_on = || staging.goes_on();
        let packed = gives.then(|| copies.pack_folder(object, folder, &goes_on)).flatten();
        match packed {
            Some(size_bytes) => {
                let copy = (source, object.packed(), Some(size_bytes));
                staging.count(copy, origin, Some(request));
            }
            None => request.end_private(),
        }
    }

    /// Makes a folder of an input.
    fn make_folder(
        &self,
        staging: &mut Staging<'_>,
        source: &StagedSource<'_>,
        (command, object): (&Name, ObjectId),
    ) -> Result<PreparedFolder, StageFailure> {
        let scratch = FolderInMaking(self.new_folder("prepare"));
        let name = shown(source.input.object.base_name()).to_string();
        let why = |kind, why: &dyn Display| {
            failed(kind, format!("cannot prepare {name} on {}: {why}", self.name))
        };
        let disk = |error: io::Error| {
            let is_full = disk_full::is_no_room(&error);
            why(if is_full { FailureKind::NodeFull } else { FailureKind::Node }, &error)
        };
        let (inner, out) = (scratch.0.join("in"), scratch.0.join("out"));
        fs::create_dir_all(&inner).and_then(|()| fs::create_dir(&out)).map_err(disk)?;
        let file = inner.join(path_of(source.input.object.base_name()));
        self.store.stage(source.object, &file).map_err(|error| {
            let is_full = error.kind == StoreErrorKind::Full;
            let kind = if is_full { FailureKind::NodeFull } else { FailureKind::Node };
            let is_missing = error.kind == StoreErrorKind::NotHere;
            StageFailure { is_missing, ..why(kind, &error).into() }
        })?;
        // Tasks that wait for the folder may have taken the processors of this one.
        staging.run.control.set_making(true);
        let ran = self.run_preparation(staging, (command, &name), (&file, &out));
        staging.run.control.set_making(false);
        ran.map_err(|status| {
            let is_full =
                matches!(&status, Status::Failed(why) if why.kind == FailureKind::NodeFull);
            let written_bytes = if is_full { disk_full::written_bytes(&out) } else { 0 };
            StageFailure { written_bytes, ..status.into() }
        })?;
        if !is_folder(&out) {
            let replaced =
                "the command has replaced the folder {out}: let it write into the folder";
            return Err(why(FailureKind::Start, &replaced).into());
        }
        let unusable = |error: WalkError| why(FailureKind::Start, &error);
        open_up(&out).map_err(unusable)?;
        let made = FolderInMaking(self.new_folder("prepared"));
        fs::rename(&out, &made.0).map_err(disk)?;
        let folder = self.prepared.add(object, made.0.clone()).map_err(unusable)?;
        made.keep();
        Ok(folder)
    }

    /// Runs the command of a preparation, within the limits of the task.
    fn run_preparation(
        &self,
        staging: &mut Staging<'_>,
        (line, name): (&Name, &str),
        (file, out): (&Path, &Path),
    ) -> Result<(), Status> {
        let run = staging.run;
        let mut command = Command::new("sh");
        command.arg("-c").arg(OsString::from_vec(script(line))).arg("sh").args([file, out]);
        command.current_dir(file.parent().unwrap_or(out));
        let marks =
            [(TASK_VARIABLE, run.task.id().to_string()), (EXECUTOR_VARIABLE, self.marker.clone())];
        command.envs(marks.iter().map(|(name, value)| (name, value))).env_remove("EYAS_ACCESS");
        let marks = marks.map(|(name, value)| format!("{name}={value}"));
        let ran = self.run_process(run, &command, &marks, staging.groups)?;
        if let Some(strays) = &self.strays {
            strays.kill(ran.group, &marks);
        }
        let status = status_of(ran.end);
        if !matches!(status, Status::Exited(_) | Status::Signalled(_)) {
            return if status.is_success() { Ok(()) } else { Err(status) };
        }
        let printed = [&ran.stdout.bytes[..], &ran.stderr.bytes[..]];
        let is_full = disk_full::is_full(out, self.floor_bytes, &printed);
        let kind = if is_full { FailureKind::NodeFull } else { FailureKind::Start };
        let (node, said) = (&self.name, last_lines(&ran.stderr.bytes));
        Err(failed(kind, format!("cannot prepare {name} on {node}: `{line}`: {status}: {said}")))
    }
}

/// The staging of a task's inputs.
struct Staging<'a> {
    run: &'a TaskRun,
    sandbox: &'a mut Sandbox,
    groups: &'a mut SlotGroups,
    /// Whether inputs are remembered, to be told from what the task writes.
    remember: bool,
    /// The task does not wait longer for what other tasks make.
    deadline: Option<Instant>,
    /// Derived copies that other executors have sent.
    fetched: Reads,
}

impl Staging<'_> {
    fn goes_on(&self) -> bool {
        !self.run.control.is_cancelled() && self.deadline.is_none_or(|at| Instant::now() < at)
    }

    /// How the task ends if staging does not go on.
    fn stopped(&self) -> Status {
        if self.run.control.is_cancelled() { Status::Cancelled } else { Status::TimedOut }
    }

    /// Has the node's decider count and keep what was made of an input, until the task has ended.
    pub fn count(
        &mut self,
        (source, object, size_bytes): (ObjectId, ObjectId, Option<u64>),
        origin: CopyOrigin,
        request: Option<CopyRequest>,
    ) {
        let (Some(session), Some(size_bytes)) = (self.run.claims.upgrade(), size_bytes) else {
            return;
        };
        if matches!(origin, CopyOrigin::Fetched { .. }) {
            self.fetched.add(Origin::Peer, size_bytes);
        }
        session.derived(self.run.task.id(), CopyOfInput { source, object, size_bytes, origin });
        if let Some(request) = request {
            request.end();
        }
    }
}

/// An input to be staged.
#[derive(Clone, Copy)]
struct StagedSource<'a> {
    input: &'a AssignedInput,
    /// Its id in the store.
    object: ObjectId,
    /// Its name in the sandbox.
    path: &'a Path,
}

/// Why an input was not staged.
struct StageFailure {
    status: Status,
    /// Whether the input has gone from the store.
    is_missing: bool,
    /// Bytes that were written before the disk was full.
    written_bytes: u64,
}

impl From<Status> for StageFailure {
    fn from(status: Status) -> Self {
        StageFailure { status, is_missing: false, written_bytes: 0 }
    }
}

/// The end of what a command has printed, on one line.
fn last_lines(printed: &[u8]) -> String {
    let lines: Vec<_> = printed.trim_ascii().split(|byte| *byte == b'\n').collect();
    let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    last.iter().map(|line| shown(line).to_string()).collect::<Vec<_>>().join("; ")
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
