//! A storage that several nodes mount, as NFS does: each mount caches attributes for some seconds
//! and bytes until the attributes change, and asks anew when a file is opened.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use eyas_board::{PIECE_BYTES, PartFile, VersionOf};
use eyas_types::Extent;

use crate::agent::program_file::{FileKey, ProgramFile};

/// Time for which a mount believes attributes.
pub const ATTRIBUTES_US: u64 = 3_000_000;
/// Unit of the storage's times: changes in one unit have the same time.
pub const TICK_US: u64 = 4_000;
/// The storage's time when a run begins.
const BEGAN_US: u64 = 1_700_000_000_000_000;

/// Content of a piece: the number of the write that made it; 0 beyond the end of the file.
pub type PieceContent = u64;

/// Files, mounts and the clock, which the world and the files that agents hold share.
#[derive(Clone, Default)]
pub struct SharedStorage(Arc<Mutex<SimulatedStorage>>);

#[derive(Default)]
pub struct SimulatedStorage {
    pub now_us: u64,
    files: Vec<StoredFile>,
    mounts: BTreeMap<u64, Mount>,
    writes: u64,
    /// Pieces that the storage has sent.
    pub sent: u64,
    /// Changes whose time is that of the change before, of a piece that a node had read in between.
    pub unseen: u64,
}

/// A file. Its place among the files is its number, less [`FIRST_INODE`].
struct StoredFile {
    pieces: u64,
    changes: u64,
    changed_ns: u64,
    /// For each piece, its contents and when they came.
    history: Vec<Vec<(u64, PieceContent)>>,
}

const FIRST_INODE: u64 = 100;

/// What the kernel of one node knows of the files of one mount.
#[derive(Default)]
struct Mount {
    attributes: BTreeMap<u64, Attributes>,
    pages: BTreeMap<(u64, u64), PieceContent>,
    /// The last content of each piece that programs of the node have written.
    written: BTreeMap<(u64, u64), PieceContent>,
}

#[derive(Clone, Copy)]
struct Attributes {
    pieces: u64,
    changes: u64,
    changed_ns: u64,
    asked_us: u64,
}

impl SharedStorage {
    pub fn lock(&self) -> MutexGuard<'_, SimulatedStorage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file that is open at a mount.
    pub fn open(&self, device: u64, inode: u64) -> SimulatedFile {
        self.lock().refresh(device, inode, true);
        SimulatedFile { storage: self.clone(), device, inode }
    }
}

impl SimulatedStorage {
    /// A new file of this many pieces. Returns its number.
    pub fn create(&mut self, pieces: u64) -> u64 {
        let file = StoredFile { pieces: 0, changes: 0, changed_ns: 0, history: Vec::new() };
        self.files.push(file);
        let inode = FIRST_INODE + self.files.len() as u64 - 1;
        self.resize(inode, pieces);
        inode
    }

    /// Writes a piece of the file, unless the file ends before it.
    pub fn write(&mut self, inode: u64, piece: u64) {
        if piece >= self.file(inode).pieces {
            return;
        }
        let before = self.file(inode).changed_ns;
        let content = self.file(inode).history[piece as usize].last().map(|last| last.1);
        self.writes += 1;
        self.put(inode, piece, self.writes);
        self.changed(inode);
        let has_it = |mount: &Mount| mount.pages.get(&(inode, piece)).copied() == content;
        if self.file(inode).changed_ns == before && self.mounts.values().any(has_it) {
            self.unseen += 1;
        }
    }

    /// A program writes a piece past the page cache of its node, which learns of it.
    pub fn write_at(&mut self, device: u64, inode: u64, piece: u64) {
        let before = self.file(inode).changes;
        self.write(inode, piece);
        let StoredFile { pieces, changes, changed_ns, .. } = *self.file(inode);
        if changes == before {
            return;
        }
        let (content, asked_us) = (self.writes, self.now_us);
        let mount = self.mounts.entry(device).or_default();
        if mount.attributes.get(&inode).is_some_and(|known| known.changes != before) {
            // Others have changed the file, too.
            mount.pages.retain(|(of, _), _| *of != inode);
        }
        mount.attributes.insert(inode, Attributes { pieces, changes, changed_ns, asked_us });
        mount.pages.remove(&(inode, piece));
        mount.written.insert((inode, piece), content);
    }

    /// The last content that programs of the node have written to a piece.
    pub fn written_at(&self, device: u64, inode: u64, piece: u64) -> PieceContent {
        let written = self.mounts.get(&device).and_then(|it| it.written.get(&(inode, piece)));
        written.copied().unwrap_or(0)
    }

    /// Makes the file longer or shorter.
    pub fn resize(&mut self, inode: u64, pieces: u64) {
        let before = self.file(inode).pieces;
        for piece in before.min(pieces)..before.max(pieces) {
            self.writes += 1;
            let content = if piece < pieces { self.writes } else { 0 };
            self.put(inode, piece, content);
        }
        self.file_mut(inode).pieces = pieces;
        self.changed(inode);
    }

    fn put(&mut self, inode: u64, piece: u64, content: PieceContent) {
        let now_us = self.now_us;
        let history = &mut self.file_mut(inode).history;
        history.resize_with(history.len().max(piece as usize + 1), Vec::new);
        history[piece as usize].push((now_us, content));
    }

    fn changed(&mut self, inode: u64) {
        let now_us = BEGAN_US + self.now_us;
        let file = self.file_mut(inode);
        file.changes += 1;
        file.changed_ns = (now_us - now_us % TICK_US) * 1_000;
    }

    fn file(&self, inode: u64) -> &StoredFile {
        &self.files[(inode - FIRST_INODE) as usize]
    }

    fn file_mut(&mut self, inode: u64) -> &mut StoredFile {
        &mut self.files[(inode - FIRST_INODE) as usize]
    }

    /// Whether a piece had this content at some time in the range.
    pub fn had(&self, inode: u64, piece: u64, content: PieceContent, times: Range<u64>) -> bool {
        let Some(history) = self.file(inode).history.get(piece as usize) else {
            return content == 0;
        };
        let first = history.iter().rposition(|(at_us, _)| *at_us <= times.start);
        let before = if first.is_none() { Some(&(0, 0)) } else { None };
        let since = history.iter().skip(first.unwrap_or(0));
        let during = since.take_while(|(at_us, _)| *at_us <= times.end);
        before.into_iter().chain(during).any(|(_, was)| *was == content)
    }

    /// Asks for the attributes of a file, if they are old or `is_forced`. Bytes of an earlier
    /// version are dropped.
    fn refresh(&mut self, device: u64, inode: u64, is_forced: bool) -> Attributes {
        let now_us = self.now_us;
        let StoredFile { pieces, changes, changed_ns, .. } = *self.file(inode);
        let mount = self.mounts.entry(device).or_default();
        if let Some(known) = mount.attributes.get(&inode) {
            if !is_forced && now_us - known.asked_us < ATTRIBUTES_US {
                return *known;
            }
            if known.changes != changes {
                mount.pages.retain(|(of, _), _| *of != inode);
            }
        }
        let found = Attributes { pieces, changes, changed_ns, asked_us: now_us };
        mount.attributes.insert(inode, found);
        found
    }

    /// Bytes of the file, as the node knows.
    pub fn size_at(&mut self, device: u64, inode: u64) -> u64 {
        self.refresh(device, inode, false).pieces * PIECE_BYTES
    }

    /// The content of a piece that the node has in memory.
    pub fn cached(&self, device: u64, inode: u64, piece: u64) -> Option<PieceContent> {
        self.mounts.get(&device)?.pages.get(&(inode, piece)).copied()
    }

    /// Reads a piece as a program of the node would.
    pub fn read(&mut self, device: u64, inode: u64, piece: u64) -> PieceContent {
        if piece >= self.refresh(device, inode, false).pieces {
            return 0;
        }
        if let Some(content) = self.cached(device, inode, piece) {
            return content;
        }
        // The answer comes with the attributes.
        let now = self.refresh(device, inode, true);
        if piece >= now.pieces {
            return 0;
        }
        self.sent += 1;
        let content = self.file(inode).history[piece as usize].last().map_or(0, |last| last.1);
        self.mounts.entry(device).or_default().pages.insert((inode, piece), content);
        content
    }

    /// Drops bytes from the memory of a node: those for which `is_it` returns true.
    pub fn drop_pages(&mut self, device: u64, mut is_it: impl FnMut() -> bool) {
        if let Some(mount) = self.mounts.get_mut(&device) {
            mount.pages.retain(|_, _| !is_it());
        }
    }
}

/// A file that a program has open, and its agent.
#[derive(Clone)]
pub struct SimulatedFile {
    storage: SharedStorage,
    pub device: u64,
    pub inode: u64,
}

impl SimulatedFile {
    fn pieces_of(bytes: &Range<u64>) -> Range<u64> {
        bytes.start / PIECE_BYTES..bytes.end.div_ceil(PIECE_BYTES)
    }
}

impl ProgramFile for SimulatedFile {
    fn key(&self) -> Option<FileKey> {
        Some((self.device, self.inode))
    }

    fn version(&self, of: VersionOf) -> Option<PartFile> {
        let mut storage = self.storage.lock();
        let known = storage.refresh(self.device, self.inode, of == VersionOf::Storage);
        Some(PartFile {
            device: self.device,
            inode: self.inode,
            size_bytes: known.pieces * PIECE_BYTES,
            modified_ns: known.changed_ns,
            changed_ns: known.changed_ns,
        })
    }

    fn is_cached(&self, bytes: &Range<u64>) -> Option<bool> {
        let storage = self.storage.lock();
        let is_there = |piece| storage.cached(self.device, self.inode, piece).is_some();
        Some(Self::pieces_of(bytes).all(is_there))
    }

    /// The bytes of the piece: the number of the write that made it, and zeros.
    fn content(&self, extent: &Extent) -> Option<Vec<u8>> {
        let piece = extent.offset / PIECE_BYTES;
        let content = self.storage.lock().read(self.device, self.inode, piece);
        let mut bytes = vec![0; extent.size_bytes as usize];
        bytes
            .first_chunk_mut::<{ size_of::<PieceContent>() }>()?
            .copy_from_slice(&content.to_ne_bytes());
        (content != 0).then_some(bytes)
    }
}

/// The time of day at a node whose clock is wrong by this much.
pub fn time_of_day(now_us: u64, skew_us: i64) -> SystemTime {
    let at_us = (BEGAN_US + now_us).saturating_add_signed(skew_us);
    SystemTime::UNIX_EPOCH + Duration::from_micros(at_us)
}
