//! The database of a node: one of a released version is read, and one of another format is refused.

use std::fs::File;
use std::io;

use eyas_blocks::{Alpha, BlockPolicy, Record, Sizes};
use eyas_files::RunSpec;
use eyas_formats::Formats;
use eyas_ring::{Acceptor, NameEntry, RecordVersion, Round, Stored};
use eyas_types::ObjectId;
use eyas_types::dfs::{
    Attributes, Chunk, FileId, FileKind, FileRecord, Format, NamedAttributes, NamedChange, Quota,
    RecordFormat, SetCondition,
};

use super::*;

const VERSION_OF_ALL: RecordVersion =
    RecordVersion { round: Round { view: 13, boot: 14 }, sequence: 12 };

/// Records of each kind of entry.
fn fixture_records() -> Vec<(&'static str, NameEntry)> {
    let chunk = Chunk {
        object: ObjectId([3; 16]),
        size_bytes: 5,
        checksum: 6,
        replicas: vec![NodeId(7), NodeId(8)],
    };
    let red = NamedChange::Set { value: b"red".into(), condition: SetCondition::New };
    let file = FileRecord {
        id: FileId(1),
        kind: FileKind::File,
        attributes: Attributes {
            mode: 0o640,
            uid: 10,
            gid: 20,
            modified_ns: 1_000,
            changed_ns: 2_000,
        },
        named: NamedAttributes::default().with("colour", &red).unwrap(),
        quota: None,
        format: RecordFormat::guessed(Format::Fixed { record_bytes: 9 }),
        chunk_bytes: 1 << 20,
        replication: 2,
        chunks: vec![chunk, Chunk::hole(5, 6)],
        unsynced: None,
    };
    let quota = Some(Quota { bytes: Some(11), files: None });
    let folder = FileRecord {
        id: FileId(2),
        kind: FileKind::Folder,
        chunks: Vec::new(),
        named: NamedAttributes::default(),
        quota,
        ..file.clone()
    };
    vec![
        ("/file", NameEntry::File(file.clone())),
        ("/folder", NameEntry::File(folder)),
        (
            "/moved",
            NameEntry::Departed {
                to: "/file".parse().unwrap(),
                token: VERSION_OF_ALL,
                record: file,
            },
        ),
        ("/removed", NameEntry::Removed { id: FileId(4), is_gone: true }),
    ]
}

fn write_fixture(path: &Path) {
    let database = Database::open(path).unwrap();
    database
        .save(|tables| {
            tables.apply(&Save::Boots(5));
            for (name, entry) in fixture_records() {
                let stored = Stored { version: VERSION_OF_ALL, entry };
                tables.apply(&Save::Record { partition: 3, name: name.parse().unwrap(), stored });
            }
        })
        .unwrap();
}

/// Number of times that variants were added to the types of this format. An earlier version of eyas
/// reads a database without the added ones.
const MINOR: u16 = 1;

/// With `EYAS_GENERATE=1`, writes the fixture first if there is none, which only a new format
/// needs.
#[test]
fn a_database_of_version_0_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.redb");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("src/database/fixtures/format{VERSION}.redb.gz"));
    if std::env::var_os("EYAS_GENERATE").is_some() && !fixture.exists() {
        write_fixture(&path);
        let packed = File::create(&fixture).unwrap();
        let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::best());
        io::copy(&mut File::open(&path).unwrap(), &mut packed).unwrap();
        packed.finish().unwrap();
    }
    let mut unpacked = flate2::read::GzDecoder::new(File::open(&fixture).unwrap());
    io::copy(&mut unpacked, &mut File::create(&path).unwrap()).unwrap();
    let database = Database::open(&path).unwrap();
    assert_eq!(database.saved().unwrap().boots, 5);
    for (name, entry) in fixture_records() {
        let stored = database.read(|records| records.get(3, &name.parse().unwrap())).unwrap();
        assert_eq!(stored.map(|stored| stored.entry), Some(entry), "{name}");
    }
}

#[test]
fn a_database_of_another_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.redb");
    let database = Database::open(&path).unwrap();
    let write = database.redb.begin_write().unwrap();
    write.open_table(META).unwrap().insert("version", &*bytes_of(&(VERSION - 1))).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = Database::open(&path).err().unwrap().to_string();
    assert!(
        error.contains(&format!("format {}", VERSION - 1)) && error.contains("use that version"),
        "{error}"
    );
}

#[test]
fn a_database_has_the_formats_that_were_recorded() {
    Formats::default()
        .with::<NodeId>()
        .with::<View>()
        .with::<Acceptor>()
        .with::<Round>()
        .with::<Stored>()
        .with::<OwnChunk>()
        .with::<RunSpec>()
        .with::<Record>()
        .with::<NameEntry>()
        .with::<FileKind>()
        .with::<BlockPolicy>()
        .with::<Alpha>()
        .with::<Sizes>()
        .assert_recorded(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/database/formats.txt"),
            (VERSION as u16, MINOR),
        );
}
