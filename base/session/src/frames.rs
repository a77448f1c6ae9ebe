//! Frames over a connection: one half receives them, the other sends them.

use std::io;

use eyas_wire::Hello;
use eyas_wire::frame::{self, Frame, HEADER_BYTES, MAX_FRAME_BYTES};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::admission::ProvenConnection;
use crate::session_error::{SessionError, alert_in, ended, not_trusted, protocol};

/// Frames from this size on take long to decode. For example one of 24 MB, a job with a million
/// inputs, takes 0.1 s.
const LONG_FRAME_BYTES: usize = 1 << 20;

/// The receiving half of a session.
pub struct FrameReader {
    stream: Box<dyn AsyncRead + Send + Sync + Unpin>,
    address: String,
    body: Vec<u8>,
    /// Counts the connection at the admission of the listener that accepted it, while it is read.
    proven: Option<ProvenConnection>,
}

/// The sending half of a session.
pub struct FrameWriter {
    stream: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    address: String,
    /// An empty frame, for its memory.
    spare: Frame,
    /// Whether the last frame was sent as a whole. The peer understands nothing after a part of a
    /// frame.
    is_whole: bool,
}

impl FrameReader {
    pub(crate) fn new(
        stream: impl AsyncRead + Send + Sync + Unpin + 'static,
        address: &str,
    ) -> Self {
        FrameReader {
            stream: Box::new(stream),
            address: address.to_owned(),
            body: Vec::new(),
            proven: None,
        }
    }

    /// Counts the connection as proven until it is dropped.
    pub(crate) fn keep(&mut self, proven: ProvenConnection) {
        self.proven = Some(proven);
    }

    /// The messages of the next frame.
    ///
    /// # Errors
    /// If the connection has ended, or the frame cannot be decoded.
    pub async fn next<M: DeserializeOwned>(&mut self) -> Result<Vec<M>, SessionError> {
        read_frame(&mut self.stream, &mut self.body, MAX_FRAME_BYTES, &self.address).await
    }
}

impl FrameWriter {
    pub(crate) fn new(
        stream: impl AsyncWrite + Send + Sync + Unpin + 'static,
        address: &str,
    ) -> Self {
        FrameWriter {
            stream: Box::new(stream),
            address: address.to_owned(),
            spare: Frame::default(),
            is_whole: true,
        }
    }

    /// Sends messages in as few frames as possible.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn send<M: Serialize>(&mut self, messages: &[M]) -> Result<(), SessionError> {
        let mut frame = std::mem::take(&mut self.spare);
        for message in messages {
            frame.push(message);
            if frame.is_full() {
                self.send_frame(&mut frame).await?;
            }
        }
        self.send_frame(&mut frame).await?;
        self.spare = frame;
        Ok(())
    }

    /// Sends a frame, unless it is empty. The frame is empty afterwards.
    ///
    /// # Errors
    /// If the connection has ended, or the frame is larger than the peer accepts; then nothing of
    /// it is sent.
    pub async fn send_frame(&mut self, frame: &mut Frame) -> Result<(), SessionError> {
        if frame.is_empty() {
            return Ok(());
        }
        self.is_whole = false;
        let sent = write_frame(&mut self.stream, frame.bytes(), &self.address).await;
        self.is_whole = matches!(sent, Ok(()) | Err(SessionError::TooLarge { .. }));
        frame.clear();
        sent
    }

    /// Whether another frame can follow: false if sending a frame has failed or was cancelled.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Ends the connection in good order.
    pub async fn close(&mut self) {
        // The peer may be gone already.
        let _ = self.stream.shutdown().await;
    }
}

/// Receives a greeting. No byte after it is received.
pub(crate) async fn read_hello(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
    address: &str,
) -> Result<Hello, SessionError> {
    let mut body = Vec::new();
    read_body(stream, &mut body, limit, address).await?;
    Hello::decode(&body).map_err(|error| protocol(address, &error.to_string()))
}

/// Sends a greeting.
pub(crate) async fn write_hello(
    stream: &mut (impl AsyncWrite + Unpin),
    hello: &Hello,
    address: &str,
) -> Result<(), SessionError> {
    let mut frame = Frame::default();
    frame.push(hello);
    write_frame(stream, frame.bytes(), address).await
}

async fn read_frame<M: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    body: &mut Vec<u8>,
    limit: usize,
    address: &str,
) -> Result<Vec<M>, SessionError> {
    read_body(stream, body, limit, address).await?;
    let decoded = match body.len() {
        LONG_FRAME_BYTES.. => beside_other_tasks(|| frame::decode(body)),
        _ => frame::decode(body),
    };
    decoded.map_err(|error| protocol(address, &error.to_string()))
}

/// Runs what may take 0.1 s. Other tasks go on meanwhile, if the runtime has several threads.
fn beside_other_tasks<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        _ => work(),
    }
}

/// Receives the body of a frame.
async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    body: &mut Vec<u8>,
    limit: usize,
    address: &str,
) -> Result<(), SessionError> {
    let broken = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => ended(address, "it was closed"),
        _ if alert_in(&e).is_some() => not_trusted(address, &e),
        _ => ended(address, &e.to_string()),
    };
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(broken)?;
    let length =
        frame::length(header, limit).map_err(|error| protocol(address, &error.to_string()))?;
    body.clear();
    body.reserve(length);
    if stream.take(length as u64).read_to_end(body).await.map_err(broken)? < length {
        return Err(ended(address, "it was closed"));
    }
    Ok(())
}

async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    address: &str,
) -> Result<(), SessionError> {
    if bytes.len() - HEADER_BYTES > MAX_FRAME_BYTES {
        return Err(SessionError::TooLarge {
            address: address.to_owned(),
            bytes: bytes.len() - HEADER_BYTES,
        });
    }
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    sent.await.map_err(|e| ended(address, &e.to_string()))
}
