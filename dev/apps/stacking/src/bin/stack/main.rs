//! `stack`: cuts sky objects out of survey frames and sums them; sums the partial sums; shows the
//! result. `stack index` and `stack find` say which frames show which objects.

#![forbid(unsafe_code)]

mod find;
mod index;
mod paths;
mod sum;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgGroup, CommandFactory, Parser, Subcommand};
use eyas_stacking::error::StackingError;
use eyas_stacking::frame_work::{FrameDefaults, FramePlan, FrameReport};
use eyas_stacking::hdu::HduChoice;
use eyas_stacking::lists;
use eyas_stacking::objects::ListedObject;
use eyas_stacking::profile::{BlockProfile, CodeBlock};
use eyas_stacking::report::{NotStacked, Reason, ReportRow};
use eyas_stacking::roi::Sky;
use eyas_stacking::stack::{Stack, Weighting};

/// Stack images of the sky: sum the same small region around many objects, to see what no single
/// image shows.
///
/// One object:    stack --object 150.1163,2.2058 FRAME --out partial.fits
///
/// Many objects:  stack --list objects.csv FRAME... --out partial.fits
///
/// In the end:    stack --sum partial*.fits --out stacked.fits --png stacked.png
///
/// Of a survey:   stack index FRAME... --out index, and stack find --index index ...
#[derive(Parser)]
#[command(
    version,
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<StackCommand>,
    #[command(flatten)]
    args: StackArgs,
}

#[derive(Subcommand)]
enum StackCommand {
    Index(index::IndexArgs),
    Find(find::FindArgs),
}

#[derive(clap::Args)]
#[command(group = ArgGroup::new("mode").required(true))]
struct StackArgs {
    /// Stack every object of this list that is on one of the frames: CSV, columns between spaces,
    /// or VOTable, with the columns ra and dec (degrees), and maybe band, weight and name
    #[arg(long, value_name = "LIST", group = "mode", requires = "frames")]
    list: Option<PathBuf>,
    /// Stack this one object (degrees); RA,DEC,BAND,WEIGHT,NAME says more of it
    #[arg(
        long,
        value_name = "RA,DEC",
        group = "mode",
        requires = "frames",
        allow_hyphen_values = true
    )]
    object: Option<ListedObject>,
    /// Sum partial stacks: files, directories of *.fits, or @FILE with a path on each line
    #[arg(
        long,
        value_name = "PARTIAL",
        group = "mode",
        num_args = 1..,
        conflicts_with_all = ["hdu", "band_keyword", "band"]
    )]
    sum: Vec<PathBuf>,
    /// Frames: FITS files, gzip or not, with the keywords SKY and CAL (or --sky and --cal) and a
    /// WCS; directories of them, or @FILE with a path on each line
    #[arg(value_name = "FRAME", conflicts_with = "sum")]
    frames: Vec<PathBuf>,
    /// Write the sum of the regions here; with --sum, their mean
    #[arg(long, value_name = "FITS")]
    out: Option<PathBuf>,
    /// Write a picture of the mean here
    #[arg(long, value_name = "PNG", requires = "sum")]
    png: Option<PathBuf>,
    /// Write the same picture here
    #[arg(long, value_name = "JPEG", requires = "sum")]
    jpeg: Option<PathBuf>,
    /// Edge of the region around an object, pixels
    #[arg(
        long,
        default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=8192),
        conflicts_with = "sum"
    )]
    size: u16,
    #[command(flatten)]
    images: ImageArgs,
    /// Background of frames without the keyword SKY: counts, or `median` for the median pixel of
    /// each region
    #[arg(long, value_name = "COUNTS", conflicts_with = "sum", allow_hyphen_values = true)]
    sky: Option<Sky>,
    /// Flux of one count in frames without the keyword CAL
    #[arg(long, value_name = "FLUX", conflicts_with = "sum", value_parser = flux)]
    cal: Option<f64>,
    /// Weights of the regions: `objects`, those of the list (the default), or `variance`, which
    /// also divides by the variance of each region's background
    #[arg(
        long,
        value_enum,
        default_value_t = Weights::Objects,
        hide_possible_values = true,
        hide_default_value = true,
        conflicts_with = "sum"
    )]
    weights: Weights,
    /// Write what was not stacked, with the reason, here: .json, or else CSV
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Reports of tasks and of `stack find` that --report joins: files, or directories of them
    #[arg(long, value_name = "REPORT", num_args = 1.., requires_all = ["sum", "report"])]
    reports: Vec<PathBuf>,
    /// Pass over frames and rows of the list that cannot be read; the report has them
    #[arg(long, conflicts_with = "sum")]
    keep_going: bool,
    /// Read frames to their end, not only to the last needed row, and check gzip's checksum
    #[arg(long, conflicts_with = "sum")]
    verify: bool,
    /// Print the milliseconds of each code block of the paper's section 6.4 to stderr
    #[arg(long, conflicts_with = "sum")]
    profile: bool,
}

/// Which images of the files are meant, and their bands.
#[derive(clap::Args)]
struct ImageArgs {
    /// Images of a file: `first` (the default), `all`, the number of an HDU (0 is the primary one),
    /// or a name (EXTNAME)
    #[arg(long, value_name = "HDU", default_value = "first", hide_default_value = true)]
    hdu: HduChoice,
    /// Keyword with the band of an image; FILTER by default
    #[arg(long, value_name = "KEYWORD", default_value = "FILTER", hide_default_value = true)]
    band_keyword: String,
    /// Band of images without that keyword
    #[arg(long, value_name = "BAND")]
    band: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Weights {
    Objects,
    Variance,
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
    let Cli { command, args } = Cli::parse();
    if !args.sum.is_empty() && args.report.is_some() && args.reports.is_empty() {
        let trouble = "--report of --sum joins reports of tasks: name them with --reports";
        Cli::command().error(ErrorKind::MissingRequiredArgument, trouble).exit();
    }
    let done = match command {
        Some(StackCommand::Index(args)) => index::index(&args),
        Some(StackCommand::Find(args)) => find::find(&args),
        None if args.sum.is_empty() => stack(&args),
        None => sum::sum(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stack: {error}");
            ExitCode::from(error.problem.exit_code())
        }
    }
}

/// Stacks frames and writes the partial stack. Prints one line for each image; the files are
/// written when all frames are done.
fn stack(args: &StackArgs) -> Result<(), StackingError> {
    let mut rows = Vec::new();
    let objects = match (&args.list, &args.object) {
        (Some(list), _) => read_list(list, args.keep_going, &mut rows)?,
        (None, object) => object.iter().cloned().collect(),
    };
    let plan = FramePlan {
        hdu: args.images.hdu.clone(),
        band_keyword: args.images.band_keyword.clone(),
        assumed: FrameDefaults { sky: args.sky, cal: args.cal, band: args.images.band.clone() },
        verify: args.verify,
    };
    let weighting = match args.weights {
        Weights::Objects => Weighting::Objects,
        Weights::Variance => Weighting::Variance,
    };
    let (mut profile, mut stack) =
        (BlockProfile::default(), Stack::new(args.size.into(), weighting));
    let (mut shown, mut read) = (ShownObjects::new(objects.len()), 0_u64);
    for frame in &paths::expand(&args.frames, paths::is_frame)? {
        match plan.add_frame(&mut stack, frame, &objects, &mut profile) {
            Ok(reports) => {
                read += 1;
                for report in reports {
                    let name = frame.display().to_string();
                    print_line(&report, &name);
                    rows.extend(shown.note(&objects, &report, &name));
                }
            }
            Err(error) if args.keep_going => {
                eprintln!("stack: {error}; passed over");
                stack.pass_over();
                rows.push(ReportRow::of_frame(&error));
            }
            Err(error) => return Err(error),
        }
    }
    rows.extend(shown.missing(&objects, read, stack.unreadable()));
    if let Some(out) = &args.out {
        profile.time(CodeBlock::WriteStacking, || stack.write(out))?;
    }
    if let Some(report) = &args.report {
        NotStacked { rows }.write(report)?;
    }
    if args.profile {
        eprintln!("{profile}");
    }
    Ok(())
}

/// Reads a list; with `keep_going`, rows that are no objects go to the report.
fn read_list(
    path: &std::path::Path,
    keep_going: bool,
    rows: &mut Vec<ReportRow>,
) -> Result<Vec<ListedObject>, StackingError> {
    let list = lists::read(path)?;
    if !keep_going {
        return list.strict(path);
    }
    rows.extend(list.bad.iter().map(ReportRow::of_bad_row));
    Ok(list.objects)
}

fn print_line(report: &FrameReport, frame: &str) {
    println!(
        "objects={}\tstacked={}\tskipped={}\tborder={}\tundefined={}\toutside={}\t\
         other_band={}\thdu={}\tframe={frame}",
        report.objects,
        report.stacked,
        report.border + report.undefined,
        report.border,
        report.undefined,
        report.outside,
        report.other_band,
        report.hdu,
    );
}

/// Which objects of a list the frames show.
struct ShownObjects {
    /// In their band, stacked or not.
    is_shown: Vec<bool>,
    /// In other bands, by the numbers of the objects.
    other_bands: BTreeMap<usize, BTreeSet<String>>,
}

impl ShownObjects {
    fn new(objects: usize) -> Self {
        Self { is_shown: vec![false; objects], other_bands: BTreeMap::new() }
    }

    /// Notes which objects an image shows. Returns a row for each of them that is not stacked.
    fn note(
        &mut self,
        objects: &[ListedObject],
        report: &FrameReport,
        frame: &str,
    ) -> Vec<ReportRow> {
        let mut rows = Vec::new();
        for &(number, reason) in &report.shown {
            if reason == Some(Reason::OtherBand) {
                let band = report.band.as_deref().unwrap_or("none").to_owned();
                self.other_bands.entry(number).or_default().insert(band);
                continue;
            }
            self.is_shown[number] = true;
            let row = |reason| ReportRow::of_object(&objects[number], reason);
            rows.extend(reason.map(|reason| row(reason).on(frame, report.hdu)));
        }
        rows
    }

    /// Rows about the objects that no frame shows in their band. If no frame could be read, that is
    /// the reason.
    fn missing(self, objects: &[ListedObject], read: u64, unreadable: u64) -> Vec<ReportRow> {
        let reason = if read == 0 && unreadable > 0 { Reason::Unreadable } else { Reason::Outside };
        let detail = match unreadable {
            0 => format!("frames read: {read}"),
            _ => format!("frames read: {read}, unreadable: {unreadable}"),
        };
        let mut rows = Vec::new();
        for (number, object) in objects.iter().enumerate().filter(|(at, _)| !self.is_shown[*at]) {
            rows.push(match self.other_bands.get(&number) {
                Some(bands) => {
                    let bands: Vec<&str> = bands.iter().map(String::as_str).collect();
                    ReportRow::of_object(object, Reason::OtherBand)
                        .because(format!("shown in: {}", bands.join(" ")))
                }
                None => ReportRow::of_object(object, reason).because(&*detail),
            });
        }
        rows
    }
}
