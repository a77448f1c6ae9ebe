//! A client's connection to a dispatcher.

use std::collections::VecDeque;

use eyas_session::{Access, Session, SessionError, dial};
use eyas_types::JobId;
use eyas_wire::Role;
use eyas_wire::client::{FromClient, SUBMISSION_PART, TaskResult, ToClient};
use eyas_wire::view::JobView;
use thiserror::Error;

use crate::draft::Draft;

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
}

/// What is seen of a watched job.
#[derive(Debug)]
pub enum Seen {
    /// Tasks that have ended.
    Results(Vec<TaskResult>),
    /// How it stands.
    Progress(Box<JobView>),
}

/// A connection to a dispatcher. It asks one thing at a time.
pub struct Client {
    session: Session,
    received: VecDeque<ToClient>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// If the dispatcher cannot be reached, or does not know this access file.
    pub async fn connect(access: &Access) -> Result<Self, ClientError> {
        Ok(Client { session: dial(access, Role::Client).await?, received: VecDeque::new() })
    }

    /// Asks anything but a submission or a watch.
    ///
    /// # Errors
    /// If it is refused, or the connection ends.
    pub async fn ask(&mut self, request: FromClient) -> Result<ToClient, ClientError> {
        self.session.writer.send(&[request]).await?;
        self.next().await
    }

    /// Submits a job. Once this returns, the job survives the dispatcher's end.
    ///
    /// # Errors
    /// If the job has a mistake, or the connection ends.
    pub async fn submit(&mut self, draft: Draft) -> Result<JobId, ClientError> {
        let Draft { name, templates, objects, items, .. } = draft;
        let writer = &mut self.session.writer;
        writer.send(&[FromClient::Submit { name, templates }]).await?;
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

    /// Watches a job to its end, and tells how it ended. With `results`, every result is seen once, those from before
    /// as well.
    ///
    /// # Errors
    /// If there is no such job, or the connection ends.
    pub async fn watch(
        &mut self,
        job: JobId,
        results: bool,
        mut see: impl FnMut(Seen),
    ) -> Result<JobView, ClientError> {
        self.session.writer.send(&[FromClient::Watch { job, from: 0, results }]).await?;
        loop {
            match self.next().await? {
                ToClient::Results(results) => see(Seen::Results(results)),
                ToClient::Progress(view) => see(Seen::Progress(view)),
                ToClient::Over(view) => return Ok(*view),
                _ => return Err(ClientError::Unexpected),
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
