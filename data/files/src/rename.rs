//! Renaming. One entry changes its name atomically. A folder with content does not: its names hash
//! to different leaders, so they are moved one after another.
//!
//! The new folder gets the id of the old one first. So a rename that was interrupted can be
//! repeated: the ids say that both folders are one that is being moved. At any time, each file has
//! one of its two names.

use std::sync::Arc;
use std::time::Instant;

use eyas_ring::{Listing, Replaceable};
use eyas_types::dfs::{FileKind, FileName, FileNameError};
use tokio::task::JoinSet;

use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::folders::Folders;
use crate::names::Names;
use crate::quota::{Charge, FolderUsage, Quotas};
use crate::routes::Routes;
use crate::write::Writes;

/// Maximum number of entries of a folder that are renamed at the same time.
const RENAMES_TOGETHER: usize = 512;

/// Options of a rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameOptions {
    /// Whether a file may replace a file, and a folder an empty folder, as POSIX has it.
    pub replaces: bool,
    /// Whether missing folders above the new name are made.
    pub makes_parents: bool,
    /// Whether a file keeps its format in any case. Otherwise a format that was guessed is guessed
    /// again, and the file may be cut anew.
    pub keeps_format: bool,
}

/// Renames of entries, and of folders with all that is below them.
pub(crate) struct Renames {
    routes: Arc<Routes>,
    names: Arc<Names>,
    folders: Arc<Folders>,
    quotas: Arc<Quotas>,
    writes: Arc<Writes>,
}

impl Renames {
    pub fn new(names: Arc<Names>, folders: Arc<Folders>, writes: Arc<Writes>) -> Self {
        let (routes, quotas) = (folders.routes.clone(), folders.quotas.clone());
        Renames { routes, names, folders, quotas, writes }
    }

    /// Renames a file, link or folder. Readers find a file under one of the two names at any time.
    /// Renaming a folder with content is not atomic; if it is interrupted, both folders have parts
    /// of the content, and the same rename can be repeated.
    pub async fn rename(
        &self,
        from: &FileName,
        to: &FileName,
        options: RenameOptions,
    ) -> Result<(), FilesError> {
        let file = self.names.lookup(from).await?;
        if from == to {
            return Ok(());
        }
        if to.is_within(from.as_str()) {
            return Err(FilesError::invalid(format!(
                "{from} cannot be moved to {to}, which is below it"
            )));
        }
        if options.makes_parents {
            self.folders.make_parents(to).await?;
        }
        if !file.record.kind.is_folder() {
            let over = if options.replaces { Replaceable::File } else { Replaceable::Nothing };
            let is_file = file.record.kind == FileKind::File;
            self.rename_entry(file, to, over).await?;
            if is_file && !options.keeps_format {
                // The file has its new name, whatever becomes of this.
                let guessed = self.writes.guess_again(from, to).await;
                let _ = guessed.inspect_err(|error| {
                    tracing::warn!("the format of {to} is not guessed again: {error}")
                });
            }
            return Ok(());
        }
        let renamed = self.rename_folder(file, to, options).await;
        // Also what was remembered meanwhile.
        self.folders.forget(from);
        renamed
    }

    async fn rename_folder(
        &self,
        file: File,
        to: &FileName,
        options: RenameOptions,
    ) -> Result<(), FilesError> {
        let from = &file.name.clone();
        let over = match self.names.lookup(to).await {
            Err(error) if error.kind == FilesErrorKind::NotFound => Replaceable::Nothing,
            Err(error) => return Err(error),
            // The rest of a rename that was interrupted. All of it was permitted when it began.
            Ok(there) if there.record.id == file.record.id => {
                return self.move_folder(&file, to).await;
            }
            Ok(there) if !there.record.kind.is_folder() && options.replaces => {
                return Err(FilesError::not_folder(to));
            }
            Ok(there) if !options.replaces => {
                return Err(FilesError::exists(to, there.record.kind.is_folder()));
            }
            Ok(_) if !self.folders.is_empty(to).await? => return Err(FilesError::not_empty(to)),
            Ok(_) => Replaceable::Folder,
        };
        if self.folders.is_empty(from).await? {
            return self.rename_entry(file, to, over).await;
        }
        let charge = self.check_move(from, to).await?;
        if over == Replaceable::Folder {
            self.folders.remove_folder(to).await?;
        }
        self.names.create_record(to, file.record.clone()).await?;
        let moved = self.move_folder(&file, to).await;
        // Entries that were moved count, also if moving the rest has failed.
        charge.keep();
        moved
    }

    /// Checks that a folder can be moved as a whole, so that it is not refused half-way: the
    /// quotas, and the longest name. Entries that are created in the folder meanwhile are moved
    /// without these checks.
    async fn check_move(&self, from: &FileName, to: &FileName) -> Result<Charge, FilesError> {
        if to.as_str().len() > from.as_str().len() {
            for entry in self.folders.list_entries(from.as_str()).await? {
                entry.name.moved(from, to).map_err(|error| too_long(&error))?;
            }
        }
        let mut moved = FolderUsage::default();
        if self.quotas.has_quota(to, Some(from)).await? {
            moved = self.quotas.folder_usage(from.as_str()).await?;
            moved.files += 1;
        }
        self.quotas.charge(to, Some(from), moved).await
    }

    /// Renames one entry, if the quotas permit it.
    async fn rename_entry(
        &self,
        file: File,
        to: &FileName,
        over: Replaceable,
    ) -> Result<(), FilesError> {
        let charge = self
            .quotas
            .charge(to, Some(&file.name), FolderUsage::added(None, &file.record))
            .await?;
        self.names.move_entry(file, to, over).await?;
        charge.keep();
        Ok(())
    }

    /// Moves everything below a folder to below `to`, which has an entry of the same id, and
    /// removes the old folder.
    async fn move_folder(&self, folder: &File, to: &FileName) -> Result<(), FilesError> {
        let from = &folder.name;
        let mut deadline = Instant::now() + self.routes.patience;
        loop {
            let listed = self.folders.list_entries(from.as_str()).await?;
            let below: Vec<Listing> =
                listed.into_iter().filter(|entry| entry.name != *from).collect();
            if below.is_empty() {
                break;
            }
            // A folder is before the names below it.
            let (folders, files): (Vec<_>, Vec<_>) =
                below.into_iter().partition(|entry| entry.kind.is_folder());
            for Listing { name, .. } in &folders {
                let target = name.moved(from, to).map_err(|error| too_long(&error))?;
                self.copy_folder(name, &target).await?;
            }
            if !files.is_empty() {
                self.move_files(files, from, to).await?;
                deadline = Instant::now() + self.routes.patience;
            }
            let mut is_left = false;
            for Listing { name, .. } in folders.iter().rev() {
                is_left |= self.remove_moved(name).await?;
            }
            if is_left && Instant::now() >= deadline {
                return Err(FilesError::not_empty(from));
            }
        }
        match self.remove_moved(from).await? {
            true => Err(FilesError::not_empty(from)),
            false => Ok(()),
        }
    }

    /// Makes a folder at its new name, with the id and the attributes that it has.
    async fn copy_folder(&self, from: &FileName, to: &FileName) -> Result<(), FilesError> {
        let record = match self.names.lookup(from).await {
            Err(error) if error.kind == FilesErrorKind::NotFound => return Ok(()),
            found => found?.record,
        };
        match self.names.create_record(to, record).await {
            Err(error) if error.kind == FilesErrorKind::Exists => {
                match self.names.lookup(to).await?.record.kind.is_folder() {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            made => made.map(drop),
        }
    }

    /// Renames files and links of a folder, many at the same time.
    async fn move_files(
        &self,
        files: Vec<Listing>,
        from: &FileName,
        to: &FileName,
    ) -> Result<(), FilesError> {
        let (mut rest, mut moving) = (files.into_iter(), JoinSet::new());
        loop {
            while moving.len() < RENAMES_TOGETHER
                && let Some(Listing { name, .. }) = rest.next()
            {
                let target = name.moved(from, to).map_err(|error| too_long(&error))?;
                let names = self.names.clone();
                moving.spawn(async move {
                    let moved = match names.lookup(&name).await {
                        Ok(file) => names.move_entry(file, &target, Replaceable::Nothing).await,
                        Err(error) => Err(error),
                    };
                    match moved {
                        // Another client has removed or moved it.
                        Err(error) if error.kind == FilesErrorKind::NotFound => Ok(()),
                        moved => moved,
                    }
                });
            }
            match moving.join_next().await {
                None => return Ok(()),
                Some(moved) => moved.unwrap_or_else(eyas_panics::resume)?,
            }
        }
    }

    /// Removes a folder whose content has moved. Returns whether it is still there, because a file
    /// was created in it.
    async fn remove_moved(&self, folder: &FileName) -> Result<bool, FilesError> {
        match self.folders.remove_folder(folder).await {
            Ok(()) => Ok(false),
            Err(error) if error.kind == FilesErrorKind::NotFound => Ok(false),
            Err(error) if error.kind == FilesErrorKind::NotEmpty => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn too_long(error: &FileNameError) -> FilesError {
    FilesError::invalid(error.to_string())
}
