//! Images that are compressed tile by tile, in a table (FITS standard 4.0 §10): what `fpack` and
//! astropy write.
//!
//! A row of the table is one tile. Its columns say where the compressed pixels are in the heap
//! after the table, and how whole numbers become the floating-point numbers that they stand for.
//! Only the tiles with the wanted rows are read, in the order in which they stand in the file. The
//! right pixels are those of cfitsio: a test compares with files that it has written.

mod bits;
mod columns;
mod dither;
mod hcompress;
mod plio;
mod rice;

use std::io::Read;
use std::ops::Range;

use flate2::read::GzDecoder;

use crate::error::{FileProblem, StackingError};
use crate::header::Header;
use crate::source::ByteSource;
use columns::{ColumnPlace, TableColumns};
use dither::Quantized;

/// Pixels of a tile, and of all rows that are wanted at a time (1 GiB of them).
const MAX_TILED_PIXELS: usize = 1 << 27;

/// A compressed image, as its header says.
#[derive(Clone, Debug)]
pub struct TileTable {
    width: usize,
    height: usize,
    tile: [usize; 2],
    compression: Compression,
    numbers: Numbers,
    columns: TableColumns,
    /// Bytes of a row of the table.
    row_bytes: usize,
    /// Rows of the table.
    rows: usize,
    /// Where the heap begins and ends, after the start of the table.
    heap: u64,
    end: u64,
}

/// How the pixels of a tile are compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Compression {
    Gzip,
    /// gzip after all first bytes of the pixels, then all second ones …
    ShuffledGzip,
    Rice {
        block: usize,
        pixel_bytes: usize,
    },
    Plio,
    Hcompress {
        smooth: bool,
    },
}

/// What the stored numbers mean.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    /// ZBITPIX.
    bitpix: i64,
    bscale: f64,
    bzero: f64,
    blank: Option<i64>,
    dither: Option<dither::Dither>,
    zscale: Option<f64>,
    zzero: Option<f64>,
}

/// One tile that is wanted.
#[derive(Clone, Copy, Debug)]
struct WantedTile {
    /// Its number, from zero.
    number: usize,
    column: ColumnPlace,
    /// Where its bytes are in the heap, and how many.
    start: u64,
    bytes: u64,
}

fn trouble(text: impl Into<String>) -> FileProblem {
    FileProblem::Tiles(text.into())
}

impl TileTable {
    /// What a truncated file lacks.
    pub const MISSING: &str = "the last tile of its image";

    /// Reads the header of a table with `ZIMAGE = T`.
    pub fn new(header: &Header) -> Result<Self, FileProblem> {
        let count = |keyword: &str| -> Result<usize, FileProblem> {
            let number = header.integer(keyword)?.and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| trouble(format!("{keyword} is missing, or is no number")))
        };
        if count("ZNAXIS")? != 2 {
            let trouble = format!("{}, but an image has 2 axes", count("ZNAXIS")?);
            return Err(FileProblem::Keyword { keyword: "ZNAXIS".to_owned(), trouble });
        }
        let (width, height) = (count("ZNAXIS1")?, count("ZNAXIS2")?);
        let or = |keyword: &str, default: usize| match header.contains(keyword) {
            true => count(keyword),
            false => Ok(default),
        };
        let tile = [or("ZTILE1", width)?, or("ZTILE2", 1)?];
        let pixels = tile[0].checked_mul(tile[1]).filter(|&pixels| pixels <= MAX_TILED_PIXELS);
        if pixels.is_none_or(|pixels| pixels == 0) || width == 0 || height == 0 {
            let size = format!(
                "tiles of {} x {} pixels in an image of {width} x {height}",
                tile[0], tile[1]
            );
            return Err(trouble(format!("{size}; at most {MAX_TILED_PIXELS} are read")));
        }
        let (row_bytes, rows) = (count("NAXIS1")?, count("NAXIS2")?);
        let tiles = width.div_ceil(tile[0]).checked_mul(height.div_ceil(tile[1]));
        if tiles != Some(rows) {
            return Err(trouble(format!("{rows} tiles, which is not the size of the image")));
        }
        let table = (row_bytes as u64).checked_mul(rows as u64).filter(|&bytes| bytes < 1 << 60);
        let table = table.ok_or_else(|| trouble("the size of its table makes no sense"))?;
        let heap = or("THEAP", table as usize)? as u64;
        let end = table.checked_add(or("PCOUNT", 0)? as u64).filter(|&end| end < 1 << 60);
        let end = end.ok_or_else(|| trouble("the size of its heap makes no sense"))?;
        if heap < table || heap > end {
            return Err(trouble("the heap is not after the table"));
        }
        let columns = TableColumns::read(header, row_bytes)?;
        let compression = Compression::read(header)?;
        let numbers = Numbers::read(header)?;
        Ok(Self { width, height, tile, compression, numbers, columns, row_bytes, rows, heap, end })
    }

    /// Pixels in a row of the image.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of the image.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bytes of the table and its heap.
    pub fn data_bytes(&self) -> u64 {
        self.end
    }

    /// The physical pixels of the rows `wanted`, big-endian doubles, and the bytes of the table and
    /// heap that were passed. The source is at the start of the table.
    pub fn read(
        &self,
        source: &mut ByteSource,
        wanted: Range<usize>,
    ) -> Result<(Vec<u8>, u64), StackingError> {
        let pixels = wanted.len().checked_mul(self.width);
        if pixels.is_none_or(|pixels| pixels > MAX_TILED_PIXELS) {
            let problem = format!("{} rows of {} pixels are too many", wanted.len(), self.width);
            return Err(source.error(trouble(problem)));
        }
        let table = source.take(self.row_bytes * self.rows, Self::MISSING)?;
        let tiles = self.wanted_tiles(&table, &wanted).map_err(|problem| source.error(problem))?;
        let mut position = table.len() as u64;
        let mut image = vec![f64::NAN; wanted.len() * self.width];
        for wanted_tile in tiles {
            let start = self.heap + wanted_tile.start;
            let gap = start.checked_sub(position);
            let gap = gap.ok_or_else(|| source.error(trouble("tiles that overlap in the heap")))?;
            source.skip(gap, Self::MISSING)?;
            let bytes = source.take(wanted_tile.bytes as usize, Self::MISSING)?;
            position = start + wanted_tile.bytes;
            let row = &table[wanted_tile.number * self.row_bytes..][..self.row_bytes];
            let pixels =
                self.decode(wanted_tile, row, &bytes).map_err(|problem| source.error(problem))?;
            self.place(wanted_tile.number, &pixels, &wanted, &mut image);
        }
        Ok((image.iter().flat_map(|pixel| pixel.to_be_bytes()).collect(), position))
    }

    /// Columns and rows of a tile, in pixels of the image.
    fn area(&self, number: usize) -> (Range<usize>, Range<usize>) {
        let across = self.width.div_ceil(self.tile[0]);
        let (x, y) = (number % across * self.tile[0], number / across * self.tile[1]);
        (x..(x + self.tile[0]).min(self.width), y..(y + self.tile[1]).min(self.height))
    }

    /// The tiles with a wanted row, in the order of their bytes in the heap.
    fn wanted_tiles(
        &self,
        table: &[u8],
        wanted: &Range<usize>,
    ) -> Result<Vec<WantedTile>, FileProblem> {
        let across = self.width.div_ceil(self.tile[0]);
        let first = wanted.start / self.tile[1] * across;
        let last =
            if wanted.is_empty() { first } else { wanted.end.div_ceil(self.tile[1]) * across };
        let mut tiles = Vec::new();
        for number in first..last.min(self.rows) {
            let row = &table[number * self.row_bytes..][..self.row_bytes];
            let (column, count, start) = self
                .columns
                .data_of(row)
                .ok_or_else(|| trouble(format!("tile {} has no data", number + 1)))?;
            let bytes = count.checked_mul(column.item_bytes as u64);
            let bytes = bytes.filter(|&bytes| {
                start.checked_add(bytes).is_some_and(|end| end <= self.end - self.heap)
            });
            let bytes =
                bytes.ok_or_else(|| trouble(format!("tile {} is not in the heap", number + 1)))?;
            tiles.push(WantedTile { number, column, start, bytes });
        }
        tiles.sort_unstable_by_key(|tile| tile.start);
        Ok(tiles)
    }

    /// The physical pixels of a tile.
    fn decode(
        &self,
        wanted: WantedTile,
        row: &[u8],
        bytes: &[u8],
    ) -> Result<Vec<f64>, FileProblem> {
        let (columns, rows) = self.area(wanted.number);
        let count = columns.len() * rows.len();
        let damaged = || trouble(format!("tile {} is damaged", wanted.number + 1));
        let compression = match wanted.column.kind {
            columns::DataKind::Compressed => self.compression,
            // Of floating-point pixels that cannot become whole numbers.
            columns::DataKind::Gzip => Compression::Gzip,
        };
        let scale = self.columns.zscale(row).or(self.numbers.zscale);
        let is_exact = wanted.column.kind != columns::DataKind::Compressed || scale.is_none();
        if self.numbers.bitpix < 0 && is_exact {
            let bytes = unpacked(compression, bytes, count).ok_or_else(damaged)?;
            return reals(&bytes, count).ok_or_else(damaged);
        }
        let stored = match compression {
            Compression::Rice { block, pixel_bytes } => {
                rice::decode(bytes, count, block, pixel_bytes)
            }
            Compression::Plio => plio::decode(bytes, count),
            Compression::Hcompress { smooth } => {
                hcompress::decode(bytes, columns.len(), rows.len(), smooth)
            }
            _ => unpacked(compression, bytes, count).and_then(|bytes| integers(&bytes, count)),
        };
        let stored = stored.ok_or_else(damaged)?;
        if self.numbers.bitpix > 0 {
            let Numbers { bscale, bzero, blank, .. } = self.numbers;
            let blank = self.columns.zblank(row).or(blank);
            let physical = |stored: i64| match blank {
                Some(blank) if blank == stored => f64::NAN,
                _ => bzero + bscale * stored as f64,
            };
            return Ok(stored.into_iter().map(physical).collect());
        }
        let quantized = Quantized {
            scale: scale.ok_or_else(damaged)?,
            zero: self.columns.zzero(row).or(self.numbers.zzero).unwrap_or(0.0),
            blank: self.columns.zblank(row).or(self.numbers.blank),
            dither: self.numbers.dither,
            is_single: self.numbers.bitpix == -32,
        };
        Ok(quantized.physical(&stored, wanted.number))
    }

    /// Copies the wanted rows of a tile into the image.
    fn place(&self, number: usize, pixels: &[f64], wanted: &Range<usize>, image: &mut [f64]) {
        let (columns, rows) = self.area(number);
        for (row, line) in rows.zip(pixels.chunks_exact(columns.len())) {
            if wanted.contains(&row) {
                let start = (row - wanted.start) * self.width + columns.start;
                image[start..start + line.len()].copy_from_slice(line);
            }
        }
    }
}

/// The bytes of pixels that are packed with gzip; none if they are damaged, or packed otherwise.
fn unpacked(compression: Compression, bytes: &[u8], count: usize) -> Option<Vec<u8>> {
    if !matches!(compression, Compression::Gzip | Compression::ShuffledGzip) {
        return None;
    }
    let mut plain = Vec::new();
    let most = 8 * count as u64 + 1;
    GzDecoder::new(bytes).take(most).read_to_end(&mut plain).ok()?;
    if compression == Compression::Gzip {
        return Some(plain);
    }
    let size = plain.len() / count;
    let pixel = |at: usize| (0..size).map(move |byte| (byte, at));
    (size * count == plain.len()).then(|| {
        let places = (0..count).flat_map(pixel);
        places.map(|(byte, at)| plain[byte * count + at]).collect()
    })
}

/// Whole numbers of 1, 2, 4 or 8 bytes; one byte has no sign.
fn integers(bytes: &[u8], count: usize) -> Option<Vec<i64>> {
    match bytes.len() / count {
        _ if !bytes.len().is_multiple_of(count) => None,
        1 => Some(bytes.iter().map(|&byte| byte.into()).collect()),
        2 => Some(chunks(bytes, |bytes| i16::from_be_bytes(bytes).into())),
        4 => Some(chunks(bytes, |bytes| i32::from_be_bytes(bytes).into())),
        8 => Some(chunks(bytes, i64::from_be_bytes)),
        _ => None,
    }
}

/// Floating-point numbers of 4 or 8 bytes.
fn reals(bytes: &[u8], count: usize) -> Option<Vec<f64>> {
    match bytes.len() / count {
        _ if !bytes.len().is_multiple_of(count) => None,
        4 => Some(chunks(bytes, |bytes| f32::from_be_bytes(bytes).into())),
        8 => Some(chunks(bytes, f64::from_be_bytes)),
        _ => None,
    }
}

fn chunks<const BYTES: usize, T>(bytes: &[u8], number: impl Fn([u8; BYTES]) -> T) -> Vec<T> {
    bytes.as_chunks::<BYTES>().0.iter().map(|&bytes| number(bytes)).collect()
}

impl Compression {
    fn read(header: &Header) -> Result<Self, FileProblem> {
        let parameter = |name: &str, default: i64| -> Result<i64, FileProblem> {
            for number in 1..10 {
                if header.text(&format!("ZNAME{number}"))? == Some(name) {
                    let value = header.integer(&format!("ZVAL{number}"))?;
                    return Ok(value.unwrap_or(default));
                }
            }
            Ok(default)
        };
        let kind = header.text("ZCMPTYPE")?.unwrap_or_default();
        Ok(match kind {
            "GZIP_1" => Compression::Gzip,
            "GZIP_2" => Compression::ShuffledGzip,
            "RICE_1" | "RICE_ONE" => {
                let (block, bytes) = (parameter("BLOCKSIZE", 32)?, parameter("BYTEPIX", 4)?);
                if !(1..=1 << 16).contains(&block) || ![1, 2, 4].contains(&bytes) {
                    let problem = format!("RICE_1 with BLOCKSIZE {block} and BYTEPIX {bytes}");
                    return Err(trouble(problem));
                }
                Compression::Rice { block: block as usize, pixel_bytes: bytes as usize }
            }
            "PLIO_1" => Compression::Plio,
            "HCOMPRESS_1" => Compression::Hcompress { smooth: parameter("SMOOTH", 0)? != 0 },
            other => {
                let known = "GZIP_1, GZIP_2, RICE_1, PLIO_1 and HCOMPRESS_1 are read";
                return Err(trouble(format!("ZCMPTYPE is '{other}'; {known}")));
            }
        })
    }
}

impl Numbers {
    fn read(header: &Header) -> Result<Self, FileProblem> {
        let bitpix = header.integer("ZBITPIX")?.unwrap_or_default();
        if ![8, 16, 32, 64, -32, -64].contains(&bitpix) {
            return Err(trouble(format!("ZBITPIX is {bitpix}")));
        }
        let blank = match header.integer("ZBLANK")? {
            None if bitpix > 0 => header.integer("BLANK")?,
            own => own,
        };
        Ok(Self {
            bitpix,
            bscale: header.number("BSCALE")?.unwrap_or(1.0),
            bzero: header.number("BZERO")?.unwrap_or(0.0),
            blank,
            dither: dither::Dither::read(header)?,
            zscale: header.number("ZSCALE")?,
            zzero: header.number("ZZERO")?,
        })
    }
}
