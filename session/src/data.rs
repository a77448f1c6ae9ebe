//! Keys of connections that carry bulk data.

use std::fmt;
use std::sync::Arc;

use eyas_types::access::Principal;
use eyas_wire::DataMode;
use eyas_wire::trust::SHARED_BYTES;
use rustls::{ClientConfig, ServerConfig};

use crate::access::Access;
use crate::credentials::Credentials;

const PEERS: &str = "eyas 2026 transfer between executors";
const NODES: &str = "eyas 2026 gossip of the file system";

/// A secret that is never sent.
type Secret = [u8; SHARED_BYTES];

/// What a process proves itself with where bulk data goes, and whether that is encrypted. Each connection asks anew:
/// keys are replaced while the process runs.
#[derive(Clone)]
pub struct DataKeys {
    mode: DataMode,
    credentials: Credentials,
    /// In a cluster without a dispatcher that says what its secrets are, they follow from the access file.
    own: Arc<str>,
    /// The certificate of the cluster's authority.
    authority: Arc<str>,
}

impl DataKeys {
    /// Those of the cluster of `access`, which moves data [as that says](Access::with_data).
    pub fn of(access: &Access) -> Self {
        DataKeys {
            mode: access.data(),
            credentials: access.credentials().clone(),
            own: access.key().into(),
            authority: access.authority().into(),
        }
    }

    /// Whether bulk data is encrypted.
    pub fn mode(&self) -> DataMode {
        self.mode
    }

    /// The secrets of peers: the first is to be used, all are to be accepted. There is at least one. Where data is
    /// encrypted, the certificates of TLS have said who is there, and what is proven inside is only that both are of
    /// one cluster: a program that runs for longer than replaced secrets are accepted still reaches its peers.
    pub fn secrets(&self) -> Vec<Secret> {
        match self.mode {
            DataMode::Encrypted => vec![blake3::derive_key(PEERS, self.authority.as_bytes())],
            DataMode::Plain => self.derived(PEERS, &self.credentials.data_secrets()),
        }
    }

    /// The secrets of nodes among themselves, likewise.
    pub fn node_secrets(&self) -> Vec<Secret> {
        self.derived(NODES, &self.credentials.node_secrets())
    }

    /// Whether the cluster still trusts who proved itself with this key.
    pub fn admits(&self, holder: Principal) -> bool {
        self.credentials.trust().admits(holder).is_ok()
    }

    fn derived(&self, purpose: &str, told: &[Secret]) -> Vec<Secret> {
        match told {
            [] => vec![blake3::derive_key(purpose, self.own.as_bytes())],
            told => told.iter().map(|secret| blake3::derive_key(purpose, secret)).collect(),
        }
    }

    /// For a client of a node.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.credentials.to_node().clone()
    }

    /// For a node.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.credentials.server().clone()
    }
}

impl fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKeys").field("mode", &self.mode).finish_non_exhaustive()
    }
}
