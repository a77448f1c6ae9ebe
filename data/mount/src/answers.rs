//! The forms of answers to the kernel.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use eyas_types::dfs::{Attributes, FileKind};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyXattr, Request,
};

use crate::failure::MountFailure;
use crate::inode::{Inode, TRUSTED};
use crate::new_files::NewEntry;
use crate::times::system_time;

/// Size of a block in `stat`, by definition.
const STAT_BLOCK_BYTES: u64 = 512;

/// The size that programs should read and write.
const PREFERRED_BYTES: u32 = 1 << 20;

pub(crate) const GENERATION: Generation = Generation(0);

/// Replies that have one kind of result.
pub(crate) fn entry(reply: ReplyEntry) -> impl FnOnce(Result<Arc<Inode>, Errno>) {
    move |done| match done {
        Ok(node) => reply.entry(&TRUSTED, &attr(&node), GENERATION),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn empty(reply: ReplyEmpty) -> impl FnOnce(Result<(), Errno>) {
    move |done| match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// The attributes of an entry, which the kernel trusts for a time.
pub(crate) fn attributes(reply: ReplyAttr) -> impl FnOnce(Result<(Arc<Inode>, Duration), Errno>) {
    move |done| match done {
        Ok((node, trusted)) => reply.attr(&trusted, &attr(&node)),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn opened(reply: ReplyOpen) -> impl FnOnce(Result<(u64, FopenFlags), Errno>) {
    move |done| match done {
        Ok((handle, opened)) => reply.opened(FileHandle(handle), opened),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn created(reply: ReplyCreate) -> impl FnOnce(Result<(Arc<Inode>, u64), Errno>) {
    move |done| match done {
        Ok((node, handle)) => {
            let (handle, opened) = (FileHandle(handle), FopenFlags::empty());
            reply.created(&TRUSTED, &attr(&node), GENERATION, handle, opened);
        }
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn data(reply: ReplyData) -> impl FnOnce(Result<Vec<u8>, Errno>) {
    move |done| match done {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn offset(reply: ReplyLseek) -> impl FnOnce(Result<u64, Errno>) {
    move |done| match done {
        Ok(offset) => reply.offset(offset as i64),
        Err(errno) => reply.error(errno),
    }
}

/// The entries of a folder, which are in the reply. If a request fails, its reply is dropped, which
/// answers the kernel with `EIO`.
pub(crate) fn whole<R>(done: impl FnOnce(R)) -> impl FnOnce(Result<R, Errno>) {
    move |listed| {
        if let Ok(reply) = listed {
            done(reply);
        }
    }
}

/// The value of an extended attribute, or its size if the program asks for that.
pub(crate) fn value(size: u32, reply: ReplyXattr) -> impl FnOnce(Result<Vec<u8>, Errno>) {
    move |done| match done {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

/// The kernel's form of the attributes of an entry.
pub(crate) fn attr(node: &Inode) -> FileAttr {
    let state = node.state();
    let links = u32::from(!state.is_removed());
    let blocks = state.stored_bytes().div_ceil(STAT_BLOCK_BYTES);
    FileAttr {
        blocks,
        ..to_attr(node.number, state.kind(), state.size_bytes(), &state.attributes(), links)
    }
}

pub(crate) fn to_attr(
    number: u64,
    kind: &FileKind,
    size_bytes: u64,
    attributes: &Attributes,
    links: u32,
) -> FileAttr {
    let (modified, changed) =
        (system_time(attributes.modified_ns), system_time(attributes.changed_ns));
    FileAttr {
        ino: INodeNo(number),
        size: if kind.is_folder() { 4096 } else { size_bytes },
        blocks: size_bytes.div_ceil(STAT_BLOCK_BYTES),
        atime: modified,
        mtime: modified,
        ctime: changed,
        crtime: changed,
        kind: file_type(kind),
        perm: attributes.mode,
        // A folder with 1 link has any number of subfolders, as in Btrfs.
        nlink: links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: 0,
        blksize: PREFERRED_BYTES,
        flags: 0,
    }
}

pub(crate) fn file_type(kind: &FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Folder => FileType::Directory,
        FileKind::SymbolicLink(_) => FileType::Symlink,
    }
}

/// A name that the kernel passes. Names of the cluster are UTF-8.
pub(crate) fn text(name: &OsStr) -> Result<String, MountFailure> {
    name.to_str().map(str::to_owned).ok_or_else(|| Errno::EILSEQ.into())
}

pub(crate) fn new_entry(request: &Request, mode: u32) -> NewEntry {
    NewEntry { uid: request.uid(), gid: request.gid(), mode }
}
