//! End-to-end tests, benchmarks, experiments.

#![forbid(unsafe_code)]

pub mod bench;
