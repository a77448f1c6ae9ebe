//! Lists of the entries that a node leads, merged from its partitions and sorted by name.
//!
//! A list of one level skips the names below subfolders: it finds the first name of each subfolder
//! and continues after the last one. The subfolders found in this way are *implied*: names are
//! below them, whether or not the subfolders have entries.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::FileName;

use crate::event::{FileAnswer, ListDepth, Listing, Refusal};
use crate::membership::RingMembership;
use crate::record::Stored;
use crate::record_view::following;
use crate::serve::LedNames;
use crate::step::Step;

/// Maximum number of entries, and of implied folders, in one answer, whatever the client asks for.
pub const MAX_LISTED: usize = 1000;

/// Maximum number of names that are read for one answer. Names of removed files are read, too.
const MAX_NAMES_READ: usize = 20_000;

/// A question for the entries of a folder.
pub(crate) struct ListQuery<'a> {
    /// The folder, without a slash at the end.
    folder: &'a str,
    /// The folder with a slash at the end.
    inside: String,
    /// The name to begin with.
    from: &'a str,
    most: usize,
    depth: ListDepth,
}

impl<'a> ListQuery<'a> {
    pub fn new(folder: &'a str, from: &'a str, most: u32, depth: ListDepth) -> Self {
        let folder = folder.trim_end_matches('/');
        ListQuery {
            folder,
            inside: format!("{folder}/"),
            from,
            most: (most as usize).clamp(1, MAX_LISTED),
            depth,
        }
    }

    /// The entries from `names`, whose partitions this node serves.
    pub fn answer(
        &self,
        names: &mut LedNames,
        here: &RingMembership,
        step: &mut Step,
    ) -> Result<FileAnswer, Refusal> {
        let start = match self.depth {
            ListDepth::OneLevel => self.inside.as_str(),
            ListDepth::All => self.folder,
        };
        let from = self.from.max(start);
        // The next entry of each partition.
        let mut heads: BTreeMap<FileName, (u16, Stored)> = names
            .partitions
            .partitions()
            .filter_map(|partition| self.first_within(step, partition, from))
            .collect();
        let (mut entries, mut implied, mut read) = (Vec::new(), Vec::<FileName>::new(), 0);
        while let Some((name, (partition, stored))) = heads.pop_first() {
            read += 1;
            if entries.len() == self.most || implied.len() == self.most || read > MAX_NAMES_READ {
                let next = Some(name.as_str().to_owned());
                return Ok(FileAnswer::Listed { entries, implied, next });
            }
            let shown = names.shown(&name, stored);
            if let Some(shown) = &shown
                && names.expects(here, &name, shown, step)
            {
                return Err(Refusal::NotYet);
            }
            let record = shown.as_ref().and_then(|shown| shown.entry.file());
            let subfolder = match self.depth {
                ListDepth::OneLevel => subfolder(&self.inside, &name),
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
            heads.extend(self.first_within(step, partition, &after));
        }
        Ok(FileAnswer::Listed { entries, implied, next: None })
    }

    /// The first entry of a partition from a name on that is the folder or below it.
    fn first_within(
        &self,
        step: &Step,
        partition: u16,
        from: &str,
    ) -> Option<(FileName, (u16, Stored))> {
        let mut found = step.records.first(partition, from)?;
        if !found.0.is_within(self.folder) && found.0.as_str() < self.inside.as_str() {
            found = step.records.first(partition, &self.inside)?;
        }
        found.0.is_within(self.folder).then_some((found.0, (partition, found.1)))
    }
}

/// The folder directly inside a folder that has this name below it; `None` for a name directly
/// inside. `inside` is the outer folder with a slash at the end.
fn subfolder(inside: &str, name: &FileName) -> Option<FileName> {
    let rest = name.as_str().strip_prefix(inside)?;
    let (first, _) = rest.split_once('/')?;
    // A part of a name up to a slash is a name.
    Some(format!("{inside}{first}").parse().expect("it is the beginning of a name"))
}

/// The smallest text after all names below a folder, since `0` follows the slash: `/f/a0` comes
/// after `/f/a/z`, and after `/f/a-b`, which is not below `/f/a`.
fn after_folder(folder: &FileName) -> String {
    format!("{folder}0")
}
