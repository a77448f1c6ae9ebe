//! Reading folders, page by page.

use std::collections::{BTreeMap, VecDeque};

use crate::cluster_entry::ClusterEntry;
use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::inode::{Inode, ROOT};

/// Number of entries that are requested at a time.
const PAGE: u32 = 1000;

/// Entries before those of the cluster: `.` and `..`.
const DOTS: u64 = 2;

/// An open folder.
pub(crate) struct FolderReader {
    pub number: u64,
    pub path: String,
    /// The position of the first entry of `page`.
    first: u64,
    page: VecDeque<(String, ClusterEntry, bool)>,
    /// The path from which the next page continues; `None` at the end.
    next: Option<String>,
    /// Number of changes of names when the page was requested.
    changes: u64,
}

/// An entry of a folder at a position.
pub(crate) struct FolderEntry {
    pub name: String,
    pub found: ClusterEntry,
    /// Whether the file was created here and never published.
    pub is_pending: bool,
}

impl FolderReader {
    pub fn new(number: u64, path: String) -> Self {
        FolderReader {
            number,
            path,
            first: 0,
            page: VecDeque::new(),
            next: Some(String::new()),
            changes: 0,
        }
    }

    /// The entries from a position on, as far as they are listed; none at the end of the folder.
    /// Positions before 2 are those of `.` and `..`.
    pub async fn entries(
        &mut self,
        entries: &Entries,
        position: u64,
    ) -> Result<Vec<FolderEntry>, MountFailure> {
        let wanted = position.saturating_sub(DOTS);
        if wanted < self.first {
            *self = FolderReader::new(self.number, std::mem::take(&mut self.path));
        }
        loop {
            let behind = (wanted - self.first).min(self.page.len() as u64);
            self.page.drain(..behind as usize);
            self.first += behind;
            if self.page.is_empty()
                && let Some(from) = self.next.take()
            {
                self.read_page(entries, &from).await?;
                continue;
            }
            let entry = |(name, found, is_pending): &(String, ClusterEntry, bool)| FolderEntry {
                name: name.clone(),
                found: found.clone(),
                is_pending: *is_pending,
            };
            return Ok(self.page.iter().map(entry).collect());
        }
    }

    /// Whether programs of this mount have changed names since the page was requested.
    pub fn is_outdated(&self, entries: &Entries) -> bool {
        self.changes != entries.inodes.changes()
    }

    /// Requests the page from a path on, and adds the files to it that were created here and never
    /// published.
    async fn read_page(&mut self, entries: &Entries, from: &str) -> Result<(), MountFailure> {
        self.changes = entries.inodes.changes();
        let listed = entries.namespace.list(&self.path, from, PAGE).await?;
        let page = listed.entries.into_iter().map(|(name, found)| (name, (found, false)));
        let mut page: BTreeMap<String, (ClusterEntry, bool)> = page.collect();
        for (name, node) in entries.inodes.pending_in(&self.path) {
            let path = format!("{}/{name}", self.path);
            if path.as_str() >= from && listed.next.as_ref().is_none_or(|next| path < *next) {
                page.insert(name, (found_here(&node), true));
            }
        }
        self.next = listed.next;
        self.page
            .extend(page.into_iter().map(|(name, (found, is_pending))| (name, found, is_pending)));
        Ok(())
    }
}

/// An entry as this mount has it.
fn found_here(node: &Inode) -> ClusterEntry {
    let state = node.state();
    let (kind, attributes) = (state.kind().clone(), state.attributes());
    let (size_bytes, hole_bytes) = (state.size_bytes(), state.size_bytes() - state.stored_bytes());
    ClusterEntry {
        id: node.id,
        kind,
        size_bytes,
        hole_bytes,
        attributes,
        file: state.file().cloned(),
    }
}

/// The folder above a folder, of which only the number is needed.
pub(crate) fn parent(entries: &Entries, path: &str) -> u64 {
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    entries.inodes.named(above).map_or(ROOT, |node| node.number)
}
