//! Names: files, folders and links, their attributes, lists and quotas.

use eyas_ring::Listing;
use eyas_types::dfs::{
    AttributeChange, FileName, NamedAttributeError, NamedAttributes, NamedChange, Quota,
    SetCondition,
};
use tokio::runtime::Handle;

use crate::client::DfsClient;
use crate::entries::Creation;
use crate::error::FilesError;
use crate::file::File;
use crate::folders::list::FolderPage;
use crate::quota::{FolderUsage, folder_usage};
use crate::rename::RenameOptions;

impl DfsClient {
    /// Whether the key of this client permits it to write files. What a token of a job permits is
    /// not known here.
    pub fn may_write(&self) -> bool {
        self.0.names.may_write()
    }

    /// Fails if the token or key of this client does not permit it to write a file, so that a
    /// program learns that when it opens the file and not when it closes it. Keys that may write
    /// every file need no question.
    ///
    /// # Errors
    /// `NotAllowed`.
    pub async fn check_may_write(&self, name: &FileName) -> Result<(), FilesError> {
        self.0.names.check_may_write(name).await
    }

    /// The current version of a file.
    ///
    /// # Errors
    /// `NotFound`; `IsFolder`; `Invalid` for a symbolic link, which only a mount follows;
    /// `Unreachable`.
    pub async fn stat(&self, name: &FileName) -> Result<File, FilesError> {
        self.0.names.stat(name).await
    }

    /// The current version of a file, folder or symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`.
    pub async fn lookup(&self, name: &FileName) -> Result<File, FilesError> {
        self.0.names.lookup(name).await
    }

    /// Whether there is a file, folder or link of this name.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn exists(&self, name: &FileName) -> Result<bool, FilesError> {
        self.0.names.exists(name).await
    }

    /// Removes a file or a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `IsFolder`, `Unreachable`.
    pub async fn remove(&self, name: &FileName) -> Result<(), FilesError> {
        self.0.names.remove(name).await
    }

    /// Removes a file or link that was listed, or the one that has its name now.
    ///
    /// # Errors
    /// `NotFound`, `IsFolder`, `Unreachable`.
    pub async fn remove_listed(&self, listing: &Listing) -> Result<(), FilesError> {
        self.0.names.remove_listed(listing).await
    }

    /// Changes attributes of a file, folder or link. Concurrent changes of other attributes, of the
    /// content and of the replicas are kept.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`.
    pub async fn set_attributes(
        &self,
        name: &FileName,
        change: &AttributeChange,
    ) -> Result<File, FilesError> {
        self.0.names.set_attributes(name, change).await
    }

    /// The named attributes of a file, folder or link.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`.
    pub async fn named_attributes(&self, name: &FileName) -> Result<NamedAttributes, FilesError> {
        Ok(self.0.names.lookup(name).await?.record.named)
    }

    /// The value of a named attribute of a file, folder or link.
    ///
    /// # Errors
    /// `NoAttribute` if there is none of this name; `NotFound`, `Unreachable`.
    pub async fn named_attribute(
        &self,
        name: &FileName,
        attribute: &str,
    ) -> Result<Vec<u8>, FilesError> {
        let missing = || NamedAttributeError::Missing(attribute.to_owned());
        let named = self.named_attributes(name).await?;
        let value = named.get(attribute).map(<[u8]>::to_vec);
        value.ok_or_else(|| FilesError::attribute(name, &missing()))
    }

    /// Sets a named attribute of a file, folder or link, which its renames, new content and copies
    /// keep. Concurrent changes of other attributes and of the content are kept.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute` if the condition does not hold; `Invalid` if the name is not
    /// possible; `AttributesFull` if all of them together would have more than
    /// [`MAX_ATTRIBUTES_BYTES`](eyas_types::dfs::MAX_ATTRIBUTES_BYTES); `NotFound`, `Unreachable`.
    pub async fn set_named_attribute(
        &self,
        name: &FileName,
        attribute: &str,
        value: Vec<u8>,
        condition: SetCondition,
    ) -> Result<File, FilesError> {
        let change = NamedChange::Set { value, condition };
        self.0.names.change_named(name, attribute, &change).await
    }

    /// Removes a named attribute of a file, folder or link.
    ///
    /// # Errors
    /// `NoAttribute` if there is none of this name; `NotFound`, `Unreachable`.
    pub async fn remove_named_attribute(
        &self,
        name: &FileName,
        attribute: &str,
    ) -> Result<File, FilesError> {
        self.0.names.change_named(name, attribute, &NamedChange::Remove).await
    }

    /// Renames a file, link or folder. Readers find a file under one of the two names at any time.
    /// Renaming a folder with content is not atomic; if it is interrupted, both folders have parts
    /// of the content, and the same rename can be repeated.
    ///
    /// # Errors
    /// `NotFound`; `Exists` if the new name is in use and may not be replaced; `IsFolder`,
    /// `NotFolder`, `NotEmpty` if the entry there cannot be replaced by this one; `Invalid` if a
    /// folder would be in itself, or a name too long; `Quota`, `Changed`, `Unreachable`.
    pub async fn rename(
        &self,
        from: &FileName,
        to: &FileName,
        options: RenameOptions,
    ) -> Result<(), FilesError> {
        self.0.renames.rename(from, to, options).await
    }

    /// Makes a symbolic link. The target is not checked.
    ///
    /// # Errors
    /// `Exists`; `Invalid` if the target is empty or too long; `NotFolder`, `Quota`, `Unreachable`.
    pub async fn make_symbolic_link(
        &self,
        name: &FileName,
        target: &str,
        creation: Creation,
    ) -> Result<File, FilesError> {
        self.0.folders.make_symbolic_link(name, target, creation).await
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// `Exists`; `NotFolder` if a file is above it; `Quota`, `Unreachable`.
    pub async fn make_folder(
        &self,
        name: &FileName,
        creation: Creation,
    ) -> Result<File, FilesError> {
        self.0.folders.make_folder(name, creation).await
    }

    /// Makes a folder and the folders above it, as far as they are missing.
    ///
    /// # Errors
    /// `NotFolder` if one of them is a file; `Quota`, `Unreachable`.
    pub async fn make_folders(&self, name: &FileName) -> Result<(), FilesError> {
        self.0.folders.make_folders(name).await
    }

    /// Removes an empty folder. If another client creates a file in it at the same time, the folder
    /// stays.
    ///
    /// # Errors
    /// `NotFound`, `NotFolder`, `NotEmpty`, `Unreachable`.
    pub async fn remove_folder(&self, name: &FileName) -> Result<(), FilesError> {
        self.0.folders.remove_folder(name).await
    }

    /// The files in a folder and its subfolders, sorted by name, without folders and links. The
    /// empty text and `/` mean all files.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listing>, FilesError> {
        self.0.folders.list(folder).await
    }

    /// The entry that has the folder's name, and all files, folders and links below it, sorted by
    /// name.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn list_entries(&self, folder: &str) -> Result<Vec<Listing>, FilesError> {
        self.0.folders.list_entries(folder).await
    }

    /// A page of about `most` entries of a folder; entries of its subfolders are not listed. `from`
    /// is the empty text for the first page, and [`FolderPage::next`] of the page before for the
    /// others. The page of a folder that does not exist is empty. A subfolder that contains files
    /// and has no entry gets one.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn list_folder(
        &self,
        folder: &str,
        from: &str,
        most: u32,
    ) -> Result<FolderPage, FilesError> {
        self.0.folders.list_folder(folder, from, most).await
    }

    /// A page of about `most` of the files, folders and links below a folder, at any depth. Pages
    /// follow each other as those of [`list_folder`](Self::list_folder) do. Names come in the order
    /// of their bytes: `/a-b`, `/a/c`, `/a0`.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn list_subtree(
        &self,
        folder: &str,
        from: &str,
        most: u32,
    ) -> Result<FolderPage, FilesError> {
        self.0.folders.list_subtree(folder, from, most).await
    }

    /// Sets or removes the quota of a folder. Other clients notice it within 5 s. What is there
    /// already may exceed it; then nothing can be added.
    ///
    /// # Errors
    /// `NotFound`, `NotFolder`, `Changed`, `Unreachable`.
    pub async fn set_quota(
        &self,
        folder: &FileName,
        quota: Option<Quota>,
    ) -> Result<(), FilesError> {
        self.0.folders.set_quota(folder, quota).await
    }

    /// The use of a folder: of everything below it.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn folder_usage(&self, folder: &str) -> Result<FolderUsage, FilesError> {
        folder_usage(&self.0.routes, folder).await
    }

    /// Fails if it is known here that quotas do not permit a file to grow by `more_bytes`. Does not
    /// wait: if something is not known, or was known more than a second ago, the members are asked
    /// in the background, for the next call.
    ///
    /// # Errors
    /// `Quota`.
    pub fn may_grow(
        &self,
        name: &FileName,
        more_bytes: u64,
        runtime: &Handle,
    ) -> Result<(), FilesError> {
        self.0.shared.quotas.may_grow(name, more_bytes, runtime)
    }
}
