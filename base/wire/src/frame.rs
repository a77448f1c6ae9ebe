//! Frames: a 32-bit little-endian length, then messages one after another.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Bytes of the length before each frame.
pub const HEADER_BYTES: usize = 4;
/// Largest frame that is accepted. Senders close their frames well before.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
/// A sender closes a frame at this size, so that the receiver can begin to decode.
pub const FULL_FRAME_BYTES: usize = 256 << 10;
/// Capacity that a frame keeps for the next one, so that large messages do not need new memory
/// each.
pub const KEPT_FRAME_BYTES: usize = 4 << 20;
/// Largest first frame from a client.
pub const MAX_HELLO_BYTES: usize = 1024;

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The announced length is above the limit: garbage, or another protocol.
    #[error("a frame of {bytes} bytes is announced, at most {limit} are allowed")]
    TooLong {
        /// The announced length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The body does not consist of messages of the wanted type.
    #[error("a message cannot be decoded: {0}")]
    Decode(#[from] postcard::Error),
}

/// A frame that is being filled.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
}

impl Default for Frame {
    fn default() -> Self {
        Frame { bytes: vec![0; HEADER_BYTES] }
    }
}

impl Frame {
    /// Adds a message.
    ///
    /// # Panics
    /// If the message has a type that postcard cannot encode, which is a mistake in this crate.
    pub fn push<M: Serialize>(&mut self, message: &M) {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(message, bytes).expect("every message can be encoded");
    }

    /// Whether the frame has reached the size at which it is sent.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_FRAME_BYTES
    }

    /// Whether the frame has no message.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }

    /// The bytes to send, length first.
    pub fn bytes(&mut self) -> &[u8] {
        let length = (self.bytes.len() - HEADER_BYTES) as u32;
        self.bytes[..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        &self.bytes
    }

    /// Empties the frame. Its memory is kept for the next messages, up to [`KEPT_FRAME_BYTES`].
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_FRAME_BYTES {
            *self = Frame::default();
        }
        self.bytes.truncate(HEADER_BYTES);
    }
}

/// Items in parts that each close once their sizes add up to `bytes`.
pub fn in_parts_of<T>(
    bytes: usize,
    items: impl IntoIterator<Item = T>,
    size_of: impl Fn(&T) -> usize,
) -> Vec<Vec<T>> {
    let mut parts = Vec::new();
    let (mut part, mut part_bytes) = (Vec::new(), 0);
    for item in items {
        part_bytes += size_of(&item);
        part.push(item);
        if part_bytes >= bytes {
            parts.push(std::mem::take(&mut part));
            part_bytes = 0;
        }
    }
    parts.extend((!part.is_empty()).then_some(part));
    parts
}

/// The length that a header announces.
///
/// # Errors
/// If the length is above `limit`.
pub fn length(header: [u8; HEADER_BYTES], limit: usize) -> Result<usize, FrameError> {
    let bytes = u32::from_le_bytes(header) as usize;
    if bytes > limit { Err(FrameError::TooLong { bytes, limit }) } else { Ok(bytes) }
}

/// The messages in a frame's body.
///
/// # Errors
/// If the body does not consist of such messages.
pub fn decode<M: DeserializeOwned>(mut body: &[u8]) -> Result<Vec<M>, FrameError> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let (message, rest) = postcard::take_from_bytes(body)?;
        messages.push(message);
        body = rest;
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataMode, Hello, HelloError, PROTOCOL_VERSION, Role};

    #[test]
    fn messages_come_back_in_order_and_garbage_is_refused() {
        let mut frame = Frame::default();
        assert!(frame.is_empty());
        let sent = [(Role::Client, DataMode::Encrypted), (Role::Executor, DataMode::Plain)];
        let sent = sent.map(|(role, data)| Hello::new(role, data, None));
        sent.iter().for_each(|message| frame.push(message));
        let bytes = frame.bytes().to_vec();
        frame.clear();
        let header = bytes[..HEADER_BYTES].try_into().unwrap();
        assert_eq!(length(header, 100), Ok(bytes.len() - HEADER_BYTES));
        assert_eq!(decode::<Hello>(&bytes[HEADER_BYTES..]).unwrap(), sent);
        assert!(decode::<Hello>(&bytes[HEADER_BYTES..bytes.len() - 1]).is_err());
        assert!(length(*b"GET ", MAX_FRAME_BYTES).is_err());
        assert!(frame.is_empty());
    }

    #[test]
    fn parts_close_at_their_size() {
        let parts = |sizes: &[usize]| in_parts_of(10, sizes.to_vec(), |size| *size);
        assert_eq!(parts(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(parts(&[4, 4, 4, 9, 1, 30, 2]), [vec![4, 4, 4], vec![9, 1], vec![30], vec![2]]);
    }

    #[test]
    fn another_protocol_and_another_version_are_refused() {
        let hello = Hello::new(Role::Client, DataMode::Encrypted, None);
        let bytes = |hello: &Hello| postcard::to_stdvec(hello).unwrap();
        let (major, minor) = PROTOCOL_VERSION;
        for (theirs, common) in [(minor, minor), (minor + 7, minor)] {
            let hello = Hello { version: (major, theirs), ..hello.clone() };
            assert_eq!(Hello::decode(&bytes(&hello)).unwrap().minor(), common);
        }
        // A greeting of another version may go on in another way, or end.
        let next = bytes(&Hello { version: (99, 0), ..hello.clone() });
        for end in [6, next.len()] {
            assert_eq!(Hello::decode(&next[..end]), Err(HelloError::Version(99)));
        }
        assert_eq!(
            Hello::decode(&bytes(&Hello { magic: *b"HTTP", ..hello.clone() })),
            Err(HelloError::Magic)
        );
        let longer = [bytes(&hello), vec![0]].concat();
        for wrong in [&bytes(&hello)[..8], &longer, b"eyas"] {
            assert!(matches!(Hello::decode(wrong), Err(HelloError::Body(_))), "{wrong:?}");
        }
    }

    #[test]
    fn processes_with_a_fixed_data_mode_have_to_agree_and_clients_follow() {
        let agree = |one, other| {
            let hello = |role, data| Hello::new(role, data, None);
            assert!(hello(one, DataMode::Plain).agrees_with(&hello(other, DataMode::Plain)));
            hello(one, DataMode::Plain).agrees_with(&hello(other, DataMode::Encrypted))
        };
        for (one, other) in [
            (Role::Executor, Role::Dispatcher),
            (Role::Dispatcher, Role::Executor),
            (Role::Node, Role::Node),
        ] {
            assert!(!agree(one, other), "{one:?} {other:?}");
        }
        for other in [Role::Dispatcher, Role::Node] {
            assert!(agree(Role::Client, other) && agree(other, Role::Client), "{other:?}");
        }
        assert!(agree(Role::Agent, Role::Coordinator));
    }
}
