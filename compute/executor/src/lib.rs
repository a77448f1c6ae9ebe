//! An executor: the process on a node that stores objects and runs tasks.
//!
//! This crate is the shell around [`eyas_node::Node`], which decides. It has the session with the
//! dispatcher, the store, fetches, sandboxes and processes. Facts go to the node as events, and the
//! node's effects are carried out. The shell decides nothing, and nothing here asks the dispatcher
//! and waits, with one exception: the thread of a task waits for the lease and for the task's
//! output places before outputs appear.
//!
//! | module | contents |
//! | --- | --- |
//! | `run`, `session` | start and end of the process; sessions with the dispatcher, reconnection |
//! | `executor_core` | the node, its events and effects; objects fetched, held or reserved |
//! | `task` | one task: sandbox, staging, outputs, lease, claims of places, tokens, node failures |
//! | `process` | one process group: start, capture, time limit, suspension, termination, strays |
//! | `resources` | limits and use of memory and processors by tasks |
//! | `leftovers` | processes of executors that died: guardian, control groups, process names |

mod cluster_files;
mod config;
mod error;
mod executor_core;
mod files_node;
pub(crate) mod inherited;
mod leftovers;
mod private_folder;
mod process;
mod resources;
mod run;
mod session;
mod stop;
mod storage_turns;
mod task;

pub use config::{ExecutorConfig, PoolNode, default_capacity};
pub use error::ExecutorError;
pub use eyas_dfs::LoadOptions;
pub use inherited::{close_inherited, raise_descriptor_limit};
pub use leftovers::guardian;
pub use leftovers::incarnation::{Incarnation, NoIncarnation};
pub use resources::gpus::{GpuVendor, Gpus};
pub use resources::limit_mode::{LimitMode, LimitOptions, UnknownLimitMode};
pub use resources::part;
pub use resources::topology::usable_cores;
pub use run::run;
pub use stop::{StopSignal, StopSwitch};
