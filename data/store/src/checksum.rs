//! CRC-64/NVME checksums, which detect damaged content.
//!
//! This checksum is computed at memory speed on all common processors (by carry-less
//! multiplication), and S3 supports it too. It detects accidents, not forgery: senders are
//! authenticated before any of their bytes are read.

use core::fmt;
use core::str::FromStr;

use crc_fast::{CrcAlgorithm, Digest};
use thiserror::Error;

/// The CRC-64/NVME of some content. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(pub u64);

impl Checksum {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Checksum(crc_fast::crc64_nvme(bytes))
    }

    /// The checksum of this content followed by `bytes` more bytes with the checksum `behind`.
    pub fn followed_by(self, behind: Checksum, bytes: usize) -> Self {
        Checksum(crc_fast::checksum_combine(
            CrcAlgorithm::Crc64Nvme,
            self.0,
            behind.0,
            bytes as u64,
        ))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({self})")
    }
}

/// A text is not a checksum.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a checksum: write its 16 hexadecimal digits")]
pub struct ChecksumError(String);

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, ChecksumError> {
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let value = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Checksum).ok_or_else(|| ChecksumError(text.to_owned()))
    }
}

/// A checksum being computed, piece by piece.
pub struct Hasher(Digest);

impl Hasher {
    /// A checksum of no content.
    pub fn new() -> Self {
        Hasher(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything added.
    pub fn finish(&self) -> Checksum {
        Checksum(self.0.finalize())
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Hasher::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_64_nvme() {
        // The check value of the CRC catalogue: https://reveng.sourceforge.io/crc-catalogue/all.htm#crc.cat.crc-64-nvme
        assert_eq!(Checksum::of(b"123456789"), Checksum(0xae8b_1486_0a79_9888));
        let mut hasher = Hasher::new();
        hasher.update(b"12345");
        hasher.update(b"6789");
        assert_eq!(hasher.finish().to_string().parse(), Ok(Checksum::of(b"123456789")));
        assert!("+123456789abcdef".parse::<Checksum>().is_err());
    }
}
