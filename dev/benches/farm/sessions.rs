//! The sessions of a farm's executors with a real dispatcher. All are in one thread, so that a
//! thousand nodes need no thousand processes.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eyas_sched::Holder;
use eyas_session::{Access, Outbox, Session, outbox};
use eyas_sim::clock::Ns;
use eyas_sim::cluster::{Policies, SimCluster};
use eyas_sim::outcome::RunOutcome;
use eyas_sim::paper::Experiment;
use eyas_sim::{ExecutorFarm, FarmCommand, FarmEnd, FarmReport, with_farm};
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, ObjectId, Outcome, Resources, Status, TaskId};
use eyas_wire::executor::{
    Assignment, FromExecutor, PeerHint, Registration, ToExecutor, TransferAddress,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::client::file;
use super::light::{WelcomeExecutor, beat, register, registration};

/// Connections that are made at the same time.
const DIALS_AT_ONCE: u32 = 64;

/// Seed of the farm's executors.
pub const SEED: u64 = 1;

/// An experiment whose nodes are there from the start.
pub struct FarmExperiment {
    pub experiment: Experiment,
    pub policies: Policies,
}

/// A farm on a thread of its own.
pub struct FarmThread(JoinHandle<FarmFigures>);

/// What a farm has measured.
pub struct FarmFigures {
    /// The outcome, from the first assignment on. Levels and decisions are not counted.
    pub outcome: RunOutcome,
    /// The longest time by which something happened too late, because the farm was not on a
    /// processor.
    pub latest: Duration,
}

impl FarmThread {
    /// Has the executors of an experiment join a dispatcher. Returns once all are welcome.
    pub fn start(access: &Access, of: Arc<FarmExperiment>) -> FarmThread {
        let access = access.clone();
        let (joined, all_joined) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let FarmExperiment { experiment, policies } = &*of;
            with_farm(&experiment.cluster, policies, &*experiment.workload, SEED, |farm| {
                runtime.block_on(async {
                    let (sessions, commands) = FarmSessions::join(&access, experiment).await;
                    joined.send(()).expect("the benchmark waits");
                    sessions.drive(farm, commands).await
                })
            })
        });
        all_joined.recv().expect("an executor cannot join");
        FarmThread(thread)
    }

    /// Waits for the end of all tasks.
    pub fn end(self) -> FarmFigures {
        self.0.join().expect("no panic")
    }
}

/// What the dispatcher tells one executor.
type Heard = (u32, Vec<ToExecutor>);

struct FarmSessions {
    outboxes: Vec<Outbox<FromExecutor>>,
    _running: JoinSet<()>,
    /// Objects by their numbers in the workload.
    objects: Vec<(ObjectId, u64)>,
    numbers: HashMap<ObjectId, u32>,
    /// Times of arrival of the tasks, by their numbers.
    arrivals_us: Vec<u64>,
    /// Tasks that were assigned and have not ended, and their numbers.
    assigned: HashMap<TaskId, u32>,
    tasks: HashMap<u32, TaskId>,
    began: Instant,
    first_assigned: Option<Instant>,
    /// What the farm itself does not count.
    done: u64,
    responded_ns: u128,
    last_ended: Instant,
    latest: Duration,
}

impl FarmSessions {
    async fn join(
        access: &Access,
        experiment: &Experiment,
    ) -> (FarmSessions, mpsc::UnboundedReceiver<Heard>) {
        let Experiment { cluster, workload, .. } = experiment;
        let (hear, commands) = mpsc::unbounded_channel();
        let (mut outboxes, mut running) = (Vec::new(), JoinSet::new());
        for first in (0..cluster.nodes).step_by(DIALS_AT_ONCE as usize) {
            let dials = first..cluster.nodes.min(first + DIALS_AT_ONCE);
            let mut dialled = JoinSet::new();
            for number in dials.clone() {
                let (access, registration) = (access.clone(), registration_of(number, cluster));
                dialled.spawn(async move {
                    let registered = register(&access, registration).await;
                    (number, registered.expect("the dispatcher welcomes it"))
                });
            }
            let welcome: BTreeMap<u32, WelcomeExecutor> =
                dialled.join_all().await.into_iter().collect();
            for (number, WelcomeExecutor { session, heartbeat, .. }) in welcome {
                let Session { mut reader, writer, .. } = session;
                let (outbox, send) = outbox::<FromExecutor>(writer);
                outboxes.push(outbox.clone());
                let hear = hear.clone();
                running.spawn(async move {
                    let listen = async {
                        while let Ok(commands) = reader.next::<ToExecutor>().await {
                            if hear.send((number, commands)).is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = listen => {}
                        _ = send => {}
                        () = beat(&outbox, heartbeat) => {}
                    }
                });
            }
        }
        let object = |object| {
            let size_bytes = workload.size_bytes(object);
            (file(object, size_bytes).id(), size_bytes)
        };
        let objects: Vec<(ObjectId, u64)> = (0..workload.objects()).map(object).collect();
        let now = Instant::now();
        let sessions = FarmSessions {
            outboxes,
            _running: running,
            numbers: objects.iter().map(|(id, _)| *id).zip(0..).collect(),
            objects,
            arrivals_us: workload.arrivals().map(|task| task.at_us).collect(),
            assigned: HashMap::new(),
            tasks: HashMap::new(),
            began: now,
            first_assigned: None,
            done: 0,
            responded_ns: 0,
            last_ended: now,
            latest: Duration::ZERO,
        };
        (sessions, commands)
    }

    /// Passes on commands and reports, at the pace of the clock, until all tasks have ended.
    async fn drive(
        mut self,
        farm: &mut ExecutorFarm<'_>,
        mut commands: mpsc::UnboundedReceiver<Heard>,
    ) -> FarmFigures {
        let mut reports = Vec::new();
        while self.done < self.arrivals_us.len() as u64 {
            if let Some(next) = farm.next_at() {
                self.latest = self
                    .latest
                    .max(self.began.elapsed().saturating_sub(Duration::from_nanos(next)));
            }
            farm.advance(self.now(), &mut reports);
            self.tell(&mut reports).await;
            let next = farm.next_at().map(Duration::from_nanos);
            let next = next.map(|next| tokio::time::Instant::from_std(self.began + next));
            let wait = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(heard) = commands.recv() => {
                    farm.advance(self.now(), &mut reports);
                    let more = std::iter::from_fn(|| commands.try_recv().ok());
                    for (executor, commands) in std::iter::once(heard).chain(more) {
                        for command in commands {
                            if let Some(command) = self.command(executor, command).await {
                                farm.command(executor, command);
                            }
                        }
                    }
                }
                () = wait => {}
            }
        }
        let first = self.first_assigned.expect("a task was assigned");
        let outcome = RunOutcome {
            makespan_ns: (self.last_ended - first).as_nanos() as Ns,
            tasks: self.done,
            done: self.done,
            responded_ns: self.responded_ns,
            ..farm.outcome().clone()
        };
        FarmFigures { outcome, latest: self.latest }
    }

    fn now(&self) -> Ns {
        self.began.elapsed().as_nanos() as Ns
    }

    // ---- commands

    async fn command(&mut self, executor: u32, command: ToExecutor) -> Option<FarmCommand> {
        Some(match command {
            ToExecutor::Assign(Assignment { task, attempt, values, inputs, .. }) => {
                self.first_assigned.get_or_insert_with(Instant::now);
                let number = values[0].text.to_string().parse().expect("the task's number");
                self.assigned.insert(task, number);
                self.tasks.insert(number, task);
                let holders = inputs
                    .iter()
                    .map(|input| (self.numbers[&input.object.id()], holders_of(&input.holders)));
                FarmCommand::Assign { task: number, attempt, holders: holders.collect() }
            }
            // The end of a task and the wish to have it back may cross.
            ToExecutor::Recall { task } => FarmCommand::Recall { task: *self.assigned.get(&task)? },
            ToExecutor::Cancel { task } => FarmCommand::Cancel { task: *self.assigned.get(&task)? },
            ToExecutor::Hold { object, holders } => {
                let object = self.numbers[&object.id()];
                FarmCommand::Hold { object, holders: holders_of(&holders) }
            }
            ToExecutor::Release { object } => {
                FarmCommand::Release { object: self.numbers[&object] }
            }
            ToExecutor::Verify { object } => FarmCommand::Verify { object: self.numbers[&object] },
            ToExecutor::Check { task, .. } => {
                let checked = FromExecutor::Checked { task, is_unchanged: true };
                self.put(executor, vec![checked]).await;
                return None;
            }
            _ => return None,
        })
    }

    // ---- reports

    async fn tell(&mut self, reports: &mut Vec<(u32, FarmReport)>) {
        let mut by_executor: BTreeMap<u32, Vec<FromExecutor>> = BTreeMap::new();
        for (executor, report) in reports.drain(..) {
            let fact = self.fact(report);
            by_executor.entry(executor).or_default().push(fact);
        }
        for (executor, facts) in by_executor {
            self.put(executor, facts).await;
        }
    }

    async fn put(&self, executor: u32, facts: Vec<FromExecutor>) {
        self.outboxes[executor as usize].put(facts).await.expect("the dispatcher is there");
    }

    fn fact(&mut self, report: FarmReport) -> FromExecutor {
        let id = |object: u32| self.objects[object as usize].0;
        match report {
            FarmReport::Ended { task, attempt, ran_us, reads, end } => {
                let outcome = match end {
                    FarmEnd::Succeeded => Outcome::of(Status::Succeeded),
                    FarmEnd::Cancelled => Outcome::of(Status::Cancelled),
                    FarmEnd::Refused => {
                        Outcome::failed(FailureKind::NodeFull, "the store has no room")
                    }
                };
                if end == FarmEnd::Succeeded {
                    self.succeeded(task);
                }
                let outcome = Box::new(Outcome { ran_us: ran_us.into(), reads, ..outcome });
                FromExecutor::Ended { task: self.leaves(task), attempt, outcome }
            }
            FarmReport::Returned { task, attempt } => {
                FromExecutor::Returned { task: self.leaves(task), attempt }
            }
            FarmReport::Fetched { object, from, took_us } => {
                FromExecutor::Fetched { object: id(object), from, took_us: took_us.into() }
            }
            FarmReport::Stored { object } => {
                let (object, size_bytes) = self.objects[object as usize];
                FromExecutor::Stored { object, size_bytes }
            }
            FarmReport::NotHeld { object } => {
                FromExecutor::NotHeld { object: id(object), reason: "it is not there".to_owned() }
            }
            FarmReport::Evicted { object } => FromExecutor::Evicted { object: id(object) },
            FarmReport::Load(load) => FromExecutor::Load(load),
        }
    }

    fn succeeded(&mut self, number: u32) {
        let first = self.first_assigned.expect("it was assigned");
        let arrived = first + Duration::from_micros(self.arrivals_us[number as usize]);
        self.done += 1;
        self.last_ended = Instant::now();
        self.responded_ns += self.last_ended.saturating_duration_since(arrived).as_nanos();
    }

    /// A task leaves its executor. Returns its id.
    fn leaves(&mut self, number: u32) -> TaskId {
        let task = self.tasks.remove(&number).expect("it was assigned");
        self.assigned.remove(&task);
        task
    }
}

/// The port tells the executor's number. Nothing listens there: bytes only seem to flow.
fn registration_of(number: u32, cluster: &SimCluster) -> Registration {
    let port = u16::try_from(number + 1).expect("at most 65,535 executors");
    let cpus_milli = cluster.cpus * 1000;
    Registration {
        capacity: Resources { cpus_milli, memory_bytes: 1 << 40, ..Resources::default() },
        store_bytes: cluster.cache_bytes,
        transfer: TransferAddress {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            proxy: None,
        },
        ..registration(number as usize, None)
    }
}

fn holders_of(hints: &[PeerHint]) -> Box<[Holder]> {
    let holder = |hint: &PeerHint| Holder {
        executor: ExecutorId(u32::from(hint.transfer.address.port()) - 1),
        is_relay: hint.is_relay,
        others: hint.others,
    };
    hints.iter().map(holder).collect()
}
