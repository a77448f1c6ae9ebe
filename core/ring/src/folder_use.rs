//! The use of folders: the number and the size of the entries below a folder that this node leads.
//!
//! The first question for a folder makes the node read the names below it, some at each call. From
//! then on the node keeps the sums current with every write, so that further questions cost
//! nothing. A view change discards all sums.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use eyas_types::dfs::FileName;

use crate::event::{FileAnswer, Refusal};
use crate::record::Stored;
use crate::record_view::{RecordView, following};
use crate::view_change::LedPartitions;

/// Maximum number of folders whose use a node keeps. The one that was not asked for the longest is
/// forgotten first.
pub const MAX_FOLDERS_KEPT: usize = 1024;

/// Maximum number of names that are read in one call.
pub(crate) const MAX_NAMES_READ: usize = 20_000;

/// The folders whose use was asked for, without a slash at the end.
#[derive(Default)]
pub(crate) struct FolderUses {
    folders: BTreeMap<String, FolderUse>,
    /// Number of questions so far.
    asked: u64,
}

struct FolderUse {
    bytes: u64,
    files: u64,
    /// The partition and name from which names are still to be read; `None` when all were read.
    rest: Option<(u16, String)>,
    /// Number of the last question.
    asked: u64,
}

impl FolderUse {
    fn new() -> Self {
        FolderUse { bytes: 0, files: 0, rest: Some((0, String::new())), asked: 0 }
    }

    fn change(&mut self, before: Option<u64>, after: Option<u64>) {
        let count = |size: Option<u64>| u64::from(size.is_some());
        self.bytes = (self.bytes + after.unwrap_or(0)).saturating_sub(before.unwrap_or(0));
        self.files = (self.files + count(after)).saturating_sub(count(before));
    }
}

impl FolderUses {
    /// A view has begun: this node may lead other names.
    pub fn forget(&mut self) {
        self.folders.clear();
    }

    /// An entry is saved in place of another one.
    pub fn saved(
        &mut self,
        partition: u16,
        name: &FileName,
        before: Option<&Stored>,
        after: &Stored,
    ) {
        for (folder, of) in &mut self.folders {
            let is_read = of
                .rest
                .as_ref()
                .is_none_or(|(at, from)| (partition, name.as_str()) < (*at, from.as_str()));
            if is_read && is_below(name, folder) {
                of.change(before.and_then(size_of), size_of(after));
            }
        }
    }

    /// The use of a folder, without a slash at the end; `StillCounting` until all names below it
    /// were read. Of a folder with 50,000 names, the third question gets the answer.
    pub fn used(
        &mut self,
        partitions: &LedPartitions,
        folder: &str,
        records: &RecordView,
    ) -> Result<FileAnswer, Refusal> {
        let FolderUses { folders, asked } = self;
        *asked += 1;
        if !folders.contains_key(folder) && folders.len() >= MAX_FOLDERS_KEPT {
            let oldest =
                folders.iter().min_by_key(|(_, of)| of.asked).map(|(folder, _)| folder.clone());
            oldest.map(|folder| folders.remove(&folder));
        }
        let of = folders.entry(folder.into()).or_insert_with(FolderUse::new);
        of.asked = *asked;
        let inside = format!("{folder}/");
        for _ in 0..MAX_NAMES_READ {
            let Some((at, from)) = of.rest.clone() else { break };
            let Some(partition) = partitions.first_from(at) else {
                of.rest = None;
                break;
            };
            let from =
                if partition == at && from > inside { from.as_str() } else { inside.as_str() };
            of.rest = Some(
                match records.first(partition, from).filter(|(name, _)| is_below(name, folder)) {
                    Some((name, stored)) => {
                        of.change(None, size_of(&stored));
                        (partition, following(name.as_str()))
                    }
                    None => (partition + 1, String::new()),
                },
            );
        }
        match of.rest {
            Some(_) => Err(Refusal::StillCounting),
            None => Ok(FileAnswer::Used { bytes: of.bytes, files: of.files }),
        }
    }
}

/// The size of an entry that counts.
fn size_of(stored: &Stored) -> Option<u64> {
    stored.entry.file().map(|record| record.size_bytes())
}

fn is_below(name: &FileName, folder: &str) -> bool {
    name.is_within(folder) && name.as_str() != folder
}
