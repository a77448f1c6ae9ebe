//! A cluster on this machine: a dispatcher and executors as child processes. The children also end
//! if this process is killed, because their standard input ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::view::JobState;
use eyas_session::Access;
use eyas_session::private::PrivateFolder;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use crate::detach::{UP_DEADLINE, wait_until_ready};
use crate::error::CliError;
use crate::gather::gather;
use crate::node_args::{NodeArgs, ShapeArgs};
use crate::own_process::{own_path, remove_folder};

/// A process must end within this time after its standard input has ended; then it is killed.
const DOWN_DEADLINE: Duration = Duration::from_secs(20);
/// Shortest and longest pause between two questions whether all executors have joined.
const JOIN_PAUSE_MIN: Duration = Duration::from_millis(1);
const JOIN_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Size of a store, unless the disk is too small for it.
pub(crate) const DEFAULT_CACHE_BYTES: u64 = 10_000_000_000;
/// The stores of a local cluster together take at most the free disk space divided by this.
const FREE_DISK_DIVISOR: u64 = 2;

/// The folders of a local cluster.
pub(crate) struct LocalFolders {
    /// The folder of the dispatcher: keys, journal and log.
    pub state: PathBuf,
    /// The folder of the executors: stores and sandboxes.
    pub stores: PathBuf,
    /// Whether the processes create their folders, and remove them at their end, also if this
    /// process has been killed.
    pub ephemeral: bool,
    /// Whether the folder of the dispatcher stays all the same.
    pub keeps_state: bool,
    /// Whether the dispatcher listens for nodes on other machines.
    pub is_reachable: bool,
}

impl LocalFolders {
    /// One folder that exists only as long as the cluster.
    pub fn ephemeral(folder: &Path) -> Self {
        LocalFolders {
            state: folder.to_owned(),
            stores: folder.to_owned(),
            ephemeral: true,
            keeps_state: false,
            is_reachable: false,
        }
    }

    fn removes_state(&self) -> bool {
        self.ephemeral && !self.keeps_state
    }
}

/// The processes of a cluster: its dispatcher, then its executors.
struct Processes {
    children: Vec<Child>,
    /// Standard inputs of the children; closing them stops the children. They are not left in
    /// `Child`, because `Child::wait` closes them.
    inputs: Vec<ChildStdin>,
    folders: LocalFolders,
}

pub(crate) struct LocalCluster {
    processes: Processes,
    pub access: Access,
    /// Messages of the dispatcher: the jobs that continue.
    pub messages: Vec<String>,
}

impl LocalCluster {
    /// Starts a cluster. Returns it with a connection to its dispatcher.
    pub async fn start(
        folders: LocalFolders,
        name: &str,
        shape: &ShapeArgs,
    ) -> Result<(Self, Client), CliError> {
        if !folders.ephemeral {
            PrivateFolder::make(&folders.state)?;
            PrivateFolder::make(&folders.stores)?;
        }
        let mut processes = Processes { children: Vec::new(), inputs: Vec::new(), folders };
        match processes.start(name, shape).await {
            Ok((client, access, messages)) => {
                Ok((LocalCluster { processes, access, messages }, client))
            }
            Err(e) => {
                processes.stop().await;
                Err(e)
            }
        }
    }

    /// Waits until a client stops the cluster, or `interrupted` completes; then stops all
    /// processes.
    pub async fn wait(mut self, interrupted: impl Future<Output = ()>) {
        let dispatcher = self.processes.children.first_mut().expect("a cluster has a dispatcher");
        tokio::select! {
            _ = dispatcher.wait() => {}
            () = interrupted => {}
        }
        self.stop().await;
    }

    /// Stops all processes and waits until they have ended.
    pub async fn stop(self) {
        self.processes.stop().await;
    }
}

impl Processes {
    /// Starts all processes and waits until the executors have joined. Returns a connection and the
    /// messages of the dispatcher.
    ///
    /// All processes start at the same time, because a process needs some milliseconds before its
    /// first own step. An executor goes on when its standard input says that the dispatcher is
    /// ready.
    async fn start(
        &mut self,
        name: &str,
        shape: &ShapeArgs,
    ) -> Result<(Client, Access, Vec<String>), CliError> {
        shape.placement.check()?;
        let access_path = self.folders.state.join("access.toml");
        let listen = if self.folders.is_reachable { "0.0.0.0:0" } else { "127.0.0.1:0" };
        let mut dispatcher =
            owned(&["start", "dispatcher", "--listen", listen], self.folders.removes_state())?;
        dispatcher.arg("--access").arg(&access_path).env("EYAS_CLUSTER", name);
        dispatcher.args(shape.placement.words());
        if shape.node.plain_data {
            dispatcher.arg("--plain-data");
        }
        self.own(dispatcher.stdout(Stdio::piped()))?;
        let cache_bytes = shape.node.cache.unwrap_or_else(|| self.default_cache_bytes(shape.nodes));
        for number in 1..=shape.nodes {
            let mut executor =
                owned(&["start", "executor", "--wait-for-input"], self.folders.ephemeral)?;
            let name = format!("n{number}");
            let folder = self.folders.stores.join(&name);
            executor
                .arg("--access")
                .arg(&access_path)
                .arg("--folder")
                .arg(folder)
                .args(["--name", &name]);
            executor.args([
                "--share",
                &shape.nodes.to_string(),
                "--part",
                &(number - 1).to_string(),
            ]);
            executor.args(node_words(&shape.node, cache_bytes));
            self.own(executor.stdout(Stdio::null()))?;
        }
        let messages =
            wait_until_ready(self.children.first_mut().expect("the dispatcher was started")).await;
        let messages = messages.map_err(|e| format!("the dispatcher did not start: {e}"))?;
        let access = Access::load(&access_path)?;
        let mut client = Client::connect(&access).await?;
        if self.folders.keeps_state {
            // The cluster is for one job. A run that was killed has left its job unfinished.
            cancel_all(&mut client).await?;
        }
        let (_, executors) = self.inputs.split_first_mut().expect("the dispatcher has an input");
        for input in executors {
            // An executor that has ended already is noticed below.
            let _ = input.write_all(b"\n").await;
        }
        self.wait_for_executors(&mut client, shape.nodes as usize).await?;
        if shape.node.dfs {
            // Files that are written before all nodes have joined the file system have fewer
            // replicas.
            let files = client.files().await?;
            gather(&files, shape.nodes as usize).await?;
        }
        Ok((client, access, messages))
    }

    /// The size of each store, limited by the free disk space.
    fn default_cache_bytes(&self, nodes: u32) -> u64 {
        let free_bytes = self.folders.stores.ancestors().find_map(|folder| {
            let disk = rustix::fs::statvfs(folder).ok()?;
            Some(disk.f_bavail.saturating_mul(disk.f_frsize))
        });
        let share = free_bytes
            .map_or(u64::MAX, |bytes| bytes / FREE_DISK_DIVISOR / u64::from(nodes.max(1)));
        DEFAULT_CACHE_BYTES.min(share)
    }

    fn own(&mut self, command: &mut Command) -> Result<(), CliError> {
        let mut child = command.spawn()?;
        self.inputs.extend(child.stdin.take());
        self.children.push(child);
        Ok(())
    }

    async fn wait_for_executors(
        &mut self,
        client: &mut Client,
        count: usize,
    ) -> Result<(), CliError> {
        let began = Instant::now();
        let all_joined = async {
            loop {
                if let ToClient::Executors(executors) = client.ask(FromClient::Executors).await?
                    && executors.len() >= count
                {
                    return Ok(());
                }
                for process in &mut self.children {
                    if let Some(status) = process.try_wait()? {
                        return Err::<(), CliError>(
                            format!(
                                "an executor ended at once ({status}); its message above says why"
                            )
                            .into(),
                        );
                    }
                }
                // The pause adds at most an eighth to the wait.
                sleep((began.elapsed() / 8).clamp(JOIN_PAUSE_MIN, JOIN_PAUSE_MAX)).await;
            }
        };
        timeout(UP_DEADLINE, all_joined)
            .await
            .map_err(|_| format!("the executors did not join within {} s", UP_DEADLINE.as_secs()))?
    }

    /// Stops all processes, waits until they have ended, and removes ephemeral folders.
    async fn stop(mut self) {
        self.inputs.clear();
        for process in &mut self.children {
            if timeout(DOWN_DEADLINE, process.wait()).await.is_err() {
                tracing::warn!("a process of the cluster did not end in time and is killed");
                let _ = process.kill().await;
            }
        }
        if self.folders.removes_state() {
            remove_folder(&self.folders.state).await;
        }
    }
}

/// Cancels all tasks of a cluster.
pub(crate) async fn cancel_all(client: &mut Client) -> Result<(), CliError> {
    if let ToClient::Jobs(jobs) = client.ask(FromClient::Jobs { job: None }).await? {
        for job in jobs.into_iter().filter(|job| job.state == JobState::Running) {
            client.ask(FromClient::Cancel { job: job.job, task: None }).await?;
        }
    }
    Ok(())
}

/// The command of an owned process, which is this program. The process has a process group of its
/// own, so that an interrupt at the terminal reaches only this process.
fn owned(words: &[&str], ephemeral: bool) -> Result<Command, CliError> {
    let mut command = Command::new(own_path()?);
    command.args(words).arg("--owned").stdin(Stdio::piped()).process_group(0);
    if ephemeral {
        command.arg("--ephemeral");
    }
    Ok(command)
}

/// The options of an executor for `args`.
fn node_words(args: &NodeArgs, cache_bytes: u64) -> Vec<String> {
    let mut words = Vec::new();
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    if let Some(slots) = args.slots {
        option("slots", slots.to_string());
    }
    if let Some(memory) = args.node_memory {
        option("node-memory", memory.to_string());
    }
    option("limits", args.limits.name().into());
    args.node_resource
        .iter()
        .for_each(|(name, amount)| option("node-resource", format!("{name}={amount}")));
    args.label.iter().for_each(|(name, value)| option("label", format!("{name}={value}")));
    args.accept.iter().for_each(|accept| option("accept", accept.clone()));
    option("cache", cache_bytes.to_string());
    option("cache-objects", args.cache_objects.to_string());
    option("keep-free", args.keep_free.to_string());
    option("eviction", args.eviction.name().into());
    option("data-intensive", args.data_intensive.to_string());
    option("data-intensive-time", format!("{}us", args.data_intensive_time));
    option("emulate", args.emulate.to_string());
    if let Some(access) = &args.io {
        option("io", access.display().to_string());
        option("io-class", args.io_class.clone());
    }
    args.users.iter().for_each(|map| option("users", map.display().to_string()));
    if args.pin {
        words.push("--pin".into());
    }
    if args.cpu_quota {
        words.push("--cpu-quota".into());
    }
    if args.no_overlap {
        words.push("--no-overlap".into());
    }
    if args.plain_data {
        words.push("--plain-data".into());
    }
    if args.dfs {
        words.extend(["--dfs".into(), "--audit-bytes".into(), args.audit_bytes.to_string()]);
        words.push(format!("--dfs-memory={}", args.dfs_memory));
        words.push(format!("--load-period={}us", args.load_period.as_micros()));
        words.push(format!("--load-weight={}", args.load_weight));
    }
    words
}
