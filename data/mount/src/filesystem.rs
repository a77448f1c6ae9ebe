//! Which request of the kernel does what.
//!
//! Operations that are missing here are handled by the kernel: locks, which hold among the programs
//! of this mount, and copies, which read and write.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use eyas_types::dfs::{AttributeChange, FileKind};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use crate::answers::{
    attributes, created, data, empty, entry, new_entry, opened, text, value, whole,
};
use crate::folders::FolderReader;
use crate::handles::OpenHandle;
use crate::inode::TRUSTED;
use crate::mounted::Mounted;
use crate::requests::{KernelRequests, configure};
use crate::times::asked;
use crate::{answers, extended, holes, listing};

impl Filesystem for KernelRequests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config)
    }

    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = text(name);
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.entries.lookup(folder.0, &name?).await
        };
        self.run("looking up an entry of", folder.0, work, entry(reply));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.mounted.entries.inodes.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move {
            let node = node?;
            let trusted = mounted.entries.trusted_for(&node).await?;
            Ok((node, trusted))
        };
        self.run("reading the attributes of", number.0, work, attributes(reply));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = self.node(number);
        let mode = mode.map(|mode| (mode & 0o7777) as u16);
        let is_modified_now = matches!(modified, Some(TimeOrNow::Now));
        let change = AttributeChange { mode, uid, gid, modified_ns: modified.map(asked) };
        let work = move |mounted: Arc<Mounted>| async move {
            let node = node?;
            mounted.change(&node, size, change, is_modified_now).await?;
            Ok((node, TRUSTED))
        };
        self.transfer("setting attributes of", number.0, work, attributes(reply));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.node(number).and_then(|node| match node.state().kind() {
            FileKind::SymbolicLink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL.into()),
        });
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(failure) => reply.error(failure.errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let (name, new) = (text(name), new_entry(request, mode));
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.entries.path(folder.0, &name?)?;
            let node = mounted.create(folder.0, &path, new, true).await?;
            node.drop_draft();
            Ok(node)
        };
        self.transfer("creating a file in", folder.0, work, entry(reply));
    }

    fn mkdir(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let (name, new) = (text(name), new_entry(request, mode));
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.entries.path(folder.0, &name?)?;
            mounted.entries.make_folder(folder.0, &path, new).await
        };
        self.run("creating a folder in", folder.0, work, entry(reply));
    }

    fn symlink(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target, new) = (text(name), text(target.as_os_str()), new_entry(request, 0o777));
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.entries.path(folder.0, &name?)?;
            mounted.entries.make_link(folder.0, &path, &target?, new).await
        };
        self.run("creating a link in", folder.0, work, entry(reply));
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.entries.path(folder.0, &name?)?;
            mounted.remove(folder.0, &path).await
        };
        self.transfer("removing a file of", folder.0, work, empty(reply));
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.entries.path(folder.0, &name?)?;
            mounted.entries.remove_folder(folder.0, &path).await
        };
        self.run("removing a folder of", folder.0, work, empty(reply));
    }

    fn rename(
        &self,
        _: &Request,
        from: INodeNo,
        old: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (old, new) = (text(old), text(new));
        let replaces = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let work = move |mounted: Arc<Mounted>| async move {
            let (old, new) =
                (mounted.entries.path(from.0, &old?)?, mounted.entries.path(to.0, &new?)?);
            mounted.rename((from.0, to.0), &old, &new, replaces).await
        };
        self.transfer("renaming a file of", from.0, work, empty(reply));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move { mounted.open(node?, flags).await };
        self.run("opening", number.0, work, opened(reply));
    }

    fn create(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (name, new) = (text(name), new_entry(request, mode));
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.create_and_open(folder.0, &name?, new, OpenFlags(flags)).await
        };
        self.transfer("creating a file in", folder.0, work, created(reply));
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = self.node(number);
        if let Ok(node) = &node
            && let Some(data) = self.mounted.readers.read_local(node, offset, size.into())
        {
            return reply.data(&data);
        }
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.read(&*node?, offset, size.into()).await
        };
        self.transfer("reading", number.0, work, data(reply));
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages of a mapping have their places.
        let appends = flags.0 & libc::O_APPEND != 0 && !how.contains(WriteFlags::FUSE_WRITE_CACHE);
        match self.node(number).and_then(|node| self.mounted.write(&node, offset, data, appends)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(failure) => reply.error(self.mounted.logged(failure, "writing", number.0)),
        }
    }

    fn flush(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        let handle = self.mounted.handles.get(handle.0);
        let work = move |mounted: Arc<Mounted>| async move {
            match &*handle? {
                OpenHandle::File(file) => mounted.flush(file).await,
                OpenHandle::Folder(_) => Ok(()),
            }
        };
        self.transfer("closing", number.0, work, empty(reply));
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move { mounted.publish(&*node?, true).await };
        self.transfer("syncing", number.0, work, empty(reply));
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let handle = self.mounted.handles.close(handle.0);
        let work = move |mounted: Arc<Mounted>| async move {
            match handle.as_deref() {
                Some(OpenHandle::File(file)) => mounted.release(file).await,
                _ => Ok(()),
            }
        };
        self.transfer("closing", number.0, work, empty(reply));
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move {
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            match whence {
                libc::SEEK_DATA => holes::seek(&mounted.entries, &*node?, offset, false).await,
                libc::SEEK_HOLE => holes::seek(&mounted.entries, &*node?, offset, true).await,
                _ => Err(Errno::EINVAL.into()),
            }
        };
        self.run("looking for holes of", number.0, work, answers::offset(reply));
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let node = self.node(number);
        let range = offset..offset.saturating_add(length);
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.allocate(&*node?, range, mode).await
        };
        self.transfer("allocating space for", number.0, work, empty(reply));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let open = |path| self.mounted.handles.open_folder(FolderReader::new(number.0, path));
        match self.mounted.entries.inodes.name(number.0).map(open) {
            Some(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        position: u64,
        mut reply: ReplyDirectory,
    ) {
        let handle = self.mounted.handles.get(handle.0);
        let work = move |mounted: Arc<Mounted>| async move {
            listing::list(&mounted.entries, &*handle?, position, &mut reply).await?;
            Ok(reply)
        };
        self.run("listing", number.0, work, whole(ReplyDirectory::ok));
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        position: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let handle = self.mounted.handles.get(handle.0);
        let work = move |mounted: Arc<Mounted>| async move {
            listing::list_plus(&mounted.entries, &*handle?, position, &mut reply).await?;
            Ok(reply)
        };
        self.run("listing", number.0, work, whole(ReplyDirectoryPlus::ok));
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.mounted.handles.close(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Entries are durable when the operation that makes them is answered.
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let work = move |mounted: Arc<Mounted>| async move { mounted.space.space().await };
        self.run("asking for the space of", number.0, work, move |done| match done {
            Ok(space) => space.reply(reply),
            Err(errno) => reply.error(errno),
        });
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (node, name) = (self.node(number), text(name));
        let work = move |mounted: Arc<Mounted>| async move {
            extended::value(&mounted.entries, &*node?, &name?).await
        };
        self.run("reading an extended attribute of", number.0, work, value(size, reply));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move {
            extended::names(&mounted.entries, &*node?).await
        };
        self.run("listing the extended attributes of", number.0, work, value(size, reply));
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (node, name, value) = (self.node(number), text(name), value.to_vec());
        let work = move |mounted: Arc<Mounted>| async move {
            extended::set(&mounted.entries, &*node?, &name?, value, flags).await
        };
        self.transfer("setting an extended attribute of", number.0, work, empty(reply));
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (node, name) = (self.node(number), text(name));
        let work = move |mounted: Arc<Mounted>| async move {
            extended::remove(&mounted.entries, &*node?, &name?).await
        };
        self.transfer("removing an extended attribute of", number.0, work, empty(reply));
    }
}
