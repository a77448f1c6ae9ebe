//! Patterns of file names, and the files that match them. Names are bytes: a name that is not UTF-8
//! can be matched too, and each byte that is not part of a character counts as a character.
//!
//! | pattern | matches |
//! | --- | --- |
//! | `?` | one character |
//! | `*` | any characters of one component |
//! | `[abc]`, `[a-z]` | one of these characters, one in the range; `[*]` is a plain `*` |
//! | `[!a-z]` | one character that is not in the range |
//! | `**` | as a whole component: any number of folders, or none |
//! | `**` | as the last component: all files in them |

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use eyas_types::Name;
use thiserror::Error;

/// The reason why a pattern cannot be matched.
#[derive(Debug, Error)]
pub enum GlobError {
    /// The pattern is malformed.
    #[error("{0}")]
    Pattern(&'static str),
    /// A folder that the pattern leads to cannot be read.
    #[error("cannot read {}: {error}", eyas_types::shown(folder.as_os_str().as_bytes()))]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// A pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    is_absolute: bool,
    /// The pattern ends with a slash, so it matches folders only.
    names_folders: bool,
    parts: Vec<Part>,
}

/// One component of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Plain(OsString),
    Pattern(Vec<Token>),
    Folders,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    One,
    Any,
    Letter(Letter),
    Class { is_negated: bool, ranges: Vec<(Letter, Letter)> },
}

/// A character of a name, or a byte that is not part of a character. Such bytes sort after all
/// characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Letter {
    Char(char),
    Byte(u8),
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// `Pattern` if it is malformed.
    pub fn parse(pattern: &[u8]) -> Result<Self, GlobError> {
        let components =
            pattern.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let parts = components.map(part).collect::<Result<Vec<_>, _>>()?;
        let (is_absolute, names_folders) = (pattern.starts_with(b"/"), pattern.ends_with(b"/"));
        Ok(Glob { is_absolute, names_folders, parts })
    }

    /// The paths that the pattern matches, sorted. Relative patterns start from `folder` and give
    /// relative paths. Links are followed. `*` matches hidden files only if `finds_hidden` is set.
    ///
    /// # Errors
    /// `Unreadable` if a folder that the pattern leads to cannot be read.
    pub fn find(&self, folder: &Path, finds_hidden: bool) -> Result<Vec<PathBuf>, GlobError> {
        let found = self.search(folder, finds_hidden)?.into_iter();
        let is_meant = |found: &GlobMatch| !self.names_folders || found.is_folder_in(folder);
        Ok(found.filter(is_meant).map(|found| found.path).collect())
    }

    /// The same without folders. Of most paths, the listing of the folder above tells the kind, so
    /// that they are not looked up one by one.
    ///
    /// # Errors
    /// As [`Glob::find`].
    pub fn find_files(&self, folder: &Path, finds_hidden: bool) -> Result<Vec<PathBuf>, GlobError> {
        if self.names_folders {
            return Ok(Vec::new());
        }
        let found = self.search(folder, finds_hidden)?.into_iter();
        Ok(found.filter(|found| !found.is_folder_in(folder)).map(|found| found.path).collect())
    }

    fn search(&self, folder: &Path, finds_hidden: bool) -> Result<Vec<GlobMatch>, GlobError> {
        let mut search = Search { folder, finds_hidden, above: Vec::new(), found: Vec::new() };
        let start = if self.is_absolute { Path::new("/") } else { Path::new("") };
        search.look(start, &self.parts)?;
        search.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        search.found.dedup_by(|a, b| a.path == b.path);
        Ok(search.found)
    }

    /// Whether the pattern matches this path, for storage whose folders cannot be listed. As in a
    /// shell, `*` matches no hidden file.
    pub fn names(&self, path: &[u8]) -> bool {
        let components: Vec<_> =
            path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
        self.is_absolute == path.starts_with(b"/")
            && !self.names_folders
            && are_named(&self.parts, &components)
    }

    /// The pattern that matches exactly `name`.
    pub fn escape(name: &[u8]) -> Name {
        let mut pattern = Name::default();
        for byte in name {
            match byte {
                b'*' | b'?' | b'[' | b']' => pattern.push([b'[', *byte, b']']),
                _ => pattern.push([*byte]),
            }
        }
        pattern
    }
}

/// Whether these parts match these components. From the last part to the first, this finds the
/// places from which on the components match, so that several `**` take no longer than one.
fn are_named(parts: &[Part], components: &[&[u8]]) -> bool {
    let count = components.len();
    // The places from which on the components match the parts behind the present one.
    let mut behind: Vec<bool> = (0..=count).map(|at| at == count).collect();
    for (index, part) in parts.iter().enumerate().rev() {
        let is_last = index + 1 == parts.len();
        let mut here = vec![false; count + 1];
        for (at, name) in components.iter().enumerate().rev() {
            here[at] = match part {
                Part::Folders if is_last => !is_hidden(name) && (at + 1 == count || here[at + 1]),
                Part::Folders => behind[at] || !is_hidden(name) && here[at + 1],
                Part::Plain(plain) => behind[at + 1] && plain.as_bytes() == *name,
                Part::Pattern(tokens) => {
                    let may_be = !is_hidden(name)
                        || tokens.first() == Some(&Token::Letter(Letter::Char('.')));
                    behind[at + 1] && may_be && matches(tokens, &letters(name))
                }
            };
        }
        behind = here;
    }
    behind[0]
}

fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".")
}

fn part(text: &[u8]) -> Result<Part, GlobError> {
    if text == b"**" {
        return Ok(Part::Folders);
    }
    if !text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[')) {
        return Ok(Part::Plain(OsStr::from_bytes(text).to_owned()));
    }
    let letters = letters(text);
    let (mut tokens, mut rest) = (Vec::new(), &letters[..]);
    while let [first, behind @ ..] = rest {
        rest = behind;
        tokens.push(match first {
            Letter::Char('?') => Token::One,
            Letter::Char('*') if behind.first() == Some(&Letter::Char('*')) => {
                return Err(GlobError::Pattern(
                    "`**` stands alone between slashes: write `**/*.txt`, not `**.txt`",
                ));
            }
            Letter::Char('*') => Token::Any,
            Letter::Char('[') => {
                let is_negated = behind.first() == Some(&Letter::Char('!'));
                let inside = &behind[usize::from(is_negated)..];
                // A bracket in the first position is one of the characters.
                let end = inside.iter().skip(1).position(|letter| *letter == Letter::Char(']'));
                let end = 1 + end.ok_or(GlobError::Pattern(
                    "`[` has no `]`: write `[[]` for the character itself",
                ))?;
                rest = &inside[end + 1..];
                Token::Class { is_negated, ranges: ranges(&inside[..end]) }
            }
            letter => Token::Letter(*letter),
        });
    }
    Ok(Part::Pattern(tokens))
}

/// The ranges between brackets.
fn ranges(mut inside: &[Letter]) -> Vec<(Letter, Letter)> {
    let mut ranges = Vec::new();
    while let [first, rest @ ..] = inside {
        let (last, rest) = match rest {
            [Letter::Char('-'), last, rest @ ..] => (last, rest),
            rest => (first, rest),
        };
        ranges.push((*first, *last));
        inside = rest;
    }
    ranges
}

fn letters(name: &[u8]) -> Vec<Letter> {
    let mut letters = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        letters.extend(chunk.valid().chars().map(Letter::Char));
        letters.extend(chunk.invalid().iter().map(|byte| Letter::Byte(*byte)));
    }
    letters
}

/// Whether the tokens match the whole name. After a mismatch, the last `*` takes one more letter;
/// earlier ones need not change.
fn matches(tokens: &[Token], name: &[Letter]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut last_any = None;
    while at < name.len() {
        match tokens.get(token) {
            Some(Token::Any) => {
                last_any = Some((token, at));
                token += 1;
            }
            Some(wanted) if wanted.is(name[at]) => (token, at) = (token + 1, at + 1),
            _ => match &mut last_any {
                Some((any, from)) => {
                    *from += 1;
                    (token, at) = (*any + 1, *from);
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Any)
}

impl Token {
    fn is(&self, letter: Letter) -> bool {
        match self {
            Token::One => true,
            Token::Any => false,
            Token::Letter(wanted) => *wanted == letter,
            Token::Class { is_negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != *is_negated
            }
        }
    }
}

/// A path that matches.
struct GlobMatch {
    path: PathBuf,
    /// Whether the path is a folder, if a listing has told.
    is_folder: Option<bool>,
}

impl GlobMatch {
    fn is_folder_in(&self, folder: &Path) -> bool {
        self.is_folder.unwrap_or_else(|| folder.join(&self.path).is_dir())
    }
}

struct Search<'a> {
    folder: &'a Path,
    finds_hidden: bool,
    /// The folders that a `**` has led through. A link to one of them is not followed again.
    above: Vec<(u64, u64)>,
    found: Vec<GlobMatch>,
}

impl Search<'_> {
    /// Finds the paths that `parts` match from `path`, which is absolute or relative to the
    /// search's folder.
    fn look(&mut self, path: &Path, parts: &[Part]) -> Result<(), GlobError> {
        match parts {
            [] => Ok(()),
            [Part::Plain(name), rest @ ..] => {
                let next = path.join(name);
                if !rest.is_empty() {
                    return self.look(&next, rest);
                }
                if self.folder.join(&next).symlink_metadata().is_ok() {
                    self.found.push(GlobMatch { path: next, is_folder: None });
                }
                Ok(())
            }
            [Part::Pattern(tokens), rest @ ..] => {
                let names_hidden =
                    self.finds_hidden || tokens.first() == Some(&Token::Letter(Letter::Char('.')));
                for (name, is_folder) in self.names_in(path, names_hidden)? {
                    if !matches(tokens, &letters(name.as_bytes())) {
                        continue;
                    }
                    if rest.is_empty() {
                        self.found.push(GlobMatch { path: path.join(name), is_folder });
                    } else {
                        self.look(&path.join(name), rest)?;
                    }
                }
                Ok(())
            }
            [Part::Folders, rest @ ..] => self.look_below(path, rest),
        }
    }

    /// The same, from this folder and all folders in it.
    fn look_below(&mut self, path: &Path, rest: &[Part]) -> Result<(), GlobError> {
        let Ok(here) = self.in_folder(path).metadata() else { return Ok(()) };
        let here = (here.dev(), here.ino());
        if self.above.contains(&here) {
            return Ok(());
        }
        self.above.push(here);
        self.look(path, rest)?;
        for (name, is_folder) in self.names_in(path, self.finds_hidden)? {
            let next = path.join(name);
            let is_folder = is_folder.unwrap_or_else(|| self.folder.join(&next).is_dir());
            if rest.is_empty() {
                self.found.push(GlobMatch { path: next.clone(), is_folder: Some(is_folder) });
            }
            if is_folder {
                self.look_below(&next, rest)?;
            }
        }
        self.above.pop();
        Ok(())
    }

    /// The names in a folder, with whether they are folders, where the listing tells; none if it is
    /// not a folder. For a link, only a look at its target tells.
    fn names_in(
        &self,
        path: &Path,
        with_hidden: bool,
    ) -> Result<Vec<(OsString, Option<bool>)>, GlobError> {
        let folder = self.in_folder(path);
        let entries = match fs::read_dir(&folder) {
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Ok(Vec::new());
            }
            entries => {
                entries.and_then(|entries| entries.map(|entry| entry.map(name_and_kind)).collect())
            }
        };
        let mut names: Vec<_> = entries.map_err(|error| GlobError::Unreadable { folder, error })?;
        names.retain(|(name, _)| with_hidden || !is_hidden(name.as_bytes()));
        Ok(names)
    }

    fn in_folder(&self, path: &Path) -> PathBuf {
        let folder = self.folder.join(path);
        if folder.as_os_str().is_empty() { ".".into() } else { folder }
    }
}

fn name_and_kind(entry: fs::DirEntry) -> (OsString, Option<bool>) {
    let kind = entry.file_type().ok().filter(|kind| !kind.is_symlink());
    (entry.file_name(), kind.map(|kind| kind.is_dir()))
}

/// Converts a name to a path.
pub fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// Converts a path to a name.
pub fn name_of(path: impl Into<PathBuf>) -> Name {
    Name::from(path.into().into_os_string().into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_named(pattern: &[u8], name: &[u8]) -> bool {
        match part(pattern).unwrap() {
            Part::Pattern(tokens) => matches(&tokens, &letters(name)),
            Part::Plain(plain) => plain.as_bytes() == name,
            Part::Folders => true,
        }
    }

    #[test]
    fn patterns_name_what_shells_have_them_name() {
        for (pattern, named, others) in [
            (
                &b"*.txt"[..],
                &[&b"a.txt"[..], b".txt", b"\xff.txt", "ä.b.txt".as_bytes()][..],
                &[&b"a.txt2"[..], b"txt"][..],
            ),
            (b"a*b*c", &[b"abc", b"aXbXbXc"], &[b"ab", b"acb"]),
            (b"?", &["ä".as_bytes(), b"\xff", b"x"], &[b"", b"xy", b"\xff\xff"]),
            (b"[a-c]", &[b"b"], &[b"d", b"", b"\xff"]),
            (b"[!a-c]", &[b"d", b"\xff", "ä".as_bytes()], &[b"b"]),
            (b"[]x-]", &[b"]", b"-", b"x"], &[b"a"]),
            (b"[!]]", &[b"x"], &[b"]"]),
            (b"[\x80-\xff]", &[b"\x90"], &[b"a"]),
            (b"x[*]y", &[b"x*y"], &[b"xzy"]),
            (b"\xff*", &[b"\xff", b"\xffa"], &[b"\xfea"]),
            (b"**", &[b"x"], &[]),
        ] {
            for name in named {
                assert!(
                    is_named(pattern, name),
                    "{} {}",
                    pattern.escape_ascii(),
                    name.escape_ascii()
                );
            }
            for name in others {
                assert!(
                    !is_named(pattern, name),
                    "{} {}",
                    pattern.escape_ascii(),
                    name.escape_ascii()
                );
            }
        }
        for wrong in [&b"["[..], b"[]", b"[!]", b"a**", b"***", b"x/[a"] {
            assert!(
                matches!(Glob::parse(wrong), Err(GlobError::Pattern(_))),
                "{}",
                wrong.escape_ascii()
            );
        }
        let odd = b"a[1]*?\xff";
        assert!(is_named(&Glob::escape(odd), odd));
    }

    #[test]
    fn paths_are_named_where_there_are_no_folders_to_look_into() {
        for (pattern, named, others) in [
            (
                "s3://b/x/*.f",
                &["s3://b/x/a.f"][..],
                &["s3://b/x/.a.f", "s3://b/x/y/a.f", "s3://b/x", "s3://c/x/a.f"][..],
            ),
            ("/a/**/b", &["/a/b", "/a/x/y/b"], &["/a/x/y", "a/b", "/a/.x/b"]),
            ("/a/**", &["/a/b", "/a/b/c"], &["/a", "/b/c"]),
            (
                "/**/a/**/b/**/.c/d",
                &["/x/a/b/b/.c/d", "/a/x/y/b/.c/d"],
                &["/x/a/b/b/c/d", "/a/.c/b/.c/d"],
            ),
            ("/a/.*", &["/a/.b"], &["/a/b"]),
            ("/a/b", &["/a/b", "/a//b"], &["/a/c"]),
            ("/a/*/", &[], &["/a/b"]),
        ] {
            let glob = Glob::parse(pattern.as_bytes()).unwrap();
            assert!(named.iter().all(|path| glob.names(path.as_bytes())), "{pattern}");
            assert!(!others.iter().any(|path| glob.names(path.as_bytes())), "{pattern}");
        }
    }

    #[test]
    fn many_folders_of_any_names_take_no_longer_than_one() {
        let pattern = ["/**/a".repeat(30), "/**/b".into()].concat();
        let glob = Glob::parse(pattern.as_bytes()).unwrap();
        let path = "/a".repeat(200);
        assert!(
            !glob.names(path.as_bytes()) && glob.names([path, "/b".into()].concat().as_bytes())
        );
    }

    #[test]
    fn matches_come_in_order_and_as_the_pattern_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| folder.path().join(path_of(name));
        for (name, is_folder) in [
            (&b"sub"[..], true),
            (b"sub/deep", true),
            (b"b.x", false),
            (b"a\xff.x", false),
            (b".h.x", false),
        ] {
            if is_folder {
                fs::create_dir(at(name)).unwrap()
            } else {
                fs::write(at(name), "").unwrap()
            }
        }
        for name in [&b"sub/c.x"[..], b"sub/deep/d.x"] {
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink("..", at(b"sub/up")).unwrap();
        std::os::unix::fs::symlink("nowhere", at(b"sub/gone.x")).unwrap();
        let find = |pattern: &[u8], hidden| -> Vec<Vec<u8>> {
            let found = Glob::parse(pattern).unwrap().find(folder.path(), hidden).unwrap();
            found.into_iter().map(|path| name_of(path).into_bytes()).collect()
        };
        assert_eq!(find(b"*.x", false), [&b"a\xff.x"[..], b"b.x"]);
        assert_eq!(find(b"./*.x", true), [&b".h.x"[..], b"a\xff.x", b"b.x"]);
        assert_eq!(find(b".*", false), [b".h.x"]);
        assert_eq!(find(b"sub/*.x", false), [&b"sub/c.x"[..], b"sub/gone.x"]);
        assert_eq!(find(b"*/c.x", false), [b"sub/c.x"]);
        assert_eq!(find(b"*/", false), [b"sub"]);
        assert_eq!(find(b"**/d.x", false), [b"sub/deep/d.x"]);
        assert_eq!(find(b"sub/deep/**", false), [b"sub/deep/d.x"]);
        assert_eq!(find(b"missing/*", false), Vec::<Vec<u8>>::new());
        assert_eq!(find(b"b.x/*", false), Vec::<Vec<u8>>::new());
        let files = |pattern: &[u8]| {
            Glob::parse(pattern).unwrap().find_files(folder.path(), false).unwrap()
        };
        assert_eq!(
            files(b"sub/*"),
            [Path::new("sub/c.x"), Path::new("sub/gone.x")],
            "`up` links to a folder"
        );
        assert_eq!(files(b"sub/deep"), Vec::<PathBuf>::new());
        assert_eq!(files(b"*/"), Vec::<PathBuf>::new());
        let absolute = [name_of(folder.path()).as_bytes(), b"/b.*"].concat();
        assert_eq!(find(&absolute, false), [name_of(at(b"b.x")).into_bytes()]);
    }
}
