//! The interface of runs for the clients that open them, work on them, and wait for them.

pub(crate) mod spec;

use std::sync::Arc;
use std::time::Instant;

use eyas_blocks::{Effect, Event, TaskAnswer, TaskClaim, WorkerId};
use eyas_types::dfs::NodeId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::calls::{ANSWER_DEADLINE, Replies};
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::protocol::{RequestBody, ResponseBody, RunReply, RunRequest};
use crate::random::random;
use crate::routes::Routes;
use crate::runs::spec::{BlockRunId, RunAddress, RunSpec, RunStatus};

/// The connection of one worker to its run.
pub struct RunAttendance {
    runs: Arc<RunCalls>,
    address: RunAddress,
    worker: WorkerId,
    told: mpsc::Receiver<Result<Option<Effect>, FilesError>>,
    listening: JoinHandle<()>,
}

/// Asks the nodes that lead runs.
pub(crate) struct RunCalls {
    routes: Arc<Routes>,
}

impl RunCalls {
    pub fn new(routes: Arc<Routes>) -> Self {
        RunCalls { routes }
    }

    /// Opens a run on the node that leads its first file. Returns its address.
    pub async fn open_run(&self, spec: RunSpec) -> Result<RunAddress, FilesError> {
        spec.check().map_err(|error| FilesError::invalid(error.to_string()))?;
        let node = self.routes.known().ring.leader(&spec.files[0].name);
        let address = RunAddress { node, run: BlockRunId(random()?) };
        match self.ask_run(address, RunRequest::Open(Box::new(spec))).await? {
            RunReply::Opened { failure: None } => Ok(address),
            RunReply::Opened { failure: Some(why) } => Err(FilesError::invalid(why)),
            _ => Err(unexpected()),
        }
    }

    /// The specification of a run.
    pub async fn run_spec(&self, address: RunAddress) -> Result<RunSpec, FilesError> {
        match self.ask_run(address, RunRequest::Spec).await? {
            RunReply::Spec(spec) => Ok(*spec),
            _ => Err(unexpected()),
        }
    }

    /// The status of a run.
    pub async fn run_status(&self, address: RunAddress) -> Result<RunStatus, FilesError> {
        match self.ask_run(address, RunRequest::Status).await? {
            RunReply::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    }

    /// Sends a message of a task's attempt.
    pub async fn claim_task(
        &self,
        address: RunAddress,
        claim: TaskClaim,
    ) -> Result<TaskAnswer, FilesError> {
        match self.ask_run(address, RunRequest::Claim(claim)).await? {
            RunReply::Task(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    /// Ends a run. Its workers get no further answers.
    pub async fn close_run(&self, address: RunAddress) -> Result<(), FilesError> {
        self.ask_run(address, RunRequest::Close).await.map(drop)
    }

    /// Registers a new worker of a run.
    pub async fn attend_run(
        self: &Arc<Self>,
        address: RunAddress,
    ) -> Result<RunAttendance, FilesError> {
        let worker = WorkerId::from_random(random()? as u64);
        let replies = self.begin_attendance(address, worker).await?;
        let (tell, told) = mpsc::channel(1);
        let listening = tokio::spawn(self.clone().listen(address, worker, replies, tell));
        Ok(RunAttendance { runs: self.clone(), address, worker, told, listening })
    }

    /// Forwards the answers to a worker. After a lost connection, connects again and forwards
    /// `None` once.
    async fn listen(
        self: Arc<Self>,
        address: RunAddress,
        worker: WorkerId,
        mut replies: Replies,
        tell: mpsc::Sender<Result<Option<Effect>, FilesError>>,
    ) {
        loop {
            let told = match replies.next().await {
                Ok(ResponseBody::Run(RunReply::Effect(effect))) => Ok(Some(effect)),
                Ok(ResponseBody::Run(RunReply::Unknown)) => Err(unknown(address)),
                Ok(_) => Err(unexpected()),
                Err(_) => self.begin_attendance(address, worker).await.map(|again| {
                    replies = again;
                    None
                }),
            };
            let is_over = told.is_err();
            if tell.send(told).await.is_err() || is_over {
                return;
            }
        }
    }

    async fn begin_attendance(
        &self,
        address: RunAddress,
        worker: WorkerId,
    ) -> Result<Replies, FilesError> {
        match self.begin_run(address, RunRequest::Attend(worker)).await? {
            (RunReply::Attending, replies) => Ok(replies),
            _ => Err(unexpected()),
        }
    }

    /// Sends a request that has one answer.
    async fn ask_run(
        &self,
        address: RunAddress,
        request: RunRequest,
    ) -> Result<RunReply, FilesError> {
        self.begin_run(address, request).await.map(|(reply, _)| reply)
    }

    /// Sends a request. Returns its first answer, and the receiver of further ones.
    async fn begin_run(
        &self,
        address: RunAddress,
        request: RunRequest,
    ) -> Result<(RunReply, Replies), FilesError> {
        let RunAddress { node, run } = address;
        let (deadline, mut pause) = (self.routes.deadline(), Backoff::default());
        loop {
            let asked = async {
                let mut replies =
                    self.ask_node(node, RequestBody::Run { run, request: request.clone() }).await?;
                Ok::<_, FilesError>((replies.next().await?, replies))
            };
            let late = || {
                FilesError::unreachable(format!(
                    "node {node}, which leads the job, does not answer"
                ))
            };
            match timeout(ANSWER_DEADLINE, asked).await.unwrap_or_else(|_| Err(late())) {
                Ok((ResponseBody::Run(RunReply::Unknown), _)) => return Err(unknown(address)),
                Ok((ResponseBody::Run(reply), replies)) => return Ok((reply, replies)),
                Ok(_) => return Err(unexpected()),
                Err(error)
                    if matches!(
                        error.kind,
                        FilesErrorKind::NotAllowed | FilesErrorKind::Invalid
                    ) || Instant::now() >= deadline =>
                {
                    return Err(error);
                }
                Err(_) => {}
            }
            pause.wait().await;
            self.routes.refresh(deadline).await?;
        }
    }

    async fn ask_node(&self, node: NodeId, what: RequestBody) -> Result<Replies, FilesError> {
        let member = self.routes.known().members.get(&node).copied();
        let gone = || {
            FilesError::unreachable(format!(
                "node {node} of the file system, which leads the job, is not reachable"
            ))
        };
        self.routes.calls.ask(member.ok_or_else(gone)?.address, what).await
    }
}

impl RunAttendance {
    /// The id of this worker.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Reports an event of this worker. The report may be lost.
    pub async fn tell(&self, event: Event) {
        let what = RequestBody::Tell { run: self.address.run, event };
        let told = timeout(ANSWER_DEADLINE, self.runs.ask_node(self.address.node, what)).await;
        if !matches!(told, Ok(Ok(_))) {
            tracing::debug!(
                place = %self.address,
                "an event could not be sent to the node that leads the run"
            );
        }
    }

    /// The next answer to this worker; `None` if answers may have been lost, and the worker has to
    /// ask again. Cancelling this call loses nothing.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn next(&mut self) -> Result<Option<Effect>, FilesError> {
        self.told.recv().await.unwrap_or_else(|| Err(unknown(self.address)))
    }
}

impl Drop for RunAttendance {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn unknown(address: RunAddress) -> FilesError {
    let message = format!(
        "job {} over blocks no longer exists: it has ended, or the node that led it has lost its \
         disk",
        address.run
    );
    FilesError::new(FilesErrorKind::NotFound, message)
}
