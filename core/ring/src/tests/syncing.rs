//! Content that may not be on the disks of its nodes: it is forced there, or the file falls back.

use eyas_types::dfs::Unsynced;

use super::*;
use crate::syncing::MAX_SYNCED_TOGETHER;

const OTHER: NodeId = NodeId(2);

/// A file with these chunks, which may not be on the disks. All of them are at two nodes.
fn unsynced(id: u128, chunks: &[u8]) -> FileRecord {
    let chunks = chunks.iter().map(|object| chunk(*object, &[ME, OTHER])).collect();
    FileRecord { chunks, unsynced: Some(Unsynced::default()), ..record(id, 1) }
}

fn synced(id: u128, chunks: &[u8]) -> FileRecord {
    FileRecord { unsynced: None, ..unsynced(id, chunks) }
}

impl LoneNode {
    /// The chunks under a name; `None` if there is no file.
    fn chunks(&mut self, of: &str) -> Option<Vec<u8>> {
        match self.ask(FileOperation::Stat { name: name(of) }) {
            Ok(FileAnswer::Found { record, .. }) => {
                Some(record.chunks.iter().map(|chunk| chunk.object.0[0]).collect())
            }
            Err(Refusal::NotFound) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Replaces the content of `/a`.
    fn replace(&mut self, record: FileRecord) -> Vec<u8> {
        let Ok(FileAnswer::Found { version, .. }) =
            self.ask(FileOperation::Stat { name: name("a") })
        else {
            panic!()
        };
        let operation = FileOperation::Replace { name: name("a"), version, record };
        dropped(self.run(Event::Requested { request: 7, operation }))
    }

    /// The version and the chunks of which nodes are asked to force them to their disks within this
    /// time.
    fn asked_within(&mut self, us: u64) -> Option<(RecordVersion, Vec<u8>)> {
        self.now_us += us;
        let asked = asked(self.run(Event::Tick));
        assert_eq!(asked.get(&ME), asked.get(&OTHER));
        let [FileChunks { version, objects, .. }] = &asked.get(&ME)?[..] else {
            panic!("{asked:?}")
        };
        Some((*version, objects.iter().map(|object| object.0[0]).collect()))
    }

    /// A node answers with chunks that are bad there. Returns the chunks that are deleted on this
    /// node.
    fn answers(&mut self, version: RecordVersion, node: NodeId, bad: &[u8]) -> Vec<u8> {
        let objects = bad.iter().map(|object| ObjectId([*object; 16])).collect();
        let bad = vec![FileChunks { name: name("a"), version, objects }];
        dropped(self.run(Event::Synced { node, bad }))
    }
}

/// What each node is asked to force to its disk. Each node is asked once.
fn asked(effects: Vec<Effect>) -> BTreeMap<NodeId, Vec<FileChunks>> {
    let mut asked = BTreeMap::new();
    for effect in effects {
        if let Effect::Sync { node, files } = effect {
            assert_eq!(asked.insert(node, files), None, "one question for each node");
        }
    }
    asked
}

fn dropped(effects: Vec<Effect>) -> Vec<u8> {
    let dropped = effects.into_iter().filter_map(|effect| match effect {
        Effect::Drop { object } => Some(object.0[0]),
        _ => None,
    });
    dropped.collect()
}

#[test]
fn holes_are_neither_lost_nor_repaired() {
    let mut alone = LoneNode::new();
    let mut record = unsynced(1, &[1]);
    (record.replication, record.chunks[0].replicas) = (1, vec![ME]);
    record.chunks.push(Chunk::hole(5, 0));
    alone.done(FileOperation::Create { name: name("a"), record });
    alone.now_us += 10_000_000;
    let asked = asked(alone.run(Event::Tick));
    let [FileChunks { version, objects, .. }] = &asked[&ME][..] else { panic!("{asked:?}") };
    assert_eq!(objects.len(), 1, "the other chunk is forced to the disk");
    alone.answers(*version, ME, &[]);
    let Ok(FileAnswer::Found { record, .. }) = alone.ask(FileOperation::Stat { name: name("a") })
    else {
        panic!()
    };
    assert_eq!((record.unsynced, record.chunks.len()), (None, 2));
    for _ in 0..3 {
        alone.now_us += 10_000_000;
        let effects = alone.run(Event::Tick);
        let is_repair =
            |effect: &Effect| matches!(effect, Effect::Fetch { .. } | Effect::Search { .. });
        assert!(!effects.iter().any(is_repair), "{effects:?}");
    }
}

#[test]
fn files_that_are_written_at_about_the_same_time_are_synced_together() {
    let mut alone = LoneNode::new();
    for number in 1..11 {
        alone.now_us += 30_000;
        let record = unsynced(number, &[number as u8]);
        alone.done(FileOperation::Create { name: name(&format!("{number}")), record });
        assert!(asked(alone.run(Event::Tick)).is_empty(), "more may be written");
    }
    let mut questions = Vec::new();
    for _ in 0..30 {
        alone.now_us += 100_000;
        let files = asked(alone.run(Event::Tick));
        assert_eq!(files.get(&ME), files.get(&OTHER));
        questions.extend(files.into_values().next());
    }
    assert_eq!(
        questions.iter().map(Vec::len).collect::<Vec<_>>(),
        [10],
        "one question for all of them"
    );
    let bad: Vec<FileChunks> = questions
        .remove(0)
        .into_iter()
        .map(|file| FileChunks { objects: vec![], ..file })
        .collect();
    alone.run(Event::Synced { node: OTHER, bad: bad.clone() });
    let saved = alone
        .run(Event::Synced { node: ME, bad })
        .into_iter()
        .filter(|effect| matches!(effect, Effect::Save(_)));
    assert_eq!(saved.count(), 10, "one answer settles all of them");
}

#[test]
fn questions_about_many_files_are_bounded() {
    let mut alone = LoneNode::new();
    for number in 0..MAX_SYNCED_TOGETHER + 1 {
        let record = unsynced(number as u128, &[1]);
        alone.done(FileOperation::Create { name: name(&format!("{number}")), record });
    }
    alone.now_us += 10_000_000;
    let counts = [(); 3].map(|()| {
        let files = asked(alone.run(Event::Tick)).get(&ME).map_or(0, Vec::len);
        alone.now_us += 100_000;
        files
    });
    assert_eq!(counts, [MAX_SYNCED_TOGETHER, 1, 0]);
}

#[test]
fn old_chunks_stay_until_new_ones_are_on_enough_disks() {
    let mut alone = LoneNode::new();
    alone.done(FileOperation::Create { name: name("a"), record: synced(1, &[1, 2]) });
    assert_eq!(alone.asked_within(10_000_000), None, "all of it is there");
    assert_eq!(alone.replace(unsynced(1, &[1, 3])), [], "nothing is deleted");
    assert_eq!(alone.replace(unsynced(1, &[1, 4])), [3], "but what is between");
    assert_eq!(alone.chunks("a"), Some(vec![1, 4]));
    assert_eq!(alone.asked_within(100_000), None, "more may be written");
    let (version, asked) = alone.asked_within(5_000_000).unwrap();
    assert_eq!(asked, [4], "the other chunk is there");
    assert_eq!(alone.asked_within(100_000), None);
    assert_eq!(alone.answers(version, ME, &[]), [], "one node is not enough");
    assert_eq!(alone.asked_within(30_000_000).unwrap().0, version, "an answer may be lost");
    assert_eq!(alone.answers(version, OTHER, &[]), [2]);
    assert_eq!((alone.chunks("a"), alone.asked_within(60_000_000)), (Some(vec![1, 4]), None));
}

#[test]
fn a_file_whose_new_content_is_lost_falls_back() {
    let mut alone = LoneNode::new();
    alone.done(FileOperation::Create { name: name("a"), record: synced(1, &[1, 2]) });
    alone.replace(unsynced(1, &[1, 3]));
    let (version, _) = alone.asked_within(5_000_000).unwrap();
    assert_eq!(alone.answers(version, ME, &[3]), [], "the other node may have it");
    assert_eq!(alone.chunks("a"), Some(vec![1, 3]));
    assert_eq!(alone.answers(version, OTHER, &[3]), [3]);
    assert_eq!(alone.chunks("a"), Some(vec![1, 2]));
    // A new file has nothing to fall back to.
    alone.done(FileOperation::Remove { name: name("a"), id: FileId(1) });
    alone.done(FileOperation::Create { name: name("a"), record: unsynced(2, &[5]) });
    let (version, _) = alone.asked_within(5_000_000).unwrap();
    alone.answers(version, OTHER, &[5]);
    assert_eq!(alone.answers(version, ME, &[5]), [5]);
    assert_eq!(alone.chunks("a"), None);
}

#[test]
fn nodes_that_have_just_started_are_asked_again_soon() {
    let mut alone = LoneNode::new();
    alone.done(FileOperation::Create { name: name("a"), record: unsynced(1, &[1]) });
    let (version, _) = alone.asked_within(5_000_000).unwrap();
    alone.answers(version, ME, &[1]);
    // The other node has not heard it.
    for us in [2_100_000, 4_100_000, 8_100_000] {
        assert_eq!(alone.asked_within(us / 2), None, "{us}");
        assert_eq!(alone.asked_within(us / 2), Some((version, vec![1])), "{us}");
    }
    alone.answers(version, OTHER, &[1]);
    assert_eq!(alone.chunks("a"), None);
}

#[test]
fn a_reader_that_finds_a_bad_replica_has_all_nodes_asked() {
    let mut alone = LoneNode::new();
    alone.done(FileOperation::Create { name: name("a"), record: unsynced(1, &[1]) });
    let bad = |node| Event::BadReplicas { name: name("a"), objects: vec![ObjectId([1; 16])], node };
    alone.run(bad(ME));
    alone.run(bad(OTHER));
    let (version, asked) = alone.asked_within(100_000).expect("at once");
    // A node that had just started has recorded the chunk after all. The other one fetches it
    // again.
    alone.answers(version, ME, &[1]);
    assert_eq!((alone.answers(version, OTHER, &[]), asked), (vec![], vec![1]));
    let Ok(FileAnswer::Found { record, .. }) = alone.ask(FileOperation::Stat { name: name("a") })
    else {
        panic!()
    };
    assert_eq!((record.unsynced, &record.chunks[..]), (None, &[chunk(1, &[OTHER])][..]));
}

#[test]
fn a_rename_takes_along_what_a_file_falls_back_to() {
    for (own, over, expected) in
        [(&[][..], &[9][..], Some(vec![9])), (&[1], &[9], Some(vec![1])), (&[], &[], None)]
    {
        let mut alone = LoneNode::new();
        let mut version =
            alone.done(FileOperation::Create { name: name("b"), record: unsynced(1, &[3]) });
        if !own.is_empty() {
            alone.done(FileOperation::Remove { name: name("b"), id: FileId(1) });
            let first =
                alone.done(FileOperation::Create { name: name("b"), record: synced(2, own) });
            let record = unsynced(2, &[3]);
            version =
                alone.done(FileOperation::Replace { name: name("b"), version: first, record });
        }
        if !over.is_empty() {
            alone.done(FileOperation::Create { name: name("a"), record: synced(3, over) });
        }
        let id = FileId(if own.is_empty() { 1 } else { 2 });
        let (from, to, over) = (name("b"), name("a"), Replaceable::File);
        alone.done(FileOperation::Rename { from, version, id, to, over });
        let (version, _) = alone.asked_within(5_000_000).unwrap();
        alone.answers(version, ME, &[3]);
        alone.answers(version, OTHER, &[3]);
        assert_eq!(alone.chunks("a"), expected);
    }
}
