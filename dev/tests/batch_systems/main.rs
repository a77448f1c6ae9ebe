//! Pools on real batch systems, which run on this machine: submission, states, what is given back,
//! and what goes wrong.
//!
//! Run by `make judges`, which installs the batch systems and sets `EYAS_BATCH_SYSTEMS`. Without
//! the variable, these tests print that they test nothing.

mod experiments;
mod guide;
mod harness;
mod kubernetes;
mod sge;
mod slurm;
mod slurm_faults;
mod slurm_in_job;
mod slurm_options;
mod ssh;
#[path = "../end_to_end/support/mod.rs"]
#[allow(dead_code, unused_imports)]
mod support;
mod torque;
