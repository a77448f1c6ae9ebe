//! The protocol between two peers, as bytes. Every message has 64 bytes: 32 of content, and 32 of a
//! BLAKE3 keyed hash (MAC) over the content and its context, which prevents replays.
//!
//! ```text
//! hello    client → server   "eyas" | version u16 | 0 u16 | nonce 24
//!                            MAC with the cluster's key
//! welcome  server → client   "eyas" | version u16 | status u16 | nonce 24
//!                            MAC with the cluster's key, over the client's nonce too
//! request  client → server   id 16 | offset u62, push u1, expected u1 | length u64
//!                            MAC with the session's key, over the number of the request too
//! reply    server → client   status u64 | size u64 | checksum u64 | length u64
//!                            MAC with the session's key, over the number of the request too
//! ```
//!
//! `length` bytes of content follow in pieces. Each piece has a header before it and its checksum
//! after it, so that damage is found on the link where it happens, and earlier pieces are kept. An
//! object that the server is still receiving is sent piece by piece, and ends with the checksum of
//! the whole, which the server knows only then.
//!
//! ```text
//! piece    kind u32 | length u32 | had u64, then
//!          content: `length` bytes | their checksum u64
//!          hole:    nothing; the next `length` bytes are zeros, and a hole in the server's file
//!          wait:    nothing; the server is alive and has no more bytes yet
//!          end:     checksum of the whole object u64
//! ```
//!
//! `had` is the number of bytes of the object that the server has.
//!
//! A push is a request whose content goes in the other direction: the server replies with the
//! offset from which it wants the object, the client sends pieces from there and an end, and the
//! server replies again when it has stored the object.
//!
//! The client speaks first. A server closes the connection without an answer if a hello or a
//! request is invalid, so a port scan learns nothing. The session's key is a hash of both nonces
//! with the cluster's key, so recordings cannot be replayed to either side. Numbers are
//! little-endian. This file uses no socket, no clock and no randomness.

use std::fmt;

use eyas_store::{Checksum, PIECE_BYTES};
use eyas_types::ObjectId;

/// Size of every message.
pub(crate) const MESSAGE_BYTES: usize = 64;

/// A `length` in a request that means everything after `offset`.
pub(crate) const TO_THE_END: u64 = u64::MAX;

pub(crate) const PIECE_HEADER_BYTES: usize = 16;
pub(crate) const CHECKSUM_BYTES: usize = 8;

/// Bit in the field `offset` of a request: the object may be on its way to the server.
const EXPECTED_BIT: u64 = 1 << 63;

/// Bit in the same field: the client pushes the object, which has `length` bytes.
const PUSH_BIT: u64 = 1 << 62;

const CONTENT_BYTES: usize = 32;
const MAGIC: &[u8; 4] = b"eyas";
const VERSION: u16 = 4;

pub(crate) type MessageBytes = [u8; MESSAGE_BYTES];
pub(crate) type Nonce = [u8; 24];

/// A secret that the nodes of a cluster share. It is never sent.
#[derive(Clone)]
pub(crate) struct PeerKey(pub [u8; 32]);

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerKey(..)")
    }
}

/// The answer of a server to a client that knows the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Welcome {
    Ready = 0,
    /// Too many connections; try another holder.
    Busy = 1,
}

/// A request for a range of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferRequest {
    pub id: ObjectId,
    pub offset: u64,
    pub length: u64,
    /// If the server does not have the object, it is on its way there, and the server waits for a
    /// moment.
    pub expected: bool,
    /// The client pushes the object instead of asking for it.
    pub is_push: bool,
}

/// The reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferReply {
    /// `length` bytes follow, of an object of `size_bytes` whose whole content has `checksum`.
    Here { size_bytes: u64, checksum: Checksum, length: u64 },
    /// `length` bytes follow as they arrive, of an object of `size_bytes`, and then the checksum of
    /// the whole.
    Coming { size_bytes: u64, length: u64 },
    /// The object is not in the store, or was just found to be damaged.
    NotHere,
    /// The object does not have this range.
    NoSuchRange,
    /// The disk of the server failed.
    Failed,
    /// The object is to be pushed from this offset on.
    Wanted { offset: u64 },
    /// The pushed object is in the store.
    Stored,
}

/// The purpose of a MAC, so that a MAC for one purpose is not valid for another.
#[derive(Clone, Copy)]
enum Purpose {
    Hello,
    Welcome,
    PeerSession,
    TransferRequest,
    TransferReply,
}

/// A client's first message.
pub(crate) fn hello(key: &PeerKey, nonce: &Nonce) -> MessageBytes {
    let content = greeting(0, nonce);
    sealed(&key.0, Purpose::Hello, &[], content)
}

/// The nonce in a client's first message, if the client knows the key.
pub(crate) fn read_hello(key: &PeerKey, message: &MessageBytes) -> Option<Nonce> {
    let content = opened(&key.0, Purpose::Hello, &[], message)?;
    read_greeting(content).map(|(_, nonce)| nonce)
}

/// The answer of a server.
pub(crate) fn welcome(
    key: &PeerKey,
    client: &Nonce,
    server: &Nonce,
    welcome: Welcome,
) -> MessageBytes {
    sealed(&key.0, Purpose::Welcome, client, greeting(welcome as u16, server))
}

/// The answer of a server and its nonce, if the server knows the key.
pub(crate) fn read_welcome(
    key: &PeerKey,
    client: &Nonce,
    message: &MessageBytes,
) -> Option<(Welcome, Nonce)> {
    let content = opened(&key.0, Purpose::Welcome, client, message)?;
    let (status, nonce) = read_greeting(content)?;
    let welcome =
        [Welcome::Ready, Welcome::Busy].into_iter().find(|welcome| *welcome as u16 == status)?;
    Some((welcome, nonce))
}

/// One side of a connection after the handshake.
pub(crate) struct PeerSession {
    key: [u8; 32],
    /// Number of the next request.
    number: u64,
}

impl PeerSession {
    pub fn new(key: &PeerKey, client: &Nonce, server: &Nonce) -> Self {
        PeerSession {
            key: *mac(&key.0, Purpose::PeerSession, client, server).as_bytes(),
            number: 0,
        }
    }

    /// The next request, as the client sends it.
    pub fn request(&mut self, request: TransferRequest) -> MessageBytes {
        self.number += 1;
        let mut content = [0; CONTENT_BYTES];
        content[..16].copy_from_slice(&request.id.0);
        let flags = [(request.expected, EXPECTED_BIT), (request.is_push, PUSH_BIT)];
        let flags =
            flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, bit)| flags | bit);
        content[16..24].copy_from_slice(&(request.offset | flags).to_le_bytes());
        content[24..].copy_from_slice(&request.length.to_le_bytes());
        sealed(&self.key, Purpose::TransferRequest, &self.number.to_le_bytes(), content)
    }

    /// The next request, as the server reads it.
    pub fn read_request(&mut self, message: &MessageBytes) -> Option<TransferRequest> {
        self.number += 1;
        let content =
            opened(&self.key, Purpose::TransferRequest, &self.number.to_le_bytes(), message)?;
        let mut id = [0; 16];
        id.copy_from_slice(&content[..16]);
        let (offset, length) = (u64_at(content, 16), u64_at(content, 24));
        let (expected, is_push) = (offset & EXPECTED_BIT != 0, offset & PUSH_BIT != 0);
        Some(TransferRequest {
            id: ObjectId(id),
            offset: offset & !(EXPECTED_BIT | PUSH_BIT),
            length,
            expected,
            is_push,
        })
    }

    /// The reply to the last request.
    pub fn reply(&self, reply: TransferReply) -> MessageBytes {
        let (status, size_bytes, checksum, length) = match reply {
            TransferReply::Here { size_bytes, checksum, length } => {
                (0, size_bytes, checksum.0, length)
            }
            TransferReply::NotHere => (1, 0, 0, 0),
            TransferReply::NoSuchRange => (2, 0, 0, 0),
            TransferReply::Failed => (3, 0, 0, 0),
            TransferReply::Coming { size_bytes, length } => (4, size_bytes, 0, length),
            TransferReply::Wanted { offset } => (5, offset, 0, 0),
            TransferReply::Stored => (6, 0, 0, 0),
        };
        let mut content = [0; CONTENT_BYTES];
        for (field, value) in
            content.chunks_exact_mut(8).zip([status, size_bytes, checksum, length])
        {
            field.copy_from_slice(&u64::to_le_bytes(value));
        }
        sealed(&self.key, Purpose::TransferReply, &self.number.to_le_bytes(), content)
    }

    /// The server's reply to the last request.
    pub fn read_reply(&self, message: &MessageBytes) -> Option<TransferReply> {
        let content =
            opened(&self.key, Purpose::TransferReply, &self.number.to_le_bytes(), message)?;
        let (size_bytes, checksum, length) =
            (u64_at(content, 8), Checksum(u64_at(content, 16)), u64_at(content, 24));
        match u64_at(content, 0) {
            0 => Some(TransferReply::Here { size_bytes, checksum, length }),
            1 => Some(TransferReply::NotHere),
            2 => Some(TransferReply::NoSuchRange),
            3 => Some(TransferReply::Failed),
            4 => Some(TransferReply::Coming { size_bytes, length }),
            5 => Some(TransferReply::Wanted { offset: size_bytes }),
            6 => Some(TransferReply::Stored),
            _ => None,
        }
    }
}

/// The kind of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Content = 1,
    Wait = 2,
    End = 3,
    Hole = 4,
}

/// The header of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceHeader {
    pub kind: PieceKind,
    /// Bytes of content, or of the hole.
    pub length: u32,
    /// Bytes of the object that the server has.
    pub had_bytes: u64,
}

impl PieceHeader {
    pub fn to_bytes(self) -> [u8; PIECE_HEADER_BYTES] {
        let mut bytes = [0; PIECE_HEADER_BYTES];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.had_bytes.to_le_bytes());
        bytes
    }

    /// Parses a header; `None` if it is invalid or its piece too large.
    pub fn from_bytes(bytes: &[u8; PIECE_HEADER_BYTES]) -> Option<Self> {
        let kind_and_length = u64_at(bytes, 0);
        let (kind, length) = (kind_and_length as u32, (kind_and_length >> 32) as u32);
        let kinds = [PieceKind::Content, PieceKind::Wait, PieceKind::End, PieceKind::Hole];
        let kind = kinds.into_iter().find(|known| *known as u32 == kind)?;
        let fits = match kind {
            PieceKind::Content => (1..=PIECE_BYTES as u32).contains(&length),
            PieceKind::Hole => length > 0,
            PieceKind::Wait | PieceKind::End => length == 0,
        };
        fits.then_some(PieceHeader { kind, length, had_bytes: u64_at(bytes, 8) })
    }
}

fn greeting(status: u16, nonce: &Nonce) -> [u8; CONTENT_BYTES] {
    let mut content = [0; CONTENT_BYTES];
    content[..4].copy_from_slice(MAGIC);
    content[4..6].copy_from_slice(&VERSION.to_le_bytes());
    content[6..8].copy_from_slice(&status.to_le_bytes());
    content[8..].copy_from_slice(nonce);
    content
}

fn read_greeting(content: &[u8]) -> Option<(u16, Nonce)> {
    let (status, nonce) =
        (u16::from_le_bytes([content[6], content[7]]), content[8..].try_into().ok()?);
    (content[..4] == *MAGIC && content[4..6] == VERSION.to_le_bytes()).then_some((status, nonce))
}

fn sealed(
    key: &[u8; 32],
    purpose: Purpose,
    context: &[u8],
    content: [u8; CONTENT_BYTES],
) -> MessageBytes {
    let mut message = [0; MESSAGE_BYTES];
    message[..CONTENT_BYTES].copy_from_slice(&content);
    message[CONTENT_BYTES..].copy_from_slice(mac(key, purpose, context, &content).as_bytes());
    message
}

fn opened<'a>(
    key: &[u8; 32],
    purpose: Purpose,
    context: &[u8],
    message: &'a MessageBytes,
) -> Option<&'a [u8]> {
    let (content, theirs) = message.split_at(CONTENT_BYTES);
    // Comparing two `Hash` values takes constant time.
    (mac(key, purpose, context, content) == blake3::Hash::from_slice(theirs).ok()?)
        .then_some(content)
}

/// All contexts of one purpose have the same length, so different inputs never give the same bytes.
fn mac(key: &[u8; 32], purpose: Purpose, context: &[u8], content: &[u8]) -> blake3::Hash {
    blake3::Hasher::new_keyed(key)
        .update(&[purpose as u8])
        .update(context)
        .update(content)
        .finalize()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PeerKey = PeerKey([7; 32]);
    const OTHER: PeerKey = PeerKey([8; 32]);
    const CLIENT: Nonce = [1; 24];
    const SERVER: Nonce = [2; 24];
    const REQUEST: TransferRequest = TransferRequest {
        id: ObjectId([9; 16]),
        offset: 5,
        length: TO_THE_END,
        expected: true,
        is_push: false,
    };

    #[test]
    fn both_sides_prove_that_they_know_the_key() {
        assert_eq!(read_hello(&KEY, &hello(&KEY, &CLIENT)), Some(CLIENT));
        assert_eq!(read_hello(&OTHER, &hello(&KEY, &CLIENT)), None);
        for status in [Welcome::Ready, Welcome::Busy] {
            let answer = welcome(&KEY, &CLIENT, &SERVER, status);
            assert_eq!(read_welcome(&KEY, &CLIENT, &answer), Some((status, SERVER)));
            assert_eq!(read_welcome(&OTHER, &CLIENT, &answer), None);
            assert_eq!(read_welcome(&KEY, &SERVER, &answer), None, "an answer to another hello");
        }
        // A server's own greeting is not valid as a client's.
        assert_eq!(read_hello(&KEY, &welcome(&KEY, &CLIENT, &SERVER, Welcome::Ready)), None);
    }

    #[test]
    fn any_bit_changed_is_noticed() {
        let message = hello(&KEY, &CLIENT);
        for bit in 0..MESSAGE_BYTES * 8 {
            let mut changed = message;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_hello(&KEY, &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn a_request_counts_once_and_in_its_session() {
        let mut client = PeerSession::new(&KEY, &CLIENT, &SERVER);
        let mut server = PeerSession::new(&KEY, &CLIENT, &SERVER);
        let push = TransferRequest { expected: false, is_push: true, ..REQUEST };
        let pushed = client.request(push);
        assert_eq!(server.read_request(&pushed), Some(push));
        let first = client.request(REQUEST);
        assert_eq!(server.read_request(&first), Some(REQUEST));
        assert_eq!(server.read_request(&first), None, "played again");
        assert_eq!(
            PeerSession::new(&KEY, &CLIENT, &[3; 24]).read_request(&first),
            None,
            "in another session"
        );
    }

    #[test]
    fn only_headers_of_pieces_that_fit_are_read() {
        let header = |kind, length| PieceHeader { kind, length, had_bytes: 7 };
        for good in [
            header(PieceKind::Content, PIECE_BYTES as u32),
            header(PieceKind::Hole, u32::MAX),
            header(PieceKind::Wait, 0),
            header(PieceKind::End, 0),
        ] {
            assert_eq!(PieceHeader::from_bytes(&good.to_bytes()), Some(good));
        }
        for bad in [
            header(PieceKind::Content, 0),
            header(PieceKind::Content, PIECE_BYTES as u32 + 1),
            header(PieceKind::Hole, 0),
            header(PieceKind::End, 1),
        ] {
            assert_eq!(PieceHeader::from_bytes(&bad.to_bytes()), None, "{bad:?}");
        }
        assert_eq!(PieceHeader::from_bytes(&[0; PIECE_HEADER_BYTES]), None);
    }

    #[test]
    fn replies_answer_their_request() {
        let mut client = PeerSession::new(&KEY, &CLIENT, &SERVER);
        let mut server = PeerSession::new(&KEY, &CLIENT, &SERVER);
        for reply in [
            TransferReply::Here { size_bytes: 10, checksum: Checksum(3), length: 4 },
            TransferReply::Coming { size_bytes: 10, length: 4 },
            TransferReply::NotHere,
            TransferReply::NoSuchRange,
            TransferReply::Failed,
            TransferReply::Wanted { offset: 7 },
            TransferReply::Stored,
        ] {
            let request = client.request(REQUEST);
            assert_eq!(server.read_request(&request), Some(REQUEST));
            let answer = server.reply(reply);
            assert_eq!(client.read_reply(&answer), Some(reply));
            client.request(REQUEST);
            assert_eq!(client.read_reply(&answer), None, "an old answer");
            client.number -= 1;
        }
    }
}
