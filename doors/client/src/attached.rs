//! Jobs that are attached to a connection: tasks are added while earlier ones run, and each result
//! comes at once.

use std::collections::{HashMap, VecDeque};

use eyas_session::{FrameReader, FrameWriter, Session};
use eyas_types::{Input, JobId, Name, ObjectId, ObjectSpec, TaskItem, TaskTemplate};
use eyas_wire::client::{FromClient, TaskResult, ToClient};
use eyas_wire::view::JobView;

use crate::client::Client;
use crate::client_error::ClientError;
use crate::clusters::Cluster;
use crate::draft::{Draft, DraftError};
use crate::users::name_of_user;

/// The sending half: adds to the job.
pub struct AttachedSender {
    job: JobId,
    /// The newest minor version of the protocol that both sides have.
    minor: u16,
    writer: FrameWriter,
}

/// The receiving half: results.
pub struct AttachedReceiver {
    reader: FrameReader,
    received: VecDeque<ToClient>,
}

/// The objects of an attached job.
pub struct AttachedInputs {
    /// Looks up what is asked for.
    draft: Draft,
    known: HashMap<ObjectId, u32>,
}

/// An event of an attached job.
#[derive(Debug)]
pub enum AttachedEvent {
    /// Tasks have ended.
    Results(Vec<TaskResult>),
    /// The job was closed, and all its tasks have ended.
    Over(Box<JobView>),
}

impl Client {
    /// Attaches a job without tasks to this connection. The job is in no journal: it is cancelled
    /// when the connection ends.
    ///
    /// # Errors
    /// If the dispatcher refuses the job, or the connection ends.
    pub async fn attach(
        mut self,
        name: String,
    ) -> Result<(JobId, AttachedSender, AttachedReceiver), ClientError> {
        let ToClient::Attached { job } =
            self.ask(FromClient::Attach { name, user: name_of_user() }).await?
        else {
            return Err(ClientError::Unexpected);
        };
        let (Session { reader, writer, minor, .. }, received) = self.into_session();
        Ok((job, AttachedSender { job, minor, writer }, AttachedReceiver { reader, received }))
    }
}

impl AttachedInputs {
    /// No objects so far. Files of the cluster and kept outputs can be inputs, too.
    pub fn new(cluster: &Cluster) -> Self {
        AttachedInputs { draft: Draft::new("").on_cluster(cluster), known: HashMap::new() }
    }

    /// The number of the object with this path or URL in its present version, and the object if the
    /// job does not have it yet.
    ///
    /// # Errors
    /// If the file or object is missing or cannot be read.
    pub async fn object(
        &mut self,
        path_or_url: &Name,
    ) -> Result<(u32, Option<ObjectSpec>), DraftError> {
        self.draft.forget_inputs();
        self.draft.input(path_or_url).await?;
        let object = self.draft.objects.remove(0);
        let (next, id) = (self.known.len() as u32, object.id());
        let number = *self.known.entry(id).or_insert(next);
        Ok((number, (number == next).then_some(object)))
    }
}

impl AttachedSender {
    /// Adds templates behind those that the job has, then objects, then tasks. Tasks may read
    /// outputs of earlier tasks. What is wrong with them is told by [`AttachedReceiver::next`].
    ///
    /// # Errors
    /// If the connection has ended, or the dispatcher is of an earlier version than the templates
    /// need.
    pub async fn add(
        &mut self,
        templates: Vec<TaskTemplate>,
        objects: Vec<ObjectSpec>,
        items: Vec<TaskItem>,
    ) -> Result<(), ClientError> {
        let derives = || {
            let of_templates = templates.iter().flat_map(|template| &template.inputs);
            let of_items = items.iter().flat_map(|item| &item.inputs);
            of_templates.chain(of_items).any(Input::is_derived)
        };
        crate::client::check_minor(self.minor, &templates, derives)?;
        let mut messages = Vec::new();
        if !templates.is_empty() {
            messages.push(FromClient::Templates(templates));
        }
        if !objects.is_empty() {
            messages.push(FromClient::Objects(objects));
        }
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            messages.push(FromClient::Items(crate::client::part_of(&mut items)));
        }
        Ok(self.writer.send(&messages).await?)
    }

    /// Whether more can be sent: false if the connection has failed.
    pub fn is_whole(&self) -> bool {
        self.writer.is_whole()
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn cancel(&mut self, task: u32) -> Result<(), ClientError> {
        Ok(self.writer.send(&[FromClient::Cancel { job: self.job, task: Some(task) }]).await?)
    }

    /// Tells that neither the client nor tasks that it adds need outputs of these tasks.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn unneeded(&mut self, tasks: Vec<u32>) -> Result<(), ClientError> {
        Ok(self.writer.send(&[FromClient::Unneeded { tasks }]).await?)
    }

    /// Cancels the tasks that no executor has.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn cancel_waiting(&mut self) -> Result<(), ClientError> {
        Ok(self.writer.send(&[FromClient::CancelWaiting]).await?)
    }

    /// Adds nothing more.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn close(&mut self) -> Result<(), ClientError> {
        Ok(self.writer.send(&[FromClient::Close]).await?)
    }
}

impl AttachedReceiver {
    /// The next event. A future that is dropped before its end may lose a part of a message.
    ///
    /// # Errors
    /// If what was added is wrong, or the connection has ended.
    pub async fn next(&mut self) -> Result<AttachedEvent, ClientError> {
        loop {
            match self.received.pop_front() {
                Some(ToClient::Results(results)) => return Ok(AttachedEvent::Results(results)),
                Some(ToClient::Over(view)) => return Ok(AttachedEvent::Over(view)),
                Some(ToClient::Refused(why)) => return Err(ClientError::Refused(why)),
                Some(_) => return Err(ClientError::Unexpected),
                None => self.received.extend(self.reader.next().await?),
            }
        }
    }
}
