//! The sum of many ROIs, and its file.
//!
//! A stack is kept as a weighted sum and the sum of the weights, never as a mean, so that partial
//! stacks of any tasks in any order add up to the same image. Its file is a FITS image of doubles
//! with the keywords NSTACK (ROIs summed), NSKIP (ROIs left out), NUNREAD (frames passed over),
//! WEIGHT and WEIGHT2 (sums of the weights and of their squares), WEIGHTS (what they are) and
//! STACKOP ('SUM', or 'MEAN' for the final image).

use std::path::Path;

use crate::error::{FileProblem, StackingError};
use crate::fits_read::FitsFile;
use crate::fits_write::Cards;
use crate::output;

/// A square image of doubles, row after row; the object is at pixel `size / 2` in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Edge, pixels.
    pub size: usize,
    /// `size * size` values, flux per pixel.
    pub pixels: Vec<f64>,
}

/// What decides on the weight of an ROI, beside the weight of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weighting {
    /// Nothing else.
    #[default]
    Objects,
    /// The inverse of the variance of its background pixels.
    Variance,
}

impl Weighting {
    fn name(self) -> &'static str {
        match self {
            Weighting::Objects => "OBJECTS",
            Weighting::Variance => "VARIANCE",
        }
    }
}

/// A sum of ROIs.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    image: Image,
    summed: u64,
    skipped: u64,
    unreadable: u64,
    /// The sum of the weights, and of their squares.
    weights: [f64; 2],
    weighting: Weighting,
}

impl Stack {
    /// An empty stack of ROIs whose edge is `size` pixels.
    pub fn new(size: usize, weighting: Weighting) -> Self {
        let image = Image { size, pixels: vec![0.0; size * size] };
        Self { image, summed: 0, skipped: 0, unreadable: 0, weights: [0.0; 2], weighting }
    }

    /// ROIs summed.
    pub fn summed(&self) -> u64 {
        self.summed
    }

    /// ROIs left out: cut by a border, or with undefined pixels.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Frames that could not be read, and were passed over.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The sum of the weights.
    pub fn weight(&self) -> f64 {
        self.weights[0]
    }

    /// The number of ROIs of equal weight whose mean has the same noise: (Σw)² / Σw².
    pub fn effective(&self) -> f64 {
        let [sum, squares] = self.weights;
        if squares > 0.0 { sum * sum / squares } else { 0.0 }
    }

    /// What the weights are.
    pub fn weighting(&self) -> Weighting {
        self.weighting
    }

    /// Edge of its ROIs, pixels.
    pub fn size(&self) -> usize {
        self.image.size
    }

    /// The paper's *doStacking*: adds one ROI with its weight.
    pub fn add(&mut self, roi: &[f64], weight: f64) {
        self.add_pixels(roi, weight);
        self.summed += 1;
        self.weights[0] += weight;
        self.weights[1] += weight * weight;
    }

    /// Counts ROIs that are left out.
    pub fn skip(&mut self, count: u64) {
        self.skipped += count;
    }

    /// Counts a frame that is passed over.
    pub fn pass_over(&mut self) {
        self.unreadable += 1;
    }

    /// Adds another stack of the same size.
    pub fn merge(&mut self, other: &Stack) {
        self.add_pixels(&other.image.pixels, 1.0);
        self.summed += other.summed;
        self.skipped += other.skipped;
        self.unreadable += other.unreadable;
        for (sum, more) in self.weights.iter_mut().zip(other.weights) {
            *sum += more;
        }
    }

    fn add_pixels(&mut self, pixels: &[f64], weight: f64) {
        assert_eq!(pixels.len(), self.image.pixels.len(), "ROIs of one stack are of one size");
        for (sum, pixel) in self.image.pixels.iter_mut().zip(pixels) {
            *sum += weight * pixel;
        }
    }

    /// The mean image; none if the stack is empty, or all of its weights are zero.
    pub fn mean(&self) -> Option<Image> {
        let scale = 1.0 / self.weight();
        let pixels = self.image.pixels.iter().map(|sum| sum * scale).collect();
        (self.weight() > 0.0).then_some(Image { size: self.image.size, pixels })
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
            .integer("NUNREAD", self.unreadable as i64, "frames that could not be read")
            .text("WEIGHTS", self.weighting.name(), "weights: of OBJECTS, or also VARIANCE")
            .real("WEIGHT", self.weights[0], "sum of the weights")
            .real("WEIGHT2", self.weights[1], "sum of the squares of the weights")
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
        let count = |keyword| Ok(file.optional_number(keyword)?.unwrap_or(0.0) as u64);
        let (skipped, unreadable) = (count("NSKIP")?, count("NUNREAD")?);
        let partial = |trouble: &str| file.error(FileProblem::Partial(trouble.to_owned()));
        let weighting = match file.text("WEIGHTS")? {
            None | Some("OBJECTS") => Weighting::Objects,
            Some("VARIANCE") => Weighting::Variance,
            Some(_) => return Err(partial("its WEIGHTS are neither OBJECTS nor VARIANCE")),
        };
        // Partial stacks of earlier versions have no weights: each was 1.
        let weight = |keyword| Ok(file.optional_number(keyword)?.unwrap_or(summed as f64));
        let weights = [weight("WEIGHT")?, weight("WEIGHT2")?];
        if weights.iter().any(|&weight| weight < 0.0) {
            return Err(partial("the sum of its weights is below zero"));
        }
        let unusable = partial("it has pixels that are no numbers");
        let pixels = file.rows(0..height, true)?.into_tile().convert();
        if pixels.iter().any(|pixel| !pixel.is_finite()) {
            return Err(unusable);
        }
        let image = Image { size, pixels };
        Ok(Self { image, summed, skipped, unreadable, weights, weighting })
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
                Some(total) if total.weighting != partial.weighting => {
                    let trouble = format!(
                        "its weights are of {}, those of the others of {}",
                        partial.weighting.name(),
                        total.weighting.name()
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
