//! Files that a cluster knows by a name: `lfn://NAME` (a logical file name) stands for the same
//! content at several places (replica-coupled §4.1, the Replica Location Service).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::name::{Name, scheme_of};
use crate::object::{FileMode, ObjectSpec, Version};
use crate::shown::shown;

/// How sources that are names begin.
pub const NAMED: &str = "lfn://";
/// Maximum length of a name, bytes.
pub const MAX_FILE_NAME_BYTES: usize = 1024;
/// Maximum length of the URL of a place, bytes.
pub const MAX_PLACE_BYTES: usize = 4096;
/// Maximum number of places of one name.
pub const MAX_PLACES: usize = 32;
/// How the tag of a version begins that is a checksum.
const CHECKED: &str = "sha256:";

/// The SHA-256 of some content. Written as 64 hexadecimal digits, also in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(Sha256);
        }
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

/// A text is not a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sha256Error(String);

impl fmt::Display for Sha256Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = shown(self.0.as_bytes());
        write!(f, "`{text}` is no SHA-256: write its 64 hexadecimal digits, as `sha256sum` does")
    }
}

impl core::error::Error for Sha256Error {}

impl FromStr for Sha256 {
    type Err = Sha256Error;

    fn from_str(text: &str) -> Result<Self, Sha256Error> {
        let digits = text.bytes().map(|byte| (byte as char).to_digit(16)).collect::<Vec<_>>();
        let mut sum = [0; 32];
        if digits.len() != 2 * sum.len() {
            return Err(Sha256Error(text.into()));
        }
        for (byte, pair) in sum.iter_mut().zip(digits.chunks(2)) {
            match pair {
                [Some(high), Some(low)] => *byte = (high << 4 | low) as u8,
                _ => return Err(Sha256Error(text.into())),
            }
        }
        Ok(Sha256(sum))
    }
}

/// A file with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile {
    /// URLs of the places, in the order of their registration. Each has the same content.
    pub places: Vec<Name>,
    /// Size of the content, if it is known.
    pub size_bytes: Option<u64>,
    /// Checksum of the content, if it is known.
    pub sha256: Option<Sha256>,
    /// When the name was registered first, microseconds since 1970. A name that is unregistered and
    /// registered again has another content.
    pub registered_us: u64,
}

impl NamedFile {
    /// The version of the content, which has this size.
    pub fn version(&self, size_bytes: u64) -> Version {
        let etag = match &self.sha256 {
            Some(sum) => format!("{CHECKED}{sum}"),
            None => self.registration(),
        };
        Version::Etag { etag, size_bytes }
    }

    /// The tag of its version while no checksum is known.
    fn registration(&self) -> String {
        format!("registered:{}", self.registered_us)
    }

    /// Whether its content is that version, as far as it is known. A checksum that was added to a
    /// registration leaves the content as it was.
    pub fn has(&self, version: &Version) -> bool {
        let Version::Etag { etag, size_bytes } = version else { return false };
        self.size_bytes.is_none_or(|known| known == *size_bytes)
            && (self.version(*size_bytes) == *version || *etag == self.registration())
    }

    /// The object, which has this size, if `name` is its name.
    pub fn object(&self, name: &[u8], size_bytes: u64) -> ObjectSpec {
        let source = Name::concat(&[NAMED.as_bytes(), name]);
        ObjectSpec { source, version: self.version(size_bytes), mode: FileMode::READABLE }
    }
}

/// A change of the table of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameChange {
    /// The content is also at these places. The name is new, or its size and checksum agree.
    Register {
        /// The name.
        name: Name,
        /// URLs of the places.
        places: Vec<Name>,
        /// Size of the content, if it is known.
        size_bytes: Option<u64>,
        /// Checksum of the content, if it is known.
        sha256: Option<Sha256>,
    },
    /// The content is no longer at these places; at none if there are none. A name without places
    /// is forgotten.
    Unregister {
        /// The name.
        name: Name,
        /// URLs of the places.
        places: Vec<Name>,
    },
}

impl NameChange {
    /// Size of the texts in it.
    pub fn size_of_texts(&self) -> usize {
        let (NameChange::Register { name, places, .. } | NameChange::Unregister { name, places }) =
            self;
        name.len() + places.iter().map(|place| place.len()).sum::<usize>()
    }
}

/// The name in a source `lfn://NAME`; `None` for any other source.
pub fn name_in(source: &[u8]) -> Option<&[u8]> {
    source.strip_prefix(NAMED.as_bytes())
}

/// The node on whose own disk a place is, and the URL of the file there, if the place is
/// `file://NODE/PATH` (RFC 8089). For example `file://n1/data/a` is `file:///data/a` on `n1`.
pub fn on_disk_of(place: &[u8]) -> Option<(&[u8], Name)> {
    let rest = place.strip_prefix(b"file://")?;
    let (node, path) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
    (!node.is_empty()).then(|| (node, Name::concat(&[b"file://", path])))
}

impl ObjectSpec {
    /// Whether the source is a name of a file, and the content is at the places of the name.
    pub fn is_named(&self) -> bool {
        name_in(&self.source).is_some()
    }

    /// The checksum of the content, if the source is a name whose checksum is known.
    pub fn sha256(&self) -> Option<Sha256> {
        match &self.version {
            Version::Etag { etag, .. } if self.is_named() => {
                etag.strip_prefix(CHECKED)?.parse().ok()
            }
            _ => None,
        }
    }
}

/// Why a name, or a place, cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidNameEntry {
    /// The name is empty, too long, or has characters that no name has.
    Name(Name),
    /// The URL cannot be a place.
    Place(Name),
    /// There are too many places, or none.
    Count(usize),
}

impl fmt::Display for InvalidNameEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidNameEntry::Name(name) => write!(
                f,
                "`{name}` cannot be the name of a file: a name comes before its places, has 1 to \
                 {MAX_FILE_NAME_BYTES} bytes of UTF-8 without spaces, control characters, `*`, \
                 `?`, `[` and `://`, and does not begin with `/`"
            ),
            InvalidNameEntry::Place(place) => write!(
                f,
                "`{place}` cannot be a place: write a path, NODE:/PATH for a file on a node's own \
                 disk, or a file, http, https or s3 URL, of up to {MAX_PLACE_BYTES} bytes"
            ),
            InvalidNameEntry::Count(0) => write!(f, "there is no place: name at least one URL"),
            InvalidNameEntry::Count(count) => {
                write!(f, "{count} places are too many: a name has up to {MAX_PLACES}")
            }
        }
    }
}

impl core::error::Error for InvalidNameEntry {}

/// Checks a name.
///
/// # Errors
/// If it cannot be one.
pub fn check_name(name: &Name) -> Result<(), InvalidNameEntry> {
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '?' | '[');
    let text = name.as_str().filter(|text| {
        !text.is_empty()
            && !text.starts_with('/')
            && text.len() <= MAX_FILE_NAME_BYTES
            && !text.contains(is_wrong)
            && !text.contains("://")
    });
    text.map(drop).ok_or_else(|| InvalidNameEntry::Name(name.clone()))
}

/// Checks the URL of a place, as far as it can be checked without a look at it.
///
/// # Errors
/// If it cannot be one.
pub fn check_place(place: &Name) -> Result<(), InvalidNameEntry> {
    let is_place = place.len() <= MAX_PLACE_BYTES
        && scheme_of(place).is_some_and(|(scheme, rest)| {
            match scheme {
                // The path begins with a slash, and is not all of it.
                b"file" => rest
                    .iter()
                    .position(|byte| *byte == b'/')
                    .is_some_and(|at| rest.len() > at + 1 && !rest.ends_with(b"/")),
                b"http" | b"https" | b"s3" => !rest.is_empty(),
                _ => false,
            }
        });
    if is_place { Ok(()) } else { Err(InvalidNameEntry::Place(place.clone())) }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    #[test]
    fn a_checksum_is_read_as_it_is_written() {
        let sum = Sha256([0x5a; 32]);
        assert_eq!(sum.to_string().parse(), Ok(sum));
        assert_eq!(sum.to_string().to_uppercase().parse(), Ok(sum));
        for wrong in ["", "5a", &"g".repeat(64), &"é".repeat(32), &"5".repeat(65)] {
            assert!(wrong.parse::<Sha256>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_version_is_the_checksum_or_the_registration() {
        let file = |sha256, size_bytes| NamedFile {
            places: vec!["file:///a".into()],
            size_bytes,
            sha256,
            registered_us: 7,
        };
        let sum = Sha256([1; 32]);
        let object = file(Some(sum), None).object(b"db", 3);
        assert_eq!((object.sha256(), object.size_bytes()), (Some(sum), 3));
        assert!(file(Some(sum), Some(3)).has(&object.version));
        assert!(!file(Some(sum), Some(4)).has(&object.version), "another size");
        assert!(!file(Some(Sha256([2; 32])), None).has(&object.version), "another checksum");
        assert!(!file(None, None).has(&object.version), "registered again");
        let unchecked = file(None, None).object(b"db", 3);
        assert_eq!(unchecked.sha256(), None);
        assert!(file(None, Some(3)).has(&unchecked.version));
        assert!(file(Some(sum), Some(3)).has(&unchecked.version), "the checksum was added");
        assert!(!file(Some(sum), Some(4)).has(&unchecked.version), "another size");
        let again = NamedFile { registered_us: 8, ..file(Some(sum), Some(3)) };
        assert!(!again.has(&unchecked.version), "registered again");
        assert_eq!(on_disk_of(b"file://n1/a/b"), Some((&b"n1"[..], "file:///a/b".into())));
        assert!(on_disk_of(b"file:///a/b").is_none() && on_disk_of(b"http://n1/a").is_none());
        for (name, staged) in [("db", "db"), ("a/b", "b"), ("a/b#1.fits", "b#1.fits")] {
            let object = file(None, None).object(name.as_bytes(), 3);
            assert_eq!(object.base_name(), staged.as_bytes(), "{name}");
        }
        // The tag of a web server is no checksum, whatever it looks like.
        let page = ObjectSpec { source: "http://h/x".into(), ..object };
        assert_eq!(page.sha256(), None);
    }

    #[test]
    fn names_and_places_are_checked() {
        for good in ["a", "survey/frame-001.fits", "Größe", &"x".repeat(MAX_FILE_NAME_BYTES)] {
            assert_eq!(check_name(&good.into()), Ok(()), "{good}");
        }
        for wrong in ["", "a b", "a*", "a?", "[a]", "s3://a/b", "a\n", &"x".repeat(1025)] {
            assert!(check_name(&wrong.into()).is_err(), "{wrong}");
        }
        for good in ["file:///a b", "file://n1/a", "http://h/x", "https://h/x", "s3://b/k"] {
            assert_eq!(check_place(&good.into()), Ok(()), "{good}");
        }
        for wrong in [
            "",
            "/a",
            "a",
            "ftp://h/x",
            "lfn://x",
            "eyas:///a",
            "http://",
            "file:///",
            "file://n1",
            "file:///a/",
        ] {
            assert!(check_place(&wrong.into()).is_err(), "{wrong}");
        }
    }
}
