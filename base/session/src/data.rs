//! Keys for connections with bulk data.

use std::fmt;
use std::sync::Arc;

use eyas_types::access::Principal;
use eyas_wire::DataMode;
use eyas_wire::trust::SHARED_BYTES;
use rustls::{ClientConfig, ServerConfig};

use crate::access::Access;
use crate::credentials::Credentials;
use crate::proxy::Proxy;

const PEERS: &str = "eyas 2026 transfer between executors";
const NODES: &str = "eyas 2026 gossip of the file system";

/// A secret that is never sent over a connection.
type Secret = [u8; SHARED_BYTES];

/// The keys of a process for bulk data, and whether bulk data is encrypted. Each connection reads
/// them again, because keys are replaced while the process runs.
#[derive(Clone)]
pub struct DataKeys {
    mode: DataMode,
    credentials: Credentials,
    /// The secret key of the access file. Secrets are derived from it if the dispatcher has not
    /// sent any.
    own: Arc<str>,
    /// The certificate of the cluster's authority, PEM.
    authority: Arc<str>,
    proxy: Option<Proxy>,
}

impl DataKeys {
    /// The keys of the cluster of `access`, with its [data mode](Access::with_data).
    pub fn of(access: &Access) -> Self {
        DataKeys {
            mode: access.data(),
            credentials: access.credentials().clone(),
            own: access.key().into(),
            authority: access.authority().into(),
            proxy: access.proxy(),
        }
    }

    /// The proxy through which this process reaches others.
    pub fn proxy(&self) -> Option<Proxy> {
        self.proxy
    }

    /// Whether bulk data is encrypted.
    pub fn mode(&self) -> DataMode {
        self.mode
    }

    /// The secrets of executors: at least one. The first is used, all are accepted. If data is
    /// encrypted, TLS certificates identify the peers, and the secret only proves that both belong
    /// to one cluster. So a program that runs longer than replaced secrets are accepted still
    /// reaches its peers.
    pub fn secrets(&self) -> Vec<Secret> {
        match self.mode {
            DataMode::Encrypted => vec![blake3::derive_key(PEERS, self.authority.as_bytes())],
            DataMode::Plain => self.derived(PEERS, &self.credentials.data_secrets()),
        }
    }

    /// The secrets of nodes of the file system. The first is used, all are accepted.
    pub fn node_secrets(&self) -> Vec<Secret> {
        self.derived(NODES, &self.credentials.node_secrets())
    }

    /// Whether the cluster still trusts a principal.
    pub fn admits(&self, holder: Principal) -> bool {
        self.credentials.trust().admits(holder).is_ok()
    }

    fn derived(&self, purpose: &str, told: &[Secret]) -> Vec<Secret> {
        match told {
            [] => vec![blake3::derive_key(purpose, self.own.as_bytes())],
            told => told.iter().map(|secret| blake3::derive_key(purpose, secret)).collect(),
        }
    }

    /// TLS settings for connections to nodes.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.credentials.to_node().clone()
    }

    /// TLS settings for nodes as servers.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.credentials.server().clone()
    }
}

impl fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKeys").field("mode", &self.mode).finish_non_exhaustive()
    }
}
