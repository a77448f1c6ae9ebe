//! A FITS header: cards of 80 bytes to keywords and values (FITS standard 4.0 §4).
//!
//! Our own, because it is short, and a crate that reads FITS brings many others with it. A value is
//! interpreted when it is asked for, so that a bad card that nobody needs does no harm. Commentary
//! and HIERARCH cards have no keyword of the standard and are passed over. A keyword that occurs
//! twice with different values has no value: the file does not say which one is meant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::error::FileProblem;

/// A header card: keyword, value, comment.
pub const CARD_BYTES: usize = 80;

/// Bytes of a keyword.
const KEYWORD_BYTES: usize = 8;

/// Keywords and values of one header.
#[derive(Clone, Debug, Default)]
pub struct Header(HashMap<String, Value>);

#[derive(Clone, Debug, PartialEq)]
enum Value {
    /// Text, which was in quotes; spaces at its end do not count.
    Text(String),
    /// A number or truth value, as written; or what is neither.
    Literal(String),
    /// Two cards say different things.
    Conflict,
}

impl Header {
    /// Reads cards up to END.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut header = Self::default();
        // Where the text of the last card goes on if a CONTINUE card follows (§4.2.1.2).
        let mut unfinished: Option<(String, String)> = None;
        for card in bytes.chunks(CARD_BYTES) {
            let card = String::from_utf8_lossy(card);
            let keyword = card.get(..KEYWORD_BYTES).unwrap_or_default().trim_end();
            let rest = card.get(KEYWORD_BYTES..).unwrap_or_default();
            if let Some((owner, begun)) = unfinished.take() {
                if let ("CONTINUE", Some(Value::Text(more))) = (keyword, value(rest)) {
                    header.note(&owner, begun + &more, &mut unfinished);
                    continue;
                }
                // Nothing follows: then the ampersand is a part of the text.
                header.insert(owner, Value::Text(begun + "&"));
            }
            match keyword {
                "END" => break,
                "" | "COMMENT" | "HISTORY" | "CONTINUE" | "HIERARCH" => {}
                _ => match rest.strip_prefix("= ").and_then(value) {
                    Some(Value::Text(text)) => header.note(keyword, text, &mut unfinished),
                    Some(value) => header.insert(keyword.to_owned(), value),
                    None => {}
                },
            }
        }
        header
    }

    /// Keeps a text, unless its `&` says that it may go on.
    fn note(&mut self, keyword: &str, mut text: String, unfinished: &mut Option<(String, String)>) {
        if text.ends_with('&') {
            text.pop();
            *unfinished = Some((keyword.to_owned(), text));
        } else {
            self.insert(keyword.to_owned(), Value::Text(text));
        }
    }

    fn insert(&mut self, keyword: String, value: Value) {
        match self.0.entry(keyword) {
            Entry::Occupied(mut earlier) if *earlier.get() != value => {
                *earlier.get_mut() = Value::Conflict
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(value);
            }
        }
    }

    /// The keywords that are `wanted` and their values, as a card has them, each on a line.
    pub fn values(&self, wanted: impl Fn(&str) -> bool) -> String {
        let written = |(keyword, value): (&String, &Value)| match value {
            Value::Text(text) => Some(format!("{keyword}='{}'", text.replace('\'', "''"))),
            Value::Literal(literal) => Some(format!("{keyword}={literal}")),
            Value::Conflict => None,
        };
        let mut lines: Vec<String> =
            self.0.iter().filter(|(keyword, _)| wanted(keyword)).filter_map(written).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    /// The header with the keywords and values of these lines.
    pub fn of_values(lines: &str) -> Self {
        let read = |line: &str| {
            let (keyword, field) = line.split_once('=')?;
            Some((keyword.to_owned(), value(field)?))
        };
        Self(lines.lines().filter_map(read).collect())
    }

    /// Whether a keyword that begins like this has a value.
    pub fn has_keyword_with(&self, begin: &str) -> bool {
        self.0.keys().any(|keyword| keyword.starts_with(begin))
    }

    /// Whether a keyword has a value.
    pub fn contains(&self, keyword: &str) -> bool {
        self.0.contains_key(keyword)
    }

    /// The finite number of a keyword that may be absent.
    pub fn number(&self, keyword: &str) -> Result<Option<f64>, FileProblem> {
        self.get(keyword, "number", |value| match value {
            Value::Literal(literal) => parse_number(literal),
            _ => None,
        })
    }

    /// The whole number of a keyword that may be absent.
    pub fn integer(&self, keyword: &str) -> Result<Option<i64>, FileProblem> {
        self.get(keyword, "whole number", |value| match value {
            Value::Literal(literal) => literal.parse().ok().or_else(|| {
                let number = parse_number(literal)?;
                (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64)
            }),
            _ => None,
        })
    }

    /// The text of a keyword that may be absent.
    pub fn text(&self, keyword: &str) -> Result<Option<&str>, FileProblem> {
        self.get(keyword, "text in quotes", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Whether the value of a keyword is T.
    pub fn is_true(&self, keyword: &str) -> bool {
        self.0.get(keyword).is_some_and(|value| *value == Value::Literal("T".to_owned()))
    }

    fn get<'a, T>(
        &'a self,
        keyword: &str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, FileProblem> {
        let Some(value) = self.0.get(keyword) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| {
            let trouble = match value {
                Value::Conflict => "it occurs twice, with different values".to_owned(),
                Value::Text(text) => format!("its value is no {what}, but '{text}'"),
                Value::Literal(literal) => format!("its value is no {what}, but {literal}"),
            };
            FileProblem::Keyword { keyword: keyword.to_owned(), trouble }
        })
    }
}

/// The value in the bytes after `= `; none if it is undefined.
fn value(field: &str) -> Option<Value> {
    let field = field.trim_start();
    let Some(quoted) = field.strip_prefix('\'') else {
        let literal = field.split('/').next().unwrap_or_default().trim();
        return (!literal.is_empty()).then(|| Value::Literal(literal.to_owned()));
    };
    let mut text = String::new();
    let mut letters = quoted.chars().peekable();
    while let Some(letter) = letters.next() {
        // A quote within a text is doubled.
        if letter == '\'' && letters.next_if_eq(&'\'').is_none() {
            return Some(Value::Text(text.trim_end().to_owned()));
        }
        text.push(letter);
    }
    Some(Value::Literal(field.trim_end().to_owned()))
}

/// A number of §4.2.3 or §4.2.4, whose exponent may have a D.
fn parse_number(literal: &str) -> Option<f64> {
    // Rust also takes names such as `inf`.
    let digits = |letter: char| letter.is_ascii_digit() || "+-.EeDd".contains(letter);
    let number: f64 =
        literal.chars().all(digits).then(|| literal.replace(['D', 'd'], "E").parse().ok())??;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cards: &[&str]) -> Header {
        Header::parse(cards.iter().map(|card| format!("{card:80}")).collect::<String>().as_bytes())
    }

    #[test]
    fn values_are_read_as_the_standard_writes_them() {
        let header = header(&[
            "INT     =                  -42 / fixed format",
            "FREE    = +7/free",
            "FLOAT   = 1.5D-3 / exponent with D",
            "BIG     = 9223372036854775807",
            "WHOLE   = 12.",
            "YES     =                    T",
            "TEXT    = 'it''s / no comment  ' / a comment",
            "EMPTY   = ''",
            "UNDEF   =                      / no value",
            "COMPLEX = (1.0, 2.0)",
            "INF     = inf",
            "OPEN    = 'no end",
            "COMMENT = 'commentary'",
            "HIERARCH ESO INT = 3",
            "NOVALUE   5",
            "LONG    = 'begins, &'",
            "CONTINUE  'goes on, &' / comment",
            "CONTINUE  'and ends'",
            "AND     = 'salt &'",
            "TWICE   = 1",
            "TWICE   = 2",
            "SAME    = 1 / once",
            "SAME    = 1 / twice",
            "END",
            "AFTER   = 1",
        ]);
        let number = |keyword| header.number(keyword).unwrap();
        assert_eq!(
            (number("INT"), number("FREE"), number("FLOAT")),
            (Some(-42.0), Some(7.0), Some(1.5e-3))
        );
        assert_eq!((number("UNDEF"), number("AFTER"), number("SAME")), (None, None, Some(1.0)));
        assert_eq!(header.integer("BIG").unwrap(), Some(i64::MAX));
        assert_eq!(header.integer("WHOLE").unwrap(), Some(12));
        assert!(header.is_true("YES") && !header.is_true("INT") && !header.is_true("none"));
        let text = |keyword| header.text(keyword).unwrap().unwrap();
        assert_eq!((text("TEXT"), text("EMPTY")), ("it's / no comment", ""));
        assert_eq!((text("LONG"), text("AND")), ("begins, goes on, and ends", "salt &"));
        assert!(["COMMENT", "HIERARCH", "NOVALUE"].iter().all(|keyword| !header.contains(keyword)));
        for (keyword, trouble) in [
            ("COMPLEX", "COMPLEX: its value is no number, but (1.0, 2.0)"),
            ("INF", "INF: its value is no number, but inf"),
            ("OPEN", "OPEN: its value is no number, but 'no end"),
            ("TEXT", "TEXT: its value is no number, but 'it's / no comment'"),
            ("TWICE", "TWICE: it occurs twice, with different values"),
        ] {
            assert_eq!(
                header.number(keyword).unwrap_err().to_string(),
                format!("FITS keyword {trouble}")
            );
        }
        assert!(header.integer("FLOAT").is_err() && header.text("INT").is_err());
    }
}
