//! The files of a cluster as a mounted file system (FUSE).
//!
//! The kernel asks this process; this process asks the cluster. Programs of one mount see each
//! other's changes at once. Other mounts and clients see a file when it is closed or synced. The
//! mount decides nothing about where files are: that is the task of `eyas_files`.

#![forbid(unsafe_code)]

mod answers;
mod drafts;
mod entries;
mod extended;
mod failure;
mod filesystem;
mod folders;
mod found;
pub mod guardian;
mod handles;
mod holes;
mod inode;
mod inodes;
mod kernel_cache;
mod listing;
mod mounted;
mod namespace;
mod new_files;
mod publication;
mod reading;
mod removed;
mod requests;
mod session;
mod space;
mod storing;
mod times;
mod unpublished;

pub use session::{Mount, MountError, MountOptions};
