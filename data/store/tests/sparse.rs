//! Sparse files: their holes stay holes, in whatever way a file is copied.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use eyas_store::{Checksum, Emulation, Limits, ObjectStore, Storage, object_path, url_of};
use eyas_types::{FileMode, ObjectId, ObjectSpec, Version};
use tempfile::TempDir;

const M: u64 = 1 << 20;
const SIZE_BYTES: u64 = 40 * M + 5;
/// Ranges with data, longer and shorter than what is read at a time, some of them between short
/// holes.
const DATA: [(u64, u64); 5] =
    [(0, 4096), (M, 8192), (M + 65_536, 10), (20 * M, 2 * M + 77), (39 * M, 100)];

/// A sparse file; `None` if the file system has no holes.
fn sparse(dir: &TempDir) -> Option<PathBuf> {
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE_BYTES).unwrap();
    for (start, length) in DATA {
        file.write_all_at(&vec![9; length as usize], start).unwrap();
    }
    let has_holes = file.metadata().unwrap().blocks() * 512 < SIZE_BYTES;
    if !has_holes {
        eprintln!("skipped: files on {} have no holes", path.display());
    }
    has_holes.then_some(path)
}

fn checksum() -> Checksum {
    let mut hasher = eyas_store::Hasher::new();
    let zeros = vec![0; M as usize];
    let skip = |hasher: &mut eyas_store::Hasher, bytes: u64| {
        (0..bytes / M).for_each(|_| hasher.update(&zeros));
        hasher.update(&zeros[..(bytes % M) as usize]);
    };
    let mut at = 0;
    for (start, length) in DATA {
        skip(&mut hasher, start - at);
        hasher.update(&vec![9; length as usize]);
        at = start + length;
    }
    skip(&mut hasher, SIZE_BYTES - at);
    hasher.finish()
}

/// Asserts that `copy` has the content of `range` of `original`, and about as much space on the
/// disk.
fn assert_copied(copy: &Path, original: &Path, start: u64) {
    let (copied, from) = (File::open(copy).unwrap(), File::open(original).unwrap());
    let [metadata, before] = [&copied, &from].map(|file| file.metadata().unwrap());
    let limit = before.blocks() + 64;
    assert!(
        metadata.blocks() <= limit,
        "{}: {} blocks of {limit}",
        copy.display(),
        metadata.blocks()
    );
    let mut buffers = [vec![1; M as usize], vec![2; M as usize]];
    for at in (0..metadata.len()).step_by(M as usize) {
        let length = M.min(metadata.len() - at) as usize;
        copied.read_exact_at(&mut buffers[0][..length], at).unwrap();
        from.read_exact_at(&mut buffers[1][..length], start + at).unwrap();
        assert!(buffers[0][..length] == buffers[1][..length], "{} at {at}", copy.display());
    }
}

#[tokio::test]
async fn a_sparse_input_takes_the_space_of_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = sparse(&dir) else { return };
    let folder = dir.path().join("store");
    let (store, _) = ObjectStore::open(&folder).unwrap();
    let storage = Storage::new(Limits::default());
    let spec = storage.stat(&url_of(path.to_str().unwrap()).unwrap()).await.unwrap();
    let into = store.begin(spec.id(), spec.size_bytes(), FileMode::READABLE).unwrap();
    assert_eq!(storage.fetch(&spec, into).await.unwrap().checksum, checksum());
    let object = object_path(&folder, spec.id(), SIZE_BYTES, checksum());
    assert_copied(&object, &path, 0);
    assert_eq!(store.total_bytes(), SIZE_BYTES);

    // A task gets a part of it, and another object is a copy of it.
    for (start, end) in [(M / 2, 21 * M), (30 * M, SIZE_BYTES), (2 * M, 3 * M)] {
        let part = dir.path().join(format!("part-{start}"));
        store.stage_part(spec.id(), &part, start..end).unwrap();
        assert_eq!(fs::metadata(&part).unwrap().len(), end - start);
        assert_copied(&part, &path, start);
    }
    store.stage(spec.id(), &dir.path().join("staged")).unwrap();
    store.make_executable(spec.id()).unwrap();
    assert_copied(&object, &path, 0);
    drop(store);
    let (store, _) = ObjectStore::open(&folder).unwrap();
    assert!(store.verify(spec.id()).unwrap());
}

#[tokio::test]
async fn a_sparse_output_is_copied_and_kept_with_its_holes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = sparse(&dir) else { return };
    for (name, emulation) in [("fast", ""), ("emulated", "storage=1GB/s")] {
        let limits = Emulation::parse(emulation).unwrap().limits(dir.path()).unwrap();
        let storage = Storage::new(limits);
        let to = dir.path().join(name);
        let spots = storage.locate(vec![url_of(to.to_str().unwrap()).unwrap()]).await.unwrap();
        let copied = storage.copy(&path, &spots[0], || true).await.unwrap();
        let prepared = storage.sync(copied).await.unwrap();
        assert_eq!(storage.publish(prepared, || true).await.unwrap().size_bytes(), SIZE_BYTES);
        assert_copied(&to, &path, 0);
    }

    let folder = dir.path().join("store");
    let (store, _) = ObjectStore::open(&folder).unwrap();
    let adopt = |path: &Path, number: u64| {
        let name = |size_bytes, sum, _| {
            assert_eq!((size_bytes, sum), (SIZE_BYTES, checksum()));
            let version = Version::Etag { etag: number.to_string(), size_bytes };
            ObjectSpec { source: "eyas://1/1/output".into(), version, mode: FileMode::READABLE }
        };
        let id = store.adopt(path, name).unwrap().id();
        assert_copied(&object_path(&folder, id, SIZE_BYTES, checksum()), path, 0);
        id
    };
    // It has two links, so it is copied; then the inode itself becomes the object.
    let other = dir.path().join("other");
    fs::hard_link(&path, &other).unwrap();
    let ids: [ObjectId; 2] = [adopt(&path, 1), {
        fs::remove_file(&other).unwrap();
        adopt(&path, 2)
    }];
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn an_output_that_is_one_endless_hole_is_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("endless");
    let size_bytes = 8 << 40;
    if File::create(&path).unwrap().set_len(size_bytes).is_err() {
        eprintln!("skipped: files on {} cannot have 8 TB", path.display());
        return;
    }
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let name = |size_bytes, _, _| {
        let version = Version::Modified { mtime_ns: 0, size_bytes };
        ObjectSpec { source: "eyas://1/1/output".into(), version, mode: FileMode::READABLE }
    };
    let object = store.adopt(&path, name).unwrap();
    assert_eq!(store.open_object(object.id()).unwrap().size_bytes, size_bytes);
}
