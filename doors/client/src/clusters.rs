//! Where clusters are found: each cluster has a folder under eyas's home, which holds its access
//! file. The stores of a local cluster are in a cache folder.

use std::env;
use std::path::{Path, PathBuf};

use eyas_session::{Access, AccessError};
use thiserror::Error;

/// Name of the cluster that commands use by default.
pub const DEFAULT_CLUSTER: &str = "default";

/// Eyas's home: `$EYAS_HOME`, else `$XDG_STATE_HOME/eyas`, else `~/.local/state/eyas`. A folder
/// that users share, such as `/tmp`, is never used: one user could put keys there for another.
///
/// # Errors
/// If none of the variables is set.
pub fn home() -> Result<PathBuf, ClusterError> {
    variable("EYAS_HOME")
        .or_else(|| Some(variable("XDG_STATE_HOME")?.join("eyas")))
        .or_else(|| Some(variable("HOME")?.join(".local/state/eyas")))
        .ok_or(ClusterError::NoHome)
}

/// Name of the access file in the folder of a cluster.
const ACCESS_FILE: &str = "access.toml";

/// Where stores of local clusters are: `$EYAS_HOME/cache`, else `$XDG_CACHE_HOME/eyas`, else
/// `~/.cache/eyas`.
fn cache_home() -> Result<PathBuf, ClusterError> {
    let home = variable("EYAS_HOME").map(|home| home.join("cache"));
    home.or_else(|| Some(variable("XDG_CACHE_HOME")?.join("eyas")))
        .or_else(|| Some(variable("HOME")?.join(".cache/eyas")))
        .ok_or(ClusterError::NoHome)
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Why a cluster cannot be used.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A name that cannot be a folder's.
    #[error(
        "`{0}` cannot be the name of a cluster: use up to 64 letters, digits, `-`, `_` and `.`, \
         and no `.` at the start"
    )]
    Name(String),
    /// No variable says where eyas's home is.
    #[error(
        "there is no folder for clusters and their keys, because none of EYAS_HOME, \
         XDG_STATE_HOME and HOME is set: set EYAS_HOME to a folder of your own, or name an access \
         file with --access"
    )]
    NoHome,
    /// The folder of all clusters cannot be read.
    #[error("cannot list the clusters in {folder}: {source}")]
    List {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The stores cannot be moved to where files of the cluster are safe.
    #[error(
        "the stores of the cluster are in {from}, which may be removed as a cache, and cannot be \
         moved to {to} for files of the cluster: {source}. Move the folders n1, n2 and so on, or \
         start the cluster without --dfs"
    )]
    Stores {
        /// Where the stores are.
        from: PathBuf,
        /// Where they should be.
        to: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A cluster is to be started with an access file of another name.
    #[error(
        "a cluster that starts writes its access file as {own}, and not as {access}: write \
         --access {own}, and copy the file afterwards if you like"
    )]
    AccessName {
        /// The access file that was named.
        access: PathBuf,
        /// Where it would be.
        own: PathBuf,
    },
    /// The access file is missing or cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// The folder and access file of a cluster, which may be running or stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    folder: PathBuf,
    access: PathBuf,
}

impl Cluster {
    /// The cluster with this name in eyas's home.
    ///
    /// # Errors
    /// If the text cannot be a name, or no variable says where eyas's home is.
    pub fn named(name: &str) -> Result<Self, ClusterError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty()
            || name.starts_with('.')
            || name.len() > 64
            || !name.chars().all(is_plain)
        {
            return Err(ClusterError::Name(name.to_owned()));
        }
        let folder = home()?.join("clusters").join(name);
        Ok(Cluster { access: folder.join(ACCESS_FILE), folder })
    }

    /// The cluster of a command without `--cluster` or `--access`: `$EYAS_ACCESS`, else
    /// `$EYAS_CLUSTER`, else `default`.
    ///
    /// # Errors
    /// If `$EYAS_CLUSTER` cannot be a name, or no variable says where eyas's home is.
    pub fn implied() -> Result<Self, ClusterError> {
        if let Some(access) = env::var_os("EYAS_ACCESS").filter(|value| !value.is_empty()) {
            return Ok(Cluster::with_access(Path::new(&access)));
        }
        let name = env::var("EYAS_CLUSTER").ok().filter(|name| !name.is_empty());
        Cluster::named(name.as_deref().unwrap_or(DEFAULT_CLUSTER))
    }

    /// The cluster with this access file.
    pub fn with_access(access: &Path) -> Self {
        let folder = access.parent().filter(|folder| !folder.as_os_str().is_empty());
        Cluster { folder: folder.unwrap_or(Path::new(".")).to_owned(), access: access.to_owned() }
    }

    /// The cluster itself, if it can be started: its processes write the access file into its
    /// folder, under a name that is always the same.
    ///
    /// # Errors
    /// If the access file has another name.
    pub fn startable(self) -> Result<Self, ClusterError> {
        let own = self.folder.join(ACCESS_FILE);
        match self.access.file_name() == own.file_name() {
            true => Ok(self),
            false => Err(ClusterError::AccessName { access: self.access, own }),
        }
    }

    /// Names of the clusters under eyas's home, sorted.
    ///
    /// # Errors
    /// If eyas's home is unknown, or the folder cannot be read.
    pub fn names() -> Result<Vec<String>, ClusterError> {
        let folder = home()?.join("clusters");
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(ClusterError::List { folder, source }),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| Cluster::named(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The folder for stores of executors on this machine: in the cache folder for a named cluster,
    /// else beside the access file.
    ///
    /// # Errors
    /// If no variable says where the cache folder is.
    pub fn stores(&self) -> Result<PathBuf, ClusterError> {
        let clusters = home().map(|home| home.join("clusters"));
        match (self.folder.parent(), self.folder.file_name()) {
            (Some(parent), Some(name)) if clusters.is_ok_and(|clusters| parent == clusters) => {
                Ok(cache_home()?.join("clusters").join(name))
            }
            _ => Ok(self.folder.clone()),
        }
    }

    /// The folder for stores of a local cluster that is about to start. A cluster has one place for
    /// its stores, because jobs keep outputs in them. It is the cache folder until the cluster is
    /// started with a file system; then the stores move beside the access file, and stay there:
    /// users may remove a cache folder.
    ///
    /// # Errors
    /// If the stores cannot be moved, or no variable says where the cache folder is.
    pub fn stores_at_start(&self, has_files: bool) -> Result<PathBuf, ClusterError> {
        let (own, cache) = (self.folder.clone(), self.stores()?);
        if own == cache || !stores_in(&own).is_empty() {
            return Ok(own);
        }
        if !has_files {
            return Ok(cache);
        }
        for name in stores_in(&cache) {
            std::fs::rename(cache.join(&name), own.join(&name)).map_err(|source| {
                ClusterError::Stores { from: cache.clone(), to: own.clone(), source }
            })?;
        }
        Ok(own)
    }

    /// Numbers of the executors of a local cluster that have a folder in `stores`, in order.
    pub fn executors_in(stores: &Path) -> Vec<u32> {
        let names = stores_in(stores);
        let mut numbers: Vec<_> =
            names.iter().filter_map(|name| number_of(name.to_str()?)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The dispatcher's journal.
    pub fn journal_path(&self) -> PathBuf {
        self.folder.join("journal.redb")
    }

    /// The log of the cluster's processes that run in the background.
    pub fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The log of a process in the background that only uses the cluster, such as a mount: beside
    /// the log of a cluster in eyas's home; for a cluster with an access file elsewhere, in eyas's
    /// home, because the folder of that file is the user's. Without a home, as at the start of a
    /// machine, it is beside the access file.
    pub fn client_log_path(&self) -> PathBuf {
        match home() {
            Ok(home) if !self.folder.starts_with(&home) => home.join("clients.log"),
            _ => self.log_path(),
        }
    }

    /// The dispatcher's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of the access file.
    pub fn access_path(&self) -> &Path {
        &self.access
    }

    /// Reads the access file.
    ///
    /// # Errors
    /// If the file is missing or cannot be used.
    pub fn access(&self) -> Result<Access, ClusterError> {
        Ok(Access::load(&self.access)?)
    }
}

/// The number of an executor of a local cluster, by its name.
fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix('n')?.parse().ok()
}

/// Names of the folders of executors of a local cluster: `n1`, `n2` and so on.
fn stores_in(folder: &Path) -> Vec<std::ffi::OsString> {
    let is_of_executor = |name: &str| number_of(name).is_some();
    let names =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_str().is_some_and(is_of_executor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_file_is_in_the_folder_of_its_cluster() {
        for (access, folder) in [("access.toml", "."), ("a/access.toml", "a"), ("/x.toml", "/")] {
            assert_eq!(Cluster::with_access(Path::new(access)).folder(), Path::new(folder));
        }
        assert!(Cluster::with_access(Path::new("access.toml")).startable().is_ok());
        let other = Cluster::with_access(Path::new("a/mine.toml")).startable().unwrap_err();
        assert!(other.to_string().contains("write --access a/access.toml"), "{other}");
    }

    #[test]
    fn names_never_become_other_paths() {
        for name in ["", "..", ".hidden", "a/b", "a\0b", "ä", &"x".repeat(65)] {
            assert!(Cluster::named(name).is_err(), "{name:?}");
        }
        assert!(
            Cluster::named("sky-survey_2.1").unwrap().folder().ends_with("clusters/sky-survey_2.1")
        );
    }
}
