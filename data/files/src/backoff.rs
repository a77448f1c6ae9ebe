//! Pauses between the tries of an operation.

use std::time::Duration;

use tokio::time::sleep;

/// First and longest pause between two tries of an operation that is temporarily impossible.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// Pauses that become longer.
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(FIRST)
    }
}

impl Backoff {
    /// Waits for a pause. The next one is twice as long.
    pub async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}
