//! Turns at persistent storage: fetches stand in the coordinator's queues, with the unmodified programs of all nodes.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use eyas_coordinator::{Client, class_id};
use eyas_session::Access;
use eyas_store::{ReadOrder, ReadTurn, TurnRequest};

/// The job class of what executors fetch.
const CLASS: &str = "eyas";

pub(crate) struct Turns(Client);

impl Turns {
    /// Asks the coordinator with that access file, whenever it is there.
    pub fn start(access: &Path) -> io::Result<Arc<dyn ReadOrder>> {
        let access = Access::load(access).map_err(io::Error::other)?;
        Ok(Arc::new(Turns(Client::start(access, class_id(CLASS))?)))
    }
}

impl ReadOrder for Turns {
    fn turn(&self, request: TurnRequest) -> Pin<Box<dyn Future<Output = ReadTurn> + Send + '_>> {
        let TurnRequest { location, file, extent } = request;
        Box::pin(async move { Box::new(self.0.turn(location, file, extent).await) as ReadTurn })
    }
}
