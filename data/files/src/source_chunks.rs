//! Content that is cut into chunks while it is read. Its holes are not read.

use eyas_blocks::format::{BadContent, Cutter, Ending};
use eyas_types::dfs::Chunk;

use crate::chunk_sizes::max_chunk_bytes;
use crate::error::{FilesError, FilesErrorKind};
use crate::source::{ContentSource, checksum_of_zeros};

/// A chunk of content.
pub enum SourceChunk {
    /// Content to store.
    Content(Vec<u8>),
    /// A chunk of zeros that was not read, and is not stored.
    Hole(Chunk),
}

/// Reads a source to its end, and cuts it into chunks. The last one may be an error.
pub struct SourceChunks<S> {
    cutter: Cutter,
    source: S,
    buffer_bytes: usize,
    /// What was read last. Its bytes from `at` on belong to no chunk yet.
    buffer: Vec<u8>,
    at: usize,
    /// The beginning of the next chunk.
    begun: Vec<u8>,
    /// The last hole. The next one has the same size in most cases, and then the same checksum.
    hole: Chunk,
    has_ended: bool,
}

impl<S: ContentSource> SourceChunks<S> {
    /// Cuts `begun`, and what the source has after it. Reads this number of bytes at a time.
    pub fn new(cutter: Cutter, source: S, begun: Vec<u8>, buffer_bytes: usize) -> Self {
        let hole = Chunk::hole(0, 0);
        SourceChunks {
            cutter,
            source,
            buffer_bytes,
            buffer: begun,
            at: 0,
            begun: Vec::new(),
            hole,
            has_ended: false,
        }
    }

    /// The next chunk; `None` at the end.
    fn chunk(&mut self) -> Result<Option<SourceChunk>, FilesError> {
        loop {
            let bytes = &self.buffer[self.at..];
            if let Some(end) = self.cutter.cut(bytes).map_err(bad)? {
                self.begun.extend_from_slice(&bytes[..end]);
                self.at += end;
                // The next chunk is about as long. A vector that grows is copied again and again.
                let next = Vec::with_capacity(self.begun.len() + self.buffer_bytes);
                return Ok(Some(SourceChunk::Content(std::mem::replace(&mut self.begun, next))));
            }
            self.begun.extend_from_slice(bytes);
            self.buffer.clear();
            self.at = 0;
            if let Some(hole) = self.hole()? {
                return Ok(Some(SourceChunk::Hole(hole)));
            }
            if self.read()? == 0 {
                self.has_ended = true;
                let _: Ending = self.cutter.finish().map_err(bad)?;
                let last = std::mem::take(&mut self.begun);
                return Ok((!last.is_empty()).then_some(SourceChunk::Content(last)));
            }
        }
    }

    /// Passes over a hole of the source if a whole chunk is in it.
    fn hole(&mut self) -> Result<Option<Chunk>, FilesError> {
        let most = max_chunk_bytes(self.cutter.format());
        let most_bytes = (most + 1).saturating_sub(self.begun.len()) as u64;
        if most_bytes == 0
            || !self.cutter.ends_in_zeros()
                && self.source.skip_hole(most_bytes).map_err(unreadable)?
        {
            let message = format!(
                "it has a record of more than {most} bytes: store it as `whole`, as one record"
            );
            return Err(FilesError::new(FilesErrorKind::WrongFormat, message));
        }
        let Some(bytes) = self.cutter.rest_bytes().filter(|_| self.begun.is_empty()) else {
            return Ok(None);
        };
        if !self.source.skip_hole(bytes).map_err(unreadable)? {
            return Ok(None);
        }
        if self.hole.size_bytes != bytes {
            self.hole = Chunk::hole(bytes, checksum_of_zeros(bytes).0);
        }
        self.cutter.skip_rest();
        Ok(Some(self.hole.clone()))
    }

    /// Fills the buffer. Returns the number of bytes, which is 0 at the end of the source.
    fn read(&mut self) -> Result<usize, FilesError> {
        // A read ends where the chunk does, so that a hole that begins there is found.
        let rest_bytes = self.cutter.rest_bytes().unwrap_or(u64::MAX);
        self.buffer.resize(rest_bytes.min(self.buffer_bytes as u64) as usize, 0);
        loop {
            match self.source.read(&mut self.buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => {
                    let count = read.map_err(unreadable)?;
                    self.buffer.truncate(count);
                    return Ok(count);
                }
            }
        }
    }
}

impl<S: ContentSource> Iterator for SourceChunks<S> {
    type Item = Result<SourceChunk, FilesError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let chunk = self.chunk().transpose();
        self.has_ended |= !matches!(chunk, Some(Ok(_)));
        chunk
    }
}

fn bad(error: BadContent) -> FilesError {
    FilesError::new(FilesErrorKind::WrongFormat, error.to_string())
}

fn unreadable(error: std::io::Error) -> FilesError {
    FilesError::local("cannot read what is to be written", &error)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    use eyas_blocks::format::WHOLE_CHUNK_BYTES;
    use eyas_types::dfs::{DEFAULT_CHUNK_BYTES, Format};

    use super::*;
    use crate::source::SparseFile;

    const BUFFER_BYTES: usize = 1 << 20;

    #[test]
    fn a_long_block_of_a_compressed_file_is_no_record_and_one_record_has_any_size() {
        let sizes = |format: Format| {
            // A frame of zstd that does not end.
            let source = (&b"\x28\xb5\x2f\xfd"[..])
                .chain(std::io::repeat(0))
                .take(WHOLE_CHUNK_BYTES + 3 * 1024 * 1024);
            let cutter = Cutter::storing(format, DEFAULT_CHUNK_BYTES, 0);
            let size = |piece: Result<SourceChunk, FilesError>| match piece {
                Ok(SourceChunk::Content(content)) => Ok(content.len() as u64),
                Ok(SourceChunk::Hole(hole)) => Ok(hole.size_bytes),
                Err(error) => Err(error.kind),
            };
            SourceChunks::new(cutter, source, Vec::new(), BUFFER_BYTES)
                .map(size)
                .collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(sizes(Format::Zstd), Err(FilesErrorKind::WrongFormat));
        assert_eq!(sizes(Format::Whole), Ok(vec![WHOLE_CHUNK_BYTES, 3 << 20]));
    }

    #[test]
    fn holes_of_a_source_are_chunks_that_are_not_read() {
        let (chunk, mib) = (300_000, 1 << 20);
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 * mib).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 5 * mib).unwrap();
        let (mut at, mut read) = (0, 0);
        let cutter = Cutter::new(Format::BYTES, chunk);
        for piece in SourceChunks::new(cutter, SparseFile(file), Vec::new(), BUFFER_BYTES) {
            let size_bytes = match piece.unwrap() {
                SourceChunk::Hole(hole) => hole.size_bytes,
                SourceChunk::Content(content) => {
                    read += content.len() as u64;
                    for (text, place) in [(&b"begin"[..], 0), (b"middle", 5 * mib)] {
                        if at <= place && place < at + content.len() as u64 {
                            assert!(content[(place - at) as usize..].starts_with(text));
                        }
                    }
                    content.len() as u64
                }
            };
            assert_eq!(size_bytes, chunk.min(10 * mib - at));
            at += size_bytes;
        }
        // The chunks with bytes, and the last one, which is shorter.
        assert_eq!((at, read), (10 * mib, 2 * chunk + 10 * mib % chunk));
    }

    /// A hole without an end.
    struct Hole;

    impl ContentSource for Hole {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("zeros are read");
        }

        fn skip_hole(&mut self, _: u64) -> std::io::Result<bool> {
            Ok(true)
        }
    }

    #[test]
    fn a_record_that_would_not_end_is_refused_before_it_is_read() {
        let mut pieces = SourceChunks::new(
            Cutter::new(Format::Lines, 100),
            Hole,
            b"line\nno end".into(),
            BUFFER_BYTES,
        );
        let error = pieces.next().unwrap().err().unwrap();
        assert!(error.kind == FilesErrorKind::WrongFormat && pieces.next().is_none());
    }
}
