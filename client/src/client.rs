//! A client's connection to a dispatcher.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use eyas_dfs::{DfsClient, FilesError};
use eyas_session::{Access, FrameReader, Session, SessionError, dial};
use eyas_types::dfs::NodeId;
use eyas_types::{JobId, TaskItem};
use eyas_wire::Role;
use eyas_wire::client::{FromClient, PushRequest, SUBMISSION_PART, TaskResult, ToClient};
use eyas_wire::frame::MAX_FRAME_BYTES;
use eyas_wire::view::{FailureView, JobView, PushView, TaskView};
use thiserror::Error;

use crate::draft::{Draft, Preparing, Tasks};

/// First and longest wait between two tries to reach the dispatcher again.
const REDIAL: Duration = Duration::from_millis(100);
const REDIAL_MOST: Duration = Duration::from_secs(5);

/// A part of a submission is closed once its texts have so many bytes.
const SUBMISSION_PART_BYTES: usize = 1 << 20;

/// What the file system cannot do at once is tried for so long.
const FILES_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether executors that keep files have come back.
const FILES_PAUSE: Duration = Duration::from_millis(100);

/// Why a request was not answered.
#[derive(Debug, Error)]
pub enum ClientError {
    /// There is no connection, or no longer.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The dispatcher would not do it.
    #[error("{0}")]
    Refused(String),
    /// The dispatcher answered something else.
    #[error("the dispatcher gave an answer that does not fit the question; is it another version of eyas?")]
    Unexpected,
    /// Something is too large to be sent.
    #[error(
        "{what} cannot be submitted: {bytes} bytes are too many, at most {MAX_FRAME_BYTES} are possible; put data in files"
    )]
    TooLarge {
        /// What.
        what: String,
        /// Its size.
        bytes: usize,
    },
    /// There is no file system.
    #[error("no executor of this cluster keeps files: start some with `eyas start executor --dfs`")]
    NoFiles,
    /// There is one, and none of its nodes is here.
    #[error(
        "none of the executors that keep this cluster's files is connected to its dispatcher: start them again with --dfs and \
         their folders"
    )]
    FilesAway,
    /// The file system cannot be used.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// What is seen of a watched job.
#[derive(Debug)]
pub enum Seen {
    /// Tasks that have ended.
    Results(Vec<TaskResult>),
    /// The first tasks that failed, each before its result.
    Failures(Vec<FailureView>),
    /// How it stands.
    Progress(Box<JobView>),
    /// The dispatcher is gone; it is dialled again.
    Lost(SessionError),
    /// It is back; the watch goes on where it was.
    Back,
}

/// A connection to a dispatcher. It asks one thing at a time.
pub struct Client {
    access: Access,
    session: Session,
    received: VecDeque<ToClient>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// If the dispatcher cannot be reached, or does not know this access file.
    pub async fn connect(access: &Access) -> Result<Self, ClientError> {
        let session = dial(access, Role::Client).await?;
        let access = access.clone().with_data(session.data);
        Ok(Client { access, session, received: VecDeque::new() })
    }

    /// Asks anything but a submission or a watch.
    ///
    /// # Errors
    /// If it is refused, or the connection ends.
    pub async fn ask(&mut self, request: FromClient) -> Result<ToClient, ClientError> {
        self.session.writer.send(&[request]).await?;
        self.next().await
    }

    /// Asks what can be asked twice; a dispatcher that is lost is dialled for as long as there is `patience`.
    pub(crate) async fn ask_again(&mut self, request: FromClient, patience: Duration) -> Result<ToClient, ClientError> {
        loop {
            match self.ask(request.clone()).await {
                Err(ClientError::Session(why)) if can_come_back(&why) && !patience.is_zero() => {
                    self.redial(patience).await?;
                }
                answered => return answered,
            }
        }
    }

    /// Tasks of a job from index `from` on, at most `limit`; with `failed`, only those that failed.
    ///
    /// # Errors
    /// If there is no such job, or the connection ends.
    pub async fn tasks(
        &mut self,
        job: JobId,
        mut from: u32,
        limit: u32,
        failed: bool,
    ) -> Result<Vec<TaskView>, ClientError> {
        let mut tasks = Vec::new();
        loop {
            let limit = limit - tasks.len() as u32;
            let answer = self.ask(FromClient::Tasks { job, from, limit, failed }).await?;
            let ToClient::Tasks(part) = answer else { return Err(ClientError::Unexpected) };
            // One answer has only as many tasks as fit in a message.
            let Some(last) = part.last() else { return Ok(tasks) };
            from = last.task.index + 1;
            tasks.extend(part);
        }
    }

    /// The cluster's files.
    ///
    /// # Errors
    /// If no node of it keeps any, or none answers.
    pub async fn files(&mut self) -> Result<DfsClient, ClientError> {
        self.files_seeing(|| {}).await
    }

    /// The same; calls `waits` before it waits for executors that come back to a dispatcher that has just started.
    ///
    /// # Errors
    /// Likewise.
    pub async fn files_seeing(&mut self, waits: impl FnOnce()) -> Result<DfsClient, ClientError> {
        let mut waits = Some(waits);
        let nodes = loop {
            match self.ask(FromClient::FilesNodes).await? {
                ToClient::FilesNodes { nodes, .. } if !nodes.is_empty() => break nodes,
                ToClient::FilesNodes { has_files: false, .. } => return Err(ClientError::NoFiles),
                ToClient::FilesNodes { are_returning: false, .. } => return Err(ClientError::FilesAway),
                ToClient::FilesNodes { .. } => {}
                _ => return Err(ClientError::Unexpected),
            }
            if let Some(waits) = waits.take() {
                waits();
            }
            tokio::time::sleep(FILES_PAUSE).await;
        };
        // Where this is a task, its executor says which node is near.
        let near = std::env::var("EYAS_DFS_NODE").ok().and_then(|node| u64::from_str_radix(&node, 16).ok()).map(NodeId);
        Ok(DfsClient::connect(self.access.clone(), nodes, near, FILES_PATIENCE).await?)
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Submits a job. Once this returns, the job survives the dispatcher's end.
    ///
    /// # Errors
    /// If the job has a mistake, or the connection ends.
    pub async fn submit(&mut self, draft: Draft) -> Result<JobId, ClientError> {
        let submitted = self.submit_unless(draft, std::future::pending()).await?;
        submitted.ok_or(ClientError::Unexpected)
    }

    /// The same, unless it is `withdrawn` before the dispatcher has accepted it: then there is no job, and this connection is
    /// of no further use.
    ///
    /// # Errors
    /// If the job has a mistake, or the connection ends.
    pub async fn submit_unless(
        &mut self,
        mut draft: Draft,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<Option<JobId>, ClientError> {
        let mut withdrawn = std::pin::pin!(withdrawn);
        tokio::select! {
            sent = self.send(&mut draft) => sent?,
            () = &mut withdrawn => return Ok(None),
        }
        let tasks = draft.len() as u64;
        (draft.see)(Preparing::Accepting(tasks));
        self.session.writer.send(&[FromClient::Commit]).await?;
        let Session { reader, writer, .. } = &mut self.session;
        let mut answering = std::pin::pin!(next(reader, &mut self.received));
        let answer = tokio::select! {
            answer = &mut answering => answer?,
            () = withdrawn => {
                writer.send(&[FromClient::Withdraw]).await?;
                answering.await?
            }
        };
        match answer {
            ToClient::Accepted { job } => Ok(Some(job)),
            ToClient::Withdrawn => Ok(None),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Sends all of a job. The dispatcher forgets it if this is dropped with the connection.
    async fn send(&mut self, draft: &mut Draft) -> Result<(), ClientError> {
        let Draft { name, templates, objects, tasks, count, reuse, broadcast, distribution, see, .. } = draft;
        let (broadcast, count) = (broadcast.iter().copied().collect(), *count as u64);
        let writer = &mut self.session.writer;
        let begin = FromClient::Submit {
            name: std::mem::take(name),
            templates: std::mem::take(templates),
            reuse: *reuse,
            broadcast,
            distribution: *distribution,
            tasks: count,
        };
        writer.send(&[begin]).await.map_err(|e| too_large(e, "the commands and options of the job"))?;
        for part in objects.chunks(SUBMISSION_PART) {
            writer.send(&[FromClient::Objects(part.to_vec())]).await?;
        }
        let mut sent = 0;
        for tasks in std::mem::take(tasks) {
            match tasks {
                Tasks::Numbers { template, numbers, count } => {
                    writer.send(&[FromClient::Numbers { template, numbers }]).await?;
                    sent += count as u64;
                }
                Tasks::Items(items) => {
                    let mut items = items.into_iter().peekable();
                    while items.peek().is_some() {
                        let part = part_of(&mut items);
                        sent += part.len() as u64;
                        let last = format!("task {}", sent - 1);
                        writer.send(&[FromClient::Items(part)]).await.map_err(|e| too_large(e, &last))?;
                        see(Preparing::Sent(sent, count));
                    }
                }
            }
        }
        Ok(())
    }

    /// Has executors fetch objects ahead of demand, and tells what has become of it; `see` is shown how it goes on. A
    /// push that is waited for ends with this connection.
    ///
    /// # Errors
    /// If it is refused, or the connection ends.
    pub async fn push(
        &mut self,
        request: PushRequest,
        mut see: impl FnMut(&PushView),
    ) -> Result<PushView, ClientError> {
        let wait = request.wait;
        let mut answer = self.ask(FromClient::Push(request)).await?;
        loop {
            match answer {
                ToClient::Pushing(view) if wait => see(&view),
                ToClient::Pushing(view) | ToClient::Pushed(view) => return Ok(*view),
                _ => return Err(ClientError::Unexpected),
            }
            answer = self.next().await?;
        }
    }

    /// Watches a job to its end, and tells how it ended. With `results`, every result is seen once, those from before
    /// as well. A dispatcher that is lost is dialled for as long as there is `patience`: it may be started again.
    ///
    /// # Errors
    /// If there is no such job, the cluster is stopped, or the dispatcher does not come back.
    pub async fn watch(
        &mut self,
        job: JobId,
        results: bool,
        patience: Duration,
        mut see: impl FnMut(Seen),
    ) -> Result<JobView, ClientError> {
        let mut seen = 0;
        loop {
            match self.watch_from(job, results, &mut seen, &mut see).await {
                Err(ClientError::Session(why)) if can_come_back(&why) && !patience.is_zero() => {
                    see(Seen::Lost(why));
                    self.redial(patience).await?;
                    see(Seen::Back);
                }
                watched => return watched,
            }
        }
    }

    /// Watches on this connection from the result on that is next; `seen` counts them.
    async fn watch_from(
        &mut self,
        job: JobId,
        results: bool,
        seen: &mut u64,
        see: &mut impl FnMut(Seen),
    ) -> Result<JobView, ClientError> {
        self.session.writer.send(&[FromClient::Watch { job, from: *seen, results }]).await?;
        loop {
            match self.next().await? {
                ToClient::Results(results) => {
                    *seen += results.len() as u64;
                    see(Seen::Results(results));
                }
                ToClient::Failures(failures) => see(Seen::Failures(failures)),
                ToClient::Progress(view) => see(Seen::Progress(view)),
                ToClient::Over(view) => return Ok(*view),
                _ => return Err(ClientError::Unexpected),
            }
        }
    }

    /// Reaches the dispatcher again, trying for so long; what will not get better with time is not tried again.
    async fn redial(&mut self, patience: Duration) -> Result<(), SessionError> {
        let deadline = Instant::now() + patience;
        let mut wait = REDIAL;
        loop {
            tokio::time::sleep(wait.min(deadline.saturating_duration_since(Instant::now()))).await;
            match dial(&self.access, Role::Client).await {
                Ok(session) => {
                    self.access = self.access.clone().with_data(session.data);
                    self.session = session;
                    self.received.clear();
                    return Ok(());
                }
                Err(e) if !can_come_back(&e) || Instant::now() >= deadline => return Err(e),
                Err(_) => wait = (wait * 2).min(REDIAL_MOST),
            }
        }
    }

    /// Waits until the dispatcher has closed the connection, which it does when it ends.
    pub async fn closed(&mut self) {
        while self.session.reader.next::<ToClient>().await.is_ok() {}
    }

    async fn next(&mut self) -> Result<ToClient, ClientError> {
        next(&mut self.session.reader, &mut self.received).await
    }
}

async fn next(reader: &mut FrameReader, received: &mut VecDeque<ToClient>) -> Result<ToClient, ClientError> {
    loop {
        match received.pop_front() {
            Some(ToClient::Refused(why)) => return Err(ClientError::Refused(why)),
            Some(answer) => return Ok(answer),
            None => received.extend(reader.next::<ToClient>().await?),
        }
    }
}

/// As many tasks as go in one message. One that is larger than that is the last of its part.
fn part_of(items: &mut impl Iterator<Item = TaskItem>) -> Vec<TaskItem> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    while part.len() < SUBMISSION_PART && bytes < SUBMISSION_PART_BYTES {
        let Some(item) = items.next() else { break };
        bytes += item.values.iter().map(|value| value.text.len()).sum::<usize>();
        part.push(item);
    }
    part
}

/// Names what does not fit in a message.
fn too_large(why: SessionError, what: &str) -> ClientError {
    match why {
        SessionError::TooLarge { bytes, .. } => ClientError::TooLarge { what: what.to_owned(), bytes },
        why => why.into(),
    }
}

/// Whether the dispatcher may be reached later.
fn can_come_back(why: &SessionError) -> bool {
    matches!(why, SessionError::Unreachable { .. } | SessionError::Ended { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_session::SessionAcceptor;
    use eyas_types::{Outcome, Reads, Status};
    use eyas_wire::view::{JobState, TaskCounts};
    use tokio::net::TcpListener;

    fn results(indices: std::ops::Range<u32>) -> ToClient {
        let outcome = || Outcome::of(Status::Succeeded);
        let result = |index| TaskResult {
            index,
            attempt: 0,
            executor: "n1".into(),
            queued_us: 0,
            delivery_us: 0,
            outcome: outcome(),
        };
        ToClient::Results(indices.map(result).collect())
    }

    fn over() -> ToClient {
        ToClient::Over(Box::new(JobView {
            job: JobId(1),
            name: "job".into(),
            state: JobState::Succeeded,
            tasks: TaskCounts::default(),
            retried: 0,
            recomputed: 0,
            reused: 0,
            reads: Reads::default(),
            submitted_unix_ms: 0,
            elapsed_us: 0,
            executors: 0,
            capacity_milli: 0,
            is_stuck: false,
            warnings: Vec::new(),
        }))
    }

    /// Serves one connection after the other, each until its answers are sent; where each watch began.
    async fn serve(listener: TcpListener, access: &Access, connections: Vec<Vec<ToClient>>) -> Vec<u64> {
        let acceptor = SessionAcceptor::new(access, Role::Dispatcher);
        let mut began = Vec::new();
        for answers in connections {
            let (mut session, _) = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let requests = session.reader.next::<FromClient>().await.unwrap();
            let [FromClient::Watch { from, .. }] = requests[..] else { panic!("{requests:?}") };
            began.push(from);
            session.writer.send(&answers).await.unwrap();
            session.writer.close().await;
        }
        began
    }

    #[tokio::test]
    async fn a_watch_goes_on_where_it_was_when_the_dispatcher_is_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access::create("test", &listener.local_addr().unwrap().to_string());
        let connections = vec![vec![results(0..2)], Vec::new(), vec![results(2..5), over()], Vec::new()];
        let watch = async {
            let mut client = Client::connect(&access).await.unwrap();
            let (mut seen, mut losses) = (Vec::new(), 0);
            let see = |what| match what {
                Seen::Results(results) => seen.extend(results.iter().map(|result| result.index)),
                Seen::Lost(_) => losses += 1,
                Seen::Failures(_) | Seen::Progress(_) | Seen::Back => {}
            };
            let view = client.watch(JobId(1), true, Duration::from_secs(30), see).await.unwrap();
            assert_eq!((view.state, seen, losses), (JobState::Succeeded, vec![0, 1, 2, 3, 4], 2));
            // Without patience the first loss is the last.
            let mut client = Client::connect(&access).await.unwrap();
            let ended = client.watch(JobId(1), true, Duration::ZERO, |_| {}).await;
            assert!(matches!(ended, Err(ClientError::Session(SessionError::Ended { .. }))), "{ended:?}");
        };
        let (began, ()) = tokio::join!(serve(listener, &access, connections), watch);
        assert_eq!(began, [0, 2, 2, 0]);
    }
}
