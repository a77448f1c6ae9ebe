//! An executor: the process on a node that stores objects and runs tasks.
//!
//! The shell around [`eyas_node::Node`], which decides. Here are the session with the dispatcher, the store, fetches,
//! sandboxes and processes; facts go to the node as events, and its effects are carried out. It decides nothing
//! itself, and never asks the dispatcher anything and waits; but a task's own thread waits before its outputs appear, until
//! it has its lease and its places.

mod blame;
mod brain;
mod cgroup;
mod claim;
mod config;
mod deliver;
mod files;
pub mod guardian;
mod incarnation;
mod lease;
mod leftovers;
mod places;
mod process;
mod room;
mod sandbox;
mod serve;
mod spawn;
mod stop;
mod strays;
mod tokens;
mod turns;
mod work;

pub use config::{Config, ConfigError, default_capacity};
pub use incarnation::{Incarnation, NoIncarnation};
pub use serve::{ExecutorError, run};
pub use stop::{Stop, Switch};
