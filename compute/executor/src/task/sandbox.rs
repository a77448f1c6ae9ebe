//! A sandbox: a task's own folder on the node's disk. Inputs are staged into it, outputs are
//! collected from it, and it is removed when the task has ended, or emptied and [kept](kept) for a
//! later task. No name from outside leads out of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use eyas_store::{Glob, GlobError, ObjectStore, StagedBy, StoreError, name_of, path_of};
use eyas_types::template::Expansion;
use eyas_types::{Name, ObjectId, OutputSpec, Template, TemplatePart, Value};
use eyas_wire::executor::AssignedInput;
use thiserror::Error;

pub(crate) mod kept;
mod part;

use kept::{FolderMark, SharedInputs};
pub(crate) use part::PartError;

/// A sandbox; removed when dropped.
pub(crate) struct Sandbox {
    folder: PathBuf,
    /// Inputs as they were staged, by their names in the sandbox; without shared inputs.
    staged: HashMap<PathBuf, StagedMark>,
    /// Inputs that were in the sandbox before the task, or that stay after it.
    shared: Option<SharedInputs>,
    /// The folder as it was made.
    mark: FolderMark,
}

/// Why an input cannot be staged, or an output cannot be collected.
#[derive(Debug, Error)]
pub(crate) enum SandboxError {
    /// The name leads out of the sandbox.
    #[error("`{0}` leads out of the sandbox: use a relative name without `..`")]
    Outside(Name),
    /// The name is empty, or has a NUL byte.
    #[error("`{0}` cannot be a file's name")]
    NoName(Name),
    /// The output's pattern is not a glob.
    #[error("`{pattern}` is not a pattern: {reason}")]
    Pattern {
        /// The pattern.
        pattern: Name,
        /// The mistake in it.
        reason: &'static str,
    },
    /// The folder cannot be searched.
    #[error(transparent)]
    Search(GlobError),
    /// A folder is named where a file is wanted.
    #[error("`{0}` is a folder: name the files in it, as in `{0}/**`")]
    Folder(Name),
    /// A device, socket or pipe.
    #[error(
        "`{0}` is neither a file nor a folder, and cannot be delivered: remove it, or narrow the \
         output's pattern"
    )]
    Special(Name),
    /// A symbolic link whose target does not exist.
    #[error("`{name}` is a symbolic link to `{target}`, which does not exist")]
    DanglingLink {
        /// The link.
        name: Name,
        /// Target of the link.
        target: Name,
    },
    /// A symbolic link to a folder above itself.
    #[error("`{0}` leads back, by a symbolic link, to a folder that contains it")]
    Loop(Name),
    /// The system does not allow reading.
    #[error("cannot read `{name}`: {source}")]
    Unreadable {
        /// The file or folder.
        name: Name,
        /// The system's reason.
        source: io::Error,
    },
}

impl Sandbox {
    /// An empty folder for a task.
    pub fn create(folder: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => fs::create_dir_all(&folder)?,
            other => other?,
        }
        let mark = FolderMark::of(&folder)?;
        Ok(Sandbox { folder, staged: HashMap::new(), shared: None, mark })
    }

    /// A folder that the task itself has made.
    pub fn made_by_task(folder: PathBuf) -> io::Result<Self> {
        let mark = FolderMark::of(&folder)?;
        Ok(Sandbox { folder, staged: HashMap::new(), shared: None, mark })
    }

    /// Gives a sandbox that was made ahead its final name. On some file systems making a folder
    /// takes longer than all other steps of a short task.
    pub fn rename(mut self, folder: PathBuf) -> io::Result<Self> {
        fs::rename(&self.folder, &folder)?;
        self.folder = folder;
        Ok(self)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts an object at the name that the task expects. With `remember`,
    /// [`collect`](Self::collect) tells it from what the task writes.
    pub fn stage(
        &mut self,
        store: &ObjectStore,
        object: ObjectId,
        name: &Path,
        remember: bool,
    ) -> Result<StagedBy, StoreError> {
        let place = self.prepare(name);
        let staged_by = store.stage(object, &place)?;
        if remember {
            self.remember(name, &place);
        }
        Ok(staged_by)
    }

    /// Puts a private copy of an object at the name that the task expects.
    pub fn stage_copy(
        &mut self,
        store: &ObjectStore,
        object: ObjectId,
        name: &Path,
        remember: bool,
    ) -> Result<(), StoreError> {
        let place = self.prepare(name);
        store.stage_copy(object, &place)?;
        if remember {
            self.remember(name, &place);
        }
        Ok(())
    }

    /// Puts a symbolic link to a folder at the name that the task expects.
    pub fn link(&mut self, folder: &Path, name: &Path, remember: bool) -> io::Result<()> {
        let place = self.prepare(name);
        std::os::unix::fs::symlink(folder, &place)?;
        if remember {
            self.remember(name, &place);
        }
        Ok(())
    }

    /// Makes the folder of an input. If this fails, staging fails too and says why. Returns the
    /// path of the input.
    fn prepare(&self, name: &Path) -> PathBuf {
        if let Some(parent) = name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let _ = fs::create_dir_all(self.folder.join(parent));
        }
        self.folder.join(name)
    }

    /// Makes the folders of the outputs that have a name, and not a pattern: few programs make
    /// them, and with a task in place they may exist where it runs. If this fails, the program says
    /// why it cannot write.
    pub fn make_output_folders(&self, outputs: &[OutputSpec], with: &Expansion<'_>) {
        let values = values_in_outputs(with);
        let with = Expansion { values: &values, ..*with };
        for output in outputs.iter().filter(|output| !output.is_stream()) {
            if let (file, false) = pattern_of(&output.pattern, &with)
                && let Ok(relative) = inside(&file)
            {
                self.prepare(&relative);
            }
        }
    }

    fn remember(&mut self, name: &Path, place: &Path) {
        if let Ok(staged) = fs::symlink_metadata(place) {
            self.staged.insert(name.to_path_buf(), StagedMark::of(&staged));
        }
    }

    /// The files and empty folders that an output's pattern names, in order of name.
    ///
    /// A glob matches an input only if the task has replaced the input. A matched folder stands for
    /// all files in it. Symbolic links are followed.
    ///
    /// # Errors
    /// If anything that the pattern names cannot be delivered: nothing is left out silently.
    pub fn collect(
        &self,
        pattern: &Name,
        is_glob: bool,
    ) -> Result<Vec<CollectedOutput>, SandboxError> {
        let relative = inside(pattern)?;
        if !is_glob {
            let path = self.folder.join(&relative);
            let name = name_of(relative.file_name().unwrap_or_default());
            return match kind_of(&path, pattern)? {
                None => Ok(Vec::new()),
                Some(FileKind::File) => Ok(vec![CollectedOutput { path, name, is_folder: false }]),
                Some(FileKind::Folder) => Err(SandboxError::Folder(pattern.clone())),
            };
        }
        let not_a_glob = |e| match e {
            GlobError::Pattern(reason) => {
                SandboxError::Pattern { pattern: pattern.clone(), reason }
            }
            e => SandboxError::Search(e),
        };
        let glob = Glob::parse(pattern).map_err(not_a_glob)?;
        let mut outputs = BTreeMap::new();
        for path in glob.find(&self.folder, true).map_err(not_a_glob)? {
            self.add(path, &mut Vec::new(), &mut outputs)?;
        }
        let outputs = outputs.into_iter().map(|(name, is_folder)| {
            let path = self.folder.join(&name);
            CollectedOutput { path, name: name_of(name), is_folder }
        });
        Ok(outputs.collect())
    }

    /// Whether a file is an input as it was staged, or in a folder that was.
    fn is_of_input(&self, name: &Path) -> bool {
        name.ancestors().any(|above| self.is_unchanged_input(above))
    }

    fn is_unchanged_input(&self, name: &Path) -> bool {
        let shared = || self.shared.as_ref().and_then(|shared| shared.mark_of(name));
        let Some(staged) = self.staged.get(name).or_else(shared) else { return false };
        fs::symlink_metadata(self.folder.join(name))
            .is_ok_and(|now| *staged == StagedMark::of(&now))
    }

    /// Adds a file, or all files of a folder, to `outputs`: `true` marks an empty folder. `above`
    /// are the folders from the match to here.
    fn add(
        &self,
        name: PathBuf,
        above: &mut Vec<(u64, u64)>,
        outputs: &mut BTreeMap<PathBuf, bool>,
    ) -> Result<(), SandboxError> {
        if self.is_of_input(&name) {
            return Ok(());
        }
        let path = self.folder.join(&name);
        let shown_name = name_of(name.clone());
        let cannot = |source| SandboxError::Unreadable { name: shown_name.clone(), source };
        match kind_of(&path, &shown_name)? {
            None => {}
            Some(FileKind::File) => _ = outputs.insert(name, false),
            Some(FileKind::Folder) => {
                let here = fs::metadata(&path).map_err(cannot)?;
                let here = (here.dev(), here.ino());
                if above.contains(&here) {
                    return Err(SandboxError::Loop(shown_name));
                }
                let entries = fs::read_dir(&path)
                    .map_err(cannot)?
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(cannot)?;
                if entries.is_empty() {
                    outputs.insert(name, true);
                    return Ok(());
                }
                above.push(here);
                for entry in entries {
                    self.add(name.join(entry.file_name()), above, outputs)?;
                }
                above.pop();
            }
        }
        Ok(())
    }
}

/// A file or empty folder that a task has written and one of its outputs names.
pub(crate) struct CollectedOutput {
    pub path: PathBuf,
    /// Name of the file in the destination folder.
    pub name: Name,
    /// An empty folder.
    pub is_folder: bool,
}

enum FileKind {
    File,
    Folder,
}

/// The kind of a file, behind symbolic links; `None` if the name does not exist.
fn kind_of(path: &Path, name: &Name) -> Result<Option<FileKind>, SandboxError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(FileKind::File)),
        Ok(found) if found.is_dir() => Ok(Some(FileKind::Folder)),
        Ok(_) => Err(SandboxError::Special(name.clone())),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            match fs::read_link(path) {
                Ok(target) => {
                    Err(SandboxError::DanglingLink { name: name.clone(), target: name_of(target) })
                }
                Err(_) => Ok(None),
            }
        }
        Err(source) => Err(SandboxError::Unreadable { name: name.clone(), source }),
    }
}

/// Properties of a staged input by which a file that has replaced it is noticed.
#[derive(PartialEq, Eq)]
struct StagedMark {
    inode: (u64, u64),
    size_bytes: u64,
    modified: (i64, i64),
}

impl StagedMark {
    fn of(found: &fs::Metadata) -> Self {
        let modified = (found.mtime(), found.mtime_nsec());
        StagedMark { inode: (found.dev(), found.ino()), size_bytes: found.len(), modified }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), "cannot remove a sandbox: {e}");
        }
    }
}

/// Removes a folder, even if it contains folders that are not writable for their owner.
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

/// Makes a folder and all folders in it writable for their owner. Errors show when the folder is
/// removed.
fn make_writable(folder: &Path) {
    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.for_each(|entry| make_writable(&entry.path()));
}

/// The item as the names of outputs have it: what names an input of all tasks stands for itself.
pub(crate) fn values_in_outputs(with: &Expansion<'_>) -> Vec<Value> {
    let own = |value: &Value| match value.template_input() {
        Some(_) => Value { text: value.text.clone(), input: None },
        None => value.clone(),
    };
    with.values.iter().map(own).collect()
}

/// An output's pattern with its placeholders filled in, and whether it is a glob.
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
pub(crate) fn inside(name: &[u8]) -> Result<PathBuf, SandboxError> {
    let mut path = PathBuf::new();
    for component in path_of(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(SandboxError::Outside(name.into()));
            }
        }
    }
    if path.as_os_str().is_empty() || name.contains(&0) {
        return Err(SandboxError::NoName(name.into()));
    }
    Ok(path)
}

/// The name of each input in the sandbox; the first ones are there already, as `shared`. Inputs of
/// the same name get folders of their own: the third input `x` is staged as `input-3/x`.
pub(crate) fn input_paths(
    inputs: &[AssignedInput],
    shared: Option<&SharedInputs>,
) -> Result<Vec<PathBuf>, SandboxError> {
    let mut paths = Vec::with_capacity(inputs.len());
    paths.extend_from_slice(shared.map_or(&[], SharedInputs::paths));
    let mut taken = HashSet::new();
    for (number, input) in inputs.iter().enumerate().skip(paths.len()) {
        let name = inside(input.name.as_deref().unwrap_or_else(|| input.object.base_name()))?;
        let is_taken =
            taken.contains(&name) || shared.is_some_and(|shared| shared.mark_of(&name).is_some());
        let path =
            if is_taken { Path::new(&format!("input-{}", number + 1)).join(&name) } else { name };
        taken.insert(path.clone());
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{DeliverWhen, FileMode, ObjectSpec, Version};

    fn input(source: &str) -> AssignedInput {
        let version = Version::Modified { mtime_ns: 0, size_bytes: 0 };
        let object = ObjectSpec { source: source.into(), version, mode: FileMode::READABLE };
        AssignedInput { object, part: None, name: None, holders: Vec::new() }
    }

    #[test]
    fn a_sandbox_is_removed_with_its_read_only_folders() {
        let outer = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::create(outer.path().join("spare"))
            .unwrap()
            .rename(outer.path().join("task"))
            .unwrap();
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
            assert_eq!(inside(name.as_bytes()).unwrap(), PathBuf::from(expected));
        }
        assert_eq!(inside(b"odd\xff").unwrap(), path_of(b"odd\xff"));
        for name in ["", ".", "..", "a/../../b", "/etc/passwd", "a\0b"] {
            assert!(inside(name.as_bytes()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_bracket_in_an_items_name_is_no_pattern() {
        let values = [eyas_types::Value { text: "a[1]".into(), input: None }];
        let with = Expansion {
            values: &values,
            staged: &[],
            template_inputs: 0,
            number: 1,
            slot: 1,
            input_list: b"",
        };
        let pattern = |text: &str| pattern_of(&Template::parse(text), &with);
        assert_eq!(pattern("{}.out"), ("a[1].out".into(), false));
        assert_eq!(pattern("{}*.out"), ("a[[]1[]]*.out".into(), true));
    }

    #[test]
    fn folders_of_named_outputs_are_made_and_no_other() {
        let outer = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::create(outer.path().join("task")).unwrap();
        let output = |pattern: &str| OutputSpec {
            pattern: Template::parse(pattern),
            destination: None,
            replicas: 1,
            until_read: false,
            optional: false,
            when: DeliverWhen::Success,
        };
        let values = ["x", "d/y"].map(|text| Value { text: text.into(), input: None });
        let with = Expansion {
            values: &values,
            staged: &[],
            template_inputs: 0,
            number: 1,
            slot: 1,
            input_list: b"",
        };
        let outputs = ["a/{1}/z", "{2}", "glob/*.txt", "plain", "../out/x"].map(output);
        sandbox.make_output_folders(&outputs, &with);
        let mut made: Vec<_> = fs::read_dir(sandbox.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        made.sort();
        assert_eq!(made, ["a", "d"]);
        assert!(sandbox.folder().join("a/x").is_dir() && !outer.path().join("out").exists());
    }

    #[test]
    fn inputs_of_one_name_do_not_hide_each_other() {
        let inputs =
            [input("file:///a/x.fits"), input("file:///b/x.fits"), input("s3://c/y.fits?v=1")];
        let expected: Vec<PathBuf> =
            ["x.fits", "input-2/x.fits", "y.fits"].iter().map(PathBuf::from).collect();
        assert_eq!(input_paths(&inputs, None).unwrap(), expected);
        assert!(input_paths(&[input("http://host/..")], None).is_err());
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
    fn each_match_of_a_pattern_is_collected_or_an_error() {
        use std::os::unix::fs::symlink;
        let outer = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::create(outer.path().join("task")).unwrap();
        let at = |name: &[u8]| sandbox.folder().join(path_of(name));
        let collect = |pattern: &str| -> Result<Vec<(Name, bool)>, SandboxError> {
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
        let all = [
            file(b"d/also/x"),
            file(b"d/deep/x"),
            (Name::from("d/empty"), true),
            file(b"link"),
            file(b"odd\xff"),
        ];
        assert_eq!(collect("*").unwrap(), all);
        assert_eq!(collect("**").unwrap(), all);
        assert_eq!(collect("link").unwrap(), [file(b"link")]);
        assert!(collect("d").unwrap_err().to_string().contains("`d/**`"));
        symlink("nowhere\x1b", at(b"gone")).unwrap();
        for pattern in ["gone", "g*"] {
            let why = "`gone` is a symbolic link to `nowhere\\x1b`, which does not exist";
            assert_eq!(collect(pattern).unwrap_err().to_string(), why);
        }
        fs::remove_file(at(b"gone")).unwrap();
        symlink("..", at(b"d/up")).unwrap();
        assert!(collect("d*").unwrap_err().to_string().contains("`d/up/d` leads back"));
        drop(std::os::unix::net::UnixListener::bind(at(b"socket")).unwrap());
        assert!(collect("s*").unwrap_err().to_string().contains("`socket` is neither"));
    }

    #[test]
    fn inputs_are_named_by_patterns_only_if_the_task_has_replaced_them() {
        let outer = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(outer.path().join("store")).unwrap();
        let object = ObjectId([1; 16]);
        let mut into = store.begin(object, 4, FileMode::READABLE).unwrap();
        into.write(b"data").unwrap();
        into.commit().unwrap();
        let mut sandbox = Sandbox::create(outer.path().join("task")).unwrap();
        for name in ["kept", "replaced", "folder/kept"] {
            sandbox.stage(&store, object, Path::new(name), true).unwrap();
        }
        fs::remove_file(sandbox.folder().join("replaced")).unwrap();
        fs::write(sandbox.folder().join("replaced"), "mine").unwrap();
        let written = sandbox.collect(&"*".into(), true).unwrap();
        assert_eq!(
            written.iter().map(|written| written.name.to_string()).collect::<Vec<_>>(),
            ["replaced"]
        );
        assert_eq!(sandbox.collect(&"kept".into(), false).unwrap().len(), 1);
    }
}
