//! Persistent storage on S3, set up through the environment as its users do. One test, because the
//! environment is one.

mod web;

use std::path::Path;

use eyas_store::{
    Checksum, Limits, ObjectStore, PlacesOfFile, Storage, StorageError, StorageErrorKind,
    UnpublishedOutput,
};
use eyas_types::{FileMode, Name, NamedFile, ObjectSpec};
use web::{Page, Web};

#[test]
fn objects_of_a_bucket_are_written_and_read() {
    let web = Web::start();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", format!("http://{}", web.addr)),
        ("AWS_ACCESS_KEY_ID", "test".into()),
        ("AWS_SECRET_ACCESS_KEY", "test".into()),
        ("AWS_EC2_METADATA_DISABLED", "true".into()),
    ] {
        // SAFETY: the only test of this program, before it has started a thread that reads the
        // environment.
        unsafe { std::env::set_var(name, value) };
    }
    tokio::runtime::Runtime::new().unwrap().block_on(write_and_read(web));
}

/// The rate of a large object is sampled in one stream. While another place is left to try, its
/// ranges are small.
async fn read_by_name(storage: &Storage, store: &ObjectStore, web: &Web) {
    let key = "a%20folder/big%20%C3%A9%2B%25%3F%23";
    let places = ["s3://bucket/a folder/big é+%?#".into(), "s3://bucket/none".into()];
    let content: Vec<u8> = (0..30_000_000).map(|at: u32| (at / 11) as u8).collect();
    let file = NamedFile { places: Vec::new(), size_bytes: None, sha256: None, registered_us: 1 };
    let spec = file.object(b"big", content.len() as u64);
    let get = format!("GET /bucket/{key}");
    let before = web.count(&get);
    let into = store.begin_object(spec.id(), &spec).unwrap();
    let of_file = PlacesOfFile::untold(places.to_vec());
    let fetched = storage.fetch_named(&spec, &of_file, into, store).await.unwrap();
    assert_eq!(fetched.checksum, Checksum::of(&content));
    // In the usual ranges, the sample and the read would be up to four requests each.
    let requests = web.count(&get) - before;
    assert!(requests > 8, "{requests} requests");
}

async fn write_and_read(web: Web) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
    let storage = Storage::new(Limits::default());
    let from = dir.path().join("from");
    // One put; several parts, read back in several ranges; nothing at all.
    for (size, key) in [(100_000, "small"), (30_000_000, "a folder/big é+%?#"), (0, "empty")] {
        let content: Vec<u8> = (0..size).map(|at: u32| (at / 11) as u8).collect();
        std::fs::write(&from, &content).unwrap();
        let url = Name::from(format!("s3://bucket/{key}"));
        let spec = put(&storage, &from, &url).await.unwrap();
        assert_eq!((&spec.source, spec.size_bytes()), (&url, u64::from(size)));
        assert_eq!(storage.stat(&url).await.unwrap(), spec);
        let into = store.begin(spec.id(), spec.size_bytes(), FileMode::READABLE).unwrap();
        assert_eq!(storage.fetch(&spec, into).await.unwrap().checksum, Checksum::of(&content));
    }
    assert_eq!(web.count("GET /bucket/a%20folder/big%20%C3%A9%2B%25%3F%23"), 4);
    read_by_name(&storage, &store, &web).await;
    let unpublished = Name::from("s3://bucket/unpublished");
    let prepared = prepare(&storage, &from, &unpublished).await.unwrap();
    let error = storage.publish(prepared, || false).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Withdrawn);
    assert_eq!(storage.stat(&unpublished).await.unwrap_err().kind, StorageErrorKind::NotFound);
    assert_eq!(web.count("PUT /bucket/small"), 1);
    assert_eq!(web.count("PUT /bucket/a%20folder/big%20%C3%A9%2B%25%3F%23"), 4);

    for key in ["survey/a.fits", "survey/b.fits", "survey/deep/c.fits", "survey-old/d.fits"] {
        web.put(&format!("/bucket/{key}"), Page { etag: Some("\"e\"".into()), ..Page::default() });
    }
    let listed = async |prefix: &str| storage.list(&prefix.into()).await.unwrap();
    let urls = |keys: &[&str]| {
        keys.iter().map(|key| Name::from(format!("s3://bucket/{key}"))).collect::<Vec<_>>()
    };
    assert_eq!(
        listed("s3://bucket/survey/").await,
        urls(&["survey/a.fits", "survey/b.fits", "survey/deep/c.fits"])
    );
    assert_eq!(listed("s3://bucket/survey-o").await, urls(&["survey-old/d.fits"]));
    assert!(listed("s3://bucket/").await.len() >= 7, "all of the bucket");
    assert_eq!(listed("s3://bucket/none").await, urls(&[]));
    assert_eq!(
        storage.list(&"s3://bucket".into()).await.unwrap_err().kind,
        StorageErrorKind::Invalid
    );

    let spec = storage.stat(&"s3://bucket/small".into()).await.unwrap();
    let page = |etag: &str, cut_first| Page {
        content: vec![9; 100_000],
        etag: Some(etag.into()),
        cut_first,
        ..Page::default()
    };
    web.put("/bucket/small", page("\"other\"", 0));
    let into = || store.begin(spec.id(), spec.size_bytes(), FileMode::READABLE).unwrap();
    assert_eq!(storage.fetch(&spec, into()).await.unwrap_err().kind, StorageErrorKind::Changed);
    // A broken answer is taken up where it broke off.
    let eyas_types::Version::Etag { etag, .. } = &spec.version else { panic!("{spec:?}") };
    web.put("/bucket/small", page(etag, 2));
    assert_eq!(storage.fetch(&spec, into()).await.unwrap().checksum, Checksum::of(&[9; 100_000]));
    assert_eq!(
        storage.stat(&"s3://bucket/none".into()).await.unwrap_err().kind,
        StorageErrorKind::NotFound
    );
}

async fn prepare(
    storage: &Storage,
    file: &Path,
    url: &Name,
) -> Result<UnpublishedOutput, StorageError> {
    storage
        .sync({
            let spot = storage.locate(vec![url.clone()]).await?.remove(0);
            storage.copy(file, &spot, || true).await?
        })
        .await
}

async fn put(storage: &Storage, file: &Path, url: &Name) -> Result<ObjectSpec, StorageError> {
    storage.publish(prepare(storage, file, url).await?, || true).await
}
