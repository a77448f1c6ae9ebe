//! Layer test, end-to-end tests, benchmarks.
