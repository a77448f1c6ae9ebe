//! The actor of all pools: one task that answers clients, asks batch systems for states, and tells
//! each pool its work.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eyas_provision::{
    BatchReport, NodeShape, PoolEvent, PoolNodeState, PoolOffer, PoolStatus, share_work,
};
use eyas_wire::pool::{PoolOptions, PoolsRequest, RequestFile};
use eyas_wire::view::pool::PoolView;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::batch_error::BatchError;
use crate::batch_system::{self, BatchSystem, Submission};
use crate::clock::PoolClock;
use crate::cluster::{ClusterState, MAX_POOLS, PoolOrder};
use crate::pool::{Pool, PoolAction};
use crate::request::{BatchJob, RequestPlan, TRIED_MARK};
use crate::script;
use crate::store::{self, PoolFolder};
use crate::systems;

mod answers;
#[cfg(test)]
mod tests;

/// Requests of clients that wait for the actor.
const MAX_WAITING: usize = 64;
/// Commands that submit or withdraw requests at the same time.
const MAX_COMMANDS: usize = 4;
/// Length of a pool's name.
const MAX_NAME: usize = 64;
/// Bytes of a log that are sent, from its end.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Time to withdraw requests when the cluster stops. `eyas stop` waits 30 s.
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// Commands that run when the cluster stops are ended after this time. What they have submitted is
/// looked for.
const COMMANDS_DEADLINE: Duration = Duration::from_secs(5);
/// Time between two looks whether all commands have ended, when the cluster stops.
const COMMANDS_PAUSE: Duration = Duration::from_millis(10);
/// Time after which deadlines of requests are checked.
const TICK_US: u64 = 1_000_000;
/// Number of the request in the plan that is tried and never submitted.
const TRIED: u64 = 0;

/// An access file for a new node.
pub type AccessIssuer = Arc<dyn Fn() -> Result<String, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// What pools need of the dispatcher's process.
pub struct PoolsConfig {
    /// The folder of all pools.
    pub folder: PathBuf,
    /// The `eyas` program, at the same path on all nodes.
    pub eyas: PathBuf,
    /// Writes the content of an access file with which executors join.
    pub issue_access: AccessIssuer,
}

/// Why a request about pools cannot be done.
#[derive(Debug, Error)]
pub enum PoolsError {
    /// There is no pool with this name.
    #[error("there is no pool `{0}`: `eyas pool list` shows the pools that there are")]
    NoSuchPool(String),
    /// The name is in use.
    #[error(
        "there is a pool `{0}` already: choose another name, or remove that pool first (`eyas \
         pool remove {0}`)"
    )]
    Exists(String),
    /// The name cannot be that of a folder.
    #[error("`{0}` cannot be the name of a pool: use 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    Name(String),
    /// The batch system is not known.
    #[error("there is no batch system `{name}`: eyas knows {known}")]
    NoSuchSystem {
        /// The name.
        name: String,
        /// The names that are known.
        known: String,
    },
    /// Options contradict each other.
    #[error("{0}")]
    Options(&'static str),
    /// There are too many pools.
    #[error(
        "there are {MAX_POOLS} pools already, which is the most that a cluster can have: remove \
         one first"
    )]
    TooMany,
    /// The pool has no such request.
    #[error("pool `{pool}` has no request {request}: `eyas pool show {pool}` lists its requests")]
    NoSuchRequest {
        /// Name of the pool.
        pool: String,
        /// Number of the request.
        request: u64,
    },
    /// The pool has not requested any nodes.
    #[error("pool `{0}` has not requested any nodes yet")]
    NoRequest(String),
    /// The batch system refuses requests of the pool.
    #[error("the pool was not added: {0}. To add it all the same, use --no-try")]
    Refused(BatchError),
    /// A command or a file failed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The dispatcher is ending.
    #[error("the cluster is stopping")]
    Stopping,
}

/// What the actor answers to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolsAnswer {
    /// Pools.
    Pools(Vec<PoolView>),
    /// What a node or a batch system has printed, a part of it if it is long.
    Text(String),
    /// It is done.
    Done,
}

type Reply = oneshot::Sender<Result<PoolsAnswer, PoolsError>>;

/// A connection to the actor.
#[derive(Clone)]
pub struct PoolsHandle {
    inbox: mpsc::Sender<(PoolsRequest, Reply)>,
    views: watch::Receiver<Vec<PoolView>>,
}

impl PoolsHandle {
    /// Starts the actor, and takes up the pools in the folder. The task ends after the sender of
    /// `state` was dropped, or the cluster stops.
    pub fn start(
        config: PoolsConfig,
        state: watch::Receiver<ClusterState>,
        orders: mpsc::Sender<PoolOrder>,
    ) -> (Self, JoinHandle<()>) {
        let (inbox, requests) = mpsc::channel(MAX_WAITING);
        let (show, views) = watch::channel(Vec::new());
        let (finished, results) = mpsc::unbounded_channel();
        let actor = PoolsActor {
            config,
            pools: BTreeMap::new(),
            asks: BTreeMap::new(),
            orders,
            finished,
            commands: Arc::new(Semaphore::new(MAX_COMMANDS)),
            shapes: 0,
            told: Vec::new(),
            show,
            adding: BTreeSet::new(),
            answers: Vec::new(),
        };
        // The actor writes files, so it has a thread of its own: a slow disk must not delay the
        // dispatcher.
        let runtime = Handle::current();
        let work = tokio::task::spawn_blocking(move || {
            runtime.block_on(actor.run(requests, results, state))
        });
        (PoolsHandle { inbox, views }, work)
    }

    /// Has a request of a client done.
    ///
    /// # Errors
    /// If it cannot be done.
    pub async fn ask(&self, request: PoolsRequest) -> Result<PoolsAnswer, PoolsError> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send((request, reply)).await.map_err(|_| PoolsError::Stopping)?;
        answer.await.map_err(|_| PoolsError::Stopping)?
    }

    /// The pools as they are now, without their requests.
    pub fn views(&self) -> Vec<PoolView> {
        self.views.borrow().clone()
    }
}

/// What a task of a batch command has found. There is at most one of each kind for each request.
enum CommandResult {
    Submitted {
        pool: String,
        number: u64,
        answer: Submission,
        /// Hosts that were passed over, and why.
        failed_hosts: Vec<(String, String)>,
    },
    States {
        scope: Scope,
        asked: Vec<(String, u64)>,
        answer: Result<Vec<BatchReport>, BatchError>,
        /// Pools and numbers of unclear requests that were looked for.
        found: Vec<(String, u64, Result<Option<BatchJob>, BatchError>)>,
    },
    Tried {
        name: String,
        options: Box<PoolOptions>,
        answer: Result<String, BatchError>,
        reply: Reply,
    },
}

/// Requests that are asked for together: a batch system, and what its pools have in common.
type Scope = (String, String);

/// When the states of a scope are asked for.
#[derive(Default)]
struct StatePoll {
    next_us: u64,
    is_running: bool,
}

/// Requests of one scope whose states are asked for.
struct OpenJobs {
    system: Arc<dyn BatchSystem>,
    /// Pool and number of each request.
    asked: Vec<(String, u64)>,
    jobs: Vec<BatchJob>,
    /// Unclear requests, which are looked for.
    unclear: Vec<RequestPlan>,
}

impl OpenJobs {
    fn of(system: &Arc<dyn BatchSystem>) -> Self {
        OpenJobs {
            system: system.clone(),
            asked: Vec::new(),
            jobs: Vec::new(),
            unclear: Vec::new(),
        }
    }
}

struct PoolsActor {
    config: PoolsConfig,
    pools: BTreeMap<String, Pool>,
    asks: BTreeMap<Scope, StatePoll>,
    orders: mpsc::Sender<PoolOrder>,
    finished: mpsc::UnboundedSender<CommandResult>,
    commands: Arc<Semaphore>,
    /// The version of the shapes, and the shapes, that the dispatcher was told last.
    shapes: u64,
    told: Vec<NodeShape>,
    show: watch::Sender<Vec<PoolView>>,
    /// Names of pools whose options are being tried.
    adding: BTreeSet<String>,
    /// Answers to clients. They are sent when what they say is shown, and the dispatcher was told.
    answers: Vec<(Reply, Result<PoolsAnswer, PoolsError>)>,
}

impl PoolsActor {
    async fn run(
        mut self,
        mut requests: mpsc::Receiver<(PoolsRequest, Reply)>,
        mut results: mpsc::UnboundedReceiver<CommandResult>,
        mut state: watch::Receiver<ClusterState>,
    ) {
        let clock = PoolClock::new();
        self.take_up(clock.now_us());
        loop {
            let now_us = clock.now_us();
            self.ask_states(now_us);
            self.close_removed();
            self.tell_shapes().await;
            let views = self.pools.values().map(|pool| pool.view(now_us, false)).collect();
            self.show.send_replace(views);
            // A client may have gone away.
            self.answers.drain(..).for_each(|(reply, answer)| _ = reply.send(answer));
            let due_us = self.next_due_us(now_us);
            let due = async {
                match due_us {
                    Some(due_us) => {
                        tokio::time::sleep(Duration::from_micros(
                            due_us.saturating_sub(clock.now_us()),
                        ))
                        .await;
                    }
                    None => std::future::pending().await,
                }
            };
            let mut actions = Vec::new();
            tokio::select! {
                request = requests.recv() => match request {
                    Some((request, reply)) => {
                        self.answer(clock.now_us(), request, reply, &mut actions)
                    }
                    // The handles are gone with the dispatcher.
                    None => break,
                },
                Some(finished) = results.recv() => {
                    self.finished(clock.now_us(), finished, &mut actions)
                }
                changed = state.changed() => {
                    let now = state.borrow_and_update().clone();
                    if changed.is_err() || now.is_stopping {
                        break;
                    }
                    self.see(clock.now_us(), now, &mut actions);
                }
                () = due => self.time_passed(clock.now_us(), &mut actions),
            }
            self.act(actions).await;
        }
        if tokio::time::timeout(STOP_DEADLINE, self.withdraw_all(clock, &mut results))
            .await
            .is_err()
        {
            tracing::warn!(
                "some requests for nodes are not withdrawn in time: their jobs end at once when \
                 they start, and they are withdrawn when the cluster starts again"
            );
        }
    }

    /// Reads the pools from disk.
    fn take_up(&mut self, now_us: u64) {
        for name in store::names(&self.config.folder) {
            let loaded = PoolFolder::of(&self.config.folder, &name).load();
            let stored = match loaded {
                Ok(stored) => stored,
                Err(why) => {
                    tracing::warn!("pool {name} is left out: {why}");
                    continue;
                }
            };
            let Some(system) = systems::of(&stored.options) else {
                tracing::warn!(
                    "pool {name} is left out: there is no batch system `{}`",
                    stored.options.system
                );
                continue;
            };
            let pool =
                Pool::load(&self.config.folder, &name, stored, system, &self.config.eyas, now_us);
            self.pools.insert(name, pool);
        }
    }

    // ---- facts

    fn finished(
        &mut self,
        now_us: u64,
        finished: CommandResult,
        actions: &mut Vec<(String, PoolAction)>,
    ) {
        match finished {
            CommandResult::Submitted { pool, number, answer, failed_hosts } => {
                if let Some(pool) = self.pools.get_mut(&pool) {
                    with(pool, actions, |pool, actions| {
                        pool.pass_over(now_us, failed_hosts, actions);
                        pool.submitted(now_us, number, answer, actions);
                    });
                }
            }
            CommandResult::States { scope, asked, answer, found } => {
                if let Some(ask) = self.asks.get_mut(&scope) {
                    ask.is_running = false;
                }
                match answer {
                    Ok(reports) => {
                        for ((name, number), report) in asked.into_iter().zip(reports) {
                            let Some(pool) = self.pools.get_mut(&name) else { continue };
                            with(pool, actions, |pool, actions| {
                                pool.see_state(now_us, number, report, actions)
                            });
                        }
                    }
                    Err(why) => {
                        let names: BTreeSet<_> = asked.into_iter().map(|(name, _)| name).collect();
                        for name in names {
                            let Some(pool) = self.pools.get_mut(&name) else { continue };
                            with(pool, actions, |pool, actions| {
                                pool.states_unknown(now_us, &why, actions)
                            });
                        }
                    }
                }
                for (name, number, answer) in found {
                    let Some(pool) = self.pools.get_mut(&name) else { continue };
                    with(pool, actions, |pool, actions| {
                        pool.looked_for(now_us, number, answer, actions)
                    });
                }
            }
            CommandResult::Tried { name, options, answer, reply } => {
                self.adding.remove(&name);
                let added = match (answer, systems::of(&options)) {
                    (Err(why), _) => Err(PoolsError::Refused(why)),
                    (Ok(_), Some(system)) => self.add(now_us, &name, *options, system),
                    (Ok(_), None) => Err(PoolsError::NoSuchPool(name)),
                };
                self.answers.push((reply, added));
            }
        }
    }

    /// Takes note of the dispatcher's state: which nodes are there, and what work there is.
    fn see(
        &mut self,
        now_us: u64,
        mut state: ClusterState,
        actions: &mut Vec<(String, PoolAction)>,
    ) {
        let mut of_pool: BTreeMap<String, Vec<PoolNodeState>> = BTreeMap::new();
        for node in std::mem::take(&mut state.nodes) {
            of_pool.entry(node.pool.clone()).or_default().push(node);
        }
        for pool in self.pools.values_mut() {
            let nodes = of_pool.remove(&pool.name).unwrap_or_default();
            with(pool, actions, |pool, actions| pool.see_nodes(now_us, nodes, actions));
        }
        // Nodes of pools that are forgotten are of no use to a pool, and would stay for ever.
        for node in of_pool.into_values().flatten() {
            let order = PoolOrder::Release { executor: node.executor };
            actions.push((node.pool.clone(), PoolAction::Order(order)));
        }
        if state.shapes == self.shapes {
            self.share_work(now_us, &state, actions);
        }
    }

    /// Tells each pool the tasks that it should have nodes for.
    fn share_work(
        &mut self,
        now_us: u64,
        state: &ClusterState,
        actions: &mut Vec<(String, PoolAction)>,
    ) {
        let offer =
            |pool: &Pool| PoolOffer { price: pool.options.price, can_grow: pool.can_grow(now_us) };
        let offers: Vec<_> = self.pools.values().map(offer).collect();
        for (pool, fitting) in self.pools.values_mut().zip(share_work(&state.work, &offers)) {
            with(pool, actions, |pool, actions| {
                pool.see_work(now_us, fitting, state.measured, actions)
            });
        }
    }

    fn time_passed(&mut self, now_us: u64, actions: &mut Vec<(String, PoolAction)>) {
        for pool in self.pools.values_mut() {
            if pool.next_timeout().is_some_and(|due_us| due_us <= now_us) {
                with(pool, actions, |pool, actions| {
                    pool.handle(now_us, PoolEvent::TimePassed, actions)
                });
            }
        }
    }

    /// When something is due, microseconds since 1970.
    fn next_due_us(&self, now_us: u64) -> Option<u64> {
        let timeouts = self.pools.values().filter_map(Pool::next_timeout);
        let asks = self.asks.values().filter(|ask| !ask.is_running).map(|ask| ask.next_us);
        let closing = self.pools.values().any(|pool| *pool.status() == PoolStatus::Closing);
        let tick = closing.then_some(now_us + TICK_US);
        timeouts.chain(asks).chain(tick).min()
    }

    // ---- what follows

    async fn act(&mut self, actions: Vec<(String, PoolAction)>) {
        for (name, action) in actions {
            match action {
                PoolAction::Order(order) => _ = self.orders.send(order).await,
                PoolAction::Submit(plan) => self.submit(name, plan),
                PoolAction::Withdraw(jobs) => self.withdraw(&name, jobs),
            }
        }
    }

    fn submit(&self, pool: String, plan: RequestPlan) {
        let Some(system) = self.pools.get(&pool).map(|pool| pool.system.clone()) else { return };
        let (finished, commands, issue) =
            (self.finished.clone(), self.commands.clone(), self.config.issue_access.clone());
        tokio::spawn(async move {
            // It is closed when the cluster stops.
            let Ok(_turn) = commands.acquire().await else { return };
            let number = plan.number;
            let answer = submit_one(&*system, plan, issue).await;
            let failed_hosts = system.take_failed_hosts();
            let _ = finished.send(CommandResult::Submitted { pool, number, answer, failed_hosts });
        });
    }

    fn withdraw(&self, pool: &str, jobs: Vec<BatchJob>) {
        let Some(system) = self.pools.get(pool).map(|pool| pool.system.clone()) else { return };
        let (pool, commands) = (pool.to_owned(), self.commands.clone());
        tokio::spawn(async move {
            let Ok(_turn) = commands.acquire().await else { return };
            if let Err(why) = system.withdraw(&jobs).await {
                tracing::warn!("requests of pool {pool} are not withdrawn: {why}");
            }
        });
    }

    /// Asks for the states of all requests of the scopes that are due, with one command for each
    /// scope.
    fn ask_states(&mut self, now_us: u64) {
        let (mut scopes, mut due) = (BTreeSet::new(), BTreeMap::<Scope, OpenJobs>::new());
        // This is called after every event, so requests are listed only when they are asked for.
        for pool in self.pools.values().filter(|pool| pool.has_open()) {
            let scope = (pool.options.system.clone(), pool.system.scope(&pool.options));
            let next_us = now_us + pool.system.ask_every().as_micros() as u64;
            let ask =
                self.asks.entry(scope.clone()).or_insert(StatePoll { next_us, is_running: false });
            if !ask.is_running && ask.next_us <= now_us {
                let jobs = due.entry(scope.clone()).or_insert_with(|| OpenJobs::of(&pool.system));
                for (number, job) in pool.open_jobs() {
                    jobs.asked.push((pool.name.clone(), number));
                    jobs.jobs.push(job);
                }
                jobs.unclear.extend(pool.unclear(now_us));
            }
            scopes.insert(scope);
        }
        self.asks.retain(|scope, ask| ask.is_running || scopes.contains(scope));
        for (scope, OpenJobs { system, asked, jobs, unclear }) in due {
            let next_us = now_us + system.ask_every().as_micros() as u64;
            self.asks.insert(scope.clone(), StatePoll { next_us, is_running: true });
            let finished = self.finished.clone();
            tokio::spawn(async move {
                let answer =
                    if jobs.is_empty() { Ok(Vec::new()) } else { system.states(&jobs).await };
                let mut found = Vec::new();
                for plan in unclear {
                    let answer = system.find(&plan).await;
                    // A batch system that is silent is not asked again for each request.
                    let is_silent = answer.as_ref().is_err_and(BatchError::leaves_open);
                    found.push((plan.pool, plan.number, answer));
                    if is_silent {
                        break;
                    }
                }
                let _ = finished.send(CommandResult::States { scope, asked, answer, found });
            });
        }
    }

    /// Forgets pools that were removed and have given everything back.
    fn close_removed(&mut self) {
        let closed: Vec<_> = self
            .pools
            .values()
            .filter(|pool| pool.is_closed())
            .map(|pool| pool.name.clone())
            .collect();
        for name in closed {
            if let Some(pool) = self.pools.remove(&name)
                && let Err(why) = pool.folder().remove()
            {
                tracing::warn!("the folder of pool {name} is left: {why}");
            }
        }
    }

    /// Tells the dispatcher for which nodes it counts work, if that has changed.
    async fn tell_shapes(&mut self) {
        let shapes: Vec<_> = self.pools.values().map(Pool::shape).collect();
        if shapes != self.told {
            self.told.clone_from(&shapes);
            self.shapes += 1;
            let _ = self.orders.send(PoolOrder::Shapes { version: self.shapes, shapes }).await;
        }
    }

    /// Withdraws the requests that have no nodes, because the cluster stops. Its executors are told
    /// to stop by the dispatcher.
    async fn withdraw_all(
        &mut self,
        clock: PoolClock,
        results: &mut mpsc::UnboundedReceiver<CommandResult>,
    ) {
        self.commands.close();
        // The commands that follow are run below, for all requests of a pool together.
        let (now_us, mut unused) = (clock.now_us(), Vec::new());
        self.pools
            .values_mut()
            .for_each(|pool| pool.handle(now_us, PoolEvent::Stopping, &mut unused));
        let commands_end = async {
            while self.commands.available_permits() < MAX_COMMANDS {
                tokio::time::sleep(COMMANDS_PAUSE).await;
            }
        };
        let _ = tokio::time::timeout(COMMANDS_DEADLINE, commands_end).await;
        while let Ok(finished) = results.try_recv() {
            self.finished(clock.now_us(), finished, &mut Vec::new());
        }
        // A batch system that is silent must not keep others from being told.
        let mut work = JoinSet::new();
        for pool in self.pools.values() {
            let (name, system, jobs) =
                (pool.name.clone(), pool.system.clone(), pool.jobs_without_nodes());
            let unclear: Vec<_> = pool.unclear(clock.now_us()).collect();
            work.spawn(async move { (name, withdraw_open(&*system, jobs, unclear).await) });
        }
        while let Some(Ok((name, answer))) = work.join_next().await {
            let Some(pool) = self.pools.get_mut(&name) else { continue };
            match answer {
                Ok(()) => pool.handle(clock.now_us(), PoolEvent::AllWithdrawn, &mut Vec::new()),
                Err(why) => tracing::warn!("requests of pool {name} are not withdrawn: {why}"),
            }
        }
    }
}

/// Ends requests that the batch system has, and those that it may have.
async fn withdraw_open(
    system: &dyn BatchSystem,
    mut jobs: Vec<BatchJob>,
    unclear: Vec<RequestPlan>,
) -> Result<(), BatchError> {
    let mut answer = Ok(());
    if !jobs.is_empty() {
        answer = system.withdraw(&std::mem::take(&mut jobs)).await;
    }
    for plan in unclear {
        jobs.extend(system.find(&plan).await?);
    }
    if !jobs.is_empty() {
        answer = answer.and(system.withdraw(&jobs).await);
    }
    answer
}

/// Has a pool do something, and collects what follows.
fn with(
    pool: &mut Pool,
    actions: &mut Vec<(String, PoolAction)>,
    work: impl FnOnce(&mut Pool, &mut Vec<PoolAction>),
) {
    let mut own = Vec::new();
    work(pool, &mut own);
    actions.extend(own.into_iter().map(|action| (pool.name.clone(), action)));
}

async fn submit_one(
    system: &dyn BatchSystem,
    plan: RequestPlan,
    issue: AccessIssuer,
) -> Submission {
    match write_files(system, &plan, issue).await {
        Ok(()) => batch_system::submit(system, &plan).await,
        Err(why) => Submission::Refused(why),
    }
}

async fn write_files(
    system: &dyn BatchSystem,
    plan: &RequestPlan,
    issue: AccessIssuer,
) -> Result<(), BatchError> {
    // Keys are written to the disk.
    let issued = tokio::task::spawn_blocking(move || issue()).await;
    let unusable =
        |path: PathBuf, why: String| BatchError::File { path: path.display().to_string(), why };
    let content = match issued {
        Ok(Ok(content)) => content,
        Ok(Err(why)) => return Err(unusable(plan.access(), why.to_string())),
        Err(why) => return Err(unusable(plan.script(), why.to_string())),
    };
    script::write(plan, system, &content)
}
