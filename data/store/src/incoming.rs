//! An object that is being written to the store: under a temporary name, and then published as a
//! whole. Until then other threads can read its prefix through [`PartialReplica`].

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use eyas_types::{FileMode, ObjectId, Sha256};
use ring::digest;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::checksum::Checksum;
use crate::error::{StoreError, StoreErrorKind};
use crate::holes::Part;
use crate::index::IndexEntry;
use crate::objects::{ObjectStore, seal};
use crate::partial_replica::{ArrivalEnd, PartialReplica};
use crate::pieces::PieceHasher;

/// Zeros whose checksum is computed at a time.
const ZEROS: [u8; 4096] = [0; 4096];

/// An object that is being received, from one source or from several in turn, each of which
/// continues where the last one stopped. If it is dropped without [`commit`](Incoming::commit), it
/// leaves nothing behind.
pub struct Incoming {
    id: ObjectId,
    size_bytes: u64,
    mode: FileMode,
    file: File,
    partial: Partial,
    summing: PieceHasher,
    written_bytes: u64,
    /// Whether the file has space for all of its bytes, also for those that are not written yet.
    is_reserved: bool,
    expected: Option<ExpectedContent>,
}

/// The checksum that the content must have, and the checksum of the bytes written so far.
struct ExpectedContent {
    sha256: Sha256,
    so_far: digest::Context,
}

/// The temporary file of an incoming object. It is removed unless it is published.
struct Partial {
    store: ObjectStore,
    id: ObjectId,
    name: String,
    arriving: Arc<PartialReplica>,
    published: bool,
}

impl Incoming {
    pub(crate) fn new(
        store: ObjectStore,
        id: ObjectId,
        size_bytes: u64,
        mode: FileMode,
        name: String,
        file: File,
        to_read: File,
    ) -> Result<Self, StoreError> {
        let arriving = Arc::new(PartialReplica::new(size_bytes, to_read));
        store.arrivals().begin(id, &arriving);
        let partial = Partial { store, id, name, arriving, published: false };
        let is_reserved = reserve(&file, size_bytes).map_err(|errno| {
            StoreError::io(format!("cannot reserve {size_bytes} bytes for object {id}"), errno)
        })?;
        let (summing, written_bytes, expected) = (PieceHasher::default(), 0, None);
        Ok(Incoming {
            id,
            size_bytes,
            mode,
            file,
            partial,
            summing,
            written_bytes,
            is_reserved,
            expected,
        })
    }

    /// Refuses to publish other content than that with this checksum. To be called before the first
    /// byte is written.
    #[must_use]
    pub fn expect(self, sha256: Sha256) -> Self {
        assert_eq!(self.written_bytes, 0, "the checksum is that of all bytes");
        let so_far = digest::Context::new(&digest::SHA256);
        Incoming { expected: Some(ExpectedContent { sha256, so_far }), ..self }
    }

    /// The id of the object.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The announced size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Number of bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Appends the next bytes. Blocks.
    ///
    /// # Errors
    /// `WrongSize` if they exceed the announced size; `Full` or `Io` for failures of the disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_content(bytes)?;
        self.summing.update(bytes);
        self.wrote();
        Ok(())
    }

    /// Appends a whole [piece](crate::PIECE_BYTES), or the last one, whose checksum is known. The
    /// bytes written before must end with a piece. Blocks.
    ///
    /// # Errors
    /// As [`Incoming::write`].
    pub fn write_piece(&mut self, piece: &[u8], checksum: Checksum) -> Result<(), StoreError> {
        self.write_content(piece)?;
        self.summing.add(checksum, piece.len());
        self.wrote();
        Ok(())
    }

    /// Appends a hole: zeros that take no space if the file system can leave them out. Blocks.
    ///
    /// # Errors
    /// As [`Incoming::write`].
    pub fn skip(&mut self, bytes: u64) -> Result<(), StoreError> {
        let end = self.end_of(bytes)?;
        let left_out = match self.is_reserved {
            true => punch(&self.file, self.written_bytes, bytes),
            // Others read the prefix, so the file must have it.
            false => rustix::fs::ftruncate(&self.file, end),
        };
        left_out.map_err(|errno| self.failed(errno))?;
        self.written_bytes = end;
        if let Some(expected) = &mut self.expected {
            for start in (0..bytes).step_by(ZEROS.len()) {
                expected.so_far.update(&ZEROS[..ZEROS.len().min((bytes - start) as usize)]);
            }
        }
        self.summing.skip(bytes);
        self.wrote();
        Ok(())
    }

    pub(crate) fn take(&mut self, part: Part<'_>) -> Result<(), StoreError> {
        match part {
            Part::Data(bytes) => self.write(bytes),
            Part::Hole(bytes) => self.skip(bytes),
        }
    }

    fn write_content(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let end = self.end_of(bytes.len() as u64)?;
        self.file.write_all_at(bytes, self.written_bytes).map_err(|error| self.failed(error))?;
        if let Some(expected) = &mut self.expected {
            expected.so_far.update(bytes);
        }
        self.written_bytes = end;
        Ok(())
    }

    /// Where further bytes end.
    fn end_of(&self, bytes: u64) -> Result<u64, StoreError> {
        match bytes <= self.size_bytes - self.written_bytes {
            true => Ok(self.written_bytes + bytes),
            false => Err(self.wrong_size("more were sent")),
        }
    }

    fn failed(&self, error: impl Into<std::io::Error>) -> StoreError {
        StoreError::io(format!("cannot store object {}", self.id), error)
    }

    fn wrote(&mut self) {
        if self.written_bytes == self.size_bytes {
            self.summing.end();
        }
        self.partial.arriving.wrote(self.summing.pieces());
    }

    /// The checksum of the bytes written so far.
    pub fn checksum(&self) -> Checksum {
        self.summing.whole()
    }

    /// Publishes the object in the store. If a verified copy has arrived in the meantime, that copy
    /// stays.
    ///
    /// # Errors
    /// `WrongSize` if bytes are missing; `WrongContent` if the content is not the
    /// [expected](Incoming::expect) one; `Full` or `Io` for failures of the disk.
    pub fn commit(self) -> Result<Checksum, StoreError> {
        if self.written_bytes != self.size_bytes {
            return Err(self.wrong_size("fewer were sent"));
        }
        let Incoming { id, size_bytes, mode, file, mut partial, summing, expected, .. } = self;
        expected.map_or(Ok(()), ExpectedContent::check)?;
        seal(&file, mode)
            .map_err(|errno| StoreError::io(format!("cannot store object {id}"), errno))?;
        // A file that is open for writing cannot be executed, and a task may be waiting for this
        // object.
        drop(file);
        let checksum = summing.whole();
        let entry = IndexEntry { size_bytes, checksum, mode, verified: true };
        partial.published = partial.store.publish(&partial.name, id, entry)?;
        partial.store.remembered().insert(id, &summing);
        partial.store.arrivals().end(id, &partial.arriving, ArrivalEnd::Whole(checksum));
        Ok(checksum)
    }

    fn wrong_size(&self, how: &str) -> StoreError {
        let Incoming { id, size_bytes, written_bytes, .. } = self;
        let message = format!(
            "object {id} was announced with {size_bytes} bytes; {how} ({written_bytes} are \
             written)"
        );
        StoreError::new(StoreErrorKind::WrongSize, message)
    }
}

impl ExpectedContent {
    fn check(self) -> Result<(), StoreError> {
        let ExpectedContent { sha256: known, so_far } = self;
        let found = so_far.finish();
        if found.as_ref() == known.0 {
            return Ok(());
        }
        let mut sum = [0; 32];
        sum.copy_from_slice(found.as_ref());
        let message = format!(
            "the content has SHA-256 {}, and not {known}, which is registered",
            Sha256(sum)
        );
        Err(StoreError::new(StoreErrorKind::WrongContent, message))
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Incoming { id, size_bytes, written_bytes, .. } = self;
        write!(f, "Incoming({id}, {written_bytes} of {size_bytes})")
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.store.arrivals().end(self.id, &self.arriving, ArrivalEnd::GivenUp);
        if !self.published {
            self.store.discard_partial(&self.name);
        }
    }
}

/// Smaller objects get no reservation. They are written at once, so a full disk is noticed as
/// early; and file systems that choose places late never write a small file that is removed soon,
/// nor trim its place.
const RESERVED_FROM_BYTES: u64 = 64 << 10;

/// Reserves `size_bytes` for `file`, if the object is large and the file system supports it.
/// Returns whether it has.
fn reserve(file: &File, size_bytes: u64) -> Result<bool, Errno> {
    if size_bytes < RESERVED_FROM_BYTES {
        return Ok(false);
    }
    match rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes)
    }) {
        // Some file systems cannot reserve space; then a write fails later if the disk is full.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Gives back the reserved space of some bytes that are zeros, if the file system supports it.
fn punch(file: &File, start: u64, bytes: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, start, bytes)) {
        // Reserved space reads as zeros, too. No bytes are no hole.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(Errno::INVAL) if bytes == 0 => Ok(()),
        other => other,
    }
}
