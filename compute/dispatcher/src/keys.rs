//! The cluster's keys and the tokens of its jobs, shared by all sessions: what is decided in
//! [`key_ring`] is written to disk before it counts, and told to all sessions and nodes.

mod key_ring;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_session::private::{self, PrivateError, PrivateFolder};
use eyas_session::{Access, AccessError, KeyAndCertificate};
use eyas_types::JobId;
use eyas_types::access::{FilesScope, KeyId, KeyRole, Principal};
use eyas_wire::DataMode;
use eyas_wire::trust::Trust;
use eyas_wire::view::KeyView;
use thiserror::Error;
use tokio::sync::{Notify, watch};

use crate::clock::unix_s;
use key_ring::KeyRing;

/// Name of the access file of the current admin key.
const ACCESS_FILE: &str = "access.toml";

/// Name of the file with all keys and the authority.
const KEYS_FILE: &str = "keys.toml";

/// Longest time between two searches for expired keys. The system clock may be set, so that they
/// cannot be timed exactly.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

/// Why keys cannot be used or changed.
#[derive(Debug, Error)]
pub enum KeysError {
    /// The access file cannot be read or written.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A file of secrets cannot be read or written.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The system gives no randomness.
    #[error("cannot make a secret: {0}")]
    Random(#[from] std::io::Error),
    /// The content of the file of keys is not valid.
    #[error("the cluster's keys cannot be used: {0}")]
    Unusable(String),
    /// There is an access file, but the keys of its cluster are missing.
    #[error(
        "{0} is the access file of another cluster, or its cluster's {KEYS_FILE} is missing: \
         start the dispatcher in the folder that has both, or move {0} away to begin a new cluster"
    )]
    Foreign(PathBuf),
    /// There is no such key.
    #[error("there is no key {0}: `eyas access show` lists those there are")]
    NoSuchKey(KeyId),
    /// Too many keys are remembered.
    #[error(
        "the cluster has {} keys, and makes no more: begin a new cluster in another folder",
        key_ring::MAX_KEYS
    )]
    TooMany,
}

/// The keys of a running cluster.
pub(crate) struct Keys {
    folder: PrivateFolder,
    path: PathBuf,
    /// The cluster ends with this process, so its files do not wait for the disk.
    is_scratch: bool,
    state: Mutex<State>,
    /// The dispatcher's own.
    access: Access,
    /// The trust that nodes need.
    for_nodes: watch::Sender<Arc<Trust>>,
    /// A key may expire sooner than before.
    has_changed: Notify,
}

struct State {
    ring: KeyRing,
    /// Jobs with tasks that may run.
    jobs: BTreeMap<JobId, Job>,
}

/// The token of a job, and what it allows with files of the cluster.
struct Job {
    scope: FilesScope,
    token: Arc<str>,
}

impl Keys {
    /// The keys of the cluster in this folder, which are made if there are none; where its
    /// dispatcher was reached before.
    pub fn open(
        folder: PrivateFolder,
        path: &Path,
        is_scratch: bool,
    ) -> Result<UnaddressedKeys, KeysError> {
        let access_path = path.join(ACCESS_FILE);
        let before = match Access::load(&access_path) {
            Ok(access) => Some(access.dispatcher),
            Err(AccessError::Missing { .. }) => None,
            Err(e) => return Err(e.into()),
        };
        let ring = match private::read(&path.join(KEYS_FILE)) {
            Ok(text) => {
                let text =
                    String::from_utf8(text).map_err(|e| KeysError::Unusable(e.to_string()))?;
                let mut ring: KeyRing = toml::from_str(&text)
                    .map_err(|e| KeysError::Unusable(e.message().to_owned()))?;
                ring.expire(unix_s());
                ring
            }
            Err(PrivateError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                match before {
                    Some(_) => return Err(KeysError::Foreign(access_path)),
                    None => KeyRing::create(unix_s())?,
                }
            }
            Err(e) => return Err(e.into()),
        };
        Ok(UnaddressedKeys { folder, path: path.to_owned(), is_scratch, ring, before })
    }

    /// The dispatcher's own access.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Path of the access file of the current admin key.
    pub fn access_path(&self) -> PathBuf {
        self.path.join(ACCESS_FILE)
    }

    /// The keys as people see them.
    pub fn views(&self) -> Vec<KeyView> {
        self.state().ring.views()
    }

    /// An access file with the current key of a role: a secret.
    pub fn issue(&self, role: KeyRole) -> Result<String, KeysError> {
        let ring = &mut self.state().ring;
        let (_, own) = ring.current(role, unix_s())?;
        // It may be new.
        self.write(ring)?;
        self.access_text(ring, &own)
    }

    /// Replaces the keys of a role, or all keys. The old keys are accepted for the time `grace`.
    pub fn rotate(
        &self,
        role: Option<KeyRole>,
        grace: Duration,
    ) -> Result<Vec<KeyView>, KeysError> {
        self.change(|ring| ring.rotate(role, grace.as_secs(), unix_s()))
    }

    /// Revokes a key: its open sessions end, and it opens no others.
    pub fn revoke(&self, key: KeyId) -> Result<Vec<KeyView>, KeysError> {
        self.change(|ring| ring.revoke(key, unix_s()))
    }

    /// The key that replaces an executor's own key.
    pub fn successor(
        &self,
        of: Principal,
    ) -> Result<Option<(Principal, KeyAndCertificate)>, KeysError> {
        let Principal::Key(id, _) = of else { return Ok(None) };
        let ring = &mut self.state().ring;
        let successor = ring.successor(id, unix_s())?;
        if successor.is_some() {
            self.write(ring)?;
        }
        Ok(successor)
    }

    /// The trust that nodes need, as it changes.
    pub fn for_nodes(&self) -> watch::Receiver<Arc<Trust>> {
        self.for_nodes.subscribe()
    }

    /// The token with which tasks of a job may use the cluster, from now until the job has ended.
    /// More of it may be allowed each time.
    pub fn token(&self, job: JobId, scope: &FilesScope) -> Result<Arc<str>, KeysError> {
        let mut state = self.state();
        let State { ring, jobs } = &mut *state;
        let is_new = !jobs.contains_key(&job);
        if is_new {
            let own = ring
                .authority()
                .issue(Principal::Job(job))
                .map_err(|e| KeysError::Unusable(e.to_string()))?;
            let token = self.access_text(ring, &own)?.into();
            jobs.insert(job, Job { scope: FilesScope::default(), token });
        }
        let entry = jobs.get_mut(&job).expect("it is there now");
        let before = entry.scope.clone();
        entry.scope.extend(scope);
        let (token, has_grown) = (entry.token.clone(), entry.scope != before);
        if is_new || has_grown {
            self.publish(&state);
        }
        Ok(token)
    }

    /// Whether the token of a job is good for any files of the cluster.
    pub fn have_files(&self, job: JobId) -> bool {
        self.state().jobs.get(&job).is_some_and(|entry| entry.scope != FilesScope::default())
    }

    /// Ends the token of a job that has ended.
    pub fn end_job(&self, job: JobId) {
        let mut state = self.state();
        if state.jobs.remove(&job).is_some() {
            self.publish(&state);
        }
    }

    /// Removes expired keys, as long as it is polled.
    pub async fn keep(&self) {
        loop {
            let next = self.state().ring.next_expiry();
            let wait =
                next.map_or(EXPIRY_CHECK, |at| Duration::from_secs(at.saturating_sub(unix_s())));
            // At least a moment: what is due was let go of before.
            let wait = tokio::time::sleep(wait.clamp(Duration::from_millis(100), EXPIRY_CHECK));
            tokio::select! {
                () = wait => {}
                () = self.has_changed.notified() => continue,
            }
            let mut state = self.state();
            if state.ring.expire(unix_s()) {
                if let Err(e) = self.write(&mut state.ring) {
                    tracing::error!(
                        "keys that are no longer accepted are still in {KEYS_FILE}: {e}"
                    );
                }
                self.publish(&state);
            }
        }
    }

    fn change(
        &self,
        change: impl FnOnce(&mut KeyRing) -> Result<(), KeysError>,
    ) -> Result<Vec<KeyView>, KeysError> {
        let mut state = self.state();
        let done = change(&mut state.ring);
        // Also if it was done in part: what counts is what is on disk.
        self.write(&mut state.ring)?;
        self.publish(&state);
        self.has_changed.notify_one();
        done.map(|()| state.ring.views())
    }

    /// Writes the keys and the access file of the current admin key.
    fn write(&self, ring: &mut KeyRing) -> Result<(), KeysError> {
        let (_, admin) = ring.current(KeyRole::Admin, unix_s())?;
        let text = toml::to_string(ring).map_err(|e| KeysError::Unusable(e.to_string()))?;
        self.write_file(KEYS_FILE, &text)?;
        self.write_file(ACCESS_FILE, &self.access_text(ring, &admin)?)
    }

    fn write_file(&self, name: &str, content: &str) -> Result<(), KeysError> {
        let (name, content) = (OsStr::new(name), content.as_bytes());
        let written = if self.is_scratch {
            self.folder.write_for_now(name, content)
        } else {
            self.folder.write(name, content)
        };
        Ok(written?)
    }

    fn access_text(&self, ring: &KeyRing, own: &KeyAndCertificate) -> Result<String, KeysError> {
        let Access { cluster, dispatcher, .. } = &self.access;
        let access = Access::new(
            cluster,
            dispatcher,
            ring.authority().certificate(),
            own.clone(),
            Trust::default(),
        );
        Ok(access.map_err(|e| KeysError::Unusable(e.to_string()))?.to_text())
    }

    /// Publishes the current trust to all sessions and nodes.
    fn publish(&self, state: &State) {
        let mut trust = state.ring.trust();
        trust.jobs = state.jobs.iter().map(|(job, entry)| (*job, entry.scope.clone())).collect();
        let mut told = trust.clone();
        // At nodes, a token is good for files alone.
        told.jobs.retain(|_, scope| *scope != FilesScope::default());
        self.access.credentials().learn(trust);
        self.for_nodes.send_if_modified(|known| {
            let is_new = **known != told;
            if is_new {
                *known = Arc::new(told);
            }
            is_new
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys before it is known where the dispatcher listens.
pub(crate) struct UnaddressedKeys {
    folder: PrivateFolder,
    path: PathBuf,
    is_scratch: bool,
    ring: KeyRing,
    /// The dispatcher's last address, `host:port`.
    pub before: Option<String>,
}

impl UnaddressedKeys {
    /// The keys of the cluster of this name, which moves data so, and whose dispatcher listens
    /// there. Nothing is on disk before [`Keys::begin`].
    pub fn at(self, cluster: &str, dispatcher: &str, data: DataMode) -> Result<Keys, KeysError> {
        let UnaddressedKeys { folder, path, is_scratch, ring, .. } = self;
        let trust = ring.trust();
        let own = ring.dispatcher().clone();
        let access =
            Access::new(cluster, dispatcher, ring.authority().certificate(), own, trust.clone());
        let access = access.map_err(|e| KeysError::Unusable(e.to_string()))?.with_data(data);
        let for_nodes = watch::Sender::new(Arc::new(trust));
        let state = Mutex::new(State { ring, jobs: BTreeMap::new() });
        Ok(Keys { folder, path, is_scratch, state, access, for_nodes, has_changed: Notify::new() })
    }
}

impl Keys {
    /// Writes keys and access file to disk. By then the dispatcher listens, so that clients that
    /// find the file can connect.
    pub fn begin(&self) -> Result<(), KeysError> {
        // The folder is this process's alone by now, and so is what another has left here.
        self.folder.sweep(OsStr::new(KEYS_FILE))?;
        self.folder.sweep(OsStr::new(ACCESS_FILE))?;
        self.write(&mut self.state().ring)
    }
}
