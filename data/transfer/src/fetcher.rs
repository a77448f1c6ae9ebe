//! Fetches an object from this node's store, a peer, or persistent storage (data-diffusion §2.1).
//!
//! Hints about holders may be wrong. So each failure leads to the next source, which continues
//! where the last one stopped. An error is returned only when all sources have failed, and lists
//! what was tried. Callers that want the same object at the same time share one fetch.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_store::{
    Incoming, ObjectStore, PlacesOfFile, Presence, Storage, StoreError, StoreErrorKind,
};
use eyas_types::object::Version;
use eyas_types::{FileMode, ObjectId, ObjectSpec};
use tokio::sync::watch;

use crate::error::{FetchError, FetchErrorKind, PeerError, PeerErrorKind};
use crate::limits::MAX_DAMAGED_DELIVERIES;
use crate::peers::{InterruptedTransfer, Peers};

/// Maximum number of holders that are tried before persistent storage.
const MAX_HOLDERS_TRIED: usize = 4;

/// A peer that may be asked for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHolder {
    /// Address of its server.
    pub addr: SocketAddr,
    /// The proxy of the peer: its address for nodes that are not behind the same proxy.
    pub proxy: Option<SocketAddr>,
    /// Whether it is still receiving the object, or about to, and relays it.
    pub is_relay: bool,
    /// Number of other nodes that it is sending objects to.
    pub others: u32,
}

/// The source of an object; the last one if several sources have each sent a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchSource {
    /// The object was in the store, or another caller's fetch brought it.
    Local,
    /// A peer's store.
    Peer(SocketAddr),
    /// Persistent storage.
    Persistent,
}

/// An object that is now in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedObject {
    /// The source of the object.
    pub from: FetchSource,
    /// Size of the object.
    pub bytes: u64,
    /// If the object is of a file of the cluster and came from its chunks: bytes from the node on
    /// this machine.
    pub near_bytes: u64,
}

/// An object that a peer has sent damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedDelivery {
    /// The object.
    pub object: ObjectId,
    /// Address of the peer's server.
    pub giver: SocketAddr,
}

/// Fetches objects into this node's store. Clones share the fetches in progress.
#[derive(Clone)]
pub struct Fetcher(Arc<Inner>);

struct Inner {
    store: ObjectStore,
    storage: Storage,
    peers: Peers,
    /// The fetches in progress. Callers bound their number.
    under_way: Mutex<HashMap<ObjectId, watch::Receiver<Option<FetchResult>>>>,
    damaged: Mutex<Vec<DamagedDelivery>>,
}

/// An object to be fetched.
struct WantedObject {
    spec: ObjectSpec,
    /// Hints, the best first.
    holders: Vec<PeerHolder>,
    /// Places of its source, if the source is a name; `None` for a derived copy, which has no
    /// source beside its holders.
    places: Option<PlacesOfFile>,
}

type FetchResult = Result<FetchedObject, FetchError>;

impl Fetcher {
    /// Fetches into `store`.
    pub fn new(store: ObjectStore, storage: Storage, peers: Peers) -> Self {
        let (under_way, damaged) = (Mutex::default(), Mutex::default());
        Fetcher(Arc::new(Inner { store, storage, peers, under_way, damaged }))
    }

    /// Takes what peers have sent damaged since the last call, up to
    /// [`MAX_DAMAGED_DELIVERIES`]. These peers should verify their objects.
    pub fn take_damaged(&self) -> Vec<DamagedDelivery> {
        std::mem::take(&mut self.0.damaged())
    }

    /// Makes sure that the object is in the store. `holders` are hints, best first. A holder that
    /// is estimated to take more than twice as long as another one is tried after that one. A fetch
    /// in progress continues even if its caller goes away. Callers that ask for the same object in
    /// the meantime wait for it, and get [`FetchSource::Local`].
    ///
    /// # Errors
    /// `Full` and `Local` if this node cannot store it; otherwise the error of persistent storage,
    /// with everything that was tried.
    pub async fn fetch(
        &self,
        spec: &ObjectSpec,
        holders: &[PeerHolder],
    ) -> Result<FetchedObject, FetchError> {
        self.fetch_from(spec, holders, PlacesOfFile::untold(Vec::new())).await
    }

    /// Makes sure that a derived copy is in the store, of this id, size and mode: what executors
    /// have made of an input. Only `holders` are asked; the content that one has sent in part is
    /// not continued by another, because copies may differ. `name` is for messages.
    ///
    /// # Errors
    /// `Full` and `Local` if this node cannot store it; `Unreachable` if no holder gives it.
    pub async fn fetch_copy(
        &self,
        (id, size_bytes, mode): (ObjectId, u64, FileMode),
        name: &str,
        holders: &[PeerHolder],
    ) -> Result<FetchedObject, FetchError> {
        let version = Version::Chunk { chunk: id, checksum: 0, size_bytes };
        let spec = ObjectSpec { source: name.into(), version, mode };
        self.share(WantedObject { spec, holders: holders.to_vec(), places: None }).await
    }

    /// The same as [`fetch`](Self::fetch), for an object whose source is the name of a file with
    /// these places.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn fetch_from(
        &self,
        spec: &ObjectSpec,
        holders: &[PeerHolder],
        places: PlacesOfFile,
    ) -> Result<FetchedObject, FetchError> {
        let places = Some(places);
        self.share(WantedObject { spec: spec.clone(), holders: holders.to_vec(), places }).await
    }

    /// Fetches an object, or waits for another caller's fetch of it.
    async fn share(&self, wanted: WantedObject) -> Result<FetchedObject, FetchError> {
        let (id, source) = (wanted.spec.id(), wanted.spec.source.clone());
        if let Some(here) = self.0.here(id, wanted.spec.mode) {
            return here;
        }
        let (mut ended, is_ours) = match self.0.under_way().entry(id) {
            Entry::Occupied(other) => (other.get().clone(), false),
            Entry::Vacant(vacant) => {
                let (tell, ended) = watch::channel(None);
                vacant.insert(ended.clone());
                let inner = self.0.clone();
                tokio::spawn(async move {
                    let _under_way = UnderWay { inner: &inner, id };
                    let result = inner.fetch(id, &wanted).await;
                    drop(_under_way);
                    tell.send_replace(Some(result));
                });
                (ended, true)
            }
        };
        let result = match ended.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => None,
        };
        let result = result.unwrap_or_else(|| {
            let message = format!("the fetch of `{source}` broke off; see this executor's log");
            Err(FetchError { kind: FetchErrorKind::Local, message })
        });
        match result {
            Ok(fetched) if !is_ours => Ok(FetchedObject { from: FetchSource::Local, ..fetched }),
            result => result,
        }
    }
}

impl Inner {
    fn under_way(&self) -> MutexGuard<'_, HashMap<ObjectId, watch::Receiver<Option<FetchResult>>>> {
        // No update of the map can panic half-way.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> MutexGuard<'_, Vec<DamagedDelivery>> {
        // No update of the list can panic half-way.
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a delivery that has failed with this error, if it was damaged.
    fn note_damaged(&self, object: ObjectId, giver: SocketAddr, error: &PeerError) {
        if error.kind != PeerErrorKind::Corrupt {
            return;
        }
        let mut damaged = self.damaged();
        let delivery = DamagedDelivery { object, giver };
        if damaged.len() < MAX_DAMAGED_DELIVERIES && !damaged.contains(&delivery) {
            damaged.push(delivery);
        }
    }

    /// The object, if it is here and ready for use.
    fn here(&self, id: ObjectId, mode: FileMode) -> Option<FetchResult> {
        let Presence::Ready { size_bytes, executable } = self.store.presence(id) else {
            return None;
        };
        if mode.is_executable() && !executable {
            match self.store.make_executable(id) {
                Ok(()) => {}
                Err(error) if error.kind == StoreErrorKind::NotHere => return None,
                Err(error) => return Some(Err(error.into())),
            }
        }
        Some(Ok(FetchedObject { from: FetchSource::Local, bytes: size_bytes, near_bytes: 0 }))
    }

    async fn fetch(
        &self,
        id: ObjectId,
        WantedObject { spec, holders, places }: &WantedObject,
    ) -> FetchResult {
        if self.store.presence(id) == Presence::Unverified {
            let store = self.store.clone();
            blocking(move || store.verify(id)).await?;
        }
        // Another fetch may have ended after the store was checked.
        if let Some(here) = self.here(id, spec.mode) {
            return here;
        }
        for holder in holders {
            self.peers.note_proxy(holder.addr, holder.proxy);
        }
        let bytes = spec.size_bytes();
        let cannot_take = |kind, why| FetchError {
            kind,
            message: format!("cannot take `{}`: {why}", spec.source),
        };
        let (mut tried, mut has_left_one) = (Vec::new(), false);
        let in_order = self.in_order(holders, bytes).into_iter();
        let mut to_try: VecDeque<_> = in_order.map(|holder| (holder, false)).collect();
        let mut into = self.begin(id, spec).await?;
        while let Some((holder, is_last_resort)) = to_try.pop_front() {
            if is_last_resort {
                self.peers.forgive(holder.addr);
            }
            // Only one slow source is left for another. If the next is as slow, this node is the
            // slow one.
            let is_choosy = !has_left_one && !to_try.is_empty();
            match self.peers.fetch(holder.addr, into, holder.is_relay, is_choosy).await {
                Ok(_) => {
                    return Ok(FetchedObject {
                        from: FetchSource::Peer(holder.addr),
                        bytes,
                        near_bytes: 0,
                    });
                }
                Err(InterruptedTransfer { error, .. }) if error.kind == PeerErrorKind::Full => {
                    return Err(cannot_take(FetchErrorKind::Full, error));
                }
                Err(InterruptedTransfer { error, .. }) if error.kind == PeerErrorKind::Local => {
                    return Err(cannot_take(FetchErrorKind::Local, error));
                }
                Err(InterruptedTransfer { error, rest }) => {
                    tracing::debug!(
                        object = %id, %error,
                        "a holder did not give an object; trying the next source"
                    );
                    self.note_damaged(id, holder.addr, &error);
                    has_left_one |= error.kind == PeerErrorKind::Slow;
                    // A kept object is in the stores of peers only. So peers that are avoided are
                    // asked at the end.
                    if error.kind == PeerErrorKind::Avoided && spec.is_kept() && !is_last_resort {
                        to_try.push_back((holder, true));
                    }
                    tried.push(error.message);
                    // A relay that stops may have read a place with other content.
                    into = match rest.filter(|_| !spec.is_named() && places.is_some()) {
                        Some(rest) => rest,
                        None => self.begin(id, spec).await?,
                    };
                }
            }
        }
        self.fetch_from_storage(spec, into, places.as_ref(), &tried).await
    }

    /// Fetches an object, or the rest of it, from persistent storage, after holders have failed
    /// with these messages. Without places, it is not there.
    async fn fetch_from_storage(
        &self,
        spec: &ObjectSpec,
        into: Incoming,
        places: Option<&PlacesOfFile>,
        tried: &[String],
    ) -> FetchResult {
        let Some(places) = places else {
            let message = format!("no node gives {}: {}", spec.source, tried.join("; "));
            return Err(FetchError { kind: FetchErrorKind::Unreachable, message });
        };
        let fetched = if spec.is_named() {
            self.storage.fetch_named(spec, places, into, &self.store).await
        } else {
            self.storage.fetch(spec, into).await
        };
        match fetched {
            Ok(content) => Ok(FetchedObject {
                from: FetchSource::Persistent,
                bytes: spec.size_bytes(),
                near_bytes: content.near_bytes,
            }),
            Err(error) if tried.is_empty() => {
                Err(FetchError { kind: error.kind.into(), message: error.message })
            }
            Err(error) => {
                let message = format!("{}. Before that: {}", error.message, tried.join("; "));
                Err(FetchError { kind: error.kind.into(), message })
            }
        }
    }

    async fn begin(&self, id: ObjectId, spec: &ObjectSpec) -> Result<Incoming, StoreError> {
        let (store, spec) = (self.store.clone(), spec.clone());
        blocking(move || store.begin_object(id, &spec)).await
    }

    /// The holders to try, the one with the shortest estimated time first. Estimates within a
    /// factor of two count as equal, since they are noisy; then the given order decides.
    fn in_order(&self, holders: &[PeerHolder], bytes: u64) -> Vec<PeerHolder> {
        let magnitude = |holder: &PeerHolder| {
            self.peers.estimate(holder.addr, bytes, holder.others).as_micros().checked_ilog2()
        };
        let mut holders = holders.to_vec();
        holders.sort_by_cached_key(magnitude);
        holders.truncate(MAX_HOLDERS_TRIED);
        holders
    }
}

/// Removes the fetch from the table when it ends, even if it panics.
struct UnderWay<'a> {
    inner: &'a Inner,
    id: ObjectId,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.inner.under_way().remove(&self.id);
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => eyas_panics::resume(error),
    }
}
