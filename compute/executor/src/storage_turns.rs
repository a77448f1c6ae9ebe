//! Turns at persistent storage: fetches wait in the I/O coordinator's queues, like the reads of
//! unmodified programs.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use eyas_coordinator::{TurnClient, class_id};
use eyas_session::Access;
use eyas_store::{ReadOrder, ReadTurn, TurnRequest};

pub(crate) struct StorageTurns(TurnClient);

impl StorageTurns {
    /// Asks the coordinator of that access file for turns while it can be reached. They belong to
    /// the job class with this name.
    pub fn start(access: &Path, class: &str) -> io::Result<Arc<dyn ReadOrder>> {
        let access = Access::load(access).map_err(io::Error::other)?;
        Ok(Arc::new(StorageTurns(TurnClient::start(access, class_id(class))?)))
    }
}

impl ReadOrder for StorageTurns {
    fn turn(&self, request: TurnRequest) -> Pin<Box<dyn Future<Output = ReadTurn> + Send + '_>> {
        let TurnRequest { location, file, extent } = request;
        Box::pin(async move { Box::new(self.0.turn(location, file, extent).await) as ReadTurn })
    }
}
