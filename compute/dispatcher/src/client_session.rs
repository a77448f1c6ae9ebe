//! The wire session of a client: a door of the service. It reads one request at a time, calls the
//! service, and sends what that answers.

mod inbox;
mod submission;

use std::time::Duration;

use eyas_pools::PoolsAnswer;
use eyas_session::{FrameWriter, Session, SessionError};
use eyas_types::{JobId, NameChange};
use eyas_wire::client::{
    EventPosition, FromClient, KeysRequest, PushRequest, ResultsHere, ToClient,
};
use eyas_wire::trust::TrustRefusal;

use self::inbox::Inbox;
use self::submission::SubmissionInParts;
use crate::names::{ChangesInParts, NamesError};
use crate::service::{
    Answer, AttachedJob, Caller, FilesNodes, JobDelivery, JobWatchEvent, NumberedResults, Service,
    ServiceError, StoppingCluster, TaskQuery, WatchedResults,
};

/// One client.
struct Client {
    service: Caller,
    writer: FrameWriter,
    /// Whether the client is a process of this user on this host.
    is_local: bool,
    submission: SubmissionInParts,
    /// Changes of names whose last part is still to come.
    name_changes: ChangesInParts,
}

/// Serves one client until its connection, its key or the dispatcher ends.
pub(crate) async fn serve(session: Session, service: Caller) -> Result<(), SessionError> {
    let Session { reader, writer, mut trust, is_local, .. } = session;
    let mut inbox = Inbox::of(reader);
    let submission = SubmissionInParts::None;
    let name_changes = ChangesInParts::default();
    let mut client = Client { service, writer, is_local, submission, name_changes };
    loop {
        let request = tokio::select! {
            request = inbox.next() => request?,
            refusal = trust.ends() => return client.end(refusal).await,
            () = client.service.dispatcher_ends() => return Ok(()),
        };
        match request {
            // Answered even when the request revokes the key that it came with.
            FromClient::Keys(request) => {
                let answer = client.keys(request).await;
                client.send(answer).await?;
            }
            request => tokio::select! {
                served = client.serve(request, &mut inbox) => served?,
                refusal = trust.ends() => return client.end(refusal).await,
            },
        }
    }
}

impl Client {
    async fn serve(&mut self, request: FromClient, inbox: &mut Inbox) -> Result<(), SessionError> {
        match request {
            request if request.is_of_submission() => {
                self.submission.take(request, &self.service, inbox).await
            }
            FromClient::Commit => {
                let answer = self.submission.commit(&self.service, inbox).await?;
                self.send(answer).await
            }
            FromClient::Watch { job, from, results } => {
                let results = if results { WatchedResults::Whole } else { WatchedResults::None };
                self.watch(job, results, from, inbox).await
            }
            FromClient::WatchHere { job, from } => {
                let results =
                    if self.is_local { WatchedResults::WithPlaces } else { WatchedResults::Whole };
                self.watch(job, results, from, inbox).await
            }
            FromClient::Attach { name, user } => match self.service.attach(name, user).await {
                Ok(job) => self.serve_attached(job, inbox).await,
                Err(why) => self.send(Err(why)).await,
            },
            FromClient::ChangeNames { changes, is_last } => {
                let answer = self.change_names(changes, is_last).await;
                self.send(answer).await
            }
            FromClient::Push(request) => self.push(request, inbox).await,
            FromClient::Events { after } => self.events(after, inbox).await,
            request => {
                let answer = self.answer(request).await;
                self.send(answer).await
            }
        }
    }

    /// Answers a request with one message.
    async fn answer(&self, request: FromClient) -> Answer<ToClient> {
        use FromClient as Ask;
        let service = &self.service;
        Ok(match request {
            Ask::Jobs { job: None } => ToClient::Jobs(service.jobs().await?),
            Ask::Jobs { job: Some(job) } => ToClient::Jobs(vec![service.job(job).await?]),
            Ask::Tasks { job, from, limit, failed } => {
                ToClient::Tasks(service.tasks(job, TaskQuery { from, limit, failed }).await?)
            }
            Ask::Failures { job, tasks } => ToClient::Failures(service.failures(job, tasks).await?),
            Ask::Log { task } => ToClient::Log(service.result(task).await?.map(Box::new)),
            Ask::Printed { task, from } => {
                ToClient::Printed(Box::new(service.printed(task, from).await?))
            }
            Ask::Explain { task } => ToClient::Explained(Box::new(service.explain(task).await?)),
            Ask::Report { job } => ToClient::Report(Box::new(service.report(job).await?)),
            Ask::Trace { job, from } => ToClient::Trace(service.trace(job, from).await?),
            Ask::Graph { job, from } => ToClient::Graph(service.graph(job, from).await?),
            Ask::Inputs { job, from } => ToClient::Inputs(service.inputs(job, from).await?),
            Ask::Kept { job, from, to, doubted } => {
                ToClient::Kept(service.kept(job, from..to, doubted).await?)
            }
            Ask::Cancel { job, task } => ToClient::Done(service.cancel(job, task).await?),
            Ask::CancelWaitingOf { job } => ToClient::Done(service.cancel_waiting(job).await?),
            Ask::Retry { job, current } => ToClient::Done(service.retry(job, current).await?),
            Ask::Release { job } => ToClient::Done(service.release(job).await?),
            Ask::Forget { job } => ToClient::Done(service.forget(job).await?),
            Ask::Executors => ToClient::Executors(service.executors().await?),
            Ask::Addresses => ToClient::Addresses(service.addresses().await?),
            Ask::Catalog { object, source } => {
                ToClient::Objects(service.catalog(object, source).await?)
            }
            Ask::Names(query) => ToClient::Names(service.names(query)?),
            Ask::FilesNodes => message_of_nodes(service.files_nodes().await?),
            Ask::ForgetFiles => service.forget_files().await.map(|()| ToClient::Done(0))?,
            Ask::StopExecutor { executor } => {
                service.stop_executor(executor).await.map(|()| ToClient::Done(1))?
            }
            Ask::Stop => {
                let StoppingCluster { executors, processes } = service.stop().await?;
                ToClient::Stopping { executors, processes }
            }
            Ask::Pools(request) => match service.pools(request).await? {
                PoolsAnswer::Pools(pools) => ToClient::Pools(pools),
                PoolsAnswer::Text(text) => ToClient::PoolText(text),
                PoolsAnswer::Done => ToClient::Done(1),
            },
            Ask::Templates(_) | Ask::Unneeded { .. } | Ask::CancelWaiting | Ask::Close => {
                ToClient::Refused(
                    "the connection has no attached job: it begins with `Attach`".into(),
                )
            }
            Ask::Submit { .. }
            | Ask::Objects(_)
            | Ask::Chunks(_)
            | Ask::Items(_)
            | Ask::Numbers { .. }
            | Ask::HaltIfAllFail
            | Ask::Withdraw
            | Ask::Commit
            | Ask::Watch { .. }
            | Ask::WatchHere { .. }
            | Ask::Attach { .. }
            | Ask::Push(_)
            | Ask::ChangeNames { .. }
            | Ask::Events { .. }
            | Ask::Keys(_) => unreachable!("requests with several answers are served elsewhere"),
        })
    }

    /// Takes a part of the changes of names. With the last part, all are made.
    async fn change_names(&mut self, changes: Vec<NameChange>, is_last: bool) -> Answer<ToClient> {
        self.service.may_change_names()?;
        let changed = match self.name_changes.add(changes) {
            Ok(_) if is_last => self.service.change_names(self.name_changes.take()).await,
            added => added.map_err(ServiceError::from),
        };
        match changed {
            Ok(count) => Ok(ToClient::Done(count)),
            Err(ServiceError::Names(NamesError::Change { index, problem })) => {
                Ok(ToClient::NamesRefused { index: index as u64, why: problem.to_string() })
            }
            Err(why) => Err(why),
        }
    }

    async fn keys(&self, request: KeysRequest) -> Answer<ToClient> {
        let service = &self.service;
        Ok(match request {
            KeysRequest::List => ToClient::Keys(service.keys().await?),
            KeysRequest::Issue { role } => ToClient::Access(service.issue_access(role).await?),
            KeysRequest::Rotate { role, grace_s } => {
                ToClient::Keys(service.rotate_keys(role, Duration::from_secs(grace_s)).await?)
            }
            KeysRequest::Revoke { key } => ToClient::Keys(service.revoke_key(key).await?),
        })
    }

    /// Sends an answer, or why there is none.
    async fn send(&mut self, answer: Answer<ToClient>) -> Result<(), SessionError> {
        self.writer.send(&[answer.unwrap_or_else(|why| ToClient::Refused(why.to_string()))]).await
    }

    /// Says why the session ends, unless a part of an answer was sent.
    async fn end(&mut self, refusal: TrustRefusal) -> Result<(), SessionError> {
        if !self.writer.is_whole() {
            return Ok(());
        }
        let why = match refusal {
            TrustRefusal::Replaced => {
                "was replaced (`eyas access rotate`): copy the cluster's new access file"
            }
            TrustRefusal::Revoked => {
                "was revoked (`eyas access revoke`): ask the cluster's owner for another access \
                 file"
            }
            TrustRefusal::JobEnded => "ended with its job",
        };
        self.writer.send(&[ToClient::Refused(format!("{} {why}", self.service.holder()))]).await?;
        self.writer.close().await;
        Ok(())
    }

    /// Sends the events of a job until its end. A client that goes away ends the watch, and with it
    /// the session.
    async fn watch(
        &mut self,
        job: JobId,
        results: WatchedResults,
        from: u64,
        inbox: &mut Inbox,
    ) -> Result<(), SessionError> {
        let mut watch = match self.service.watch(job, results, from).await {
            Ok(watch) => watch,
            Err(why) => return self.send(Err(why)).await,
        };
        loop {
            let event = tokio::select! {
                event = watch.next() => event,
                gone = inbox.client_leaves() => return Err(gone),
            };
            match event {
                Ok(Some(event)) => self.send(Ok(message_of(event))).await?,
                Ok(None) => return Ok(()),
                Err(why) => return self.send(Err(why)).await,
            }
        }
    }

    /// Sends events until the client goes away.
    async fn events(
        &mut self,
        after: Option<EventPosition>,
        inbox: &mut Inbox,
    ) -> Result<(), SessionError> {
        let mut events = match self.service.events(after) {
            Ok(events) => events,
            Err(why) => return self.send(Err(why)).await,
        };
        loop {
            tokio::select! {
                part = events.next() => {
                    let is_last = part.is_err();
                    self.send(part.map(ToClient::Events)).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                gone = inbox.client_leaves() => return Err(gone),
            }
        }
    }

    /// Serves the client of an attached job until the job is over. However this ends, the job does
    /// not outlive it.
    async fn serve_attached(
        &mut self,
        mut job: AttachedJob,
        inbox: &mut Inbox,
    ) -> Result<(), SessionError> {
        self.send(Ok(ToClient::Attached { job: job.id() })).await?;
        loop {
            tokio::select! {
                next = job.next() => {
                    let (message, is_last) = match next {
                        Some(JobDelivery::Results(results)) => (ToClient::Results(results), false),
                        Some(JobDelivery::Over(view)) => (ToClient::Over(view), true),
                        Some(JobDelivery::Refused(why)) => (ToClient::Refused(why), true),
                        None => (ToClient::Refused(ServiceError::Stopping.to_string()), true),
                    };
                    let message = [message];
                    tokio::select! {
                        sent = self.writer.send(&message) => sent?,
                        () = job.patience_ends() => {
                            let why = "the client has read nothing for long".into();
                            return Err(SessionError::Ended { address: "a client".into(), why });
                        }
                    }
                    if is_last {
                        return Ok(());
                    }
                }
                request = inbox.next() => match extend(&job, request?).await {
                    // Its deliveries end soon.
                    Ok(true) | Err(ServiceError::Stopping) => {}
                    Ok(false) => {
                        let why =
                            "an attached job needs a connection of its own for other requests";
                        return self.send(Ok(ToClient::Refused(why.into()))).await;
                    }
                    Err(why) => return self.send(Err(why)).await,
                },
            }
        }
    }

    /// Sends the state of a push until it is over, or once if the client does not wait for it. A
    /// client that goes away ends its session, and with it the push.
    async fn push(&mut self, request: PushRequest, inbox: &mut Inbox) -> Result<(), SessionError> {
        let wait = request.wait;
        let mut view = match self.service.push(request).await {
            Ok(view) => view,
            Err(why) => return self.send(Err(why)).await,
        };
        loop {
            let now = Box::new(view.borrow_and_update().clone());
            if now.is_over {
                return self.send(Ok(ToClient::Pushed(now))).await;
            }
            self.send(Ok(ToClient::Pushing(now))).await?;
            if !wait {
                return Ok(());
            }
            tokio::select! {
                changed = view.changed() => if changed.is_err() {
                    return self.send(Err(ServiceError::Stopping)).await;
                },
                gone = inbox.client_leaves() => return Err(gone),
            }
        }
    }
}

fn message_of_nodes(found: FilesNodes) -> ToClient {
    let FilesNodes { nodes, has_files, are_returning } = found;
    ToClient::FilesNodes { nodes, has_files, are_returning }
}

/// An event of a watch as it is sent. The client counts results itself: they come in order, from
/// the number on that it has asked for.
fn message_of(event: JobWatchEvent) -> ToClient {
    match event {
        JobWatchEvent::Failures(failures) => ToClient::Failures(failures),
        JobWatchEvent::Results(NumberedResults { results, outputs: None, .. }) => {
            ToClient::Results(results)
        }
        JobWatchEvent::Results(NumberedResults {
            results, outputs: Some((file, outputs)), ..
        }) => ToClient::ResultsHere(Box::new(ResultsHere { results, file, outputs })),
        JobWatchEvent::Progress(view) => ToClient::Progress(view),
        JobWatchEvent::Over(view) => ToClient::Over(view),
    }
}

/// Passes on a request of the client of an attached job. Returns whether it is one that such a
/// client may send.
async fn extend(job: &AttachedJob, request: FromClient) -> Answer<bool> {
    match request {
        FromClient::Templates(templates) => job.add_templates(templates).await?,
        FromClient::Objects(objects) => job.add_objects(objects).await?,
        FromClient::Items(items) => job.add_tasks(items).await?,
        FromClient::Unneeded { tasks } => job.release(tasks).await?,
        FromClient::CancelWaiting => job.cancel_waiting().await?,
        FromClient::Close => job.close().await?,
        FromClient::Cancel { job: named, task } if named == job.id() => job.cancel(task).await?,
        _ => return Ok(false),
    }
    Ok(true)
}
