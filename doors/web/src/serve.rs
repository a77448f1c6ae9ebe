//! Accepts connections, and serves each with deadlines: a client that sends its head too slowly, or
//! does not read its answer, is disconnected.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use eyas_client::Cluster;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep};

use crate::address::{BasePath, HostNames, WebAddress, WebAddressError};
use crate::attempts::WrongTokens;
use crate::follow::{follow_events, follow_state};
use crate::gate::{Gate, admit};
use crate::routes;
use crate::shared::Shared;
use crate::token::WebToken;
use crate::web_tokens::WebTokens;

/// Connections at the same time; others wait until one ends.
const MAX_WEB_CONNECTIONS: usize = 2048;
/// The head of a request has to arrive within this time, also on a connection that is kept.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// Size of a buffer of a connection, which bounds the head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// A client has to take some bytes of its answer within this time.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the server cannot start.
#[derive(Debug)]
pub enum WebError {
    /// The address is not permitted.
    Address(WebAddressError),
    /// The system says why.
    Listen(WebAddress, io::Error),
    /// Something is at the path of the Unix socket that is no socket, or a server listens there.
    Taken(PathBuf),
    /// There is no randomness for the token.
    Token(io::Error),
}

impl std::error::Error for WebError {}

impl std::fmt::Display for WebError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WebError::Address(why) => why.fmt(f),
            WebError::Listen(WebAddress::Tcp(address), why) => {
                write!(f, "cannot listen on {address}: {why}; name another one with --listen")
            }
            WebError::Listen(WebAddress::Unix(path), why) => {
                let path = path.display();
                write!(f, "cannot listen on {path}: {why}; name another path with --listen")
            }
            WebError::Taken(path) => {
                let path = path.display();
                write!(f, "{path} is in use or is no socket: name another path with --listen")
            }
            WebError::Token(why) => write!(f, "cannot make a token: {why}"),
        }
    }
}

/// Where a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebPlace {
    /// Where it listens.
    pub address: WebAddress,
    /// Names of hosts under which browsers reach it.
    pub names: HostNames,
    /// The beginning of its paths behind a reverse proxy.
    pub base: BasePath,
}

/// A server that listens.
pub struct WebServer {
    listener: WebListener,
    gate: Arc<Gate>,
}

enum WebListener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, which is removed at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // At the end of the process, an error has no reader.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl WebServer {
    /// Listens, and follows the dispatcher of a cluster from then on.
    ///
    /// # Errors
    /// If the address is not permitted or cannot be used.
    pub fn listen(cluster: Cluster, place: WebPlace) -> Result<Self, WebError> {
        let WebPlace { address, names, base } = place;
        let address = &address;
        names.check(address).map_err(WebError::Address)?;
        let failed = |why| WebError::Listen(address.clone(), why);
        let listener = match address {
            WebAddress::Tcp(tcp) => {
                let bound = std::net::TcpListener::bind(tcp).map_err(failed)?;
                bound.set_nonblocking(true).map_err(failed)?;
                WebListener::Tcp(TcpListener::from_std(bound).map_err(failed)?)
            }
            WebAddress::Unix(path) => {
                remove_old_socket(path)?;
                let bound = bind_private(path).map_err(failed)?;
                WebListener::Unix(bound, SocketFile(path.clone()))
            }
        };
        let own = match &listener {
            WebListener::Tcp(tcp) => Some(tcp.local_addr().map_err(failed)?),
            WebListener::Unix(..) => None,
        };
        let gate = Gate {
            own,
            names,
            token: WebToken::new().map_err(WebError::Token)?,
            tokens: WebTokens::of(&cluster),
            wrong: WrongTokens::new(),
            shared: Arc::new(Shared::new(cluster, base)),
        };
        Ok(WebServer { listener, gate: Arc::new(gate) })
    }

    /// The TCP address; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.gate.own
    }

    /// The URL that a person opens; for a Unix socket, its path behind `unix:`.
    pub fn url(&self) -> String {
        match &self.listener {
            WebListener::Tcp(_) => {
                let own = self.gate.own.map(|own| self.gate.names.place_of(own));
                let at = own.unwrap_or_default();
                let base = self.gate.shared.base.text();
                format!("http://{at}{base}/?token={}", self.gate.token.text())
            }
            WebListener::Unix(_, file) => format!("unix:{}", file.0.display()),
        }
    }

    /// Serves until the future is dropped.
    pub async fn serve(self) {
        let shared = self.gate.shared.clone();
        let app = routes::router(shared.clone());
        let app = app.layer(from_fn_with_state(self.gate.clone(), admit));
        let app = Answering { base: shared.base.clone(), app: TowerToHyperService::new(app) };
        // Dropped with this future, the set ends its tasks.
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_events(shared.clone()));
        tasks.spawn(follow_state(shared));
        let places = Arc::new(Semaphore::new(MAX_WEB_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            while tasks.try_join_next().is_some() {}
            let accepted = match &self.listener {
                WebListener::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| {
                    // Events are small, and must not wait for more.
                    let _ = stream.set_nodelay(true);
                    tasks.spawn(hold(place, serve_connection(stream, app.clone())))
                }),
                WebListener::Unix(unix, _) => unix.accept().await.map(|(stream, _)| {
                    tasks.spawn(hold(place, serve_connection(stream, app.clone())))
                }),
            };
            if let Err(why) = accepted {
                tracing::warn!("a connection could not be accepted: {why}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Removes the socket of a server that was killed.
fn remove_old_socket(path: &Path) -> Result<(), WebError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let is_used = std::os::unix::net::UnixStream::connect(path).is_ok();
    if !found.file_type().is_socket() || is_used {
        return Err(WebError::Taken(path.to_owned()));
    }
    std::fs::remove_file(path)
        .map_err(|why| WebError::Listen(WebAddress::Unix(path.to_owned()), why))
}

/// Binds a Unix socket that only this user can open. The socket appears at its path when its mode
/// is set: until then, it is in a folder that only this user can enter.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let hidden = folder.join(format!(".eyas-web-{}", std::process::id()));
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&hidden)?;
    let inside = hidden.join("s");
    let bound = UnixListener::bind(&inside).and_then(|bound| {
        std::fs::set_permissions(&inside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&inside, path)?;
        Ok(bound)
    });
    // What is left of a failed attempt is removed, too.
    let _ = std::fs::remove_dir_all(&hidden);
    bound
}

/// Keeps the place of a connection until its end.
async fn hold(place: tokio::sync::OwnedSemaphorePermit, served: impl Future<Output = ()>) {
    served.await;
    drop(place);
}

/// Answers requests, also those below the beginning that paths have behind a reverse proxy.
#[derive(Clone)]
struct Answering {
    base: BasePath,
    app: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Answering {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.base.take_from(request.uri_mut());
        self.app.call(request)
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    app: Answering,
) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(TimedWrites::of(stream, WRITE_DEADLINE)), app)
        .await;
    if let Err(why) = served {
        tracing::debug!("a connection of the web has ended: {why}");
    }
}

/// A connection whose writes fail if the client takes nothing within a time.
struct TimedWrites<S> {
    stream: S,
    time: Duration,
    /// Runs while a write waits.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> TimedWrites<S> {
    fn of(stream: S, time: Duration) -> Self {
        TimedWrites { stream, time, deadline: Box::pin(sleep(time)), is_waiting: false }
    }

    /// The outcome of a write: late if it waits and the deadline has passed.
    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.deadline.as_mut().reset(Instant::now() + self.time);
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (near, far) = tokio::io::duplex(16);
        let mut timed = TimedWrites::of(near, Duration::from_millis(20));
        timed.write_all(&[0; 16]).await.unwrap();
        let failed = timed.write_all(&[0; 16]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }
}
