//! Runs on real nodes with workers that are killed, and nodes that restart.

use std::pin::pin;
use std::time::Duration;

use eyas_files::blocks::{
    BlockPolicy, DEFAULT_TERM_US, Effect, Event, TaskBlock, TaskNumber, WorkerBlock,
};
use eyas_files::{DfsClient, FilesErrorKind, RunAddress, RunAttendance, RunSpec};
use eyas_types::dfs::NodeId;
use tokio::time::timeout;

use crate::cluster::{Cluster, eventually, lines, write};

/// An idle time that no test reaches.
const LONG: Duration = Duration::from_secs(3600);

async fn open(files: &DfsClient, file: &str, idle: Duration) -> (RunAddress, u32) {
    open_divided(files, file, 1, idle).await
}

/// Opens a run whose chunks have this number of pieces. Returns its address and its number of
/// chunks.
async fn open_divided(
    files: &DfsClient,
    file: &str,
    pieces: u32,
    idle: Duration,
) -> (RunAddress, u32) {
    let file = write(files, file, &lines(1_000_000)).await.unwrap();
    let chunks = file.record.chunks.len() as u32;
    let policy = BlockPolicy::named("lean").unwrap();
    let (slots, term_us) = (vec![NodeId(1); 2], DEFAULT_TERM_US);
    (
        files
            .open_run(RunSpec { files: vec![file], policy, slots, pieces, term_us, idle })
            .await
            .unwrap(),
        chunks,
    )
}

/// A worker that reads all chunks it gets, until there are no more or it has read `most`.
async fn read(attendance: &mut RunAttendance, owner: &mut WorkerBlock, most: u32) {
    while owner.done() < most && !owner.is_at_end() {
        match owner.current() {
            Some(_) => owner.end_chunk(),
            None => {
                let question = owner.request().unwrap_or_else(|| owner.heartbeat());
                attendance.tell(question).await;
                if let Some(effect) = attendance.next().await.unwrap() {
                    owner.told(&effect);
                }
            }
        }
    }
}

/// Repeats an event until it is answered.
async fn told(attendance: &mut RunAttendance, event: Event) -> Effect {
    loop {
        attendance.tell(event.clone()).await;
        if let Some(effect) = attendance.next().await.unwrap() {
            return effect;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_where_it_was_when_its_node_starts_again() {
    let mut cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let (address, chunks) = open(&files, "/a", LONG).await;
    assert!(chunks > 10, "{chunks}");

    // One worker commits, another is in the middle of its block.
    let mut first = files.attend_run(address).await.unwrap();
    let mut owner = WorkerBlock::new(first.worker(), NodeId(1));
    read(&mut first, &mut owner, 4).await;
    let commit = owner.commit().unwrap();
    assert!(matches!(told(&mut first, commit.clone()).await, Effect::Committed { .. }));
    let mut second = files.attend_run(address).await.unwrap();
    let mut other = WorkerBlock::new(second.worker(), NodeId(1));
    read(&mut second, &mut other, 1).await;

    let leads = cluster.nodes.iter().position(|node| node.node.node() == address.node).unwrap();
    let folder = cluster.end(leads);
    cluster.start(folder, false).await;
    cluster.settles().await;

    let status = files.run_status(address).await.unwrap();
    assert_eq!((status.committed_chunks, status.parts.len()), (4, 1));
    assert_eq!((status.parts[0].worker, status.parts[0].pieces), (first.worker(), 4));
    // The second worker continues, and reads everything that the first one has not read.
    read(&mut second, &mut other, u32::MAX).await;
    let commit = other.commit().unwrap();
    eventually("it is committed", async || {
        matches!(told(&mut second, commit.clone()).await, Effect::Committed { .. })
    })
    .await;
    let status = files.run_status(address).await.unwrap();
    assert!(
        status.is_complete && status.committed_chunks == chunks && status.parts.len() == 2,
        "{status:?}"
    );
    files.close_run(address).await.unwrap();
    assert_eq!(files.run_status(address).await.unwrap_err().kind, FilesErrorKind::NotFound);
}

/// An attempt of a task that reads up to this number of chunks, or to its end.
async fn attempt(files: &DfsClient, run: RunAddress, task: u32, most: u32) -> TaskBlock {
    let mut block = TaskBlock::new(TaskNumber(task), NodeId(1));
    for _ in 0..most {
        while block.current().is_none() && !block.is_at_end() {
            let claim = block.claim();
            block.told(&claim, files.claim_task(run, claim).await.unwrap());
            assert!(!block.is_discarded());
        }
        if block.is_at_end() {
            break;
        }
        block.end_chunk();
    }
    block
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_of_a_task_read_the_same_chunks_also_when_the_node_starts_again() {
    let mut cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let (address, chunks) = open(&files, "/a", LONG).await;
    let first = attempt(&files, address, 0, 3).await;
    let other = attempt(&files, address, 1, 2).await;
    assert!(!first.is_at_end() && !other.is_at_end());

    let leads = cluster.nodes.iter().position(|node| node.node.node() == address.node).unwrap();
    let folder = cluster.end(leads);
    cluster.start(folder, false).await;
    cluster.settles().await;

    let second = attempt(&files, address, 0, u32::MAX).await;
    assert!(second.is_at_end() && second.chunks().starts_with(first.chunks()));
    let again = attempt(&files, address, 1, u32::MAX).await;
    assert!(again.is_at_end() && again.chunks().starts_with(other.chunks()));
    let mut all = [second.chunks(), again.chunks()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..chunks).collect::<Vec<_>>());
    let status = files.run_status(address).await.unwrap();
    assert!(status.is_complete && status.parts.is_empty(), "tasks have no outputs: {status:?}");
    assert_eq!(attempt(&files, address, 0, u32::MAX).await.chunks(), second.chunks());
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_a_chunk_go_to_several_workers() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    let (address, chunks) = open_divided(&files, "/a", 4, LONG).await;
    let mut first = files.attend_run(address).await.unwrap();
    let mut owner = WorkerBlock::new(first.worker(), NodeId(1));
    read(&mut first, &mut owner, 3).await;
    assert!(matches!(told(&mut first, owner.commit().unwrap()).await, Effect::Committed { .. }));
    let status = files.run_status(address).await.unwrap();
    assert_eq!(
        (status.committed_chunks, status.parts[0].pieces),
        (0, 3),
        "no chunk is read completely"
    );
    let mut second = files.attend_run(address).await.unwrap();
    let mut other = WorkerBlock::new(second.worker(), NodeId(1));
    read(&mut second, &mut other, u32::MAX).await;
    assert!(matches!(told(&mut second, other.commit().unwrap()).await, Effect::Committed { .. }));
    let status = files.run_status(address).await.unwrap();
    assert_eq!((status.is_complete, status.committed_chunks), (true, chunks));
    assert_eq!(status.parts.iter().map(|part| part.pieces).sum::<u32>(), 4 * chunks);
    let record = files.stat(&"/a".parse().unwrap()).await.unwrap();
    let spec = files.run_spec(address).await.unwrap();
    for pieces in [0, u32::MAX] {
        let wrong = RunSpec { files: vec![record.clone()], pieces, ..spec.clone() };
        assert_eq!(files.open_run(wrong).await.unwrap_err().kind, FilesErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_a_closed_run_are_told() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    let (address, _) = open(&files, "/a", LONG).await;
    let mut attendance = files.attend_run(address).await.unwrap();
    assert_eq!(files.run_spec(address).await.unwrap().files[0].name.as_str(), "/a");
    files.close_run(address).await.unwrap();
    assert_eq!(attendance.next().await.unwrap_err().kind, FilesErrorKind::NotFound);
    assert!(files.attend_run(address).await.is_err() && files.run_spec(address).await.is_err());
    let (policy, slots) = (BlockPolicy::Static, Vec::new());
    let nothing = RunSpec { files: Vec::new(), policy, slots, pieces: 1, term_us: 1, idle: LONG };
    assert_eq!(files.open_run(nothing).await.unwrap_err().kind, FilesErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_abandoned_run_are_removed() {
    let cluster = Cluster::of(2).await;
    let files = cluster.files().await;
    let (kept, _) = open(&files, "/b", LONG).await;
    let (address, _) = open(&files, "/a", Duration::from_secs(3)).await;
    for run in [address.run, kept.run] {
        let (name, content) = (run.file("map-1"), lines(1000));
        let mut writing = pin!(write(&files, name.as_str(), &content));
        // Until its file is there, the run is not abandoned, however slow the machine is.
        loop {
            match timeout(Duration::from_millis(200), &mut writing).await {
                Ok(written) => break drop(written.unwrap()),
                Err(_) => drop(files.run_status(address).await.unwrap()),
            }
        }
    }
    eventually("its folder is empty", async || {
        files.list(&address.run.folder()).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(files.run_status(address).await.unwrap_err().kind, FilesErrorKind::NotFound);
    assert_eq!(files.list(&kept.run.folder()).await.unwrap().len(), 1);
}
