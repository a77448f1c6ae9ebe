//! Derived copies, as a running task tells its session of them: what was made of its inputs.

use std::time::Instant;

use eyas_types::ObjectId;
use eyas_wire::executor::PeerHint;

/// The answer of the dispatcher to an executor that wants a derived copy.
#[derive(Clone)]
pub(crate) struct CopySource {
    pub size_bytes: u64,
    /// Executors that may have it. If there are none, it is to be made.
    pub holders: Vec<PeerHint>,
}

/// Why a derived copy that was wanted is not here, or cannot be fetched from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCopy {
    /// It could not be made.
    Failed,
    /// The task was stopped before it had the copy.
    Stopped,
    /// It is here, and giving it to others is not worthwhile.
    Private,
}

/// How a derived copy came to be on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyOrigin {
    /// It was there.
    Here,
    /// It was made in this time.
    Made { took_us: u64 },
    /// Another executor has sent it.
    Fetched { took_us: u64 },
}

impl CopyOrigin {
    /// It was made from a moment on until now.
    pub fn made_since(began: Instant) -> Self {
        CopyOrigin::Made { took_us: began.elapsed().as_micros() as u64 }
    }

    /// The time that it took to make or fetch it.
    pub fn took_us(self) -> Option<u64> {
        match self {
            CopyOrigin::Here => None,
            CopyOrigin::Made { took_us } | CopyOrigin::Fetched { took_us } => Some(took_us),
        }
    }
}

/// Something that was made of an input.
#[derive(Clone, Copy)]
pub(crate) struct CopyOfInput {
    pub source: ObjectId,
    pub object: ObjectId,
    pub size_bytes: u64,
    pub origin: CopyOrigin,
}
