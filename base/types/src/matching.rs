//! Attributes that match expressions can use: of an executor's node, of a task, and of both
//! together. Expressions are written in CEL and compiled by `eyas-matching`. The dispatcher's
//! decider knows them only as [`Expression`]s.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;

use thiserror::Error;

/// A node's labels: names with values that users choose, such as `site` = `a`.
pub type Labels = BTreeMap<String, String>;

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeType {
    /// A whole number.
    Whole,
    /// A number with a fraction.
    Fraction,
    /// A string.
    Text,
    /// Strings by name.
    Labels,
}

macro_rules! attributes {
    ($($variant:ident = $name:literal, $kind:ident, $changes:ident, $doc:literal;)+) => {
        /// An attribute that expressions can use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Attribute { $(#[doc = $doc] $variant,)+ }

        impl Attribute {
            /// Every attribute, in the order in which help lists them.
            pub const ALL: &'static [Attribute] = &[$(Attribute::$variant),+];

            /// The name in expressions.
            pub fn name(self) -> &'static str {
                match self { $(Attribute::$variant => $name,)+ }
            }

            /// The type of its value.
            pub fn kind(self) -> AttributeType {
                match self { $(Attribute::$variant => AttributeType::$kind,)+ }
            }

            /// Whether the value is the same for all tasks of equal needs while an executor is
            /// registered. Other attributes depend on the single task, or change over time.
            pub fn is_fixed(self) -> bool {
                match self { $(Attribute::$variant => Changes::$changes == Changes::Never,)+ }
            }
        }
    };
}

#[derive(PartialEq)]
enum Changes {
    Never,
    Often,
}

attributes! {
    NodeName = "node.name", Text, Never, "The executor's name.";
    NodeHost = "node.host", Text, Never, "The name of its host.";
    NodeLabels = "node.labels", Labels, Never, "The node's labels.";
    NodeCpus = "node.cpus", Fraction, Never, "The node's processors.";
    NodeMemory = "node.memory", Whole, Never, "The node's memory, bytes.";
    NodeDisk = "node.disk", Whole, Never, "Disk for sandboxes when the executor started, bytes.";
    NodeFreeDisk = "node.free_disk", Whole, Often,
        "Disk available for inputs and sandboxes, bytes: free space and what the store could \
         evict.";
    NodeLoad = "node.load", Fraction, Often,
        "Fraction of the node's processors that have a task, 0 to 1.";
    TaskJob = "task.job", Text, Often, "The name of the task's job.";
    TaskCpus = "task.cpus", Fraction, Never, "Processors that the task requests.";
    TaskMemory = "task.memory", Whole, Never, "Memory that the task requests, bytes.";
    TaskDisk = "task.disk", Whole, Never, "Disk that the task requests, bytes.";
    TaskInputs = "task.inputs", Whole, Often, "Number of the task's inputs.";
    TaskInputBytes = "task.input_bytes", Whole, Often, "Size of the task's inputs, bytes.";
    TaskAttempt = "task.attempt", Whole, Often, "Number of earlier assignments of the task.";
    LocalBytes = "local_bytes", Whole, Often,
        "Size of the task's inputs that the node holds, bytes.";
    TransferSeconds = "transfer_seconds", Fraction, Often,
        "Estimated time to fetch the other inputs, seconds.";
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact<'a> {
    /// Of [`AttributeType::Whole`].
    Whole(u64),
    /// Of [`AttributeType::Fraction`].
    Fraction(f64),
    /// Of [`AttributeType::Text`].
    Text(&'a str),
    /// Of [`AttributeType::Labels`].
    Labels(&'a Labels),
}

/// The values of attributes for one task and one executor.
pub trait Facts {
    /// The value, of the attribute's type.
    fn fact(&self, attribute: Attribute) -> Fact<'_>;
}

/// Why an expression has no value for some facts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluationError {
    /// For example a label that the node does not have, or a division by zero.
    #[error("{0}")]
    NoValue(String),
    /// The value of a condition is not a truth value.
    #[error("the value is {0}, which is neither true nor false")]
    NotTruth(String),
    /// The value of a rank is not a number.
    #[error("the value is {0}, which is not a number")]
    NotNumber(String),
}

/// A compiled expression. Its value depends on the facts alone.
pub trait Expression: fmt::Debug + Send + Sync {
    /// The expression's text. Expressions with the same text are equal.
    fn text(&self) -> &str;

    /// Whether the expression uses only [fixed](Attribute::is_fixed) attributes.
    fn is_fixed(&self) -> bool;

    /// The value of a condition.
    ///
    /// # Errors
    /// If the expression has no value for these facts.
    fn holds(&self, facts: &dyn Facts) -> Result<bool, EvaluationError>;

    /// The value of a rank.
    ///
    /// # Errors
    /// If the expression has no value for these facts.
    fn number(&self, facts: &dyn Facts) -> Result<f64, EvaluationError>;
}

/// Requirements and rank of a task. Tasks with the same needs and terms are placed alike.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The parts of `requirements` that `&&` joins; all must hold.
    pub requirements: Box<[Arc<dyn Expression>]>,
    /// The executor with the highest value is preferred.
    pub rank: Option<Arc<dyn Expression>>,
}

impl Terms {
    fn texts(&self) -> impl Iterator<Item = &str> {
        let rank = self.rank.iter().flat_map(|rank| [RANK, rank.text()]);
        self.requirements.iter().map(|part| part.text()).chain(rank)
    }
}

/// Separates requirements and rank where terms are compared; no expression is empty.
const RANK: &str = "";

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Terms {}

impl PartialOrd for Terms {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Terms {
    fn cmp(&self, other: &Self) -> Ordering {
        self.texts().cmp(other.texts())
    }
}
