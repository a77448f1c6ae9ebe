//! The access file: where the dispatcher listens, and a key that lets one in.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_wire::DataMode;
use eyas_wire::trust::Trust;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::authority::{Authority, Certified};
use crate::credentials::Credentials;
use crate::private::{self, PrivateError, PrivateFolder};

/// What a process needs to join a cluster or to use it. Clones share what changes while they are used.
#[derive(Clone)]
pub struct Access {
    /// The cluster's name.
    pub cluster: String,
    /// `host:port` of its dispatcher, or of the node that this is to reach.
    pub dispatcher: String,
    /// The authority's certificate, PEM.
    authority: String,
    own: Certified,
    credentials: Credentials,
    /// Whether what listens there is a node.
    is_of_node: bool,
    /// How this process moves bulk data; not in the file, since the cluster decides it.
    data: DataMode,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct AccessFile {
    cluster: String,
    dispatcher: String,
    authority: String,
    certificate: String,
    key: String,
}

/// Why an access file cannot be used.
#[derive(Debug, Error)]
pub enum AccessError {
    /// It is not there.
    #[error(
        "no access file at {path}: start a cluster with `eyas start`, or copy the access file of a running one there"
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Others can read it.
    #[error(
        "{path} can be read by others (mode {mode:o}), and holds a secret key. Run `chmod 600 {path}`; if another \
         user may have seen the key, replace it with `eyas access rotate`, or end it at once with `eyas access revoke`"
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Its file or its folder is not this user's alone.
    #[error("the access file cannot be used: {0}")]
    NotPrivate(PrivateError),
    /// It is not an access file.
    #[error("{path} is not an access file: {why}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
}

impl From<PrivateError> for AccessError {
    fn from(error: PrivateError) -> Self {
        match error {
            PrivateError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                AccessError::Missing { path }
            }
            PrivateError::Exposed { path, mode } => AccessError::Exposed { path, mode },
            error => AccessError::NotPrivate(error),
        }
    }
}

impl Access {
    /// A cluster of one key, with which both sides of every connection prove that they are of it; what listens at
    /// `dispatcher` (`host:port`) has it too. There are no roles, and it cannot be replaced.
    pub fn create(cluster: &str, dispatcher: &str) -> Self {
        let authority = Authority::create();
        let holders = [Principal::Dispatcher, Principal::Key(KeyId(1), KeyRole::Admin)];
        let own = authority.issue_to(&holders).expect("the authority is new");
        Access::new(cluster, dispatcher, authority.certificate(), own, Trust::default()).expect("all of it is new")
    }

    /// The access of the holder of `own`, in a cluster whose `authority` (its certificate, PEM) has signed that.
    ///
    /// # Errors
    /// If the key was not signed by the authority: for a person.
    pub fn new(cluster: &str, dispatcher: &str, authority: &str, own: Certified, trust: Trust) -> Result<Self, String> {
        let credentials = Credentials::new(authority, &own, trust)?;
        let (cluster, dispatcher, authority) = (cluster.to_owned(), dispatcher.to_owned(), authority.to_owned());
        Ok(Access { cluster, dispatcher, authority, own, credentials, is_of_node: false, data: DataMode::default() })
    }

    /// The same for a dispatcher that listens elsewhere now, or has another name.
    pub fn moved_to(self, cluster: &str, dispatcher: &str) -> Self {
        Access { cluster: cluster.to_owned(), dispatcher: dispatcher.to_owned(), ..self }
    }

    /// The same for a node of the cluster that listens at this address.
    pub fn of_node(&self, address: SocketAddr) -> Self {
        Access { dispatcher: address.to_string(), is_of_node: true, ..self.clone() }
    }

    /// Whether what listens there is a node, not the dispatcher.
    pub(crate) fn is_of_node(&self) -> bool {
        self.is_of_node
    }

    /// The same for a process that moves bulk data so.
    pub fn with_data(self, data: DataMode) -> Self {
        Access { data, ..self }
    }

    /// How this process moves bulk data.
    pub fn data(&self) -> DataMode {
        self.data
    }

    /// With what this process proves itself, and whom it accepts.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Reads an access file.
    ///
    /// # Errors
    /// If it is missing, another user's, readable by others, or not an access file.
    pub fn load(path: &Path) -> Result<Self, AccessError> {
        let malformed = |why: String| AccessError::Malformed { path: path.to_owned(), why };
        let content = private::read(path)?;
        let text = String::from_utf8(content).map_err(|_| malformed("it is not text".into()))?;
        let wrong = |e: toml::de::Error| match text.contains("certificate") && !text.contains("authority") {
            true => malformed("an older eyas wrote it. Move it away, and copy the cluster's new one there".into()),
            false => malformed(e.message().to_owned()),
        };
        let file: AccessFile = toml::from_str(&text).map_err(wrong)?;
        let AccessFile { cluster, dispatcher, authority, certificate, key } = file;
        Access::new(&cluster, &dispatcher, &authority, Certified { certificate, key }, Trust::default())
            .map_err(malformed)
    }

    /// Writes the access file with mode 0600, whole or not at all; one that is there is replaced.
    ///
    /// # Errors
    /// If its folder cannot be made or written, or is not this user's alone.
    pub fn save(&self, path: &Path) -> Result<(), AccessError> {
        let text = self.to_text();
        let name =
            path.file_name().ok_or_else(|| PrivateError::OtherKind { path: path.to_owned(), expected: "file" })?;
        let folder = PrivateFolder::make(path.parent().unwrap_or(Path::new(".")))?;
        Ok(folder.write(name, text.as_bytes())?)
    }

    /// As it is written: a secret.
    pub fn to_text(&self) -> String {
        let Certified { certificate, key } = self.own.clone();
        let Access { cluster, dispatcher, authority, .. } = self.clone();
        let file = AccessFile { cluster, dispatcher, authority, certificate, key };
        toml::to_string(&file).expect("five strings are valid TOML")
    }

    /// The certificate of the cluster's authority, PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The secret key, PEM.
    pub(crate) fn key(&self) -> &str {
        &self.own.key
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("cluster", &self.cluster)
            .field("dispatcher", &self.dispatcher)
            .field("holder", &self.credentials.holder())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_access_file_is_private_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/access.toml");
        let access = Access::create("survey", "127.0.0.1:7000");
        access.save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = Access::load(&path).unwrap();
        assert_eq!(loaded.to_text(), access.to_text());
        assert_ne!(loaded.to_text(), Access::create("survey", "127.0.0.1:7000").to_text());
        assert!(!format!("{loaded:?}").contains("PRIVATE"), "the secret is not for logs");
    }

    #[test]
    fn what_is_wrong_with_an_access_file_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        assert!(matches!(Access::load(&path), Err(AccessError::Missing { .. })));
        Access::create("survey", "127.0.0.1:7000").save(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Access::load(&path).unwrap_err().to_string().contains("chmod 600"));
        for garbage in [&b"cluster = 3"[..], b"\xff\xfe", b"cluster='a'\ndispatcher='b'\ncertificate='c'\nkey='d'"] {
            fs::write(&path, garbage).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(Access::load(&path), Err(AccessError::Malformed { .. })), "{garbage:?}");
        }
    }
}
