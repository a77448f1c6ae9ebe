//! Tags of flows: the purpose of a flow's bytes.

/// The purpose of a flow.
pub(super) enum Tag {
    Fetch(u32),
    /// The inputs that a task reads, or the outputs that it writes.
    OfTask(u32),
}

impl Tag {
    pub fn of(tag: u32) -> Self {
        if tag & 1 == 0 { Tag::Fetch(tag >> 1) } else { Tag::OfTask(tag >> 1) }
    }

    pub fn number(&self) -> u32 {
        match self {
            Tag::Fetch(fetch) => fetch << 1,
            Tag::OfTask(task) => task << 1 | 1,
        }
    }
}
