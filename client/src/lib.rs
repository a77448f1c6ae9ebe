//! Rust client library.
