//! The cluster of `eyas run` without a running one: its nodes are processes on this machine, or
//! come from a pool.

use std::hash::BuildHasher;
use std::path::{Path, PathBuf};

use eyas_client::Client;
use eyas_client::messages::FromClient;
use eyas_wire::pool::{PoolOptions, PoolsRequest};

use super::run_args::RunArgs;
use crate::clock::unix_s;
use crate::error::CliError;
use crate::local::{LocalCluster, LocalFolders};
use crate::node_args::ShapeArgs;
use crate::pool_args::parse_pool_words;
use crate::shared_disk;

/// The pool of a cluster that this command starts.
#[derive(Clone)]
pub(super) struct RunPool {
    pub options: PoolOptions,
    /// Whether the nodes are other machines.
    pub is_elsewhere: bool,
}

impl RunPool {
    pub fn new(word: &str, args: &RunArgs) -> Result<Self, CliError> {
        let own = parse_pool_words(args.pool_options.split_whitespace())?;
        let (system, shape, _) = args.pool_files.system_and_options(word, own)?;
        Ok(RunPool { options: shape.options(&system)?, is_elsewhere: system != "local" })
    }
}

/// Starts a cluster for one job: its nodes are processes on this machine, or come from a pool.
pub(super) async fn start_own(
    folders: LocalFolders,
    shape: &ShapeArgs,
    pool: Option<RunPool>,
) -> Result<(LocalCluster, Client), CliError> {
    let Some(pool) = pool else {
        shared_disk::warn(&folders.stores, shared_disk::SET_TMPDIR);
        return LocalCluster::start(folders, "run", shape).await;
    };
    let folders = LocalFolders { is_reachable: pool.is_elsewhere, ..folders };
    let (local, mut client) =
        LocalCluster::start(folders, "run", &ShapeArgs { nodes: 0, ..shape.clone() }).await?;
    let (name, options) = ("run".to_owned(), Box::new(pool.options));
    let added =
        client.ask(FromClient::Pools(PoolsRequest::Add { name, options, is_tried: true })).await;
    match added {
        Ok(_) => Ok((local, client)),
        Err(error) => {
            local.stop().await;
            Err(error.into())
        }
    }
}

/// The folder of the cluster that this command starts, with a name that cannot be guessed. The
/// dispatcher creates and removes the folder, because the dispatcher ends after this process, also
/// if this process is killed.
pub(super) fn private_folder(temporary: &Path) -> Result<PathBuf, CliError> {
    // Each `RandomState` has keys from the system's source of randomness.
    let random = std::collections::hash_map::RandomState::new().hash_one(unix_s());
    if !temporary.is_dir() {
        return Err(format!(
            "the temporary folder {} does not exist: set TMPDIR to a folder",
            temporary.display()
        )
        .into());
    }
    Ok(temporary.join(format!("eyas-run-{}-{random:016x}", std::process::id())))
}
