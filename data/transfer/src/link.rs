//! A connection between two nodes, plain or encrypted, as the cluster is configured. Both kinds
//! carry the same bytes.

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use eyas_session::{DataKeys, SealedStream};
use eyas_wire::DataMode;
use rustix::net::SendFlags;

/// Bytes of a file that are read at a time to be encrypted: the size of a record of
/// [`SealedStream`].
const CONTENT_BYTES: usize = 128 << 10;

/// Whether more data follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterSend {
    /// More data follows at once, so this data may wait for it.
    More,
    /// No more data follows for now.
    Nothing,
}

pub(crate) enum Link {
    Plain(Arc<TcpStream>),
    Sealed(Box<SealedLink>),
}

pub(crate) struct SealedLink {
    stream: SealedStream,
    /// Content of a file that is about to be encrypted.
    content: Vec<u8>,
}

impl Link {
    /// The link of the side that has connected. If the cluster encrypts, both sides prove their
    /// keys before `deadline`.
    pub fn client(tcp: Arc<TcpStream>, keys: &DataKeys, deadline: Instant) -> io::Result<Self> {
        Link::new(tcp, keys, |tcp| SealedStream::client(tcp, keys, deadline))
    }

    /// The link of the side that has accepted the connection.
    pub fn server(tcp: Arc<TcpStream>, keys: &DataKeys, deadline: Instant) -> io::Result<Self> {
        Link::new(tcp, keys, |tcp| SealedStream::server(tcp, keys, deadline))
    }

    fn new(
        tcp: Arc<TcpStream>,
        keys: &DataKeys,
        seal: impl FnOnce(Arc<TcpStream>) -> io::Result<SealedStream>,
    ) -> io::Result<Self> {
        match keys.mode() {
            DataMode::Plain => Ok(Link::Plain(tcp)),
            DataMode::Encrypted => {
                Ok(Link::Sealed(Box::new(SealedLink { stream: seal(tcp)?, content: Vec::new() })))
            }
        }
    }

    /// Whether the cluster still trusts the certificate of the other side. Always true without
    /// encryption.
    pub fn is_trusted(&self, keys: &DataKeys) -> bool {
        match self {
            Link::Plain(_) => true,
            Link::Sealed(sealed) => sealed.stream.peer().is_some_and(|holder| keys.admits(holder)),
        }
    }

    pub fn tcp(&self) -> &TcpStream {
        match self {
            Link::Plain(tcp) => tcp,
            Link::Sealed(sealed) => sealed.stream.tcp(),
        }
    }

    pub fn send(&mut self, bytes: &[u8], then: AfterSend) -> io::Result<()> {
        match self {
            Link::Plain(tcp) => {
                let flags =
                    if then == AfterSend::More { SendFlags::MORE } else { SendFlags::empty() };
                send_all(tcp, bytes, flags)
            }
            Link::Sealed(sealed) => {
                sealed.stream.put(bytes)?;
                if then == AfterSend::Nothing { sealed.stream.send() } else { Ok(()) }
            }
        }
    }

    /// Sends a part of a file; more data follows.
    pub fn send_file(&mut self, file: &File, mut part: Range<u64>) -> io::Result<()> {
        match self {
            Link::Plain(tcp) => {
                while part.start < part.end {
                    let left = (part.end - part.start) as usize;
                    let sent = rustix::io::retry_on_intr(|| {
                        rustix::fs::sendfile(&**tcp, file, Some(&mut part.start), left)
                    })?;
                    if sent == 0 {
                        // A task has truncated the file. The peer notices that bytes are missing.
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
            Link::Sealed(sealed) => {
                let SealedLink { stream, content } = &mut **sealed;
                content.resize(CONTENT_BYTES, 0);
                while part.start < part.end {
                    let length = CONTENT_BYTES.min((part.end - part.start) as usize);
                    file.read_exact_at(&mut content[..length], part.start)?;
                    stream.put(&content[..length])?;
                    part.start += length as u64;
                }
            }
        }
        Ok(())
    }
}

impl Read for Link {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Link::Plain(tcp) => (&**tcp).read(into),
            Link::Sealed(sealed) => sealed.stream.read(into),
        }
    }
}

fn send_all(stream: &TcpStream, mut bytes: &[u8], flags: SendFlags) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::send(stream, bytes, flags | SendFlags::NOSIGNAL)
        })?;
        bytes = &bytes[sent..];
    }
    Ok(())
}
