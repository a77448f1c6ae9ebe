//! How many grants are outstanding at a time, and when the next one may leave.

pub(crate) mod anticipation;
pub(crate) mod budget;
pub(crate) mod concurrency;
pub(crate) mod forecast;
pub(crate) mod prediction;
