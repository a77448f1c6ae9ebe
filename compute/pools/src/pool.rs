//! One pool: the shell around its decider. It writes the pool's files and reads what nodes have
//! left there.
//!
//! Files are written at once, in the order that the decider says; what else is to be done is
//! returned as [`PoolAction`]s. It must never decide what becomes of a request.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use eyas_provision::{
    BatchJobId, BatchReport, BatchState, FittingWork, NodeShape, NodeTraces, OutstandingWork,
    PoolConfig, PoolCounts, PoolDecider, PoolEffect, PoolEvent, PoolNodeState, PoolRequest,
    PoolStatus, RememberedRequest, SavedPool, SubmissionAnswer,
};
use eyas_wire::pool::PoolOptions;
use eyas_wire::view::pool::PoolEventView;

use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, Submission};
use crate::cluster::PoolOrder;
use crate::request::{self, BatchJob, HOST_FILE, RequestPlan, SCRIPT, TRIED_MARK};
use crate::store::{self, PoolFolder, StoredPool};

#[cfg(test)]
pub(crate) mod tests;
mod views;

/// Things that happened, which a pool remembers.
const MAX_EVENTS: usize = 64;
/// Bytes of a node's messages that are shown when it fails.
const TAIL_BYTES: u64 = 1_000;

/// What the actor is to do for a pool.
#[derive(Debug)]
pub(crate) enum PoolAction {
    Submit(RequestPlan),
    Withdraw(Vec<BatchJob>),
    Order(PoolOrder),
}

pub(crate) struct Pool {
    pub name: String,
    pub options: Arc<PoolOptions>,
    pub system: Arc<dyn BatchSystem>,
    folder: PoolFolder,
    eyas: std::path::PathBuf,
    decider: PoolDecider,
    events: VecDeque<PoolEventView>,
}

impl Pool {
    /// A new pool, which is on disk when this returns.
    pub fn add(
        pools: &Path,
        name: &str,
        options: PoolOptions,
        system: Arc<dyn BatchSystem>,
        eyas: &Path,
        now_us: u64,
    ) -> Result<Self, BatchError> {
        let saved = SavedPool { paused: None, is_closing: false, counts: PoolCounts::default() };
        let stored = StoredPool::new(saved, options);
        let folder = PoolFolder::of(pools, name);
        folder.save(&stored)?;
        Ok(Pool::new(folder, name, stored, BTreeMap::new(), system, eyas, now_us))
    }

    /// A pool that is on disk, with its requests.
    pub fn load(
        pools: &Path,
        name: &str,
        stored: StoredPool,
        system: Arc<dyn BatchSystem>,
        eyas: &Path,
        now_us: u64,
    ) -> Self {
        let folder = PoolFolder::of(pools, name);
        let remembered = |(number, request)| {
            let has_script = folder.request(number).join(SCRIPT).exists();
            (number, RememberedRequest { request, has_script })
        };
        let requests = folder.load_requests().into_iter().map(remembered).collect();
        Pool::new(folder, name, stored, requests, system, eyas, now_us)
    }

    fn new(
        folder: PoolFolder,
        name: &str,
        stored: StoredPool,
        requests: BTreeMap<u64, RememberedRequest>,
        system: Arc<dyn BatchSystem>,
        eyas: &Path,
        now_us: u64,
    ) -> Self {
        let (saved, options) = stored.into_parts();
        let decider = PoolDecider::new(now_us, config(name, &options), saved, requests);
        Pool {
            name: name.into(),
            options: Arc::new(options),
            system,
            folder,
            eyas: eyas.into(),
            decider,
            events: VecDeque::new(),
        }
    }

    pub fn folder(&self) -> &PoolFolder {
        &self.folder
    }

    // ---- what the decider is told

    /// Has the decider take note of an event, and carries out what follows.
    pub fn handle(&mut self, now_us: u64, event: PoolEvent, actions: &mut Vec<PoolAction>) {
        let mut effects = Vec::new();
        self.decider.handle(now_us, event, &mut effects);
        for effect in effects {
            self.act(now_us, effect, actions);
        }
    }

    /// Takes note of the nodes of the pool that are connected now.
    pub fn see_nodes(
        &mut self,
        now_us: u64,
        seen: Vec<PoolNodeState>,
        actions: &mut Vec<PoolAction>,
    ) {
        self.handle(now_us, PoolEvent::NodesSeen(seen), actions);
    }

    /// Tells the decider how much work there is for this pool.
    pub fn see_work(
        &mut self,
        now_us: u64,
        fitting: FittingWork,
        measured: OutstandingWork,
        actions: &mut Vec<PoolAction>,
    ) {
        self.handle(now_us, PoolEvent::Work { fitting, measured }, actions);
    }

    /// A request was submitted, or refused, or neither is known.
    pub fn submitted(
        &mut self,
        now_us: u64,
        number: u64,
        submission: Submission,
        actions: &mut Vec<PoolAction>,
    ) {
        let answer = match submission {
            Submission::Accepted(job) => SubmissionAnswer::Accepted(job.into_id()),
            Submission::Refused(why) => SubmissionAnswer::Refused(why.to_string()),
            Submission::Unclear(why) => SubmissionAnswer::Unclear(why.to_string()),
        };
        self.handle(now_us, PoolEvent::Submitted { request: number, answer }, actions);
    }

    /// The batch system was asked for an unclear request.
    pub fn looked_for(
        &mut self,
        now_us: u64,
        number: u64,
        answer: Result<Option<BatchJob>, BatchError>,
        actions: &mut Vec<PoolAction>,
    ) {
        let event = match answer {
            Ok(Some(job)) => PoolEvent::Found { request: number, job: job.into_id() },
            Err(why) if why.leaves_open() => PoolEvent::StatesUnknown { why: why.to_string() },
            Err(why) => PoolEvent::LookFailed {
                request: number,
                why: why.to_string(),
                traces: self.traces(number),
            },
            Ok(None) => PoolEvent::NotFound { request: number, traces: self.traces(number) },
        };
        self.handle(now_us, event, actions);
    }

    /// The batch system did not say the states of requests.
    pub fn states_unknown(&mut self, now_us: u64, why: &BatchError, actions: &mut Vec<PoolAction>) {
        self.handle(now_us, PoolEvent::StatesUnknown { why: why.to_string() }, actions);
    }

    /// The batch system has said how a request stands.
    pub fn see_state(
        &mut self,
        now_us: u64,
        number: u64,
        report: BatchReport,
        actions: &mut Vec<PoolAction>,
    ) {
        let has_no_node =
            self.decider.request_of(number).is_some_and(|request| request.joined == 0);
        let may_end = match &report.state {
            BatchState::Pending(_) => false,
            BatchState::Starting(_) | BatchState::Running => has_no_node,
            BatchState::Ended(_) | BatchState::Unknown => true,
        };
        let traces = if may_end { self.traces(number) } else { NodeTraces::default() };
        self.handle(now_us, PoolEvent::StateSeen { request: number, report, traces }, actions);
    }

    /// Hosts on which the batch system could start no node, and why.
    pub fn pass_over(
        &mut self,
        now_us: u64,
        hosts: Vec<(String, String)>,
        actions: &mut Vec<PoolAction>,
    ) {
        self.handle(now_us, PoolEvent::HostsFailed(hosts), actions);
    }

    /// Changes whether the pool requests nodes.
    pub fn set_status(&mut self, now_us: u64, status: PoolStatus, actions: &mut Vec<PoolAction>) {
        self.handle(now_us, PoolEvent::StatusSet(status), actions);
    }

    /// What the nodes of a request have left in its folder.
    fn traces(&self, number: u64) -> NodeTraces {
        let folder = self.folder.request(number);
        let text = store::end_of(&folder.join("stderr"), TAIL_BYTES).unwrap_or_default();
        let mut last: Vec<_> = text.lines().rev().take(3).map(str::trim).collect();
        last.reverse();
        let host = std::fs::read_to_string(folder.join(HOST_FILE)).ok();
        let host = host.map(|host| host.trim().to_owned()).filter(|host| is_host_name(host));
        NodeTraces { said: last.join("; "), host }
    }

    // ---- what the decider says

    fn act(&mut self, now_us: u64, effect: PoolEffect, actions: &mut Vec<PoolAction>) {
        match effect {
            PoolEffect::SavePool(saved) => {
                // The pool goes on in memory.
                if let Err(why) = self.folder.save(&StoredPool::new(saved, (*self.options).clone()))
                {
                    tracing::error!("pool {} is not kept on disk: {why}", self.name);
                }
            }
            PoolEffect::SaveRequest { request, state } => {
                if let Err(why) = request::save(&state, &self.folder.request(request)) {
                    tracing::warn!(
                        "request {request} of pool {} is not kept on disk: {why}",
                        self.name
                    );
                }
            }
            // A job of which the batch system does not tell ends at once if it starts without an
            // access file.
            PoolEffect::ShutOut { request } => {
                _ = std::fs::remove_file(request::access(&self.folder.request(request)))
            }
            PoolEffect::ForgetRequest { request } => self.folder.remove_request(request),
            PoolEffect::Submit { request, nodes, mark, excluded } => {
                actions.push(PoolAction::Submit(self.plan_of(request, nodes, mark, excluded)));
            }
            PoolEffect::Withdraw(jobs) => {
                let jobs = jobs.into_iter().map(|(number, job)| self.job(number, job)).collect();
                actions.push(PoolAction::Withdraw(jobs));
            }
            PoolEffect::Drain { node } => {
                actions.push(PoolAction::Order(PoolOrder::Drain { executor: node }))
            }
            PoolEffect::Release { node } => {
                actions.push(PoolAction::Order(PoolOrder::Release { executor: node }))
            }
            PoolEffect::Note(text) => self.note(now_us, text),
        }
    }

    fn note(&mut self, now_us: u64, text: String) {
        tracing::info!(pool = self.name, "{text}");
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(PoolEventView { unix_ms: now_us / 1000, text });
    }

    fn plan_of(&self, number: u64, nodes: u32, mark: String, excluded: Vec<String>) -> RequestPlan {
        RequestPlan {
            pool: self.name.clone(),
            number,
            nodes,
            mark,
            options: self.options.clone(),
            excluded,
            folder: self.folder.request(number),
            eyas: self.eyas.clone(),
        }
    }

    fn job(&self, number: u64, id: BatchJobId) -> BatchJob {
        BatchJob { id: id.id, cluster: id.cluster, folder: self.folder.request(number) }
    }

    // ---- what the actor asks

    /// The plan of a request that is made now and never submitted.
    pub fn tried_plan(&self, now_us: u64, number: u64) -> RequestPlan {
        self.plan_of(number, 1, TRIED_MARK.into(), self.decider.excluded(now_us))
    }

    /// When something may be due, microseconds since 1970.
    pub fn next_timeout(&self) -> Option<u64> {
        self.decider.next_timeout()
    }

    pub fn status(&self) -> &PoolStatus {
        self.decider.status()
    }

    /// Whether a pool that is being removed has no node and no request left.
    pub fn is_closed(&self) -> bool {
        self.decider.is_closed()
    }

    /// The nodes that the pool can get.
    pub fn shape(&self) -> NodeShape {
        self.decider.shape()
    }

    /// Whether the pool can have more nodes than it has now, and its last request has not failed.
    pub fn can_grow(&self, now_us: u64) -> bool {
        self.decider.can_grow(now_us)
    }

    pub fn has_request(&self, number: u64) -> bool {
        self.decider.request_of(number).is_some()
    }

    pub fn newest_request(&self) -> Option<u64> {
        self.decider.newest_request()
    }

    /// Whether the batch system has requests, or may have them.
    pub fn has_open(&self) -> bool {
        self.decider.has_open()
    }

    /// Requests whose state the batch system is to be asked for.
    pub fn open_jobs(&self) -> impl Iterator<Item = (u64, BatchJob)> {
        self.decider.open_jobs().map(|(number, job)| (number, self.job(number, job.clone())))
    }

    /// Submitted requests that have not ended and of which no node is connected.
    pub fn jobs_without_nodes(&self) -> Vec<BatchJob> {
        self.decider
            .jobs_without_nodes()
            .map(|(number, job)| self.job(number, job.clone()))
            .collect()
    }

    /// Requests that are to be looked for by their names. A request without a script was not
    /// submitted.
    pub fn unclear(&self, now_us: u64) -> impl Iterator<Item = RequestPlan> {
        let plan = move |(number, request): (u64, &PoolRequest)| {
            self.plan_of(number, request.nodes, request.mark.clone(), self.decider.excluded(now_us))
        };
        self.decider.unclear().map(plan).filter(|plan| plan.script().exists())
    }
}

fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// The part of a pool's options that decides.
fn config(name: &str, options: &PoolOptions) -> PoolConfig {
    PoolConfig {
        name: name.into(),
        seed: request::random(),
        policy: options.policy,
        min_nodes: options.min_nodes,
        max_nodes: options.max_nodes,
        backlog: options.backlog,
        nodes_per_request: options.nodes_per_request,
        time_limit_us: options.time_limit_us,
        idle_timeout_us: options.idle_timeout_us,
        keep_us: options.keep_us,
        target_us: options.target_us,
        join_timeout_us: options.join_timeout_us,
        max_node_hours: options.max_node_hours,
        max_cost: options.max_cost,
        price: options.price,
        labels: options.labels.clone(),
        cpus: options.cpus,
        memory_bytes: options.memory_bytes,
        resources: options.resources.clone(),
    }
}
