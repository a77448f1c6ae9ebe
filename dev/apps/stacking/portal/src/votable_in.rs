//! Reads the positions of a VOTable: the first table with columns for RA and Dec, in TABLEDATA.
//!
//! A document type is refused, and with it all entities of its own: a document could otherwise grow
//! without bound, or name files of this machine. Depth and length are bounded.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::position_list::{Columns, ListError, PositionList, cut};

/// Columns of a table.
const MAX_FIELDS: usize = 1000;
/// Elements within each other.
const MAX_DEPTH: usize = 64;

/// Reads a VOTable.
pub fn read_votable(text: &str) -> Result<PositionList, ListError> {
    let mut reader = Reader::from_str(text);
    let mut table = VoTable::default();
    loop {
        let event = reader.read_event();
        match event.map_err(|wrong| fail(format!("it is not XML: {wrong}")))? {
            Event::DocType(_) => {
                return Err(fail("it has a document type, which is not accepted: remove DOCTYPE"));
            }
            Event::Start(element) => table.begin(&element)?,
            Event::Empty(element) => {
                table.begin(&element)?;
                table.end(element.local_name().as_ref())?;
            }
            Event::Text(words) => table.text(&words),
            Event::CData(words) => table.text(&words),
            Event::GeneralRef(reference) => table.text(&resolved(&reference)?),
            Event::End(element) => table.end(element.local_name().as_ref())?,
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    table.finish()
}

fn fail(trouble: impl Into<String>) -> ListError {
    ListError::VoTable(trouble.into())
}

/// A character by its number, or one of the five entities that XML itself has.
fn resolved(reference: &BytesRef) -> Result<String, ListError> {
    let unknown = || fail("it names an entity that XML does not have");
    if let Some(character) = reference.resolve_char_ref().map_err(|_| unknown())? {
        return Ok(character.into());
    }
    let known = quick_xml::escape::resolve_predefined_entity(reference);
    known.map(str::to_owned).ok_or_else(unknown)
}

/// A table as it is read.
#[derive(Default)]
struct VoTable {
    depth: usize,
    is_votable: bool,
    fields: Vec<String>,
    /// The unit of each field.
    units: Vec<String>,
    /// The fields that are RA and Dec by their UCD.
    main: [Option<usize>; 2],
    columns: Option<Columns>,
    /// Cells of the row that is read.
    cells: Vec<String>,
    /// Whether text belongs to a cell.
    is_in_cell: bool,
    is_in_row: bool,
    /// Whether the table with the positions has ended.
    is_read: bool,
    /// Whether some table has data.
    has_data: bool,
    rows: usize,
    list: PositionList,
}

impl VoTable {
    fn begin(&mut self, element: &BytesStart) -> Result<(), ListError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(fail(format!("it has more than {MAX_DEPTH} elements within each other")));
        }
        let name = element.local_name();
        match name.as_ref() {
            "VOTABLE" if self.depth == 1 => self.is_votable = true,
            _ if !self.is_votable => return Err(fail("its first element is not VOTABLE")),
            "TABLE" if !self.is_read => {
                self.fields.clear();
                self.units.clear();
                (self.main, self.rows) = ([None, None], 0);
            }
            "FIELD" if !self.is_read => self.field(element)?,
            "TABLEDATA" if !self.is_read => self.columns = self.columns()?,
            "BINARY" | "BINARY2" | "FITS" | "PARQUET"
                if !self.is_read && self.columns()?.is_some() =>
            {
                return Err(fail("its data is not in TABLEDATA: save it as TABLEDATA"));
            }
            "TR" => (self.is_in_row, self.rows) = (true, self.rows + 1),
            "TD" if self.is_in_row => {
                if self.cells.len() >= self.fields.len() {
                    return Err(fail(format!("row {} has more cells than fields", self.rows)));
                }
                self.cells.push(String::new());
                self.is_in_cell = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// The columns of a table with positions; `None` of another table, which is passed over.
    fn columns(&self) -> Result<Option<Columns>, ListError> {
        let [ra, dec] = self.main;
        let Ok(columns) = Columns::with_places(&self.fields, ra, dec) else { return Ok(None) };
        for at in columns.places() {
            let (unit, name) = (&*self.units[at], &self.fields[at]);
            if !["", "deg", "degree", "degrees"].contains(&unit) {
                let (unit, name) = (cut(unit, 40), cut(name, 40));
                return Err(fail(format!("the field {name} is in `{unit}`: write it in degrees")));
            }
        }
        Ok(Some(columns))
    }

    fn field(&mut self, element: &BytesStart) -> Result<(), ListError> {
        if self.fields.len() >= MAX_FIELDS {
            return Err(fail(format!("it has more than {MAX_FIELDS} fields")));
        }
        let (mut name, mut ucd, mut unit) = (String::new(), String::new(), String::new());
        for attribute in element.attributes() {
            let attribute = attribute.map_err(|wrong| fail(format!("it is not XML: {wrong}")))?;
            let value = attribute.value.into_owned();
            match attribute.key.as_ref() {
                "name" => name = value,
                "ucd" => ucd = value,
                "unit" => unit = value,
                _ => {}
            }
        }
        // What a column is, is more than its name.
        let at = self.fields.len();
        match &*ucd.to_lowercase() {
            "pos.eq.ra;meta.main" => self.main[0] = self.main[0].or(Some(at)),
            "pos.eq.dec;meta.main" => self.main[1] = self.main[1].or(Some(at)),
            _ => {}
        }
        self.fields.push(name);
        self.units.push(unit.trim().to_owned());
        Ok(())
    }

    fn text(&mut self, words: &str) {
        if let Some(cell) = self.cells.last_mut().filter(|_| self.is_in_cell) {
            cell.push_str(words);
        }
    }

    fn end(&mut self, name: &str) -> Result<(), ListError> {
        self.depth = self.depth.saturating_sub(1);
        match name {
            "TD" => self.is_in_cell = false,
            "TR" => {
                self.is_in_row = false;
                let cells = std::mem::take(&mut self.cells);
                if let Some(columns) = self.columns.as_ref().filter(|_| !self.is_read) {
                    let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
                    let added = self.list.add(columns, &cells, self.rows);
                    added.map_err(|wrong| match wrong {
                        ListError::Line { line, trouble } => fail(format!("row {line}: {trouble}")),
                        other => other,
                    })?;
                }
            }
            "TABLEDATA" => {
                self.has_data = true;
                self.is_read |= self.columns.is_some();
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<PositionList, ListError> {
        match (self.is_votable, self.depth, self.is_read) {
            (true, 0, true) => Ok(self.list),
            (true, 0, false) if self.has_data => {
                Err(ListError::NoColumn("right ascension and Dec"))
            }
            (true, 0, false) => Err(fail("it has no table with TABLEDATA: save it as TABLEDATA")),
            _ => Err(fail("it ends before its last element does")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::position_list::MAX_POSITIONS;
    use crate::positions::read_positions;

    fn table(fields: &str, rows: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<VOTABLE version=\"1.4\" \
             xmlns=\"http://www.ivoa.net/xml/VOTable/v1.3\"><RESOURCE><TABLE>{fields}\
             <DATA><TABLEDATA>{rows}</TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>"
        )
    }

    const FIELDS: &str = "<FIELD name=\"name\" datatype=\"char\" arraysize=\"*\"/>\
        <FIELD name=\"alpha\" ucd=\"pos.eq.ra;meta.main\" datatype=\"double\"/>\
        <FIELD name=\"dec\" datatype=\"double\"><DESCRIPTION>d</DESCRIPTION></FIELD>";

    fn wrong(text: &str) -> String {
        read_positions(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn tables_are_read_by_ucd_and_name() {
        let rows = "<TR><TD>a&amp;<![CDATA[<b>]]>&#65;</TD><TD>150.1</TD><TD> 2.2 </TD></TR>\
            <TR><TD/><TD></TD><TD>1</TD></TR><TR><TD/><TD>10</TD><TD>-89</TD></TR>";
        let list = read_positions(table(FIELDS, rows).as_bytes()).unwrap();
        let first = &list.positions[0];
        assert_eq!((first.ra, first.dec, first.name.as_deref()), (150.1, 2.2, Some("a&<b>A")));
        assert_eq!((list.positions[1].row, list.off_sky[0].row), (3, 2));
    }

    #[test]
    fn the_first_table_with_positions_is_read() {
        // A report of the portal has its statistics first.
        let other = "<TABLE><FIELD name=\"x\"/><DATA><TABLEDATA><TR><TD>a</TD></TR></TABLEDATA>\
            </DATA></TABLE><TABLE>";
        let row = "<TR><TD/><TD>1</TD><TD>2</TD></TR>";
        let text = table(FIELDS, row).replacen("<TABLE>", other, 1);
        let list = read_positions(text.as_bytes()).unwrap();
        assert_eq!((list.positions[0].ra, list.positions.len()), (1.0, 1));
        // A UCD is more than a name.
        let named = FIELDS.replace("\"name\"", "\"ra\"");
        let row = "<TR><TD>9</TD><TD>1</TD><TD>2</TD></TR>";
        let list = read_positions(table(&named, row).as_bytes()).unwrap();
        assert_eq!(list.positions[0].ra, 1.0);
        let radians = FIELDS.replace("<FIELD name=\"dec\"", "<FIELD unit=\"rad\" name=\"dec\"");
        assert!(wrong(&table(&radians, row)).contains("dec is in `rad`: write it in degrees"));
    }

    #[test]
    fn entities_and_endless_documents_are_refused() {
        let row = "<TR><TD>&x;</TD><TD>1</TD><TD>2</TD></TR>";
        let entity = "<!DOCTYPE VOTABLE [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>";
        let with_entity = table(FIELDS, row).replace("?>\n", &format!("?>\n{entity}"));
        assert!(wrong(&with_entity).contains("DOCTYPE"));
        assert!(wrong(&table(FIELDS, row)).contains("entity"));
        assert!(wrong(&"<VOTABLE>".repeat(1000)).contains("within each other"));
        let many = "<TR><TD/><TD>1</TD><TD>2</TD></TR>".repeat(MAX_POSITIONS + 1);
        assert!(wrong(&table(FIELDS, &many)).contains("more than"));
    }

    #[test]
    fn what_is_no_table_of_positions_is_refused() {
        assert!(wrong("<html></html>").contains("VOTABLE"));
        assert!(wrong(&table(FIELDS, "")).contains("no positions"));
        assert!(wrong(&table("<FIELD name=\"x\"/>", "")).contains("right ascension"));
        let text = table(FIELDS, "<TR><TD/><TD>x</TD><TD>2</TD></TR>");
        assert!(wrong(&text).contains("row 1: `x` is not a number"));
        assert!(wrong(&text[..text.len() - 20]).contains("cannot be read"));
        let binary =
            "<VOTABLE><RESOURCE><TABLE><DATA><BINARY2/></DATA></TABLE></RESOURCE></VOTABLE>";
        assert!(wrong(binary).contains("save it as TABLEDATA"));
    }
}
