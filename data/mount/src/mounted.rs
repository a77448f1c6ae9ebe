//! The operations on entries: look up, create, change attributes, remove and rename.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use eyas_files::{ChunkCache, ContentDraft, DfsClient, EarlyUploads, RenameOptions, new_file_id};
use eyas_types::dfs::{AttributeChange, Attributes, FileKind};
use fuser::{Errno, INodeNo, Notifier};
use tokio::runtime::Handle;
use tokio::sync::RwLock;

use crate::failure::{MountFailure, shown};
use crate::handles::OpenHandle;
use crate::namespace::{Namespace, file_name};
use crate::nodes::{Found, Inode, Nodes, ROOT};
use crate::space::KnownSpace;
use crate::times::now_ns;
use crate::unpublished::UnpublishedFiles;

/// A mounted file system.
pub(crate) struct Mounted {
    pub namespace: Namespace,
    pub nodes: Nodes,
    pub scratch: PathBuf,
    /// Time after which an operation fails.
    pub timeout: Duration,
    pub chunk_bytes: u64,
    pub replication: u8,
    pub runtime: Handle,
    handles: Mutex<HashMap<u64, Arc<OpenHandle>>>,
    next_handle: AtomicU64,
    /// Tells the kernel that its cached content is no longer valid; set when the file system is
    /// mounted.
    pub notifier: OnceLock<Notifier>,
    pub known_space: KnownSpace,
    /// The chunks that readers have open.
    pub chunks: Arc<ChunkCache>,
    /// Number of threads that wait for a disk, of those that take the kernel's requests.
    pub waiting_for_disk: AtomicUsize,
    pub unpublished_files: UnpublishedFiles,
    pub early: EarlyUploads,
    /// Held while an entry is renamed. An entry that was not found meanwhile is looked for again.
    pub naming: RwLock<()>,
}

/// The user that makes a new entry, and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

impl Mounted {
    pub fn new(
        dfs: DfsClient,
        scratch: PathBuf,
        timeout: Duration,
        chunk_bytes: u64,
        replication: u8,
    ) -> Self {
        let namespace = Namespace::new(dfs);
        Mounted {
            nodes: Nodes::new(&namespace.root()),
            namespace,
            scratch,
            timeout,
            chunk_bytes,
            replication,
            runtime: Handle::current(),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            notifier: OnceLock::new(),
            known_space: KnownSpace::default(),
            chunks: ChunkCache::shared(),
            waiting_for_disk: AtomicUsize::new(0),
            unpublished_files: UnpublishedFiles::default(),
            early: EarlyUploads::default(),
            naming: RwLock::default(),
        }
    }

    /// The path of an entry in a folder.
    pub fn path(&self, folder: u64, name: &str) -> Result<String, MountFailure> {
        let folder = self.nodes.name(folder).ok_or(Errno::ENOENT)?;
        let path = format!("{folder}/{name}");
        file_name(&path)?;
        Ok(path)
    }

    /// The name of an entry as it is shown in the log.
    pub fn shown_name(&self, node: &Inode) -> String {
        shown(&self.nodes.name(node.number).unwrap_or_default())
    }

    /// Looks an entry up. The kernel gets a reference to it.
    pub async fn lookup(&self, folder: u64, name: &str) -> Result<Arc<Inode>, MountFailure> {
        loop {
            let changes = self.nodes.changes();
            let path = self.path(folder, name)?;
            match self.lookup_path(folder, &path).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {}
                Err(failure) if failure.errno == Errno::ENOENT => {
                    // A folder that is being renamed has its entries under both names.
                    drop(self.naming.read().await);
                    if self.nodes.changes() == changes || self.path(folder, name)? == path {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Looks a path up; `None` if its folder was renamed meanwhile.
    async fn lookup_path(
        &self,
        folder: u64,
        path: &str,
    ) -> Result<Option<Arc<Inode>>, MountFailure> {
        if let Some(node) = self.unpublished(path) {
            self.nodes.refer(&node);
            return Ok(Some(node));
        }
        match self.namespace.lookup(path).await {
            Ok(found) => Ok(self.nodes.looked_up(folder, path, &found)),
            Err(failure) => {
                // A file may have been created meanwhile.
                if let Some(node) = self.unpublished(path) {
                    self.nodes.refer(&node);
                    return Ok(Some(node));
                }
                Err(failure)
            }
        }
    }

    /// The file with this name, if it was created here and never published, or has changes here
    /// whose publication has failed.
    fn unpublished(&self, path: &str) -> Option<Arc<Inode>> {
        self.nodes.named(path).filter(|node| {
            let state = node.state();
            !state.is_published || state.is_late
        })
    }

    /// Asks the cluster for the present state of an entry, unless its changes are here.
    pub async fn refresh(&self, node: &Inode) -> Result<(), MountFailure> {
        {
            let state = node.state();
            if state.is_removed || !state.is_published || state.draft.is_some() {
                return Ok(());
            }
        }
        let mut again = true;
        loop {
            let Some(name) = self.nodes.name(node.number) else { return Ok(()) };
            match self.namespace.lookup(&name).await {
                Ok(found) if found.id == node.id || node.number == ROOT => {
                    node.state().learn(&found);
                    return Ok(());
                }
                Err(failure) if failure.errno != Errno::ENOENT => return Err(failure),
                // It may have been renamed or removed here meanwhile.
                _ if again => drop(self.naming.read().await),
                _ => return Err(Errno::ESTALE.into()),
            }
            again = self.nodes.name(node.number).is_some_and(|now| now != name);
        }
    }

    /// Creates a file, which appears in the cluster when it is closed or synced.
    /// One that must be new (`is_exclusive`) appears at once, empty, as other mounts may create it
    /// as well.
    pub async fn create(
        &self,
        folder: u64,
        path: &str,
        new: NewEntry,
        is_exclusive: bool,
    ) -> Result<Arc<Inode>, MountFailure> {
        let attributes = self.attributes(folder, new, false);
        let found = Found {
            id: new_file_id()?,
            kind: FileKind::File,
            size_bytes: 0,
            hole_bytes: 0,
            attributes,
            file: None,
        };
        let mut draft = ContentDraft::new(&self.scratch, None);
        let file = match is_exclusive {
            true => Some(Arc::new(self.create_empty(path, &found).await?)),
            false => {
                self.namespace.dfs.check_may_write(&file_name(path)?).await?;
                None
            }
        };
        let node = self.nodes.created(path, &found);
        let mut state = node.state();
        if let Some(file) = file {
            draft.begin_publication();
            draft.published(file.clone());
            state.is_published = true;
            state.cached = Some(file.clone());
            state.file = Some(file);
        }
        state.draft = Some(draft);
        drop(state);
        self.nodes.published(&node);
        self.touch(folder);
        Ok(node)
    }

    pub async fn make_folder(
        &self,
        folder: u64,
        path: &str,
        new: NewEntry,
    ) -> Result<Arc<Inode>, MountFailure> {
        if self.unpublished(path).is_some() {
            return Err(Errno::EEXIST.into());
        }
        let found = self.namespace.make_folder(path, self.attributes(folder, new, true)).await?;
        self.touch(folder);
        Ok(self.nodes.remember(path, &found, true))
    }

    pub async fn make_link(
        &self,
        folder: u64,
        path: &str,
        target: &str,
        new: NewEntry,
    ) -> Result<Arc<Inode>, MountFailure> {
        if self.unpublished(path).is_some() {
            return Err(Errno::EEXIST.into());
        }
        let found =
            self.namespace.make_link(path, target, self.attributes(folder, new, false)).await?;
        self.touch(folder);
        Ok(self.nodes.remember(path, &found, true))
    }

    /// The attributes of a new entry. In a folder with the setgid bit, it gets the group of the
    /// folder.
    fn attributes(&self, folder: u64, new: NewEntry, is_folder: bool) -> Attributes {
        let now_ns = now_ns();
        let NewEntry { uid, mut gid, mode } = new;
        let mut mode = (mode & 0o7777) as u16;
        if let Some((node, _)) = self.nodes.get(folder) {
            let of_folder = node.state().attributes;
            if of_folder.mode & 0o2000 != 0 {
                gid = of_folder.gid;
                mode |= if is_folder { 0o2000 } else { 0 };
            }
        }
        Attributes { mode, uid, gid, modified_ns: now_ns, changed_ns: now_ns }
    }

    /// An entry of a folder was created, removed or renamed.
    fn touch(&self, folder: u64) {
        if let Some((node, _)) = self.nodes.get(folder) {
            let mut state = node.state();
            state.attributes.modified_ns = now_ns();
            state.attributes.changed_ns = state.attributes.modified_ns;
        }
    }

    /// Changes attributes. Those of a file that was never published are kept until it is.
    pub async fn set_attributes(
        &self,
        node: &Inode,
        change: AttributeChange,
    ) -> Result<(), MountFailure> {
        let _publishing = node.publishing.lock().await;
        let is_local = {
            let mut state = node.state();
            let is_local = !state.is_published || state.is_removed || node.number == ROOT;
            if is_local {
                state.attributes = state.attributes.with(&change, now_ns());
            }
            is_local
        };
        let Some(name) = self.nodes.name(node.number).filter(|_| !is_local) else { return Ok(()) };
        let found = self.namespace.set_attributes(&name, &change).await?;
        let mut state = node.state();
        state.attributes = found.attributes;
        if let Some(file) = found.file {
            state.renew(file);
        }
        Ok(())
    }

    pub async fn remove(&self, folder: u64, path: &str) -> Result<(), MountFailure> {
        if let Some(node) = self.nodes.named(path) {
            let _publishing = node.publishing.lock().await;
            let is_published = node.state().is_published;
            if is_published {
                self.keep_content(&node).await?;
                let file = node.state().file.clone();
                let removed = self.namespace.remove(path, file.as_deref()).await;
                if removed.is_err() {
                    self.release_content(&node).await;
                }
                removed?;
            }
            node.state().is_unlinked = true;
            self.nodes.removed(path);
        } else {
            self.namespace.remove(path, None).await?;
        }
        self.touch(folder);
        Ok(())
    }

    pub async fn remove_folder(&self, folder: u64, path: &str) -> Result<(), MountFailure> {
        if !self.nodes.pending_in(path).is_empty() {
            return Err(Errno::ENOTEMPTY.into());
        }
        self.namespace.remove_folder(path).await?;
        self.nodes.removed(path);
        self.touch(folder);
        Ok(())
    }

    pub async fn rename(
        &self,
        folders: (u64, u64),
        from: &str,
        to: &str,
        replaces: bool,
    ) -> Result<(), MountFailure> {
        if from == to {
            return Ok(());
        }
        let (moved, over) = (self.nodes.named(from), self.nodes.named(to));
        if over.is_some() && !replaces {
            return Err(Errno::EEXIST.into());
        }
        if !self.nodes.pending_in(to).is_empty() {
            return Err(Errno::ENOTEMPTY.into());
        }
        // Locks are taken in one order.
        let mut nodes: Vec<_> = moved.iter().chain(&over).collect();
        nodes.sort_by_key(|node| node.number);
        nodes.dedup_by_key(|node| node.number);
        let mut publishing = Vec::new();
        for node in nodes {
            publishing.push(node.publishing.lock().await);
        }
        if let Some(moved) = &moved {
            self.publish_locked(moved, false).await?;
        }
        if let Some(over) = &over {
            let is_published = over.state().is_published;
            if is_published {
                self.keep_content(over).await?;
            }
        }
        {
            let _naming = self.naming.write().await;
            // A draft is based on the chunks that the file has.
            let keeps_format = moved.as_ref().is_some_and(|node| node.state().draft.is_some());
            let options = RenameOptions { replaces, makes_parents: false, keeps_format };
            let renamed = self.namespace.rename(from, to, options).await;
            if let Some(over) = &over {
                over.state().is_unlinked |= renamed.is_ok();
                if renamed.is_err() {
                    self.release_content(over).await;
                }
            }
            renamed?;
            self.nodes.renamed(from, to);
        }
        self.touch(folders.0);
        self.touch(folders.1);
        if let Some(moved) = &moved
            && let Ok(found) = self.namespace.lookup(to).await
            && found.id == moved.id
        {
            let mut state = moved.state();
            state.attributes = found.attributes;
            if let Some(file) = found.file {
                state.renew(file);
            }
        }
        Ok(())
    }

    /// Gives the kernel a handle.
    pub fn open_handle(&self, handle: OpenHandle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles().insert(number, Arc::new(handle));
        number
    }

    pub fn handle(&self, number: u64) -> Result<Arc<OpenHandle>, MountFailure> {
        self.handles().get(&number).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    pub fn close_handle(&self, number: u64) -> Option<Arc<OpenHandle>> {
        self.handles().remove(&number)
    }

    fn handles(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenHandle>>> {
        // No update of the table panics half-way.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel forgets the attributes that it has cached of a file, and asks for them again.
    pub fn invalidate_attributes(&self, node: &Inode) {
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have forgotten the file.
            let _ = notifier.inval_inode(INodeNo(node.number), -1, 0);
        }
    }

    /// The kernel forgets the content that it has cached of a file. Does not wait for the kernel,
    /// which may wait for an answer of this process.
    pub fn invalidate(&self, node: &Inode) {
        let Some(notifier) = self.notifier.get().cloned() else { return };
        node.state().cached = None;
        let number = INodeNo(node.number);
        self.runtime.spawn_blocking(move || {
            if let Err(error) = notifier.inval_inode(number, 0, 0) {
                tracing::debug!("the kernel does not forget a cached file: {error}");
            }
        });
    }
}
