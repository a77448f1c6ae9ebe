//! `survey`: makes a sky survey to stack.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use eyas_stacking::survey::{SDSS_SIZE, SurveyPlan, SurveyWorkload};

/// Make a sky survey to stack: frames with sources too faint to be seen in any one of them.
///
/// Writes frames/*.fits.gz, objects.csv (places of the sources), control.csv (empty places) and
/// tasks.csv (a line frame,ra,dec for each stacking task, in random order).
///
/// The size of the survey is given by two of --frames, --objects and --locality; or by --locality
/// alone, for that row of the paper's table 3, divided by --scale.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Directory to write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// Invisible sources, each one a task
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..))]
    objects: Option<u64>,
    /// Objects per frame; table 3 has 1, 1.38, 2, 3, 4, 5, 10, 20 and 30
    #[arg(long, value_name = "L", value_parser = positive)]
    locality: Option<f64>,
    /// Divide the objects and files of table 3 by this
    #[arg(
        long,
        value_name = "K",
        value_parser = positive,
        conflicts_with_all = ["frames", "objects"]
    )]
    scale: Option<f64>,
    /// Pixels of a frame
    #[arg(
        long,
        value_name = "WIDTHxHEIGHT",
        value_parser = size,
        default_value_t = Size(SDSS_SIZE.0, SDSS_SIZE.1)
    )]
    size: Size,
    /// The same seed makes the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write gzip files (the default)
    #[arg(long, conflicts_with = "plain")]
    gzip: bool,
    /// Write files without gzip
    #[arg(long)]
    plain: bool,
    /// Give frames the bands u, g, r, i and z in turn (FILTER), and the lists a column band
    #[arg(long)]
    bands: bool,
}

/// Width and height, pixels.
#[derive(Clone, Copy)]
struct Size(usize, usize);

impl std::fmt::Display for Size {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}x{}", self.0, self.1)
    }
}

/// Why arguments cannot be used.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("give WIDTHxHEIGHT in pixels from 16 to 65536, such as 2048x1489")]
    Size,
    #[error("`{0}` is not a number above zero")]
    NotPositive(String),
    #[error("give two of --frames, --objects and --locality: they determine the third")]
    TooMany,
    #[error("table 3 of the paper has no locality {0}: give --frames or --objects as well")]
    Locality(f64),
    #[error("give --frames, --objects or --locality")]
    NoCount,
}

fn size(text: &str) -> Result<Size, ArgumentError> {
    let edge = |text: &str| text.parse().ok().filter(|edge| (16..=65_536).contains(edge));
    text.split_once('x')
        .and_then(|(width, height)| Some(Size(edge(width)?, edge(height)?)))
        .ok_or(ArgumentError::Size)
}

fn positive(text: &str) -> Result<f64, ArgumentError> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && f64::is_finite(*number));
    number.ok_or_else(|| ArgumentError::NotPositive(text.to_owned()))
}

/// The numbers of frames and objects.
fn counts(args: &Args) -> Result<(u64, u64), ArgumentError> {
    match (args.frames, args.objects, args.locality) {
        (Some(_), Some(_), Some(_)) => Err(ArgumentError::TooMany),
        (Some(frames), Some(objects), None) => Ok((frames, objects)),
        (Some(frames), None, locality) => {
            Ok((frames, ((frames as f64 * locality.unwrap_or(1.0)).round() as u64).max(1)))
        }
        (None, Some(objects), locality) => {
            Ok((((objects as f64 / locality.unwrap_or(1.0)).round() as u64).max(1), objects))
        }
        (None, None, Some(locality)) => {
            let row =
                SurveyWorkload::of_table_3(locality).ok_or(ArgumentError::Locality(locality))?;
            let row = row.scaled(args.scale.unwrap_or(1.0));
            Ok((row.files, row.objects))
        }
        (None, None, None) => Err(ArgumentError::NoCount),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (frames, objects) = match counts(&args) {
        Ok(counts) => counts,
        Err(trouble) => {
            eprintln!("survey: {trouble}");
            return ExitCode::from(2);
        }
    };
    let plan = SurveyPlan {
        frames,
        objects,
        width: args.size.0,
        height: args.size.1,
        seed: args.seed,
        gzip: !args.plain,
        bands: args.bands,
    };
    if let Err(error) = plan.write(&args.out) {
        eprintln!("survey: {error}");
        return ExitCode::from(error.problem.exit_code());
    }
    println!(
        "frames={frames}\tobjects={objects}\tlocality={:.3}\tout={}",
        objects as f64 / frames as f64,
        args.out.display()
    );
    ExitCode::SUCCESS
}
