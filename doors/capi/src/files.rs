//! Files of the cluster by name: look up, list, rename, remove.

use std::ffi::{CString, c_char};
use std::sync::{Arc, Mutex, PoisonError};

use eyas_client::files::{
    Background, Creation, DfsClient, File, FilesError, FolderPage, Listing, RenameOptions,
};
use eyas_client::types::dfs::{Attributes, FileKind, FileName};

use crate::client::{ClientState, EyasClient};
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// The kind of an entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EyasFileKind {
    /// A file with content.
    File = 0,
    /// A folder.
    Folder = 1,
    /// A symbolic link. This library does not follow it.
    SymbolicLink = 2,
}

impl EyasFileKind {
    fn of(kind: &FileKind) -> Self {
        match kind {
            FileKind::File => EyasFileKind::File,
            FileKind::Folder => EyasFileKind::Folder,
            FileKind::SymbolicLink(_) => EyasFileKind::SymbolicLink,
        }
    }
}

/// A file, folder or link of the cluster, as it was looked up or listed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EyasFileInfo {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last write, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Time of the last change of the content or an attribute, nanoseconds since 1970.
    pub changed_ns: u64,
    /// The kind of the entry.
    pub kind: EyasFileKind,
    /// Permission bits.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Size of the chunks of a file, bytes. 0 for an entry of a listing, and for what is no file.
    pub chunk_bytes: u64,
    /// Wanted number of replicas of each chunk. 0 for an entry of a listing, and for what is no
    /// file.
    pub replication: u32,
    /// 0 in this version.
    pub reserved: u32,
}

impl EyasFileInfo {
    /// Bytes of the first version of this struct.
    pub const FIRST_SIZE: usize = 40;

    pub fn of_file(file: &File) -> Self {
        let record = &file.record;
        let info = EyasFileInfo::of(record.size_bytes(), &record.kind, &record.attributes);
        match record.kind {
            FileKind::File => EyasFileInfo {
                chunk_bytes: record.chunk_bytes,
                replication: record.replication.into(),
                ..info
            },
            FileKind::Folder | FileKind::SymbolicLink(_) => info,
        }
    }

    fn of(size_bytes: u64, kind: &FileKind, attributes: &Attributes) -> Self {
        let Attributes { mode, uid, gid, modified_ns, changed_ns } = *attributes;
        EyasFileInfo {
            size_bytes,
            modified_ns,
            changed_ns,
            kind: EyasFileKind::of(kind),
            mode: mode.into(),
            uid,
            gid,
            chunk_bytes: 0,
            replication: 0,
            reserved: 0,
        }
    }
}

/// Entries of a folder. One thread at a time may use it, because the names belong to it.
pub struct EyasListing {
    _private: [u8; 0],
}

impl Handle for EyasListing {
    type State = Mutex<OpenListing>;
    const NAME: &'static str = "eyas_listing";
}

/// Entries that are listed together.
const PAGE: u32 = 4096;

/// A listing: a page of it, and where the next one begins.
pub struct OpenListing {
    client: Arc<ClientState>,
    folder: String,
    is_recursive: bool,
    rest: std::vec::IntoIter<Listing>,
    /// `None` after the last page.
    next: Option<String>,
    /// The page that begins there, which is asked for while the caller reads the one before.
    ahead: Option<Background<Result<FolderPage, FilesError>>>,
    /// The name that the caller has a pointer to.
    last: CString,
}

/// The name of a file of the cluster: an absolute path, with or without `eyas://` before it.
///
/// # Safety
/// As [`pointers::text`].
pub(crate) unsafe fn file_name(path: *const c_char) -> Result<FileName, CallError> {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    let path = unsafe { pointers::text(path, "the path of the file") }?;
    absolute(path)?.parse().map_err(CallError::invalid)
}

/// A path in the cluster, without `eyas://`.
fn absolute(path: &str) -> Result<&str, CallError> {
    let absolute = path.strip_prefix("eyas://").unwrap_or(path);
    let relative = || {
        CallError::invalid(format!(
            "`{path}` is not a path of the cluster: write /PATH or eyas:///PATH"
        ))
    };
    absolute.starts_with('/').then_some(absolute).ok_or_else(relative)
}

/// Looks up a file, folder or link, and writes what is found to `*info`, which has `size` bytes:
/// pass `sizeof *info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_stat(
    client: *mut EyasClient,
    path: *const c_char,
    info: *mut EyasFileInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        let name = unsafe { file_name(path) }?;
        let file = client
            .on_files(&format!("looking up {name}"), async |files| files.lookup(&name).await)?;
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe {
            pointers::put_struct(info, size, EyasFileInfo::FIRST_SIZE, EyasFileInfo::of_file(&file))
        }
    })
}

/// Renames a file, link or folder. The status is `EYAS_STATUS_EXISTS` if the new name is in use. A
/// folder with content is not renamed at once: its entries move one after another, and if the call
/// fails, it can be repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_rename(
    client: *mut EyasClient,
    from: *const c_char,
    to: *const c_char,
) -> EyasStatus {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    call(|| unsafe { rename(client, from, to, false) })
}

/// Renames as `eyas_rename()` does, and replaces what has the new name, as `rename()` of POSIX
/// does: a file or link takes the place of a file or link, and a folder that of an empty folder.
/// The status is `EYAS_STATUS_IS_FOLDER`, `EYAS_STATUS_NOT_FOLDER` or `EYAS_STATUS_NOT_EMPTY` if
/// that is not possible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_replace(
    client: *mut EyasClient,
    from: *const c_char,
    to: *const c_char,
) -> EyasStatus {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    call(|| unsafe { rename(client, from, to, true) })
}

/// # Safety
/// As [`file_name`].
unsafe fn rename(
    client: *mut EyasClient,
    from: *const c_char,
    to: *const c_char,
    replaces: bool,
) -> Result<(), CallError> {
    let client = handles::get(client)?;
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    let (from, to) = unsafe { (file_name(from)?, file_name(to)?) };
    client.on_files(&format!("renaming {from}"), async |files| {
        let options = RenameOptions { replaces, makes_parents: true, keeps_format: false };
        files.rename(&from, &to, options).await
    })
}

/// Makes a folder, and those above it that are missing. A file can also be written without its
/// folder: the folder is made then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_make_folder(
    client: *mut EyasClient,
    path: *const c_char,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(path) }?;
        let made =
            async |files: DfsClient| files.make_folder(&name, Creation::of_process(0o777)).await;
        client.on_files(&format!("making {name}"), made).map(drop)
    })
}

/// Removes an empty folder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_remove_folder(
    client: *mut EyasClient,
    path: *const c_char,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(path) }?;
        client.on_files(&format!("removing {name}"), async |files| files.remove_folder(&name).await)
    })
}

/// Removes a file or link. Programs that have it open may still read it for a while.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_remove(client: *mut EyasClient, path: *const c_char) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(path) }?;
        client.on_files(&format!("removing {name}"), async |files| files.remove(&name).await)
    })
}

/// Lists the entries of a folder; `/` is the root. If `recursive` is 1, entries of all its
/// subfolders are listed, too, in the order of the bytes of their names. Entries that appear or go
/// meanwhile may be listed or not. On success, `*listing` is a handle to be closed with
/// `eyas_listing_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_list(
    client: *mut EyasClient,
    folder: *const c_char,
    recursive: u32,
    listing: *mut *mut EyasListing,
) -> EyasStatus {
    call(|| {
        pointers::check(listing)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let folder = absolute(unsafe { pointers::text(folder, "the folder") }?)?;
        let (rest, last) = (Vec::new().into_iter(), CString::default());
        let mut state = OpenListing {
            client,
            folder: folder.to_owned(),
            is_recursive: recursive != 0,
            rest,
            next: Some(String::new()),
            ahead: None,
            last,
        };
        state.turn_page()?;
        let opened = handles::open::<EyasListing>(Mutex::new(state));
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(listing, opened) }
    })
}

impl OpenListing {
    /// The next entry. Memory does not grow with their number.
    fn next_entry(&mut self) -> Result<Option<Listing>, CallError> {
        loop {
            match self.rest.next() {
                None if self.next.is_some() => self.turn_page()?,
                entry => return Ok(entry),
            }
        }
    }

    fn turn_page(&mut self) -> Result<(), CallError> {
        let (client, what) = (self.client.clone(), format!("listing {}", self.folder));
        let page = client.wait(&what, async {
            // The work in the background must not keep the client, which ends its runtime.
            let files = client.files().await?;
            let ahead = match &mut self.ahead {
                Some(ahead) => {
                    let page = ahead.done().await;
                    self.ahead = None;
                    // What failed may have been asked for long ago.
                    page.ok()
                }
                None => None,
            };
            let page = match ahead {
                Some(page) => page,
                None => self.page(&files, self.next.clone().unwrap_or_default()).await?,
            };
            let next = page.next.clone();
            self.ahead = next.map(|from| Background::spawn(self.page(&files, from)));
            Ok::<_, CallError>(page)
        })?;
        (self.rest, self.next) = (page.entries.into_iter(), page.next);
        Ok(())
    }

    /// The page from this name on.
    fn page(
        &self,
        files: &DfsClient,
        from: String,
    ) -> impl Future<Output = Result<FolderPage, FilesError>> + Send + use<> {
        let (files, folder) = (files.clone(), self.folder.clone());
        let is_recursive = self.is_recursive;
        async move {
            match is_recursive {
                true => files.list_subtree(&folder, &from, PAGE).await,
                false => files.list_folder(&folder, &from, PAGE).await,
            }
        }
    }
}

/// Writes the next entry of a listing to `*info`, as `eyas_stat()` does, and its name to `*name`.
/// The name belongs to the listing, and is valid until the next call with it. The status is
/// `EYAS_STATUS_END` if there is no other entry. Some calls ask the nodes for more entries, and may
/// fail as `eyas_list()` does; then the call can be repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_listing_next(
    listing: *mut EyasListing,
    name: *mut *const c_char,
    info: *mut EyasFileInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        pointers::check(name)?;
        pointers::check_struct(info, size, EyasFileInfo::FIRST_SIZE)?;
        let listing = handles::get(listing)?;
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = listing.next_entry()?.ok_or_else(CallError::end)?;
        listing.last = pointers::c_text(next.name.as_str());
        let found = EyasFileInfo::of(next.size_bytes, &next.kind, &next.attributes);
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe {
            pointers::put_struct(info, size, EyasFileInfo::FIRST_SIZE, found)?;
            pointers::put(name, listing.last.as_ptr())
        }
    })
}

/// Closes a listing.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_listing_close(listing: *mut EyasListing) -> EyasStatus {
    call(|| handles::close(listing).map(drop))
}
