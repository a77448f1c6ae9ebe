//! Readers of files: any sequence of reads gives the content, from stores on this machine and from
//! other nodes.

use std::fs;
use std::sync::Arc;

use eyas_files::{ChunkCache, DfsClient, FileReader, WriteOptions};
use eyas_types::dfs::Format;

use crate::cluster::{Cluster, SMALL, eventually, lines, name, write};
use crate::{overwrite, replicas};

/// Size of the chunks, about.
const CHUNK: u64 = 64 << 10;

async fn open(files: &DfsClient) -> FileReader {
    FileReader::open(files.clone(), &name("/a")).await.unwrap()
}

/// Offsets and lengths of reads: small ones that continue, jumps, whole chunks, and ranges of many
/// chunks.
fn reads(size_bytes: u64) -> Vec<(u64, usize)> {
    let mut reads: Vec<(u64, usize)> = (0..60).map(|number| (number * 5000, 5000)).collect();
    let mut seed = 7_u64;
    for _ in 0..100 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        reads.push(((seed >> 33) % size_bytes, [10, 3000, 100_000][(seed >> 20) as usize % 3]));
    }
    reads.extend([
        (0, size_bytes as usize),
        (10, size_bytes as usize),
        (size_bytes, 10),
        (size_bytes + 5, 10),
    ]);
    reads
}

async fn reads_give_the_content(reader: &FileReader, content: &[u8]) {
    assert_eq!(reader.size_bytes(), content.len() as u64);
    for (offset, length) in reads(content.len() as u64) {
        let begin = content.len().min(offset as usize);
        let expected = &content[begin..content.len().min(begin + length)];
        assert!(
            reader.read_at(offset, length as u64).await.unwrap() == expected,
            "{length} bytes from {offset}"
        );
        let mut buffer = vec![1; length];
        let read = reader.read_on_this_thread(offset, &mut buffer).await.unwrap();
        assert!(buffer[..read] == *expected, "{length} bytes from {offset}");
        for read in
            [reader.try_read_local(offset, &mut buffer), reader.read_local(offset, &mut buffer)]
        {
            assert!(read.is_none_or(|read| buffer[..read] == *expected));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_reads_give_the_content() {
    let cluster = Cluster::of(3).await;
    let content = lines(400_000);
    let written = Arc::new(write(&cluster.files().await, "/a", &content).await.unwrap());
    for files in [cluster.files().await, cluster.files_near(0).await, cluster.files_far().await] {
        reads_give_the_content(&open(&files).await, &content).await;
        let cache = ChunkCache::shared();
        let of_mount = FileReader::of_mount(files.clone(), written.clone(), cache);
        reads_give_the_content(&of_mount, &content).await;
        reads_give_the_content(&of_mount.renewed(written.clone()), &content).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequential_reader_finds_the_next_chunk_open() {
    let cluster = Cluster::of(3).await;
    let content = lines(400_000);
    write(&cluster.files().await, "/a", &content).await.unwrap();
    for files in [cluster.files_near(0).await, cluster.files_far().await] {
        let reader = open(&files).await;
        let mut buffer = [0; 100];
        assert_eq!(reader.try_read_local(0, &mut buffer), None, "nothing is open");
        for offset in [0, 100] {
            reader.read(offset, &mut buffer).await.unwrap();
        }
        assert_eq!(reader.try_read_local(3 * CHUNK, &mut buffer), None, "not so far ahead");
        let offset = CHUNK + 1000;
        eventually("the next chunk is open", async || {
            reader.try_read_local(offset, &mut buffer) == Some(100)
        })
        .await;
        assert_eq!(buffer, content[offset as usize..offset as usize + 100]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_other_machines_fetches_each_chunk_once() {
    let cluster = Cluster::of(1).await;
    let options = WriteOptions { format: Format::BYTES.into(), chunk_bytes: 2 << 20, ..SMALL };
    let mut content = lines(48 << 20);
    content.truncate(48 << 20);
    let files = cluster.files_far().await;
    files.write(&name("/a"), std::io::Cursor::new(content.clone()), options, |_| {}).await.unwrap();
    let (reader, sent) = (open(&files).await, cluster.served_bytes());
    // Reads that begin in one chunk and end in the next one are among them.
    let mut buffer = vec![0; 300_000];
    let mut offset = 0;
    loop {
        let read = reader.read(offset as u64, &mut buffer).await.unwrap();
        assert!(buffer[..read] == content[offset..offset + read], "from {offset}");
        offset += read;
        if read < buffer.len() {
            break;
        }
    }
    let served = cluster.served_bytes() - sent;
    // The first read is only requested.
    assert!(
        served <= (content.len() + buffer.len() + 100_000) as u64,
        "{served} bytes of {}",
        content.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_does_not_use_a_file_that_has_changed_and_closes_those_that_are_not_read() {
    let cluster = Cluster::of(3).await;
    let content = lines(400_000);
    let files = cluster.files().await;
    let written = Arc::new(write(&files, "/a", &content).await.unwrap());
    let reader = FileReader::of_mount(files, written.clone(), ChunkCache::shared());
    let chunk = &written.record.chunks[0];
    let sent = cluster.served_bytes();
    let mut buffer = [0; 10];
    reader.read(0, &mut buffer).await.unwrap();
    assert_eq!(reader.read_local(5, &mut buffer), Some(10));
    assert_eq!((&buffer[..], cluster.served_bytes()), (&content[5..15], sent));
    replicas(&cluster, chunk).iter().for_each(|path| overwrite(path, b"other"));
    assert_eq!(reader.read_local(5, &mut buffer), None);

    // An open file would keep the space of a deleted chunk.
    let last = written.record.chunks.last().unwrap();
    let end = content.len() as u64;
    let is_open = || {
        let open = fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        open.into_iter().any(|path| path.to_string_lossy().contains(&last.object.to_string()))
    };
    for offset in [end - 30, end - 20] {
        reader.read(offset, &mut buffer).await.unwrap();
    }
    assert!(is_open());
    eventually("the file is closed", async || !is_open()).await;
}
