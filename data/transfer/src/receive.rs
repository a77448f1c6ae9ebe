//! Receives the pieces that follow a reply or a push. Each piece is checked before the store gets
//! it.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use eyas_store::{Checksum, Incoming, Limiter, PIECE_BYTES};

use crate::error::{PeerError, PeerErrorKind};
use crate::link::Link;
use crate::peers::{Connection, Inner, TransferFailure};
use crate::protocol::{
    CHECKSUM_BYTES, PIECE_HEADER_BYTES, PieceHeader, PieceKind, TO_THE_END, TransferRequest,
};

/// Size of a piece and its checksum.
pub(crate) const BUFFER_BYTES: usize = PIECE_BYTES + CHECKSUM_BYTES;

/// The rate of a relay is compared with the rate at which it receives over this time.
const COMPARED_OVER: Duration = Duration::from_secs(2);

/// A relay is slow if it receives this many times as fast as it sends.
const SLOW_FACTOR: u64 = 4;

/// The content that follows a reply.
#[derive(Clone, Copy)]
pub(crate) struct ContentHeader {
    /// Size of the whole object.
    pub size_bytes: u64,
    /// Checksum of the whole object. While the object is still being received by the server, it is
    /// known only at the end.
    pub checksum: Option<Checksum>,
    /// Number of bytes that follow.
    pub length: u64,
}

/// When to give up a peer that is still receiving the object itself.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// Maximum time without new content, although the peer is alive.
    pub stall: Duration,
    /// Whether a slow peer is given up, because there is another source.
    pub is_choosy: bool,
}

/// Receives the rest of an object.
pub(crate) fn receive_object(
    inner: &Inner,
    addr: SocketAddr,
    connection: &mut Connection,
    request: TransferRequest,
    into: &mut Incoming,
    patience: Patience,
    buffer: &mut [u8],
) -> Result<(), TransferFailure> {
    let follows = connection.ask(addr, request, inner.limits.stall_timeout)?;
    if (follows.size_bytes, request.offset + follows.length)
        != (into.size_bytes(), into.size_bytes())
    {
        let (id, told, known) = (into.id(), follows.size_bytes, into.size_bytes());
        let what = format!("has an object {id} of {told} bytes, and it should have {known}");
        return Err(TransferFailure::of(PeerErrorKind::OtherVersion, addr, what));
    }
    let stall = inner.limits.stall_timeout;
    Pieces::new(addr, &mut connection.link, &inner.link_in, stall, follows, patience)?
        .receive(into, buffer)
}

/// Receives a range into memory.
pub(crate) fn receive_range(
    inner: &Inner,
    addr: SocketAddr,
    connection: &mut Connection,
    request: TransferRequest,
    patience: Patience,
) -> Result<Vec<u8>, TransferFailure> {
    let follows = connection.ask(addr, request, inner.limits.stall_timeout)?;
    if follows.length != request.length || request.length == TO_THE_END {
        return Err(TransferFailure::of(
            PeerErrorKind::Corrupt,
            addr,
            "sends another range than it was asked for",
        ));
    }
    let mut range = Vec::with_capacity(follows.length as usize);
    let mut buffer = vec![0; BUFFER_BYTES.min(follows.length as usize + CHECKSUM_BYTES)];
    let stall = inner.limits.stall_timeout;
    let mut pieces =
        Pieces::new(addr, &mut connection.link, &inner.link_in, stall, follows, patience)?;
    while let Some(piece) = pieces.next(&mut buffer)? {
        match piece {
            Piece::Content(content, _) => range.extend_from_slice(content),
            Piece::Hole(bytes) => range.resize(range.len() + bytes as usize, 0),
        }
    }
    pieces.checksum()?;
    Ok(range)
}

/// A part of an object.
enum Piece<'b> {
    Content(&'b [u8], Checksum),
    /// This number of zeros.
    Hole(u64),
}

/// The pieces that follow a reply or a push.
pub(crate) struct Pieces<'a> {
    addr: SocketAddr,
    link: &'a mut Link,
    link_in: &'a Limiter,
    follows: ContentHeader,
    patience: Patience,
    left: u64,
    moved: Instant,
    compared: Option<RelayComparison>,
}

/// The time of the last comparison of a relay, and the progress of both sides at that time.
struct RelayComparison {
    at: Instant,
    had_bytes: u64,
    left: u64,
}

impl<'a> Pieces<'a> {
    /// The pieces that arrive from `addr` over `link`, which may be silent for up to `stall`.
    pub fn new(
        addr: SocketAddr,
        link: &'a mut Link,
        link_in: &'a Limiter,
        stall: Duration,
        follows: ContentHeader,
        patience: Patience,
    ) -> Result<Self, TransferFailure> {
        let (left, moved) = (follows.length, Instant::now());
        let pieces = Pieces { addr, link, link_in, follows, patience, left, moved, compared: None };
        pieces.link.tcp().set_read_timeout(Some(stall)).map_err(|error| pieces.stopped(error))?;
        Ok(pieces)
    }

    /// Receives the rest of an object.
    pub fn receive(
        &mut self,
        into: &mut Incoming,
        buffer: &mut [u8],
    ) -> Result<(), TransferFailure> {
        while let Some(piece) = self.next(buffer)? {
            let (content, checksum) = match piece {
                Piece::Content(content, checksum) => (content, checksum),
                Piece::Hole(bytes) => {
                    into.skip(bytes)?;
                    continue;
                }
            };
            let is_piece = into.written_bytes().is_multiple_of(PIECE_BYTES as u64)
                && (content.len() == PIECE_BYTES
                    || into.written_bytes() + content.len() as u64 == into.size_bytes());
            if is_piece {
                into.write_piece(content, checksum)?;
            } else {
                into.write(content)?;
            }
        }
        match self.checksum()? {
            checksum if checksum == into.checksum() => Ok(()),
            _ => {
                let what = format!("sent object {} damaged, or an earlier source did", into.id());
                Err(TransferFailure::of(PeerErrorKind::Corrupt, self.addr, what))
            }
        }
    }

    /// The next piece; `None` after the last.
    fn next<'b>(&mut self, buffer: &'b mut [u8]) -> Result<Option<Piece<'b>>, TransferFailure> {
        while self.left > 0 {
            let header = self.header()?;
            match header.kind {
                PieceKind::Content if u64::from(header.length) <= self.left => {
                    let length = header.length as usize;
                    let bytes = &mut buffer[..length + CHECKSUM_BYTES];
                    self.read(bytes)?;
                    self.link_in.take_blocking(length as u64);
                    let (content, checksum) = bytes.split_at(length);
                    let sum = Checksum::of(content);
                    if sum.0.to_le_bytes() != *checksum {
                        return Err(TransferFailure::of(
                            PeerErrorKind::Corrupt,
                            self.addr,
                            "sent damaged data",
                        ));
                    }
                    self.advance(length as u64, header.had_bytes)?;
                    return Ok(Some(Piece::Content(content, sum)));
                }
                PieceKind::Hole if u64::from(header.length) <= self.left => {
                    self.advance(header.length.into(), header.had_bytes)?;
                    return Ok(Some(Piece::Hole(header.length.into())));
                }
                PieceKind::Wait => self.wait()?,
                PieceKind::Content | PieceKind::Hole | PieceKind::End => {
                    return Err(self.nonsense());
                }
            }
        }
        Ok(None)
    }

    fn advance(&mut self, bytes: u64, had_bytes: u64) -> Result<(), TransferFailure> {
        self.left -= bytes;
        self.moved = Instant::now();
        self.compare(had_bytes)
    }

    /// The checksum of the whole object, which follows the last piece.
    fn checksum(&mut self) -> Result<Checksum, TransferFailure> {
        if let Some(checksum) = self.follows.checksum {
            return Ok(checksum);
        }
        loop {
            match self.header()?.kind {
                PieceKind::Wait => self.wait()?,
                PieceKind::Content | PieceKind::Hole => return Err(self.nonsense()),
                PieceKind::End => {
                    let mut checksum = [0; CHECKSUM_BYTES];
                    self.read(&mut checksum)?;
                    return Ok(Checksum(u64::from_le_bytes(checksum)));
                }
            }
        }
    }

    fn header(&mut self) -> Result<PieceHeader, TransferFailure> {
        let mut header = [0; PIECE_HEADER_BYTES];
        self.read(&mut header)?;
        PieceHeader::from_bytes(&header).ok_or_else(|| self.nonsense())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), TransferFailure> {
        self.link.read_exact(bytes).map_err(|error| self.stopped(error))
    }

    fn stopped(&self, error: std::io::Error) -> TransferFailure {
        if error.kind() == ErrorKind::InvalidData {
            // Decryption failed: the data was changed on its way.
            return TransferFailure::of(PeerErrorKind::Corrupt, self.addr, "sent damaged data");
        }
        TransferFailure::unreachable(self.addr, format!("stopped in the middle: {error}"))
    }

    /// The peer has no more bytes yet.
    fn wait(&self) -> Result<(), TransferFailure> {
        if self.moved.elapsed() < self.patience.stall {
            return Ok(());
        }
        let what = "waits for the object itself, and has been told nothing for too long";
        Err(TransferFailure::of(PeerErrorKind::Slow, self.addr, what))
    }

    /// Gives up a relay that receives much faster than it sends.
    fn compare(&mut self, had_bytes: u64) -> Result<(), TransferFailure> {
        let now = RelayComparison { at: self.moved, had_bytes, left: self.left };
        let Some(then) = &self.compared else {
            self.compared = Some(now);
            return Ok(());
        };
        if now.at - then.at < COMPARED_OVER {
            return Ok(());
        }
        let (sent, received) = (then.left - now.left, had_bytes.saturating_sub(then.had_bytes));
        self.compared = Some(now);
        if self.patience.is_choosy && received / SLOW_FACTOR > sent {
            return Err(TransferFailure::of(
                PeerErrorKind::Slow,
                self.addr,
                "sends much slower than it receives",
            ));
        }
        Ok(())
    }

    fn nonsense(&self) -> TransferFailure {
        TransferFailure {
            error: PeerError::unreachable(self.addr, "sent what no peer sends"),
            may_be_stale: false,
        }
    }
}
