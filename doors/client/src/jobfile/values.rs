//! Values that a job file may write in several ways: one word or a list, a number or a text with a
//! unit.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use eyas_types::Name;
use eyas_types::units::{self, AmountError};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The words of a command: a list, program and arguments.
#[derive(Clone, Debug, Default)]
pub struct CommandWords(pub Vec<Name>);

impl<'de> Deserialize<'de> for CommandWords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = CommandWords;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of words, such as [\"wc\", \"-l\", \"{}\"]")
            }

            fn visit_str<E: de::Error>(self, line: &str) -> Result<CommandWords, E> {
                let words = match line.contains(['\'', '"', '|', '>', '<', '$', ';', '&']) {
                    true => vec!["sh", "-c", line],
                    false => line.split_whitespace().collect(),
                };
                let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
                Err(E::custom(format!(
                    "`command` is a list of words: write command = [{}]",
                    words.join(", ")
                )))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(
                self,
                mut words: A,
            ) -> Result<CommandWords, A::Error> {
                let mut command = Vec::new();
                while let Some(word) = words.next_element()? {
                    command.push(word);
                }
                Ok(CommandWords(command))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// One word or a list of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "Words")]
pub struct OneOrMore(pub Vec<Name>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(Name),
    More(Vec<Name>),
}

impl From<Words> for OneOrMore {
    fn from(words: Words) -> Self {
        match words {
            Words::One(word) => OneOrMore(vec![word]),
            Words::More(words) => OneOrMore(words),
        }
    }
}

/// A list, or one element without the brackets.
pub(super) fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Elements<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(StrDeserializer::new(text))?])
        }

        fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Vec<T>, A::Error> {
            Ok(vec![T::deserialize(MapAccessDeserializer::new(table))?])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = list.next_element()? {
                elements.push(element);
            }
            Ok(elements)
        }
    }
    deserializer.deserialize_any(Elements(PhantomData))
}

/// A number, which may be written as text: `2` or `"2"`.
pub(super) struct Number<N>(N);

impl<'de, N: FromStr> Deserialize<'de> for Number<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits<N>(PhantomData<N>);
        impl<N: FromStr> Visitor<'_> for Digits<N> {
            type Value = Number<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number<N>, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Str(text), &self);
                text.trim().parse().map(Number).map_err(wrong)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Number<N>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number<N>, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Number<N>, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Digits(PhantomData))
    }
}

/// A [`Number`].
pub(super) fn number<'de, D: Deserializer<'de>, N: FromStr>(d: D) -> Result<N, D::Error> {
    Number::deserialize(d).map(|number| number.0)
}

/// A [`Number`] that may be missing.
pub(super) fn some_number<'de, D: Deserializer<'de>, N: FromStr>(
    d: D,
) -> Result<Option<N>, D::Error> {
    Ok(Option::<Number<N>>::deserialize(d)?.map(|number| number.0))
}

/// A [`Number`] for each name.
pub(super) fn named_numbers<'de, D: Deserializer<'de>, N: FromStr>(
    d: D,
) -> Result<BTreeMap<String, N>, D::Error> {
    let named = BTreeMap::<String, Number<N>>::deserialize(d)?;
    Ok(named.into_iter().map(|(name, number)| (name, number.0)).collect())
}

/// A size: a number of bytes, or a text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A duration in microseconds: a number of seconds, or a text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        amount(deserializer, "a size, such as \"4GiB\"", units::parse_bytes).map(Bytes)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        amount(deserializer, "a duration, such as \"90s\"", units::parse_duration_us).map(Duration)
    }
}

/// Some bytes of a file. As text, `0-1GiB` is the first GiB, and `1GiB-` everything after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte, from 0.
    pub first: u64,
    /// The byte after the last one.
    pub end: u64,
}

/// A text is not a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a range of bytes: write FIRST-END, such as 0-1GiB, or FIRST-")]
pub struct ByteRangeError(String);

impl FromStr for ByteRange {
    type Err = ByteRangeError;

    fn from_str(text: &str) -> Result<Self, ByteRangeError> {
        let parse = |(first, end): (&str, &str)| {
            let first = units::parse_bytes(first).ok()?;
            let end = if end.is_empty() { u64::MAX } else { units::parse_bytes(end).ok()? };
            (first < end).then_some(ByteRange { first, end })
        };
        text.split_once('-').and_then(parse).ok_or_else(|| ByteRangeError(text.into()))
    }
}

/// Some records of a file. As text, `0-1000` is the first thousand, and `1000-` everything after
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRange {
    /// The first record, from 0.
    pub first: u64,
    /// The record after the last one.
    pub end: u64,
}

/// A text is not a range of records.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a range of records: write FIRST-END, such as 1000-2000, or FIRST-")]
pub struct RecordRangeError(String);

impl FromStr for RecordRange {
    type Err = RecordRangeError;

    fn from_str(text: &str) -> Result<Self, RecordRangeError> {
        let parse = |(first, end): (&str, &str)| {
            let first = first.parse().ok()?;
            let end = if end.is_empty() { u64::MAX } else { end.parse().ok()? };
            (first < end).then_some(RecordRange { first, end })
        };
        text.split_once('-').and_then(parse).ok_or_else(|| RecordRangeError(text.into()))
    }
}

/// An amount as a text with a unit, or a number without.
fn amount<'de, D: Deserializer<'de>>(
    deserializer: D,
    what: &'static str,
    parse: fn(&str) -> Result<u64, AmountError>,
) -> Result<u64, D::Error> {
    struct Amount(&'static str, fn(&str) -> Result<u64, AmountError>);
    impl Visitor<'_> for Amount {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            (self.1)(text).map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
            (self.1)(&number.to_string()).map_err(E::custom)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
            (self.1)(&number.to_string()).map_err(E::custom)
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
            (self.1)(&number.to_string()).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Amount(what, parse))
}
