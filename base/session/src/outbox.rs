//! An outbox: any thread puts in batches of messages, and one task takes them out, in most cases to
//! send them in frames.

use std::sync::Arc;

use eyas_wire::frame::Frame;
use serde::Serialize;
use tokio::sync::{AcquireError, Semaphore, TryAcquireError, mpsc};

use crate::frames::FrameWriter;
use crate::session_error::SessionError;

/// Capacity of an outbox, in messages. [`Outbox::post`] does not wait for space: it fails if the
/// outbox is full, which means that the peer has stopped reading.
pub const OUTBOX_MESSAGES: usize = 1 << 16;

/// The outbox of one connection. A batch wakes the sending task once, and is sent in as few frames
/// as possible.
#[derive(Clone)]
pub struct Outbox<M> {
    sender: mpsc::UnboundedSender<Vec<M>>,
    /// Space for further messages.
    room: Arc<Semaphore>,
}

/// Why messages were not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxError {
    /// The outbox is full: the peer does not read.
    Full,
    /// The connection has ended.
    Ended,
}

/// Where the messages of an outbox come out.
pub struct OutboxReader<M> {
    batches: mpsc::UnboundedReceiver<Vec<M>>,
    room: Arc<Semaphore>,
}

/// An outbox whose messages are sent over a connection, and the future that does so until all
/// handles are dropped or the connection ends.
pub fn outbox<M: Serialize + Send + 'static>(
    writer: FrameWriter,
) -> (Outbox<M>, impl Future<Output = Result<(), SessionError>> + Send) {
    let (outbox, reader) = Outbox::with_reader();
    (outbox, reader.send(writer))
}

impl<M> OutboxReader<M> {
    /// The next batch; `None` if there is none at the moment, or all handles were dropped.
    pub fn try_next(&mut self) -> Option<Vec<M>> {
        let batch = self.batches.try_recv().ok()?;
        self.room.add_permits(permits(&batch) as usize);
        Some(batch)
    }
}

impl<M: Serialize> OutboxReader<M> {
    async fn send(mut self, mut writer: FrameWriter) -> Result<(), SessionError> {
        let mut frame = Frame::default();
        while let Some(mut batch) = self.batches.recv().await {
            loop {
                // Messages take up room until they are sent.
                let sent = permits(&batch) as usize;
                for message in batch {
                    frame.push(&message);
                    if frame.is_full() {
                        writer.send_frame(&mut frame).await?;
                    }
                }
                self.room.add_permits(sent);
                match self.batches.try_recv() {
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
    }
}

impl<M> Drop for OutboxReader<M> {
    /// However it ends, no caller waits for room any longer.
    fn drop(&mut self) {
        self.room.close();
    }
}

/// A handle that does not keep an outbox open.
pub struct WeakOutbox<M> {
    sender: mpsc::WeakUnboundedSender<Vec<M>>,
    room: Arc<Semaphore>,
}

impl<M> WeakOutbox<M> {
    /// Puts messages in, and waits for space.
    ///
    /// # Errors
    /// If the connection has ended, or no other handle is left.
    pub async fn put(&self, messages: Vec<M>) -> Result<(), OutboxError> {
        let sender = self.sender.upgrade().ok_or(OutboxError::Ended)?;
        Outbox { sender, room: self.room.clone() }.put(messages).await
    }
}

impl<M> Outbox<M> {
    /// An outbox whose messages are read in this process.
    pub fn with_reader() -> (Self, OutboxReader<M>) {
        let (sender, batches) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(OUTBOX_MESSAGES));
        (Outbox { sender, room: room.clone() }, OutboxReader { batches, room })
    }

    /// A handle that does not keep the outbox open.
    pub fn downgrade(&self) -> WeakOutbox<M> {
        WeakOutbox { sender: self.sender.downgrade(), room: self.room.clone() }
    }

    /// Puts all messages in without waiting, or none.
    ///
    /// # Errors
    /// If the outbox is full, or the connection has ended.
    pub fn post(&self, messages: Vec<M>) -> Result<(), OutboxError> {
        self.room.try_acquire_many(permits(&messages)).map_err(OutboxError::from)?.forget();
        self.sender.send(messages).map_err(|_| OutboxError::Ended)
    }

    /// Puts messages in, and waits for space.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn put(&self, messages: Vec<M>) -> Result<(), OutboxError> {
        self.room.acquire_many(permits(&messages)).await.map_err(OutboxError::from)?.forget();
        self.sender.send(messages).map_err(|_| OutboxError::Ended)
    }
}

/// The space that a batch takes. A batch larger than the outbox fills it.
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
