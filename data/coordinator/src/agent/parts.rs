//! Parts of files that agents pass on to each other, and when a part may be passed on.
//!
//! A part comes with the version of its file, and is of use to an agent that finds the same version
//! on its own node. The giver asks the storage for the version before and after it reads the part:
//! then its kernel drops bytes of an earlier version first, and no change happens unnoticed in
//! between.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use eyas_board::{Board, CachedFile, PIECE_BYTES, PartFile, VersionOf};
use eyas_types::{Extent, StorageFileId};
use serde::{Deserialize, Serialize};

use super::program_file::ProgramFile;

/// Parts of a file are passed on only when it has not changed for this time. Its time of change
/// would not tell about a further change in the same moment.
const SETTLED: Duration = Duration::from_secs(2);

/// Message to an agent that has a part: which one is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartWanted {
    /// The storage, by the name that all nodes give it.
    pub storage: String,
    pub file: StorageFileId,
    pub extent: Extent,
}

/// Answer of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PartAnswer {
    /// The part will follow.
    Wait,
    /// The part.
    Part(GivenPart),
    /// The file is changing.
    Refused,
    /// The agent has closed the file, or no longer has the part.
    Closed,
}

/// Bytes of a file, and the version that the file had before and after they were read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GivenPart {
    pub size_bytes: u64,
    pub modified_ns: u64,
    pub changed_ns: u64,
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
}

/// A part that has come, and the version of its file on this node, which is the same.
pub(crate) struct TakenPart {
    pub file: PartFile,
    pub content: Vec<u8>,
}

/// A part that this agent has or will have in memory: in the page cache, or on the board.
pub(crate) struct OpenPart<F> {
    pub board: &'static Board,
    pub file: Arc<F>,
    pub entry: &'static CachedFile,
    pub extent: Extent,
    /// Whether this agent is taking the part from another one.
    pub is_taken: bool,
}

impl GivenPart {
    /// Bytes of this version of a file.
    fn of(file: &PartFile, content: Vec<u8>) -> GivenPart {
        let PartFile { size_bytes, modified_ns, changed_ns, .. } = *file;
        GivenPart { size_bytes, modified_ns, changed_ns, content }
    }

    /// The part, if the file has the same version on this node. The kernel may ask the storage.
    pub(crate) fn taken(self, own: &impl ProgramFile) -> Option<TakenPart> {
        let file = own.version(VersionOf::Kernel)?;
        let version = (file.size_bytes, file.modified_ns, file.changed_ns);
        let is_same = (self.size_bytes, self.modified_ns, self.changed_ns) == version;
        is_same.then_some(TakenPart { file, content: self.content })
    }
}

impl<F: ProgramFile> OpenPart<F> {
    /// Whether the part is still coming into memory. The file has this device and number.
    pub fn is_coming(&self, file: &PartFile) -> bool {
        self.entry.is_of(file.device, file.inode)
            && self
                .entry
                .piece(self.extent.offset / PIECE_BYTES)
                .is_some_and(|piece| piece.ready_end() < self.extent.end())
    }

    /// What an agent that wants the part is told once the part is no longer coming: the part, if it
    /// is in memory; on the board, if it was taken, or in the page cache.
    pub fn answer(&self, now: SystemTime) -> PartAnswer {
        let OpenPart { board, file, entry, extent, .. } = self;
        let number = extent.offset / PIECE_BYTES;
        if extent.size_bytes > PIECE_BYTES || !extent.offset.is_multiple_of(PIECE_BYTES) {
            return PartAnswer::Refused;
        }
        if let Some(slot) = entry.slot(number).and_then(|slot| board.parts.get(slot))
            && let Some(version) = file.version(VersionOf::Kernel)
        {
            let mut content = vec![0; extent.size_bytes as usize];
            if slot.copy(&version, number, 0, &mut content).is_some() {
                return PartAnswer::Part(GivenPart::of(&version, content));
            }
        }
        // It was given up, or has left memory. To read it here would cost the storage a seek.
        if file.is_cached(&(extent.offset..extent.end())) == Some(false) {
            return PartAnswer::Closed;
        }
        self.given(now).map_or(PartAnswer::Refused, PartAnswer::Part)
    }

    /// The part and its version; `None` if the file is changing.
    fn given(&self, now: SystemTime) -> Option<GivenPart> {
        // A second change in the same moment is seen by the kernel alone, which then drops what it
        // has of the file.
        let before = self.file.version(VersionOf::Storage)?;
        let content = self.file.content(&self.extent)?;
        let is_same = self.file.version(VersionOf::Storage)? == before;
        (is_same && is_settled(before.changed_ns, now)).then(|| GivenPart::of(&before, content))
    }
}

fn is_settled(changed_ns: u64, now: SystemTime) -> bool {
    let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(changed_ns));
    let passed = changed.and_then(|changed| now.duration_since(changed).ok());
    passed.is_some_and(|passed| passed >= SETTLED)
}
