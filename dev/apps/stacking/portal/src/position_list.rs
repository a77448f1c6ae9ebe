//! Positions of a list, and what is wrong with rows that are none.
//!
//! A text that is no number is an error that names the line: the list is not what its author means.
//! A number that is no place of the sky, such as NaN of a row without a position in a catalogue, is
//! an object that is not found: the others are stacked.

use serde::{Deserialize, Serialize};

/// Positions of a list.
pub const MAX_POSITIONS: usize = 100_000;
/// Longest name of an object, bytes.
const MAX_OBJECT_NAME_BYTES: usize = 100;
/// Longest name of a band, bytes.
const MAX_BAND_BYTES: usize = 32;

/// Names of the columns with right ascension, declination, names, bands and weights, in lower case.
const RA: &[&str] = &["ra", "raj2000", "_raj2000", "ra_icrs", "ra_deg", "s_ra"];
const DEC: &[&str] =
    &["dec", "de", "dej2000", "_dej2000", "decj2000", "de_icrs", "dec_deg", "s_dec"];
const NAME: &[&str] = &["name", "id", "main_id", "objid", "object", "source_id"];
const BAND: &[&str] = &["band", "filter"];
const WEIGHT: &[&str] = &["weight"];

/// A place of the sky, ICRS, degrees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Number of the row in the list, from 1, without the header.
    pub row: usize,
    /// The name that the list gives it.
    pub name: Option<String>,
    pub ra: f64,
    pub dec: f64,
    pub band: Option<String>,
    pub weight: Option<f64>,
}

/// A row of a list that is no place of the sky.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffSky {
    pub row: usize,
    pub name: Option<String>,
    pub ra: String,
    pub dec: String,
    pub reason: String,
}

/// A list that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PositionList {
    pub positions: Vec<Position>,
    pub off_sky: Vec<OffSky>,
}

/// Why a list cannot be read, and what to write.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ListError {
    #[error("the list has no positions: write RA and Dec in degrees, one object on each line")]
    Empty,
    #[error("the list has more than {MAX_POSITIONS} positions: stack it in parts")]
    TooLong,
    #[error("the list is not UTF-8 text: save it as CSV, plain text or VOTable")]
    NotText,
    #[error("the list has no column for {0}: name its columns `ra` and `dec`")]
    NoColumn(&'static str),
    #[error("line {line} of the list: {trouble}")]
    Line { line: usize, trouble: String },
    #[error("the VOTable cannot be read: {0}")]
    VoTable(String),
}

/// Which column has what.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    ra: usize,
    dec: usize,
    name: Option<usize>,
    band: Option<usize>,
    weight: Option<usize>,
}

impl Columns {
    /// The columns by their names.
    pub fn named(names: &[String]) -> Result<Self, ListError> {
        Columns::with_places(names, None, None)
    }

    /// The columns by their names; those of RA and Dec may be known otherwise.
    pub fn with_places(
        names: &[String],
        ra: Option<usize>,
        dec: Option<usize>,
    ) -> Result<Self, ListError> {
        let find = |known: &[&str]| {
            let is_known = |name: &String| known.contains(&&*name.trim().to_lowercase());
            names.iter().position(is_known)
        };
        Ok(Columns {
            ra: ra.or_else(|| find(RA)).ok_or(ListError::NoColumn("right ascension"))?,
            dec: dec.or_else(|| find(DEC)).ok_or(ListError::NoColumn("declination"))?,
            name: find(NAME),
            band: find(BAND),
            weight: find(WEIGHT),
        })
    }

    /// The columns of RA and Dec.
    pub fn places(&self) -> [usize; 2] {
        [self.ra, self.dec]
    }

    /// The columns of a list without a header: `ra dec`, then perhaps a band.
    pub fn unnamed(count: usize) -> Self {
        let band = (count > 2).then_some(2);
        Columns { ra: 0, dec: 1, name: None, band, weight: None }
    }
}

impl PositionList {
    /// Adds a row. `line` is its line in the file, for messages.
    pub fn add(
        &mut self,
        columns: &Columns,
        fields: &[&str],
        line: usize,
    ) -> Result<(), ListError> {
        let fail = |trouble: String| ListError::Line { line, trouble };
        let row = self.positions.len() + self.off_sky.len() + 1;
        if row > MAX_POSITIONS {
            return Err(ListError::TooLong);
        }
        let field = |at: usize| fields.get(at).map(|field| field.trim());
        let some = |at: Option<usize>| field(at?).filter(|field| !field.is_empty());
        let (Some(ra_text), Some(dec_text)) = (field(columns.ra), field(columns.dec)) else {
            return Err(fail("it has fewer columns than RA and Dec need".into()));
        };
        let (ra, dec) = (degrees(ra_text).map_err(fail)?, degrees(dec_text).map_err(fail)?);
        let name = some(columns.name).map(|name| cut(name, MAX_OBJECT_NAME_BYTES));
        let reason = reason_off_sky(ra, dec);
        if let Some(reason) = reason {
            let (ra, dec) = (cut(ra_text, 40), cut(dec_text, 40));
            self.off_sky.push(OffSky { row, name, ra, dec, reason });
            return Ok(());
        }
        let band = some(columns.band).map(str::to_owned);
        if let Some(band) = band.as_ref().filter(|band| !is_band(band)) {
            return Err(fail(format!("`{}` cannot be the name of a band", cut(band, 40))));
        }
        let weight = match some(columns.weight) {
            None => None,
            Some(text) => match text.parse::<f64>() {
                Ok(weight) if weight.is_finite() && weight > 0.0 => Some(weight),
                _ => {
                    let text = cut(text, 40);
                    return Err(fail(format!("the weight `{text}` is not a number above 0")));
                }
            },
        };
        self.positions.push(Position { row, name, ra, dec, band, weight });
        Ok(())
    }
}

/// Whether a text can be the name of a band: it becomes a word of a command.
pub fn is_band(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
    (1..=MAX_BAND_BYTES).contains(&text.len())
        && !text.starts_with('-')
        && text.chars().all(is_plain)
}

fn degrees(text: &str) -> Result<f64, String> {
    match text {
        // An empty cell of a catalogue.
        "" | "--" | "null" | "NULL" => Ok(f64::NAN),
        _ => text.parse().map_err(|_| {
            format!("`{}` is not a number: write RA and Dec in degrees", cut(text, 40))
        }),
    }
}

fn reason_off_sky(ra: f64, dec: f64) -> Option<String> {
    if ra.is_nan() || dec.is_nan() {
        return Some("the row has no position".into());
    }
    if !(0.0..=360.0).contains(&ra) {
        return Some("right ascension is not from 0 to 360 degrees".into());
    }
    let is_off = !(-90.0..=90.0).contains(&dec);
    is_off.then(|| "declination is not from -90 to 90 degrees".into())
}

/// The first bytes of a text, whole characters, without control characters.
pub fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
