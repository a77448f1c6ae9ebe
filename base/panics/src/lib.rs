//! What becomes of whoever waits for a task, or for work on a blocking thread, that has no result.

#![forbid(unsafe_code)]

use std::panic::resume_unwind;

use tokio::task::JoinError;

/// Goes on with the panic of a task. For `unwrap_or_else` on what is joined.
///
/// A task that was cancelled, because its runtime ends, has no panic. Whoever waits for it ends
/// too: the stack is unwound without a message.
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
