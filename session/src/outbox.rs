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

/// The other side does not read, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxFull;

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
    pub fn post(&self, message: M) -> Result<(), OutboxFull> {
        self.sender.try_send(message).map_err(|_| OutboxFull)
    }

    /// Puts a message in, waiting for room.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn put(&self, message: M) -> Result<(), OutboxFull> {
        self.sender.send(message).await.map_err(|_| OutboxFull)
    }

    /// The same, from a thread that may block.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn put_blocking(&self, message: M) -> Result<(), OutboxFull> {
        self.sender.blocking_send(message).map_err(|_| OutboxFull)
    }
}
