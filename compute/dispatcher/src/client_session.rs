//! A session with a client: one request at a time, a submission in parts, a watch until its job has ended.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use eyas_jobs::{Extension, JobSpec, SpecError};
use eyas_pools::PoolsHandle;
use eyas_session::{FrameReader, FrameWriter, Session, SessionError};
use eyas_types::access::Principal;
use eyas_types::{JobId, Status};
use eyas_wire::client::{FromClient, KeysRequest, PushRequest, ResultsHere, TaskResult, ToClient};
use eyas_wire::trust::{SecretText, TrustRefusal};
use tokio::sync::{mpsc, oneshot};

use crate::dispatcher_core::CoreMessage;
use crate::dispatcher_core::attached::deliveries;
use crate::expressions::compile;
use crate::journal::{Journal, JournalError, OutputRange};
use crate::keys::{Keys, KeysError};
use crate::rights::may_ask;

/// Journal entries read at a time for a watcher.
const ENTRIES_AT_ONCE: u64 = 8;
/// Failed tasks that a watch describes; for others it sends only the results.
const MAX_FAILURES_SENT: usize = 20;
/// Requests that are read while another request is served: enough to see a withdrawal.
const MAX_READ_AHEAD: usize = 4;

struct Client {
    writer: FrameWriter,
    core: mpsc::Sender<CoreMessage>,
    journal: Journal,
    keys: Arc<Keys>,
    pools: PoolsHandle,
    holder: Principal,
    /// Whether the client is a process of this user on this host.
    is_local: bool,
    submission: Submission,
}

/// A job that is attached to a connection, until this is dropped.
struct Attachment {
    job: JobId,
    core: mpsc::Sender<CoreMessage>,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let (job, core) = (self.job, self.core.clone());
        tokio::spawn(async move {
            // Without a core there is no job either.
            let _ = core.send(CoreMessage::Detach { job }).await;
        });
    }
}

/// The state of a submission.
enum Submission {
    None,
    Begun(Box<JobSpec>),
    /// The submission is refused, for this reason.
    Wrong(String),
    Withdrawn,
}

/// Requests of a client, read while other requests are served.
struct Inbox {
    frames: mpsc::Receiver<Result<Vec<FromClient>, SessionError>>,
    waiting: VecDeque<FromClient>,
}

impl Inbox {
    fn of(mut reader: FrameReader) -> Self {
        let (sender, frames) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let read = tokio::select! {
                    read = reader.next::<FromClient>() => read,
                    () = sender.closed() => return,
                };
                let is_last = read.is_err();
                if sender.send(read).await.is_err() || is_last {
                    return;
                }
            }
        });
        Inbox { frames, waiting: VecDeque::new() }
    }

    /// The next request. Cancelling this future loses nothing.
    async fn next(&mut self) -> Result<FromClient, SessionError> {
        loop {
            match self.waiting.pop_front() {
                Some(request) => return Ok(request),
                None => self.read().await?,
            }
        }
    }

    /// Waits until the client withdraws its submission. Cancelling this future loses nothing.
    async fn withdraws(&mut self) -> Result<(), SessionError> {
        while !self.waiting.contains(&FromClient::Withdraw) {
            match self.waiting.len() {
                0..MAX_READ_AHEAD => self.read().await?,
                _ => std::future::pending().await,
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), SessionError> {
        let closed = || SessionError::Ended { address: "a client".into(), why: "it was closed".into() };
        self.waiting.extend(self.frames.recv().await.ok_or_else(closed)??);
        Ok(())
    }
}

/// Serves one client until its connection, its key or the core ends.
pub(crate) async fn serve(
    session: Session,
    core: mpsc::Sender<CoreMessage>,
    journal: Journal,
    keys: Arc<Keys>,
    pools: PoolsHandle,
) -> Result<(), SessionError> {
    let Session { reader, writer, mut standing, is_local, .. } = session;
    let mut inbox = Inbox::of(reader);
    let holder = standing.holder();
    let mut client = Client { writer, core, journal, keys, pools, holder, is_local, submission: Submission::None };
    loop {
        let request = tokio::select! {
            request = inbox.next() => request?,
            refusal = standing.ends() => return client.end(refusal).await,
            () = client.core.closed() => return Ok(()),
        };
        match request {
            // Answered even when the request revokes the key that it came with.
            FromClient::Keys(request) => client.keys(request).await?,
            request => tokio::select! {
                served = client.serve(request, &mut inbox) => served?,
                refusal = standing.ends() => return client.end(refusal).await,
            },
        }
    }
}

impl Client {
    async fn serve(&mut self, request: FromClient, inbox: &mut Inbox) -> Result<(), SessionError> {
        let has_files = matches!(self.holder, Principal::Job(job) if self.keys.have_files(job));
        if let Err(e) = may_ask(self.holder, has_files, &request) {
            // A part of a submission is answered with the end of the submission.
            if request.is_of_submission() {
                return Ok(());
            }
            return self.writer.send(&[ToClient::Refused(e.to_string())]).await;
        }
        match request {
            FromClient::Submit { name, templates, reuse, broadcast, distribution, tasks } => {
                let spec = JobSpec { name, templates, reuse, broadcast, distribution, ..JobSpec::default() };
                self.submission = Submission::Begun(Box::new(spec));
                self.build(inbox, move |spec| spec.expect(tasks)).await
            }
            FromClient::Objects(objects) => self.build(inbox, |spec| spec.push_objects(objects)).await,
            FromClient::Chunks(chunks) => {
                let push = move |spec: &mut JobSpec| {
                    spec.push_chunks(chunks);
                    Ok(())
                };
                self.build(inbox, push).await
            }
            FromClient::Items(items) => self.build(inbox, move |spec| spec.push(&items)).await,
            FromClient::Numbers { template, numbers } => {
                self.build(inbox, move |spec| spec.push_numbers(template, &numbers)).await
            }
            FromClient::Commit => {
                self.build(inbox, |spec| spec.validate(&compile)).await?;
                let answer = self.commit().await;
                self.writer.send(&[answer]).await
            }
            FromClient::Withdraw => {
                self.submission = Submission::Withdrawn;
                Ok(())
            }
            FromClient::Watch { job, from, results } => {
                let results = if results { WatchResults::Whole } else { WatchResults::None };
                self.watch(job, from, results, inbox).await
            }
            FromClient::WatchHere { job, from } => {
                let results = if self.is_local { WatchResults::Here } else { WatchResults::Whole };
                self.watch(job, from, results, inbox).await
            }
            FromClient::Attach { name } => self.attach(name, inbox).await,
            FromClient::Push(request) => self.push(request, inbox).await,
            FromClient::Pools(request) => {
                let answer = self.pools.ask(request).await;
                self.writer.send(&[answer.unwrap_or_else(|e| ToClient::Refused(e.to_string()))]).await
            }
            request => {
                let (reply, answer) = oneshot::channel();
                let answer = self.ask(CoreMessage::Asked { request, reply }, answer).await;
                self.writer.send(&[answer.unwrap_or_else(stopping)]).await
            }
        }
    }

    /// Says why the session ends, unless a part of an answer was sent.
    async fn end(&mut self, refusal: TrustRefusal) -> Result<(), SessionError> {
        if !self.writer.is_whole() {
            return Ok(());
        }
        let why = match refusal {
            TrustRefusal::Replaced => "was replaced (`eyas access rotate`): copy the cluster's new access file",
            TrustRefusal::Revoked => {
                "was revoked (`eyas access revoke`): ask the cluster's owner for another access file"
            }
            TrustRefusal::JobEnded => "ended with its job",
        };
        self.writer.send(&[ToClient::Refused(format!("{} {why}", self.holder))]).await?;
        self.writer.close().await;
        Ok(())
    }

    async fn keys(&mut self, request: KeysRequest) -> Result<(), SessionError> {
        if let Err(e) = may_ask(self.holder, false, &FromClient::Keys(request.clone())) {
            return self.writer.send(&[ToClient::Refused(e.to_string())]).await;
        }
        let keys = self.keys.clone();
        // It writes to the disk.
        let answer = tokio::task::spawn_blocking(move || answer_keys(&keys, request)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => ToClient::Refused(e.to_string()),
            Err(_) => ToClient::Refused("the keys were not changed; see the dispatcher's log".into()),
        };
        self.writer.send(&[answer]).await
    }

    /// Continues a sound submission. A step may take a while for millions of tasks,
    /// during which the client may withdraw it, or go away.
    async fn build(
        &mut self,
        inbox: &mut Inbox,
        step: impl FnOnce(&mut JobSpec) -> Result<(), SpecError> + Send + 'static,
    ) -> Result<(), SessionError> {
        let mut spec = match std::mem::replace(&mut self.submission, Submission::None) {
            Submission::Begun(spec) => spec,
            other => {
                self.submission = other;
                return Ok(());
            }
        };
        let building = tokio::task::spawn_blocking(move || step(&mut spec).map(|()| spec));
        self.submission = tokio::select! {
            built = building => match built {
                Ok(Ok(spec)) => Submission::Begun(spec),
                Ok(Err(e)) => Submission::Wrong(e.to_string()),
                Err(_) => Submission::Wrong("the job could not be checked; see the dispatcher's log".into()),
            },
            withdrawn = inbox.withdraws() => withdrawn.map(|()| Submission::Withdrawn)?,
        };
        Ok(())
    }

    async fn commit(&mut self) -> ToClient {
        match std::mem::replace(&mut self.submission, Submission::None) {
            Submission::Begun(spec) => {
                let (reply, answer) = oneshot::channel();
                self.ask(CoreMessage::Submitted { spec, reply }, answer).await.unwrap_or_else(stopping)
            }
            Submission::Wrong(why) => ToClient::Refused(why),
            Submission::Withdrawn => ToClient::Withdrawn,
            Submission::None => ToClient::Refused("a submission begins with `Submit`".into()),
        }
    }

    async fn ask<T>(&self, message: CoreMessage, answer: oneshot::Receiver<T>) -> Option<T> {
        self.core.send(message).await.ok()?;
        answer.await.ok()
    }

    async fn watch(
        &mut self,
        job: JobId,
        from: u64,
        results: WatchResults,
        inbox: &mut Inbox,
    ) -> Result<(), SessionError> {
        let (reply, answer) = oneshot::channel();
        let Some(Some(mut progress)) = self.ask(CoreMessage::Watched { job, reply }, answer).await else {
            let why = format!("there is no job {job}: `eyas job list` shows those there are");
            return self.writer.send(&[ToClient::Refused(why)]).await;
        };
        let mut entry = 0;
        // A client has seen the results that were removed since, or later ones of the same tasks.
        let skip = from.saturating_sub(progress.borrow().dropped_results);
        let mut sending = Sending { results, skip, failures: MAX_FAILURES_SENT };
        loop {
            let now = progress.borrow_and_update().clone();
            while results != WatchResults::None && entry < now.entries {
                let to = now.entries.min(entry + ENTRIES_AT_ONCE);
                self.send_entries(job, entry, to, &mut sending).await?;
                entry = to;
            }
            let view = Box::new(now.view);
            if now.is_over {
                return self.writer.send(&[ToClient::Over(view)]).await;
            }
            self.writer.send(&[ToClient::Progress(view)]).await?;
            // A client that goes away ends the watch, and with it the session.
            tokio::select! {
                changed = progress.changed() => if changed.is_err() {
                    return self.writer.send(&[stopping()]).await;
                },
                said = inbox.next() => {
                    said?;
                }
            }
        }
    }

    /// Attaches a job to this connection, and serves it until it is over.
    async fn attach(&mut self, name: String, inbox: &mut Inbox) -> Result<(), SessionError> {
        let (deliver, mut deliveries) = deliveries();
        let (reply, answer) = oneshot::channel();
        let job = match self.ask(CoreMessage::Attach { name, deliveries: deliver, reply }, answer).await {
            Some(Ok(job)) => job,
            Some(Err(why)) => return self.writer.send(&[ToClient::Refused(why)]).await,
            None => return self.writer.send(&[stopping()]).await,
        };
        // However this ends, the job does not outlive its client.
        let _attachment = Attachment { job, core: self.core.clone() };
        self.writer.send(&[ToClient::Attached { job }]).await?;
        loop {
            tokio::select! {
                next = deliveries.next() => {
                    let message = [next.unwrap_or_else(stopping)];
                    let is_last = !matches!(message[0], ToClient::Results(_));
                    tokio::select! {
                        sent = self.writer.send(&message) => sent?,
                        () = deliveries.patience_ends() => {
                            let why = "the client has read nothing for long".into();
                            return Err(SessionError::Ended { address: "a client".into(), why });
                        }
                    }
                    if is_last {
                        return Ok(());
                    }
                }
                request = inbox.next() => if let Err(why) = self.extend(job, request?).await {
                    return self.writer.send(&[ToClient::Refused(why)]).await;
                },
            }
        }
    }

    /// Passes on what the client of an attached job sends.
    async fn extend(&mut self, job: JobId, request: FromClient) -> Result<(), String> {
        let mut extension = Extension::default();
        match request {
            FromClient::Templates(templates) => {
                extension.templates = templates;
                extension.compile(&compile).map_err(|e| e.to_string())?;
            }
            FromClient::Objects(objects) => extension.objects = objects,
            FromClient::Items(items) => extension.items = items,
            FromClient::Unneeded { tasks } => {
                let _ = self.core.send(CoreMessage::Unneeded { job, tasks }).await;
                return Ok(());
            }
            FromClient::CancelWaiting => {
                let _ = self.core.send(CoreMessage::CancelWaiting { job }).await;
                return Ok(());
            }
            FromClient::Close => {
                let _ = self.core.send(CoreMessage::Close { job }).await;
                return Ok(());
            }
            FromClient::Cancel { job: named, task } if named == job => {
                let (reply, _) = oneshot::channel();
                let request = FromClient::Cancel { job, task };
                let _ = self.core.send(CoreMessage::Asked { request, reply }).await;
                return Ok(());
            }
            _ => return Err("an attached job needs a connection of its own for other requests".into()),
        }
        // Without a core, the cluster stops, and the deliveries end.
        let _ = self.core.send(CoreMessage::Extend { job, extension: Box::new(extension) }).await;
        Ok(())
    }

    /// Sends the state of a push until it is over, or once if the client does not wait for it.
    async fn push(&mut self, request: PushRequest, inbox: &mut Inbox) -> Result<(), SessionError> {
        let (reply, answer) = oneshot::channel();
        let wait = request.wait;
        let mut view = match self.ask(CoreMessage::Push { request, reply }, answer).await {
            Some(Ok(view)) => view,
            Some(Err(e)) => return self.writer.send(&[ToClient::Refused(e.to_string())]).await,
            None => return self.writer.send(&[stopping()]).await,
        };
        loop {
            let now = Box::new(view.borrow_and_update().clone());
            if now.is_over {
                return self.writer.send(&[ToClient::Pushed(now)]).await;
            }
            self.writer.send(&[ToClient::Pushing(now)]).await?;
            if !wait {
                return Ok(());
            }
            // A client that goes away ends its session, and with it the push.
            tokio::select! {
                changed = view.changed() => if changed.is_err() {
                    return self.writer.send(&[stopping()]).await;
                },
                said = inbox.next() => {
                    said?;
                }
            }
        }
    }

    async fn send_entries(
        &mut self,
        job: JobId,
        from: u64,
        to: u64,
        sending: &mut Sending,
    ) -> Result<(), SessionError> {
        let (journal, results) = (self.journal.clone(), sending.results);
        let read = tokio::task::spawn_blocking(move || read_entries(&journal, job, from..to, results)).await;
        let entries = match read {
            Ok(Ok(entries)) => entries,
            Ok(Err(e)) => return self.writer.send(&[ToClient::Refused(e.to_string())]).await,
            Err(_) => {
                let why = "the results could not be read; see the dispatcher's log";
                return self.writer.send(&[ToClient::Refused(why.into())]).await;
            }
        };
        for (mut results, outputs) in entries {
            let skipped = (results.len() as u64).min(sending.skip);
            sending.skip -= skipped;
            results.drain(..skipped as usize);
            let has_failed =
                |result: &&TaskResult| !matches!(result.outcome.status, Status::Succeeded | Status::Cancelled);
            let failed = results.iter().filter(has_failed).map(|result| result.index);
            let failed: Vec<_> = failed.take(sending.failures).collect();
            if !failed.is_empty() {
                sending.failures -= failed.len();
                let (reply, answer) = oneshot::channel();
                let request = FromClient::Failures { job, tasks: failed };
                let failures = self.ask(CoreMessage::Asked { request, reply }, answer).await;
                self.writer.send(&[failures.unwrap_or_else(stopping)]).await?;
            }
            let outputs = outputs.into_iter().filter_map(|place| place.for_client(skipped as u32)).collect::<Vec<_>>();
            if !outputs.is_empty() {
                let file = match self.journal.output_file(job) {
                    Ok(file) => file,
                    Err(e) => return self.writer.send(&[ToClient::Refused(e.to_string())]).await,
                };
                let here = Box::new(ResultsHere { results, file, outputs });
                self.writer.send(&[ToClient::ResultsHere(here)]).await?;
            } else if !results.is_empty() {
                self.writer.send(&[ToClient::Results(results)]).await?;
            }
        }
        Ok(())
    }
}

/// The results that a watch sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchResults {
    None,
    /// With all captured output.
    Whole,
    /// With the places of captured output that is in a file; the client is on this host.
    Here,
}

/// Results of a journal entry, and the places of output that the client reads itself.
type EntryResults = (Vec<TaskResult>, Vec<OutputRange>);

/// Reads results for a watch.
fn read_entries(
    journal: &Journal,
    job: JobId,
    numbers: Range<u64>,
    results: WatchResults,
) -> Result<Vec<EntryResults>, JournalError> {
    if results == WatchResults::Here {
        let entries = journal.results_and_places(job, numbers.start, numbers.end)?;
        return Ok(entries.into_iter().map(|(entry, places)| (entry.into_results(), places)).collect());
    }
    let entries = journal.new_results(job, numbers.start, numbers.end)?;
    Ok(entries.into_iter().map(|entry| (entry.into_results(), Vec::new())).collect())
}

/// Results that a watch has still to send.
struct Sending {
    results: WatchResults,
    /// Number of results that the client already has.
    skip: u64,
    /// Failures that are described.
    failures: usize,
}

fn answer_keys(keys: &Keys, request: KeysRequest) -> Result<ToClient, KeysError> {
    match request {
        KeysRequest::List => Ok(ToClient::Keys(keys.views())),
        KeysRequest::Issue { role } => keys.issue(role).map(|text| ToClient::Access(SecretText(text))),
        KeysRequest::Rotate { role, grace_s } => keys.rotate(role, Duration::from_secs(grace_s)).map(ToClient::Keys),
        KeysRequest::Revoke { key } => keys.revoke(key).map(ToClient::Keys),
    }
}

fn stopping() -> ToClient {
    ToClient::Refused("the cluster is stopping".into())
}
