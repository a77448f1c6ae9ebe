//! The words of the door that was used. Rooms below write a message for both doors: the option of
//! the command line, and behind it what a job file has in its place, as `--memory SIZE (`memory` in
//! a job file)` or as `add -i cut.py, in a job file inputs = ["cut.py"]`. The command that knows
//! which of the two the user has written leaves the other out. All others show both.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// How the user has described the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// By options of `eyas run`.
    CommandLine,
    /// By a job file.
    JobFile,
}

/// The door of this process, if it is known.
static DOOR: OnceLock<Door> = OnceLock::new();

/// Sets the door of this process, once.
pub(crate) fn set(door: Door) {
    let _ = DOOR.set(door);
}

/// A message in the words of the door of this process.
pub(crate) fn in_own_words(message: &str) -> Cow<'_, str> {
    match DOOR.get() {
        Some(door) => door.words(message),
        None => Cow::Borrowed(message),
    }
}

/// What a task wrote to standard error, with the lines that an executor added at its end in the
/// words of the door of this process.
pub(crate) fn advice_in_own_words(stderr: &[u8]) -> Cow<'_, [u8]> {
    const MARK: &[u8] = b"eyas: ";
    let starts =
        |at: &usize| stderr[*at..].starts_with(MARK) && (*at == 0 || stderr[*at - 1] == b'\n');
    let first = (0..stderr.len().saturating_sub(MARK.len())).find(starts);
    let Some((first, advice)) =
        first.and_then(|first| Some((first, std::str::from_utf8(&stderr[first..]).ok()?)))
    else {
        return Cow::Borrowed(stderr);
    };
    match in_own_words(advice) {
        Cow::Borrowed(_) => Cow::Borrowed(stderr),
        Cow::Owned(advice) => Cow::Owned([&stderr[..first], advice.as_bytes()].concat()),
    }
}

/// An option, what a job file has in its place, and both with the words between them: places in a
/// message.
struct BothWords {
    option: Range<usize>,
    key: Range<usize>,
    whole: Range<usize>,
}

impl Door {
    /// The message in the words of this door.
    pub fn words(self, message: &str) -> Cow<'_, str> {
        let mut text = Cow::Borrowed(message);
        let mut from = 0;
        while let Some(both) = both_words(&text, from) {
            let own = match self {
                Door::CommandLine => text[both.option.clone()].to_owned(),
                Door::JobFile => text[both.key.clone()].to_owned(),
            };
            from = both.whole.start + own.len();
            let whole = [&text[..both.whole.start], &own, &text[both.whole.end..]].concat();
            text = Cow::Owned(whole);
        }
        text
    }
}

/// The first place from an offset on where a message has the words of both doors.
fn both_words(text: &str, from: usize) -> Option<BothWords> {
    const BEHIND: [&str; 2] = [" in a job file)", " in job files)"];
    const BETWEEN: &str = ", in a job file ";
    let behind = BEHIND.iter().filter_map(|end| Some((from + text[from..].find(end)?, end.len())));
    let behind = behind.min();
    let between = text[from..].find(BETWEEN).map(|at| from + at);
    if let Some(at) = between.filter(|at| behind.is_none_or(|(behind, _)| *at < behind)) {
        let key = at + BETWEEN.len();
        let ends = ["; ", ". ", "\n"].iter().filter_map(|end| text[key..].find(end));
        let end = ends.min().map_or(text.len(), |end| key + end);
        let option = option_before(text, from, at)?;
        return Some(BothWords { whole: option.start..end, option, key: key..end });
    }
    let (end, length) = behind?;
    let open = text[from..end].rfind(" (").map(|at| from + at)?;
    let option = option_before(text, from, open)?;
    Some(BothWords { whole: option.start..end + length, option, key: open + 2..end })
}

/// The options that end at `end`: `--memory SIZE`, or `--each, --each-line or --array`.
fn option_before(text: &str, from: usize, end: usize) -> Option<Range<usize>> {
    let begins = |at: &usize| matches!(&text.as_bytes()[*at..*at + 2], b" -" | b"(-");
    let mut start = (from..end.saturating_sub(1)).rev().find(begins)? + 1;
    loop {
        let before = text[from..start - 1].trim_end_matches(" or").trim_end_matches(',');
        match before.rfind(' ').map(|at| from + at + 1) {
            Some(word) if text[word..].starts_with('-') => start = word,
            _ => return Some(start..end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_door_has_its_own_words() {
        for (both, line, file) in [
            (
                "ask for more with --memory SIZE (`memory` in job files)",
                "ask for more with --memory SIZE",
                "ask for more with `memory`",
            ),
            (
                "add -i cut.py, in a job file inputs = [\"cut.py\"]; or run in the folder of \
                 submission with --in-place, in a job file in_place = true",
                "add -i cut.py; or run in the folder of submission with --in-place",
                "add inputs = [\"cut.py\"]; or run in the folder of submission with in_place = \
                 true",
            ),
            (
                "give it items with --each, --each-line or --array (`each`, `each_line` or `array` \
                 in a job file), or write x",
                "give it items with --each, --each-line or --array, or write x",
                "give it items with `each`, `each_line` or `array`, or write x",
            ),
            (
                "write -o 'a b={to}', in a job file { file = \"a b\", to = \"x\" }",
                "write -o 'a b={to}'",
                "write { file = \"a b\", to = \"x\" }",
            ),
            (
                "a (--timeout 5s (`timeout` in a job file) helps), --cpus N (`cpus` in a job file)",
                "a (--timeout 5s helps), --cpus N",
                "a (`timeout` helps), `cpus`",
            ),
            (
                "nothing of a job file) here",
                "nothing of a job file) here",
                "nothing of a job file) here",
            ),
            (
                "write it (x in a job file)",
                "write it (x in a job file)",
                "write it (x in a job file)",
            ),
        ] {
            assert_eq!(Door::CommandLine.words(both), line);
            assert_eq!(Door::JobFile.words(both), file);
        }
    }
}
