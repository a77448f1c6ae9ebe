//! Persistent storage on a file system: any name, exactly the promised version, written whole or
//! not at all.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use eyas_store::{
    Checksum, Limits, ObjectStore, Spot, Storage, StorageError, StorageErrorKind, name_of, path_of,
    url_of,
};
use eyas_types::{FileMode, Name, ObjectSpec, Version};

fn storage() -> Storage {
    Storage::new(Limits::default())
}

fn url(path: &Path) -> Name {
    url_of(&name_of(path)).unwrap()
}

async fn fetch(
    storage: &Storage,
    store: &ObjectStore,
    spec: &ObjectSpec,
) -> Result<Checksum, StorageError> {
    let into = store.begin(spec.id(), spec.size_bytes(), spec.mode).unwrap();
    Ok(storage.fetch(spec, into).await?.checksum)
}

#[tokio::test]
async fn files_of_any_name_are_fetched_at_their_version() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let storage = storage();
    let names = ["plain", "a b", "line\nbreak", "é 星.fits", "what?#50%25", "-rf", ".hidden"]
        .map(Name::from);
    for (number, name) in
        names.into_iter().chain([Name::from(&b"odd\xff\xc3.fits"[..])]).enumerate()
    {
        let path = dir.path().join(path_of(&name));
        let content = vec![number as u8; number * 700_000];
        fs::write(&path, &content).unwrap();
        let spec = storage.stat(&url(&path)).await.unwrap();
        assert_eq!(
            (spec.base_name(), spec.size_bytes(), spec.mode),
            (&name[..], content.len() as u64, FileMode::READABLE)
        );
        assert_eq!(fetch(&storage, &store, &spec).await.unwrap(), Checksum::of(&content));
        assert_eq!(store.open_object(spec.id()).unwrap().size_bytes, content.len() as u64);
    }
}

#[tokio::test]
async fn a_version_has_nanoseconds_and_the_x_bit_comes_along() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tool");
    fs::write(&path, b"#!").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let spec = storage().stat(&url(&path)).await.unwrap();
    let Version::File { mtime_ns, size_bytes, .. } = spec.version else {
        panic!("{:?}", spec.version)
    };
    assert_eq!((mtime_ns, size_bytes), (1_700_000_000_123_456_789, 2));
    assert_eq!(spec.mode, FileMode::EXECUTABLE);
}

#[tokio::test]
async fn a_file_that_changed_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let path = dir.path().join("input");
    fs::write(&path, b"before").unwrap();
    let spec = storage().stat(&url(&path)).await.unwrap();
    fs::write(&path, b"longer than before").unwrap();
    let error = fetch(&storage(), &store, &spec).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Changed);
    assert!(
        error.message.contains(&spec.source.to_string())
            && error.message.contains("Submit the job again"),
        "{error}"
    );
    assert!(!error.kind.is_retryable());

    // Same size, another time.
    fs::write(&path, b"BEFORE").unwrap();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let error = fetch(&storage(), &store, &spec).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Changed);
    assert_eq!(store.len(), 0);
}

#[tokio::test]
async fn a_file_of_the_same_size_and_time_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let path = dir.path().join("input");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    // As `tar` does, and as a program that writes into the file.
    let replace: [fn(&Path, &[u8]); 2] = [
        |path, content| {
            let _ = fs::remove_file(path);
            fs::write(path, content).unwrap();
        },
        |path, content| fs::write(path, content).unwrap(),
    ];
    for replace in replace {
        let write = |content: &[u8]| {
            replace(&path, content);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        write(b"one");
        let spec = storage().stat(&url(&path)).await.unwrap();
        assert_eq!(spec, storage().stat(&url(&path)).await.unwrap());
        // The clock of the file system may have ticks.
        let replaced = loop {
            write(b"two");
            let now = storage().stat(&url(&path)).await.unwrap();
            if now != spec {
                break now;
            }
        };
        assert_ne!(replaced.id(), spec.id());
        let error = fetch(&storage(), &store, &spec).await.unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Changed);
        assert!(error.message.contains("was replaced"), "{error}");
        // A node that sees the file on another file system knows its time and size only.
        let Version::File { mtime_ns, size_bytes, inode, system, .. } = replaced.version else {
            panic!()
        };
        let elsewhere = Version::File {
            mtime_ns,
            size_bytes,
            inode: inode + 1,
            changed_ns: 0,
            system: !system,
        };
        for version in [elsewhere, Version::Modified { mtime_ns, size_bytes }] {
            fetch(&storage(), &store, &ObjectSpec { version, ..replaced.clone() }).await.unwrap();
        }
        let older = Version::Modified { mtime_ns: mtime_ns - 1, size_bytes };
        let error = fetch(&storage(), &store, &ObjectSpec { version: older, ..replaced.clone() })
            .await
            .unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Changed);
    }
}

#[tokio::test]
async fn errors_of_sources_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let missing = storage().stat(&url(&dir.path().join("no such"))).await.unwrap_err();
    assert_eq!(missing.kind, StorageErrorKind::NotFound);
    assert!(missing.message.contains("no such"), "{missing}");
    let folder = storage().stat(&url(dir.path())).await.unwrap_err();
    assert_eq!(folder.kind, StorageErrorKind::Invalid);
    assert!(folder.message.contains("folder"), "{folder}");
    let pipe = storage().stat(&"file:///dev/null".into()).await.unwrap_err();
    assert_eq!(pipe.kind, StorageErrorKind::Invalid);
    let without_size = storage().stat(&"file:///proc/version".into()).await.unwrap_err();
    assert_eq!(without_size.kind, StorageErrorKind::Invalid);
    assert!(without_size.message.contains("copy it"), "{without_size}");

    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let path = dir.path().join("gone");
    fs::write(&path, b"x").unwrap();
    let spec = storage().stat(&url(&path)).await.unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(
        fetch(&storage(), &store, &spec).await.unwrap_err().kind,
        StorageErrorKind::NotFound
    );
}

#[tokio::test]
async fn results_appear_whole_in_folders_that_are_made_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("result");
    fs::write(&from, vec![7; 3_000_000]).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o755)).unwrap();
    let to = dir.path().join("out/of the/way\n?");
    let spec = put(&storage(), &from, &url(&to)).await.unwrap();
    assert_eq!(fs::read(&to).unwrap(), vec![7; 3_000_000]);
    assert_eq!(spec, storage().stat(&url(&to)).await.unwrap());
    assert_eq!(spec.mode, FileMode::EXECUTABLE);
    // Over an existing file, and through the slow path of an emulation.
    fs::write(&from, b"again").unwrap();
    let shared = tempfile::tempdir().unwrap();
    let limits = "storage=800Mbit/s,storage-latency=1us".parse::<eyas_store::Emulation>().unwrap();
    let emulated = Storage::new(limits.limits(shared.path()).unwrap());
    let spec = put(&emulated, &from, &url(&to)).await.unwrap();
    assert_eq!((spec.size_bytes(), fs::read(&to).unwrap()), (5, b"again".to_vec()));
    // An output is invisible until it is published, and removed if it is not. Outputs that threads
    // sync together are each published or withdrawn.
    let copies: Vec<_> =
        ["unpublished", "published", "dropped"].map(|name| to.with_file_name(name)).into();
    let mut copied = Vec::new();
    for place in &copies {
        copied.push({
            let spot = spot(&storage(), &url(place)).await.unwrap();
            storage().copy(&from, &spot, || true).await.unwrap()
        });
    }
    drop(copied.pop());
    let store = storage();
    let [first, second] = copied.try_into().ok().expect("two are left");
    let (first, second) = tokio::join!(store.sync(first), store.sync(second));
    assert!(copies.iter().all(|place| !place.exists()));
    let error = store.publish(first.unwrap(), || false).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Withdrawn);
    store.publish(second.unwrap(), || true).await.unwrap();
    assert_eq!(fs::read(&copies[1]).unwrap(), b"again");
    fs::remove_file(&copies[1]).unwrap();
    assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("result");
    let missing = put(&storage(), &from, &url(&dir.path().join("out"))).await.unwrap_err();
    assert_eq!(missing.kind, StorageErrorKind::Local);
    fs::write(&from, b"x").unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    let folder = put(&storage(), &from, &url(&dir.path().join("folder"))).await.unwrap_err();
    assert_eq!(folder.kind, StorageErrorKind::Invalid);
    let under_a_file = put(&storage(), &from, &url(&from.join("x"))).await.unwrap_err();
    assert!(!under_a_file.kind.is_retryable(), "{under_a_file}");
    let web = put(&storage(), &from, &"http://localhost/x".into()).await.unwrap_err();
    assert_eq!(web.kind, StorageErrorKind::Invalid);
    let full = put(&storage(), &from, &"file:///dev/full/x".into()).await.unwrap_err();
    assert!(!full.kind.is_retryable(), "{full}");
    let names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test]
async fn devices_and_pipes_are_written_to_and_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (from, pipe) = (dir.path().join("result"), dir.path().join("pipe"));
    fs::write(&from, vec![7; 1_000_000]).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("pipe", dir.path().join("link")).unwrap();
    for name in ["pipe", "link"] {
        let place = dir.path().join(name);
        // The reader comes when the output waits for it.
        let reader = std::thread::spawn({
            let place = place.clone();
            move || fs::read(place).unwrap()
        });
        let spec = put(&storage(), &from, &url(&place)).await.unwrap();
        assert_eq!((spec.size_bytes(), reader.join().unwrap().len()), (1_000_000, 1_000_000));
        assert!(fs::metadata(&place).unwrap().file_type().is_fifo(), "{name}");
    }
    put(&storage(), &from, &"file:///dev/null".into()).await.unwrap();
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let full = put(&storage(), &from, &"file:///dev/full".into()).await.unwrap_err();
    assert_eq!(full.kind, StorageErrorKind::NoSpace);
    // Without a reader, it waits as long as it is wanted.
    let store = storage();
    let spot = spot(&store, &url(&pipe)).await.unwrap();
    let copied = store.copy(&from, &spot, || true).await.unwrap();
    assert!(copied.needs_source());
    let looks = AtomicU32::new(0);
    let prepared = store.sync(copied).await.unwrap();
    let withdrawn =
        store.publish(prepared, || looks.fetch_add(1, Ordering::Relaxed) < 2).await.unwrap_err();
    assert_eq!((withdrawn.kind, looks.into_inner()), (StorageErrorKind::Withdrawn, 3));
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let socket = put(&storage(), &from, &url(&dir.path().join("socket"))).await.unwrap_err();
    assert_eq!(socket.kind, StorageErrorKind::Invalid);
}

#[tokio::test]
async fn no_output_is_open_to_more_users_than_its_file_or_the_file_before() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("result"), dir.path().join("out"));
    let umask = 0o777
        & !fs::metadata({
            fs::create_dir(dir.path().join("made")).unwrap();
            dir.path().join("made")
        })
        .unwrap()
        .permissions()
        .mode();
    for (written, before, expected) in [
        (0o600, None, 0o600),
        (0o644, None, 0o644),
        (0o750, None, 0o750),
        (0o2755, None, 0o755),
        // A copy of a staged input.
        (0o444, None, 0o644),
        (0o400, None, 0o400),
        (0o644, Some(0o600), 0o600),
        (0o666, Some(0o640), 0o640),
        (0o755, Some(0o644), 0o755),
        (0o755, Some(0o600), 0o700),
        (0o600, Some(0o666), 0o600),
    ] {
        let _ = fs::remove_file(&from);
        let _ = fs::remove_file(&to);
        fs::write(&from, "x").unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(written)).unwrap();
        if let Some(before) = before {
            fs::write(&to, "old").unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(before)).unwrap();
        }
        put(&storage(), &from, &url(&to)).await.unwrap();
        let mode = fs::metadata(&to).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, expected & !umask, "{written:o} over {before:?}: {mode:o}");
    }
}

async fn spot(storage: &Storage, url: &Name) -> Result<Spot, StorageError> {
    Ok(storage.locate(vec![url.clone()]).await?.remove(0))
}

async fn put(storage: &Storage, file: &Path, url: &Name) -> Result<ObjectSpec, StorageError> {
    let copied = storage.copy(file, &spot(storage, url).await?, || true).await?;
    storage.publish(storage.sync(copied).await?, || true).await
}

#[tokio::test]
async fn a_place_is_the_same_by_all_paths_that_lead_there() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| url(&dir.path().join(name));
    fs::create_dir(dir.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
    let place = async |url: &Name| spot(&storage(), url).await.unwrap().place();
    let real = place(&at("real/x")).await;
    for same in ["link/x", "real/./x", "link/../real/x", "real/new/../x"] {
        assert_eq!(place(&at(same)).await, real, "{same}");
    }
    // A file that is a link is replaced by an output, not followed.
    std::os::unix::fs::symlink("x", dir.path().join("real/y")).unwrap();
    assert_ne!(place(&at("real/y")).await, real);
    assert_eq!(spot(&storage(), &at("real/..")).await.unwrap_err().kind, StorageErrorKind::Invalid);
    let bucket = spot(&storage(), &"s3://bucket/x".into()).await.unwrap();
    assert_eq!(storage().make_folder(&bucket).await.unwrap_err().kind, StorageErrorKind::Invalid);
    assert_eq!(bucket.url(), &"s3://bucket/x");
    assert!(bucket.is_direct());
    let real = dir.path().canonicalize().unwrap().join("real");
    for (path, is_direct) in
        [("x", true), ("./x", true), ("../link/x", false), ("../real/x", false)]
    {
        assert_eq!(
            spot(&storage(), &url(&real.join(path))).await.unwrap().is_direct(),
            is_direct,
            "{path}"
        );
    }
}
