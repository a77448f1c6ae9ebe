//! Places to which outputs go, as far as their names say whether a task can write there. The same
//! rules hold for job files, commands and Python, and a job is refused by them before it runs.

use thiserror::Error;

use crate::dfs::{FileName, FileNameProblem};
use crate::name::scheme_of;
use crate::object::is_kept_name;
use crate::s3::{S3UrlProblem, bucket_and_key};

/// Why nothing can be written to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlaceProblem {
    /// It names no file of the cluster.
    #[error("names no file: {0}")]
    File(FileNameProblem),
    /// It names no object of S3.
    #[error("{0}")]
    S3(S3UrlProblem),
    /// It has the form of the names of kept outputs.
    #[error(
        "has two slashes as names of kept outputs: a file of the cluster is written with three, \
         eyas:///PATH"
    )]
    Kept,
    /// It is a relative path of a `file` URL.
    #[error("has no absolute path: write file:///path, with three slashes")]
    Relative,
    /// It is a URL of another scheme.
    #[error(
        "has a scheme to which eyas cannot write: name a path, s3://bucket/key or eyas:///path"
    )]
    Scheme,
}

impl PlaceProblem {
    /// The rule that a place breaks, a path or a URL. A URL that is no text fails when the task
    /// writes it.
    pub fn of(place: &[u8]) -> Option<Self> {
        let (scheme, rest) = scheme_of(place)?;
        if is_kept_name(place) {
            return Some(PlaceProblem::Kept);
        }
        match scheme {
            b"file" => (!rest.starts_with(b"/")).then_some(PlaceProblem::Relative),
            b"eyas" => {
                let name = core::str::from_utf8(rest).ok()?;
                name.parse::<FileName>().err().map(|error| PlaceProblem::File(error.problem))
            }
            b"s3" => bucket_and_key(core::str::from_utf8(rest).ok()?).err().map(PlaceProblem::S3),
            // A path may have `://` in it, too.
            _ => (scheme.iter().all(u8::is_ascii_alphanumeric) && !scheme.is_empty())
                .then_some(PlaceProblem::Scheme),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_cannot_be_written_to_are_known_by_their_names() {
        for place in ["a/b", "/a://b", "./x://y", "file:///x", "s3://b/k", "eyas:///x", "x"] {
            assert_eq!(PlaceProblem::of(place.as_bytes()), None, "{place}");
        }
        for (place, problem) in [
            ("s3://b/a/./k", PlaceProblem::S3(S3UrlProblem::Key)),
            ("s3://b", PlaceProblem::S3(S3UrlProblem::Incomplete)),
            ("eyas:///../x", PlaceProblem::File(FileNameProblem::Relative)),
            ("file://host/x", PlaceProblem::Relative),
            ("http://h/x", PlaceProblem::Scheme),
            ("gs://b/k", PlaceProblem::Scheme),
        ] {
            assert_eq!(PlaceProblem::of(place.as_bytes()), Some(problem), "{place}");
        }
    }
}
