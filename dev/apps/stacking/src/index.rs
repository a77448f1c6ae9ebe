//! The index of a survey: where its frames are on the sky, so that positions find their frames
//! without a look at the files.
//!
//! For each image of each frame it has the band, the keywords that say where its pixels are, and
//! the cells of the sky that it touches ([`coverage`](crate::coverage)). A position is looked up by
//! its cell, and each candidate is then tried by the frame's own projection: the index finds what
//! `stack` would find, no more and no less.
//!
//! The file is JSON lines in gzip: a line with the version, one for each image, and one with their
//! number. It is read only if all of that agrees.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::cells::{BASE_CELLS, MAX_ORDER, cell_at};
use crate::coverage::{Coverage, MAX_COVERAGE_ORDER};
use crate::error::{FileProblem, StackingError};
use crate::fits_read::{ImageHeader, image_headers};
use crate::hdu::HduChoice;
use crate::objects::SkyObject;
use crate::output;
use crate::projection::Projection;

/// The version of the file. Another one is refused.
pub const INDEX_VERSION: u32 = 1;

/// Images of an index.
const MAX_INDEXED: usize = 1 << 24;

/// Bytes of a line of an index.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Bytes of an index for each byte of its file, which has some 7: a file that unpacks to much more
/// is damaged, or made to fill the memory.
const MAX_UNPACKED_RATIO: u64 = 100;

/// Frames that are opened at a time: shared storage answers several requests sooner than one after
/// the other.
const OPENED_TOGETHER: usize = 8;

/// One image of the survey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedImage {
    /// The file, as it was named when the index was made.
    pub frame: String,
    /// The number of the image's header and data unit.
    pub hdu: usize,
    /// Its band, if it says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<String>,
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The cells that it touches.
    #[serde(flatten)]
    pub coverage: Coverage,
    /// Keywords and values that say where its pixels are, each on a line.
    pub positions: String,
}

/// What an index is made of.
#[derive(Clone, Debug)]
pub struct IndexPlan {
    /// The images of each file.
    pub hdu: HduChoice,
    /// The keyword with the band.
    pub band_keyword: String,
    /// The band of images without the keyword.
    pub band: Option<String>,
}

/// The first line of the file.
#[derive(Serialize, Deserialize)]
struct FirstLine {
    eyas_stacking_index: u32,
}

/// The last line of the file.
#[derive(Serialize, Deserialize)]
struct LastLine {
    images: usize,
}

/// Cells of one order, and the images that touch them.
#[derive(Clone, Debug)]
struct CellTable {
    order: u8,
    /// Cell and image, in rising order.
    entries: Vec<(u64, u32)>,
}

/// An index that is ready for look-ups.
#[derive(Clone, Debug)]
pub struct FrameIndex {
    images: Vec<IndexedImage>,
    tables: Vec<CellTable>,
}

impl IndexPlan {
    /// The images of the file `path`.
    pub fn read_frame(&self, path: &Path) -> Result<Vec<IndexedImage>, StackingError> {
        let name = path.to_str().ok_or_else(|| {
            let trouble = "its name is not UTF-8: rename the file, or make a link".to_owned();
            StackingError::new(path, FileProblem::Index(trouble))
        })?;
        let headers = image_headers(path, &self.hdu)?;
        let indexed = headers.iter().map(|image| self.indexed(name, image));
        indexed
            .collect::<Result<_, FileProblem>>()
            .map_err(|problem| StackingError::new(path, problem))
    }

    fn indexed(&self, name: &str, image: &ImageHeader) -> Result<IndexedImage, FileProblem> {
        let projection = Projection::of_image(image)?;
        let (width, height) = (image.width(), image.height());
        Ok(IndexedImage {
            frame: name.to_owned(),
            hdu: image.hdu(),
            band: image.band(&self.band_keyword)?.or_else(|| self.band.clone()),
            width,
            height,
            coverage: Coverage::of(&projection, width, height),
            positions: Projection::values(image.header()),
        })
    }

    /// Reads all files. Errors of those that cannot be read are in the order of the files; without
    /// `keep_going` no further file is opened after one.
    pub fn read_frames(
        &self,
        paths: &[PathBuf],
        keep_going: bool,
    ) -> (Vec<IndexedImage>, Vec<StackingError>) {
        let next = AtomicUsize::new(0);
        let read = Mutex::new(Vec::with_capacity(paths.len()));
        std::thread::scope(|scope| {
            for _ in 0..OPENED_TOGETHER.min(paths.len()) {
                scope.spawn(|| {
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(path) = paths.get(number)
                    {
                        let images = self.read_frame(path);
                        if images.is_err() && !keep_going {
                            next.store(paths.len(), Ordering::Relaxed);
                        }
                        read.lock().expect("no thread panics").push((number, images));
                    }
                });
            }
        });
        let mut read = read.into_inner().expect("no thread panics");
        read.sort_unstable_by_key(|(number, _)| *number);
        let (mut images, mut unreadable) = (Vec::new(), Vec::new());
        for (_, frame) in read {
            match frame {
                Ok(found) => images.extend(found),
                Err(error) => unreadable.push(error),
            }
        }
        (images, unreadable)
    }
}

impl IndexedImage {
    /// Its projection.
    pub fn projection(&self) -> Result<Projection, FileProblem> {
        Projection::of_values(&self.positions)
    }

    fn is_valid(&self) -> bool {
        let Coverage { order, cells } = &self.coverage;
        *order <= MAX_COVERAGE_ORDER
            && cells.iter().all(|&cell| cell < BASE_CELLS << (2 * order))
            && (1..1 << 40).contains(&self.width)
            && (1..1 << 40).contains(&self.height)
    }
}

/// The images of an index and newer ones. The images of a frame that has newer ones are left out.
pub fn merge(mut images: Vec<IndexedImage>, newer: Vec<IndexedImage>) -> Vec<IndexedImage> {
    let replaced: HashSet<&str> = newer.iter().map(|image| image.frame.as_str()).collect();
    images.retain(|image| !replaced.contains(image.frame.as_str()));
    images.extend(newer);
    images
}

/// Writes the index of `images` to `path`.
pub fn write(path: &Path, images: &[IndexedImage]) -> Result<(), StackingError> {
    let pack = || -> std::io::Result<Vec<u8>> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        let mut line = |line: serde_json::Result<Vec<u8>>| {
            packed.write_all(&line?)?;
            packed.write_all(b"\n")
        };
        line(serde_json::to_vec(&FirstLine { eyas_stacking_index: INDEX_VERSION }))?;
        for image in images {
            line(serde_json::to_vec(image))?;
        }
        line(serde_json::to_vec(&LastLine { images: images.len() }))?;
        packed.finish()
    };
    let bytes =
        pack().map_err(|error| StackingError::new(path, FileProblem::io("write")(error)))?;
    output::write_whole(path, &bytes)
}

/// The lines of an index.
struct IndexLines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    /// Bytes that may still be read.
    left: u64,
}

impl<R: BufRead> IndexLines<R> {
    /// The next line as JSON; none at the end.
    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>, FileProblem> {
        self.line.clear();
        self.number += 1;
        let fail = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => damaged("it is cut off".to_owned()),
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
                damaged(format!("its gzip data are damaged ({error})"))
            }
            _ => FileProblem::Io { action: "read", error },
        };
        let mut limited = self.reader.by_ref().take(MAX_LINE_BYTES);
        let bytes = limited.read_until(b'\n', &mut self.line).map_err(fail)?;
        if bytes == 0 {
            return Ok(None);
        }
        self.left = self.left.checked_sub(bytes as u64).ok_or_else(|| {
            damaged(format!("it unpacks to over {MAX_UNPACKED_RATIO} times its size"))
        })?;
        serde_json::from_slice(&self.line)
            .map(Some)
            .map_err(|error| damaged(format!("line {}: {error}", self.number)))
    }
}

fn damaged(trouble: String) -> FileProblem {
    FileProblem::Index(format!("{trouble}; make it again with `stack index`"))
}

/// A line of an image, or the last one.
#[derive(Deserialize)]
#[serde(untagged)]
enum IndexLine {
    Image(Box<IndexedImage>),
    Last(LastLine),
}

fn read_images(file: File) -> Result<Vec<IndexedImage>, FileProblem> {
    let packed = file.metadata().map_err(FileProblem::io("read"))?.len();
    let reader = BufReader::with_capacity(1 << 20, GzDecoder::new(BufReader::new(file)));
    let left = packed.saturating_mul(MAX_UNPACKED_RATIO);
    let mut lines = IndexLines { reader, line: Vec::new(), number: 0, left };
    match lines.next::<FirstLine>() {
        Ok(Some(FirstLine { eyas_stacking_index: INDEX_VERSION })) => {}
        Ok(Some(FirstLine { eyas_stacking_index })) => {
            return Err(damaged(format!(
                "it has version {eyas_stacking_index}, and this program reads {INDEX_VERSION}"
            )));
        }
        Err(FileProblem::Io { action, error }) => return Err(FileProblem::Io { action, error }),
        Ok(None) | Err(_) => {
            return Err(damaged("it was not written by `stack index`".to_owned()));
        }
    }
    let mut images = Vec::new();
    loop {
        match lines.next()? {
            Some(IndexLine::Image(image)) if image.is_valid() => images.push(*image),
            Some(IndexLine::Image(_)) => {
                return Err(damaged(format!("line {}: no image is like that", lines.number)));
            }
            Some(IndexLine::Last(last)) if last.images == images.len() => break,
            Some(IndexLine::Last(_)) | None => return Err(damaged("it is cut off".to_owned())),
        }
        if images.len() > MAX_INDEXED {
            let trouble = format!("it has more than {MAX_INDEXED} images: cut the survey");
            return Err(FileProblem::Index(trouble));
        }
    }
    // The checksum of gzip stands at the end.
    match lines.next::<serde_json::Value>()? {
        None => Ok(images),
        Some(_) => Err(damaged("lines follow its last one".to_owned())),
    }
}

impl FrameIndex {
    /// An index of `images`.
    pub fn new(images: Vec<IndexedImage>) -> Self {
        let mut tables: Vec<CellTable> = Vec::new();
        for (number, image) in (0..).zip(&images) {
            let Coverage { order, cells } = &image.coverage;
            let entries = cells.iter().map(|&cell| (cell, number));
            match tables.iter_mut().find(|table| table.order == *order) {
                Some(table) => table.entries.extend(entries),
                None => tables.push(CellTable { order: *order, entries: entries.collect() }),
            }
        }
        tables.iter_mut().for_each(|table| table.entries.sort_unstable());
        Self { images, tables }
    }

    /// Reads the index in `path`.
    pub fn read(path: &Path) -> Result<Self, StackingError> {
        let error = |problem| StackingError::new(path, problem);
        let file = File::open(path).map_err(|io| error(FileProblem::io("open")(io)))?;
        read_images(file).map(Self::new).map_err(error)
    }

    /// Its images, without the index.
    pub fn into_images(self) -> Vec<IndexedImage> {
        self.images
    }

    /// Its images.
    pub fn images(&self) -> &[IndexedImage] {
        &self.images
    }

    /// The cell of a place, for [`FrameIndex::candidates`].
    pub fn cell(place: SkyObject) -> u64 {
        cell_at(place.ra, place.dec, MAX_ORDER)
    }

    /// The numbers of all images that touch the cells around `cell`: those that show a place in it,
    /// and some others.
    pub fn candidates(&self, cell: u64) -> impl Iterator<Item = u32> {
        self.tables.iter().flat_map(move |table| {
            let cell = cell >> (2 * (MAX_ORDER - table.order));
            let first = table.entries.partition_point(|entry| entry.0 < cell);
            let found = table.entries[first..].iter().take_while(move |entry| entry.0 == cell);
            found.map(|entry| entry.1)
        })
    }
}
