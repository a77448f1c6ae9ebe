//! Paths in the words of commands: whether a word names a file of the submission.

use std::collections::HashMap;
use std::path::Component;

use eyas_store::path_of;
use eyas_types::{Name, Numbers};

use crate::draft::Draft;

/// The input that a word names, in any way to write its path.
pub(super) fn declared_as(
    draft: &Draft,
    declared: &HashMap<Name, u32>,
    word: &Name,
) -> Option<u32> {
    if declared.is_empty() || word.is_empty() {
        return None;
    }
    declared.get(&draft.url(word).ok()?).copied()
}

/// Whether a number of an array names an input.
pub(super) fn declares_number(
    draft: &Draft,
    declared: &HashMap<Name, u32>,
    numbers: &Numbers,
) -> bool {
    let is_number = |number: u64| {
        numbers.0.iter().any(|range| {
            (range.first..=range.last).contains(&number)
                && (number - range.first).is_multiple_of(range.step.max(1))
        })
    };
    declared.keys().any(|url| {
        let last =
            url.rsplit(|byte| *byte == b'/').next().and_then(|last| std::str::from_utf8(last).ok());
        let number: Option<u64> =
            last.and_then(|last| last.parse().ok()).filter(|number| is_number(*number));
        number.is_some_and(|number| {
            declared_as(draft, declared, &number.to_string().into()).is_some()
        })
    })
}

/// Whether `text` has `path` in it, and not as a part of a longer path.
pub(super) fn mentions(text: &[u8], path: &[u8]) -> bool {
    let is_of_path = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(byte))
    };
    let ends = |at: usize| !is_of_path(text.get(at + path.len()));
    let mut starts =
        (0..(text.len() + 1).saturating_sub(path.len())).filter(|at| text[*at..].starts_with(path));
    starts.any(|at| (at == 0 || !is_of_path(text.get(at - 1))) && ends(at))
}

/// The name of an input in the sandbox, if it is not the last part of its path: a relative path
/// stays as it is, so that programs find the file where they would find it outside.
pub(super) fn kept_path(source: &Name) -> Option<Name> {
    if source.is_url() {
        return None;
    }
    let mut parts = Vec::new();
    for part in path_of(source).components() {
        match part {
            Component::Normal(part) => parts.push(part.as_encoded_bytes()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (parts.len() > 1).then(|| parts.join(&b'/').into())
}

/// Whether two words name the same file of the submission's folder.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    without_dot(a) == without_dot(b)
}

/// A path without `./` before it.
pub(super) fn without_dot(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    path
}
