//! Messages between agents and the coordinator, in frames of `eyas_session`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use eyas_ioq::{ClassId, Config, FileLayout, GrantId, ServerStats};
use eyas_types::{Extent, Operation, StorageFileId};
use serde::{Deserialize, Serialize};

/// Interval between messages of either side.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(200);
/// A side that has sent nothing for this time is taken to be gone.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(700);
/// First minor version of the protocol with [`ToCoordinator::Configs`].
pub(crate) const MINOR_OF_CONFIGS: u16 = 4;
/// First minor version of the protocol with [`ToCoordinator::Agent`] and
/// [`ToCoordinator::AskShared`].
pub(crate) const MINOR_OF_SHARED: u16 = 5;
/// First minor version of the protocol with [`ToCoordinator::StripedStorage`] and
/// [`ToCoordinator::AskStriped`].
pub(crate) const MINOR_OF_LAYOUTS: u16 = 7;
/// Longest name of a storage, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 4096;
/// Storages that one agent may name.
pub(crate) const MAX_STORAGES: usize = 1024;

/// Message to the coordinator, from an agent or a client that asks for the status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToCoordinator {
    /// Names a storage. Its number is the count of storages that this agent has named before.
    Storage(String),
    /// Asks for turns.
    Ask(Vec<AgentRequest>),
    /// A grant is done, with this many bytes, in this time since the agent received it.
    Done { storage: u32, grant: GrantId, bytes: u64, took_us: u64 },
    /// A turn is no longer wanted.
    Cancel { storage: u32, request: u64 },
    /// The agent begins or ends the bypass of a storage.
    Bypassed { storage: u32, is_bypassed: bool },
    /// Heartbeat.
    Alive,
    /// Asks for the status. Answered by [`ToAgent::Status`].
    Status,
    /// Asks for the configuration of all storages. Answered by [`ToAgent::Configs`]. Coordinators
    /// before [`MINOR_OF_CONFIGS`] do not know it.
    Configs,
    /// This agent passes parts of files on to other agents of this group, at this address.
    /// Coordinators before [`MINOR_OF_SHARED`] do not know it.
    Agent { group: [u8; 32], address: SocketAddr },
    /// This agent has closed a file, and gives no parts of it any longer. Coordinators before
    /// [`MINOR_OF_SHARED`] do not know it.
    Closed { storage: u32, file: StorageFileId },
    /// Asks for turns to read parts of files, or for another agent that has them
    /// ([`ToAgent::Elsewhere`]). Coordinators before [`MINOR_OF_SHARED`] do not know it.
    AskShared(Vec<AgentRequest>),
    /// Names a storage whose files have layouts, like [`ToCoordinator::Storage`]. Coordinators
    /// before [`MINOR_OF_LAYOUTS`] do not know it.
    StripedStorage(String),
    /// Asks for a turn to read or write a file with this layout. `may_share`: or for another agent
    /// that has the part. Coordinators before [`MINOR_OF_LAYOUTS`] do not know it.
    AskStriped { request: AgentRequest, layout: FileLayout, may_share: bool },
}

/// A turn that an agent asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AgentRequest {
    /// The agent's number of the request; it grows with every request.
    pub request: u64,
    pub storage: u32,
    pub class: ClassId,
    pub file: StorageFileId,
    pub operation: Operation,
    pub extent: Extent,
}

/// Message to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// Proceed with these requests, and report their end together.
    Granted { storage: u32, grant: GrantId, requests: Vec<u64> },
    /// Proceed unordered; report nothing.
    Unordered { request: u64 },
    /// The grant has exceeded its lease.
    Revoked { storage: u32, grant: GrantId },
    /// Never bypass this storage: rules apply to it.
    MustOrder { storage: u32 },
    /// Heartbeat.
    Alive,
    /// Answer to [`ToCoordinator::Status`].
    Status(IoStatus),
    /// Answer to [`ToCoordinator::Configs`].
    Configs(StorageConfigs),
    /// The agent at this address has the part, or will have it; report nothing. Answers only
    /// [`ToCoordinator::AskShared`].
    Elsewhere { request: u64, address: SocketAddr },
    /// Whether parts of the storage's files are passed on, by a rule. Only for agents that have
    /// sent [`ToCoordinator::Agent`].
    Sharing { storage: u32, is_on: bool },
}

/// The configuration of each storage, by name.
pub type StorageConfigs = BTreeMap<String, Config>;

/// Status of a coordinator or of an agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IoStatus {
    /// Number of connected agents.
    pub agents: u64,
    /// Names of the classes that the rules mention.
    pub classes: BTreeMap<ClassId, String>,
    /// Statistics of each storage, by name.
    pub storages: Vec<(String, ServerStats)>,
    /// Number of agents that bypass each storage, by name.
    pub bypassed: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use eyas_formats::Formats;
    use eyas_ioq::Policy;
    use eyas_wire::PROTOCOL_VERSION;

    use super::*;
    use crate::agent::parts::{PartAnswer, PartWanted};

    #[test]
    fn messages_have_the_formats_that_were_recorded() {
        Formats::default()
            .with::<ToCoordinator>()
            .with::<ToAgent>()
            .with::<PartWanted>()
            .with::<PartAnswer>()
            .with::<SocketAddr>()
            .with::<Operation>()
            .with::<Policy>()
            .assert_recorded(
                &Path::new(env!("CARGO_MANIFEST_DIR")).join("formats.txt"),
                PROTOCOL_VERSION,
            );
    }
}
