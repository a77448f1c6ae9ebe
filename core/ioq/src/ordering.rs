//! Which run of requests is granted next.

pub(crate) mod mclock;
pub(crate) mod policies;
pub(crate) mod queue;
pub(crate) mod run;
