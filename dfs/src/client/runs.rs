//! Runs, as those see them who open them, work at them, and wait for them.

use std::time::Instant;

use eyas_blocks::{Effect, Event, WorkerId};
use eyas_types::dfs::NodeId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::calls::{ANSWER_DEADLINE, Replies};
use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::write::random;
use crate::client::{DfsClient, PAUSE, unexpected};
use crate::protocol::{RequestBody, ResponseBody};
use crate::runs::{BlockRunId, RunAddress, RunReply, RunRequest, RunSpec, RunStatus};

/// One worker of a run: what it says, and what it is told.
pub struct RunAttendance {
    files: DfsClient,
    place: RunAddress,
    worker: WorkerId,
    told: mpsc::Receiver<Result<Option<Effect>, FilesError>>,
    listening: JoinHandle<()>,
}

impl DfsClient {
    /// Has a run led by the node that leads the first of its files; tells where it is.
    ///
    /// # Errors
    /// `Invalid` if it has no file, or too many chunks; `Unreachable`.
    pub async fn open_run(&self, spec: RunSpec) -> Result<RunAddress, FilesError> {
        spec.check().map_err(FilesError::invalid)?;
        let node = self.known().ring.leader(&spec.files[0].name);
        let place = RunAddress { node, run: BlockRunId(random()?) };
        match self.ask_run(place, RunRequest::Open(Box::new(spec))).await? {
            RunReply::Opened(Ok(())) => Ok(place),
            RunReply::Opened(Err(why)) => Err(FilesError::invalid(why)),
            _ => Err(unexpected()),
        }
    }

    /// What a run is.
    ///
    /// # Errors
    /// `NotFound` if nobody leads it any more; `Unreachable`.
    pub async fn run_spec(&self, place: RunAddress) -> Result<RunSpec, FilesError> {
        match self.ask_run(place, RunRequest::Spec).await? {
            RunReply::Spec(spec) => Ok(*spec),
            _ => Err(unexpected()),
        }
    }

    /// How a run stands.
    ///
    /// # Errors
    /// `NotFound` if nobody leads it any more; `Unreachable`.
    pub async fn run_status(&self, place: RunAddress) -> Result<RunStatus, FilesError> {
        match self.ask_run(place, RunRequest::Status).await? {
            RunReply::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    }

    /// Ends a run: its workers are told nothing any more.
    ///
    /// # Errors
    /// `NotFound` if nobody leads it any more; `Unreachable`.
    pub async fn close_run(&self, place: RunAddress) -> Result<(), FilesError> {
        self.ask_run(place, RunRequest::Close).await.map(drop)
    }

    /// Becomes a new worker of a run.
    ///
    /// # Errors
    /// `NotFound` if nobody leads it any more; `Unreachable`.
    pub async fn attend_run(&self, place: RunAddress) -> Result<RunAttendance, FilesError> {
        let worker = WorkerId(random()? as u64);
        let replies = self.begin_attendance(place, worker).await?;
        let (tell, told) = mpsc::channel(1);
        let listening = tokio::spawn(self.clone().listen(place, worker, replies, tell));
        Ok(RunAttendance { files: self.clone(), place, worker, told, listening })
    }

    /// Passes on what a worker is told. When the connection has ended there is another, and nothing is passed on once.
    async fn listen(
        self,
        place: RunAddress,
        worker: WorkerId,
        mut replies: Replies,
        tell: mpsc::Sender<Result<Option<Effect>, FilesError>>,
    ) {
        loop {
            let told = match replies.next().await {
                Ok(ResponseBody::Run(RunReply::Effect(effect))) => Ok(Some(effect)),
                Ok(ResponseBody::Run(RunReply::Unknown)) => Err(unknown(place)),
                Ok(_) => Err(unexpected()),
                Err(_) => self.begin_attendance(place, worker).await.map(|again| {
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

    async fn begin_attendance(&self, place: RunAddress, worker: WorkerId) -> Result<Replies, FilesError> {
        match self.begin_run(place, RunRequest::Attend(worker)).await? {
            (RunReply::Attending, replies) => Ok(replies),
            _ => Err(unexpected()),
        }
    }

    /// Asks for what has one answer.
    async fn ask_run(&self, place: RunAddress, request: RunRequest) -> Result<RunReply, FilesError> {
        self.begin_run(place, request).await.map(|(reply, _)| reply)
    }

    /// Asks; the first answer, and those that may follow.
    async fn begin_run(&self, place: RunAddress, request: RunRequest) -> Result<(RunReply, Replies), FilesError> {
        let RunAddress { node, run } = place;
        let (deadline, mut pause) = (self.deadline(), PAUSE);
        loop {
            let asked = async {
                let mut replies = self.ask_node(node, RequestBody::Run { run, request: request.clone() }).await?;
                Ok::<_, FilesError>((replies.next().await?, replies))
            };
            let late = || FilesError::unreachable(format!("node {node}, which leads the job, does not answer"));
            match timeout(ANSWER_DEADLINE, asked).await.unwrap_or_else(|_| Err(late())) {
                Ok((ResponseBody::Run(RunReply::Unknown), _)) => return Err(unknown(place)),
                Ok((ResponseBody::Run(reply), replies)) => return Ok((reply, replies)),
                Ok(_) => return Err(unexpected()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => {}
            }
            self.pause(&mut pause).await;
            self.refresh(deadline).await?;
        }
    }

    async fn ask_node(&self, node: NodeId, what: RequestBody) -> Result<Replies, FilesError> {
        let member = self.known().members.get(&node).copied();
        let gone =
            || FilesError::unreachable(format!("node {node} of the file system, which leads the job, is not there"));
        self.0.calls.ask(member.ok_or_else(gone)?.address, what).await
    }
}

impl RunAttendance {
    /// Which worker this is.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Says what has happened to it. That may be lost.
    pub async fn tell(&self, event: Event) {
        let what = RequestBody::Tell { run: self.place.run, event };
        let told = timeout(ANSWER_DEADLINE, self.files.ask_node(self.place.node, what)).await;
        if !matches!(told, Ok(Ok(_))) {
            tracing::debug!(place = %self.place, "the node that leads a run is not told");
        }
    }

    /// What it is told next; nothing, if something may have been lost, and it is to ask again. Dropped before it is there,
    /// nothing is lost by it.
    ///
    /// # Errors
    /// `NotFound` if nobody leads the run any more; `Unreachable`.
    pub async fn next(&mut self) -> Result<Option<Effect>, FilesError> {
        self.told.recv().await.unwrap_or_else(|| Err(unknown(self.place)))
    }
}

impl Drop for RunAttendance {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn unknown(place: RunAddress) -> FilesError {
    let message =
        format!("nobody leads job {} over blocks any more: it has ended, or its node has lost its disk", place.run);
    FilesError::new(FilesErrorKind::NotFound, message)
}
