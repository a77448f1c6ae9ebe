//! `stack --sum`: from partial stacks to the final image.

use eyas_stacking::error::{FileProblem, StackingError};
use eyas_stacking::measure::Measurement;
use eyas_stacking::picture::{self, PictureFormat};
use eyas_stacking::report::NotStacked;
use eyas_stacking::stack::Stack;

use crate::{StackArgs, paths};

/// Sums partial stacks, writes the mean image and its picture, and prints a measurement of its
/// centre.
pub(crate) fn sum(args: &StackArgs) -> Result<(), StackingError> {
    let partials = paths::expand(&args.sum, paths::is_partial)?;
    // If there is nothing to show, the error names the first partial stack.
    let nothing =
        |trouble: &str| StackingError::new(&args.sum[0], FileProblem::Partial(trouble.to_owned()));
    let total = Stack::sum(&partials)?.ok_or_else(|| nothing("no partial stacks here"))?;
    let mean = total.mean().ok_or_else(|| {
        nothing("no region of interest with a weight in any of the partial stacks")
    })?;

    let mut report = NotStacked::default();
    for file in &paths::expand(&args.reports, paths::is_report)? {
        report.add_file(file)?;
    }
    if let Some(out) = &args.out {
        total.write_mean(out, &mean)?;
    }
    for (file, format) in [(&args.png, PictureFormat::Png), (&args.jpeg, PictureFormat::Jpeg)] {
        if let Some(file) = file {
            picture::write(file, &mean, format)?;
        }
    }
    if let Some(file) = &args.report {
        report.write(file)?;
    }
    print!(
        "partials={}\tstacked={}\tskipped={}\tunreadable={}\tweight={:.6e}\teffective={:.2}",
        partials.len(),
        total.summed(),
        total.skipped(),
        total.unreadable(),
        total.weight(),
        total.effective()
    );
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
