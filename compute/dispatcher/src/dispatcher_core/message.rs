//! What sessions of executors tell the core.

use std::sync::Arc;

use eyas_session::Outbox;
use eyas_types::ExecutorId;
use eyas_types::matching::Expression;
use eyas_wire::executor::{FromExecutor, Registration, ToExecutor};
use tokio::sync::oneshot;

use crate::sign_of_life::SignOfLife;

/// A message of an executor's session to the core.
pub(crate) enum CoreMessage {
    Joined {
        registration: Box<Registration>,
        /// The newest minor version of the protocol that both sides have.
        minor: u16,
        /// The expression that says which tasks the executor accepts, compiled.
        accept: Box<[Arc<dyn Expression>]>,
        outbox: Outbox<ToExecutor>,
        reply: oneshot::Sender<(ExecutorId, Arc<SignOfLife>)>,
    },
    Messages {
        executor: ExecutorId,
        messages: Vec<FromExecutor>,
    },
    Gone {
        executor: ExecutorId,
    },
}
