//! Jobs: what was submitted, how far each task is, and the course of it all.

mod course;
mod items;
mod job;
mod pending;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use course::SAMPLE_EVERY;
pub(crate) use job::{Job, Phase, Released, unix_ms};
pub(crate) use spec::JobSpec;
