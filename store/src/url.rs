//! Sources as URLs. `file` URLs hold the path as it is, without percent-encoding, so that every file name on the system
//! has one; the others are what the web says they are.

use std::path::Path;

use crate::error::{StorageError, StorageErrorKind};

/// What a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// A file that every node can reach by this path.
    File(&'a Path),
    /// A page of the web; the whole URL.
    Http(&'a str),
    /// An object of an S3 bucket.
    S3 { bucket: &'a str, key: &'a str },
}

impl<'a> Place<'a> {
    pub fn of(url: &'a str) -> Result<Self, StorageError> {
        let wrong = |what: &str| Err(StorageError::new(StorageErrorKind::Invalid, format!("`{url}` {what}")));
        match url.split_once("://") {
            Some((_, rest)) if rest.contains('\0') => wrong("has a zero byte in it, which no path can have"),
            Some(("file", path)) if !path.starts_with('/') => {
                wrong("has no absolute path: write file:///path, with three slashes")
            }
            Some(("file", path)) if path.ends_with('/') => wrong("names a folder, not a file"),
            Some(("file", path)) => Ok(Place::File(Path::new(path))),
            Some(("http" | "https", rest)) => match rest.split(['/', '?', '#']).next() {
                None | Some("") => wrong("has no host: write http://host/path"),
                Some(_) => Ok(Place::Http(url)),
            },
            Some(("s3", rest)) => match rest.split_once('/') {
                Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
                    // The S3 client would quietly read another key.
                    if key.split('/').any(str::is_empty) || key.trim() != key {
                        return wrong("has an empty part in its key, or a space at an end of it: rename the object");
                    }
                    Ok(Place::S3 { bucket, key })
                }
                _ => wrong("has no bucket or no key: write s3://bucket/key"),
            },
            Some(("eyas", _)) => Err(StorageError::new(
                StorageErrorKind::NotFound,
                format!("`{url}` is kept in the cluster alone, and no executor that has it gave it"),
            )),
            Some(_) => wrong("has a scheme that eyas cannot read: there are file, http, https and s3"),
            None => wrong("is not a URL"),
        }
    }
}

/// The URL of an absolute path, or of a URL itself.
///
/// # Errors
/// `Invalid` for a relative path, which would mean something else on every node, and for a URL that cannot be read.
pub fn url_of(path_or_url: &str) -> Result<String, StorageError> {
    let url = match path_or_url.starts_with('/') {
        true => format!("file://{path_or_url}"),
        false if has_scheme(path_or_url) => path_or_url.to_string(),
        false => {
            let message = format!(
                "`{path_or_url}` is a relative path, which another node would look for elsewhere: write the absolute path, \
                 or a file, http, https or s3 URL"
            );
            return Err(StorageError::new(StorageErrorKind::Invalid, message));
        }
    };
    Place::of(&url)?;
    Ok(url)
}

fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_become_urls() {
        for (given, url) in [
            ("/data/a b\n?#%é.fits", "file:///data/a b\n?#%é.fits"),
            ("file:///x", "file:///x"),
            ("http://h/x?y=1#z", "http://h/x?y=1#z"),
            ("s3://b/k/l", "s3://b/k/l"),
            ("/a://b", "file:///a://b"),
        ] {
            assert_eq!(url_of(given).unwrap(), url);
        }
        for (wrong, says) in [
            ("a/b", "relative"),
            ("./x://y", "relative"),
            ("", "relative"),
            ("file://host/x", "three slashes"),
            ("/data/", "folder"),
            ("ftp://x/y", "there are file"),
            ("s3://bucket", "s3://bucket/key"),
            ("s3://bucket/a//b", "empty part"),
            ("http:///x", "host"),
            ("/a\0b", "zero byte"),
        ] {
            let error = url_of(wrong).unwrap_err();
            assert_eq!(error.kind, StorageErrorKind::Invalid);
            assert!(error.message.contains(says), "{wrong}: {error}");
        }
    }
}
