//! Running the kernel's requests, and the forms of their answers.

use std::ffi::OsStr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use eyas_types::dfs::{Attributes, FileKind};
use fuser::{
    Errno, FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyXattr, Request,
};
use tokio::time::timeout;

use crate::failure::{MountFailure, too_slow};
use crate::filesystem::KernelRequests;
use crate::mounted::{Mounted, NewEntry};
use crate::nodes::Inode;
use crate::times::system_time;

/// Time for which the kernel trusts names and attributes.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(1);

/// Size of a block in `stat`, by definition.
const STAT_BLOCK_BYTES: u64 = 512;

/// The size that programs should read and write.
const PREFERRED_BYTES: u32 = 1 << 20;

pub(crate) const GENERATION: Generation = Generation(0);

impl KernelRequests {
    /// Runs an operation and gives its result to `reply`. Fails it after the time that the user has
    /// set, if it has no content to transfer.
    pub fn run<T: Send + 'static, F>(
        &self,
        operation: &'static str,
        of: u64,
        work: impl FnOnce(Arc<Mounted>) -> F,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        F: Future<Output = Result<T, MountFailure>> + Send + 'static,
    {
        let limit = self.0.timeout;
        let work = |mounted| {
            let work = work(mounted);
            async move { timeout(limit, work).await.unwrap_or_else(|_| Err(too_slow(limit))) }
        };
        self.transfer(operation, of, work, reply);
    }

    /// Runs an operation that transfers content, which may take long.
    pub fn transfer<T: Send + 'static, F>(
        &self,
        operation: &'static str,
        of: u64,
        work: impl FnOnce(Arc<Mounted>) -> F,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        F: Future<Output = Result<T, MountFailure>> + Send + 'static,
    {
        let mounted = self.0.clone();
        let _entered = self.0.runtime.enter();
        let mut work = Box::pin(work(mounted.clone()));
        let answer = move |done: Result<T, MountFailure>| {
            reply(done.map_err(|failure| mounted.logged(failure, operation, of)));
        };
        // What needs no answer of the cluster is done at once: a change of threads costs more than
        // most requests.
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => answer(done),
            Poll::Pending => drop(self.0.runtime.spawn(async move { answer(work.await) })),
        }
    }

    pub fn node(&self, number: INodeNo) -> Result<Arc<Inode>, MountFailure> {
        Ok(self.0.nodes.get(number.0).ok_or(Errno::ESTALE)?.0)
    }
}

impl Mounted {
    pub fn logged(&self, failure: MountFailure, operation: &str, of: u64) -> Errno {
        failure.log(operation, &self.nodes.name(of).unwrap_or_default());
        failure.errno
    }
}

/// Replies that have one kind of result.
pub(crate) fn entry(reply: ReplyEntry) -> impl FnOnce(Result<Arc<Inode>, Errno>) {
    move |done| match done {
        Ok(node) => reply.entry(&REMEMBERED, &attr(&node), GENERATION),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn empty(reply: ReplyEmpty) -> impl FnOnce(Result<(), Errno>) {
    move |done| match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// The value of an extended attribute, or its size if the program asks for that.
pub(crate) fn value(done: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match done {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

/// The kernel's form of the attributes of an entry.
pub(crate) fn attr(node: &Inode) -> FileAttr {
    let state = node.state();
    let links = u32::from(!state.is_removed);
    let blocks = state.stored_bytes().div_ceil(STAT_BLOCK_BYTES);
    FileAttr {
        blocks,
        ..to_attr(node.number, &state.kind, state.size_bytes(), &state.attributes, links)
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

/// A reply to a request for a part of a folder.
pub(crate) trait FolderReply: Send + 'static {
    fn done(self);
}

impl FolderReply for ReplyDirectory {
    fn done(self) {
        self.ok();
    }
}

impl FolderReply for ReplyDirectoryPlus {
    fn done(self) {
        self.ok();
    }
}

impl KernelRequests {
    /// Runs a request for a part of a folder. If it fails, its reply is dropped, which answers the
    /// kernel with `EIO`.
    pub fn list<R: FolderReply, F>(&self, of: u64, work: impl FnOnce(Arc<Mounted>) -> F)
    where
        F: Future<Output = Result<R, MountFailure>> + Send + 'static,
    {
        self.run("listing", of, work, |done| {
            if let Ok(reply) = done {
                reply.done();
            }
        });
    }
}
