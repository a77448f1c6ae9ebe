//! Lists of the entries that a node leads, merged from its partitions and sorted by name.
//!
//! A list of one level skips the names below subfolders: it finds the first name of each subfolder and continues after
//! the last one. The subfolders found in this way are *implied*: names are below them, whether or not the subfolders
//! have entries.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::FileName;

use crate::event::{FileAnswer, ListDepth, Listing, Refusal};
use crate::node::{RingNode, Step};
use crate::record::Stored;
use crate::record_view::following;

/// Maximum number of entries, and of implied folders, in one answer, whatever the client asks for.
pub const MAX_LISTED: usize = 1000;

/// Maximum number of names that are read for one answer. Names of removed files are read, too.
const MAX_NAMES_READ: usize = 20_000;

impl RingNode {
    pub(crate) fn list(
        &mut self,
        request: u64,
        view: u64,
        within: (&str, &str),
        most: u32,
        depth: ListDepth,
        step: &mut Step,
    ) {
        let answer = if view == self.number() {
            self.listed(within, (most as usize).clamp(1, MAX_LISTED), depth, step)
        } else {
            Err(Refusal::OtherView { view: self.number() })
        };
        self.answer(request, answer, step);
    }

    fn listed(
        &mut self,
        (folder, from): (&str, &str),
        most: usize,
        depth: ListDepth,
        step: &mut Step,
    ) -> Result<FileAnswer, Refusal> {
        let served = |partition: &u16| self.answers(*partition, step.now_us);
        if !self.leading.keys().all(served) {
            return Err(Refusal::NotYet);
        }
        let folder = folder.trim_end_matches('/');
        let inside = format!("{folder}/");
        let first_within = |step: &Step, partition, from: &str| {
            let mut found = step.records.first(partition, from)?;
            if !found.0.is_within(folder) && found.0.as_str() < inside.as_str() {
                found = step.records.first(partition, &inside)?;
            }
            found.0.is_within(folder).then_some((found.0, (partition, found.1)))
        };
        let start = match depth {
            ListDepth::OneLevel => inside.as_str(),
            ListDepth::All => folder,
        };
        let from = from.max(start);
        let partitions: Vec<u16> = self.leading.keys().copied().collect();
        // The next entry of each partition.
        let mut heads: BTreeMap<FileName, (u16, Stored)> =
            partitions.into_iter().filter_map(|partition| first_within(step, partition, from)).collect();
        let (mut entries, mut implied, mut read) = (Vec::new(), Vec::<FileName>::new(), 0);
        while let Some((name, (partition, stored))) = heads.pop_first() {
            read += 1;
            if entries.len() == most || implied.len() == most || read > MAX_NAMES_READ {
                let next = Some(name.as_str().to_owned());
                return Ok(FileAnswer::Listed { entries, implied, next });
            }
            let shown = self.shown(&name, stored);
            if let Some(shown) = &shown
                && self.expects(&name, shown, step)
            {
                return Err(Refusal::NotYet);
            }
            let record = shown.as_ref().and_then(|shown| shown.entry.file());
            let subfolder = match depth {
                ListDepth::OneLevel => subfolder(&inside, &name),
                ListDepth::All => None,
            };
            let after = match (record, subfolder) {
                (Some(_), Some(subfolder)) => {
                    let after = after_folder(&subfolder);
                    if implied.last() != Some(&subfolder) {
                        implied.push(subfolder);
                    }
                    after
                }
                (record, _) => {
                    let after = following(name.as_str());
                    entries.extend(record.map(|record| Listing::of(name, record)));
                    after
                }
            };
            heads.extend(first_within(step, partition, &after));
        }
        Ok(FileAnswer::Listed { entries, implied, next: None })
    }

    /// The entry of a name that clients see: the one before a write that is not acknowledged yet.
    fn shown(&self, name: &FileName, stored: Stored) -> Option<Stored> {
        match self.pending.get(name).and_then(|pending| pending.operation.before()) {
            Some(before) => before.cloned(),
            None => Some(stored),
        }
    }
}

/// The folder directly inside a folder that has this name below it; `None` for a name directly inside. `inside` is the
/// outer folder with a slash at the end.
fn subfolder(inside: &str, name: &FileName) -> Option<FileName> {
    let rest = name.as_str().strip_prefix(inside)?;
    let (first, _) = rest.split_once('/')?;
    // A part of a name up to a slash is a name.
    Some(format!("{inside}{first}").parse().expect("it is the beginning of a name"))
}

/// The smallest text after all names below a folder: `0` follows the slash.
fn after_folder(folder: &FileName) -> String {
    format!("{folder}0")
}
