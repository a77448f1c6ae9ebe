//! What was not stacked, and why: a file for programs, as CSV or JSON.
//!
//! The paper's result page counts the objects that the survey does not show, and the data that
//! could not be read, with their addresses (section 6.2). A row is about an object, or about a
//! frame that cannot be read.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{FileProblem, StackingError};
use crate::objects::{BadRow, ListedObject};
use crate::output;

/// Why an object is not in a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The row of the list has no position on the sky, or a weight that is none.
    BadPosition,
    /// No frame has this band.
    NoSuchBand,
    /// Frames show it, but none of its band.
    OtherBand,
    /// No frame of the index shows it.
    NotCovered,
    /// It is on none of the frames that were read.
    Outside,
    /// The border of the frame cuts its region.
    Border,
    /// Its region has undefined pixels.
    Undefined,
    /// The frame cannot be read.
    Unreadable,
}

impl Reason {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Reason::BadPosition => "bad_position",
            Reason::NoSuchBand => "no_such_band",
            Reason::OtherBand => "other_band",
            Reason::NotCovered => "not_covered",
            Reason::Outside => "outside",
            Reason::Border => "border",
            Reason::Undefined => "undefined",
            Reason::Unreadable => "unreadable",
        }
    }
}

/// A row of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    name: String,
    #[serde(serialize_with = "number_if_it_is_one", deserialize_with = "number_as_text")]
    ra: String,
    #[serde(serialize_with = "number_if_it_is_one", deserialize_with = "number_as_text")]
    dec: String,
    band: String,
    frame: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hdu: Option<usize>,
    reason: Reason,
    detail: String,
}

/// JSON has positions as numbers; what is none stays a text.
fn number_if_it_is_one<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => serializer.serialize_f64(number),
        _ => serializer.serialize_str(text),
    }
}

/// The reverse of it.
fn number_as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Coordinate {
        Number(f64),
        Text(String),
    }
    Ok(match Coordinate::deserialize(deserializer)? {
        Coordinate::Number(number) => number.to_string(),
        Coordinate::Text(text) => text,
    })
}

impl ReportRow {
    /// A row about an object.
    pub fn of_object(object: &ListedObject, reason: Reason) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or_default().to_owned();
        Self {
            name: text(&object.name),
            ra: object.place.ra.to_string(),
            dec: object.place.dec.to_string(),
            band: text(&object.band),
            frame: String::new(),
            hdu: None,
            reason,
            detail: String::new(),
        }
    }

    /// A row about a row of a list that is no object.
    pub fn of_bad_row(bad: &BadRow) -> Self {
        let [ra, dec, band] = bad.written.clone();
        Self {
            name: bad.name.as_deref().unwrap_or_default().to_owned(),
            ra,
            dec,
            band,
            frame: String::new(),
            hdu: None,
            reason: Reason::BadPosition,
            detail: format!("{}: {}", bad.place, bad.error),
        }
    }

    /// A row about a frame that cannot be read.
    pub fn of_frame(error: &StackingError) -> Self {
        Self {
            name: String::new(),
            ra: String::new(),
            dec: String::new(),
            band: String::new(),
            frame: error.path.display().to_string(),
            hdu: None,
            reason: Reason::Unreadable,
            detail: error.problem.to_string(),
        }
    }

    /// On this image.
    pub fn on(self, frame: &str, hdu: usize) -> Self {
        Self { frame: frame.to_owned(), hdu: Some(hdu), ..self }
    }

    /// With this detail.
    pub fn because(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }
}

/// What was not stacked.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NotStacked {
    /// The rows, in the order of the list and the frames.
    pub rows: Vec<ReportRow>,
}

/// The file as JSON.
#[derive(Serialize, Deserialize)]
struct ReportFile<'a> {
    version: u32,
    not_stacked: Cow<'a, [ReportRow]>,
}

/// The version of the file as JSON.
const VERSION: u32 = 1;

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
}

impl NotStacked {
    /// Adds the rows of the report in `path`, as [`NotStacked::write`] writes it.
    pub fn add_file(&mut self, path: &Path) -> Result<(), StackingError> {
        let error = |problem| StackingError::new(path, problem);
        let unusable = |trouble: String| error(FileProblem::Report(trouble));
        let bytes = std::fs::read(path).map_err(|io| error(FileProblem::io("read")(io)))?;
        if is_json(path) {
            let file: ReportFile<'_> =
                serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))?;
            if file.version != VERSION {
                return Err(unusable(format!("its version is {}, not {VERSION}", file.version)));
            }
            self.rows.extend(file.not_stacked.into_owned());
            return Ok(());
        }
        for row in csv::Reader::from_reader(&*bytes).deserialize() {
            self.rows.push(row.map_err(|error| unusable(error.to_string()))?);
        }
        Ok(())
    }

    /// Writes the report to `path`: JSON if its name ends in `.json`, or else CSV.
    pub fn write(&self, path: &Path) -> Result<(), StackingError> {
        let bytes = if is_json(path) { self.json() } else { self.csv() };
        let bytes =
            bytes.map_err(|error| StackingError::new(path, FileProblem::io("write")(error)))?;
        output::write_whole(path, &bytes)
    }

    fn json(&self) -> std::io::Result<Vec<u8>> {
        let file = ReportFile { version: VERSION, not_stacked: Cow::Borrowed(&self.rows) };
        let mut bytes = serde_json::to_vec_pretty(&file)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn csv(&self) -> std::io::Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["name", "ra", "dec", "band", "frame", "hdu", "reason", "detail"])?;
        for row in &self.rows {
            let hdu = row.hdu.map(|hdu| hdu.to_string()).unwrap_or_default();
            let fields = [&row.name, &row.ra, &row.dec, &row.band, &row.frame, &hdu];
            let fields = fields.map(String::as_str).into_iter();
            writer.write_record(fields.chain([row.reason.name(), &row.detail]))?;
        }
        writer.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}
