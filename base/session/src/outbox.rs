//! An outbox: any thread puts in batches of messages, and one task takes them out, in most cases to
//! send them in frames.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Waker};

use eyas_wire::frame::Frame;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, Mutex, Semaphore, TryAcquireError, mpsc};

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

/// Sends over the connection of an outbox from any thread, which so need not wake another one. It
/// does not keep the outbox open.
pub struct DirectSender<M> {
    writer: Arc<Mutex<FrameWriter>>,
    room: Arc<Semaphore>,
    runtime: Handle,
    messages: PhantomData<fn(M)>,
}

/// An outbox whose messages are sent over a connection, and the future that does so until all
/// handles are dropped or the connection ends.
pub fn outbox<M: Serialize + Send + 'static>(
    writer: FrameWriter,
) -> (Outbox<M>, impl Future<Output = Result<(), SessionError>> + Send) {
    let (outbox, reader) = Outbox::with_reader();
    (outbox, reader.send(Arc::new(Mutex::new(writer))))
}

/// The same with a sender for threads. The runtime of the caller sends what the connection does not
/// take at once.
pub fn outbox_with_direct<M: Serialize + Send + 'static>(
    writer: FrameWriter,
) -> (Outbox<M>, DirectSender<M>, impl Future<Output = Result<(), SessionError>> + Send) {
    let (outbox, reader) = Outbox::with_reader();
    let writer = Arc::new(Mutex::new(writer));
    let direct = DirectSender {
        writer: writer.clone(),
        room: outbox.room.clone(),
        runtime: Handle::current(),
        messages: PhantomData,
    };
    (outbox, direct, reader.send(writer))
}

impl<M: Serialize + Send + Sync + 'static> DirectSender<M> {
    /// Sends the messages that `take` gives, in this thread as far as the connection takes them at
    /// once. Does not ask for them if others are being sent or wait in the outbox, or if the
    /// connection has ended; returns whether it has asked.
    pub fn try_send(&self, take: impl FnOnce() -> Vec<M>) -> bool {
        let Ok(mut writer) = self.writer.clone().try_lock_owned() else { return false };
        if self.room.available_permits() < OUTBOX_MESSAGES || !writer.is_whole() {
            return false;
        }
        let messages = take();
        // If it fails, the connection has ended, which its reader finds, too.
        let mut sending = Box::pin(async move { drop(writer.send(&messages).await) });
        let _inside = self.runtime.enter();
        // If it is not done, it registers for what it waits for when it is polled again.
        if sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.runtime.spawn(sending);
        }
        true
    }
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
    async fn send(mut self, writer: Arc<Mutex<FrameWriter>>) -> Result<(), SessionError> {
        let mut frame = Frame::default();
        while let Some(mut batch) = self.batches.recv().await {
            // Before the batch gives its room back.
            let mut writer = writer.lock().await;
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
        writer.lock().await.close().await;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::frames::FrameReader;
    use tokio::time::timeout;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_thread_sends_only_if_nothing_is_before_it() {
        let (near, far) = tokio::io::duplex(64);
        let (outbox, direct, send) = outbox_with_direct::<Vec<u8>>(FrameWriter::new(near, "far"));
        let mut reader = FrameReader::new(far, "near");
        assert!(direct.try_send(|| vec![vec![1]]));
        outbox.post(vec![vec![2]]).unwrap();
        assert!(!direct.try_send(|| panic!("a message waits in the outbox")));
        let sending = tokio::spawn(send);
        for expected in [vec![1], vec![2]] {
            let received = timeout(DEADLINE, reader.next::<Vec<u8>>()).await.unwrap();
            assert_eq!(received.unwrap(), [expected]);
        }
        // The connection takes a part of it now.
        let long = vec![3; 100_000];
        let sent = long.clone();
        let began = async {
            while !direct.try_send(|| vec![sent.clone()]) {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, began).await.expect("all before it was sent");
        assert!(!direct.try_send(|| panic!("a message is being sent")));
        outbox.post(vec![vec![4]]).unwrap();
        for expected in [long, vec![4]] {
            let received = timeout(DEADLINE, reader.next::<Vec<u8>>()).await.unwrap();
            assert_eq!(received.unwrap(), [expected]);
        }
        // The sender does not keep the outbox open.
        drop(outbox);
        timeout(DEADLINE, sending).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_thread_sends_nothing_after_a_part_of_a_message() {
        let (near, far) = tokio::io::duplex(64);
        let (outbox, direct, send) = outbox_with_direct::<Vec<u8>>(FrameWriter::new(near, "far"));
        let mut sending = Box::pin(send);
        outbox.post(vec![vec![1; 1000]]).unwrap();
        assert!(timeout(Duration::ZERO, sending.as_mut()).await.is_err(), "nothing reads");
        drop(sending);
        assert!(!direct.try_send(|| panic!("the peer would not understand it")));
        drop(far);
    }
}
