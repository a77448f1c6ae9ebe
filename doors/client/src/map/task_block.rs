//! An attempt of a task of another framework, such as Hadoop: it reads the list of pieces that all
//! attempts of its task share, and says to the leader that it is alive.
//!
//! The framework decides which attempt counts, so an attempt commits nothing. Its end is that the
//! leader has sealed the list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_files::blocks::{TaskBlock, TaskClaim, TaskNumber};
use eyas_files::{DfsClient, FilesError, FilesErrorKind, OpenChunk, RunAddress};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::NO_NODE;
use super::block_worker::{
    BlockAnswer, BlockPiece, BlockRequest, BlockRun, BlockWorker, Reply, given_up, open_all,
    piece_of,
};
use super::input::ChunkSource;
use super::worker::HEARTBEAT;

impl BlockRun {
    /// Begins an attempt of a task of another framework. All attempts of a task get the same
    /// pieces; see [`TaskBlock`]. [`BlockWorker::next`] fails with `Changed` when the framework has
    /// to begin another attempt. There is nothing to commit.
    pub fn begin_task(&self, task: TaskNumber) -> BlockWorker {
        let (requests, receiver) = mpsc::channel(1);
        let (files, chunks) = (self.files.clone(), self.chunks.clone());
        let working = tokio::spawn(work(files, self.address(), chunks, task, receiver));
        BlockWorker::new(requests, working)
    }
}

/// An attempt, as its program sees it.
struct TaskAttempt {
    files: DfsClient,
    run: RunAddress,
    chunks: Arc<[ChunkSource]>,
    /// The heartbeat reads it, too.
    list: Arc<Mutex<TaskBlock>>,
    /// The chunk that was read last, by its number in the run.
    opened: Option<(u32, OpenChunk)>,
}

/// Answers the program's requests until the program leaves.
async fn work(
    files: DfsClient,
    run: RunAddress,
    chunks: Arc<[ChunkSource]>,
    task: TaskNumber,
    mut requests: mpsc::Receiver<(BlockRequest, Reply)>,
) {
    let list = TaskBlock::new(task, files.near().unwrap_or(NO_NODE));
    let list = Arc::new(Mutex::new(list));
    let beating = beat(files.clone(), run, list.clone());
    let mut attempt = TaskAttempt { files, run, chunks, list, opened: None };
    let answering = async {
        while let Some((request, reply)) = requests.recv().await {
            // A program that no longer waits needs no answer.
            let _ = reply.send(attempt.answer(request).await);
        }
    };
    tokio::select! {
        () = answering => {}
        () = beating => {}
    }
}

/// Says that the attempt is alive, as long as it is polled: while the program computes, and while a
/// chunk is read.
async fn beat(files: DfsClient, run: RunAddress, list: Arc<Mutex<TaskBlock>>) {
    let mut beats = interval(HEARTBEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let claim = locked(&list).heartbeat();
        let Some(claim) = claim else { continue };
        match files.claim_task(run, claim).await {
            Ok(answer) => locked(&list).told(&claim, answer),
            // The next claim of the program fails, and says it.
            Err(error) => tracing::debug!(%run, %error, "a heartbeat of a task was not answered"),
        }
    }
}

impl TaskAttempt {
    async fn answer(&mut self, request: BlockRequest) -> Result<BlockAnswer, FilesError> {
        let BlockRequest::Next { is_processed } = request else {
            let message = "a block of a task has no output: the framework of the task decides \
                           which attempt counts";
            return Err(FilesError { kind: FilesErrorKind::Invalid, message: message.into() });
        };
        if is_processed {
            locked(&self.list).end_chunk();
        }
        self.next().await.map(BlockAnswer::Piece)
    }

    async fn next(&mut self) -> Result<Option<BlockPiece>, FilesError> {
        loop {
            let state = state_of(&locked(&self.list));
            match state {
                ListState::Discarded => return Err(given_up()),
                ListState::AtEnd => return Ok(None),
                ListState::Short(claim) => {
                    let answer = self.files.claim_task(self.run, claim).await?;
                    locked(&self.list).told(&claim, answer);
                }
                ListState::Piece(number) => return self.piece(number).await.map(Some),
            }
        }
    }

    async fn piece(&mut self, number: u32) -> Result<BlockPiece, FilesError> {
        let source = &self.chunks[(number / self.chunks[0].pieces) as usize];
        let opened = match self.opened.take() {
            Some(opened) if opened.0 == source.chunk => opened,
            _ => (source.chunk, open_all(&self.files, source).await?),
        };
        let (_, chunk) = self.opened.insert(opened);
        piece_of(source, chunk, number % source.pieces)
    }
}

enum ListState {
    Discarded,
    AtEnd,
    /// There is a piece to read.
    Piece(u32),
    /// All known pieces were read.
    Short(TaskClaim),
}

fn state_of(list: &TaskBlock) -> ListState {
    match list.current() {
        _ if list.is_discarded() => ListState::Discarded,
        Some(number) => ListState::Piece(number),
        None if list.is_at_end() => ListState::AtEnd,
        None => ListState::Short(list.claim()),
    }
}

/// No change leaves the list half done, so a panic elsewhere does not spoil it.
fn locked(list: &Mutex<TaskBlock>) -> MutexGuard<'_, TaskBlock> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
