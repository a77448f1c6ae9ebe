//! The node-local store on a real disk: content that is stored can be read again, and damage by a
//! crash, a power failure or a faulty task is never given out.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use eyas_store::damaged::MAX_DAMAGED;
use eyas_store::{
    ArrivalEnd, ArrivalProgress, Checksum, ObjectStore, PIECE_BYTES, Presence, Seal, StagedBy,
    StoreErrorKind,
};
use eyas_types::{FileMode, JobId, ObjectId, ObjectSpec, TaskId};

const A: ObjectId = ObjectId([0xaa; 16]);
const B: ObjectId = ObjectId([0xbb; 16]);

fn put(store: &ObjectStore, id: ObjectId, content: &[u8], mode: FileMode) -> Checksum {
    let mut incoming = store.begin(id, content.len() as u64, mode).unwrap();
    content.chunks(7).for_each(|piece| incoming.write(piece).unwrap());
    incoming.commit().unwrap()
}

fn get(store: &ObjectStore, id: ObjectId) -> Option<Vec<u8>> {
    let mut object = match store.open_object(id) {
        Ok(object) => object,
        Err(error) => {
            assert_eq!(error.kind, StoreErrorKind::NotHere);
            return None;
        }
    };
    let mut content = Vec::new();
    object.file.read_to_end(&mut content).unwrap();
    assert_eq!(
        (content.len() as u64, Checksum::of(&content)),
        (object.size_bytes, object.checksum)
    );
    Some(content)
}

#[test]
fn content_in_memory_is_put_at_once_and_synced_alone_or_in_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(folder.path()).unwrap();
    let many: Vec<ObjectId> = (0..40).map(|number| ObjectId([number; 16])).collect();
    for id in &many {
        let content = vec![id.0[0]; usize::from(id.0[0]) * 100];
        assert_eq!(store.put(*id, &content).unwrap(), Checksum::of(&content));
        assert_eq!(get(&store, *id).unwrap(), content);
        assert_eq!(store.verify_seal(*id), Seal::Intact);
    }
    store.sync(&many[..1]).unwrap();
    store.sync(&many).unwrap();
    // A second copy replaces nothing and leaves nothing.
    store.put(many[3], &[3; 300]).unwrap();
    assert_eq!(files(&folder.path().join("partial")), Vec::<PathBuf>::new());
    store.remove(many[3]).unwrap();
    assert_eq!(store.sync(&many[3..4]).unwrap_err().kind, StoreErrorKind::NotHere);
    drop(store);
    let (store, found) = ObjectStore::open(folder.path()).unwrap();
    assert_eq!(found.len(), many.len() - 1);
    assert_eq!(get(&store, many[39]).unwrap(), vec![39; 3900]);
    store.start_writing(many[39]).unwrap();
    assert_eq!(store.content(many[38]).unwrap(), vec![38; 3800]);
    assert_eq!(store.content(many[3]).unwrap_err().kind, StoreErrorKind::NotHere);
}

/// Prints directly, since the test harness would capture the message.
fn skipped(why: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn an_output_is_adopted_with_its_inode_unless_others_can_write_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let task = TaskId { job: JobId(1), index: 2 };
    let adopt = |path: &Path| {
        let name = |size, checksum: Checksum, x| {
            ObjectSpec::kept(task, "deep/a?b", size, &checksum.to_string(), x)
        };
        store.adopt(path, name).unwrap()
    };
    let path = file("plain", "what it wrote");
    let inode = fs::metadata(&path).unwrap().ino();
    let plain = adopt(&path);
    assert_eq!((&plain.source[..], plain.base_name()), (&b"eyas://1/2/deep/a?b"[..], &b"a?b"[..]));
    assert_eq!(plain.kept_file(), Some(&b"deep/a?b"[..]));
    assert!(plain.is_kept() && !plain.mode.is_executable());
    fs::remove_file(&path).unwrap();
    assert_eq!(get(&store, plain.id()).unwrap(), b"what it wrote");
    assert_eq!(store.open_object(plain.id()).unwrap().file.metadata().unwrap().ino(), inode);
    assert_eq!(store.verify_seal(plain.id()), Seal::Intact);
    // The same content is the same object; different content is another one.
    assert_eq!(adopt(&file("again", "what it wrote")), plain);
    assert_ne!(adopt(&file("other", "something else")).id(), plain.id());
    // It can still be written through its other link.
    let path = file("linked", "two names");
    fs::hard_link(&path, dir.path().join("name")).unwrap();
    let linked = adopt(&path);
    fs::write(dir.path().join("name"), "changed!!").unwrap();
    assert_eq!(get(&store, linked.id()).unwrap(), b"two names");
    std::os::unix::fs::symlink(&path, dir.path().join("symlink")).unwrap();
    assert_eq!(get(&store, adopt(&dir.path().join("symlink")).id()).unwrap(), b"changed!!");
    assert_eq!(adopt(&file("empty", "")).size_bytes(), 0);
    // It can be sent without being read again.
    let large = "x".repeat(PIECE_BYTES + 1);
    let pieces = store.open_object(adopt(&file("large", &large)).id()).unwrap().pieces.unwrap();
    assert_eq!(*pieces, [Checksum::of(&large.as_bytes()[1..]), Checksum::of(b"x")]);
    assert!(store.adopt(&dir.path().join("none"), |_, _, _| unreachable!()).is_err());
    assert_eq!(files(&dir.path().join("store/partial")), Vec::<PathBuf>::new());
    drop(store);
    let (store, found) = ObjectStore::open(dir.path().join("store")).unwrap();
    assert_eq!((found.len(), get(&store, plain.id()).unwrap()), (6, b"what it wrote".to_vec()));
}

#[test]
fn stored_objects_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (store, found) = ObjectStore::open(dir.path()).unwrap();
    assert_eq!(found, []);
    assert_eq!(put(&store, A, b"some content", FileMode::READABLE), Checksum::of(b"some content"));
    put(&store, B, b"", FileMode::EXECUTABLE);
    assert_eq!((store.len(), store.total_bytes()), (2, 12));
    assert_eq!(get(&store, A).unwrap(), b"some content");
    assert_eq!(store.presence(B), Presence::Ready { size_bytes: 0, executable: true });
    drop(store);

    let (store, mut found) = ObjectStore::open(dir.path()).unwrap();
    found.sort_unstable();
    assert_eq!(found, [(A, 12), (B, 0)]);
    assert_eq!((store.len(), store.total_bytes()), (2, 12));
    assert_eq!(store.presence(A), Presence::Unverified);
    assert_eq!(get(&store, A).unwrap(), b"some content");
    assert_eq!(store.presence(A), Presence::Ready { size_bytes: 12, executable: false });
    assert!(store.verify(B).unwrap());
    assert_eq!(store.presence(B), Presence::Ready { size_bytes: 0, executable: true });

    assert!(store.remove(A).unwrap());
    assert!(!store.remove(A).unwrap());
    assert_eq!((get(&store, A), store.len(), store.total_bytes()), (None, 1, 0));
    assert_eq!(files(&dir.path().join("partial")), [] as [PathBuf; 0]);
}

#[test]
fn an_object_is_one_read_only_inode() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    put(&store, A, b"data", FileMode::READABLE);
    put(&store, B, b"#!/bin/sh", FileMode::EXECUTABLE);
    let files = files(&dir.path().join("objects"));
    assert_eq!(files.len(), 2);
    for file in files {
        let mode = if file.to_str().unwrap().contains("/aa/") { 0o444 } else { 0o555 };
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, mode);
    }
    store.make_executable(A).unwrap();
    assert_eq!(store.presence(A), Presence::Ready { size_bytes: 4, executable: true });
    assert_eq!(store.verify_seal(A), Seal::Intact);
}

#[test]
fn incomplete_objects_are_gone_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    let mut incoming = store.begin(A, 100, FileMode::READABLE).unwrap();
    incoming.write(b"half").unwrap();
    // Neither dropped nor committed, as if the process had been killed.
    std::mem::forget(incoming);
    assert_eq!(files(&dir.path().join("partial")).len(), 1);
    drop(store);
    // The forgotten object holds the store, and so its lock, in this process.
    fs::remove_file(dir.path().join("lock")).unwrap();
    let (store, found) = ObjectStore::open(dir.path()).unwrap();
    assert_eq!((found, get(&store, A)), (vec![], None));
    assert_eq!(files(&dir.path().join("partial")), [] as [PathBuf; 0]);
}

#[test]
fn sizes_are_held_to() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    let mut incoming = store.begin(A, 4, FileMode::READABLE).unwrap();
    assert_eq!(incoming.write(b"12345").unwrap_err().kind, StoreErrorKind::WrongSize);
    incoming.write(b"123").unwrap();
    assert_eq!(incoming.commit().unwrap_err().kind, StoreErrorKind::WrongSize);
    assert!(!store.contains(A));

    assert_eq!(files(&dir.path().join("partial")), [] as [PathBuf; 0]);
}

#[test]
fn an_arriving_object_can_be_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    assert!(store.arriving(A, Duration::ZERO).is_none());
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || store.arriving(A, Duration::from_secs(60)).expect("it comes")
    });
    let (first, second) = (vec![b'1'; PIECE_BYTES], b"rest");
    let (piece_bytes, size_bytes) = (PIECE_BYTES as u64, PIECE_BYTES as u64 + 4);
    let mut incoming = store.begin(A, size_bytes, FileMode::EXECUTABLE).unwrap();
    let arriving = waiting.join().unwrap();
    assert_eq!(
        arriving.wait_past(0, Duration::ZERO),
        ArrivalProgress { written_bytes: 0, end: None }
    );
    let further = std::thread::spawn({
        let arriving = arriving.clone();
        move || arriving.wait_past(0, Duration::from_secs(60)).written_bytes
    });
    incoming.write(&first[1..]).unwrap();
    assert_eq!(arriving.wait_past(0, Duration::ZERO).written_bytes, 0, "only whole pieces count");
    incoming.write(&first[..1]).unwrap();
    assert_eq!(further.join().unwrap(), piece_bytes);
    assert_eq!((arriving.piece(0), arriving.piece(1)), (Some(Checksum::of(&first)), None));
    let mut prefix = vec![0; PIECE_BYTES];
    arriving.file.read_exact_at(&mut prefix, 0).unwrap();
    assert_eq!(prefix, first);

    // Of two receipts, others read the first.
    let again = store.begin(A, size_bytes, FileMode::EXECUTABLE).unwrap();
    assert!(Arc::ptr_eq(&arriving, &store.arriving(A, Duration::ZERO).unwrap()));
    drop(again);
    incoming.write_piece(second, Checksum::of(second)).unwrap();
    let checksum = incoming.commit().unwrap();
    let end = Some(ArrivalEnd::Whole(checksum));
    assert_eq!(
        arriving.wait_past(size_bytes, Duration::from_secs(60)),
        ArrivalProgress { written_bytes: size_bytes, end }
    );
    assert_eq!(checksum, Checksum::of(&[&first[..], second].concat()));
    assert_eq!(
        store.open_object(A).unwrap().pieces.unwrap()[..],
        [Checksum::of(&first), Checksum::of(second)]
    );
    assert!(store.arriving(A, Duration::from_secs(60)).is_none(), "it is here");
    // A reader of the partial replica does not keep the object from being executed.
    let path = dir.path().join("script");
    store.stage(A, &path).unwrap();
    let ran = std::process::Command::new(&path).spawn();
    assert_ne!(ran.unwrap_err().kind(), std::io::ErrorKind::ExecutableFileBusy);

    let mut incoming = store.begin(B, size_bytes, FileMode::READABLE).unwrap();
    incoming.write(&first).unwrap();
    let arriving = store.arriving(B, Duration::ZERO).unwrap();
    drop(incoming);
    let end = Some(ArrivalEnd::GivenUp);
    let progress = arriving.wait_past(piece_bytes, Duration::from_secs(60));
    assert_eq!(progress, ArrivalProgress { written_bytes: piece_bytes, end });
    assert!(store.arriving(B, Duration::ZERO).is_none());
}

#[test]
fn nobody_waits_for_an_object_that_was_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    // An hour would be longer than a test may take.
    let patience = Duration::from_secs(3600);
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || store.arriving(A, patience)
    });
    store.give_up(A);
    assert!(waiting.join().unwrap().is_none());
    assert!(store.arriving(A, patience).is_none(), "who asks later does not wait, either");
    // It is to come after all.
    store.expect(A);
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || store.arriving(A, patience)
    });
    let incoming = store.begin(A, 4, FileMode::READABLE).unwrap();
    assert!(waiting.join().unwrap().is_some());
    drop(incoming);
}

#[test]
fn damage_is_found_at_the_first_use_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    for (id, content) in [(A, b"0123456789"), (B, b"abcdefghij")] {
        put(&store, id, content, FileMode::READABLE);
    }
    drop(store);
    // As after a power failure: name, size and times are there, and the content is zeros.
    let objects = files(&dir.path().join("objects"));
    let damaged = objects.iter().find(|path| path.to_str().unwrap().contains("/aa/")).unwrap();
    let modified = fs::metadata(damaged).unwrap().modified().unwrap();
    fs::set_permissions(damaged, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(damaged, [0; 10]).unwrap();
    fs::File::options().write(true).open(damaged).unwrap().set_modified(modified).unwrap();

    let (store, found) = ObjectStore::open(dir.path()).unwrap();
    assert_eq!(found.len(), 2);
    assert!(!store.verify(A).unwrap());
    assert_eq!((store.contains(A), damaged.exists()), (false, false));
    assert_eq!(store.stage(A, &dir.path().join("x")).unwrap_err().kind, StoreErrorKind::NotHere);
    assert_eq!(get(&store, B).unwrap(), b"abcdefghij");
}

#[test]
fn files_that_are_not_what_their_name_says_are_dropped_at_open() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    put(&store, A, b"0123456789", FileMode::READABLE);
    put(&store, B, b"abcdefghij", FileMode::READABLE);
    drop(store);
    for (path, length) in files(&dir.path().join("objects")).iter().zip([4, 10]) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        // One is truncated. The other was only touched: a task wrote to it while the executor was
        // down.
        fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(std::time::SystemTime::now())
            .unwrap();
    }
    let (store, found) = ObjectStore::open(dir.path()).unwrap();
    assert_eq!((found, store.len()), (vec![], 0));
    assert_eq!(files(&dir.path().join("objects")), [] as [PathBuf; 0]);
}

#[test]
fn a_file_removed_behind_our_back_is_not_here() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    put(&store, A, b"0123456789", FileMode::READABLE);
    put(&store, B, b"abcdefghij", FileMode::READABLE);
    files(&dir.path().join("objects")).iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(get(&store, A), None);
    assert_eq!(store.stage(B, &dir.path().join("b")).unwrap_err().kind, StoreErrorKind::NotHere);
    assert_eq!((store.len(), store.total_bytes()), (0, 0));
    put(&store, A, b"0123456789", FileMode::READABLE);
    // The folder of the destination is missing, and the object stays.
    assert_eq!(store.stage(A, &dir.path().join("no/such")).unwrap_err().kind, StoreErrorKind::Io);
    assert!(store.contains(A));
}

#[test]
fn two_puts_of_one_object_leave_one_good_copy() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    put(&store, A, b"the same content", FileMode::READABLE);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                store.remove(A).unwrap();
            }
        });
    });
    put(&store, A, b"the same content", FileMode::READABLE);
    assert_eq!(get(&store, A).unwrap(), b"the same content");
    // Other content with the same id should not happen; if it does, the last one counts.
    put(&store, A, b"corrected", FileMode::READABLE);
    assert_eq!(get(&store, A).unwrap(), b"corrected");
    assert_eq!((store.len(), store.total_bytes()), (1, 9));
    assert_eq!(files(&dir.path().join("objects")).len(), 1);
    assert_eq!(files(&dir.path().join("partial")), [] as [PathBuf; 0]);
}

#[test]
fn a_store_in_use_cannot_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    let error = ObjectStore::open(dir.path()).err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::Locked);
    assert!(error.message.contains(&std::process::id().to_string()), "{error}");
    let clone = store.clone();
    drop(store);
    assert!(ObjectStore::open(dir.path()).is_err());
    drop(clone);
    assert!(ObjectStore::open(dir.path()).is_ok());
}

#[test]
fn staging_links_the_inode_and_a_write_through_it_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    put(&store, A, b"input data", FileMode::READABLE);
    let staged = dir.path().join("a name with spaces\nand a line");
    assert_eq!(store.stage(A, &staged).unwrap(), StagedBy::HardLink);
    assert_eq!(
        store.stage(A, &staged).unwrap_err().kind,
        StoreErrorKind::Io,
        "it is there already"
    );
    let object = files(&dir.path().join("store/objects")).remove(0);
    assert_eq!(fs::metadata(&object).unwrap().ino(), fs::metadata(&staged).unwrap().ino());
    // Links and reads do no harm.
    fs::read(&staged).unwrap();
    fs::hard_link(&staged, dir.path().join("another")).unwrap();
    assert_eq!(store.verify_seal(A), Seal::Intact);

    // A program that changes the mode of its input to write to it.
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&staged, b"INPUT DATA").unwrap();
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(store.verify_seal(A), Seal::Broken);
    assert_eq!((store.contains(A), get(&store, A)), (false, None));
    assert_eq!(store.verify_seal(A), Seal::Broken, "no longer here");
    assert_eq!(fs::read(&staged).unwrap(), b"INPUT DATA", "the task's own link stays");
}

#[test]
fn where_hard_links_do_not_reach_staging_still_works() {
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        return skipped("no /dev/shm to stage to another file system");
    };
    let dir = tempfile::tempdir().unwrap();
    if fs::metadata(dir.path()).unwrap().dev() == fs::metadata(elsewhere.path()).unwrap().dev() {
        return skipped("temporary folders and /dev/shm are one file system");
    }
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    put(&store, A, b"input data", FileMode::READABLE);
    let staged = elsewhere.path().join("x");
    assert_eq!(store.stage(A, &staged).unwrap(), StagedBy::Symlink);
    assert_eq!(fs::read(&staged).unwrap(), b"input data");
}

#[test]
fn a_full_disk_is_known_at_once_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |args: &[&str]| {
        std::process::Command::new(args[0]).args(&args[1..]).status().is_ok_and(|s| s.success())
    };
    let path = dir.path().to_str().unwrap();
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=600", "tmpfs", path]) {
        return skipped("cannot mount a small tmpfs (not root)");
    }
    let outcome = std::panic::catch_unwind(|| {
        let (store, _) = ObjectStore::open(path).unwrap();
        // The first object makes the folder that it is in, which stays.
        put(&store, A, b"first", FileMode::READABLE);
        assert!(store.remove(A).unwrap());
        let before = store.free_space().unwrap();
        assert!(before.bytes > 3 << 20 && before.bytes <= 4 << 20, "{before:?}");
        assert!(before.inodes < 600);
        let error = store.begin(A, 5 << 20, FileMode::READABLE).err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Full);
        assert!(error.message.contains(&A.to_string()), "{error}");
        put(&store, A, &vec![1; 3 << 20], FileMode::READABLE);
        assert_eq!(
            store.begin(B, 2 << 20, FileMode::READABLE).err().unwrap().kind,
            StoreErrorKind::Full
        );
        assert_eq!(store.free_space().unwrap().inodes, before.inodes - 1);
        // A full disk must not prevent a removal.
        assert!(store.remove(A).unwrap());
        assert_eq!(store.free_space().unwrap(), before);
        // Inodes run out as well.
        let mut tiny = Vec::new();
        let error = (0..600)
            .find_map(|_| {
                store.begin(B, 0, FileMode::READABLE).map(|incoming| tiny.push(incoming)).err()
            })
            .unwrap();
        assert_eq!(error.kind, StoreErrorKind::Full);
        drop(tiny);
        put(&store, B, b"fits again", FileMode::READABLE);
    });
    assert!(mount(&["umount", path]));
    outcome.unwrap();
}

/// Damages the content of an object, but not its name, size and times.
fn rot(dir: &Path, id: ObjectId) -> (PathBuf, Vec<u8>) {
    let objects = files(&dir.join("objects"));
    let path =
        objects.into_iter().find(|path| path.to_str().unwrap().contains(&id.to_string())).unwrap();
    let content = fs::read(&path).unwrap();
    write_at_its_time(&path, &vec![0; content.len()]);
    (path, content)
}

fn write_at_its_time(path: &Path, content: &[u8]) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
}

#[test]
fn damaged_copies_of_what_is_irreplaceable_are_kept_aside_until_a_good_one_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    let aside = || files(&dir.path().join("damaged"));
    store.mark_irreplaceable([A]);
    for (id, content) in [(A, b"0123456789"), (B, b"abcdefghij")] {
        put(&store, id, content, FileMode::READABLE);
        rot(dir.path(), id);
        assert!(!store.verify_again(id).unwrap() && !store.contains(id));
    }
    assert!(store.has_damaged(A) && !store.has_damaged(B), "the other can be fetched again");
    assert_eq!((store.damaged().copies, store.damaged().bytes, aside().len()), (1, 10, 1));
    assert_eq!(get(&store, A), None);
    assert!(!store.restore(A).unwrap() && !store.restore(B).unwrap());
    // The damaged copy survives a restart, and a person replaces it by good content.
    drop(store);
    let (store, found) = ObjectStore::open(dir.path()).unwrap();
    assert!(found.is_empty() && store.has_damaged(A));
    fs::set_permissions(&aside()[0], fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&aside()[0], b"0123456789").unwrap();
    assert!(store.restore(A).unwrap());
    assert_eq!(
        (get(&store, A).unwrap(), store.damaged().copies, aside().len()),
        (b"0123456789".to_vec(), 0, 0)
    );
    // Damaged again, and fetched again.
    store.mark_irreplaceable([A]);
    rot(dir.path(), A);
    assert!(!store.verify_again(A).unwrap());
    put(&store, A, b"0123456789", FileMode::READABLE);
    assert_eq!(
        (get(&store, A).unwrap(), store.damaged().copies, aside().len()),
        (b"0123456789".to_vec(), 0, 0)
    );
    // No leader asks for it any longer.
    rot(dir.path(), A);
    assert!(!store.verify_again(A).unwrap());
    store.forget_damaged_before(std::time::Instant::now());
    assert_eq!((store.damaged().copies, aside().len()), (0, 0));
}

#[test]
fn damaged_copies_found_at_open_wait_until_marks_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    put(&store, A, b"0123456789", FileMode::READABLE);
    put(&store, B, b"abcdefghij", FileMode::READABLE);
    drop(store);
    for path in files(&dir.path().join("objects")) {
        // As in a copy of the folder: another time, and the original content.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::SystemTime::now())
            .unwrap();
    }
    let (store, found) = ObjectStore::open(dir.path()).unwrap();
    assert_eq!((found.len(), store.damaged().copies), (0, 2));
    store.mark_irreplaceable([A]);
    assert_eq!((store.has_damaged(A), store.has_damaged(B)), (true, false));
    assert!(store.restore(A).unwrap());
    assert_eq!(get(&store, A).unwrap(), b"0123456789");
}

#[test]
fn damaged_copies_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    let id = |number: usize| {
        ObjectId([(number / 256) as u8, number as u8].repeat(8).try_into().unwrap())
    };
    let count = MAX_DAMAGED + 3;
    store.mark_irreplaceable((0..count).map(id));
    for number in 0..count {
        put(&store, id(number), b"x", FileMode::READABLE);
        rot(dir.path(), id(number));
        assert!(!store.verify_again(id(number)).unwrap());
        // It is asked for from time to time.
        assert!(!store.restore(id(0)).unwrap());
    }
    assert_eq!(store.damaged().copies as usize, MAX_DAMAGED);
    assert_eq!(files(&dir.path().join("damaged")).len(), MAX_DAMAGED);
    assert!(
        store.has_damaged(id(0)) && !store.has_damaged(id(1)) && store.has_damaged(id(count - 1))
    );
}

#[test]
fn a_copy_that_replaces_another_has_another_number() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path()).unwrap();
    put(&store, A, b"first", FileMode::READABLE);
    put(&store, B, b"other", FileMode::READABLE);
    let before = store.copies(&[A, B]).unwrap();
    assert_eq!(store.copies(&[A, B]), Some(before.clone()));
    store.remove(A).unwrap();
    assert_eq!((store.copies(&[B, A]), store.copies(&[B])), (None, Some(before[1..].to_vec())));
    put(&store, A, b"first", FileMode::READABLE);
    assert_ne!(store.copies(&[A]).unwrap(), before[..1]);
    let file = files(&dir.path().join("objects"))
        .into_iter()
        .find(|path| path.to_str().unwrap().contains("/aa/"));
    fs::remove_file(file.unwrap()).unwrap();
    assert_eq!((store.verify_seal(A), store.copies(&[A])), (Seal::Missing, None));
}
