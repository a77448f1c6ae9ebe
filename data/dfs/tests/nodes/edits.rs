//! Writers that change files at any offset, and the places of chunks.

use eyas_dfs::{DfsClient, FileWriter, FilesErrorKind, WriteOptions};
use eyas_types::dfs::{Format, RecordFormat};

use crate::cluster::{Cluster, SMALL, content_of, lines, name};

/// Chunks of 64 KiB without records.
const BYTES: WriteOptions = WriteOptions { format: RecordFormat { format: Format::BYTES, is_guessed: false }, ..SMALL };

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
    let is_kept = |place: usize| before.record.chunks[place].object == after.record.chunks[place].object;
    assert_eq!((0..7).map(is_kept).collect::<Vec<_>>(), [true, false, true, true, true, true, false]);

    let mut writer = edit(&files, "/a").await;
    writer.set_size(10).unwrap();
    writer.write(b"01").await.unwrap();
    writer.write(b"23").await.unwrap();
    drop(edit(&files, "/a").await);
    writer.finish().await.unwrap();
    assert_eq!(content_of(&files, "/a").await, [&b"0123"[..], &content[4..10]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_change_a_version_the_second_one_learns_it() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    files.write_content(&name("/a"), b"content".to_vec(), BYTES).await.unwrap();
    let [mut one, mut other] = [edit(&files, "/a").await, edit(&files, "/a").await];
    one.write_at(0, b"C").unwrap();
    other.write_at(6, b"T").unwrap();
    one.finish().await.unwrap();
    assert_eq!(other.finish().await.unwrap_err().kind, FilesErrorKind::Changed);
    assert_eq!(content_of(&files, "/a").await, b"Content");

    assert_eq!(FileWriter::edit(files.clone(), name("/new"), None).await.err().unwrap().kind, FilesErrorKind::NotFound);
    let create = async || FileWriter::edit(files.clone(), name("/new"), Some(BYTES)).await.unwrap();
    let [mut one, other] = [create().await, create().await];
    one.write_at(3, b"new").unwrap();
    one.finish().await.unwrap();
    assert_eq!(other.finish().await.unwrap_err().kind, FilesErrorKind::Exists);
    assert_eq!(content_of(&files, "/new").await, b"\0\0\0new");
    let mut appended = FileWriter::append(files.clone(), name("/new")).await.unwrap();
    assert_eq!(appended.write_at(0, b"x").unwrap_err().kind, FilesErrorKind::Invalid);
    let too_far = u64::MAX - 1;
    assert_eq!(edit(&files, "/new").await.write_at(too_far, b"abc").unwrap_err().kind, FilesErrorKind::Invalid);
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
        let places = files.places(&file);
        assert_eq!(places.iter().map(|place| place.block).collect::<Vec<_>>(), blocks);
        let mut offset = 0;
        for (place, chunk) in places.iter().zip(&file.record.chunks) {
            assert_eq!((place.offset, place.size_bytes), (offset, chunk.size_bytes));
            assert!(place.holders.iter().map(|holder| &holder.node).eq(&chunk.replicas));
            assert!(place.holders.iter().all(|holder| holder.host().is_some_and(|host| host.is_loopback())));
            assert!(place.holders.iter().all(|holder| holder.is_near == (holder.node == near)));
            offset += place.size_bytes;
        }
    }
}
