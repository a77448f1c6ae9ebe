//! What is known of the places of named files: the access to their table, and what this process has
//! measured of places. The decider is [`PlaceRates`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use eyas_reading::PlaceRates;
use eyas_types::name::scheme_of;
use eyas_types::{Name, NamedFile};

use crate::error::StorageError;

/// The names of a cluster's files. The room that knows the dispatcher provides the access.
#[async_trait::async_trait]
pub trait FileNames: Send + Sync {
    /// The files with these names, `lfn://NAME`, in their order.
    async fn look_up(&self, sources: &[Name]) -> Result<Vec<NamedFile>, StorageError>;

    /// The names that begin with `prefix`, `lfn://NAME`.
    async fn list(&self, prefix: &Name) -> Result<Vec<Name>, StorageError>;
}

/// Sees a place that is passed over, and the reason.
pub type SeePassedOver = dyn Fn(&Name, &str) + Send + Sync;

/// The places of a named file, for one fetch.
#[derive(Clone)]
pub struct PlacesOfFile {
    /// URLs of the places.
    pub places: Vec<Name>,
    /// Is told each place that is passed over, with the reason.
    pub passed_over: Arc<SeePassedOver>,
}

impl PlacesOfFile {
    /// Nothing is told.
    pub fn untold(places: Vec<Name>) -> Self {
        PlacesOfFile { places, passed_over: Arc::new(|_, _| {}) }
    }
}

/// What this process has measured of places.
pub(super) struct MeasuredPlaces {
    rates: Mutex<PlaceRates>,
    began: Instant,
}

impl MeasuredPlaces {
    pub fn new() -> Self {
        MeasuredPlaces { rates: Mutex::default(), began: Instant::now() }
    }

    /// Asks or tells the decider, with the time.
    pub fn with<T>(&self, ask: impl FnOnce(&mut PlaceRates, u64) -> T) -> T {
        let now_us = self.began.elapsed().as_micros() as u64;
        // No update can panic half-way.
        ask(&mut self.rates.lock().unwrap_or_else(PoisonError::into_inner), now_us)
    }
}

/// What places share: the server, the bucket, or the first two folders of a path.
pub(super) fn origin_of(place: &Name) -> String {
    let (scheme, rest) = scheme_of(place).unwrap_or((b"file", place));
    let mut parts = rest.split(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let origin: Vec<_> = match scheme {
        b"file" => parts.by_ref().take(3).collect(),
        _ => parts.by_ref().take(1).collect(),
    };
    let scheme = String::from_utf8_lossy(scheme).into_owned();
    format!("{scheme}://{}", String::from_utf8_lossy(&origin.join(&b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_on_one_server_share_their_origin() {
        for (place, origin) in [
            ("http://h:80/a/b?c", "http://h:80"),
            ("https://h", "https://h"),
            ("s3://bucket/key/x", "s3://bucket"),
            ("file:///mnt/a/b/c", "file:///mnt/a"),
            ("file:///x", "file:///x"),
        ] {
            assert_eq!(origin_of(&place.into()), origin);
        }
    }
}
