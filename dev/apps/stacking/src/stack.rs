//! The sum of many ROIs, the frame-by-frame work that makes it, and its file.
//!
//! A stack is kept as a sum and a count, never as a mean, so that partial stacks of any tasks in
//! any order add up to the same image. Its file is a FITS image of doubles with the keywords NSTACK
//! (ROIs summed), NSKIP (ROIs left out) and STACKOP ('SUM', or 'MEAN' for the final image).

use std::path::Path;

use crate::error::{FileProblem, StackingError};
use crate::fits_read::FitsFile;
use crate::fits_write::Cards;
use crate::objects::SkyObject;
use crate::output;
use crate::profile::{BlockProfile, CodeBlock};
use crate::projection::Projection;
use crate::roi::{Sky, Window};
use crate::source::ByteSource;

/// A square image of doubles, row after row; the object is at pixel `size / 2` in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Edge, pixels.
    pub size: usize,
    /// `size * size` values, flux per pixel.
    pub pixels: Vec<f64>,
}

/// A sum of ROIs.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    image: Image,
    summed: u64,
    skipped: u64,
    assumed: FrameDefaults,
}

/// Values for frames whose header lacks a keyword.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameDefaults {
    /// For SKY.
    pub sky: Option<Sky>,
    /// For CAL: the flux of one count.
    pub cal: Option<f64>,
}

/// Counts of what was done with the objects of a list on one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameReport {
    /// Objects in the list.
    pub objects: u64,
    /// Objects summed.
    pub stacked: u64,
    /// Objects on the frame whose ROI is cut by its border.
    pub border: u64,
    /// Objects on the frame whose ROI has undefined pixels.
    pub undefined: u64,
    /// Objects that are not on the frame.
    pub outside: u64,
}

impl Stack {
    /// An empty stack of ROIs whose edge is `size` pixels.
    pub fn new(size: usize) -> Self {
        let image = Image { size, pixels: vec![0.0; size * size] };
        Self { image, summed: 0, skipped: 0, assumed: FrameDefaults::default() }
    }

    /// Accepts frames that lack keywords, with these values instead.
    pub fn assuming(self, assumed: FrameDefaults) -> Self {
        Self { assumed, ..self }
    }

    /// ROIs summed.
    pub fn summed(&self) -> u64 {
        self.summed
    }

    /// ROIs left out: cut by a border, or with undefined pixels.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Edge of its ROIs, pixels.
    pub fn size(&self) -> usize {
        self.image.size
    }

    /// The paper's *doStacking*: adds one ROI.
    pub fn add(&mut self, roi: &[f64]) {
        self.add_pixels(roi);
        self.summed += 1;
    }

    /// Adds another stack of the same size.
    pub fn merge(&mut self, other: &Stack) {
        self.add_pixels(&other.image.pixels);
        self.summed += other.summed;
        self.skipped += other.skipped;
    }

    fn add_pixels(&mut self, pixels: &[f64]) {
        assert_eq!(pixels.len(), self.image.pixels.len(), "ROIs of one stack are of one size");
        for (sum, pixel) in self.image.pixels.iter_mut().zip(pixels) {
            *sum += pixel;
        }
    }

    /// The mean image; none if the stack is empty.
    pub fn mean(&self) -> Option<Image> {
        let scale = 1.0 / self.summed as f64;
        let pixels = self.image.pixels.iter().map(|sum| sum * scale).collect();
        (self.summed > 0).then_some(Image { size: self.image.size, pixels })
    }

    /// Finds every object of the list on the frame in `path`, and adds its ROI. Reads only the rows
    /// of these ROIs; with `verify`, reads the frame to its end and checks the checksum of gzip.
    ///
    /// After an error the stack is unchanged.
    pub fn add_frame(
        &mut self,
        path: &Path,
        objects: &[SkyObject],
        verify: bool,
        profile: &mut BlockProfile,
    ) -> Result<FrameReport, StackingError> {
        let mut report = FrameReport { objects: objects.len() as u64, ..FrameReport::default() };
        let source = profile.time(CodeBlock::Open, || ByteSource::open(path))?;
        let frame = profile.time(CodeBlock::ReadHdu, || FitsFile::read_header(source))?;
        let sky = match (frame.optional_number("SKY")?, self.assumed.sky) {
            (Some(counts), _) => Sky::Counts(counts),
            (None, Some(assumed)) => assumed,
            (None, None) => frame
                .number("SKY", "the background, counts; or say it with --sky")
                .map(Sky::Counts)?,
        };
        let cal = match (frame.optional_number("CAL")?, self.assumed.cal) {
            (Some(cal), _) | (None, Some(cal)) => cal,
            (None, None) => frame.number("CAL", "the flux of one count; or say it with --cal")?,
        };

        let windows = profile.time(CodeBlock::Radec2xy, || {
            let projection = Projection::of(&frame)?;
            let (width, height) = (frame.width(), frame.height());
            let on = |at: f64, edge: usize| at >= -0.5 && at < edge as f64 - 0.5;
            let mut windows = Vec::new();
            for object in objects {
                match projection.pixel(object.ra, object.dec) {
                    Some((x, y)) if on(x, width) && on(y, height) => {
                        match Window::around(x, y, self.size(), width, height) {
                            Some(window) => windows.push(window),
                            None => report.border += 1,
                        }
                    }
                    _ => report.outside += 1,
                }
            }
            Ok(windows)
        })?;

        let first = windows.iter().map(|window| window.y).min().unwrap_or(0);
        let end = windows.iter().map(|window| window.y + window.tile_size()).max().unwrap_or(0);
        let rows = profile.time(CodeBlock::ReadHdu, || frame.rows(first..end, verify))?;
        for window in &windows {
            match window.cut(&rows, sky, cal, profile) {
                Some(roi) => {
                    profile.time(CodeBlock::DoStacking, || self.add(&roi));
                    report.stacked += 1;
                }
                None => report.undefined += 1,
            }
        }
        self.skipped += report.border + report.undefined;
        Ok(report)
    }

    /// The paper's *writeStacking*: writes the sum to a FITS file that [`Stack::read`] reads.
    pub fn write(&self, path: &Path) -> Result<(), StackingError> {
        self.write_image(path, &self.image, "SUM", "sum of NSTACK regions of interest")
    }

    /// Writes the mean image to a FITS file; `mean` must be the mean of this stack.
    pub fn write_mean(&self, path: &Path, mean: &Image) -> Result<(), StackingError> {
        self.write_image(path, mean, "MEAN", "mean of NSTACK regions of interest")
    }

    fn write_image(
        &self,
        path: &Path,
        image: &Image,
        operation: &str,
        comment: &str,
    ) -> Result<(), StackingError> {
        let pixels: Vec<u8> = image.pixels.iter().flat_map(|pixel| pixel.to_be_bytes()).collect();
        let file = Cards::image(-64, image.size, image.size)
            .text("STACKOP", operation, comment)
            .integer("NSTACK", self.summed as i64, "regions of interest in this image")
            .integer("NSKIP", self.skipped as i64, "left out: cut by a border, or undefined")
            .integer(
                "CENTRE",
                (image.size / 2 + 1) as i64,
                "pixel of the object, both axes, from 1",
            )
            .text("CREATOR", "eyas-stacking", "")
            .file(&pixels);
        output::write_whole(path, &file)
    }

    /// Reads a partial stack.
    pub fn read(path: &Path) -> Result<Self, StackingError> {
        const PURPOSE: &str = "this is no partial stack";
        let file = FitsFile::open(path)?;
        if file.text("STACKOP")?.is_some_and(|operation| operation != "SUM") {
            return Err(file.error(FileProblem::Partial("it is a mean, not a sum".to_owned())));
        }
        let (size, height) = (file.width(), file.height());
        if size != height {
            return Err(
                file.error(FileProblem::Partial(format!("{size} x {height} pixels are no square")))
            );
        }
        let summed = file.number("NSTACK", PURPOSE)? as u64;
        let skipped = file.optional_number("NSKIP")?.unwrap_or(0.0) as u64;
        let pixels = file.rows(0..height, true)?.into_tile().convert();
        if pixels.iter().any(|pixel| !pixel.is_finite()) {
            return Err(StackingError::new(
                path,
                FileProblem::Partial("it has pixels that are no numbers".to_owned()),
            ));
        }
        Ok(Self {
            image: Image { size, pixels },
            summed,
            skipped,
            assumed: FrameDefaults::default(),
        })
    }

    /// Sums partial stacks, in the order given, which fixes the last bits of the result.
    pub fn sum<P: AsRef<Path>>(
        partials: impl IntoIterator<Item = P>,
    ) -> Result<Option<Self>, StackingError> {
        let mut total: Option<Stack> = None;
        for path in partials {
            let path = path.as_ref();
            let partial = Stack::read(path)?;
            match &mut total {
                Some(total) if total.size() != partial.size() => {
                    let trouble = format!(
                        "it is {} pixels wide, the others {}",
                        partial.size(),
                        total.size()
                    );
                    return Err(StackingError::new(path, FileProblem::Partial(trouble)));
                }
                Some(total) => total.merge(&partial),
                None => total = Some(partial),
            }
        }
        Ok(total)
    }
}
