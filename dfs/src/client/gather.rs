//! Waiting for nodes that are about to join. A cluster that has just been started has one member and soon all others; a file
//! that is written between has one replica, and goes with the first node that dies.

use std::time::{Duration, Instant};

use crate::client::error::FilesError;
use crate::client::{DfsClient, Known, PAUSE};

/// From when a client has connected on, nodes have so long to join. Then what it writes has fewer replicas for now.
pub(crate) const GATHER_DEADLINE: Duration = Duration::from_secs(10);

/// How many nodes have joined, of those that are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Members that live.
    pub joined: usize,
    /// As many as are to have what is written, or as there are.
    pub wanted: usize,
}

impl Gathering {
    /// Whether there are as many as there are to be.
    pub fn is_enough(&self) -> bool {
        self.joined >= self.wanted
    }
}

impl DfsClient {
    /// Waits until so many nodes have joined, or all that there are if they are fewer, and until what is written can do
    /// without some of them; but not for ever. Tells `see` if there is something to wait for, and how it stands in the end.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn gather(&self, count: usize, see: impl FnOnce(Gathering)) -> Result<Gathering, FilesError> {
        let wanted = count.min(self.0.seeds.len());
        let (mut see, mut pause) = (Some(see), PAUSE);
        loop {
            let known = self.known();
            let gathering = Gathering { joined: known.size(), wanted };
            if known.has_gathered(wanted) || Instant::now() >= self.0.gathers_until {
                return Ok(gathering);
            }
            if let Some(see) = see.take() {
                see(gathering);
            }
            self.pause(&mut pause).await;
            self.refresh(self.deadline()).await?;
        }
    }
}

impl Known {
    /// Whether so many have joined, and nothing that counts is with fewer: the next view still asks the members of those before
    /// one that is settled.
    fn has_gathered(&self, wanted: usize) -> bool {
        let is_with_enough = self.is_settled || self.view.sources.iter().all(|members| members.len() >= wanted);
        self.size() >= wanted && is_with_enough
    }
}
