//! Encrypted and authenticated datagrams (ChaCha20-Poly1305, which is fast on every processor for
//! short messages).
//!
//! ```text
//! datagram    salt 24 | number u64 | ciphertext | tag 16
//! ```
//!
//! **Nonces.** Many nodes share one secret, so no node encrypts with the secret itself. Each sealer
//! has its own key, the BLAKE3 hash of a salt with the secret, and numbers its datagrams. The salt
//! is 192 random bits, chosen when the sealer is created. So no two processes use the same key, and
//! a process uses another key after a restart. The nonce is the 64-bit number, which starts at 0
//! and grows by 1, so a key never uses a nonce twice.

use std::io;

use eyas_session::DataKeys;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

const SALT_BYTES: usize = 24;
const NUMBER_BYTES: usize = 8;
const HEADER_BYTES: usize = SALT_BYTES + NUMBER_BYTES;

/// Encrypts datagrams of this process, and decrypts those of other processes of the cluster.
pub(crate) struct Sealer {
    keys: DataKeys,
    own: SenderKey,
}

/// The key with which this process encrypts until the cluster's secret is replaced.
struct SenderKey {
    secret: [u8; 32],
    salt: [u8; SALT_BYTES],
    key: LessSafeKey,
    /// Number of the next datagram.
    number: u64,
}

impl SenderKey {
    fn new(secret: [u8; 32]) -> io::Result<Self> {
        let mut salt = [0; SALT_BYTES];
        let mut filled = 0;
        while filled < salt.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled +=
                rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut salt[filled..], flags))?;
        }
        Ok(SenderKey { secret, salt, key: key(&secret, &salt), number: 0 })
    }
}

impl Sealer {
    /// A sealer that gets the current secrets from `keys` for each datagram.
    pub fn new(keys: DataKeys) -> io::Result<Self> {
        let own = SenderKey::new(keys.node_secrets()[0])?;
        Ok(Sealer { keys, own })
    }

    /// Encrypts what `write` produces, and stores it in `datagram`.
    ///
    /// # Errors
    /// If the system has no random numbers for a new key.
    pub fn seal(
        &mut self,
        datagram: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        let secret = self.keys.node_secrets()[0];
        if secret != self.own.secret {
            self.own = SenderKey::new(secret)?;
        }
        let own = &mut self.own;
        datagram.clear();
        datagram.extend_from_slice(&own.salt);
        datagram.extend_from_slice(&own.number.to_le_bytes());
        write(datagram);
        let (header, content) = datagram.split_at_mut(HEADER_BYTES);
        let sealed =
            own.key.seal_in_place_separate_tag(nonce(own.number), Aad::from(header), content);
        // Fails only for content of 256 GB.
        datagram.extend_from_slice(sealed.expect("a datagram is short").as_ref());
        // This would take half a million years at a million datagrams a second.
        own.number = own.number.checked_add(1).expect("numbers do not run out");
        Ok(())
    }

    /// The decrypted content, if it was encrypted with a secret that the cluster accepts, and was
    /// not changed.
    pub fn open(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (header, sealed) = datagram.split_at_checked(HEADER_BYTES)?;
        let (salt, number) = header.split_at(SALT_BYTES);
        let number = u64::from_le_bytes(number.try_into().ok()?);
        self.keys.node_secrets().iter().find_map(|secret| {
            let mut content = sealed.to_vec();
            let opened = key(secret, salt)
                .open_in_place(nonce(number), Aad::from(header), &mut content)
                .ok()?
                .len();
            content.truncate(opened);
            Some(content)
        })
    }
}

fn key(secret: &[u8; 32], salt: &[u8]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, blake3::keyed_hash(secret, salt).as_bytes());
    LessSafeKey::new(key.expect("a key of 32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; ring::aead::NONCE_LEN];
    nonce[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_session::Access;

    /// Sealers of one cluster.
    fn sealers<const COUNT: usize>() -> [Sealer; COUNT] {
        let keys = DataKeys::of(&Access::create("test", "127.0.0.1:1"));
        [(); COUNT].map(|()| Sealer::new(keys.clone()).unwrap())
    }

    fn sealed(sealer: &mut Sealer, content: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        sealer.seal(&mut datagram, |datagram| datagram.extend_from_slice(content)).unwrap();
        datagram
    }

    #[test]
    fn nodes_of_the_cluster_read_it_and_others_see_nothing() {
        let [mut one, other] = sealers();
        let [stranger] = sealers();
        for content in [&b""[..], b"127.0.0.1:7000 has 12 GB"] {
            let datagram = sealed(&mut one, content);
            assert!(
                content.is_empty() || !datagram.windows(content.len()).any(|part| part == content)
            );
            assert_eq!(stranger.open(&datagram), None);
            assert_eq!(other.open(&datagram).as_deref(), Some(content));
        }
    }

    #[test]
    fn any_bit_changed_is_noticed_and_garbage_is_not_parsed() {
        let [mut sealer] = sealers();
        let datagram = sealed(&mut sealer, b"content");
        for bit in 0..datagram.len() * 8 {
            let mut changed = datagram.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&changed), None, "bit {bit}");
        }
        for size in [0, 1, 31, 32, 33, 47, 48, 1000] {
            assert_eq!(sealer.open(&vec![b'e'; size]), None, "{size} bytes");
        }
    }

    #[test]
    fn no_key_meets_a_nonce_twice() {
        let mut sealers = sealers::<2>();
        let mut headers = std::collections::HashSet::new();
        for _ in 0..100 {
            for sealer in &mut sealers {
                assert!(headers.insert(sealed(sealer, b"the same")[..HEADER_BYTES].to_vec()));
            }
        }
    }
}
