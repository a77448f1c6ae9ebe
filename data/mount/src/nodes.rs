//! The entries that the kernel knows: files, folders and symbolic links by their inode number and
//! by their name.
//!
//! The inode number follows from the id of the entry, so it is the same in all mounts, and after a
//! rename. An entry is forgotten when the kernel has forgotten it and no change of it waits for
//! publication.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_files::{ContentDraft, File, FileReader, RetainedFile, SentRecords, renamed};
use eyas_types::ObjectId;
use eyas_types::dfs::{Attributes, FileId, FileKind, FileName, NamedAttributes};

use crate::answers::REMEMBERED;
use crate::times::now_ns;

/// The inode number of the root.
pub(crate) const ROOT: u64 = 1;

/// An entry as the cluster has it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub id: FileId,
    pub kind: FileKind,
    pub size_bytes: u64,
    /// Size of the zeros in the content that no node stores.
    pub hole_bytes: u64,
    pub attributes: Attributes,
    /// The version of a file; `None` if the entry was only listed.
    pub file: Option<Arc<File>>,
}

/// A file, a folder or a symbolic link.
#[derive(Debug)]
pub(crate) struct Inode {
    pub number: u64,
    pub id: FileId,
    /// Held while a draft is published, or while the entry is renamed or removed.
    pub publishing: tokio::sync::Mutex<()>,
    /// The records with which publications of the draft were tried since the last one that
    /// succeeded.
    pub sent: SentRecords,
    state: Mutex<NodeState>,
}

/// The state of an entry.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub kind: FileKind,
    pub attributes: Attributes,
    /// The named attributes, if they are known.
    pub named: Option<NamedAttributes>,
    /// Size of the published version.
    pub size_bytes: u64,
    /// Size of its holes.
    pub hole_bytes: u64,
    /// The published version, if it is known.
    pub file: Option<Arc<File>>,
    /// The version whose content the kernel may have cached.
    pub cached: Option<Arc<File>>,
    pub draft: Option<ContentDraft>,
    /// Whether the entry is in the cluster.
    pub is_published: bool,
    pub is_removed: bool,
    /// Whether a program of this mount has removed the file or replaced it: its draft is not
    /// published.
    pub is_unlinked: bool,
    /// Whether the publication of the draft has failed, and no program has opened the file for
    /// writing since. The draft must not replace what other clients have written meanwhile.
    pub is_late: bool,
    /// Copies of the content, from when the file is removed or replaced until no program has it
    /// open.
    pub retained: Option<Arc<RetainedFile>>,
    /// Reads the content, from the first read until no program has the file open.
    pub reader: Option<Arc<FileReader>>,
    /// Number of open handles.
    pub handles: u32,
    /// Number of open handles that may write.
    pub writers: u32,
    /// When the cluster was last asked.
    pub checked: Instant,
    /// Chunks that a publication, here or of another client, has stored and that may not be on the
    /// disks of their nodes yet.
    pub volatile: BTreeSet<ObjectId>,
}

impl Inode {
    fn new(number: u64, found: &Found, is_published: bool) -> Self {
        let unsynced = found.file.iter().flat_map(|file| file.record.unsynced_chunks());
        let volatile = unsynced.map(|chunk| chunk.object).collect();
        let state = NodeState {
            kind: found.kind.clone(),
            attributes: found.attributes,
            named: match &found.file {
                Some(file) => Some(file.record.named.clone()),
                None => (!is_published).then(NamedAttributes::default),
            },
            size_bytes: found.size_bytes,
            hole_bytes: found.hole_bytes,
            file: found.file.clone(),
            cached: None,
            draft: None,
            is_published,
            is_removed: false,
            is_unlinked: false,
            is_late: false,
            retained: None,
            reader: None,
            handles: 0,
            writers: 0,
            checked: Instant::now(),
            volatile,
        };
        let (publishing, sent) = (tokio::sync::Mutex::default(), SentRecords::default());
        Inode { number, id: found.id, publishing, sent, state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, NodeState> {
        // No update of the state panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeState {
    /// Size of the content that programs of this mount see.
    pub fn size_bytes(&self) -> u64 {
        self.draft.as_ref().map_or(self.size_bytes, ContentDraft::size_bytes)
    }

    /// Size of that content without its holes.
    pub fn stored_bytes(&self) -> u64 {
        self.draft
            .as_ref()
            .map_or(self.size_bytes.saturating_sub(self.hole_bytes), ContentDraft::stored_bytes)
    }

    pub fn is_dirty(&self) -> bool {
        self.draft.as_ref().is_some_and(ContentDraft::is_dirty)
    }

    /// Time for which the kernel may still trust the attributes that are known here.
    pub fn trusted_for(&self) -> Duration {
        match self.kind == FileKind::File && self.file.is_none() && self.draft.is_none() {
            // Another client has changed the file.
            true => Duration::ZERO,
            false => REMEMBERED.saturating_sub(self.checked.elapsed()),
        }
    }

    /// Whether there are changes to publish and no program will do so, as none has the file open
    /// for writing.
    pub fn is_abandoned(&self) -> bool {
        self.writers == 0 && self.is_dirty() && !self.is_unlinked
    }

    /// The file from which a published version is read.
    pub fn readable(&self, version: Option<&Arc<File>>) -> Option<Arc<File>> {
        match &self.retained {
            Some(retained) => Some(retained.file().clone()),
            None => version.cloned(),
        }
    }

    /// A program has changed the content.
    pub fn written_now(&mut self) {
        let now_ns = now_ns();
        (self.attributes.modified_ns, self.attributes.changed_ns) = (now_ns, now_ns);
    }

    /// The content of these bytes was published as a version. With `is_durable`, all of its chunks
    /// are on the disks.
    pub fn published(&mut self, file: Arc<File>, size_bytes: u64, is_durable: bool) {
        if let Some(draft) = &mut self.draft {
            draft.published(file.clone());
        }
        let before: BTreeSet<ObjectId> = self.file.iter().flat_map(|file| objects(file)).collect();
        let is_volatile = |object: &ObjectId| {
            !is_durable && (!before.contains(object) || self.volatile.contains(object))
        };
        self.volatile = objects(&file).filter(is_volatile).collect();
        // The kernel has cached what programs have written.
        self.cached = Some(file.clone());
        (self.size_bytes, self.hole_bytes) = (size_bytes, file.record.hole_bytes());
        if !self.is_dirty() {
            self.attributes = file.record.attributes;
        }
        self.named = Some(file.record.named.clone());
        self.file = Some(file);
        (self.is_published, self.is_late) = (true, false);
    }

    /// The file has a new name.
    fn rename(&mut self, name: &FileName) {
        if let Some(draft) = &mut self.draft {
            draft.rename(name);
        }
        self.file = self.file.take().map(|file| renamed(&file, name));
    }

    /// Takes a version with the content that is known.
    pub fn renew(&mut self, file: Arc<File>) {
        self.named = Some(file.record.named.clone());
        if let Some(draft) = &mut self.draft {
            draft.rebase(&file);
            if draft.base().is_some_and(|base| !base.record.is_as_written(&file.record)) {
                // Another client has changed the content. The publication of the draft will say so.
                return;
            }
        }
        if self.cached.as_ref().is_some_and(|cached| cached.record.is_as_written(&file.record)) {
            self.cached = Some(file.clone());
        }
        (self.size_bytes, self.hole_bytes) = (file.record.size_bytes(), file.record.hole_bytes());
        self.file = Some(file);
    }

    /// Takes the news that the cluster has of the entry. The changes of programs of this mount
    /// remain.
    pub fn learn(&mut self, found: &Found) {
        self.checked = Instant::now();
        if self.draft.is_some() {
            return;
        }
        if found.kind.is_folder() && self.attributes.modified_ns > found.attributes.modified_ns {
            // A folder's time in the cluster is not that of the last change of its entries.
            let (modified_ns, changed_ns) =
                (self.attributes.modified_ns, self.attributes.changed_ns);
            self.attributes = Attributes { modified_ns, changed_ns, ..found.attributes };
        } else {
            self.attributes = found.attributes;
        }
        self.named = found.file.as_ref().map(|file| file.record.named.clone());
        self.kind.clone_from(&found.kind);
        (self.size_bytes, self.hole_bytes) = (found.size_bytes, found.hole_bytes);
        match &found.file {
            Some(file) => {
                let is_known = self
                    .file
                    .as_ref()
                    .is_some_and(|known| known.record.is_as_written(&file.record));
                if !is_known {
                    // Another client may have left its content in the memory of the nodes.
                    self.volatile =
                        file.record.unsynced_chunks().map(|chunk| chunk.object).collect();
                }
                self.file = Some(file.clone());
            }
            // A listing has no chunks: the version that is known may be another one.
            None if self
                .file
                .as_ref()
                .is_some_and(|file| file.record.size_bytes() != found.size_bytes) =>
            {
                self.file = None;
            }
            None => {}
        }
    }
}

/// All entries that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    known: HashMap<u64, Known>,
    by_name: BTreeMap<String, u64>,
    /// Names of files that were created and that have never been published.
    pending: BTreeSet<String>,
    /// Number of changes of names by programs of this mount. A listing from before a change is
    /// outdated.
    changes: u64,
}

#[derive(Debug)]
struct Known {
    node: Arc<Inode>,
    /// The path from the root, which is empty for the root itself; `None` if the entry was
    /// removed.
    name: Option<String>,
    /// Number of references that the kernel has.
    lookups: u64,
}

impl Nodes {
    pub fn new(root: &Found) -> Self {
        let node = Arc::new(Inode::new(ROOT, root, true));
        let mut tables = Tables::default();
        tables.known.insert(ROOT, Known { node, name: Some(String::new()), lookups: 1 });
        tables.by_name.insert(String::new(), ROOT);
        Nodes(Mutex::new(tables))
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
    pub fn created(&self, name: &str, found: &Found) -> Arc<Inode> {
        self.tables().changes += 1;
        self.remember(name, found, false)
    }

    /// Takes an entry that was looked up in a folder. `None` if the folder has another name now.
    pub fn looked_up(&self, folder: u64, name: &str, found: &Found) -> Option<Arc<Inode>> {
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        (self.name(folder).as_deref() == Some(above)).then(|| self.remember(name, found, true))
    }

    /// Takes an entry that the cluster has, or a new one. The kernel gets a reference to it.
    pub fn remember(&self, name: &str, found: &Found, is_published: bool) -> Arc<Inode> {
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
                    Known { node: node.clone(), name: Some(name.to_owned()), lookups: 1 },
                );
                return node;
            }
        };
        drop(tables);
        let mut state = node.state();
        state.is_removed = false;
        state.learn(found);
        drop(state);
        node
    }

    /// The inode number that an entry with this name has or would have.
    pub fn number_of(&self, name: &str, found: &Found) -> u64 {
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
        let is_published = node.state().is_published;
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
        self.all().into_iter().filter(|node| node.state().draft.is_some()).collect()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // No update of the tables panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// The number follows from the id of the entry. While a folder is being moved, it has one id
    /// under two names; it must be two inodes then, as the kernel knows a folder by one name.
    fn number_of(&self, name: &str, found: &Found) -> u64 {
        let is_other = |known: &Known| {
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
        node.state().is_removed = true;
        self.drop_if_unused(number);
        Some(node)
    }

    fn drop_if_unused(&mut self, number: u64) {
        let Some(known) = self.known.get(&number) else { return };
        let is_used = {
            let state = known.node.state();
            known.lookups > 0 || state.handles > 0 || (state.draft.is_some() && !state.is_removed)
        };
        if is_used || number == ROOT {
            return;
        }
        if let Some(name) = self.known.remove(&number).and_then(|known| known.name) {
            self.by_name.remove(&name);
            self.pending.remove(&name);
        }
    }
}

fn objects(file: &File) -> impl Iterator<Item = ObjectId> {
    file.record.chunks.iter().map(|chunk| chunk.object)
}
