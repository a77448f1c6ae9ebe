//! Types that all rooms share: ids, units, and the specs of tasks, objects, executors and outcomes.
//!
//! A type is here only if two rooms that may not import each other both need it. Nothing here
//! decides, waits, reads a clock or touches a file; the crate is `no_std` with `alloc`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access;
pub mod compressed;
pub mod course;
pub mod deliver_when;
pub mod dfs;
pub mod estimate;
pub mod id;
pub mod io;
pub mod load;
pub mod matching;
pub mod mistake;
pub mod name;
pub mod named;
pub mod numbers;
pub mod object;
pub mod outcome;
pub mod place;
pub mod policy;
pub mod random;
pub mod resource;
pub mod s3;
pub mod shown;
pub mod task;
pub mod template;
pub mod units;
pub mod value;

pub use deliver_when::DeliverWhen;
pub use estimate::Estimate;
pub use id::{ExecutorId, JobId, ObjectId, PlaceId, TaskId};
pub use io::{Extent, Operation, StorageFileId, StorageLocation};
pub use load::ExecutorLoad;
pub use name::Name;
pub use named::{NameChange, NamedFile, Sha256};
pub use numbers::{NumberRange, Numbers};
pub use object::{CopyNews, FileMode, ObjectSpec, Version};
pub use outcome::{AssignmentEnd, Origin, Outcome, Reads, Status, TaskResult};
pub use policy::{Distribution, EvictionPolicy, PlacementPolicy, PolicyError, ProvisioningPolicy};
pub use resource::{GPU, Resources};
pub use shown::{shown, shown_lines};
pub use task::{
    Input, InputFrom, Need, OutputSpec, PartOfFile, Program, TaskItem, TaskTemplate, WorkingFolder,
};
pub use template::{Template, TemplatePart};
pub use value::Value;
