//! Clients that create, replace, remove, rename and stat files, and ask again when no answer comes.

use std::collections::{BTreeMap, BTreeSet};

use eyas_ring::{
    Event, FileAnswer, FileOperation, ListDepth, RecordVersion, Refusal, Replaceable, Ring,
    replica_targets,
};
use eyas_types::dfs::{
    Attributes, Chunk, FileId, FileKind, FileName, FileRecord, NamedAttributes, NamedChange,
    NodeId, SetCondition, Unsynced,
};

use crate::cluster::{Cluster, MAX_DELAY_US, MS};
use crate::history::Attempt;

/// Time after which a client no longer waits for an answer.
const PATIENCE_US: u64 = 1_000 * MS;

pub fn record(id: FileId, stamp: u64) -> FileRecord {
    let attributes = Attributes { modified_ns: stamp, ..Attributes::default() };
    let record = FileRecord::without_content(id, FileKind::File, attributes);
    FileRecord { named: named(id), chunk_bytes: 1, replication: 2, ..record }
}

/// The named attributes that each file keeps as long as it exists.
fn named(id: FileId) -> NamedAttributes {
    let change =
        NamedChange::Set { value: id.0.to_le_bytes().into(), condition: SetCondition::New };
    NamedAttributes::default().with("id", &change).unwrap()
}

#[derive(Default)]
struct Client {
    /// The request that it waits for, and the attempt.
    waits: Option<(u64, usize)>,
    /// The time of its next operation.
    next_us: u64,
    /// An operation to repeat.
    again: Option<(FileOperation, u64, NodeId)>,
    /// Its knowledge of names.
    known: BTreeMap<FileName, (RecordVersion, FileRecord)>,
}

pub struct Clients {
    names: Vec<FileName>,
    clients: Vec<Client>,
    pub history: Vec<Attempt>,
    /// Attempts that were refused before they began.
    void: Vec<usize>,
    requests: u64,
    pub acknowledged: u64,
}

impl Clients {
    pub fn new(names: u64, clients: u64) -> Self {
        let names =
            (0..names).map(|index| format!("/{}/{index}", index % 2).parse().unwrap()).collect();
        let clients = (0..clients).map(|_| Client::default()).collect();
        Clients {
            names,
            clients,
            history: Vec::new(),
            void: Vec::new(),
            requests: 0,
            acknowledged: 0,
        }
    }

    /// No client asks for anything any longer.
    pub fn stop(&mut self) {
        self.clients.clear();
    }

    /// Removes all remaining files, and forgets the history.
    pub fn begin_anew(&mut self, cluster: &mut Cluster) {
        // Delayed requests arrive first.
        let until_us = cluster.now_us + MAX_DELAY_US + PATIENCE_US;
        while cluster.step(until_us) {}
        for name in self.names.clone() {
            let stat = FileOperation::Stat { name: name.clone() };
            let leader = leader_of(&stat, cluster).expect("all run");
            if let Ok(FileAnswer::Found { record, .. }) = self.answer(leader, stat, cluster) {
                let removed =
                    self.answer(leader, FileOperation::Remove { name, id: record.id }, cluster);
                assert!(matches!(removed, Ok(FileAnswer::Done { .. })), "{removed:?}");
            }
        }
        let (names, count) = (std::mem::take(&mut self.names), self.clients.len());
        let clients = (0..count).map(|_| Client::default()).collect();
        let Clients { requests, acknowledged, .. } = *self;
        *self = Clients {
            names,
            clients,
            history: Vec::new(),
            void: Vec::new(),
            requests,
            acknowledged,
        };
    }

    /// Checks every name when nothing fails, and that the lists of all folders have the same files.
    pub fn look_at_all(&mut self, cluster: &mut Cluster) {
        // Delayed requests arrive first.
        let until_us = cluster.now_us + MAX_DELAY_US + PATIENCE_US;
        while cluster.step(until_us) {}
        let mut found = BTreeMap::new();
        for name in self.names.clone() {
            let operation = FileOperation::Stat { name: name.clone() };
            let leader = leader_of(&operation, cluster).expect("all run");
            let (asked_us, answer) =
                (cluster.now_us, self.answer(leader, operation.clone(), cluster));
            if let Ok(FileAnswer::Found { record, .. }) = &answer {
                found.insert(name, record.id);
            }
            self.history.push(Attempt {
                operation,
                stamp: 0,
                asked_us,
                answer: Some((cluster.now_us, answer)),
            });
        }
        for folder in ["", "/", "/0", "/1/", "/1/1", "/elsewhere"] {
            let listed = self.list(folder, cluster);
            let within = found.iter().filter(|(name, _)| name.is_within(folder));
            assert!(listed.iter().eq(within), "{folder}: {listed:?} of {found:?}");
            let below = found
                .keys()
                .filter(|name| name.is_within(folder) && name.as_str() != folder)
                .count();
            assert_eq!(self.used(folder, cluster), below as u64, "{folder}: {found:?}");
        }
    }

    /// The number of files below a folder, as all nodes count them together.
    fn used(&mut self, folder: &str, cluster: &mut Cluster) -> u64 {
        let mut used = 0;
        for node in cluster.up() {
            used += loop {
                let view = cluster.machines[&node].node.as_ref().unwrap().view().unwrap().number;
                let operation = FileOperation::Use { view, folder: folder.to_owned() };
                match self.answer(node, operation, cluster) {
                    Ok(FileAnswer::Used { files, .. }) => break files,
                    Err(Refusal::OtherView { .. }) => {}
                    other => panic!("{other:?} is no use"),
                }
            };
        }
        used
    }

    /// The lists of all nodes, page by page.
    fn list(&mut self, folder: &str, cluster: &mut Cluster) -> BTreeMap<FileName, FileId> {
        let mut all = BTreeMap::new();
        for node in cluster.up() {
            let mut from = String::new();
            loop {
                let view = cluster.machines[&node].node.as_ref().unwrap().view().unwrap().number;
                let (folder, depth) = (folder.to_owned(), ListDepth::All);
                let operation =
                    FileOperation::List { view, folder, from: from.clone(), most: 2, depth };
                let (files, next) = match self.answer(node, operation, cluster) {
                    Ok(FileAnswer::Listed { entries, implied, next }) if implied.is_empty() => {
                        (entries, next)
                    }
                    // The new view has the same members.
                    Err(Refusal::OtherView { .. }) => continue,
                    other => panic!("{other:?} is no list"),
                };
                assert!(files.is_sorted_by(|a, b| a.name < b.name));
                assert!(files.iter().all(|file| *file.name.as_str() >= *from));
                assert!(files.len() == 2 || next.is_none());
                all.extend(files.into_iter().map(|file| (file.name, file.id)));
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        all
    }

    /// Repeats a request until there is an answer.
    pub fn answer(
        &mut self,
        node: NodeId,
        operation: FileOperation,
        cluster: &mut Cluster,
    ) -> Result<FileAnswer, Refusal> {
        for _ in 0..100 {
            self.requests += 1;
            cluster.ask(node, self.requests, operation.clone());
            let until_us = cluster.now_us + 100 * MS;
            while cluster.step(until_us) {
                let answers = std::mem::take(&mut cluster.answers);
                match answers.into_iter().find(|(request, _)| *request == self.requests) {
                    Some((_, Err(Refusal::NotYet))) | None => {}
                    Some((_, answer)) => return answer,
                }
            }
        }
        panic!("{operation:?} is not answered")
    }

    /// The attempts that count.
    pub fn history(&self) -> Vec<Attempt> {
        let counts = |(index, _): &(usize, &Attempt)| !self.void.contains(index);
        self.history.iter().enumerate().filter(counts).map(|(_, attempt)| attempt.clone()).collect()
    }

    /// Names whose file an attempt may still remove or rename, although no client knows it yet.
    pub fn in_doubt(&self, now_us: u64) -> BTreeSet<FileName> {
        let is_open = |attempt: &&Attempt| {
            attempt.answer.is_none() && attempt.asked_us + MAX_DELAY_US + PATIENCE_US >= now_us
        };
        let names =
            self.history.iter().filter(is_open).flat_map(|attempt| match &attempt.operation {
                FileOperation::Remove { name, .. } => vec![name.clone()],
                FileOperation::Rename { from, to, .. } => vec![from.clone(), to.clone()],
                _ => Vec::new(),
            });
        names.collect()
    }

    /// Lets clients that are not waiting do something.
    pub fn act(&mut self, cluster: &mut Cluster) {
        for (request, answer) in std::mem::take(&mut cluster.answers) {
            let waits =
                |client: &&mut Client| client.waits.is_some_and(|(other, _)| other == request);
            if let Some(client) = self.clients.iter_mut().find(waits) {
                let (_, index) = client.waits.take().unwrap();
                let attempt = &mut self.history[index];
                client.next_us = cluster.now_us + cluster.dice.below(100 * MS);
                match &answer {
                    Err(Refusal::NotLeader { leader, .. }) => {
                        client.again = Some((attempt.operation.clone(), attempt.stamp, *leader));
                        self.void.push(index);
                    }
                    Err(Refusal::NotYet | Refusal::Busy | Refusal::OtherView { .. }) => {
                        self.void.push(index)
                    }
                    Err(Refusal::Unknown) => {}
                    _ => {
                        self.acknowledged += 1;
                        attempt.answer = Some((cluster.now_us, answer.clone()));
                        if let (
                            FileOperation::Stat { name },
                            Ok(FileAnswer::Found { version, record }),
                        ) = (&attempt.operation, answer)
                        {
                            assert_eq!(record.named, named(record.id), "{name}");
                            client.known.insert(name.clone(), (version, record));
                        }
                    }
                }
            }
        }
        for index in 0..self.clients.len() {
            self.act_one(index, cluster);
        }
    }

    fn act_one(&mut self, index: usize, cluster: &mut Cluster) {
        let now_us = cluster.now_us;
        let client = &mut self.clients[index];
        if now_us < client.next_us {
            return;
        }
        if let Some((_, attempt)) = client.waits.take() {
            let Attempt { operation, stamp, .. } = &self.history[attempt];
            if cluster.dice.chance(600) {
                client.again =
                    leader_of(operation, cluster).map(|leader| (operation.clone(), *stamp, leader));
            }
        }
        let (operation, stamp, to) = match client.again.take() {
            Some(again) => again,
            None => match self.invent(index, cluster) {
                Some(invented) => invented,
                None => return,
            },
        };
        self.requests += 1;
        let client = &mut self.clients[index];
        client.waits = Some((self.requests, self.history.len()));
        client.next_us = now_us + PATIENCE_US;
        self.history.push(Attempt {
            operation: operation.clone(),
            stamp,
            asked_us: now_us,
            answer: None,
        });
        cluster.ask(to, self.requests, operation);
    }

    fn invent(
        &mut self,
        index: usize,
        cluster: &mut Cluster,
    ) -> Option<(FileOperation, u64, NodeId)> {
        let name = cluster.dice.any(&self.names)?;
        let other = cluster.dice.any(&self.names)?;
        let known = self.clients[index].known.get(&name).cloned();
        let mut stamp = 0;
        let operation = match (cluster.dice.below(10), known) {
            (0..3, _) => {
                let id = FileId(cluster.dice.next_u64().into());
                let mut record = record(id, cluster.dice.next_u64());
                add_chunk(&mut record, cluster);
                FileOperation::Create { name, record }
            }
            (3, Some((version, mut record))) => {
                stamp = record.attributes.modified_ns;
                record.attributes.modified_ns = cluster.dice.next_u64();
                record.unsynced = None;
                add_chunk(&mut record, cluster);
                FileOperation::Replace { name, version, record }
            }
            (9, Some((version, record))) if cluster.dice.chance(500) => {
                stamp = record.attributes.modified_ns;
                let attributes =
                    Attributes { modified_ns: cluster.dice.next_u64(), ..record.attributes };
                FileOperation::SetAttributes { name, version, attributes, named: None }
            }
            (4, Some((_, record))) => FileOperation::Remove { name, id: record.id },
            (5..7, Some((version, record))) if other != name => {
                stamp = record.attributes.modified_ns;
                let over =
                    if cluster.dice.chance(500) { Replaceable::File } else { Replaceable::Nothing };
                FileOperation::Rename { from: name, version, id: record.id, to: other, over }
            }
            (7, Some((_, record))) => {
                let chunk = record.chunks.last()?;
                let node = chunk.replicas[0];
                let bad =
                    Event::BadReplicas { name: name.clone(), objects: vec![chunk.object], node };
                let leader = leader_of(&FileOperation::Stat { name }, cluster)?;
                cluster.handle(leader, bad);
                return None;
            }
            (8, _) => {
                let ring = any_ring(cluster)?;
                if cluster.dice.chance(500) {
                    // From then on the node keeps the use current.
                    let up = cluster.up();
                    let node = cluster.dice.any(&up)?;
                    let view = cluster.machines[&node].node.as_ref()?.view()?.number;
                    return Some((FileOperation::Use { view, folder: "/0".to_owned() }, 0, node));
                }
                let operation = FileOperation::List {
                    view: cluster.dice.below(9),
                    folder: "/0".to_owned(),
                    from: String::new(),
                    most: 9,
                    depth: ListDepth::OneLevel,
                };
                return Some((operation, 0, ring.leader(&name)));
            }
            _ => FileOperation::Stat { name },
        };
        leader_of(&operation, cluster).map(|leader| (operation, stamp, leader))
    }
}

/// Stores a new chunk on the nodes of its replicas. A client that waits for the disks has older
/// chunks forced there.
fn add_chunk(record: &mut FileRecord, cluster: &mut Cluster) {
    let Some(ring) = any_ring(cluster) else { return };
    let checksum = cluster.dice.next_u64();
    let object = Chunk::object_of(record.id, 1, checksum);
    let has_room = |node| cluster.machines.get(&node).is_some_and(|machine| machine.node.is_some());
    let replicas = replica_targets(&ring, object, record.replication, None, has_room);
    if replicas.is_empty() {
        return;
    }
    for node in &replicas {
        cluster.machines.get_mut(node).unwrap().store.insert(object);
    }
    if cluster.dice.chance(cluster.unsynced) {
        record.unsynced = Some(Unsynced::default());
        for node in &replicas {
            cluster.machines.get_mut(node).unwrap().volatile.insert(object);
        }
    } else {
        for machine in cluster.machines.values_mut() {
            for chunk in &record.chunks {
                machine.volatile.remove(&chunk.object);
            }
        }
    }
    record.chunks.push(Chunk { object, size_bytes: 1, checksum, replicas });
}

fn any_ring(cluster: &mut Cluster) -> Option<Ring> {
    let up = cluster.up();
    let node = cluster.dice.any(&up)?;
    cluster.machines[&node].node.as_ref()?.ring().cloned()
}

fn leader_of(operation: &FileOperation, cluster: &mut Cluster) -> Option<NodeId> {
    let ring = any_ring(cluster)?;
    match operation {
        FileOperation::Create { name, .. }
        | FileOperation::Replace { name, .. }
        | FileOperation::SetAttributes { name, .. }
        | FileOperation::Remove { name, .. }
        | FileOperation::Stat { name } => Some(ring.leader(name)),
        FileOperation::Rename { to, .. } => Some(ring.leader(to)),
        FileOperation::List { .. } | FileOperation::Use { .. } | FileOperation::Recover { .. } => {
            None
        }
    }
}
