//! The order to end, given once: by a signal, by the end of standard input, by a test.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Gives the order. Without it, only the dispatcher can stop the executor.
pub struct Switch(watch::Sender<Option<Instant>>);

impl Switch {
    /// The executor shall end; it remembers when it was told first.
    pub fn press(&self) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert_with(Instant::now);
            is_first
        });
    }
}

/// Tells an executor to stop: it kills what runs, says farewell and returns.
#[derive(Clone)]
pub struct Stop(watch::Receiver<Option<Instant>>);

impl Stop {
    /// A switch, and what it switches.
    pub fn new() -> (Switch, Self) {
        let (sender, receiver) = watch::channel(None);
        (Switch(sender), Stop(receiver))
    }

    /// Returns when the order is given, with the moment at which it was.
    pub(crate) async fn wait(&mut self) -> Instant {
        match self.0.wait_for(Option::is_some).await.map(|told| *told) {
            Ok(Some(told)) => told,
            // Without a switch left it can only be stopped by the dispatcher.
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
