//! Tasks: one black-box command each, with declared inputs, outputs and resources.
//!
//! A job of a million tasks is a few templates and a million short items; an item is expanded only on the
//! node that runs it (see [`crate::template`]).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::access::FilesScope;
use crate::matching::Terms;
use crate::name::Name;
use crate::resource::Resources;
use crate::template::Template;

/// Bound on what is kept of each of a task's output streams, unless the job says otherwise. More is cut off
/// and counted in the outcome.
pub const DEFAULT_CAPTURE_BYTES: u64 = 1 << 20;
/// The highest such bound a job may ask for: output goes through the dispatcher, in one message a task.
pub const MAX_CAPTURE_BYTES: u64 = 16 << 20;
/// Most tasks a job may have, and most objects that they read.
pub const MAX_TASKS: usize = 10_000_000;
/// Most templates a job may have.
pub const MAX_TEMPLATES: usize = u16::MAX as usize;
/// Most inputs a task may have.
pub const MAX_INPUTS: usize = 4096;
/// Most objects that one job, or one push, has executors fetch ahead of demand.
pub const MAX_PUSHED: usize = 65_536;
/// Most executors that keep a replica of one output.
pub const MAX_REPLICAS: u8 = 16;

/// The common part of all tasks of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTemplate {
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// The program that runs.
    pub program: Program,
    /// Environment variables set beyond the executor's own.
    pub env: Vec<(String, Template)>,
    /// The working folder.
    pub folder: WorkingFolder,
    /// The absolute folder to which relative destinations of outputs refer.
    pub base: Name,
    /// Inputs that every task has, before its item's own.
    pub inputs: Vec<Input>,
    /// Outputs that are taken from the sandbox when the task has succeeded.
    pub outputs: Vec<OutputSpec>,
    /// Resources that the task holds while it runs.
    pub resources: Resources,
    /// Tasks of higher priority go first, and may suspend tasks of lower priority.
    pub priority: i32,
    /// A match expression, which is true for executors that may run the task; `None`: all executors.
    pub requirements: Option<String>,
    /// A match expression, whose value is highest for the best executor.
    pub rank: Option<String>,
    /// The task is killed after running for this time, not counting the time for which it was suspended.
    pub timeout_us: Option<u64>,
    /// How often a failed task is tried again.
    pub retries: u32,
    /// Bound on what is kept of stdout, and of stderr.
    pub capture_bytes: u64,
    /// Rights of the tasks on files of the cluster.
    pub files: FilesScope,
}

impl TaskTemplate {
    /// A template for `program` with nothing else asked for.
    pub fn new(program: Program) -> Self {
        TaskTemplate {
            id: None,
            program,
            env: Vec::new(),
            folder: WorkingFolder::Sandbox,
            base: Name::from("/"),
            inputs: Vec::new(),
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
}

/// The program of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Nothing: the task succeeds inside the executor once its inputs are there. For measuring, and for warming stores.
    Noop,
    /// A command: the program and its arguments.
    Command(Vec<Template>),
}

/// A task's working folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkingFolder {
    /// A folder that every node sees, usually where the job was submitted.
    Path(Name),
    /// A folder of the task's own on the node's disk, gone when the task has ended.
    Sandbox,
}

/// A file that is on the node before the task starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The source of the input.
    pub from: InputFrom,
    /// Name of the input in the sandbox; `None`: the last component of its source.
    pub name: Option<Name>,
}

/// The source of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputFrom {
    /// An object, by its place in the job's list of objects.
    Object(u32),
    /// An output of another task of the job.
    Output {
        /// The producing task's index in the job.
        task: u32,
        /// Place in the producing template's outputs.
        output: u16,
    },
}

/// An output: a file, or a pattern of files, that is taken from a task's sandbox when the task has succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// A file in the sandbox, or a glob.
    pub pattern: Template,
    /// Where it goes in persistent storage, if it does: a URL, or a path from the template's `base`. A glob's, and one
    /// that ends in `/`, is a folder.
    pub destination: Option<Template>,
    /// How many executors keep a replica of it in their stores until its job is forgotten or released; none, if it only
    /// goes to persistent storage.
    pub replicas: u8,
    /// Whether they keep it only until all tasks that read it have succeeded.
    pub until_read: bool,
    /// Whether the task may leave it out.
    pub optional: bool,
}

impl OutputSpec {
    /// Whether it is known before a task with these values runs where in persistent storage it goes, but for symbolic links.
    pub fn is_declared(&self, values: &[Value]) -> bool {
        let is_known = |word: &Template| word.is_known(values);
        self.destination.as_ref().is_some_and(is_known) && is_known(&self.pattern) && !self.pattern.is_glob()
    }
}

/// One task of a job, as it waits: which template, and what is filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskItem {
    /// Place in the job's templates.
    pub template: u16,
    /// Values of `{}` and `{1}`, `{2}` …
    pub values: Vec<Value>,
    /// This task's own inputs, after its template's.
    pub inputs: Vec<Input>,
}

/// The value of one placeholder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// As the user wrote it.
    pub text: Name,
    /// If it names an input: that input's place among the task's own inputs. Its plain placeholder becomes the staged
    /// path.
    pub input: Option<u16>,
}

/// Conditions of a task on its executor. Tasks with equal needs are one class, and placed alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Higher goes first.
    pub priority: i32,
    /// Resources that the task holds while it runs.
    pub resources: Resources,
    /// Requirements and rank.
    pub terms: Option<Arc<Terms>>,
}

impl From<Resources> for Need {
    fn from(resources: Resources) -> Self {
        Need { resources, ..Need::default() }
    }
}
