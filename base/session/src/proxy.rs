//! Connections through a proxy, for nodes from which a dispatcher or other nodes cannot be reached.
//!
//! A process that connects through a proxy first sends one line that names the process it wants to
//! reach. The proxy connects to that process, answers with one line, and then passes on bytes in
//! both directions. Keys are proven and bytes are encrypted end to end: the proxy sees what a
//! switch sees.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The first word of a request. A connection that is not for a proxy begins with a TLS record or
/// with a greeting.
const WORD: &str = "eyas-proxy-1";

/// The answer of a proxy that has connected. Every other answer is a refusal, with the reason.
const CONNECTED: &str = "connected";

/// Maximum length of a request or an answer, with its line feed.
const MAX_LINE_BYTES: usize = 512;

/// Addresses of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Address at which the nodes behind the proxy reach it.
    pub inside: SocketAddr,
    /// Address at which all others reach it.
    pub outside: SocketAddr,
}

impl Proxy {
    /// The section of an access file that names the proxy.
    pub fn section(self) -> String {
        format!("\n[proxy]\ninside = \"{}\"\noutside = \"{}\"\n", self.inside, self.outside)
    }
}

/// The proxies through which a process connects to an executor, in the order of the way to it: none
/// if it connects directly, and two if both are behind proxies of their own. `own` is the proxy of
/// the process, `theirs` the outside address of the executor's proxy.
pub fn way(own: Option<Proxy>, theirs: Option<SocketAddr>) -> Vec<SocketAddr> {
    match own {
        Some(own) if theirs == Some(own.outside) => Vec::new(),
        own => own.map(|own| own.inside).into_iter().chain(theirs).collect(),
    }
}

/// Connects to `target`, `HOST:PORT`, through a proxy, and from there through further ones. Waits
/// for their answers. Blocks for about `deadline` at most.
///
/// # Errors
/// If a proxy cannot be reached, does not answer in time, or refuses.
pub fn connect_through(
    proxy: SocketAddr,
    further: &[SocketAddr],
    target: &str,
    deadline: Duration,
) -> io::Result<TcpStream> {
    let until = Instant::now() + deadline;
    let mut stream = TcpStream::connect_timeout(&proxy, deadline)?;
    let (mut asked, next) = (proxy, further.iter().map(|proxy| (proxy.to_string(), *proxy)));
    for (address, then) in next.chain([(target.to_owned(), proxy)]) {
        stream.write_all(request(&address).as_bytes())?;
        let mut answer = ReceivedLine::default();
        while answer.is_incomplete()? {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            // No byte after the answer is read: it is for the caller.
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            answer.0.push(byte[0]);
        }
        answer.read(asked)?;
        asked = then;
    }
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// The same for a caller with a deadline of its own.
pub(crate) async fn dial_through(
    proxy: SocketAddr,
    target: &str,
) -> io::Result<tokio::net::TcpStream> {
    let mut stream = tokio::net::TcpStream::connect(proxy).await?;
    stream.write_all(request(target).as_bytes()).await?;
    let mut answer = ReceivedLine::default();
    while answer.is_incomplete()? {
        answer.0.push(stream.read_u8().await?);
    }
    answer.read(proxy)?;
    Ok(stream)
}

/// Reads the request of a new connection to a proxy: the target that it names.
///
/// # Errors
/// If the connection ends, or does not begin with a request.
pub async fn read_request(stream: &mut tokio::net::TcpStream) -> io::Result<String> {
    let mut line = ReceivedLine::default();
    while line.is_incomplete()? {
        line.0.push(stream.read_u8().await?);
    }
    let target =
        line.text().and_then(|text| text.strip_prefix(WORD)?.strip_prefix(' ').map(str::to_owned));
    target.ok_or_else(|| invalid("it is not a request to a proxy"))
}

/// Tells the process that has sent a request that it is connected, or why it is not.
///
/// # Errors
/// If the connection has ended.
pub async fn answer(stream: &mut tokio::net::TcpStream, refusal: Option<&str>) -> io::Result<()> {
    let mut line: String =
        refusal.unwrap_or(CONNECTED).chars().filter(|c| !c.is_control()).take(120).collect();
    line.push('\n');
    stream.write_all(line.as_bytes()).await
}

fn request(target: &str) -> String {
    format!("{WORD} {target}\n")
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// A line that is being received.
#[derive(Default)]
struct ReceivedLine(Vec<u8>);

impl ReceivedLine {
    fn is_incomplete(&self) -> io::Result<bool> {
        if self.0.len() > MAX_LINE_BYTES {
            return Err(invalid("it is not a proxy"));
        }
        Ok(self.0.last() != Some(&b'\n'))
    }

    fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()?.strip_suffix('\n')
    }

    fn read(&self, proxy: SocketAddr) -> io::Result<()> {
        match self.text() {
            Some(CONNECTED) => Ok(()),
            Some(why) => {
                Err(io::Error::other(format!("the proxy {proxy} says: {}", eyas_types::shown(why))))
            }
            None => Err(invalid("it is not a proxy")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_behind_one_proxy_connect_directly() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let proxy = Proxy { inside: address("10.0.0.1:7"), outside: address("192.0.2.1:7") };
        let other = address("192.0.2.9:7");
        assert_eq!(way(None, None), []);
        assert_eq!(way(None, Some(proxy.outside)), [proxy.outside]);
        assert_eq!(way(Some(proxy), Some(proxy.outside)), []);
        assert_eq!(way(Some(proxy), None), [proxy.inside]);
        assert_eq!(way(Some(proxy), Some(other)), [proxy.inside, other]);
    }

    #[tokio::test]
    async fn a_proxy_is_asked_and_answers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            for refusal in [None, Some("no\nsuch target"), None] {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_eq!(read_request(&mut stream).await.unwrap(), "host:7");
                answer(&mut stream, refusal).await.unwrap();
                stream.write_all(b"x").await.unwrap();
            }
        });
        let mut stream = dial_through(proxy, "host:7").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        let refused = dial_through(proxy, "host:7").await.unwrap_err().to_string();
        assert!(refused.ends_with("says: nosuch target"), "{refused}");
        let blocking = tokio::task::spawn_blocking(move || {
            let mut stream =
                connect_through(proxy, &[], "host:7", Duration::from_secs(10)).unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            byte
        });
        assert_eq!(blocking.await.unwrap(), *b"x");
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn other_bytes_than_a_request_are_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for bytes in [b"GET / HTTP/1.1\r\n".to_vec(), vec![b'x'; 2 * MAX_LINE_BYTES]] {
            let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
            client.write_all(&bytes).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_eq!(
                read_request(&mut stream).await.unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
    }
}
