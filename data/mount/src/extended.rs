//! Extended attributes. `user.NAME` is the named attribute NAME of an entry, which programs set.
//! Those of `user.eyas.` show where a file is and can only be read; a list does not have them, as
//! programs that copy all attributes of a list would then fail.

use std::collections::BTreeSet;
use std::sync::Arc;

use eyas_files::File;
use eyas_types::dfs::{FileKind, NamedChange, OWN_ATTRIBUTES, SetCondition};
use fuser::Errno;

use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::inode::Inode;

/// The beginning of the names of extended attributes that users may set, in Linux.
const USER: &str = "user.";

/// The sizes of the chunks, as a JSON array.
const CHUNKS: &str = "eyas.chunks";
/// The format of the records.
const FORMAT: &str = "eyas.format";
/// The nodes that store each chunk, as a JSON array of arrays.
const REPLICAS: &str = "eyas.replicas";

/// The largest value that Linux passes on.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// The names of the extended attributes of an entry, each ended by a NUL byte.
pub(crate) async fn names(entries: &Entries, node: &Inode) -> Result<Vec<u8>, MountFailure> {
    let named = entries.named_attributes(node).await?;
    let names = named.iter().flat_map(|(name, _)| [USER, name, "\0"].concat().into_bytes());
    Ok(names.collect())
}

/// The value of an extended attribute.
pub(crate) async fn value(
    entries: &Entries,
    node: &Inode,
    name: &str,
) -> Result<Vec<u8>, MountFailure> {
    let attribute = of_users(name)?;
    if attribute.starts_with(OWN_ATTRIBUTES) {
        return own_attribute(entries, node, attribute).await;
    }
    let named = entries.named_attributes(node).await?;
    Ok(named.get(attribute).ok_or(Errno::NO_XATTR)?.to_vec())
}

/// Sets an extended attribute, with the flags of `setxattr`.
pub(crate) async fn set(
    entries: &Entries,
    node: &Inode,
    name: &str,
    value: Vec<u8>,
    flags: i32,
) -> Result<(), MountFailure> {
    let condition = match flags {
        0 => SetCondition::None,
        libc::XATTR_CREATE => SetCondition::New,
        libc::XATTR_REPLACE => SetCondition::Present,
        _ => return Err(Errno::EINVAL.into()),
    };
    entries.change_named(node, settable(name)?, NamedChange::Set { value, condition }).await
}

pub(crate) async fn remove(
    entries: &Entries,
    node: &Inode,
    name: &str,
) -> Result<(), MountFailure> {
    entries.change_named(node, settable(name)?, NamedChange::Remove).await
}

/// The value of an attribute that is shown of the version of a file that is published.
async fn own_attribute(
    entries: &Entries,
    node: &Inode,
    name: &str,
) -> Result<Vec<u8>, MountFailure> {
    if ![CHUNKS, FORMAT, REPLICAS].contains(&name) {
        return Err(Errno::NO_XATTR.into());
    }
    if node.file().is_none() {
        entries.refresh(node).await?;
    }
    let file = node.file().filter(|file| file.record.kind == FileKind::File);
    let value = shown(&file.ok_or(Errno::NO_XATTR)?, name);
    if value.len() > MAX_VALUE_BYTES { Err(Errno::E2BIG.into()) } else { Ok(value.into_bytes()) }
}

/// The name of the attribute without `user.`. Programs that hear that there are no other ones, for
/// example access control lists, ask only once.
fn of_users(name: &str) -> Result<&str, MountFailure> {
    Ok(name.strip_prefix(USER).ok_or(Errno::EOPNOTSUPP)?)
}

/// The same, if programs may set the attribute.
fn settable(name: &str) -> Result<&str, MountFailure> {
    let attribute = of_users(name)?;
    if attribute.starts_with(OWN_ATTRIBUTES) { Err(Errno::EPERM.into()) } else { Ok(attribute) }
}

fn shown(file: &Arc<File>, name: &str) -> String {
    let chunks = &file.record.chunks;
    let values: Vec<String> = match name {
        FORMAT => return file.record.format.to_string(),
        CHUNKS => chunks.iter().map(|chunk| chunk.size_bytes.to_string()).collect(),
        _ => {
            let nodes = chunks.iter().map(|chunk| chunk.replicas.iter().collect::<BTreeSet<_>>());
            let names = nodes.map(|nodes| {
                nodes.into_iter().map(|node| format!("\"{node}\"")).collect::<Vec<_>>()
            });
            names.map(|names| format!("[{}]", names.join(","))).collect()
        }
    };
    format!("[{}]", values.join(","))
}
