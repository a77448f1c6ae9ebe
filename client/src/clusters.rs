//! Where clusters are found: each has a folder under eyas's home, with its access file in it.

use std::env;
use std::path::{Path, PathBuf};

use eyas_session::{Access, AccessError};
use thiserror::Error;

/// The cluster that is meant where none is named.
const DEFAULT_NAME: &str = "default";

/// Eyas's home: `$EYAS_HOME`, else `$XDG_STATE_HOME/eyas`, else `~/.local/state/eyas`. There is no other: a place that
/// users share would let one of them put keys there for another.
///
/// # Errors
/// If none of the variables is set.
pub fn home() -> Result<PathBuf, ClusterError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("EYAS_HOME")
        .or_else(|| Some(set("XDG_STATE_HOME")?.join("eyas")))
        .or_else(|| Some(set("HOME")?.join(".local/state/eyas")))
        .ok_or(ClusterError::NoHome)
}

/// Why there is no such cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A name that cannot be a folder's.
    #[error("`{0}` cannot be a cluster's name: use letters, digits, `-`, `_` and `.`")]
    Name(String),
    /// No variable says where eyas's home is.
    #[error(
        "there is no place for clusters and their keys, since none of EYAS_HOME, XDG_STATE_HOME and HOME is set: set \
         EYAS_HOME to a folder of your own, or name an access file with --access"
    )]
    NoHome,
    /// It is not there, or its access file cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// A cluster that may be running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    folder: PathBuf,
    access: PathBuf,
}

impl Cluster {
    /// The cluster of that name on this machine, or on one that shares eyas's home with it.
    ///
    /// # Errors
    /// If that cannot be a name, or no variable says where eyas's home is.
    pub fn named(name: &str) -> Result<Self, ClusterError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(ClusterError::Name(name.to_owned()));
        }
        let folder = home()?.join("clusters").join(name);
        Ok(Cluster { access: folder.join("access.toml"), folder })
    }

    /// The cluster that is meant where none is named: `$EYAS_ACCESS`, else `$EYAS_CLUSTER`, else `default`.
    ///
    /// # Errors
    /// If `$EYAS_CLUSTER` cannot be a name, or no variable says where eyas's home is.
    pub fn implied() -> Result<Self, ClusterError> {
        if let Some(access) = env::var_os("EYAS_ACCESS").filter(|value| !value.is_empty()) {
            return Ok(Cluster::with_access(Path::new(&access)));
        }
        let name = env::var("EYAS_CLUSTER").ok().filter(|name| !name.is_empty());
        Cluster::named(name.as_deref().unwrap_or(DEFAULT_NAME))
    }

    /// The cluster with that access file.
    pub fn with_access(access: &Path) -> Self {
        Cluster { folder: access.parent().unwrap_or(Path::new(".")).to_owned(), access: access.to_owned() }
    }

    /// The dispatcher's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its access file.
    pub fn access_path(&self) -> &Path {
        &self.access
    }

    /// Reads the access file.
    ///
    /// # Errors
    /// If it is not there or cannot be used.
    pub fn access(&self) -> Result<Access, ClusterError> {
        Ok(Access::load(&self.access)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_become_other_paths() {
        for name in ["", "..", ".hidden", "a/b", "a\0b", "ä", &"x".repeat(65)] {
            assert!(Cluster::named(name).is_err(), "{name:?}");
        }
        assert!(Cluster::named("sky-survey_2.1").unwrap().folder().ends_with("clusters/sky-survey_2.1"));
    }
}
