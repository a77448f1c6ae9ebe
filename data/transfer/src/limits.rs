//! The limits of transfers between peers.

use std::time::Duration;

use eyas_session::PROOF_DEADLINE;

/// Maximum number of connections of a server; each has a thread. Further peers are told that the
/// server is busy.
pub const MAX_CONNECTIONS: usize = 512;

/// Maximum number of connections of a server with one address. Executors on one machine share its
/// address.
pub const MAX_CONNECTIONS_PER_PEER: usize = 64;

/// Maximum number of transfers of a client with one peer at a time. Further ones wait in order of
/// arrival.
pub const MAX_TRANSFERS_PER_PEER: usize = 4;

/// Maximum number of peers that a client remembers. Beyond it, peers without a transfer are
/// forgotten.
pub const MAX_PEERS: usize = 4096;

/// Maximum number of damaged deliveries that are remembered until they are reported. Further ones
/// are not reported.
pub const MAX_DAMAGED_DELIVERIES: usize = 64;

/// Receive buffer that is requested from the kernel for each connection of a client. With a large
/// buffer, the sender seldom waits for the receiver, and both wake up less often.
/// `benches/loopback.rs` measures twice the rate of the kernel's own choice.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Maximum length of a range that is read into memory.
pub const MAX_RANGE_BYTES: u64 = 64 << 20;

/// Time that a client waits for a relay that is alive, and itself waits for more data.
pub const RELAY_PATIENCE: Duration = Duration::from_secs(60);

/// Limits and timeouts that can be changed, mainly in tests.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// See [`MAX_CONNECTIONS`].
    pub max_connections: usize,
    /// See [`MAX_CONNECTIONS_PER_PEER`].
    pub max_connections_per_peer: usize,
    /// See [`MAX_TRANSFERS_PER_PEER`].
    pub max_transfers_per_peer: usize,
    /// See [`RECEIVE_BUFFER_BYTES`].
    pub receive_buffer_bytes: usize,
    /// Timeout of TCP connects.
    pub connect_timeout: Duration,
    /// Timeout of the handshake on a new connection, and of answers.
    pub handshake_timeout: Duration,
    /// Timeout for progress of the other side during a transfer.
    pub stall_timeout: Duration,
    /// See [`RELAY_PATIENCE`].
    pub relay_patience: Duration,
    /// Time that a server waits for the next request on a connection. A client closes idle
    /// connections after half of it.
    pub idle_timeout: Duration,
    /// Time that a client avoids a peer that did not answer; ten times as long if the peer sent
    /// damaged data.
    pub avoid: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        PeerLimits {
            max_connections: MAX_CONNECTIONS,
            max_connections_per_peer: MAX_CONNECTIONS_PER_PEER,
            max_transfers_per_peer: MAX_TRANSFERS_PER_PEER,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            connect_timeout: Duration::from_secs(3),
            handshake_timeout: PROOF_DEADLINE,
            stall_timeout: Duration::from_secs(20),
            relay_patience: RELAY_PATIENCE,
            idle_timeout: Duration::from_secs(20),
            avoid: Duration::from_secs(5),
        }
    }
}
