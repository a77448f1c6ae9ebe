//! The bytes of a file in order. A gzip file, recognised by its first two bytes and never by its
//! name, is inflated.
//!
//! A source reads no further than its caller asks: skipping in a plain file is a seek, and a gzip
//! file is inflated only up to the last byte that is needed. A source must never return fewer bytes
//! than asked for without an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use crate::error::{FileProblem, StackingError};

/// RFC 1952: the two bytes that every gzip member begins with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Bytes of an empty gzip file; a shorter one is none.
const GZIP_BYTES: u64 = 18;

/// Bytes read at a time from a gzip file.
const READ_BYTES: usize = 256 << 10;

/// Bytes inflated at a time while they are only skipped: this fits into first-level caches.
const SKIP_BYTES: usize = 16 << 10;

/// An open file, positioned at some byte of its (gunzipped) content.
#[derive(Debug)]
pub struct ByteSource {
    path: PathBuf,
    stream: Stream,
    /// Bytes of the file.
    file_bytes: u64,
    /// Bytes of the content of a gzip file, once they have been asked for.
    claimed: Option<u64>,
}

#[derive(Debug)]
enum Stream {
    Plain(File),
    Gzip(Box<Members>, File),
}

/// The content of a gzip file: its members one after the other. Zeros after the last one are
/// padding, which tapes and archives leave, and which gzip(1) passes over too. Anything else there
/// is an error, as the file is not what it seems to be.
#[derive(Debug)]
struct Members(Option<GzDecoder<BufReader<File>>>);

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let filled = member.read(buffer)?;
            if filled > 0 || buffer.is_empty() {
                return Ok(filled);
            }
            self.0 =
                self.0.take().map(GzDecoder::into_inner).map(next_member).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// The member that follows; none at the end of the file.
fn next_member(mut file: BufReader<File>) -> io::Result<Option<GzDecoder<BufReader<File>>>> {
    let mut padded = false;
    loop {
        let bytes = file.fill_buf()?;
        match bytes.iter().position(|&byte| byte != 0) {
            None if bytes.is_empty() => return Ok(None),
            None => {
                let zeros = bytes.len();
                file.consume(zeros);
                padded = true;
            }
            Some(0) if !padded && bytes[0] == GZIP_MAGIC[0] => {
                return Ok(Some(GzDecoder::new(file)));
            }
            Some(_) => {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "after its end follow other bytes",
                ));
            }
        }
    }
}

impl ByteSource {
    /// Opens `path` and looks at its first bytes.
    pub fn open(path: &Path) -> Result<Self, StackingError> {
        let fail = |action| move |error| StackingError::new(path, FileProblem::io(action)(error));
        let mut file = File::open(path).map_err(fail("open"))?;
        let file_bytes = file.metadata().map_err(fail("open"))?.len();

        let mut magic = Vec::with_capacity(2);
        file.by_ref().take(2).read_to_end(&mut magic).map_err(fail("read"))?;
        file.rewind().map_err(fail("read"))?;

        let stream = if magic == GZIP_MAGIC && file_bytes > GZIP_BYTES {
            let end = file.try_clone().map_err(fail("open"))?;
            let file = BufReader::with_capacity(READ_BYTES, file);
            Stream::Gzip(Box::new(Members(Some(GzDecoder::new(file)))), end)
        } else {
            Stream::Plain(file)
        };
        Ok(Self { path: path.to_owned(), stream, file_bytes, claimed: None })
    }

    /// How many bytes the content has, as the file says: of gzip modulo 2^32. The end of a gzip
    /// file is read for it, which is a request of its own; readers of headers do without.
    fn claimed_bytes(&mut self) -> Result<u64, StackingError> {
        let (None, Stream::Gzip(_, file)) = (self.claimed, &self.stream) else {
            return Ok(self.claimed.unwrap_or(self.file_bytes));
        };
        // RFC 1952: the last four bytes, ISIZE, are the size of the content modulo 2^32.
        let mut isize_field = [0; 4];
        file.read_exact_at(&mut isize_field, self.file_bytes - 4)
            .map_err(|error| self.error(FileProblem::io("read")(error)))?;
        let claimed = u32::from_le_bytes(isize_field).into();
        self.claimed = Some(claimed);
        Ok(claimed)
    }

    /// The file's name, as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `problem`, with this file's name.
    pub fn error(&self, problem: FileProblem) -> StackingError {
        StackingError::new(&self.path, problem)
    }

    /// Fills `buffer` with the next bytes. `missing` names them in the error if the file ends
    /// before.
    pub fn read(&mut self, buffer: &mut [u8], missing: &'static str) -> Result<(), StackingError> {
        match self.read_up_to(buffer, missing)? {
            filled if filled == buffer.len() => Ok(()),
            _ => Err(self.error(FileProblem::Truncated { missing })),
        }
    }

    /// The next `count` bytes. Memory is taken as they come, since the header of a damaged file may
    /// name any number.
    pub fn take(&mut self, count: usize, missing: &'static str) -> Result<Vec<u8>, StackingError> {
        let claimed = usize::try_from(self.claimed_bytes()?).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(count.min(claimed));
        while bytes.len() < count {
            let begun = bytes.len();
            bytes.resize(begun + (count - begun).min(begun.max(READ_BYTES)), 0);
            self.read(&mut bytes[begun..], missing)?;
        }
        Ok(bytes)
    }

    /// Fills `buffer` with the next bytes, as far as there are any; how many. `missing` names them
    /// in the error if gzip data end too early.
    pub fn read_up_to(
        &mut self,
        buffer: &mut [u8],
        missing: &'static str,
    ) -> Result<usize, StackingError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let done = match &mut self.stream {
                Stream::Plain(file) => file.read(&mut buffer[filled..]),
                Stream::Gzip(inflate, _) => inflate.read(&mut buffer[filled..]),
            };
            match done {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(error, missing)),
            }
        }
        Ok(filled)
    }

    /// Passes over the next `bytes` bytes.
    pub fn skip(&mut self, bytes: u64, missing: &'static str) -> Result<(), StackingError> {
        if let Stream::Plain(file) = &mut self.stream {
            // Seeking past the end is no error; the next read, or `check_whole`, reports the
            // truncated file.
            return match file.seek_relative(i64::try_from(bytes).unwrap_or(i64::MAX)) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.read_error(error, missing)),
            };
        }
        let mut scratch = [0; SKIP_BYTES];
        let mut left = bytes;
        while left > 0 {
            let step = left.min(SKIP_BYTES as u64);
            self.read(&mut scratch[..step as usize], missing)?;
            left -= step;
        }
        Ok(())
    }

    /// Fails if the content ends before byte `end`. It has been read up to byte `position`.
    /// `padded_end` is the length of a file that contains nothing else.
    ///
    /// For a plain file, its length decides. For a gzip file, the trailer decides if it names
    /// exactly `padded_end`; the rest is then not inflated. With any other trailer (truncated,
    /// several members, further FITS extensions), or with `verify`, the rest is inflated, and the
    /// checksum of gzip decides.
    pub fn check_whole(
        &mut self,
        position: u64,
        end: u64,
        padded_end: u64,
        verify: bool,
        missing: &'static str,
    ) -> Result<(), StackingError> {
        let claimed = self.claimed_bytes()?;
        match &mut self.stream {
            Stream::Plain(_) if claimed >= end => Ok(()),
            Stream::Plain(_) => Err(self.error(FileProblem::Truncated { missing })),
            Stream::Gzip(..) if !verify && claimed == padded_end & 0xffff_ffff => Ok(()),
            Stream::Gzip(inflate, _) => match io::copy(inflate, &mut io::sink()) {
                Ok(rest) if position + rest >= end => Ok(()),
                Ok(_) => Err(self.error(FileProblem::Truncated { missing })),
                Err(error) => Err(self.read_error(error, missing)),
            },
        }
    }

    fn read_error(&self, error: io::Error, missing: &'static str) -> StackingError {
        self.error(match error.kind() {
            ErrorKind::UnexpectedEof => FileProblem::Truncated { missing },
            ErrorKind::InvalidInput | ErrorKind::InvalidData => FileProblem::Gzip(error),
            _ => FileProblem::Io { action: "read", error },
        })
    }
}
