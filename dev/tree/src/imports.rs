//! Which files of a crate import which, as far as their text tells: `use` items, and paths that
//! begin with `crate`, `super` or `self`. An import of a re-export counts as one of the file that
//! has the item. A re-export alone is no import. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// The words that a definition may begin with.
const DEFINITIONS: [&str; 9] =
    ["struct ", "enum ", "fn ", "trait ", "const ", "type ", "static ", "mod ", "macro_rules! "];

/// A file of a crate.
struct SourceFile {
    path: String,
    /// Without comments and tests.
    text: String,
    /// Paths that it imports or names.
    uses: Vec<Module>,
    /// Names under which it exports what others define.
    exports: BTreeMap<String, Module>,
    /// Modules of which it exports everything.
    glob_exports: Vec<Module>,
}

/// The files of one crate.
pub struct Imports {
    files: BTreeMap<Module, SourceFile>,
}

impl Imports {
    /// Reads the files of a crate: paths from the folder `src`, and texts.
    pub fn of(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let read = |(path, text): (String, String)| {
            let mut module: Module =
                path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
            if module.iter().any(|part| part == "tests") || module[0] == "bin" {
                return None;
            }
            if matches!(module.last()?.as_str(), "mod" | "lib" | "main") {
                module.pop();
            }
            Some((module, SourceFile::read(path, &text)))
        };
        Imports { files: files.into_iter().filter_map(read).collect() }
    }

    /// The circles: sets of files of which each imports each, directly or by others of them.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module, self.reached_from(module))).collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            if others.contains(*module) {
                let is_one = |other: &&Module| reached[*other].contains(*module);
                let circle = others.iter().filter(is_one).map(|one| self.files[one].path.as_str());
                circles.insert(circle.collect::<Vec<_>>());
            }
        }
        circles.into_iter().collect()
    }

    /// The modules that a module imports, directly or by others.
    fn reached_from(&self, module: &Module) -> BTreeSet<Module> {
        let mut reached = BTreeSet::new();
        let mut next = vec![module.clone()];
        while let Some(from) = next.pop() {
            for path in &self.files[&from].uses {
                let to = self.resolve(&from, path, 0).filter(|to| *to != from);
                next.extend(to.filter(|to| reached.insert(to.clone())));
            }
        }
        reached
    }

    /// The module that has what a path names; `None` if it is in another crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut module = from.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (module, rest) = (Module::new(), &rest[1..]),
            "self" | "super" => {
                while let Some(first @ ("self" | "super")) = rest.first().map(String::as_str) {
                    if first == "super" {
                        module.pop();
                    }
                    rest = &rest[1..];
                }
            }
            name => {
                let is_own = self.files.contains_key(&child(&module, name))
                    || self.files.get(&module)?.exports.contains_key(name);
                if !is_own {
                    return None;
                }
            }
        }
        while let Some(name) = rest.first() {
            if !self.files.contains_key(&child(&module, name)) {
                break;
            }
            module = child(&module, name);
            rest = &rest[1..];
        }
        let file = self.files.get(&module)?;
        let Some(name) = rest.first().filter(|_| depth < 8) else { return Some(module) };
        if let Some(exported) = file.exports.get(name) {
            let all: Module = exported.iter().chain(&rest[1..]).cloned().collect();
            return self.resolve(&module, &all, depth + 1);
        }
        if !file.defines(name) {
            for exported in &file.glob_exports {
                let all = child(exported, name);
                let found = self.resolve(&module, &all, depth + 1);
                if let Some(found) = found.filter(|found| self.files[found].defines(name)) {
                    return Some(found);
                }
            }
        }
        Some(module)
    }
}

impl SourceFile {
    fn read(path: String, text: &str) -> Self {
        let text = without_tests_and_comments(text);
        let mut file = SourceFile {
            path,
            uses: Vec::new(),
            exports: BTreeMap::new(),
            glob_exports: Vec::new(),
            text: String::new(),
        };
        let mut rest = String::new();
        let mut statement: Option<String> = None;
        for line in text.lines() {
            if statement.is_none() && is_use(line) {
                statement = Some(String::new());
            }
            let Some(so_far) = &mut statement else {
                rest.push_str(line);
                rest.push('\n');
                continue;
            };
            so_far.push_str(line.trim());
            if line.contains(';') {
                file.take_use(so_far);
                statement = None;
            }
        }
        file.uses.extend(named_paths(&rest));
        file.text = rest;
        let used = file.exports.iter().filter(|(name, _)| file.mentions(name));
        file.uses.extend(used.map(|(_, path)| path.clone()).collect::<Vec<_>>());
        file
    }

    /// Adds what a `use` item imports.
    fn take_use(&mut self, item: &str) {
        let (head, tree) = item.split_once("use ").expect("a use item");
        let mut leaves = Vec::new();
        expand(&Module::new(), tree.trim_end_matches(';').trim(), &mut leaves);
        for (mut path, name) in leaves {
            let is_glob = path.last().is_some_and(|last| last == "*");
            if is_glob {
                path.pop();
            }
            match (head.trim().is_empty(), is_glob) {
                (true, _) => self.uses.push(path),
                (false, true) => self.glob_exports.push(path),
                (false, false) => _ = self.exports.insert(name, path),
            }
        }
    }

    fn defines(&self, name: &str) -> bool {
        DEFINITIONS.iter().any(|word| has_words(&self.text, &format!("{word}{name}")))
    }

    fn mentions(&self, name: &str) -> bool {
        has_words(&self.text, name)
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a text has these words, and not only as a part of longer ones.
fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        !text[..at].ends_with(is_of_word) && !text[at + words.len()..].starts_with(is_of_word)
    })
}

fn child(module: &[String], name: &str) -> Module {
    let mut child = module.to_vec();
    child.push(name.to_owned());
    child
}

fn is_use(line: &str) -> bool {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or(rest, |(_, rest)| rest),
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    line.starts_with("use ")
}

/// The text up to its module of tests, without line comments and without items of tests that have
/// a line each.
fn without_tests_and_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let item = lines.next().unwrap_or_default();
            let module = item.strip_prefix("pub(crate) ").unwrap_or(item);
            if module.starts_with("mod ") && module.ends_with('{') {
                break;
            }
            if item.ends_with(';') {
                continue;
            }
        }
        kept.push_str(line.split("//").next().unwrap_or_default());
        kept.push('\n');
    }
    kept
}

/// Each path of a tree of imports, with the name under which the file has it.
fn expand(prefix: &[String], tree: &str, leaves: &mut Vec<(Module, String)>) {
    if let Some((head, group)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) {
        let mut prefix = prefix.to_vec();
        prefix.extend(parts(head));
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if c == ',' && depth == 0 {
                expand(&prefix, group[start..at].trim(), leaves);
                start = at + 1;
            }
        }
        return expand(&prefix, group[start..].trim(), leaves);
    }
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(p, n)| (p, Some(n)));
    let mut whole = prefix.to_vec();
    whole.extend(parts(path));
    if path.trim() == "self" {
        whole.retain(|part| part != "self");
    }
    if let Some(last) = whole.last().filter(|_| !tree.is_empty()) {
        let name = name.map_or_else(|| last.clone(), |name| name.trim().to_owned());
        leaves.push((whole, name));
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty())
}

/// Paths in code that begin with `crate`, `super` or `self`.
fn named_paths(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for first in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(first) {
            let is_inside = code[..at].ends_with(|c: char| is_of_word(c) || c == ':');
            if !is_inside {
                let end = code[at..].find(|c: char| !is_of_word(c) && c != ':');
                found.push(parts(&code[at..end.map_or(code.len(), |end| at + end)]).collect());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Imports;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let imports = Imports::of(files);
        let circles = imports.circles();
        circles.into_iter().map(|circle| circle.into_iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let one = ("one.rs", "use crate::two::{Two, deep::Deep};\npub struct One;\n");
        let two = ("two.rs", "fn f() { crate::one::One; }\npub struct Two;\n");
        let lib = ("lib.rs", "mod one;\nmod two;\n");
        assert_eq!(circles(&[lib, one, two]), [["one.rs", "two.rs"]]);
        for head in ["mod", "pub(crate) mod"] {
            let tests = format!("#[cfg(test)]\n{head} tests {{\n    use crate::one::One;\n}}\n");
            assert!(circles(&[lib, one, ("two.rs", &tests)]).is_empty());
        }
        let two = ("two.rs", "// use crate::one::One;\n");
        assert!(circles(&[lib, one, two]).is_empty());
    }

    #[test]
    fn an_import_of_a_reexport_is_one_of_the_file_that_has_the_item() {
        let lib =
            ("lib.rs", "mod one;\nmod two;\npub use one::One;\npub use two::*;\nstruct Lib;\n");
        let one = ("one.rs", "use crate::{Lib, Two};\npub struct One;\n");
        let two = ("two.rs", "pub struct Two;\n");
        assert!(circles(&[lib, one, two]).is_empty());
        let two = ("two.rs", "use crate::One;\npub struct Two;\n");
        assert_eq!(circles(&[lib, one, two]), [["one.rs", "two.rs"]]);
    }

    #[test]
    fn a_child_that_imports_its_parent_is_in_a_circle_if_the_parent_imports_it() {
        let child = ("one/child.rs", "use super::One;\npub struct Child;\n");
        let lib = ("lib.rs", "mod one;\n");
        assert!(circles(&[lib, ("one.rs", "mod child;\npub struct One;\n"), child]).is_empty());
        let parent = ("one.rs", "mod child;\nuse child::Child;\npub struct One;\n");
        assert_eq!(circles(&[lib, parent, child]), [["one.rs", "one/child.rs"]]);
    }
}
