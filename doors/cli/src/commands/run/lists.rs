//! Lists of items behind the command, as GNU parallel has them: `::: a b` has the items themselves,
//! and `:::: FILE` the lines of a file. Several lists make one task for each combination of their
//! items; a list behind `:::+` or `::::+` is linked to the list before it, item by item.

use eyas_client::types::Name;
use eyas_client::{ListLine, SourceError, lines_of, product};
use thiserror::Error;

/// Why the lists of a command line have no combinations.
#[derive(Debug, Error)]
pub(super) enum ListError {
    #[error(
        "the first list is behind `{0}`, which links a list to the one before it: write `{first}`",
        first = .0.trim_end_matches('+')
    )]
    LinkedToNothing(String),
    #[error("`::::` names no file: write it behind, such as :::: items.txt")]
    NoFile,
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// One list of the command line.
struct List {
    words: Vec<Name>,
    /// Whether the words are files with an item in each line.
    are_files: bool,
    is_linked: bool,
}

/// The command before the lists, and the lists.
pub(super) struct CommandAndLists {
    pub command: Vec<Name>,
    lists: Vec<List>,
}

impl CommandAndLists {
    /// Divides the words of a command line.
    pub fn of(words: &[Name]) -> Self {
        let (mut command, mut lists) = (Vec::new(), Vec::<List>::new());
        for word in words {
            let (are_files, is_linked) = match &word[..] {
                b":::" => (false, false),
                b":::+" => (false, true),
                b"::::" => (true, false),
                b"::::+" => (true, true),
                _ => {
                    let part = lists.last_mut().map_or(&mut command, |list| &mut list.words);
                    part.push(word.clone());
                    continue;
                }
            };
            lists.push(List { words: Vec::new(), are_files, is_linked });
        }
        CommandAndLists { command, lists }
    }

    pub fn has_lists(&self) -> bool {
        !self.lists.is_empty()
    }

    /// The file whose lines are the items, if there is one list and it is one file.
    pub fn only_file(&self) -> Option<&Name> {
        match &self.lists[..] {
            [List { words, are_files: true, .. }] if words.len() == 1 => words.first(),
            _ => None,
        }
    }

    /// The combinations, of which the items of the last list change first. Reads the files.
    ///
    /// # Errors
    /// If the first list is linked, a file cannot be read, or there are too many combinations.
    pub fn combinations(&self) -> Result<Vec<ListLine>, ListError> {
        if let (Some(file), false) = (self.only_file(), self.lists[0].is_linked) {
            return Ok(lines_of(file, None)?);
        }
        let mut factors: Vec<Vec<Vec<Name>>> = Vec::new();
        for (position, list) in self.lists.iter().enumerate() {
            if list.is_linked && position == 0 {
                let word = if list.are_files { "::::+" } else { ":::+" };
                return Err(ListError::LinkedToNothing(word.into()));
            }
            let items = list.items()?;
            match factors.last_mut().filter(|_| list.is_linked) {
                // As in GNU parallel, the shorter of two linked lists ends both.
                Some(rows) => {
                    rows.truncate(items.len());
                    rows.iter_mut().zip(items).for_each(|(row, item)| row.push(item));
                }
                None => factors.push(items.into_iter().map(|item| vec![item]).collect()),
            }
        }
        Ok(product(&factors)?)
    }
}

impl List {
    fn items(&self) -> Result<Vec<Name>, ListError> {
        if !self.are_files {
            return Ok(self.words.clone());
        }
        if self.words.is_empty() {
            return Err(ListError::NoFile);
        }
        let mut items = Vec::new();
        for file in &self.words {
            items.extend(lines_of(file, None)?.into_iter().flat_map(|line| line.columns));
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<Name> {
        words.iter().map(|word| Name::from(*word)).collect()
    }

    /// The combinations of a command line, with blanks between columns.
    fn combinations(line: &str) -> Result<Vec<String>, String> {
        let parts = CommandAndLists::of(&names(&line.split(' ').collect::<Vec<_>>()));
        let rows = parts.combinations().map_err(|error| error.to_string())?;
        let text =
            |row: ListLine| row.columns.iter().map(Name::to_string).collect::<Vec<_>>().join(" ");
        Ok(rows.into_iter().map(text).collect())
    }

    #[test]
    fn lists_are_combined_and_linked_as_in_gnu_parallel() {
        let parts = CommandAndLists::of(&names(&["echo", "{}", ":::", "a", "b"]));
        assert_eq!((parts.command.clone(), parts.has_lists()), (names(&["echo", "{}"]), true));
        assert!(!CommandAndLists::of(&names(&["echo", "::"])).has_lists());
        for (line, expected) in [
            ("echo ::: a b", vec!["a", "b"]),
            ("echo ::: a b ::: 1 2", vec!["a 1", "a 2", "b 1", "b 2"]),
            ("echo ::: a b :::+ 1 2", vec!["a 1", "b 2"]),
            ("echo ::: a b c :::+ 1 2", vec!["a 1", "b 2"]),
            ("echo ::: a b :::+ 1 2 ::: x y", vec!["a 1 x", "a 1 y", "b 2 x", "b 2 y"]),
            ("echo ::: a ::: x y :::+ 1 2", vec!["a x 1", "a y 2"]),
            ("echo ::: a b :::", vec![]),
        ] {
            assert_eq!(combinations(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn files_of_items_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        std::fs::write(&file, "a b\n\nc\n").unwrap();
        let words = names(&["echo", "::::", file.to_str().unwrap(), "::::+", "list"]);
        let rows = CommandAndLists::of(&words[..3]).combinations().unwrap();
        assert_eq!(
            rows.iter().map(|row| row.columns.clone()).collect::<Vec<_>>(),
            [names(&["a b"]), names(&["c"])]
        );
        assert!(CommandAndLists::of(&words).combinations().is_err(), "there is no file `list`");
    }

    #[test]
    fn lists_without_an_end_are_refused() {
        let refused = |line: &str| combinations(line).unwrap_err();
        assert!(refused("echo :::+ a").ends_with("write `:::`"));
        assert!(refused("echo ::::+ a").ends_with("write `::::`"));
        assert!(refused("echo ::::").contains(":::: items.txt"));
    }
}
