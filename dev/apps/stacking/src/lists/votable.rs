//! Lists as VOTable (IVOA recommendation 1.5): the first table with a right ascension and a
//! declination, as TABLEDATA, BINARY2 or BINARY.
//!
//! A file with a document type is refused, as it may define entities that grow without end.
//! Positions are read in degrees and ICRS or FK5; a table that says otherwise is refused.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::error::{ListPlace, StackingError};
use crate::objects::{ObjectColumns, ObjectList, list_error};

/// Columns of a table; one with more is refused.
const MAX_COLUMNS: usize = 10_000;

/// A column.
#[derive(Debug)]
struct TableField {
    name: String,
    ucd: String,
    unit: String,
    reference: String,
    datatype: String,
    /// Items of a value; none if each value says it.
    items: Option<usize>,
}

/// How many bytes an item of a type has; for `bit`, the number is of bits.
fn item_bytes(datatype: &str) -> Option<usize> {
    Some(match datatype {
        "boolean" | "unsignedByte" | "char" => 1,
        "short" | "unicodeChar" => 2,
        "int" | "float" => 4,
        "long" | "double" | "floatComplex" => 8,
        "doubleComplex" => 16,
        _ => return None,
    })
}

/// The state of reading.
struct VoTable<'a> {
    path: &'a Path,
    xml: Reader<&'a [u8]>,
    fields: Vec<TableField>,
    systems: HashMap<String, String>,
}

pub(super) fn read(path: &Path, content: &[u8]) -> Result<ObjectList, StackingError> {
    let content = std::str::from_utf8(content)
        .map_err(|error| list_error(path, None, format!("VOTable that is not UTF-8: {error}")))?;
    let xml = Reader::from_str(content);
    VoTable { path, xml, fields: Vec::new(), systems: HashMap::new() }.read()
}

impl VoTable<'_> {
    fn error(&self, row: Option<u64>, trouble: impl Into<String>) -> StackingError {
        list_error(self.path, row.map(ListPlace::Row), trouble)
    }

    fn event(&mut self) -> Result<Event<'static>, StackingError> {
        match self.xml.read_event() {
            Ok(Event::DocType(_)) => {
                Err(self.error(None, "a document type (<!DOCTYPE …>) is not accepted in a VOTable"))
            }
            Ok(event) => Ok(event.into_owned()),
            Err(error) => {
                let place = self.xml.error_position();
                Err(self.error(None, format!("bad XML at byte {place}: {error}")))
            }
        }
    }

    fn read(mut self) -> Result<ObjectList, StackingError> {
        let mut binary = None;
        loop {
            let (element, is_open) = match self.event()? {
                Event::Start(element) => (element, true),
                Event::Empty(element) => (element, false),
                Event::Eof => return Err(self.error(None, "no table with the columns ra and dec")),
                _ => continue,
            };
            match element.local_name().as_ref() {
                "COOSYS" => {
                    let (id, system) = (value(&element, "ID"), value(&element, "system"));
                    self.systems.insert(id, system);
                }
                "TABLE" => self.fields.clear(),
                "FIELD" => self.add_field(&element)?,
                "TABLEDATA" if is_open => {
                    if let Some(columns) = self.columns()? {
                        return self.rows(&columns);
                    }
                }
                "BINARY" => binary = Some(false),
                "BINARY2" => binary = Some(true),
                "STREAM" => {
                    let Some(has_flags) = binary else {
                        let trouble = "data in FITS: write the table as TABLEDATA or BINARY2";
                        return Err(self.error(None, trouble));
                    };
                    if let Some(columns) = self.columns()? {
                        return self.stream(&element, &columns, has_flags);
                    }
                }
                _ => {}
            }
        }
    }

    fn add_field(&mut self, element: &BytesStart<'_>) -> Result<(), StackingError> {
        if self.fields.len() == MAX_COLUMNS {
            return Err(self.error(None, format!("more than {MAX_COLUMNS} columns")));
        }
        let arraysize = value(element, "arraysize");
        // The last of several dimensions may vary: 8x*, or 64* for at most 64.
        let items = if arraysize.ends_with('*') {
            None
        } else {
            let lengths = arraysize.split('x').filter(|length| !length.is_empty());
            let mut lengths = lengths.map(|length| length.parse::<usize>().ok());
            let product = lengths.try_fold(1_usize, |product, length| product.checked_mul(length?));
            Some(product.ok_or_else(|| self.error(None, format!("arraysize '{arraysize}'")))?)
        };
        let name = value(element, "name");
        let name = if name.is_empty() { value(element, "ID") } else { name };
        self.fields.push(TableField {
            name,
            ucd: value(element, "ucd").to_ascii_lowercase(),
            unit: value(element, "unit"),
            reference: value(element, "ref"),
            datatype: value(element, "datatype"),
            items,
        });
        Ok(())
    }

    /// The columns of the table whose fields have been read: by name, or else by what they contain
    /// (UCD). None if this is no table of positions.
    fn columns(&self) -> Result<Option<ObjectColumns>, StackingError> {
        let main = |begin: &str| {
            let is = |ucd: &str| self.fields.iter().position(|field| field.ucd == ucd);
            is(&format!("{begin};meta.main")).or_else(|| is(begin))
        };
        let names = self.fields.iter().map(|field| field.name.as_str());
        let columns = match (ObjectColumns::named(names.clone()), main("pos.eq.ra")) {
            (Ok(columns), _) => columns,
            (Err(_), Some(ra)) => {
                let Some(dec) = main("pos.eq.dec") else { return Ok(None) };
                // The other columns are those of these names.
                let names = self.fields.iter().enumerate().map(|(at, field)| match at {
                    _ if at == ra => "ra",
                    _ if at == dec => "dec",
                    _ => field.name.as_str(),
                });
                ObjectColumns::named(names).unwrap_or(ObjectColumns::TUPLE)
            }
            (Err(_), None) => return Ok(None),
        };
        for column in [columns.ra, columns.dec] {
            let field = &self.fields[column];
            if !matches!(field.unit.as_str(), "" | "deg" | "degree" | "degrees") {
                let trouble = format!("'{}' is in '{}', should be in deg", field.name, field.unit);
                return Err(self.error(None, trouble));
            }
            let system = self.systems.get(&field.reference).map_or("", String::as_str);
            if !matches!(system, "" | "ICRS" | "eq_FK5") {
                let trouble =
                    format!("'{}' is in '{system}', should be in ICRS or eq_FK5", field.name);
                return Err(self.error(None, trouble));
            }
        }
        Ok(Some(columns))
    }

    /// The rows of a TABLEDATA element that has begun.
    fn rows(&mut self, columns: &ObjectColumns) -> Result<ObjectList, StackingError> {
        let mut list = ObjectList::default();
        let (mut row, mut cells, mut open) = (0, Vec::new(), None::<String>);
        loop {
            let (event, in_cell) = (self.event()?, open.as_mut());
            match event {
                Event::Start(element) => match element.local_name().as_ref() {
                    "TR" => cells.clear(),
                    "TD" => open = Some(String::new()),
                    _ => {}
                },
                Event::Empty(element) if element.local_name().as_ref() == "TD" => {
                    cells.push(String::new());
                }
                Event::Text(text) => in_cell.into_iter().for_each(|cell| cell.push_str(&text)),
                Event::CData(text) => in_cell.into_iter().for_each(|cell| cell.push_str(&text)),
                Event::GeneralRef(reference) => {
                    let letter = letter_of(&reference).ok_or_else(|| {
                        self.error(Some(row + 1), format!("unknown entity '&{};'", &*reference))
                    })?;
                    in_cell.into_iter().for_each(|cell| cell.push(letter));
                }
                Event::End(element) => match element.local_name().as_ref() {
                    "TD" if cells.len() < self.fields.len() => cells.extend(open.take()),
                    "TD" => return Err(self.error(Some(row + 1), "more cells than fields")),
                    "TR" => {
                        row += 1;
                        list.add(columns, ListPlace::Row(row), |column| {
                            cells.get(column).map(String::as_str)
                        });
                    }
                    "TABLEDATA" => return Ok(list),
                    _ => {}
                },
                Event::Eof => return Err(self.error(None, "it ends within its table")),
                _ => {}
            }
        }
    }

    /// The rows of a STREAM element that has begun.
    fn stream(
        &mut self,
        element: &BytesStart<'_>,
        columns: &ObjectColumns,
        has_flags: bool,
    ) -> Result<ObjectList, StackingError> {
        if !value(element, "href").is_empty() || value(element, "encoding") != "base64" {
            return Err(self.error(None, "a STREAM is read from the file itself, in base64 only"));
        }
        let mut written = Vec::new();
        loop {
            match self.event()? {
                Event::Text(text) => {
                    written.extend(text.bytes().filter(|byte| !byte.is_ascii_whitespace()));
                }
                Event::End(_) => break,
                Event::Eof => return Err(self.error(None, "it ends within its table")),
                _ => return Err(self.error(None, "a STREAM with other content than base64")),
            }
        }
        let bytes = STANDARD
            .decode(&written)
            .map_err(|error| self.error(None, format!("bad base64 data: {error}")))?;
        let mut list = ObjectList::default();
        let mut stream = Stream { rest: &bytes, fields: &self.fields, has_flags };
        let mut row = 0;
        while !stream.rest.is_empty() {
            row += 1;
            let cells = stream
                .row(columns)
                .ok_or_else(|| self.error(Some(row), "the row is not whole, or of unknown type"))?;
            list.add(columns, ListPlace::Row(row), |column| cells.get(&column).map(String::as_str));
        }
        Ok(list)
    }
}

/// Rows of BINARY and BINARY2.
struct Stream<'a> {
    rest: &'a [u8],
    fields: &'a [TableField],
    /// Whether a bit for each field says that it is empty (BINARY2).
    has_flags: bool,
}

impl Stream<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// The values of the needed columns of the next row; none if it is damaged.
    fn row(&mut self, columns: &ObjectColumns) -> Option<HashMap<usize, String>> {
        let flag_bytes = if self.has_flags { self.fields.len().div_ceil(8) } else { 0 };
        let flags = self.take(flag_bytes)?.to_vec();
        let wanted =
            [Some(columns.ra), Some(columns.dec), columns.band, columns.weight, columns.name];
        let mut cells = HashMap::new();
        let fields = self.fields;
        for (at, field) in fields.iter().enumerate() {
            let items = match field.items {
                Some(items) => items,
                None => u32::from_be_bytes(self.take(4)?.try_into().ok()?) as usize,
            };
            let count = match field.datatype.as_str() {
                "bit" => items.div_ceil(8),
                datatype => items.checked_mul(item_bytes(datatype)?)?,
            };
            let bytes = self.take(count)?;
            let is_null = flags.get(at / 8).is_some_and(|flag| flag & (0x80 >> (at % 8)) != 0);
            if wanted.contains(&Some(at)) && !is_null {
                cells.insert(at, written(&field.datatype, bytes)?);
            }
        }
        Some(cells)
    }
}

/// A value as text.
fn written(datatype: &str, bytes: &[u8]) -> Option<String> {
    Some(match datatype {
        "double" => f64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        "float" => f32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        "long" => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        "int" => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        "short" => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        "unsignedByte" => bytes.first()?.to_string(),
        "char" => {
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        }
        "unicodeChar" => {
            let units = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit));
            let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
            String::from_utf16_lossy(&units)
        }
        _ => return None,
    })
}

/// The text of an attribute; empty if it is not there.
fn value(element: &BytesStart<'_>, name: &str) -> String {
    let attribute = element.try_get_attribute(name).ok().flatten();
    let text = attribute.and_then(|attribute| {
        attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(|text| text.trim().to_owned())
    });
    text.unwrap_or_default()
}

/// The letter of a reference that XML itself knows; others would need a document type.
fn letter_of(reference: &BytesRef<'_>) -> Option<char> {
    match &**reference {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => reference.resolve_char_ref().ok().flatten(),
    }
}
