//! A task's own folder on the node's disk: inputs are staged into it, outputs collected from it, and it is gone when
//! the task has ended. Names from outside never lead out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use eyas_store::{Glob, GlobError, ObjectStore, StoreError, name_of, path_of};
use eyas_types::template::Expansion;
use eyas_types::{Name, ObjectId, Template, TemplatePart, shown};
use eyas_wire::executor::AssignedInput;

/// A sandbox; removed when dropped.
pub(crate) struct Sandbox {
    folder: PathBuf,
    /// Inputs, as they were staged.
    staged: BTreeMap<PathBuf, Mark>,
}

impl Sandbox {
    /// An empty folder for a task.
    pub fn create(folder: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => fs::create_dir_all(&folder)?,
            other => other?,
        }
        Ok(Sandbox { folder, staged: BTreeMap::new() })
    }

    /// The same, of one that was made ahead: some file systems take longer for a new folder than for all the rest.
    pub fn rename(mut self, folder: PathBuf) -> io::Result<Self> {
        fs::rename(&self.folder, &folder)?;
        self.folder = folder;
        Ok(self)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts an object where the task expects it. It is told from what the task writes if that `matters`.
    pub fn stage(
        &mut self,
        store: &ObjectStore,
        object: ObjectId,
        name: &Path,
        matters: bool,
    ) -> Result<(), StoreError> {
        let place = self.folder.join(name);
        if let Some(parent) = name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // If it cannot be made, staging says why.
            let _ = fs::create_dir_all(self.folder.join(parent));
        }
        store.stage(object, &place)?;
        if matters && let Ok(staged) = fs::symlink_metadata(&place) {
            self.staged.insert(name.to_path_buf(), Mark::of(&staged));
        }
        Ok(())
    }

    /// What an output's pattern names of what the task has written, in order of name.
    ///
    /// A pattern names inputs only if the task has replaced them; a folder stands for all that is in it. Links are followed.
    ///
    /// # Errors
    /// What a pattern names and cannot be delivered, and why: nothing of it is left out.
    pub fn collect(&self, pattern: &Name, is_glob: bool) -> Result<Vec<Written>, String> {
        let relative = inside(pattern)?;
        if !is_glob {
            let path = self.folder.join(&relative);
            let name = name_of(relative.file_name().unwrap_or_default());
            return match kind_of(&path, pattern)? {
                None => Ok(Vec::new()),
                Some(Kind::File) => Ok(vec![Written { path, name, is_folder: false }]),
                Some(Kind::Folder) => Err(format!("`{pattern}` is a folder: name what is in it, as in `{pattern}/**`")),
            };
        }
        let not_a_glob = |e| match e {
            GlobError::Pattern(why) => format!("`{pattern}` is not a pattern: {why}"),
            e => e.to_string(),
        };
        let glob = Glob::parse(pattern).map_err(not_a_glob)?;
        let mut written = BTreeMap::new();
        for path in glob.find(&self.folder, true).map_err(not_a_glob)? {
            self.add(path, &mut Vec::new(), &mut written)?;
        }
        let found = written.into_iter().map(|(name, is_folder)| {
            let path = self.folder.join(&name);
            Written { path, name: name_of(name), is_folder }
        });
        Ok(found.collect())
    }

    /// Adds a file, or all files of a folder, in the folders `above`. True says of an added name that it is an empty folder.
    fn add(
        &self,
        name: PathBuf,
        above: &mut Vec<(u64, u64)>,
        written: &mut BTreeMap<PathBuf, bool>,
    ) -> Result<(), String> {
        let path = self.folder.join(&name);
        if self
            .staged
            .get(&name)
            .is_some_and(|staged| fs::symlink_metadata(&path).is_ok_and(|now| *staged == Mark::of(&now)))
        {
            return Ok(());
        }
        let shown_name = name_of(name.clone());
        let cannot = |e: io::Error| format!("cannot read `{shown_name}`: {e}");
        match kind_of(&path, &shown_name)? {
            None => {}
            Some(Kind::File) => _ = written.insert(name, false),
            Some(Kind::Folder) => {
                let here = fs::metadata(&path).map_err(cannot)?;
                let here = (here.dev(), here.ino());
                if above.contains(&here) {
                    return Err(format!("`{shown_name}` leads back, by a symbolic link, to a folder that it is in"));
                }
                let entries = fs::read_dir(&path).map_err(cannot)?.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
                if entries.is_empty() {
                    written.insert(name, true);
                    return Ok(());
                }
                above.push(here);
                for entry in entries {
                    self.add(name.join(entry.file_name()), above, written)?;
                }
                above.pop();
            }
        }
        Ok(())
    }
}

/// What a task has written and one of its outputs names.
pub(crate) struct Written {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called in the folder it goes to.
    pub name: Name,
    /// It is a folder with nothing in it.
    pub is_folder: bool,
}

enum Kind {
    File,
    Folder,
}

/// What there is, behind symbolic links; `None` if there is nothing of that name.
fn kind_of(path: &Path, name: &Name) -> Result<Option<Kind>, String> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(Kind::File)),
        Ok(found) if found.is_dir() => Ok(Some(Kind::Folder)),
        Ok(_) => Err(format!(
            "`{name}` is neither a file nor a folder, and cannot be delivered: remove it, or narrow the output's pattern"
        )),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            match fs::read_link(path) {
                Ok(target) => {
                    let target = name_of(target);
                    Err(format!("`{name}` is a symbolic link to `{target}`, where there is nothing"))
                }
                Err(_) => Ok(None),
            }
        }
        Err(e) => Err(format!("cannot read `{name}`: {e}")),
    }
}

/// By what a staged input is known as long as it is the one that was staged.
#[derive(PartialEq, Eq)]
struct Mark {
    inode: (u64, u64),
    size_bytes: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(found: &fs::Metadata) -> Self {
        let modified = (found.mtime(), found.mtime_nsec());
        Mark { inode: (found.dev(), found.ino()), size_bytes: found.len(), modified }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), "cannot remove a sandbox: {e}");
        }
    }
}

/// Removes a folder, also if there are folders in it that their owner may not write to.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let result = match fs::remove_dir_all(folder) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(folder);
            fs::remove_dir_all(folder)
        }
        result => result,
    };
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Lets the owner write to all folders in a folder. What this cannot change, removing it will tell.
fn make_writable(folder: &Path) {
    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.for_each(|entry| make_writable(&entry.path()));
}

/// An output's pattern with everything filled in, and whether it is a glob.
pub(crate) fn pattern_of(template: &Template, with: &Expansion<'_>) -> (Name, bool) {
    if !template.is_glob() {
        return (template.expand(with), false);
    }
    let mut pattern = Name::default();
    for piece in &template.0 {
        match piece {
            TemplatePart::Literal(text) => pattern.push(text),
            value => pattern.push(Glob::escape(&Template(vec![value.clone()]).expand(with))),
        }
    }
    (pattern, true)
}

/// `name` as a path that stays inside the sandbox.
pub(crate) fn inside(name: &[u8]) -> Result<PathBuf, String> {
    let mut path = PathBuf::new();
    for component in path_of(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(format!("`{}` leads out of the sandbox: use a relative name without `..`", shown(name)));
            }
        }
    }
    if path.as_os_str().is_empty() || name.contains(&0) {
        return Err(format!("`{}` cannot be a file's name", shown(name)));
    }
    Ok(path)
}

/// Where each input goes. Inputs of the same name get folders of their own: the third input `x` goes to `input-3/x`.
pub(crate) fn places(inputs: &[AssignedInput]) -> Result<Vec<PathBuf>, String> {
    let mut taken = BTreeSet::new();
    let mut places = Vec::with_capacity(inputs.len());
    for (number, input) in inputs.iter().enumerate() {
        let name = inside(input.name.as_deref().unwrap_or_else(|| input.object.base_name()))?;
        let place = if taken.contains(&name) { Path::new(&format!("input-{}", number + 1)).join(&name) } else { name };
        taken.insert(place.clone());
        places.push(place);
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{ObjectSpec, Version};

    fn input(source: &str) -> AssignedInput {
        let version = Version::Modified { mtime_ns: 0, size_bytes: 0 };
        let object = ObjectSpec { source: source.into(), version, executable: false };
        AssignedInput { object, name: None, holders: Vec::new() }
    }

    #[test]
    fn a_sandbox_goes_with_folders_that_nobody_may_write_to() {
        let outer = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::create(outer.path().join("spare")).unwrap().rename(outer.path().join("task")).unwrap();
        let deep = sandbox.folder().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        fs::set_permissions(&deep, Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(deep.parent().unwrap(), Permissions::from_mode(0o000)).unwrap();
        make_writable(sandbox.folder());
        assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
        drop(sandbox);
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 0);
        remove(&outer.path().join("task")).unwrap();
    }

    #[test]
    fn names_stay_inside() {
        for (name, expected) in [("a", "a"), ("./a/./b", "a/b"), ("a b\n", "a b\n"), ("ä", "ä")] {
            assert_eq!(inside(name.as_bytes()), Ok(PathBuf::from(expected)));
        }
        assert_eq!(inside(b"odd\xff"), Ok(path_of(b"odd\xff").to_owned()));
        for name in ["", ".", "..", "a/../../b", "/etc/passwd", "a\0b"] {
            assert!(inside(name.as_bytes()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_bracket_in_an_items_name_is_no_pattern() {
        let values = [eyas_types::Value { text: "a[1]".into(), input: None }];
        let with = Expansion { values: &values, staged: &[], template_inputs: 0, number: 1, slot: 1 };
        let pattern = |text: &str| pattern_of(&Template::parse(text), &with);
        assert_eq!(pattern("{}.out"), ("a[1].out".into(), false));
        assert_eq!(pattern("{}*.out"), ("a[[]1[]]*.out".into(), true));
    }

    #[test]
    fn inputs_of_one_name_do_not_hide_each_other() {
        let inputs = [input("file:///a/x.fits"), input("file:///b/x.fits"), input("s3://c/y.fits?v=1")];
        let expected: Vec<PathBuf> = ["x.fits", "input-2/x.fits", "y.fits"].iter().map(PathBuf::from).collect();
        assert_eq!(places(&inputs), Ok(expected));
        assert!(places(&[input("http://host/..")]).is_err());
    }

    #[test]
    fn outputs_are_collected_by_name_and_by_glob_and_the_folder_goes() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("[1] *");
        let sandbox = Sandbox::create(folder.clone()).unwrap();
        fs::create_dir(folder.join("deep")).unwrap();
        for name in ["b.out", "a.out", "deep/c.out", "x.log"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let names = |pattern: &str| -> Vec<String> {
            let written = sandbox.collect(&pattern.into(), pattern.contains('*')).unwrap();
            written.into_iter().map(|written| written.name.to_string()).collect()
        };
        assert_eq!(names("*.out"), ["a.out", "b.out"]);
        assert_eq!(names("**/*.out"), ["a.out", "b.out", "deep/c.out"]);
        assert_eq!(names("x.log"), ["x.log"]);
        assert_eq!(names("missing"), Vec::<String>::new());
        assert!(sandbox.collect(&"../x".into(), false).is_err());
        drop(sandbox);
        assert!(!folder.exists());
    }

    #[test]
    fn nothing_that_a_pattern_names_is_left_out() {
        use std::os::unix::fs::symlink;
        let outer = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::create(outer.path().join("task")).unwrap();
        let at = |name: &[u8]| sandbox.folder().join(path_of(name));
        let collect = |pattern: &str| -> Result<Vec<(Name, bool)>, String> {
            let written = sandbox.collect(&pattern.into(), Template::parse(pattern).is_glob())?;
            Ok(written.into_iter().map(|written| (written.name, written.is_folder)).collect())
        };
        let file = |name: &[u8]| (Name::from(name), false);
        fs::write(at(b"odd\xff"), "").unwrap();
        fs::create_dir_all(at(b"d/deep")).unwrap();
        fs::create_dir(at(b"d/empty")).unwrap();
        fs::write(at(b"d/deep/x"), "").unwrap();
        symlink("d/deep/x", at(b"link")).unwrap();
        symlink("deep", at(b"d/also")).unwrap();
        let all =
            [file(b"d/also/x"), file(b"d/deep/x"), (Name::from("d/empty"), true), file(b"link"), file(b"odd\xff")];
        assert_eq!(collect("*").unwrap(), all);
        assert_eq!(collect("**").unwrap(), all);
        assert_eq!(collect("link").unwrap(), [file(b"link")]);
        assert!(collect("d").unwrap_err().contains("`d/**`"));
        symlink("nowhere\x1b", at(b"gone")).unwrap();
        for pattern in ["gone", "g*"] {
            let why = "`gone` is a symbolic link to `nowhere\\x1b`, where there is nothing";
            assert_eq!(collect(pattern).unwrap_err(), why);
        }
        fs::remove_file(at(b"gone")).unwrap();
        symlink("..", at(b"d/up")).unwrap();
        assert!(collect("d*").unwrap_err().contains("`d/up/d` leads back"));
        drop(std::os::unix::net::UnixListener::bind(at(b"socket")).unwrap());
        assert!(collect("s*").unwrap_err().contains("`socket` is neither"));
    }

    #[test]
    fn inputs_are_named_by_patterns_only_if_the_task_has_replaced_them() {
        let outer = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(outer.path().join("store")).unwrap();
        let object = ObjectId([1; 16]);
        let mut into = store.begin(object, 4, false).unwrap();
        into.write(b"data").unwrap();
        into.commit().unwrap();
        let mut sandbox = Sandbox::create(outer.path().join("task")).unwrap();
        for name in ["kept", "replaced", "folder/kept"] {
            sandbox.stage(&store, object, Path::new(name), true).unwrap();
        }
        fs::remove_file(sandbox.folder().join("replaced")).unwrap();
        fs::write(sandbox.folder().join("replaced"), "mine").unwrap();
        let written = sandbox.collect(&"*".into(), true).unwrap();
        assert_eq!(written.iter().map(|written| written.name.to_string()).collect::<Vec<_>>(), ["replaced"]);
        assert_eq!(sandbox.collect(&"kept".into(), false).unwrap().len(), 1);
    }
}
