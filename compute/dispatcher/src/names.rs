//! The table of names of files (replica-coupled §4.1, the Replica Location Service): which places
//! have the content of `lfn://NAME`. It is in memory, and each change is in the journal before it
//! counts. It decides nothing: the node that fetches a file selects the place.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use eyas_types::named::{
    InvalidNameEntry, MAX_PLACES, check_name, check_place, name_in, on_disk_of,
};
use eyas_types::{ExecutorId, Name, NameChange, NamedFile, ObjectSpec, Sha256};
use eyas_wire::MINOR_OF_NAMES;
use eyas_wire::client::{NAMES_PART, NAMES_PART_BYTES, NamesQuery};
use eyas_wire::view::{NamedFileView, PassedOverView, PlaceView};
use thiserror::Error;

use crate::clock::Clock;
use crate::executors::{ConnectedExecutor, ConnectedExecutors};
use crate::journal::JournalError;
use crate::log::{Log, NameUpdates};

/// Maximum number of names, and of changes in one request.
const MAX_NAMES: usize = 1_000_000;
/// Maximum size of all names and URLs of places together, bytes.
const MAX_NAME_TABLE_BYTES: usize = 256 << 20;
/// Failures of places that are remembered; the oldest is forgotten first.
const MAX_PASSED_OVER: usize = 1024;
/// Names that are changed while nobody can read the table. Those that wait read it in between.
const CHANGED_TOGETHER: usize = 4096;

/// Why names were not changed. None of the changes was made.
#[derive(Debug, Error)]
pub enum NamesError {
    /// A change cannot be made.
    #[error("{problem}")]
    Change {
        /// The number of the change, from 0.
        index: usize,
        /// What is wrong with it.
        problem: NameProblem,
    },
    /// There are too many changes.
    #[error(
        "a request can change up to {MAX_NAMES} names with {} MiB: change them in parts",
        MAX_NAME_TABLE_BYTES >> 20
    )]
    TooMany,
    /// Too many names are looked up.
    #[error("a request can look up {NAMES_PART} names, and not {0}: look them up in parts")]
    TooManyLookedUp(usize),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The dispatcher has a defect, or ends.
    #[error("the names were not changed; see the dispatcher's log")]
    Unchanged,
}

/// Why a change of a name cannot be made.
#[derive(Debug, Error)]
pub enum NameProblem {
    /// The name or a place cannot be one.
    #[error(transparent)]
    Invalid(#[from] InvalidNameEntry),
    /// The size of the content contradicts the registration.
    #[error(
        "`{name}` is registered with {known} bytes, and not with {given}: a name has one content; \
         to replace it, unregister the name first (`eyas catalog unregister {name}`)"
    )]
    Size {
        /// The name.
        name: Name,
        /// The size that is registered.
        known: u64,
        /// The other size.
        given: u64,
    },
    /// The checksum of the content contradicts the registration.
    #[error(
        "`{name}` is registered with SHA-256 {known}, and not with {given}: a name has one \
         content; to replace it, unregister the name first (`eyas catalog unregister {name}`)"
    )]
    Checksum {
        /// The name.
        name: Name,
        /// The checksum that is registered.
        known: Sha256,
        /// The other checksum.
        given: Sha256,
    },
    /// There is no such name.
    #[error("`{0}` is not registered: `eyas catalog query` lists the names")]
    Unknown(Name),
    /// The name does not have the place.
    #[error(
        "`{name}` is not registered at `{place}`: `eyas catalog query {name}` lists its places"
    )]
    NoSuchPlace {
        /// The name.
        name: Name,
        /// URL of the place.
        place: Name,
    },
    /// The table is full.
    #[error(
        "the table of names is full: it has room for {MAX_NAMES} names and {} MiB",
        MAX_NAME_TABLE_BYTES >> 20
    )]
    Full,
}

/// Changes that come in parts, up to what the table could hold.
#[derive(Default)]
pub(crate) struct ChangesInParts {
    changes: Vec<NameChange>,
    /// Size of all names and URLs together, in memory.
    bytes: usize,
}

impl ChangesInParts {
    /// Adds a part. Returns the number of changes so far.
    pub fn add(&mut self, part: Vec<NameChange>) -> Result<u64, NamesError> {
        for (index, change) in part.iter().enumerate() {
            let (NameChange::Register { places, .. } | NameChange::Unregister { places, .. }) =
                change;
            if places.len() > MAX_PLACES {
                let index = self.changes.len() + index;
                let problem = InvalidNameEntry::Count(places.len()).into();
                *self = ChangesInParts::default();
                return Err(NamesError::Change { index, problem });
            }
            self.bytes += change.size_of_texts() + places.len() * size_of::<Name>();
        }
        if self.changes.len() + part.len() > MAX_NAMES || self.bytes > MAX_NAME_TABLE_BYTES {
            *self = ChangesInParts::default();
            return Err(NamesError::TooMany);
        }
        self.changes.extend(part);
        Ok(self.changes.len() as u64)
    }

    /// All changes.
    pub fn take(&mut self) -> Vec<NameChange> {
        std::mem::take(self).changes
    }
}

/// The names of a cluster. Clones of the pointer share it.
pub(crate) struct NamedFiles {
    log: Arc<dyn Log>,
    clock: Clock,
    table: RwLock<NameTable>,
    passed_over: Mutex<PassedOverPlaces>,
    /// Held while a change is written: changes follow each other.
    changing: Mutex<()>,
}

#[derive(Default)]
struct NameTable {
    files: BTreeMap<Name, Arc<NamedFile>>,
    /// Size of all names and URLs together.
    bytes: usize,
}

/// The last failures of places.
#[derive(Default)]
struct PassedOverPlaces {
    /// By name and place, with the number of the failure.
    of_files: BTreeMap<Name, BTreeMap<Name, (u64, PassedOverView)>>,
    /// How many failures were ever added.
    failures: u64,
}

impl PassedOverPlaces {
    fn add(&mut self, name: Name, place: Name, view: PassedOverView) {
        self.failures += 1;
        self.of_files.entry(name).or_default().insert(place, (self.failures, view));
        if self.of_files.values().map(BTreeMap::len).sum::<usize>() > MAX_PASSED_OVER {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let all = self.of_files.iter().flat_map(|(name, of_file)| {
            of_file.iter().map(move |(place, (number, _))| (number, name, place))
        });
        let Some((_, name, place)) = all.min() else { return };
        let (name, place) = (name.clone(), place.clone());
        if let Some(of_file) = self.of_files.get_mut(&name) {
            of_file.remove(&place);
            if of_file.is_empty() {
                self.of_files.remove(&name);
            }
        }
    }

    fn get(&self, name: &Name, place: &Name) -> Option<&PassedOverView> {
        self.of_files.get(name)?.get(place).map(|(_, view)| view)
    }
}

/// The places of a named file, for one executor.
#[derive(Default)]
pub(crate) struct PlacesForReader {
    pub places: Vec<Name>,
    /// An executor on whose node's own disk the file is, and its URL there, if the reader is not on
    /// that node.
    pub on_disk_of: Option<(ExecutorId, Name)>,
}

impl NamedFiles {
    /// Reads the table from the journal.
    pub fn open(log: Arc<dyn Log>) -> Result<Self, JournalError> {
        let mut table = NameTable::default();
        for (name, file) in log.names()? {
            table.put(name, Some(file));
        }
        Ok(NamedFiles {
            log,
            clock: Clock::new(),
            table: RwLock::new(table),
            passed_over: Mutex::default(),
            changing: Mutex::default(),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, NameTable> {
        // No update of the table can panic half-way.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, NameTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn passed_over_places(&self) -> MutexGuard<'_, PassedOverPlaces> {
        // No update of the map can panic half-way.
        self.passed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all changes, or none. They are on disk when this returns. Blocks.
    pub fn change(&self, changes: &[NameChange]) -> Result<u64, NamesError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let updates = self.read().updates(changes, self.clock.now_us())?;
        self.log.change_names(&updates)?;
        let mut updates = updates.into_iter().peekable();
        while updates.peek().is_some() {
            let mut table = self.write();
            for (name, file) in updates.by_ref().take(CHANGED_TOGETHER) {
                table.put(name, file);
            }
            drop(table);
            std::thread::yield_now();
        }
        Ok(changes.len() as u64)
    }

    /// Names that a query asks for, in their order.
    pub fn find(&self, query: &NamesQuery) -> Result<Vec<NamedFileView>, NamesError> {
        let table = self.read();
        let view =
            |(name, file): (&Name, &Arc<NamedFile>)| view(name, file, &self.passed_over_places());
        match query {
            NamesQuery::These(names) if names.len() > NAMES_PART => {
                Err(NamesError::TooManyLookedUp(names.len()))
            }
            NamesQuery::These(names) => {
                let found = names.iter().filter_map(|name| table.files.get_key_value(name));
                Ok(first_part(found.map(view)))
            }
            NamesQuery::After { prefix, last } => {
                let from =
                    if last.is_empty() { Bound::Included(prefix) } else { Bound::Excluded(last) };
                let after = table.files.range::<Name, _>((from, Bound::Unbounded));
                let matching = after.take_while(|(name, _)| name.starts_with(prefix));
                Ok(first_part(matching.map(view)))
            }
        }
    }

    /// The places of an object whose source is a name. There are none if the name has another
    /// content now.
    pub fn places_of(&self, object: &ObjectSpec) -> Vec<Name> {
        let table = self.read();
        let file = name_in(&object.source).and_then(|name| table.files.get(&Name::from(name)));
        let file = file.filter(|file| file.has(&object.version));
        file.map_or_else(Vec::new, |file| file.places.clone())
    }

    /// The places as an executor reads them. Files on its own disk come first, as paths.
    pub fn places_for(
        &self,
        reader: ExecutorId,
        object: &ObjectSpec,
        executors: &ConnectedExecutors,
    ) -> PlacesForReader {
        let mut found = PlacesForReader::default();
        for place in self.places_of(object) {
            let Some((node, path)) = on_disk_of(&place) else {
                found.places.push(place);
                continue;
            };
            let is_on = |executor: &ConnectedExecutor| is_on_node(executor, node);
            if executors.get(reader).is_some_and(is_on) {
                found.places.insert(0, path);
                continue;
            }
            let owner = executors
                .iter()
                .find(|(_, executor)| is_on(executor) && executor.minor >= MINOR_OF_NAMES);
            if let (Some((owner, _)), None) = (owner, &found.on_disk_of) {
                found.on_disk_of = Some((owner, path));
            }
            found.places.push(place);
        }
        found
    }

    /// An executor has passed over a place.
    pub fn passed_over(&self, name: Name, place: Name, executor: &ConnectedExecutor, why: String) {
        let at_unix_ms = self.clock.now_us() / 1000;
        let view = PassedOverView { executor: executor.name.clone(), why, at_unix_ms };
        let place = self.as_registered(&name, place, executor);
        self.passed_over_places().add(name, place, view);
    }

    /// A place that an executor has read, as it is registered: the executor is told paths on its
    /// own disk without the node.
    fn as_registered(&self, name: &Name, place: Name, executor: &ConnectedExecutor) -> Name {
        let table = self.read();
        let places = table.files.get(name).map_or(&[][..], |file| &file.places);
        let is_it = |registered: &&Name| {
            on_disk_of(registered)
                .is_some_and(|(node, path)| path == place && is_on_node(executor, node))
        };
        match places.iter().find(is_it) {
            Some(registered) if !places.contains(&place) => registered.clone(),
            _ => place,
        }
    }

    /// What is said of the places of a named source that executors have passed over.
    pub fn failures(&self, source: &Name) -> Vec<String> {
        let Some(name) = name_in(source) else { return Vec::new() };
        let passed_over = self.passed_over_places();
        let of_file = passed_over.of_files.get(&Name::from(name)).into_iter().flatten();
        of_file
            .map(|(place, (_, view))| {
                format!("{} passed over `{place}` of `{source}`: {}.", view.executor, view.why)
            })
            .collect()
    }
}

impl NameTable {
    /// What the changes make of the names, if all of them can be made.
    fn updates(&self, changes: &[NameChange], now_us: u64) -> Result<NameUpdates, NamesError> {
        let mut updates = NameUpdates::new();
        let (mut count, mut bytes) = (self.files.len(), self.bytes);
        for (index, change) in changes.iter().enumerate() {
            let wrong = |problem| NamesError::Change { index, problem };
            let (NameChange::Register { name, .. } | NameChange::Unregister { name, .. }) = change;
            let before = match updates.get(name) {
                Some(updated) => updated.clone(),
                None => self.files.get(name).map(|file| (**file).clone()),
            };
            let size_of = |file: &Option<NamedFile>| file.as_ref().map_or(0, |f| bytes_of(name, f));
            let (had_bytes, was_there) = (size_of(&before), before.is_some());
            let after = changed(before, change, now_us).map_err(wrong)?;
            bytes = bytes - had_bytes + size_of(&after);
            count = count - usize::from(was_there) + usize::from(after.is_some());
            let grows = matches!(change, NameChange::Register { .. });
            if grows && (count > MAX_NAMES || bytes > MAX_NAME_TABLE_BYTES) {
                return Err(wrong(NameProblem::Full));
            }
            updates.insert(name.clone(), after);
        }
        Ok(updates)
    }

    fn put(&mut self, name: Name, file: Option<NamedFile>) {
        let added = file.as_ref().map_or(0, |file| bytes_of(&name, file));
        let before = match file {
            Some(file) => self.files.insert(name.clone(), Arc::new(file)),
            None => self.files.remove(&name),
        };
        self.bytes = self.bytes + added - before.map_or(0, |file| bytes_of(&name, &file));
    }
}

fn view(name: &Name, file: &NamedFile, passed_over: &PassedOverPlaces) -> NamedFileView {
    let place = |url: &Name| PlaceView {
        url: url.clone(),
        passed_over: passed_over.get(name, url).cloned(),
    };
    NamedFileView {
        name: name.clone(),
        places: file.places.iter().map(place).collect(),
        size_bytes: file.size_bytes,
        sha256: file.sha256,
        registered_us: file.registered_us,
    }
}

/// Whether an executor is on a node, which its name or its host names.
fn is_on_node(executor: &ConnectedExecutor, node: &[u8]) -> bool {
    executor.name.as_bytes() == node || executor.host.as_bytes() == node
}

fn bytes_of(name: &Name, file: &NamedFile) -> usize {
    name.len() + file.places.iter().map(|place| place.len()).sum::<usize>()
}

/// The files that one message has room for.
fn first_part(files: impl Iterator<Item = NamedFileView>) -> Vec<NamedFileView> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for file in files.take(NAMES_PART) {
        bytes += file.size_of_texts();
        part.push(file);
        if bytes >= NAMES_PART_BYTES {
            break;
        }
    }
    part
}

/// What a change makes of a name.
fn changed(
    before: Option<NamedFile>,
    change: &NameChange,
    now_us: u64,
) -> Result<Option<NamedFile>, NameProblem> {
    match change {
        NameChange::Register { name, places, size_bytes, sha256 } => {
            check_name(name)?;
            places.iter().try_for_each(check_place)?;
            let mut file = before.unwrap_or_else(|| NamedFile {
                places: Vec::new(),
                size_bytes: *size_bytes,
                sha256: *sha256,
                registered_us: now_us,
            });
            let name = || name.clone();
            match (file.size_bytes, *size_bytes) {
                (Some(known), Some(given)) if known != given => {
                    return Err(NameProblem::Size { name: name(), known, given });
                }
                (known, given) => file.size_bytes = known.or(given),
            }
            match (file.sha256, *sha256) {
                (Some(known), Some(given)) if known != given => {
                    return Err(NameProblem::Checksum { name: name(), known, given });
                }
                (known, given) => file.sha256 = known.or(given),
            }
            for place in places {
                if !file.places.contains(place) {
                    file.places.push(place.clone());
                }
            }
            match file.places.len() {
                1..=MAX_PLACES => Ok(Some(file)),
                count => Err(InvalidNameEntry::Count(count).into()),
            }
        }
        NameChange::Unregister { name, places } => {
            let mut file = before.ok_or_else(|| NameProblem::Unknown(name.clone()))?;
            if places.is_empty() {
                return Ok(None);
            }
            for place in places {
                let (name, place) = (name.clone(), place.clone());
                let index = file.places.iter().position(|known| *known == place);
                file.places.remove(index.ok_or(NameProblem::NoSuchPlace { name, place })?);
            }
            Ok(Some(file).filter(|file| !file.places.is_empty()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(name: &str, places: &[&str], size_bytes: Option<u64>) -> NameChange {
        let places = places.iter().map(|place| Name::from(*place)).collect();
        NameChange::Register { name: name.into(), places, size_bytes, sha256: None }
    }

    fn unregister(name: &str, places: &[&str]) -> NameChange {
        let places = places.iter().map(|place| Name::from(*place)).collect();
        NameChange::Unregister { name: name.into(), places }
    }

    fn apply(table: &mut NameTable, changes: &[NameChange]) -> Result<(), (usize, String)> {
        let updates = table.updates(changes, 7).map_err(|error| match error {
            NamesError::Change { index, problem } => (index, problem.to_string()),
            other => panic!("{other}"),
        })?;
        updates.into_iter().for_each(|(name, file)| table.put(name, file));
        Ok(())
    }

    #[test]
    fn changes_in_parts_are_bounded() {
        let mut changes = ChangesInParts::default();
        let part =
            |bytes: usize| vec![register("a", &[&format!("file:///{}", "x".repeat(bytes))], None)];
        assert_eq!((changes.add(part(10)).unwrap(), changes.add(part(10)).unwrap()), (1, 2));
        assert!(matches!(changes.add(part(MAX_NAME_TABLE_BYTES)), Err(NamesError::TooMany)));
        assert!(changes.take().is_empty(), "none is made");
        changes.add(part(10)).unwrap();
        let many = unregister("a", &["file:///a"; MAX_PLACES + 1]);
        let refused = changes.add(vec![unregister("b", &[]), many]).unwrap_err();
        assert!(matches!(refused, NamesError::Change { index: 2, .. }), "{refused}");
        assert!(changes.take().is_empty(), "none is made");
        let many = vec![unregister("a", &[]); MAX_NAMES / 2 + 1];
        changes.add(many.clone()).unwrap();
        assert!(matches!(changes.add(many), Err(NamesError::TooMany)));
    }

    #[test]
    fn the_last_failures_of_places_are_remembered() {
        let mut passed_over = PassedOverPlaces::default();
        let why = |why: usize| PassedOverView {
            executor: "n".into(),
            why: why.to_string(),
            at_unix_ms: 1,
        };
        let name = |n: usize| Name::from(format!("{n}"));
        for n in 0..MAX_PASSED_OVER {
            passed_over.add(name(n), "file:///a".into(), why(n));
        }
        // It fails again, so that the next one is the oldest.
        passed_over.add(name(0), "file:///a".into(), why(7));
        passed_over.add(name(0), "file:///b".into(), why(8));
        let get = |n, place: &str| passed_over.get(&name(n), &place.into());
        assert_eq!(get(0, "file:///a"), Some(&why(7)));
        assert_eq!(get(0, "file:///b"), Some(&why(8)));
        assert_eq!((get(1, "file:///a"), get(2, "file:///a")), (None, Some(&why(2))));
    }

    #[test]
    fn an_answer_with_names_is_bounded() {
        let mut table = NameTable::default();
        let place = format!("file:///{}", "x".repeat(4000));
        let names: Vec<_> = (0..NAMES_PART + 1).map(|n| format!("{n:04}")).collect();
        let all: Vec<_> = names.iter().map(|name| register(name, &[&place], None)).collect();
        apply(&mut table, &all).unwrap();
        let none = PassedOverPlaces::default();
        let files = || table.files.iter().map(|(name, file)| view(name, file, &none));
        let part = first_part(files());
        let bytes = part.iter().map(NamedFileView::size_of_texts).sum::<usize>();
        assert!((NAMES_PART_BYTES..NAMES_PART_BYTES + 5000).contains(&bytes), "{bytes}");
        let without_places = files().map(|file| NamedFileView { places: Vec::new(), ..file });
        assert_eq!(first_part(without_places).len(), NAMES_PART);
    }

    #[test]
    fn places_add_up_and_contents_agree() {
        let mut table = NameTable::default();
        apply(&mut table, &[register("db", &["file:///a"], None)]).unwrap();
        apply(&mut table, &[register("db", &["file:///a", "http://h/a"], Some(3))]).unwrap();
        let file = table.files[&Name::from("db")].clone();
        assert_eq!((file.places.len(), file.size_bytes, file.registered_us), (2, Some(3), 7));
        let (_, why) = apply(&mut table, &[register("db", &["file:///b"], Some(4))]).unwrap_err();
        assert!(why.contains("with 3 bytes, and not with 4"), "{why}");
        apply(&mut table, &[unregister("db", &["file:///a"])]).unwrap();
        assert_eq!(table.files[&Name::from("db")].places, ["http://h/a"]);
        apply(&mut table, &[unregister("db", &["http://h/a"])]).unwrap();
        assert_eq!((table.files.len(), table.bytes), (0, 0), "the last place takes the name along");
    }

    #[test]
    fn of_changes_that_cannot_all_be_made_none_is() {
        let mut table = NameTable::default();
        apply(&mut table, &[register("a", &["file:///a"], Some(1))]).unwrap();
        let good = register("b", &["file:///b"], None);
        for (wrong, says) in [
            (register("a", &["file:///c"], Some(2)), "with 1 bytes"),
            (register("a b", &["file:///c"], None), "cannot be the name"),
            (register("c", &["ftp://x/c"], None), "cannot be a place"),
            (register("c", &[], None), "there is no place"),
            (unregister("z", &[]), "`z` is not registered"),
            (unregister("a", &["file:///z"]), "`a` is not registered at `file:///z`"),
        ] {
            let (index, why) = apply(&mut table, &[good.clone(), wrong]).unwrap_err();
            assert_eq!(index, 1);
            assert!(why.contains(says), "{why}");
            assert_eq!(table.files.len(), 1, "{why}");
        }
        let many: Vec<_> = (0..=MAX_PLACES).map(|n| format!("file:///{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let (_, why) = apply(&mut table, &[register("m", &many, None)]).unwrap_err();
        assert!(why.contains("33 places are too many"), "{why}");
        // Later changes of a request see the earlier ones.
        let both = [register("c", &["file:///c"], None), unregister("c", &[])];
        apply(&mut table, &both).unwrap();
        assert_eq!(table.files.len(), 1);
    }
}
