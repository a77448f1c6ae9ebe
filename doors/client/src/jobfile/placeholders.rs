//! Text in braces that looks like a placeholder of another program, or like a mistyped one, and is
//! none here. In the name of an output it is refused: without a word about it, all tasks of an
//! array would write one file with braces in its name. A word of a command that is nothing but such
//! a text is refused, too. Elsewhere in a command, braces may be meant (`awk '{print $1}'`, a
//! format of Python), so what is near a placeholder there is only warned of.

use eyas_types::mistake::nearest;
use eyas_types::shown::{MAX_QUOTED_CHARS, shortened};
use eyas_types::{Name, Template, TemplatePart};

use super::error::TaskFieldsError;

/// What each text in braces is taken for by mistake, and what to write.
const MISTAKEN: &[(&[&str], &str)] = &[
    (
        &["basename", "name", "stem", "base", "output"],
        "; `{/.}` is the name without folder and extension",
    ),
    (&["filename"], "; `{/}` is the name without folder"),
    (&["dirname", "dir", "folder"], "; `{//}` is the folder of the item"),
    (&["input", "item", "file", "path"], "; `{}` is the item"),
    (&["index", "number", "task"], "; `{#}` is the number of the task in its job"),
];

/// Letters that a word must have for its nearest known word to be named: shorter words are near to
/// many.
const NEAR_LETTERS: usize = 5;

/// What is wrong with a text in braces of the name of an output, if anything is.
pub(super) fn no_placeholder(name: &Template) -> Option<String> {
    literals(name).find_map(|text| in_braces(&text).find_map(|(inner, _)| why_none(inner)))
}

/// A mistake with braces in a word of a command, or in the value of a variable.
pub(super) enum WrongWord {
    /// The word is nothing but a text in braces: it cannot be meant.
    Refused(TaskFieldsError),
    /// The text in braces is a part of the word.
    Warned(String),
}

/// Looks for a text in braces that is no placeholder, as `word` was written and as it was read.
pub(super) fn in_command(word: &Name, parsed: &Template) -> Option<WrongWord> {
    let why = literals(parsed).find_map(|text| {
        // `${name}` is for a shell.
        let mut texts = in_braces(&text).filter(|(_, before)| !before.ends_with('$'));
        texts.find_map(|(inner, _)| why_none(inner))
    })?;
    let text = word.to_string();
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let is_whole = inner.is_some_and(|inner| !inner.contains(['{', '}']));
    Some(match is_whole {
        true => {
            WrongWord::Refused(TaskFieldsError::NoPlaceholderInCommand { word: word.clone(), why })
        }
        false => WrongWord::Warned(format!(
            "the word `{}` of the command: {why}. If the program is to get these braces, all is \
             well",
            shortened(&text, MAX_QUOTED_CHARS)
        )),
    })
}

/// The texts of a word that are no placeholders.
fn literals(word: &Template) -> impl Iterator<Item = String> {
    word.0.iter().filter_map(|part| match part {
        TemplatePart::Literal(text) => Some(text.to_string()),
        _ => None,
    })
}

/// The texts between braces, each with what is before it.
fn in_braces(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices('{').filter_map(|(open, _)| {
        let (inner, _) = text[open + 1..].split_once('}')?;
        Some((inner, &text[..open]))
    })
}

/// Why a text in braces is no placeholder, if it looks like one.
fn why_none(inner: &str) -> Option<String> {
    if ["0", "0.", "0/", "0//", "0/."].contains(&inner) {
        return Some(format!("`{{{inner}}}` is not a placeholder: columns count from {{1}}"));
    }
    if let Some((_, instead)) = MISTAKEN.iter().find(|(words, _)| words.contains(&inner)) {
        return Some(format!("`{{{inner}}}` is not a placeholder{instead}"));
    }
    let is_word = inner.len() >= NEAR_LETTERS && inner.chars().all(|c| c.is_ascii_alphanumeric());
    let known = MISTAKEN.iter().flat_map(|(words, _)| *words).copied();
    let known = known.filter(|word| word.len() >= NEAR_LETTERS).chain(["inputs", "inputs0"]);
    let near = nearest(inner, known).filter(|_| is_word)?;
    let instead = match MISTAKEN.iter().find(|(words, _)| words.contains(&near)) {
        Some((_, instead)) => instead.trim_start_matches(['(', ';', ' ']).to_owned(),
        None => format!("`{{{near}}}` is the list of all inputs, in a file"),
    };
    Some(format!("`{{{inner}}}` is not a placeholder; {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_placeholder_is_named() {
        for (name, says) in [
            ("cut/{0}.fits", Some("`{0}` is not a placeholder: columns count from {1}")),
            ("{}/{0/.}", Some("`{0/.}` is not a placeholder: columns count from {1}")),
            (
                "{basename}.fits",
                Some("`{basename}` is not a placeholder; `{/.}` is the name without folder"),
            ),
            ("x{input}", Some("`{input}` is not a placeholder; `{}` is the item")),
            ("{a}{output}", Some("`{output}` is not a placeholder; `{/.}` is the name")),
            ("{1}-{/.}-{#}.fits", None),
            (r"\{}.txt", None),
            ("{a,b}.{other}", None),
        ] {
            let said = no_placeholder(&Template::parse(name));
            let is_right = match says {
                Some(says) => said.as_ref().is_some_and(|said| said.starts_with(says)),
                None => said.is_none(),
            };
            assert!(is_right, "{name}: {said:?}");
        }
    }

    #[test]
    fn braces_of_a_command_are_refused_warned_of_or_left_alone() {
        for (word, says) in [
            ("{inptu}", "refused: `{inptu}` is not a placeholder; `{}` is the item"),
            ("{input}", "refused: `{input}` is not a placeholder; `{}` is the item"),
            ("{inptus}", "refused: `{inptus}` is not a placeholder; `{inputs}` is the list"),
            ("{0}", "refused: `{0}` is not a placeholder: columns count from {1}"),
            ("cat {input} > x", "warned: `{input}` is not a placeholder; `{}` is the item"),
            ("--in={inptu}", "warned: `{inptu}` is not a placeholder; `{}` is the item"),
            ("{} {0}", "warned: `{0}` is not a placeholder"),
            ("{print $1}", ""),
            ("{print}", ""),
            ("${input}", ""),
            ("{a,b}", ""),
            ("{x}", ""),
            ("{value}", ""),
            (r#"{"input": 1}"#, ""),
            ("{}", ""),
            ("{inputs}", ""),
            ("{{}}", ""),
        ] {
            let said = match in_command(&word.into(), &Template::parse(word)) {
                None => String::new(),
                Some(WrongWord::Warned(why)) => {
                    format!("warned: {}", why.split_once("command: ").unwrap().1)
                }
                Some(WrongWord::Refused(why)) => {
                    format!("refused: {}", why.to_string().split_once("command: ").unwrap().1)
                }
            };
            assert!(said.starts_with(says) && said.is_empty() == says.is_empty(), "{word}: {said}");
        }
    }
}
