//! A dispatcher in a process of its own, and light executors: sessions that end each task as soon
//! as it is assigned. All of them are in this process, so that a thousand executors need no
//! thousand processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eyas_dev::bench::{OwnedProcess, cpu_s, eyas, wait_for};
use eyas_session::{Access, Outbox, Session, SessionError, dial, outbox};
use eyas_types::{Outcome, Resources, Status};
use eyas_wire::Role;
use eyas_wire::executor::{FromExecutor, Registration, ToExecutor, TransferAddress};
use eyas_wire::pool::NodeOrigin;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Connections that are made at the same time.
const DIALS_AT_ONCE: usize = 64;
/// An executor that has lost its connection waits this long between two dials.
const DIALS_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Free disk that light executors report. The tasks write nothing.
const FREE_DISK_BYTES: u64 = 1 << 40;

/// A dispatcher in a process of its own.
pub struct Dispatcher {
    process: OwnedProcess,
    pub access: PathBuf,
}

impl Dispatcher {
    /// Starts a dispatcher that expects a heartbeat every `heartbeat`.
    pub fn start(home: &Path, heartbeat: &str) -> Self {
        Self::start_with(home, heartbeat, &std::env::var("PATH").unwrap_or_default())
    }

    /// Does the same with another PATH.
    pub fn start_with(home: &Path, heartbeat: &str, path: &str) -> Self {
        Self::start_as(home, "127.0.0.1:0", heartbeat, path, &[])
    }

    /// Does the same at an address, with further options.
    pub fn start_as(
        home: &Path,
        address: &str,
        heartbeat: &str,
        path: &str,
        options: &[&str],
    ) -> Self {
        let access = home.join("access.toml");
        let words = [
            "start",
            "dispatcher",
            "--listen",
            address,
            "--owned",
            "--heartbeat",
            heartbeat,
            "--access",
        ];
        let mut command = eyas(home, &words);
        let process = command
            .arg(&access)
            .args(options)
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut process = OwnedProcess(process.expect("eyas can be started"));
        wait_for(&access, &mut process);
        Dispatcher { process, access }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.process.0.id()
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.process.0.kill().expect("our own child");
        self.process.0.wait().expect("our own child");
    }

    /// Processor time that it has used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        cpu_s(&self.process().to_string())
    }
}

/// What a light executor answers to a command.
pub type Answers = Arc<dyn Fn(ToExecutor) -> Vec<FromExecutor> + Send + Sync>;

/// Numbers of connections of executors that come back.
#[derive(Default)]
pub struct Connections {
    /// Those that were made: the dispatcher has welcomed the executor.
    pub made: AtomicU64,
    pub lost: AtomicU64,
}

/// Light executors, on a thread of their own. They end with their dispatcher.
pub struct LightExecutors;

impl LightExecutors {
    /// Has `count` executors join; returns once the dispatcher has welcomed all of them.
    pub fn join(access: &Path, count: usize) {
        Self::join_answering(
            access,
            count,
            Arc::new(|command| end_of(command).into_iter().collect()),
        );
    }

    /// Does the same, with other answers than that each task has ended.
    pub fn join_answering(access: &Path, count: usize, answers: Answers) {
        Self::join_all(access, count, Duration::ZERO, None, None, answers);
    }

    /// Does the same, and each that loses its connection dials again until it is welcome.
    pub fn join_for_good(access: &Path, count: usize, answers: Answers) -> Arc<Connections> {
        let connections = Arc::new(Connections::default());
        Self::join_all(access, count, Duration::ZERO, None, Some(connections.clone()), answers);
        connections
    }

    /// Does the same, and spreads the times at which they dial evenly over `within`. With a pool,
    /// they are the nodes of its requests, one of each, and have the label `kind=pool`.
    pub fn join_within(access: &Path, count: usize, within: Duration, pool: Option<&'static str>) {
        Self::join_all(
            access,
            count,
            within,
            pool,
            None,
            Arc::new(|command| end_of(command).into_iter().collect()),
        );
    }

    fn join_all(
        access: &Path,
        count: usize,
        within: Duration,
        pool: Option<&'static str>,
        connections: Option<Arc<Connections>>,
        answers: Answers,
    ) {
        let access = Arc::new(Access::load(access).expect("written whole"));
        let (told, welcomed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let dials = Arc::new(Semaphore::new(DIALS_AT_ONCE));
                let mut all = JoinSet::new();
                for number in 0..count {
                    let (access, dials, told) = (access.clone(), dials.clone(), told.clone());
                    let (answers, connections) = (answers.clone(), connections.clone());
                    let dials_after = within * number as u32 / count as u32;
                    all.spawn(async move {
                        sleep(dials_after).await;
                        let join = async || {
                            let _permit = dials.acquire().await.expect("never closed");
                            let joined = register(&access, registration(number, pool)).await;
                            if let (Ok(_), Some(connections)) = (&joined, &connections) {
                                connections.made.fetch_add(1, Ordering::Relaxed);
                            }
                            joined
                        };
                        let mut joined = join().await.expect("the dispatcher listens");
                        told.send(()).expect("the benchmark waits");
                        loop {
                            run_executor(joined, answers.clone()).await;
                            let Some(connections) = &connections else { return };
                            connections.lost.fetch_add(1, Ordering::Relaxed);
                            joined = loop {
                                match join().await {
                                    Ok(joined) => break joined,
                                    Err(_) => sleep(DIALS_AGAIN_AFTER).await,
                                }
                            };
                        }
                    });
                }
                all.join_all().await;
            });
        });
        (0..count).for_each(|_| welcomed.recv().expect("an executor cannot join"));
    }
}

/// The description of a light executor.
pub fn registration(number: usize, pool: Option<&str>) -> Registration {
    let origin =
        pool.map(|pool| NodeOrigin { pool: pool.into(), request: number as u64, left_us: None });
    let kind = pool.map(|_| ("kind".to_owned(), "pool".to_owned()));
    Registration {
        name: format!("light-{number}"),
        host: format!("host-{number}"),
        labels: kind.into_iter().collect(),
        accept: None,
        process: number as u32,
        incarnation: format!("light-{number}"),
        capacity: Resources { cpus_milli: 1000, memory_bytes: 1 << 30, ..Resources::default() },
        store_bytes: 0,
        transfer: TransferAddress {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
            proxy: None,
        },
        files: None,
        origin,
        held: Vec::new(),
    }
}

/// An executor that is welcome.
pub struct WelcomeExecutor {
    pub session: Session,
    /// How often the dispatcher expects a heartbeat.
    pub heartbeat: Duration,
    /// Commands that came with the welcome.
    pub commands: Vec<ToExecutor>,
}

/// Registers an executor, and waits until the dispatcher has welcomed it.
pub async fn register(
    access: &Access,
    registration: Registration,
) -> Result<WelcomeExecutor, SessionError> {
    let mut session = dial(access, Role::Executor).await?;
    session.writer.send(&[FromExecutor::Register(Box::new(registration))]).await?;
    loop {
        let mut commands = session.reader.next::<ToExecutor>().await?.into_iter();
        while let Some(command) = commands.next() {
            if let ToExecutor::Welcome { heartbeat_us, .. } = command {
                let heartbeat = Duration::from_micros(heartbeat_us);
                return Ok(WelcomeExecutor { session, heartbeat, commands: commands.collect() });
            }
        }
    }
}

/// One executor, until its connection ends.
async fn run_executor(executor: WelcomeExecutor, answers: Answers) {
    let WelcomeExecutor { session, heartbeat, commands } = executor;
    let Session { mut reader, writer, .. } = session;
    let (outbox, send) = outbox::<FromExecutor>(writer);
    let work = async {
        let mut next = Ok(commands);
        while let Ok(commands) = next {
            if commands.iter().any(|command| matches!(command, ToExecutor::Stop)) {
                return;
            }
            let answers: Vec<_> =
                commands.into_iter().flat_map(|command| answers(command)).collect();
            if !answers.is_empty() && outbox.put(answers).await.is_err() {
                return;
            }
            next = reader.next::<ToExecutor>().await;
        }
    };
    tokio::select! {
        () = work => {}
        _ = send => {}
        () = beat(&outbox, heartbeat) => {}
    }
}

/// The answer to a command: the task has ended.
pub fn end_of(command: ToExecutor) -> Option<FromExecutor> {
    let ToExecutor::Assign(assignment) = command else { return None };
    let outcome = Box::new(Outcome::of(Status::Succeeded));
    Some(FromExecutor::Ended { task: assignment.task, attempt: assignment.attempt, outcome })
}

/// Sends heartbeats as often as the dispatcher expects them.
pub async fn beat(outbox: &Outbox<FromExecutor>, heartbeat: Duration) {
    let mut ticks = interval(heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if outbox
            .put(vec![FromExecutor::Heartbeat { free_disk_bytes: FREE_DISK_BYTES }])
            .await
            .is_err()
        {
            return;
        }
    }
}
