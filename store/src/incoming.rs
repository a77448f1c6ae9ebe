//! An object on its way into the store: written under a name that no one looks up, then published whole. Whoever wants
//! to pass it on meanwhile sees it as [`Arriving`].

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use eyas_types::ObjectId;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::arriving::{ArrivalEnd, Arriving};
use crate::checksum::Checksum;
use crate::error::{StoreError, StoreErrorKind};
use crate::index::IndexEntry;
use crate::objects::{ObjectStore, seal};
use crate::pieces::Summing;

/// An object being received, from one source or from several after each other, each of which goes on where the last has
/// stopped. Dropped without [`commit`](Incoming::commit), it leaves nothing behind.
pub struct Incoming {
    id: ObjectId,
    size_bytes: u64,
    executable: bool,
    file: File,
    partial: Partial,
    summing: Summing,
    written_bytes: u64,
}

/// The name that an incoming object has until it is published; removed unless it is.
struct Partial {
    store: ObjectStore,
    id: ObjectId,
    name: String,
    arriving: Arc<Arriving>,
    published: bool,
}

impl Incoming {
    pub(crate) fn new(
        store: ObjectStore,
        id: ObjectId,
        size_bytes: u64,
        executable: bool,
        name: String,
        file: File,
        to_read: File,
    ) -> Result<Self, StoreError> {
        let arriving = Arc::new(Arriving::new(size_bytes, to_read));
        store.arrivals().begin(id, &arriving);
        let partial = Partial { store, id, name, arriving, published: false };
        reserve(&file, size_bytes)
            .map_err(|errno| StoreError::io(format!("no room for object {id} of {size_bytes} bytes"), errno))?;
        Ok(Incoming { id, size_bytes, executable, file, partial, summing: Summing::default(), written_bytes: 0 })
    }

    /// The object.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Bytes announced.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Adds the next bytes. Blocks.
    ///
    /// # Errors
    /// `WrongSize` past the announced size, `Full` or `Io` as the disk says.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_content(bytes)?;
        self.summing.update(bytes);
        self.wrote();
        Ok(())
    }

    /// Adds a whole [piece](crate::PIECE_BYTES), or the last, that is known to have this checksum; what was written
    /// before ends with a piece. Blocks.
    ///
    /// # Errors
    /// As [`Incoming::write`].
    pub fn write_piece(&mut self, piece: &[u8], checksum: Checksum) -> Result<(), StoreError> {
        self.write_content(piece)?;
        self.summing.add(checksum, piece.len());
        self.wrote();
        Ok(())
    }

    fn write_content(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() as u64 > self.size_bytes - self.written_bytes {
            return Err(self.wrong_size("more came"));
        }
        self.file
            .write_all(bytes)
            .map_err(|error| StoreError::io(format!("cannot store object {}", self.id), error))?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn wrote(&mut self) {
        if self.written_bytes == self.size_bytes {
            self.summing.end();
        }
        self.partial.arriving.wrote(self.summing.pieces());
    }

    /// The checksum of what was written so far.
    pub fn checksum(&self) -> Checksum {
        self.summing.whole()
    }

    /// Makes the object part of the store. If a good copy came in meanwhile, that one stays.
    ///
    /// # Errors
    /// `WrongSize` if bytes are missing, `Full` or `Io` as the disk says.
    pub fn commit(self) -> Result<Checksum, StoreError> {
        if self.written_bytes != self.size_bytes {
            return Err(self.wrong_size("only so many came"));
        }
        let Incoming { id, size_bytes, executable, file, mut partial, summing, .. } = self;
        seal(&file, executable).map_err(|errno| StoreError::io(format!("cannot store object {id}"), errno))?;
        // Nothing that is open for writing can be executed, and a task may be waiting for this object.
        drop(file);
        let checksum = summing.whole();
        let entry = IndexEntry { size_bytes, checksum, executable, verified: true };
        partial.published = partial.store.publish(&partial.name, id, entry)?;
        partial.store.remembered().insert(id, &summing);
        partial.store.arrivals().end(id, &partial.arriving, ArrivalEnd::Whole(checksum));
        Ok(checksum)
    }

    fn wrong_size(&self, how: &str) -> StoreError {
        let Incoming { id, size_bytes, written_bytes, .. } = self;
        let message = format!("object {id} was announced with {size_bytes} bytes; {how} ({written_bytes} are written)");
        StoreError::new(StoreErrorKind::WrongSize, message)
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

/// Reserves `size_bytes` for `file`, where the file system can.
fn reserve(file: &File, size_bytes: u64) -> Result<(), Errno> {
    if size_bytes == 0 {
        return Ok(());
    }
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
            Err(Errno::INTR) => {}
            // Not a promise that every file system can make; the write will tell.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            other => return other,
        }
    }
}
