//! Layer test, end-to-end tests, benchmarks.

#![forbid(unsafe_code)]

pub mod bench;
pub mod tree;
