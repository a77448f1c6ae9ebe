//! Reading a range of a file from its beginning to its end: its next parts are fetched while the
//! program uses those before, as `eyas_reading::Sequence` plans it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use eyas_reading::{ChunkMap, ChunkPart, Sequence};

use crate::background::Background;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::read::{ChunkReader, ReadPart, chunk_map};

/// A reader of a range of a file. It returns parts of chunks in order.
pub struct ChunkStream {
    chunks: Arc<ChunkReader>,
    file: Arc<File>,
    plan: Sequence,
    begun: VecDeque<BegunPart>,
    near_bytes: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This number of zeros, which no node stores.
    Hole(u64),
}

/// A part that is next.
enum BegunPart {
    Fetched(Background<Result<ReadPart, FilesError>>),
    Hole(u64),
}

impl ChunkReader {
    /// Reads a whole file.
    pub fn read(self: &Arc<Self>, file: &File) -> ChunkStream {
        self.read_range(file, 0..file.record.size_bytes())
    }

    /// Reads `length` bytes from `offset`.
    pub async fn read_at(
        self: &Arc<Self>,
        file: &File,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, FilesError> {
        let size_bytes = file.record.size_bytes();
        let Some(end) = offset.checked_add(length).filter(|end| *end <= size_bytes) else {
            let message =
                format!("{} has {size_bytes} bytes, not {length} from {offset} on", file.name);
            return Err(FilesError::new(FilesErrorKind::NotFound, message));
        };
        let map = chunk_map(&file.record);
        let mut parts = map.parts(offset..end);
        if let (Some(ChunkPart { index, range }), None) = (parts.next(), parts.next()) {
            return Ok(self.part(file, index, range).await?.content);
        }
        let mut reading = self.read_range(file, offset..end);
        let mut read = Vec::new();
        while let Some(part) = reading.next().await? {
            read.extend_from_slice(&part);
        }
        Ok(read)
    }

    /// Reads a range of a file, up to the end of the file.
    pub fn read_range(self: &Arc<Self>, file: &File, wanted: Range<u64>) -> ChunkStream {
        ChunkStream::of(self.clone(), Arc::new(file.clone()), &chunk_map(&file.record), wanted)
    }
}

impl ChunkStream {
    pub(crate) fn of(
        chunks: Arc<ChunkReader>,
        file: Arc<File>,
        map: &ChunkMap,
        range: Range<u64>,
    ) -> Self {
        ChunkStream {
            chunks,
            file,
            plan: Sequence::new(map, range),
            begun: VecDeque::new(),
            near_bytes: 0,
        }
    }

    /// The bytes of the next part, also if they are a hole; `None` at the end. The future may be
    /// dropped and the method called again.
    ///
    /// # Errors
    /// `Lost` if no replica of a chunk can be read.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, FilesError> {
        Ok(self.next_part().await?.map(|part| match part {
            FilePart::Bytes(bytes) => bytes,
            FilePart::Hole(bytes) => vec![0; bytes as usize],
        }))
    }

    /// The next part; `None` at the end. The future may be dropped and the method called again.
    ///
    /// # Errors
    /// `Lost` if no replica of a chunk can be read.
    pub async fn next_part(&mut self) -> Result<Option<FilePart>, FilesError> {
        while let Some(part) = self.plan.begin() {
            let (chunks, file) = (self.chunks.clone(), self.file.clone());
            self.begun.push_back(match file.record.chunks[part.index].is_hole() {
                true => BegunPart::Hole(part.size_bytes()),
                false => BegunPart::Fetched(Background::spawn(async move {
                    chunks.part(&file, part.index, part.range).await
                })),
            });
        }
        let next = match self.begun.front_mut() {
            None => return Ok(None),
            Some(BegunPart::Hole(bytes)) => Ok(FilePart::Hole(*bytes)),
            Some(BegunPart::Fetched(fetched)) => {
                fetched.done().await.map(|ReadPart { content, is_near }| {
                    self.near_bytes += if is_near { content.len() as u64 } else { 0 };
                    FilePart::Bytes(content)
                })
            }
        };
        self.begun.pop_front();
        self.plan.taken();
        next.map(Some)
    }

    /// Number of bytes that the node on this machine has delivered.
    pub fn near_bytes(&self) -> u64 {
        self.near_bytes
    }
}
