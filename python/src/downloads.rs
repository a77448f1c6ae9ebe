//! Downloads of files that calls keep in the cluster.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eyas_client::types::{JobId, Name};
use eyas_client::{Client, Cluster, GetRequest};
use pyo3::prelude::*;
use tokio::runtime::Builder;

use crate::session::error;
use crate::waiting::{Connected, wait};

/// Threads that receive.
const THREADS: usize = 1;

/// Time for which a dispatcher that cannot be reached is dialled again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum number of connections that wait for the next download.
const MAX_IDLE: usize = 4;

/// Connections that are not in use.
type Idle = Connected<Mutex<Vec<Client>>>;

/// The connections over which files of one cluster are downloaded. They are kept, because dialling takes longer than
/// the download of a small file.
pub(crate) struct Downloads {
    cluster: Cluster,
    /// Those of the process that has made them.
    idle: Mutex<Option<Arc<Idle>>>,
}

impl Downloads {
    pub fn new(cluster: Cluster) -> Self {
        Downloads { cluster, idle: Mutex::default() }
    }

    /// Downloads a file of a task into a folder.
    pub fn fetch(&self, py: Python<'_>, job: JobId, task: u32, file: Name, folder: PathBuf) -> PyResult<()> {
        let connected = self.connected()?;
        let Some((runtime, idle)) = connected.parts() else { unreachable!("it was made by this process") };
        let request = GetRequest { job, task: Some(task), files: vec![file], to: folder, replaces: true };
        let download = async {
            let known = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut client = match known {
                Some(client) => client,
                None => {
                    let access = self.cluster.access().map_err(|why| why.to_string())?;
                    Client::connect(&access).await.map_err(|why| why.to_string())?
                }
            };
            client.get(&request, PATIENCE, |_| ()).await.map_err(|why| why.to_string())?;
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE {
                idle.push(client);
            }
            Ok::<(), String>(())
        };
        wait(py, runtime, download)?.map_err(error)
    }

    /// Ends the connections.
    pub fn close(&self) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(idle);
    }

    fn connected(&self) -> PyResult<Arc<Idle>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match idle.as_ref().filter(|connected| connected.parts().is_some()) {
            Some(connected) => Ok(connected.clone()),
            None => {
                let runtime =
                    Builder::new_multi_thread().worker_threads(THREADS).thread_name("eyas").enable_all().build();
                let connected = Arc::new(Connected::new(runtime.map_err(error)?, Mutex::default()));
                Ok(idle.insert(connected).clone())
            }
        }
    }
}
