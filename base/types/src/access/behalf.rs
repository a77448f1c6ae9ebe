//! Users of a gateway. A gateway has one key of the cluster and serves many users: with each
//! request it says for which of them it asks, and the nodes limit the request to the user's folder.
//! So a mistake in the gateway gives no user the files of another one. It only narrows what the key
//! permits.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};
use thiserror::Error;

use crate::dfs::{FileName, FileNameError};
use crate::shown::{MAX_QUOTED_CHARS, acts, shortened};

/// Longest name of a user for whom a client asks.
pub const MAX_PRINCIPAL_BYTES: usize = 255;

/// The user for whom a client asks, and what the request may concern: entries below a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behalf {
    principal: PrincipalName,
    /// The folder; `None` for the root.
    prefix: Option<FileName>,
    access: FilesAccess,
}

/// The name of a user, as the gateway knows the user. It has 1 to [`MAX_PRINCIPAL_BYTES`] bytes,
/// and no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PrincipalName(String);

/// The kinds of requests that a user may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FilesAccess {
    /// Only those that change nothing.
    Read,
    /// Also changes.
    Write,
}

/// A client cannot ask on behalf of a user in this way.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BehalfError {
    /// The name of the user is not possible.
    #[error(
        "`{}` is not a name of a user: it has 1 to {MAX_PRINCIPAL_BYTES} bytes, and no control \
         characters",
        shortened(.0, MAX_QUOTED_CHARS)
    )]
    Principal(String),
    /// The folder is not one.
    #[error("the folder of a user: {0}")]
    Prefix(#[from] FileNameError),
}

impl Behalf {
    /// The user `principal`, who may use what is below the folder `prefix`; `/` is the root.
    ///
    /// # Errors
    /// If the name of the user or of the folder is not possible.
    pub fn new(principal: &str, prefix: &str, access: FilesAccess) -> Result<Self, BehalfError> {
        let principal =
            PrincipalName::checked(principal.to_owned()).map_err(BehalfError::Principal)?;
        let prefix = match prefix.trim_end_matches('/') {
            "" => None,
            folder => Some(folder.parse()?),
        };
        Ok(Behalf { principal, prefix, access })
    }

    /// The name of the user.
    pub fn principal(&self) -> &str {
        &self.principal.0
    }

    /// Whether the user may change files.
    pub fn may_write(&self) -> bool {
        self.access == FilesAccess::Write
    }

    /// Whether the user may look at an entry: the folder, or one below it.
    pub fn reads(&self, name: &FileName) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| name.is_within(prefix.as_str()))
    }

    /// Whether the user may change an entry. The folder itself, with its quota, belongs to those
    /// who have given it to the user.
    pub fn writes(&self, name: &FileName) -> bool {
        self.may_write() && self.reads(name) && self.prefix.as_ref() != Some(name)
    }

    /// Whether the user may list a folder.
    pub fn holds(&self, folder: &str) -> bool {
        let folder = folder.trim_end_matches('/').parse::<FileName>();
        self.prefix.is_none() || folder.is_ok_and(|folder| self.reads(&folder))
    }

    /// Whether this is the same user, with no more than the other one permits.
    pub fn narrows(&self, other: &Behalf) -> bool {
        let is_within = match &self.prefix {
            Some(prefix) => other.reads(prefix),
            None => other.prefix.is_none(),
        };
        self.principal == other.principal && is_within && self.access <= other.access
    }
}

/// What the user may do, for messages.
impl fmt::Display for Behalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let may = if self.may_write() { "use files" } else { "read files" };
        let folder = self.prefix.as_ref().map_or("/", FileName::as_str);
        write!(f, "{} may only {may} below {folder}", self.principal.0)
    }
}

impl PrincipalName {
    fn checked(text: String) -> Result<Self, String> {
        let is_possible =
            !text.is_empty() && text.len() <= MAX_PRINCIPAL_BYTES && !text.contains(acts);
        if is_possible { Ok(PrincipalName(text)) } else { Err(text) }
    }
}

impl<'de> Deserialize<'de> for PrincipalName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PrincipalName::checked(String::deserialize(deserializer)?)
            .map_err(|text| de::Error::custom(BehalfError::Principal(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behalf(prefix: &str, access: FilesAccess) -> Behalf {
        Behalf::new("anna", prefix, access).unwrap()
    }

    #[test]
    fn a_user_has_what_is_below_the_folder() {
        for (prefix, name, reads, writes) in [
            ("/a", "/a/b", true, true),
            ("/a/", "/a/b/c", true, true),
            ("a", "/a/b", true, true),
            ("/a", "/a", true, false),
            ("/a", "/ab", false, false),
            ("/a", "/ab/c", false, false),
            ("/a", "/b", false, false),
            ("/a/b", "/a", false, false),
            ("/a/b", "/a/c", false, false),
            ("/", "/a", true, true),
            ("", "/a/b", true, true),
        ] {
            let name = name.parse().unwrap();
            let (reader, writer) =
                (behalf(prefix, FilesAccess::Read), behalf(prefix, FilesAccess::Write));
            assert_eq!((reader.reads(&name), writer.reads(&name)), (reads, reads), "{name}");
            assert_eq!((reader.writes(&name), writer.writes(&name)), (false, writes), "{name}");
        }
        for (prefix, folder, holds) in [
            ("/a", "/a", true),
            ("/a", "/a/", true),
            ("/a", "/a/b", true),
            ("/a", "/ab", false),
            ("/a", "/a/../b", false),
            ("/a", "/a/..", false),
            ("/a", "/a//b", false),
            ("/a", "/", false),
            ("/a", "", false),
            ("/", "", true),
        ] {
            assert_eq!(behalf(prefix, FilesAccess::Read).holds(folder), holds, "{prefix} {folder}");
        }
    }

    #[test]
    fn users_and_folders_are_checked() {
        for user in ["", "a\nb", "\u{202e}", &"x".repeat(MAX_PRINCIPAL_BYTES + 1)] {
            let wrong = Behalf::new(user, "/a", FilesAccess::Read);
            assert_eq!(wrong, Err(BehalfError::Principal(user.into())));
            let name = PrincipalName(user.into());
            let sent = Behalf { principal: name, ..behalf("/a", FilesAccess::Read) };
            let bytes = postcard::to_allocvec(&sent).unwrap();
            assert!(postcard::from_bytes::<Behalf>(&bytes).is_err(), "{user}");
        }
        for prefix in ["/a/..", "/..", "//a", "/a/./b", "/a\0"] {
            assert!(Behalf::new("anna", prefix, FilesAccess::Read).is_err(), "{prefix}");
        }
        let long = "ü".repeat(MAX_PRINCIPAL_BYTES / 2);
        let sent = Behalf::new(&long, "/", FilesAccess::Write).unwrap();
        let bytes = postcard::to_allocvec(&sent).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(sent));
    }

    #[test]
    fn a_user_gets_no_more_than_before() {
        let (read, write) = (FilesAccess::Read, FilesAccess::Write);
        for (prefix, access, narrows) in [
            ("/a", write, true),
            ("/a", read, true),
            ("/a/b", write, true),
            ("/ab", read, false),
            ("/", read, false),
        ] {
            assert_eq!(behalf(prefix, access).narrows(&behalf("/a", write)), narrows, "{prefix}");
        }
        assert!(!behalf("/a", write).narrows(&behalf("/a", read)));
        assert!(behalf("/", read).narrows(&behalf("/", read)));
        let other = Behalf::new("bob", "/a", read).unwrap();
        assert!(!other.narrows(&behalf("/a", write)), "another user");
    }
}
