//! A folder as a mounted file system (FUSE), for `eyas io mount`: programs that use the mount get
//! the folder's content, and their reads and writes are ordered.
//!
//! This crate orders nothing itself. Its process runs under the library of `eyas io run`, which
//! intercepts functions of the C library. So this crate reads, writes, syncs and closes content
//! with Rust's `std`, which calls the C library. For everything else it uses `rustix`, which does
//! not.
//!
//! | part | file | has |
//! | --- | --- | --- |
//! | `PassthroughFiles` | `filesystem.rs` | the answers to the kernel's requests |
//! | `PassedNodes` | `nodes.rs` | the entries that the kernel knows, by their numbers |
//! | | `attributes.rs` | their attributes, in the forms of the kernel's interface |
//! | `FileVersion` | `version.rs` | size and times, which show whether a file has changed |
//! | | `times.rs` | times, in the same forms |
//! | | `extended.rs` | their extended attributes |
//! | `PassedFile` | `file.rs` | an open file |
//! | `PassedFolder` | `folder.rs` | an open folder |
//! | `PassedHandles` | `handles.rs` | the open files or folders, by the kernel's handles |
//! | `MountPlace`, `OrderedMount` | `session.rs` | the mount from its beginning to its end |
//!
//! Only the user who mounts may use the mount, so each operation has the rights of this process,
//! and the underlying file system checks them. The kernel checks the modes of files before
//! (`default_permissions`), for programs that have fewer rights than their user.

#![forbid(unsafe_code)]

mod attributes;
mod extended;
mod file;
mod filesystem;
mod folder;
mod handles;
mod nodes;
mod session;
mod times;
mod version;

pub use session::{MountPlace, OrderedMount, OrderedMountError};
