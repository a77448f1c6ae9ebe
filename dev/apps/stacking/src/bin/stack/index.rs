//! `stack index`: makes an index of the frames of a survey.

use std::path::PathBuf;

use eyas_stacking::error::StackingError;
use eyas_stacking::index::{self, FrameIndex, IndexPlan};
use eyas_stacking::report::{NotStacked, ReportRow};

use crate::{ImageArgs, paths};

/// Make an index of the frames of a survey.
///
/// It says where each image is on the sky, and its band: `stack find` then finds the frames of a
/// position without a look at the files.
#[derive(clap::Args)]
pub(crate) struct IndexArgs {
    /// Frames: FITS files, gzip or not, with a WCS; directories of them, or @FILE with a path on
    /// each line. The index has their names as they are given here
    #[arg(value_name = "FRAME", required_unless_present = "add")]
    frames: Vec<PathBuf>,
    /// Take the images of this index, too, without a look at their frames; those of a frame that
    /// is read now replace them
    #[arg(long, value_name = "INDEX")]
    add: Vec<PathBuf>,
    /// Write the index here
    #[arg(long, value_name = "INDEX")]
    out: PathBuf,
    #[command(flatten)]
    images: ImageArgs,
    /// Pass over frames that cannot be read; the report has them
    #[arg(long)]
    keep_going: bool,
    /// Write which frames cannot be read, with the reason, here: .json, or else CSV
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn index(args: &IndexArgs) -> Result<(), StackingError> {
    let plan = IndexPlan {
        hdu: args.images.hdu.clone(),
        band_keyword: args.images.band_keyword.clone(),
        band: args.images.band.clone(),
    };
    let frames = paths::expand(&args.frames, paths::is_frame)?;
    let mut added = Vec::new();
    for path in &args.add {
        let images = FrameIndex::read(path)?.into_images();
        added = index::merge(added, images);
    }
    let (images, unreadable) = plan.read_frames(&frames, args.keep_going);
    let failed = unreadable.len();
    let mut rows = Vec::with_capacity(failed);
    for error in unreadable {
        if !args.keep_going {
            return Err(error);
        }
        eprintln!("stack: {error}; passed over");
        rows.push(ReportRow::of_frame(&error));
    }
    let images = index::merge(added, images);
    index::write(&args.out, &images)?;
    if let Some(report) = &args.report {
        NotStacked { rows }.write(report)?;
    }
    let mut bands: Vec<&str> = images.iter().filter_map(|image| image.band.as_deref()).collect();
    bands.sort_unstable();
    bands.dedup();
    println!(
        "frames={}\timages={}\tunreadable={failed}\tbands={}\tindex={}",
        frames.len() - failed,
        images.len(),
        bands.join(","),
        args.out.display()
    );
    Ok(())
}
