//! The shell around core/node: processes and sandboxes.
