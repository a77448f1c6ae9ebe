//! Requests of a client, read while other requests are served.

use std::collections::VecDeque;

use eyas_session::{FrameReader, SessionError};
use eyas_wire::client::FromClient;
use tokio::sync::mpsc;

/// Requests that are read while another request is served: enough to see a withdrawal, and that the
/// client leaves.
const MAX_READ_AHEAD: usize = 4;

/// The requests of a client that wait.
pub(super) struct Inbox {
    frames: mpsc::Receiver<Result<Vec<FromClient>, SessionError>>,
    waiting: VecDeque<FromClient>,
}

impl Inbox {
    /// Reads requests in the background.
    pub fn of(mut reader: FrameReader) -> Self {
        let (sender, frames) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let read = tokio::select! {
                    read = reader.next::<FromClient>() => read,
                    () = sender.closed() => return,
                };
                let is_last = read.is_err();
                if sender.send(read).await.is_err() || is_last {
                    return;
                }
            }
        });
        Inbox { frames, waiting: VecDeque::new() }
    }

    /// The next request. Cancelling this future loses nothing.
    pub async fn next(&mut self) -> Result<FromClient, SessionError> {
        loop {
            match self.waiting.pop_front() {
                Some(request) => return Ok(request),
                None => self.read().await?,
            }
        }
    }

    /// Waits until the client withdraws its submission. Cancelling this future loses nothing.
    pub async fn withdraws(&mut self) -> Result<(), SessionError> {
        while !self.waiting.contains(&FromClient::Withdraw) {
            match self.waiting.len() {
                0..MAX_READ_AHEAD => self.read().await?,
                _ => std::future::pending().await,
            }
        }
        Ok(())
    }

    /// Waits until the client has gone away, and returns how the connection has ended. Requests
    /// that come meanwhile are served later. Cancelling this future loses nothing.
    pub async fn client_leaves(&mut self) -> SessionError {
        while self.waiting.len() < MAX_READ_AHEAD {
            if let Err(gone) = self.read().await {
                return gone;
            }
        }
        std::future::pending().await
    }

    async fn read(&mut self) -> Result<(), SessionError> {
        let closed =
            || SessionError::Ended { address: "a client".into(), why: "it was closed".into() };
        self.waiting.extend(self.frames.recv().await.ok_or_else(closed)??);
        Ok(())
    }
}
