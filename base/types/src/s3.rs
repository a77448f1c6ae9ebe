//! URLs of objects in S3 buckets, `s3://bucket/key`. Inputs and outputs have them, so the rules
//! stand here once: a submission is refused for the same keys that storage would refuse.

use thiserror::Error;

/// Why a URL names no object in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum S3UrlProblem {
    /// There is no bucket or no key.
    #[error("has no bucket or no key: write s3://bucket/key")]
    Incomplete,
    /// The S3 client, or the parser of its URLs, would silently use another key.
    #[error(
        "has an empty part, `.` or `..` in its key, or a space at an end of it, which web \
         addresses cannot carry: use another name"
    )]
    Key,
    /// The S3 client would silently use another bucket.
    #[error("names no bucket: names of buckets have letters, digits, `-`, `_`, `:` and `.`")]
    Bucket,
}

/// The bucket and the key of what follows `s3://` in a URL.
///
/// # Errors
/// The rule that the URL breaks.
pub fn bucket_and_key(rest: &str) -> Result<(&str, &str), S3UrlProblem> {
    let (bucket, key) = rest.split_once('/').ok_or(S3UrlProblem::Incomplete)?;
    if bucket.is_empty() || key.is_empty() {
        return Err(S3UrlProblem::Incomplete);
    }
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) || key.trim() != key {
        return Err(S3UrlProblem::Key);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if !bucket.bytes().all(is_plain) || bucket.bytes().all(|byte| byte == b'.') {
        return Err(S3UrlProblem::Bucket);
    }
    Ok((bucket, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_the_storage_will_use() {
        assert_eq!(bucket_and_key("b.c-d_e/.../..k/k."), Ok(("b.c-d_e", ".../..k/k.")));
        for (rest, problem) in [
            ("b", S3UrlProblem::Incomplete),
            ("b/", S3UrlProblem::Incomplete),
            ("/k", S3UrlProblem::Incomplete),
            ("b/a/./k", S3UrlProblem::Key),
            ("b/../k", S3UrlProblem::Key),
            ("b/a//k", S3UrlProblem::Key),
            ("b/k ", S3UrlProblem::Key),
            ("b c/k", S3UrlProblem::Bucket),
            ("../k", S3UrlProblem::Bucket),
        ] {
            assert_eq!(bucket_and_key(rest), Err(problem), "{rest}");
        }
    }
}
