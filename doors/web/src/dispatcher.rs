//! The connection for requests to the dispatcher, which all pages share.
//!
//! Requests wait for each other. An answer to a question is shared for a moment: of 50 pages that
//! ask the same within that moment, the dispatcher is asked once. After a change through this
//! process, no earlier answer is shown.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::JobId;
use eyas_client::{Client, ClientError, Cluster, Draft};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::api_error::ApiError;

/// A dispatcher that takes longer to answer counts as lost.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// A job has to be accepted within this time.
const SUBMIT_DEADLINE: Duration = Duration::from_secs(120);
/// Time for which an answer is shared.
const SHARED_FOR: Duration = Duration::from_millis(200);
/// Answers that are shared; with more, all are forgotten.
const MAX_SHARED: usize = 512;
/// Requests that wait for the connection; a further one is refused.
const MAX_WAITING: usize = 256;
/// Connections at the same time for work that takes long, such as submissions; others wait.
const MAX_OWN_CLIENTS: usize = 4;
/// A dispatcher that could not be reached is not dialled again before this time.
const REDIAL_PAUSE: Duration = Duration::from_millis(300);

/// The dispatcher of the cluster, as this process reaches it.
pub(crate) struct SharedDispatcher {
    cluster: Cluster,
    connection: Mutex<Connection>,
    waiting: AtomicUsize,
    own_clients: Semaphore,
}

/// A connection for work that takes long: other requests do not wait for it.
pub(crate) struct OwnClient<'a> {
    pub client: Client,
    _permit: SemaphorePermit<'a>,
}

#[derive(Default)]
struct Connection {
    client: Option<Client>,
    answers: HashMap<String, (Instant, Arc<ToClient>)>,
    /// When the dispatcher could not be reached, and why.
    failed: Option<(Instant, ApiError)>,
}

/// Work on the connection.
pub(crate) type OnClient<'a, T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send + 'a>>;

impl SharedDispatcher {
    pub fn new(cluster: Cluster) -> Self {
        SharedDispatcher {
            cluster,
            connection: Mutex::default(),
            waiting: AtomicUsize::new(0),
            own_clients: Semaphore::new(MAX_OWN_CLIENTS),
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A new connection. The access file is read again, because a restarted dispatcher writes a new
    /// one.
    pub async fn dial(&self) -> Result<Client, ApiError> {
        let dialled = async { Ok::<_, ApiError>(Client::connect(&self.cluster.access()?).await?) };
        timeout(ANSWER_DEADLINE, dialled).await.map_err(|_| ApiError::away("no answer"))?
    }

    /// The answer to a question, which may be one of a moment ago.
    pub async fn look(&self, question: FromClient) -> Result<Arc<ToClient>, ApiError> {
        let key = format!("{question:?}");
        let _waits = self.queue()?;
        let mut connection = self.connection.lock().await;
        if let Some((_, answer)) =
            connection.answers.get(&key).filter(|(at, _)| at.elapsed() < SHARED_FOR)
        {
            return Ok(answer.clone());
        }
        let answer =
            Arc::new(self.run_on(&mut connection, |client| Box::pin(client.ask(question))).await?);
        connection.answers.retain(|_, (at, _)| at.elapsed() < SHARED_FOR);
        if connection.answers.len() >= MAX_SHARED {
            connection.answers.clear();
        }
        connection.answers.insert(key, (Instant::now(), answer.clone()));
        Ok(answer)
    }

    /// The answer to a question that no other page asks.
    pub async fn ask(&self, question: FromClient) -> Result<ToClient, ApiError> {
        self.with(|client| Box::pin(client.ask(question))).await
    }

    /// Asks for a change. Returns the number of things that were changed.
    pub async fn change(&self, request: FromClient) -> Result<u64, ApiError> {
        let _waits = self.queue()?;
        let mut connection = self.connection.lock().await;
        let answer = self.run_on(&mut connection, |client| Box::pin(client.ask(request))).await;
        connection.answers.clear();
        match answer? {
            ToClient::Done(count) => Ok(count),
            _ => Err(ApiError::unexpected()),
        }
    }

    /// Notes that the dispatcher was lost. It may come back at another address.
    pub async fn note_loss(&self) {
        let mut connection = self.connection.lock().await;
        connection.answers.clear();
        connection.client = None;
    }

    /// Does something on the connection that takes more than one request.
    pub async fn with<T>(
        &self,
        work: impl for<'a> FnOnce(&'a mut Client) -> OnClient<'a, T>,
    ) -> Result<T, ApiError> {
        let _waits = self.queue()?;
        let mut connection = self.connection.lock().await;
        self.run_on(&mut connection, work).await
    }

    /// A connection of its own.
    pub async fn own_client(&self) -> Result<OwnClient<'_>, ApiError> {
        let permit = self.own_clients.acquire().await.map_err(ApiError::away)?;
        Ok(OwnClient { client: self.dial().await?, _permit: permit })
    }

    /// Submits a job.
    pub async fn submit(&self, draft: Draft) -> Result<JobId, ApiError> {
        let submitted = async {
            let mut own = self.own_client().await?;
            Ok::<_, ApiError>(own.client.submit(draft).await?)
        };
        let late = |_| {
            let mut error = ApiError::away("the job was not accepted in time");
            error.hint = "look at /api/v1/jobs: the job may have been accepted".into();
            error
        };
        let submitted = timeout(SUBMIT_DEADLINE, submitted).await.map_err(late)?;
        self.connection.lock().await.answers.clear();
        submitted
    }

    /// Runs on the client, which is dropped if the work fails or is abandoned: a late answer could
    /// still arrive on it.
    async fn run_on<T>(
        &self,
        connection: &mut Connection,
        work: impl for<'a> FnOnce(&'a mut Client) -> OnClient<'a, T>,
    ) -> Result<T, ApiError> {
        if let Some((_, why)) =
            connection.failed.as_ref().filter(|(at, _)| at.elapsed() < REDIAL_PAUSE)
        {
            return Err(why.clone());
        }
        let mut client = match connection.client.take() {
            Some(client) => client,
            None => match self.dial().await {
                Ok(client) => client,
                Err(why) => {
                    connection.failed = Some((Instant::now(), why.clone()));
                    return Err(why);
                }
            },
        };
        connection.failed = None;
        let Ok(done) = timeout(ANSWER_DEADLINE, work(&mut client)).await else {
            let why = ApiError::away(format!("no answer within {} s", ANSWER_DEADLINE.as_secs()));
            // Requests that wait behind this one need not wait as long, each for itself.
            connection.failed = Some((Instant::now(), why.clone()));
            return Err(why);
        };
        if matches!(done, Ok(_) | Err(ClientError::Refused(_))) {
            connection.client = Some(client);
        }
        Ok(done?)
    }

    /// A place in the queue for the connection.
    fn queue(&self) -> Result<Place<'_>, ApiError> {
        let place = Place(&self.waiting);
        match self.waiting.fetch_add(1, Ordering::Relaxed) < MAX_WAITING {
            true => Ok(place),
            false => Err(ApiError::busy("requests")),
        }
    }
}

/// A request that waits for the connection, or has it.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
