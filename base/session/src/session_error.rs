//! Errors of connections.

use std::io;

use eyas_types::access::Principal;
use eyas_wire::DataMode;
use eyas_wire::frame::MAX_FRAME_BYTES;
use rustls::AlertDescription;
use thiserror::Error;

/// Why there is no connection, or no longer.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No process listens there, or the network does not reach it.
    #[error("cannot reach {address}: {source}")]
    Unreachable {
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The peer belongs to another cluster, or is not eyas.
    #[error(
        "{address} was reached but refused this access file ({why}): use the access file of the \
         cluster that runs there"
    )]
    NotTrusted {
        /// The address.
        address: String,
        /// The TLS alert of the peer, if it sent one.
        alert: Option<AlertDescription>,
        /// The TLS error.
        why: String,
    },
    /// The peer no longer accepts this key.
    #[error("{address} was reached but no longer accepts {holder}: {why}")]
    Dead {
        /// The address.
        address: String,
        /// The principal of the key.
        holder: Principal,
        /// The reason, and what the user can do.
        why: &'static str,
    },
    /// The peer sent something that is not a valid message.
    #[error("{address}: {why}")]
    Protocol {
        /// The peer.
        address: String,
        /// The mistake.
        why: String,
    },
    /// A message is too large.
    #[error(
        "a message of {bytes} bytes for {address} is too large: at most {MAX_FRAME_BYTES} bytes \
         are possible"
    )]
    TooLarge {
        /// The peer.
        address: String,
        /// Size of the message.
        bytes: usize,
    },
    /// The peer exchanges bulk data in another way.
    #[error("{address} {}", other(*.ours))]
    OtherDataMode {
        /// The peer.
        address: String,
        /// How this side exchanges bulk data.
        ours: DataMode,
    },
    /// The connection has ended.
    #[error("the connection to {address} has ended: {why}")]
    Ended {
        /// The peer.
        address: String,
        /// The reason.
        why: String,
    },
}

/// Describes a peer that exchanges bulk data in another way than this process.
fn other(ours: DataMode) -> &'static str {
    match ours {
        DataMode::Encrypted => {
            "sends data unencrypted (--plain-data), and this process encrypts it. That is one \
             decision for the whole cluster: start the dispatcher and all executors with \
             --plain-data, or none of them"
        }
        DataMode::Plain => {
            "encrypts data, and this process was started with --plain-data. That is one decision \
             for the whole cluster: start the dispatcher and all executors with --plain-data, or \
             none of them"
        }
    }
}

/// The alert with which the peer has closed the connection.
pub(crate) fn alert_in(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

pub(crate) fn unreachable(address: &str, source: io::Error) -> SessionError {
    SessionError::Unreachable { address: address.to_owned(), source }
}

pub(crate) fn not_trusted(address: &str, why: &io::Error) -> SessionError {
    SessionError::NotTrusted {
        address: address.to_owned(),
        alert: alert_in(why),
        why: why.to_string(),
    }
}

pub(crate) fn protocol(address: &str, why: &str) -> SessionError {
    SessionError::Protocol { address: address.to_owned(), why: why.to_owned() }
}

pub(crate) fn ended(address: &str, why: &str) -> SessionError {
    SessionError::Ended { address: address.to_owned(), why: why.to_owned() }
}
