//! `eyas cluster …`: lists and removes the clusters whose folders are on this machine.

use std::io;
use std::path::Path;
use std::time::Duration;

use clap::Subcommand;
use eyas_client::types::units::format_bytes;
use eyas_client::{Client, ClientError, Cluster};
use eyas_session::SessionError;
use serde_json::json;
use tokio::time::timeout;

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::say;
use crate::show::{self, Table};

/// A dispatcher that runs answers within this time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// List the clusters of this machine: state, size, folders
    List,
    /// Remove the files of stopped clusters: keys, journal, log and stores
    Remove {
        /// Names of the clusters
        #[arg(required = true)]
        names: Vec<String>,
        /// Also remove a cluster if the host of its dispatcher does not answer: the cluster may
        /// still be running
        #[arg(long)]
        force: bool,
    },
}

/// Whether the dispatcher of a cluster is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterState {
    /// The dispatcher answers.
    Running,
    /// The host answers, but no dispatcher of this cluster listens there; or the cluster was never
    /// started.
    Stopped,
    /// The host does not answer.
    Unreachable,
}

impl ClusterState {
    async fn of(cluster: &Cluster) -> Self {
        let Ok(access) = cluster.access() else { return ClusterState::Stopped };
        match timeout(ANSWER_DEADLINE, Client::connect(&access)).await {
            Ok(Ok(_)) => ClusterState::Running,
            Ok(Err(ClientError::Session(SessionError::Unreachable { source, .. })))
                if source.kind() != io::ErrorKind::ConnectionRefused =>
            {
                ClusterState::Unreachable
            }
            Ok(Err(ClientError::Session(
                SessionError::Unreachable { .. } | SessionError::NotTrusted { .. },
            ))) => ClusterState::Stopped,
            // The dispatcher answers with an error, such as a refused key.
            Ok(Err(_)) => ClusterState::Running,
            Err(_) => ClusterState::Unreachable,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ClusterState::Running => "running",
            ClusterState::Stopped => "stopped",
            ClusterState::Unreachable => "unreachable",
        }
    }
}

pub(crate) async fn cluster(
    command: &ClusterCommand,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    match command {
        ClusterCommand::List => list(global).await?,
        ClusterCommand::Remove { names, force } => {
            for name in names {
                remove(name, *force, global).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(global: &GlobalArgs) -> Result<(), CliError> {
    let mut table = Table::new(&["CLUSTER", "STATE", "SIZE", "STORES", "FOLDER"]);
    let mut views = Vec::new();
    for name in Cluster::names()? {
        let cluster = Cluster::named(&name)?;
        let (state, stores) = (ClusterState::of(&cluster).await, cluster.stores()?);
        let (bytes, stores_bytes) = (size_of(cluster.folder()), size_of(&stores));
        table.row(vec![
            name.clone(),
            state.name().into(),
            format_bytes(bytes),
            format_bytes(stores_bytes),
            cluster.folder().display().to_string(),
        ]);
        views.push(json!({
            "name": name,
            "state": state.name(),
            "bytes": bytes,
            "stores_bytes": stores_bytes,
            "folder": cluster.folder(),
            "stores": stores,
        }));
    }
    if global.json { show::json("clusters", &views) } else { table.print() }
}

async fn remove(name: &str, force: bool, global: &GlobalArgs) -> Result<(), CliError> {
    let cluster = Cluster::named(name)?;
    let (folder, stores) = (cluster.folder(), cluster.stores()?);
    if !folder.exists() && !stores.exists() {
        return Err(format!(
            "there is no cluster `{name}` on this machine: list them with `eyas cluster list`"
        )
        .into());
    }
    match ClusterState::of(&cluster).await {
        ClusterState::Running => {
            return Err(format!(
                "the cluster `{name}` is running: stop it with `eyas stop --cluster {name}`, then \
                 remove it"
            )
            .into());
        }
        ClusterState::Unreachable if !force => {
            return Err(format!(
                "the host of the dispatcher of cluster `{name}` does not answer, so the cluster \
                 may be running: if the cluster was stopped, remove it with `eyas cluster remove \
                 --force {name}`"
            )
            .into());
        }
        ClusterState::Unreachable | ClusterState::Stopped => {}
    }
    let bytes = size_of(folder) + size_of(&stores);
    for folder in [&stores, folder] {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("cannot remove {}: {error}", folder.display()).into());
            }
            _ => {}
        }
    }
    if global.json {
        show::json("removed", &json!({ "name": name, "bytes": bytes }))?;
    } else {
        say!("removed the cluster `{name}` ({})", format_bytes(bytes));
    }
    Ok(())
}

/// Total size of the files in a folder and its subfolders. Folders that cannot be read count as
/// empty.
fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
