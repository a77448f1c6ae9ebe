//! The entries that the kernel knows: files, folders and symbolic links by their inode number and
//! by their name.
//!
//! The inode number follows from the id of the entry, so it is the same in all mounts, and after a
//! rename. An entry is forgotten when the kernel has forgotten it and no change of it waits for
//! publication.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster_entry::ClusterEntry;
use crate::inode::{Inode, ROOT};

/// All entries that the kernel knows.
#[derive(Debug)]
pub(crate) struct Inodes(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    known: HashMap<u64, InodeEntry>,
    by_name: BTreeMap<String, u64>,
    /// Names of files that were created and that have never been published.
    pending: BTreeSet<String>,
    /// Number of changes of names by programs of this mount. A listing from before a change is
    /// outdated.
    changes: u64,
}

#[derive(Debug)]
struct InodeEntry {
    node: Arc<Inode>,
    /// The path from the root, which is empty for the root itself; `None` if the entry was
    /// removed.
    name: Option<String>,
    /// Number of references that the kernel has.
    lookups: u64,
}

impl Inodes {
    pub fn new(root: &ClusterEntry) -> Self {
        let node = Arc::new(Inode::new(ROOT, root, true));
        let mut tables = Tables::default();
        tables.known.insert(ROOT, InodeEntry { node, name: Some(String::new()), lookups: 1 });
        tables.by_name.insert(String::new(), ROOT);
        Inodes(Mutex::new(tables))
    }

    /// The entry with this number, and its name if it was not removed.
    pub fn get(&self, number: u64) -> Option<(Arc<Inode>, Option<String>)> {
        self.tables().known.get(&number).map(|known| (known.node.clone(), known.name.clone()))
    }

    /// The current name of an entry.
    pub fn name(&self, number: u64) -> Option<String> {
        self.tables().known.get(&number)?.name.clone()
    }

    /// The entry with this name, if the kernel knows it.
    pub fn named(&self, name: &str) -> Option<Arc<Inode>> {
        let tables = self.tables();
        tables
            .by_name
            .get(name)
            .and_then(|number| tables.known.get(number))
            .map(|known| known.node.clone())
    }

    /// Number of changes of names by programs of this mount.
    pub fn changes(&self) -> u64 {
        self.tables().changes
    }

    /// A program of this mount has created a file.
    pub fn created(&self, name: &str, found: &ClusterEntry) -> Arc<Inode> {
        self.tables().changes += 1;
        self.remember(name, found, false)
    }

    /// Takes an entry that was looked up in a folder. `None` if the folder has another name now.
    pub fn looked_up(&self, folder: u64, name: &str, found: &ClusterEntry) -> Option<Arc<Inode>> {
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        (self.name(folder).as_deref() == Some(above)).then(|| self.remember(name, found, true))
    }

    /// Takes an entry that the cluster has, or a new one. The kernel gets a reference to it.
    pub fn remember(&self, name: &str, found: &ClusterEntry, is_published: bool) -> Arc<Inode> {
        let mut tables = self.tables();
        let number = tables.number_of(name, found);
        tables.unname(name, Some(number));
        tables.by_name.insert(name.to_owned(), number);
        if !is_published {
            tables.pending.insert(name.to_owned());
        }
        let node = match tables.known.get_mut(&number) {
            Some(known) => {
                known.lookups += 1;
                let before = known.name.replace(name.to_owned());
                let node = known.node.clone();
                if let Some(before) = before.filter(|before| before != name) {
                    tables.by_name.remove(&before);
                }
                node
            }
            None => {
                let node = Arc::new(Inode::new(number, found, is_published));
                tables.known.insert(
                    number,
                    InodeEntry { node: node.clone(), name: Some(name.to_owned()), lookups: 1 },
                );
                return node;
            }
        };
        drop(tables);
        node.state().looked_up(found);
        node
    }

    /// The inode number that an entry with this name has or would have.
    pub fn number_of(&self, name: &str, found: &ClusterEntry) -> u64 {
        self.tables().number_of(name, found)
    }

    /// The kernel gets a further reference to an entry.
    pub fn refer(&self, node: &Inode) {
        if let Some(known) = self.tables().known.get_mut(&node.number) {
            known.lookups += 1;
        }
    }

    /// The kernel gives references back.
    pub fn forget(&self, number: u64, lookups: u64) {
        let mut tables = self.tables();
        let Some(known) = tables.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        tables.drop_if_unused(number);
    }

    /// A publication has ended: forgets the entry if nothing uses it.
    pub fn published(&self, node: &Inode) {
        let mut tables = self.tables();
        let is_published = node.state().is_published();
        let name = tables.known.get(&node.number).and_then(|known| known.name.clone());
        if let Some(name) = name.filter(|_| is_published) {
            tables.pending.remove(&name);
        }
        tables.drop_if_unused(node.number);
    }

    /// The entry with this name was removed, here or by another client.
    pub fn removed(&self, name: &str) -> Option<Arc<Inode>> {
        let mut tables = self.tables();
        tables.changes += 1;
        tables.unname(name, None)
    }

    /// An entry was renamed, with all entries below it.
    pub fn renamed(&self, from: &str, to: &str) {
        let mut tables = self.tables();
        tables.changes += 1;
        tables.unname(to, None);
        let below = format!("{from}/");
        let after: (Bound<&str>, Bound<&str>) = (Bound::Included(&below), Bound::Unbounded);
        let within =
            tables.by_name.range::<str, _>(after).take_while(|(name, _)| name.starts_with(&below));
        let mut moved: Vec<String> = within.map(|(name, _)| name.clone()).collect();
        moved.push(from.to_owned());
        for name in moved {
            let Some(number) = tables.by_name.remove(&name) else { continue };
            let new = format!("{to}{}", &name[from.len()..]);
            if tables.pending.remove(&name) {
                tables.pending.insert(new.clone());
            }
            if let Some(known) = tables.known.get_mut(&number) {
                if let Ok(name) = new.parse() {
                    known.node.state().rename(&name);
                }
                known.name = Some(new.clone());
            }
            tables.by_name.insert(new, number);
        }
    }

    /// The files in a folder that were created and never published, sorted by name.
    pub fn pending_in(&self, folder: &str) -> Vec<(String, Arc<Inode>)> {
        let tables = self.tables();
        let below = format!("{folder}/");
        let after: (Bound<&str>, Bound<&str>) = (Bound::Included(&below), Bound::Unbounded);
        let within =
            tables.pending.range::<str, _>(after).take_while(|name| name.starts_with(&below));
        let here = within.filter(|name| !name[below.len()..].contains('/'));
        let named = here.filter_map(|name| {
            let node = tables.known.get(tables.by_name.get(name)?)?.node.clone();
            Some((name[below.len()..].to_owned(), node))
        });
        named.collect()
    }

    /// All entries.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.tables().known.values().map(|known| known.node.clone()).collect()
    }

    /// Entries with a draft, which may have to be published or may be under publication.
    pub fn with_drafts(&self) -> Vec<Arc<Inode>> {
        self.all().into_iter().filter(|node| node.state().draft().is_some()).collect()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // No update of the tables panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// The number follows from the id of the entry. While a folder is being moved, it has one id
    /// under two names; it must be two inodes then, as the kernel knows a folder by one name.
    fn number_of(&self, name: &str, found: &ClusterEntry) -> u64 {
        let is_other = |known: &InodeEntry| {
            let has_other_name =
                found.kind.is_folder() && known.name.as_deref().is_some_and(|known| known != name);
            known.node.id != found.id || has_other_name
        };
        if let Some(number) = self.by_name.get(name)
            && self.known.get(number).is_some_and(|known| !is_other(known))
        {
            return *number;
        }
        let mut number = ((found.id.0 >> 64) as u64 ^ found.id.0 as u64).max(ROOT + 1);
        while self.known.get(&number).is_some_and(is_other) {
            number = number.wrapping_add(1).max(ROOT + 1);
        }
        number
    }

    /// Takes a name from its entry, unless it is the entry with the number `but`.
    fn unname(&mut self, name: &str, but: Option<u64>) -> Option<Arc<Inode>> {
        let number = self.by_name.get(name).copied().filter(|number| Some(*number) != but)?;
        self.by_name.remove(name);
        self.pending.remove(name);
        let known = self.known.get_mut(&number)?;
        known.name = None;
        let node = known.node.clone();
        node.state().unnamed();
        self.drop_if_unused(number);
        Some(node)
    }

    fn drop_if_unused(&mut self, number: u64) {
        let Some(known) = self.known.get(&number) else { return };
        let is_used = known.lookups > 0 || known.node.state().is_in_use();
        if is_used || number == ROOT {
            return;
        }
        if let Some(name) = self.known.remove(&number).and_then(|known| known.name) {
            self.by_name.remove(&name);
            self.pending.remove(&name);
        }
    }
}
