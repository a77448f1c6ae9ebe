//! Maps of users: the owners of the files that a process creates in the cluster. The users of a
//! machine may have other ids than the users of the cluster, and a process that serves others knows
//! only the keys of the cluster. A map is a TOML file with lines `NAME = { uid = 1001, gid = 100
//! }`. In its table `[users]`, NAME is the name of a user of the machine; in `[keys]`, the id of a
//! key; in `[roles]`, the role of a key.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use eyas_session::private::PrivateError;
use eyas_session::trusted;
use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_types::mistake::{line_at, plainly};
use serde::Deserialize;
use thiserror::Error;

/// The entry of `[users]` for users without an entry of their own.
const OTHERS: &str = "*";

/// An owner of files of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A map from users of this machine, and from keys of the cluster, to owners of files of the
/// cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMap {
    path: PathBuf,
    users: BTreeMap<String, FileOwner>,
    keys: BTreeMap<KeyId, FileOwner>,
    roles: BTreeMap<KeyRole, FileOwner>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserMapFile {
    #[serde(default)]
    users: BTreeMap<String, FileOwner>,
    #[serde(default)]
    keys: BTreeMap<String, FileOwner>,
    #[serde(default)]
    roles: BTreeMap<String, FileOwner>,
}

/// Why the owner of a user is not known.
#[derive(Debug, Error)]
pub enum UserMapError {
    /// The file cannot be read.
    #[error("the map of users {}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Another user could have written the file.
    #[error(
        "the map of users {} is not read, because it says which files are whose: {why}",
        path.display()
    )]
    Untrusted {
        /// Path of the file.
        path: PathBuf,
        /// What another user could do.
        why: PrivateError,
    },
    /// The file is not a map of users.
    #[error(
        "the map of users {}, line {line}: {why}; write [users], [keys] or [roles], and below it \
         NAME = {{ uid = 1001, gid = 100 }}",
        path.display()
    )]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The mistake in the file.
        why: String,
    },
    /// A line of `[keys]` does not begin with the id of a key, or one of `[roles]` not with a role.
    #[error("the map of users {}: {why}", path.display())]
    Name {
        /// Path of the file.
        path: PathBuf,
        /// The reason, with the name.
        why: String,
    },
    /// The map has no entry for the user and the key.
    #[error(
        "the map of users {} has no user `{user}`, and no entry for {key}: add a line for the user \
         or \"*\" to [users], for the key to [keys], or for its role to [roles]",
        path.display()
    )]
    Unknown {
        /// Path of the file.
        path: PathBuf,
        /// Name of the user.
        user: String,
        /// The key of the process.
        key: Principal,
    },
}

impl UserMap {
    /// Reads a map.
    ///
    /// # Errors
    /// `Unreadable`, `Untrusted`, `Syntax`, `Name`.
    pub fn read(path: &Path) -> Result<Self, UserMapError> {
        let unreadable = |source| UserMapError::Unreadable { path: path.to_owned(), source };
        let real = trusted::file(path).map_err(|why| match why {
            PrivateError::Io { source, .. } => unreadable(source),
            PrivateError::OtherKind { .. } => unreadable(std::io::Error::other(why.to_string())),
            why => UserMapError::Untrusted { path: path.to_owned(), why },
        })?;
        let text = std::fs::read_to_string(real).map_err(unreadable)?;
        let syntax = |error: toml::de::Error| UserMapError::Syntax {
            path: path.to_owned(),
            line: line_at(&text, error.span().map_or(0, |span| span.start)),
            why: plainly(error.message()),
        };
        let UserMapFile { users, keys, roles } = toml::from_str(&text).map_err(syntax)?;
        Ok(UserMap {
            path: path.to_owned(),
            users,
            keys: named(path, keys)?,
            roles: named(path, roles)?,
        })
    }

    /// The owner for a process of this user, by name, that uses the cluster as `key`: the entry of
    /// the key, else of the user, else of the role of the key, else of `\"*\"`.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn owner_of(&self, user: &str, key: Principal) -> Result<FileOwner, UserMapError> {
        let (of_key, of_role) = match key {
            Principal::Key(id, role) => (self.keys.get(&id), self.roles.get(&role)),
            Principal::Dispatcher | Principal::Job(_) => (None, None),
        };
        let owner =
            of_key.or_else(|| self.users.get(user)).or(of_role).or_else(|| self.users.get(OTHERS));
        let unknown =
            || UserMapError::Unknown { path: self.path.clone(), user: user.to_owned(), key };
        owner.copied().ok_or_else(unknown)
    }
}

/// A table of a map whose names are of the type `K`.
fn named<K>(
    path: &Path,
    table: BTreeMap<String, FileOwner>,
) -> Result<BTreeMap<K, FileOwner>, UserMapError>
where
    K: FromStr<Err: Display> + Ord,
{
    let entry = |(name, owner): (String, FileOwner)| {
        let wrong =
            |error: K::Err| UserMapError::Name { path: path.to_owned(), why: error.to_string() };
        Ok((name.parse().map_err(wrong)?, owner))
    };
    table.into_iter().map(entry).collect()
}

/// The name of the user of this process, by `/etc/passwd`; the number of a user that is not there.
pub fn name_of_user() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    name.unwrap_or(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_owners_of_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            UserMap::read(&path)
        };
        let key = |number, role| Principal::Key(KeyId(number), role);
        let submit = key(3, KeyRole::Submit);
        let map = read("[users]\nanna = { uid = 7, gid = 8 }\n").unwrap();
        assert_eq!(map.owner_of("anna", submit).unwrap(), FileOwner { uid: 7, gid: 8 });
        let error = map.owner_of("ben", submit).unwrap_err().to_string();
        assert!(
            error.contains("no user `ben`") && error.contains("key k3 (role submit)"),
            "{error}"
        );
        let map =
            read("[users]\nanna = { uid = 7, gid = 8 }\n\"*\" = { uid = 9, gid = 9 }\n").unwrap();
        assert_eq!(map.owner_of("ben", submit).unwrap().uid, 9);
        for (wrong, why) in [
            ("x", "users.toml, line 1: "),
            ("[users]\nanna = 7", "users.toml, line 2: this is the number 7: write a table"),
            ("[users]\nanna = { uid = 7 }", "users.toml, line 2: the key `gid` is missing"),
            ("[users]\n[groups]\n", "users.toml, line 2: `groups` is not a key here: "),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write [users], [keys]"), "{error}");
        }
        for (wrong, why) in
            [("[keys]\n3", "k3"), ("[roles]\nroot", "write admin, submit, read or executor")]
        {
            let error =
                read(&format!("{wrong} = {{ uid = 7, gid = 8 }}\n")).unwrap_err().to_string();
            assert!(error.contains("users.toml") && error.contains(why), "{error}");
        }
        let lines = |table: &str, names: &[(&str, u32)]| {
            let line =
                |(name, id): &(&str, u32)| format!("{name} = {{ uid = {id}, gid = {id} }}\n");
            format!("[{table}]\n{}", names.iter().map(line).collect::<String>())
        };
        let tables = [
            lines("users", &[("anna", 1), ("\"*\"", 2)]),
            lines("keys", &[("k3", 3)]),
            lines("roles", &[("submit", 4), ("executor", 5)]),
        ];
        let map = read(&tables.concat()).unwrap();
        for (user, key, uid) in [
            ("anna", submit, 3),
            ("anna", key(4, KeyRole::Submit), 1),
            ("ben", key(4, KeyRole::Submit), 4),
            ("ben", key(5, KeyRole::Executor), 5),
            ("ben", key(1, KeyRole::Admin), 2),
            ("ben", Principal::Dispatcher, 2),
        ] {
            assert_eq!(map.owner_of(user, key).unwrap().uid, uid, "{user}, {key}");
        }
        assert!(matches!(UserMap::read(folder.path()), Err(UserMapError::Unreadable { .. })));
        assert!(!name_of_user().is_empty());
    }
}
