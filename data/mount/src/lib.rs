//! The files of a cluster as a mounted file system (FUSE).
//!
//! The kernel asks this process; this process asks the cluster. Programs of one mount see each
//! other's changes at once. Other mounts and clients see a file when it is closed or synced. The
//! mount decides nothing about where files are: that is the task of `eyas_files`.

#![forbid(unsafe_code)]

mod answers;
mod appending;
mod content;
mod extended;
mod failure;
mod filesystem;
mod folders;
pub mod guardian;
mod handles;
mod holes;
mod mounted;
mod namespace;
mod nodes;
mod reading;
mod removed;
mod session;
mod space;
mod times;
mod unpublished;

pub use session::{Mount, MountError, MountOptions};
