//! The turns of the core: it waits here, for messages, calls and deadlines, and nowhere else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use eyas_jobs as jobs;
use eyas_pools::PoolOrder;
use tokio::sync::{mpsc, watch};

use super::message::CoreMessage;
use super::{CoreCall, DispatcherCore};
use crate::journal::JournalError;
use crate::log::RecordNumber;

/// Messages that are handled before results are written and deadlines are checked.
const HANDLED_AT_ONCE: usize = 256;
/// No more messages are handled before that once they have taken this long, microseconds.
const MAX_TURN_US: u64 = 20_000;
/// Tasks of new jobs are queued this many at a time; then messages are handled.
pub(super) const QUEUE_MORE: jobs::Event = jobs::Event::QueueMore { tasks: 10_000 };

/// What the core is told and asked. A call does not wait for what executors have sent before, which
/// may be much.
pub(crate) struct CoreInbox {
    pub calls: mpsc::Receiver<CoreCall>,
    pub messages: mpsc::Receiver<CoreMessage>,
    /// Up to which record the log is on disk.
    pub durable: watch::Receiver<RecordNumber>,
    pub orders: mpsc::Receiver<PoolOrder>,
    /// Changes when the cluster is to stop.
    pub stop: watch::Receiver<bool>,
}

/// Handles the calls and messages that have gathered, for at most [`MAX_TURN_US`]. That comes
/// before results are written, and results gather while others are being written, so that
/// entries are large when there is much to write.
fn handle_gathered(core: &mut DispatcherCore, inbox: &mut CoreInbox) {
    let until_us = core.clock.now_us() + MAX_TURN_US;
    for _ in 0..HANDLED_AT_ONCE {
        let (call, message) = (inbox.calls.try_recv(), inbox.messages.try_recv());
        let is_empty = call.is_err() && message.is_err();
        call.into_iter().for_each(|call| core.answer_call(call));
        message.into_iter().for_each(|message| core.handle(message));
        if is_empty || core.clock.now_us() > until_us {
            break;
        }
    }
    answer_gathered(core, inbox);
}

/// Answers the calls that have gathered. A piece of work on a task with very many inputs takes as
/// long as thousands of calls, so a caller waits for one such piece at most.
fn answer_gathered(core: &mut DispatcherCore, inbox: &mut CoreInbox) {
    for _ in 0..HANDLED_AT_ONCE {
        let Ok(call) = inbox.calls.try_recv() else { break };
        core.answer_call(call);
    }
}

/// Works until the cluster is stopped. In tests, what the journal has is compared then with what is
/// in memory, and differences are written to the file `differences`.
pub(crate) async fn run(
    mut core: DispatcherCore,
    mut inbox: CoreInbox,
    differences: Option<PathBuf>,
) {
    loop {
        let due_us = core.next_due_us();
        let due = async {
            match due_us {
                Some(due_us) => {
                    tokio::time::sleep(Duration::from_micros(core.clock.until_us(due_us))).await
                }
                None => std::future::pending().await,
            }
        };
        let has_more_to_queue = core.jobs.has_more_to_queue();
        let has_parts = core.has_parts();
        tokio::select! {
            biased;
            () = due => core.tick(due_us.unwrap_or_default()),
            Ok(()) = inbox.stop.changed(), if !core.deadlines.is_stopping() => core.begin_to_stop(),
            Ok(()) = inbox.durable.changed() => {
                let number = *inbox.durable.borrow_and_update();
                core.durable(number);
            }
            Some(order) = inbox.orders.recv() => core.obey(order),
            Some(call) = inbox.calls.recv() => core.answer_call(call),
            message = inbox.messages.recv() => match message {
                Some(message) => core.handle(message),
                None => break,
            },
            () = std::future::ready(()), if has_more_to_queue => core.tell_jobs(QUEUE_MORE),
            () = std::future::ready(()), if has_parts => {}
        }
        handle_gathered(&mut core, &mut inbox);
        core.do_part();
        answer_gathered(&mut core, &mut inbox);
        // Executors that have room are given tasks before further messages are looked at.
        // Otherwise all of them would have ended what they have before they get more, and each
        // message would be about few tasks.
        if core.scheduler.waiting() == 0 && core.jobs.has_more_to_queue() {
            core.tell_jobs(QUEUE_MORE);
            answer_gathered(&mut core, &mut inbox);
        }
        if core.attached.are_there() {
            core.tell_jobs(jobs::Event::Deliver);
        }
        core.report_to_pools();
        core.executors.flush();
        let cannot_wait = core.deadlines.is_stopping() || core.jobs.has_full_entry();
        if !core.records.are_being_written() || cannot_wait {
            core.write_results();
        }
        let is_over = core.executors.len() == 0 || core.deadlines.is_stop_over(core.clock.now_us());
        if core.deadlines.is_stopping() && is_over {
            break;
        }
    }
    if let Some(differences) = differences
        && let Err(e) = compare_with_journal(&mut core, inbox.durable, &differences).await
    {
        tracing::error!("{e}");
    }
}

/// Waits until everything is on disk, then compares memory with the journal.
async fn compare_with_journal(
    core: &mut DispatcherCore,
    mut durable: watch::Receiver<RecordNumber>,
    differences: &Path,
) -> Result<(), JournalError> {
    core.write_results();
    while core.replies.is_behind() {
        // If it cannot be written, that was told before.
        let Ok(()) = durable.changed().await else { return Ok(()) };
        let number = *durable.borrow_and_update();
        core.durable(number);
    }
    core.records.compare_with(&core.jobs, differences)
}
