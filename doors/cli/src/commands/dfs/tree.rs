//! Folders, links and attributes: lists and changes trees of entries.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use eyas_client::files::{Creation, FilesErrorKind, Listing, RenameOptions};
use eyas_client::types::dfs::{AttributeChange, FileKind, FileName};

use super::arguments::NewOwner;
use super::many::{self, FilesOutcome};
use super::sources::{NamedFolder, NamedLink};
use super::{DfsSession, rooted, views};
use crate::error::CliError;

/// Number of entries of a folder that are asked for at a time.
const PAGE_ENTRIES: u32 = 10_000;

/// Permission bits that are restored outside the cluster: setuid, setgid and sticky bits are left
/// out.
const RESTORED_BITS: u32 = 0o777;

impl DfsSession {
    pub(super) async fn list(
        &self,
        folder: &str,
        recursive: bool,
        long: bool,
    ) -> Result<(), CliError> {
        let folder = rooted(folder.trim_end_matches('/'));
        let entries = match folder.as_str() {
            "" => self.listed("", recursive).await?,
            _ => {
                let name: FileName = folder.parse()?;
                match self.files.lookup(&name).await {
                    Ok(file) if !file.record.kind.is_folder() => {
                        vec![Listing::of(name, &file.record)]
                    }
                    Err(error) if error.kind != FilesErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    found => {
                        let entries = self.listed(&folder, recursive).await?;
                        if found.is_err() && entries.is_empty() {
                            return Err(format!("there is no file or folder {name}").into());
                        }
                        entries
                    }
                }
            }
        };
        views::list(&entries, long, self.json)
    }

    /// The entries in a folder, or all below it.
    async fn listed(&self, folder: &str, recursive: bool) -> Result<Vec<Listing>, CliError> {
        let (mut entries, mut next) = (Vec::new(), Some(String::new()));
        while let Some(from) = next {
            let page = match recursive {
                true => self.files.list_subtree(folder, &from, PAGE_ENTRIES).await?,
                false => self.files.list_folder(folder, &from, PAGE_ENTRIES).await?,
            };
            entries.extend(page.entries);
            next = page.next;
        }
        Ok(entries)
    }

    pub(super) async fn make_folders(
        &self,
        folders: &[FileName],
        parents: bool,
    ) -> Result<(), CliError> {
        for folder in folders {
            match parents {
                true => self.files.make_folders(folder).await?,
                false => {
                    if let Some(parent) = folder.parent() {
                        self.check_folder(&parent).await?;
                    }
                    let creation = Creation { makes_parents: false, ..Creation::of_process(0o777) };
                    self.files.make_folder(folder, creation).await?;
                }
            }
        }
        Ok(())
    }

    async fn check_folder(&self, folder: &FileName) -> Result<(), CliError> {
        match self.files.lookup(folder).await {
            Ok(found) if found.record.kind.is_folder() => Ok(()),
            Ok(_) => Err(format!("{folder} is a file, and not a folder").into()),
            Err(error) if error.kind == FilesErrorKind::NotFound => {
                Err(format!("there is no folder {folder}: make it with `eyas dfs mkdir -p`").into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn remove_folders(&self, folders: &[FileName]) -> Result<(), CliError> {
        for folder in folders {
            self.files.remove_folder(folder).await?;
        }
        Ok(())
    }

    pub(super) async fn link(&self, target: &str, name: &FileName) -> Result<(), CliError> {
        let creation = Creation::of_process(0o777);
        self.files.make_symbolic_link(name, target, Creation { mode: 0o777, ..creation }).await?;
        Ok(())
    }

    pub(super) async fn rename(
        &self,
        from: &FileName,
        to: &FileName,
        force: bool,
    ) -> Result<(), CliError> {
        Ok(self
            .files
            .rename(
                from,
                to,
                RenameOptions { replaces: force, makes_parents: true, keeps_format: false },
            )
            .await?)
    }

    pub(super) async fn change_mode(
        &self,
        mode: u16,
        names: &[FileName],
        recursive: bool,
    ) -> Result<(), CliError> {
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        self.change(change, names, recursive).await
    }

    pub(super) async fn change_owner(
        &self,
        owner: NewOwner,
        names: &[FileName],
        recursive: bool,
    ) -> Result<(), CliError> {
        let change =
            AttributeChange { uid: owner.uid, gid: owner.gid, ..AttributeChange::default() };
        self.change(change, names, recursive).await
    }

    async fn change(
        &self,
        change: AttributeChange,
        names: &[FileName],
        recursive: bool,
    ) -> Result<(), CliError> {
        let mut all = names.to_vec();
        if recursive {
            for name in names {
                all.extend(
                    self.listed(name.as_str(), true).await?.into_iter().map(|entry| entry.name),
                );
            }
        }
        let act = |name: FileName| {
            let files = self.files.clone();
            async move { Ok(files.set_attributes(&name, &change).await.map(drop)?) }
        };
        let outcome = FilesOutcome::of(all.clone(), |_| 0, act, |()| {}).await;
        outcome.all_or_why("changed", |place| all[place].to_string()).map(drop)
    }

    /// Removes a folder with everything in it, or a single entry. Returns whether there was
    /// anything.
    pub(super) async fn remove_all(&self, folder: &str) -> Result<bool, CliError> {
        let (folders, files): (Vec<_>, Vec<_>) = self
            .files
            .list_entries(folder)
            .await?
            .into_iter()
            .partition(|entry| entry.kind.is_folder());
        let names: Vec<FileName> = files.iter().map(|entry| entry.name.clone()).collect();
        let remove = |listing: Listing| {
            let files = self.files.clone();
            async move { many::or_gone(files.remove_listed(&listing).await) }
        };
        let is_any = !folders.is_empty() || !files.is_empty();
        let outcome = FilesOutcome::of(files, |_| 0, remove, |()| {}).await;
        outcome.all_or_why("removed", |place| names[place].to_string())?;
        // Subfolders before the folders that contain them.
        for level in by_depth(folders, |entry| &entry.name).into_values().rev() {
            let names: Vec<FileName> = level.iter().map(|entry| entry.name.clone()).collect();
            let remove = |listing: Listing| {
                let files = self.files.clone();
                async move { many::or_gone(files.remove_folder(&listing.name).await) }
            };
            let outcome = FilesOutcome::of(level, |_| 0, remove, |()| {}).await;
            outcome.all_or_why("removed", |place| names[place].to_string())?;
        }
        Ok(is_any)
    }

    /// Makes the folders of trees that are put, each with the permissions and the time of its
    /// source.
    pub(super) async fn put_folders(&self, folders: Vec<NamedFolder>) -> Result<(), CliError> {
        for level in by_depth(folders, |folder| &folder.name).into_values() {
            let names: Vec<FileName> = level.iter().map(|folder| folder.name.clone()).collect();
            let make = |NamedFolder { name, kept }: NamedFolder| {
                let files = self.files.clone();
                async move {
                    match files.make_folder(&name, kept.creation()).await {
                        Err(error) if error.kind == FilesErrorKind::Exists => {
                            Ok(files.make_folders(&name).await?)
                        }
                        made => Ok(made.map(drop)?),
                    }
                }
            };
            let outcome = FilesOutcome::of(level, |_| 0, make, |()| {}).await;
            outcome.all_or_why("made", |place| names[place].to_string())?;
        }
        Ok(())
    }

    pub(super) async fn put_links(&self, links: Vec<NamedLink>) -> Result<(), CliError> {
        let names: Vec<FileName> = links.iter().map(|link| link.name.clone()).collect();
        let make = |NamedLink { name, target, kept }: NamedLink| {
            let files = self.files.clone();
            async move {
                files.make_symbolic_link(&name, &target, kept.creation()).await?;
                Ok(())
            }
        };
        let outcome = FilesOutcome::of(links, |_| 0, make, |()| {}).await;
        outcome.all_or_why("stored", |place| names[place].to_string()).map(drop)
    }

    /// Copies a folder with everything in it. Permissions and times follow when all files are
    /// there, since a folder may forbid writing; links follow too, so that no file is written
    /// through one of them.
    pub(super) async fn get_tree(
        &self,
        name: &str,
        to: Option<PathBuf>,
        force: bool,
    ) -> Result<(), CliError> {
        let folder = name.trim_end_matches('/');
        let root = rooted(folder);
        let entries = self.files.list_entries(&root).await?;
        if entries.is_empty() {
            return Err(format!("there is no file in {name}").into());
        }
        let to = to.unwrap_or_else(|| {
            PathBuf::from(folder.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or("."))
        });
        let place_of =
            |entry: &Listing| match entry.name.as_str()[root.len()..].trim_start_matches('/') {
                // The root of the tree, or a single file.
                "" if entry.kind.is_folder() => to.clone(),
                "" => to.join(entry.name.base_name()),
                rest => to.join(rest),
            };
        let (mut placed, mut folders) = (Vec::with_capacity(entries.len()), BTreeSet::new());
        for entry in &entries {
            let place = place_of(entry);
            let folder =
                if entry.kind.is_folder() { Some(place.as_path()) } else { place.parent() };
            if let Some(folder) = folder.filter(|folder| !folders.contains(*folder)) {
                std::fs::create_dir_all(std::path::Path::new(".").join(folder))
                    .map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
                folders.insert(folder.to_owned());
            }
            if entry.kind == FileKind::File {
                placed.push((entry.name.clone(), place, entry.size_bytes));
            }
        }
        self.bring_all(placed, force).await?;
        // Names below a folder come after it.
        for entry in entries.iter().rev() {
            let place = place_of(entry);
            let cannot = |e: std::io::Error| format!("cannot restore {}: {e}", place.display());
            if let FileKind::SymbolicLink(target) = &entry.kind {
                if force && place.is_symlink() {
                    std::fs::remove_file(&place).map_err(cannot)?;
                }
                std::os::unix::fs::symlink(target, &place).map_err(cannot)?;
                continue;
            }
            let opened = std::fs::File::open(&place).map_err(cannot)?;
            opened
                .set_modified(UNIX_EPOCH + Duration::from_nanos(entry.attributes.modified_ns))
                .map_err(cannot)?;
            let mode = u32::from(entry.attributes.mode) & RESTORED_BITS;
            opened.set_permissions(PermissionsExt::from_mode(mode)).map_err(cannot)?;
        }
        Ok(())
    }
}

/// Entries by the number of folders above them.
fn by_depth<T>(entries: Vec<T>, name: impl Fn(&T) -> &FileName) -> BTreeMap<usize, Vec<T>> {
    let mut levels = BTreeMap::<usize, Vec<T>>::new();
    for entry in entries {
        let depth = name(&entry).as_str().matches('/').count();
        levels.entry(depth).or_default().push(entry);
    }
    levels
}
