//! Words of the command line that may be any bytes: names of files and what programs are given.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use eyas_client::types::{Name, shown};

/// A word, whatever its bytes are.
pub(crate) fn name() -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new().map(name_of)
}

/// `NAME=VALUE` of an environment. The name is text.
pub(crate) fn variable() -> impl TypedValueParser<Value = (String, Name)> {
    OsStringValueParser::new().try_map(|word| {
        let word = name_of(word);
        let parts = split_once(&word).filter(|(name, _)| !name.is_empty());
        let variable = parts.and_then(|(name, value)| Some((str::from_utf8(name).ok()?.to_owned(), value.into())));
        variable.ok_or_else(|| format!("`{}` is not NAME=VALUE", shown(&word)))
    })
}

/// What stands before and after the first `=`.
pub(crate) fn split_once(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    Some((&word[..at], &word[at + 1..]))
}

fn name_of(word: OsString) -> Name {
    Name::from(word.into_vec())
}
