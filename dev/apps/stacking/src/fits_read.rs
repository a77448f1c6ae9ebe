//! Reading an image of a FITS file: its whole header, and only the rows of pixels that are
//! needed.
//!
//! Follows the FITS standard 4.0: blocks of 2880 bytes, cards of 80, big-endian pixels, and
//! `physical = BZERO + BSCALE × stored` (§4.4.2.5). Which image of the file is read, an
//! [`HduChoice`] says: the first one, if nothing is said. Parts before it are passed over.

use std::ops::Range;
use std::path::Path;

use crate::error::{FileProblem, StackingError};
use crate::hdu::HduChoice;
use crate::header::{CARD_BYTES, Header};
use crate::source::ByteSource;
use crate::tiles::TileTable;

/// FITS files come in blocks of this many bytes.
pub const BLOCK_BYTES: usize = 2880;

/// Headers above this many blocks (2.9 MB, 36,000 cards) are refused, so that a damaged file cannot
/// fill the memory.
const MAX_HEADER_BLOCKS: usize = 1000;

/// Bytes of data after a header. One that says more is damaged.
const MAX_DATA_BYTES: u64 = 1 << 60;

/// Parts (header and data units) of a file that are looked at.
const MAX_HDUS: usize = 10_000;

/// Most axes that the standard allows (§4.4.1.1).
const MAX_AXES: i64 = 999;

/// How files of compressors begin, and what to do with them. gzip is unpacked.
const COMPRESSED: [(&[u8], &str); 6] = [
    (b"BZh", ": unpack it with bunzip2"),
    (b"\xfd7zXZ", ": unpack it with unxz"),
    (b"\x28\xb5\x2f\xfd", ": unpack it with unzstd"),
    (b"PK\x03\x04", ": unpack it with unzip"),
    (b"\x1f\x9d", ": unpack it with uncompress"),
    (b"\x1f\x8b", ": unpack it once more with gunzip"),
];

/// A FITS file whose header has been read, but not its image.
#[derive(Debug)]
pub struct FitsFile {
    source: ByteSource,
    image: ImageHeader,
}

/// The header of an image, and what it says of the pixels.
#[derive(Debug)]
pub struct ImageHeader {
    header: Header,
    /// The header of the primary part, if the image is in an extension.
    primary: Option<Header>,
    hdu: usize,
    /// Where the data begin.
    start: u64,
    width: usize,
    height: usize,
    storage: PixelStorage,
}

/// How the pixels are stored.
#[derive(Clone, Debug)]
enum PixelStorage {
    /// One after the other.
    Plain(PixelFormat),
    /// In a table of compressed tiles.
    Tiles(Box<TileTable>),
}

/// What a stored number is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bitpix {
    U8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Bitpix {
    fn of(header: &Header) -> Result<Self, FileProblem> {
        Ok(match header.integer("BITPIX")? {
            Some(8) => Bitpix::U8,
            Some(16) => Bitpix::I16,
            Some(32) => Bitpix::I32,
            Some(64) => Bitpix::I64,
            Some(-32) => Bitpix::F32,
            Some(-64) => Bitpix::F64,
            Some(other) => return Err(FileProblem::Header(format!("BITPIX is {other}"))),
            None => return Err(FileProblem::Header("BITPIX is missing".to_owned())),
        })
    }

    fn byte_size(self) -> usize {
        match self {
            Bitpix::U8 => 1,
            Bitpix::I16 => 2,
            Bitpix::I32 | Bitpix::F32 => 4,
            Bitpix::I64 | Bitpix::F64 => 8,
        }
    }
}

/// How stored numbers become physical ones.
#[derive(Clone, Copy, Debug)]
struct PixelFormat {
    bitpix: Bitpix,
    bscale: f64,
    bzero: f64,
    blank: Option<i64>,
}

impl PixelFormat {
    /// Physical numbers.
    const DOUBLES: Self = Self { bitpix: Bitpix::F64, bscale: 1.0, bzero: 0.0, blank: None };

    fn of(header: &Header) -> Result<Self, FileProblem> {
        let bitpix = Bitpix::of(header)?;
        // BLANK has a meaning for integers only.
        let whole = !matches!(bitpix, Bitpix::F32 | Bitpix::F64);
        Ok(Self {
            bitpix,
            bscale: header.number("BSCALE")?.unwrap_or(1.0),
            bzero: header.number("BZERO")?.unwrap_or(0.0),
            blank: if whole { header.integer("BLANK")? } else { None },
        })
    }
}

/// The lengths of the axes.
fn axes(header: &Header) -> Result<Vec<u64>, FileProblem> {
    let count = header.integer("NAXIS")?.filter(|count| (0..=MAX_AXES).contains(count));
    let count = count.ok_or_else(|| {
        FileProblem::Header("NAXIS is missing, or is no number of axes".to_owned())
    })?;
    let axis = |number| {
        let keyword = format!("NAXIS{number}");
        let length = header.integer(&keyword)?.and_then(|length| u64::try_from(length).ok());
        length.ok_or_else(|| FileProblem::Header(format!("{keyword} is missing, or is no length")))
    };
    (1..=count).map(axis).collect()
}

/// Bytes between a header and the next one: the data, filled up to a block (§4.4.1.1); none if
/// there is no such number.
fn data_bytes(header: &Header, axes: &[u64]) -> Result<Option<u64>, FileProblem> {
    let count = |number: Option<i64>, default| {
        number.map_or(Some(default), |number| u64::try_from(number).ok())
    };
    let groups = count(header.integer("GCOUNT")?, 1);
    let parameters = count(header.integer("PCOUNT")?, 0);
    let item = Bitpix::of(header)?.byte_size() as u64;
    let bytes = || {
        let pixels = axes
            .iter()
            .try_fold(u64::from(!axes.is_empty()), |pixels, &axis| pixels.checked_mul(axis))?;
        let bytes = pixels.checked_add(parameters?)?.checked_mul(groups?)?.checked_mul(item)?;
        bytes.checked_next_multiple_of(BLOCK_BYTES as u64).filter(|bytes| *bytes < MAX_DATA_BYTES)
    };
    Ok(bytes())
}

impl ImageHeader {
    fn new(header: Header, hdu: usize, start: u64) -> Result<Self, FileProblem> {
        if is_tiled(&header)? {
            let table = TileTable::new(&header)?;
            let (width, height) = (table.width(), table.height());
            let storage = PixelStorage::Tiles(Box::new(table));
            return Ok(Self { header, primary: None, hdu, start, width, height, storage });
        }
        let axes = axes(&header)?;
        let &[width, height] = axes.as_slice() else {
            let trouble = format!("{}, but an image has 2 axes", axes.len());
            return Err(FileProblem::Keyword { keyword: "NAXIS".to_owned(), trouble });
        };
        let format = PixelFormat::of(&header)?;
        let total = width
            .checked_mul(height)
            .and_then(|all| all.checked_mul(format.bitpix.byte_size() as u64));
        if total.is_none_or(|bytes| bytes == 0 || bytes > isize::MAX as u64) {
            let trouble = format!("an image of {width} x {height} pixels");
            return Err(FileProblem::Keyword { keyword: "NAXIS1".to_owned(), trouble });
        }
        let (width, height) = (width as usize, height as usize);
        let storage = PixelStorage::Plain(format);
        Ok(Self { header, primary: None, hdu, start, width, height, storage })
    }

    /// The header of the image.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The number of the image's header and data unit; 0 is the primary one.
    pub fn hdu(&self) -> usize {
        self.hdu
    }

    /// Pixels in a row (NAXIS1, or ZNAXIS1 of a compressed image).
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows (NAXIS2).
    pub fn height(&self) -> usize {
        self.height
    }

    /// The finite number of a keyword that may be absent. An extension with `INHERIT = T` has the
    /// keywords of the primary header, too.
    pub fn optional_number(&self, keyword: &str) -> Result<Option<f64>, FileProblem> {
        match (self.header.number(keyword)?, &self.primary) {
            (None, Some(primary)) if self.header.is_true("INHERIT") => primary.number(keyword),
            (own, _) => Ok(own),
        }
    }

    /// The band: the text of `keyword` in the image's header, or else in the primary header.
    pub fn band(&self, keyword: &str) -> Result<Option<String>, FileProblem> {
        let own = self.header.text(keyword)?;
        let band = match &self.primary {
            Some(primary) if own.is_none() => primary.text(keyword)?,
            _ => own,
        };
        Ok(band.map(str::trim).filter(|band| !band.is_empty()).map(str::to_owned))
    }
}

/// The headers of all images of `path` that are chosen.
pub fn image_headers(path: &Path, choice: &HduChoice) -> Result<Vec<ImageHeader>, StackingError> {
    let mut source = ByteSource::open(path)?;
    let mut walk = HduWalk::default();
    let mut found = Vec::new();
    while let Some(image) = walk.next_image(&mut source, choice)? {
        let (next, is_one) = (walk.data_end(&image), choice.is_one());
        found.push(image);
        if is_one {
            break;
        }
        let next = next.map_err(|problem| source.error(problem))?;
        source.skip(next, "the end of an image")?;
    }
    if found.is_empty() { Err(walk.nothing(&source, choice)) } else { Ok(found) }
}

impl FitsFile {
    /// Opens `path` and reads the header of its first image.
    pub fn open(path: &Path) -> Result<Self, StackingError> {
        Self::read_header(ByteSource::open(path)?, &HduChoice::First)
    }

    /// Reads the headers of a freshly opened source, up to that of the first chosen image.
    pub fn read_header(mut source: ByteSource, choice: &HduChoice) -> Result<Self, StackingError> {
        let mut walk = HduWalk::default();
        match walk.next_image(&mut source, choice)? {
            Some(image) => Ok(Self { source, image }),
            None => Err(walk.nothing(&source, choice)),
        }
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// `problem`, with this file's name.
    pub fn error(&self, problem: FileProblem) -> StackingError {
        self.source.error(problem)
    }

    /// The header of the image, and what it says.
    pub fn image(&self) -> &ImageHeader {
        &self.image
    }

    /// Pixels in a row (NAXIS1).
    pub fn width(&self) -> usize {
        self.image.width
    }

    /// Rows (NAXIS2).
    pub fn height(&self) -> usize {
        self.image.height
    }

    /// The finite number of a keyword that may be absent.
    pub fn optional_number(&self, keyword: &str) -> Result<Option<f64>, StackingError> {
        self.image.optional_number(keyword).map_err(|problem| self.error(problem))
    }

    /// The finite number of a keyword that must be there, needed for `purpose`.
    pub fn number(&self, keyword: &str, purpose: &'static str) -> Result<f64, StackingError> {
        let missing = || self.error(FileProblem::Missing { keyword: keyword.to_owned(), purpose });
        self.optional_number(keyword)?.ok_or_else(missing)
    }

    /// The text of a keyword that may be absent.
    pub fn text(&self, keyword: &str) -> Result<Option<&str>, StackingError> {
        self.image.header.text(keyword).map_err(|problem| self.error(problem))
    }

    /// Reads the rows `wanted`, and checks that the image is complete as far as that is cheap (see
    /// [`ByteSource::check_whole`]). With `verify`, reads to the last byte and checks the checksum
    /// of gzip.
    pub fn rows(mut self, wanted: Range<usize>, verify: bool) -> Result<Rows, StackingError> {
        let ImageHeader { start, width, height, storage, .. } = self.image;
        assert!(wanted.start <= wanted.end && wanted.end <= height, "rows {wanted:?} of {height}");
        const MISSING: &str = "the last row of its image";
        let format = match storage {
            PixelStorage::Plain(format) => format,
            PixelStorage::Tiles(table) => {
                let (bytes, passed) = table.read(&mut self.source, wanted.clone())?;
                let end = start + table.data_bytes();
                let padded_end = end.next_multiple_of(BLOCK_BYTES as u64);
                let position = start + passed;
                self.source.check_whole(position, end, padded_end, verify, TileTable::MISSING)?;
                return Ok(Rows {
                    first: wanted.start,
                    width,
                    format: PixelFormat::DOUBLES,
                    bytes,
                });
            }
        };
        let row_bytes = width * format.bitpix.byte_size();
        let end = start + (height * row_bytes) as u64;

        let mut bytes = Vec::new();
        if !wanted.is_empty() {
            self.source.skip((wanted.start * row_bytes) as u64, MISSING)?;
            bytes = self.source.take(wanted.len() * row_bytes, MISSING)?;
        }
        let position = if wanted.is_empty() { 0 } else { wanted.end * row_bytes } as u64 + start;
        let padded_end = end.next_multiple_of(BLOCK_BYTES as u64);
        self.source.check_whole(position, end, padded_end, verify, MISSING)?;
        Ok(Rows { first: wanted.start, width, format, bytes })
    }
}

/// A walk over the header and data units of a file.
#[derive(Debug, Default)]
struct HduWalk {
    /// The number of the next unit.
    next: usize,
    position: u64,
    primary: Option<Header>,
    /// Bytes of data of the image that was found last.
    data: Option<u64>,
}

impl HduWalk {
    /// The next chosen image, with the source at its first pixel; none at the end of the file.
    fn next_image(
        &mut self,
        source: &mut ByteSource,
        choice: &HduChoice,
    ) -> Result<Option<ImageHeader>, StackingError> {
        if let Some(data) = self.data.take() {
            self.position += data;
        }
        while let Some(bytes) = header_blocks(source, self.next == 0)? {
            if self.next == MAX_HDUS {
                let trouble = format!("it has more than {MAX_HDUS} parts");
                return Err(source.error(FileProblem::Header(trouble)));
            }
            self.position += bytes.len() as u64;
            let hdu = self.next;
            self.next += 1;
            let header = Header::parse(&bytes);
            let (image_axes, data) = kind(&header).map_err(|problem| source.error(problem))?;
            let is_chosen = choice
                .chooses(hdu, &header, image_axes)
                .map_err(|problem| source.error(problem))?;
            if is_chosen {
                let mut image = ImageHeader::new(header, hdu, self.position)
                    .map_err(|problem| source.error(problem))?;
                image.primary = self.primary.clone();
                self.data = data;
                return Ok(Some(image));
            }
            let data = data.ok_or_else(|| {
                source.error(FileProblem::Header("the size of a table makes no sense".to_owned()))
            })?;
            source.skip(data, "the end of a table")?;
            self.position += data;
            if hdu == 0 {
                self.primary = Some(header);
            }
        }
        Ok(None)
    }

    /// Bytes of data of an image that has been found.
    fn data_end(&mut self, image: &ImageHeader) -> Result<u64, FileProblem> {
        if image.hdu == 0 {
            self.primary = Some(image.header.clone());
        }
        self.data.ok_or_else(|| FileProblem::Header("the size of an image makes no sense".into()))
    }

    /// Why there is no image.
    fn nothing(&self, source: &ByteSource, choice: &HduChoice) -> StackingError {
        source.error(match choice {
            HduChoice::First | HduChoice::All => FileProblem::NoImage,
            HduChoice::Number(_) | HduChoice::Name(_) => {
                FileProblem::NoHdu { wanted: choice.to_string(), parts: self.next }
            }
        })
    }
}

/// Whether a header is of a table with a compressed image.
fn is_tiled(header: &Header) -> Result<bool, FileProblem> {
    Ok(header.is_true("ZIMAGE") && header.text("XTENSION")? == Some("BINTABLE"))
}

/// The number of axes if a header is of an image, and the bytes of data that follow, if there is
/// such a number.
fn kind(header: &Header) -> Result<(Option<usize>, Option<u64>), FileProblem> {
    let axes = axes(header)?;
    let extension = header.text("XTENSION")?;
    // The pixels of an image are read by its axes; other keywords only say where the next part is.
    let data = data_bytes(header, &axes);
    if is_tiled(header)? {
        // A compressed file without an image has a table without axes.
        let count = header.integer("ZNAXIS")?.and_then(|count| usize::try_from(count).ok());
        return Ok((count.filter(|&count| count > 0), data?));
    }
    let is_image = !axes.is_empty() && matches!(extension, None | Some("IMAGE" | "IUEIMAGE"));
    let count = is_image.then_some(axes.len());
    Ok((count, if is_image { data.ok().flatten() } else { data? }))
}

/// Reads blocks up to and including the one with the END card; none at the end of the file. The
/// header is the file's `first`, or that of an extension.
fn header_blocks(source: &mut ByteSource, first: bool) -> Result<Option<Vec<u8>>, StackingError> {
    const ONE_BLOCK: &str = "one block of 2880 bytes";
    let mut header = vec![0; BLOCK_BYTES];
    let filled = source.read_up_to(&mut header, ONE_BLOCK)?;
    let begins = if first { "SIMPLE  =" } else { "XTENSION=" };
    if filled == 0 && !first {
        return Ok(None);
    }
    if !header[..filled].starts_with(&begins.as_bytes()[..filled.min(begins.len())]) {
        let packed = COMPRESSED.iter().find(|(magic, _)| first && header.starts_with(magic));
        let problem = if first {
            FileProblem::NotFits(packed.map_or("", |(_, advice)| advice))
        } else {
            FileProblem::Header(
                "bytes that are no FITS extension follow its first part, which has no image"
                    .to_owned(),
            )
        };
        return Err(source.error(problem));
    }
    if filled < BLOCK_BYTES {
        return Err(source.error(FileProblem::Truncated { missing: ONE_BLOCK }));
    }
    let mut block = 0;
    while !header[block..].chunks_exact(CARD_BYTES).any(|card| card.starts_with(b"END     ")) {
        block = header.len();
        if block == MAX_HEADER_BLOCKS * BLOCK_BYTES {
            let trouble = format!("no END card in {MAX_HEADER_BLOCKS} blocks");
            return Err(source.error(FileProblem::Header(trouble)));
        }
        header.resize(block + BLOCK_BYTES, 0);
        source.read(&mut header[block..], "the END of its header")?;
    }
    Ok(Some(header))
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

/// Rows as a table of two dimensions: the bytes of each row.
#[derive(Debug)]
pub struct RowTable<'a> {
    first: usize,
    format: PixelFormat,
    rows: Vec<&'a [u8]>,
}

impl RowTable<'_> {
    /// The paper's *getTile*: the rectangle whose first pixel is `(x, y)` of the image.
    ///
    /// # Panics
    /// If the rectangle is not within the rows.
    pub fn tile(&self, x: usize, y: usize, width: usize, height: usize) -> Tile {
        let pixel_bytes = self.format.bitpix.byte_size();
        let mut bytes = Vec::with_capacity(width * height * pixel_bytes);
        for row in &self.rows[y - self.first..y - self.first + height] {
            bytes.extend_from_slice(&row[x * pixel_bytes..(x + width) * pixel_bytes]);
        }
        Tile { format: self.format, bytes }
    }
}

impl Rows {
    /// The paper's *curl*: pixels, which come one after the other, as rows. The paper copies them;
    /// here a row is the place of its bytes.
    pub fn curl(&self) -> RowTable<'_> {
        let rows = self.bytes.chunks_exact(self.width * self.format.bitpix.byte_size());
        RowTable { first: self.first, format: self.format, rows: rows.collect() }
    }

    /// All of the rows as one tile.
    pub fn into_tile(self) -> Tile {
        Tile { format: self.format, bytes: self.bytes }
    }
}

impl Tile {
    /// The paper's *convertArray*: stored pixels to physical ones, row after row. Pixels marked
    /// BLANK become NaN.
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
