//! Decides what a request does to the entry of its name. The leader knows that entry.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileId, FileRecord, NodeId, Unsynced};

use crate::after_write::AfterWrite;
use crate::event::{FileAnswer, FileOperation, Refusal, Replaceable};
use crate::record::{NameEntry, Stored};

/// The entry to write and what follows; or the answer, if nothing is to be written.
type Decision = Result<(NameEntry, AfterWrite), Box<Result<FileAnswer, Refusal>>>;

/// Decides on a request for a name, which has the entry `stored`.
pub(crate) fn decide(request: u64, operation: FileOperation, stored: Option<&Stored>) -> Decision {
    let file = stored.and_then(|stored| Some((stored.version, stored.entry.file()?)));
    match (operation, file) {
        (FileOperation::Stat { .. }, Some((version, record))) => {
            answer(Ok(FileAnswer::Found { version, record: record.clone() }))
        }
        (FileOperation::Create { record, .. }, _) => create(request, record, stored),
        (FileOperation::Replace { version, record, .. }, Some((is, present))) => {
            if is_as_wanted(present, &record) {
                answer(Ok(FileAnswer::Done { version: is }))
            } else if is == version {
                let record = written(record, Some(present));
                let dropped = dropped(present, Some(&record));
                Ok((NameEntry::File(record), done(request, dropped)))
            } else {
                answer(Err(Refusal::Changed))
            }
        }
        (FileOperation::SetAttributes { version, attributes, named, .. }, Some((is, present))) => {
            let is_named = named.as_ref().is_none_or(|named| *named == present.named);
            if present.attributes == attributes && is_named {
                answer(Ok(FileAnswer::Done { version: is }))
            } else if is == version {
                let record = FileRecord { attributes, ..present.clone() };
                let record = match named {
                    Some(named) => FileRecord { named, ..record },
                    None => record,
                };
                Ok((NameEntry::File(record), done(request, BTreeMap::new())))
            } else {
                answer(Err(Refusal::Changed))
            }
        }
        (FileOperation::Remove { id, .. }, _) => remove(request, id, stored),
        (FileOperation::Rename { from, version, id, over, .. }, present) => match present {
            Some((version, present)) if present.id == id => {
                answer(Ok(FileAnswer::Done { version }))
            }
            Some((_, present)) if !may_replace(over, present) => answer(Err(exists(present))),
            _ => {
                let over = present.map(|(_, present)| present.clone());
                Ok((NameEntry::Arriving { from, version, id, over }, AfterWrite::Move { request }))
            }
        },
        (
            FileOperation::Stat { .. }
            | FileOperation::Replace { .. }
            | FileOperation::SetAttributes { .. },
            None,
        ) => answer(Err(Refusal::NotFound)),
        (
            FileOperation::List { .. } | FileOperation::Use { .. } | FileOperation::Recover { .. },
            _,
        ) => {
            unreachable!("they are of no name")
        }
    }
}

fn create(request: u64, record: FileRecord, stored: Option<&Stored>) -> Decision {
    match stored.map(|stored| (stored.version, &stored.entry)) {
        Some((version, NameEntry::File(present))) => {
            // A folder gets no other content. A file may have had this id, and other content,
            // before this request.
            let is_created = present.is_as_written(&record)
                || present.kind.is_folder() && present.id == record.id;
            answer(if is_created { Ok(FileAnswer::Done { version }) } else { Err(exists(present)) })
        }
        // This file was created and removed before; the request is late. A folder may come back to
        // a name that it had.
        Some((_, NameEntry::Removed { id, .. }))
            if *id == record.id && !record.kind.is_folder() =>
        {
            answer(Err(Refusal::Changed))
        }
        _ => Ok((NameEntry::File(written(record, None)), done(request, BTreeMap::new()))),
    }
}

fn remove(request: u64, id: FileId, stored: Option<&Stored>) -> Decision {
    match stored.map(|stored| (stored.version, &stored.entry)) {
        Some((_, NameEntry::File(present))) if present.id == id => {
            Ok((NameEntry::Removed { id, is_gone: true }, done(request, dropped(present, None))))
        }
        Some((_, NameEntry::File(_))) => answer(Err(Refusal::Changed)),
        Some((version, NameEntry::Removed { id: removed, is_gone: true })) if *removed == id => {
            answer(Ok(FileAnswer::Done { version }))
        }
        _ => answer(Err(Refusal::NotFound)),
    }
}

fn answer(answer: Result<FileAnswer, Refusal>) -> Decision {
    Err(Box::new(answer))
}

fn done(request: u64, dropped: BTreeMap<NodeId, Vec<ObjectId>>) -> AfterWrite {
    AfterWrite::Done { request: Some(request), dropped }
}

/// Whether a file has the content that a client wants. The client may also want to say that it is
/// on the disks now.
fn is_as_wanted(present: &FileRecord, wanted: &FileRecord) -> bool {
    present.equals_but_for_disks(wanted)
        && (present.unsynced.is_none() || wanted.unsynced.is_some())
}

fn may_replace(over: Replaceable, present: &FileRecord) -> bool {
    match over {
        Replaceable::Nothing => false,
        Replaceable::File => !present.kind.is_folder(),
        Replaceable::Folder => present.kind.is_folder(),
    }
}

fn exists(present: &FileRecord) -> Refusal {
    Refusal::Exists { id: present.id, is_folder: present.kind.is_folder() }
}

/// The record that a client has sent, as it takes the place of the present one. The client knows
/// whether all chunks are on the disks, and the leader the version to which the file may fall back.
fn written(mut record: FileRecord, present: Option<&FileRecord>) -> FileRecord {
    record.unsynced = record.unsynced.map(|_| Unsynced::default());
    record.in_place_of(present)
}

/// The replicas of the chunks that a file has needed, and that its new record no longer needs.
pub(crate) fn dropped(
    old: &FileRecord,
    new: Option<&FileRecord>,
) -> BTreeMap<NodeId, Vec<ObjectId>> {
    let of = |chunk: &Chunk| {
        let object = chunk.object;
        chunk.replicas.iter().map(move |node| (*node, object)).collect::<Vec<_>>()
    };
    let kept: BTreeSet<(NodeId, ObjectId)> =
        new.iter().flat_map(|new| new.needed_chunks()).flat_map(of).collect();
    let mut dropped = BTreeMap::<NodeId, BTreeSet<ObjectId>>::new();
    for (node, object) in old.needed_chunks().flat_map(of).filter(|replica| !kept.contains(replica))
    {
        dropped.entry(node).or_default().insert(object);
    }
    dropped.into_iter().map(|(node, objects)| (node, objects.into_iter().collect())).collect()
}
