//! Amounts in scenario files. Every one that has a unit needs it there: a number alone would be read as one thing by one
//! person and as another by the next. None may be 0 where 0 makes no sense.

use std::fmt;
use std::marker::PhantomData;

use eyas_types::units;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::clock::MAX_TIME_US;

/// Bytes of something; at least one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub u64);

/// Bytes a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate(pub f64);

/// Microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Time(pub u64);

/// How many of something; at least one, at most `MOST`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count<const MOST: u32>(pub u32);

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share(pub f64);

/// What is written as a text with a unit.
trait Amount: Sized {
    const WHAT: &'static str;
    fn parse(text: &str) -> Result<Self, String>;
}

impl Amount for Size {
    const WHAT: &'static str = "a size with its unit, such as \"10 MB\"";

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = units::parse_bytes(text).map_err(|e| e.to_string())?;
        if bytes == 0 { Err(format!("`{text}` is nothing: give at least 1 B")) } else { Ok(Size(bytes)) }
    }
}

impl Amount for Rate {
    const WHAT: &'static str = "a rate with its unit, such as \"1 Gbit/s\"";

    fn parse(text: &str) -> Result<Self, String> {
        units::parse_rate(text).map(|rate| Rate(rate as f64)).map_err(|e| e.to_string())
    }
}

impl Amount for Time {
    const WHAT: &'static str = "a duration with its unit, such as \"10 ms\"";

    fn parse(text: &str) -> Result<Self, String> {
        let us = units::parse_duration_us(text).map_err(|e| e.to_string())?;
        if us > MAX_TIME_US { Err(format!("`{text}` is too long: a hundred years are the most")) } else { Ok(Time(us)) }
    }
}

fn with_unit<'de, A: Amount, D: Deserializer<'de>>(deserializer: D) -> Result<A, D::Error> {
    struct WithUnit<A>(PhantomData<A>);
    impl<A: Amount> WithUnit<A> {
        fn unit_is_missing<E: de::Error>(number: impl fmt::Display) -> E {
            E::custom(format!("`{number}` has no unit: write {}", A::WHAT))
        }
    }
    impl<A: Amount> Visitor<'_> for WithUnit<A> {
        type Value = A;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(A::WHAT)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<A, E> {
            if text.trim().parse::<f64>().is_ok() {
                return Err(Self::unit_is_missing(text));
            }
            A::parse(text).map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<A, E> {
            Err(Self::unit_is_missing(number))
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<A, E> {
            Err(Self::unit_is_missing(number))
        }
    }
    deserializer.deserialize_any(WithUnit(PhantomData))
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        with_unit(deserializer)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        with_unit(deserializer)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        with_unit(deserializer)
    }
}

impl<'de, const MOST: u32> Deserialize<'de> for Count<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match i64::deserialize(deserializer)? {
            ..1 => Err(de::Error::custom("these are too few: give at least 1")),
            count if count > MOST.into() => {
                Err(de::Error::custom(format!("{count} are too many: {MOST} are the most")))
            }
            count => Ok(Count(count as u32)),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        let is_one = (0.0..=1.0).contains(&share);
        if is_one { Ok(Share(share)) } else { Err(de::Error::custom(format!("{share} is not a number from 0 to 1"))) }
    }
}
