//! Work for which threads of Python wait, and connections that do it.

use std::pin::pin;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How often a signal is looked for while something is awaited.
const SIGNAL_PERIOD: Duration = Duration::from_millis(100);

/// Time that the threads of a runtime have to end.
pub(crate) const END_DEADLINE: Duration = Duration::from_secs(1);

/// Waits for work. Other threads of Python run meanwhile, and signals are handled.
///
/// # Errors
/// What the handler of a signal has raised.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    work: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let mut work = pin!(work);
    loop {
        match py.detach(|| runtime.block_on(async { timeout(SIGNAL_PERIOD, work.as_mut()).await }))
        {
            Ok(done) => return Ok(done),
            Err(_) => py.check_signals()?,
        }
    }
}

/// A runtime with threads of its own.
///
/// # Errors
/// If the system has no room for it.
pub(crate) fn runtime_of_threads(threads: usize) -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(threads).thread_name("eyas").enable_all().build()
}

/// Connects, on a runtime that stays.
///
/// # Errors
/// What the handler of a signal has raised, and what `connecting` has failed with.
pub(crate) fn connect<T: Send>(
    py: Python<'_>,
    runtime: Runtime,
    connecting: impl Future<Output = PyResult<T>> + Send,
) -> PyResult<(Runtime, T)> {
    match wait(py, &runtime, connecting).flatten() {
        Ok(connected) => Ok((runtime, connected)),
        Err(error) => {
            // It may still look up a name.
            runtime.shutdown_background();
            Err(error)
        }
    }
}

/// Waits for work that needs no runtime afterwards.
///
/// # Errors
/// What the handler of a signal has raised, and what `work` has failed with.
pub(crate) fn wait_once<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = PyResult<T>> + Send,
) -> PyResult<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = wait(py, &runtime, work).flatten();
    runtime.shutdown_background();
    done
}

/// A connection and its runtime. They belong to the process that has made them.
pub(crate) struct ProcessConnection<T> {
    /// `Some` until the value is dropped.
    parts: Option<(Runtime, T)>,
    process: u32,
}

impl<T> ProcessConnection<T> {
    pub fn new(runtime: Runtime, connection: T) -> Self {
        ProcessConnection { parts: Some((runtime, connection)), process: std::process::id() }
    }

    /// The runtime and the connection, if this is the process that has made them.
    pub fn parts(&self) -> Option<(&Runtime, &T)> {
        match &self.parts {
            Some((runtime, connection)) if self.process == std::process::id() => {
                Some((runtime, connection))
            }
            _ => None,
        }
    }

    /// The process that has made them.
    pub fn process(&self) -> u32 {
        self.process
    }
}

impl<T> Drop for ProcessConnection<T> {
    fn drop(&mut self) {
        let Some((runtime, connection)) = self.parts.take() else { return };
        if self.process != std::process::id() {
            // The threads are not in the child of a fork, and the sockets are the parent's.
            std::mem::forget((runtime, connection));
            return;
        }
        let inside = runtime.enter();
        drop(connection);
        drop(inside);
        runtime.shutdown_timeout(END_DEADLINE);
    }
}
