//! A task's own folder on the node's disk: inputs are staged into it, outputs collected from it, and it is gone when
//! the task has ended. Names from outside never lead out of it.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use eyas_store::{ObjectStore, StoreError};
use eyas_types::template::Expansion;
use eyas_types::{ObjectId, Piece, Template};
use eyas_wire::executor::AssignedInput;

/// A sandbox; removed when dropped.
pub(crate) struct Sandbox {
    folder: PathBuf,
}

impl Sandbox {
    /// An empty folder for a task.
    pub fn create(folder: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => fs::create_dir_all(&folder)?,
            other => other?,
        }
        Ok(Sandbox { folder })
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

    /// Puts an object where the task expects it.
    pub fn stage(&self, store: &ObjectStore, object: ObjectId, name: &Path) -> Result<(), StoreError> {
        let place = self.folder.join(name);
        if let Some(parent) = name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // If it cannot be made, staging says why.
            let _ = fs::create_dir_all(self.folder.join(parent));
        }
        store.stage(object, &place).map(drop)
    }

    /// The files that an output's pattern names, a glob if `is_glob`, in order of name, each with the name it has in the
    /// destination folder.
    pub fn collect(&self, pattern: &str, is_glob: bool) -> Result<Vec<(PathBuf, String)>, String> {
        let relative = inside(pattern)?;
        if !is_glob {
            let file = self.folder.join(&relative);
            let name = relative.file_name().map(|name| name.to_string_lossy().into_owned());
            return Ok(file.is_file().then(|| (file, name.unwrap_or_default())).into_iter().collect());
        }
        let prefix = glob::Pattern::escape(&self.folder.to_string_lossy());
        let paths =
            glob::glob(&format!("{prefix}/{pattern}")).map_err(|e| format!("`{pattern}` is not a glob: {e}"))?;
        let mut files = Vec::new();
        for path in paths {
            let path = path.map_err(|e| e.to_string())?;
            if path.is_file() {
                let name = path.strip_prefix(&self.folder).unwrap_or(&path).to_string_lossy().into_owned();
                files.push((path, name));
            }
        }
        files.sort();
        Ok(files)
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
pub(crate) fn pattern_of(template: &Template, with: &Expansion<'_>) -> (String, bool) {
    if !template.is_glob() {
        return (template.expand(with), false);
    }
    let expanded = template.0.iter().map(|piece| match piece {
        Piece::Literal(text) => text.clone(),
        value => glob::Pattern::escape(&Template(vec![value.clone()]).expand(with)),
    });
    (expanded.collect(), true)
}

/// `name` as a path that stays inside the sandbox.
pub(crate) fn inside(name: &str) -> Result<PathBuf, String> {
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(format!("`{name}` leads out of the sandbox: use a relative name without `..`"));
            }
        }
    }
    if path.as_os_str().is_empty() || name.contains('\0') {
        return Err(format!("`{name}` cannot be a file's name"));
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
            assert_eq!(inside(name), Ok(PathBuf::from(expected)));
        }
        for name in ["", ".", "..", "a/../../b", "/etc/passwd", "a\0b"] {
            assert!(inside(name).is_err(), "{name:?}");
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
        let names = |pattern: &str| {
            sandbox
                .collect(pattern, pattern.contains('*'))
                .unwrap()
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("*.out"), ["a.out", "b.out"]);
        assert_eq!(names("**/*.out"), ["a.out", "b.out", "deep/c.out"]);
        assert_eq!(names("x.log"), ["x.log"]);
        assert_eq!(names("missing"), Vec::<String>::new());
        assert!(sandbox.collect("../x", false).is_err());
        drop(sandbox);
        assert!(!folder.exists());
    }
}
