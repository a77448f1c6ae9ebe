//! Jobs: what was submitted, how far each task is, and the course of it all.

mod claims;
mod course;
mod items;
mod kept;
mod output;
mod pending;
mod places;
mod progress;
mod spec;
#[cfg(test)]
mod tests;

pub(crate) use course::SAMPLE_EVERY;
pub(crate) use kept::Left;
pub(crate) use output::{cut_output, output_bytes};
pub(crate) use progress::{Job, Phase, Released, unix_ms};
pub(crate) use spec::{JobSpec, SpecError};
