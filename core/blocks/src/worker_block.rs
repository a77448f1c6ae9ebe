//! A worker's side of its block: what it may read now, and when it asks for more.
//!
//! It holds to what the leader relies on: it never begins a chunk before that is confirmed, and it never commits under
//! a lease that it was not granted. Answers may come late, twice, or not at all; who asks again gets the same.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::event::{Effect, Event, LeaseId, LeaseProgress, WorkerId};

/// A worker's block as the worker knows it.
#[derive(Clone, Debug)]
pub struct WorkerBlock {
    worker: WorkerId,
    node: NodeId,
    lease: Option<LeaseId>,
    chunks: Vec<u32>,
    confirmed: u32,
    progress: LeaseProgress,
    is_last: bool,
    /// Where it was when it last asked: asking again there is left to the heartbeat.
    asked: Option<(LeaseProgress, u32)>,
}

impl WorkerBlock {
    /// A worker that is about to begin, and has nothing yet.
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

    /// Takes an answer to this worker. [`Effect::Committed`] and [`Effect::Discard`] are the shell's to obey.
    pub fn told(&mut self, answer: &Effect) {
        match answer {
            Effect::Granted { worker, lease, kept, chunks, confirmed } if *worker == self.worker => {
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

    /// What is confirmed stays so, and what was taken is gone. So older answers change nothing, even those of a leader that
    /// has restarted since, and has forgotten who took what.
    fn has(&mut self, lease: LeaseId, chunks: u32, confirmed: u32) {
        if self.lease == Some(lease) {
            self.chunks.truncate(chunks.max(self.confirmed) as usize);
            self.confirmed = self.confirmed.max(confirmed.min(self.chunks.len() as u32));
        }
    }

    /// The chunk to read now. None: there is none, or none confirmed.
    pub fn current(&self) -> Option<u32> {
        (self.progress.done < self.confirmed).then(|| self.chunks[self.progress.done as usize])
    }

    /// The chunk that will probably be next, to fetch it meanwhile. That is not beginning it.
    pub fn upcoming(&self) -> Option<u32> {
        self.chunks.get(self.progress.done as usize + usize::from(self.current().is_some())).copied()
    }

    /// So many more bytes of the current chunk were read.
    pub fn read(&mut self, bytes: u64) {
        self.progress.bytes += bytes;
    }

    /// The current chunk was read to its end.
    ///
    /// # Panics
    /// If there is none.
    pub fn end_chunk(&mut self) {
        assert!(self.current().is_some(), "no chunk is being read");
        (self.progress.done, self.progress.bytes) = (self.progress.done + 1, 0);
    }

    /// What to ask now, to be called after whatever happens: once it is on the last chunk that is confirmed, for more.
    pub fn request(&mut self) -> Option<Event> {
        let here = (LeaseProgress { bytes: 0, ..self.progress }, self.confirmed);
        if !self.is_short() || self.asked == Some(here) {
            return None;
        }
        self.asked = Some(here);
        Some(self.heartbeat())
    }

    /// What to say thrice in a term at least, and sooner while it waits for an answer: what it has asked, or how far it is.
    pub fn heartbeat(&self) -> Event {
        let WorkerBlock { worker, node, lease, progress, .. } = *self;
        match lease {
            Some(lease) if !self.is_short() || (self.confirmed as usize) < self.chunks.len() => {
                Event::Renew { worker, lease, progress }
            }
            _ => Event::RequestLease { worker, node, lease, progress },
        }
    }

    /// Whether it has nothing confirmed beyond its current chunk.
    fn is_short(&self) -> bool {
        !self.is_last && self.progress.done + 1 >= self.confirmed
    }

    /// Whether its program's input is to be ended: all was read and there is no more.
    pub fn is_at_end(&self) -> bool {
        self.is_last && self.progress.done as usize == self.chunks.len()
    }

    /// What to say when its program has ended well. None if it has nothing: then it just goes.
    pub fn commit(&self) -> Option<Event> {
        Some(Event::Commit { worker: self.worker, lease: self.lease?, done: self.progress.done })
    }

    /// How many of its chunks were read to their end.
    pub fn done(&self) -> u32 {
        self.progress.done
    }

    /// Its chunks up to now, in order.
    pub fn chunks(&self) -> &[u32] {
        &self.chunks
    }
}
