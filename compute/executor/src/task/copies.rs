//! Derived copies that executors give each other: the content of compressed inputs, and folders
//! that commands make. A task that needs a copy which its node lacks asks the dispatcher, and waits
//! until it is told to fetch the copy from other executors, or to make it.

use std::fs;
use std::time::{Duration, Instant};

use eyas_store::StoreError;
use eyas_store::packed::{PackError, pack, unpack};
use eyas_transfer::{FetchError, PeerHolder};
use eyas_types::{FileMode, ObjectId, shown};
use eyas_wire::executor::PeerHint;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::copy_request::{CopyRequest, ObtainedCopy};
use super::derived_copy::CopySource;
use super::prepared::{FolderInMaking, PreparedFolder, WalkError};
use super::{TaskRun, TaskRunner};

/// Time between two checks whether a copy is still wanted.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A task waits at most this long for what another executor makes. Then it makes the copy itself.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Gets derived copies for a task from other executors.
pub(super) struct CopyExchange<'a> {
    pub runner: &'a TaskRunner,
    pub run: &'a TaskRun,
}

impl CopyExchange<'_> {
    /// Gets a derived copy from another executor, or has the task make it. Waits as long as
    /// `is_wanted` returns true; `None` if it does no longer. `name` is that of the input.
    pub fn obtain(
        &self,
        (object, mode, name): (ObjectId, FileMode, &[u8]),
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<ObtainedCopy> {
        let session = self.run.claims.upgrade();
        let Some(question) = session.and_then(|session| session.want_copy(object)) else {
            return Some(ObtainedCopy::ToMake(None));
        };
        let (session, task) = (self.run.claims.clone(), self.run.control.clone());
        let request = CopyRequest::new(session, task, object);
        let until = Instant::now() + MAX_WAIT;
        let answer = question.wait(|| is_wanted() && Instant::now() < until);
        if !is_wanted() {
            return None;
        }
        let Some(CopySource { size_bytes, holders }) = answer else {
            tracing::warn!("no executor has made {object} in time: it is made here");
            return Some(ObtainedCopy::ToMake(Some(request)));
        };
        let needed_bytes = self.runner.floor_bytes.saturating_add(size_bytes);
        let has_room =
            || self.runner.store.free_space().is_ok_and(|free| free.bytes >= needed_bytes);
        if holders.is_empty() || !has_room() {
            return Some(ObtainedCopy::ToMake(Some(request)));
        }
        let name = format!("what was made of {}", shown(name));
        let copy = (object, size_bytes, mode);
        match self.fetch(copy, (name, holders), is_wanted)? {
            Ok(took_us) => Some(ObtainedCopy::Fetched { took_us, request }),
            Err(error) => {
                tracing::info!(%object, "a derived copy is made here, not fetched: {error}");
                Some(ObtainedCopy::ToMake(Some(request)))
            }
        }
    }

    /// Unpacks a folder that was fetched, and is packed in the store.
    pub fn unpack_folder(
        &self,
        object: ObjectId,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<PreparedFolder, UnpackError> {
        let packed = self.runner.store.open_object(object.packed())?;
        let scratch = FolderInMaking(self.runner.new_folder("prepared"));
        unpack(packed.file, &scratch.0, is_wanted)?;
        let folder = self.runner.prepared.add(object, scratch.0.clone())?;
        scratch.keep();
        Ok(folder)
    }

    /// Packs a folder that was made into an object of the store, from which other executors fetch
    /// it. Returns its size; `None` if the folder cannot be packed, or the disk has no room.
    pub fn pack_folder(
        &self,
        object: ObjectId,
        folder: &PreparedFolder,
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<u64> {
        let needed_bytes = self.runner.floor_bytes.saturating_add(folder.size_bytes);
        if !self.runner.store.free_space().is_ok_and(|free| free.bytes >= needed_bytes) {
            return None;
        }
        let into = FolderInMaking(self.runner.new_folder("packed"));
        let file = into.0.join("packed");
        let packed = || -> Result<u64, UnpackError> {
            fs::create_dir(&into.0).map_err(|error| {
                UnpackError::Pack(PackError::Disk { path: into.0.clone(), error })
            })?;
            pack(&folder.path, &file, is_wanted)?;
            Ok(self.runner.store.adopt_as(&file, object.packed(), FileMode::READABLE)?)
        };
        packed().inspect_err(|why| tracing::info!("a folder is given to no others: {why}")).ok()
    }

    /// Fetches a derived copy into the store. Returns the time that it took, microseconds; `None`
    /// if the copy is no longer wanted. The fetch goes on then.
    fn fetch(
        &self,
        (object, size_bytes, mode): (ObjectId, u64, FileMode),
        (name, holders): (String, Vec<PeerHint>),
        is_wanted: &dyn Fn() -> bool,
    ) -> Option<Result<u64, FetchError>> {
        let (fetcher, session) = (self.runner.fetcher.clone(), self.run.claims.clone());
        let holders: Vec<_> = holders.into_iter().map(peer_holder).collect();
        let (tell, mut ended) = oneshot::channel();
        self.runner.movers.spawn(async move {
            let began = Instant::now();
            let fetched = fetcher.fetch_copy((object, size_bytes, mode), &name, &holders).await;
            let took_us = fetched.map(|_| began.elapsed().as_micros() as u64);
            // The task may have gone; the store has the copy.
            if let (Err(Ok(_)), Some(session)) = (tell.send(took_us), session.upgrade()) {
                session.found_copy(object, size_bytes);
            }
        });
        self.runner.movers.block_on(async {
            loop {
                tokio::select! {
                    ended = &mut ended => return ended.ok(),
                    () = sleep(CHECK_EVERY) => if !is_wanted() { return None },
                }
            }
        })
    }
}

/// Why a folder was not packed or unpacked.
#[derive(Debug, Error)]
pub(super) enum UnpackError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Folder(#[from] WalkError),
}

/// A holder as the fetcher is told of it.
pub(crate) fn peer_holder(hint: PeerHint) -> PeerHolder {
    let PeerHint { transfer, is_relay, others } = hint;
    PeerHolder { addr: transfer.address, proxy: transfer.proxy, is_relay, others }
}
