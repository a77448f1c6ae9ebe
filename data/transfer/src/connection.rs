//! Reads whole messages from a blocking connection, with deadlines.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::protocol::{MESSAGE_BYTES, MessageBytes, Nonce};

/// Reads one message within `timeout`; `None` if the other side closed the connection before a
/// message.
pub(crate) fn read_message(link: &mut Link, timeout: Duration) -> io::Result<Option<MessageBytes>> {
    let deadline = Instant::now() + timeout;
    let mut message = [0; MESSAGE_BYTES];
    let mut filled = 0;
    while filled < MESSAGE_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        link.tcp().set_read_timeout(Some(left))?;
        match link.read(&mut message[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(message))
}

/// Whether a read may be repeated before its deadline.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// A nonce that was never used before.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    let mut filled = 0;
    while filled < nonce.len() {
        filled += rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(nonce)
}
