//! The functions of the C library that this library stands before, by what they do.

mod close;
mod copy;
mod map;
mod open;
mod read;
mod stdio;
mod write;
