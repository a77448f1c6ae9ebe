//! `stack`: cuts sky objects out of survey frames and sums them; sums the partial sums; shows the
//! result.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Parser};
use eyas_stacking::error::{FileProblem, StackingError};
use eyas_stacking::measure::Measurement;
use eyas_stacking::objects::{self, SkyObject};
use eyas_stacking::picture;
use eyas_stacking::profile::{BlockProfile, CodeBlock};
use eyas_stacking::roi::Sky;
use eyas_stacking::stack::{FrameDefaults, Stack};

/// Stack images of the sky: sum the same small region around many objects, to see what no single
/// image shows.
///
/// One object:    stack --object 150.1163,2.2058 FRAME --out partial.fits
///
/// Many objects:  stack --list objects.csv FRAME... --out partial.fits
///
/// In the end:    stack --sum partial*.fits --out stacked.fits --png stacked.png
#[derive(Parser)]
#[command(version, verbatim_doc_comment, group = ArgGroup::new("mode").required(true))]
struct Args {
    /// Stack every object of this CSV file (columns ra and dec, degrees) that is on one of the
    /// frames
    #[arg(long, value_name = "CSV", group = "mode", requires = "frames")]
    list: Option<PathBuf>,
    /// Stack this one object (degrees)
    #[arg(
        long,
        value_name = "RA,DEC",
        group = "mode",
        requires = "frames",
        allow_hyphen_values = true
    )]
    object: Option<SkyObject>,
    /// Sum partial stacks: files, directories of *.fits, or @FILE with a path on each line
    #[arg(long, value_name = "PARTIAL", group = "mode", num_args = 1..)]
    sum: Vec<PathBuf>,
    /// Frames: FITS files, gzip or not, with the keywords SKY and CAL (or --sky and --cal) and a
    /// WCS
    #[arg(value_name = "FRAME", conflicts_with = "sum")]
    frames: Vec<PathBuf>,
    /// Write the sum of the regions here; with --sum, their mean
    #[arg(long, value_name = "FITS")]
    out: Option<PathBuf>,
    /// Write a picture of the mean here
    #[arg(long, value_name = "PNG", requires = "sum")]
    png: Option<PathBuf>,
    /// Edge of the region around an object, pixels
    #[arg(
        long,
        default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=8192),
        conflicts_with = "sum"
    )]
    size: u16,
    /// Background of frames without the keyword SKY: counts, or `median` for the median pixel of
    /// each region
    #[arg(long, value_name = "COUNTS", conflicts_with = "sum", allow_hyphen_values = true)]
    sky: Option<Sky>,
    /// Flux of one count in frames without the keyword CAL
    #[arg(long, value_name = "FLUX", conflicts_with = "sum", value_parser = flux)]
    cal: Option<f64>,
    /// Read frames to their end and check the checksum of gzip; by default reading stops after the
    /// last row that is needed
    #[arg(long, conflicts_with = "sum")]
    verify: bool,
    /// Print the milliseconds of each code block of the paper's section 6.4 to stderr
    #[arg(long, conflicts_with = "sum")]
    profile: bool,
}

/// A text is not a flux.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a number")]
struct FluxError(String);

fn flux(text: &str) -> Result<f64, FluxError> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| FluxError(text.to_owned()))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.sum.is_empty() { stack(&args) } else { sum(&args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stack: {error}");
            ExitCode::from(error.problem.exit_code())
        }
    }
}

/// Stacks frames and writes the partial stack. Prints one line for each frame; the file is written
/// when all frames are done.
fn stack(args: &Args) -> Result<(), StackingError> {
    let objects = match (&args.list, args.object) {
        (Some(list), _) => objects::read(list)?,
        (None, object) => object.into_iter().collect(),
    };
    let mut profile = BlockProfile::default();
    let mut stack =
        Stack::new(args.size.into()).assuming(FrameDefaults { sky: args.sky, cal: args.cal });
    for frame in &args.frames {
        let report = stack.add_frame(frame, &objects, args.verify, &mut profile)?;
        println!(
            "objects={}\tstacked={}\tskipped={}\tborder={}\tundefined={}\toutside={}\tframe={}",
            report.objects,
            report.stacked,
            report.border + report.undefined,
            report.border,
            report.undefined,
            report.outside,
            frame.display()
        );
    }
    if let Some(out) = &args.out {
        profile.time(CodeBlock::WriteStacking, || stack.write(out))?;
    }
    if args.profile {
        eprintln!("{profile}");
    }
    Ok(())
}

/// Sums partial stacks, writes the mean image and its picture, and prints a measurement of its
/// centre.
fn sum(args: &Args) -> Result<(), StackingError> {
    let mut partials = Vec::new();
    for named in &args.sum {
        expand(named, &mut partials)?;
    }
    // If there is nothing to show, the error names the first partial stack.
    let nothing =
        |trouble: &str| StackingError::new(&args.sum[0], FileProblem::Partial(trouble.to_owned()));
    let total = Stack::sum(&partials)?.ok_or_else(|| nothing("no partial stacks here"))?;
    let mean = total
        .mean()
        .ok_or_else(|| nothing("no region of interest in any of the partial stacks"))?;

    if let Some(out) = &args.out {
        total.write_mean(out, &mean)?;
    }
    if let Some(png) = &args.png {
        picture::write(png, &mean)?;
    }
    print!("partials={}\tstacked={}\tskipped={}", partials.len(), total.summed(), total.skipped());
    match Measurement::of(&mean) {
        Some(measured) => println!(
            "\tflux={:.6e}\tflux_sigma={:.6e}\tpixel_sigma={:.6e}\tsignal_to_noise={:.2}",
            measured.flux,
            measured.flux_sigma,
            measured.pixel_sigma,
            measured.signal_to_noise()
        ),
        None => println!(
            "\tflux=unknown\tflux_sigma=unknown\tpixel_sigma=unknown\tsignal_to_noise=unknown"
        ),
    }
    Ok(())
}

/// The files that an argument names: itself, the *.fits of a directory by name, or the lines of
/// FILE for @FILE.
fn expand(named: &Path, partials: &mut Vec<PathBuf>) -> Result<(), StackingError> {
    let fail =
        |path: &Path, error| StackingError::new(path, FileProblem::Io { action: "read", error });
    if let Some(list) = named.to_str().and_then(|name| name.strip_prefix('@')) {
        let lines = std::fs::read_to_string(list).map_err(|error| fail(Path::new(list), error))?;
        partials.extend(lines.lines().filter(|line| !line.is_empty()).map(PathBuf::from));
    } else if named.is_dir() {
        let first = partials.len();
        for entry in std::fs::read_dir(named).map_err(|error| fail(named, error))? {
            let path = entry.map_err(|error| fail(named, error))?.path();
            // A hidden file is still being written.
            let hidden =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|extension| extension == "fits") {
                partials.push(path);
            }
        }
        partials[first..].sort();
    } else {
        partials.push(named.to_owned());
    }
    Ok(())
}
