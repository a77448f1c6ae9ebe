//! The bounds of peer transfers, in one place.

use std::time::Duration;

use eyas_session::PROOF_DEADLINE;

/// Connections that a server keeps in all; each has a thread. Past it, a peer is told that the server is busy.
pub const MAX_CONNECTIONS: usize = 512;

/// Connections that a server keeps with one address. Executors on one machine share its address.
pub const MAX_CONNECTIONS_PER_PEER: usize = 64;

/// Transfers that a client has under way with one peer. Past it, they wait, first come first served.
pub const MAX_TRANSFERS_PER_PEER: usize = 4;

/// Peers that a client remembers. Past it, those without a transfer are forgotten.
pub const MAX_PEERS: usize = 4096;

/// Asked of the kernel for each connection of a client, where it grants that much: the sender then seldom waits for the receiver,
/// and the two wake each other less often. `benches/loopback.rs` measures twice the rate of the kernel's own choice.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The longest range that is read into memory.
pub const MAX_RANGE_BYTES: u64 = 64 << 20;

/// For a peer that is alive, and itself waits for what it is to pass on.
pub const RELAY_PATIENCE: Duration = Duration::from_secs(60);

/// What may be bounded otherwise than by default, in tests above all.
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
    /// For a TCP connection to come about.
    pub connect_timeout: Duration,
    /// For a new connection to prove that it knows the key, and for the answer.
    pub handshake_timeout: Duration,
    /// For the other side to make any progress in the middle of something.
    pub stall_timeout: Duration,
    /// See [`RELAY_PATIENCE`].
    pub relay_patience: Duration,
    /// For the next request on a connection. A client lets go after half of it.
    pub idle_timeout: Duration,
    /// For which a client keeps away from a peer that did not answer; ten times that, if it sent damaged data.
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
