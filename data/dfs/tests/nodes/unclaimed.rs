//! Chunks that a client has stored for versions that no file has got are deleted, while the client
//! is still there.

use std::io::Cursor;
use std::sync::mpsc;
use std::time::Duration;

use eyas_files::{
    Change, CopyOptions, DfsClient, File, FilesError, FilesErrorKind, NewFile, WriteOptions,
    new_file_id,
};
use eyas_types::dfs::{AttributeChange, Format, RecordFormat};
use eyas_types::{FileMode, JobId, ObjectSpec, TaskId};
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::sleep;

use crate::WaitingSource;
use crate::cluster::{Cluster, SMALL, content_of, eventually, lines, name, write};
use crate::lost_answers::Text;

/// Chunks of 256 KiB without records, each of which has a transfer of its own.
const LARGE: WriteOptions = WriteOptions {
    format: RecordFormat { format: Format::BYTES, is_guessed: false },
    chunk_bytes: 256 << 10,
    ..SMALL
};

/// Waits until the nodes have this number of bytes together.
async fn only(cluster: &Cluster, bytes: u64) {
    let stored = || cluster.nodes.iter().map(|node| node.store.total_bytes()).sum::<u64>();
    eventually("no other chunk is left", async || stored() == bytes).await;
}

/// Begins to write a file. Returns what ends its source.
fn begin(
    files: DfsClient,
    path: &str,
    content: Vec<u8>,
) -> (mpsc::Sender<()>, JoinHandle<Result<File, FilesError>>) {
    let ((reached, reads), (end, ends)) = (mpsc::channel(), mpsc::channel());
    let (source, name) = (WaitingSource(Cursor::new(content), reached, ends), name(path));
    let writing = tokio::spawn(async move { files.write(&name, source, SMALL, |_| {}).await });
    block_in_place(|| reads.recv().unwrap());
    (end, writing)
}

async fn make_folder(files: &DfsClient, folder: &str) {
    files.make_folder(&name(folder), SMALL.creation).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_could_not_be_forced_to_the_disks_are_deleted() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let ((reached, reads), (end, ends)) = (mpsc::channel(), mpsc::channel());
    let source = WaitingSource(Cursor::new(lines(1_000_000)), reached, ends);
    let writing = {
        let files = files.clone();
        tokio::spawn(async move { files.write(&name("/a"), source, LARGE, |_| {}).await })
    };
    block_in_place(|| reads.recv().unwrap());
    eventually("chunks are stored", async || {
        cluster.nodes.iter().all(|node| node.store.len() == 3)
    })
    .await;
    let (lost, _) = cluster.nodes[0].store.ids()[0];
    // So one node is left that can force all of them to its disk.
    for node in &cluster.nodes[..2] {
        node.store.remove(lost).unwrap();
    }
    drop(end);
    assert_eq!(writing.await.unwrap().unwrap_err().kind, FilesErrorKind::Unreachable);
    only(&cluster, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_stay_although_the_connections_over_which_they_came_have_ended() {
    let cluster = Cluster::of(3).await;
    let content = lines(1_000_000);
    let (end, writing) = begin(cluster.files().await, "/stays", content.clone());
    let count = || cluster.nodes.iter().map(|node| node.store.len()).sum::<usize>();
    let mut stored = 0;
    eventually("no more chunks come", async || {
        sleep(Duration::from_millis(200)).await;
        std::mem::replace(&mut stored, count()) == stored && stored > 0
    })
    .await;
    // A client that is killed, by which one sees when the nodes delete what clients have left.
    let killed = Builder::new_multi_thread().enable_all().build().unwrap();
    let files = killed.spawn(cluster.connecting()).await.unwrap();
    let begun = killed.spawn(async move { begin(files, "/killed", lines(1_000_000)).0 });
    let _its_end = begun.await.unwrap();
    eventually("the killed client has stored chunks", async || count() > stored).await;
    cluster.break_connections();
    killed.shutdown_background();
    eventually("what was left is deleted", async || count() <= stored).await;
    drop(end);
    writing.await.unwrap().unwrap();
    assert_eq!(content_of(&cluster.files().await, "/stays").await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_were_moved_too_late_are_deleted_where_they_are_new() {
    let mut cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let stale = write(&files, "/a", &lines(2_000_000)).await.unwrap();
    cluster.join(false).await;
    cluster.settles().await;
    let touched = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    let files = cluster.files().await;
    files.set_attributes(&name("/a"), &touched).await.unwrap();
    assert_eq!(files.rebalance(&stale).await.unwrap_err().kind, FilesErrorKind::Changed);
    only(&cluster, 3 * stale.record.size_bytes()).await;
    assert!(cluster.nodes[3].store.is_empty());
    let now = files.stat(&name("/a")).await.unwrap();
    assert!(files.rebalance(&now).await.unwrap() > 0);
    assert!(files.verify(&files.stat(&name("/a")).await.unwrap(), true).await.unwrap().is_good());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chunks_of_a_hidden_file_that_does_not_appear_are_deleted() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let hidden = async |path: &str| {
        let source = Cursor::new(lines(300_000));
        files.store_hidden(&name(path), source, SMALL, |_| {}).await.unwrap()
    };
    let refused = hidden("/a").await;
    make_folder(&files, "/a").await;
    assert_eq!(refused.publish(&|| true).await.unwrap_err().kind, FilesErrorKind::IsFolder);
    only(&cluster, 0).await;
    assert!(hidden("/b").await.publish(&|| false).await.unwrap().is_none());
    only(&cluster, 0).await;
    drop(hidden("/c").await);
    only(&cluster, 0).await;
    let appeared = hidden("/d").await.publish(&|| true).await.unwrap().unwrap();
    assert!(files.verify(&appeared, true).await.unwrap().is_good());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chunks_of_a_file_with_an_id_that_is_refused_are_deleted() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    make_folder(&files, "/a").await;
    let content = Text(lines(300_000));
    let change = Change {
        content: &content,
        size_bytes: 300_000,
        changed: &[],
        modified_ns: 1,
        changed_ns: 1,
        is_durable: true,
        format: None,
    };
    let written = files
        .write_with_id(&name("/a"), NewFile::of(new_file_id().unwrap()), change, None, SMALL, false)
        .await;
    assert_eq!(written.unwrap_err().kind, FilesErrorKind::IsFolder);
    only(&cluster, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_was_stored_early_and_is_not_wanted_is_deleted() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let early =
        files.store_early(&name("/a"), Cursor::new(lines(300_000)), SMALL, 0).await.unwrap();
    drop(early);
    only(&cluster, 0).await;

    let (reached, reads) = mpsc::channel();
    let (_end, ends) = mpsc::channel();
    let source = WaitingSource(Cursor::new(lines(3_000_000)), reached, ends);
    let storing = {
        let files = files.clone();
        tokio::spawn(async move { files.store_early(&name("/a"), source, LARGE, 0).await })
    };
    block_in_place(|| reads.recv().unwrap());
    // Some chunks are on their way.
    storing.abort();
    only(&cluster, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_a_failed_copy_are_deleted() {
    let cluster = Cluster::of(2).await;
    let files = cluster.files().await;
    let content = [&lines(300_000)[..], b"\"open"].concat();
    let task = TaskId { job: JobId(1), index: 0 };
    let size_bytes = content.len() as u64;
    let object = ObjectSpec::kept(task, "table.csv", size_bytes, "checksum", FileMode::READABLE);
    cluster.nodes[0].store.put(object.id(), &content).unwrap();
    let options = CopyOptions { format: Some(Format::Csv), chunk_bytes: 64 << 10, replication: 2 };
    let copied = files.copy_object(&object, &cluster.addresses(), &name("/a"), options).await;
    assert_eq!(copied.unwrap_err().kind, FilesErrorKind::WrongFormat);
    only(&cluster, size_bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_for_programs_that_no_node_can_make_are_deleted() {
    let cluster = Cluster::with_space(3, 1_500_000).await;
    let files = cluster.files().await;
    let written = write(&files, "/a", &lines(1_000_000)).await.unwrap();
    assert_eq!(files.retain(&written).await.unwrap_err().kind, FilesErrorKind::Unreachable);
    only(&cluster, 3 * written.record.size_bytes()).await;
    assert_eq!(files.list_entries("/").await.unwrap().len(), 1);
}
