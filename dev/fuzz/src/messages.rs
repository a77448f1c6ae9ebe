//! Messages of processes: frames between all of them, greetings, and records of files that nodes
//! exchange and keep.

use std::fmt::Debug;

use eyas_ring::{RingMessage, Stored, View};
use eyas_types::dfs::FileRecord;
use eyas_wire::client::{FromClient, ToClient};
use eyas_wire::executor::{FromExecutor, ToExecutor};
use eyas_wire::frame::{self, Frame, HEADER_BYTES, MAX_FRAME_BYTES};
use eyas_wire::{Hello, PROTOCOL_VERSION};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::choice;

/// Frames of clients and executors, in both directions.
pub(crate) fn frames(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    match kind % 4 {
        0 => drop(frame_of::<FromClient>(bytes, MAX_FRAME_BYTES)),
        1 => drop(frame_of::<ToClient>(bytes, MAX_FRAME_BYTES)),
        2 => drop(frame_of::<FromExecutor>(bytes, MAX_FRAME_BYTES)),
        _ => drop(frame_of::<ToExecutor>(bytes, MAX_FRAME_BYTES)),
    }
}

/// The body of the first frame of a connection.
pub(crate) fn greetings(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert!(
            hello.magic == *b"eyas"
                && hello.version.0 == PROTOCOL_VERSION.0
                && hello.minor() <= hello.version.1
        );
        assert!(hello.agrees_with(&hello));
    }
}

/// Messages between nodes of the file system, and what they keep on their disks.
pub(crate) fn records(bytes: &[u8]) {
    let (kind, bytes) = choice(bytes);
    match kind % 4 {
        0 => drop(messages_in::<RingMessage>(bytes)),
        1 => drop(messages_in::<View>(bytes)),
        2 => messages_in::<Stored>(bytes)
            .iter()
            .filter_map(|stored| stored.entry.record())
            .for_each(look_at),
        _ => messages_in::<FileRecord>(bytes).iter().for_each(look_at),
    }
}

fn look_at(record: &FileRecord) {
    assert!(record.hole_bytes() <= record.size_bytes());
    assert_eq!(record.blocks().map(<[_]>::len).sum::<usize>(), record.chunks.len());
    assert!(record.unsynced_chunks().count() <= record.chunks.len());
    assert!(record.is_as_written(record));
    let _ = record.fallback();
}

/// The messages of a frame, whose length comes first.
fn frame_of<M: DeserializeOwned + Serialize + Debug>(bytes: &[u8], limit: usize) -> Vec<M> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Vec::new() };
    match frame::length(*header, limit) {
        Ok(length) => messages_in(&body[..length.min(body.len())]),
        Err(_) => Vec::new(),
    }
}

/// The messages of a frame's body. They are the same after they were sent again.
fn messages_in<M: DeserializeOwned + Serialize + Debug>(body: &[u8]) -> Vec<M> {
    let Ok(messages) = frame::decode::<M>(body) else { return Vec::new() };
    let mut again = Frame::default();
    messages.iter().for_each(|message| again.push(message));
    let again = frame::decode::<M>(&again.bytes()[HEADER_BYTES..])
        .expect("a message that was sent can be read");
    assert_eq!(format!("{again:?}"), format!("{messages:?}"));
    messages
}
