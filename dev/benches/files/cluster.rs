//! A file system of real executors, and clients of it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use eyas_client::Client;
use eyas_client::files::DfsClient;
use eyas_dev::bench::{OwnedProcess, cpu_s, eyas, home, wait_for};
use eyas_session::Access;
use tempfile::TempDir;

/// In which nodes have found each other.
const DEADLINE: Duration = Duration::from_secs(60);

/// A dispatcher, and executors that keep files.
pub struct Cluster {
    access: Access,
    executors: Vec<OwnedProcess>,
    _dispatcher: OwnedProcess,
    nodes: usize,
    _home: TempDir,
}

impl Cluster {
    pub fn start(nodes: usize) -> Self {
        let home = home();
        let access_path = home.path().join("access.toml");
        let start = |words: &[&str]| {
            let mut command = eyas(home.path(), &["start"]);
            command.args(words).arg("--owned").arg("--access").arg(&access_path);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            OwnedProcess(command.spawn().expect("eyas can be started"))
        };
        let mut dispatcher = start(&["dispatcher", "--listen", "127.0.0.1:0"]);
        wait_for(&access_path, &mut dispatcher);
        let access = Access::load(&access_path).expect("written whole");
        let executors = (0..nodes).map(|node| {
            let folder = home.path().join(format!("node-{node}"));
            let folder = folder.to_str().expect("our own folder");
            start(&["executor", "--slots", "1", "--dfs", "--reconnect", "0s", "--folder", folder])
        });
        Cluster {
            executors: executors.collect(),
            access,
            _dispatcher: dispatcher,
            nodes,
            _home: home,
        }
    }

    /// This number of clients with connections of their own. Waits until all nodes have joined.
    pub async fn clients(&self, count: usize) -> Vec<DfsClient> {
        let deadline = Instant::now() + DEADLINE;
        let mut clients = Vec::new();
        while clients.len() < count {
            assert!(Instant::now() < deadline, "not all nodes join");
            if let Some(files) = self.client().await {
                clients.push(files);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        clients
    }

    async fn client(&self) -> Option<DfsClient> {
        let files = Client::connect(&self.access).await.ok()?.files().await.ok()?;
        let members = files.membership().await.ok()?.view?.members;
        (members.len() == self.nodes).then_some(files)
    }

    /// Process ids of all executors.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.executors.iter().map(|executor| executor.0.id())
    }

    /// Processor time of all executors.
    pub fn cpu_s(&self) -> f64 {
        self.processes().map(|process| cpu_s(&process.to_string())).sum()
    }
}
