//! Words of the command line that need not be UTF-8: names of files, and arguments and variables of
//! programs; and such words in text that a shell or a program reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use eyas_client::types::{DeliverWhen, Name, shown};

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

/// A file that tasks write, where it goes, and after which ends of its task:
/// `FILE[=DESTINATION][,when=WHEN]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputWord {
    pub file: Name,
    pub to: Option<Name>,
    pub when: DeliverWhen,
}

/// An output.
pub(crate) fn output() -> impl TypedValueParser<Value = OutputWord> {
    OsStringValueParser::new().try_map(|word| output_of(&name_of(word)))
}

/// What stands before the time of delivery.
const WHEN: &[u8] = b",when=";

fn output_of(word: &Name) -> Result<OutputWord, ValueError> {
    let at = word.windows(WHEN.len()).rposition(|part| part == WHEN);
    let (place, when) = match at {
        Some(at) => (&word[..at], Some(&word[at + WHEN.len()..])),
        None => (&word[..], None),
    };
    let when = match when {
        Some(when) => {
            DeliverWhen::of_word(when).ok_or_else(|| ValueError::When(shown(when).to_string()))?
        }
        None => DeliverWhen::Success,
    };
    Ok(match split_once(place) {
        Some((file, to)) => OutputWord { file: file.into(), to: Some(to.into()), when },
        None => OutputWord { file: place.into(), to: None, when },
    })
}

/// The parts before and after the first `=`.
fn split_once(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    Some((&word[..at], &word[at + 1..]))
}

fn name_of(word: OsString) -> Name {
    Name::from(word.into_vec())
}

/// A command as a shell reads it.
pub(crate) fn command_line(words: &[Name]) -> Vec<u8> {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(&b' ')
}

/// A word as a shell reads it: in quotes if it needs them.
pub(crate) fn shell_word(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%{}".contains(byte);
    // Shells expand `{a,b}` and `{1..9}`.
    let expands = word.contains(&b'{') && word.iter().any(|byte| b",.".contains(byte));
    if !word.is_empty() && word.iter().all(is_plain) && !expands {
        return word.to_vec();
    }
    let escaped = word.iter().flat_map(|byte| match byte {
        b'\'' => &b"'\\''"[..],
        byte => std::slice::from_ref(byte),
    });
    b"'".iter().chain(escaped).chain(b"'").copied().collect()
}

/// A field of a CSV file (RFC 4180).
pub(crate) fn field_of_csv(text: &[u8]) -> Vec<u8> {
    if !text.iter().any(|byte| b",\"\r\n".contains(byte)) {
        return text.to_vec();
    }
    let doubled = text.iter().flat_map(|byte| match byte {
        b'"' => &b"\"\""[..],
        byte => std::slice::from_ref(byte),
    });
    b"\"".iter().chain(doubled).chain(b"\"").copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_a_destination_and_a_time() {
        use DeliverWhen::{Always, Failure, Success};
        for (word, file, to, when) in [
            ("log", "log", None, Success),
            ("log={}.txt", "log", Some("{}.txt"), Success),
            ("log,when=failure", "log", None, Failure),
            ("log=a=b,when=always", "log", Some("a=b"), Always),
            ("log=a,b", "log", Some("a,b"), Success),
        ] {
            let (file, to) = (file.into(), to.map(Name::from));
            assert_eq!(output_of(&word.into()).unwrap(), OutputWord { file, to, when });
        }
        let refused = output_of(&"log,when=on_failure".into()).unwrap_err().to_string();
        assert!(refused.contains("`on_failure`") && refused.contains("always"), "{refused}");
    }

    #[test]
    fn words_are_quoted_for_shells_and_tables() {
        for (word, quoted) in [
            ("a-b/c.txt", "a-b/c.txt"),
            ("{}", "{}"),
            ("{1}/{2}", "{1}/{2}"),
            ("{a,b}", "'{a,b}'"),
            ("{1..9}", "'{1..9}'"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$x;*", "'$x;*'"),
        ] {
            assert_eq!(shell_word(word.as_bytes()), quoted.as_bytes());
        }
        for (text, field) in
            [("a b", "a b"), ("a,b", "\"a,b\""), ("say \"x\"", "\"say \"\"x\"\"\"")]
        {
            assert_eq!(field_of_csv(text.as_bytes()), field.as_bytes());
        }
    }
}
