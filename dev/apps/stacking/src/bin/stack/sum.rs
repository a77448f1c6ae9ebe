//! `stack --sum`: from partial stacks to the final image.

use eyas_stacking::error::{FileProblem, StackingError};
use eyas_stacking::measure::Measurement;
use eyas_stacking::picture;
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

    if let Some(out) = &args.out {
        total.write_mean(out, &mean)?;
    }
    if let Some(png) = &args.png {
        picture::write(png, &mean)?;
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
