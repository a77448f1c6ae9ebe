//! Persistent storage on the web: good servers, simple servers, and servers that fail.

mod web;

use std::os::unix::fs::MetadataExt;

use eyas_store::{Checksum, Limits, ObjectStore, Storage, StorageError, StorageErrorKind};
use eyas_types::{FileMode, ObjectSpec, Version};
use web::{Page, Web};

struct Site {
    web: Web,
    storage: Storage,
    store: ObjectStore,
    _dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(dir.path()).unwrap();
        Site { web: Web::start(), storage: Storage::new(Limits::default()), store, _dir: dir }
    }

    async fn stat(&self, target: &str) -> Result<ObjectSpec, StorageError> {
        self.storage.stat(&self.web.url(target).into()).await
    }

    async fn fetch(&self, spec: &ObjectSpec) -> Result<Checksum, StorageError> {
        let into = self.store.begin(spec.id(), spec.size_bytes(), FileMode::READABLE).unwrap();
        Ok(self.storage.fetch(spec, into).await?.checksum)
    }
}

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|at| (at / 7) as u8).collect()
}

fn tagged(etag: &str) -> Page {
    Page { content: content(), etag: Some(etag.into()), ..Page::default() }
}

#[tokio::test]
async fn pages_are_read_at_their_tag_and_under_their_exact_url() {
    let site = Site::new();
    for target in ["/plain", "/a%20b%2Fc//d?sig=x%3D&y=/", "/"] {
        site.web.put(target, tagged("\"v1\""));
        let spec = site.stat(target).await.unwrap();
        assert_eq!(spec.version, Version::Etag { etag: "\"v1\"".into(), size_bytes: 3_000_000 });
        assert_eq!(site.fetch(&spec).await.unwrap(), Checksum::of(&content()));
        assert_eq!(site.web.count(&format!("GET {target}")), 1);
    }
    site.web.put("/empty", Page { etag: Some("\"e\"".into()), ..Page::default() });
    let empty = site.stat("/empty").await.unwrap();
    assert_eq!(site.fetch(&empty).await.unwrap(), Checksum::of(b""));
}

#[tokio::test]
async fn pages_are_read_from_servers_that_refuse_head_or_give_no_size() {
    let site = Site::new();
    for refuses_head in
        [None, Some("403 Forbidden"), Some("405 Method Not Allowed"), Some("404 Not Found")]
    {
        for (is_simple, is_sizeless) in [(false, false), (true, false), (true, true)] {
            for content in [content(), vec![]] {
                let size_bytes = content.len() as u64;
                let page = Page {
                    content: content.clone(),
                    refuses_head,
                    is_simple,
                    is_sizeless,
                    ..tagged("\"v1\"")
                };
                site.web.put("/x?sig=1", page.clone());
                let case = format!("{refuses_head:?} {is_simple} {is_sizeless} {size_bytes}");
                let spec = site.stat("/x?sig=1").await.expect(&case);
                assert_eq!(
                    spec.version,
                    Version::Etag { etag: "\"v1\"".into(), size_bytes },
                    "{case}"
                );
                assert_eq!(site.fetch(&spec).await.expect(&case), Checksum::of(&content), "{case}");
                site.store.remove(spec.id()).unwrap();
                site.web.put("/x?sig=1", Page { etag: Some("\"v2\"".into()), ..page });
                assert_eq!(
                    site.fetch(&spec).await.unwrap_err().kind,
                    StorageErrorKind::Changed,
                    "{case}"
                );
            }
        }
    }
}

#[tokio::test]
async fn zeros_of_a_page_take_no_space() {
    let site = Site::new();
    let mut content = vec![0; 12 << 20];
    content[5 << 20..(5 << 20) + 3].copy_from_slice(b"abc");
    site.web.put("/x", Page { content: content.clone(), ..tagged("\"v1\"") });
    let spec = site.stat("/x").await.unwrap();
    assert_eq!(site.fetch(&spec).await.unwrap(), Checksum::of(&content));
    assert!(site.store.content(spec.id()).unwrap() == content);
    let taken_bytes =
        site.store.open_object(spec.id()).unwrap().file.metadata().unwrap().blocks() * 512;
    assert!(taken_bytes < 1 << 20, "{taken_bytes}");
}

#[tokio::test]
async fn a_page_that_is_denied_has_nothing_to_do_with_keys_of_s3() {
    let site = Site::new();
    site.web.put(
        "/x",
        Page { denies_get: true, refuses_head: Some("403 Forbidden"), ..tagged("\"v1\"") },
    );
    let error = site.stat("/x").await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Denied, "{error}");
    assert!(error.message.contains("signature") && !error.message.contains("AWS"), "{error}");
}

#[tokio::test]
async fn a_fetch_may_run_on_any_thread() {
    let site = Site::new();
    site.web.put("/x", tagged("\"v1\""));
    let spec = site.stat("/x").await.unwrap();
    tokio::spawn(async move { site.fetch(&spec).await.unwrap() }).await.unwrap();
}

#[tokio::test]
async fn a_page_with_a_date_alone_is_held_to_its_date() {
    let site = Site::new();
    let dated = |date: &str| Page {
        content: content(),
        last_modified: Some(date.into()),
        is_simple: true,
        ..Page::default()
    };
    site.web.put("/x", dated("Tue, 14 Nov 2023 22:13:20 GMT"));
    let spec = site.stat("/x").await.unwrap();
    assert_eq!(
        spec.version,
        Version::Modified { mtime_ns: 1_700_000_000_000_000_000, size_bytes: 3_000_000 }
    );
    assert_eq!(site.fetch(&spec).await.unwrap(), Checksum::of(&content()));
    site.web.put("/x", dated("Tue, 14 Nov 2023 22:13:21 GMT"));
    assert_eq!(site.fetch(&spec).await.unwrap_err().kind, StorageErrorKind::Changed);

    site.web.put("/y", Page { content: content(), ..Page::default() });
    let error = site.stat("/y").await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Invalid);
    assert!(error.message.contains("neither"), "{error}");
}

#[tokio::test]
async fn a_page_that_changed_is_refused() {
    let site = Site::new();
    for (etag, is_simple) in [("\"v1\"", false), ("\"v1\"", true), ("W/\"v1\"", false)] {
        site.web.put("/x", tagged(etag));
        let spec = site.stat("/x").await.unwrap();
        // Before the read ...
        site.web.put("/x", Page { is_simple, ..tagged("\"v2\"") });
        assert_eq!(
            site.fetch(&spec).await.unwrap_err().kind,
            StorageErrorKind::Changed,
            "{etag} {is_simple}"
        );
        // ... and during it.
        site.web
            .put("/x", Page { is_simple, etag_after_read: Some("\"v2\"".into()), ..tagged(etag) });
        assert_eq!(
            site.fetch(&spec).await.unwrap_err().kind,
            StorageErrorKind::Changed,
            "{etag} {is_simple}"
        );
        // The page became longer and kept its tag.
        site.web.put("/x", Page { content: vec![0; 3_000_001], is_simple, ..tagged(etag) });
        assert_eq!(
            site.fetch(&spec).await.unwrap_err().kind,
            StorageErrorKind::Changed,
            "{etag} {is_simple}"
        );
    }
    assert!(site.store.is_empty());
}

#[tokio::test]
async fn temporary_errors_are_tried_again() {
    let site = Site::new();
    for is_simple in [false, true] {
        site.web.put("/x", Page { fail_first: 2, is_simple, ..tagged("\"v1\"") });
        let spec = site.stat("/x").await.unwrap();
        site.web.put("/x", Page { cut_first: 2, is_simple, ..tagged("\"v1\"") });
        assert_eq!(site.fetch(&spec).await.unwrap(), Checksum::of(&content()));
        site.store.remove(spec.id()).unwrap();
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_asked_four_times_in_all() {
    let site = Site::new();
    // With a strong tag one request is enough; otherwise the tag is checked before.
    for etag in ["\"v1\"", "W/\"v1\""] {
        site.web.put("/x", tagged(etag));
        let spec = site.stat("/x").await.unwrap();
        let before = site.web.state.lock().unwrap().requests.len();
        site.web.put("/x", Page { silent_first: 99, ..tagged(etag) });
        let storage = Storage::impatient(Limits::default(), std::time::Duration::from_millis(100));
        let into = site.store.begin(spec.id(), spec.size_bytes(), FileMode::READABLE).unwrap();
        let error = storage.fetch(&spec, into).await.unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Unreachable, "{error}");
        assert_eq!(site.web.state.lock().unwrap().requests.len() - before, 4);
    }
}

#[tokio::test]
async fn lasting_errors_are_given_up() {
    let site = Site::new();
    site.web.put("/x", tagged("\"v1\""));
    let spec = site.stat("/x").await.unwrap();
    site.web.put("/x", Page { cut_first: 99, ..tagged("\"v1\"") });
    let error = site.fetch(&spec).await.unwrap_err();
    assert_eq!(
        (error.kind, error.kind.is_retryable()),
        (StorageErrorKind::Unreachable, true),
        "{error}"
    );
    assert_eq!(site.stat("/missing").await.unwrap_err().kind, StorageErrorKind::NotFound);
    let nobody = format!(
        "http://{}/x",
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    );
    let error = site.storage.stat(&nobody.as_str().into()).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Unreachable);
    assert!(error.message.contains(&nobody), "{error}");
    let error = site.storage.stat(&"http://host/with space".into()).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Invalid, "{error}");
    assert!(site.store.is_empty());
}
