//! Named attributes of entries: what programs note beside the content of a file, and what a mount
//! shows as extended attributes `user.*`. The bounds are those of Linux, and hold wherever a list
//! is made or read.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_bytes::ByteBuf;
use thiserror::Error;

use crate::shown::{MAX_QUOTED_CHARS, shortened};

/// Longest name of a named attribute: with the `user.` that a mount puts before it, the 255 bytes
/// of Linux.
pub const MAX_ATTRIBUTE_NAME_BYTES: usize = 250;

/// Maximum size of all names and values of an entry's named attributes together: the bound of Linux
/// on one value. They are a part of the entry's record, which is read and written as a whole.
pub const MAX_ATTRIBUTES_BYTES: usize = 64 << 10;

/// The beginning of names that a mount shows of its own accord, and that no attribute has.
pub const OWN_ATTRIBUTES: &str = "eyas.";

/// The named attributes of an entry. Each has a name of 1 to [`MAX_ATTRIBUTE_NAME_BYTES`] bytes
/// without NUL bytes, and any bytes as its value. An empty list is one byte in a record, and needs
/// no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedAttributes(BTreeMap<String, ByteBuf>);

/// A change of one named attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedChange {
    /// Give it this value.
    Set {
        /// The value.
        value: Vec<u8>,
        /// Whether it may be there already.
        condition: SetCondition,
    },
    /// Remove it.
    Remove,
}

impl NamedChange {
    /// Whether the attributes are as the change leaves them.
    pub fn is_done(&self, attributes: &NamedAttributes, name: &str) -> bool {
        match self {
            NamedChange::Set { value, .. } => attributes.get(name) == Some(value),
            NamedChange::Remove => attributes.get(name).is_none(),
        }
    }
}

/// Whether an attribute that is set may be there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCondition {
    /// It is created, or its value is replaced.
    #[default]
    None,
    /// It must be new.
    New,
    /// It must be there.
    Present,
}

/// Why a named attribute cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NamedAttributeError {
    /// The name is not possible.
    #[error(
        "`{}` is not a name of an attribute: it has 1 to {MAX_ATTRIBUTE_NAME_BYTES} bytes, no NUL \
         byte, and does not begin with `{OWN_ATTRIBUTES}`",
        shortened(.0, MAX_QUOTED_CHARS)
    )]
    Name(String),
    /// It must be new, and is there.
    #[error("there is an attribute `{}` already", shortened(.0, MAX_QUOTED_CHARS))]
    Exists(String),
    /// It must be there, and is not.
    #[error("there is no attribute `{}`", shortened(.0, MAX_QUOTED_CHARS))]
    Missing(String),
    /// The names and values together would be too large.
    #[error(
        "its attributes would have {0} bytes, names and values together, and at most \
         {MAX_ATTRIBUTES_BYTES} are possible: remove some, or store larger values in a file"
    )]
    Full(usize),
}

impl NamedAttributes {
    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| &***value)
    }

    /// The names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), &***value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Size of all names and values together.
    pub fn size_bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The attributes after a change of one of them.
    ///
    /// # Errors
    /// If the name or the size is not possible, or the condition does not hold.
    pub fn with(&self, name: &str, change: &NamedChange) -> Result<Self, NamedAttributeError> {
        check_name(name)?;
        let is_there = self.0.contains_key(name);
        let missing = || Err(NamedAttributeError::Missing(name.to_owned()));
        let mut after = self.clone();
        match change {
            NamedChange::Set { condition: SetCondition::New, .. } if is_there => {
                return Err(NamedAttributeError::Exists(name.to_owned()));
            }
            NamedChange::Set { condition: SetCondition::Present, .. } if !is_there => {
                return missing();
            }
            NamedChange::Set { value, .. } => {
                after.0.insert(name.to_owned(), ByteBuf::from(value.clone()));
            }
            NamedChange::Remove if !is_there => return missing(),
            NamedChange::Remove => drop(after.0.remove(name)),
        }
        after.check_size().map(|()| after)
    }

    fn check_size(&self) -> Result<(), NamedAttributeError> {
        let size_bytes = self.size_bytes();
        if size_bytes > MAX_ATTRIBUTES_BYTES {
            return Err(NamedAttributeError::Full(size_bytes));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for NamedAttributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = NamedAttributes(BTreeMap::deserialize(deserializer)?);
        read.iter().try_for_each(|(name, _)| check_name(name)).map_err(de::Error::custom)?;
        read.check_size().map(|()| read).map_err(de::Error::custom)
    }
}

fn check_name(name: &str) -> Result<(), NamedAttributeError> {
    let is_possible = !name.is_empty()
        && name.len() <= MAX_ATTRIBUTE_NAME_BYTES
        && !name.contains('\0')
        && !name.starts_with(OWN_ATTRIBUTES);
    if is_possible { Ok(()) } else { Err(NamedAttributeError::Name(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn set(value: &[u8], condition: SetCondition) -> NamedChange {
        NamedChange::Set { value: value.to_vec(), condition }
    }

    fn with(attributes: &[(&str, &[u8])]) -> NamedAttributes {
        attributes.iter().fold(NamedAttributes::default(), |before, (name, value)| {
            before.with(name, &set(value, SetCondition::New)).unwrap()
        })
    }

    #[test]
    fn an_attribute_is_set_replaced_and_removed_as_its_condition_permits() {
        let one = with(&[("colour", b"red")]);
        let missing = |name: &str| Err(NamedAttributeError::Missing(name.into()));
        for (name, change, expected) in [
            ("colour", set(b"", SetCondition::None), Ok(with(&[("colour", b"")]))),
            ("colour", set(b"blue", SetCondition::Present), Ok(with(&[("colour", b"blue")]))),
            (
                "colour",
                set(b"blue", SetCondition::New),
                Err(NamedAttributeError::Exists("colour".into())),
            ),
            ("a", set(b"1", SetCondition::New), Ok(with(&[("a", b"1"), ("colour", b"red")]))),
            ("a", set(b"1", SetCondition::Present), missing("a")),
            ("colour", NamedChange::Remove, Ok(NamedAttributes::default())),
            ("a", NamedChange::Remove, missing("a")),
        ] {
            assert_eq!(one.with(name, &change), expected, "{name} {change:?}");
            assert!(expected.is_err() || change.is_done(&expected.unwrap(), name));
        }
    }

    #[test]
    fn names_and_sizes_are_bounded_also_when_they_are_read() {
        let none = NamedAttributes::default();
        let change = set(b"x", SetCondition::None);
        let long = "n".repeat(MAX_ATTRIBUTE_NAME_BYTES + 1);
        for name in ["", "a\0b", "eyas.format", &long] {
            let error = NamedAttributeError::Name(name.into());
            assert_eq!(none.with(name, &change), Err(error), "{name}");
            let bytes = postcard::to_allocvec(&BTreeMap::from([(name, "x")])).unwrap();
            assert!(postcard::from_bytes::<NamedAttributes>(&bytes).is_err(), "{name}");
        }
        for name in [&long[1..], "eyas", "ü", "Eyas.x", "\n"] {
            let read = none.with(name, &change).unwrap();
            let bytes = postcard::to_allocvec(&read).unwrap();
            assert_eq!(postcard::from_bytes(&bytes), Ok(read), "{name}");
        }
        let value = vec![7; MAX_ATTRIBUTES_BYTES - 1];
        let full = with(&[("v", &value)]);
        assert_eq!((full.size_bytes(), full.get("v")), (MAX_ATTRIBUTES_BYTES, Some(&*value)));
        let more = full.with("w", &set(b"", SetCondition::None));
        assert_eq!(more, Err(NamedAttributeError::Full(MAX_ATTRIBUTES_BYTES + 1)));
        let values = BTreeMap::from([("v", ByteBuf::from(value)), ("w", ByteBuf::new())]);
        let bytes = postcard::to_allocvec(&values).unwrap();
        assert!(postcard::from_bytes::<NamedAttributes>(&bytes).is_err());
    }

    #[test]
    fn no_attributes_are_one_byte() {
        assert_eq!(postcard::to_allocvec(&NamedAttributes::default()).unwrap(), [0]);
    }
}
