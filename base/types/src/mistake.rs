//! Words for mistakes in files that people write: the known word that is nearest to a mistyped one,
//! and what a reader of such a file says, without words of the language in which eyas is written.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// How a parser of TOML begins to say what is wrong, and the same for people, with what to write.
const SYNTAX: &[(&str, &str)] = &[
    ("unclosed array table", "`]]` is missing: write two brackets on each side, such as [[task]]"),
    ("unclosed array", "a list has no end: write `]` behind its last value"),
    ("unclosed inline table", "a table in braces has no end: write `}` behind its last value"),
    ("unclosed table", "`]` is missing at the end of a name in brackets"),
    ("missing table open", "`[` is missing before a name in brackets"),
    ("missing comma between array", "a comma is missing between two values of a list"),
    ("missing comma between key", "a comma is missing between two keys of a table in braces"),
    ("extra comma", "there is a comma too many: remove one"),
    ("key with no value", "this is a key without a value: write KEY = VALUE"),
    ("missing assignment", "`=` is missing: write KEY = VALUE"),
    ("extra assignment", "there is a `=` too many: remove one"),
    ("extra `=`", "there is a `=` too many: remove one"),
    ("unexpected `=` in array", "a list has values only: write a table in braces, {KEY = VALUE}"),
    ("missing value", "the key has no value: write one behind the `=`"),
    ("string values must be quoted", "a text must be in quotes: write \"TEXT\""),
    ("invalid basic string", "a text has no end: write `\"` behind it"),
    ("invalid literal string", "a text has no end: write `'` behind it"),
    ("invalid multi-line basic string", "a text has no end: write `\"\"\"` behind it"),
    ("invalid multi-line literal string", "a text has no end: write `'''` behind it"),
    ("duplicate key", "this key is given twice: leave one of them out"),
    (
        "unexpected key or value",
        "there is more behind the value of a key: begin a new line, or write `#` before a comment",
    ),
    (
        "invalid unquoted key",
        "a key has letters, digits, `-` and `_` only: write a key with other characters in quotes",
    ),
    ("unquoted keys cannot be empty", "a key is missing before the `=`"),
    ("unexpected leading zero", "a number cannot begin with 0: leave the 0 out"),
    (
        "missing escaped value",
        "`\\` begins a special character in double quotes: write `\\\\`, or put the text in single \
         quotes",
    ),
];

/// What a reader of TOML or JSON says, for people: `invalid type: integer `3`, expected a string`
/// becomes "this is the number 3: write a text in quotes".
pub fn plainly(said: &str) -> String {
    if let Some((_, plain)) = SYNTAX.iter().find(|(begin, _)| said.starts_with(begin)) {
        return (*plain).to_owned();
    }
    let quoted = |text: &str| text.trim_matches('`').to_owned();
    let known = |rest: &str| -> Vec<String> {
        rest.split([',', ' ']).filter(|word| word.starts_with('`')).map(quoted).collect()
    };
    for (begin, kind) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        if let Some((word, rest)) = said.strip_prefix(begin).and_then(|rest| rest.split_once(", "))
        {
            let (word, known) = (quoted(word), known(rest));
            let near = nearest(&word, known.iter().map(String::as_str));
            return match near {
                Some(near) => format!("`{word}` is not a {kind} here: the nearest is `{near}`"),
                None => format!("`{word}` is not a {kind} here: write one of {}", known.join(", ")),
            };
        }
    }
    if let Some(rest) =
        said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "))
        && let Some((found, expected)) = rest.split_once(", expected ")
    {
        return format!("this is {}: write {}", kind_found(found), kind_expected(expected));
    }
    if let Some(rest) = said.strip_prefix("missing field ") {
        return format!("the key {rest} is missing: add it");
    }
    if let Some(rest) = said.strip_prefix("duplicate field ") {
        return format!("the key {rest} is given twice: leave one of them out");
    }
    if said.starts_with("data did not match any variant") {
        return "this value has none of the forms that it can have here".into();
    }
    said.to_owned()
}

/// The number of the line at an offset of a text, from 1.
pub fn line_at(text: &str, offset: usize) -> usize {
    let before = text.bytes().take(offset);
    before.filter(|byte| *byte == b'\n').count() + 1
}

/// What was found, in words: `string "x"` -> `the text "x"`.
fn kind_found(found: &str) -> String {
    let (kind, value) = found.split_once([' ', '`']).unwrap_or((found, ""));
    let value = value.trim_start_matches("point ").trim_matches('`');
    match kind {
        "string" => format!("the text {value}"),
        "integer" | "floating" => format!("the number {value}"),
        "boolean" => value.to_owned(),
        "sequence" => "a list".into(),
        "map" => "a table".into(),
        "null" | "unit" => "nothing".into(),
        _ => found.to_owned(),
    }
}

/// The expected kind of value in words: `a whole number` for `u32`.
fn kind_expected(expected: &str) -> String {
    let bare = expected.strip_prefix("a ").unwrap_or(expected);
    let is_number = |of: char| {
        bare.strip_prefix(of).is_some_and(|bits| {
            bits == "size" || !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit())
        })
    };
    match bare {
        _ if bare.starts_with("nonzero ") => "a whole number of at least 1".into(),
        _ if is_number('u') || is_number('i') => "a whole number".into(),
        _ if is_number('f') => "a number".into(),
        "string" | "borrowed string" => "a text in quotes".into(),
        "boolean" => "true or false".into(),
        "sequence" => "a list".into(),
        "map" => "a table".into(),
        _ if bare.starts_with("struct ") => "a table".into(),
        _ => expected.to_owned(),
    }
}

/// The nearest of some known words, unless all of them are far from `word`: a third of its letters
/// may differ, and at least one. `-` and `_` are the same: `each-line` -> `each_line`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |text: &str| -> Vec<char> {
        text.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
    };
    let word = letters(word);
    let distances = known.into_iter().map(|other| (distance(&word, &letters(other)), other));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (word.len() / 3).max(1)).then_some(nearest)
}

/// Number of letters to insert, remove, replace or swap with the next one (optimal string
/// alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = Vec::with_capacity(a.len() + 1);
    rows.push((0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_unless_all_are_far() {
        let known = ["command", "outputs", "each_line", "env"];
        for (word, expected) in [
            ("comand", Some("command")),
            ("output", Some("outputs")),
            ("nev", Some("env")),
            ("each-line", Some("each_line")),
            ("Env", Some("env")),
            ("walltime", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn lines_count_from_one() {
        let lines = [0, 1, 2, 3, 99].map(|offset| line_at("a\nb\n", offset));
        assert_eq!(lines, [1, 1, 2, 2, 3]);
    }

    #[test]
    fn what_readers_say_is_put_in_plain_words() {
        for (said, plain) in [
            (
                "unknown field `limits`, expected one of `limit`, `weight`",
                "`limits` is not a key here: the nearest is `limit`",
            ),
            ("unknown field `x`, expected `limit`", "`x` is not a key here: write one of limit"),
            (
                "unknown variant `fifi`, expected `fifo` or `lru`",
                "`fifi` is not a value here: the nearest is `fifo`",
            ),
            (
                "invalid type: string \"x\", expected u32",
                "this is the text \"x\": write a whole number",
            ),
            (
                "invalid type: integer `3`, expected a string",
                "this is the number 3: write a text in quotes",
            ),
            (
                "invalid type: floating point `1.5`, expected usize",
                "this is the number 1.5: write a whole number",
            ),
            ("invalid type: boolean `true`, expected f64", "this is true: write a number"),
            ("invalid type: sequence, expected a map", "this is a list: write a table"),
            ("invalid type: map, expected a boolean", "this is a table: write true or false"),
            (
                "invalid value: integer `0`, expected a nonzero u32",
                "this is the number 0: write a whole number of at least 1",
            ),
            ("invalid type: map, expected struct Limits", "this is a table: write a table"),
            ("invalid type: map, expected a size", "this is a table: write a size"),
            ("missing field `key`", "the key `key` is missing: add it"),
            ("duplicate field `a`", "the key `a` is given twice: leave one of them out"),
            (
                "data did not match any variant of untagged enum Words",
                "this value has none of the forms that it can have here",
            ),
            (
                "string values must be quoted, expected literal string",
                "a text must be in quotes: write \"TEXT\"",
            ),
            ("some other words", "some other words"),
        ] {
            assert_eq!(plainly(said), plain, "{said}");
        }
    }
}
