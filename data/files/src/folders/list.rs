//! Lists of folders: each member lists the names that it leads, and the client merges the lists.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use eyas_ring::{FileAnswer, FileOperation, ListDepth, Listing, Refusal};
use eyas_types::dfs::{FileKind, FileName};

use crate::calls::Calls;
use crate::error::{FilesError, unexpected};
use crate::folders::Folders;
use crate::protocol::{RequestBody, ResponseBody};
use crate::runs::spec::OWN_FOLDER;

/// Maximum number of names that a node lists in one answer.
const LIST_TOGETHER: u32 = 1000;

/// Entries that each member lists beyond its share of a page, as names are not spread evenly.
const BEYOND_SHARE: u32 = 16;

/// Some entries of a folder, or of a folder and those in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderPage {
    /// The entries in the order of their names, except that a folder whose own entry was missing
    /// may come late.
    pub entries: Vec<Listing>,
    /// The text from which the next page continues; `None` at the end of the folder.
    pub next: Option<String>,
}

/// A list that all members are asked for.
#[derive(Clone)]
struct ListRequest {
    folder: String,
    from: String,
    most: u32,
    depth: ListDepth,
    /// Whether a member is asked again and again, until it has listed everything.
    is_whole: bool,
}

/// The part of a list that one member returned.
#[derive(Default)]
struct MemberPart {
    entries: Vec<Listing>,
    implied: Vec<FileName>,
    next: Option<String>,
}

impl ListRequest {
    /// The part of a node: one page, or everything. A refusal if the view has changed, or if the
    /// node cannot answer now.
    async fn of_member(
        self,
        calls: &Calls,
        address: SocketAddr,
        view: u64,
    ) -> Result<Result<MemberPart, Refusal>, FilesError> {
        let ListRequest { folder, mut from, most, depth, is_whole } = self;
        let mut part = MemberPart::default();
        loop {
            let op = FileOperation::List { view, folder: folder.clone(), from, most, depth };
            match calls.ask_once(address, RequestBody::Operate(op)).await? {
                ResponseBody::Operated(Ok(FileAnswer::Listed { entries, implied, next })) => {
                    part.entries.extend(entries);
                    part.implied.extend(implied);
                    match next {
                        Some(next) if is_whole => from = next,
                        next => return Ok(Ok(MemberPart { next, ..part })),
                    }
                }
                ResponseBody::Operated(Err(refusal)) => return Ok(Err(refusal)),
                _ => return Err(unexpected()),
            }
        }
    }
}

impl Folders {
    /// The files in a folder and its subfolders, sorted by name, without folders and links. The
    /// empty text and `/` mean all files.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listing>, FilesError> {
        let mut entries = self.list_entries(folder).await?;
        entries.retain(|entry| entry.kind == FileKind::File);
        Ok(entries)
    }

    /// The entry that has the folder's name, and all files, folders and links below it, sorted by
    /// name.
    pub async fn list_entries(&self, folder: &str) -> Result<Vec<Listing>, FilesError> {
        let folder = folder.trim_end_matches('/');
        let (folder, depth) = (folder.to_owned(), ListDepth::All);
        let (from, most) = (String::new(), LIST_TOGETHER);
        let parts = self.of_all(&ListRequest { folder, from, most, depth, is_whole: true }).await?;
        let sorted: BTreeMap<_, _> = parts
            .into_iter()
            .flat_map(|part| part.entries)
            .map(|entry| (entry.name.clone(), entry))
            .collect();
        Ok(sorted.into_values().collect())
    }

    /// A page of about `most` entries of a folder; entries of its subfolders are not listed. `from`
    /// is the empty text for the first page, and [`FolderPage::next`] of the page before for the
    /// others. The page of a folder that does not exist is empty. A subfolder that contains files
    /// and has no entry gets one.
    pub async fn list_folder(
        &self,
        folder: &str,
        from: &str,
        most: u32,
    ) -> Result<FolderPage, FilesError> {
        let (mut entries, implied, next) =
            self.page(folder, from, most, ListDepth::OneLevel).await?;
        for folder in implied.into_iter().filter(|folder| !folder.is_within(OWN_FOLDER)) {
            let is_known = match folder.as_str() < from {
                // It was in an earlier page, if it has an entry.
                true => self.names.exists(&folder).await?,
                false => entries.contains_key(&folder),
            };
            if !is_known && let Some(entry) = self.put_folder_back(&folder).await? {
                entries.insert(folder, entry);
            }
        }
        entries.retain(|name, _| name.as_str() != OWN_FOLDER);
        Ok(FolderPage { entries: entries.into_values().collect(), next })
    }

    /// A page of about `most` of the files, folders and links below a folder, at any depth. Pages
    /// follow each other as those of [`Folders::list_folder`] do. Names come in the order of their
    /// bytes: `/a-b`, `/a/c`, `/a0`.
    pub async fn list_subtree(
        &self,
        folder: &str,
        from: &str,
        most: u32,
    ) -> Result<FolderPage, FilesError> {
        let (mut entries, _, next) = self.page(folder, from, most, ListDepth::All).await?;
        entries.retain(|name, _| name.as_str() != folder.trim_end_matches('/'));
        Ok(FolderPage { entries: entries.into_values().collect(), next })
    }

    /// What all members list up to the same name: entries, folders that have names below them, and
    /// the name.
    async fn page(
        &self,
        folder: &str,
        from: &str,
        most: u32,
        depth: ListDepth,
    ) -> Result<(BTreeMap<FileName, Listing>, BTreeSet<FileName>, Option<String>), FilesError> {
        let folder = folder.trim_end_matches('/');
        let share = most.div_ceil(self.routes.known().view.members.len().max(1) as u32)
            + BEYOND_SHARE.min(most);
        let most = share.min(LIST_TOGETHER);
        let wanted = ListRequest {
            folder: folder.to_owned(),
            from: from.to_owned(),
            most,
            depth,
            is_whole: false,
        };
        let parts = self.of_all(&wanted).await?;
        let next = parts.iter().filter_map(|part| part.next.clone()).min();
        let is_covered = |name: &str| next.as_deref().is_none_or(|next| name < next);
        let (mut entries, mut implied) = (BTreeMap::new(), BTreeSet::new());
        for part in parts {
            let covered = part.entries.into_iter().filter(|entry| is_covered(entry.name.as_str()));
            entries.extend(covered.map(|entry| (entry.name.clone(), entry)));
            implied.extend(
                part.implied.into_iter().filter(|folder| is_covered(&format!("{folder}/"))),
            );
        }
        Ok((entries, implied, next))
    }

    /// Whether no name is below a folder.
    pub async fn is_empty(&self, folder: &FileName) -> Result<bool, FilesError> {
        let folder = folder.as_str().to_owned();
        let depth = ListDepth::OneLevel;
        let mut wanted =
            ListRequest { folder, from: String::new(), most: 1, depth, is_whole: false };
        loop {
            let parts = self.of_all(&wanted).await?;
            if parts.iter().any(|part| !part.entries.is_empty() || !part.implied.is_empty()) {
                return Ok(false);
            }
            // A member may stop early after many names of removed files.
            match parts.into_iter().filter_map(|part| part.next).min() {
                Some(next) => wanted.from = next,
                None => return Ok(true),
            }
        }
    }

    async fn of_all(&self, wanted: &ListRequest) -> Result<Vec<MemberPart>, FilesError> {
        let list = |calls: Arc<Calls>, address, view| {
            let wanted = wanted.clone();
            async move { wanted.of_member(&calls, address, view).await }
        };
        self.routes.ask_all(list).await
    }
}
