//! Which frames of a survey show which objects of a list, and why none shows the others.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::error::FileProblem;
use crate::index::{FrameIndex, IndexedImage};
use crate::objects::ListedObject;
use crate::report::{Reason, ReportRow};
use crate::roi::Placement;

/// Pairs of an object and a frame that may show it. Lists with more must be cut.
const MAX_PAIRS: usize = 400_000_000;

/// An object, and an image that shows its whole region. Numbers in the list and in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// The image.
    pub image: u32,
    /// The object.
    pub object: u32,
}

/// What a look-up has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// By images, then by objects.
    pub hits: Vec<Hit>,
    /// Objects with a hit.
    pub found: usize,
    /// The objects without one, in their order.
    pub not_found: Vec<ReportRow>,
}

/// A look-up.
struct Search<'a> {
    index: &'a FrameIndex,
    objects: &'a [ListedObject],
    /// Edge of the regions, pixels.
    size: usize,
    /// The number of each band.
    bands: HashMap<&'a str, u32>,
    /// The number of the band of each image.
    band_of_image: Vec<Option<u32>>,
}

/// Finds the images that show each object of `objects` with its region of `size` pixels. A problem
/// is of the index, or of the list if it is a [`FileProblem::List`].
pub fn find(
    index: &FrameIndex,
    objects: &[ListedObject],
    size: usize,
) -> Result<Found, FileProblem> {
    let mut bands = HashMap::new();
    let mut band_of_image = Vec::with_capacity(index.images().len());
    for image in index.images() {
        let next = bands.len() as u32;
        let band = image.band.as_deref();
        band_of_image.push(band.map(|band| *bands.entry(band).or_insert(next)));
    }
    let search = Search { index, objects, size, bands, band_of_image };
    search.run()
}

/// An index with an image that no frame had.
fn damaged(image: &IndexedImage, problem: &FileProblem) -> FileProblem {
    FileProblem::Index(format!("{}: {problem}; make it again with `stack index`", image.frame))
}

impl Search<'_> {
    fn run(&self) -> Result<Found, FileProblem> {
        let everything = (0..self.objects.len() as u32).collect();
        let pairs = self.pairs(everything, false)?;
        let (hits, borders) = self.try_pairs(&pairs)?;
        let mut is_found = vec![false; self.objects.len()];
        hits.iter().for_each(|hit| is_found[hit.object as usize] = true);
        // The first image whose border cuts the region of an object.
        let mut cut_by: HashMap<u32, u32> = HashMap::new();
        for hit in borders {
            cut_by.entry(hit.object).or_insert(hit.image);
        }
        let missing: Vec<u32> =
            (0..self.objects.len() as u32).filter(|&object| !is_found[object as usize]).collect();
        // Only those that no image of their band shows may be in other bands.
        let elsewhere: Vec<u32> = missing
            .iter()
            .copied()
            .filter(|object| {
                let band = self.objects[*object as usize].band.as_deref();
                band.is_some_and(|band| self.bands.contains_key(band))
                    && !cut_by.contains_key(object)
            })
            .collect();
        let mut other_bands: HashMap<u32, BTreeSet<&str>> = HashMap::new();
        let (whole, cut) = self.try_pairs(&self.pairs(elsewhere, true)?)?;
        for hit in whole.into_iter().chain(cut) {
            let band = self.index.images()[hit.image as usize].band.as_deref();
            other_bands.entry(hit.object).or_default().insert(band.unwrap_or("none"));
        }
        let row = |&object: &u32| self.row(object, cut_by.get(&object), other_bands.get(&object));
        let not_found: Vec<ReportRow> = missing.iter().map(row).collect();
        Ok(Found { hits, found: self.objects.len() - missing.len(), not_found })
    }

    fn row(
        &self,
        number: u32,
        cut_by: Option<&u32>,
        other_bands: Option<&BTreeSet<&str>>,
    ) -> ReportRow {
        let object = &self.objects[number as usize];
        let row = |reason| ReportRow::of_object(object, reason);
        if let Some(&image) = cut_by {
            let image = &self.index.images()[image as usize];
            return row(Reason::Border).on(&image.frame, image.hdu);
        }
        if object.band.as_deref().is_some_and(|band| !self.bands.contains_key(band)) {
            let mut known: Vec<&str> = self.bands.keys().copied().collect();
            known.sort_unstable();
            return row(Reason::NoSuchBand).because(match known.is_empty() {
                true => "no image of the index has a band: see --band-keyword".to_owned(),
                false => format!("bands: {}", known.join(" ")),
            });
        }
        match other_bands {
            Some(bands) => {
                let bands: Vec<&str> = bands.iter().copied().collect();
                row(Reason::OtherBand).because(format!("shown in: {}", bands.join(" ")))
            }
            None => row(Reason::NotCovered),
        }
    }

    /// Pairs of objects and images that may show them, by images: those of the object's band, or
    /// of any other band.
    fn pairs(&self, wanted: Vec<u32>, other: bool) -> Result<Vec<Hit>, FileProblem> {
        // Neighbours on the sky are looked up together, as they need the same part of the index.
        let place = |object: u32| self.objects[object as usize].place;
        let mut keyed: Vec<(u64, u32)> =
            wanted.into_iter().map(|object| (FrameIndex::cell(place(object)), object)).collect();
        keyed.sort_unstable();
        let mut pairs = Vec::new();
        for (cell, object) in keyed {
            let band = self.objects[object as usize].band.as_deref();
            let number = band.map(|band| self.bands.get(band).copied());
            let fits = |image: &u32| match number {
                None => true,
                Some(number) => {
                    let own = self.band_of_image[*image as usize];
                    (number.is_some() && own == number) != other
                }
            };
            pairs.extend(
                self.index.candidates(cell).filter(fits).map(|image| Hit { image, object }),
            );
            if pairs.len() > MAX_PAIRS {
                let trouble = format!("more than {MAX_PAIRS} pairs with frames: cut the list");
                return Err(FileProblem::List { place: None, trouble });
            }
        }
        pairs.sort_unstable();
        Ok(pairs)
    }

    /// The pairs whose image shows the whole region, and those whose border cuts it. Threads share
    /// the pairs.
    fn try_pairs(&self, pairs: &[Hit]) -> Result<(Vec<Hit>, Vec<Hit>), FileProblem> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut starts: Vec<usize> = (0..=threads).map(|at| pairs.len() * at / threads).collect();
        // The pairs of an image stay together.
        for start in &mut starts[1..threads] {
            while *start > 0
                && *start < pairs.len()
                && pairs[*start - 1].image == pairs[*start].image
            {
                *start += 1;
            }
        }
        let parts = starts.windows(2).map(|part| part[0]..part[1]);
        let tried: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = parts
                .map(|part: Range<usize>| scope.spawn(move || self.try_part(&pairs[part])))
                .collect();
            running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let (mut hits, mut borders) = (Vec::new(), Vec::new());
        for part in tried {
            let (whole, cut) = part?;
            hits.extend(whole);
            borders.extend(cut);
        }
        Ok((hits, borders))
    }

    fn try_part(&self, pairs: &[Hit]) -> Result<(Vec<Hit>, Vec<Hit>), FileProblem> {
        let (mut hits, mut borders) = (Vec::new(), Vec::new());
        for of_image in pairs.chunk_by(|one, other| one.image == other.image) {
            let image = &self.index.images()[of_image[0].image as usize];
            let projection = image.projection().map_err(|problem| damaged(image, &problem))?;
            for &hit in of_image {
                let place = self.objects[hit.object as usize].place;
                match Placement::of(&projection, place, self.size, image.width, image.height) {
                    Placement::Whole(_) => hits.push(hit),
                    Placement::Border => borders.push(hit),
                    Placement::Outside => {}
                }
            }
        }
        Ok((hits, borders))
    }
}
