//! Accepts connections, and serves each with deadlines: a client that sends its head too slowly, or
//! does not read its answer, is disconnected.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::admission::{Admission, admit};
use crate::clock::monotonic_ms;
use crate::lifecycle;
use crate::portal::Portal;
use crate::secrets::unix_ms;
use crate::trusted_clock::TrustedClock;
use crate::{account_pages, pages, runner, uws, vosi};

/// Connections at the same time; others wait until one ends.
const MAX_PORTAL_CONNECTIONS: usize = 512;
/// The head of a request has to arrive within this time, also on a connection that is kept.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// Size of a buffer of a connection, which bounds the head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// A client has to take some bytes of its answer within this time.
const TAKE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time between looks for jobs whose time has come to be deleted.
const DESTRUCTION_PAUSE: Duration = Duration::from_millis(500);

fn router(portal: Arc<Portal>) -> Router {
    let of_programs = Router::new()
        .route("/async", get(uws::list).post(uws::create))
        .route("/async/", get(uws::list).post(uws::create))
        .route("/async/{id}", get(uws::show).post(uws::act).delete(uws::delete))
        .route("/async/{id}/{part}", get(uws::part).post(uws::set_part))
        .route("/async/{id}/results/{result}", get(uws::result))
        .route("/links", get(uws::links))
        .route("/availability", get(vosi::availability))
        .route("/capabilities", get(vosi::capabilities))
        .route("/healthz", get(|| async { "ok\n" }));
    let of_people = Router::new()
        .route("/", get(pages::history))
        .route("/stack", get(pages::new_stack).post(pages::submit))
        .route("/jobs/{id}", get(pages::show))
        .route("/jobs/{id}/progress", get(pages::progress))
        .route("/jobs/{id}/{action}", post(pages::act))
        .route("/jobs/{id}/results/{result}", get(pages::download))
        .route("/signin", get(account_pages::sign_in_form).post(account_pages::sign_in))
        .route("/signout", post(account_pages::sign_out))
        .route("/account", get(account_pages::show))
        .route("/account/token", post(account_pages::make_token))
        .route("/account/revoke", post(account_pages::revoke_token))
        .route("/style.css", get(pages::style))
        .route("/portal.js", get(pages::script));
    of_programs.merge(of_people).with_state(portal)
}

/// Serves a portal until the future is dropped. Jobs go on where they were.
pub async fn serve(
    listener: TcpListener,
    portal: Arc<Portal>,
    names: Vec<String>,
) -> io::Result<()> {
    let own: SocketAddr = listener.local_addr()?;
    let admission = Arc::new(Admission { portal: portal.clone(), own, names });
    let app = router(portal.clone()).layer(from_fn_with_state(admission, admit));
    let app = TowerToHyperService::new(app);
    runner::resume(&portal);
    tokio::spawn(delete_old_jobs(portal));
    let places = Arc::new(Semaphore::new(MAX_PORTAL_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let app = app.clone();
                tokio::spawn(async move {
                    serve_connection(stream, app).await;
                    drop(place);
                });
            }
            Err(why) => {
                tracing::warn!("a connection could not be accepted: {why}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Deletes jobs at the time of their destruction.
async fn delete_old_jobs(portal: Arc<Portal>) {
    let mut clock = TrustedClock::begin(unix_ms(), monotonic_ms());
    loop {
        let now_ms = clock.now_ms(unix_ms(), monotonic_ms());
        for job in portal.jobs.list(|job| job.destruction_ms <= now_ms && !job.is_deleted) {
            if let Err(why) = lifecycle::delete(&portal, &job.id) {
                tracing::error!("job {} cannot be deleted: {why}", job.id);
            }
        }
        lifecycle::remove_deleted(&portal);
        sleep(DESTRUCTION_PAUSE).await;
    }
}

async fn serve_connection(stream: TcpStream, app: TowerToHyperService<Router>) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(TakenInTime::of(stream, TAKE_DEADLINE)), app)
        .await;
    if let Err(why) = served {
        tracing::debug!("a connection has ended: {why}");
    }
}

/// A connection whose writes fail if the client takes nothing within a time.
struct TakenInTime<S> {
    stream: S,
    time: Duration,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TakenInTime<S> {
    fn of(stream: S, time: Duration) -> Self {
        TakenInTime { stream, time, deadline: None }
    }

    /// The outcome of a write: late if it has waited for the whole time.
    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let end = Instant::now() + self.time;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(end)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TakenInTime<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TakenInTime<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.in_time(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (near, far) = tokio::io::duplex(16);
        let mut guarded = TakenInTime::of(near, Duration::from_millis(20));
        guarded.write_all(&[0; 16]).await.unwrap();
        let failed = guarded.write_all(&[0; 16]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }
}
