//! The threads of slots: each runs tasks one after another.

use std::sync::mpsc as threads;
use std::sync::{Arc, Weak};

use eyas_types::JobId;
use tokio::sync::OwnedSemaphorePermit;

use super::CoreHandle;
use crate::task::{PendingEnd, RunProgress, SlotState, TaskRun, TaskRunner};

/// What the thread of a slot is told.
pub(super) enum SlotOrder {
    Run(TaskRun),
    /// There are no more tasks of this job.
    Forget(JobId),
}

/// Starts the thread of a slot.
pub(super) fn slot_thread(
    runner: Arc<TaskRunner>,
    core: Weak<CoreHandle>,
) -> threads::Sender<SlotOrder> {
    let (sender, receiver) = threads::channel::<SlotOrder>();
    let run_tasks = move || {
        let mut slot = SlotState::default();
        while let Ok(order) = receiver.try_recv().or_else(|_| {
            // There is nothing else to do now.
            slot.spare = slot.spare.take().or_else(|| runner.spare_sandbox());
            receiver.recv()
        }) {
            let run = match order {
                SlotOrder::Run(run) => run,
                SlotOrder::Forget(job) => {
                    slot.workers.retain(|worker| worker.job() != job);
                    continue;
                }
            };
            let end = match runner.run(&run, &mut slot) {
                RunProgress::Ended(end) => end,
                RunProgress::Copied(pending) => match runner.deliveries.clone().try_acquire_owned()
                {
                    Ok(permit) => {
                        deliver_out_of_slot(run, pending, permit, runner.clone(), &core);
                        continue;
                    }
                    // Enough tasks deliver already: this one keeps its slot.
                    Err(_) => runner.complete(&run, pending),
                },
            };
            // Without a core the session has ended.
            if let Some(core) = core.upgrade() {
                core.task_ended(run, end);
            }
        }
    };
    std::thread::Builder::new().name("slot".into()).spawn(run_tasks).expect("a thread for a slot");
    sender
}

/// Delivers the outputs of a task on a thread of the movers; its slot is free at once.
fn deliver_out_of_slot(
    run: TaskRun,
    pending: PendingEnd,
    permit: OwnedSemaphorePermit,
    runner: Arc<TaskRunner>,
    core: &Weak<CoreHandle>,
) {
    if let Some(core) = core.upgrade() {
        core.lock().slot_left(run.task.id());
    }
    let core = core.clone();
    runner.movers.clone().spawn_blocking(move || {
        let end = runner.complete(&run, pending);
        drop(permit);
        if let Some(core) = core.upgrade() {
            core.lock().delivered(run.task.id(), end.outcome);
        }
    });
}
