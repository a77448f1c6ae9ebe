//! Turns at persistent storage: fetches and outputs wait in the I/O coordinator's queues, like the
//! reads and writes of unmodified programs.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use eyas_coordinator::{TurnClient, class_id};
use eyas_session::Access;
use eyas_store::{StorageOrder, StorageTurn, TurnRequest};

pub(crate) struct StorageTurns(TurnClient);

impl StorageTurns {
    /// Asks the coordinator of that access file for turns while it can be reached. They belong to
    /// the job class with this name.
    pub fn start(access: &Path, class: &str) -> io::Result<Arc<dyn StorageOrder>> {
        let access = Access::load(access).map_err(io::Error::other)?;
        Ok(Arc::new(StorageTurns(TurnClient::start(access, class_id(class))?)))
    }
}

impl StorageOrder for StorageTurns {
    fn turn(
        &self,
        request: TurnRequest,
    ) -> Pin<Box<dyn Future<Output = Option<StorageTurn>> + Send + '_>> {
        let TurnRequest { location, file, operation, extent } = request;
        let turn = self.0.turn(location, file, operation, extent);
        Box::pin(async move { turn.await.map(|turn| Box::new(turn) as StorageTurn) })
    }
}
