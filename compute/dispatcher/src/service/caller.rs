//! The service as a caller with a key or a token has it: calls are checked, and passed to the owner
//! of the state.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use eyas_jobs::NewJob;
use eyas_pools::PoolsAnswer;
use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_types::course::{JobOwner, MAX_USER_BYTES};
use eyas_types::{JobId, Name, NameChange, ObjectId, ObjectSpec, TaskId, TaskResult};
use eyas_wire::client::{
    EventPosition, GraphPart, InputsPart, KeptPart, NamesQuery, PushRequest, TracePart,
};
use eyas_wire::pool::PoolsRequest;
use eyas_wire::printed::{Printed, PrintedPosition};
use eyas_wire::trust::SecretText;
use eyas_wire::view::{
    ExecutorView, Explanation, FailureView, JobReport, JobView, KeyView, NamedFileView, ObjectView,
    PushView, TaskView,
};
use tokio::sync::watch;

use super::attached_job::AttachedJob;
use super::deliveries::deliveries;
use super::handle::DispatcherHandle;
use super::watch::JobWatch;
use super::{
    Answer, CheckedJob, FilesNodes, Service, ServiceError, StoppingCluster, TaskQuery,
    WatchedResults,
};
use crate::answers::{Explainer, changes, graph};
use crate::dispatcher_core::DispatcherCore;
use crate::events::EventStream;
use crate::keys::{Keys, KeysError};
use crate::names::NamesError;
use crate::rights::{RequiredRight, check};

/// Jobs with more [weight](eyas_jobs::JobSpec::weight) are written to the log and prepared before
/// the owner of the state hears of them.
const MAX_WEIGHT_AT_ONCE: usize = 10_000;

/// One caller: the holder of a key or token.
#[derive(Clone)]
pub struct Caller {
    dispatcher: DispatcherHandle,
    holder: Principal,
}

impl Caller {
    /// The service for the holder of a key or token, who has proven it.
    pub(crate) fn new(dispatcher: DispatcherHandle, holder: Principal) -> Self {
        Caller { dispatcher, holder }
    }

    fn permit(&self, need: RequiredRight) -> Answer<&DispatcherHandle> {
        let has_files = |job| self.dispatcher.keys.have_files(job);
        check(self.holder, need, has_files)?;
        Ok(&self.dispatcher)
    }

    /// The owner of jobs that this caller submits for a user.
    fn owner(&self, user: String) -> Answer<JobOwner> {
        if user.len() > MAX_USER_BYTES {
            return Err(ServiceError::LongUserName);
        }
        let key = match self.holder {
            Principal::Key(key, _) => Some(key),
            Principal::Job(_) | Principal::Dispatcher => None,
        };
        Ok(JobOwner { user, key })
    }

    /// Has the keys do what needs the disk.
    async fn with_keys<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Keys) -> Result<T, KeysError> + Send + 'static,
    ) -> Answer<T> {
        let keys = self.permit(RequiredRight::Admin)?.keys.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&keys)).await;
        Ok(answer.map_err(|_| ServiceError::KeysUnchanged)??)
    }

    /// Returns when the dispatcher has ended.
    pub(crate) async fn dispatcher_ends(&self) {
        self.dispatcher.calls.closed().await;
    }

    /// Who calls.
    pub(crate) fn holder(&self) -> Principal {
        self.holder
    }
}

impl Service for Caller {
    fn may_submit(&self) -> Answer<()> {
        self.permit(RequiredRight::Submit).map(drop)
    }

    async fn submit(&self, mut job: CheckedJob) -> Answer<JobId> {
        let dispatcher = self.permit(RequiredRight::Submit)?;
        job.0.owner = self.owner(std::mem::take(&mut job.0.owner.user))?;
        let (new, stored) = match job.0.weight() > MAX_WEIGHT_AT_ONCE {
            true => {
                let log = dispatcher.log.clone();
                let prepared = tokio::task::spawn_blocking(move || {
                    let stored = log.store(&job.0)?;
                    job.0.stored = Some(stored.number());
                    Some((NewJob::new(*job.0), Some(stored)))
                });
                prepared.await.ok().flatten().ok_or(ServiceError::Stopping)?
            }
            false => (NewJob::new(*job.0), None),
        };
        dispatcher.ask_durably(|core| core.submit(new, stored)).await?
    }

    async fn attach(&self, name: String, user: String) -> Answer<AttachedJob> {
        let dispatcher = self.permit(RequiredRight::Submit)?;
        let owner = self.owner(user)?;
        let (queue, deliveries) = deliveries();
        let handle = dispatcher.clone();
        // A caller that goes away meanwhile drops the job's handle, and so ends the job.
        dispatcher
            .ask(|core| Ok(AttachedJob::new(core.attach(name, owner, queue)?, handle, deliveries)))
            .await
    }

    async fn jobs(&self) -> Answer<Vec<JobView>> {
        let views = |core: &mut DispatcherCore| {
            let views = core.views().jobs();
            core.write_results();
            views
        };
        self.permit(RequiredRight::Read)?.ask_durably(views).await
    }

    async fn job(&self, job: JobId) -> Answer<JobView> {
        self.permit(RequiredRight::Job(job))?
            .ask_of_job(job, move |core| Ok(core.views().of_job(core.views().job(job)?)))
            .await
    }

    async fn tasks(&self, job: JobId, query: TaskQuery) -> Answer<Vec<TaskView>> {
        let tasks =
            move |core: &mut DispatcherCore| Ok(core.views().tasks(core.views().job(job)?, query));
        self.permit(RequiredRight::Job(job))?.ask_of_job(job, tasks).await
    }

    async fn failures(&self, job: JobId, tasks: Vec<u32>) -> Answer<Vec<FailureView>> {
        self.permit(RequiredRight::Job(job))?.failures(job, tasks).await
    }

    async fn result(&self, task: TaskId) -> Answer<Option<TaskResult>> {
        self.permit(RequiredRight::Job(task.job))?
            .ask_of_job(task.job, move |core| core.views().result(task))
            .await
    }

    async fn printed(&self, task: TaskId, from: PrintedPosition) -> Answer<Printed> {
        let asked = self
            .permit(RequiredRight::Job(task.job))?
            .ask_of_job(task.job, move |core| core.read_printed(task, from))
            .await?;
        Ok(asked.settled().await)
    }

    async fn explain(&self, task: TaskId) -> Answer<Explanation> {
        self.permit(RequiredRight::Job(task.job))?
            .ask_of_job(task.job, move |core| Explainer(core.views()).explain(task))
            .await
    }

    async fn report(&self, job: JobId) -> Answer<JobReport> {
        self.permit(RequiredRight::Job(job))?
            .ask_of_job(job, move |core| Ok(core.views().report(core.views().job(job)?)))
            .await
    }

    async fn trace(&self, job: JobId, from: u32) -> Answer<TracePart> {
        self.permit(RequiredRight::Job(job))?
            .ask_of_job(job, move |core| Ok(core.views().trace(core.views().job(job)?, from)?))
            .await
    }

    async fn graph(&self, job: JobId, from: u32) -> Answer<GraphPart> {
        self.permit(RequiredRight::Job(job))?
            .ask_of_job(job, move |core| Ok(graph::part(core.views().job(job)?, from)))
            .await
    }

    async fn inputs(&self, job: JobId, from: u32) -> Answer<InputsPart> {
        self.permit(RequiredRight::Job(job))?
            .ask_of_job(job, move |core| changes::inputs(core.views().job(job)?, from))
            .await
    }

    async fn kept(
        &self,
        job: JobId,
        tasks: Range<u32>,
        doubted: Vec<ObjectId>,
    ) -> Answer<KeptPart> {
        self.permit(RequiredRight::Job(job))?
            .ask_of_job(job, move |core| core.kept(job, tasks, &doubted))
            .await
    }

    async fn watch(&self, job: JobId, results: WatchedResults, from: u64) -> Answer<JobWatch> {
        let dispatcher = self.permit(RequiredRight::Job(job))?;
        let progress = dispatcher.ask(move |core| core.watch(job)).await?;
        Ok(JobWatch::new(dispatcher.clone(), job, progress, results, from))
    }

    async fn cancel(&self, job: JobId, task: Option<u32>) -> Answer<u64> {
        self.permit(RequiredRight::Submit)?
            .ask_of_job(job, move |core| core.change(job, |job| changes::cancel(job, task)))
            .await
    }

    async fn cancel_waiting(&self, job: JobId) -> Answer<u64> {
        self.permit(RequiredRight::Submit)?
            .ask_of_job(job, move |core| core.cancel_waiting(job))
            .await
    }

    async fn retry(&self, job: JobId, current: Vec<(u32, ObjectSpec)>) -> Answer<u64> {
        self.permit(RequiredRight::Submit)?
            .ask_of_job(job, move |core| core.change(job, |job| changes::retry(job, current)))
            .await
    }

    async fn release(&self, job: JobId) -> Answer<u64> {
        self.permit(RequiredRight::Submit)?
            .ask_of_job(job, move |core| core.change(job, changes::release))
            .await
    }

    async fn forget(&self, job: JobId) -> Answer<u64> {
        self.permit(RequiredRight::Submit)?
            .ask_of_job(job, move |core| core.change(job, changes::forget))
            .await
    }

    async fn executors(&self) -> Answer<Vec<ExecutorView>> {
        self.permit(RequiredRight::Read)?.ask(|core| Ok(core.views().executors())).await
    }

    async fn addresses(&self) -> Answer<Vec<SocketAddr>> {
        self.permit(RequiredRight::Read)?.ask(|core| Ok(core.executors.addresses())).await
    }

    async fn catalog(&self, object: Option<ObjectId>, source: Name) -> Answer<Vec<ObjectView>> {
        self.permit(RequiredRight::Read)?
            .ask(move |core| Ok(core.views().objects(object, &source)))
            .await
    }

    fn names(&self, query: NamesQuery) -> Answer<Vec<NamedFileView>> {
        Ok(self.permit(RequiredRight::Read)?.names.find(&query)?)
    }

    fn may_change_names(&self) -> Answer<()> {
        self.permit(RequiredRight::Submit).map(drop)
    }

    async fn change_names(&self, changes: Vec<NameChange>) -> Answer<u64> {
        let names = self.permit(RequiredRight::Submit)?.names.clone();
        let changed = tokio::task::spawn_blocking(move || names.change(&changes)).await;
        Ok(changed.map_err(|_| NamesError::Unchanged)??)
    }

    async fn push(&self, request: PushRequest) -> Answer<watch::Receiver<PushView>> {
        self.permit(RequiredRight::Submit)?.ask(|core| Ok(core.push(request)?)).await
    }

    async fn files_nodes(&self) -> Answer<FilesNodes> {
        self.permit(RequiredRight::Files)?.ask(|core| core.files_nodes()).await
    }

    async fn forget_files(&self) -> Answer<()> {
        self.permit(RequiredRight::Admin)?.ask(|core| core.forget_files()).await
    }

    async fn stop_executor(&self, executor: String) -> Answer<()> {
        self.permit(RequiredRight::Admin)?.ask(move |core| core.stop_executor(&executor)).await
    }

    async fn stop(&self) -> Answer<StoppingCluster> {
        self.permit(RequiredRight::Admin)?.ask(|core| Ok(core.stop())).await
    }

    fn events(&self, after: Option<EventPosition>) -> Answer<EventStream> {
        Ok(self.permit(RequiredRight::Read)?.events.stream(after))
    }

    async fn keys(&self) -> Answer<Vec<KeyView>> {
        self.with_keys(|keys| Ok(keys.views())).await
    }

    async fn issue_access(&self, role: KeyRole) -> Answer<SecretText> {
        self.with_keys(move |keys| keys.issue(role).map(SecretText)).await
    }

    async fn rotate_keys(&self, role: Option<KeyRole>, grace: Duration) -> Answer<Vec<KeyView>> {
        self.with_keys(move |keys| keys.rotate(role, grace)).await
    }

    async fn revoke_key(&self, key: KeyId) -> Answer<Vec<KeyView>> {
        self.with_keys(move |keys| keys.revoke(key)).await
    }

    async fn pools(&self, request: PoolsRequest) -> Answer<PoolsAnswer> {
        let need = if matches!(request, PoolsRequest::Show { .. }) {
            RequiredRight::Read
        } else {
            RequiredRight::Admin
        };
        Ok(self.permit(need)?.pools.ask(request).await?)
    }
}
