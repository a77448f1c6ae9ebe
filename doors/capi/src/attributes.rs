//! Links, owners, permissions and quotas of the cluster's files.

use std::ffi::c_char;

use eyas_client::files::{Creation, FolderUsage};
use eyas_client::types::dfs::{AttributeChange, FileKind, FileName, MODE_BITS, Quota};

use crate::client::EyasClient;
use crate::files::file_name;
use crate::handles;
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// An owner that stays as it is, in `eyas_set_owner()`.
pub const EYAS_UNCHANGED: u32 = u32::MAX;

/// A limit that does not exist, in quotas.
pub const EYAS_NO_LIMIT: u64 = u64::MAX;

/// Limits on everything below a folder, and how much of them is used.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EyasQuota {
    /// Maximum size of all files together, bytes; `EYAS_NO_LIMIT` if there is no limit. Replicas
    /// do not count.
    pub bytes: u64,
    /// Maximum number of files, folders and links; `EYAS_NO_LIMIT` if there is no limit.
    pub files: u64,
    /// Size of all files together, bytes.
    pub used_bytes: u64,
    /// Number of files, folders and links.
    pub used_files: u64,
}

impl EyasQuota {
    /// Bytes of the first version of this struct.
    pub const FIRST_SIZE: usize = 32;
}

/// Makes a symbolic link. The target may be any path, and is not checked. Missing folders above the
/// link are made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_make_symbolic_link(
    client: *mut EyasClient,
    path: *const c_char,
    target: *const c_char,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (name, target) =
            unsafe { (file_name(path)?, pointers::text(target, "the target of the link")?) };
        client
            .on_files(&format!("making {name}"), async |files| {
                files.make_symbolic_link(&name, target, Creation::of_process(0o777)).await
            })
            .map(drop)
    })
}

/// Reads the target of a symbolic link. On success, `*target` is a text to be freed with
/// `eyas_text_free()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_read_symbolic_link(
    client: *mut EyasClient,
    path: *const c_char,
    target: *mut *mut c_char,
) -> EyasStatus {
    call(|| {
        pointers::check(target)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(path) }?;
        let file = client
            .on_files(&format!("looking up {name}"), async |files| files.lookup(&name).await)?;
        let FileKind::SymbolicLink(text) = file.record.kind else {
            return Err(CallError::invalid(format!("{name} is not a symbolic link")));
        };
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(target, pointers::c_text(text).into_raw()) }
    })
}

/// Sets the permission bits of a file, folder or link: up to `07777`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_set_mode(
    client: *mut EyasClient,
    path: *const c_char,
    mode: u32,
) -> EyasStatus {
    call(|| {
        let bits = u16::try_from(mode).ok().filter(|bits| bits & !MODE_BITS == 0);
        let bits = bits.ok_or_else(|| {
            CallError::invalid(format!("{mode:#o} are not permission bits: pass 0 to 07777"))
        })?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        unsafe {
            change(client, path, AttributeChange { mode: Some(bits), ..AttributeChange::default() })
        }
    })
}

/// Sets the owner and the group of a file, folder or link. An id that is `EYAS_UNCHANGED` stays as
/// it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_set_owner(
    client: *mut EyasClient,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> EyasStatus {
    call(|| {
        let changed = |id: u32| (id != EYAS_UNCHANGED).then_some(id);
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        unsafe {
            change(
                client,
                path,
                AttributeChange {
                    uid: changed(uid),
                    gid: changed(gid),
                    ..AttributeChange::default()
                },
            )
        }
    })
}

/// Sets the time of the last write of a file, folder or link, nanoseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_set_modified(
    client: *mut EyasClient,
    path: *const c_char,
    modified_ns: u64,
) -> EyasStatus {
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    call(|| unsafe {
        change(
            client,
            path,
            AttributeChange { modified_ns: Some(modified_ns), ..AttributeChange::default() },
        )
    })
}

/// Changes attributes of an entry.
///
/// # Safety
/// As [`pointers::text`], for the path.
unsafe fn change(
    client: *mut EyasClient,
    path: *const c_char,
    change: AttributeChange,
) -> Result<(), CallError> {
    let client = handles::get(client)?;
    // SAFETY: the caller passes NULL, or text that ends with NUL.
    let name = unsafe { file_name(path) }?;
    client
        .on_files(&format!("changing {name}"), async |files| {
            files.set_attributes(&name, &change).await
        })
        .map(drop)
}

/// Sets the quota of a folder: limits on everything below it, each `EYAS_NO_LIMIT` or a number. Two
/// limits that are `EYAS_NO_LIMIT` remove the quota. What is there already may exceed the quota;
/// then nothing can be added, and the status of calls that would add something is
/// `EYAS_STATUS_QUOTA`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_set_quota(
    client: *mut EyasClient,
    folder: *const c_char,
    bytes: u64,
    files: u64,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name = unsafe { file_name(folder) }?;
        let limit = |limit: u64| (limit != EYAS_NO_LIMIT).then_some(limit);
        let quota = Quota { bytes: limit(bytes), files: limit(files) };
        let quota = Some(quota).filter(|quota| *quota != Quota::default());
        client.on_files(&format!("setting the quota of {name}"), async |files| {
            files.set_quota(&name, quota).await
        })
    })
}

/// Writes the quota of a folder, and what is below the folder, to `*quota`, which has `size` bytes:
/// pass `sizeof *quota`. A folder without a quota has no limits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_get_quota(
    client: *mut EyasClient,
    folder: *const c_char,
    quota: *mut EyasQuota,
    size: usize,
) -> EyasStatus {
    call(|| {
        pointers::check(quota)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let name: FileName = unsafe { file_name(folder) }?;
        let (limits, used) =
            client.on_files(&format!("asking for the quota of {name}"), async |files| {
                let found = files.lookup(&name).await?;
                Ok((
                    found.record.quota.unwrap_or_default(),
                    files.folder_usage(name.as_str()).await?,
                ))
            })?;
        let FolderUsage { bytes: used_bytes, files: used_files } = used;
        let limit = |limit: Option<u64>| limit.unwrap_or(EYAS_NO_LIMIT);
        let found = EyasQuota {
            bytes: limit(limits.bytes),
            files: limit(limits.files),
            used_bytes,
            used_files,
        };
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(quota, size, EyasQuota::FIRST_SIZE, found) }
    })
}
