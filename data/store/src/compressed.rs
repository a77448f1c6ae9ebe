//! Content of compressed files: gzip, bzip2, xz and Zstandard. Files that were written one after
//! the other into one count as one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;

use bzip2::bufread::MultiBzDecoder;
pub use eyas_types::compressed::decompressed_name;
use eyas_types::units::format_bytes;
use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use thiserror::Error;

/// Bytes that are read, and bytes that are written, at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Largest window of a Zstandard file, which is in memory while the file is decompressed. That of
/// `zstd --ultra --long=27`; a larger one must be allowed to the program `zstd`, too.
const MAX_WINDOW_BYTES: u64 = 128 << 20;
/// Largest memory for an xz file. `xz -9` needs 65 MiB.
const MAX_XZ_KIB: u32 = 1 << 20;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip (RFC 1952), also in blocks (BGZF).
    Gzip,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// Why a file cannot be decompressed.
#[derive(Debug, Error)]
pub enum DecompressError {
    /// The name of the file says that it is compressed, and it is not.
    #[error("it is not compressed with gzip, bzip2, xz or zstd, although its name says so")]
    NotCompressed,
    /// The content is damaged.
    #[error("its content, compressed with {how}, is damaged: {reason}")]
    Damaged {
        /// The name of the program.
        how: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The content is larger than is allowed.
    #[error("it has more than {} when it is decompressed", format_bytes(*.0))]
    TooLarge(u64),
    /// The caller wants it no longer.
    #[error("the task was stopped")]
    Stopped,
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Read(io::Error),
    /// The content cannot be written.
    #[error("cannot write its content: {0}")]
    Write(io::Error),
}

impl Compression {
    /// How a file that begins with these bytes is compressed; `None` if it is not.
    pub fn of(beginning: &[u8]) -> Option<Self> {
        let begins = |magic: &[u8]| beginning.starts_with(magic);
        match beginning {
            _ if begins(&[0x1f, 0x8b, 8]) => Some(Compression::Gzip),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Compression::Bzip2),
            _ if begins(b"\xfd7zXZ\0") => Some(Compression::Xz),
            _ if begins(&[0x28, 0xb5, 0x2f, 0xfd]) => Some(Compression::Zstd),
            // A frame to be skipped, with which some writers begin.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The name of the program that compresses so.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        }
    }
}

/// How a file of this name is compressed; `None` if it is not.
///
/// # Errors
/// If only its name says that it is, or if it cannot be read.
pub fn compression_of(file: &File, name: &[u8]) -> Result<Option<Compression>, DecompressError> {
    let mut beginning = [0; 8];
    let read = file.read_at(&mut beginning, 0).map_err(DecompressError::Read)?;
    match Compression::of(&beginning[..read]) {
        None if decompressed_name(name).is_some() => Err(DecompressError::NotCompressed),
        found => Ok(found),
    }
}

/// Writes the content of a compressed file, of at most `max_bytes`, and returns its size.
/// `may_continue` is asked after each part of the content, and told the bytes so far.
///
/// # Errors
/// If the file is damaged, or the content larger than that; if the disk fails.
pub fn decompress(
    file: File,
    how: Compression,
    into: &mut impl Write,
    max_bytes: u64,
    mut may_continue: impl FnMut(u64) -> Result<(), DecompressError>,
) -> Result<u64, DecompressError> {
    let mut file = SourceFile { file: BufReader::with_capacity(BUFFER_BYTES, file), failed: None };
    let mut written = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut content = content_of(how, &mut file);
    let failure = loop {
        let read = match content.read(&mut buffer) {
            Ok(0) => return Ok(written),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break error,
        };
        written += read as u64;
        if written > max_bytes {
            return Err(DecompressError::TooLarge(max_bytes));
        }
        into.write_all(&buffer[..read]).map_err(DecompressError::Write)?;
        may_continue(written)?;
    };
    drop(content);
    if let Some(failed) = file.failed {
        return Err(DecompressError::Read(failed));
    }
    let reason = match failure.kind() {
        io::ErrorKind::UnexpectedEof => "it ends early".to_owned(),
        _ => failure.to_string(),
    };
    Err(DecompressError::Damaged { how: how.name(), reason })
}

fn content_of(how: Compression, file: &mut SourceFile) -> Box<dyn Read + '_> {
    match how {
        Compression::Gzip => Box::new(GzipMembers(Some(GzDecoder::new(file)))),
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(file)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(file, true, MAX_XZ_KIB)),
        Compression::Zstd => {
            let mut decoder = FrameDecoder::new();
            decoder.set_max_window_size(MAX_WINDOW_BYTES);
            Box::new(ZstdFrames { file, decoder, is_in_frame: false })
        }
    }
}

/// A file, and why it could not be read: decoders take that for damage.
struct SourceFile {
    file: BufReader<File>,
    failed: Option<io::Error>,
}

impl SourceFile {
    fn noted<T>(failed: &mut Option<io::Error>, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                *failed = Some(error);
            }
            kind.into()
        })
    }
}

impl Read for SourceFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Self::noted(&mut self.failed, self.file.read(into))
    }
}

impl BufRead for SourceFile {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Self::noted(&mut self.failed, self.file.fill_buf())
    }

    fn consume(&mut self, bytes: usize) {
        self.file.consume(bytes);
    }
}

/// The members of a gzip file. Zeros may follow the last one, as on a tape.
struct GzipMembers<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.0 else { return Ok(0) };
            let read = member.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let mut file = self.0.take().expect("it was there").into_inner();
            if is_at_end(&mut file)? {
                return Ok(0);
            }
            if !file.fill_buf()?.starts_with(&[0x1f]) {
                return Err(io::Error::other("something else follows its end"));
            }
            self.0 = Some(GzDecoder::new(file));
        }
    }
}

/// Whether nothing follows but zeros.
fn is_at_end(file: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let is_end = zeros == bytes.len();
        file.consume(zeros);
        if !is_end {
            return Ok(false);
        }
    }
}

/// The frames of a Zstandard file, without those that are to be skipped.
struct ZstdFrames<'a> {
    file: &'a mut SourceFile,
    decoder: FrameDecoder,
    /// Whether a frame has begun and not ended.
    is_in_frame: bool,
}

impl Read for ZstdFrames<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                if self.file.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.begin()?;
                continue;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut *self.file, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(damaged)?;
            }
            let read = self.decoder.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.is_in_frame = false;
            let (told, found) =
                (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if told.is_some() && told != found {
                return Err(io::Error::other("its checksum is another one"));
            }
        }
    }
}

impl ZstdFrames<'_> {
    /// Begins the next frame, or skips it.
    fn begin(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut *self.file) {
            Ok(()) => self.is_in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let skipped =
                    io::copy(&mut (&mut *self.file).take(length.into()), &mut io::sink())?;
                if skipped < length.into() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(why) => return Err(damaged(why)),
        }
        Ok(())
    }
}

/// An error of the decoder, without the errors of reading in it.
fn damaged(why: FrameDecoderError) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&why);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind().into();
        }
        cause = error.source();
    }
    io::Error::other(why.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn text() -> Vec<u8> {
        (0..60_000u32)
            .flat_map(|n| format!("{} ", n.wrapping_mul(2_654_435_761)).into_bytes())
            .collect()
    }

    /// What a program makes of some bytes; `None` if this machine does not have it.
    fn piped(words: &[&str], bytes: &[u8]) -> Option<Vec<u8>> {
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(bytes).unwrap());
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success(), "{words:?}");
            Some(done.stdout)
        })
    }

    fn content(name: &str, bytes: &[u8], most: u64) -> Result<Vec<u8>, DecompressError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let Some(how) = compression_of(&file, name.as_bytes())? else { return Ok(bytes.into()) };
        let mut into = Vec::new();
        decompress(file, how, &mut into, most, |_| Ok(()))
            .inspect(|size| assert_eq!(*size, into.len() as u64))?;
        Ok(into)
    }

    #[test]
    fn what_other_programs_compress_is_read_whole_and_in_parts_and_cut_or_changed_is_damaged() {
        let text = text();
        let programs: &[(&str, &[&str])] = &[
            ("x.gz", &["gzip", "-c"]),
            ("x.bz2", &["bzip2", "-c"]),
            ("x.xz", &["xz", "-c"]),
            ("x.xz", &["xz", "-c", "--check=sha256", "--block-size=100000"]),
            ("x.zst", &["zstd", "-c"]),
            ("x.zst", &["zstd", "-c", "-19", "--long=27"]),
        ];
        for (name, words) in programs {
            let Some(packed) = piped(words, &text) else {
                eprintln!("skipped: no {}", words[0]);
                continue;
            };
            assert!(content(name, &packed, 1 << 30).unwrap() == text, "{words:?}");
            let (one, other) = text.split_at(text.len() / 3);
            let parts = [one, other, b""].map(|part| piped(words, part).unwrap()).concat();
            assert!(content(name, &parts, 1 << 30).unwrap() == text, "{words:?}, in parts");
            let cut = content(name, &packed[..packed.len() - 7], 1 << 30).unwrap_err();
            assert!(matches!(cut, DecompressError::Damaged { .. }), "{words:?}: {cut}");
            let mut changed = packed.clone();
            let middle = packed.len() / 2;
            changed[middle..middle + 9].fill(0x5a);
            let changed = content(name, &changed, 1 << 30).unwrap_err();
            assert!(matches!(changed, DecompressError::Damaged { .. }), "{words:?}: {changed}");
            let more = [&packed[..], b"and more"].concat();
            let more = content(name, &more, 1 << 30).unwrap_err();
            assert!(matches!(more, DecompressError::Damaged { .. }), "{words:?}: {more}");
            let most = text.len() as u64 - 1;
            let large = content(name, &packed, most).unwrap_err();
            assert!(matches!(large, DecompressError::TooLarge(bytes) if bytes == most));
        }
    }

    #[test]
    fn a_plain_file_is_itself_unless_its_name_says_that_it_is_compressed() {
        for bytes in [&b""[..], b"x", b"\x1f\x8b", b"BZh", b"plain text"] {
            assert_eq!(content("a.fits", bytes, 1 << 20).unwrap(), bytes);
            let why = content("a.fits.GZ", bytes, 1 << 20).unwrap_err();
            assert!(matches!(why, DecompressError::NotCompressed), "{why}");
        }
    }

    #[test]
    fn zeros_may_follow_gzip_and_frames_of_zstd_may_be_skipped() {
        let Some(gzip) = piped(&["gzip", "-c"], b"text") else { return };
        assert_eq!(content("x", &[&gzip[..], &[0; 5000]].concat(), 9).unwrap(), b"text");
        if let Some(zstd) = piped(&["zstd", "-c"], b"text") {
            let skipped = b"\x53\x2a\x4d\x18\x03\0\0\0abc";
            let all = [&skipped[..], &zstd, skipped, &zstd].concat();
            assert_eq!(content("x", &all, 9).unwrap(), b"texttext");
            let cut = content("x", &all[..all.len() - zstd.len() - 1], 9).unwrap_err();
            assert!(cut.to_string().ends_with("it ends early"), "{cut}");
        }
    }
}
