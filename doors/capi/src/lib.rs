//! The C library: jobs, files and elastic blocks of a cluster, for programs in C, C++, and
//! languages that call C.
//!
//! `include/eyas.h` is generated from this crate, doc comments included. Each file with exported
//! functions converts the caller's pointers, and leaves the work to `eyas_client`. The rules of the
//! interface:
//!
//! - A handle is the number of an entry in a table, in the guise of a pointer. It is never
//!   dereferenced, so a handle that is closed, NULL, or of another kind gives an error.
//! - No panic crosses the boundary: `status::call` turns it into a status.
//! - Inside, a client has a runtime of its own. Outside, every function blocks.

mod attributes;
mod block;
mod client;
mod files;
mod handles;
mod job;
mod named;
mod places;
mod pointers;
mod reader;
mod results;
mod signals;
mod status;
mod task;
mod version;
mod writer;
