//! A cluster on this machine: a dispatcher and executors as child processes, which end when this process does, however
//! it ends, because their standard input does.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::shown;
use eyas_client::types::units::format_count;
use eyas_client::{Client, Cluster};
use eyas_session::Access;
use eyas_session::private::PrivateFolder;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::command::{NodeArgs, ShapeArgs};
use crate::print::{self, say};
use crate::start::{READY, own_path};

/// A process must be up so soon.
const UP_DEADLINE: Duration = Duration::from_secs(30);
/// And down so soon, once it was told.
const DOWN_DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct LocalCluster {
    /// The dispatcher is the last.
    processes: Vec<Child>,
    /// What the processes stop at the end of. Not left in `Child`, whose `wait` would close it.
    inputs: Vec<ChildStdin>,
    pub access: Access,
    /// What the dispatcher has to say: jobs that go on.
    pub news: Vec<String>,
    folder: PathBuf,
    ephemeral: bool,
}

impl LocalCluster {
    /// Starts a cluster in `folder`, which is removed at the end if it is `ephemeral`.
    pub async fn start(folder: &Path, name: &str, shape: &ShapeArgs, ephemeral: bool) -> Result<Self, Failure> {
        PrivateFolder::make(folder)?;
        let access_path = folder.join("access.toml");
        let mut dispatcher = owned(&["start", "dispatcher", "--listen", "127.0.0.1:0"], ephemeral)?;
        dispatcher.arg("--access").arg(&access_path).env("EYAS_CLUSTER", name);
        dispatcher.args(["--policy", shape.placement.policy.name()]);
        dispatcher.args(["--utilisation", &shape.placement.utilisation.to_string()]);
        if let Some(window) = shape.placement.window {
            dispatcher.args(["--window", &window.to_string()]);
        }
        let mut dispatcher = dispatcher.stdout(Stdio::piped()).spawn()?;
        let news = wait_until_ready(&mut dispatcher).await;
        let news = news.map_err(|e| format!("the dispatcher did not start: {e}"))?;
        let access = Access::load(&access_path)?;
        let mut processes = Vec::new();
        for number in 1..=shape.nodes {
            let mut executor = owned(&["start", "executor"], ephemeral)?;
            let name = format!("n{number}");
            executor.arg("--access").arg(&access_path).arg("--folder").arg(folder.join(&name)).args(["--name", &name]);
            executor.args(["--share", &shape.nodes.to_string()]);
            executor.args(node_words(&shape.node));
            processes.push(executor.stdout(Stdio::null()).spawn()?);
        }
        processes.push(dispatcher);
        let inputs = processes.iter_mut().filter_map(|process| process.stdin.take()).collect();
        let mut cluster = LocalCluster { processes, inputs, access, news, folder: folder.to_owned(), ephemeral };
        cluster.wait_for_executors(shape.nodes as usize).await?;
        if shape.node.dfs {
            cluster.wait_for_files(shape.nodes as usize).await?;
        }
        Ok(cluster)
    }

    /// Starts `eyas start local` in the background and returns once it is up.
    pub async fn detach(cluster: &Cluster, shape: &ShapeArgs) -> Result<(), Failure> {
        let folder = cluster.folder();
        PrivateFolder::make(folder)?;
        let log_path = folder.join("log");
        let log = std::fs::File::options().create(true).append(true).open(&log_path)?;
        let mut command = Command::new(own_path()?);
        // The same words without `--detach`, in a group of its own: the terminal's interrupts are not for it.
        let words = std::env::args_os().skip(1).filter(|word| word != "--detach");
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn()?;
        match wait_until_ready(&mut child).await {
            Ok(news) => {
                news.iter().for_each(|line| print::complain(format!("{}\n", shown(line)).as_bytes()));
                let executors = format_count(shape.nodes.into(), "executor");
                say!("{executors} up; log: {}", log_path.display());
                Ok(())
            }
            Err(e) => {
                let log = std::fs::read_to_string(&log_path).unwrap_or_default();
                let last: Vec<_> = log.lines().rev().take(5).collect();
                let last: Vec<_> = last.into_iter().rev().collect();
                Err(format!("the cluster did not start: {e}\n{}", last.join("\n")).into())
            }
        }
    }

    async fn wait_for_executors(&mut self, count: usize) -> Result<(), Failure> {
        let mut client = Client::connect(&self.access).await?;
        let all_joined = async {
            loop {
                if let ToClient::Executors(executors) = client.ask(FromClient::Executors).await?
                    && executors.len() >= count
                {
                    return Ok(());
                }
                for process in &mut self.processes {
                    if let Some(status) = process.try_wait()? {
                        return Err::<(), Failure>(
                            format!("an executor ended at once ({status}); it said why above").into(),
                        );
                    }
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(UP_DEADLINE, all_joined).await.map_err(|_| "the executors did not join in time")?
    }

    /// Waits until all nodes have joined the file system: before, what is written has fewer replicas.
    async fn wait_for_files(&self, count: usize) -> Result<(), Failure> {
        let files = Client::connect(&self.access).await?.files().await?;
        crate::dfs::gather(&files, count).await
    }

    /// Waits until the cluster was stopped by a client, or `interrupted` comes.
    pub async fn wait(mut self, interrupted: impl Future<Output = ()>) {
        let dispatcher = self.processes.last_mut().expect("a cluster has a dispatcher");
        tokio::select! {
            _ = dispatcher.wait() => {}
            () = interrupted => {}
        }
        self.stop().await;
    }

    /// Stops all processes and waits until they have ended.
    pub async fn stop(mut self) {
        self.inputs.clear();
        for process in &mut self.processes {
            if timeout(DOWN_DEADLINE, process.wait()).await.is_err() {
                tracing::warn!("a process of the cluster does not end; it is killed");
                let _ = process.kill().await;
            }
        }
        if self.ephemeral {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// This program as an owned process, in a group of its own: an interrupt at the terminal is for this one alone.
fn owned(words: &[&str], ephemeral: bool) -> Result<Command, Failure> {
    let mut command = Command::new(own_path()?);
    command.args(words).arg("--owned").stdin(Stdio::piped()).process_group(0);
    if ephemeral {
        command.arg("--ephemeral");
    }
    Ok(command)
}

/// The words that make an executor like `args`.
fn node_words(args: &NodeArgs) -> Vec<String> {
    let mut words = Vec::new();
    let mut say = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    if let Some(slots) = args.slots {
        say("slots", slots.to_string());
    }
    if let Some(memory) = args.node_memory {
        say("node-memory", memory.to_string());
    }
    args.node_resource.iter().for_each(|(name, amount)| say("node-resource", format!("{name}={amount}")));
    args.label.iter().for_each(|(name, value)| say("label", format!("{name}={value}")));
    args.accept.iter().for_each(|accept| say("accept", accept.clone()));
    say("cache", args.cache.to_string());
    say("cache-objects", args.cache_objects.to_string());
    say("keep-free", args.keep_free.to_string());
    say("eviction", args.eviction.name().into());
    say("data-intensive", args.data_intensive.to_string());
    say("data-intensive-time", format!("{}us", args.data_intensive_time));
    say("emulate", args.emulate.to_string());
    args.io.iter().for_each(|access| say("io", access.display().to_string()));
    if args.no_overlap {
        words.push("--no-overlap".into());
    }
    if args.dfs {
        words.push("--dfs".into());
    }
    words
}

/// Waits until a process can be used; what it has printed before.
async fn wait_until_ready(process: &mut Child) -> Result<Vec<String>, Failure> {
    let output = process.stdout.take().ok_or("its output is not piped")?;
    let mut lines = BufReader::new(output).lines();
    let ready = async {
        let mut before = Vec::new();
        while let Some(line) = lines.next_line().await? {
            if line == READY {
                return Ok(before);
            }
            before.push(line);
        }
        Err::<_, Failure>("it ended at once".into())
    };
    timeout(UP_DEADLINE, ready).await.map_err(|_| "it took too long")?
}
