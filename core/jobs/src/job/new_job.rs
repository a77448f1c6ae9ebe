//! A job that a client is about to submit.

use alloc::sync::Arc;

use eyas_types::{JobId, ObjectSpec};

use super::Job;
use crate::spec::JobSpec;

/// A job with all that can be found out before it has an id. For a million tasks or inputs this
/// takes a while, so it is made before the decider of jobs, which does one thing at a time, hears
/// of the job.
#[derive(Debug)]
pub struct NewJob(Job);

impl NewJob {
    /// Makes a job of what was submitted, which was checked.
    pub fn new(spec: JobSpec) -> Self {
        NewJob(Job::new(JobId(0), spec))
    }

    /// The job as it is to be submitted.
    pub fn spec(&self) -> &JobSpec {
        &self.0.spec
    }

    /// Objects of it that other jobs keep.
    pub fn kept_objects(&self) -> impl Iterator<Item = &ObjectSpec> {
        let objects = if self.0.borrowed.are_named() { &self.0.spec.objects[..] } else { &[] };
        objects.iter().filter(|object| object.is_kept())
    }

    /// The job once it is accepted. `unix_ms` is the present time.
    pub(crate) fn submit(self, id: JobId, unix_ms: u64) -> Job {
        let NewJob(mut job) = self;
        job.id = id;
        job.clock.began_us = unix_ms * 1000;
        Arc::make_mut(&mut job.spec).submitted_unix_ms = unix_ms;
        job
    }
}
