//! The entries of the cluster, as the mount asks for them: by the path from the root, which is
//! empty for the root.

use eyas_files::{Creation, DfsClient, File, RenameOptions, WriteOptions};
use eyas_types::dfs::{
    AttributeChange, Attributes, FileId, FileKind, FileName, FileNameError, FileNameProblem,
    NamedChange,
};
use fuser::Errno;

use crate::cluster_entry::ClusterEntry;
use crate::failure::MountFailure;
use crate::times::now_ns;

/// The entries of the cluster.
pub(crate) struct Namespace {
    dfs: DfsClient,
    root: Attributes,
}

/// A page of a folder.
pub(crate) struct EntryPage {
    /// Names without the folder, and entries.
    pub entries: Vec<(String, ClusterEntry)>,
    /// The path from which the next page continues; `None` at the end.
    pub next: Option<String>,
}

impl Namespace {
    /// The root, which has no entry in the cluster, belongs to the user of this process.
    pub fn new(dfs: DfsClient) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let now_ns = now_ns();
        let root = Attributes { mode: 0o755, uid, gid, modified_ns: now_ns, changed_ns: now_ns };
        Namespace { dfs, root }
    }

    /// The root.
    pub fn root(&self) -> ClusterEntry {
        ClusterEntry {
            id: FileId(0),
            kind: FileKind::Folder,
            size_bytes: 0,
            hole_bytes: 0,
            attributes: self.root,
            file: None,
        }
    }

    pub async fn lookup(&self, path: &str) -> Result<ClusterEntry, MountFailure> {
        if path.is_empty() {
            return Ok(self.root());
        }
        Ok(self.dfs.lookup(&file_name(path)?).await?.into())
    }

    /// Some entries of a folder, from the path `from` on.
    pub async fn list(&self, path: &str, from: &str, most: u32) -> Result<EntryPage, MountFailure> {
        let page = self.dfs.list_folder(path, from, most).await?;
        let entry = |listing: eyas_files::Listing| {
            let eyas_files::Listing { name, id, kind, size_bytes, hole_bytes, attributes, .. } =
                listing;
            (
                name.base_name().to_owned(),
                ClusterEntry { id, kind, size_bytes, hole_bytes, attributes, file: None },
            )
        };
        Ok(EntryPage { entries: page.entries.into_iter().map(entry).collect(), next: page.next })
    }

    /// Fails if this client may not write the file with this name.
    pub async fn check_may_write(&self, path: &str) -> Result<(), MountFailure> {
        Ok(self.dfs.check_may_write(&file_name(path)?).await?)
    }

    /// Creates an empty file, if there is none of this name.
    pub async fn create_empty(
        &self,
        path: &str,
        found: &ClusterEntry,
        options: WriteOptions,
    ) -> Result<File, MountFailure> {
        let options = WriteOptions { creation: creation(&found.attributes), ..options };
        Ok(self.dfs.create_empty(&file_name(path)?, found.id, options).await?)
    }

    pub async fn make_folder(
        &self,
        path: &str,
        attributes: Attributes,
    ) -> Result<ClusterEntry, MountFailure> {
        Ok(self.dfs.make_folder(&file_name(path)?, creation(&attributes)).await?.into())
    }

    pub async fn remove_folder(&self, path: &str) -> Result<(), MountFailure> {
        Ok(self.dfs.remove_folder(&file_name(path)?).await?)
    }

    pub async fn make_link(
        &self,
        path: &str,
        target: &str,
        attributes: Attributes,
    ) -> Result<ClusterEntry, MountFailure> {
        let (name, creation) = (file_name(path)?, creation(&attributes));
        Ok(self.dfs.make_symbolic_link(&name, target, creation).await?.into())
    }

    pub async fn set_attributes(
        &self,
        path: &str,
        change: &AttributeChange,
    ) -> Result<ClusterEntry, MountFailure> {
        Ok(self.dfs.set_attributes(&file_name(path)?, change).await?.into())
    }

    pub async fn change_named(
        &self,
        path: &str,
        attribute: &str,
        change: NamedChange,
    ) -> Result<ClusterEntry, MountFailure> {
        let name = file_name(path)?;
        let changed = match change {
            NamedChange::Set { value, condition } => {
                self.dfs.set_named_attribute(&name, attribute, value, condition).await
            }
            NamedChange::Remove => self.dfs.remove_named_attribute(&name, attribute).await,
        };
        Ok(changed?.into())
    }

    pub async fn rename(
        &self,
        from: &str,
        to: &str,
        options: RenameOptions,
    ) -> Result<(), MountFailure> {
        self.dfs.rename(&file_name(from)?, &file_name(to)?, options).await.map_err(|error| {
            let failure = MountFailure::from(error);
            match failure.errno {
                // The kernel would try the rename again by itself, with both names of a folder that
                // was moved in part.
                Errno::ESTALE => MountFailure { errno: Errno::EBUSY, ..failure },
                _ => failure,
            }
        })
    }

    /// Removes a file or link, of which `file` is a version that was seen.
    pub async fn remove(&self, path: &str, file: Option<&File>) -> Result<(), MountFailure> {
        let name = file_name(path)?;
        match file {
            Some(file) => {
                self.dfs.remove_listed(&eyas_files::Listing::of(name, &file.record)).await?
            }
            None => self.dfs.remove(&name).await?,
        }
        Ok(())
    }
}

/// The kernel has checked that the folder of a new entry exists.
pub(crate) fn creation(attributes: &Attributes) -> Creation {
    let Attributes { mode, uid, gid, modified_ns, .. } = *attributes;
    Creation { mode, uid, gid, modified_ns: Some(modified_ns), makes_parents: false }
}

/// A path from the root as a name.
pub(crate) fn file_name(path: &str) -> Result<FileName, MountFailure> {
    path.parse().map_err(|error: FileNameError| match error.problem {
        FileNameProblem::TooLong { .. } | FileNameProblem::ComponentTooLong => {
            Errno::ENAMETOOLONG.into()
        }
        _ => Errno::EINVAL.into(),
    })
}
