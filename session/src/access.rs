//! The access file: where the dispatcher listens, and the secret that lets one in.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::private::{self, PrivateError, PrivateFolder};

/// What a process needs to join a cluster or to use it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Access {
    /// The cluster's name.
    pub cluster: String,
    /// `host:port` of its dispatcher.
    pub dispatcher: String,
    /// The cluster's certificate, PEM.
    pub(crate) certificate: String,
    /// Its key, PEM: the secret.
    pub(crate) key: String,
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
        "{path} can be read by others (mode {mode:o}): it is the cluster's secret. Do `chmod 600 {path}`, and restart \
         the cluster if someone may have seen it"
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
    /// A new secret for a cluster whose dispatcher listens at `dispatcher` (`host:port`).
    pub fn create(cluster: &str, dispatcher: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([crate::tls::SERVER_NAME.to_owned()]);
        let made = made.expect("the name is a valid DNS name");
        Access {
            cluster: cluster.to_owned(),
            dispatcher: dispatcher.to_owned(),
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    /// The same secret for a dispatcher that listens elsewhere now, or has another name.
    pub fn moved_to(self, cluster: &str, dispatcher: &str) -> Self {
        Access { cluster: cluster.to_owned(), dispatcher: dispatcher.to_owned(), ..self }
    }

    /// Reads an access file.
    ///
    /// # Errors
    /// If it is missing, another user's, readable by others, or not an access file.
    pub fn load(path: &Path) -> Result<Self, AccessError> {
        let malformed = |why: String| AccessError::Malformed { path: path.to_owned(), why };
        let content = private::read(path)?;
        let text = String::from_utf8(content).map_err(|_| malformed("it is not text".into()))?;
        let access: Access = toml::from_str(&text).map_err(|e| malformed(e.message().to_owned()))?;
        crate::tls::Identity::of(&access).map_err(malformed)?;
        Ok(access)
    }

    /// Writes the access file with mode 0600, whole or not at all; one that is there is replaced.
    ///
    /// # Errors
    /// If its folder cannot be made or written, or is not this user's alone.
    pub fn save(&self, path: &Path) -> Result<(), AccessError> {
        let text = toml::to_string(self).expect("four strings are valid TOML");
        let name =
            path.file_name().ok_or_else(|| PrivateError::OtherKind { path: path.to_owned(), expected: "file" })?;
        let folder = PrivateFolder::make(path.parent().unwrap_or(Path::new(".")))?;
        Ok(folder.write(name, text.as_bytes())?)
    }

    /// The key with which executors of this cluster know each other.
    pub fn peer_key(&self) -> [u8; 32] {
        blake3::derive_key("eyas 2026 transfer between executors", self.key.as_bytes())
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("cluster", &self.cluster)
            .field("dispatcher", &self.dispatcher)
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
        assert_eq!(loaded.peer_key(), access.peer_key());
        assert_ne!(loaded.peer_key(), Access::create("survey", "127.0.0.1:7000").peer_key());
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
