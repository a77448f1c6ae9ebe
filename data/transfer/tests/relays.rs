//! Nodes that want the same object at the same time: each relays to the next what it has so far.
//! When a relay dies, sends wrong data or is slow, the next node continues with another source.

mod cluster;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use cluster::{DEADLINE, ID, Node, content, holder, keys, limits, source};
use eyas_store::{
    Emulation, Limiter, Limits, PIECE_BYTES, PlacesOfFile, Presence, Storage, StoreErrorKind,
};
use eyas_transfer::{
    FetchError, FetchSource, FetchedObject, Fetcher, PeerErrorKind, PeerHolder, PeerLimits,
    PeerServer,
};
use eyas_types::{FileMode, NamedFile, ObjectSpec, Sha256};
use tokio::task::JoinHandle;

const BYTES: usize = 4_000_000;

fn relay(node: &Node) -> PeerHolder {
    PeerHolder { is_relay: true, ..holder(node.addr()) }
}

/// Begins a fetch to `node`, from persistent storage at this rate if no holder has the object.
fn begin(
    node: &Node,
    spec: &ObjectSpec,
    rate: &str,
    holders: &[PeerHolder],
) -> JoinHandle<Result<FetchedObject, FetchError>> {
    let storage = Storage::new(
        Emulation::parse(&format!("storage={rate}")).unwrap().limits(node.dir.path()).unwrap(),
    );
    let fetcher = Fetcher::new(node.store.clone(), storage, node.peers.clone());
    let (spec, holders) = (spec.clone(), holders.to_vec());
    tokio::spawn(async move { fetcher.fetch(&spec, &holders).await })
}

/// Waits until more than `bytes` of the object are on `node`. Returns their number.
async fn wait_past(node: &Node, spec: &ObjectSpec, bytes: usize) -> u64 {
    let (store, id) = (node.store.clone(), spec.id());
    let waiting = tokio::task::spawn_blocking(move || {
        let arriving = store.arriving(id, DEADLINE).expect("it comes");
        arriving.wait_past(bytes as u64, DEADLINE).written_bytes
    });
    waiting.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_reads_persistent_storage_once_and_each_gives_it_once() {
    let nodes: Vec<_> = (0..6).map(|_| Node::new()).collect();
    let spec = source(&nodes[0], "input", BYTES).await;
    // From the last node to the first: each asks for an object that the one before it does not even
    // expect yet.
    let later: Vec<_> = (1..6)
        .rev()
        .map(|at| begin(&nodes[at], &spec, "1kB/s", &[relay(&nodes[at - 1])]))
        .collect();
    let first = begin(&nodes[0], &spec, "20MB/s", &[]);
    assert_eq!(first.await.unwrap().unwrap().from, FetchSource::Persistent);
    for (fetch, at) in later.into_iter().zip((1..6).rev()) {
        let from = FetchSource::Peer(nodes[at - 1].addr());
        assert_eq!(
            fetch.await.unwrap().unwrap(),
            FetchedObject { from, bytes: BYTES as u64, near_bytes: 0 }
        );
        assert_eq!(nodes[at].get(spec.id()), content(BYTES));
    }
    for (at, node) in nodes.iter().enumerate() {
        assert_eq!(node.server.served().bytes, if at < 5 { BYTES as u64 } else { 0 }, "node {at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_relay_dies_the_rest_goes_on_from_where_it_was() {
    let [root, middle, last] = [(); 3].map(|()| Node::new());
    let spec = source(&root, "input", BYTES).await;
    let first = begin(&root, &spec, "8MB/s", &[]);
    let second = begin(&middle, &spec, "1kB/s", &[relay(&root)]);
    let third = begin(&last, &spec, "1kB/s", &[relay(&middle), relay(&root)]);
    let before = wait_past(&last, &spec, BYTES / 4).await;
    let Node { server, .. } = middle;
    let given = server.served();
    drop(server);
    assert_eq!(third.await.unwrap().unwrap().from, FetchSource::Peer(root.addr()));
    assert_eq!(last.get(spec.id()), content(BYTES));
    for fetch in [first, second] {
        fetch.await.unwrap().unwrap();
    }
    // To the middle all, to the last no more than what it had not had when its relay died.
    assert!(given.bytes <= BYTES as u64);
    let most = BYTES as u64 + (BYTES as u64 - before);
    assert!(
        (BYTES as u64..=most).contains(&root.server.served().bytes),
        "{:?}, at most {most}",
        root.server.served()
    );
}

#[tokio::test]
async fn a_damaged_piece_is_fetched_again_and_no_more_than_that() {
    let [here, liar, honest] = [(); 3].map(|()| Node::new());
    let spec = source(&here, "input", BYTES).await;
    [&liar, &honest].iter().for_each(|node| node.put(spec.id(), &content(BYTES)));
    let bad = in_the_middle(liar.addr(), |at, byte| if at == BYTES / 2 { !byte } else { byte });
    let fetched =
        begin(&here, &spec, "1kB/s", &[holder(bad), holder(honest.addr())]).await.unwrap().unwrap();
    assert_eq!(
        (fetched.from, here.get(spec.id())),
        (FetchSource::Peer(honest.addr()), content(BYTES))
    );
    let again = honest.server.served().bytes as usize;
    assert!((BYTES / 2..BYTES / 2 + PIECE_BYTES).contains(&again), "{again}");
    // It is remembered for a while.
    here.store.remove(spec.id()).unwrap();
    let into = here.store.begin(spec.id(), BYTES as u64, FileMode::READABLE).unwrap();
    let error = here.peers.fetch(bad, into, false, false).await.unwrap_err().error;
    assert_eq!(error.kind, PeerErrorKind::Avoided);
}

#[tokio::test]
async fn a_relay_with_another_content_spoils_nothing() {
    // Its pieces and their checksums agree, but they belong to another object.
    let [here, other, honest] = [(); 3].map(|()| Node::new());
    let spec = source(&here, "input", BYTES).await;
    let mut wrong = content(BYTES);
    wrong[0] ^= 1;
    other.put(spec.id(), &wrong);
    honest.put(spec.id(), &content(BYTES));
    let cut = cut_after(other.addr(), BYTES / 2);
    let holders = [holder(cut), holder(honest.addr())];
    let fetched = begin(&here, &spec, "100MB/s", &holders).await.unwrap().unwrap();
    assert_eq!((fetched.from, here.get(spec.id())), (FetchSource::Persistent, content(BYTES)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_never_gets_the_object_is_not_waited_for_long() {
    let [here, there] = [(); 2].map(|()| Node::new());
    let spec = source(&here, "input", 1_000).await;
    let fetched = begin(&here, &spec, "1GB/s", &[relay(&there)]).await.unwrap().unwrap();
    assert_eq!(fetched.from, FetchSource::Persistent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_hears_nothing_itself_is_left_after_a_while() {
    let short = PeerLimits { relay_patience: Duration::from_millis(1), ..limits() };
    let (here, there) = (Node::with(keys(), short), Node::new());
    let spec = source(&here, "input", 1_000).await;
    let stuck = there.store.begin(spec.id(), 1_000, FileMode::READABLE).unwrap();
    let fetched = begin(&here, &spec, "1GB/s", &[relay(&there)]).await.unwrap().unwrap();
    assert_eq!(fetched.from, FetchSource::Persistent);
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_relay_is_left_for_a_faster_source() {
    let bytes = 60_000_000;
    let [root, slow, last] = [(); 3].map(|()| Node::new());
    let spec = source(&root, "input", bytes).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let narrow = PeerServer::start(
        listener,
        slow.store.clone(),
        keys(),
        limits(),
        (Limiter::unlimited(), Limiter::own(1_000_000)),
    )
    .unwrap();
    let first = begin(&root, &spec, "20MB/s", &[]);
    let second = begin(&slow, &spec, "1kB/s", &[relay(&root)]);
    let narrow_relay = PeerHolder { is_relay: true, ..holder(narrow.addr()) };
    let third = begin(&last, &spec, "1kB/s", &[narrow_relay, relay(&root)]);
    assert_eq!(third.await.unwrap().unwrap().from, FetchSource::Peer(root.addr()));
    assert!(narrow.served().bytes > 0);
    for fetch in [first, second] {
        fetch.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_change_under_the_root_ends_in_no_object_anywhere() {
    let [root, last] = [(); 2].map(|()| Node::new());
    let spec = source(&root, "input", BYTES).await;
    let first = begin(&root, &spec, "8MB/s", &[]);
    let second = begin(&last, &spec, "8MB/s", &[relay(&root)]);
    wait_past(&last, &spec, BYTES / 4).await;
    std::fs::write(root.dir.path().join("input"), vec![9; BYTES]).unwrap();
    for (node, fetch) in [(&root, first), (&last, second)] {
        fetch.await.unwrap().unwrap_err();
        assert!(!node.store.contains(spec.id()));
    }
}

#[tokio::test]
async fn garbage_in_place_of_pieces_is_an_error() {
    let [here, there] = [(); 2].map(|()| Node::new());
    there.put(ID, &content(BYTES));
    // The header of the first piece.
    let garbage =
        in_the_middle_raw(
            there.addr(),
            |at, byte| if (128..132).contains(&at) { 0xff } else { byte },
        );
    let into = here.store.begin(ID, BYTES as u64, FileMode::READABLE).unwrap();
    let broken = here.peers.fetch(garbage, into, false, false).await.unwrap_err();
    assert_eq!(broken.error.kind, PeerErrorKind::Unreachable);
    assert_eq!(broken.rest.unwrap().written_bytes(), 0);
}

/// A proxy that changes content on its way; `change` gets the offset in the content.
fn in_the_middle(
    target: SocketAddr,
    change: impl Fn(usize, u8) -> u8 + Send + 'static,
) -> SocketAddr {
    // Greeting and reply, then pieces with 16 bytes before and 8 behind each.
    const PIECE: usize = PIECE_BYTES;
    in_the_middle_raw(target, move |at, byte| match at.checked_sub(128) {
        Some(at) if (16..16 + PIECE).contains(&(at % (PIECE + 24))) => {
            change(at / (PIECE + 24) * PIECE + at % (PIECE + 24) - 16, byte)
        }
        _ => byte,
    })
}

fn in_the_middle_raw(
    target: SocketAddr,
    change: impl Fn(usize, u8) -> u8 + Send + 'static,
) -> SocketAddr {
    pass(target, usize::MAX, change)
}

fn cut_after(target: SocketAddr, bytes: usize) -> SocketAddr {
    pass(target, bytes, |_, byte| byte)
}

fn pass(
    target: SocketAddr,
    most: usize,
    change: impl Fn(usize, u8) -> u8 + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(target).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let (mut at, mut buffer) = (0, [0; 1 << 16]);
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            let count = count.min(most - at);
            buffer[..count]
                .iter_mut()
                .enumerate()
                .for_each(|(place, byte)| *byte = change(at + place, *byte));
            at += count;
            if client.write_all(&buffer[..count]).is_err() || at == most {
                break;
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
    addr
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_reads_from_a_place_that_lies_is_never_published() {
    let (there, here) = (Node::new(), Node::new());
    let right = content(BYTES);
    let path = here.dir.path().join("right");
    std::fs::write(&path, &right).unwrap();
    let sum = ring::digest::digest(&ring::digest::SHA256, &right);
    let sha256 = Some(Sha256(sum.as_ref().try_into().unwrap()));
    let file = NamedFile { places: Vec::new(), size_bytes: None, sha256, registered_us: 1 };
    let spec = file.object(b"a", BYTES as u64);
    // The relay receives other content of the same size, and notices it at the end.
    let mut arriving = there.store.begin_object(spec.id(), &spec).unwrap();
    arriving.write(&vec![7; BYTES - 1]).unwrap();
    let fetcher =
        Fetcher::new(here.store.clone(), Storage::new(Limits::default()), here.peers.clone());
    let places = PlacesOfFile::untold(vec![format!("file://{}", path.display()).into()]);
    let (wanted, from) = (spec.clone(), relay(&there));
    let fetched = tokio::spawn(async move { fetcher.fetch_from(&wanted, &[from], places).await });
    wait_past(&here, &spec, 0).await;
    arriving.write(&[7]).unwrap();
    assert_eq!(arriving.commit().unwrap_err().kind, StoreErrorKind::WrongContent);
    assert_eq!(fetched.await.unwrap().unwrap().from, FetchSource::Persistent);
    assert_eq!(here.get(spec.id()), right);
    assert_eq!(there.store.presence(spec.id()), Presence::Absent);
}
