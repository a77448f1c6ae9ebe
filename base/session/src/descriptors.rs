//! The limit of open files. A process that keeps many connections raises its own. Programs that it
//! starts get the limit as it was: those that close all possible descriptors, or use `select(2)`,
//! cannot live with a limit of a million.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of open files before this process raised it.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit: connections of peers stay open, and the
/// usual limit of 1,024 descriptors is too low for them.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // If the limit was raised before, the first one counts.
    let _ = BEFORE.set(limit);
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("cannot raise the limit of open files: {e}");
    }
}

/// The limit of open files for programs that this process starts, if it is another one than that of
/// this process.
pub fn descriptor_limit_of_caller() -> Option<Rlimit> {
    BEFORE.get().cloned()
}
