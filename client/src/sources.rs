//! Where a job's items come from: globs, lines, number ranges.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Read};
use std::path::Path;

use thiserror::Error;

/// Why items cannot be had.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A pattern meets nothing.
    #[error("`{0}` names no file: is the path right, and the pattern in quotes?")]
    NoMatch(String),
    /// A pattern is none.
    #[error("`{pattern}` is not a glob: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong in it.
        why: String,
    },
    /// A folder or file cannot be read.
    #[error("cannot read {what}: {why}")]
    Unreadable {
        /// Which.
        what: String,
        /// Why not.
        why: String,
    },
    /// A name that is not UTF-8.
    #[error("the name {0} is not valid UTF-8; rename the file")]
    Name(String),
    /// A range that is none.
    #[error("`{0}` is not a range: write FIRST-LAST, or FIRST-LAST:STEP, for example 1-100")]
    Range(String),
    /// A range with more numbers than a job has tasks.
    #[error("`{0}` has more than {MAX_NUMBERS} numbers: submit it in parts")]
    TooMany(String),
}

/// Most numbers of one range; a job has no more tasks.
const MAX_NUMBERS: u64 = 50_000_000;

/// One line of a list, cut in columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Its columns; one, where no separator is given.
    pub columns: Vec<String>,
}

/// The files that a pattern names, in order of name; URLs and names that exist as they are stand for themselves.
///
/// # Errors
/// If there are none, or a folder on the way cannot be read.
pub fn files_of(pattern: &str) -> Result<Vec<String>, SourceError> {
    if pattern.contains("://") || Path::new(pattern).exists() {
        return Ok(vec![pattern.to_owned()]);
    }
    let bad = |e: glob::PatternError| SourceError::Pattern { pattern: pattern.to_owned(), why: e.msg.to_owned() };
    // As a shell does it: `*` does not meet hidden files.
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let mut files = Vec::new();
    for path in glob::glob_with(pattern, options).map_err(bad)? {
        let path = path.map_err(|e| SourceError::Unreadable {
            what: e.path().display().to_string(),
            why: e.error().to_string(),
        })?;
        if !path.is_dir() {
            let name = path.into_os_string().into_string();
            files.push(name.map_err(|name| SourceError::Name(format!("{name:?}")))?);
        }
    }
    match files.is_empty() {
        true => Err(SourceError::NoMatch(pattern.to_owned())),
        false => Ok(files),
    }
}

/// The lines of a file, or of standard input for `-`. Empty lines are left out.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub fn lines_of(file: &str, separator: Option<&str>) -> Result<Vec<Line>, SourceError> {
    let unreadable = |e: io::Error| SourceError::Unreadable { what: file.to_owned(), why: e.to_string() };
    let reader: Box<dyn Read> = match file {
        "-" => Box::new(io::stdin()),
        _ => Box::new(std::fs::File::open(file).map_err(unreadable)?),
    };
    let mut lines = Vec::new();
    for (place, line) in io::BufReader::new(reader).lines().enumerate() {
        let number = place + 1;
        let line = line.map_err(|e| unreadable(io::Error::new(e.kind(), format!("line {number}: {e}"))))?;
        let line = line.strip_suffix('\r').unwrap_or(&line);
        if !line.is_empty() {
            let columns = match separator {
                Some(separator) => line.split(separator).map(str::to_owned).collect(),
                None => vec![line.to_owned()],
            };
            lines.push(Line { number, columns });
        }
    }
    Ok(lines)
}

/// The numbers of `FIRST-LAST`, `FIRST-LAST:STEP`, or several of these with commas; each once, in order.
///
/// # Errors
/// If it is not written so.
pub fn array(text: &str) -> Result<Vec<u64>, SourceError> {
    let mut numbers = BTreeSet::new();
    for (first, last, step) in ranges(text)? {
        numbers.extend((first..=last).step_by(step));
    }
    Ok(numbers.into_iter().collect())
}

/// Whether [`array()`] can read it, without making the numbers.
///
/// # Errors
/// If it is not written so.
pub fn check_array(text: &str) -> Result<(), SourceError> {
    ranges(text).map(drop)
}

/// First, last and step of each part.
fn ranges(text: &str) -> Result<Vec<(u64, u64, usize)>, SourceError> {
    let wrong = || SourceError::Range(text.to_owned());
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
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
        if (last - first) / step >= MAX_NUMBERS {
            return Err(SourceError::TooMany(text.to_owned()));
        }
        ranges.push((first, last, usize::try_from(step).map_err(|_| wrong())?));
    }
    Ok(ranges)
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
        let at = |name: &str| format!("{}/{name}", folder.path().display());
        assert_eq!(files_of(&at("*.fits")).unwrap(), [at("a.fits"), at("b.fits"), at("odd [1].fits")]);
        assert_eq!(files_of(&at("odd [1].fits")).unwrap(), [at("odd [1].fits")]);
        assert_eq!(files_of("s3://bucket/*").unwrap(), ["s3://bucket/*"]);
        assert!(matches!(files_of(&at("*.png")), Err(SourceError::NoMatch(_))));
        assert!(matches!(files_of(&at("[")), Err(SourceError::Pattern { .. })));
    }

    #[test]
    fn lines_keep_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        std::fs::write(&file, "a,1\n\nb,2\r\n c ,").unwrap();
        let lines = lines_of(file.to_str().unwrap(), Some(",")).unwrap();
        let line = |number, columns: [&str; 2]| Line { number, columns: columns.map(str::to_owned).to_vec() };
        assert_eq!(lines, [line(1, ["a", "1"]), line(3, ["b", "2"]), line(4, [" c ", ""])]);
        std::fs::write(&file, b"ok\n\xff\n").unwrap();
        assert!(lines_of(file.to_str().unwrap(), None).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn ranges_are_read_as_written() {
        assert_eq!(array("3-5,1,4").unwrap(), [1, 3, 4, 5]);
        assert_eq!(array("0-10:5").unwrap(), [0, 5, 10]);
        for wrong in ["", "a", "5-3", "1-9:0", "-3"] {
            assert!(array(wrong).is_err(), "{wrong}");
        }
    }
}
