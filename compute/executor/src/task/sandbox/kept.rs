//! Sandboxes that are kept for later tasks. Making and removing a folder, and linking the same
//! inputs into it again, takes longer than many tasks. So the sandbox of a task that has ended is
//! cleaned and kept: the inputs of the task's template stay, everything else is removed. The next
//! task with the same template inputs gets it; a task without template inputs gets one that is
//! empty.
//!
//! A task can change anything in its sandbox, so a sandbox is verified before the next task gets
//! it: the folder is the one that was made, with its mode, owner and attributes; each template
//! input is still at its name, and its inode is the one that was linked. The seal of the object was
//! verified when the task ended
//! ([`ObjectStore::verify_seal`](eyas_store::ObjectStore::verify_seal)), and the store still has
//! the same copy. A sandbox of which anything else is true is removed. A sandbox is kept only if no
//! process of its task is left.
//!
//! Links of kept sandboxes take space on the disk once their object has left the store, so the
//! sandbox goes with the first of its objects that is evicted.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_store::{ObjectStore, StagedBy};
use eyas_types::{Name, ObjectId};
use eyas_wire::executor::AssignedInput;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, unlinkat};

use super::{Sandbox, StagedMark, remove};

/// Sandboxes that are kept at the same time.
const MAX_KEPT_SANDBOXES: usize = 64;
/// Links in all kept sandboxes together.
const MAX_KEPT_LINKS: usize = 1 << 17;
/// Bytes of folder entries that are read at a time.
const LISTING_BYTES: usize = 32 << 10;

/// The inputs of a template, as a sandbox has them.
pub(crate) struct SharedInputs {
    objects: Vec<ObjectId>,
    /// Names that the template gives to its inputs.
    names: Vec<Option<Name>>,
    /// Numbers of the store's copies that were linked.
    copies: Vec<u64>,
    paths: Vec<PathBuf>,
    marks: HashMap<PathBuf, StagedMark>,
    /// Folders in the sandbox that contain inputs.
    folders: HashSet<PathBuf>,
}

impl SharedInputs {
    /// Whether these are the inputs of a task.
    fn are(&self, inputs: &[AssignedInput], objects: &[ObjectId]) -> bool {
        self.objects == objects
            && self.names.iter().zip(inputs).all(|(name, input)| *name == input.name)
    }

    /// The names in the sandbox, in the order of the inputs.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The input with that name in the sandbox.
    pub(super) fn mark_of(&self, name: &Path) -> Option<&StagedMark> {
        self.marks.get(name)
    }
}

/// Properties of a sandbox's folder by which a folder that was replaced or changed is noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderMark {
    inode: (u64, u64),
    mode: u32,
    owner: (u32, u32),
    /// Bytes of the names of its extended attributes.
    attribute_bytes: usize,
    /// When the sandbox was left by a task; the time of making it is not compared.
    left: Option<(i64, i64)>,
}

impl FolderMark {
    pub fn of(folder: &Path) -> io::Result<Self> {
        FolderMark::of_open(&open(CWD, folder.as_os_str())?)
    }

    fn of_open(folder: &impl AsFd) -> io::Result<Self> {
        let Stat { st_dev, st_ino, st_mode, st_uid, st_gid, .. } = fstat(folder)?;
        // Some file systems have none.
        let attribute_bytes = rustix::fs::flistxattr(folder, &mut [0u8; 0]).unwrap_or_default();
        let owner = (st_uid, st_gid);
        Ok(FolderMark {
            inode: (st_dev, st_ino),
            mode: st_mode,
            owner,
            attribute_bytes,
            left: None,
        })
    }

    /// Whether another folder has the same mode, owner and attributes.
    fn is_like(&self, other: &FolderMark) -> bool {
        (self.mode, self.owner, self.attribute_bytes)
            == (other.mode, other.owner, other.attribute_bytes)
    }
}

fn open(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn changed(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

impl Sandbox {
    /// The template inputs that were in it before its task.
    pub fn shared(&self) -> Option<&SharedInputs> {
        self.shared.as_ref()
    }

    /// Stages the inputs of a template, which may stay for later tasks, at `paths`. `copies` are
    /// the numbers of the store's copies before. Does nothing to an input that cannot be linked:
    /// the caller stages it again and learns why.
    pub fn share(
        &mut self,
        store: &ObjectStore,
        inputs: &[AssignedInput],
        objects: &[ObjectId],
        paths: &[PathBuf],
    ) -> usize {
        let copies = store.copies(objects);
        for (place, (object, path)) in objects.iter().zip(paths).enumerate() {
            match self.stage(store, *object, path, true) {
                Ok(StagedBy::HardLink) => {}
                // A copy could be changed without notice.
                Ok(_) => return place + 1,
                Err(_) => return place,
            }
        }
        let marks = std::mem::take(&mut self.staged);
        // Objects that were not verified have no number before.
        if let Some(copies) = copies.filter(|_| !objects.is_empty() && marks.len() == paths.len()) {
            let folders = paths.iter().flat_map(|path| path.ancestors().skip(1));
            self.shared = Some(SharedInputs {
                objects: objects.to_vec(),
                names: inputs.iter().map(|input| input.name.clone()).collect(),
                copies,
                paths: paths.to_vec(),
                folders: folders.map(Path::to_path_buf).collect(),
                marks,
            });
        } else {
            self.staged = marks;
        }
        objects.len()
    }

    /// Removes everything except the template inputs. Whether a later task may use the sandbox.
    fn clean(&mut self) -> io::Result<bool> {
        let folder = open(CWD, self.folder.as_os_str())?;
        if FolderMark::of_open(&folder)? != (FolderMark { left: None, ..self.mark }) {
            return Ok(false);
        }
        self.staged.clear();
        let mut found = 0;
        let expected = self.shared.as_ref().map_or(0, |shared| shared.marks.len());
        if !self.clean_folder(folder.as_fd(), Path::new(""), &mut found)? || found != expected {
            return Ok(false);
        }
        self.mark.left = Some(changed(&fstat(&folder)?));
        Ok(true)
    }

    /// The same for one folder in it. Counts the inputs that are where they were staged. Whether
    /// the folder has its attributes.
    fn clean_folder(
        &self,
        folder: BorrowedFd<'_>,
        relative: &Path,
        found: &mut usize,
    ) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(folder, &mut buffer);
        let (mut others, mut folders) = (Vec::new(), Vec::new());
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let in_folder = !relative.as_os_str().is_empty();
            let path =
                if in_folder { Cow::from(relative.join(name)) } else { Path::new(name).into() };
            let shared = self.shared.as_ref();
            if shared.is_some_and(|shared| {
                shared.mark_of(&path).is_some_and(|mark| mark.inode.1 == entry.ino())
            }) {
                *found += 1;
            } else if entry.file_type() == FileType::Directory
                && shared.is_some_and(|s| s.folders.contains(&*path))
            {
                folders.push(path.into_owned());
            } else {
                others.push((path.into_owned(), entry.file_type()));
            }
        }
        for (path, kind) in others {
            let name = path.file_name().unwrap_or_default();
            if kind == FileType::Directory || unlinkat(folder, name, AtFlags::empty()).is_err() {
                remove(&self.folder.join(path))?;
            }
        }
        for path in folders {
            let inner = open(folder, path.file_name().unwrap_or_default())?;
            if !FolderMark::of_open(&inner)?.is_like(&self.mark)
                || !self.clean_folder(inner.as_fd(), &path, found)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether it is as its last task has left it, and the store has the same copies of the inputs.
    fn is_as_left(&self, store: &ObjectStore) -> bool {
        let stat = rustix::fs::statat(CWD, &self.folder, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| {
            (stat.st_dev, stat.st_ino) == self.mark.inode && Some(changed(&stat)) == self.mark.left
        }) && self
            .shared
            .as_ref()
            .is_none_or(|shared| store.copies(&shared.objects).as_ref() == Some(&shared.copies))
    }
}

/// The kept sandboxes of an executor, the one that was kept last at the end.
#[derive(Default)]
pub(crate) struct KeptSandboxes(Mutex<Vec<Sandbox>>);

impl KeptSandboxes {
    /// A sandbox with exactly these template inputs, or an empty one. If there is neither, but no
    /// more sandboxes may be kept, the inputs of another one are removed.
    pub fn take(
        &self,
        inputs: &[AssignedInput],
        objects: &[ObjectId],
        store: &ObjectStore,
    ) -> Option<Sandbox> {
        let has_them = |sandbox: &Sandbox| match &sandbox.shared {
            Some(shared) => shared.are(inputs, objects),
            None => objects.is_empty(),
        };
        let mut sandbox = {
            let mut kept = self.lock();
            let full = || (kept.len() >= MAX_KEPT_SANDBOXES).then_some(0);
            let index = kept.iter().rposition(has_them);
            let index = index
                .or_else(|| kept.iter().rposition(|sandbox| sandbox.shared.is_none()))
                .or_else(full)?;
            kept.remove(index)
        };
        if !has_them(&sandbox)
            && sandbox.shared.take().is_some()
            && !sandbox.clean().is_ok_and(|is_clean| is_clean)
        {
            return None;
        }
        sandbox.is_as_left(store).then_some(sandbox)
    }

    /// Cleans the sandbox of a task that has ended, and keeps it if possible.
    pub fn keep(&self, mut sandbox: Sandbox) {
        if !sandbox.clean().is_ok_and(|is_clean| is_clean) {
            return;
        }
        // Removed after the lock is released.
        let mut surplus = Vec::new();
        let mut kept = self.lock();
        kept.push(sandbox);
        let links = |kept: &[Sandbox]| -> usize {
            kept.iter()
                .filter_map(|sandbox| sandbox.shared.as_ref())
                .map(|shared| shared.paths.len())
                .sum()
        };
        while kept.len() > MAX_KEPT_SANDBOXES || links(&kept) > MAX_KEPT_LINKS {
            surplus.push(kept.remove(0));
        }
        drop(kept);
    }

    /// Whether a task without template inputs would get one.
    pub fn has_empty(&self) -> bool {
        self.lock().iter().any(|sandbox| sandbox.shared.is_none())
    }

    /// The sandboxes that have an object as a template input; they are no longer kept.
    pub fn release(&self, object: ObjectId) -> Vec<Sandbox> {
        let has_it = |sandbox: &mut Sandbox| {
            sandbox.shared.as_ref().is_some_and(|shared| shared.objects.contains(&object))
        };
        self.lock().extract_if(.., has_it).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sandbox>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use eyas_types::{FileMode, ObjectSpec, Version};

    use super::*;
    use crate::task::sandbox::input_paths;

    struct Case {
        outer: tempfile::TempDir,
        store: ObjectStore,
        inputs: Vec<AssignedInput>,
        objects: Vec<ObjectId>,
        kept: KeptSandboxes,
    }

    impl Case {
        fn new() -> Self {
            let outer = tempfile::tempdir().unwrap();
            let (store, _) = ObjectStore::open(outer.path().join("store")).unwrap();
            let input = |number: u64| {
                let version = Version::Modified { mtime_ns: number as i64, size_bytes: 4 };
                let source = Name::from(format!("file:///{number}/{}", number % 3));
                AssignedInput {
                    object: ObjectSpec { source, version, mode: FileMode::READABLE },
                    part: None,
                    name: None,
                    holders: Vec::new(),
                }
            };
            let inputs: Vec<_> = (0..5).map(input).collect();
            let objects: Vec<_> = inputs.iter().map(|input| input.object.id()).collect();
            let case = Case { outer, store, inputs, objects, kept: KeptSandboxes::default() };
            case.objects.iter().for_each(|object| case.put(*object));
            case
        }

        fn put(&self, object: ObjectId) {
            self.store.put(object, b"data").unwrap();
        }

        /// A sandbox for the first `count` inputs as template inputs; whether it was kept with
        /// them.
        fn sandbox(&self, name: &str, count: usize) -> (Sandbox, bool) {
            let (inputs, objects) = (&self.inputs[..count], &self.objects[..count]);
            let taken = self.kept.take(inputs, objects, &self.store);
            let create = || Sandbox::create(self.outer.path().join(name)).unwrap();
            let mut sandbox = taken
                .map_or_else(create, |taken| taken.rename(self.outer.path().join(name)).unwrap());
            let was_kept = sandbox.shared.is_some();
            if !was_kept {
                assert_eq!(fs::read_dir(sandbox.folder()).unwrap().count(), 0, "it is empty");
                let paths = input_paths(inputs, None).unwrap();
                assert_eq!(sandbox.share(&self.store, inputs, objects, &paths), count);
            }
            for path in input_paths(inputs, None).unwrap() {
                assert_eq!(fs::read(sandbox.folder().join(path)).unwrap(), b"data");
            }
            (sandbox, was_kept)
        }
    }

    #[test]
    fn the_next_task_with_the_same_inputs_finds_them_and_nothing_else() {
        let case = Case::new();
        let (sandbox, was_kept) = case.sandbox("first", 5);
        assert!(!was_kept && sandbox.folder().join("input-4/0").exists());
        for name in ["own", "input-4/own"] {
            fs::write(sandbox.folder().join(name), "x").unwrap();
        }
        fs::create_dir_all(sandbox.folder().join("deep/er")).unwrap();
        fs::set_permissions(sandbox.folder().join("deep"), Permissions::from_mode(0o000)).unwrap();
        case.kept.keep(sandbox);
        let (sandbox, was_kept) = case.sandbox("second", 5);
        assert!(was_kept && sandbox.is_unchanged_input(Path::new("input-5/1")));
        for name in ["own", "input-4/own", "deep"] {
            assert!(!sandbox.folder().join(name).exists(), "{name}");
        }
        case.kept.keep(sandbox);
        // Another set of inputs, and none.
        for (name, count) in [("third", 3), ("fourth", 0)] {
            let (sandbox, was_kept) = case.sandbox(name, count);
            assert!(!was_kept && case.kept.lock().len() == if count > 0 { 1 } else { 2 });
            case.kept.keep(sandbox);
        }
        assert!(case.kept.has_empty() && case.sandbox("fifth", 3).1 && case.sandbox("sixth", 5).1);
        let names = ["second", "third", "fourth"].map(|name| case.outer.path().join(name).exists());
        assert_eq!(names, [false, false, true], "a kept sandbox gets the name of its task");
    }

    #[test]
    fn a_sandbox_that_is_not_as_it_was_goes() {
        let case = Case::new();
        let copied = |path: &Path| {
            fs::remove_file(path).unwrap();
            fs::write(path, "data").unwrap();
        };
        type Change<'a> = (&'a str, &'a dyn Fn(&Path));
        let changes: [Change<'_>; 9] = [
            ("removed", &|folder| fs::remove_file(folder.join("1")).unwrap()),
            ("removed in a folder", &|folder| fs::remove_file(folder.join("input-4/0")).unwrap()),
            ("renamed", &|folder| fs::rename(folder.join("1"), folder.join("x")).unwrap()),
            ("exchanged", &|folder| {
                fs::rename(folder.join("1"), folder.join("x")).unwrap();
                fs::rename(folder.join("2"), folder.join("1")).unwrap();
                fs::rename(folder.join("x"), folder.join("2")).unwrap();
            }),
            ("replaced", &|folder| copied(&folder.join("1"))),
            ("other mode", &|folder| {
                fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap()
            }),
            ("other mode of a folder", &|folder| {
                fs::set_permissions(folder.join("input-4"), Permissions::from_mode(0o777)).unwrap();
            }),
            ("other folder", &|folder| {
                fs::rename(folder, folder.with_extension("away")).unwrap();
                fs::create_dir(folder).unwrap();
            }),
            ("gone", &|folder| fs::remove_dir_all(folder).unwrap()),
        ];
        for (how, change) in changes {
            let (sandbox, was_kept) = case.sandbox("task", 5);
            assert!(!was_kept, "{how}");
            change(sandbox.folder());
            case.kept.keep(sandbox);
            assert!(
                case.kept.lock().is_empty() && !case.outer.path().join("task").exists(),
                "{how}"
            );
        }
        // A change after the task has ended.
        let (sandbox, _) = case.sandbox("task", 5);
        let folder = sandbox.folder().to_path_buf();
        case.kept.keep(sandbox);
        case.kept.lock()[0].mark.left = Some((0, 0));
        assert!(!case.sandbox("next", 5).1 && !folder.exists());
    }

    #[test]
    fn a_sandbox_goes_with_its_objects() {
        let case = Case::new();
        case.kept.keep(case.sandbox("task", 5).0);
        // The object was replaced by another copy.
        case.store.remove(case.objects[2]).unwrap();
        case.put(case.objects[2]);
        let (sandbox, was_kept) = case.sandbox("task", 5);
        assert!(!was_kept);
        case.kept.keep(sandbox);
        assert_eq!(case.kept.release(ObjectId([0; 16])).len(), 0);
        assert_eq!(case.kept.release(case.objects[4]).len(), 1);
        assert!(case.kept.lock().is_empty());
    }

    #[test]
    fn the_number_of_kept_sandboxes_is_bounded() {
        let case = Case::new();
        let create =
            |number: usize| Sandbox::create(case.outer.path().join(number.to_string())).unwrap();
        (0..=MAX_KEPT_SANDBOXES).for_each(|number| case.kept.keep(create(number)));
        assert_eq!(case.kept.lock().len(), MAX_KEPT_SANDBOXES);
        assert!(!case.outer.path().join("0").exists() && case.outer.path().join("1").exists());
        // The inputs of the oldest are removed for another set.
        let many: Vec<_> = (0..MAX_KEPT_SANDBOXES)
            .map(|number| case.sandbox(&format!("of-{number}"), 1).0)
            .collect();
        many.into_iter().for_each(|sandbox| case.kept.keep(sandbox));
        assert!(!case.sandbox("other", 2).1);
        assert_eq!(case.kept.lock().len(), MAX_KEPT_SANDBOXES - 1);
    }
}
