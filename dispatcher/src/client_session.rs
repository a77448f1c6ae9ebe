//! A session with a client: one request at a time, a submission in parts, a watch until its job has ended.

use eyas_session::{Reader, Session, SessionError, Writer};
use eyas_types::JobId;
use eyas_wire::client::{FromClient, PushRequest, ToClient};
use tokio::sync::{mpsc, oneshot};

use crate::brain::Message;
use crate::job::JobSpec;
use crate::journal::Journal;

/// Journal entries read at a time for a watcher.
const ENTRIES_AT_ONCE: u64 = 8;

struct Client {
    writer: Writer,
    brain: mpsc::Sender<Message>,
    journal: Journal,
    /// A submission that has begun, or what is wrong with it.
    submission: Option<Result<JobSpec, String>>,
}

/// Serves one client until its connection ends, or the brain does.
pub(crate) async fn serve(
    session: Session,
    brain: mpsc::Sender<Message>,
    journal: Journal,
) -> Result<(), SessionError> {
    let Session { mut reader, writer, .. } = session;
    let mut client = Client { writer, brain, journal, submission: None };
    loop {
        let requests = tokio::select! {
            requests = reader.next::<FromClient>() => requests?,
            () = client.brain.closed() => return Ok(()),
        };
        for request in requests {
            client.serve(request, &mut reader).await?;
        }
    }
}

impl Client {
    async fn serve(&mut self, request: FromClient, reader: &mut Reader) -> Result<(), SessionError> {
        match request {
            FromClient::Submit { name, templates, reuse, broadcast, distribution } => {
                let spec = JobSpec { name, templates, reuse, broadcast, distribution, ..JobSpec::default() };
                self.submission = Some(Ok(spec));
                Ok(())
            }
            FromClient::Objects(objects) => {
                if let Some(Ok(spec)) = &mut self.submission
                    && let Err(e) = spec.push_objects(objects)
                {
                    self.submission = Some(Err(e.to_string()));
                }
                Ok(())
            }
            FromClient::Items(items) => {
                if let Some(Ok(spec)) = &mut self.submission
                    && let Err(e) = spec.push(&items)
                {
                    self.submission = Some(Err(e.to_string()));
                }
                Ok(())
            }
            FromClient::Commit => {
                let answer = self.commit().await;
                self.writer.send(&[answer]).await
            }
            FromClient::Watch { job, from, results } => self.watch(job, from, results, reader).await,
            FromClient::Push(request) => self.push(request, reader).await,
            request => {
                let (reply, answer) = oneshot::channel();
                let answer = self.ask(Message::Asked { request, reply }, answer).await;
                self.writer.send(&[answer.unwrap_or_else(stopping)]).await
            }
        }
    }

    async fn commit(&mut self) -> ToClient {
        let mut spec = match self.submission.take() {
            Some(Ok(spec)) => spec,
            Some(Err(why)) => return ToClient::Refused(why),
            None => return ToClient::Refused("a submission begins with `Submit`".into()),
        };
        // A million tasks take a while to check.
        let checked = tokio::task::spawn_blocking(move || spec.validate().map(|()| spec)).await;
        match checked {
            Ok(Ok(spec)) => {
                let (reply, answer) = oneshot::channel();
                self.ask(Message::Submitted { spec: Box::new(spec), reply }, answer).await.unwrap_or_else(stopping)
            }
            Ok(Err(e)) => ToClient::Refused(e.to_string()),
            Err(_) => ToClient::Refused("the job could not be checked; see the dispatcher's log".into()),
        }
    }

    async fn ask<T>(&self, message: Message, answer: oneshot::Receiver<T>) -> Option<T> {
        self.brain.send(message).await.ok()?;
        answer.await.ok()
    }

    async fn watch(&mut self, job: JobId, from: u64, results: bool, reader: &mut Reader) -> Result<(), SessionError> {
        let (reply, answer) = oneshot::channel();
        let Some(Some(mut standing)) = self.ask(Message::Watched { job, reply }, answer).await else {
            let why = format!("there is no job {job}: `eyas job list` shows those there are");
            return self.writer.send(&[ToClient::Refused(why)]).await;
        };
        let (mut entry, mut skip) = (0, from);
        loop {
            let now = standing.borrow_and_update().clone();
            while results && entry < now.entries {
                let to = now.entries.min(entry + ENTRIES_AT_ONCE);
                self.send_entries(job, entry, to, &mut skip).await?;
                entry = to;
            }
            let view = Box::new(now.view);
            if now.is_over {
                return self.writer.send(&[ToClient::Over(view)]).await;
            }
            self.writer.send(&[ToClient::Progress(view)]).await?;
            // A client that goes away ends the watch, and with it the session.
            tokio::select! {
                changed = standing.changed() => if changed.is_err() {
                    return self.writer.send(&[stopping()]).await;
                },
                said = reader.next::<FromClient>() => {
                    said?;
                }
            }
        }
    }

    /// Tells how far a push is until it is over, or once if nobody waits for it.
    async fn push(&mut self, request: PushRequest, reader: &mut Reader) -> Result<(), SessionError> {
        let (reply, answer) = oneshot::channel();
        let wait = request.wait;
        let mut view = match self.ask(Message::Push { request, reply }, answer).await {
            Some(Ok(view)) => view,
            Some(Err(why)) => return self.writer.send(&[ToClient::Refused(why)]).await,
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
                said = reader.next::<FromClient>() => {
                    said?;
                }
            }
        }
    }

    async fn send_entries(&mut self, job: JobId, from: u64, to: u64, skip: &mut u64) -> Result<(), SessionError> {
        let journal = self.journal.clone();
        let read = tokio::task::spawn_blocking(move || journal.read(job, from, to)).await;
        let entries = match read {
            Ok(Ok(entries)) => entries,
            Ok(Err(why)) => return self.writer.send(&[ToClient::Refused(why)]).await,
            Err(_) => return self.writer.send(&[ToClient::Refused("results cannot be read".into())]).await,
        };
        for entry in entries {
            let mut results = entry.into_results();
            let skipped = (results.len() as u64).min(*skip);
            *skip -= skipped;
            results.drain(..skipped as usize);
            if !results.is_empty() {
                self.writer.send(&[ToClient::Results(results)]).await?;
            }
        }
        Ok(())
    }
}

fn stopping() -> ToClient {
    ToClient::Refused("the cluster is stopping".into())
}
