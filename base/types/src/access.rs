//! Access rights in a cluster: keys, their roles, and the files that the tasks of a job may use.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dfs::FileName;
use crate::id::{IdError, JobId};

mod behalf;

pub use behalf::{Behalf, BehalfError, FilesAccess, MAX_PRINCIPAL_BYTES};

/// The number of a key of a cluster. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub u32);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}", self.0)
    }
}

impl FromStr for KeyId {
    type Err = IdError;

    /// Parses the form that is shown.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = text.strip_prefix('k').and_then(|digits| digits.parse().ok());
        number.map(KeyId).ok_or_else(|| IdError::Key(text.into()))
    }
}

/// A text is not a role.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a role: write admin, submit, read or executor")]
pub struct RoleError(pub String);

/// The rights of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KeyRole {
    /// All rights: also to manage keys, to stop the cluster, and to be an executor.
    Admin,
    /// Query, submit and cancel jobs, and write files of the cluster.
    Submit,
    /// Query, and read files of the cluster.
    Read,
    /// Be an executor, and a node of the file system.
    Executor,
}

impl KeyRole {
    /// All roles.
    pub const ALL: [KeyRole; 4] =
        [KeyRole::Admin, KeyRole::Submit, KeyRole::Read, KeyRole::Executor];

    /// The role's name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            KeyRole::Admin => "admin",
            KeyRole::Submit => "submit",
            KeyRole::Read => "read",
            KeyRole::Executor => "executor",
        }
    }

    /// Whether the key allows a process to be an executor.
    pub fn is_of_nodes(self) -> bool {
        matches!(self, KeyRole::Admin | KeyRole::Executor)
    }
}

impl fmt::Display for KeyRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyRole {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let role = KeyRole::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or_else(|| RoleError(text.into()))
    }
}

/// The identity of a process in a session, as its certificate states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// The dispatcher of the cluster.
    Dispatcher,
    /// A process with a key.
    Key(KeyId, KeyRole),
    /// A task of the job, with the job's token.
    Job(JobId),
}

impl Principal {
    /// The name in a certificate, in the form of a host name.
    pub fn host_name(self) -> String {
        match self {
            Principal::Dispatcher => "dispatcher.eyas".into(),
            Principal::Key(id, role) => format!("{id}.{role}.eyas"),
            Principal::Job(job) => format!("{job}.job.eyas"),
        }
    }

    /// The principal with this name in a certificate.
    pub fn of_host_name(name: &str) -> Option<Self> {
        if name == "dispatcher.eyas" {
            return Some(Principal::Dispatcher);
        }
        let (id, role) = name.strip_suffix(".eyas")?.split_once('.')?;
        match role {
            "job" => Some(Principal::Job(id.parse().ok()?)),
            role => Some(Principal::Key(id.parse().ok()?, role.parse().ok()?)),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Dispatcher => f.write_str("the dispatcher"),
            Principal::Key(id, role) => write!(f, "key {id} (role {role})"),
            Principal::Job(job) => write!(f, "the token of job {job}"),
        }
    }
}

/// The files of the cluster that tasks may use with their job's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesScope {
    /// Files that the tasks may read.
    pub reads: Vec<FileName>,
    /// Folders whose files the tasks may read, write and remove.
    pub folders: Vec<String>,
}

impl FilesScope {
    /// Whether tasks may read a file and its metadata.
    pub fn reads(&self, name: &FileName) -> bool {
        self.reads.contains(name) || self.writes(name)
    }

    /// Whether tasks may write, rename and remove a file.
    pub fn writes(&self, name: &FileName) -> bool {
        self.folders.iter().any(|folder| name.is_within(folder))
    }

    /// Whether tasks may read and write all files of a folder.
    pub fn holds(&self, folder: &str) -> bool {
        self.folders.iter().any(|own| own.trim_end_matches('/') == folder.trim_end_matches('/'))
    }

    /// Adds the files and folders of another scope.
    pub fn extend(&mut self, other: &FilesScope) {
        self.reads.extend(
            other
                .reads
                .iter()
                .filter(|name| !self.reads.contains(name))
                .cloned()
                .collect::<Vec<_>>(),
        );
        let folders = other.folders.iter().filter(|folder| !self.folders.contains(folder));
        self.folders.extend(folders.cloned().collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_certificates_come_back() {
        let keys = KeyRole::ALL.into_iter().map(|role| Principal::Key(KeyId(7), role));
        for holder in keys.chain([Principal::Dispatcher, Principal::Job(JobId(12))]) {
            assert_eq!(Principal::of_host_name(&holder.host_name()), Some(holder));
        }
        for name in [
            "",
            "eyas",
            "k1.eyas",
            "k1.root.eyas",
            "1.admin.eyas",
            "k1.job.eyas",
            "x.dispatcher.eyas",
            "k1.admin",
        ] {
            assert_eq!(Principal::of_host_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_scope_is_its_files_and_what_is_in_its_folders() {
        let name = |text: &str| text.parse::<FileName>().unwrap();
        let mut scope = FilesScope {
            reads: [name("/data/sky.csv")].into(),
            folders: ["/.eyas/runs/1".into()].into(),
        };
        for (file, reads, writes) in [
            ("/data/sky.csv", true, false),
            ("/data/other.csv", false, false),
            ("/.eyas/runs/1/map-2", true, true),
            ("/.eyas/runs/12/map-2", false, false),
        ] {
            assert_eq!(
                (scope.reads(&name(file)), scope.writes(&name(file))),
                (reads, writes),
                "{file}"
            );
        }
        let before = scope.clone();
        scope.extend(&before);
        assert_eq!(scope, before);
    }
}
