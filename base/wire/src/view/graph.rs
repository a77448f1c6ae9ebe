//! The graph of a job: its templates with the states of their tasks, what these read of each other,
//! and the objects with which the job was submitted.

use eyas_types::course::TaskCounts;
use serde::{Deserialize, Serialize};

/// A template: what an array of tasks, or one task, is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateView {
    /// Index of the template in the job.
    pub template: u16,
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// The words of the command, with placeholders; none for a task without a command. Of a long
    /// command, the first words.
    pub command: Vec<String>,
    /// Its tasks, by state.
    pub tasks: TaskCounts,
}

/// Which outputs of one template's tasks the tasks of another template read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateReads {
    /// The template whose outputs are read.
    pub from: u16,
    /// The template whose tasks read.
    pub to: u16,
    /// Number of pairs of a task that writes and a task that reads.
    pub pairs: u64,
    /// First and last task that is read, if each task reads the outputs of one task only, and each
    /// of a later one than the task before it.
    pub in_order: Option<(u32, u32)>,
}

/// The graph of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobGraph {
    /// The templates of the job, in order.
    pub templates: Vec<TemplateView>,
    /// What tasks of a template read of those of another; at most one entry for two templates.
    pub reads: Vec<TemplateReads>,
    /// Number of objects with which the job was submitted, each counted once.
    pub inputs: u64,
    /// Bytes of these objects.
    pub input_bytes: u64,
    /// BLAKE3 hash of the ids of these objects, sorted, 16 bytes each, in hexadecimal digits. The
    /// id of an object is a hash of its source and its version.
    pub input_digest: String,
}

impl TemplateReads {
    /// Adds what later tasks read of the same template.
    pub fn add(&mut self, later: &TemplateReads) {
        self.pairs += later.pairs;
        self.in_order = match (self.in_order, later.in_order) {
            (Some((first, before)), Some((next, last))) if before < next => Some((first, last)),
            _ => None,
        };
    }
}
