//! Runs the benchmarks in miniature, so that they keep working. Their figures do not matter here.

#![allow(
    clippy::duplicate_mod,
    reason = "two of them share their executors, and each is a program of its own"
)]

#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/dispatch.rs"]
mod dispatch;
#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/farm.rs"]
mod farm;
#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/files.rs"]
mod files;
#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/large_jobs.rs"]
mod large_jobs;
#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/leases.rs"]
mod leases;
#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/local_hit.rs"]
mod local_hit;
#[allow(dead_code, reason = "its main is for `cargo bench`")]
#[path = "../benches/memory.rs"]
mod memory;

#[test]
fn dispatch_runs() {
    dispatch::run(dispatch::TINY);
}

#[test]
fn farm_runs() {
    farm::run_tiny();
}

#[test]
fn files_runs() {
    files::run(&files::TINY);
}

#[test]
fn large_jobs_runs() {
    large_jobs::run(large_jobs::TINY);
}

#[test]
fn leases_runs() {
    leases::run(&leases::TINY);
}

#[test]
fn local_hit_runs() {
    local_hit::run(local_hit::TINY);
}

#[test]
fn memory_runs() {
    memory::run(memory::TINY);
}
