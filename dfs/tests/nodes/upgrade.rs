//! The folder of a node of an earlier version, whose database has format 2, without folders, links, owners and quotas,
//! or format 3, in which all content counted as on the disks. Today's node opens it, and everything is there.

use std::path::Path;

use eyas_dfs::{FilesErrorKind, WriteOptions};
use eyas_ring::{NameEntry, RecordVersion, Stored};
use eyas_types::dfs::{Attributes, Chunk, FileId, FileKind, FileName, FileRecord, Format, Quota};
use redb::{ReadableTable, TableDefinition};
use serde::Serialize;

use crate::cluster::{Cluster, content_of, lines, name, write};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const RECORDS: TableDefinition<(u16, &str), &[u8]> = TableDefinition::new("records");

/// A record as format 2 has it.
#[derive(Serialize)]
struct WrittenRecord {
    id: FileId,
    format: Format,
    chunk_bytes: u64,
    replication: u8,
    modified_us: u64,
    chunks: Vec<Chunk>,
}

/// An entry as format 2 has it. The order of the variants counts.
#[derive(Serialize)]
#[allow(dead_code, reason = "the variants give the others their numbers")]
enum WrittenEntry {
    File(WrittenRecord),
    Removed { id: FileId, is_gone: bool },
    Arriving { from: FileName, version: RecordVersion, id: FileId },
    Departed { to: FileName, token: RecordVersion, record: WrittenRecord },
}

/// The entry in format 2; `None` for what that format did not have.
fn before(entry: NameEntry) -> Option<WrittenEntry> {
    let record = |record: FileRecord| {
        let FileRecord { id, format, chunk_bytes, replication, attributes, chunks, .. } = record;
        let modified_us = attributes.modified_us();
        WrittenRecord { id, format: *format, chunk_bytes, replication, modified_us, chunks }
    };
    match entry {
        NameEntry::File(found) => (found.kind == FileKind::File).then(|| WrittenEntry::File(record(found))),
        NameEntry::Removed { id, is_gone } => Some(WrittenEntry::Removed { id, is_gone }),
        NameEntry::Arriving { from, version, id, .. } => Some(WrittenEntry::Arriving { from, version, id }),
        NameEntry::Departed { to, token, record: found } => {
            Some(WrittenEntry::Departed { to, token, record: record(found) })
        }
    }
}

/// A record as format 3 has it.
#[derive(Serialize)]
struct WrittenRecord3 {
    id: FileId,
    kind: FileKind,
    attributes: (u16, u32, u32, u64, u64),
    quota: Option<Quota>,
    format: Format,
    chunk_bytes: u64,
    replication: u8,
    chunks: Vec<Chunk>,
}

#[derive(Serialize)]
#[allow(dead_code, reason = "the variants give the others their numbers")]
enum WrittenEntry3 {
    File(WrittenRecord3),
    Removed { id: FileId, is_gone: bool },
    Arriving { from: FileName, version: RecordVersion, id: FileId, over: Option<WrittenRecord3> },
    Departed { to: FileName, token: RecordVersion, record: WrittenRecord3 },
}

/// The entry in format 3.
fn before_3(entry: NameEntry) -> WrittenEntry3 {
    let record = |record: FileRecord| {
        let FileRecord { id, kind, attributes, quota, format, chunk_bytes, replication, chunks, .. } = record;
        let Attributes { mode, uid, gid, modified_ns, changed_ns } = attributes;
        let attributes = (mode, uid, gid, modified_ns, changed_ns);
        let format = *format;
        WrittenRecord3 { id, kind, attributes, quota, format, chunk_bytes, replication, chunks }
    };
    match entry {
        NameEntry::File(found) => WrittenEntry3::File(record(found)),
        NameEntry::Removed { id, is_gone } => WrittenEntry3::Removed { id, is_gone },
        NameEntry::Arriving { from, version, id, over } => {
            WrittenEntry3::Arriving { from, version, id, over: over.map(record) }
        }
        NameEntry::Departed { to, token, record: found } => {
            WrittenEntry3::Departed { to, token, record: record(found) }
        }
    }
}

/// Writes a database again as an earlier version would have written it.
fn write_format(path: &Path, format: u32) {
    let database = redb::Database::open(path).unwrap();
    let write = database.begin_write().unwrap();
    {
        let mut records = write.open_table(RECORDS).unwrap();
        let mut rows = Vec::new();
        for row in records.iter().unwrap() {
            let (key, value) = row.unwrap();
            let (partition, name) = key.value();
            let Stored { version, entry } = postcard::from_bytes(value.value()).unwrap();
            let encoded = match format {
                2 => before(entry).map(|entry| postcard::to_stdvec(&(version, entry)).unwrap()),
                _ => Some(postcard::to_stdvec(&(version, before_3(entry))).unwrap()),
            };
            rows.push((partition, name.to_owned(), encoded));
        }
        assert!(rows.iter().filter(|(.., encoded)| encoded.is_some()).count() >= 5, "there are files");
        for (partition, name, encoded) in rows {
            match encoded {
                Some(encoded) => drop(records.insert((partition, name.as_str()), &encoded[..]).unwrap()),
                None => drop(records.remove((partition, name.as_str())).unwrap()),
            }
        }
        let version = postcard::to_stdvec(&format).unwrap();
        write.open_table(META).unwrap().insert("version", &version[..]).unwrap();
    }
    write.commit().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_an_earlier_version_is_opened_with_all_files() {
    let mut cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    let contents = [("/a/1", 1000), ("/a/deep/2", 300_000), ("/b", 0), ("/c", 70_000), ("/gone", 5)];
    for (file, size) in contents {
        write(&files, file, &lines(size)).await.unwrap();
    }
    files.remove(&name("/gone")).await.unwrap();
    let moved = eyas_dfs::RenameOptions { replaces: false, makes_parents: true, keeps_format: false };
    files.rename(&name("/c"), &name("/e/d"), moved).await.unwrap();
    let modified = files.stat(&name("/a/1")).await.unwrap().record.attributes.modified_ns;
    drop(files);
    let database = cluster.folder(0).join("files/files.redb");
    let place = cluster.end(0);
    let mut is_free = false;
    crate::cluster::eventually("the folder is free", async || {
        is_free = redb::Database::open(&database).is_ok();
        is_free
    })
    .await;
    write_format(&database, 2);
    cluster.start(place, false).await;
    cluster.settles().await;

    let files = cluster.files().await;
    let kept = [("/a/1", 1000), ("/a/deep/2", 300_000), ("/b", 0), ("/e/d", 70_000)];
    for (file, size) in kept {
        assert_eq!(content_of(&files, file).await, lines(size), "{file}");
        let record = files.stat(&name(file)).await.unwrap().record;
        assert_eq!((record.attributes.mode, record.attributes.uid, record.attributes.gid), (0o644, 0, 0), "{file}");
        assert_eq!((&record.kind, record.quota), (&FileKind::File, None), "{file}");
    }
    let record = files.stat(&name("/a/1")).await.unwrap().record;
    assert_eq!(record.attributes.modified_ns, modified / 1000 * 1000);
    for gone in ["/c", "/gone"] {
        assert!(!files.exists(&name(gone)).await.unwrap(), "{gone}");
    }
    // A list puts the folders back, which that version did not have.
    for (folder, expected) in [("", vec!["/a", "/b", "/e"]), ("/a", vec!["/a/1", "/a/deep"]), ("/e", vec!["/e/d"])] {
        let page = files.list_folder(folder, "", 100).await.unwrap();
        let names: Vec<_> = page.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, expected, "{folder}");
    }
    for folder in ["/a", "/a/deep", "/e"] {
        assert!(files.lookup(&name(folder)).await.unwrap().record.kind.is_folder(), "{folder}");
    }
    let used = files.folder_usage("/a").await.unwrap();
    let bytes = (lines(1000).len() + lines(300_000).len()) as u64;
    assert_eq!((used.bytes, used.files), (bytes, 3));
    // Quotas count what was there.
    files.set_quota(&name("/a"), Some(Quota { bytes: Some(bytes + 10), files: None })).await.unwrap();
    let more = write(&files, "/a/3", &lines(11)).await.unwrap_err();
    assert_eq!(more.kind, FilesErrorKind::Quota);
    write(&files, "/a/3", b"123456789\n").await.unwrap();
    // The database now has the present format.
    let options = WriteOptions::of(Format::Lines);
    files.write_content(&name("/new"), b"1\n".to_vec(), options).await.unwrap();
    drop(files);
    let place = cluster.end(0);
    cluster.start(place, false).await;
    cluster.settles().await;
    let files = cluster.files().await;
    assert_eq!(content_of(&files, "/new").await, b"1\n");
    assert_eq!(content_of(&files, "/a/deep/2").await, lines(300_000));
    assert_eq!(files.lookup(&name("/a")).await.unwrap().record.quota.unwrap().bytes, Some(bytes + 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_format_3_keeps_owners_folders_and_quotas() {
    let mut cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    for number in 0..5 {
        write(&files, &format!("/a/{number}"), &lines(1000 * number)).await.unwrap();
    }
    files.set_quota(&name("/a"), Some(Quota { bytes: Some(1 << 20), files: None })).await.unwrap();
    let records = async |files: &eyas_dfs::DfsClient| {
        (files.lookup(&name("/a")).await.unwrap().record, files.lookup(&name("/a/4")).await.unwrap().record)
    };
    let before = records(&files).await;
    drop(files);
    let database = cluster.folder(0).join("files/files.redb");
    let place = cluster.end(0);
    crate::cluster::eventually("the folder is free", async || redb::Database::open(&database).is_ok()).await;
    write_format(&database, 3);
    cluster.start(place, false).await;
    cluster.settles().await;
    let files = cluster.files().await;
    assert_eq!(records(&files).await, before);
    assert_eq!(content_of(&files, "/a/4").await, lines(4000));
}
