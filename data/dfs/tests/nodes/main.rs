//! Files on several nodes: acknowledged content survives failures of nodes and replicas.

mod cluster;
mod edits;
mod folders;
mod holes;
mod lost_answers;
mod named;
mod power;
mod reader;
mod rights;
mod runs;
mod unclaimed;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use cluster::{Cluster, SMALL, content_of, eventually, lines, name, write};
use eyas_files::{
    ChunkContent, DfsClient, FileWriter, FilesErrorKind, RenameOptions, WriteOptions,
};
use eyas_store::{Checksum, object_path};
use eyas_types::dfs::{Chunk, Format, RecordFormat};
use redb::TableDefinition;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_read_appended_renamed_and_removed() {
    let cluster = Cluster::of(4).await;
    let files = cluster.files().await;
    for size in [0, 1, 65_536, 1_000_000] {
        let (file, content) = (format!("/a/{size}"), lines(size));
        let written = write(&files, &file, &content).await.unwrap();
        assert_eq!(content_of(&files, &file).await, content);
        assert_eq!(written, files.stat(&name(&file)).await.unwrap());
        assert!(written.record.chunks.iter().all(|chunk| chunk.replicas.len() == 3));
    }
    let content = lines(1_000_000);
    let file = files.stat(&name("/a/1000000")).await.unwrap();
    for (offset, length) in [(0, 1), (65_000, 2000), (999_999, 1), (0, content.len() as u64)] {
        let part = files.read_at(&file, offset, length).await.unwrap();
        assert_eq!(part, content[offset as usize..(offset + length) as usize]);
    }
    let beyond = files.read_at(&file, content.len() as u64, 1).await.unwrap_err();
    assert_eq!(beyond.kind, FilesErrorKind::NotFound);

    let more =
        files.append(&name("/a/1000000"), io::Cursor::new(lines(200_000)), |_| {}).await.unwrap();
    let appended = [content, lines(200_000)].concat();
    assert_eq!(content_of(&files, "/a/1000000").await, appended);
    // The same as if it had been written at once.
    let at_once = write(&files, "/b", &appended).await.unwrap();
    let sizes = |file: &eyas_files::File| {
        file.record.chunks.iter().map(|chunk| chunk.size_bytes).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&more), sizes(&at_once));

    files.rename(&name("/a/1000000"), &name("/c"), RenameOptions::default()).await.unwrap();
    assert_eq!(content_of(&files, "/c").await, appended);
    assert!(!files.exists(&name("/a/1000000")).await.unwrap());
    let names = |listed: Vec<eyas_files::Listing>| {
        listed.iter().map(|file| file.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(files.list("/a").await.unwrap()), ["/a/0", "/a/1", "/a/65536"]);
    assert_eq!(names(files.list("/").await.unwrap()), ["/a/0", "/a/1", "/a/65536", "/b", "/c"]);
    for file in files.list("").await.unwrap() {
        files.remove(&file.name).await.unwrap();
    }
    assert_eq!(files.remove(&name("/b")).await.unwrap_err().kind, FilesErrorKind::NotFound);
    eventually("no chunk is left", async || cluster.nodes.iter().all(|node| node.store.is_empty()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_guesses_the_format_by_the_content_unless_it_is_given() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    let guess = RecordFormat::guessed(Format::BYTES);
    let large = b"a line\n".repeat(100_000);
    for (file, content, given, format) in [
        ("/a.csv", &b"a,b\n"[..], guess, RecordFormat::guessed(Format::Csv)),
        ("/b.csv", b"\xff\xfea\0\n\0", guess, RecordFormat::guessed(Format::Whole)),
        ("/c", b"\x1f\x8b\x08\0", guess, RecordFormat::guessed(Format::Whole)),
        ("/z", b"\x28\xb5\x2f\xfd\0", guess, RecordFormat::guessed(Format::Whole)),
        ("/d", &large, guess, RecordFormat::guessed(Format::Lines)),
        ("/e", b"", guess, RecordFormat::guessed(Format::Lines)),
        ("/f.csv", b"a,b\n", Format::BYTES.into(), Format::BYTES.into()),
    ] {
        let options = WriteOptions { format: given, ..SMALL };
        let mut writer =
            FileWriter::create(files.clone(), name(file), options, false).await.unwrap();
        writer.write(content).await.unwrap();
        writer.finish().await.unwrap();
        assert_eq!(files.stat(&name(file)).await.unwrap().record.format, format, "{file}");
        assert!(content_of(&files, file).await == content, "{file}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_several_writers_of_a_name_wins() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let files = cluster.files().await;
        writers.spawn(async move {
            (number, write(&files, "/one", format!("{number}\n").as_bytes()).await)
        });
    }
    let mut winners = Vec::new();
    for (number, written) in writers.join_all().await {
        match written {
            Ok(_) => winners.push(number),
            Err(error) => assert_eq!(error.kind, FilesErrorKind::Exists, "{error}"),
        }
    }
    let [winner] = winners[..] else { panic!("{winners:?}") };
    assert_eq!(content_of(&files, "/one").await, format!("{winner}\n").into_bytes());
    write(&files, "/other", b"x").await.unwrap();
    let renamed = files.rename(&name("/other"), &name("/one"), RenameOptions::default()).await;
    assert_eq!(renamed.unwrap_err().kind, FilesErrorKind::Exists);
}

/// Gives some bytes, and then fails.
struct FailingReader(usize);

impl Read for FailingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("it broke"));
        }
        let read = buffer.len().min(self.0);
        buffer[..read].fill(b'\n');
        self.0 -= read;
        Ok(read)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_cut_off_never_appears() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let error =
        files.write(&name("/cut"), FailingReader(500_000), SMALL, |_| {}).await.unwrap_err();
    assert_eq!(error.kind, FilesErrorKind::Local);
    assert!(!files.exists(&name("/cut")).await.unwrap());
    write(&files, "/whole", b"first\n").await.unwrap();
    assert!(files.append(&name("/whole"), FailingReader(500_000), |_| {}).await.is_err());
    assert_eq!(content_of(&files, "/whole").await, b"first\n");
    let odd = WriteOptions { format: Format::Fixed { record_bytes: 7 }.into(), ..SMALL };
    let error =
        files.write(&name("/odd"), io::Cursor::new(vec![0; 20]), odd, |_| {}).await.unwrap_err();
    assert_eq!(error.kind, FilesErrorKind::WrongFormat, "{error}");
}

/// Reports when it is read, and then waits for its content.
struct ChannelReader {
    is_read: mpsc::Sender<()>,
    told: mpsc::Receiver<Vec<u8>>,
}

impl Read for ChannelReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let _ = self.is_read.send(());
        let given = self.told.recv().unwrap_or_default();
        buffer[..given.len()].copy_from_slice(&given);
        Ok(given.len())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_repaired_meanwhile_can_be_appended_to() {
    let cluster = Cluster::of(4).await;
    let files = cluster.files().await;
    let content = lines(300_000);
    let before = write(&files, "/file", &content).await.unwrap();
    let ((is_read, was_read), (tell, told)) = (mpsc::channel(), mpsc::channel());
    let appending = {
        let (files, source) = (files.clone(), ChannelReader { is_read, told });
        tokio::spawn(async move { files.append(&name("/file"), source, |_| {}).await })
    };
    tokio::task::spawn_blocking(move || was_read.recv().unwrap()).await.unwrap();
    std::fs::remove_file(some_chunk(&cluster, 0)).unwrap();
    eventually("its record is another", async || {
        let _ = files.verify(&before, true).await;
        files.stat(&name("/file")).await.unwrap().record != before.record
    })
    .await;
    tell.send(b"more\n".to_vec()).unwrap();
    drop(tell);
    appending.await.unwrap().unwrap();
    assert_eq!(content_of(&files, "/file").await, [&content[..], b"more\n"].concat());
    whole(&cluster, 3).await;
}

/// The file of a chunk that a node has.
fn some_chunk(cluster: &Cluster, node: usize) -> std::path::PathBuf {
    let objects = cluster.folder(node).join("store/objects");
    let first = std::fs::read_dir(&objects).unwrap().next().unwrap().unwrap().path();
    std::fs::read_dir(first).unwrap().next().unwrap().unwrap().path()
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_a_client_that_has_gone_are_accounted_for() {
    let cluster = Cluster::of(3).await;
    let content = lines(4_000_000);
    for number in 0..10 {
        let (files, content) = (cluster.files().await, content.clone());
        let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let file = name(&format!("/cut{number}"));
        let writing = tokio::spawn(async move {
            let see = |bytes| {
                let _ = say.send(bytes);
            };
            files.write(&file, io::Cursor::new(content), SMALL, see).await.map(drop)
        });
        heard.recv().await.unwrap();
        writing.abort();
    }
    eventually("what is in stores is known to be there", async || {
        let known = |node: &cluster::Node| {
            let own: BTreeSet<_> = node.node.chunks().into_iter().collect();
            own == node.store.ids().into_iter().collect()
        };
        cluster.nodes.iter().all(known)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outlive_nodes() {
    let mut cluster = Cluster::of(5).await;
    let files = cluster.files().await;
    let content = lines(2_000_000);
    for number in 0..20 {
        write(&files, &format!("/f{number}"), &content[number * 100_000..]).await.unwrap();
    }
    let (one, _other) = (cluster.end(0), cluster.end(0));
    // When two of five nodes are lost, everything is still there at once.
    for number in 0..20 {
        assert_eq!(content_of(&files, &format!("/f{number}")).await, content[number * 100_000..]);
    }
    cluster.settles().await;
    write(&files, "/new", &content).await.unwrap();
    whole(&cluster, 3).await;
    // One comes back with its old data, and is synchronized.
    files.remove(&name("/f3")).await.unwrap();
    cluster.start(one, false).await;
    cluster.settles().await;
    assert!(!files.exists(&name("/f3")).await.unwrap());
    whole(&cluster, 3).await;
    assert_eq!(files.list("/").await.unwrap().len(), 20);
}

/// Waits until every chunk has this number of replicas, all of which are stored.
async fn whole(cluster: &Cluster, replicas: usize) {
    let files = cluster.files().await;
    eventually("all chunks have all replicas", async || {
        for listed in files.list("/").await.unwrap() {
            let Ok(file) = files.stat(&listed.name).await else { return false };
            let lacks = file.record.chunks.iter().any(|chunk| chunk.replicas.len() < replicas);
            if lacks || !files.verify(&file, true).await.unwrap().is_good() {
                return false;
            }
        }
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_whose_rows_are_lost_are_known_again() {
    const CHUNKS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("chunks");
    let mut cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let written = write(&files, "/file", &lines(300_000)).await.unwrap();
    let path = cluster.folder(2).join("files/files.redb");
    let place = cluster.end(2);
    // As if the machine had crashed before the chunks were durable.
    eventually("the database is free", async || {
        let Ok(database) = redb::Database::open(&path) else { return false };
        let write = database.begin_write().unwrap();
        write.open_table(CHUNKS).unwrap().retain(|_, _| false).unwrap();
        write.commit().is_ok()
    })
    .await;
    cluster.start(place, false).await;
    cluster.settles().await;
    eventually("they are", async || {
        cluster.nodes[2].node.chunks().len() == written.record.chunks.len()
    })
    .await;
    assert_eq!(
        files.stat(&name("/file")).await.unwrap().record,
        written.record,
        "nothing had to be replaced"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn small_chunks_that_a_power_failure_has_taken_are_put_back() {
    const CONTENTS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("contents");
    let mut cluster = Cluster::of(1).await;
    let content = lines(1000);
    let written = write(&cluster.files().await, "/small", &content).await.unwrap();
    let path = cluster.folder(0).join("files/files.redb");
    let chunk = some_chunk(&cluster, 0);
    let place = cluster.end(0);
    // As if the power had failed before the node has synced the file of the chunk.
    eventually("the database is free", async || {
        let Ok(database) = redb::Database::open(&path) else { return false };
        let write = database.begin_write().unwrap();
        write
            .open_table(CONTENTS)
            .unwrap()
            .insert(written.record.chunks[0].object.0, &*content)
            .unwrap();
        write.commit().is_ok()
    })
    .await;
    std::fs::remove_file(chunk).unwrap();
    cluster.start(place, false).await;
    cluster.settles().await;
    assert_eq!(content_of(&cluster.files().await, "/small").await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_found_and_mended() {
    let cluster = Cluster::of(4).await;
    let files = cluster.files().await;
    let content = lines(300_000);
    write(&files, "/file", &content).await.unwrap();
    // One node loses a chunk; a chunk of another node is changed on its disk.
    let mut damaged = 0;
    for node in 0..2 {
        let chunk = some_chunk(&cluster, node);
        if node == 0 {
            std::fs::remove_file(chunk).unwrap();
        } else {
            std::fs::set_permissions(&chunk, std::fs::Permissions::from_mode(0o644)).unwrap();
            std::fs::write(&chunk, b"damage").unwrap();
        }
        damaged += 1;
    }
    assert_eq!(damaged, 2);
    assert_eq!(content_of(&files, "/file").await, content);
    whole(&cluster, 3).await;
    assert_eq!(content_of(&files, "/file").await, content);
}

/// A source that fails after some content.
struct FailingSource(io::Cursor<Vec<u8>>);

impl Read for FailingSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the source has gone")),
            read => Ok(read),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_not_written_leaves_nothing_on_the_nodes() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let is_empty = || cluster.nodes.iter().all(|node| node.store.is_empty());
    for size in [1000, 1_000_000] {
        let broken = FailingSource(io::Cursor::new(lines(size)));
        let failed = files.write(&name("/broken"), broken, SMALL, |_| {}).await.unwrap_err();
        assert_eq!(failed.kind, FilesErrorKind::Local);
        eventually("nothing is left", async || is_empty()).await;
    }
    let csv = WriteOptions { format: Format::Csv.into(), ..SMALL };
    let content = [&lines(300_000)[..], b"\"open"].concat();
    let failed =
        files.write(&name("/csv"), io::Cursor::new(content), csv, |_| {}).await.unwrap_err();
    assert_eq!(failed.kind, FilesErrorKind::WrongFormat);
    eventually("nothing is left", async || is_empty()).await;
    // Of two that write one name, one is refused.
    let twice =
        async |number: usize| write(&files, "/same", &lines(200_000 + number)).await.is_ok();
    let written = tokio::join!(twice(1), twice(2));
    assert!(written.0 != written.1, "{written:?}");
    assert!(content_of(&files, "/same").await.len() > 200_000);
    files.remove(&name("/same")).await.unwrap();
    eventually("nothing is left", async || is_empty()).await;
}

/// A source that says when it was read, and then waits.
struct WaitingSource(io::Cursor<Vec<u8>>, mpsc::Sender<()>, mpsc::Receiver<()>);

impl Read for WaitingSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        if read == 0 {
            let _ = self.1.send(());
            let _ = self.2.recv();
        }
        Ok(read)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chunks_of_a_client_that_has_gone_are_deleted_unless_a_file_has_them() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let kept = write(&files, "/kept", &lines(300_000)).await.unwrap();
    let (reached, reads) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let source = WaitingSource(io::Cursor::new(lines(1_000_000)), reached, ends);
    let writing = files.clone();
    let put =
        tokio::spawn(async move { writing.write(&name("/broken"), source, SMALL, |_| {}).await });
    tokio::task::spawn_blocking(move || reads.recv().unwrap()).await.unwrap();
    let count = || cluster.nodes.iter().map(|node| node.store.len()).sum::<usize>();
    eventually("chunks are stored", async || count() > 3 * kept.record.chunks.len()).await;
    // As when its process is killed.
    put.abort();
    drop((put.await, end, files));
    eventually("they are deleted", async || count() == 3 * kept.record.chunks.len()).await;
    assert_eq!(content_of(&cluster.files().await, "/kept").await, lines(300_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_left_by_clients_make_room_for_new_files() {
    // Room for one of the files, and not for two.
    let cluster = Cluster::with_space(3, 1_500_000).await;
    let (reached, reads) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let source = WaitingSource(io::Cursor::new(lines(1_000_000)), reached, ends);
    let leaving = cluster.files().await;
    let put =
        tokio::spawn(async move { leaving.write(&name("/broken"), source, SMALL, |_| {}).await });
    tokio::task::spawn_blocking(move || reads.recv().unwrap()).await.unwrap();
    let is_stored = || cluster.nodes.iter().all(|node| node.store.total_bytes() > 800_000);
    eventually("chunks are stored", async || is_stored()).await;
    let (full, files) = (cluster.files().await, cluster.files().await);
    let refused = write(&full, "/while-it-writes", &lines(1_000_000)).await.unwrap_err();
    assert_eq!(refused.kind, FilesErrorKind::Full);
    put.abort();
    drop((put.await, end));
    // No pause: the nodes make the room while the file is being written.
    write(&files, "/new", &lines(1_000_000)).await.unwrap();
    assert_eq!(content_of(&files, "/new").await, lines(1_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_does_not_fit_leaves_nothing() {
    let cluster = Cluster::with_space(3, 1_500_000).await;
    let files = cluster.files().await;
    let written = write(&files, "/a", &lines(1_000_000)).await.unwrap();
    let refused = files.copy(&written, &name("/b"), 3).await.unwrap_err();
    assert_eq!(refused.kind, FilesErrorKind::Full);
    let count = || cluster.nodes.iter().map(|node| node.store.len()).sum::<usize>();
    eventually("nothing is left", async || count() == 3 * written.record.chunks.len()).await;
    assert_eq!(content_of(&files, "/a").await, lines(1_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_is_passed_over() {
    let mut cluster = Cluster::of(3).await;
    cluster.join(true).await;
    cluster.settles().await;
    let files = cluster.files().await;
    let content = lines(1_000_000);
    let file = write(&files, "/file", &content).await.unwrap();
    assert!(file.record.chunks.iter().all(|chunk| chunk.replicas.len() == 3));
    assert_eq!(content_of(&files, "/file").await, content);
    assert!(cluster.nodes[3].store.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_sent_by_a_client_that_sees_no_store_and_handed_over_by_one_that_does() {
    let cluster = Cluster::of(4).await;
    let content = lines(300_000);
    for (file, files) in [("/far", cluster.files_far().await), ("/near", cluster.files().await)] {
        let written = write(&files, file, &content).await.unwrap();
        assert!(written.record.chunks.iter().all(|chunk| chunk.replicas.len() == 3));
        assert!(files.verify(&written, true).await.unwrap().is_good());
        assert_eq!(content_of(&files, file).await, content);
    }
    for node in 0..4 {
        let partial = cluster.folder(node).join("store/partial");
        assert_eq!(std::fs::read_dir(partial).unwrap().count(), 0, "no file is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_on_the_machine_of_a_node_reads_its_chunks_from_their_files() {
    let cluster = Cluster::of(3).await;
    let content = lines(300_000);
    let written = write(&cluster.files().await, "/a", &content).await.unwrap();
    let sent = cluster.served_bytes();
    let near = cluster.files_near(0).await;
    assert_eq!(content_of(&near, "/a").await, content);
    assert!(matches!(
        near.open_chunk(&written, 1, 1, true).await.unwrap().content,
        ChunkContent::File(_)
    ));
    let ends =
        async |files: &DfsClient| files.open_chunk(&written, 0, 5, false).await.unwrap().ends;
    let ends_near = ends(&near).await;
    assert_eq!(cluster.served_bytes(), sent, "no node has sent a byte");
    assert_eq!(ends_near, ends(&cluster.files().await).await);
    assert!(ends_near.is_sorted() && ends_near.len() == 5, "{ends_near:?}");

    // A file with other content of the same size is not used, and neither is one that is missing.
    let path = |chunk: usize| {
        let Chunk { object, size_bytes, checksum, .. } = &written.record.chunks[chunk];
        object_path(cluster.nodes[0].store.dir(), *object, *size_bytes, Checksum(*checksum))
    };
    fs::set_permissions(path(1), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path(1), vec![b'x'; written.record.chunks[1].size_bytes as usize]).unwrap();
    fs::remove_file(path(2)).unwrap();
    assert!(matches!(
        near.open_chunk(&written, 1, 1, true).await.unwrap().content,
        ChunkContent::Bytes(_)
    ));
    // One bit of the last byte, and a byte less.
    let mut first = fs::read(path(0)).unwrap();
    *first.last_mut().unwrap() ^= 1;
    fs::set_permissions(path(0), fs::Permissions::from_mode(0o644)).unwrap();
    for _ in 0..2 {
        fs::write(path(0), &first).unwrap();
        assert!(matches!(
            near.open_chunk(&written, 0, 5, false).await.unwrap().content,
            ChunkContent::Bytes(_)
        ));
        first.pop();
    }
    assert_eq!(content_of(&near, "/a").await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_the_stores_of_the_nodes_on_its_machine() {
    let cluster = Cluster::of(3).await;
    let content = lines(300_000);
    let written = write(&cluster.files().await, "/a", &content).await.unwrap();
    let sent = cluster.served_bytes();
    let files = cluster.files().await;
    assert_eq!(content_of(&files, "/a").await, content);
    let chunk = &written.record.chunks[0];
    // Small parts of an unknown chunk are requested until there are many of them.
    assert_eq!(files.read_local(chunk, 5..10).await, None);
    let mut parts = 1;
    while files.read_local(chunk, 5..10).await.is_none() {
        parts += 1;
    }
    assert_eq!(parts, 16);
    assert_eq!(cluster.served_bytes(), sent, "no node has sent a byte");

    // Files that a program has written to after they were checked are not used, and neither are
    // missing ones.
    let (other, unread) = (&written.record.chunks[1], &written.record.chunks[2]);
    assert!(files.read_local(other, 5..60_000).await.is_some());
    for chunk in [chunk, other, unread] {
        for path in replicas(&cluster, chunk) {
            match chunk == other {
                true => fs::remove_file(path).unwrap(),
                false => overwrite(&path, b"other"),
            }
        }
        assert_eq!(files.read_local(chunk, 5..60_000).await, None);
    }
}

/// The files of a chunk in the stores of the nodes.
fn replicas(cluster: &Cluster, chunk: &Chunk) -> Vec<PathBuf> {
    let Chunk { object, size_bytes, checksum, .. } = chunk;
    let stores = cluster.nodes.iter().map(|node| node.store.dir());
    let paths = stores.map(|store| object_path(store, *object, *size_bytes, Checksum(*checksum)));
    paths.filter(|path| path.exists()).collect()
}

/// Writes bytes over those from offset 5.
fn overwrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, 5).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_relies_on_what_another_one_has_checked() {
    let cluster = Cluster::without_scrub(3).await;
    let written = write(&cluster.files().await, "/a", &lines(300_000)).await.unwrap();
    let chunk = &written.record.chunks[0];
    let paths = replicas(&cluster, chunk);
    assert!(cluster.files().await.read_local(chunk, 0..60_000).await.is_some());
    // A disk that fails leaves no trace of a change, so the content tells whether it was checked
    // again.
    let change = |change_time: bool| {
        for path in &paths {
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
            let file = fs::File::options().write(true).open(path).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(b"?", 5).unwrap();
            file.set_modified(if change_time {
                modified + Duration::from_secs(1)
            } else {
                modified
            })
            .unwrap();
        }
    };
    change(false);
    let part = async || cluster.files().await.read_local(chunk, 5..60_000).await;
    assert_eq!(part().await.unwrap()[0], b'?');
    change(true);
    assert_eq!(part().await, None);
}
