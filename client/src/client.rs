//! A client's connection to a dispatcher.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use eyas_dfs::{Files, FilesError};
use eyas_session::{Access, Session, SessionError, dial};
use eyas_types::JobId;
use eyas_types::dfs::NodeId;
use eyas_wire::Role;
use eyas_wire::client::{FromClient, PushRequest, SUBMISSION_PART, TaskResult, ToClient};
use eyas_wire::view::{JobView, PushView};
use thiserror::Error;

use crate::draft::Draft;

/// First and longest wait between two tries to reach the dispatcher again.
const REDIAL: Duration = Duration::from_millis(100);
const REDIAL_MOST: Duration = Duration::from_secs(5);

/// What the file system cannot do at once is tried for so long.
const FILES_PATIENCE: Duration = Duration::from_secs(20);

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
    /// There is no file system.
    #[error("no executor of this cluster keeps files: start some with `eyas start executor --dfs`")]
    NoFiles,
    /// The file system cannot be used.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// What is seen of a watched job.
#[derive(Debug)]
pub enum Seen {
    /// Tasks that have ended.
    Results(Vec<TaskResult>),
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
        Ok(Client { access: access.clone(), session, received: VecDeque::new() })
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

    /// The cluster's files.
    ///
    /// # Errors
    /// If no node of it keeps any, or none answers.
    pub async fn files(&mut self) -> Result<Files, ClientError> {
        let ToClient::FilesNodes(nodes) = self.ask(FromClient::FilesNodes).await? else {
            return Err(ClientError::Unexpected);
        };
        if nodes.is_empty() {
            return Err(ClientError::NoFiles);
        }
        // Where this is a task, its executor says which node is near.
        let near = std::env::var("EYAS_DFS_NODE").ok().and_then(|node| u64::from_str_radix(&node, 16).ok()).map(NodeId);
        Ok(Files::connect(self.access.clone(), nodes, near, FILES_PATIENCE).await?)
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Submits a job. Once this returns, the job survives the dispatcher's end.
    ///
    /// # Errors
    /// If the job has a mistake, or the connection ends.
    pub async fn submit(&mut self, draft: Draft) -> Result<JobId, ClientError> {
        let Draft { name, templates, objects, items, reuse, broadcast, distribution, .. } = draft;
        let broadcast = broadcast.into_iter().collect();
        let writer = &mut self.session.writer;
        writer.send(&[FromClient::Submit { name, templates, reuse, broadcast, distribution }]).await?;
        for part in objects.chunks(SUBMISSION_PART) {
            writer.send(&[FromClient::Objects(part.to_vec())]).await?;
        }
        for part in items.chunks(SUBMISSION_PART) {
            writer.send(&[FromClient::Items(part.to_vec())]).await?;
        }
        match self.ask(FromClient::Commit).await? {
            ToClient::Accepted { job } => Ok(job),
            _ => Err(ClientError::Unexpected),
        }
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
        loop {
            match self.received.pop_front() {
                Some(ToClient::Refused(why)) => return Err(ClientError::Refused(why)),
                Some(answer) => return Ok(answer),
                None => self.received.extend(self.session.reader.next::<ToClient>().await?),
            }
        }
    }
}

/// Whether the dispatcher may be reached later.
fn can_come_back(why: &SessionError) -> bool {
    matches!(why, SessionError::Unreachable { .. } | SessionError::Ended { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_session::Acceptor;
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
        let acceptor = Acceptor::new(access, Role::Dispatcher);
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
                Seen::Progress(_) | Seen::Back => {}
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
