//! A single node, which is a quorum by itself: the result of each request.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use eyas_types::ObjectId;
use eyas_types::dfs::{
    Attributes, Chunk, FileId, FileKind, FileName, FileRecord, FileSystemId, Format,
    NamedAttributes, NamedChange, NodeId, SetCondition,
};

use crate::event::{
    Config, Effect, Event, FileAnswer, FileChunks, FileOperation, ListDepth, PersistentState,
    Refusal, Replaceable, Save,
};
use crate::folder_use::MAX_NAMES_READ;
use crate::lost::MAX_LOST;
use crate::message::{MessageBody, RingMessage};
use crate::node::RingNode;
use crate::record::{NameEntry, RecordVersion, Records, Round, Stored};
use crate::ring::Ring;
use crate::serve::MAX_PENDING_REQUESTS;
use crate::view::View;

mod syncing;

#[derive(Default)]
struct SavedRecords(BTreeMap<(u16, String), Stored>);

impl Records for SavedRecords {
    fn get(&self, partition: u16, name: &FileName) -> Option<Stored> {
        self.0.get(&(partition, name.as_str().to_owned())).cloned()
    }

    fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)> {
        let ((of, name), stored) = self.0.range((partition, from.to_owned())..).next()?;
        (*of == partition).then(|| (name.parse().unwrap(), stored.clone()))
    }
}

struct LoneNode {
    node: RingNode,
    saves: SavedRecords,
    now_us: u64,
}

const ME: NodeId = NodeId(1);
const SYSTEM: FileSystemId = FileSystemId(1);

impl LoneNode {
    fn new() -> Self {
        let config = Config { found: true, partitions: 4, ..Config::new(SYSTEM, ME) };
        let mut effects = Vec::new();
        let node = RingNode::new(config, PersistentState::default(), 0, &mut effects);
        assert_eq!(effects[0], Effect::Save(Save::Boots(1)));
        let mut alone = LoneNode { node, saves: SavedRecords::default(), now_us: 0 };
        alone.run(Event::Tick);
        alone
    }

    fn run(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.node.handle(self.now_us, event, &self.saves, &mut effects);
        self.node.validate();
        for effect in &effects {
            match effect {
                Effect::Save(Save::Record { partition, name, stored }) => {
                    self.saves.0.insert((*partition, name.as_str().to_owned()), stored.clone());
                }
                Effect::Save(Save::Erase { partition, name }) => {
                    self.saves.0.remove(&(*partition, name.as_str().to_owned()));
                }
                _ => {}
            }
        }
        effects
    }

    fn ask(&mut self, operation: FileOperation) -> Result<FileAnswer, Refusal> {
        let effects = self.run(Event::Requested { request: 7, operation });
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { request: 7, answer } => Some(answer),
            _ => None,
        });
        answer.expect("it is alone, and answers at once")
    }

    fn done(&mut self, operation: FileOperation) -> RecordVersion {
        match self.ask(operation.clone()) {
            Ok(FileAnswer::Done { version }) => version,
            other => panic!("{other:?} to {operation:?}"),
        }
    }
}

fn name(text: &str) -> FileName {
    text.parse().unwrap()
}

fn record(id: u128, modified_us: u64) -> FileRecord {
    let attributes = Attributes { modified_ns: modified_us, ..Attributes::default() };
    let record = FileRecord::without_content(FileId(id), FileKind::File, attributes);
    FileRecord { format: Format::Lines.into(), chunk_bytes: 1, replication: 2, ..record }
}

fn chunk(object: u8, replicas: &[NodeId]) -> Chunk {
    Chunk {
        object: ObjectId([object; 16]),
        size_bytes: 1,
        checksum: 0,
        replicas: replicas.to_vec(),
    }
}

#[test]
fn each_request_can_be_asked_again() {
    let mut alone = LoneNode::new();
    let create = |id| FileOperation::Create { name: name("a"), record: record(id, 1) };
    let first = alone.done(create(1));
    assert_eq!(alone.done(create(1)), first);
    assert_eq!(alone.ask(create(2)), Err(Refusal::Exists { id: FileId(1), is_folder: false }));

    let other = FileRecord { chunks: vec![chunk(1, &[ME])], ..record(1, 1) };
    let other = FileOperation::Create { name: name("a"), record: other };
    assert_eq!(
        alone.ask(other),
        Err(Refusal::Exists { id: FileId(1), is_folder: false }),
        "it has other content"
    );

    let replace =
        |version, at| FileOperation::Replace { name: name("a"), version, record: record(1, at) };
    let second = alone.done(replace(first, 2));
    assert!(second > first);
    assert_eq!(alone.done(replace(first, 2)), second);
    assert_eq!(alone.ask(replace(first, 3)), Err(Refusal::Changed));

    let rename = |to| {
        let over = Replaceable::Nothing;
        FileOperation::Rename {
            from: name("a"),
            version: second,
            id: FileId(1),
            to: name(to),
            over,
        }
    };
    let third = alone.done(rename("b"));
    assert_eq!(alone.done(rename("b")), third);
    assert_eq!(alone.ask(rename("c")), Err(Refusal::Changed), "it is there no more");
    assert_eq!(alone.ask(FileOperation::Stat { name: name("a") }), Err(Refusal::NotFound));
    assert_eq!(alone.ask(create(1)), Err(Refusal::Changed), "it was here, and this comes late");
    assert_eq!(
        alone.ask(FileOperation::Stat { name: name("b") }),
        Ok(FileAnswer::Found { version: third, record: record(1, 2) })
    );

    let remove = |at, id| FileOperation::Remove { name: name(at), id: FileId(id) };
    assert_eq!(alone.ask(remove("a", 1)), Err(Refusal::NotFound), "it has another name");
    assert_eq!(alone.ask(remove("b", 2)), Err(Refusal::Changed));
    let fourth = alone.done(remove("b", 1));
    assert_eq!(alone.done(remove("b", 1)), fourth);
    assert_eq!(alone.ask(replace(second, 9)), Err(Refusal::NotFound));
}

#[test]
fn a_rename_replaces_an_entry_of_its_kind_and_deletes_the_chunks_of_that_entry() {
    let mut alone = LoneNode::new();
    let with = |id, object| FileRecord { chunks: vec![chunk(object, &[ME])], ..record(id, 1) };
    let folder = |id| FileRecord { kind: FileKind::Folder, ..record(id, 1) };
    let version = alone.done(FileOperation::Create { name: name("a"), record: with(1, 1) });
    alone.done(FileOperation::Create { name: name("b"), record: with(2, 2) });
    alone.done(FileOperation::Create { name: name("f"), record: folder(3) });
    let rename = |version, to, over| FileOperation::Rename {
        from: name("a"),
        version,
        id: FileId(1),
        to,
        over,
    };
    for (to, over, id, is_folder) in [
        ("b", Replaceable::Nothing, 2, false),
        ("b", Replaceable::Folder, 2, false),
        ("f", Replaceable::Nothing, 3, true),
        ("f", Replaceable::File, 3, true),
    ] {
        let exists = Err(Refusal::Exists { id: FileId(id), is_folder });
        assert_eq!(alone.ask(rename(version, name(to), over)), exists, "{to}");
    }
    let late = RecordVersion { sequence: version.sequence + 9, ..version };
    assert_eq!(alone.ask(rename(late, name("b"), Replaceable::File)), Err(Refusal::Changed));
    let there = alone.ask(FileOperation::Stat { name: name("b") });
    assert!(
        matches!(there, Ok(FileAnswer::Found { record, .. }) if record == with(2, 2)),
        "it is put back"
    );
    let operation = rename(version, name("b"), Replaceable::File);
    let effects = alone.run(Event::Requested { request: 7, operation });
    assert!(effects.contains(&Effect::Drop { object: ObjectId([2; 16]) }), "{effects:?}");
    assert_eq!(alone.ask(FileOperation::Stat { name: name("a") }), Err(Refusal::NotFound));
    let there = alone.ask(FileOperation::Stat { name: name("b") });
    assert!(matches!(there, Ok(FileAnswer::Found { record, .. }) if record == with(1, 1)));
}

#[test]
fn attributes_change_without_the_content() {
    let mut alone = LoneNode::new();
    let record = FileRecord { chunks: vec![chunk(1, &[ME])], ..record(1, 1) };
    let first = alone.done(FileOperation::Create { name: name("a"), record: record.clone() });
    let attributes = Attributes { mode: 0o600, uid: 7, ..record.attributes };
    let set = |version, attributes, named| FileOperation::SetAttributes {
        name: name("a"),
        version,
        attributes,
        named,
    };
    let second = alone.done(set(first, attributes, None));
    assert_eq!(alone.done(set(first, attributes, None)), second, "it was done before");
    assert_eq!(alone.ask(set(first, Attributes::default(), None)), Err(Refusal::Changed));
    let red = NamedChange::Set { value: b"red".into(), condition: SetCondition::New };
    let named = NamedAttributes::default().with("colour", &red).unwrap();
    assert_eq!(alone.ask(set(first, attributes, Some(named.clone()))), Err(Refusal::Changed));
    let third = alone.done(set(second, attributes, Some(named.clone())));
    assert_eq!(alone.done(set(second, attributes, Some(named.clone()))), third);
    let fourth = alone.done(set(third, record.attributes, None));
    let found = Ok(FileAnswer::Found { version: fourth, record: FileRecord { named, ..record } });
    assert_eq!(alone.ask(FileOperation::Stat { name: name("a") }), found);
}

#[test]
fn a_list_of_one_level_skips_what_is_in_subfolders() {
    let mut alone = LoneNode::new();
    for (id, text) in
        ["/f", "/f/a", "/f/a-b", "/f/a/1", "/f/a/2/3", "/f/a0", "/f/b/c/d", "/g", "/f2"]
            .iter()
            .enumerate()
    {
        alone.done(FileOperation::Create { name: name(text), record: record(id as u128, 1) });
    }
    let gone = alone.done(FileOperation::Create { name: name("/f/gone/x"), record: record(99, 1) });
    alone.done(FileOperation::Remove { name: name("/f/gone/x"), id: FileId(99) });
    assert!(gone.sequence > 0);
    let view = alone.node.view().unwrap().number;
    for most in [1, 2, 3, 100] {
        let (mut entries, mut implied, mut from) = (Vec::new(), Vec::new(), String::new());
        loop {
            let depth = ListDepth::OneLevel;
            let list = FileOperation::List { view, folder: "/f".to_owned(), from, most, depth };
            let Ok(FileAnswer::Listed { entries: more, implied: further, next }) = alone.ask(list)
            else {
                panic!()
            };
            assert!(more.len() <= most as usize && further.len() <= most as usize);
            entries.extend(more.into_iter().map(|entry| entry.name));
            implied.extend(further);
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(entries, ["/f/a", "/f/a-b", "/f/a0"].map(name), "{most}");
        implied.dedup();
        assert_eq!(implied, ["/f/a", "/f/b"].map(name), "{most}");
    }
}

#[test]
fn the_use_of_a_folder_follows_every_write() {
    let mut alone = LoneNode::new();
    let sized = |id, count: u8| {
        let chunks = (0..count).map(|object| chunk(object, &[ME])).collect();
        FileRecord { chunks, ..record(id, count.into()) }
    };
    let used = |alone: &mut LoneNode, folder: &str| match alone
        .ask(FileOperation::Use { view: 1, folder: folder.into() })
    {
        Ok(FileAnswer::Used { bytes, files }) => (bytes, files),
        other => panic!("{other:?}"),
    };
    for (id, of) in ["/a", "/a/1", "/a/b/2", "/a-b", "/c/3"].into_iter().enumerate() {
        alone.done(FileOperation::Create { name: name(of), record: sized(id as u128, 2) });
    }
    assert_eq!(used(&mut alone, "/a"), (4, 2), "read");
    assert_eq!(
        (used(&mut alone, ""), used(&mut alone, "/a/b/"), used(&mut alone, "/none")),
        ((10, 5), (2, 1), (0, 0))
    );
    let version = alone.done(FileOperation::Create { name: name("/a/4"), record: sized(9, 1) });
    assert_eq!(
        (used(&mut alone, "/a"), used(&mut alone, "/a/b")),
        ((5, 3), (2, 1)),
        "kept current"
    );
    let version =
        alone.done(FileOperation::Replace { name: name("/a/4"), version, record: sized(9, 5) });
    assert_eq!(used(&mut alone, "/a"), (9, 3));
    let (from, to, over) = (name("/a/4"), name("/a/b/2"), Replaceable::File);
    alone.done(FileOperation::Rename { from, version, id: FileId(9), to, over });
    assert_eq!((used(&mut alone, "/a"), used(&mut alone, "/a/b")), ((7, 2), (5, 1)));
    alone.done(FileOperation::Remove { name: name("/a/b/2"), id: FileId(9) });
    assert_eq!(
        (used(&mut alone, "/a"), used(&mut alone, "/a/b"), used(&mut alone, "")),
        ((2, 1), (0, 0), (8, 4))
    );
    let other = FileOperation::Use { view: 2, folder: String::new() };
    assert_eq!(alone.ask(other), Err(Refusal::OtherView { view: 1 }));
}

#[test]
fn a_large_folder_is_counted_by_several_requests() {
    let mut alone = LoneNode::new();
    for number in 0..=MAX_NAMES_READ {
        alone.done(FileOperation::Create {
            name: name(&format!("/a/{number}")),
            record: record(number as u128, 1),
        });
    }
    let of = || FileOperation::Use { view: 1, folder: "/a".into() };
    assert_eq!(alone.ask(of()), Err(Refusal::StillCounting));
    assert_eq!(
        alone.ask(of()),
        Ok(FileAnswer::Used { bytes: 0, files: MAX_NAMES_READ as u64 + 1 })
    );
}

#[test]
fn chunks_that_no_file_has_any_more_are_dropped() {
    let mut alone = LoneNode::new();
    let with = |objects: &[u8]| {
        let chunks = objects.iter().map(|object| chunk(*object, &[ME])).collect();
        FileRecord { chunks, ..record(1, objects.len() as u64) }
    };
    let drops = |effects: &[Effect]| {
        let dropped = effects.iter().filter_map(|effect| match effect {
            Effect::Drop { object } => Some(object.0[0]),
            _ => None,
        });
        dropped.collect::<Vec<u8>>()
    };
    let version = alone.done(FileOperation::Create { name: name("a"), record: with(&[1, 2, 3]) });
    let replace = FileOperation::Replace { name: name("a"), version, record: with(&[2]) };
    assert_eq!(drops(&alone.run(Event::Requested { request: 1, operation: replace })), [1, 3]);
    let Ok(FileAnswer::Found { version, .. }) = alone.ask(FileOperation::Stat { name: name("a") })
    else {
        panic!()
    };
    let over = Replaceable::Nothing;
    let rename =
        FileOperation::Rename { from: name("a"), version, id: FileId(1), to: name("b"), over };
    assert_eq!(drops(&alone.run(Event::Requested { request: 2, operation: rename })), []);
    let remove = FileOperation::Remove { name: name("b"), id: FileId(1) };
    assert_eq!(drops(&alone.run(Event::Requested { request: 3, operation: remove })), [2]);
}

#[test]
fn lists_are_sorted_and_come_in_pages() {
    let mut alone = LoneNode::new();
    for (id, of) in ["/a", "/a-b/x", "/a/1", "/a/2/x", "/b", "/a/3"].into_iter().enumerate() {
        alone.done(FileOperation::Create { name: name(of), record: record(id as u128, 1) });
    }
    let mut list = |folder: &str, from: &str, most| {
        let (folder, from, depth) = (folder.to_owned(), from.to_owned(), ListDepth::All);
        let answer = alone.ask(FileOperation::List { view: 1, folder, from, most, depth });
        let Ok(FileAnswer::Listed { entries, next, .. }) = answer else { panic!("{answer:?}") };
        (entries.into_iter().map(|entry| entry.name.as_str().to_owned()).collect::<Vec<_>>(), next)
    };
    let pages = |of: &[&str], next: Option<&str>| {
        (of.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), next.map(ToOwned::to_owned))
    };
    assert_eq!(list("", "", 9), pages(&["/a", "/a-b/x", "/a/1", "/a/2/x", "/a/3", "/b"], None));
    assert_eq!(list("/a", "", 2), pages(&["/a", "/a/1"], Some("/a/2/x")));
    assert_eq!(list("/a", "/a/2/x", 2), pages(&["/a/2/x", "/a/3"], None));
    assert_eq!(list("/a/2/", "/a", 2), pages(&["/a/2/x"], None));
    assert_eq!(list("/c", "", 2), pages(&[], None));
    let (folder, from, depth) = (String::new(), String::new(), ListDepth::All);
    let other = FileOperation::List { view: 2, folder, from, most: 1, depth };
    assert_eq!(alone.ask(other), Err(Refusal::OtherView { view: 1 }));
}

/// Adds a second node to the view that never answers, so nothing can be acknowledged.
fn with_a_silent_other() -> LoneNode {
    let mut alone = LoneNode::new();
    let view =
        View::founded_by(SYSTEM, ME, 4, 3).followed_by([ME, NodeId(2)].into(), true).unwrap();
    let message = RingMessage { view: 2, body: MessageBody::Decided(view) };
    alone.run(Event::Received { from: NodeId(2), message });
    alone.now_us = 200_000;
    alone.run(Event::Tick);
    alone.run(Event::Received {
        from: NodeId(2),
        message: RingMessage { view: 2, body: heard(200_000) },
    });
    alone
}

fn heard(sent_us: u64) -> MessageBody {
    MessageBody::Heard { sent_us, boot: 1 }
}

fn led_by_me(alone: &LoneNode) -> FileName {
    let ring = alone.node.ring().unwrap();
    (0..).map(|index| name(&format!("{index}"))).find(|name| ring.leader(name) == ME).unwrap()
}

#[test]
fn requests_in_line_are_bounded() {
    let mut alone = with_a_silent_other();
    let of = led_by_me(&alone);
    let create = |request: u64| Event::Requested {
        request,
        operation: FileOperation::Create { name: of.clone(), record: record(request.into(), 1) },
    };
    for request in 0..MAX_PENDING_REQUESTS as u64 {
        let effects = alone.run(create(request));
        assert!(
            !effects.iter().any(|effect| matches!(effect, Effect::Answer { .. })),
            "{effects:?}"
        );
    }
    let busy = Effect::Answer { request: 9999, answer: Err(Refusal::Busy) };
    assert_eq!(alone.run(create(9999)), [busy]);
}

#[test]
fn a_leader_without_a_lease_does_not_answer() {
    let mut alone = with_a_silent_other();
    let of = led_by_me(&alone);
    assert_eq!(alone.ask(FileOperation::Stat { name: of.clone() }), Err(Refusal::NotFound));
    alone.now_us += 2_000_000;
    assert_eq!(alone.ask(FileOperation::Stat { name: of }), Err(Refusal::NotYet));
}

#[test]
fn a_node_whose_process_has_ended_is_missed_sooner() {
    let [two, three] = [2, 3].map(NodeId);
    let proposes_after = |us: u64, closed: &[NodeId], heard: &[NodeId]| {
        let mut alone = LoneNode::new();
        let view =
            View::founded_by(SYSTEM, ME, 4, 3).followed_by([ME, two, three].into(), true).unwrap();
        alone.run(Event::Received {
            from: two,
            message: RingMessage { view: 2, body: MessageBody::Decided(view) },
        });
        alone.run(Event::Alive([ME, two].into()));
        alone.now_us = 200_000;
        alone.run(Event::Tick);
        closed.iter().for_each(|node| drop(alone.run(Event::Closed(*node))));
        for from in heard {
            alone.run(Event::Received {
                from: *from,
                message: RingMessage { view: 2, body: MessageBody::Behind },
            });
        }
        alone.now_us += us;
        let is_proposal = |effect: &Effect| {
            matches!(
                effect,
                Effect::Send { message: RingMessage { body: MessageBody::Prepare(_), .. }, .. }
            )
        };
        alone.run(Event::Tick).iter().any(is_proposal)
    };
    assert!(!proposes_after(4_900_000, &[], &[]) && proposes_after(5_000_000, &[], &[]));
    assert!(!proposes_after(1_900_000, &[three], &[]) && proposes_after(2_000_000, &[three], &[]));
    assert!(!proposes_after(4_900_000, &[three], &[three]), "it has another connection");
    assert!(!proposes_after(4_900_000, &[two], &[]), "it is said to live");
}

#[test]
fn a_view_that_does_not_follow_is_not_entered() {
    let mut alone = with_a_silent_other();
    let present = alone.node.view().unwrap().clone();
    let later = present.followed_by([ME, NodeId(2), NodeId(3)].into(), false).unwrap();
    let first = View::founded_by(SYSTEM, ME, 4, 3);
    for view in [
        first,
        present.clone(),
        View { system: FileSystemId(2), ..later.clone() },
        View { partitions: 5, ..later.clone() },
        View { members: BTreeSet::new(), ..later.clone() },
    ] {
        let message = RingMessage { view: view.number, body: MessageBody::Decided(view.clone()) };
        assert_eq!(alone.run(Event::Received { from: NodeId(2), message }), [], "{view:?}");
        assert_eq!(alone.node.view(), Some(&present));
    }
    let message = RingMessage { view: 3, body: MessageBody::Decided(later.clone()) };
    alone.run(Event::Received { from: NodeId(2), message });
    assert_eq!(alone.node.view(), Some(&later));
}

#[test]
fn only_a_replica_that_is_up_to_date_acknowledges() {
    let view = |leader| {
        View::founded_by(SYSTEM, leader, 1, 3).followed_by([ME, leader].into(), true).unwrap()
    };
    let leader =
        (2..).map(NodeId).find(|other| Ring::new(&view(*other)).replicas(0)[0] == *other).unwrap();
    let saved =
        PersistentState { boots: 4, view: Some(view(leader)), ..PersistentState::default() };
    let node = RingNode::new(Config::new(SYSTEM, ME), saved, 0, &mut Vec::new());
    let mut alone = LoneNode { node, saves: SavedRecords::default(), now_us: 0 };
    let round = Round { view: 2, boot: 1 };
    let stored = Stored {
        version: RecordVersion { round, sequence: 1 },
        entry: NameEntry::File(record(1, 1)),
    };
    let write = MessageBody::Write { partition: 0, round, name: name("a"), stored };
    let mut hear = |body| {
        let effects =
            alone.run(Event::Received { from: leader, message: RingMessage { view: 2, body } });
        let sent = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { message, .. }
                if !matches!(message.body, MessageBody::Heartbeat { .. }) =>
            {
                Some(message.body)
            }
            _ => None,
        });
        sent.collect::<Vec<MessageBody>>()
    };
    assert_eq!(hear(write.clone()), []);
    assert!(matches!(
        hear(MessageBody::OfferSync { partition: 0, round })[..],
        [MessageBody::RequestPage { .. }]
    ));
    assert_eq!(hear(write.clone()), []);
    assert_eq!(
        hear(MessageBody::SameContent { partition: 0, round }),
        [MessageBody::InSync { partition: 0, round }]
    );
    assert!(matches!(hear(write)[..], [MessageBody::Written { .. }]));
}

#[test]
fn a_chunk_without_a_good_replica_is_searched_for_until_one_comes_back() {
    let mut alone = LoneNode::new();
    let with = |chunks: Vec<Chunk>| FileRecord { chunks, replication: 1, ..record(1, 1) };
    alone.done(FileOperation::Create {
        name: name("a"),
        record: with(vec![chunk(1, &[ME]), chunk(2, &[ME, NodeId(2)])]),
    });
    let bad = |objects: &[u8]| {
        let objects = objects.iter().map(|object| ObjectId([*object; 16])).collect();
        Event::BadReplicas { name: name("a"), objects, node: ME }
    };
    let replicas = |alone: &mut LoneNode| {
        let Ok(FileAnswer::Found { record, .. }) =
            alone.ask(FileOperation::Stat { name: name("a") })
        else {
            panic!()
        };
        record.chunks.into_iter().map(|chunk| chunk.replicas).collect::<Vec<_>>()
    };
    let searched_after = |alone: &mut LoneNode, us: u64| {
        alone.now_us += us;
        let effects = alone.run(Event::Tick);
        let fetches =
            |effect: &Effect| matches!(effect, Effect::Fetch { .. } | Effect::Send { .. });
        assert!(
            !effects.iter().any(fetches),
            "nothing is fetched from who does not have it: {effects:?}"
        );
        let searched = effects.into_iter().filter_map(|effect| match effect {
            Effect::Search { objects, .. } => {
                Some(objects.into_iter().map(|object| object.0[0]).collect::<Vec<_>>())
            }
            _ => None,
        });
        searched.flatten().collect::<Vec<u8>>()
    };
    assert_eq!(searched_after(&mut alone, 1_000_000), []);
    // The node has the only replica of the first chunk. Of the second, the record names another
    // replica on a node that is not a member.
    alone.run(bad(&[1, 2]));
    assert_eq!(
        replicas(&mut alone),
        [vec![ME], vec![NodeId(2)]],
        "the record goes on naming the last that had it"
    );
    alone.run(Event::Tick);
    assert_eq!(searched_after(&mut alone, 10_000_000), [1, 2]);
    alone.run(bad(&[1]));
    assert_eq!(searched_after(&mut alone, 1_000_000), [], "that is known");
    assert_eq!(searched_after(&mut alone, 20_000_000), [1, 2], "again and again");

    let good = |objects: &[u8], node| {
        let objects = objects.iter().map(|object| ObjectId([*object; 16])).collect();
        Event::GoodReplicas { name: name("a"), objects, node }
    };
    alone.run(good(&[1, 2], NodeId(2)));
    assert_eq!(replicas(&mut alone), [vec![ME], vec![NodeId(2)]], "only members count");
    alone.run(good(&[1, 2, 3], ME));
    assert_eq!(replicas(&mut alone), [vec![ME], vec![NodeId(2), ME]]);
    assert_eq!(searched_after(&mut alone, 30_000_000), []);
    // A replica that was not searched for does not count.
    alone.run(good(&[1], ME));
    alone.run(bad(&[1]));
    assert_eq!(searched_after(&mut alone, 1_000_000), [1]);
    alone.done(FileOperation::Remove { name: name("a"), id: FileId(1) });
    assert_eq!(searched_after(&mut alone, 30_000_000), [], "the file is gone");
}

#[test]
fn searches_are_bounded() {
    let mut alone = LoneNode::new();
    let numbered = |number: usize| {
        let mut object = [0; 16];
        object[..8].copy_from_slice(&number.to_le_bytes());
        Chunk { object: ObjectId(object), ..chunk(0, &[ME]) }
    };
    let chunks: Vec<Chunk> = (0..MAX_LOST + 10).map(numbered).collect();
    let objects = chunks.iter().map(|chunk| chunk.object).collect();
    alone.done(FileOperation::Create {
        name: name("a"),
        record: FileRecord { chunks, replication: 1, ..record(1, 1) },
    });
    alone.run(Event::BadReplicas { name: name("a"), objects, node: ME });
    alone.now_us += 1_000_000;
    let effects = alone.run(Event::Tick);
    let searched = effects.iter().find_map(|effect| match effect {
        Effect::Search { objects, .. } => Some(objects.len()),
        _ => None,
    });
    assert_eq!(searched, Some(MAX_LOST));
}
