//! Lists of sky objects: CSV with a header and the columns `ra` and `dec` in degrees. Other columns
//! are ignored.

use std::path::Path;
use std::str::FromStr;

use crate::error::{FileProblem, StackingError};

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

/// `RA,DEC` in degrees, as on the command line.
impl FromStr for SkyObject {
    type Err = SkyObjectError;

    fn from_str(text: &str) -> Result<Self, SkyObjectError> {
        let (ra, dec) = text.split_once(',').ok_or(SkyObjectError::Form)?;
        Self::parse(ra, dec)
    }
}

/// Reads the list in `path`.
pub fn read(path: &Path) -> Result<Vec<SkyObject>, StackingError> {
    let csv_error = |error: csv::Error| {
        let line = error.position().map(csv::Position::line);
        StackingError::new(
            path,
            match error.into_kind() {
                csv::ErrorKind::Io(error) => FileProblem::Io { action: "read", error },
                other => FileProblem::List { line, trouble: format!("{other:?}") },
            },
        )
    };
    let list_error = |line, trouble| StackingError::new(path, FileProblem::List { line, trouble });

    let mut reader =
        csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(csv_error)?;
    let header = reader.byte_headers().map_err(csv_error)?;
    let column = |name: &str| {
        header
            .iter()
            .position(|column| column.eq_ignore_ascii_case(name.as_bytes()))
            .ok_or_else(|| list_error(Some(1), format!("no column '{name}' in its header")))
    };
    let (ra, dec) = (column("ra")?, column("dec")?);

    let mut objects = Vec::new();
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(csv_error)? {
        let line = record.position().map(csv::Position::line);
        let field = |column| std::str::from_utf8(&record[column]).unwrap_or("(not UTF-8)");
        objects.push(
            SkyObject::parse(field(ra), field(dec))
                .map_err(|error| list_error(line, error.to_string()))?,
        );
    }
    Ok(objects)
}
