//! One call of the decider: its time, the records as it sees them, and the effects that it asks
//! for.

use alloc::collections::VecDeque;

use crate::event::{Effect, FileAnswer, Refusal};
use crate::message::MessageBody;
use crate::record_view::RecordView;

/// The context of one call of [`RingNode::handle`](crate::RingNode::handle).
pub(crate) struct Step<'a> {
    pub now_us: u64,
    pub records: RecordView<'a>,
    /// Messages of the node to itself.
    pub own: VecDeque<MessageBody>,
}

impl<'a> Step<'a> {
    pub fn new(now_us: u64, records: RecordView<'a>) -> Self {
        Step { now_us, records, own: VecDeque::new() }
    }

    pub fn push(&mut self, effect: Effect) {
        self.records.effects.push(effect);
    }

    /// Answers a client.
    pub fn answer(&mut self, request: u64, answer: Result<FileAnswer, Refusal>) {
        self.push(Effect::Answer { request, answer });
    }
}
