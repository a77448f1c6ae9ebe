//! Sessions of browsers: a cookie with a random text, of which the hash is kept. They survive a
//! restart of the portal, and end when the password of their account changes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::secrets::{hash_secret, new_secret};
use crate::whole_file::write_private;

/// A session ends after this time.
const SESSION_MS: u64 = 12 * 3600 * 1000;
/// Sessions of an account; the oldest end.
const MAX_SESSIONS_OF_ACCOUNT: usize = 20;
/// Sessions of all accounts; the oldest end.
const MAX_SESSIONS: usize = 10_000;

#[derive(Clone, Serialize, Deserialize)]
struct Session {
    account: String,
    password_mark: String,
    expires_ms: u64,
}

/// All sessions.
pub struct Sessions {
    path: PathBuf,
    open: Mutex<BTreeMap<String, Session>>,
}

impl Sessions {
    /// Reads the sessions of before. A damaged file ends all of them.
    pub fn open(state: &Path) -> io::Result<Self> {
        let path = state.join("sessions.json");
        let open = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(why) if why.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(why) => return Err(why),
        };
        Ok(Sessions { path, open: Mutex::new(open) })
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Session>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn write(&self, open: &BTreeMap<String, Session>) -> io::Result<()> {
        write_private(&self.path, &serde_json::to_vec(open).unwrap_or_default())
    }

    /// Begins a session. Returns the text of its cookie.
    pub fn begin(&self, account: &str, password_mark: String, now_ms: u64) -> io::Result<String> {
        let text = new_secret()?;
        let mut open = self.sessions();
        open.retain(|_, session| session.expires_ms > now_ms);
        // One account does not end the sessions of others.
        end_oldest(&mut open, MAX_SESSIONS_OF_ACCOUNT, |session| session.account == account);
        end_oldest(&mut open, MAX_SESSIONS, |_| true);
        let (account, expires_ms) = (account.to_owned(), now_ms + SESSION_MS);
        open.insert(hash_secret(&text), Session { account, password_mark, expires_ms });
        self.write(&open)?;
        Ok(text)
    }

    /// The account of a session and the mark of the password that it began with.
    pub fn account(&self, text: &str, now_ms: u64) -> Option<(String, String)> {
        let open = self.sessions();
        let session = open.get(&hash_secret(text)).filter(|one| one.expires_ms > now_ms)?;
        Some((session.account.clone(), session.password_mark.clone()))
    }

    /// Ends a session.
    pub fn end(&self, text: &str) -> io::Result<()> {
        let mut open = self.sessions();
        let hash = hash_secret(text);
        let Some(ended) = open.remove(&hash) else { return Ok(()) };
        // A session that would be open again after a restart has not ended: its user is told so.
        self.write(&open).inspect_err(|_| drop(open.insert(hash, ended)))
    }
}

/// Ends the oldest of some sessions, so that there is room for one of at most `most`.
fn end_oldest(
    open: &mut BTreeMap<String, Session>,
    most: usize,
    is_one: impl Fn(&Session) -> bool,
) {
    let ones = open.iter().filter(|(_, session)| is_one(session));
    let mut ones: Vec<_> = ones.map(|(hash, one)| (one.expires_ms, hash.clone())).collect();
    ones.sort();
    for (_, hash) in ones.iter().take((ones.len() + 1).saturating_sub(most)) {
        open.remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_outlive_the_process_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(folder.path()).unwrap();
        let text = sessions.begin("ada", "mark".into(), 0).unwrap();
        let sessions = Sessions::open(folder.path()).unwrap();
        assert_eq!(sessions.account(&text, 1), Some(("ada".into(), "mark".into())));
        assert_eq!(sessions.account(&text, SESSION_MS), None);
        assert_eq!(sessions.account("other", 1), None);
        let stored = std::fs::read_to_string(folder.path().join("sessions.json")).unwrap();
        assert!(!stored.contains(&text));
        // Another account has many sessions: its own end.
        let others: Vec<_> = (0..=MAX_SESSIONS_OF_ACCOUNT as u64)
            .map(|now| sessions.begin("eve", "mark".into(), now).unwrap())
            .collect();
        assert!(sessions.account(&others[0], 1).is_none());
        assert!(sessions.account(&others[1], 1).is_some());
        assert!(sessions.account(&text, 1).is_some());
        // An end that is not on disk is none.
        std::fs::create_dir(folder.path().join("sessions.json.new")).unwrap();
        assert!(sessions.end(&text).is_err() && sessions.account(&text, 1).is_some());
        std::fs::remove_dir(folder.path().join("sessions.json.new")).unwrap();
        sessions.end(&text).unwrap();
        assert_eq!(sessions.account(&text, 1), None);
    }
}
