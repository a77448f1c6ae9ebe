//! Holes of files: no node stores their zeros, and readers and copies have them.

use std::fs::File as LocalFile;
use std::os::unix::fs::FileExt;

use eyas_files::{CopyOptions, FilePart, SparseFile, WriteOptions};
use eyas_types::dfs::Format;
use eyas_types::{FileMode, JobId, ObjectSpec, TaskId};

use crate::cluster::{Cluster, SMALL, content_of, name};

const CHUNK: u64 = 64 << 10;

const BYTES: WriteOptions = WriteOptions {
    format: eyas_types::dfs::RecordFormat { format: Format::BYTES, is_guessed: false },
    ..SMALL
};

/// A file of 100 chunks with one byte in its middle.
fn sparse() -> (LocalFile, Vec<u8>) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(100 * CHUNK).unwrap();
    file.write_all_at(b"x", 50 * CHUNK + 7).unwrap();
    let mut content = vec![0; 100 * CHUNK as usize];
    content[50 * CHUNK as usize + 7] = b'x';
    (file, content)
}

#[tokio::test(flavor = "multi_thread")]
async fn zeros_are_stored_on_no_node() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let (source, content) = sparse();
    let written = files.write(&name("/sparse"), SparseFile(source), BYTES, |_| {}).await.unwrap();
    assert_eq!(
        (written.record.size_bytes(), written.record.hole_bytes()),
        (100 * CHUNK, 99 * CHUNK)
    );
    let stored = |cluster: &Cluster| {
        cluster.nodes.iter().map(|node| node.node.chunks().len()).collect::<Vec<_>>()
    };
    assert_eq!(stored(&cluster), [1, 1, 1]);
    assert_eq!(content_of(&files, "/sparse").await, content);
    assert!(files.verify(&written, true).await.unwrap().is_good());
    let mut reading = files.read_range(&written, CHUNK / 2..2 * CHUNK);
    assert_eq!(reading.next_part().await.unwrap(), Some(FilePart::Hole(CHUNK / 2)));
    assert_eq!(reading.next_part().await.unwrap(), Some(FilePart::Hole(CHUNK)));
    assert_eq!(files.read_at(&written, 50 * CHUNK, 8).await.unwrap(), b"\0\0\0\0\0\0\0x");

    // Zeros that were read are not stored either, and make the same chunks: the content has the
    // same version.
    let read = files
        .write(&name("/read"), std::io::Cursor::new(content.clone()), BYTES, |_| {})
        .await
        .unwrap();
    let shape = |file: &eyas_files::File| {
        file.record.chunks.iter().map(|chunk| (chunk.is_hole(), chunk.checksum)).collect::<Vec<_>>()
    };
    assert_eq!(shape(&read), shape(&written));

    // Copies have the holes, too, and a file that a program still reads while it is removed.
    let copied = files.copy(&written, &name("/copy"), 3).await.unwrap();
    assert_eq!(shape(&copied), shape(&written));
    let retained = files.retain(&written).await.unwrap();
    files.remove(&name("/sparse")).await.unwrap();
    assert_eq!(shape(retained.file()), shape(&written));
    files.release(&retained).await.unwrap();

    let more =
        files.append(&name("/copy"), std::io::Cursor::new(b"end".to_vec()), |_| {}).await.unwrap();
    assert_eq!(more.record.hole_bytes(), 99 * CHUNK);
    assert_eq!(content_of(&files, "/copy").await, [&content[..], b"end"].concat());
    // Only zeros: no node has anything of it.
    let empty = files.write_content(&name("/zeros"), vec![0; 10], BYTES).await.unwrap();
    assert_eq!(empty.record.hole_bytes(), 10);
    assert_eq!(content_of(&files, "/zeros").await, [0; 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_sparse_object_has_its_holes() {
    let cluster = Cluster::of(2).await;
    let files = cluster.files().await;
    let (store, (_, content)) = (&cluster.nodes[0].store, sparse());
    let task = TaskId { job: JobId(1), index: 0 };
    let object =
        ObjectSpec::kept(task, "sparse", content.len() as u64, "checksum", FileMode::of(0o640));
    let mut into = store.begin(object.id(), object.size_bytes(), object.mode).unwrap();
    let middle = 50 * CHUNK as usize;
    into.skip(50 * CHUNK).unwrap();
    // Zeros that are written are not stored either.
    into.write(&content[middle..]).unwrap();
    into.commit().unwrap();
    for format in [None, Some(Format::BYTES)] {
        let copied = name(&format!("/{}", format.is_some()));
        let options = CopyOptions { format, chunk_bytes: CHUNK, replication: 2 };
        let file =
            files.copy_object(&object, &cluster.addresses(), &copied, options).await.unwrap();
        assert_eq!(file.record.attributes.mode, 0o640);
        assert_eq!(
            (file.record.size_bytes(), file.record.hole_bytes()),
            (100 * CHUNK, 99 * CHUNK),
            "{format:?}"
        );
        assert!(files.verify(&file, true).await.unwrap().is_good());
        assert!(content_of(&files, copied.as_str()).await == content);
    }
    // One chunk is not copied, unless it has only zeros.
    let zeros = ObjectSpec::kept(task, "zeros", 2 * CHUNK, "checksum", FileMode::READABLE);
    let mut into = store.begin(zeros.id(), zeros.size_bytes(), zeros.mode).unwrap();
    into.skip(2 * CHUNK).unwrap();
    into.commit().unwrap();
    let options = CopyOptions { format: None, chunk_bytes: 4 * CHUNK, replication: 2 };
    let file =
        files.copy_object(&zeros, &cluster.addresses(), &name("/zeros"), options).await.unwrap();
    assert_eq!((file.record.chunks.len(), file.record.hole_bytes()), (1, 2 * CHUNK));
    assert!(content_of(&files, "/zeros").await == vec![0; 2 * CHUNK as usize]);
    let stored = |cluster: &Cluster| {
        cluster.nodes.iter().map(|node| node.node.chunks().len()).collect::<Vec<_>>()
    };
    assert_eq!(stored(&cluster), [2, 2]);
}
