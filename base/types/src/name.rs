//! Names of files, as Linux has them: bytes that are usually, but not always, UTF-8.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shown::shown;

/// Field of the JSON object for a name that is not UTF-8.
const BYTES_FIELD: &str = "bytes_b64";

/// A file's name or path, a URL, or a word of a command. No byte of it is changed. Messages and
/// files have the bytes and their number. JSON has a string, or `{"bytes_b64": "…"}` if the bytes
/// are not UTF-8. `Display` is for people: control characters become visible, as [`shown`] says.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// The name as bytes, without a copy.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as text; `None` if it is not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        core::str::from_utf8(&self.0).ok()
    }

    /// Converts the name to bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.extend_from_slice(bytes.as_ref());
    }

    /// Joins parts, with nothing between them.
    pub fn concat(parts: &[&[u8]]) -> Self {
        Name(parts.concat())
    }

    /// Whether the name is a URL and not a path: it has `://` in it.
    pub fn is_url(&self) -> bool {
        scheme_of(&self.0).is_some()
    }
}

/// Splits a URL at `://` into its scheme and the rest.
pub fn scheme_of(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = url.windows(3).position(|part| part == b"://")?;
    Some((&url[..at], &url[at + 3..]))
}

/// A folder's path or URL without the slashes at its end. The scheme of a URL stays whole.
pub fn without_slashes(folder: &[u8]) -> &[u8] {
    let path = scheme_of(folder).map_or(folder, |(_, path)| path);
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    &folder[..folder.len() - slashes]
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(text.as_bytes().into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name(text.into_bytes())
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Name(bytes.into())
    }
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Self {
        Name(bytes)
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&self.0);
        }
        match self.as_str() {
            Some(text) => serializer.serialize_str(text),
            None => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(BYTES_FIELD, &BASE64_STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(NameVisitor)
        } else {
            deserializer.deserialize_byte_buf(NameVisitor)
        }
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string, or {{\"{BYTES_FIELD}\": \"…\"}} for a name that is not UTF-8")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Name, E> {
        Ok(Name::from(text))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Name, E> {
        Ok(Name::from(text))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
        Ok(Name::from(bytes))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Name, E> {
        Ok(Name(bytes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Name, A::Error> {
        let Some((field, text)) = map.next_entry::<String, String>()? else {
            return Err(de::Error::missing_field(BYTES_FIELD));
        };
        if field != BYTES_FIELD {
            return Err(de::Error::unknown_field(&field, &[BYTES_FIELD]));
        }
        if let Some(field) = map.next_key::<String>()? {
            return Err(de::Error::unknown_field(&field, &[BYTES_FIELD]));
        }
        let bytes = BASE64_STANDARD.decode(&text);
        bytes
            .map(Name)
            .map_err(|e| de::Error::custom(format_args!("`{BYTES_FIELD}` is not base64: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const ODD: &[u8] = b"odd\xff\x1b.txt";

    #[test]
    fn people_see_a_string_or_base64() {
        for (name, json) in
            [(Name::from("a b"), r#""a b""#), (Name::from(ODD), r#"{"bytes_b64":"b2Rk/xsudHh0"}"#)]
        {
            assert_eq!(serde_json::to_string(&name).unwrap(), json);
            assert_eq!(serde_json::from_str::<Name>(json).unwrap(), name);
        }
        for wrong in [
            "7",
            "{}",
            r#"{"bytes":"eA=="}"#,
            r#"{"bytes_b64":"?"}"#,
            r#"{"bytes_b64":"eA==","x":"y"}"#,
        ] {
            assert!(serde_json::from_str::<Name>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Name::from(ODD).to_string(), "odd\\xff\\x1b.txt");
    }

    #[test]
    fn processes_send_the_bytes_and_their_number() {
        for bytes in [&b""[..], b"a b", ODD] {
            let sent = postcard::to_allocvec(&Name::from(bytes)).unwrap();
            assert_eq!(sent.len(), 1 + bytes.len());
            assert_eq!(postcard::from_bytes::<Name>(&sent).unwrap(), Name::from(bytes));
        }
    }

    #[test]
    fn urls_have_schemes() {
        assert_eq!(scheme_of(b"s3://b/k://x"), Some((&b"s3"[..], &b"b/k://x"[..])));
        assert!(!Name::from("/a:/b").is_url());
    }
}
