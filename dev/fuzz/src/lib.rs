//! Targets: the parsers of what others write, such as peers, users and instruments, each as a
//! function of any bytes.
//!
//! A target must return, whatever the bytes are: without a panic, soon, and with little memory.
//! What must hold of what was read, it asserts. `tests/inputs.rs` tries the inputs of `corpus/` and
//! changes of them; a target must never touch a file that the bytes name.

#![forbid(unsafe_code)]

mod expressions;
mod files;
mod images;
mod jobs;
mod messages;
mod names;

/// A parser that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of the folder of its inputs in `corpus/`.
    pub name: &'static str,
    /// Reads the bytes. Panics if something does not hold.
    pub read: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "frames", read: messages::frames },
    Target { name: "greetings", read: messages::greetings },
    Target { name: "records", read: messages::records },
    Target { name: "globs", read: names::globs },
    Target { name: "names", read: names::names },
    Target { name: "templates", read: names::templates },
    Target { name: "jobs", read: jobs::jobs },
    Target { name: "expressions", read: expressions::expressions },
    Target { name: "formats", read: files::formats },
    Target { name: "images", read: images::images },
];

/// The first byte, and the others. A target chooses among several parsers by it.
fn choice(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest))
}

/// The parts of the bytes between zeros.
fn parts<const COUNT: usize>(bytes: &[u8]) -> [&[u8]; COUNT] {
    let mut parts = bytes.splitn(COUNT, |byte| *byte == 0);
    [(); COUNT].map(|()| parts.next().unwrap_or_default())
}
