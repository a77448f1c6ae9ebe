//! Tags of flows: what the bytes of a flow are for.

/// What the end of a flow tells.
pub(super) enum Tag {
    Fetch(u32),
    /// What a task reads or writes.
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
