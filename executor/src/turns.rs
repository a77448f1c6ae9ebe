//! Turns at persistent storage: fetches stand in the coordinator's queues, with the unmodified programs of all nodes.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use eyas_coordinator::{Client, class_id};
use eyas_session::Access;
use eyas_store::{Order, Place, Turn, Wish};

/// The job class of what executors fetch.
const CLASS: &str = "eyas";

pub(crate) struct Turns(Client);

impl Turns {
    /// Asks the coordinator with that access file, whenever it is there.
    pub fn start(access: &Path) -> io::Result<Arc<dyn Order>> {
        let access = Access::load(access).map_err(io::Error::other)?;
        Ok(Arc::new(Turns(Client::start(access, class_id(CLASS))?)))
    }
}

impl Order for Turns {
    fn turn(&self, Wish { place, file, extent }: Wish) -> Pin<Box<dyn Future<Output = Turn> + Send + '_>> {
        let place = match place {
            Place::Device(device) => eyas_coordinator::Place::Device(device),
            Place::Url(url) => eyas_coordinator::Place::Url(url),
        };
        Box::pin(async move { Box::new(self.0.turn(place, file, extent).await) as Turn })
    }
}
