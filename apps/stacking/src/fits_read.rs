//! Reading the primary image of a FITS file: the whole header, and only the rows of pixels that are needed.
//!
//! Follows the FITS standard 4.0: blocks of 2880 bytes, cards of 80, big-endian pixels, and
//! `physical = BZERO + BSCALE × stored` (§4.4.2.5). The header is parsed by `fitsrs`.

use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

use fitsrs::hdu::header::extension::image::Image;
use fitsrs::hdu::header::{Bitpix, Header};
use fitsrs::{Fits, HDU};

use crate::error::{FileProblem, StackingError};
use crate::source::ByteSource;

/// FITS files come in blocks of this many bytes.
pub const BLOCK_BYTES: usize = 2880;

/// A header card: keyword, value, comment.
pub const CARD_BYTES: usize = 80;

/// Headers above this many blocks (2.9 MB, 36,000 cards) are refused, so that a damaged file cannot fill the memory.
const MAX_HEADER_BLOCKS: usize = 1000;

/// A FITS file whose header has been read, but not its image.
#[derive(Debug)]
pub struct FitsFile {
    source: ByteSource,
    header: Header<Image>,
    header_bytes: u64,
    width: usize,
    height: usize,
    format: PixelFormat,
}

/// How stored numbers become physical ones.
#[derive(Clone, Copy, Debug)]
struct PixelFormat {
    bitpix: Bitpix,
    bscale: f64,
    bzero: f64,
    blank: Option<i64>,
}

impl FitsFile {
    /// Opens `path` and reads its header.
    pub fn open(path: &Path) -> Result<Self, StackingError> {
        Self::read_header(ByteSource::open(path)?)
    }

    /// Reads the header of a freshly opened source.
    pub fn read_header(mut source: ByteSource) -> Result<Self, StackingError> {
        let bytes = header_blocks(&mut source)?;
        let header_bytes = bytes.len() as u64;
        let header = match Fits::from_reader(Cursor::new(bytes)).next() {
            Some(Ok(HDU::Primary(hdu))) => hdu.get_header().clone(),
            Some(Err(error)) => return Err(source.error(FileProblem::Header(error.to_string()))),
            _ => return Err(source.error(FileProblem::NotFits)),
        };
        let image = header.get_xtension();
        let &[width, height] = image.get_naxis() else {
            let trouble = format!("{}, but an image has 2 axes", image.get_naxis().len());
            return Err(source.error(FileProblem::Keyword { keyword: "NAXIS", trouble }));
        };
        let bitpix = image.get_bitpix();
        let total = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(bitpix.byte_size() as u64));
        if total.is_none_or(|bytes| bytes == 0 || bytes > isize::MAX as u64) {
            let trouble = format!("an image of {width} x {height} pixels");
            return Err(source.error(FileProblem::Keyword { keyword: "NAXIS1", trouble }));
        }
        let mut file = Self {
            source,
            header,
            header_bytes,
            width: width as usize,
            height: height as usize,
            format: PixelFormat { bitpix, bscale: 1.0, bzero: 0.0, blank: None },
        };
        file.format.bscale = file.optional_number("BSCALE")?.unwrap_or(1.0);
        file.format.bzero = file.optional_number("BZERO")?.unwrap_or(0.0);
        file.format.blank = file.optional_number("BLANK")?.map(|blank| blank as i64);
        Ok(file)
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// `problem`, with this file's name.
    pub fn error(&self, problem: FileProblem) -> StackingError {
        self.source.error(problem)
    }

    /// The header as `fitsrs` parsed it.
    pub fn header(&self) -> &Header<Image> {
        &self.header
    }

    /// Pixels in a row (NAXIS1).
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows (NAXIS2).
    pub fn height(&self) -> usize {
        self.height
    }

    /// The finite number of a keyword that may be absent.
    pub fn optional_number(&self, keyword: &'static str) -> Result<Option<f64>, StackingError> {
        if self.header.get(keyword).is_none() {
            return Ok(None);
        }
        match self.header.get_parsed::<f64>(keyword) {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => {
                let trouble = "its value is no number".to_owned();
                Err(self.error(FileProblem::Keyword { keyword, trouble }))
            }
        }
    }

    /// The finite number of a keyword that must be there, needed for `purpose`.
    pub fn number(&self, keyword: &'static str, purpose: &'static str) -> Result<f64, StackingError> {
        self.optional_number(keyword)?.ok_or_else(|| self.error(FileProblem::Missing { keyword, purpose }))
    }

    /// The text of a keyword, if it is there and is text.
    pub fn text(&self, keyword: &'static str) -> Option<String> {
        self.header.get_parsed::<String>(keyword).ok()
    }

    /// Reads the rows `wanted`, and checks that the image is complete as far as that is cheap (see
    /// [`ByteSource::check_whole`]). With `verify`, reads to the last byte and checks the checksum of gzip.
    pub fn rows(mut self, wanted: Range<usize>, verify: bool) -> Result<Rows, StackingError> {
        assert!(wanted.start <= wanted.end && wanted.end <= self.height, "rows {wanted:?} of {}", self.height);
        const MISSING: &str = "the last row of its image";
        let row_bytes = self.width * self.format.bitpix.byte_size();
        let end = self.header_bytes + (self.height * row_bytes) as u64;

        let mut bytes = vec![0; wanted.len() * row_bytes];
        if !wanted.is_empty() {
            self.source.skip((wanted.start * row_bytes) as u64, MISSING)?;
            self.source.read(&mut bytes, MISSING)?;
        }
        let position = if wanted.is_empty() { 0 } else { wanted.end * row_bytes } as u64 + self.header_bytes;
        let padded_end = end.next_multiple_of(BLOCK_BYTES as u64);
        self.source.check_whole(position, end, padded_end, verify, MISSING)?;
        Ok(Rows { first: wanted.start, width: self.width, format: self.format, bytes })
    }
}

/// Reads blocks up to and including the one with the END card.
fn header_blocks(source: &mut ByteSource) -> Result<Vec<u8>, StackingError> {
    let mut header = Vec::new();
    let mut block = [0; BLOCK_BYTES];
    for _ in 0..MAX_HEADER_BLOCKS {
        let missing = if header.is_empty() { "one block of 2880 bytes" } else { "the END of its header" };
        source.read(&mut block, missing)?;
        if header.is_empty() && !block.starts_with(b"SIMPLE  =") {
            return Err(source.error(FileProblem::NotFits));
        }
        header.extend_from_slice(&block);
        if block.chunks_exact(CARD_BYTES).any(|card| card.starts_with(b"END     ")) {
            return Ok(header);
        }
    }
    Err(source.error(FileProblem::Header(format!("no END card in {MAX_HEADER_BLOCKS} blocks"))))
}

/// Some neighbouring rows of an image, as stored.
#[derive(Debug)]
pub struct Rows {
    first: usize,
    width: usize,
    format: PixelFormat,
    bytes: Vec<u8>,
}

/// A rectangle of pixels, as stored.
#[derive(Debug)]
pub struct Tile {
    format: PixelFormat,
    bytes: Vec<u8>,
}

impl Rows {
    /// The paper's *getTile*: the rectangle whose first pixel is `(x, y)` of the image.
    ///
    /// # Panics
    /// If the rectangle is not within the rows.
    pub fn tile(&self, x: usize, y: usize, width: usize, height: usize) -> Tile {
        assert!(x + width <= self.width, "a tile beyond the end of its row");
        let pixel_bytes = self.format.bitpix.byte_size();
        let row_bytes = self.width * pixel_bytes;
        let mut bytes = Vec::with_capacity(width * height * pixel_bytes);
        for row in y - self.first..y - self.first + height {
            let start = row * row_bytes + x * pixel_bytes;
            bytes.extend_from_slice(&self.bytes[start..start + width * pixel_bytes]);
        }
        Tile { format: self.format, bytes }
    }

    /// All of the rows as one tile.
    pub fn into_tile(self) -> Tile {
        Tile { format: self.format, bytes: self.bytes }
    }
}

impl Tile {
    /// The paper's *convertArray*: stored pixels to physical ones, row after row. Pixels marked BLANK become NaN.
    pub fn convert(&self) -> Vec<f64> {
        let PixelFormat { bscale, bzero, blank, bitpix } = self.format;
        let integer = |stored: i64| match blank {
            Some(blank) if blank == stored => f64::NAN,
            _ => bzero + bscale * stored as f64,
        };
        let real = |stored: f64| bzero + bscale * stored;
        match bitpix {
            Bitpix::U8 => self.pixels(|[byte]: [u8; 1]| integer(byte.into())),
            Bitpix::I16 => self.pixels(|bytes| integer(i16::from_be_bytes(bytes).into())),
            Bitpix::I32 => self.pixels(|bytes| integer(i32::from_be_bytes(bytes).into())),
            Bitpix::I64 => self.pixels(|bytes| integer(i64::from_be_bytes(bytes))),
            Bitpix::F32 => self.pixels(|bytes| real(f32::from_be_bytes(bytes).into())),
            Bitpix::F64 => self.pixels(|bytes| real(f64::from_be_bytes(bytes))),
        }
    }

    fn pixels<const BYTES: usize>(&self, physical: impl Fn([u8; BYTES]) -> f64) -> Vec<f64> {
        self.bytes.as_chunks::<BYTES>().0.iter().map(|&bytes| physical(bytes)).collect()
    }
}
