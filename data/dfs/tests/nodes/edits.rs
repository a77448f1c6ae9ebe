//! Writers that change files at any offset, and the places of chunks.

use std::sync::mpsc;
use std::time::Duration;

use eyas_files::{DfsClient, FileWriter, FilesErrorKind, WriteOptions};
use eyas_types::dfs::{Format, PROBED_BYTES, RecordFormat};

use crate::ChannelReader;
use crate::cluster::{Cluster, SMALL, content_of, eventually, lines, name};

/// Chunks of 64 KiB without records.
const BYTES: WriteOptions =
    WriteOptions { format: RecordFormat { format: Format::BYTES, is_guessed: false }, ..SMALL };

async fn edit(files: &DfsClient, path: &str) -> FileWriter {
    FileWriter::edit(files.clone(), name(path), None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_changed_at_any_offset_and_other_chunks_are_kept() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let mut content = lines(400_000);
    let source = std::io::Cursor::new(content.clone());
    let before = files.write(&name("/a"), source, BYTES, |_| {}).await.unwrap();
    let mut writer = edit(&files, "/a").await;
    for (offset, part) in [(70_000, &b"some"[..]), (399_990, &[b'x'; 100][..])] {
        writer.write_at(offset, part).unwrap();
        content.resize(content.len().max(offset as usize + part.len()), 0);
        content[offset as usize..offset as usize + part.len()].copy_from_slice(part);
    }
    // Its own changes, and what is around them.
    let mut read = vec![0; 200_000];
    let count = writer.read(60_000, &mut read).await.unwrap();
    assert!(read[..count] == content[60_000..260_000]);
    assert_eq!(writer.size_bytes().unwrap(), content.len() as u64);
    assert!(content_of(&files, "/a").await != content, "nothing appears before");
    writer.finish().await.unwrap();
    assert!(content_of(&files, "/a").await == content);
    let after = files.stat(&name("/a")).await.unwrap();
    let is_kept =
        |place: usize| before.record.chunks[place].object == after.record.chunks[place].object;
    assert_eq!(
        (0..7).map(is_kept).collect::<Vec<_>>(),
        [true, false, true, true, true, true, false]
    );

    let mut writer = edit(&files, "/a").await;
    writer.set_size(10).unwrap();
    writer.write(b"01").await.unwrap();
    writer.write(b"23").await.unwrap();
    drop(edit(&files, "/a").await);
    writer.finish().await.unwrap();
    assert_eq!(content_of(&files, "/a").await, [&b"0123"[..], &content[4..10]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_writer_of_a_changed_version_is_refused() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    files.write_content(&name("/a"), b"content".to_vec(), BYTES).await.unwrap();
    let [mut one, mut other] = [edit(&files, "/a").await, edit(&files, "/a").await];
    one.write_at(0, b"C").unwrap();
    other.write_at(6, b"T").unwrap();
    one.finish().await.unwrap();
    assert_eq!(other.finish().await.unwrap_err().kind, FilesErrorKind::Changed);
    assert_eq!(content_of(&files, "/a").await, b"Content");

    assert_eq!(
        FileWriter::edit(files.clone(), name("/new"), None).await.err().unwrap().kind,
        FilesErrorKind::NotFound
    );
    let create = async || FileWriter::edit(files.clone(), name("/new"), Some(BYTES)).await.unwrap();
    let [mut one, other] = [create().await, create().await];
    one.write_at(3, b"new").unwrap();
    one.finish().await.unwrap();
    assert_eq!(other.finish().await.unwrap_err().kind, FilesErrorKind::Exists);
    assert_eq!(content_of(&files, "/new").await, b"\0\0\0new");
    let mut appended = FileWriter::append(files.clone(), name("/new")).await.unwrap();
    assert_eq!(appended.write_at(0, b"x").unwrap_err().kind, FilesErrorKind::Invalid);
    let too_far = u64::MAX - 1;
    assert_eq!(
        edit(&files, "/new").await.write_at(too_far, b"abc").unwrap_err().kind,
        FilesErrorKind::Invalid
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_change_no_change_appears() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    files.write_content(&name("/a"), b"content".to_vec(), BYTES).await.unwrap();
    let mut writer = edit(&files, "/a").await;
    writer.write_at(0, b"C").unwrap();
    assert_eq!(writer.set_size(u64::MAX).unwrap_err().kind, FilesErrorKind::Invalid);
    assert_eq!(writer.write_at(1, b"O").unwrap_err().kind, FilesErrorKind::Local);
    assert_eq!(writer.read(0, &mut [0]).await.unwrap_err().kind, FilesErrorKind::Local);
    let error = writer.finish().await.unwrap_err();
    assert!(error.message.contains("an earlier change of /a has failed"), "{error}");
    assert_eq!(content_of(&files, "/a").await, b"content");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_whose_end_does_not_have_the_format_that_was_guessed_has_no_records() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    let mut content = b"@read\nACGT\n+\nIIII\n".repeat(2 * PROBED_BYTES / 19);
    content.extend_from_slice(b"@read\nACGT\n-\nI\n");
    let options = WriteOptions { format: RecordFormat::of_name("/reads.fastq"), ..SMALL };
    let mut writer =
        FileWriter::edit(files.clone(), name("/reads.fastq"), Some(options)).await.unwrap();
    writer.write_at(0, &content).unwrap();
    writer.finish().await.unwrap();
    let written = files.stat(&name("/reads.fastq")).await.unwrap();
    assert!(written.record.format.accepts_any_chunks(), "{:?}", written.record.format);
    assert!(content_of(&files, "/reads.fastq").await == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_changes_that_came_too_late_are_deleted() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let source = std::io::Cursor::new(lines(400_000));
    files.write(&name("/a"), source, BYTES, |_| {}).await.unwrap();
    let [mut one, mut other, mut last] =
        [edit(&files, "/a").await, edit(&files, "/a").await, edit(&files, "/a").await];
    one.write_at(390_000, b"one").unwrap();
    [0, 150_000].iter().for_each(|offset| other.write_at(*offset, b"other").unwrap());
    // The rest of the last chunk, of which it changes a part, is gone when it stores that part.
    [0, 150_000, 390_000].iter().for_each(|offset| last.write_at(*offset, b"last").unwrap());
    one.finish().await.unwrap();
    let live: u64 = files
        .stat(&name("/a"))
        .await
        .unwrap()
        .record
        .chunks
        .iter()
        .map(|chunk| chunk.size_bytes)
        .sum();
    let is_clean = || cluster.nodes.iter().all(|node| node.store.total_bytes() == live);
    eventually("the first change has replaced a chunk", async || is_clean()).await;
    for late in [other, last] {
        assert_eq!(late.finish().await.unwrap_err().kind, FilesErrorKind::Changed);
        eventually("no chunk of a change that came too late is left", async || is_clean()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_an_append_and_of_a_format_that_came_too_late_are_deleted() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let size_bytes = 4 * BYTES.chunk_bytes;
    let mut content = lines(size_bytes as usize);
    content.truncate(size_bytes as usize);
    let stale = files
        .write(&name("/a"), std::io::Cursor::new(content.clone()), BYTES, |_| {})
        .await
        .unwrap();
    let ((is_read, was_read), (tell, told)) = (mpsc::channel(), mpsc::channel());
    let appending = {
        let (files, source) = (files.clone(), ChannelReader { is_read, told });
        tokio::spawn(async move { files.append(&name("/a"), source, |_| {}).await })
    };
    tokio::task::spawn_blocking(move || was_read.recv().unwrap()).await.unwrap();
    // It keeps all chunks. The new one is zeros, which no node stores.
    let mut other = edit(&files, "/a").await;
    other.set_size(size_bytes + BYTES.chunk_bytes).unwrap();
    other.finish().await.unwrap();
    tell.send(b"more\n".to_vec()).unwrap();
    drop(tell);
    assert_eq!(appending.await.unwrap().unwrap_err().kind, FilesErrorKind::Changed);
    let is_clean = || cluster.nodes.iter().all(|node| node.store.total_bytes() == size_bytes);
    eventually("no chunk of the append is left", async || is_clean()).await;
    let recut = files.set_format(&stale, Format::Lines.into()).await;
    assert_eq!(recut.unwrap_err().kind, FilesErrorKind::Changed);
    eventually("no chunk of the other format is left", async || is_clean()).await;
    content.resize(content.len() + BYTES.chunk_bytes as usize, 0);
    assert!(content_of(&files, "/a").await == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_places_of_blocks_on_nodes_that_joined_later_are_known() {
    let mut cluster = Cluster::of(1).await;
    let early = cluster.files().await;
    cluster.join(false).await;
    cluster.settles().await;
    let file =
        cluster.files().await.write_content(&name("/a"), b"content".to_vec(), BYTES).await.unwrap();
    let places = early.places(&file).await;
    assert_eq!(places[0].holders.len(), 2);
    assert!(places[0].holders.iter().all(|holder| holder.address.is_some()), "{places:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_was_not_waited_for_is_not_lost() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files_far().await;
    let written = lines(400_000);
    let file = files
        .write(&name("/a"), std::io::Cursor::new(written.clone()), BYTES, |_| {})
        .await
        .unwrap();
    let (mut reading, mut content) = (files.read(&file), Vec::new());
    loop {
        match tokio::time::timeout(Duration::ZERO, reading.next()).await {
            Err(_) => tokio::task::yield_now().await,
            Ok(part) => match part.unwrap() {
                Some(part) => content.extend(part),
                None => break,
            },
        }
    }
    assert!(content == written);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_places_of_blocks_are_known() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files_near(1).await;
    let near = cluster.nodes[1].node.node();
    for (format, blocks) in [(Format::Lines, &[0, 1, 2][..]), (Format::Whole, &[0])] {
        let path = format!("/{format}");
        let options = WriteOptions { format: format.into(), ..SMALL };
        let source = std::io::Cursor::new(lines(150_000));
        let file = files.write(&name(&path), source, options, |_| {}).await.unwrap();
        let places = files.places(&file).await;
        assert_eq!(places.iter().map(|place| place.block).collect::<Vec<_>>(), blocks);
        let mut offset = 0;
        for (place, chunk) in places.iter().zip(&file.record.chunks) {
            assert_eq!((place.offset, place.size_bytes), (offset, chunk.size_bytes));
            assert!(place.holders.iter().map(|holder| &holder.node).eq(&chunk.replicas));
            assert!(
                place
                    .holders
                    .iter()
                    .all(|holder| holder.host().is_some_and(|host| host.is_loopback()))
            );
            assert!(place.holders.iter().all(|holder| holder.is_near == (holder.node == near)));
            offset += place.size_bytes;
        }
    }
}
