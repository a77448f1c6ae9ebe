//! The answers to the kernel. Each request runs on its own, so that a slow one does not delay
//! others.
//!
//! Operations that are missing here are handled by the kernel: locks, which hold among the programs
//! of this mount, and copies, which read and write.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use eyas_types::dfs::{AttributeChange, FileKind};
use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::answers::{
    GENERATION, REMEMBERED, attr, empty, entry, file_type, new_entry, text, to_attr, value,
};
use crate::folders::{FolderReader, dot, parent};
use crate::handles::OpenHandle;
use crate::mounted::Mounted;
use crate::nodes::{Found, Inode};
use crate::times::asked;

/// Largest request of the kernel to read or write.
const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// Maximum number of requests in the background, such as read-ahead.
const MAX_BACKGROUND: u16 = 64;

/// The kernel's requests to a mounted file system.
pub(crate) struct KernelRequests(pub Arc<Mounted>);

impl Filesystem for KernelRequests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without `FUSE_ATOMIC_O_TRUNC`: with it, the kernel truncates a program that is running
        // before it finds that the program may not be opened for writing (`ETXTBSY`).
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS;
        // An older kernel lacks some of them, and is slower.
        let _ = config.add_capabilities(wanted & config.capabilities());
        config.set_max_write(MAX_REQUEST_BYTES).map_err(|_| io::ErrorKind::InvalidInput)?;
        config.set_max_background(MAX_BACKGROUND).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = text(name);
        let work =
            move |mounted: Arc<Mounted>| async move { mounted.lookup(folder.0, &name?).await };
        self.run("looking up an entry of", folder.0, work, entry(reply));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.nodes.forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move {
            let node = node?;
            let trusted = node.state().trusted_for();
            if trusted.is_zero() {
                mounted.refresh(&node).await?;
                return Ok((node, REMEMBERED));
            }
            Ok((node, trusted))
        };
        self.run("reading the attributes of", number.0, work, move |done| match done {
            Ok((node, trusted)) => reply.attr(&trusted, &attr(&node)),
            Err(errno) => reply.error(errno),
        });
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
        let mut change = AttributeChange { mode, uid, gid, modified_ns: modified.map(asked) };
        let work = move |mounted: Arc<Mounted>| async move {
            let node = node?;
            if let Some(size_bytes) = size {
                mounted.set_size(&node, size_bytes).await?;
                if is_modified_now && node.state().is_dirty() {
                    // The draft has the time.
                    change.modified_ns = None;
                }
            }
            if change != AttributeChange::default() {
                mounted.set_attributes(&node, change).await?;
            }
            Ok(node)
        };
        self.transfer(
            "setting attributes of",
            number.0,
            work,
            move |done: Result<Arc<Inode>, Errno>| match done {
                Ok(node) => reply.attr(&REMEMBERED, &attr(&node)),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.node(number).and_then(|node| match &node.state().kind {
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
            let path = mounted.path(folder.0, &name?)?;
            let node = mounted.create(folder.0, &path, new, true).await?;
            mounted.drop_draft(&node);
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
            let path = mounted.path(folder.0, &name?)?;
            mounted.make_folder(folder.0, &path, new).await
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
            let path = mounted.path(folder.0, &name?)?;
            mounted.make_link(folder.0, &path, &target?, new).await
        };
        self.run("creating a link in", folder.0, work, entry(reply));
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.path(folder.0, &name?)?;
            mounted.remove(folder.0, &path).await
        };
        self.transfer("removing a file of", folder.0, work, empty(reply));
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = text(name);
        let work = move |mounted: Arc<Mounted>| async move {
            let path = mounted.path(folder.0, &name?)?;
            mounted.remove_folder(folder.0, &path).await
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
            let (old, new) = (mounted.path(from.0, &old?)?, mounted.path(to.0, &new?)?);
            mounted.rename((from.0, to.0), &old, &new, replaces).await
        };
        self.transfer("renaming a file of", from.0, work, empty(reply));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let node = self.node(number);
        let work = move |mounted: Arc<Mounted>| async move { mounted.open(node?, flags).await };
        self.run("opening", number.0, work, move |done| match done {
            Ok((handle, opened)) => reply.opened(FileHandle(handle), opened),
            Err(errno) => reply.error(errno),
        });
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
        self.transfer(
            "creating a file in",
            folder.0,
            work,
            move |done: Result<(Arc<Inode>, u64), Errno>| match done {
                Ok((node, handle)) => {
                    reply.created(
                        &REMEMBERED,
                        &attr(&node),
                        GENERATION,
                        FileHandle(handle),
                        FopenFlags::empty(),
                    );
                }
                Err(errno) => reply.error(errno),
            },
        );
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
            && let Some(data) = self.0.read_at_hand(node, offset, size.into())
        {
            return reply.data(&data);
        }
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.read(&*node?, offset, size.into()).await
        };
        self.transfer("reading", number.0, work, move |done| match done {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        });
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
        match self.node(number).and_then(|node| self.0.write(&node, offset, data, appends)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(failure) => reply.error(self.0.logged(failure, "writing", number.0)),
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
        let handle = self.0.handle(handle.0);
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
        let handle = self.0.close_handle(handle.0);
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
                libc::SEEK_DATA => mounted.seek(&*node?, offset, false).await,
                libc::SEEK_HOLE => mounted.seek(&*node?, offset, true).await,
                _ => Err(Errno::EINVAL.into()),
            }
        };
        self.run("looking for holes of", number.0, work, move |done| match done {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        });
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
        match self.0.nodes.name(number.0) {
            Some(path) => {
                let reader = FolderReader::new(number.0, path);
                let handle =
                    self.0.open_handle(OpenHandle::Folder(tokio::sync::Mutex::new(reader)));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
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
        let handle = self.0.handle(handle.0);
        let work = move |mounted: Arc<Mounted>| async move {
            let handle = handle?;
            let OpenHandle::Folder(reader) = &*handle else { return Err(Errno::ENOTDIR.into()) };
            let mut reader = reader.lock().await;
            let mut at = position;
            for (name, number) in [(".", reader.number), ("..", parent(&mounted, &reader.path))]
                .iter()
                .skip(at as usize)
            {
                at += 1;
                if reply.add(INodeNo(*number), at, FileType::Directory, name) {
                    return Ok(reply);
                }
            }
            let path = reader.path.clone();
            for found in reader.entries(&mounted, at).await? {
                at += 1;
                let number =
                    mounted.nodes.number_of(&format!("{path}/{}", found.name), &found.found);
                if reply.add(INodeNo(number), at, file_type(&found.found.kind), &found.name) {
                    break;
                }
            }
            Ok(reply)
        };
        self.list(number.0, work);
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        position: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let handle = self.0.handle(handle.0);
        let work = move |mounted: Arc<Mounted>| async move {
            let handle = handle?;
            let OpenHandle::Folder(reader) = &*handle else { return Err(Errno::ENOTDIR.into()) };
            let mut reader = reader.lock().await;
            let mut at = position;
            let (kind, attributes) = dot();
            for (name, number) in [(".", reader.number), ("..", parent(&mounted, &reader.path))]
                .iter()
                .skip(at as usize)
            {
                at += 1;
                // The kernel looks these two up by itself.
                let dot = to_attr(*number, &kind, 0, &attributes, 1);
                if reply.add(INodeNo(0), at, name, &Duration::ZERO, &dot, GENERATION) {
                    return Ok(reply);
                }
            }
            let path = reader.path.clone();
            let is_outdated = reader.is_outdated(&mounted);
            for found in reader.entries(&mounted, at).await? {
                at += 1;
                let name = format!("{path}/{}", found.name);
                if is_outdated && !found.is_pending {
                    // The kernel looks it up: it may have been renamed or removed here.
                    let Found { kind, size_bytes, attributes, .. } = &found.found;
                    let number = mounted.nodes.number_of(&name, &found.found);
                    let plain = to_attr(number, kind, *size_bytes, attributes, 1);
                    if reply.add(INodeNo(0), at, &found.name, &Duration::ZERO, &plain, GENERATION) {
                        break;
                    }
                    continue;
                }
                let node = mounted.listed(&name, &found.found, found.is_pending);
                if reply.add(
                    INodeNo(node.number),
                    at,
                    &found.name,
                    &REMEMBERED,
                    &attr(&node),
                    GENERATION,
                ) {
                    // The entry did not fit.
                    mounted.nodes.forget(node.number, 1);
                    break;
                }
            }
            Ok(reply)
        };
        self.list(number.0, work);
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.close_handle(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Entries are durable when the operation that makes them is answered.
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let work = move |mounted: Arc<Mounted>| async move { mounted.space().await };
        self.run("asking for the space of", number.0, work, move |done| match done {
            Ok(space) => space.reply(reply),
            Err(errno) => reply.error(errno),
        });
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (node, name) = (self.node(number), text(name));
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.extended_attribute(&*node?, &name?).await
        };
        self.run("reading an extended attribute of", number.0, work, move |done| {
            value(done, size, reply)
        });
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let node = self.node(number);
        let work =
            move |mounted: Arc<Mounted>| async move { mounted.extended_names(&*node?).await };
        self.run("listing the extended attributes of", number.0, work, move |done| {
            value(done, size, reply)
        });
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
            mounted.set_extended(&*node?, &name?, value, flags).await
        };
        self.transfer("setting an extended attribute of", number.0, work, empty(reply));
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (node, name) = (self.node(number), text(name));
        let work = move |mounted: Arc<Mounted>| async move {
            mounted.remove_extended(&*node?, &name?).await
        };
        self.transfer("removing an extended attribute of", number.0, work, empty(reply));
    }
}

impl Mounted {
    /// An entry that is listed. The kernel gets a reference to it.
    fn listed(&self, path: &str, found: &Found, is_pending: bool) -> Arc<Inode> {
        if is_pending && let Some(node) = self.nodes.named(path) {
            self.nodes.refer(&node);
            return node;
        }
        self.nodes.remember(path, found, true)
    }
}
