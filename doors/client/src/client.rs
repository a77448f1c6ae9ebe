//! A client's connection to a dispatcher.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use eyas_files::{DfsClient, NearNode};
use eyas_session::{Access, FrameReader, Session, SessionError, dial};
use eyas_transfer::Peers;
use eyas_types::dfs::NodeId;
use eyas_types::{Input, InputFrom, JobId, Name, TaskId, TaskItem, TaskTemplate};
use eyas_wire::client::{
    FromClient, NAMES_PART, NamesQuery, PushRequest, SUBMISSION_PART, TaskResult, ToClient,
};
use eyas_wire::printed::{MINOR_OF_PRINTED, Printed, PrintedPosition};
use eyas_wire::view::graph::JobGraph;
use eyas_wire::view::{FailureView, JobView, NamedFileView, PushView, TaskView};
use eyas_wire::{MINOR_OF_DERIVED, MINOR_OF_FAILURES, MINOR_OF_NAMES, Role};

use crate::client_error::ClientError;
use crate::draft::{Draft, DraftTasks, SubmitProgress};
use crate::graph::graph_of;
use crate::output_file::OutputReader;
use crate::users::name_of_user;

/// First wait before the client dials a lost dispatcher again. Each further wait is twice as long.
const REDIAL_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before the client dials a lost dispatcher again.
const REDIAL_MAX: Duration = Duration::from_secs(5);

/// A message of a submission gets no further task once the items in it have this many bytes.
const SUBMISSION_PART_BYTES: usize = 1 << 20;

/// How long a refusal is awaited after the dispatcher has closed the connection.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);

/// Files whose chunks are named in one message of a submission.
const CHUNKS_PART: usize = 64;

/// How long a request to the file system is retried before it fails.
const FILES_PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two requests for the nodes of the file system, while executors reconnect.
const FILES_PAUSE: Duration = Duration::from_millis(100);

/// An event of a watched job, in the order in which they happen.
#[derive(Debug)]
pub enum WatchEvent {
    /// Tasks have ended.
    Results(Vec<TaskResult>),
    /// Details of the first tasks that failed. Each comes before the task's result.
    Failures(Vec<FailureView>),
    /// Present state of the job, sent from time to time.
    Progress(Box<JobView>),
    /// The connection to the dispatcher was lost. The client dials the dispatcher again.
    Lost(SessionError),
    /// The dispatcher has answered again. The watch continues after the last result that it
    /// delivered.
    Back,
}

/// A connection to a dispatcher. A client sends one request at a time.
pub struct Client {
    access: Access,
    session: Session,
    received: VecDeque<ToClient>,
    /// Whether the files of a dispatcher on this host can be read, as far as is known.
    reads_files: bool,
    /// Connections to the executors from which outputs were downloaded.
    pub(crate) peers: Option<Peers>,
}

impl Client {
    /// Connects to the dispatcher that an access file names.
    ///
    /// # Errors
    /// If the dispatcher cannot be reached, or refuses the key in the access file.
    pub async fn connect(access: &Access) -> Result<Self, ClientError> {
        let session = dial(access, Role::Client).await?;
        let access = access.clone().with_data(session.data);
        Ok(Client { access, session, received: VecDeque::new(), reads_files: true, peers: None })
    }

    /// Sends a request and waits for its one answer. Submissions and watches have methods of their
    /// own.
    ///
    /// # Errors
    /// If the dispatcher refuses the request, or the connection ends.
    pub async fn ask(&mut self, request: FromClient) -> Result<ToClient, ClientError> {
        self.tell(request).await?;
        self.next().await
    }

    /// Sends a request that has no effect. If the dispatcher is lost, tells `see`, reconnects
    /// within `patience`, and sends it again.
    pub(crate) async fn ask_again(
        &mut self,
        request: FromClient,
        patience: Duration,
        mut see: impl FnMut(&WatchEvent),
    ) -> Result<ToClient, ClientError> {
        loop {
            match self.ask(request.clone()).await {
                Err(ClientError::Session(why)) if can_come_back(&why) && !patience.is_zero() => {
                    see(&WatchEvent::Lost(why));
                    self.redial(patience).await?;
                    see(&WatchEvent::Back);
                }
                answered => return answered,
            }
        }
    }

    /// Up to `limit` tasks of a job, beginning at index `from`; with `failed`, only tasks that
    /// failed.
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
            // One answer has no more tasks than fit in a message.
            let Some(last) = part.last() else { return Ok(tasks) };
            from = last.task.index + 1;
            tasks.extend(part);
        }
    }

    /// The job that was submitted last. `None` if the cluster has no job.
    ///
    /// # Errors
    /// If the connection ends.
    pub async fn last_job(&mut self) -> Result<Option<JobId>, ClientError> {
        match self.ask(FromClient::Jobs { job: None }).await? {
            ToClient::Jobs(jobs) => Ok(jobs.iter().map(|job| job.job).max()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Cancels the tasks of a job that no executor has; the others run to their end. Returns how
    /// many were cancelled.
    ///
    /// # Errors
    /// If the dispatcher refuses the request or is of an earlier version, or the connection ends.
    pub async fn cancel_waiting(&mut self, job: JobId) -> Result<u64, ClientError> {
        if self.session.minor < 1 {
            return Err(ClientError::Earlier { what: "cancel the waiting tasks of a job alone" });
        }
        match self.ask(FromClient::CancelWaitingOf { job }).await? {
            ToClient::Done(count) => Ok(count),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// The graph of a job: its templates, what their tasks read of each other, and a digest of its
    /// inputs.
    ///
    /// # Errors
    /// If there is no such job or the dispatcher is of an earlier version, or the connection ends.
    pub async fn graph(&mut self, job: JobId) -> Result<JobGraph, ClientError> {
        if self.session.minor < 2 {
            return Err(ClientError::Earlier { what: "tell the graph of a job" });
        }
        let (mut parts, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let answer = self.ask(FromClient::Graph { job, from }).await?;
            let ToClient::Graph(part) = answer else { return Err(ClientError::Unexpected) };
            next = part.next;
            parts.push(part);
        }
        Ok(graph_of(parts))
    }

    /// The output of a running task beyond a position. If the dispatcher is lost, tells `see`, and
    /// reconnects within `patience`.
    ///
    /// # Errors
    /// If the dispatcher refuses the request or is of an earlier version, or the connection ends.
    pub async fn printed(
        &mut self,
        task: TaskId,
        from: PrintedPosition,
        patience: Duration,
        see: impl FnMut(&WatchEvent),
    ) -> Result<Printed, ClientError> {
        if self.session.minor < MINOR_OF_PRINTED {
            return Err(ClientError::Earlier { what: "tell what a running task has printed" });
        }
        match self.ask_again(FromClient::Printed { task, from }, patience, see).await? {
            ToClient::Printed(printed) => Ok(*printed),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Asks for names of files.
    async fn names(&mut self, query: NamesQuery) -> Result<Vec<NamedFileView>, ClientError> {
        self.check_names()?;
        match self.ask(FromClient::Names(query)).await? {
            ToClient::Names(names) => Ok(names),
            _ => Err(ClientError::Unexpected),
        }
    }

    pub(crate) fn check_names(&self) -> Result<(), ClientError> {
        match self.session.minor >= MINOR_OF_NAMES {
            true => Ok(()),
            false => Err(ClientError::Earlier { what: "keep names of files" }),
        }
    }

    /// The files with these names that are registered, in the order of the names.
    ///
    /// # Errors
    /// If the dispatcher refuses the request or is of an earlier version, or the connection ends.
    pub async fn look_up_names(
        &mut self,
        names: &[Name],
    ) -> Result<Vec<NamedFileView>, ClientError> {
        let (mut found, mut rest) = (Vec::new(), names);
        while !rest.is_empty() {
            let part = &rest[..rest.len().min(NAMES_PART)];
            let files = self.names(NamesQuery::These(part.to_vec())).await?;
            // A large answer ends before the names do.
            let mut answered = 0;
            for file in &files {
                let at = part[answered..].iter().position(|name| *name == file.name);
                answered += at.ok_or(ClientError::Unexpected)? + 1;
            }
            rest = &rest[if files.is_empty() { part.len() } else { answered }..];
            found.extend(files);
        }
        Ok(found)
    }

    /// The next files whose names begin with `prefix`, in the order of their names: those after
    /// the name `last`, some thousands of them. There are no more once there are none.
    ///
    /// # Errors
    /// As [`look_up_names`](Self::look_up_names).
    pub async fn names_after(
        &mut self,
        prefix: Name,
        last: Name,
    ) -> Result<Vec<NamedFileView>, ClientError> {
        self.names(NamesQuery::After { prefix, last }).await
    }

    /// The files whose names begin with `prefix`, a part at a time, in their order.
    ///
    /// # Errors
    /// As [`look_up_names`](Self::look_up_names).
    pub(crate) async fn each_name_part(
        &mut self,
        prefix: &Name,
        mut see: impl FnMut(Vec<NamedFileView>),
    ) -> Result<(), ClientError> {
        let mut last = Name::default();
        loop {
            let part = self.names_after(prefix.clone(), last).await?;
            let Some(file) = part.last() else { return Ok(()) };
            last = file.name.clone();
            see(part);
        }
    }

    /// Connects to the cluster's distributed file system.
    ///
    /// # Errors
    /// If the cluster has no file system, or none of its nodes answers.
    pub async fn files(&mut self) -> Result<DfsClient, ClientError> {
        self.files_seeing(|| {}).await
    }

    /// Does the same as [`files`](Self::files), and calls `waits` first if it has to wait: after a
    /// restart of the dispatcher, executors need a moment to reconnect.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub async fn files_seeing(&mut self, waits: impl FnOnce()) -> Result<DfsClient, ClientError> {
        self.files_within(FILES_PATIENCE, waits).await
    }

    /// Does the same as [`files_seeing`](Self::files_seeing). An operation on files that is
    /// temporarily impossible is retried for `patience`.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub async fn files_within(
        &mut self,
        patience: Duration,
        waits: impl FnOnce(),
    ) -> Result<DfsClient, ClientError> {
        let mut waits = Some(waits);
        let nodes = loop {
            match self.ask(FromClient::FilesNodes).await? {
                ToClient::FilesNodes { nodes, .. } if !nodes.is_empty() => break nodes,
                ToClient::FilesNodes { has_files: false, .. } => return Err(ClientError::NoFiles),
                ToClient::FilesNodes { are_returning: false, .. } => {
                    return Err(ClientError::FilesAway);
                }
                ToClient::FilesNodes { .. } => {}
                _ => return Err(ClientError::Unexpected),
            }
            if let Some(waits) = waits.take() {
                waits();
            }
            tokio::time::sleep(FILES_PAUSE).await;
        };
        // If this process is a task, its executor has set the variables to the node of its own
        // machine.
        let node = std::env::var("EYAS_DFS_NODE")
            .ok()
            .and_then(|node| u64::from_str_radix(&node, 16).ok())
            .map(NodeId);
        let store = std::env::var_os("EYAS_DFS_STORE").map(PathBuf::from);
        let near = node.map(|node| NearNode { node, store });
        Ok(DfsClient::connect(self.access.clone(), nodes, near, patience).await?)
    }

    /// The connection, and messages that were received on it and not taken.
    pub(crate) fn into_session(self) -> (Session, VecDeque<ToClient>) {
        (self.session, self.received)
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Submits a job. When this returns, the job is in the dispatcher's journal and survives a
    /// restart.
    ///
    /// # Errors
    /// If the dispatcher refuses the job, or the connection ends.
    pub async fn submit(&mut self, draft: Draft) -> Result<JobId, ClientError> {
        let submitted = self.submit_unless(draft, std::future::pending()).await?;
        submitted.ok_or(ClientError::Unexpected)
    }

    /// Submits a job, unless the future `withdrawn` ends before the dispatcher has accepted the
    /// job. The result is then `None`: there is no job, and this client must be dropped, because
    /// its connection is in the middle of a request.
    ///
    /// # Errors
    /// If the dispatcher refuses the job, or the connection ends.
    pub async fn submit_unless(
        &mut self,
        mut draft: Draft,
        withdrawn: impl Future<Output = ()>,
    ) -> Result<Option<JobId>, ClientError> {
        let mut withdrawn = std::pin::pin!(withdrawn);
        tokio::select! {
            sent = self.send(&mut draft) => if let Err(error) = sent {
                return Err(self.refusal_or(error).await);
            },
            () = &mut withdrawn => return Ok(None),
        }
        let tasks = draft.len() as u64;
        (draft.see)(SubmitProgress::Accepting { tasks });
        self.tell(FromClient::Commit).await?;
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

    /// Sends all parts of a job. If the connection ends before the commit, the dispatcher discards
    /// them.
    async fn send(&mut self, draft: &mut Draft) -> Result<(), ClientError> {
        check_minor(self.session.minor, &draft.templates, || draft.derives())?;
        let Draft {
            name,
            templates,
            objects,
            chunks,
            tasks,
            count,
            reuse,
            halts,
            broadcast,
            distribution,
            see,
            ..
        } = draft;
        let (broadcast, count) = (broadcast.iter().copied().collect(), *count as u64);
        let writer = &mut self.session.writer;
        let begin = FromClient::Submit {
            name: std::mem::take(name),
            user: name_of_user(),
            templates: std::mem::take(templates),
            reuse: *reuse,
            broadcast,
            distribution: *distribution,
            tasks: count,
        };
        writer
            .send(&[begin])
            .await
            .map_err(|e| too_large(e, "the commands and options of the job"))?;
        // A dispatcher of an earlier version lets the job go on.
        if *halts && self.session.minor >= 3 {
            writer.send(&[FromClient::HaltIfAllFail]).await?;
        }
        for part in objects.chunks(SUBMISSION_PART) {
            writer.send(&[FromClient::Objects(part.to_vec())]).await?;
        }
        for part in chunks.chunks(CHUNKS_PART) {
            writer.send(&[FromClient::Chunks(part.to_vec())]).await?;
        }
        let mut sent = 0;
        for tasks in std::mem::take(tasks) {
            match tasks {
                DraftTasks::Numbers { template, numbers, count } => {
                    writer.send(&[FromClient::Numbers { template, numbers }]).await?;
                    sent += count as u64;
                }
                DraftTasks::Items(items) => {
                    let mut items = items.into_iter().peekable();
                    while items.peek().is_some() {
                        let part = part_of(&mut items);
                        sent += part.len() as u64;
                        let last = format!("task {}", sent - 1);
                        writer
                            .send(&[FromClient::Items(part)])
                            .await
                            .map_err(|e| too_large(e, &last))?;
                        see(SubmitProgress::Sent { sent, tasks: count });
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies objects to executors ahead of demand, and returns the state of this push. If the
    /// request says to wait, returns when the push has ended, and calls `see` with its progress
    /// until then; the push is cancelled if the connection ends.
    ///
    /// # Errors
    /// If the dispatcher refuses the request, or the connection ends.
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

    /// Watches a job to its end, and returns its final state. With `results`, `see` gets each
    /// result once, including results from before the call. If the dispatcher is lost, the client
    /// dials it for up to `patience` each time.
    ///
    /// # Errors
    /// If there is no such job, the cluster is stopped, or the dispatcher does not answer within
    /// `patience`.
    pub async fn watch(
        &mut self,
        job: JobId,
        results: bool,
        patience: Duration,
        mut see: impl FnMut(WatchEvent),
    ) -> Result<JobView, ClientError> {
        let mut seen = 0;
        loop {
            match self.watch_from(job, results, &mut seen, &mut see).await {
                Err(ClientError::Session(why)) if can_come_back(&why) && !patience.is_zero() => {
                    see(WatchEvent::Lost(why));
                    self.redial(patience).await?;
                    see(WatchEvent::Back);
                }
                // The dispatcher has other files, as in a container, or its file is damaged: it
                // says so itself.
                Err(ClientError::Output(_)) if self.reads_files => {
                    self.reads_files = false;
                    self.redial(patience).await?;
                }
                watched => return watched,
            }
        }
    }

    /// Watches a job on the present connection. `seen` counts the results that were delivered on
    /// all connections.
    async fn watch_from(
        &mut self,
        job: JobId,
        results: bool,
        seen: &mut u64,
        see: &mut impl FnMut(WatchEvent),
    ) -> Result<JobView, ClientError> {
        let request = if results && self.session.is_local && self.reads_files {
            FromClient::WatchHere { job, from: *seen }
        } else {
            FromClient::Watch { job, from: *seen, results }
        };
        self.tell(request).await?;
        let mut reader = OutputReader::default();
        loop {
            match self.next().await? {
                ToClient::Results(results) => {
                    *seen += results.len() as u64;
                    see(WatchEvent::Results(results));
                }
                ToClient::ResultsHere(here) if self.session.is_local && self.reads_files => {
                    let results = reader.results(*here)?;
                    *seen += results.len() as u64;
                    see(WatchEvent::Results(results));
                }
                ToClient::Failures(failures) => see(WatchEvent::Failures(failures)),
                ToClient::Progress(view) => see(WatchEvent::Progress(view)),
                ToClient::Over(view) => return Ok(*view),
                _ => return Err(ClientError::Unexpected),
            }
        }
    }

    /// Dials the dispatcher until it answers, for up to `patience`. An error that cannot go away
    /// with time, such as a refused key, ends the attempts at once.
    pub(crate) async fn redial(&mut self, patience: Duration) -> Result<(), SessionError> {
        let deadline = Instant::now() + patience;
        let mut wait = REDIAL_FIRST;
        loop {
            tokio::time::sleep(wait.min(deadline.saturating_duration_since(Instant::now()))).await;
            match dial(&self.access, Role::Client).await {
                Ok(session) => {
                    self.access = self.access.clone().with_data(session.data);
                    self.peers = None;
                    self.session = session;
                    self.received.clear();
                    return Ok(());
                }
                Err(e) if !can_come_back(&e) || Instant::now() >= deadline => return Err(e),
                Err(_) => wait = (wait * 2).min(REDIAL_MAX),
            }
        }
    }

    /// Waits until the dispatcher has closed the connection. A dispatcher that stops closes all
    /// connections.
    pub async fn closed(&mut self) {
        while self.session.reader.next::<ToClient>().await.is_ok() {}
    }

    /// Sends a request.
    pub(crate) async fn tell(&mut self, request: FromClient) -> Result<(), ClientError> {
        match self.session.writer.send(&[request]).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refusal_or(error.into()).await),
        }
    }

    /// The refusal that the dispatcher sent before it closed the connection, or else the error of
    /// the connection.
    async fn refusal_or(&mut self, error: ClientError) -> ClientError {
        if !matches!(error, ClientError::Session(SessionError::Ended { .. })) {
            return error;
        }
        match tokio::time::timeout(REFUSAL_DEADLINE, self.next()).await {
            Ok(Err(refused @ ClientError::Refused(_))) => refused,
            _ => error,
        }
    }

    pub(crate) async fn next(&mut self) -> Result<ToClient, ClientError> {
        next(&mut self.session.reader, &mut self.received).await
    }
}

async fn next(
    reader: &mut FrameReader,
    received: &mut VecDeque<ToClient>,
) -> Result<ToClient, ClientError> {
    loop {
        match received.pop_front() {
            Some(ToClient::Refused(why)) => return Err(ClientError::Refused(why)),
            Some(answer) => return Ok(answer),
            None => received.extend(reader.next::<ToClient>().await?),
        }
    }
}

/// Takes the tasks of one message: at most `SUBMISSION_PART`, and none after
/// `SUBMISSION_PART_BYTES` are reached.
pub(crate) fn part_of(items: &mut impl Iterator<Item = TaskItem>) -> Vec<TaskItem> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    while part.len() < SUBMISSION_PART && bytes < SUBMISSION_PART_BYTES {
        let Some(item) = items.next() else { break };
        bytes += item.values.iter().map(|value| value.text.len()).sum::<usize>();
        let name_bytes = |input: &Input| input.name.as_ref().map_or(0, |name| name.len());
        bytes += item
            .inputs
            .iter()
            .map(|input| size_of::<InputFrom>() + name_bytes(input))
            .sum::<usize>();
        part.push(item);
    }
    part
}

/// Checks that a dispatcher of this minor version has all that the templates need, and what tasks
/// need that read what nodes make of files, if `derives` says that some do.
pub(crate) fn check_minor(
    minor: u16,
    templates: &[TaskTemplate],
    derives: impl FnOnce() -> bool,
) -> Result<(), ClientError> {
    let is_later = templates.iter().any(TaskTemplate::delivers_after_failure);
    if minor < MINOR_OF_FAILURES && is_later {
        return Err(ClientError::Earlier { what: "deliver outputs of failed tasks" });
    }
    if minor < MINOR_OF_DERIVED && derives() {
        return Err(ClientError::Earlier { what: "decompress or prepare inputs" });
    }
    Ok(())
}

/// Adds the name of the part of the job to an error about a message that is too large.
fn too_large(why: SessionError, what: &str) -> ClientError {
    match why {
        SessionError::TooLarge { bytes, .. } => {
            ClientError::TooLarge { what: what.to_owned(), bytes }
        }
        why => why.into(),
    }
}

/// Whether the dispatcher may be reached later.
pub(crate) fn can_come_back(why: &SessionError) -> bool {
    matches!(why, SessionError::Unreachable { .. } | SessionError::Ended { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_session::{Listener, SessionAcceptor};
    use eyas_types::{Name, Outcome, Reads, Status};
    use eyas_wire::client::{OutputFile, ResultsHere};
    use eyas_wire::view::{JobOwner, JobState, TaskCounts};
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
            owner: JobOwner::default(),
            state: JobState::Succeeded,
            tasks: TaskCounts::default(),
            retried: 0,
            recomputed: 0,
            peak_memory_bytes: 0,
            reused: 0,
            reads: Reads::default(),
            submitted_unix_ms: 0,
            elapsed_us: 0,
            executors: 0,
            capacity_milli: 0,
            is_stuck: false,
            is_output_cut: false,
            warnings: Vec::new(),
        }))
    }

    /// Serves one connection after the other. Each gets its answers and is closed. Returns the
    /// result from which each watch began.
    async fn serve(
        listener: TcpListener,
        access: &Access,
        connections: Vec<Vec<ToClient>>,
    ) -> Vec<u64> {
        let acceptor = SessionAcceptor::new(access, Role::Dispatcher);
        let mut began = Vec::new();
        for answers in connections {
            let (mut session, _) =
                acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
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
        let connections =
            vec![vec![results(0..2)], Vec::new(), vec![results(2..5), over()], Vec::new()];
        let watch = async {
            let mut client = Client::connect(&access).await.unwrap();
            let (mut seen, mut losses) = (Vec::new(), 0);
            let see = |what| match what {
                WatchEvent::Results(results) => {
                    seen.extend(results.iter().map(|result| result.index))
                }
                WatchEvent::Lost(_) => losses += 1,
                WatchEvent::Failures(_) | WatchEvent::Progress(_) | WatchEvent::Back => {}
            };
            let view = client.watch(JobId(1), true, Duration::from_secs(30), see).await.unwrap();
            assert_eq!((view.state, seen, losses), (JobState::Succeeded, vec![0, 1, 2, 3, 4], 2));
            // Without patience, the first lost connection ends the watch.
            let mut client = Client::connect(&access).await.unwrap();
            let ended = client.watch(JobId(1), true, Duration::ZERO, |_| {}).await;
            assert!(
                matches!(ended, Err(ClientError::Session(SessionError::Ended { .. }))),
                "{ended:?}"
            );
        };
        let (began, ()) = tokio::join!(serve(listener, &access, connections), watch);
        assert_eq!(began, [0, 2, 2, 0]);
    }

    #[tokio::test]
    async fn output_that_cannot_be_read_here_is_sent() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access::create("test", &tcp.local_addr().unwrap().to_string());
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let file = OutputFile { path: Name::from("/no/such/file"), device: 0, inode: 0 };
        let ToClient::Results(here) = results(1..2) else { panic!("results") };
        let here = ToClient::ResultsHere(Box::new(ResultsHere {
            results: here,
            file,
            outputs: Vec::new(),
        }));
        let answers = [vec![results(0..1), here], vec![results(1..2), over()]];
        let serve = async {
            let mut requests = Vec::new();
            for answers in answers {
                let (mut session, _) = listener.next().await.await.unwrap();
                requests.extend(session.reader.next::<FromClient>().await.unwrap());
                session.writer.send(&answers).await.unwrap();
                session.writer.close().await;
            }
            requests
        };
        let watch = async {
            let mut client = Client::connect(&access).await.unwrap();
            let mut seen = Vec::new();
            let see = |what| match what {
                WatchEvent::Results(results) => {
                    seen.extend(results.iter().map(|result| result.index))
                }
                other => panic!("{other:?}"),
            };
            client.watch(JobId(1), true, Duration::ZERO, see).await.unwrap();
            seen
        };
        let (requests, seen) = tokio::join!(serve, watch);
        let (here, whole) = (FromClient::WatchHere { job: JobId(1), from: 0 }, 1);
        assert_eq!(
            requests,
            [here, FromClient::Watch { job: JobId(1), from: whole, results: true }]
        );
        assert_eq!(seen, [0, 1]);
    }
}
