//! A node receives the object that it expects from any client, and relays it while it arrives.

mod cluster;

use std::sync::Arc;

use cluster::{ID, Node, content};
use eyas_store::Checksum;
use eyas_transfer::PeerErrorKind;
use eyas_types::{FileMode, ObjectId};

#[tokio::test]
async fn an_expected_object_is_accepted() {
    let (there, here) = (Node::new(), Node::new());
    for (number, size) in [0, 1, 128 << 10, (128 << 10) + 1, 5_000_000].into_iter().enumerate() {
        let (id, content) = (ObjectId([number as u8; 16]), content(size));
        let expected =
            there.server.expect(there.store.begin(id, size as u64, FileMode::READABLE).unwrap());
        here.peers.push(there.addr(), id, Arc::new(content.clone())).await.unwrap();
        assert_eq!(expected.stored().await, Some(Checksum::of(&content)));
        assert_eq!(there.get(id), content);
    }
}

#[tokio::test]
async fn an_unexpected_object_is_refused() {
    let (there, here) = (Node::new(), Node::new());
    let push = |size| here.peers.push(there.addr(), ID, Arc::new(content(size)));
    assert_eq!(push(10).await.unwrap_err().kind, PeerErrorKind::NotHere);
    drop(there.server.expect(there.store.begin(ID, 10, FileMode::READABLE).unwrap()));
    assert_eq!(push(10).await.unwrap_err().kind, PeerErrorKind::NotHere, "no longer expected");
    let expected = there.server.expect(there.store.begin(ID, 10, FileMode::READABLE).unwrap());
    assert_eq!(push(9).await.unwrap_err().kind, PeerErrorKind::NotHere, "another size");
    assert!(!there.store.contains(ID));
    push(10).await.unwrap();
    assert!(expected.stored().await.is_some());
    assert_eq!(push(10).await.unwrap_err().kind, PeerErrorKind::NotHere, "once");
}

#[tokio::test]
async fn a_push_is_relayed_while_it_comes() {
    let nodes = [Node::new(), Node::new(), Node::new()];
    let content = content(20_000_000);
    let begin =
        |node: &Node| node.store.begin(ID, content.len() as u64, FileMode::READABLE).unwrap();
    let expected = nodes[0].server.expect(begin(&nodes[0]));
    let (first, second) = (nodes[1].peers.clone(), nodes[2].peers.clone());
    let (into_first, into_second) = (begin(&nodes[1]), begin(&nodes[2]));
    let (from_first, from_second) = (nodes[0].addr(), nodes[1].addr());
    let chain = [
        tokio::spawn(async move { first.fetch(from_first, into_first, true, false).await }),
        tokio::spawn(async move { second.fetch(from_second, into_second, true, false).await }),
    ];
    nodes[2].peers.push(nodes[0].addr(), ID, Arc::new(content.clone())).await.unwrap();
    assert!(expected.stored().await.is_some());
    for link in chain {
        link.await.unwrap().unwrap();
    }
    for node in &nodes {
        assert_eq!(node.get(ID), content);
    }
}

#[tokio::test]
async fn an_interrupted_push_continues_where_it_stopped() {
    let (there, here) = (Node::new(), Node::new());
    let content = content(1_000_000);
    let mut into = there.store.begin(ID, content.len() as u64, FileMode::READABLE).unwrap();
    into.write(&content[..600_000]).unwrap();
    let expected = there.server.expect(into);
    // The first part differs, which only the checksum of the whole shows.
    let mut other = content.clone();
    other[0] ^= 1;
    assert!(here.peers.push(there.addr(), ID, Arc::new(other)).await.is_err());
    assert_eq!(expected.stored().await, None);
    here.peers.forgive(there.addr());
    let mut into = there.store.begin(ID, content.len() as u64, FileMode::READABLE).unwrap();
    into.write(&content[..600_000]).unwrap();
    let expected = there.server.expect(into);
    here.peers.push(there.addr(), ID, Arc::new(content.clone())).await.unwrap();
    assert_eq!(expected.stored().await, Some(Checksum::of(&content)));
    assert_eq!(there.get(ID), content);
}
