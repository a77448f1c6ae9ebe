//! The source of an object when several holders have it, when none has it, and when hints are
//! wrong.

mod cluster;

use std::net::{SocketAddr, TcpListener};

use cluster::{ID, Node, content, holder, limits, source, strange};
use eyas_store::{Checksum, Emulation, Limits, Storage};
use eyas_transfer::{DamagedDelivery, FetchErrorKind, FetchSource, FetchedObject, Fetcher};
use eyas_types::{FileMode, JobId, ObjectSpec, TaskId, Version};
use eyas_wire::DataMode;

fn fetcher(node: &Node) -> Fetcher {
    Fetcher::new(node.store.clone(), Storage::new(Limits::default()), node.peers.clone())
}

fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn sources_are_tried_in_the_papers_order() {
    let (here, there) = (Node::new(), Node::new());
    let spec = source(&here, "input", 100_000).await;
    let (id, bytes) = (spec.id(), 100_000);
    let fetcher = fetcher(&here);
    // No hint: persistent storage.
    let fetched = fetcher.fetch(&spec, &[]).await.unwrap();
    assert_eq!(fetched, FetchedObject { from: FetchSource::Persistent, bytes, near_bytes: 0 });
    // Here: no hint is looked at.
    let fetched = fetcher.fetch(&spec, &[holder(unused_address())]).await.unwrap();
    assert_eq!(fetched, FetchedObject { from: FetchSource::Local, bytes, near_bytes: 0 });
    // Wrong hints, and then a right one.
    here.store.remove(id).unwrap();
    there.put(id, &content(100_000));
    let wrong = Node::new();
    let fetched = fetcher
        .fetch(&spec, &[wrong.addr(), unused_address(), there.addr()].map(holder))
        .await
        .unwrap();
    assert_eq!(
        fetched,
        FetchedObject { from: FetchSource::Peer(there.addr()), bytes, near_bytes: 0 }
    );
    assert_eq!(here.get(id), content(100_000));
    // Only wrong hints: persistent storage again.
    here.store.remove(id).unwrap();
    let fetched = fetcher.fetch(&spec, &[holder(wrong.addr())]).await.unwrap();
    assert_eq!(fetched.from, FetchSource::Persistent);
}

#[tokio::test]
async fn a_damaged_replica_leads_on_to_the_next_source() {
    let (here, there) = (Node::new(), Node::new());
    let spec = source(&here, "input", 100_000).await;
    there.put(spec.id(), &content(100_000));
    there.damage(spec.id());
    let fetcher = fetcher(&here);
    let fetched = fetcher.fetch(&spec, &[holder(there.addr())]).await.unwrap();
    assert_eq!((fetched.from, here.get(spec.id())), (FetchSource::Persistent, content(100_000)));
    // The peer can be told.
    let damaged = DamagedDelivery { object: spec.id(), giver: there.addr() };
    assert_eq!((fetcher.take_damaged(), fetcher.take_damaged()), (vec![damaged], vec![]));
}

#[tokio::test]
async fn a_copy_of_another_size_is_passed_over_and_its_holder_is_not_blamed() {
    let (here, other, there) = (Node::new(), Node::new(), Node::new());
    other.put(ID, &content(200_000));
    there.put(ID, &content(100_000));
    let fetcher = fetcher(&here);
    let (copy, holders) = ((ID, 100_000, FileMode::READABLE), [&other, &there]);
    let holders = holders.map(|node| holder(node.addr()));
    let fetched = fetcher.fetch_copy(copy, "a copy", &holders).await.unwrap();
    assert_eq!(fetched.from, FetchSource::Peer(there.addr()));
    assert_eq!((here.get(ID), fetcher.take_damaged()), (content(100_000), vec![]));
    // It gives its own version to a node that wants that.
    here.store.remove(ID).unwrap();
    let copy = (ID, 200_000, FileMode::READABLE);
    let fetched = fetcher.fetch_copy(copy, "a copy", &holders).await.unwrap();
    assert_eq!(fetched.from, FetchSource::Peer(other.addr()));
}

#[tokio::test]
async fn an_avoided_peer_is_asked_for_an_object_that_is_nowhere_else() {
    let (here, there) = (Node::new(), Node::new());
    let task = TaskId { job: JobId(1), index: 0 };
    let spec = ObjectSpec::kept(
        task,
        "out",
        100_000,
        &Checksum::of(&content(100_000)).to_string(),
        FileMode::READABLE,
    );
    there.put(spec.id(), &content(100_000));
    there.damage(spec.id());
    let (fetcher, holders) = (fetcher(&here), [holder(there.addr())]);
    let error = fetcher.fetch(&spec, &holders).await.unwrap_err();
    assert!(error.message.contains("damaged"), "{error}");
    there.store.remove(spec.id()).unwrap();
    there.put(spec.id(), &content(100_000));
    // Persistent storage is used instead of a peer that sent damaged data a moment ago.
    let elsewhere = source(&here, "input", 10).await;
    there.put(elsewhere.id(), &content(10));
    assert_eq!(fetcher.fetch(&elsewhere, &holders).await.unwrap().from, FetchSource::Persistent);
    assert_eq!(fetcher.fetch(&spec, &holders).await.unwrap().from, FetchSource::Peer(there.addr()));
}

#[tokio::test]
async fn a_failure_lists_what_was_tried() {
    let (here, wrong) = (Node::new(), Node::new());
    let stranger = Node::with(strange(DataMode::Encrypted), limits());
    let mut spec = source(&here, "input", 10).await;
    std::fs::remove_file(here.dir.path().join("input")).unwrap();
    let holders = [wrong.addr(), stranger.addr()].map(holder);
    let error = fetcher(&here).fetch(&spec, &holders).await.unwrap_err();
    assert_eq!(error.kind, FetchErrorKind::NotFound);
    for said in [
        &spec.source.to_string(),
        &format!("peer {} does not have it", wrong.addr()),
        &stranger.addr().to_string(),
    ] {
        assert!(error.message.contains(said.as_str()), "{error}");
    }
    std::fs::write(here.dir.path().join("input"), "changed").unwrap();
    let error = fetcher(&here).fetch(&spec, &[]).await.unwrap_err();
    assert_eq!(error.kind, FetchErrorKind::Changed);
    // No disk has space for this, and no other source is tried.
    spec.version = Version::Modified { mtime_ns: 0, size_bytes: 1 << 60 };
    let error = fetcher(&here).fetch(&spec, &[]).await.unwrap_err();
    assert!(matches!(error.kind, FetchErrorKind::Full | FetchErrorKind::Local), "{error}");
    assert_eq!(here.partial_files(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_wishes_share_one_fetch() {
    let (here, there) = (Node::new(), Node::new());
    let spec = source(&here, "input", 3_000_000).await;
    there.put(spec.id(), &content(3_000_000));
    let fetcher = fetcher(&here);
    let mut wishes = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (fetcher, spec, holders) = (fetcher.clone(), spec.clone(), [holder(there.addr())]);
        wishes.spawn(async move { fetcher.fetch(&spec, &holders).await.unwrap().from });
    }
    let from = wishes.join_all().await;
    assert_eq!(from.iter().filter(|from| **from == FetchSource::Peer(there.addr())).count(), 1);
    assert_eq!(from.iter().filter(|from| **from == FetchSource::Local).count(), 19);
    assert_eq!(there.server.served().count, 1);
}

#[tokio::test]
async fn a_fetch_outlives_the_caller_that_began_it() {
    let here = Node::new();
    let spec = source(&here, "input", 100_000).await;
    let shared = tempfile::tempdir().unwrap();
    let slow = Emulation::parse("storage-latency=30ms").unwrap().limits(shared.path()).unwrap();
    let fetcher = Fetcher::new(here.store.clone(), Storage::new(slow), here.peers.clone());
    let began = tokio::spawn({
        let (fetcher, spec) = (fetcher.clone(), spec.clone());
        async move { fetcher.fetch(&spec, &[]).await }
    });
    tokio::task::yield_now().await;
    began.abort();
    assert!(began.await.unwrap_err().is_cancelled());
    assert_eq!(fetcher.fetch(&spec, &[]).await.unwrap().from, FetchSource::Local);
}

#[tokio::test]
async fn an_object_that_became_executable_becomes_so_here() {
    let here = Node::new();
    let mut spec = source(&here, "tool", 10).await;
    let fetcher = fetcher(&here);
    fetcher.fetch(&spec, &[]).await.unwrap();
    spec.mode = FileMode::EXECUTABLE;
    assert_eq!(fetcher.fetch(&spec, &[]).await.unwrap().from, FetchSource::Local);
    let mode = std::os::unix::fs::MetadataExt::mode(
        &std::fs::metadata(here.object_file(spec.id())).unwrap(),
    );
    assert_eq!(mode & 0o777, 0o555);
}

#[tokio::test]
async fn objects_found_at_a_restart_are_verified_before_use() {
    let here = Node::new();
    let spec = source(&here, "input", 100_000).await;
    fetcher(&here).fetch(&spec, &[]).await.unwrap();
    here.damage(spec.id());
    let Node { dir, store, server, peers } = here;
    drop((store, server));
    let (store, found) = eyas_store::ObjectStore::open(dir.path().join("store")).unwrap();
    assert_eq!(found, [(spec.id(), 100_000)]);
    let fetcher = Fetcher::new(store, Storage::new(Limits::default()), peers);
    assert_eq!(fetcher.fetch(&spec, &[]).await.unwrap().from, FetchSource::Persistent);
    assert_eq!(fetcher.fetch(&spec, &[]).await.unwrap().from, FetchSource::Local);
}
