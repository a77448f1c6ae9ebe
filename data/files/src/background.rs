//! Work in the background whose result somebody still wants.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Work in the background. Dropping it ends the work.
#[derive(Debug)]
pub struct Background<T>(JoinHandle<T>);

impl<T: Send + 'static> Background<T> {
    /// Begins work on the runtime of the caller.
    pub fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Background(tokio::spawn(work))
    }

    /// Begins work on this runtime.
    pub(crate) fn spawn_on(
        runtime: &Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Background(runtime.spawn(work))
    }
}

impl<T> Background<T> {
    /// Waits for the result. The future may be dropped and the method called again.
    ///
    /// # Panics
    /// If the work has panicked, or if the result was taken before.
    pub async fn done(&mut self) -> T {
        (&mut self.0).await.unwrap_or_else(eyas_panics::resume)
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
