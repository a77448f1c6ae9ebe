//! What is known of the published version of a file.

use std::collections::BTreeSet;
use std::sync::Arc;

use eyas_files::{File, renamed};
use eyas_types::ObjectId;
use eyas_types::dfs::FileName;

use crate::cluster_entry::ClusterEntry;

/// The published version of an entry.
#[derive(Debug)]
pub(crate) struct PublishedVersion {
    size_bytes: u64,
    /// Size of its holes.
    hole_bytes: u64,
    /// The version itself, if it is known.
    file: Option<Arc<File>>,
    /// The version whose content the kernel may have cached.
    cached: Option<Arc<File>>,
    /// Chunks that a publication, here or of another client, has stored and that may not be on the
    /// disks of their nodes yet.
    volatile: BTreeSet<ObjectId>,
}

impl PublishedVersion {
    pub fn new(found: &ClusterEntry) -> Self {
        PublishedVersion {
            size_bytes: found.size_bytes,
            hole_bytes: found.hole_bytes,
            file: found.file.clone(),
            cached: None,
            volatile: found.file.iter().flat_map(|file| unsynced(file)).collect(),
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Size without the holes.
    pub fn stored_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.hole_bytes)
    }

    pub fn file(&self) -> Option<&Arc<File>> {
        self.file.as_ref()
    }

    pub fn volatile(&self) -> &BTreeSet<ObjectId> {
        &self.volatile
    }

    /// Whether the kernel may have cached content of the file.
    pub fn is_any_cached(&self) -> bool {
        self.cached.is_some()
    }

    /// Whether that is the content of this version.
    pub fn is_cached(&self) -> bool {
        match (&self.cached, &self.file) {
            (Some(cached), Some(file)) => cached.record.is_as_written(&file.record),
            _ => false,
        }
    }

    /// From now on, what the kernel caches is of this version.
    pub fn cache(&mut self) {
        self.cached = self.file.clone();
    }

    pub fn forget_cached(&mut self) {
        self.cached = None;
    }

    /// A program of this mount has created the file, which is in the cluster, empty.
    pub fn created(&mut self, file: Arc<File>) {
        self.file = Some(file);
        self.cache();
    }

    /// The content of these bytes was published as this version. With `is_durable`, all of its
    /// chunks are on the disks.
    pub fn published(&mut self, file: Arc<File>, size_bytes: u64, is_durable: bool) {
        let before: BTreeSet<ObjectId> = self.file.iter().flat_map(|file| objects(file)).collect();
        let is_volatile = |object: &ObjectId| {
            !is_durable && (!before.contains(object) || self.volatile.contains(object))
        };
        self.volatile = objects(&file).filter(is_volatile).collect();
        (self.size_bytes, self.hole_bytes) = (size_bytes, file.record.hole_bytes());
        self.file = Some(file);
        // The kernel has cached what programs have written.
        self.cache();
    }

    /// What programs have appended is published at the end of the version of another client.
    pub fn appended(&mut self, file: Arc<File>) {
        (self.size_bytes, self.hole_bytes) = (file.record.size_bytes(), file.record.hole_bytes());
        self.file = Some(file);
        self.volatile.clear();
    }

    /// These chunks are on the disks.
    pub fn durable(&mut self, objects: &BTreeSet<ObjectId>) {
        self.volatile.retain(|object| !objects.contains(object));
    }

    /// Takes a version with the content that is known.
    pub fn renew(&mut self, file: Arc<File>) {
        if self.cached.as_ref().is_some_and(|cached| cached.record.is_as_written(&file.record)) {
            self.cached = Some(file.clone());
        }
        (self.size_bytes, self.hole_bytes) = (file.record.size_bytes(), file.record.hole_bytes());
        self.file = Some(file);
    }

    /// Takes the news that the cluster has of the version.
    pub fn learn(&mut self, found: &ClusterEntry) {
        (self.size_bytes, self.hole_bytes) = (found.size_bytes, found.hole_bytes);
        let known = self.file.as_ref();
        match &found.file {
            Some(file) => {
                if !known.is_some_and(|known| known.record.is_as_written(&file.record)) {
                    // Another client may have left its content in the memory of the nodes.
                    self.volatile = unsynced(file).collect();
                }
                self.file = Some(file.clone());
            }
            // A listing has no chunks: the version that is known may be another one.
            None if known.is_some_and(|known| known.record.size_bytes() != found.size_bytes) => {
                self.file = None;
            }
            None => {}
        }
    }

    /// Another client has changed or removed the file.
    pub fn outdated(&mut self) {
        self.file = None;
    }

    /// The file has a new name.
    pub fn rename(&mut self, name: &FileName) {
        self.file = self.file.take().map(|file| renamed(&file, name));
    }
}

fn objects(file: &File) -> impl Iterator<Item = ObjectId> {
    file.record.chunks.iter().map(|chunk| chunk.object)
}

fn unsynced(file: &File) -> impl Iterator<Item = ObjectId> {
    file.record.unsynced_chunks().map(|chunk| chunk.object)
}
