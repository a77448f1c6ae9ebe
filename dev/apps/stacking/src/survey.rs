//! A made-up survey to stack: frames of an SDSS-like camera, with sources that no single frame
//! shows.
//!
//! A survey has `frames/frame-NNNNNN.fits[.gz]`; `objects.csv`, the places of the invisible sources
//! (`ra,dec,frame`, and `band` if frames have bands); `control.csv`, the same number of empty
//! places; and `tasks.csv`, one line `frame,ra,dec` for each stacking task, without a header, in
//! random order. Paths in them are relative to the survey's directory. The same plan always gives
//! the same bytes; those of a frame depend on its number and the plan, never on the frames before
//! it.

mod frame;
mod random;

use std::path::Path;

pub use frame::{
    ARCSEC_PER_PIXEL, CLEARANCE_PIXELS, NOISE_COUNTS, PSF_SIGMA_PIXELS, SOURCE_FLUX, SurveyFrame,
};

use crate::error::{FileProblem, StackingError};
use crate::output;
use random::SurveyRandom;

/// A workload of the paper: how often, on average, each file is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurveyWorkload {
    /// Objects per file.
    pub locality: f64,
    /// Objects, each one stacking task.
    pub objects: u64,
    /// Files with these objects.
    pub files: u64,
}

/// Table 3 of the data diffusion paper: workloads made from SDSS DR5 for a quasar search. At the
/// paper's file sizes (2 MB gzip, 6 MB plain) the largest workload is 220 GB compressed.
pub const TABLE_3: [SurveyWorkload; 9] = [
    SurveyWorkload { locality: 1.0, objects: 111_700, files: 111_700 },
    SurveyWorkload { locality: 1.38, objects: 154_345, files: 111_699 },
    SurveyWorkload { locality: 2.0, objects: 97_999, files: 49_000 },
    SurveyWorkload { locality: 3.0, objects: 88_857, files: 29_620 },
    SurveyWorkload { locality: 4.0, objects: 76_575, files: 19_145 },
    SurveyWorkload { locality: 5.0, objects: 60_590, files: 12_120 },
    SurveyWorkload { locality: 10.0, objects: 46_480, files: 4_650 },
    SurveyWorkload { locality: 20.0, objects: 40_460, files: 2_025 },
    SurveyWorkload { locality: 30.0, objects: 23_695, files: 790 },
];

impl SurveyWorkload {
    /// The row of table 3 for `locality`.
    pub fn of_table_3(locality: f64) -> Option<Self> {
        TABLE_3.into_iter().find(|row| row.locality == locality)
    }

    /// The workload with objects and files divided by `scale`, rounded, at least one of each.
    pub fn scaled(self, scale: f64) -> Self {
        let divide = |count: u64| ((count as f64 / scale).round() as u64).max(1);
        Self { objects: divide(self.objects), files: divide(self.files), ..self }
    }
}

/// The size and form of a survey.
#[derive(Clone, Copy, Debug)]
pub struct SurveyPlan {
    /// Frames, each one file.
    pub frames: u64,
    /// Invisible sources, assigned to the frames in turn.
    pub objects: u64,
    /// Pixels in a row of a frame; SDSS: 2048.
    pub width: usize,
    /// Rows of a frame; SDSS: 1489.
    pub height: usize,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Whether frames are gzip files.
    pub gzip: bool,
    /// Whether frames have the SDSS's bands, in turn.
    pub bands: bool,
}

/// The bands of the SDSS.
const BANDS: [&str; 5] = ["u", "g", "r", "i", "z"];

/// Pixels in a row of an SDSS frame, and its rows.
pub const SDSS_SIZE: (usize, usize) = (2048, 1489);

impl SurveyPlan {
    /// Objects on frame `number`.
    fn objects_on(&self, number: u64) -> u64 {
        self.objects / self.frames + u64::from(number < self.objects % self.frames)
    }

    /// Frame `number`'s file, relative to the survey's directory.
    pub fn file_name(&self, number: u64) -> String {
        format!("frames/frame-{number:06}.fits{}", if self.gzip { ".gz" } else { "" })
    }

    /// The frame `number`, from 0 to `frames - 1`.
    pub fn frame(&self, number: u64) -> SurveyFrame {
        assert!(number < self.frames, "frame {number} of {}", self.frames);
        let band = self.bands.then(|| BANDS[(number % BANDS.len() as u64) as usize]);
        let objects = self.objects_on(number);
        let mut frame = SurveyFrame::plan(number, objects, self.width, self.height, self.seed);
        frame.band = band;
        frame
    }

    /// Writes the survey into `directory`, which is created if it is missing.
    pub fn write(&self, directory: &Path) -> Result<(), StackingError> {
        let frames = directory.join("frames");
        std::fs::create_dir_all(&frames)
            .map_err(|error| StackingError::new(&frames, FileProblem::io("make")(error)))?;

        let mut objects = format!("ra,dec,frame{}\n", if self.bands { ",band" } else { "" });
        let mut control = objects.clone();
        let mut tasks = Vec::with_capacity(self.objects as usize);
        for number in 0..self.frames {
            let frame = self.frame(number);
            let name = self.file_name(number);
            output::write_whole(&directory.join(&name), &frame.file(self.gzip))?;
            let band = frame.band.map(|band| format!(",{band}")).unwrap_or_default();
            for &(x, y) in &frame.sources {
                let place = place(&frame, x, y);
                objects += &format!("{place},{name}{band}\n");
                tasks.push(format!("{name},{place}\n"));
            }
            for &(x, y) in &frame.empty {
                control += &format!("{},{name}{band}\n", place(&frame, x, y));
            }
        }
        SurveyRandom::new(self.seed, u64::MAX).shuffle(&mut tasks);
        output::write_whole(&directory.join("objects.csv"), objects.as_bytes())?;
        output::write_whole(&directory.join("control.csv"), control.as_bytes())?;
        output::write_whole(&directory.join("tasks.csv"), tasks.concat().as_bytes())
    }
}

/// `ra,dec` of a pixel, to 1e-8 degrees: a ten thousandth of a pixel.
fn place(frame: &SurveyFrame, x: f64, y: f64) -> String {
    let (ra, dec) = frame.sky(x, y);
    format!("{ra:.8},{dec:.8}")
}
