//! Sky objects, and lists of them, which [`lists`](crate::lists) reads.
//!
//! An object is the paper's tuple {ra dec band}, and may have a weight and a name. Rows with a
//! position that is none are collected, with the reason: the caller says whether they are an error.

use std::path::Path;
use std::str::FromStr;

use crate::error::{FileProblem, ListPlace, StackingError};

/// A place on the sky, ICRS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkyObject {
    /// Right ascension, degrees, from 0 up to 360.
    pub ra: f64,
    /// Declination, degrees, -90 to 90.
    pub dec: f64,
}

/// A text is not the position of a sky object.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SkyObjectError {
    /// There is no comma.
    #[error("give RA,DEC in degrees, such as 150.1163,2.2058")]
    Form,
    /// A coordinate is not a number in its range.
    #[error("{axis} '{text}' is not from {min} to {max} degrees")]
    Coordinate {
        /// `ra` or `dec`.
        axis: &'static str,
        /// The coordinate.
        text: String,
        /// The smallest value.
        min: f64,
        /// The largest value.
        max: f64,
    },
    /// The weight is no number, or is negative.
    #[error("weight '{0}' is not a number from 0 up")]
    Weight(String),
}

impl SkyObject {
    fn parse(ra: &str, dec: &str) -> Result<Self, SkyObjectError> {
        let degrees = |axis, text: &str, min, max| match text.trim().parse::<f64>() {
            Ok(value) if (min..=max).contains(&value) => Ok(value),
            _ => Err(SkyObjectError::Coordinate { axis, text: text.to_owned(), min, max }),
        };
        Ok(Self { ra: degrees("ra", ra, 0.0, 360.0)?, dec: degrees("dec", dec, -90.0, 90.0)? })
    }
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedObject {
    /// Its place.
    pub place: SkyObject,
    /// The band to look for it in; any band if there is none.
    pub band: Option<Box<str>>,
    /// Its weight in the sum, 0 or more.
    pub weight: f64,
    /// Its name, if the list has names.
    pub name: Option<Box<str>>,
}

impl From<SkyObject> for ListedObject {
    fn from(place: SkyObject) -> Self {
        Self { place, band: None, weight: 1.0, name: None }
    }
}

/// `RA,DEC[,BAND[,WEIGHT[,NAME]]]`, as on the command line. Band, weight and name may be empty, and
/// the name may have commas.
impl FromStr for ListedObject {
    type Err = SkyObjectError;

    fn from_str(text: &str) -> Result<Self, SkyObjectError> {
        let mut fields = text.splitn(5, ',');
        let (Some(ra), Some(dec)) = (fields.next(), fields.next()) else {
            return Err(SkyObjectError::Form);
        };
        let place = SkyObject::parse(ra, dec)?;
        let mut field = || fields.next().map(str::trim).filter(|field| !field.is_empty());
        let band = field().map(Box::from);
        let weight = field().map_or(Ok(1.0), weight)?;
        Ok(Self { place, band, weight, name: field().map(Box::from) })
    }
}

/// A weight from zero up.
fn weight(text: &str) -> Result<f64, SkyObjectError> {
    match text.parse::<f64>() {
        Ok(weight) if weight.is_finite() && weight >= 0.0 => Ok(weight),
        _ => Err(SkyObjectError::Weight(text.to_owned())),
    }
}

/// A row of a list that is no object.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRow {
    /// Where it is in the list.
    pub place: ListPlace,
    /// The name in it, if there is one.
    pub name: Option<Box<str>>,
    /// Right ascension, declination and band as they are written.
    pub written: [String; 3],
    /// The mistake.
    pub error: SkyObjectError,
}

/// A list of objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectList {
    /// Its objects, in their order.
    pub objects: Vec<ListedObject>,
    /// Rows that are no objects.
    pub bad: Vec<BadRow>,
}

impl ObjectList {
    /// Refuses a list with bad rows; the error names the first one.
    pub fn strict(self, path: &Path) -> Result<Vec<ListedObject>, StackingError> {
        match self.bad.into_iter().next() {
            None => Ok(self.objects),
            Some(bad) => {
                let trouble = format!("{}; --keep-going passes over such rows", bad.error);
                Err(list_error(path, Some(bad.place), trouble))
            }
        }
    }
}

/// An error of the list in `path`.
pub(crate) fn list_error(
    path: &Path,
    place: Option<ListPlace>,
    trouble: impl Into<String>,
) -> StackingError {
    StackingError::new(path, FileProblem::List { place, trouble: trouble.into() })
}

/// The columns of a list that have a meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectColumns {
    pub(crate) ra: usize,
    pub(crate) dec: usize,
    pub(crate) band: Option<usize>,
    pub(crate) weight: Option<usize>,
    pub(crate) name: Option<usize>,
}

/// Names of the columns, in lower case. Those of VizieR are among them.
const RA: [&str; 5] = ["ra", "raj2000", "_raj2000", "ra_icrs", "ra_deg"];
const DEC: [&str; 7] = ["dec", "decj2000", "_dej2000", "dej2000", "de_icrs", "dec_icrs", "dec_deg"];
const BAND: [&str; 2] = ["band", "filter"];
const WEIGHT: [&str; 1] = ["weight"];
const NAME: [&str; 5] = ["name", "id", "main_id", "source_id", "objid"];

impl ObjectColumns {
    /// The columns of a list without a header: the tuple {ra dec band}.
    pub(crate) const TUPLE: Self = Self { ra: 0, dec: 1, band: Some(2), weight: None, name: None };

    /// The columns with these names; an error says which one is missing.
    pub(crate) fn named<'a>(
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Self, &'static str> {
        let find = |known: &[&str]| {
            // The first known name counts, wherever it stands.
            known.iter().find_map(|known| {
                names.clone().position(|name| name.trim().eq_ignore_ascii_case(known))
            })
        };
        Ok(Self {
            ra: find(&RA).ok_or("ra")?,
            dec: find(&DEC).ok_or("dec")?,
            band: find(&BAND),
            weight: find(&WEIGHT),
            name: find(&NAME),
        })
    }
}

impl ObjectList {
    /// Adds a row; `field` gives the text of a column, and nothing for a column that the row lacks.
    pub(crate) fn add<'a>(
        &mut self,
        columns: &ObjectColumns,
        place: ListPlace,
        field: impl Fn(usize) -> Option<&'a str>,
    ) {
        let text = |column: Option<usize>| {
            column.and_then(&field).map(str::trim).filter(|text| !text.is_empty())
        };
        let (ra, dec) = (field(columns.ra).unwrap_or(""), field(columns.dec).unwrap_or(""));
        let (band, name) = (text(columns.band), text(columns.name).map(Box::from));
        let weight = text(columns.weight).map_or(Ok(1.0), weight);
        match SkyObject::parse(ra, dec).and_then(|object| Ok((object, weight?))) {
            Ok((object, weight)) => {
                let band = band.map(Box::from);
                self.objects.push(ListedObject { place: object, band, weight, name });
            }
            Err(error) => {
                let written = [ra, dec, band.unwrap_or("")].map(|text| text.trim().to_owned());
                self.bad.push(BadRow { place, name, written, error });
            }
        }
    }
}
