//! Amounts in scenario files. An amount with a unit must be written with its unit, because readers
//! would guess different units for a bare number. An amount must not be 0 where 0 makes no sense.

use std::fmt;
use std::marker::PhantomData;

use eyas_types::units;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use thiserror::Error;

use crate::clock::MAX_TIME_US;

/// A number of bytes, at least 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub u64);

/// Bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate(pub f64);

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Time(pub u64);

/// A count of at least 1 and at most `MOST`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count<const MOST: u32>(pub u32);

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share(pub f64);

/// What is wrong with an amount that has a unit.
#[derive(Debug, Error)]
enum AmountMistake {
    #[error("{0}")]
    Unit(#[from] units::AmountError),
    #[error("`{0}` is 0 bytes: give at least 1 B")]
    NoBytes(String),
    #[error("`{0}` is too long: give at most a hundred years")]
    TooLong(String),
}

/// An amount that is written as a string with a unit.
trait Amount: Sized {
    const WHAT: &'static str;
    fn parse(text: &str) -> Result<Self, AmountMistake>;
}

impl Amount for Size {
    const WHAT: &'static str = "a size with its unit, such as \"10 MB\"";

    fn parse(text: &str) -> Result<Self, AmountMistake> {
        let bytes = units::parse_bytes(text)?;
        if bytes == 0 { Err(AmountMistake::NoBytes(text.to_owned())) } else { Ok(Size(bytes)) }
    }
}

impl Amount for Rate {
    const WHAT: &'static str = "a rate with its unit, such as \"1 Gbit/s\"";

    fn parse(text: &str) -> Result<Self, AmountMistake> {
        Ok(Rate(units::parse_rate(text)? as f64))
    }
}

impl Amount for Time {
    const WHAT: &'static str = "a duration with its unit, such as \"10 ms\"";

    fn parse(text: &str) -> Result<Self, AmountMistake> {
        let us = units::parse_duration_us(text)?;
        if us > MAX_TIME_US { Err(AmountMistake::TooLong(text.to_owned())) } else { Ok(Time(us)) }
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
            ..1 => Err(de::Error::custom("this number is too small: give at least 1")),
            count if count > MOST.into() => {
                Err(de::Error::custom(format!("{count} is too large: give at most {MOST}")))
            }
            count => Ok(Count(count as u32)),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        let is_one = (0.0..=1.0).contains(&share);
        if is_one {
            Ok(Share(share))
        } else {
            Err(de::Error::custom(format!("{share} is not a number from 0 to 1")))
        }
    }
}
