//! Where a job's items come from: globs, lines, number ranges.

use std::io::{self, BufRead, Read};
use std::path::Path;

use eyas_store::{Glob, GlobError, name_of, path_of};
use eyas_types::task::MAX_TASKS;
use eyas_types::{Name, NumberRange, Numbers};
use thiserror::Error;

/// Why the items of a job cannot be listed.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No file matches a pattern.
    #[error("no file matches `{pattern}`: {why}", pattern = .0, why = why_no_match(.0))]
    NoMatch(Name),
    /// The text is not a pattern.
    #[error("`{pattern}` is not a glob: {why}")]
    Pattern {
        /// The pattern.
        pattern: Name,
        /// The mistake in the pattern.
        why: String,
    },
    /// The list does not exist.
    #[error("there is no file {0} with the lines: check the path, or write `-` for standard input")]
    NoList(Name),
    /// A folder or file cannot be read.
    #[error("cannot read {what}: {why}")]
    Unreadable {
        /// Path of the folder or file.
        what: Name,
        /// The error of the system.
        why: String,
    },
    /// A folder of the pattern's path cannot be read.
    #[error(transparent)]
    Folder(GlobError),
    /// Persistent storage cannot list objects.
    #[error(transparent)]
    Storage(#[from] eyas_store::StorageError),
    /// Kept outputs of a job cannot be listed.
    #[error(transparent)]
    Kept(#[from] crate::kept_error::KeptError),
    /// The text is not a range of numbers.
    #[error("`{0}` is not a range: write FIRST-LAST or FIRST-LAST:STEP, such as 1-100 or 0-1:0.25")]
    Range(String),
    /// Lists have more combinations than a job can have tasks.
    #[error(
        "the lists have {0} combinations, and a job can have at most {MAX_TASKS} tasks: submit \
         it in parts"
    )]
    Combinations(u128),
    /// There are more items than a job can have tasks.
    #[error("`{0}` has more than {MAX_TASKS} items: submit it in parts")]
    TooMany(String),
    /// The list begins with the byte order mark of UTF-16.
    #[error("{0} is text in UTF-16: convert it first, with `iconv -f UTF-16 -t UTF-8 {0}`")]
    Utf16(Name),
    /// A line is too long for a message.
    #[error(
        "{file}, line {line}: the line is longer than {MAX_LINE_BYTES} bytes: put the data in a \
         file, and use the file's name as the item"
    )]
    LongLine {
        /// Path of the file.
        file: Name,
        /// Number of the line, from 1.
        line: usize,
    },
}

/// Why a pattern matches no file, as far as the pattern tells, and what to do.
fn why_no_match(pattern: &Name) -> String {
    let text = pattern.to_string();
    if text.starts_with('~') {
        let home = std::env::var("HOME").ok().filter(|_| text.starts_with("~/"));
        let path = home.map(|home| format!("{home}{}", &text[1..]));
        return format!(
            "`~` is for the shell, which leaves it alone in quotes: write the path{}",
            path.map_or_else(String::new, |path| format!(", `{path}`"))
        );
    }
    if let Some(alternatives) = without_braces(&text) {
        let named: Vec<_> = alternatives.iter().map(|text| format!("`{text}`")).collect();
        return format!(
            "braces are for the shell, which leaves them alone in quotes: name each pattern, {}",
            named.join(" and ")
        );
    }
    if text.contains('$') {
        return "`$` is for the shell, which leaves it alone in single quotes: write the path, or \
                use double quotes"
            .into();
    }
    "check the path; a pattern must be in quotes, so that the shell leaves it alone".into()
}

/// The patterns that a shell would make of the first braces with a comma: `a{1,2}.txt` -> `a1.txt`
/// and `a2.txt`.
fn without_braces(text: &str) -> Option<Vec<String>> {
    let (before, rest) = text.split_once('{')?;
    let (inside, after) = rest.split_once('}')?;
    let is_list = inside.contains(',') && !inside.contains('{');
    is_list.then(|| inside.split(',').map(|part| format!("{before}{part}{after}")).collect())
}

/// Maximum length of a line that is an item. The dispatcher gets a line in one message.
pub(crate) const MAX_LINE_BYTES: usize = 64_000_000;

/// The byte order mark in UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// One line of a list, split into columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLine {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Its columns; one column without a separator.
    pub columns: Vec<Name>,
}

/// The files that match a pattern, in order of name. URLs, and names of existing files, stand for
/// themselves.
///
/// # Errors
/// If no file matches, or a folder cannot be read.
pub fn files_of(pattern: &Name) -> Result<Vec<Name>, SourceError> {
    if pattern.is_url() || path_of(pattern).exists() {
        return Ok(vec![pattern.clone()]);
    }
    // As in a shell, `*` does not match hidden files.
    let paths = Glob::parse(pattern).and_then(|glob| glob.find_files(Path::new(""), false));
    let paths = paths.map_err(|e| wrong_pattern(pattern, e))?;
    let files: Vec<_> = paths.into_iter().map(name_of).collect();
    if files.is_empty() {
        return Err(SourceError::NoMatch(pattern.clone()));
    }
    Ok(files)
}

pub(crate) fn wrong_pattern(pattern: &Name, error: GlobError) -> SourceError {
    match error {
        GlobError::Pattern(why) => {
            SourceError::Pattern { pattern: pattern.clone(), why: why.to_owned() }
        }
        e @ GlobError::Unreadable { .. } => SourceError::Folder(e),
    }
}

/// The lines of a file, or of standard input for `-`. Empty lines are left out.
///
/// # Errors
/// If the file cannot be read.
pub fn lines_of(file: &Name, separator: Option<&[u8]>) -> Result<Vec<ListLine>, SourceError> {
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => SourceError::NoList(file.clone()),
        _ => SourceError::Unreadable { what: file.clone(), why: e.to_string() },
    };
    let reader: Box<dyn Read> = match file.as_bytes() {
        b"-" => Box::new(io::stdin()),
        _ => Box::new(std::fs::File::open(path_of(file)).map_err(unreadable)?),
    };
    let mut lines = Vec::new();
    let mut reader = io::BufReader::new(reader);
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        // One byte more than allowed is enough to know that the line is too long.
        let longest = MAX_LINE_BYTES as u64 + 1;
        if (&mut reader).take(longest).read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            break;
        }
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if number == 1 && (line.starts_with(b"\xff\xfe") || line.starts_with(b"\xfe\xff")) {
            return Err(SourceError::Utf16(file.clone()));
        }
        // Some editors write the mark before UTF-8, too.
        let line =
            if number == 1 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        if line.len() > MAX_LINE_BYTES {
            return Err(SourceError::LongLine { file: file.clone(), line: number });
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            if lines.len() == MAX_TASKS {
                return Err(SourceError::TooMany(file.to_string()));
            }
            let columns = match separator {
                Some(separator) => split(line, separator),
                None => vec![line.into()],
            };
            lines.push(ListLine { number, columns });
        }
    }
    Ok(lines)
}

/// The texts between separators.
fn split(mut line: &[u8], separator: &[u8]) -> Vec<Name> {
    let mut columns = Vec::new();
    while let Some(at) = line.windows(separator.len().max(1)).position(|part| part == separator) {
        columns.push(line[..at].into());
        line = &line[at + separator.len()..];
    }
    columns.push(line.into());
    columns
}

/// The numbers of `FIRST-LAST`, `FIRST-LAST:STEP`, or several ranges with commas between them. A
/// number that appears twice counts once.
///
/// # Errors
/// If the text is not a range, or has more numbers than a job can have tasks.
pub fn array(text: &str) -> Result<Numbers, SourceError> {
    let wrong = || SourceError::Range(text.to_owned());
    let number = |text: &str| text.trim().parse().map_err(|_| wrong());
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (range, step) = match part.split_once(':') {
            Some((range, step)) => (range, number(step)?),
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, number(range)?),
        };
        if first > last || step == 0 {
            return Err(wrong());
        }
        ranges.push(NumberRange { first, last, step });
    }
    let numbers = Numbers(ranges);
    if numbers.count_up_to(MAX_TASKS) > MAX_TASKS {
        return Err(SourceError::TooMany(text.to_owned()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_sorted_and_names_that_exist_stand_for_themselves() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.fits", "a.fits", ".hidden.fits", "odd [1].fits"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("c.fits")).unwrap();
        let odd = folder.path().join(path_of(b"odd\xff.dat"));
        std::fs::write(&odd, "").unwrap();
        let at = |name: &str| Name::from(format!("{}/{name}", folder.path().display()));
        assert_eq!(
            files_of(&at("*.fits")).unwrap(),
            [at("a.fits"), at("b.fits"), at("odd [1].fits")]
        );
        assert_eq!(files_of(&at("odd [1].fits")).unwrap(), [at("odd [1].fits")]);
        assert_eq!(files_of(&at("odd*.dat")).unwrap(), [name_of(odd)]);
        assert_eq!(files_of(&"s3://bucket/*".into()).unwrap(), ["s3://bucket/*"]);
        assert!(matches!(files_of(&at("*.png")), Err(SourceError::NoMatch(_))));
        assert!(matches!(files_of(&at("[")), Err(SourceError::Pattern { .. })));
    }

    #[test]
    fn what_only_a_shell_expands_is_said() {
        let home = std::env::var("HOME").expect("tests have a home");
        for (pattern, says) in [
            (
                "~/x/*",
                format!(
                    "`~` is for the shell, which leaves it alone in quotes: write the path, \
                     `{home}/x/*`"
                ),
            ),
            ("~other/*", "`~` is for the shell, which leaves it alone in quotes: write".into()),
            (
                "in/{a,b}.txt",
                "braces are for the shell, which leaves them alone in quotes: name each pattern, \
                 `in/a.txt` and `in/b.txt`"
                    .into(),
            ),
            ("$HOME/*.txt", "`$` is for the shell, which leaves it alone in single quotes".into()),
            ("in/{a}*.txt", "check the path; a pattern must be in quotes".into()),
        ] {
            let said = SourceError::NoMatch(pattern.into()).to_string();
            assert!(said.starts_with(&format!("no file matches `{pattern}`: {says}")), "{said}");
        }
    }

    #[test]
    fn lines_keep_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        let missing = lines_of(&name_of(&file), None).unwrap_err().to_string();
        assert!(
            missing
                .ends_with("list with the lines: check the path, or write `-` for standard input")
        );
        std::fs::write(&file, "a,1\n\nb,2\r\n c ,").unwrap();
        let lines = lines_of(&name_of(&file), Some(b",")).unwrap();
        let line = |number, columns: [&str; 2]| ListLine {
            number,
            columns: columns.map(Name::from).to_vec(),
        };
        assert_eq!(lines, [line(1, ["a", "1"]), line(3, ["b", "2"]), line(4, [" c ", ""])]);
        std::fs::write(&file, "\u{feff}a,1\n\u{feff}b,2\n").unwrap();
        let lines = lines_of(&name_of(&file), Some(b",")).unwrap();
        assert_eq!(
            lines,
            [line(1, ["a", "1"]), line(2, ["\u{feff}b", "2"])],
            "a mark is only at the beginning"
        );
        for utf16 in [b"\xff\xfea\0\n\0", b"\xfe\xff\0a\0\n"] {
            std::fs::write(&file, utf16).unwrap();
            assert!(lines_of(&name_of(&file), None).unwrap_err().to_string().contains("iconv"));
        }
        std::fs::write(&file, b"ok\n\xff\n").unwrap();
        let odd = ListLine { number: 2, columns: vec![Name::from(&b"\xff"[..])] };
        assert_eq!(lines_of(&name_of(&file), None).unwrap()[1], odd);
        std::fs::write(&file, "a::b:::c").unwrap();
        let columns: Vec<_> = ["a", "b", ":c"].map(Name::from).to_vec();
        assert_eq!(lines_of(&name_of(&file), Some(b"::")).unwrap()[0].columns, columns);
        for (longest, is_possible) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
            std::fs::write(&file, [b"short\n", &vec![b'x'; longest][..], b"\nlast"].concat())
                .unwrap();
            match lines_of(&name_of(&file), None) {
                Ok(lines) => assert_eq!((is_possible, lines.len()), (true, 3)),
                Err(error) => {
                    assert!(!is_possible && error.to_string().contains("list, line 2: "), "{error}")
                }
            }
        }
    }

    #[test]
    fn ranges_are_read_as_written() {
        let numbers = |text: &str| array(text).unwrap().iter().collect::<Vec<_>>();
        assert_eq!(numbers("3-5,1,4"), [1, 3, 4, 5]);
        assert_eq!(numbers("0-10:5"), [0, 5, 10]);
        assert_eq!(array(&format!("1-{MAX_TASKS},7")).unwrap().iter().count(), MAX_TASKS);
        for many in
            [format!("1-{MAX_TASKS},0"), format!("0-{MAX_TASKS}"), "1-18446744073709551615".into()]
        {
            assert!(array(&many).unwrap_err().to_string().contains("submit it in parts"), "{many}");
        }
        for wrong in ["", "a", "5-3", "1-9:0", "-3"] {
            assert!(array(wrong).is_err(), "{wrong}");
        }
    }
}
