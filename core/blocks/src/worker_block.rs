//! The worker's side of its block: which chunks it may read now, and when it asks for more.
//!
//! It keeps the promises that the leader relies on: it never begins a chunk before it is confirmed,
//! and it never commits under a lease that it was not granted. Answers may be delayed, repeated or
//! lost; a repeated question gets the same answer.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::event::{Effect, Event, LeaseId, LeaseProgress, WorkerId};

/// A block, as its worker knows it.
#[derive(Clone, Debug)]
pub struct WorkerBlock {
    worker: WorkerId,
    node: NodeId,
    lease: Option<LeaseId>,
    chunks: Vec<u32>,
    confirmed: u32,
    progress: LeaseProgress,
    is_last: bool,
    /// The progress at the last question. At the same progress, only the heartbeat asks again.
    asked: Option<(LeaseProgress, u32)>,
}

impl WorkerBlock {
    /// A new worker without chunks.
    pub fn new(worker: WorkerId, node: NodeId) -> Self {
        let progress = LeaseProgress::default();
        WorkerBlock {
            worker,
            node,
            lease: None,
            chunks: Vec::new(),
            confirmed: 0,
            progress,
            is_last: false,
            asked: None,
        }
    }

    /// Applies an answer. The shell acts on [`Effect::Committed`] and [`Effect::Discard`].
    pub fn told(&mut self, answer: &Effect) {
        match answer {
            Effect::Granted { worker, lease, kept, chunks, confirmed }
                if *worker == self.worker =>
            {
                if self.lease < Some(*lease) && self.confirmed <= *kept && !self.is_last {
                    self.chunks.truncate(*kept as usize);
                    self.chunks.extend(chunks);
                    self.lease = Some(*lease);
                }
                self.has(*lease, *kept + chunks.len() as u32, *confirmed);
            }
            Effect::Renewed { worker, lease, chunks, confirmed } if *worker == self.worker => {
                self.has(*lease, *chunks, *confirmed);
            }
            Effect::NoMore { worker, chunks } if *worker == self.worker => {
                self.chunks.truncate(self.confirmed.max(*chunks) as usize);
                self.confirmed = self.chunks.len() as u32;
                self.is_last = true;
            }
            _ => {}
        }
        self.progress.chunks = self.chunks.len() as u32;
    }

    /// Confirmed chunks stay confirmed, and chunks that were taken stay gone. So delayed answers
    /// change nothing, not even answers of a leader that has restarted since and has forgotten what
    /// was taken.
    fn has(&mut self, lease: LeaseId, chunks: u32, confirmed: u32) {
        if self.lease == Some(lease) {
            self.chunks.truncate(chunks.max(self.confirmed) as usize);
            self.confirmed = self.confirmed.max(confirmed.min(self.chunks.len() as u32));
        }
    }

    /// The chunk to read now; `None` if there is none, or none confirmed.
    pub fn current(&self) -> Option<u32> {
        (self.progress.done < self.confirmed).then(|| self.chunks[self.progress.done as usize])
    }

    /// The chunk that will probably be next, which may be fetched but not begun.
    pub fn upcoming(&self) -> Option<u32> {
        self.chunks
            .get(self.progress.done as usize + usize::from(self.current().is_some()))
            .copied()
    }

    /// `bytes` more of the current chunk were read.
    pub fn read(&mut self, bytes: u64) {
        self.progress.bytes += bytes;
    }

    /// The current chunk was read completely.
    ///
    /// # Panics
    /// If there is none.
    pub fn end_chunk(&mut self) {
        assert!(self.current().is_some(), "no chunk is being read");
        (self.progress.done, self.progress.bytes) = (self.progress.done + 1, 0);
    }

    /// The question to send now, if any. To be called after every change: asks for more when the
    /// last confirmed chunk is being read.
    pub fn request(&mut self) -> Option<Event> {
        let here = (LeaseProgress { bytes: 0, ..self.progress }, self.confirmed);
        if !self.is_short() || self.asked == Some(here) {
            return None;
        }
        self.asked = Some(here);
        Some(self.heartbeat())
    }

    /// The message to send at least three times in a term, and more often while an answer is
    /// awaited: the last question, or the progress.
    pub fn heartbeat(&self) -> Event {
        let WorkerBlock { worker, node, lease, progress, .. } = *self;
        match lease {
            Some(lease) if !self.is_short() || (self.confirmed as usize) < self.chunks.len() => {
                Event::Renew { worker, lease, progress }
            }
            _ => Event::RequestLease { worker, node, lease, progress },
        }
    }

    /// Whether no chunk is confirmed beyond the current one.
    fn is_short(&self) -> bool {
        !self.is_last && self.progress.done + 1 >= self.confirmed
    }

    /// Whether the input of the program has to end: all chunks were read and there are no more.
    pub fn is_at_end(&self) -> bool {
        self.is_last && self.progress.done as usize == self.chunks.len()
    }

    /// The commit to send when the program has succeeded; `None` if the worker has no chunks, and
    /// just leaves.
    pub fn commit(&self) -> Option<Event> {
        Some(Event::Commit { worker: self.worker, lease: self.lease?, done: self.progress.done })
    }

    /// Number of chunks that were read completely.
    pub fn done(&self) -> u32 {
        self.progress.done
    }

    /// The chunks of the block so far, in order.
    pub fn chunks(&self) -> &[u32] {
        &self.chunks
    }
}
