//! Sparse objects: their holes are neither sent nor filled.

mod cluster;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use cluster::{Node, holder, keys, limits, plain};
use eyas_store::{Limits, Storage, url_of};
use eyas_transfer::{FetchSource, Fetcher, PeerHolder};
use eyas_types::{FileMode, JobId, ObjectSpec, TaskId};

const SIZE_BYTES: u64 = 1 << 30;
/// Begins and ends within pieces.
const DATA_AT: u64 = 300_000_000;
const DATA: &[u8] = &[7; 1_000_000];

fn make_sparse(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(SIZE_BYTES).unwrap();
    file.write_all_at(DATA, DATA_AT).unwrap();
    file.write_all_at(b"start", 0).unwrap();
}

fn space_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn assert_is_sparse(node: &Node, path: &Path) {
    let (bytes, limit) = (space_bytes(path), 4 * DATA.len() as u64);
    assert!(bytes < limit, "{} has {bytes} bytes on the disk", path.display());
    let file = File::open(path).unwrap();
    let mut content = vec![0; DATA.len() + 2];
    file.read_exact_at(&mut content, DATA_AT - 1).unwrap();
    assert!(content[0] == 0 && content[1..=DATA.len()] == *DATA && content[DATA.len() + 1] == 0);
    file.read_exact_at(&mut content[..6], 0).unwrap();
    assert_eq!(content[..6], *b"start\0");
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
    assert!(node.store.total_bytes() >= SIZE_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_stay_on_the_way_from_node_to_node_and_are_not_sent() {
    for keys in [keys(), plain()] {
        let [there, here] = [(); 2].map(|()| Node::with(keys.clone(), limits()));
        let path = there.dir.path().join("output");
        make_sparse(&path);
        if space_bytes(&path) >= SIZE_BYTES {
            eprintln!("skipped: files on {} have no holes", path.display());
            return;
        }
        let task = TaskId { job: JobId(1), index: 0 };
        let name =
            |size_bytes, _, _| ObjectSpec::kept(task, "output", size_bytes, "", FileMode::READABLE);
        let id = there.store.adopt(&path, name).unwrap().id();
        let checksum = here.fetch(there.addr(), id, SIZE_BYTES as usize).await.unwrap();
        assert_eq!(checksum, there.store.open_object(id).unwrap().checksum);
        assert_is_sparse(&here, &here.object_file(id));
        let sent_bytes = there.server.served().bytes;
        assert!(sent_bytes < 2 * DATA.len() as u64, "{sent_bytes}");

        // Its last piece is shorter, and so is a range.
        for (offset, length) in
            [(DATA_AT - 500_000, 900_000), (SIZE_BYTES - 1_000_001, 1_000_001), (1, 3)]
        {
            let range = here.peers.read_range(there.addr(), id, offset, length).await.unwrap();
            let mut expected = vec![0; length as usize];
            File::open(there.object_file(id))
                .unwrap()
                .read_exact_at(&mut expected, offset)
                .unwrap();
            assert!(range == expected, "{offset}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_passes_on_holes_of_a_sparse_input() {
    let [first, second] = [(); 2].map(|()| Node::new());
    let path = first.dir.path().join("input");
    make_sparse(&path);
    if space_bytes(&path) >= SIZE_BYTES {
        eprintln!("skipped: files on {} have no holes", path.display());
        return;
    }
    let storage = Storage::new(Limits::default());
    let spec = storage.stat(&url_of(path.to_str().unwrap()).unwrap()).await.unwrap();
    let fetch = |node: &Node, holders: Vec<PeerHolder>| {
        let fetcher = Fetcher::new(node.store.clone(), storage.clone(), node.peers.clone());
        let spec = spec.clone();
        async move { fetcher.fetch(&spec, &holders).await.unwrap().from }
    };
    let relay = PeerHolder { is_relay: true, ..holder(first.addr()) };
    let from = tokio::join!(fetch(&second, vec![relay]), fetch(&first, vec![]));
    assert_eq!(from, (FetchSource::Peer(first.addr()), FetchSource::Persistent));
    for node in [&first, &second] {
        assert_is_sparse(node, &node.object_file(spec.id()));
    }
}
