//! The cluster's keys: which there are, and what becomes of them. It only decides; clock, disk and
//! sessions are those of [`super::Keys`].

use std::collections::BTreeMap;

use eyas_session::{Authority, KeyAndCertificate, new_secret};
use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_wire::trust::{SHARED_BYTES, Trust, TrustRefusal};
use eyas_wire::view::{KeyState, KeyView};
use serde::{Deserialize, Serialize};

use super::KeysError;

/// Keys that are remembered after they were replaced or revoked, so that their holders are told
/// why.
pub(crate) const MAX_KEYS: usize = 10_000;

/// All secrets of a dispatcher.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeyRing {
    /// Number of the next key.
    next: u32,
    authority: Authority,
    /// The dispatcher's own.
    dispatcher: KeyAndCertificate,
    /// The current ones first.
    secrets: Vec<Secrets>,
    keys: Vec<Key>,
}

/// Shared secrets, by which members recognise each other where there are no certificates.
#[derive(Clone, Serialize, Deserialize)]
struct Secrets {
    data: [u8; SHARED_BYTES],
    nodes: [u8; SHARED_BYTES],
    /// Time until which replaced secrets are accepted, seconds since 1970.
    until_unix_s: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Key {
    id: KeyId,
    role: KeyRole,
    made_unix_s: u64,
    #[serde(flatten)]
    state: State,
    /// `None` once the key is no longer given out.
    own: Option<KeyAndCertificate>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum State {
    Active,
    /// There is a newer one, and this is accepted until then.
    Retiring {
        until_unix_s: u64,
    },
    Replaced,
    Revoked,
}

impl KeyRing {
    /// Keys of a new cluster: one, of an admin.
    pub fn create(now_unix_s: u64) -> Result<Self, KeysError> {
        let authority = Authority::create();
        let dispatcher = authority
            .issue(Principal::Dispatcher)
            .map_err(|e| KeysError::Unusable(e.to_string()))?;
        let mut ring = KeyRing {
            next: 1,
            authority,
            dispatcher,
            secrets: vec![Secrets::new()?],
            keys: Vec::new(),
        };
        ring.current(KeyRole::Admin, now_unix_s)?;
        Ok(ring)
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn dispatcher(&self) -> &KeyAndCertificate {
        &self.dispatcher
    }

    /// The key of a role that is given to new holders; it is made if there is none.
    pub fn current(
        &mut self,
        role: KeyRole,
        now_unix_s: u64,
    ) -> Result<(KeyId, KeyAndCertificate), KeysError> {
        if let Some(found) = self.active(role) {
            return Ok(found);
        }
        self.make(role, now_unix_s)
    }

    fn active(&self, role: KeyRole) -> Option<(KeyId, KeyAndCertificate)> {
        let key = self.keys.iter().find(|key| key.role == role && key.state == State::Active)?;
        Some((key.id, key.own.clone()?))
    }

    fn make(
        &mut self,
        role: KeyRole,
        made_unix_s: u64,
    ) -> Result<(KeyId, KeyAndCertificate), KeysError> {
        if self.keys.len() >= MAX_KEYS {
            return Err(KeysError::TooMany);
        }
        let id = KeyId(self.next);
        let own = self
            .authority
            .issue(Principal::Key(id, role))
            .map_err(|e| KeysError::Unusable(e.to_string()))?;
        self.next += 1;
        self.keys.push(Key { id, role, made_unix_s, state: State::Active, own: Some(own.clone()) });
        Ok((id, own))
    }

    /// Replaces the active keys of a role, or of all; the old ones are accepted for a grace period.
    pub fn rotate(
        &mut self,
        role: Option<KeyRole>,
        grace_s: u64,
        now_unix_s: u64,
    ) -> Result<(), KeysError> {
        let roles: Vec<_> =
            KeyRole::ALL.into_iter().filter(|one| role.is_none_or(|role| role == *one)).collect();
        let until_unix_s = now_unix_s.saturating_add(grace_s);
        for role in roles {
            let old: Vec<KeyId> = self
                .keys
                .iter()
                .filter(|key| key.role == role && key.state == State::Active)
                .map(|key| key.id)
                .collect();
            if old.is_empty() {
                continue;
            }
            self.make(role, now_unix_s)?;
            for key in self.keys.iter_mut().filter(|key| old.contains(&key.id)) {
                key.state = State::Retiring { until_unix_s };
            }
        }
        self.renew_secrets(Some(until_unix_s))?;
        self.expire(now_unix_s);
        Ok(())
    }

    /// Revokes a key at once. If it was the last admin key, a new one is made.
    pub fn revoke(&mut self, id: KeyId, now_unix_s: u64) -> Result<(), KeysError> {
        let key = self.keys.iter_mut().find(|key| key.id == id).ok_or(KeysError::NoSuchKey(id))?;
        (key.state, key.own) = (State::Revoked, None);
        self.renew_secrets(None)?;
        self.current(KeyRole::Admin, now_unix_s).map(drop)
    }

    /// Makes new secrets for members. The old ones are accepted until the given time, or no longer.
    fn renew_secrets(&mut self, until_unix_s: Option<u64>) -> Result<(), KeysError> {
        match until_unix_s {
            Some(until) => {
                self.secrets.iter_mut().for_each(|old| {
                    old.until_unix_s = Some(old.until_unix_s.map_or(until, |at| at.min(until)))
                });
            }
            None => self.secrets.clear(),
        }
        self.secrets.insert(0, Secrets::new()?);
        Ok(())
    }

    /// Removes expired keys and secrets. Returns whether there were any.
    pub fn expire(&mut self, now_unix_s: u64) -> bool {
        let before = self.secrets.len();
        self.secrets.retain(|secrets| secrets.until_unix_s.is_none_or(|until| until > now_unix_s));
        let mut has_changed = self.secrets.len() < before;
        for key in &mut self.keys {
            if matches!(key.state, State::Retiring { until_unix_s } if until_unix_s <= now_unix_s) {
                (key.state, key.own, has_changed) = (State::Replaced, None, true);
            }
        }
        has_changed
    }

    /// When the next key or secret expires.
    pub fn next_expiry(&self) -> Option<u64> {
        let retiring = self.keys.iter().filter_map(|key| match key.state {
            State::Retiring { until_unix_s } => Some(until_unix_s),
            _ => None,
        });
        retiring.chain(self.secrets.iter().filter_map(|secrets| secrets.until_unix_s)).min()
    }

    /// The key that an executor is to have instead of this one, with which it has an open session:
    /// also if that was replaced without a grace, but not if it was revoked.
    pub fn successor(
        &mut self,
        of: KeyId,
        now_unix_s: u64,
    ) -> Result<Option<(Principal, KeyAndCertificate)>, KeysError> {
        let retires = |key: &Key| {
            key.id == of && matches!(key.state, State::Retiring { .. } | State::Replaced)
        };
        if !self.keys.iter().any(retires) {
            return Ok(None);
        }
        // An executor needs no more than that, whatever it was started with.
        let (id, own) = self.current(KeyRole::Executor, now_unix_s)?;
        Ok(Some((Principal::Key(id, KeyRole::Executor), own)))
    }

    /// Keys that the cluster trusts, without tokens of jobs.
    pub fn trust(&self) -> Trust {
        let refusal = |key: &Key| match key.state {
            State::Replaced => Some((key.id, TrustRefusal::Replaced)),
            State::Revoked => Some((key.id, TrustRefusal::Revoked)),
            State::Active | State::Retiring { .. } => None,
        };
        Trust {
            dead: self.keys.iter().filter_map(refusal).collect(),
            jobs: BTreeMap::new(),
            data: self.secrets.iter().map(|secrets| secrets.data).collect(),
            nodes: self.secrets.iter().map(|secrets| secrets.nodes).collect(),
        }
    }

    /// The keys as people see them.
    pub fn views(&self) -> Vec<KeyView> {
        let view = |key: &Key| KeyView {
            key: key.id.to_string(),
            role: key.role.name().into(),
            state: match key.state {
                State::Active => KeyState::Active,
                State::Retiring { .. } => KeyState::Retiring,
                State::Replaced => KeyState::Replaced,
                State::Revoked => KeyState::Revoked,
            },
            made_unix_ms: key.made_unix_s * 1000,
            until_unix_ms: match key.state {
                State::Retiring { until_unix_s } => Some(until_unix_s * 1000),
                _ => None,
            },
        };
        self.keys.iter().map(view).collect()
    }
}

impl Secrets {
    fn new() -> Result<Self, KeysError> {
        Ok(Secrets { data: new_secret()?, nodes: new_secret()?, until_unix_s: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000;

    fn states(ring: &KeyRing) -> Vec<(String, String, KeyState)> {
        ring.views().into_iter().map(|view| (view.key, view.role, view.state)).collect()
    }

    fn row(key: &str, role: KeyRole, state: KeyState) -> (String, String, KeyState) {
        (key.to_owned(), role.name().to_owned(), state)
    }

    #[test]
    fn a_rotated_key_is_accepted_for_its_grace_and_no_longer() {
        use KeyState::{Active, Replaced, Retiring};
        let mut ring = KeyRing::create(NOW).unwrap();
        let (reader, _) = ring.current(KeyRole::Read, NOW).unwrap();
        ring.rotate(None, 600, NOW).unwrap();
        let (admin, read) = (KeyRole::Admin, KeyRole::Read);
        let all = |old| {
            [
                row("k1", admin, old),
                row("k2", read, old),
                row("k3", admin, Active),
                row("k4", read, Active),
            ]
        };
        assert_eq!(states(&ring), all(Retiring));
        assert_eq!(
            (ring.next_expiry(), ring.trust().dead.len(), ring.trust().data.len()),
            (Some(NOW + 600), 0, 2)
        );
        assert!(!ring.expire(NOW + 599) && ring.expire(NOW + 600));
        assert_eq!(states(&ring), all(Replaced));
        assert_eq!((ring.next_expiry(), ring.trust().data.len()), (None, 1));
        assert_eq!(ring.trust().admits(Principal::Key(reader, read)), Err(TrustRefusal::Replaced));
    }

    #[test]
    fn one_role_is_rotated_by_itself_and_without_grace_at_once() {
        let mut ring = KeyRing::create(NOW).unwrap();
        ring.current(KeyRole::Read, NOW).unwrap();
        ring.rotate(Some(KeyRole::Read), 0, NOW).unwrap();
        ring.rotate(Some(KeyRole::Submit), 0, NOW).unwrap();
        let states: Vec<_> =
            states(&ring).into_iter().map(|(key, _, state)| (key, state)).collect();
        assert_eq!(
            states,
            [("k1", KeyState::Active), ("k2", KeyState::Replaced), ("k3", KeyState::Active)]
                .map(|(key, state)| (key.to_owned(), state))
        );
    }

    #[test]
    fn a_revoked_key_counts_at_once_for_nothing_and_an_admin_is_left() {
        let mut ring = KeyRing::create(NOW).unwrap();
        let before = ring.trust();
        ring.revoke(KeyId(1), NOW).unwrap();
        assert_eq!(
            ring.trust().admits(Principal::Key(KeyId(1), KeyRole::Admin)),
            Err(TrustRefusal::Revoked)
        );
        assert_eq!(ring.current(KeyRole::Admin, NOW).unwrap().0, KeyId(2));
        // Nor does what its holder knows beside it.
        assert!(ring.trust().data.iter().all(|secret| !before.data.contains(secret)));
        assert!(ring.trust().nodes.iter().all(|secret| !before.nodes.contains(secret)));
        assert!(matches!(ring.revoke(KeyId(9), NOW), Err(KeysError::NoSuchKey(KeyId(9)))));
    }

    #[test]
    fn executors_get_a_key_of_their_own_role_while_theirs_retires() {
        let mut ring = KeyRing::create(NOW).unwrap();
        assert!(ring.successor(KeyId(1), NOW).unwrap().is_none(), "it is not replaced");
        ring.rotate(None, 600, NOW).unwrap();
        let (holder, _) = ring.successor(KeyId(1), NOW).unwrap().expect("there is one");
        assert_eq!(holder, Principal::Key(KeyId(3), KeyRole::Executor));
        ring.revoke(KeyId(1), NOW).unwrap();
        assert!(
            ring.successor(KeyId(1), NOW).unwrap().is_none(),
            "the holder of a revoked key gets no other"
        );
    }

    #[test]
    fn what_is_written_comes_back() {
        let mut ring = KeyRing::create(NOW).unwrap();
        ring.rotate(None, 600, NOW).unwrap();
        ring.revoke(KeyId(2), NOW).unwrap();
        let text = toml::to_string(&ring).unwrap();
        let back: KeyRing = toml::from_str(&text).unwrap();
        assert_eq!((states(&back), back.trust()), (states(&ring), ring.trust()));
        // Without secrets of keys that are no longer given out.
        assert_eq!(
            text.matches("PRIVATE KEY").count() / 2,
            4,
            "authority, dispatcher, k1, k3:\n{text}"
        );
    }
}
