//! What a policy must answer.

use alloc::collections::BTreeMap;

use crate::ordering::run::{QueueKey, RequestRun};

/// Order of the runs that one policy keeps.
pub(crate) trait RunOrder: Send {
    /// Adds a run that could be granted from now on.
    fn insert(&mut self, run: &RequestRun);

    /// Removes a run that was granted or has changed.
    fn remove(&mut self, run: &RequestRun);

    /// Head of the run that goes first. `now_us` never decreases. A choice that is not granted
    /// changes nothing.
    fn choose(&mut self, now_us: u64) -> Option<QueueKey>;

    /// The chosen run is granted.
    fn granted(&mut self) {}

    /// The number of rounds so far, where requests age by rounds; 0 for other policies.
    fn round(&self) -> u64 {
        0
    }

    /// # Panics
    /// If it does not hold exactly these runs.
    fn validate(&self, runs: &BTreeMap<QueueKey, RequestRun>);
}
