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

/// What all tasks made from it have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTemplate {
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// What runs.
    pub program: Program,
    /// Environment variables set beyond the executor's own.
    pub env: Vec<(String, Template)>,
    /// Where it runs.
    pub folder: WorkingFolder,
    /// The absolute folder from which relative destinations of outputs are meant.
    pub base: Name,
    /// Inputs that every task has, before its item's own.
    pub inputs: Vec<Input>,
    /// What is taken from the sandbox afterwards.
    pub outputs: Vec<OutputSpec>,
    /// What it holds while it runs.
    pub resources: Resources,
    /// Whose turn it is: higher goes first, and may suspend what is lower.
    pub priority: i32,
    /// Executors that may run it, as a match expression; any if there is none.
    pub requirements: Option<String>,
    /// Of several that may, which is the best, as a match expression.
    pub rank: Option<String>,
    /// Killed after running so long; what it was suspended for does not count.
    pub timeout_us: Option<u64>,
    /// How often a failed task is tried again.
    pub retries: u32,
    /// Bound on what is kept of stdout, and of stderr.
    pub capture_bytes: u64,
    /// What its tasks may do with files of the cluster.
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

/// What a task runs.
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
    /// Where it comes from.
    pub from: InputFrom,
    /// Its name in the sandbox; the last component of its source where this is `None`.
    pub name: Option<Name>,
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputFrom {
    /// An object, by its place in the job's list of objects.
    Object(u32),
    /// What another task of the job writes: its index, and the output's place in that task's template.
    Output {
        /// The producing task's index in the job.
        task: u32,
        /// Place in the producing template's outputs.
        output: u16,
    },
}

/// What is taken from a task's sandbox when it has succeeded.
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
    /// What `{}` and `{1}`, `{2}` … stand for.
    pub values: Vec<Value>,
    /// This task's own inputs, after its template's.
    pub inputs: Vec<Input>,
}

/// What one placeholder stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// As the user wrote it.
    pub text: Name,
    /// If it names an input: that input's place among the task's own inputs. Its plain placeholder becomes the staged
    /// path.
    pub input: Option<u16>,
}

/// What a task needs of an executor. Tasks of equal needs are one class, and placed alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Higher goes first.
    pub priority: i32,
    /// What it holds while it runs.
    pub resources: Resources,
    /// What it requires beside, and which executor is the best for it.
    pub terms: Option<Arc<Terms>>,
}

impl From<Resources> for Need {
    fn from(resources: Resources) -> Self {
        Need { resources, ..Need::default() }
    }
}
