//! Emulation: one machine behaves like a cluster with a slow shared file system, without root
//! rights. With the ratios of a real testbed (data-diffusion §4.1), policies can be compared while
//! all executors run on one machine.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use eyas_types::units::{self, AmountError};
use thiserror::Error;

use crate::error::StorageError;
use crate::limiter::{Limiter, take_all, take_all_blocking};

/// Name of the file, in the folder shared by all executors of the machine, that holds the clock of
/// persistent storage.
const STORAGE_CLOCK: &str = "storage.clock";

/// What to emulate. Written as `storage=400Mbit/s,storage-latency=2ms,link=1Gbit/s`, where every
/// part is optional, or as `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emulation {
    /// Rate of persistent storage for all executors of the machine together, bytes per second.
    pub storage_bytes_per_s: Option<u64>,
    /// Delay before each request to persistent storage, microseconds.
    pub storage_latency_us: Option<u64>,
    /// Rate of each executor's network in each direction, bytes per second.
    pub link_bytes_per_s: Option<u64>,
}

/// A text does not describe an emulation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EmulationError {
    /// A part has an unknown name, or no value.
    #[error("`{0}` cannot be emulated; write storage=RATE, storage-latency=DURATION or link=RATE")]
    Unknown(String),
    /// A part has a malformed value.
    #[error(transparent)]
    Amount(#[from] AmountError),
    /// A part is given twice.
    #[error("`{part}` is given twice in `{text}`: write it once")]
    Twice {
        /// The part.
        part: String,
        /// The whole text.
        text: String,
    },
}

impl Emulation {
    /// Parses `text`.
    ///
    /// # Errors
    /// If it does not describe an emulation.
    pub fn parse(text: &str) -> Result<Self, EmulationError> {
        let unknown = |part: &str| EmulationError::Unknown(part.to_owned());
        let mut emulation = Emulation::default();
        for part in
            text.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "none")
        {
            let (key, value) = part.split_once('=').ok_or_else(|| unknown(part))?;
            let duplicate = match key.trim() {
                "storage" => {
                    emulation.storage_bytes_per_s.replace(units::parse_rate(value)?).is_some()
                }
                "storage-latency" => {
                    emulation.storage_latency_us.replace(units::parse_duration_us(value)?).is_some()
                }
                "link" => emulation.link_bytes_per_s.replace(units::parse_rate(value)?).is_some(),
                _ => return Err(unknown(part)),
            };
            if duplicate {
                return Err(EmulationError::Twice {
                    part: key.trim().to_owned(),
                    text: text.to_owned(),
                });
            }
        }
        Ok(emulation)
    }

    /// The limits of one executor. `shared` is an existing folder that all executors of this
    /// machine use.
    ///
    /// # Errors
    /// `Local` if the shared clock cannot be opened there.
    pub fn limits(&self, shared: &Path) -> Result<Limits, StorageError> {
        let storage = match self.storage_bytes_per_s {
            None => Limiter::unlimited(),
            Some(rate) => Limiter::shared(rate, &shared.join(STORAGE_CLOCK))?,
        };
        let link = || self.link_bytes_per_s.map_or_else(Limiter::unlimited, Limiter::own);
        let latency = Duration::from_micros(self.storage_latency_us.unwrap_or(0));
        Ok(Limits { storage, storage_latency: latency, link_in: link(), link_out: link() })
    }
}

impl FromStr for Emulation {
    type Err = EmulationError;

    fn from_str(text: &str) -> Result<Self, EmulationError> {
        Emulation::parse(text)
    }
}

impl fmt::Display for Emulation {
    /// The text that [`Emulation::parse`] parses to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: u64| {
            scaled(u128::from(rate) * 8, 1000, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
        };
        let parts = [
            self.storage_bytes_per_s.map(|bytes_per_s| format!("storage={}", rate(bytes_per_s))),
            self.storage_latency_us.map(|us| {
                format!("storage-latency={}", scaled(u128::from(us), 1000, &["us", "ms", "s"]))
            }),
            self.link_bytes_per_s.map(|bytes_per_s| format!("link={}", rate(bytes_per_s))),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "none".into() } else { parts.join(",") }.as_str())
    }
}

/// `amount` in the largest unit that makes it a whole number.
fn scaled(mut amount: u128, step: u128, units: &[&str]) -> String {
    let mut unit = 0;
    while unit + 1 < units.len() && amount > 0 && amount.is_multiple_of(step) {
        amount /= step;
        unit += 1;
    }
    format!("{amount}{}", units[unit])
}

/// The limits of one executor. The default has no limits.
#[derive(Clone, Default)]
pub struct Limits {
    /// Rate of persistent storage, for all executors of the machine together.
    pub storage: Limiter,
    /// Delay before each request to persistent storage.
    pub storage_latency: Duration,
    /// Rate of data that this executor receives from peers and from persistent storage.
    pub link_in: Limiter,
    /// Rate of data that this executor sends.
    pub link_out: Limiter,
}

impl Limits {
    /// Waits for the latency of a request to persistent storage.
    pub async fn request(&self) {
        if !self.storage_latency.is_zero() {
            tokio::time::sleep(self.storage_latency).await;
        }
    }

    /// Waits until `bytes` can have been read from persistent storage.
    pub async fn read(&self, bytes: u64) {
        take_all(&[&self.storage, &self.link_in], bytes).await;
    }

    /// The same as [`Limits::read`], but blocks the thread.
    pub fn read_blocking(&self, bytes: u64) {
        take_all_blocking(&[&self.storage, &self.link_in], bytes);
    }

    /// Waits until `bytes` can have been written to persistent storage.
    pub async fn write(&self, bytes: u64) {
        take_all(&[&self.storage, &self.link_out], bytes).await;
    }

    /// The same as [`Limits::write`], but blocks the thread.
    pub fn write_blocking(&self, bytes: u64) {
        take_all_blocking(&[&self.storage, &self.link_out], bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulation_prints_as_it_was_written() {
        for text in [
            "none",
            "storage=400Mbit/s,storage-latency=2ms,link=1Gbit/s",
            "link=12kbit/s",
            "storage-latency=1500us",
        ] {
            assert_eq!(Emulation::parse(text).unwrap().to_string(), text);
        }
        let spaced = Emulation::parse(" storage = 50MB/s , ").unwrap();
        assert_eq!(spaced.storage_bytes_per_s, Some(50_000_000));
        assert_eq!(Emulation::parse(""), Ok(Emulation::default()));
        for (wrong, says) in [
            ("disk=1Gbit/s", "storage-latency=DURATION"),
            ("storage", "link=RATE"),
            ("storage=fast", "not a rate"),
            ("link=1Gbit/s,link=2Gbit/s", "twice"),
        ] {
            let error = Emulation::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn executors_share_storage_and_have_links_of_their_own() {
        let shared = tempfile::tempdir().unwrap();
        let emulation = Emulation::parse("storage=8Mbit/s,link=80Mbit/s").unwrap();
        let (a, b) =
            (emulation.limits(shared.path()).unwrap(), emulation.limits(shared.path()).unwrap());
        let now_ns = 1_000_000_000_000;
        let (first, second) =
            (a.storage.book(now_ns, 1_000_000), b.storage.book(now_ns, 1_000_000));
        assert_eq!(second - first, 1_000_000_000, "one after the other at 1 MB/s");
        assert_eq!(a.link_in.book(now_ns, 1_000_000), b.link_in.book(now_ns, 1_000_000));
        assert_eq!(
            a.link_in.book(now_ns, 0),
            a.link_out.book(now_ns, 1_000_000),
            "each way has its own"
        );
    }
}
