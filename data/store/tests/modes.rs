//! Permissions of objects, and of the files that they were and become.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use eyas_store::{ObjectStore, Seal};
use eyas_types::{FileMode, JobId, ObjectId, ObjectSpec, TaskId};

const A: ObjectId = ObjectId([0xaa; 16]);
const B: ObjectId = ObjectId([0xbb; 16]);

fn put(store: &ObjectStore, id: ObjectId, content: &[u8], mode: FileMode) {
    let mut incoming = store.begin(id, content.len() as u64, mode).unwrap();
    incoming.write(content).unwrap();
    incoming.commit().unwrap();
}

#[test]
fn a_handed_out_object_is_an_ordinary_file() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let out = dir.path().join("out");
    put(&store, A, b"a tool", FileMode::EXECUTABLE);
    let inode = store.open_object(A).unwrap().file.metadata().unwrap().ino();
    store.hand_out(A, &out, FileMode::of(0o775), false).unwrap();
    let metadata = fs::metadata(&out).unwrap();
    assert_eq!((metadata.ino(), metadata.mode() & 0o7777), (inode, 0o775 & !umask(dir.path())));
    assert!(metadata.modified().unwrap().elapsed().unwrap() < Duration::from_secs(60));
    assert!(!store.contains(A));
    // An existing file stays unless it may be replaced.
    put(&store, B, b"another", FileMode::READABLE);
    assert!(store.hand_out(B, &out, FileMode::READABLE, false).is_err());
    assert_eq!(fs::read(&out).unwrap(), b"a tool");
    put(&store, B, b"another", FileMode::READABLE);
    fs::set_permissions(&out, fs::Permissions::from_mode(0o640)).unwrap();
    store.hand_out(B, &out, FileMode::of(0o666), true).unwrap();
    assert_eq!(fs::read(&out).unwrap(), b"another");
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o7777, 0o640 & !umask(dir.path()));
    assert!(store.is_empty() && store.hand_out(B, &out, FileMode::READABLE, true).is_err());
    assert_eq!(fs::read_dir(dir.path().join("store/partial")).unwrap().count(), 0);
}

/// The umask of this process, told by a folder that is made.
fn umask(dir: &Path) -> u32 {
    let made = dir.join("made");
    fs::create_dir_all(&made).unwrap();
    0o777 & !fs::metadata(made).unwrap().mode()
}

#[test]
fn stored_outputs_keep_the_permissions_that_the_task_set() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("store");
    let (store, _) = ObjectStore::open(&folder).unwrap();
    let task = TaskId { job: JobId(1), index: 2 };
    let kept = [(0o600, 0o400), (0o640, 0o440), (0o755, 0o555), (0o710, 0o510), (0o444, 0o444)]
        .map(|(written, stored)| {
            let (path, name) = (dir.path().join("written"), written.to_string());
            fs::write(&path, &name).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(written)).unwrap();
            let object = |size, _, mode| ObjectSpec::kept(task, &name, size, &name, mode);
            let object = store.adopt(&path, object).unwrap();
            fs::remove_file(&path).unwrap();
            assert_eq!(object.mode.bits(), written);
            (object, stored)
        });
    let check = |store: &ObjectStore, (object, stored): &(ObjectSpec, u32)| {
        let staged = dir.path().join("staged");
        store.stage(object.id(), &staged).unwrap();
        assert_eq!(fs::metadata(&staged).unwrap().mode() & 0o7777, *stored, "{}", object.source);
        fs::remove_file(staged).unwrap();
        assert_eq!(store.verify_seal(object.id()), Seal::Intact);
    };
    kept.iter().for_each(|kept| check(&store, kept));
    drop(store);
    let (store, _) = ObjectStore::open(&folder).unwrap();
    kept.iter().for_each(|kept| check(&store, kept));
    // A copy is open to the same users, and so is an object that becomes executable.
    let mut copy = store.begin(A, 1, FileMode::of(0o640)).unwrap();
    copy.write(b"x").unwrap();
    copy.commit().unwrap();
    let staged_as = |id, stored| {
        let staged = dir.path().join("copy");
        store.stage(id, &staged).unwrap();
        assert_eq!(fs::metadata(&staged).unwrap().mode() & 0o7777, stored);
        fs::remove_file(staged).unwrap();
    };
    staged_as(A, 0o440);
    store.stage_part(A, &dir.path().join("part"), 0..1).unwrap();
    assert_eq!(
        fs::metadata(dir.path().join("part")).unwrap().mode() & 0o7777,
        0o440 & !umask(dir.path())
    );
    store.alias(A, B).unwrap();
    staged_as(B, 0o440);
    store.make_executable(A).unwrap();
    staged_as(A, 0o550);
    staged_as(B, 0o440);
}
