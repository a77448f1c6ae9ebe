//! The access file: the dispatcher's address, and a key of the cluster.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_types::mistake::{line_at, plainly};
use eyas_wire::DataMode;
use eyas_wire::trust::Trust;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::authority::{Authority, KeyAndCertificate};
use crate::credentials::{Credentials, CredentialsError};
use crate::private::{self, PrivateError, PrivateFolder};
use crate::proxy::Proxy;

/// What a process needs to join or use a cluster. Clones share the credentials.
#[derive(Clone)]
pub struct Access {
    /// The cluster's name.
    pub cluster: String,
    /// `host:port` of the dispatcher, or of the node to connect to.
    pub dispatcher: String,
    /// The authority's certificate, PEM.
    authority: String,
    own: KeyAndCertificate,
    credentials: Credentials,
    /// Whether the address is a node's.
    is_of_node: bool,
    /// The proxy through which the dispatcher and other nodes are reached.
    proxy: Option<Proxy>,
    /// How this process exchanges bulk data. Not in the file: the cluster decides it.
    data: DataMode,
}

/// The file's format.
#[derive(Serialize, Deserialize)]
struct AccessFile {
    cluster: String,
    dispatcher: String,
    authority: String,
    certificate: String,
    key: String,
    #[serde(default, skip_serializing)]
    proxy: Option<ProxyFields>,
}

/// Addresses of a proxy, in an access file.
#[derive(Deserialize)]
struct ProxyFields {
    inside: SocketAddr,
    outside: SocketAddr,
}

/// Why an access file cannot be used.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The file does not exist.
    #[error(
        "no access file at {path}: start a cluster with `eyas start local`, or copy the access \
         file of a running one there"
    )]
    Missing {
        /// The expected path.
        path: PathBuf,
    },
    /// Other users can read the file.
    #[error(
        "{path} can be read by others (mode {mode:o}), and holds a secret key. Run `chmod 600 \
         {path}`; if another user may have seen the key, replace it with `eyas access rotate`, or \
         end it at once with `eyas access revoke`"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The file's permission bits.
        mode: u32,
    },
    /// Other users can change the file or its folder.
    #[error("the access file cannot be used: {0}")]
    NotPrivate(PrivateError),
    /// The file is not an access file.
    #[error("{path} is not an access file: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The mistake in it.
        why: AccessProblem,
    },
    /// A part of the file is damaged.
    #[error(
        "the access file {path} is damaged, line {line}: {why}. Copy the file again, from the \
         machine of the dispatcher or from where this copy came from"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The damage.
        why: AccessProblem,
    },
}

/// Mistakes in access files.
#[derive(Debug, Error)]
pub enum AccessProblem {
    /// It is not UTF-8.
    #[error("it is not text; copy the access file of the cluster there")]
    NotText,
    /// An older version wrote it.
    #[error("an older eyas wrote it. Move it away, and copy the cluster's new one there")]
    Older,
    /// It is not TOML with the fields of an access file.
    #[error("{0}")]
    Form(String),
    /// Its key cannot be used.
    #[error(transparent)]
    Key(CredentialsError),
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
    /// Access to a cluster with a single key, which the process at `dispatcher` (`host:port`) uses
    /// too. The key has all rights and cannot be replaced.
    pub fn create(cluster: &str, dispatcher: &str) -> Self {
        let authority = Authority::create();
        let holders = [Principal::Dispatcher, Principal::Key(KeyId(1), KeyRole::Admin)];
        let own = authority.issue_to(&holders).expect("the authority is new");
        Access::new(cluster, dispatcher, authority.certificate(), own, Trust::default())
            .expect("all of it is new")
    }

    /// Access with the key `own` of a cluster. `authority` is the certificate of the cluster's
    /// authority, PEM.
    ///
    /// # Errors
    /// If the authority has not signed the key.
    pub fn new(
        cluster: &str,
        dispatcher: &str,
        authority: &str,
        own: KeyAndCertificate,
        trust: Trust,
    ) -> Result<Self, CredentialsError> {
        let credentials = Credentials::new(authority, &own, trust)?;
        let (cluster, dispatcher, authority) =
            (cluster.to_owned(), dispatcher.to_owned(), authority.to_owned());
        let (is_of_node, proxy, data) = (false, None, DataMode::default());
        Ok(Access { cluster, dispatcher, authority, own, credentials, is_of_node, proxy, data })
    }

    /// The same access, for a cluster with another name or a dispatcher at another address.
    pub fn moved_to(self, cluster: &str, dispatcher: &str) -> Self {
        Access { cluster: cluster.to_owned(), dispatcher: dispatcher.to_owned(), ..self }
    }

    /// The same access, for the node of the cluster at this address.
    pub fn of_node(&self, address: SocketAddr) -> Self {
        Access { dispatcher: address.to_string(), is_of_node: true, ..self.clone() }
    }

    /// The same access, for a process that reaches others through a proxy.
    pub fn through(self, proxy: Option<Proxy>) -> Self {
        Access { proxy, ..self }
    }

    /// The proxy through which this process reaches the dispatcher and other nodes.
    pub fn proxy(&self) -> Option<Proxy> {
        self.proxy
    }

    /// Whether the address is a node's, not the dispatcher's.
    pub(crate) fn is_of_node(&self) -> bool {
        self.is_of_node
    }

    /// The same access, with another way to exchange bulk data.
    pub fn with_data(self, data: DataMode) -> Self {
        Access { data, ..self }
    }

    /// How this process exchanges bulk data.
    pub fn data(&self) -> DataMode {
        self.data
    }

    /// The key and the trust of this process.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Reads an access file.
    ///
    /// # Errors
    /// If the file is missing, belongs to another user, is readable by others, or is not an access
    /// file.
    pub fn load(path: &Path) -> Result<Self, AccessError> {
        let malformed = |why| AccessError::Malformed { path: path.to_owned(), why };
        let content = private::read(path)?;
        let text = String::from_utf8(content).map_err(|_| malformed(AccessProblem::NotText))?;
        let is_older = text.contains("certificate") && !text.contains("authority");
        let damaged = |line, why| AccessError::Damaged { path: path.to_owned(), line, why };
        let file: AccessFile = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            match is_older {
                true => malformed(AccessProblem::Older),
                false => damaged(line_at(&text, at), AccessProblem::Form(plainly(error.message()))),
            }
        })?;
        let AccessFile { cluster, dispatcher, authority, certificate, key, proxy } = file;
        let access = Access::new(
            &cluster,
            &dispatcher,
            &authority,
            KeyAndCertificate { certificate, key },
            Trust::default(),
        )
        .map_err(|error| {
            let begins = |line: &str| line.trim_start().starts_with(error.key());
            let line = text.lines().position(begins).map_or(1, |index| index + 1);
            damaged(line, AccessProblem::Key(error))
        })?;
        Ok(access.through(proxy.map(|ProxyFields { inside, outside }| Proxy { inside, outside })))
    }

    /// Writes the access file with mode 0600, atomically. An existing file is replaced.
    ///
    /// # Errors
    /// If the folder cannot be made or written, or other users can change it.
    pub fn save(&self, path: &Path) -> Result<(), AccessError> {
        let text = self.to_text();
        let name = path
            .file_name()
            .ok_or_else(|| PrivateError::OtherKind { path: path.to_owned(), expected: "file" })?;
        let folder = PrivateFolder::make(path.parent().unwrap_or(Path::new(".")))?;
        Ok(folder.write(name, text.as_bytes())?)
    }

    /// The text of the access file: a secret.
    pub fn to_text(&self) -> String {
        let KeyAndCertificate { certificate, key } = self.own.clone();
        let Access { cluster, dispatcher, authority, proxy, .. } = self.clone();
        let file = AccessFile { cluster, dispatcher, authority, certificate, key, proxy: None };
        let text = toml::to_string(&file).expect("five strings are valid TOML");
        text + &proxy.map(Proxy::section).unwrap_or_default()
    }

    /// The certificate of the cluster's authority, PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// A digest of the certificate of the cluster's authority, the same for all of its keys.
    pub fn fingerprint(&self) -> [u8; 32] {
        blake3::hash(self.authority.as_bytes()).into()
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
    fn errors_of_an_access_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        assert!(matches!(Access::load(&path), Err(AccessError::Missing { .. })));
        Access::create("survey", "127.0.0.1:7000").save(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Access::load(&path).unwrap_err().to_string().contains("chmod 600"));
        let good = fs::read_to_string(&path).unwrap();
        let other = Access::create("survey", "127.0.0.1:7000").to_text();
        let part = |text: &str, key: &str| {
            let begin = text.find(&format!("\n{key} = ")).unwrap() + 1;
            let end = text[begin..].find("-----END").unwrap() + begin;
            text[begin..end].to_owned()
        };
        let line_of = |key: &str| good[..good.find(&part(&good, key)).unwrap()].lines().count() + 1;
        let swapped = |key: &str| good.replace(&part(&good, key), &part(&other, key));
        let cut = |key: &str| good.replace(&part(&good, key), &part(&good, key).replace('M', "-"));
        let at = |key: &str, says: &str| format!("damaged, line {}: {says}", line_of(key));
        for (garbage, says) in [
            (b"cluster = 3".to_vec(), "damaged, line 1: ".to_owned()),
            (b"cluster = 'a'\ndispatcher =".to_vec(), "damaged, line 2: ".to_owned()),
            (b"cluster = 'a'".to_vec(), "the key `dispatcher` is missing".to_owned()),
            (b"\xff\xfe".to_vec(), "is not an access file: it is not text".to_owned()),
            (
                b"cluster='a'\ndispatcher='b'\ncertificate='c'\nkey='d'".to_vec(),
                "an older eyas wrote it".to_owned(),
            ),
            (cut("key").into(), at("key", "its key ")),
            (swapped("key").into(), at("key", "its key is damaged, or belongs to another")),
            (cut("certificate").into(), at("certificate", "its certificate ")),
            (swapped("authority").into(), at("certificate", "its authority has not signed")),
        ] {
            fs::write(&path, &garbage).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let said = Access::load(&path).unwrap_err().to_string();
            assert!(said.contains(&says), "{says}: {said}");
            assert!(!said.contains("damaged, line") || said.contains("Copy the file again"));
        }
    }
}
