//! An outbox: messages are put in from anywhere, and one task sends what has gathered, in frames.

use eyas_wire::frame::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::connection::{SessionError, Writer};

/// An outbox holds so many messages. Who cannot wait for room ([`Outbox::post`]) is told that it is full, which means
/// that the other side has stopped reading.
pub const OUTBOX_MESSAGES: usize = 1 << 16;

/// Where messages to one connection are put.
#[derive(Clone)]
pub struct Outbox<M> {
    sender: mpsc::Sender<M>,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxError {
    /// There is no room: the other side does not read.
    Full,
    /// The connection has ended.
    Ended,
}

/// An outbox, and the future that sends what is put in it until all its handles are dropped or the connection ends.
pub fn outbox<M: Serialize + Send + 'static>(
    mut writer: Writer,
) -> (Outbox<M>, impl Future<Output = Result<(), SessionError>> + Send) {
    let (sender, mut receiver) = mpsc::channel::<M>(OUTBOX_MESSAGES);
    let send = async move {
        let mut frame = Frame::default();
        while let Some(message) = receiver.recv().await {
            frame.push(&message);
            while !frame.is_full() {
                match receiver.try_recv() {
                    Ok(message) => frame.push(&message),
                    Err(_) => break,
                }
            }
            writer.send_frame(&mut frame).await?;
        }
        writer.close().await;
        Ok(())
    };
    (Outbox { sender }, send)
}

impl<M> Outbox<M> {
    /// Puts a message in without waiting.
    ///
    /// # Errors
    /// If the other side does not read, or the connection has ended.
    pub fn post(&self, message: M) -> Result<(), OutboxError> {
        self.sender.try_send(message).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => OutboxError::Full,
            mpsc::error::TrySendError::Closed(_) => OutboxError::Ended,
        })
    }

    /// Puts a message in, waiting for room.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn put(&self, message: M) -> Result<(), OutboxError> {
        self.sender.send(message).await.map_err(|_| OutboxError::Ended)
    }

    /// The same, from a thread that may block.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn put_blocking(&self, message: M) -> Result<(), OutboxError> {
        self.sender.blocking_send(message).map_err(|_| OutboxError::Ended)
    }
}
