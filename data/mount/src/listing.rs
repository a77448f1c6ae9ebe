//! Answers with the entries of folders.

use std::time::Duration;

use eyas_types::dfs::{Attributes, FileKind};
use fuser::{FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use crate::answers::{GENERATION, attr, file_type, to_attr};
use crate::cluster_entry::ClusterEntry;
use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::folders::{FolderReader, parent};
use crate::handles::OpenHandle;
use crate::inode::TRUSTED;

/// Adds the entries of an open folder from a position on to a reply, as far as they fit.
pub(crate) async fn list(
    entries: &Entries,
    handle: &OpenHandle,
    position: u64,
    reply: &mut ReplyDirectory,
) -> Result<(), MountFailure> {
    let mut reader = handle.folder()?.lock().await;
    let mut at = position;
    for (name, number) in dots(entries, &reader).iter().skip(at as usize) {
        at += 1;
        if reply.add(INodeNo(*number), at, FileType::Directory, name) {
            return Ok(());
        }
    }
    let path = reader.path.clone();
    for listed in reader.entries(entries, at).await? {
        at += 1;
        let number = entries.inodes.number_of(&format!("{path}/{}", listed.name), &listed.found);
        if reply.add(INodeNo(number), at, file_type(&listed.found.kind), &listed.name) {
            break;
        }
    }
    Ok(())
}

/// Does the same with the attributes of the entries. The kernel gets references to them.
pub(crate) async fn list_plus(
    entries: &Entries,
    handle: &OpenHandle,
    position: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<(), MountFailure> {
    let mut reader = handle.folder()?.lock().await;
    let mut at = position;
    for (name, number) in dots(entries, &reader).iter().skip(at as usize) {
        at += 1;
        // The kernel looks these two up by itself, and uses their kind only.
        let dot = to_attr(*number, &FileKind::Folder, 0, &Attributes::default(), 1);
        if reply.add(INodeNo(0), at, name, &Duration::ZERO, &dot, GENERATION) {
            return Ok(());
        }
    }
    let path = reader.path.clone();
    let is_outdated = reader.is_outdated(entries);
    for listed in reader.entries(entries, at).await? {
        at += 1;
        let name = format!("{path}/{}", listed.name);
        if is_outdated && !listed.is_pending {
            // The kernel looks it up: it may have been renamed or removed here.
            let ClusterEntry { kind, size_bytes, attributes, .. } = &listed.found;
            let number = entries.inodes.number_of(&name, &listed.found);
            let plain = to_attr(number, kind, *size_bytes, attributes, 1);
            if reply.add(INodeNo(0), at, &listed.name, &Duration::ZERO, &plain, GENERATION) {
                break;
            }
            continue;
        }
        let node = entries.listed(&name, &listed.found, listed.is_pending);
        let number = INodeNo(node.number);
        if reply.add(number, at, &listed.name, &TRUSTED, &attr(&node), GENERATION) {
            // The entry did not fit.
            entries.inodes.forget(node.number, 1);
            break;
        }
    }
    Ok(())
}

/// The entries before those of the cluster.
fn dots(entries: &Entries, reader: &FolderReader) -> [(&'static str, u64); 2] {
    [(".", reader.number), ("..", parent(entries, &reader.path))]
}
