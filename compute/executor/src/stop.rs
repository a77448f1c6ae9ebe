//! The order to stop, given once: by a signal, by the end of standard input, or by a test.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Gives the order to stop. If it was dropped, only the dispatcher can stop the executor.
pub struct StopSwitch(watch::Sender<Option<Instant>>);

impl StopSwitch {
    /// Orders the executor to stop. Only the first order counts.
    pub fn press(&self) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert_with(Instant::now);
            is_first
        });
    }
}

/// The signal to stop. The executor then kills its tasks, tells the dispatcher that it leaves, and
/// returns.
#[derive(Clone)]
pub struct StopSignal(watch::Receiver<Option<Instant>>);

impl StopSignal {
    /// A switch and its signal.
    pub fn new() -> (StopSwitch, Self) {
        let (sender, receiver) = watch::channel(None);
        (StopSwitch(sender), StopSignal(receiver))
    }

    /// Returns when the order is given, with the moment at which it was.
    pub(crate) async fn wait(&mut self) -> Instant {
        match self.0.wait_for(Option::is_some).await.map(|told| *told) {
            Ok(Some(told)) => told,
            // The switch was dropped: only the dispatcher can stop the executor.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// When the order was given, if it has been.
    pub(crate) fn told(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// When the order was given, if it is within `patience`.
    pub(crate) async fn within(&self, patience: Duration) -> Option<Instant> {
        match self.told() {
            Some(told) => Some(told),
            None => tokio::time::timeout(patience, self.clone().wait()).await.ok(),
        }
    }
}
