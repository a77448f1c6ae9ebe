//! Connections to a cluster.

use std::ffi::c_char;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eyas_client::files::{Background, DfsClient, FilesError};
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::{Client, ClientError, Cluster};
use eyas_session::Access;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::handles::{self, Handle};
use crate::pointers;
use crate::signals::{self, without_pipe_signal};
use crate::status::{CallError, EyasStatus, call};

/// A connection to a cluster. Threads may use one client at the same time.
pub struct EyasClient {
    _private: [u8; 0],
}

impl Handle for EyasClient {
    type State = ClientState;
    const NAME: &'static str = "eyas_client";
}

/// A timeout without end.
pub const EYAS_FOREVER: u64 = u64::MAX;

/// Timeout of calls of a client, unless the program sets another one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an operation on files that is temporarily impossible is retried at most; less with a
/// short timeout, so that the error comes before the timeout, and says why it is impossible.
const FILES_PATIENCE: Duration = Duration::from_secs(20);

/// Maximum number of connections to the dispatcher that are kept for later calls.
const MAX_IDLE: usize = 4;

/// Threads of a client that do work in the background.
const THREADS: usize = 2;

/// Time that the threads of a client have to end when it is closed.
const END_DEADLINE: Duration = Duration::from_secs(1);

/// A client, as handles that were made with it keep it.
pub(crate) type ClientOwner = Arc<ClientState>;

/// The state of a client: it lives until the last handle that was made with it is closed.
pub struct ClientState {
    /// `Some` until the value is dropped.
    runtime: Option<Runtime>,
    cluster: Cluster,
    access: Access,
    idle: Mutex<Vec<Client>>,
    files: Mutex<Option<DfsClient>>,
    timeout_ms: AtomicU64,
}

/// A timeout in milliseconds as C has it; `None` if it has no end.
pub(crate) fn timeout_of(timeout_ms: u64) -> Option<Duration> {
    (timeout_ms != EYAS_FOREVER).then(|| Duration::from_millis(timeout_ms))
}

impl ClientState {
    fn new(cluster: Cluster) -> Result<Self, CallError> {
        let access = cluster.access()?;
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(THREADS)
            .thread_name("eyas")
            .enable_all()
            .on_thread_start(signals::block_all);
        let runtime = builder.build();
        let runtime = runtime.map_err(|error| {
            CallError::new(EyasStatus::Local, format!("no thread can be started: {error}"))
        })?;
        let connection = ClientState {
            runtime: Some(runtime),
            cluster,
            access,
            idle: Mutex::default(),
            files: Mutex::default(),
            timeout_ms: AtomicU64::new(DEFAULT_TIMEOUT.as_millis() as u64),
        };
        // A wrong address or key is an error now, and not at the first job.
        let client = connection.wait("connecting", Client::connect(&connection.access))?;
        connection.keep(client);
        Ok(connection)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken only when this value is dropped")
    }

    /// The cluster, for drafts of jobs.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Waits for work, up to the timeout of the client. `what` is the name of the work in messages.
    pub fn wait<T, E: Into<CallError>>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CallError> {
        self.wait_for(timeout_of(self.timeout_ms.load(Ordering::Relaxed)), what, work)
    }

    /// Waits for work, up to `limit`. Connections are written to in this thread, too, so SIGPIPE is
    /// held back.
    pub fn wait_for<T, E: Into<CallError>>(
        &self,
        limit: Option<Duration>,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CallError> {
        // A future is large, and is moved on its way to its runtime; the stack of the caller, which
        // may be a thread of Java, is small.
        let work = Box::pin(work);
        let Some(limit) = limit else {
            return without_pipe_signal(|| self.runtime().block_on(work)).map_err(Into::into);
        };
        let late = |_| {
            let message = format!("{what} has not ended within {} ms", limit.as_millis());
            CallError::new(EyasStatus::TimedOut, message)
        };
        let ended =
            without_pipe_signal(|| self.runtime().block_on(async { timeout(limit, work).await }));
        ended.map_err(late)?.map_err(Into::into)
    }

    /// Begins work in the threads of the client.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Background<T> {
        let _runtime = self.runtime().enter();
        Background::spawn(work)
    }

    /// Waits for work on the files of the cluster, up to the timeout of the client.
    pub fn on_files<T>(
        &self,
        what: &str,
        work: impl AsyncFnOnce(DfsClient) -> Result<T, FilesError>,
    ) -> Result<T, CallError> {
        self.wait(what, async { work(self.files().await?).await.map_err(CallError::from) })
    }

    /// Runs work in the background.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime().spawn(work)
    }

    /// A new connection to the dispatcher.
    pub async fn dial(&self) -> Result<Client, ClientError> {
        Client::connect(&self.access).await
    }

    /// Sends a request that may be repeated, and returns its answer.
    pub async fn ask(&self, request: FromClient) -> Result<ToClient, ClientError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut client) = idle {
            match client.ask(request.clone()).await {
                // The dispatcher may have been started again since.
                Err(ClientError::Session(_)) => {}
                answer => {
                    self.keep(client);
                    return answer;
                }
            }
        }
        let mut client = self.dial().await?;
        let answer = client.ask(request).await;
        if !matches!(answer, Err(ClientError::Session(_))) {
            self.keep(client);
        }
        answer
    }

    /// Keeps a connection that is between two requests.
    pub fn keep(&self, client: Client) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(client);
        }
    }

    /// The files of the cluster.
    pub async fn files(&self) -> Result<DfsClient, CallError> {
        if let Some(files) = self.files.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(files);
        }
        let limit = timeout_of(self.timeout_ms.load(Ordering::Relaxed)).unwrap_or(FILES_PATIENCE);
        let patience = FILES_PATIENCE.min(limit / 2);
        let files = self.dial().await?.files_within(patience, || {}).await?;
        Ok(self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(files).clone())
    }
}

impl Drop for ClientState {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Connections end in their runtime.
            let inside = runtime.enter();
            self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
            self.files.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            drop(inside);
            runtime.shutdown_timeout(END_DEADLINE);
        }
    }
}

/// Connects to a cluster by its name. If `name` is NULL, the cluster is that of the command `eyas`
/// without options: `$EYAS_ACCESS`, else `$EYAS_CLUSTER`, else `default`. On success, `*client` is
/// a handle to be closed with `eyas_client_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_connect(
    name: *const c_char,
    client: *mut *mut EyasClient,
) -> EyasStatus {
    call(|| {
        pointers::check(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let cluster = match unsafe { pointers::optional_text(name, "the name of the cluster") }? {
            Some(name) => Cluster::named(name)?,
            None => Cluster::implied()?,
        };
        let connected = handles::open::<EyasClient>(ClientState::new(cluster)?);
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(client, connected) }
    })
}

/// Connects to a cluster with an access file. On success, `*client` is a handle to be closed with
/// `eyas_client_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_connect_access(
    path: *const c_char,
    client: *mut *mut EyasClient,
) -> EyasStatus {
    call(|| {
        pointers::check(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let path = unsafe { pointers::text(path, "the path of the access file") }?;
        let connection = ClientState::new(Cluster::with_access(Path::new(path)))?;
        let connected = handles::open::<EyasClient>(connection);
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(client, connected) }
    })
}

/// Sets the time after which a call with this client, or with a handle made with it, fails with
/// `EYAS_STATUS_TIMED_OUT`; `EYAS_FOREVER` for never. The default is 60,000 ms. Functions with a
/// timeout of their own do not use this one. If files cannot be used, calls fail after about half
/// of the timeout, and at most 25,000 ms, with `EYAS_STATUS_UNREACHABLE` and a message that says
/// why.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_client_set_timeout(client: *mut EyasClient, timeout_ms: u64) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        client.timeout_ms.store(timeout_ms, Ordering::Relaxed);
        // It connects again, with the new patience, when files are used.
        client.files.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    })
}

/// Closes a client. Handles that were made with it stay valid; its connections end with the last of
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_client_close(client: *mut EyasClient) -> EyasStatus {
    call(|| handles::close(client).map(drop))
}
