//! A request for nodes: its phase, and what is known of it.

use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

/// A request that the batch system does not know this many times in a row is over.
pub const MAX_UNKNOWN: u32 = 3;

/// Name of a request in the batch system, by which the request is looked for.
pub fn request_name(pool: &str, number: u64, mark: &str) -> String {
    format!("eyas-{pool}-{number}-{mark}")
}

/// The mark of a request: 8 hexadecimal digits that differ for each seed and number (SplitMix64).
pub(super) fn mark_of(seed: u64, number: u64) -> String {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{:08x}", z >> 32)
}

/// A submitted request, as its batch system knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchJobId {
    /// The batch system's id.
    pub id: String,
    /// The cluster of the batch system, if there are several.
    pub cluster: Option<String>,
}

/// The phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestPhase {
    /// Its submission has not ended.
    Submitting,
    /// Its submission is over, and it is not known whether the batch system has the request.
    Unclear,
    /// The batch system has it.
    Pending,
    /// The batch system has granted it.
    Running,
    /// It is over.
    Ended,
}

impl RequestPhase {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            RequestPhase::Submitting | RequestPhase::Unclear => "submitting",
            RequestPhase::Pending => "pending",
            RequestPhase::Running => "running",
            RequestPhase::Ended => "ended",
        }
    }
}

/// The state of a request, as it is kept on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolRequest {
    /// Number of nodes.
    pub nodes: u32,
    /// Its phase.
    pub phase: RequestPhase,
    /// Number of nodes that ever joined.
    pub joined: u32,
    /// No node of the request is wanted any longer.
    pub is_withdrawn: bool,
    /// It ended before a node joined, and was not withdrawn.
    pub has_failed: bool,
    /// When it was made.
    pub requested_unix_ms: u64,
    /// The part of its name that no other request has, also none of another dispatcher or an earlier pool.
    #[serde(default)]
    pub mark: String,
    /// The request in the batch system, once it is submitted.
    pub job: Option<BatchJobId>,
    /// What the batch system says of it.
    pub says: Option<String>,
    /// The host on which it runs or ran, if the batch system says it and it is one host.
    pub host: Option<String>,
    /// Number of its nodes that are connected.
    #[serde(skip)]
    pub present: u32,
    /// Time from which a node that should have joined, or an end that should have come, is overdue, microseconds.
    #[serde(skip)]
    pub waits_since_us: Option<u64>,
    /// Number of times in a row that the batch system did not know it.
    #[serde(skip)]
    pub unknown: u32,
}

impl PoolRequest {
    pub(super) fn new(nodes: u32, mark: String, now_us: u64) -> Self {
        PoolRequest {
            nodes,
            phase: RequestPhase::Submitting,
            joined: 0,
            is_withdrawn: false,
            has_failed: false,
            requested_unix_ms: now_us / 1000,
            mark,
            job: None,
            says: None,
            host: None,
            present: 0,
            waits_since_us: None,
            unknown: 0,
        }
    }

    /// Whether the batch system may have it.
    pub fn is_open(&self) -> bool {
        self.phase != RequestPhase::Ended
    }

    /// Number of nodes that may still join and are wanted.
    pub fn missing(&self) -> u32 {
        if !self.is_open() || self.is_withdrawn { 0 } else { self.nodes.saturating_sub(self.joined) }
    }

    /// Whether it has ended and has no node.
    pub fn is_over(&self) -> bool {
        !self.is_open() && self.present == 0
    }

    /// Whether a node that joins now is of no use.
    pub fn is_unwanted(&self) -> bool {
        (self.is_withdrawn || !self.is_open()) && self.present == 0
    }
}
