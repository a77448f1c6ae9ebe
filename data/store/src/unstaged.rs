//! Words of a command that name a file of the folder of submission. A task in a sandbox does not
//! have such a file unless it is an input, and its program says only that a file is missing. The
//! client looks at the words before the job runs, and the executor looks at them when a task has
//! failed, so both say the same.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use eyas_types::Name;

use crate::glob::{Glob, path_of};

/// Words of one command that are looked at; the rest of a longer command is not.
const MAX_WORDS: usize = 64;
/// Entries of a folder among which files with a prefix are looked for.
const MAX_ENTRIES: usize = 10_000;

/// A file or folder of the folder of submission that a word names and a sandbox does not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnstagedFile {
    /// The file as the word names it.
    pub named: Name,
    /// The pattern of inputs that brings it into the sandbox.
    pub input: Name,
    /// Whether several files begin with the name, and none has it.
    is_prefix: bool,
}

impl UnstagedFile {
    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        !self.is_prefix && self.input != self.named
    }

    /// The same for a word with placeholders, which names another file for each task.
    pub fn of_each(&self, word: &Name) -> UnstagedFile {
        let end = self.input.strip_prefix(self.named.as_bytes()).unwrap_or_default();
        UnstagedFile { input: Name::concat(&[word, end]), ..self.clone() }
    }
}

impl fmt::Display for UnstagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnstagedFile { named, input, is_prefix } = self;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,@%=:".contains(byte);
        let quote = if input.iter().all(is_plain) { "" } else { "'" };
        match is_prefix {
            true => write!(f, "files that begin with `{named}.` are")?,
            false => write!(f, "`{named}` is")?,
        }
        write!(
            f,
            " in the folder of submission, but the tasks run in folders of their own: add -i \
             {quote}{input}{quote}, in a job file inputs = [\"{input}\"]; or run in the folder of \
             submission with --in-place, in a job file in_place = true"
        )
    }
}

/// The files and folders of `folder` that words of a command name and that a sandbox does not have.
/// `has` are names of its inputs, and of outputs and their destinations, which may be patterns.
pub fn unstaged_files<'a>(
    folder: &Path,
    words: impl IntoIterator<Item = &'a [u8]>,
    has: &[Name],
) -> Vec<UnstagedFile> {
    let mut found = Vec::new();
    for word in words.into_iter().take(MAX_WORDS) {
        match word.iter().any(u8::is_ascii_whitespace) {
            // The file of this name, or files of this script.
            true if !is_file(folder, word) => {
                let files = names_in(word).filter(|name| is_file(folder, name));
                found.extend(files.filter_map(|name| unstaged(folder, name, has)));
            }
            _ => {
                let value = word.iter().position(|byte| *byte == b'=').map(|at| &word[at + 1..]);
                let names = [Some(word), value].into_iter().flatten();
                found.extend(names.filter_map(|name| unstaged(folder, name, has)));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn is_file(folder: &Path, name: &[u8]) -> bool {
    is_inside(name) && folder.join(path_of(name)).is_file()
}

/// Whether a name can be that of a file in a folder, and is no option.
fn is_inside(name: &[u8]) -> bool {
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !name.starts_with(b"-") && !name.contains(&0) && path_of(name).components().all(is_plain)
}

/// The names of files in a script, except those that it writes.
fn names_in(script: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`;|&()<>=$".contains(byte);
    let mut before = 0;
    script.split(move |byte| is_end(byte)).filter(move |name| {
        let start = name.as_ptr() as usize - script.as_ptr() as usize;
        let is_written = !name.is_empty()
            && script[before..start]
                .iter()
                .rev()
                .find(|byte| !byte.is_ascii_whitespace() && !b"\"'".contains(byte))
                == Some(&b'>');
        if !name.is_empty() {
            before = start + name.len();
        }
        !name.is_empty() && !is_written
    })
}

fn unstaged(folder: &Path, word: &[u8], has: &[Name]) -> Option<UnstagedFile> {
    let name = plain(word);
    if name.is_empty() || !is_inside(word) || is_had(&name, has) {
        return None;
    }
    let path = folder.join(path_of(&name));
    let escaped = || Glob::escape(&name);
    let (input, is_prefix) = match fs::metadata(&path) {
        Ok(found) if found.is_file() => (name.clone(), false),
        Ok(found) if found.is_dir() => (Name::concat(&[&escaped()[..], b"/**"]), false),
        Ok(_) => return None,
        Err(_) if name.contains(&b'/') && begins_a_name(&path) => {
            (Name::concat(&[&escaped()[..], b".*"]), true)
        }
        Err(_) => return None,
    };
    Some(UnstagedFile { named: name, input, is_prefix })
}

/// Whether files beside `path` have its name and an extension, as those of a database have.
fn begins_a_name(path: &Path) -> bool {
    let (Some(parent), Some(stem)) = (path.parent(), path.file_name()) else { return false };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| {
        name.as_bytes().strip_prefix(stem.as_bytes()).is_some_and(|end| end.starts_with(b"."))
    })
}

/// Whether inputs or outputs have the name, are in the folder of this name, or begin with it.
fn is_had(name: &[u8], has: &[Name]) -> bool {
    has.iter().any(|had| {
        plain(had).starts_with(name) || Glob::parse(had).is_ok_and(|pattern| pattern.names(name))
    })
}

/// A path without `.` and without slashes at its end.
fn plain(path: &[u8]) -> Name {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let start: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    Name::concat(&[start, &parts.collect::<Vec<_>>().join(&b'/')])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_files_without_being_inputs_or_outputs_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("db/deep")).unwrap();
        for name in ["cut.py", "db/nr.phr", "db/nr.psq", "old.txt", "a b"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let table: &[(&[&str], &[&str], &[&str])] = &[
            (&["python", "cut.py"], &[], &["cut.py"]),
            (&["python", "./cut.py", "cut.py"], &[], &["cut.py"]),
            (&["python", "cut.py"], &["cut.py"], &[]),
            (&["python", "cut.py"], &["*.py"], &[]),
            (&["blastp", "-db", "db/nr"], &[], &["db/nr.*"]),
            (&["blastp", "--db=db/nr"], &[], &["db/nr.*"]),
            (&["blastp", "-db", "db/nr"], &["db/nr.phr"], &[]),
            (&["ls", "db", "db/deep/"], &[], &["db/**", "db/deep/**"]),
            (&["ls", "db"], &["db/x.out"], &[]),
            // A prefix of files of the folder of submission itself may be any word.
            (&["cut", "old", "other", "db/n", "db/none"], &[], &[]),
            (&["cat", "/cut.py", "../cut.py", "-cut.py", "", "."], &[], &[]),
            (&["cat", "a b"], &[], &["a b"]),
            (&["python cut.py <\"old.txt\" >cut.py"], &[], &["cut.py", "old.txt"]),
            (&["date > old.txt; echo x>>'old.txt'; db"], &[], &[]),
        ];
        for (words, has, expected) in table {
            let has: Vec<Name> = has.iter().map(|name| (*name).into()).collect();
            let words = words.iter().map(|word| word.as_bytes());
            let found = unstaged_files(folder.path(), words.clone(), &has);
            let found: Vec<_> = found.iter().map(|found| found.input.to_string()).collect();
            assert_eq!(found, *expected, "{:?}", words.collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_message_says_what_to_type() {
        let named = |named: &str, input: &str, is_prefix| {
            UnstagedFile { named: named.into(), input: input.into(), is_prefix }.to_string()
        };
        let file = named("cut.py", "cut.py", false);
        assert!(file.starts_with("`cut.py` is in the folder"), "{file}");
        assert!(file.contains("add -i cut.py, in a job file inputs = [\"cut.py\"]"), "{file}");
        let prefix = named("db/nr", "db/nr.*", true);
        assert!(prefix.starts_with("files that begin with `db/nr.` are in"), "{prefix}");
        assert!(prefix.contains("add -i 'db/nr.*'"), "{prefix}");
    }
}
