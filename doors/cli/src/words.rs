//! Words of the command line that need not be UTF-8: names of files, and arguments and variables of
//! programs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use eyas_client::types::{Name, shown};

use crate::error::ValueError;

/// A word of any bytes.
pub(crate) fn name() -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new().map(name_of)
}

/// `NAME=VALUE` of an environment. The name is UTF-8, the value any bytes.
pub(crate) fn variable() -> impl TypedValueParser<Value = (String, Name)> {
    OsStringValueParser::new().try_map(|word| {
        let word = name_of(word);
        let parts = split_once(&word).filter(|(name, _)| !name.is_empty());
        let variable = parts
            .and_then(|(name, value)| Some((str::from_utf8(name).ok()?.to_owned(), value.into())));
        variable.ok_or_else(|| ValueError::Variable(shown(&word).to_string()))
    })
}

/// The parts before and after the first `=`.
pub(crate) fn split_once(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    Some((&word[..at], &word[at + 1..]))
}

fn name_of(word: OsString) -> Name {
    Name::from(word.into_vec())
}
