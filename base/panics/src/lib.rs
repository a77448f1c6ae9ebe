//! Passes the panic of a task, or of work on a blocking thread, on to the code that waits for it.

#![forbid(unsafe_code)]

use std::panic::resume_unwind;

use tokio::task::JoinError;

/// Continues the panic of a task in the code that waits for it, as in
/// `task.await.unwrap_or_else(resume)`.
///
/// A runtime that ends cancels its tasks. A cancelled task has not panicked, so the waiting code
/// is unwound without a message.
///
/// # Panics
/// Always.
pub fn resume<T>(error: JoinError) -> T {
    resume_unwind(error.try_into_panic().unwrap_or_else(|cancelled| Box::new(cancelled)))
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tokio::runtime::Builder;
    use tokio::task::JoinHandle;

    use super::*;

    /// What the wait for a task unwinds with.
    fn unwound(error: JoinError) -> Box<dyn std::any::Any + Send> {
        catch_unwind(AssertUnwindSafe(|| resume::<()>(error))).unwrap_err()
    }

    #[test]
    fn a_panic_goes_on() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let task: JoinHandle<()> = runtime.spawn(async { resume_unwind(Box::new("why")) });
        let error = runtime.block_on(task).unwrap_err();
        assert_eq!(unwound(error).downcast_ref(), Some(&"why"));
    }

    #[test]
    fn a_task_that_its_runtime_has_ended_is_no_panic_of_its_own() {
        let ended = Builder::new_current_thread().build().unwrap();
        let task = ended.spawn(pending::<()>());
        drop(ended);
        let runtime = Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(task).unwrap_err();
        assert!(unwound(error).downcast::<JoinError>().unwrap().is_cancelled());
    }
}
