//! Named attributes: what keeps them, what conflicts, and their bounds.

use std::io;
use std::slice;

use eyas_files::{
    Change, Creation, DfsClient, FileWriter, FilesErrorKind, NewContent, NewFile, RenameOptions,
    SentRecords, WriteOptions,
};
use eyas_types::dfs::{AttributeChange, Format, MAX_ATTRIBUTES_BYTES, Quota, SetCondition};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, SMALL, content_of, name, write};

const RENAMED: RenameOptions =
    RenameOptions { replaces: true, makes_parents: true, keeps_format: false };

async fn set(
    files: &DfsClient,
    path: &str,
    attribute: &str,
    value: &str,
    condition: SetCondition,
) -> Result<(), FilesErrorKind> {
    let value = value.as_bytes().to_vec();
    let set = files.set_named_attribute(&name(path), attribute, value, condition).await;
    set.map(drop).map_err(|error| error.kind)
}

/// The attributes of an entry, such as `colour=red size=5`.
async fn attributes(files: &DfsClient, path: &str) -> String {
    let named = files.named_attributes(&name(path)).await.unwrap();
    let texts = named.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
    texts.collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_files_folders_and_links_are_set_and_removed() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    write(&files, "/a/file", b"x\n").await.unwrap();
    let made = Creation { makes_parents: true, ..Creation::of_process(0o777) };
    files.make_symbolic_link(&name("/a/link"), "nowhere", made).await.unwrap();
    for path in ["/a", "/a/file", "/a/link"] {
        let before = files.lookup(&name(path)).await.unwrap().record;
        assert!(before.named.is_empty());
        for (attribute, value, condition, expected) in [
            ("colour", "blue", SetCondition::Present, Err(FilesErrorKind::NoAttribute)),
            ("colour", "red", SetCondition::New, Ok(())),
            ("colour", "blue", SetCondition::New, Err(FilesErrorKind::Exists)),
            ("colour", "b\0", SetCondition::Present, Ok(())),
            ("size", "", SetCondition::None, Ok(())),
            ("", "x", SetCondition::None, Err(FilesErrorKind::Invalid)),
            ("eyas.format", "x", SetCondition::None, Err(FilesErrorKind::Invalid)),
        ] {
            let done = set(&files, path, attribute, value, condition).await;
            assert_eq!(done, expected, "{path} {attribute}");
        }
        assert_eq!(attributes(&files, path).await, "colour=b\\x00 size=");
        let after = files.lookup(&name(path)).await.unwrap().record;
        assert_eq!(after.attributes.modified_ns, before.attributes.modified_ns);
        assert!(after.attributes.changed_ns > before.attributes.changed_ns);
        assert_eq!(files.named_attribute(&name(path), "colour").await.unwrap(), b"b\0");
        files.remove_named_attribute(&name(path), "colour").await.unwrap();
        let gone = [
            files.remove_named_attribute(&name(path), "colour").await.map(drop).unwrap_err(),
            files.named_attribute(&name(path), "colour").await.map(drop).unwrap_err(),
        ];
        assert_eq!(gone.map(|error| error.kind), [FilesErrorKind::NoAttribute; 2]);
        assert_eq!(attributes(&files, path).await, "size=");
    }
    let done = set(&files, "/none", "a", "b", SetCondition::None).await;
    assert_eq!(done, Err(FilesErrorKind::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_has_room_for_some_attributes_and_no_more() {
    let cluster = Cluster::of(1).await;
    let files = cluster.files().await;
    write(&files, "/a", b"x\n").await.unwrap();
    let large = "x".repeat(MAX_ATTRIBUTES_BYTES - 1);
    set(&files, "/a", "v", &large, SetCondition::None).await.unwrap();
    let more = set(&files, "/a", "w", "", SetCondition::None).await;
    assert_eq!(more, Err(FilesErrorKind::AttributesFull));
    set(&files, "/a", "v", "", SetCondition::None).await.unwrap();
    set(&files, "/a", "w", &large, SetCondition::None).await.unwrap_err();
    assert_eq!(attributes(&files, "/a").await, "v=");

    // Requests and answers about many of them are bounded, too.
    let mut setting = JoinSet::new();
    for number in 0..200 {
        let (files, large) = (files.clone(), large.clone());
        setting.spawn(async move {
            let path = format!("/many/{number}");
            write(&files, &path, b"x\n").await.unwrap();
            set(&files, &path, "v", &large, SetCondition::New).await.unwrap();
        });
    }
    setting.join_all().await;
    let mut looking = JoinSet::new();
    for number in 0..200 {
        let files = files.clone();
        looking.spawn(async move {
            let named = files.named_attributes(&name(&format!("/many/{number}"))).await.unwrap();
            assert_eq!(named.size_bytes(), MAX_ATTRIBUTES_BYTES);
        });
    }
    looking.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_file_keep_its_attributes_and_a_new_file_has_none() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    write(&files, "/a/file", b"one\n").await.unwrap();
    set(&files, "/a/file", "colour", "red", SetCondition::None).await.unwrap();
    set(&files, "/a", "owner", "me", SetCondition::None).await.unwrap();

    files.append(&name("/a/file"), io::Cursor::new(b"two\n".to_vec()), |_| {}).await.unwrap();
    let mut writer = FileWriter::edit(files.clone(), name("/a/file"), None).await.unwrap();
    writer.write_at(0, b"O").unwrap();
    writer.finish().await.unwrap();
    let mode = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    files.set_attributes(&name("/a/file"), &mode).await.unwrap();
    let file = files.stat(&name("/a/file")).await.unwrap();
    files.set_format(&file, Format::Whole.into()).await.unwrap();
    let file = files.stat(&name("/a/file")).await.unwrap();
    files.rebalance(&file).await.unwrap();
    assert_eq!(content_of(&files, "/a/file").await, b"One\ntwo\n");
    assert_eq!(attributes(&files, "/a/file").await, "colour=red");

    // A folder with content is moved name by name.
    files.set_quota(&name("/a"), Some(Quota { bytes: Some(1000), files: None })).await.unwrap();
    files.rename(&name("/a"), &name("/b"), RENAMED).await.unwrap();
    files.rename(&name("/b/file"), &name("/b/file.csv"), RENAMED).await.unwrap();
    assert_eq!(attributes(&files, "/b").await, "owner=me");
    assert_eq!(attributes(&files, "/b/file.csv").await, "colour=red");

    let file = files.stat(&name("/b/file.csv")).await.unwrap();
    files.copy(&file, &name("/b/copy"), 2).await.unwrap();
    set(&files, "/b/copy", "colour", "blue", SetCondition::Present).await.unwrap();
    assert_eq!(
        attributes(&files, "/b/file.csv").await,
        "colour=red",
        "a copy is a file of its own"
    );

    let options = WriteOptions::of(Format::Lines);
    let mut writer =
        FileWriter::create(files.clone(), name("/b/copy"), options, true).await.unwrap();
    writer.write(b"new\n").await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(attributes(&files, "/b/copy").await, "");
    files.rename(&name("/b/file.csv"), &name("/b/copy"), RENAMED).await.unwrap();
    assert_eq!(attributes(&files, "/b/copy").await, "colour=red");
}

/// Content of one byte.
struct OneByte(u8);

impl NewContent for OneByte {
    fn reader(&self, range: std::ops::Range<u64>) -> Box<dyn eyas_files::ContentSource> {
        Box::new(io::Cursor::new(vec![self.0; (range.end - range.start) as usize]))
    }

    fn read_local(&self, range: std::ops::Range<u64>) -> Option<Vec<u8>> {
        Some(vec![self.0; (range.end - range.start) as usize])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_attributes_and_content_lose_nothing() {
    let cluster = Cluster::of(3).await;
    let files = cluster.files().await;
    let whole = Change {
        content: &OneByte(b'0'),
        size_bytes: 1,
        changed: slice::from_ref(&(0..1)),
        modified_ns: 1,
        changed_ns: 1,
        is_durable: false,
        format: None,
    };
    let new = NewFile::of(eyas_files::new_file_id().unwrap());
    files.write_with_id(&name("/a"), new.clone(), whole, None, SMALL, false).await.unwrap();
    // A version from before all changes, as a mount has it while a program writes.
    let base = files.stat(&name("/a")).await.unwrap();
    let mut changing = JoinSet::new();
    for number in 0..12 {
        // Each client has connections of its own.
        let files = cluster.files().await;
        changing.spawn(async move {
            for round in 0..3 {
                let attribute = format!("{number}-{round}");
                set(&files, "/a", &attribute, "x", SetCondition::New).await.unwrap();
            }
            files.remove_named_attribute(&name("/a"), &format!("{number}-1")).await.unwrap();
        });
    }
    let rewritten = Change { content: &OneByte(b'1'), ..whole };
    files.rewrite(&base, rewritten, None, &SentRecords::default()).await.unwrap();
    changing.join_all().await;
    assert_eq!(content_of(&files, "/a").await, b"1");
    let mut expected: Vec<_> =
        (0..12).flat_map(|number| [format!("{number}-0=x"), format!("{number}-2=x")]).collect();
    expected.sort();
    assert_eq!(attributes(&files, "/a").await, expected.join(" "));

    // The whole content is new, and the file is the same.
    let replaced = Change { content: &OneByte(b'2'), ..whole };
    files.write_with_id(&name("/a"), new, replaced, None, SMALL, true).await.unwrap();
    assert_eq!(content_of(&files, "/a").await, b"2");
    assert_eq!(attributes(&files, "/a").await, expected.join(" "));
}
