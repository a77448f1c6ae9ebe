//! `lfn://NAME`: a file with a name, read from one of its places. A place that fails, or that has
//! other content than is registered, is passed over, and the next one is tried. The order is that
//! of [`PlaceRates`], which knows what this process has measured.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use eyas_reading::PlaceRates;
use eyas_types::named::{name_in, on_disk_of};
use eyas_types::units::format_bytes;
use eyas_types::{Name, ObjectId, ObjectSpec};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::places::{PlacesOfFile, origin_of};
use super::sink::{RANGE_BYTES, Sink};
use super::{FetchedContent, Storage};
use crate::checksum::Checksum;
use crate::error::{StorageError, StorageErrorKind, StoreError};
use crate::incoming::Incoming;
use crate::objects::ObjectStore;

/// A place that has not answered after this time is tried after the others.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Once one of several new places has answered, the others have this long to answer, too.
const FURTHER_ANSWERS: Duration = Duration::from_millis(200);
/// Bytes of a file that are read to measure the rate of a place, and the time for them.
const SAMPLE_BYTES: u64 = 1 << 20;
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of the ranges of an object in a bucket while its progress is looked at.
const WATCHED_RANGE_BYTES: usize = 1 << 20;
/// Time between two looks at the progress of a read that may be given up.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A place that was not tried yet, or is tried once more.
struct PlaceToTry {
    place: Name,
    /// Whether it was passed over before, because others may be faster.
    is_last_resort: bool,
}

impl Storage {
    /// Fetches the object `spec`, whose source is a name, into `into`, of which nothing was
    /// received yet; after a place has failed, into a new incoming object of that store. Content
    /// that is not registered is never published.
    ///
    /// # Errors
    /// `Full` and `Local` if this node cannot store it. Otherwise the error lists each place with
    /// what is wrong with it; `Unreachable` if one of them may work later, else `NotFound`.
    pub async fn fetch_named(
        &self,
        spec: &ObjectSpec,
        of_file: &PlacesOfFile,
        into: Incoming,
        store: &ObjectStore,
    ) -> Result<FetchedContent, StorageError> {
        let id = into.id();
        // Nodes that wait for the object attach to what was announced first.
        let mut announced = Some(into);
        let mut stats = self.ask_new_places(&of_file.places, spec).await;
        self.sample_rates(spec, &of_file.places, &mut stats).await;
        let mut to_try: VecDeque<_> = self
            .in_order(&of_file.places, spec.size_bytes())
            .into_iter()
            .map(|place| PlaceToTry { place, is_last_resort: false })
            .collect();
        let mut failures: Vec<(Name, StorageError)> = Vec::new();
        while let Some(PlaceToTry { place, is_last_resort }) = to_try.pop_front() {
            let next = to_try.front().filter(|next| !next.is_last_resort && !is_last_resort);
            let next_us = next.map(|next| self.estimate_us(&next.place, spec));
            let may_work_later = |error: &StorageError| {
                next_us.is_some() && error.kind == StorageErrorKind::Unreachable
            };
            let error = match self.try_place(spec, &place, stats.remove(&place), next_us).await {
                Ok(at_place) => {
                    let into = match announced.take() {
                        Some(into) => into,
                        None => begin(store, id, spec).await?,
                    };
                    match self.read_place(&at_place, into, next_us).await {
                        Ok(checksum) => return Ok(FetchedContent { checksum, near_bytes: 0 }),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if matches!(error.kind, StorageErrorKind::Full | StorageErrorKind::Local) {
                return Err(error);
            }
            let error = of_place(error, &place);
            tracing::warn!(source = %spec.source, "a place is passed over: {error}");
            (of_file.passed_over)(&place, &error.message);
            if may_work_later(&error) {
                to_try.push_back(PlaceToTry { place: place.clone(), is_last_resort: true });
            }
            failures.retain(|(other, _)| *other != place);
            failures.push((place, error));
        }
        Err(all_failed(spec, failures))
    }

    /// The objects with these names, in their order. A size that is not registered is that at the
    /// first place that answers.
    pub(super) async fn stat_named(
        &self,
        sources: &[Name],
    ) -> Result<Vec<ObjectSpec>, StorageError> {
        let Some(first) = sources.first() else { return Ok(Vec::new()) };
        let files = self.names(first)?.look_up(sources).await?;
        let mut objects = Vec::with_capacity(sources.len());
        for (source, file) in sources.iter().zip(files) {
            let size_bytes = match file.size_bytes {
                Some(size_bytes) => size_bytes,
                None => self.size_at_places(source, &file.places).await?,
            };
            objects.push(file.object(name_in(source).unwrap_or(source), size_bytes));
        }
        Ok(objects)
    }

    async fn size_at_places(&self, source: &Name, places: &[Name]) -> Result<u64, StorageError> {
        let mut failures = Vec::new();
        for place in self.in_order(places, 0) {
            if on_disk_of(&place).is_some() {
                failures.push(format!("`{place}` is on the disk of a node"));
                continue;
            }
            match timeout(ANSWER_TIMEOUT, self.stat_place(&place)).await {
                Ok(Ok(there)) => return Ok(there.size_bytes()),
                Ok(Err(error)) => failures.push(error.message),
                Err(_) => failures.push(no_answer(&place)),
            }
        }
        let message = format!(
            "`{source}` is registered without a size, and none of its places tells it here: {}; \
             register the size, with `eyas catalog register NAME URL --size BYTES`",
            failures.join("; ")
        );
        Err(StorageError::new(StorageErrorKind::NotFound, message))
    }

    /// Asks the places whose round trips are not known, all at the same time, so that a place that
    /// does not answer costs the least. Returns what those have that answered first.
    async fn ask_new_places(
        &self,
        places: &[Name],
        spec: &ObjectSpec,
    ) -> HashMap<Name, Result<ObjectSpec, StorageError>> {
        let is_new = |place: &&Name| {
            on_disk_of(place).is_none()
                && self.0.places.with(|r, now| r.is_new(&origin_of(place), now))
        };
        let new: Vec<_> = places.iter().filter(is_new).cloned().collect();
        let mut stats = HashMap::new();
        if new.len() < 2 {
            return stats;
        }
        let (mut asking, began) = (JoinSet::new(), Instant::now());
        for place in new.clone() {
            let storage = self.clone();
            asking.spawn(async move { (place.clone(), storage.stat_place(&place).await) });
        }
        let mut patience = ANSWER_TIMEOUT;
        while let Ok(Some(answer)) = timeout(patience, asking.join_next()).await {
            let Ok((place, answer)) = answer else { continue };
            if answer.as_ref().is_ok_and(|there| there.size_bytes() == spec.size_bytes()) {
                patience = FURTHER_ANSWERS;
            }
            stats.insert(place, answer);
        }
        // A round trip to the others takes at least that long.
        let waited = began.elapsed();
        for place in new.iter().filter(|place| !stats.contains_key(*place)) {
            self.0.places.with(|rates, now_us| match waited < ANSWER_TIMEOUT {
                true => rates.answered(&origin_of(place), waited.as_micros() as u64, now_us),
                false => rates.failed(&origin_of(place), now_us),
            });
        }
        stats
    }

    /// Reads a part of a large file from each place whose rate is not known, all at the same time:
    /// the first read would take long from a slow place.
    async fn sample_rates(
        &self,
        spec: &ObjectSpec,
        places: &[Name],
        stats: &mut HashMap<Name, Result<ObjectSpec, StorageError>>,
    ) {
        let is_to_sample = |place: &&Name| {
            let origin = origin_of(place);
            on_disk_of(place).is_none()
                && self
                    .0
                    .places
                    .with(|r, now_us| r.is_to_sample(&origin, spec.size_bytes(), now_us))
        };
        let mut of_origins = HashMap::new();
        for place in places.iter().filter(is_to_sample) {
            of_origins.entry(origin_of(place)).or_insert(place);
        }
        if places.len() < 2 || of_origins.is_empty() {
            return;
        }
        let mut sampling = JoinSet::new();
        for (origin, place) in of_origins {
            let (storage, spec, place) = (self.clone(), spec.clone(), place.clone());
            let known = stats.remove(&place);
            sampling.spawn(async move {
                let there = match known {
                    Some(there) => there,
                    None => storage.try_place(&spec, &place, None, Some(0)).await,
                };
                if let Ok(there) = &there {
                    storage.sample_rate(&origin, there).await;
                }
                (place, there)
            });
        }
        while let Some(sampled) = sampling.join_next().await {
            stats.extend(sampled.ok());
        }
    }

    /// Reads a part of the content at a place, which `there` describes.
    async fn sample_rate(&self, origin: &str, there: &ObjectSpec) {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let sample = SampleSink {
            size_bytes: there.size_bytes(),
            written_bytes: 0,
            read_bytes: read_bytes.clone(),
        };
        let began = Instant::now();
        // It ends with an error: the sink takes no more than a sample.
        let _ = timeout(SAMPLE_TIMEOUT, self.read(there, sample)).await;
        let took_us = began.elapsed().as_micros() as u64;
        let bytes = read_bytes.load(Ordering::Relaxed);
        self.0.places.with(|rates, now_us| rates.sampled(origin, bytes, took_us, now_us));
    }

    /// Asks a place for the size and version of the file. The answer is measured as a round trip.
    async fn stat_place(&self, place: &Name) -> Result<ObjectSpec, StorageError> {
        let began = Instant::now();
        let there = self.stat_at(place).await;
        let took_us = began.elapsed().as_micros() as u64;
        let origin = origin_of(place);
        self.0.places.with(|rates, now_us| match &there {
            Err(error) if error.kind == StorageErrorKind::Unreachable => {
                rates.failed(&origin, now_us)
            }
            _ => rates.answered(&origin, took_us, now_us),
        });
        there
    }

    fn in_order(&self, places: &[Name], size_bytes: u64) -> Vec<Name> {
        let origins: Vec<_> = places.iter().map(origin_of).collect();
        let origins: Vec<_> = origins.iter().map(String::as_str).collect();
        let order = self.0.places.with(|r, now_us| r.order(&origins, size_bytes, now_us));
        order.into_iter().map(|index| places[index].clone()).collect()
    }

    fn estimate_us(&self, place: &Name, spec: &ObjectSpec) -> u64 {
        self.0.places.with(|r, now_us| r.estimate_us(&origin_of(place), spec.size_bytes(), now_us))
    }

    /// What is at a place, if it can be the content. With a `next` place, a place that does not
    /// answer is given up earlier.
    async fn try_place(
        &self,
        spec: &ObjectSpec,
        place: &Name,
        known: Option<Result<ObjectSpec, StorageError>>,
        next_us: Option<u64>,
    ) -> Result<ObjectSpec, StorageError> {
        if let Some((node, _)) = on_disk_of(place) {
            let node = Name::from(node);
            let why = format!(
                "`{place}` is on the disk of {node}, and no executor there has sent it: see \
                 `eyas executor list`"
            );
            return Err(StorageError::new(StorageErrorKind::NotFound, why));
        }
        let there = match (known, next_us) {
            (Some(known), _) => known,
            (None, Some(_)) => match timeout(ANSWER_TIMEOUT, self.stat_place(place)).await {
                Ok(there) => there,
                Err(_) => {
                    self.0.places.with(|rates, now_us| rates.failed(&origin_of(place), now_us));
                    Err(StorageError::new(StorageErrorKind::Unreachable, no_answer(place)))
                }
            },
            (None, None) => self.stat_place(place).await,
        }?;
        let (found, known) = (there.size_bytes(), spec.size_bytes());
        if found != known {
            let why = format!("`{place}` has {found} bytes, and not {known}, as registered");
            return Err(StorageError::new(StorageErrorKind::Changed, why));
        }
        Ok(there)
    }

    /// Reads the content at a place, which `at_place` describes. With a `next` place, the read is
    /// given up if it is much slower than that one.
    async fn read_place(
        &self,
        at_place: &ObjectSpec,
        into: Incoming,
        next_us: Option<u64>,
    ) -> Result<Checksum, StorageError> {
        let (origin, size_bytes) = (origin_of(&at_place.source), at_place.size_bytes());
        let read_bytes = Arc::new(AtomicU64::new(0));
        let sink = CountedSink {
            into,
            read_bytes: Arc::downgrade(&read_bytes),
            is_watched: next_us.is_some(),
        };
        let began = Instant::now();
        self.0.places.with(|rates, now_us| rates.began(&origin, size_bytes, now_us));
        let took_us = || began.elapsed().as_micros() as u64;
        let too_slow = async {
            let Some(next_us) = next_us else { return std::future::pending().await };
            let mut looks = interval(LOOK_EVERY);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                looks.tick().await;
                let bytes = read_bytes.load(Ordering::Relaxed);
                if PlaceRates::is_too_slow(bytes, size_bytes, took_us(), next_us) {
                    return bytes;
                }
            }
        };
        let read = tokio::select! {
            read = self.read(at_place, sink) => read.map(|content| content.checksum),
            bytes = too_slow => {
                let (bytes, seconds) = (format_bytes(bytes), began.elapsed().as_secs());
                let source = &at_place.source;
                let why = format!("`{source}` is slow: {bytes} came in {seconds} s");
                Err(StorageError::new(StorageErrorKind::Unreachable, why))
            }
        };
        let bytes = if read.is_ok() { size_bytes } else { read_bytes.load(Ordering::Relaxed) };
        self.0.places.with(|rates, now_us| {
            rates.ended(&origin, (bytes.min(size_bytes), size_bytes), took_us(), now_us);
            if read.as_ref().is_err_and(|e| e.kind == StorageErrorKind::Unreachable) {
                rates.failed(&origin, now_us);
            }
        });
        read
    }
}

/// Counts bytes, keeps none, and takes no more than a sample.
struct SampleSink {
    size_bytes: u64,
    written_bytes: u64,
    read_bytes: Arc<AtomicU64>,
}

impl Sink for SampleSink {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.skip(bytes.len() as u64)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.written_bytes += bytes;
        self.read_bytes.store(self.written_bytes, Ordering::Relaxed);
        match self.written_bytes < SAMPLE_BYTES {
            true => Ok(()),
            false => Err(StorageError::new(StorageErrorKind::Withdrawn, "the sample is whole")),
        }
    }

    fn finish(self) -> Result<Checksum, StorageError> {
        Err(StorageError::new(StorageErrorKind::Withdrawn, "the sample is whole"))
    }

    fn range_bytes(&self) -> Option<usize> {
        None
    }
}

/// An incoming object whose bytes are counted for a reader, which may give the place up.
struct CountedSink {
    into: Incoming,
    /// Gone once the reader has given the place up. A thread that reads a file ends then.
    read_bytes: Weak<AtomicU64>,
    /// Whether the reader looks at the progress.
    is_watched: bool,
}

impl CountedSink {
    fn count(&self) -> Result<Arc<AtomicU64>, StorageError> {
        self.read_bytes
            .upgrade()
            .ok_or_else(|| StorageError::new(StorageErrorKind::Withdrawn, "the place was given up"))
    }
}

impl Sink for CountedSink {
    fn size_bytes(&self) -> u64 {
        self.into.size_bytes()
    }

    fn written_bytes(&self) -> u64 {
        self.into.written_bytes()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let count = self.count()?;
        Sink::write(&mut self.into, bytes)?;
        count.store(self.into.written_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), StorageError> {
        let count = self.count()?;
        Sink::skip(&mut self.into, bytes)?;
        count.store(self.into.written_bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self) -> Result<Checksum, StorageError> {
        let _count = self.count()?;
        self.into.finish()
    }

    fn range_bytes(&self) -> Option<usize> {
        Some(if self.is_watched { WATCHED_RANGE_BYTES } else { RANGE_BYTES })
    }
}

async fn begin(
    store: &ObjectStore,
    id: ObjectId,
    spec: &ObjectSpec,
) -> Result<Incoming, StoreError> {
    let (store, spec) = (store.clone(), spec.clone());
    match tokio::task::spawn_blocking(move || store.begin_object(id, &spec)).await {
        Ok(into) => into,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The error with the place in it. The store does not know the place whose content it refuses.
fn of_place(error: StorageError, place: &Name) -> StorageError {
    if error.message.contains(&place.to_string()) {
        return error;
    }
    StorageError::new(error.kind, format!("`{place}`: {}", error.message))
}

fn no_answer(place: &Name) -> String {
    format!("`{place}` has not answered for {} s", ANSWER_TIMEOUT.as_secs())
}

fn all_failed(spec: &ObjectSpec, failures: Vec<(Name, StorageError)>) -> StorageError {
    let source = &spec.source;
    if failures.is_empty() {
        let name = source.strip_prefix(b"lfn://").unwrap_or(source);
        let message = format!(
            "`{source}` has no place with the content that the job was submitted with: it was \
             unregistered, or registered again. See `eyas catalog query {}`; register its places, \
             or submit the job again",
            Name::from(name)
        );
        return StorageError::new(StorageErrorKind::NotFound, message);
    }
    let may_work = failures.iter().any(|(_, error)| error.kind == StorageErrorKind::Unreachable);
    let kind = if may_work { StorageErrorKind::Unreachable } else { StorageErrorKind::NotFound };
    let each: Vec<_> = failures.into_iter().map(|(_, error)| error.message).collect();
    let count = each.len();
    let places = if count == 1 { "its place" } else { "any of its places" };
    let message = format!("cannot read `{source}` from {places}: {}", each.join("; "));
    StorageError::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_a_place_that_was_given_up_ends_and_publishes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(dir.path()).unwrap();
        let id = ObjectId([1; 16]);
        let into = store.begin(id, 4, eyas_types::FileMode::READABLE).unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let mut sink = CountedSink { into, read_bytes: Arc::downgrade(&count), is_watched: true };
        sink.write(b"abc").unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 3);
        drop(count);
        for ended in [sink.write(b"d"), sink.skip(1), sink.finish().map(drop)] {
            assert_eq!(ended.unwrap_err().kind, StorageErrorKind::Withdrawn);
        }
        assert!(!store.contains(id));
    }
}
