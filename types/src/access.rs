//! Who may do what in a cluster: keys, their roles, and what the tasks of a job may do with its files.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dfs::FileName;
use crate::id::JobId;

/// A key of a cluster. Numbers are never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub u32);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}", self.0)
    }
}

impl FromStr for KeyId {
    type Err = String;

    /// Takes what is shown of it.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix('k').and_then(|digits| digits.parse().ok());
        number.map(KeyId).ok_or_else(|| format!("`{text}` is not a key: write its id, such as k3"))
    }
}

/// What the holder of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KeyRole {
    /// Everything: also keys, the cluster's end, and what executors do.
    Admin,
    /// Ask, submit jobs, end them, and write files of the cluster.
    Submit,
    /// Ask, and read files of the cluster.
    Read,
    /// Be an executor, and a node of the file system.
    Executor,
}

impl KeyRole {
    /// All of them.
    pub const ALL: [KeyRole; 4] = [KeyRole::Admin, KeyRole::Submit, KeyRole::Read, KeyRole::Executor];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            KeyRole::Admin => "admin",
            KeyRole::Submit => "submit",
            KeyRole::Read => "read",
            KeyRole::Executor => "executor",
        }
    }

    /// Whether its holder may be an executor.
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = KeyRole::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or_else(|| format!("`{text}` is not a role: write admin, submit, read or executor"))
    }
}

/// Who is at the other end of a session, as its certificate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Principal {
    /// The cluster's dispatcher.
    Dispatcher,
    /// The holder of a key.
    Key(KeyId, KeyRole),
    /// A task of a job, with the job's token.
    Job(JobId),
}

impl Principal {
    /// Its name in a certificate, which has the form of a host's.
    pub fn host_name(self) -> String {
        match self {
            Principal::Dispatcher => "dispatcher.eyas".into(),
            Principal::Key(id, role) => format!("{id}.{role}.eyas"),
            Principal::Job(job) => format!("{job}.job.eyas"),
        }
    }

    /// Who has this name in a certificate.
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

/// What tasks may do with files of the cluster, with their job's token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesScope {
    /// Files that they may read.
    pub reads: Vec<FileName>,
    /// Folders whose files they may read, write and remove.
    pub folders: Vec<String>,
}

impl FilesScope {
    /// Whether they may look at a file and read it.
    pub fn reads(&self, name: &FileName) -> bool {
        self.reads.contains(name) || self.writes(name)
    }

    /// Whether they may write, rename and remove a file.
    pub fn writes(&self, name: &FileName) -> bool {
        self.folders.iter().any(|folder| name.is_within(folder))
    }

    /// Whether they may do all of that in a folder.
    pub fn holds(&self, folder: &str) -> bool {
        self.folders.iter().any(|own| own.trim_end_matches('/') == folder.trim_end_matches('/'))
    }

    /// Takes what another allows, too.
    pub fn extend(&mut self, other: &FilesScope) {
        self.reads.extend(other.reads.iter().filter(|name| !self.reads.contains(name)).cloned().collect::<Vec<_>>());
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
        for name in
            ["", "eyas", "k1.eyas", "k1.root.eyas", "1.admin.eyas", "k1.job.eyas", "x.dispatcher.eyas", "k1.admin"]
        {
            assert_eq!(Principal::of_host_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_scope_is_its_files_and_what_is_in_its_folders() {
        let name = |text: &str| text.parse::<FileName>().unwrap();
        let mut scope = FilesScope { reads: [name("/data/sky.csv")].into(), folders: ["/.eyas/runs/1".into()].into() };
        for (file, reads, writes) in [
            ("/data/sky.csv", true, false),
            ("/data/other.csv", false, false),
            ("/.eyas/runs/1/map-2", true, true),
            ("/.eyas/runs/12/map-2", false, false),
        ] {
            assert_eq!((scope.reads(&name(file)), scope.writes(&name(file))), (reads, writes), "{file}");
        }
        let before = scope.clone();
        scope.extend(&before);
        assert_eq!(scope, before);
    }
}
