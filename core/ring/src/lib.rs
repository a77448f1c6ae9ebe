//! The distributed file system without a master: who leads which file, who keeps its record and its chunks, and what is
//! done when nodes come and go (elastic-blocks §2.4).
//!
//! Pure state machines: they must never touch a disk, a clock or a socket.

#![no_std]
#![forbid(unsafe_code)]
