//! The ledger: which worker holds which chunks, and which chunks are committed. It makes every
//! chunk count exactly once.
//!
//! The ledger changes only by [`Record`]s, at run time and after a restart, so the saved records
//! always lead to the same state. It must never decide which worker gets which chunks.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::chunks::ChunkTable;
use crate::event::{LeaseId, Record, WorkerId};
use crate::tasks::{TaskIncarnation, TaskNumber};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// In no block.
    Free,
    /// In one block, or in a block and its copy.
    Held,
    /// Committed.
    Committed,
}

/// The block of a worker.
pub(crate) struct Block {
    /// Chunks of the block, in order.
    pub chunks: Vec<u32>,
    /// Its last lease, which has the chunks from `start`.
    pub lease: LeaseId,
    pub start: u32,
    /// The lease before the last one.
    pub previous: Option<LeaseId>,
    /// The worker that has a copy of this block, or the original.
    pub twin: Option<WorkerId>,
    /// Number of copies that were made before this one.
    pub generation: u32,
}

impl Block {
    pub fn len(&self) -> u32 {
        self.chunks.len() as u32
    }

    pub fn bytes(&self, chunks: &ChunkTable) -> u64 {
        self.chunks.iter().map(|chunk| chunks.size_bytes(*chunk)).sum()
    }

    /// The number of chunks up to the end of a lease; `None` unless it is one of the last two.
    fn end_of(&self, lease: LeaseId) -> Option<u32> {
        if lease == self.lease {
            return Some(self.len());
        }
        (Some(lease) == self.previous).then_some(self.start)
    }
}

pub(crate) struct Ledger {
    states: Vec<BlockState>,
    blocks: BTreeMap<WorkerId, Block>,
    /// The workers that have committed, with their leases, to answer them again.
    ended: BTreeMap<WorkerId, LeaseId>,
    committed: u32,
    /// The present incarnation of each task that has had a list.
    tasks: BTreeMap<TaskNumber, TaskIncarnation>,
    /// The lists of tasks that are sealed.
    sealed: BTreeMap<WorkerId, Vec<u32>>,
}

impl Ledger {
    pub fn new(chunks: usize) -> Self {
        Ledger {
            states: alloc::vec![BlockState::Free; chunks],
            blocks: BTreeMap::new(),
            ended: BTreeMap::new(),
            committed: 0,
            tasks: BTreeMap::new(),
            sealed: BTreeMap::new(),
        }
    }

    pub fn block(&self, worker: WorkerId) -> Option<&Block> {
        self.blocks.get(&worker)
    }

    pub fn blocks(&self) -> impl Iterator<Item = (WorkerId, &Block)> {
        self.blocks.iter().map(|(worker, block)| (*worker, block))
    }

    /// The lease with which a worker has committed.
    pub fn ended(&self, worker: WorkerId) -> Option<LeaseId> {
        self.ended.get(&worker).copied()
    }

    /// The present incarnation of a task.
    pub fn incarnation(&self, task: TaskNumber) -> TaskIncarnation {
        self.tasks.get(&task).copied().unwrap_or_default()
    }

    /// The list of a task's incarnation, if it is sealed.
    pub fn sealed(&self, worker: WorkerId) -> Option<&[u32]> {
        self.sealed.get(&worker).map(Vec::as_slice)
    }

    pub fn committed(&self) -> u32 {
        self.committed
    }

    pub fn is_complete(&self) -> bool {
        self.committed as usize == self.states.len()
    }

    pub fn state(&self, chunk: u32) -> BlockState {
        self.states[chunk as usize]
    }

    /// Chunks that are in no block.
    pub fn free(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.states)
            .filter(|(_, state)| **state == BlockState::Free)
            .map(|(chunk, _)| chunk)
    }

    /// Whether a worker may commit this number of chunks under this lease.
    pub fn may_commit(&self, worker: WorkerId, lease: LeaseId, done: u32) -> bool {
        self.blocks
            .get(&worker)
            .and_then(|block| block.end_of(lease))
            .is_some_and(|end| done <= end)
    }

    /// Applies the next record. Chunks that no worker holds any longer are appended to `freed`.
    ///
    /// # Panics
    /// If the record contradicts earlier ones.
    pub fn apply(&mut self, record: &Record, freed: &mut Vec<u32>) {
        let before = freed.len();
        match record {
            Record::Granted { worker, lease, chunks, copy_of } => {
                self.granted(*worker, *lease, chunks, *copy_of)
            }
            Record::Shortened { worker, chunks } => {
                let block =
                    self.blocks.get_mut(worker).expect("a worker whose block is shortened has one");
                assert!(
                    block.start <= *chunks && block.twin.is_none(),
                    "{worker:?}: only its last lease is shortened"
                );
                freed.extend(block.chunks.drain(*chunks as usize..));
            }
            Record::Committed { worker, lease, done } => {
                assert!(
                    self.may_commit(*worker, *lease, *done),
                    "{worker:?} may not commit {done} by {lease:?}"
                );
                let block = self.blocks.remove(worker).expect("a worker that commits has a block");
                if let Some(twin) = block.twin {
                    self.blocks.remove(&twin);
                }
                let (done, rest) = block.chunks.split_at(*done as usize);
                for chunk in done {
                    self.enter(*chunk, BlockState::Held, BlockState::Committed);
                }
                self.committed += done.len() as u32;
                self.ended.insert(*worker, *lease);
                if worker.task().is_some() {
                    self.sealed.insert(*worker, done.to_vec());
                }
                freed.extend(rest);
            }
            Record::Dropped { worker } => {
                let block =
                    self.blocks.remove(worker).expect("a worker that is dropped has a block");
                if let Some((task, incarnation)) = worker.task() {
                    self.tasks.insert(task, incarnation.next());
                }
                match block.twin.and_then(|twin| self.blocks.get_mut(&twin)) {
                    Some(twin) => twin.twin = None,
                    None => freed.extend(block.chunks),
                }
            }
        }
        for chunk in &freed[before..] {
            self.enter(*chunk, BlockState::Held, BlockState::Free);
        }
    }

    fn granted(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        chunks: &[u32],
        copy_of: Option<WorkerId>,
    ) {
        if let Some((task, incarnation)) = worker.task() {
            self.tasks.insert(task, incarnation);
        }
        let mut generation = 0;
        match copy_of {
            None => chunks
                .iter()
                .for_each(|chunk| self.enter(*chunk, BlockState::Free, BlockState::Held)),
            Some(first) => {
                let first =
                    self.blocks.get_mut(&first).expect("a worker that is copied has a block");
                assert!(
                    first.twin.is_none() && first.chunks == chunks,
                    "a block is copied whole, once at a time"
                );
                first.twin = Some(worker);
                first.generation += 1;
                generation = first.generation;
            }
        }
        match self.blocks.get_mut(&worker) {
            Some(block) => {
                assert!(
                    block.lease < lease && block.twin.is_none() && copy_of.is_none(),
                    "{worker:?}: {lease:?}"
                );
                block.previous = Some(block.lease);
                (block.lease, block.start) = (lease, block.len());
                block.chunks.extend(chunks);
            }
            None => {
                let block = Block {
                    chunks: chunks.to_vec(),
                    lease,
                    start: 0,
                    previous: None,
                    twin: copy_of,
                    generation,
                };
                self.blocks.insert(worker, block);
            }
        }
    }

    fn enter(&mut self, chunk: u32, from: BlockState, to: BlockState) {
        let state = &mut self.states[chunk as usize];
        assert_eq!(*state, from, "chunk {chunk} cannot become {to:?}");
        *state = to;
    }

    /// Checks that every chunk is in the blocks that its state demands.
    ///
    /// # Panics
    /// If it is not.
    pub fn validate(&self) {
        let mut holders: Vec<u32> = alloc::vec![0; self.states.len()];
        for (worker, block) in &self.blocks {
            assert!(!self.ended.contains_key(worker), "{worker:?} has committed");
            if let Some(twin) = block.twin.map(|twin| &self.blocks[&twin]) {
                assert!(twin.twin == Some(*worker) && twin.chunks == block.chunks);
            }
            // Of a block and its copy, only the first is counted.
            if block.twin.is_none_or(|twin| *worker < twin) {
                block.chunks.iter().for_each(|chunk| holders[*chunk as usize] += 1);
            }
        }
        for (chunk, (state, holders)) in self.states.iter().zip(&holders).enumerate() {
            assert_eq!(
                u32::from(*state == BlockState::Held),
                *holders,
                "chunk {chunk} is {state:?}"
            );
        }
        assert_eq!(
            self.states.iter().filter(|state| **state == BlockState::Committed).count(),
            self.committed as usize
        );
    }
}
