//! The files of a cluster as a mounted file system (FUSE).
//!
//! The kernel asks this process; this process asks the cluster. Programs of one mount see each
//! other's changes at once. Other mounts and clients see a file when it is closed or synced. The
//! mount decides nothing about where files are: that is the task of `eyas_files`.
//!
//! `filesystem.rs` passes each request to `Mounted`, which has the parts and carries out what needs
//! several of them. Each part has fields that no other part changes, and gets what else it needs as
//! arguments:
//!
//! | part | file | has |
//! | --- | --- | --- |
//! | `InodeState` | `inode/state.rs` | what is known of an entry, and what may happen to it |
//! | | `inode/attributes.rs` | its attributes |
//! | | `inode/version.rs` | the version of the cluster, and which of it the kernel has cached |
//! | | `inode/uses.rs` | the programs that have it open |
//! | `Inodes` | `inodes.rs` | the numbers and names of those that the kernel knows |
//! | `Namespace` | `namespace.rs` | the entries of the cluster |
//! | `Entries` | `entries.rs` | both together, and the renames that are under way |
//! | `FolderReader` | `folders.rs` | the page of an open folder |
//! | `OpenHandles` | `handles.rs` | the open files and folders |
//! | `Drafts` | `drafts.rs` | where drafts are, and what is stored of them early |
//! | `DraftPublisher` | `publication.rs` | how drafts become versions of the cluster |
//! | `DraftStore` | `storing.rs` | how their content is stored |
//! | `UnpublishedFiles` | `unpublished.rs` | the files whose publication is tried again |
//! | `RemovedContent` | `removed.rs` | the content of removed files that are open |
//! | `Readers` | `reading.rs` | the open chunks, and the threads that wait for a disk |
//! | `KernelCache` | `kernel_cache.rs` | the way to tell the kernel that its cache is outdated |
//! | `SpaceGauge` | `space.rs` | the free space that was last seen |
//!
//! Locks are taken in this order: `publishing` of entries by their numbers, the renames, the tables
//! of `Inodes`, the state of an entry.

#![forbid(unsafe_code)]

mod answers;
mod cluster_entry;
mod drafts;
mod entries;
mod extended;
mod failure;
mod filesystem;
mod folders;
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
pub mod serving;
mod session;
mod space;
mod storing;
mod times;
mod unpublished;

pub use session::{Mount, MountError, MountOptions};
