//! A job's report.
