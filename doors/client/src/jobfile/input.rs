//! What a job file says of a task's inputs: files, and outputs of other tasks, which it names by
//! their ids.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::str::FromStr;

use eyas_types::{Name, OutputSpec, PartOfFile, Template};
use serde::Deserialize;

use super::error::TaskFieldsError;
use super::values::{ByteRange, RecordRange, some_number};
use crate::draft::Draft;

/// An input in a job file.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum InputFields {
    /// A path or URL; may have placeholders.
    Path(Name),
    /// A path or URL with options.
    Named {
        /// Path or URL.
        #[serde(alias = "url")]
        path: Name,
        /// Name in the sandbox.
        name: Option<Name>,
        /// The same for each file of a pattern: placeholders such as `{/}` stand for the file, and
        /// `{index}` for its place among the files of the pattern, from 0.
        into: Option<Name>,
        /// The bytes of the file that the task reads, such as `0-1GiB`; all if missing.
        range: Option<String>,
        /// The records of the file that the task reads, such as `1000-2000`; all if missing.
        records: Option<String>,
        /// Whether the task reads the content of the compressed file.
        #[serde(default)]
        decompress: bool,
        /// The command that makes of the file, once on each node, the folder that the task reads.
        with: Option<Name>,
        /// Whether it is copied ahead to all executors that may run the tasks.
        #[serde(default)]
        broadcast: bool,
    },
    /// An output of another task of the file.
    Output {
        /// That task's `id`.
        task: String,
        /// The `file` of the output; the first output if missing. Placeholders stand for the item
        /// of the reading task, unless that task has an output that is written in the same way.
        output: Option<Name>,
        /// Which task of its array is read; all of them if missing.
        #[serde(default, deserialize_with = "some_number")]
        index: Option<ArrayIndex>,
        /// Number of tasks of its array that each task reads, if each task reads its own.
        #[serde(default, deserialize_with = "some_number")]
        group: Option<NonZeroU32>,
        /// Name in the sandbox.
        name: Option<Name>,
        /// The same for an array: `{index}` in it stands for the index of the task that writes the
        /// output, and placeholders such as `{/.}` for the item of that task.
        into: Option<Name>,
        /// The bytes of the output that the task reads, such as `0-1GiB`; all if missing.
        range: Option<String>,
        /// The records of the output that the task reads, such as `1000-2000`; all if missing.
        records: Option<String>,
        /// Whether the task reads the content of the compressed output.
        #[serde(default)]
        decompress: bool,
        /// The command that makes of the output, once on each node, the folder that the task reads.
        with: Option<Name>,
    },
}

/// Which task of another array a task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayIndex {
    /// The one with this index, from 0.
    One(u32),
    /// The one with the index of the reading task in its own array: `{}`
    Element,
}

impl FromStr for ArrayIndex {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "{}" => Ok(ArrayIndex::Element),
            number => number.parse().map(ArrayIndex::One),
        }
    }
}

impl InputFields {
    /// Whether each task of an array has a different input here.
    pub(super) fn is_of_item(&self, draft: &Draft, known: &TaskIds) -> bool {
        match self {
            InputFields::Path(path) | InputFields::Named { path, .. } => {
                Template::parse(path).has_value()
            }
            InputFields::Output { index: Some(ArrayIndex::Element), .. } => true,
            InputFields::Output { task, output: Some(file), .. } => {
                let writer = known.find(task).ok();
                Template::parse(file).has_value()
                    && writer.is_some_and(|writer| writer.output(draft, file).is_none())
            }
            InputFields::Output { .. } => false,
        }
    }

    /// The command that makes a folder of it.
    pub(super) fn with(&self) -> Option<&Name> {
        match self {
            InputFields::Path(_) => None,
            InputFields::Named { with, .. } | InputFields::Output { with, .. } => with.as_ref(),
        }
    }

    /// What its keys say of the part that the task reads.
    pub(super) fn keys(&self) -> PartKeys<'_> {
        match self {
            InputFields::Path(_) => PartKeys::default(),
            InputFields::Named { range, records, decompress, with, .. }
            | InputFields::Output { range, records, decompress, with, .. } => PartKeys {
                range: range.as_deref(),
                records: records.as_deref(),
                decompress: *decompress,
                with: with.as_ref(),
            },
        }
    }

    pub(super) fn path(&self) -> Option<&Name> {
        match self {
            InputFields::Path(path) | InputFields::Named { path, .. } => Some(path),
            InputFields::Output { .. } => None,
        }
    }
}

/// Tasks of a draft that were added for one table of a job file.
#[derive(Clone, Copy)]
pub(super) struct AddedTasks {
    /// Index of the first task in the job.
    pub first: u32,
    /// Number of tasks.
    pub count: u32,
    /// Whether the table makes an array, perhaps of one task.
    pub is_array: bool,
    /// A template of theirs. If there are several, all have the same outputs.
    pub template: u16,
}

impl AddedTasks {
    /// The outputs of each of these tasks.
    pub fn outputs<'a>(&self, draft: &'a Draft) -> impl Iterator<Item = &'a OutputSpec> + use<'a> {
        draft.templates[usize::from(self.template)].outputs.iter()
    }

    /// The outputs that other tasks may read.
    pub fn read_by_others<'a>(
        &self,
        draft: &'a Draft,
    ) -> impl Iterator<Item = &'a OutputSpec> + use<'a> {
        self.outputs(draft).filter(|output| !output.is_stream() && output.when.is_after_success())
    }

    /// The place of the output that is written like this.
    pub fn output(&self, draft: &Draft, file: &Name) -> Option<usize> {
        self.outputs(draft).position(|output| output.pattern.written() == *file)
    }
}

/// Tasks with an id so far.
#[derive(Default)]
pub(crate) struct TaskIds(HashMap<String, AddedTasks>);

impl TaskIds {
    pub(super) fn find(&self, id: &str) -> Result<AddedTasks, TaskFieldsError> {
        self.0.get(id).copied().ok_or_else(|| TaskFieldsError::UnknownId(id.to_owned()))
    }

    pub(super) fn add(&mut self, id: &str, tasks: AddedTasks) -> Result<(), TaskFieldsError> {
        match self.0.insert(id.to_owned(), tasks) {
            Some(_) => Err(TaskFieldsError::SameId(id.to_owned())),
            None => Ok(()),
        }
    }
}

/// What a task reads of a file, as its keys say.
#[derive(Clone, Copy, Default)]
pub(super) struct PartKeys<'a> {
    pub range: Option<&'a str>,
    pub records: Option<&'a str>,
    pub decompress: bool,
    /// The command that makes a folder of the file.
    pub with: Option<&'a Name>,
}

impl PartKeys<'_> {
    /// What the task reads of the file; `None` for the file as it is. `preparations` are the
    /// commands of the template. With `decompress_all`, whole files are decompressed later.
    pub fn part(
        &self,
        preparations: &[Name],
        decompress_all: bool,
    ) -> Result<Option<PartOfFile>, TaskFieldsError> {
        let PartKeys { range, records, decompress, with } = *self;
        let is_part = range.is_some() || records.is_some();
        if is_part && (decompress || decompress_all || with.is_some()) {
            return Err(TaskFieldsError::PartOfCompressed);
        }
        if let Some(with) = with {
            if decompress {
                return Err(TaskFieldsError::DecompressAndWith);
            }
            let by = preparations.iter().position(|command| command == with).unwrap_or_default();
            return Ok(Some(PartOfFile::Prepared { by: by as u16 }));
        }
        Ok(match (range, records) {
            (None, None) => decompress.then_some(PartOfFile::Decompressed { copied: false }),
            (Some(range), None) => {
                let ByteRange { first, end } = range.parse()?;
                Some(PartOfFile::Bytes { first, end })
            }
            (None, Some(records)) => {
                let RecordRange { first, end } = records.parse()?;
                Some(PartOfFile::Records { first, end })
            }
            (Some(_), Some(_)) => return Err(TaskFieldsError::RangeAndRecords),
        })
    }
}

/// The commands that make folders of these inputs, each once.
///
/// # Errors
/// If one lacks a placeholder.
pub(super) fn preparations_of(inputs: &[InputFields]) -> Result<Vec<Name>, TaskFieldsError> {
    let mut commands = Vec::<Name>::new();
    for command in inputs.iter().filter_map(InputFields::with) {
        for placeholder in [&b"{in}"[..], b"{out}"] {
            let places = command.windows(placeholder.len()).enumerate();
            let mut places = places.filter(|(_, part)| *part == placeholder).peekable();
            if places.peek().is_none() {
                return Err(TaskFieldsError::Preparation(command.clone()));
            }
            let is_quote = |byte: Option<&u8>| matches!(byte, Some(b'"' | b'\''));
            let is_quoted = |(at, _): (usize, _)| {
                is_quote(command[..at].last()) || is_quote(command.get(at + placeholder.len()))
            };
            if places.any(is_quoted) {
                return Err(TaskFieldsError::QuotedPlaceholder(command.clone()));
            }
        }
        if !commands.contains(command) {
            commands.push(command.clone());
        }
    }
    Ok(commands)
}
