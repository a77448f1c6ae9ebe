//! The node-local object store, and persistent storage behind one trait.
