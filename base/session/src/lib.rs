//! Authenticated, framed connections between eyas processes.
//!
//! An access file holds a key that the cluster's authority has signed with its role. Both ends of
//! every connection prove over TLS 1.3 that they have such a key and that the cluster still accepts
//! it. A peer that cannot is disconnected before a byte of eyas's protocol is read. This crate
//! moves messages and knows their senders; it does not know what the messages mean.
//!
//! | modules | contents |
//! | --- | --- |
//! | `access`, `private` | access files; files and folders that only one user can read |
//! | `trusted` | whether other users could replace what a path names |
//! | `authority`, `credentials`, `suites` | signing keys; verifying peers; TLS and its ciphers |
//! | `connection`, `frames`, `outbox` | sessions: dialling, accepting, frames; batches to send |
//! | `local_socket` | connections between processes of one user on one host |
//! | `proxy` | connections through a proxy, for nodes that cannot reach others directly |
//! | `ports` | addresses of network interfaces, ranges of ports |
//! | `listener`, `admission` | accepting sessions; limits on connections without a proven key |
//! | `data`, `sealed` | keys and encrypted streams of bulk data |
//! | `descriptors` | the limit of open files, which connections need |

#![forbid(unsafe_code)]

mod access;
mod admission;
mod authority;
mod connection;
mod credentials;
mod data;
mod descriptors;
mod frames;
mod listener;
mod local_socket;
mod outbox;
mod ports;
pub mod private;
pub mod proxy;
mod sealed;
mod session_error;
mod suites;
pub mod trusted;

pub use access::{Access, AccessError, AccessProblem};
pub use admission::{Admission, Guest, PROOF_DEADLINE, ProvenConnection};
pub use authority::{Authority, AuthorityError, KeyAndCertificate, new_secret};
pub use connection::{Session, SessionAcceptor, dial, keep_alive};
pub use credentials::{Credentials, CredentialsError, SERVER_NAME, TrustWatch};
pub use data::DataKeys;
pub use descriptors::{descriptor_limit_of_caller, raise_descriptor_limit};
pub use frames::{FrameReader, FrameWriter};
pub use listener::{Listener, has_spoken};
pub use outbox::{
    DirectSender, OUTBOX_MESSAGES, Outbox, OutboxError, OutboxReader, WeakOutbox, outbox,
    outbox_with_direct,
};
pub use ports::{
    BindAddress, InterfaceError, PortRange, PortRangeError, interface_address, listen, own_address,
};
pub use proxy::Proxy;
pub use sealed::SealedStream;
pub use session_error::SessionError;
