//! What is known about the program's descriptors: whether they are of shared storage, and what may
//! be read and written without asking.
//!
//! All of it is learned at the first call. It may be wrong later, because descriptors can be closed
//! and opened in ways that this library does not see. Only order depends on it, and a call that is
//! about to wait checks the file again.

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::kept_turn::KeptTurn;

/// Descriptors that are tracked; calls on higher ones are unordered.
const DESCRIPTORS: usize = 1 << 16;
/// No entry of the board's files.
const NO_INDEX: u32 = u32::MAX;
/// Unknown position.
const NO_POSITION: u64 = u64::MAX;

static ALL: [Descriptor; DESCRIPTORS] = [const { Descriptor::unknown() }; DESCRIPTORS];

/// Kind of storage that a descriptor refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum StorageKind {
    /// Not yet looked at: the initial memory of all descriptors.
    Unknown,
    /// Not a file of shared storage, or not ordered.
    NotShared,
    /// A file of shared storage.
    Shared,
    /// The same, read and written past the page cache.
    Direct,
}

/// The destination of written bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WritePath {
    /// To the page cache, until they are synced or the kernel writes them back.
    Buffered,
    /// The same, and closing waits for the storage.
    BufferedUntilClose,
    /// To the storage, before the call returns.
    PassThrough,
}

/// State of one descriptor.
pub(crate) struct Descriptor {
    storage: AtomicU32,
    writes: AtomicU32,
    /// Whether writes append to the file.
    appends: AtomicU32,
    file_index: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Range that may be read without asking, and the heartbeat in which that was learned, plus 1.
    start: AtomicU64,
    end: AtomicU64,
    permit_heartbeat_ms: AtomicU64,
    /// Index of the file's storage if it is bypassed, and the heartbeat in which that was learned,
    /// plus 1.
    bypass_index: AtomicU32,
    bypass_heartbeat_ms: AtomicU64,
    /// End of the last read that was looked at.
    last_end: AtomicU64,
    /// Whether some bytes to be read were not in memory; and whether the kernel refuses to say so
    /// for this file.
    has_missed: AtomicBool,
    cachestat_denied: AtomicBool,
    /// Position, as far as the descriptor's own calls tell; another process may have moved it.
    position: AtomicU64,
    /// Range of written bytes that may not be on the storage.
    dirty_start: AtomicU64,
    dirty_end: AtomicU64,
    kept_turn: KeptTurn,
}

/// State of a descriptor, if it is tracked.
#[inline]
pub(crate) fn get(descriptor: c_int) -> Option<&'static Descriptor> {
    usize::try_from(descriptor).ok().and_then(|place| ALL.get(place))
}

/// A descriptor was opened. Returns the descriptor.
#[inline]
pub(crate) fn opened(descriptor: c_int) -> c_int {
    if let Some(known) = get(descriptor) {
        known.storage.store(StorageKind::Unknown as u32, Ordering::Relaxed);
        known.forget();
    }
    descriptor
}

impl Descriptor {
    const fn unknown() -> Descriptor {
        Descriptor {
            storage: AtomicU32::new(StorageKind::Unknown as u32),
            writes: AtomicU32::new(WritePath::Buffered as u32),
            appends: AtomicU32::new(0),
            file_index: AtomicU32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            permit_heartbeat_ms: AtomicU64::new(0),
            bypass_index: AtomicU32::new(0),
            bypass_heartbeat_ms: AtomicU64::new(0),
            last_end: AtomicU64::new(0),
            has_missed: AtomicBool::new(false),
            cachestat_denied: AtomicBool::new(false),
            position: AtomicU64::new(0),
            dirty_start: AtomicU64::new(0),
            dirty_end: AtomicU64::new(0),
            kept_turn: KeptTurn::none(),
        }
    }

    #[inline]
    pub(crate) fn storage(&self) -> StorageKind {
        match self.storage.load(Ordering::Relaxed) {
            1 => StorageKind::NotShared,
            2 => StorageKind::Shared,
            3 => StorageKind::Direct,
            _ => StorageKind::Unknown,
        }
    }

    /// Begins anew with the properties of the file.
    pub(crate) fn learn(
        &self,
        storage: StorageKind,
        writes: WritePath,
        appends: bool,
        (device, inode): (u64, u64),
    ) {
        self.forget();
        self.writes.store(writes as u32, Ordering::Relaxed);
        self.appends.store(appends.into(), Ordering::Relaxed);
        self.dirty_end.store(0, Ordering::Relaxed);
        self.kept_turn.forget();
        self.file_index.store(NO_INDEX, Ordering::Relaxed);
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.storage.store(storage as u32, Ordering::Relaxed);
    }

    /// Every further call has to ask again.
    pub(crate) fn revoke_permits(&self) {
        self.permit_heartbeat_ms.store(0, Ordering::Relaxed);
        self.bypass_heartbeat_ms.store(0, Ordering::Relaxed);
    }

    /// The same, and the position is unknown.
    fn forget(&self) {
        self.revoke_permits();
        self.position.store(NO_POSITION, Ordering::Relaxed);
        self.last_end.store(0, Ordering::Relaxed);
        self.has_missed.store(false, Ordering::Relaxed);
        self.cachestat_denied.store(false, Ordering::Relaxed);
    }

    /// The descriptor is not of an ordered file.
    pub(crate) fn mark_not_shared(&self) {
        self.learn(StorageKind::NotShared, WritePath::Buffered, false, (0, 0));
    }

    #[inline]
    pub(crate) fn writes(&self) -> WritePath {
        match self.writes.load(Ordering::Relaxed) {
            1 => WritePath::BufferedUntilClose,
            2 => WritePath::PassThrough,
            _ => WritePath::Buffered,
        }
    }

    /// Whether writes append to the file.
    pub(crate) fn appends(&self) -> bool {
        self.appends.load(Ordering::Relaxed) != 0
    }

    /// The turn that the descriptor keeps.
    #[inline]
    pub(crate) fn kept_turn(&self) -> &KeptTurn {
        &self.kept_turn
    }

    /// Adds written bytes that may not be on the storage.
    #[inline]
    pub(crate) fn add_dirty(&self, bytes: Range<u64>) {
        let end = self.dirty_end.load(Ordering::Relaxed);
        let start = if end == 0 {
            bytes.start
        } else {
            self.dirty_start.load(Ordering::Relaxed).min(bytes.start)
        };
        self.dirty_start.store(start, Ordering::Relaxed);
        self.dirty_end.store(end.max(bytes.end), Ordering::Relaxed);
    }

    /// The same for bytes written near earlier ones.
    pub(crate) fn extend_dirty(&self, bytes: u64) {
        let end = self.dirty_end.load(Ordering::Relaxed);
        self.add_dirty(end..end.saturating_add(bytes));
    }

    /// Takes the range of written bytes that may not be on the storage.
    pub(crate) fn take_dirty(&self) -> Option<Range<u64>> {
        let end = self.dirty_end.swap(0, Ordering::Relaxed);
        let start = self.dirty_start.load(Ordering::Relaxed);
        (start < end).then_some(start..end)
    }

    /// Whether the state is of this file.
    pub(crate) fn is_of(&self, file: (u64, u64)) -> bool {
        self.storage() != StorageKind::Unknown && self.file() == file
    }

    /// Device and inode of the file.
    pub(crate) fn file(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// Whether these bytes may be read without asking, in this heartbeat.
    #[inline]
    pub(crate) fn may_read(&self, heartbeat_ms: u64, offset: u64, length: u64) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        offset >= self.start.load(Ordering::Relaxed)
            && offset.saturating_add(length) <= end
            && self.permit_heartbeat_ms.load(Ordering::Relaxed) == heartbeat_ms + 1
    }

    /// Permits reading these bytes without asking until the next heartbeat.
    pub(crate) fn permit_reads(&self, heartbeat_ms: u64, bytes: Range<u64>) {
        self.permit_heartbeat_ms.store(0, Ordering::Relaxed);
        self.start.store(bytes.start, Ordering::Relaxed);
        self.end.store(bytes.end, Ordering::Relaxed);
        self.permit_heartbeat_ms.store(heartbeat_ms + 1, Ordering::Relaxed);
    }

    /// Index of the file's storage, if it is bypassed in this heartbeat.
    #[inline]
    pub(crate) fn bypassed(&self, heartbeat_ms: u64) -> Option<usize> {
        (self.bypass_heartbeat_ms.load(Ordering::Relaxed) == heartbeat_ms + 1)
            .then(|| self.bypass_index.load(Ordering::Relaxed) as usize)
    }

    /// All calls proceed until the next heartbeat: the storage with this index is bypassed.
    pub(crate) fn set_bypassed(&self, heartbeat_ms: u64, index: usize) {
        self.bypass_index.store(index as u32, Ordering::Relaxed);
        self.bypass_heartbeat_ms.store(heartbeat_ms + 1, Ordering::Relaxed);
    }

    /// Whether some bytes to be read were not in memory.
    #[inline]
    pub(crate) fn has_missed(&self) -> bool {
        self.has_missed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_missed(&self) {
        self.has_missed.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel refuses to tell this program what it has in memory of the file.
    pub(crate) fn cachestat_denied(&self) -> bool {
        self.cachestat_denied.load(Ordering::Relaxed)
    }

    pub(crate) fn deny_cachestat(&self) {
        self.cachestat_denied.store(true, Ordering::Relaxed);
    }

    /// End of the last read.
    pub(crate) fn last_end(&self) -> u64 {
        self.last_end.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_end(&self, last_end: u64) {
        self.last_end.store(last_end, Ordering::Relaxed);
    }

    /// Position, if known.
    #[inline]
    pub(crate) fn position(&self) -> Option<u64> {
        Some(self.position.load(Ordering::Relaxed)).filter(|position| *position != NO_POSITION)
    }

    #[inline]
    pub(crate) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Advances the position by the result of a call.
    #[inline]
    pub(crate) fn advance(&self, bytes: isize) {
        if let (Some(position), Ok(bytes)) = (self.position(), u64::try_from(bytes)) {
            self.set_position(position + bytes);
        }
    }

    /// Index of the file in the board's files.
    pub(crate) fn file_index(&self) -> Option<usize> {
        let index = self.file_index.load(Ordering::Relaxed);
        (self.storage() != StorageKind::Unknown && index != NO_INDEX).then_some(index as usize)
    }

    pub(crate) fn set_file_index(&self, index: usize) {
        self.file_index.store(index as u32, Ordering::Relaxed);
    }
}
