//! Tasks: one black-box command each, with declared inputs, outputs and resources.
//!
//! A job of a million tasks is a few templates and a million short items. An item is expanded only
//! on the node that runs its task (see [`crate::template`]).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::access::FilesScope;
use crate::deliver_when::DeliverWhen;
use crate::id::ObjectId;
use crate::matching::Terms;
use crate::name::Name;
use crate::resource::Resources;
use crate::template::{Template, TemplatePart};
use crate::value::Value;

/// Default limit of the captured standard output of a task, and of its standard error. Bytes beyond
/// the limit are discarded and counted in the outcome.
pub const DEFAULT_CAPTURE_BYTES: u64 = 1 << 20;
/// Names of the kept outputs that are a task's whole standard output and standard error, if these
/// exceed [`DEFAULT_CAPTURE_BYTES`].
pub const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// Maximum of the capture limit that a job may set for tasks whose streams are not kept. Captured
/// output goes through the dispatcher, in one message for each task.
pub const MAX_CAPTURE_BYTES: u64 = 16 << 20;
/// Maximum number of tasks of a job, and of objects that they read.
pub const MAX_TASKS: usize = 10_000_000;
/// Maximum number of templates of a job.
pub const MAX_TEMPLATES: usize = u16::MAX as usize;
/// Maximum number of inputs of a task: its template's and its own, patterns expanded. All of them
/// are in the store of one node at the same time.
pub const MAX_INPUTS: usize = 1_000_000;
/// Maximum number of objects that one job, or one push, copies to executors ahead of demand.
pub const MAX_PUSHED: usize = 65_536;
/// Maximum number of executors that keep a replica of one output.
pub const MAX_REPLICAS: u8 = 16;

/// The [`id`](TaskTemplate::id) of the template whose tasks stand for those that an earlier run has
/// done: they do nothing.
pub const DONE_EARLIER: &str = "done in an earlier run";

/// The common part of all tasks that are made from the template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct TaskTemplate {
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// The command to run.
    pub program: Program,
    /// Environment variables. The task also gets the variables of the executor.
    pub env: Vec<(String, Template)>,
    /// Working folder of the command.
    pub folder: WorkingFolder,
    /// Absolute folder at which relative destinations of outputs begin.
    pub base: Name,
    /// Inputs of every task. They come before the inputs of the item.
    pub inputs: Vec<Input>,
    /// Commands that make folders of inputs: lines for `sh`, in which `{in}` stands for the input
    /// and `{out}` for the folder.
    #[serde(skip)]
    pub preparations: Vec<Name>,
    /// Files to take from the sandbox after the command has ended.
    pub outputs: Vec<OutputSpec>,
    /// Resources that a task holds while it runs.
    pub resources: Resources,
    /// Tasks of higher priority start first, and may suspend tasks of lower priority.
    pub priority: i32,
    /// Match expression that is true for executors which may run the task; all may if it is
    /// missing.
    pub requirements: Option<String>,
    /// Match expression whose value is highest for the preferred executor.
    pub rank: Option<String>,
    /// Time limit. Time for which the task is suspended does not count.
    pub timeout_us: Option<u64>,
    /// Number of retries after a failure.
    pub retries: u32,
    /// Limit of the captured standard output, and of the captured standard error.
    pub capture_bytes: u64,
    /// Files of the cluster that the tasks may read and write.
    pub files: FilesScope,
}

impl TaskTemplate {
    /// A template for `program`, with defaults for everything else.
    pub fn new(program: Program) -> Self {
        TaskTemplate {
            id: None,
            program,
            env: Vec::new(),
            folder: WorkingFolder::Sandbox,
            base: Name::from("/"),
            inputs: Vec::new(),
            preparations: Vec::new(),
            outputs: Vec::new(),
            resources: Resources::default(),
            priority: 0,
            requirements: None,
            rank: None,
            timeout_us: None,
            retries: 0,
            capture_bytes: DEFAULT_CAPTURE_BYTES,
            files: FilesScope::default(),
        }
    }

    /// A template for tasks that an earlier run has done: they run no program, and ask for the
    /// least resources that a task can have.
    pub fn done_earlier() -> Self {
        let resources = Resources { cpus_milli: 1, ..Resources::default() };
        let id = Some(DONE_EARLIER.into());
        TaskTemplate { id, resources, ..TaskTemplate::new(Program::Noop) }
    }

    /// Whether it is [such a template](TaskTemplate::done_earlier).
    pub fn is_done_earlier(&self) -> bool {
        self.program == Program::Noop && self.id.as_deref() == Some(DONE_EARLIER)
    }

    /// All words that may have placeholders: of the command, of the outputs, of the variables.
    pub fn words(&self) -> impl Iterator<Item = &Template> {
        self.words_with(|_| true)
    }

    /// Whether a result depends on the number of its task: the command, a variable or an output of
    /// a task that has succeeded has it.
    pub fn is_numbered(&self) -> bool {
        let is_of_result = |output: &&OutputSpec| output.when.is_after_success();
        self.words_with(is_of_result).any(Template::has_number)
    }

    /// The words of the command and of the variables, and those of some outputs.
    fn words_with(&self, has: impl Fn(&&OutputSpec) -> bool) -> impl Iterator<Item = &Template> {
        let command = match &self.program {
            Program::Command(words) | Program::Call(words) => &words[..],
            Program::Noop => &[],
        };
        let of_outputs = self
            .outputs
            .iter()
            .filter(has)
            .flat_map(|output| [Some(&output.pattern), output.destination.as_ref()])
            .flatten();
        command.iter().chain(of_outputs).chain(self.env.iter().map(|(_, value)| value))
    }
}

// Journals and messages had no field for `preparations` at first: each of them is written as a
// variable without a name, behind the others. With `remote`, serde makes functions of the type
// itself for all other fields.
impl Serialize for TaskTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.preparations.is_empty() {
            return TaskTemplate::serialize(self, serializer);
        }
        let mut written = self.clone();
        let variable = |command| (String::new(), Template([TemplatePart::Literal(command)].into()));
        written.env.extend(written.preparations.drain(..).map(variable));
        TaskTemplate::serialize(&written, serializer)
    }
}

impl<'de> Deserialize<'de> for TaskTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut template = TaskTemplate::deserialize(deserializer)?;
        let text = |part| match part {
            TemplatePart::Literal(text) => Some(text),
            _ => None,
        };
        let unnamed = template.env.extract_if(.., |(name, _)| name.is_empty());
        let commands = unnamed.filter_map(|(_, command)| command.0.into_iter().find_map(text));
        template.preparations = commands.collect();
        Ok(template)
    }
}

/// The command of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// No command: the task succeeds when its inputs are on the node. For measurements, and to fill
    /// stores ahead.
    Noop,
    /// A command: the program and its arguments.
    Command(Vec<Template>),
    /// A call of a worker, which this command starts. A worker stays, and answers the calls of its
    /// slot one after another: the first value of a task is the bytes that it gets, and what it
    /// returns is the task's standard output. The output of the worker during the call is the
    /// task's standard error.
    Call(Vec<Template>),
}

/// A task's working folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkingFolder {
    /// A folder that all nodes share, usually the one where the job was submitted.
    Path(Name),
    /// A folder of the task's own on the node's disk. It is removed when the task has ended.
    Sandbox,
}

/// A file that is on the node before the task starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Source of the file.
    pub from: InputFrom,
    /// Name in the sandbox; by default the last component of the source.
    pub name: Option<Name>,
}

/// Whether a name can be the path of a file in the folder of a task: relative, without `..`, and
/// not empty.
pub fn is_in_sandbox(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let is_relative = !name.starts_with(b"/") && !name.contains(&0);
    is_relative && parts.clone().any(|part| part != b".") && parts.all(|part| part != b"..")
}

/// Source of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputFrom {
    /// An object, as an index in the job's list of objects.
    Object(u32),
    /// An output of another task of the job.
    Output {
        /// Index in the job of the task that writes the output.
        task: u32,
        /// Index of the output in the template of that task.
        output: u16,
    },
    /// A part of an object, its content or a folder that is made of it. The whole object is in the
    /// node's store, and the sandbox has a copy of the part.
    Part {
        /// Index in the job's list of objects.
        object: u32,
        /// The part that the task reads.
        part: PartOfFile,
    },
    /// A part of an output of another task of the job, as of an object.
    OutputPart {
        /// Index in the job of the task that writes the output.
        task: u32,
        /// Index of the output in the template of that task.
        output: u16,
        /// The part that the task reads.
        part: PartOfFile,
    },
}

impl InputFrom {
    /// Index in the job's list of objects, unless the input is of an output of another task.
    pub fn object(self) -> Option<u32> {
        match self {
            InputFrom::Object(object) | InputFrom::Part { object, .. } => Some(object),
            InputFrom::Output { .. } | InputFrom::OutputPart { .. } => None,
        }
    }

    /// The task that writes the input, and the index of the output in that task's template, unless
    /// the input is of an object with which the job was submitted.
    pub fn output(self) -> Option<(u32, u16)> {
        match self {
            InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. } => {
                Some((task, output))
            }
            InputFrom::Object(_) | InputFrom::Part { .. } => None,
        }
    }

    /// The part that the task reads, unless it reads the whole file.
    pub fn part(self) -> Option<PartOfFile> {
        match self {
            InputFrom::Part { part, .. } | InputFrom::OutputPart { part, .. } => Some(part),
            InputFrom::Object(_) | InputFrom::Output { .. } => None,
        }
    }
}

/// What a task reads in place of a file: a part of it, its content if it is compressed, or a folder
/// that is made of it. `u64::MAX` as the end stands for the end of the file. [All](Self::ALL) bytes
/// are a private copy of the file, which the task may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartOfFile {
    /// A range of bytes.
    Bytes {
        /// The first byte, from 0.
        first: u64,
        /// The byte after the last one.
        end: u64,
    },
    /// A range of records.
    Records {
        /// The first record, from 0.
        first: u64,
        /// The record after the last one.
        end: u64,
    },
    /// The content of a compressed file, which each node decompresses once and keeps in its store.
    Decompressed {
        /// Whether the task gets a private copy, which it may write.
        copied: bool,
    },
    /// A folder that a command makes of the file, once on each node.
    Prepared {
        /// The command: an index in the template's [`preparations`](TaskTemplate::preparations).
        by: u16,
    },
}

impl PartOfFile {
    /// Whether it is some of the bytes or records of the file, or a copy of all.
    pub fn is_range(self) -> bool {
        matches!(self, PartOfFile::Bytes { .. } | PartOfFile::Records { .. })
    }

    /// The derived copy that the task reads, of an object: the content of a compressed file, or a
    /// folder. `preparations` are those of the template. `None` if nothing is made of the object.
    pub fn copy_of(self, source: ObjectId, preparations: &[Name]) -> Option<ObjectId> {
        match self {
            PartOfFile::Bytes { .. } | PartOfFile::Records { .. } => None,
            PartOfFile::Decompressed { .. } => Some(source.decompressed()),
            PartOfFile::Prepared { by } => {
                Some(source.prepared(preparations.get(usize::from(by))?))
            }
        }
    }

    /// The whole file: the sandbox has a copy of it, and not a link to the store.
    pub const ALL: PartOfFile = PartOfFile::Bytes { first: 0, end: u64::MAX };
}

impl Input {
    /// The same input as a private copy, unless it is a part of a file, which is a copy anyway.
    pub fn copied(self) -> Self {
        self.read_as(|part| match part {
            None => PartOfFile::ALL,
            Some(PartOfFile::Decompressed { .. }) => PartOfFile::Decompressed { copied: true },
            Some(part) => part,
        })
    }

    /// The same input, but the task reads the content of the compressed file.
    pub fn decompressed(self) -> Self {
        self.read_as(|part| part.unwrap_or(PartOfFile::Decompressed { copied: false }))
    }

    /// Whether the task reads the content of a compressed file.
    pub fn is_decompressed(&self) -> bool {
        matches!(self.from.part(), Some(PartOfFile::Decompressed { .. }))
    }

    /// Whether each node makes something of the file, which the task reads.
    pub fn is_derived(&self) -> bool {
        let is_prepared = matches!(self.from.part(), Some(PartOfFile::Prepared { .. }));
        is_prepared || self.is_decompressed()
    }

    fn read_as(self, part: impl FnOnce(Option<PartOfFile>) -> PartOfFile) -> Self {
        let part = part(self.from.part());
        let from = match self.from {
            InputFrom::Object(object) | InputFrom::Part { object, .. } => {
                InputFrom::Part { object, part }
            }
            InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. } => {
                InputFrom::OutputPart { task, output, part }
            }
        };
        Input { from, ..self }
    }
}

/// A file, or several, that a task writes. It is taken from the sandbox when the task has ended as
/// [`when`](Self::when) says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedOutput", into = "EncodedOutput")]
pub struct OutputSpec {
    /// A file in the sandbox, or a glob.
    pub pattern: Template,
    /// Destination in persistent storage: a URL, or a path that begins at the template's `base`.
    /// It is a folder if it ends in `/`, or if `pattern` is a glob. `None` if the output goes to
    /// stores of executors only.
    pub destination: Option<Template>,
    /// Number of executors that keep a replica in their stores until the job is released or
    /// forgotten; 0 if the output goes to persistent storage only.
    pub replicas: u8,
    /// Whether executors keep the replicas only until all tasks that read the output have
    /// succeeded.
    pub until_read: bool,
    /// Whether the task may succeed without writing the output.
    pub optional: bool,
    /// After which ends of the task the output is delivered.
    pub when: DeliverWhen,
}

/// An output as it is written. Journals and messages had no field for `when` at first: an output
/// with another value than the default has [`TemplatePart::When`] at the end of its pattern.
#[derive(Serialize, Deserialize)]
#[serde(rename = "OutputSpec")]
struct EncodedOutput {
    pattern: Template,
    destination: Option<Template>,
    replicas: u8,
    until_read: bool,
    optional: bool,
}

impl From<OutputSpec> for EncodedOutput {
    fn from(output: OutputSpec) -> Self {
        let OutputSpec { mut pattern, destination, replicas, until_read, optional, when } = output;
        if when != DeliverWhen::Success {
            pattern.0.push(TemplatePart::When(when));
        }
        EncodedOutput { pattern, destination, replicas, until_read, optional }
    }
}

impl From<EncodedOutput> for OutputSpec {
    fn from(encoded: EncodedOutput) -> Self {
        let EncodedOutput { mut pattern, destination, replicas, until_read, optional } = encoded;
        let mut when = DeliverWhen::Success;
        // It stands at the end alone; elsewhere it would mean nothing.
        pattern.0.retain(|part| match part {
            TemplatePart::When(written) => {
                when = *written;
                false
            }
            _ => true,
        });
        OutputSpec { pattern, destination, replicas, until_read, optional, when }
    }
}

impl TaskTemplate {
    /// The outputs that a task delivers when it has succeeded, with their places, as if no output
    /// were delivered after a failure. Two tasks whose results may stand for each other have the
    /// same ones.
    pub fn outputs_of_success(&self) -> impl Iterator<Item = (u16, OutputSpec)> {
        let outputs = (0..).zip(&self.outputs).filter(|(_, output)| output.when.is_after_success());
        outputs.map(|(place, output)| {
            (place, OutputSpec { when: DeliverWhen::Success, ..output.clone() })
        })
    }

    /// Whether some outputs are delivered when a task has not succeeded.
    pub fn delivers_after_failure(&self) -> bool {
        self.outputs.iter().any(|output| output.when.is_after_failure())
    }

    /// Whether streams beyond [`DEFAULT_CAPTURE_BYTES`] are kept as outputs, up to the capture
    /// limit.
    pub fn keeps_streams(&self) -> bool {
        self.outputs.iter().any(OutputSpec::is_stream)
    }

    /// Keeps whole streams, up to this limit for each.
    pub fn keep_streams(&mut self, most_bytes: u64) {
        self.capture_bytes = most_bytes;
        // Before outputs of failed tasks alone: with or without those, all others have the same
        // places, by which results of earlier jobs name them.
        let last = self.outputs.iter().rposition(|output| output.when.is_after_success());
        let place = last.map_or(0, |last| last + 1);
        self.outputs.splice(place..place, (0..STREAMS.len()).map(OutputSpec::stream));
    }
}

impl OutputSpec {
    /// The output that is a whole stream of the task: one of [`STREAMS`].
    pub fn stream(number: usize) -> Self {
        // No file of a sandbox can have this name.
        let name = Name::concat(&[b"\0", STREAMS[number].as_bytes()]);
        let pattern = Template([TemplatePart::Literal(name)].into());
        OutputSpec {
            pattern,
            destination: None,
            replicas: 1,
            until_read: false,
            optional: true,
            when: DeliverWhen::Success,
        }
    }

    /// Whether it is a whole stream of the task, and not a file that the task writes.
    pub fn is_stream(&self) -> bool {
        matches!(&self.pattern.0[..], [TemplatePart::Literal(name)] if name.starts_with(b"\0"))
    }

    /// Whether the destination in persistent storage is known before a task with these values runs.
    /// Targets of symbolic links are not considered.
    pub fn is_declared(&self, values: &[Value]) -> bool {
        let is_known = |word: &Template| word.is_known(values);
        self.destination.as_ref().is_some_and(is_known)
            && is_known(&self.pattern)
            && !self.pattern.is_glob()
    }
}

/// The part of a task that differs from other tasks of its template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskItem {
    /// Index of the template in the job.
    pub template: u16,
    /// The columns of the item: `{1}` stands for the first, `{2}` for the second, `{}` for all of
    /// them.
    pub values: Vec<Value>,
    /// Inputs of this task. They come after the inputs of the template.
    pub inputs: Vec<Input>,
}

/// Requirements of a task on its executor. Tasks with equal requirements form a class, and are
/// placed alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Tasks of higher priority are placed first.
    pub priority: i32,
    /// Resources that the task holds while it runs.
    pub resources: Resources,
    /// Time after which a running task is killed, microseconds.
    pub timeout_us: Option<u64>,
    /// Match expressions: the task's requirements and its rank of executors.
    pub terms: Option<Arc<Terms>>,
}

impl From<Resources> for Need {
    fn from(resources: Resources) -> Self {
        Need { resources, ..Need::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn output(file: &str, when: DeliverWhen) -> OutputSpec {
        let pattern = Template::parse(file);
        let destination = Some(Template::literal("./"));
        OutputSpec { pattern, destination, when, optional: false, until_read: false, replicas: 0 }
    }

    #[test]
    fn an_output_for_success_is_written_as_before_and_the_others_are_read_again() {
        let without = EncodedOutput::from(output("{/}.log", DeliverWhen::Success));
        assert_eq!(without.pattern, Template::parse("{/}.log"));
        for (when, word) in DeliverWhen::ALL {
            let bytes = postcard::to_allocvec(&output("{/}.log", when)).unwrap();
            assert_eq!(
                postcard::from_bytes::<OutputSpec>(&bytes).unwrap(),
                output("{/}.log", when)
            );
            assert_eq!(DeliverWhen::of_word(word.as_bytes()), Some(when));
        }
        assert_eq!(DeliverWhen::of_word(b"on_failure"), None);
    }

    #[test]
    fn preparations_are_written_with_the_variables_and_read_again() {
        let mut template = TaskTemplate::new(Program::Noop);
        template.env = vec![("A".into(), Template::parse("{1}"))];
        template.preparations =
            [r"xargs -I{} x {in} {out} \{}", "", "{.} {#}"].map(Name::from).into();
        for _ in 0..2 {
            let bytes = postcard::to_allocvec(&template).unwrap();
            assert_eq!(postcard::from_bytes::<TaskTemplate>(&bytes).unwrap(), template);
        }
    }

    #[test]
    fn streams_have_the_same_places_with_and_without_outputs_of_failed_tasks() {
        use DeliverWhen::{Always, Failure, Success};
        for (whens, streams) in [
            (vec![], 0),
            (vec![Failure], 0),
            (vec![Failure, Always, Failure], 2),
            (vec![Success], 1),
        ] {
            let mut template = TaskTemplate::new(Program::Noop);
            template.outputs = whens.iter().map(|when| output("x", *when)).collect();
            template.keep_streams(5);
            let places: Vec<_> =
                (0..template.outputs.len()).filter(|n| template.outputs[*n].is_stream()).collect();
            assert_eq!(places, [streams, streams + 1], "{whens:?}");
            assert_eq!(
                template.delivers_after_failure(),
                whens.iter().any(|when| *when != Success)
            );
        }
    }
}
