//! The work on one frame: finds the objects of a list on it, cuts their ROIs, and adds them.

use std::path::Path;

use crate::error::{FileProblem, StackingError};
use crate::fits_read::{FitsFile, image_headers};
use crate::hdu::HduChoice;
use crate::objects::ListedObject;
use crate::profile::{BlockProfile, CodeBlock};
use crate::projection::Projection;
use crate::report::Reason;
use crate::roi::{Calibration, Placement, Sky, Window};
use crate::source::ByteSource;
use crate::stack::{Stack, Weighting};

/// Values for frames whose header lacks a keyword.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameDefaults {
    /// For SKY.
    pub sky: Option<Sky>,
    /// For CAL: the flux of one count.
    pub cal: Option<f64>,
    /// For the band.
    pub band: Option<String>,
}

/// How frames are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FramePlan {
    /// The images of each file.
    pub hdu: HduChoice,
    /// The keyword with the band.
    pub band_keyword: String,
    /// For keywords that a header lacks.
    pub assumed: FrameDefaults,
    /// Whether to read to the end and check the checksum of gzip. By default only the rows of the
    /// ROIs are read.
    pub verify: bool,
}

/// What was done with the objects of a list on one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameReport {
    /// The number of the image's header and data unit.
    pub hdu: usize,
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
    /// Objects on the frame that are of another band.
    pub other_band: u64,
    /// The band of the frame, if an object of the list has one.
    pub band: Option<String>,
    /// The objects on the frame, by their numbers in the list; with the reason if they are not
    /// summed.
    pub shown: Vec<(usize, Option<Reason>)>,
}

impl FramePlan {
    /// Finds every object of the list on the images of the frame in `path`, and adds its ROI.
    ///
    /// After an error the stack is unchanged.
    pub fn add_frame(
        &self,
        stack: &mut Stack,
        path: &Path,
        objects: &[ListedObject],
        profile: &mut BlockProfile,
    ) -> Result<Vec<FrameReport>, StackingError> {
        if self.hdu.is_one() {
            return Ok(vec![self.add_image(stack, path, &self.hdu, objects, profile)?]);
        }
        let images = profile.time(CodeBlock::ReadHdu, || image_headers(path, &self.hdu))?;
        let mut sum = Stack::new(stack.size(), stack.weighting());
        let reports = images
            .iter()
            .map(|image| HduChoice::Number(image.hdu()))
            .map(|choice| self.add_image(&mut sum, path, &choice, objects, profile))
            .collect::<Result<_, _>>()?;
        stack.merge(&sum);
        Ok(reports)
    }

    fn add_image(
        &self,
        stack: &mut Stack,
        path: &Path,
        choice: &HduChoice,
        objects: &[ListedObject],
        profile: &mut BlockProfile,
    ) -> Result<FrameReport, StackingError> {
        let source = profile.time(CodeBlock::Open, || ByteSource::open(path))?;
        let frame = profile.time(CodeBlock::ReadHdu, || FitsFile::read_header(source, choice))?;
        let calibration = self.calibration(&frame, stack.weighting())?;
        let mut report = FrameReport {
            hdu: frame.image().hdu(),
            objects: objects.len() as u64,
            ..FrameReport::default()
        };
        let windows = profile.time(CodeBlock::Radec2xy, || {
            self.windows(&frame, objects, stack.size(), &mut report)
                .map_err(|problem| frame.error(problem))
        })?;

        let windows_of = || windows.iter().map(|(_, window)| window);
        let first = windows_of().map(|window| window.y).min().unwrap_or(0);
        let end = windows_of().map(|window| window.y + window.tile_size()).max().unwrap_or(0);
        let rows = profile.time(CodeBlock::ReadHdu, || frame.rows(first..end, self.verify))?;
        let table = profile.time(CodeBlock::Curl, || rows.curl());
        for (number, window) in &windows {
            let region = window.cut(&table, calibration, profile);
            let reason = match region {
                Some(region) => {
                    let weight = region.weight * objects[*number].weight;
                    profile.time(CodeBlock::DoStacking, || stack.add(&region.pixels, weight));
                    report.stacked += 1;
                    None
                }
                None => {
                    report.undefined += 1;
                    Some(Reason::Undefined)
                }
            };
            report.shown.push((*number, reason));
        }
        stack.skip(report.border + report.undefined);
        report.shown.sort_unstable_by_key(|(number, _)| *number);
        Ok(report)
    }

    /// The background and the flux of a count, from the header or else from what is assumed.
    fn calibration(
        &self,
        frame: &FitsFile,
        weighting: Weighting,
    ) -> Result<Calibration, StackingError> {
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
        Ok(Calibration { sky, cal, by_variance: weighting == Weighting::Variance })
    }

    /// The windows of the objects that the frame shows whole. The others are counted.
    fn windows(
        &self,
        frame: &FitsFile,
        objects: &[ListedObject],
        size: usize,
        report: &mut FrameReport,
    ) -> Result<Vec<(usize, Window)>, FileProblem> {
        let image = frame.image();
        let projection = Projection::of_image(image)?;
        // A frame needs no band for objects without one.
        let band = if objects.iter().any(|object| object.band.is_some()) {
            image.band(&self.band_keyword)?.or_else(|| self.assumed.band.clone())
        } else {
            None
        };
        let (width, height) = (image.width(), image.height());
        let mut windows = Vec::new();
        for (number, object) in objects.iter().enumerate() {
            let is_other = object.band.is_some() && object.band.as_deref() != band.as_deref();
            match Placement::of(&projection, object.place, size, width, height) {
                Placement::Outside => report.outside += 1,
                _ if is_other => {
                    report.other_band += 1;
                    report.shown.push((number, Some(Reason::OtherBand)));
                }
                Placement::Whole(window) => windows.push((number, window)),
                Placement::Border => {
                    report.border += 1;
                    report.shown.push((number, Some(Reason::Border)));
                }
            }
        }
        report.band = band;
        Ok(windows)
    }
}
