//! What match expressions may speak of: attributes of an executor's node, of a task, and of the two together. Written
//! in CEL and compiled by `eyas-matching`, asked by the dispatcher's decider, which knows them as [`Expression`]s only.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;

/// A node's labels: free words that expressions ask for, such as `site` = `a`.
pub type Labels = BTreeMap<String, String>;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeType {
    /// A whole number.
    Whole,
    /// A number with a fraction.
    Fraction,
    /// A text.
    Text,
    /// Texts by their names.
    Labels,
}

macro_rules! attributes {
    ($($variant:ident = $name:literal, $kind:ident, $changes:ident, $doc:literal;)+) => {
        /// Something that an expression may mention.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Attribute { $(#[doc = $doc] $variant,)+ }

        impl Attribute {
            /// Every attribute, in the order in which help lists them.
            pub const ALL: &'static [Attribute] = &[$(Attribute::$variant),+];

            /// As expressions write it.
            pub fn name(self) -> &'static str {
                match self { $(Attribute::$variant => $name,)+ }
            }

            /// What it is.
            pub fn kind(self) -> AttributeType {
                match self { $(Attribute::$variant => AttributeType::$kind,)+ }
            }

            /// Whether it is the same for all tasks of equal needs, for as long as an executor is there. All others
            /// are of one task, or of the moment.
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
    NodeHost = "node.host", Text, Never, "Its host's name.";
    NodeLabels = "node.labels", Labels, Never, "Its labels.";
    NodeCpus = "node.cpus", Fraction, Never, "Its processors.";
    NodeMemory = "node.memory", Whole, Never, "Its memory, bytes.";
    NodeDisk = "node.disk", Whole, Never, "Its disk for sandboxes when it began, bytes.";
    NodeFreeDisk = "node.free_disk", Whole, Often,
        "Bytes its disk has for inputs and sandboxes: what is free, and what its store could give up.";
    NodeLoad = "node.load", Fraction, Often, "Share of its processors that have a task, 0 to 1.";
    TaskJob = "task.job", Text, Often, "The name of its job.";
    TaskCpus = "task.cpus", Fraction, Never, "Processors it takes.";
    TaskMemory = "task.memory", Whole, Never, "Memory it takes, bytes.";
    TaskDisk = "task.disk", Whole, Never, "Disk it takes, bytes.";
    TaskInputs = "task.inputs", Whole, Often, "How many inputs it has.";
    TaskInputBytes = "task.input_bytes", Whole, Often, "Their bytes.";
    TaskAttempt = "task.attempt", Whole, Often, "How often it was given to an executor before.";
    LocalBytes = "local_bytes", Whole, Often, "Bytes of the task's inputs that the node holds.";
    TransferSeconds = "transfer_seconds", Fraction, Often, "About how long it takes to bring the others.";
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

/// Who knows the values of attributes, for one task and one executor.
pub trait Facts {
    /// The value, which is of the attribute's kind.
    fn fact(&self, attribute: Attribute) -> Fact<'_>;
}

/// A compiled expression. The same facts give the same value: it has no other source of knowledge.
pub trait Expression: fmt::Debug + Send + Sync {
    /// As it was written; two of the same text are the same expression.
    fn text(&self) -> &str;

    /// Whether it mentions nothing but [fixed](Attribute::is_fixed) attributes.
    fn is_fixed(&self) -> bool;

    /// Whether it is true.
    ///
    /// # Errors
    /// Why it has no value for these facts, for a person: a label that the node does not have, a division by zero.
    fn holds(&self, facts: &dyn Facts) -> Result<bool, String>;

    /// Its number.
    ///
    /// # Errors
    /// As for [`holds`](Self::holds).
    fn number(&self, facts: &dyn Facts) -> Result<f64, String>;
}

/// On what terms a task meets executors. Tasks of the same needs and terms are placed alike.
#[derive(Clone, Debug)]
pub struct Terms {
    /// All of these must hold: the parts of `requirements`, between which it has `&&`.
    pub requirements: Box<[Arc<dyn Expression>]>,
    /// Of several executors, that for which this is highest.
    pub rank: Option<Arc<dyn Expression>>,
}

impl Terms {
    fn texts(&self) -> impl Iterator<Item = &str> {
        let rank = self.rank.iter().flat_map(|rank| [RANK, rank.text()]);
        self.requirements.iter().map(|part| part.text()).chain(rank)
    }
}

/// Stands between requirements and rank where terms are compared; no expression is empty.
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
