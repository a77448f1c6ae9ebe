//! Lists of the files that a node leads, merged from its partitions and sorted by name.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use eyas_types::dfs::FileName;

use crate::event::{FileAnswer, Listing, Refusal};
use crate::node::{RingNode, Step};
use crate::record::Stored;
use crate::record_view::following;

/// Maximum number of files in one answer, whatever the client asks for.
pub const MAX_LISTED: usize = 1000;

impl RingNode {
    pub(crate) fn list(&mut self, request: u64, view: u64, (folder, after): (&str, &str), most: u32, step: &mut Step) {
        let answer = if view == self.number() {
            let most = (most as usize).min(MAX_LISTED);
            self.listed(folder, after, most, step).map(|(files, has_more)| FileAnswer::Listed { files, has_more })
        } else {
            Err(Refusal::OtherView { view: self.number() })
        };
        self.answer(request, answer, step);
    }

    fn listed(
        &mut self,
        folder: &str,
        after: &str,
        most: usize,
        step: &mut Step,
    ) -> Result<(Vec<Listing>, bool), Refusal> {
        let served = |partition: &u16| self.answers(*partition, step.now_us);
        if !self.leading.keys().all(served) {
            return Err(Refusal::NotYet);
        }
        let inside = format!("{}/", folder.trim_end_matches('/'));
        let first_within = |step: &Step, partition, from: &str| {
            let mut found = step.records.first(partition, from)?;
            if !found.0.is_within(folder) && found.0.as_str() < inside.as_str() {
                found = step.records.first(partition, &inside)?;
            }
            found.0.is_within(folder).then_some((found.0, (partition, found.1)))
        };
        let from = if after < folder { folder.to_owned() } else { following(after) };
        let partitions: Vec<u16> = self.leading.keys().copied().collect();
        // The next entry of each partition.
        let mut heads: BTreeMap<FileName, (u16, Stored)> =
            partitions.into_iter().filter_map(|partition| first_within(step, partition, &from)).collect();
        let mut files = Vec::new();
        while let Some((name, (partition, stored))) = heads.pop_first() {
            heads.extend(first_within(step, partition, &following(name.as_str())));
            let shown = match self
                .pending
                .get(&name)
                .map(|pending| &pending.operation)
                .and_then(|operation| operation.before())
            {
                Some(before) => before.cloned(),
                None => Some(stored),
            };
            let Some(shown) = shown else { continue };
            if self.expects(&name, &shown, step) {
                return Err(Refusal::NotYet);
            }
            let Some(record) = shown.entry.file() else { continue };
            if files.len() == most {
                return Ok((files, true));
            }
            let (id, size_bytes, modified_us) = (record.id, record.size_bytes(), record.modified_us);
            files.push(Listing { name, id, size_bytes, modified_us });
        }
        Ok((files, false))
    }
}
