//! A mounted file system: its parts, and the operations that need several of them.
//!
//! Each part has fields that no other part changes, and gets what else it needs as arguments; the
//! state of a file changes only by the transitions in `inode/state.rs`.

mod naming;
mod retries;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eyas_files::{DfsClient, File};
use eyas_types::dfs::{AttributeChange, FileKind};
use fuser::{Errno, FopenFlags, OpenAccMode, OpenFlags};
use tokio::runtime::Handle;

use crate::drafts::{DraftPart, Drafts};
use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::handles::{OpenContent, OpenHandles};
use crate::inode::{CacheAtOpen, Inode};
use crate::kernel_cache::KernelCache;
use crate::new_files::NewFiles;
use crate::publication::{DraftPublisher, ShownEntries};
use crate::reading::Readers;
use crate::removed::RemovedContent;
use crate::space::SpaceGauge;
use crate::storing::DraftStore;
use crate::unpublished::UnpublishedFiles;

/// A mounted file system.
pub(crate) struct Mounted {
    pub entries: Entries,
    pub handles: OpenHandles,
    pub readers: Readers,
    pub space: SpaceGauge,
    pub kernel_cache: KernelCache,
    pub removed: RemovedContent,
    /// Time after which an operation fails.
    pub timeout: Duration,
    new_files: NewFiles,
    drafts: Drafts,
    publisher: DraftPublisher,
    unpublished: UnpublishedFiles,
}

impl Mounted {
    pub fn new(dfs: DfsClient, scratch: PathBuf, timeout: Duration, new_files: NewFiles) -> Self {
        let runtime = Handle::current();
        let store = DraftStore::new(dfs.clone(), runtime.clone(), new_files);
        Mounted {
            entries: Entries::new(dfs.clone()),
            handles: OpenHandles::new(),
            readers: Readers::new(dfs.clone()),
            space: SpaceGauge::new(dfs.clone(), new_files.replication),
            kernel_cache: KernelCache::new(runtime.clone()),
            removed: RemovedContent::new(dfs.clone()),
            timeout,
            new_files,
            publisher: DraftPublisher::new(store, scratch.clone()),
            drafts: Drafts::new(dfs, runtime, scratch, new_files),
            unpublished: UnpublishedFiles::default(),
        }
    }

    fn shown(&self) -> ShownEntries<'_> {
        ShownEntries { entries: &self.entries, kernel_cache: &self.kernel_cache }
    }

    // ---- opening and closing

    /// Opens a file. Asks the cluster for its present version, so that a program that opens a file
    /// after another one has closed it sees its content.
    pub async fn open(
        &self,
        node: Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<(u64, FopenFlags), MountFailure> {
        self.entries.refresh(&node).await?;
        let may_write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if may_write && let Some(name) = self.entries.inodes.name(node.number) {
            self.entries.namespace.check_may_write(&name).await?;
        }
        let cache = {
            let mut state = node.state();
            if *state.kind() != FileKind::File {
                return Err(Errno::EINVAL.into());
            }
            state.cache_at_open()
        };
        let opened = match cache {
            CacheAtOpen::Current => FopenFlags::FOPEN_KEEP_CACHE,
            CacheAtOpen::Outdated | CacheAtOpen::Empty => FopenFlags::empty(),
        };
        if cache == CacheAtOpen::Outdated {
            self.kernel_cache.invalidate_attributes(&node);
        }
        Ok((self.handles.open_file(node, may_write), opened))
    }

    /// A program has closed a descriptor of a file.
    pub async fn flush(&self, file: &OpenContent) -> Result<(), MountFailure> {
        match file.may_write {
            true => self.publish(&file.node, false).await,
            false => Ok(()),
        }
    }

    /// The last descriptor of a handle was closed.
    pub async fn release(&self, file: &OpenContent) -> Result<(), MountFailure> {
        let published = self.flush(file).await;
        file.node.state().closed(file.may_write);
        if let Err(failure) = &published {
            self.not_closed(&file.node, failure).await;
        }
        file.node.drop_draft();
        self.entries.inodes.published(&file.node);
        self.removed.release(&file.node).await;
        published
    }

    /// Publishes the draft of a file, if it differs from the published version. With `is_durable`,
    /// the content is on the disks of the nodes when this returns.
    pub async fn publish(&self, node: &Inode, is_durable: bool) -> Result<(), MountFailure> {
        self.publisher.publish(node, is_durable, self.shown()).await
    }

    // ---- changes of the content and of attributes

    /// Writes to the draft of a file, at its end if `appends` is set. Blocks.
    pub fn write(
        &self,
        node: &Inode,
        offset: u64,
        data: &[u8],
        appends: bool,
    ) -> Result<(), MountFailure> {
        if self.drafts.write(&self.entries, node, offset, data, appends)? {
            // The kernel did not know the present size, and has cached the bytes at the wrong
            // place.
            self.kernel_cache.invalidate(node);
        }
        Ok(())
    }

    /// Reserves space, or replaces a range by zeros.
    pub async fn allocate(
        &self,
        node: &Inode,
        range: Range<u64>,
        mode: i32,
    ) -> Result<(), MountFailure> {
        self.drafts.allocate(node, range, mode)
    }

    /// Changes the size of a file, if one is given, and attributes.
    pub async fn change(
        &self,
        node: &Arc<Inode>,
        size_bytes: Option<u64>,
        mut change: AttributeChange,
        is_modified_now: bool,
    ) -> Result<(), MountFailure> {
        if let Some(size_bytes) = size_bytes {
            self.set_size(node, size_bytes).await?;
            if is_modified_now && node.state().is_dirty() {
                // The draft has the time.
                change.modified_ns = None;
            }
        }
        match change == AttributeChange::default() {
            true => Ok(()),
            false => self.entries.set_attributes(node, change).await,
        }
    }

    /// Changes the size of a file. If no program has the file open for writing, the change is
    /// published at once.
    async fn set_size(&self, node: &Arc<Inode>, size_bytes: u64) -> Result<(), MountFailure> {
        // `open` with `O_TRUNC` asks for size 0 just after it has asked for the present version.
        let needs_present = {
            let state = node.state();
            state.draft().is_none() && (size_bytes > 0 || !state.has_writers())
        };
        if needs_present {
            self.entries.refresh(node).await?;
        }
        let is_open = {
            let mut state = node.state();
            self.drafts.set_size(&mut state, size_bytes)?;
            state.has_writers()
        };
        if is_open {
            return Ok(());
        }
        let published = self.publish(node, false).await;
        if let Err(failure) = &published {
            self.not_closed(node, failure).await;
        }
        node.drop_draft();
        published
    }

    // ---- reading

    /// Reads up to `length` bytes.
    pub async fn read(
        &self,
        node: &Inode,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, MountFailure> {
        while let Some(part) = Drafts::read(node, offset, length)? {
            let missing = match part {
                DraftPart::Content(content) => return Ok(content),
                DraftPart::Missing(missing) => missing,
            };
            if let Err(failure) = self.drafts.fetch(node, missing).await
                && !self.publisher.adopt_sent(node, &self.entries).await
            {
                return Err(failure);
            }
        }
        let file = self.version_to_read(node).await?;
        match self.readers.read(node, &file, offset, length).await {
            Ok(read) => Ok(read),
            // Another client may have replaced the version, and its chunks are gone.
            Err(failure) => {
                self.entries.refresh(node).await?;
                match node.file().filter(|now| !now.record.is_as_written(&file.record)) {
                    Some(now) => self.readers.read(node, &now, offset, length).await,
                    None => Err(failure),
                }
            }
        }
    }

    /// The version from which a file without a draft is read.
    async fn version_to_read(&self, node: &Inode) -> Result<Arc<File>, MountFailure> {
        let known = {
            let state = node.state();
            state.readable(state.file())
        };
        match known {
            Some(file) => Ok(file),
            None => {
                self.entries.refresh(node).await?;
                Ok(node.file().ok_or(Errno::ESTALE)?)
            }
        }
    }

    /// Logs why an operation was not done.
    pub fn logged(&self, failure: MountFailure, operation: &str, of: u64) -> Errno {
        failure.log(operation, &self.entries.inodes.name(of).unwrap_or_default());
        failure.errno
    }
}
