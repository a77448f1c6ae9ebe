//! An outbox: batches of messages are put in from anywhere, and one task sends what has gathered, in frames.

use std::sync::Arc;

use eyas_wire::frame::Frame;
use serde::Serialize;
use tokio::sync::{AcquireError, Semaphore, TryAcquireError, mpsc};

use crate::connection::{FrameWriter, SessionError};

/// An outbox holds so many messages. Who cannot wait for room ([`Outbox::post`]) is told that it is full, which means
/// that the other side has stopped reading.
pub const OUTBOX_MESSAGES: usize = 1 << 16;

/// Where messages to one connection are put. What is said together is put in together: it wakes the sender once, and
/// goes out in as few frames as it fits in.
#[derive(Clone)]
pub struct Outbox<M> {
    sender: mpsc::UnboundedSender<Vec<M>>,
    /// Messages that there is room for.
    room: Arc<Semaphore>,
}

/// Why messages were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxError {
    /// There is no room: the other side does not read.
    Full,
    /// The connection has ended.
    Ended,
}

/// An outbox, and the future that sends what is put in it until all its handles are dropped or the connection ends.
pub fn outbox<M: Serialize + Send + 'static>(
    mut writer: FrameWriter,
) -> (Outbox<M>, impl Future<Output = Result<(), SessionError>> + Send) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<Vec<M>>();
    let room = Arc::new(Semaphore::new(OUTBOX_MESSAGES));
    let outbox = Outbox { sender, room: room.clone() };
    let send = async move {
        // However it ends, nobody waits for room any longer.
        let _closed = CloseOnDrop(room.clone());
        let mut frame = Frame::default();
        while let Some(mut batch) = receiver.recv().await {
            loop {
                let sent = permits(&batch) as usize;
                for message in batch {
                    frame.push(&message);
                    if frame.is_full() {
                        writer.send_frame(&mut frame).await?;
                    }
                }
                room.add_permits(sent);
                match receiver.try_recv() {
                    Ok(next) => batch = next,
                    Err(_) => break,
                }
            }
            if !frame.is_empty() {
                writer.send_frame(&mut frame).await?;
            }
        }
        writer.close().await;
        Ok(())
    };
    (outbox, send)
}

/// A handle that does not keep an outbox open: what it is for goes on until the others are dropped.
pub struct WeakOutbox<M> {
    sender: mpsc::WeakUnboundedSender<Vec<M>>,
    room: Arc<Semaphore>,
}

impl<M> WeakOutbox<M> {
    /// Puts messages in, waiting for room.
    ///
    /// # Errors
    /// If the connection has ended, or is about to.
    pub async fn put(&self, messages: Vec<M>) -> Result<(), OutboxError> {
        let sender = self.sender.upgrade().ok_or(OutboxError::Ended)?;
        Outbox { sender, room: self.room.clone() }.put(messages).await
    }
}

impl<M> Outbox<M> {
    /// A handle that does not keep it open.
    pub fn downgrade(&self) -> WeakOutbox<M> {
        WeakOutbox { sender: self.sender.downgrade(), room: self.room.clone() }
    }

    /// Puts messages in without waiting; all of them, or none.
    ///
    /// # Errors
    /// If the other side does not read, or the connection has ended.
    pub fn post(&self, messages: Vec<M>) -> Result<(), OutboxError> {
        self.room.try_acquire_many(permits(&messages)).map_err(OutboxError::from)?.forget();
        self.sender.send(messages).map_err(|_| OutboxError::Ended)
    }

    /// Puts messages in, waiting for room.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn put(&self, messages: Vec<M>) -> Result<(), OutboxError> {
        self.room.acquire_many(permits(&messages)).await.map_err(OutboxError::from)?.forget();
        self.sender.send(messages).map_err(|_| OutboxError::Ended)
    }
}

/// A batch larger than the outbox fills it.
fn permits<M>(batch: &[M]) -> u32 {
    batch.len().min(OUTBOX_MESSAGES) as u32
}

impl From<TryAcquireError> for OutboxError {
    fn from(error: TryAcquireError) -> Self {
        match error {
            TryAcquireError::NoPermits => OutboxError::Full,
            TryAcquireError::Closed => OutboxError::Ended,
        }
    }
}

impl From<AcquireError> for OutboxError {
    fn from(_: AcquireError) -> Self {
        OutboxError::Ended
    }
}

struct CloseOnDrop(Arc<Semaphore>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
