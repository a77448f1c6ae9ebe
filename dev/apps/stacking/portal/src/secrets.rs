//! Random texts: ids of jobs, sessions and tokens; and hashes of passwords.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use argon2::Argon2;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

/// Bytes of a salt and of a hash.
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// `N` random bytes.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let (mut bytes, mut filled) = ([0; N], 0);
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

/// Sixteen random digits: an id that nobody guesses.
pub fn new_id() -> io::Result<String> {
    Ok(hex(&random::<8>()?))
}

/// Sixty-four random digits: a secret.
pub fn new_secret() -> io::Result<String> {
    Ok(hex(&random::<32>()?))
}

/// The hash of a secret. A secret has 256 random bits, so a plain hash is enough.
pub fn hash_secret(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

/// The hash of a password: Argon2id with 19 MiB and two passes, which is what its authors and OWASP
/// recommend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PasswordHash {
    salt: String,
    hash: String,
}

impl PasswordHash {
    /// Hashes a password; takes some 50 ms.
    pub fn of(password: &str) -> io::Result<Self> {
        let salt = random::<SALT_BYTES>()?;
        let hash = argon2id(password, &salt).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(PasswordHash { salt: hex(&salt), hash: hex(&hash) })
    }

    /// Whether it is the hash of a password; takes some 50 ms, right or wrong.
    pub fn is_of(&self, password: &str) -> bool {
        let hash = from_hex(&self.salt).and_then(|salt| argon2id(password, &salt));
        let Some(hash) = hash else { return false };
        // The comparison of `blake3` takes constant time.
        blake3::hash(hex(&hash).as_bytes()) == blake3::hash(self.hash.as_bytes())
    }
}

fn argon2id(password: &str, salt: &[u8]) -> Option<[u8; HASH_BYTES]> {
    let mut hash = [0; HASH_BYTES];
    Argon2::default().hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_told_apart_and_salted() {
        let (one, two) =
            (PasswordHash::of("a pass word").unwrap(), PasswordHash::of("a pass word"));
        assert!(one.is_of("a pass word") && !one.is_of("a pass worD") && !one.is_of(""));
        assert_ne!(one.hash, two.unwrap().hash);
        let damaged = PasswordHash { salt: "x".into(), ..one };
        assert!(!damaged.is_of("a pass word"));
        assert_eq!(new_id().unwrap().len(), 16);
        assert_ne!(new_secret().unwrap(), new_secret().unwrap());
        assert_eq!(from_hex("0fa"), None);
    }
}
