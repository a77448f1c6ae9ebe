//! Answers to the kernel's requests: each is that of the same call on the underlying entry.
//!
//! The kernel carries out by itself what is missing here: locks, which hold within the mount, and
//! copies within it, which it reads and writes. Each thread of the session takes a request and
//! answers it, so a read that waits for its turn holds up no other while there are threads.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, XattrFlags,
};

use crate::attributes::{MetadataChange, attributes};
use crate::extended::{self, ExtendedAnswer};
use crate::file::{self, PassedFile};
use crate::folder::PassedFolder;
use crate::handles::PassedHandles;
use crate::nodes::{PassedNode, PassedNodes};
use crate::version::FileVersion;

/// How long the kernel trusts what it was told.
#[derive(Clone, Copy)]
pub(crate) struct TrustTerms {
    names: Duration,
    attributes: Duration,
    /// Whether it also trusts that a name does not exist, and the content of folders.
    folders: bool,
}

impl TrustTerms {
    /// For files that change: each use of a path asks again, as other nodes may have replaced the
    /// file, and the answer has the present attributes. The attributes of an open file are trusted
    /// for a shorter time than on NFS (3 s), so that the two together trust them little longer than
    /// NFS alone.
    pub const CHANGING: TrustTerms =
        TrustTerms { names: Duration::ZERO, attributes: Duration::from_secs(1), folders: false };
    /// For files that do not change while they are mounted.
    pub const STATIC: TrustTerms = TrustTerms {
        names: Duration::from_hours(24),
        attributes: Duration::from_hours(24),
        folders: true,
    };
}

/// Largest request of the kernel to read or write.
const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// Mode bits by which a program gets the rights of its file's owner or group.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

/// The content of a folder, for the kernel.
pub(crate) struct PassthroughFiles {
    nodes: PassedNodes,
    files: PassedHandles<PassedFile>,
    folders: PassedHandles<PassedFolder>,
    trust: TrustTerms,
    /// The way to tell the kernel that its attributes are outdated, known once it is mounted.
    notifier: Arc<OnceLock<Notifier>>,
    /// Maximum number of requests in the background.
    max_background: u16,
}

impl PassthroughFiles {
    pub fn new(
        nodes: PassedNodes,
        trust: TrustTerms,
        notifier: Arc<OnceLock<Notifier>>,
        max_background: u16,
    ) -> Self {
        PassthroughFiles {
            nodes,
            files: PassedHandles::new(),
            folders: PassedHandles::new(),
            trust,
            notifier,
            max_background,
        }
    }

    fn look_up(&self, folder: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let (node, stat) = self.nodes.look_up(&self.nodes.get(folder)?, name)?;
        Ok(self.told(&node, &stat))
    }

    /// The answer that a name does not exist, which the kernel may keep.
    fn missing(&self, folder: INodeNo) -> io::Result<FileAttr> {
        // Of this entry, the kernel looks at the number alone.
        Ok(attributes(INodeNo(0), &self.nodes.get(folder)?.stat()?))
    }

    /// The attributes of an entry, which the kernel is told.
    fn told(&self, node: &PassedNode, stat: &Stat) -> FileAttr {
        self.nodes.tell(node.number, FileVersion::from(stat));
        attributes(node.number, stat)
    }

    /// Opens a file by its name, so that a network file system asks its server. If the name no
    /// longer leads to the file, the file itself is opened; if its server has removed it, that
    /// fails with `ESTALE`, and the kernel looks the name up again.
    fn open_file(&self, node: &PassedNode, flags: OFlags) -> io::Result<(PassedFile, Stat)> {
        if let Some((folder, name)) = self.nodes.place(node.number)
            && let Ok(folder) = self.nodes.get(folder)
            && let Ok(file) = PassedFile::open_found(&folder.path_of(&name), flags)
        {
            let (found, wanted) = (fs::fstat(&file)?, node.stat()?);
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) {
                return Ok((file, found));
            }
        }
        let file = PassedFile::open(&node.path(), flags)?;
        let stat = fs::fstat(&file)?;
        Ok((file, stat))
    }

    /// How the kernel treats an open file. Its cache is kept if the file is the same as when it was
    /// opened before.
    fn opened(&self, node: &PassedNode, file: &PassedFile, stat: &Stat) -> FopenFlags {
        let (is_told, is_cached) = self.nodes.open_version(node.number, FileVersion::from(stat));
        if !is_told && let Some(notifier) = self.notifier.get() {
            // Attributes only. The kernel may have forgotten the entry; then it has none.
            let _ = notifier.inval_inode(node.number, -1, 0);
        }
        let mut flags = FopenFlags::empty();
        if file.is_direct() {
            flags |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        } else if is_cached {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if !file.may_write() {
            flags |= FopenFlags::FOPEN_NOFLUSH;
        }
        flags
    }

    fn create_file(
        &self,
        folder: INodeNo,
        name: &OsStr,
        mode: Mode,
        flags: i32,
    ) -> io::Result<(FileAttr, FileHandle, FopenFlags)> {
        let folder = self.nodes.get(folder)?;
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let file = PassedFile::create(&folder.path_of(name), flags, mode)?;
        let (node, stat) = self.nodes.remember(file.entry()?, &folder, name)?;
        let attributes = self.told(&node, &stat);
        let opened = self.opened(&node, &file, &stat);
        Ok((attributes, self.files.open(file, node), opened))
    }

    /// The mode of a new entry: the default access control list of the folder, or else the
    /// program's mask, takes rights away.
    fn new_mode(&self, folder: INodeNo, mode: u32, umask: u32) -> io::Result<Mode> {
        let folder = self.nodes.get(folder)?;
        let is_masked = !extended::has_default_acl(&folder.path());
        Ok(Mode::from_raw_mode(if is_masked { mode & !umask } else { mode }))
    }

    fn change(
        &self,
        number: INodeNo,
        change: &MetadataChange,
        size: Option<u64>,
        handle: Option<FileHandle>,
    ) -> io::Result<FileAttr> {
        let node = self.nodes.get(number)?;
        if let Some(bytes) = size {
            match handle.and_then(|handle| self.files.get(handle).ok()) {
                Some(file) => file.set_size(bytes)?,
                None => file::set_size(&node, bytes)?,
            }
        }
        change.make(&node)?;
        Ok(self.told(&node, &node.stat()?))
    }

    fn write_to(
        &self,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        content: &[u8],
        flags: WriteFlags,
    ) -> io::Result<u32> {
        let file = self.files.get(handle)?;
        let from_cache = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let written = file.write(offset, content, from_cache)?;
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            take_rights(&self.nodes.get(number)?)?;
        }
        Ok(u32::try_from(written).expect("as much as the kernel has sent"))
    }

    fn seek(&self, handle: FileHandle, offset: i64, whence: i32) -> io::Result<i64> {
        let file = self.files.get(handle)?;
        let offset = u64::try_from(offset).map_err(|_| rustix::io::Errno::NXIO)?;
        let to = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(rustix::io::Errno::INVAL.into()),
        };
        Ok(fs::seek(&*file, to)?.cast_signed())
    }

    fn entry(&self, found: io::Result<FileAttr>, reply: ReplyEntry) {
        match found {
            Ok(found) => {
                let TrustTerms { names, attributes, .. } = &self.trust;
                reply.entry_with_ttls(attributes, names, &found, Generation(0));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn attributes(&self, found: Result<FileAttr, impl Into<io::Error>>, reply: ReplyAttr) {
        match found {
            Ok(found) => reply.attr(&self.trust.attributes, &found),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn attribute_path(&self, number: INodeNo) -> io::Result<PathBuf> {
        Ok(self.nodes.get(number)?.path())
    }
}

/// Takes the rights of the owner and group from a program that another one has changed.
fn take_rights(node: &PassedNode) -> rustix::io::Result<()> {
    let mode = node.stat()?.st_mode;
    let mut taken = SET_USER;
    if mode & GROUP_EXECUTES != 0 {
        taken |= SET_GROUP;
    }
    if mode & taken == 0 {
        return Ok(());
    }
    fs::chmod(node.path(), Mode::from_raw_mode(mode & 0o7777 & !taken))
}

fn errno(error: impl Into<io::Error>) -> Errno {
    Errno::from(error.into())
}

impl Filesystem for PassthroughFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without `FUSE_ATOMIC_O_TRUNC`: with it, the kernel truncates a program that is running
        // before it finds that the program may not be opened for writing (`ETXTBSY`).
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        // An older kernel lacks some of them.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let invalid = |_| io::ErrorKind::InvalidInput;
        config.set_max_write(MAX_REQUEST_BYTES).map_err(invalid)?;
        config.set_max_background(self.max_background).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(folder, name) {
            Err(error) if self.trust.folders && error.kind() == io::ErrorKind::NotFound => {
                self.entry(self.missing(folder), reply);
            }
            found => self.entry(found, reply),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.nodes.forget(number, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.nodes.get(number).and_then(|node| Ok(self.told(&node, &node.stat()?)));
        self.attributes(found, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        owner: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = MetadataChange { mode, owner, group, accessed, modified };
        self.attributes(self.change(number, &change, size, handle), reply);
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.nodes.get(number).and_then(|node| fs::readlinkat(&node, "", Vec::new()));
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            let kind = FileType::from_raw_mode(mode);
            let mode = self.new_mode(folder, mode, umask)?;
            fs::mknodat(&self.nodes.get(folder)?, name, kind, mode, device.into())?;
            self.look_up(folder, name)
        };
        self.entry(make(), reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            let mode = self.new_mode(folder, mode, umask)?;
            fs::mkdirat(&self.nodes.get(folder)?, name, mode)?;
            self.look_up(folder, name)
        };
        self.entry(make(), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let make = || {
            fs::symlinkat(target, &self.nodes.get(folder)?, name)?;
            self.look_up(folder, name)
        };
        self.entry(make(), reply);
    }

    fn link(&self, _: &Request, number: INodeNo, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let make = || {
            let (from, to) = (self.nodes.get(number)?.path(), self.nodes.get(folder)?);
            fs::linkat(CWD, &from, &to, name, AtFlags::SYMLINK_FOLLOW)?;
            self.look_up(folder, name)
        };
        self.entry(make(), reply);
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let unlink = || {
            let folder = self.nodes.get(folder)?;
            self.nodes.let_go(&folder, name);
            fs::unlinkat(&folder, name, AtFlags::empty())
        };
        empty(unlink(), reply);
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let folder = self.nodes.get(folder);
        empty(folder.and_then(|folder| fs::unlinkat(&folder, name, AtFlags::REMOVEDIR)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        new_folder: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.nodes.get(folder)?, self.nodes.get(new_folder)?);
            let flags = fs::RenameFlags::from_bits_retain(flags.bits());
            self.nodes.let_go(&to, new_name);
            fs::renameat_with(&from, name, &to, new_name, flags)?;
            self.nodes.moved(&to, new_name);
            if flags.contains(fs::RenameFlags::EXCHANGE) {
                self.nodes.moved(&from, name);
            }
            Ok::<_, rustix::io::Errno>(())
        };
        empty(rename(), reply);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || {
            let node = self.nodes.get(number)?;
            let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
            let (file, stat) = self.open_file(&node, flags)?;
            let opened = self.opened(&node, &file, &stat);
            Ok::<_, io::Error>((self.files.open(file, node), opened))
        };
        match open() {
            Ok((handle, opened)) => reply.opened(handle, opened),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = self.new_mode(folder, mode, umask);
        match mode.and_then(|mode| self.create_file(folder, name, mode, flags)) {
            Ok((attributes, handle, opened)) => {
                reply.created(&self.trust.names, &attributes, Generation(0), handle, opened);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.files.get(handle) {
            Ok(file) => file.read(offset, bytes as usize, |content| match content {
                Ok(content) => reply.data(content),
                Err(error) => reply.error(errno(error)),
            }),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        content: &[u8],
        how: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_to(number, handle, offset, content, how) {
            Ok(written) => reply.written(written),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let file = self.files.get(handle).map_err(io::Error::from);
        empty(file.and_then(|file| file.flush()), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        drop(self.files.close(handle));
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        is_content_enough: bool,
        reply: ReplyEmpty,
    ) {
        let file = self.files.get(handle).map_err(io::Error::from);
        empty(file.and_then(|file| file.sync(is_content_enough)), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let file = self.files.get(handle);
        empty(file.and_then(|file| fs::fallocate(&*file, mode, offset, length)), reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.seek(handle, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let open = || {
            let node = self.nodes.get(number)?;
            Ok::<_, rustix::io::Errno>(self.folders.open(PassedFolder::open(&node)?, node))
        };
        match open() {
            Ok(handle) if self.trust.folders => {
                let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                reply.opened(handle, flags);
            }
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.folders.get(handle).and_then(|folder| folder.read(offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        drop(self.folders.close(handle));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.folders.get(handle).and_then(|folder| folder.sync()), reply);
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        match self.nodes.get(number).and_then(|node| fs::fstatvfs(node.as_fd())) {
            Ok(space) => reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                u32::try_from(space.f_bsize).unwrap_or(u32::MAX),
                u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
                u32::try_from(space.f_frsize).unwrap_or(u32::MAX),
            ),
            Err(error) => reply.error(errno(error)),
        }
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
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let set = |path: PathBuf| Ok(fs::setxattr(&path, name, value, flags)?);
        empty(self.attribute_path(number).and_then(set), reply);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let value = |path: PathBuf| Ok(extended::value(&path, name, room)?);
        attribute_value(self.attribute_path(number).and_then(value), reply);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        let names = |path: PathBuf| Ok(extended::names(&path, room)?);
        attribute_value(self.attribute_path(number).and_then(names), reply);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |path: PathBuf| Ok(fs::removexattr(&path, name)?);
        empty(self.attribute_path(number).and_then(remove), reply);
    }
}

fn attribute_value(found: io::Result<ExtendedAnswer>, reply: ReplyXattr) {
    match found {
        Ok(ExtendedAnswer::Size(bytes)) => reply.size(bytes),
        Ok(ExtendedAnswer::Data(data)) => reply.data(&data),
        Err(error) => reply.error(errno(error)),
    }
}

fn empty(done: Result<(), impl Into<io::Error>>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}
