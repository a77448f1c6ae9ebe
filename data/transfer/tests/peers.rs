//! Two nodes: one fetches the objects of the other, strangers get nothing, and damaged objects are
//! not sent.

mod cluster;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cluster::{DEADLINE, ID, Node, content, keys, limits, plain, strange, tell};
use eyas_session::{Access, Authority, DataKeys};
use eyas_store::{Checksum, Limiter, ObjectStore};
use eyas_transfer::{PeerErrorKind, PeerLimits, PeerServer, Peers};
use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_types::{FileMode, ObjectId};
use eyas_wire::DataMode;
use eyas_wire::trust::{Trust, TrustRefusal};

/// The TLS alert that a stranger gets when the connection is closed.
const ALERT_BYTES: usize = 7;

#[tokio::test]
async fn an_object_of_any_size_comes_whole() {
    let (there, here) = (Node::new(), Node::new());
    for (number, size) in [0, 1, 128 << 10, (128 << 10) + 1, 5_000_000].into_iter().enumerate() {
        let (id, content) = (ObjectId([number as u8; 16]), content(size));
        there.put(id, &content);
        let fetched = here.fetch(there.addr(), id, size).await.unwrap();
        assert_eq!((fetched, here.get(id)), (Checksum::of(&content), content));
    }
    assert_eq!(there.server.served().count, 5);
    assert_eq!(there.server.served().bytes, here.store.total_bytes());
}

#[tokio::test]
async fn ranges_have_checksums_of_their_own() {
    let (there, here) = (Node::new(), Node::new());
    let content = content(1_000_000);
    there.put(ID, &content);
    for (offset, length) in [(0, 1), (10, 700_000), (999_999, 1), (0, 1_000_000), (1_000_000, 0)] {
        let range = here.peers.read_range(there.addr(), ID, offset, length).await.unwrap();
        assert_eq!(range, content[offset as usize..(offset + length) as usize]);
    }
    for (offset, length) in [(0, 1_000_001), (1_000_001, 0), (999_999, 2), (u64::MAX - 5, 10)] {
        let error = here.peers.read_range(there.addr(), ID, offset, length).await.unwrap_err();
        assert_eq!(error.kind, PeerErrorKind::NotHere, "{offset} {length}");
    }
}

#[tokio::test]
async fn a_wrong_hint_is_an_answer_and_the_connection_stays() {
    let (there, here) = (Node::new(), Node::new());
    for _ in 0..3 {
        let error = here.fetch(there.addr(), ID, 3).await.unwrap_err();
        assert_eq!(error.kind, PeerErrorKind::NotHere);
        assert!(error.message.contains(&there.addr().to_string()), "{error}");
    }
    there.put(ID, b"now");
    here.fetch(there.addr(), ID, 3).await.unwrap();
}

#[tokio::test]
async fn damaged_objects_are_not_kept_and_not_spread() {
    let (there, here) = (Node::new(), Node::new());
    there.put(ID, &content(300_000));
    there.damage(ID);
    let error = here.fetch(there.addr(), ID, 300_000).await.unwrap_err();
    assert_eq!(error.kind, PeerErrorKind::Corrupt);
    assert_eq!((here.store.len(), here.partial_files()), (0, 0));
    let again = here.fetch(there.addr(), ID, 300_000).await.unwrap_err();
    assert_eq!(again.kind, PeerErrorKind::Avoided, "{again}");
    assert!(again.message.contains("damaged"), "{again}");

    // After a restart, the server verifies an object before it sends it.
    let Node { dir, store, server, .. } = there;
    drop((store, server));
    let store = reopen(&dir.path().join("store"));
    let server = serve(store.clone(), limits());
    let other = Node::new();
    let error = other.fetch(server.addr(), ID, 300_000).await.unwrap_err();
    assert_eq!((error.kind, store.contains(ID)), (PeerErrorKind::NotHere, false));
}

#[tokio::test]
async fn an_input_that_a_task_wrote_to_is_not_served() {
    let (there, here) = (Node::new(), Node::new());
    there.put(ID, b"input");
    let staged = there.dir.path().join("staged");
    there.store.stage(ID, &staged).unwrap();
    std::fs::File::options()
        .write(true)
        .open(there.object_file(ID))
        .map(|mut file| file.write_all(b"INPUT"))
        .ok();
    std::fs::File::open(&staged).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let error = here.fetch(there.addr(), ID, 5).await.unwrap_err();
    assert_eq!((error.kind, there.store.contains(ID)), (PeerErrorKind::NotHere, false));
}

#[tokio::test]
async fn another_size_than_expected_is_not_the_object() {
    let (there, here) = (Node::new(), Node::new());
    there.put(ID, b"four");
    let error = here.fetch(there.addr(), ID, 5).await.unwrap_err();
    assert_eq!((error.kind, here.store.len()), (PeerErrorKind::OtherVersion, 0));
    // It is another version, and no damage: the peer is not avoided.
    here.fetch(there.addr(), ID, 4).await.unwrap();
}

#[tokio::test]
async fn without_the_key_the_port_says_nothing() {
    for keys in [plain(), keys()] {
        let (there, mode) = (Node::with(keys.clone(), limits()), keys.mode());
        there.put(ID, b"secret");
        let most = if mode == DataMode::Plain { 0 } else { ALERT_BYTES };
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n and so on, more than a message"[..],
            &[0; 64],
            &[0xff; 1000],
        ] {
            assert!(tell(there.addr(), garbage).len() <= most, "{mode:?}");
        }
        let stranger = Node::with(strange(mode), limits());
        let error = stranger.fetch(there.addr(), ID, 6).await.unwrap_err();
        assert_eq!(error.kind, PeerErrorKind::Unreachable);
        assert_eq!(there.server.served().count, 0);
    }
}

#[tokio::test]
async fn nodes_that_do_not_move_data_alike_say_what_may_be_wrong() {
    let (encrypted, plain) = (Node::new(), Node::with(plain(), limits()));
    for (there, here) in [(&encrypted, &plain), (&plain, &encrypted)] {
        there.put(ID, b"x");
        let error = here.fetch(there.addr(), ID, 1).await.unwrap_err();
        assert_eq!(error.kind, PeerErrorKind::Unreachable);
        assert!(error.message.contains("--plain-data"), "{error}");
    }
}

#[tokio::test]
async fn transfers_are_encrypted_unless_the_cluster_disables_it() {
    let secret = b"the position of every star".repeat(10_000);
    for (keys, is_seen) in [(keys(), false), (plain(), true)] {
        let (there, here) = (Node::with(keys.clone(), limits()), Node::with(keys, limits()));
        there.put(ID, &secret);
        let (addr, recording) = record(there.addr());
        here.fetch(addr, ID, secret.len()).await.unwrap();
        let pushed = ObjectId([7; 16]);
        let expected = there
            .server
            .expect(there.store.begin(pushed, secret.len() as u64, FileMode::READABLE).unwrap());
        here.peers.push(addr, pushed, Arc::new(secret.clone())).await.unwrap();
        assert!(expected.stored().await.is_some());
        drop((there, here));
        for said in recording.join().unwrap() {
            assert!(said.len() > secret.len(), "one way it was fetched, the other way pushed");
            assert_eq!(said.windows(20).any(|part| part == &secret[..20]), is_seen);
        }
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_gets_nothing_on_its_open_connection_either() {
    let authority = Authority::create();
    let trust = Trust { data: vec![[1; 32]], ..Trust::default() };
    let access = |id, role| {
        let own = authority.issue(Principal::Key(KeyId(id), role)).unwrap();
        Access::new("test", "127.0.0.1:1", authority.certificate(), own, trust.clone()).unwrap()
    };
    let (node, reader) = (access(1, KeyRole::Executor), access(2, KeyRole::Read));
    let [there, here] = [&node, &reader].map(|access| Node::with(DataKeys::of(access), limits()));
    there.put(ID, b"x");
    here.fetch(there.addr(), ID, 1).await.unwrap();
    here.store.remove(ID).unwrap();
    node.credentials().learn(Trust { dead: [(KeyId(2), TrustRefusal::Revoked)].into(), ..trust });
    let error = here.fetch(there.addr(), ID, 1).await.unwrap_err();
    assert_eq!(
        (error.kind, there.server.served().count),
        (PeerErrorKind::Unreachable, 1),
        "{error}"
    );
}

#[tokio::test]
async fn a_recorded_conversation_cannot_be_played_again() {
    let (there, here) = (Node::with(plain(), limits()), Node::with(plain(), limits()));
    there.put(ID, b"secret");
    // A proxy that records what the client sends.
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, target) = (middle.local_addr().unwrap(), there.addr());
    let recording = std::thread::spawn(move || {
        let (mut client, _) = middle.accept().unwrap();
        let mut server = TcpStream::connect(target).unwrap();
        let mut said = vec![0; 128];
        let mut answer = [0; 64];
        client.read_exact(&mut said[..64]).unwrap();
        server.write_all(&said[..64]).unwrap();
        server.read_exact(&mut answer).unwrap();
        client.write_all(&answer).unwrap();
        client.read_exact(&mut said[64..]).unwrap();
        server.write_all(&said[64..]).unwrap();
        std::io::copy(&mut (&server).take(64 + 16 + 6 + 8), &mut client).unwrap();
        said
    });
    here.fetch(addr, ID, 6).await.unwrap();
    let said = recording.join().unwrap();
    // The hello alone gets a welcome, which has a new nonce. The recorded request is not valid for
    // it.
    assert_eq!(tell(there.addr(), &said).len(), 64);
    // The server counts what it has sent.
    let deadline = Instant::now() + DEADLINE;
    while there.server.served().count == 0 && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    assert_eq!(there.server.served().count, 1);
}

#[tokio::test]
async fn the_silent_and_the_slow_are_dropped() {
    let short = PeerLimits {
        handshake_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        stall_timeout: Duration::from_secs(2),
        ..limits()
    };
    let (there, here) = (Node::with(keys(), short), Node::with(keys(), short));
    assert_eq!(tell(there.addr(), b""), b"");
    assert_eq!(tell(there.addr(), b"\x16\x03\x01\x02\x00half a hello"), b"");
    // A kept connection that the server has closed is replaced.
    there.put(ID, b"x");
    here.fetch(there.addr(), ID, 1).await.unwrap();

    // A client does not wait for ever for a peer that accepts and is silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let fetch = here.fetch(silent.local_addr().unwrap(), ID, 1);
    let error = tokio::time::timeout(DEADLINE, fetch).await.expect("it gives up").unwrap_err();
    assert_eq!(error.kind, PeerErrorKind::Unreachable);
    let again = here.fetch(silent.local_addr().unwrap(), ID, 1).await.unwrap_err();
    assert_eq!(again.kind, PeerErrorKind::Avoided);
}

#[tokio::test]
async fn strangers_cannot_use_up_the_limit_of_connections() {
    let (there, here) = (Node::new(), Node::new());
    there.put(ID, b"x");
    // Half of them begin a hello.
    let connect = |number: usize| {
        let mut stranger = TcpStream::connect(there.addr()).unwrap();
        stranger.write_all(&b"eyas"[..number % 2 * 4]).unwrap();
        stranger
    };
    let strangers: Vec<_> = (0..700).map(connect).collect();
    here.fetch(there.addr(), ID, 1).await.unwrap();
    let mut oldest = &strangers[0];
    oldest.set_read_timeout(Some(DEADLINE)).unwrap();
    assert!(matches!(oldest.read(&mut [0]), Ok(0)), "it was not displaced");
}

#[tokio::test]
async fn a_server_with_too_many_connections_says_so() {
    let few = PeerLimits { max_connections: 1, ..limits() };
    let (there, first, second) = (Node::with(keys(), few), Node::new(), Node::new());
    there.put(ID, b"x");
    first.fetch(there.addr(), ID, 1).await.unwrap();
    // The first keeps its connection for its next request.
    let error = second.fetch(there.addr(), ID, 1).await.unwrap_err();
    assert_eq!(error.kind, PeerErrorKind::Busy);
    // Once the first is gone, there is room again. A busy peer is not avoided.
    drop(first);
    let deadline = Instant::now() + DEADLINE;
    while let Err(error) = second.fetch(there.addr(), ID, 1).await {
        assert_eq!(error.kind, PeerErrorKind::Busy);
        assert!(Instant::now() < deadline, "the connection was never returned");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_peer_that_stops_in_the_middle_leaves_nothing() {
    let here = Node::new();
    let there = Node::new();
    there.put(ID, &content(1_000_000));
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, target) = (middle.local_addr().unwrap(), there.addr());
    std::thread::spawn(move || {
        let (mut client, _) = middle.accept().unwrap();
        let server = TcpStream::connect(target).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        std::io::copy(&mut server.take(500_000), &mut client).unwrap();
        client.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let error = here.fetch(addr, ID, 1_000_000).await.unwrap_err();
    assert_eq!(error.kind, PeerErrorKind::Unreachable, "{error}");
    assert_eq!((here.store.len(), here.partial_files()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_transfers_share_few_connections() {
    let two = PeerLimits { max_connections: 2, max_transfers_per_peer: 2, ..limits() };
    let (there, here) = (Node::with(keys(), two), Node::with(keys(), two));
    let mut fetches = tokio::task::JoinSet::new();
    for number in 0..40u8 {
        let id = ObjectId([number; 16]);
        there.put(id, &content(100_000));
        let (peers, addr) = (here.peers.clone(), there.addr());
        let into = here.store.begin(id, 100_000, FileMode::READABLE).unwrap();
        fetches.spawn(async move { peers.fetch(addr, into, false, false).await });
    }
    // A third connection would have been told that the server is busy.
    fetches
        .join_all()
        .await
        .into_iter()
        .for_each(|fetched| assert!(fetched.is_ok(), "{fetched:?}"));
    assert_eq!(here.store.len(), 40);
}

#[tokio::test]
async fn a_stopped_server_is_gone() {
    let (there, here) = (Node::new(), Node::new());
    there.put(ID, b"x");
    here.fetch(there.addr(), ID, 1).await.unwrap();
    let Node { server, .. } = there;
    let addr = server.addr();
    drop(server);
    assert_eq!(here.fetch(addr, ID, 1).await.unwrap_err().kind, PeerErrorKind::Unreachable);
    assert!(TcpStream::connect(addr).is_err());
}

#[tokio::test]
async fn links_go_at_their_rate_both_ways() {
    let there = Node::new();
    there.put(ID, &content(2_000_000));
    let slow = || Limiter::own(20_000_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = PeerServer::start(
        listener,
        there.store.clone(),
        keys(),
        limits(),
        (Limiter::unlimited(), slow()),
    )
    .unwrap();
    let here = Node::new();
    for (addr, link_in) in [(server.addr(), Limiter::unlimited()), (there.addr(), slow())] {
        let peers = Peers::new(keys(), limits(), link_in);
        let started = Instant::now();
        let into = here.store.begin(ID, 2_000_000, FileMode::READABLE).unwrap();
        peers.fetch(addr, into, false, false).await.unwrap();
        // 100 ms, less the slack of an idle link. The upper limit depends on the machine.
        assert!(started.elapsed() >= Duration::from_millis(85), "{:?}", started.elapsed());
        here.store.remove(ID).unwrap();
    }
}

/// A proxy for one connection to `target`: returns what both sides have sent, once the connection
/// has ended.
fn record(target: SocketAddr) -> (SocketAddr, JoinHandle<[Vec<u8>; 2]>) {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = middle.local_addr().unwrap();
    let carry = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let (mut said, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                said.extend_from_slice(&buffer[..count]);
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
            said
        })
    };
    let recording = std::thread::spawn(move || {
        let (client, _) = middle.accept().unwrap();
        let server = TcpStream::connect(target).unwrap();
        let there = carry(client.try_clone().unwrap(), server.try_clone().unwrap());
        [there, carry(server, client)].map(|carried| carried.join().unwrap())
    });
    (addr, recording)
}

/// Opens the store again once the threads of the old server have seen that their connections are
/// cut.
fn reopen(dir: &std::path::Path) -> ObjectStore {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match ObjectStore::open(dir) {
            Ok((store, _)) => return store,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}

fn serve(store: ObjectStore, limits: PeerLimits) -> PeerServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    PeerServer::start(listener, store, keys(), limits, (Limiter::unlimited(), Limiter::unlimited()))
        .unwrap()
}
