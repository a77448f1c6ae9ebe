//! A cluster on this machine: a dispatcher and executors as child processes, which end when this process does, however
//! it ends, because their standard input does.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_session::Access;
use eyas_session::private::PrivateFolder;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::command::{NodeArgs, ShapeArgs};
use crate::detach::{UP_DEADLINE, wait_until_ready};
use crate::start::{own_path, remove_folder};

/// And down so soon, once it was told.
const DOWN_DEADLINE: Duration = Duration::from_secs(20);

/// The processes of a cluster: its dispatcher, then its executors.
struct Processes {
    children: Vec<Child>,
    /// What the processes stop at the end of. Not left in `Child`, whose `wait` would close it.
    inputs: Vec<ChildStdin>,
    folder: PathBuf,
    ephemeral: bool,
}

pub(crate) struct LocalCluster {
    processes: Processes,
    pub access: Access,
    /// What the dispatcher has to say: jobs that go on.
    pub news: Vec<String>,
}

impl LocalCluster {
    /// Starts a cluster in `folder`. One that is `ephemeral` is made by the dispatcher, and removed at the end, also if this
    /// process does not live to see it.
    pub async fn start(folder: &Path, name: &str, shape: &ShapeArgs, ephemeral: bool) -> Result<Self, Failure> {
        if !ephemeral {
            PrivateFolder::make(folder)?;
        }
        let mut processes =
            Processes { children: Vec::new(), inputs: Vec::new(), folder: folder.to_owned(), ephemeral };
        match processes.start(name, shape).await {
            Ok((access, news)) => Ok(LocalCluster { processes, access, news }),
            Err(e) => {
                processes.stop().await;
                Err(e)
            }
        }
    }

    /// Waits until the cluster was stopped by a client, or `interrupted` comes.
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
    /// Starts them all, and waits until they have found each other; what the dispatcher has to say.
    async fn start(&mut self, name: &str, shape: &ShapeArgs) -> Result<(Access, Vec<String>), Failure> {
        let access_path = self.folder.join("access.toml");
        let mut dispatcher = owned(&["start", "dispatcher", "--listen", "127.0.0.1:0"], self.ephemeral)?;
        dispatcher.arg("--access").arg(&access_path).env("EYAS_CLUSTER", name);
        dispatcher.args(["--policy", shape.placement.policy.name()]);
        dispatcher.args(["--utilisation", &shape.placement.utilisation.to_string()]);
        if shape.node.plain_data {
            dispatcher.arg("--plain-data");
        }
        if let Some(window) = shape.placement.window {
            dispatcher.args(["--window", &window.to_string()]);
        }
        let dispatcher = self.own(dispatcher.stdout(Stdio::piped()))?;
        let news = wait_until_ready(dispatcher).await;
        let news = news.map_err(|e| format!("the dispatcher did not start: {e}"))?;
        let access = Access::load(&access_path)?;
        for number in 1..=shape.nodes {
            let mut executor = owned(&["start", "executor"], self.ephemeral)?;
            let name = format!("n{number}");
            let folder = self.folder.join(&name);
            executor.arg("--access").arg(&access_path).arg("--folder").arg(folder).args(["--name", &name]);
            executor.args(["--share", &shape.nodes.to_string()]);
            executor.args(node_words(&shape.node));
            self.own(executor.stdout(Stdio::null()))?;
        }
        self.wait_for_executors(&access, shape.nodes as usize).await?;
        if shape.node.dfs {
            // Before all nodes have joined the file system, what is written has fewer replicas.
            let files = Client::connect(&access).await?.files().await?;
            crate::dfs::gather(&files, shape.nodes as usize).await?;
        }
        Ok((access, news))
    }

    fn own(&mut self, command: &mut Command) -> Result<&mut Child, Failure> {
        let mut child = command.spawn()?;
        self.inputs.extend(child.stdin.take());
        self.children.push(child);
        Ok(self.children.last_mut().expect("just pushed"))
    }

    async fn wait_for_executors(&mut self, access: &Access, count: usize) -> Result<(), Failure> {
        let mut client = Client::connect(access).await?;
        let all_joined = async {
            loop {
                if let ToClient::Executors(executors) = client.ask(FromClient::Executors).await?
                    && executors.len() >= count
                {
                    return Ok(());
                }
                for process in &mut self.children {
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

    /// Stops them, and waits until they have ended and left nothing that is ephemeral.
    async fn stop(mut self) {
        self.inputs.clear();
        for process in &mut self.children {
            if timeout(DOWN_DEADLINE, process.wait()).await.is_err() {
                tracing::warn!("a process of the cluster does not end; it is killed");
                let _ = process.kill().await;
            }
        }
        if self.ephemeral {
            remove_folder(&self.folder).await;
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
    if args.plain_data {
        words.push("--plain-data".into());
    }
    if args.dfs {
        words.push("--dfs".into());
    }
    words
}
