//! The simulator's room: workloads of the data diffusion paper, and its abstract model.

#![forbid(unsafe_code)]

pub mod arrival;
pub mod caching;
pub mod random;
pub mod workload;
