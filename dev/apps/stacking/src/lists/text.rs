//! Lists as text: CSV, or columns between spaces. Lines that begin with `#` are comments.
//!
//! The first line may name the columns. A list of numbers alone has the columns ra, dec and band.
//! Columns between spaces may be named by the last comment before them, as many programs write it.

use std::path::Path;

use crate::error::{FileProblem, ListPlace, StackingError};
use crate::objects::{ObjectColumns, ObjectList, list_error};

/// A list as text.
pub(super) struct TextList<'a> {
    path: &'a Path,
    content: &'a [u8],
}

impl<'a> TextList<'a> {
    pub(super) fn new(path: &'a Path, content: &'a [u8]) -> Self {
        Self { path, content }
    }

    pub(super) fn read(&self) -> Result<ObjectList, StackingError> {
        let lines = || self.content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let is_comment = |line: &&[u8]| line.is_empty() || line.starts_with(b"#");
        let comments = lines().take_while(is_comment).filter(|line| !line.is_empty()).last();
        let first = lines().find(|line| !is_comment(line));
        let first = first.ok_or_else(|| list_error(self.path, None, "it has no objects"))?;
        if first.contains(&b',') {
            return self.read_csv(first);
        }
        self.read_spaced(first, comments.unwrap_or_default())
    }

    /// Columns between commas. `first` is the first line that is no comment.
    fn read_csv(&self, first: &[u8]) -> Result<ObjectList, StackingError> {
        let error = |error: csv::Error| {
            let line = error.position().map(csv::Position::line);
            let trouble = match error.into_kind() {
                csv::ErrorKind::Io(error) => {
                    return StackingError::new(self.path, FileProblem::io("read")(error));
                }
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    format!("{len} fields, but the first line has {expected_len}")
                }
                other => format!("{other:?}"),
            };
            list_error(self.path, line.map(ListPlace::Line), trouble)
        };
        let has_numbers = starts_with_numbers(first.split(|&byte| byte == b','));
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .has_headers(!has_numbers)
            .from_reader(self.content);
        let columns = if has_numbers {
            ObjectColumns::TUPLE
        } else {
            let names = reader.byte_headers().map_err(error)?.clone();
            self.columns(names.iter())?
        };
        let (mut list, mut record) = (ObjectList::default(), csv::ByteRecord::new());
        while reader.read_byte_record(&mut record).map_err(error)? {
            let line = record.position().map_or(0, csv::Position::line);
            list.add(&columns, ListPlace::Line(line), |column| record.get(column).map(text));
        }
        Ok(list)
    }

    /// Columns between spaces. `comment` is the last comment before `first`.
    fn read_spaced(&self, first: &[u8], comment: &[u8]) -> Result<ObjectList, StackingError> {
        let named = words(comment.strip_prefix(b"#").unwrap_or(comment)).map(text);
        let named = ObjectColumns::named(named).ok().filter(|columns| {
            // Otherwise the first line is another header.
            let field = words(first).nth(columns.ra);
            field.is_some_and(|field| text(field).parse::<f64>().is_ok())
        });
        let has_numbers = starts_with_numbers(words(first));
        let mut columns = named.or_else(|| has_numbers.then_some(ObjectColumns::TUPLE));
        let mut list = ObjectList::default();
        for (number, line) in (1..).zip(self.content.split(|&byte| byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let fields: Vec<&[u8]> = words(line).collect();
            match &columns {
                None => columns = Some(self.columns(fields.into_iter())?),
                Some(_) if fields.len() < 2 => {
                    let trouble = "one column, but an object has ra and dec";
                    return Err(list_error(self.path, Some(ListPlace::Line(number)), trouble));
                }
                Some(columns) => {
                    list.add(columns, ListPlace::Line(number), |column| {
                        fields.get(column).map(|field| text(field))
                    });
                }
            }
        }
        Ok(list)
    }

    fn columns<'b>(
        &self,
        names: impl Iterator<Item = &'b [u8]> + Clone,
    ) -> Result<ObjectColumns, StackingError> {
        ObjectColumns::named(names.map(text)).map_err(|missing| {
            let trouble = format!("no column '{missing}' in its header");
            list_error(self.path, Some(ListPlace::Line(1)), trouble)
        })
    }
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn text(field: &[u8]) -> &str {
    std::str::from_utf8(field).unwrap_or("(not UTF-8)")
}

/// Whether the first two fields are numbers.
fn starts_with_numbers<'a>(fields: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut first = fields.take(2).map(|field| text(field).trim().parse::<f64>().is_ok());
    first.next() == Some(true) && first.next() == Some(true)
}
