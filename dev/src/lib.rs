//! Layer test, end-to-end tests, benchmarks.

#![forbid(unsafe_code)]

pub mod bench;
pub mod json_schema;
pub mod reference;
pub mod tree;
