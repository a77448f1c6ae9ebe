//! Pools on disk: a folder for each in the cluster's folder, with the pool's options and counts,
//! and a folder for each request. After a restart of the dispatcher, pools and requests are read
//! from there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use eyas_provision::{PoolCounts, PoolRequest, SavedPool};
use eyas_wire::pool::PoolOptions;
use serde::{Deserialize, Serialize};

use crate::batch_error::BatchError;
use crate::request::{self, write_private};

/// File with options and counts of a pool.
const POOL: &str = "pool.toml";
/// Folder of a pool's requests.
const REQUESTS: &str = "requests";

/// The content of `pool.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredPool {
    /// Why the pool was paused; `None` if it was not.
    pub paused: Option<String>,
    /// The pool was removed, and has not given everything back.
    #[serde(default)]
    pub is_closing: bool,
    pub counts: PoolCounts,
    pub options: PoolOptions,
}

impl StoredPool {
    pub fn new(saved: SavedPool, options: PoolOptions) -> Self {
        let SavedPool { paused, is_closing, counts } = saved;
        StoredPool { paused, is_closing, counts, options }
    }

    pub fn into_parts(self) -> (SavedPool, PoolOptions) {
        let StoredPool { paused, is_closing, counts, options } = self;
        (SavedPool { paused, is_closing, counts }, options)
    }
}

/// The folder of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolFolder(PathBuf);

impl PoolFolder {
    /// The folder of a pool with this name.
    pub fn of(pools: &Path, name: &str) -> Self {
        PoolFolder(pools.join(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of a request.
    pub fn request(&self, number: u64) -> PathBuf {
        self.0.join(REQUESTS).join(number.to_string())
    }

    pub fn save(&self, pool: &StoredPool) -> Result<(), BatchError> {
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|why| BatchError::file(&self.0, &why))?;
        let path = self.0.join(POOL);
        let text =
            toml::to_string(pool).map_err(|e| BatchError::file(&path, &io::Error::other(e)))?;
        write_private(&path, text.as_bytes(), 0o600).map_err(|why| BatchError::file(&path, &why))
    }

    pub fn load(&self) -> Result<StoredPool, BatchError> {
        let path = self.0.join(POOL);
        let text = std::fs::read_to_string(&path).map_err(|why| BatchError::file(&path, &why))?;
        toml::from_str(&text).map_err(|e| BatchError::file(&path, &io::Error::other(e)))
    }

    /// The requests of the pool. One that cannot be read is logged and left out.
    pub fn load_requests(&self) -> BTreeMap<u64, PoolRequest> {
        let mut requests = BTreeMap::new();
        for number in numbers(&self.0.join(REQUESTS)) {
            match request::load(&self.request(number)) {
                Ok(request) => _ = requests.insert(number, request),
                Err(why) => {
                    tracing::warn!("request {number} of {} is forgotten: {why}", self.0.display())
                }
            }
        }
        requests
    }

    /// Removes the folder of a request.
    pub fn remove_request(&self, number: u64) {
        let folder = self.request(number);
        if let Err(why) = std::fs::remove_dir_all(&folder) {
            tracing::debug!("cannot remove {}: {why}", folder.display());
        }
    }

    pub fn remove(&self) -> Result<(), BatchError> {
        match std::fs::remove_dir_all(&self.0) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                Err(BatchError::file(&self.0, &why))
            }
            _ => Ok(()),
        }
    }
}

/// The end of a text file, which may not exist yet.
pub(crate) fn end_of(path: &Path, most_bytes: u64) -> Result<String, BatchError> {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = match std::fs::File::open(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most_bytes)))?;
        let mut bytes = Vec::new();
        file.take(most_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|why| BatchError::file(path, &why))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn numbers(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The names of all pools in a folder.
pub(crate) fn names(pools: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(pools).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
