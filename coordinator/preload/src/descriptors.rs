//! What is known of the program's descriptors: whether they are of shared storage, and what may be read and written at once.
//!
//! All of it is learned at the first call and may be wrong later, as descriptors are closed and opened in ways that are not
//! seen here. Nothing but order depends on it, and whoever is about to wait looks at the file again.

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::kept::Kept;

/// Descriptors that are ordered; a program that has more than that open has the rest unordered.
const DESCRIPTORS: usize = 1 << 16;
/// No line of the board.
const NO_LINE: u32 = u32::MAX;
/// The position is not known.
const NO_POSITION: u64 = u64::MAX;

static ALL: [Descriptor; DESCRIPTORS] = [const { Descriptor::unknown() }; DESCRIPTORS];

/// What a descriptor is of.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Of {
    /// That has not been looked at. The memory of all descriptors begins as that.
    Unknown,
    /// Not a file of shared storage, or not one that is ordered.
    Elsewhere,
    /// A file of shared storage.
    Shared,
    /// The same, read and written past the page cache.
    Direct,
}

/// Where the bytes are that the program has written.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Writes {
    /// In the page cache, until it is synced or the kernel sees fit.
    Gather,
    /// The same, but closing waits for the storage to have them.
    GatherTillClose,
    /// On the storage, when the call ends.
    PassThrough,
}

/// One descriptor.
pub(crate) struct Descriptor {
    of: AtomicU32,
    writes: AtomicU32,
    /// Whether it writes at the end of its file.
    appends: AtomicU32,
    line: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// From where to where it may read at once, and at which of the agent's beats that was learned, counted from 1.
    start: AtomicU64,
    end: AtomicU64,
    beat: AtomicU64,
    /// Where the storage stands on the board if whatever is done with the file need not ask, and at which beat that was learned.
    place: AtomicU32,
    place_beat: AtomicU64,
    /// Where it last read, as far as that was looked at.
    last: AtomicU64,
    /// Whether something that it was to read was not in memory, and whether that is not told of its file.
    has_missed: AtomicBool,
    is_untold: AtomicBool,
    /// Where it stands, as far as its own calls tell: others may have moved it.
    position: AtomicU64,
    /// What it has written that may not be on the storage: from where to where.
    gathered_start: AtomicU64,
    gathered_end: AtomicU64,
    kept: Kept,
}

/// What there is to know of a descriptor, if there is room for it.
#[inline]
pub(crate) fn get(descriptor: c_int) -> Option<&'static Descriptor> {
    usize::try_from(descriptor).ok().and_then(|place| ALL.get(place))
}

/// A descriptor has come, by whatever call; says so by handing it on.
#[inline]
pub(crate) fn came(descriptor: c_int) -> c_int {
    if let Some(known) = get(descriptor) {
        known.of.store(Of::Unknown as u32, Ordering::Relaxed);
        known.forget();
    }
    descriptor
}

impl Descriptor {
    const fn unknown() -> Descriptor {
        Descriptor {
            of: AtomicU32::new(Of::Unknown as u32),
            writes: AtomicU32::new(Writes::Gather as u32),
            appends: AtomicU32::new(0),
            line: AtomicU32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            beat: AtomicU64::new(0),
            place: AtomicU32::new(0),
            place_beat: AtomicU64::new(0),
            last: AtomicU64::new(0),
            has_missed: AtomicBool::new(false),
            is_untold: AtomicBool::new(false),
            position: AtomicU64::new(0),
            gathered_start: AtomicU64::new(0),
            gathered_end: AtomicU64::new(0),
            kept: Kept::none(),
        }
    }

    #[inline]
    pub(crate) fn of(&self) -> Of {
        match self.of.load(Ordering::Relaxed) {
            1 => Of::Elsewhere,
            2 => Of::Shared,
            3 => Of::Direct,
            _ => Of::Unknown,
        }
    }

    /// Begins anew with what was found out about it.
    pub(crate) fn learn(&self, of: Of, writes: Writes, appends: bool, (device, inode): (u64, u64)) {
        self.forget();
        self.writes.store(writes as u32, Ordering::Relaxed);
        self.appends.store(appends.into(), Ordering::Relaxed);
        self.gathered_end.store(0, Ordering::Relaxed);
        self.kept.forget();
        self.line.store(NO_LINE, Ordering::Relaxed);
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.of.store(of as u32, Ordering::Relaxed);
    }

    /// It has to ask again for whatever it does.
    pub(crate) fn forbid(&self) {
        self.beat.store(0, Ordering::Relaxed);
        self.place_beat.store(0, Ordering::Relaxed);
    }

    /// The same, and nobody knows where it stands.
    fn forget(&self) {
        self.forbid();
        self.position.store(NO_POSITION, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        self.has_missed.store(false, Ordering::Relaxed);
        self.is_untold.store(false, Ordering::Relaxed);
    }

    /// It is not of anything that is ordered.
    pub(crate) fn learn_nothing(&self) {
        self.learn(Of::Elsewhere, Writes::Gather, false, (0, 0));
    }

    #[inline]
    pub(crate) fn writes(&self) -> Writes {
        match self.writes.load(Ordering::Relaxed) {
            1 => Writes::GatherTillClose,
            2 => Writes::PassThrough,
            _ => Writes::Gather,
        }
    }

    /// Whether it writes at the end of its file.
    pub(crate) fn appends(&self) -> bool {
        self.appends.load(Ordering::Relaxed) != 0
    }

    /// The turn that it keeps.
    #[inline]
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// These bytes have been written, and may not be on the storage.
    #[inline]
    pub(crate) fn gather(&self, bytes: Range<u64>) {
        let end = self.gathered_end.load(Ordering::Relaxed);
        let start = if end == 0 { bytes.start } else { self.gathered_start.load(Ordering::Relaxed).min(bytes.start) };
        self.gathered_start.store(start, Ordering::Relaxed);
        self.gathered_end.store(end.max(bytes.end), Ordering::Relaxed);
    }

    /// So many bytes more have been written, about where others were.
    pub(crate) fn gather_more(&self, bytes: u64) {
        let end = self.gathered_end.load(Ordering::Relaxed);
        self.gather(end..end.saturating_add(bytes));
    }

    /// What has been written since this was last asked, and may not be on the storage.
    pub(crate) fn take_gathered(&self) -> Option<Range<u64>> {
        let end = self.gathered_end.swap(0, Ordering::Relaxed);
        let start = self.gathered_start.load(Ordering::Relaxed);
        (start < end).then_some(start..end)
    }

    /// Whether it was learned of this file.
    pub(crate) fn is_of(&self, file: (u64, u64)) -> bool {
        self.of() != Of::Unknown && self.file() == file
    }

    /// The file that it was learned of: device and inode.
    pub(crate) fn file(&self) -> (u64, u64) {
        (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed))
    }

    /// Whether these bytes may be read at once, at this beat of the agent.
    #[inline]
    pub(crate) fn may_read(&self, beat: u64, offset: u64, length: u64) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        offset >= self.start.load(Ordering::Relaxed)
            && offset.saturating_add(length) <= end
            && self.beat.load(Ordering::Relaxed) == beat + 1
    }

    /// Lets it read these bytes at once until the agent's next beat.
    pub(crate) fn permit(&self, beat: u64, bytes: Range<u64>) {
        self.beat.store(0, Ordering::Relaxed);
        self.start.store(bytes.start, Ordering::Relaxed);
        self.end.store(bytes.end, Ordering::Relaxed);
        self.beat.store(beat + 1, Ordering::Relaxed);
    }

    /// The place of its storage, if nobody asks there at this beat of the agent.
    #[inline]
    pub(crate) fn unordered(&self, beat: u64) -> Option<usize> {
        (self.place_beat.load(Ordering::Relaxed) == beat + 1).then(|| self.place.load(Ordering::Relaxed) as usize)
    }

    /// Lets it do everything at once until the agent's next beat: its storage has this place.
    pub(crate) fn leave_alone(&self, beat: u64, place: usize) {
        self.place.store(place as u32, Ordering::Relaxed);
        self.place_beat.store(beat + 1, Ordering::Relaxed);
    }

    /// Whether something that it was to read was not in memory.
    #[inline]
    pub(crate) fn has_missed(&self) -> bool {
        self.has_missed.load(Ordering::Relaxed)
    }

    pub(crate) fn miss(&self) {
        self.has_missed.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel does not tell this program what it has in memory of the file.
    pub(crate) fn is_untold(&self) -> bool {
        self.is_untold.load(Ordering::Relaxed)
    }

    pub(crate) fn set_untold(&self) {
        self.is_untold.store(true, Ordering::Relaxed);
    }

    /// Where it read last.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last(&self, last: u64) {
        self.last.store(last, Ordering::Relaxed);
    }

    /// Where it stands, if that is known.
    #[inline]
    pub(crate) fn position(&self) -> Option<u64> {
        Some(self.position.load(Ordering::Relaxed)).filter(|position| *position != NO_POSITION)
    }

    #[inline]
    pub(crate) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Moves its position by what was read or written.
    #[inline]
    pub(crate) fn advance(&self, bytes: isize) {
        if let (Some(position), Ok(bytes)) = (self.position(), u64::try_from(bytes)) {
            self.set_position(position + bytes);
        }
    }

    /// The line that says what of its file is in memory.
    pub(crate) fn line(&self) -> Option<usize> {
        let line = self.line.load(Ordering::Relaxed);
        (self.of() != Of::Unknown && line != NO_LINE).then_some(line as usize)
    }

    pub(crate) fn set_line(&self, line: usize) {
        self.line.store(line as u32, Ordering::Relaxed);
    }
}
