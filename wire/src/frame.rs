//! Frames: a 32-bit little-endian length, then messages one after the other.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the length before each frame.
pub const HEADER_BYTES: usize = 4;
/// Largest frame accepted; a sender closes its frame well before.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
/// A sender closes a frame once it has so many bytes, so that the receiver can begin.
pub const FULL_FRAME_BYTES: usize = 256 << 10;
/// Frames before both sides have said who they are may be so large.
pub const MAX_HELLO_BYTES: usize = 1024;

/// A frame as it is filled.
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

    /// Whether it is time to send it.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_FRAME_BYTES
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }

    /// Its bytes, length first; it is empty again afterwards.
    pub fn take(&mut self) -> Vec<u8> {
        let length = (self.bytes.len() - HEADER_BYTES) as u32;
        self.bytes[..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
        std::mem::replace(&mut self.bytes, vec![0; HEADER_BYTES])
    }
}

/// The length that a header announces.
///
/// # Errors
/// If it is more than `limit`: garbage, or another protocol.
pub fn length(header: [u8; HEADER_BYTES], limit: usize) -> Result<usize, String> {
    match u32::from_le_bytes(header) as usize {
        length if length <= limit => Ok(length),
        length => Err(format!("a frame of {length} bytes is announced, at most {limit} are allowed")),
    }
}

/// The messages in a frame's body.
///
/// # Errors
/// If it is not made of such messages.
pub fn decode<M: DeserializeOwned>(mut body: &[u8]) -> Result<Vec<M>, String> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let (message, rest) =
            postcard::take_from_bytes(body).map_err(|e| format!("a message cannot be decoded: {e}"))?;
        messages.push(message);
        body = rest;
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataMode, Hello, Role};

    #[test]
    fn messages_come_back_in_order_and_garbage_is_refused() {
        let mut frame = Frame::default();
        assert!(frame.is_empty());
        let sent = [(Role::Client, DataMode::Encrypted), (Role::Executor, DataMode::Plain)];
        let sent = sent.map(|(role, data)| Hello::new(role, data, None));
        sent.iter().for_each(|message| frame.push(message));
        let bytes = frame.take();
        let header = bytes[..HEADER_BYTES].try_into().unwrap();
        assert_eq!(length(header, 100), Ok(bytes.len() - HEADER_BYTES));
        assert_eq!(decode::<Hello>(&bytes[HEADER_BYTES..]).unwrap(), sent);
        assert!(decode::<Hello>(&bytes[HEADER_BYTES..bytes.len() - 1]).is_err());
        assert!(length(*b"GET ", MAX_FRAME_BYTES).is_err());
        assert!(frame.is_empty());
    }

    #[test]
    fn a_stranger_and_another_version_are_told_apart() {
        let hello = Hello::new(Role::Client, DataMode::Encrypted, None);
        assert!(hello.check().is_ok());
        assert!(Hello { version: 99, ..hello.clone() }.check().unwrap_err().contains("version 99"));
        assert!(Hello { magic: *b"HTTP", ..hello }.check().is_err());
    }

    #[test]
    fn processes_of_a_cluster_move_data_alike_and_clients_do_as_they_are_told() {
        let agree = |one, other| {
            let hello = |role, data| Hello::new(role, data, None);
            assert!(hello(one, DataMode::Plain).agrees_with(&hello(other, DataMode::Plain)));
            hello(one, DataMode::Plain).agrees_with(&hello(other, DataMode::Encrypted))
        };
        for (one, other) in
            [(Role::Executor, Role::Dispatcher), (Role::Dispatcher, Role::Executor), (Role::Node, Role::Node)]
        {
            assert!(!agree(one, other), "{one:?} {other:?}");
        }
        for other in [Role::Dispatcher, Role::Node] {
            assert!(agree(Role::Client, other) && agree(other, Role::Client), "{other:?}");
        }
        assert!(agree(Role::Agent, Role::Coordinator));
    }
}
