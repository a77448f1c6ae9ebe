//! A job that a client sends in parts. It is checked and submitted when all parts have come, unless
//! the client withdraws it before.

use eyas_jobs::{JobSpec, SpecError};
use eyas_session::SessionError;
use eyas_types::course::JobOwner;
use eyas_wire::client::{FromClient, ToClient};

use super::inbox::Inbox;
use crate::service::{Answer, Caller, CheckedJob, Service, ServiceError};

/// The state of a submission.
pub(super) enum SubmissionInParts {
    /// There is none.
    None,
    /// Its parts are coming.
    Begun(Box<JobSpec>),
    /// The submission is refused, for this reason. Further parts are dropped.
    Wrong(ServiceError),
    /// The client has withdrawn it.
    Withdrawn,
}

impl SubmissionInParts {
    /// Takes a part of a submission. It is answered when the submission ends.
    pub async fn take(
        &mut self,
        part: FromClient,
        service: &Caller,
        inbox: &mut Inbox,
    ) -> Result<(), SessionError> {
        match part {
            FromClient::Submit { name, user, templates, reuse, broadcast, distribution, tasks } => {
                let owner = JobOwner { user, ..JobOwner::default() };
                let spec = JobSpec {
                    name,
                    owner,
                    templates,
                    reuse,
                    broadcast,
                    distribution,
                    ..JobSpec::default()
                };
                *self = match service.may_submit() {
                    Ok(()) => SubmissionInParts::Begun(Box::new(spec)),
                    Err(why) => SubmissionInParts::Wrong(why),
                };
                self.add(inbox, move |spec| spec.expect(tasks)).await
            }
            FromClient::Objects(objects) => {
                self.add(inbox, |spec| spec.push_objects(objects)).await
            }
            FromClient::Chunks(chunks) => {
                let push = move |spec: &mut JobSpec| {
                    spec.push_chunks(chunks);
                    Ok(())
                };
                self.add(inbox, push).await
            }
            FromClient::Items(items) => self.add(inbox, move |spec| spec.push(&items)).await,
            FromClient::Numbers { template, numbers } => {
                self.add(inbox, move |spec| spec.push_numbers(template, &numbers)).await
            }
            FromClient::HaltIfAllFail => {
                let halt = |spec: &mut JobSpec| {
                    spec.halts = true;
                    Ok(())
                };
                self.add(inbox, halt).await
            }
            _ => {
                *self = SubmissionInParts::Withdrawn;
                Ok(())
            }
        }
    }

    /// Ends the submission.
    pub async fn commit(
        &mut self,
        service: &Caller,
        inbox: &mut Inbox,
    ) -> Result<Answer<ToClient>, SessionError> {
        let spec = match std::mem::replace(self, SubmissionInParts::None) {
            SubmissionInParts::Begun(spec) => spec,
            SubmissionInParts::Wrong(why) => return Ok(Err(why)),
            SubmissionInParts::Withdrawn => return Ok(Ok(ToClient::Withdrawn)),
            SubmissionInParts::None => {
                let why = "a submission begins with `Submit` and ends with `Commit`";
                return Ok(Ok(ToClient::Refused(why.into())));
            }
        };
        let checking = tokio::task::spawn_blocking(move || CheckedJob::check(spec));
        let checked = tokio::select! {
            checked = checking => checked,
            withdrawn = inbox.withdraws() => return withdrawn.map(|()| Ok(ToClient::Withdrawn)),
        };
        Ok(match checked {
            Ok(Ok(job)) => service.submit(job).await.map(|job| ToClient::Accepted { job }),
            Ok(Err(why)) => Err(why.into()),
            Err(_) => Err(ServiceError::Unchecked),
        })
    }

    /// Adds to a sound submission. This may take a while for millions of tasks, during which the
    /// client may withdraw it, or go away.
    async fn add(
        &mut self,
        inbox: &mut Inbox,
        add: impl FnOnce(&mut JobSpec) -> Result<(), SpecError> + Send + 'static,
    ) -> Result<(), SessionError> {
        let mut spec = match std::mem::replace(self, SubmissionInParts::None) {
            SubmissionInParts::Begun(spec) => spec,
            other => {
                *self = other;
                return Ok(());
            }
        };
        let adding = tokio::task::spawn_blocking(move || add(&mut spec).map(|()| spec));
        *self = tokio::select! {
            added = adding => match added {
                Ok(Ok(spec)) => SubmissionInParts::Begun(spec),
                Ok(Err(why)) => SubmissionInParts::Wrong(why.into()),
                Err(_) => SubmissionInParts::Wrong(ServiceError::Unchecked),
            },
            withdrawn = inbox.withdraws() => withdrawn.map(|()| SubmissionInParts::Withdrawn)?,
        };
        Ok(())
    }
}
