//! The file system's answers to the kernel: metadata at once, data and changes of folders when the
//! disk is done.
//!
//! Operations that are missing here are handled by the kernel: locks, holes (it reports none),
//! copies (by reading and writing). After the first refusal it knows that there are no extended
//! attributes, unless layouts are told, and that nothing needs flushing, since every write has been
//! answered.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags};

use crate::answers::{Answers, now_ns};
use crate::layouts::{self, TellableLayout};
use crate::model::{self, Direction};
use crate::state::SharedDisk;
use crate::tree::{Change, Entry, Tree};

/// Time for which the kernel trusts metadata, as NFS does by default.
const REMEMBERED: Duration = Duration::from_secs(3);
/// Largest write request of the kernel.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Read-ahead and write-back requests that the kernel has under way at a time.
const MAX_BACKGROUND: u16 = 64;

/// A folder's files on a shared disk.
pub struct SlowFiles {
    tree: Tree,
    disk: SharedDisk,
    layout: Option<TellableLayout>,
    answers: Answers,
    latency_ns: u64,
    opened: FopenFlags,
    files: Mutex<BTreeMap<u64, Arc<File>>>,
    folders: Mutex<BTreeMap<u64, Vec<Entry>>>,
    handles: AtomicU64,
}

impl SlowFiles {
    pub fn new(
        source: &Path,
        disk: SharedDisk,
        latency_us: u64,
        uncached: bool,
        layout: Option<TellableLayout>,
    ) -> io::Result<Self> {
        Ok(Self {
            layout,
            tree: Tree::new(source)?,
            disk,
            answers: Answers::new(),
            latency_ns: latency_us * 1000,
            opened: if uncached {
                FopenFlags::FOPEN_DIRECT_IO
            } else {
                FopenFlags::FOPEN_KEEP_CACHE
            },
            files: Mutex::default(),
            folders: Mutex::default(),
            handles: AtomicU64::new(0),
        })
    }

    /// Gives an answer when the disk is done and the answer has travelled back.
    fn after(
        &self,
        request: model::Request,
        answer: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let now_ns = now_ns();
        let done_ns = if request.bytes == 0 { now_ns } else { self.disk.serve(now_ns, request)? };
        self.answers.at(done_ns + self.latency_ns, answer);
        Ok(())
    }

    /// Answers a change of a folder when the disk has done it.
    fn after_change(&self, answer: impl FnOnce() + Send + 'static) {
        // If the answer is dropped, the library reports an I/O error, which is correct.
        if let Ok(done_ns) = self.disk.change(now_ns()) {
            self.answers.at(done_ns + self.latency_ns, answer);
        }
    }

    fn remember(&self, file: File) -> FileHandle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        self.files.lock().expect("nobody panics with it").insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let files = self.files.lock().expect("nobody panics with it");
        files.get(&handle.0).cloned().ok_or_else(|| rustix::io::Errno::BADF.into())
    }
}

/// Reads until the end of the file or of the request.
fn read(file: &File, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; bytes];
    let mut length = 0;
    while length < bytes {
        match file.read_at(&mut content[length..], offset + length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    content.truncate(length);
    Ok(content)
}

fn errno(error: impl Into<io::Error>) -> Errno {
    Errno::from(error.into())
}

impl Filesystem for SlowFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        // Older kernels lack some of them: they are slower, or cannot map uncached files.
        let _ = config.add_capabilities(wanted & config.capabilities());
        config.set_max_write(MAX_WRITE_BYTES).expect("the library allows more");
        config.set_max_background(MAX_BACKGROUND).expect("it is not zero");
        Ok(())
    }

    fn lookup(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.tree.look_up(folder, name), reply);
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.tree.forget(number, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.tree.attributes(number), reply);
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
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        attributes(
            self.tree.change(number, &Change { mode, owner, group, size, accessed, modified }),
            reply,
        );
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.tree.target(number) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let done = self.tree.make_node(asks, folder, name, mode, device);
        self.after_change(move || entry(done, reply));
    }

    fn mkdir(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let done = self.tree.make_folder(asks, folder, name, mode);
        self.after_change(move || entry(done, reply));
    }

    fn symlink(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let done = self.tree.make_symlink(asks, folder, name, target);
        self.after_change(move || entry(done, reply));
    }

    fn link(&self, _: &Request, number: INodeNo, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = self.tree.make_link(number, folder, name);
        self.after_change(move || entry(done, reply));
    }

    fn unlink(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.tree.remove(folder, name, AtFlags::empty());
        self.after_change(move || empty(done, reply));
    }

    fn rmdir(&self, _: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.tree.remove(folder, name, AtFlags::REMOVEDIR);
        self.after_change(move || empty(done, reply));
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
        let done = self.tree.rename((folder, name), (new_folder, new_name), flags.bits());
        self.after_change(move || empty(done, reply));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.tree.open(number, flags.0) {
            Ok(file) => reply.opened(self.remember(file), self.opened),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let opened = self.opened;
        match self.tree.create(asks, folder, name, mode, flags) {
            Ok((made, file)) => {
                let handle = self.remember(file);
                self.after_change(move || {
                    reply.created(&REMEMBERED, &made, Generation(0), handle, opened);
                });
            }
            Err(error) => reply.error(errno(error)),
        }
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
        self.files.lock().expect("nobody panics with it").remove(&handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The kernel asks for whole pages; after the end of the file nothing is read from the disk.
        let found = self.file(handle).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = match found {
            Ok(found) => found,
            Err(error) => return reply.error(errno(error)),
        };
        let there = u64::from(bytes).min(length.saturating_sub(offset));
        let request =
            model::Request { direction: Direction::Read, file: number.0, offset, bytes: there };
        let answer = move || match read(&file, offset, bytes as usize) {
            Ok(content) => reply.data(&content),
            Err(error) => reply.error(errno(error)),
        };
        // If an answer is dropped, the library reports an I/O error, which is correct.
        let _ = self.after(request, answer);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        content: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(errno(error)),
        };
        let bytes = content.len() as u64;
        let content = content.to_vec();
        let answer = move || match file.write_all_at(&content, offset) {
            Ok(()) => reply.written(content.len() as u32),
            Err(error) => reply.error(errno(error)),
        };
        let _ = self.after(
            model::Request { direction: Direction::Write, file: number.0, offset, bytes },
            answer,
        );
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
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let done = self
            .file(handle)
            .and_then(|file| Ok(rustix::fs::fallocate(&*file, mode, offset, length)?));
        empty(done, reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree.entries(number) {
            Ok(entries) => {
                let handle = self.handles.fetch_add(1, Ordering::Relaxed);
                self.folders.lock().expect("nobody panics with it").insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
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
        let folders = self.folders.lock().expect("nobody panics with it");
        let entries = folders.get(&handle.0).map(Vec::as_slice).unwrap_or_default();
        for (place, entry) in entries.iter().enumerate().skip(offset as usize) {
            if reply.add(entry.number, place as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.folders.lock().expect("nobody panics with it").remove(&handle.0);
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let Some(layout) = self.layout else { return reply.error(Errno::ENOSYS) };
        match layout.attribute().filter(|_| name == layouts::ATTRIBUTE) {
            Some(value) if room == 0 => reply.size(value.len() as u32),
            Some(value) if value.len() > room as usize => reply.error(Errno::ERANGE),
            Some(value) => reply.data(&value),
            None => reply.error(Errno::NO_XATTR),
        }
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        request: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match self.layout.and_then(|layout| layout.answer(request)) {
            Some(answer) => reply.ioctl(0, &answer),
            None => reply.error(Errno::ENOTTY),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.tree.room() {
            Ok(room) => reply.statfs(
                room.f_blocks,
                room.f_bfree,
                room.f_bavail,
                room.f_files,
                room.f_ffree,
                room.f_bsize as u32,
                room.f_namemax as u32,
                room.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn entry(found: rustix::io::Result<fuser::FileAttr>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&REMEMBERED, &found, Generation(0)),
        Err(error) => reply.error(errno(error)),
    }
}

fn attributes(found: rustix::io::Result<fuser::FileAttr>, reply: ReplyAttr) {
    match found {
        Ok(found) => reply.attr(&REMEMBERED, &found),
        Err(error) => reply.error(errno(error)),
    }
}

fn empty(done: Result<(), impl Into<io::Error>>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}
