//! Functions of the C library that this library intercepts, by topic.

mod aio;
mod buffers;
mod close;
mod copy;
mod map;
mod open;
mod read;
mod stdio;
mod write;
