//! Files with a name, read from one of their places: places that fail, that lie about their
//! content, and that are slow.

mod web;

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eyas_store::{
    ArrivalEnd, Checksum, Limits, ObjectStore, PlacesOfFile, Presence, Storage, StorageError,
    StorageErrorKind,
};
use eyas_types::{Name, NamedFile, ObjectSpec, Sha256};
use web::{Page, Web};

struct Node {
    web: Web,
    storage: Storage,
    store: ObjectStore,
    passed_over: Arc<Mutex<Vec<(Name, String)>>>,
    _dir: tempfile::TempDir,
}

/// A minute and a half of silence is too long for a test.
const SILENCE: Duration = Duration::from_millis(300);

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(dir.path()).unwrap();
        let storage = Storage::impatient(Limits::default(), SILENCE);
        Node { web: Web::start(), storage, store, passed_over: Arc::default(), _dir: dir }
    }

    fn put(&self, target: &str, page: Page) -> Name {
        self.web.put(target, page);
        self.web.url(target).into()
    }

    async fn fetch(&self, spec: &ObjectSpec, places: &[Name]) -> Result<Checksum, StorageError> {
        let passed_over = self.passed_over.clone();
        let told = move |place: &Name, why: &str| {
            passed_over.lock().unwrap().push((place.clone(), why.to_owned()));
        };
        let of_file = PlacesOfFile { places: places.to_vec(), passed_over: Arc::new(told) };
        let into = self.store.begin_object(spec.id(), spec).unwrap();
        Ok(self.storage.fetch_named(spec, &of_file, into, &self.store).await?.checksum)
    }

    /// Which places were passed over, and why, since the last call.
    fn passed_over(&self) -> Vec<(Name, String)> {
        std::mem::take(&mut *self.passed_over.lock().unwrap())
    }
}

fn content() -> Vec<u8> {
    (0..400_000u32).map(|at| (at / 7) as u8).collect()
}

fn page(content: Vec<u8>) -> Page {
    Page { content, etag: Some("\"v\"".into()), ..Page::default() }
}

/// The content as an object, with its checksum if that is registered.
fn spec(is_checked: bool) -> ObjectSpec {
    let sum = ring::digest::digest(&ring::digest::SHA256, &content());
    let sum = Sha256(sum.as_ref().try_into().unwrap());
    let sha256 = is_checked.then_some(sum);
    let file = NamedFile { places: Vec::new(), size_bytes: None, sha256, registered_us: 1 };
    file.object(b"survey/a.fits", content().len() as u64)
}

/// A place at which no server listens.
fn refused() -> Name {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}/a").into()
}

#[tokio::test]
async fn a_place_that_fails_or_lies_is_passed_over() {
    let mut lie = content();
    lie[399_999] ^= 1;
    let faults = [
        ("/gone", None, "check the URL"),
        ("/short", Some(page(content()[1..].to_vec())), "has 399999 bytes, and not 400000"),
        ("/denied", Some(Page { denies_get: true, ..page(content()) }), "refuses it"),
        ("/cut", Some(Page { cut_first: usize::MAX, ..page(content()) }), "/cut"),
        ("/busy", Some(Page { fail_first: usize::MAX, ..page(content()) }), "/busy"),
        ("/silent", Some(Page { silent_first: usize::MAX, ..page(content()) }), "/silent"),
        ("/lie", Some(page(lie)), "the content has SHA-256"),
    ];
    for (target, fault, says) in faults {
        let node = Node::new();
        let bad = match fault {
            Some(page) => node.put(target, page),
            None => node.web.url(target).into(),
        };
        // Another server, so that nothing is known of it.
        let other = Web::start();
        other.put("/good", page(content()));
        let good = Name::from(other.url("/good"));
        let fetched = node.fetch(&spec(true), &[bad.clone(), good]).await;
        assert_eq!(fetched.unwrap(), Checksum::of(&content()), "{target}");
        // It may have been tried in the better order.
        for (place, why) in node.passed_over() {
            assert_eq!(place, bad);
            assert!(why.contains(says) && why.contains(target), "{target}: {why}");
        }
        // Where it is the only place, it has its turn.
        let spec = ObjectSpec { source: "lfn://other".into(), ..spec(true) };
        let error = node.fetch(&spec, std::slice::from_ref(&bad)).await.unwrap_err();
        assert!(error.message.contains(says), "{target}: {error}");
        assert!(error.message.starts_with("cannot read `lfn://other` from its place"), "{error}");
        assert_eq!(node.store.presence(spec.id()), Presence::Absent, "{target}");
        assert_eq!(node.passed_over().len(), 1, "{target}");
    }
}

#[tokio::test]
async fn the_error_names_each_place_and_whether_a_retry_helps() {
    let node = Node::new();
    let (gone, refused) = (Name::from(node.web.url("/gone")), refused());
    let missing = Name::from("file:///no/such/file");
    let error = node.fetch(&spec(true), &[gone.clone(), missing.clone()]).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::NotFound);
    for place in [&gone, &missing] {
        assert!(error.message.contains(&place.to_string()), "{error}");
    }
    let error = node.fetch(&spec(true), &[gone, refused.clone()]).await.unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Unreachable, "{error}");
    assert!(error.message.contains(&refused.to_string()), "{error}");
    let error = node.fetch(&spec(true), &[]).await.unwrap_err();
    assert!(error.message.contains("has no place with the content"), "{error}");
    assert_eq!(node.store.presence(spec(true).id()), Presence::Absent);
}

#[tokio::test]
async fn a_place_that_sends_nothing_is_left_for_the_next() {
    let node = Node::new();
    let node = Node { storage: Storage::new(Limits::default()), ..node };
    let stuck = node.put("/stuck", Page { is_stuck: true, ..page(content()) });
    // On the same server, so that the first place is the first that is tried.
    let good = node.put("/good", page(content()));
    let fetched = node.fetch(&spec(false), &[stuck.clone(), good.clone()]).await.unwrap();
    assert_eq!(fetched, Checksum::of(&content()));
    let [(place, why)] = &node.passed_over()[..] else { panic!("one was passed over") };
    assert!(*place == stuck && why.contains("is slow: 0 B came in"), "{why}");
}

#[tokio::test]
async fn a_place_that_does_not_answer_in_time_is_not_the_first() {
    let node = Node::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = Name::from(format!("http://{}/a", silent.local_addr().unwrap()));
    let good = node.put("/good", page(content()));
    let fetched = node.fetch(&spec(false), &[silent, good]).await.unwrap();
    assert_eq!(fetched, Checksum::of(&content()));
    assert_eq!(node.passed_over(), []);
}

#[tokio::test]
async fn nodes_attached_to_the_first_arrival_receive_what_the_first_place_sends() {
    let node = Node::new();
    let places = ["/a", "/b"].map(|target| node.put(target, page(content())));
    let spec = spec(true);
    let into = node.store.begin_object(spec.id(), &spec).unwrap();
    let attached = node.store.arriving(spec.id(), Duration::ZERO).unwrap();
    let of_file = PlacesOfFile::untold(places.to_vec());
    node.storage.fetch_named(&spec, &of_file, into, &node.store).await.unwrap();
    let end = attached.wait_past(spec.size_bytes(), Duration::ZERO).end;
    assert_eq!(end, Some(ArrivalEnd::Whole(Checksum::of(&content()))));
}

#[tokio::test]
async fn the_place_that_was_faster_is_read_and_the_others_are_not() {
    let node = Node::new();
    let (slow, fast) = (Web::start(), Web::start());
    // Its first answers are late, since they are tried again.
    slow.put("/a", Page { fail_first: 1, ..page(content()) });
    fast.put("/a", page(content()));
    let places = [slow.url("/a").into(), fast.url("/a").into()];
    node.fetch(&spec(true), &places).await.unwrap();
    assert_eq!((slow.count("GET /a"), fast.count("GET /a")), (0, 1));
    assert_eq!(node.passed_over(), []);
}

#[tokio::test]
async fn files_with_holes_have_their_checksum_too() {
    let node = Node::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 5_000_000).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let sum = ring::digest::digest(&ring::digest::SHA256, &whole);
    let sha256 = Some(Sha256(sum.as_ref().try_into().unwrap()));
    let file = NamedFile { places: Vec::new(), size_bytes: None, sha256, registered_us: 1 };
    let spec = file.object(b"sparse", whole.len() as u64);
    let place = Name::from(format!("file://{}", path.display()));
    assert_eq!(node.fetch(&spec, &[place]).await.unwrap(), Checksum::of(&whole));
}
