//! URLs of sources. `file` URLs contain the path without percent-encoding, so that every file name
//! has a URL. All other URLs follow the standards of the web.

use std::path::Path;

use eyas_types::dfs::FileName;
use eyas_types::name::scheme_of;
use eyas_types::named::check_name;
use eyas_types::object::is_kept_name;
use eyas_types::s3::bucket_and_key;
use eyas_types::{Name, shown};

use crate::error::{StorageError, StorageErrorKind};
use crate::glob::path_of;

/// A parsed URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceUrl<'a> {
    /// The path of a file, which is the same on every node.
    File(&'a Path),
    /// The URL of a web page.
    Http(&'a str),
    /// An object in an S3 bucket.
    S3 { bucket: &'a str, key: &'a str },
    /// The name of a file of the cluster.
    Cluster(&'a str),
    /// The name of a file that has several places.
    Named(&'a str),
}

impl<'a> SourceUrl<'a> {
    pub fn of(url: &'a [u8]) -> Result<Self, StorageError> {
        let wrong = |what: &str| Err(invalid(url, what));
        let Some((scheme, rest)) = scheme_of(url) else { return wrong("is not a URL") };
        if rest.contains(&0) {
            return wrong("has a zero byte in it, which no path can have");
        }
        match scheme {
            b"file" if !rest.starts_with(b"/") => {
                wrong("has no absolute path: write file:///path, with three slashes")
            }
            b"file" if rest.ends_with(b"/") => wrong("names a folder, not a file"),
            b"file" => Ok(SourceUrl::File(path_of(rest))),
            b"http" | b"https" => {
                let (url, rest) = (text_of(url)?, text_of(rest)?);
                match rest.split(['/', '?', '#']).next() {
                    None | Some("") => wrong("has no host: write http://host/path"),
                    Some(_) => Ok(SourceUrl::Http(url)),
                }
            }
            b"s3" => {
                let (bucket, key) = bucket_and_key(&text_of(url)?[b"s3://".len()..])
                    .map_err(|problem| invalid(url, &problem.to_string()))?;
                Ok(SourceUrl::S3 { bucket, key })
            }
            b"lfn" => {
                check_name(&Name::from(rest)).map_err(|why| invalid(url, &format!(": {why}")))?;
                Ok(SourceUrl::Named(text_of(rest)?))
            }
            b"eyas" if is_kept_name(url) => Err(StorageError::new(
                StorageErrorKind::NotFound,
                format!(
                    "`{}` is a kept output, and no executor could send it. A file of the cluster \
                     is written with three slashes: eyas:///PATH",
                    shown(url)
                ),
            )),
            b"eyas" => {
                let name = &text_of(url)?[b"eyas://".len()..];
                name.parse::<FileName>()
                    .map_err(|error| invalid(url, &format!("names no file: {}", error.problem)))?;
                Ok(SourceUrl::Cluster(name))
            }
            _ => wrong(
                "has a scheme that eyas cannot read: there are file, http, https, s3, eyas and lfn",
            ),
        }
    }
}

fn invalid(url: &[u8], what: &str) -> StorageError {
    StorageError::new(StorageErrorKind::Invalid, format!("`{}` {what}", shown(url)))
}

/// A URL as text. Only `file` URLs may be other bytes.
pub(crate) fn text_of(url: &[u8]) -> Result<&str, StorageError> {
    str::from_utf8(url).map_err(|_| {
        invalid(
            url,
            "is not valid UTF-8, as names outside a file system must be: use another name there",
        )
    })
}

/// The URL of an absolute path, or of a URL itself.
///
/// # Errors
/// `Invalid` for a relative path, which would have another meaning on every node, and for a
/// malformed URL.
pub fn url_of(path_or_url: &(impl AsRef<[u8]> + ?Sized)) -> Result<Name, StorageError> {
    let given = path_or_url.as_ref();
    let url = if given.starts_with(b"/") {
        Name::concat(&[b"file://", given])
    } else if has_scheme(given) {
        Name::from(given)
    } else {
        let what = "is a relative path, which another node would look for elsewhere: write the \
                    absolute path, or a file, http, https, s3, eyas or lfn URL";
        return Err(invalid(given, what));
    };
    SourceUrl::of(&url)?;
    Ok(url)
}

fn has_scheme(text: &[u8]) -> bool {
    scheme_of(text).is_some_and(|(scheme, _)| {
        scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
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
            ("s3://b.c-d_e/.../..k/k.", "s3://b.c-d_e/.../..k/k."),
            ("eyas:///data/a b.csv", "eyas:///data/a b.csv"),
            ("lfn://survey/a.fits", "lfn://survey/a.fits"),
            ("/a://b", "file:///a://b"),
        ] {
            assert_eq!(url_of(given).unwrap(), url);
        }
        assert_eq!(url_of(b"/odd\xff".as_slice()).unwrap(), Name::from(&b"file:///odd\xff"[..]));
        let error = url_of(b"s3://bucket/odd\xff".as_slice()).unwrap_err();
        assert!(error.message.contains("`s3://bucket/odd\\xff` is not valid UTF-8"), "{error}");
        for (wrong, says) in [
            ("a/b", "relative"),
            ("./x://y", "relative"),
            ("", "relative"),
            ("file://host/x", "three slashes"),
            ("/data/", "folder"),
            ("ftp://x/y", "there are file"),
            ("s3://bucket", "s3://bucket/key"),
            ("s3://bucket/a//b", "empty part"),
            ("s3://bucket/a/../k", "`..` in its key"),
            ("s3://bucket/./k", "`..` in its key"),
            ("s3://bucket/k/..", "`..` in its key"),
            ("s3://../k", "names no bucket"),
            ("s3://bucket?x/k", "names no bucket"),
            ("s3://me@bucket/k", "names no bucket"),
            ("http:///x", "host"),
            ("/a\0b", "zero byte"),
            ("lfn://", "cannot be the name"),
            ("lfn://a b", "cannot be the name"),
            ("eyas:///", "it is empty"),
            ("eyas:///a/../b", "are not resolved"),
        ] {
            let error = url_of(wrong).unwrap_err();
            assert_eq!(error.kind, StorageErrorKind::Invalid);
            assert!(error.message.contains(says), "{wrong}: {error}");
        }
    }
}
