//! Attributes of files, folders and links, and the links themselves.

use std::sync::OnceLock;
use std::time::Instant;

use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::dfs::{AttributeChange, Attributes, FileId, FileKind, FileName, FileRecord, MAX_NAME_BYTES, MODE_BITS};

use crate::error::{FilesError, FilesErrorKind};
use crate::write::{now_ns, random};
use crate::{DfsClient, File, FolderUsage, PAUSE, unexpected};

/// Owner, permissions and time of a new entry, and whether its folder is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// Permission bits.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Time of the last write, nanoseconds since 1970; `None` for the time of creation.
    pub modified_ns: Option<u64>,
    /// Whether missing folders above the entry are made. Otherwise the caller has checked that its folder exists.
    pub makes_parents: bool,
}

impl Creation {
    /// Owned by the effective user and group of this process, or by the [owner](own_as) that was set. Has these
    /// permissions without those of the umask. Makes missing folders.
    pub fn of_process(mode: u16) -> Self {
        let of_system = || (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (uid, gid) = OWNER.get().copied().unwrap_or_else(of_system);
        Creation { mode: mode & !umask(), uid, gid, modified_ns: None, makes_parents: true }
    }

    pub(super) fn attributes(&self) -> Attributes {
        let Creation { mode, uid, gid, modified_ns, .. } = *self;
        let changed_ns = now_ns();
        Attributes { mode: mode & MODE_BITS, uid, gid, modified_ns: modified_ns.unwrap_or(changed_ns), changed_ns }
    }
}

/// The owner of what this process creates, if it is not its effective user.
static OWNER: OnceLock<(u32, u32)> = OnceLock::new();

/// Makes this user and group the owner of everything that this process creates from now on. The first call counts.
pub fn own_as(uid: u32, gid: u32) {
    let _ = OWNER.set((uid, gid));
}

/// The umask of this process when it is first asked for.
fn umask() -> u16 {
    static UMASK: OnceLock<u16> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        mask.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

impl DfsClient {
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
        if target.is_empty() || target.len() > MAX_NAME_BYTES || target.contains('\0') {
            return Err(FilesError::invalid(format!(
                "{name} cannot be a link to `{target}`: a target has 1 to {MAX_NAME_BYTES} bytes, and no NUL byte"
            )));
        }
        self.create_entry(name, FileKind::SymbolicLink(target.to_owned()), creation).await
    }

    /// Creates a folder or a link.
    pub(super) async fn create_entry(
        &self,
        name: &FileName,
        kind: FileKind,
        creation: Creation,
    ) -> Result<File, FilesError> {
        if creation.makes_parents {
            self.make_parents(name).await?;
        }
        let record = FileRecord::without_content(FileId(random()?), kind, creation.attributes());
        self.create_within_quota(name, record).await
    }

    /// Creates an entry if the quotas of its folders permit it.
    pub(super) async fn create_within_quota(&self, name: &FileName, record: FileRecord) -> Result<File, FilesError> {
        let charge = self.charge(name, None, FolderUsage::added(None, &record)).await?;
        let created = self.create_record(name, record).await?;
        charge.keep();
        Ok(created)
    }

    /// Creates an entry, which has a new id unless it is a folder.
    pub(super) async fn create_record(&self, name: &FileName, record: FileRecord) -> Result<File, FilesError> {
        let operation = FileOperation::Create { name: name.clone(), record: record.clone() };
        let mut is_unsure = false;
        match self.operate_once(operation, &mut is_unsure).await {
            Ok(FileAnswer::Done { version }) => Ok(File { name: name.clone(), record, version }),
            Ok(_) => Err(unexpected()),
            Err(error) if error.kind == FilesErrorKind::Exists && is_unsure => match self.lookup(name).await {
                // It was created, the answer was lost, and another client has written to it since.
                Ok(present) if present.record.id == record.id => Ok(present),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Changes attributes of a file, folder or link. Concurrent changes of other attributes, of the content and of the
    /// replicas are kept.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`.
    pub async fn set_attributes(&self, name: &FileName, change: &AttributeChange) -> Result<File, FilesError> {
        let (deadline, mut pause) = (self.deadline(), PAUSE);
        loop {
            let File { record, version, .. } = self.lookup(name).await?;
            let attributes = record.attributes.with(change, now_ns());
            let operation = FileOperation::SetAttributes { name: name.clone(), version, attributes };
            match self.operate(operation).await {
                Ok(FileAnswer::Done { version }) => {
                    return Ok(File { name: name.clone(), record: FileRecord { attributes, ..record }, version });
                }
                Ok(_) => return Err(unexpected()),
                Err(error) if error.kind == FilesErrorKind::Changed && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
            self.pause(&mut pause).await;
        }
    }
}
