//! Writes VOTables: the report of a job, and the links of DataLink.

use quick_xml::escape::escape;

/// A field of a table: name, unit, UCD, description. All values are text or numbers.
pub struct VoField {
    pub name: &'static str,
    pub datatype: &'static str,
    pub unit: &'static str,
    pub ucd: &'static str,
    pub description: &'static str,
}

impl VoField {
    /// A field of text.
    pub const fn text(name: &'static str, ucd: &'static str, description: &'static str) -> Self {
        VoField { name, datatype: "char", unit: "", ucd, description }
    }

    /// A field of numbers; `datatype` is `long` or `double`.
    pub const fn number(
        name: &'static str,
        datatype: &'static str,
        unit: &'static str,
        ucd: &'static str,
        description: &'static str,
    ) -> Self {
        VoField { name, datatype, unit, ucd, description }
    }
}

/// A document that is written.
pub struct VoDocument(String);

/// A text for XML: escaped, and without the characters that XML does not have.
pub fn xml_text(text: &str) -> String {
    let is_xml = |c: &char| {
        let is_space = matches!(c, '\t' | '\n' | '\r');
        is_space || !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let text: String = text.chars().filter(is_xml).collect();
    escape(&text).into_owned()
}

fn attribute(name: &str, value: &str) -> String {
    match value {
        "" => String::new(),
        value => format!(" {name}=\"{}\"", xml_text(value)),
    }
}

impl VoDocument {
    /// Begins a document with one resource.
    pub fn begin(resource: &str) -> Self {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<VOTABLE version=\"1.4\" \
             xmlns=\"http://www.ivoa.net/xml/VOTable/v1.3\">\n",
        );
        text += &format!("<RESOURCE{resource}>\n");
        VoDocument(text)
    }

    /// Adds a fact about the document.
    pub fn info(&mut self, name: &str, value: &str) {
        let (name, value) = (xml_text(name), xml_text(value));
        self.0 += &format!("<INFO name=\"{name}\" value=\"{value}\"/>\n");
    }

    /// Says which standard the document follows.
    pub fn standard(&mut self, id: &str) {
        let id = xml_text(id);
        self.0 += &format!("<INFO name=\"standardID\" value=\"{id}\"/>\n");
    }

    /// Adds a table. Each row has a cell for each field.
    pub fn table(
        &mut self,
        name: &str,
        description: &str,
        fields: &[VoField],
        rows: impl Iterator<Item = Vec<String>>,
    ) {
        self.0 += &format!("<TABLE{}>\n", attribute("name", name));
        if !description.is_empty() {
            self.0 += &format!("<DESCRIPTION>{}</DESCRIPTION>\n", xml_text(description));
        }
        for field in fields {
            let size = if field.datatype == "char" { " arraysize=\"*\"" } else { "" };
            let (name, datatype) = (field.name, field.datatype);
            let unit = attribute("unit", field.unit);
            let ucd = attribute("ucd", field.ucd);
            let words = xml_text(field.description);
            self.0 += &format!(
                "<FIELD name=\"{name}\" datatype=\"{datatype}\"{size}{unit}{ucd}>\
                 <DESCRIPTION>{words}</DESCRIPTION></FIELD>\n"
            );
        }
        self.0 += "<DATA><TABLEDATA>\n";
        for row in rows {
            self.0 += "<TR>";
            for cell in row {
                self.0 += &format!("<TD>{}</TD>", xml_text(&cell));
            }
            self.0 += "</TR>\n";
        }
        self.0 += "</TABLEDATA></DATA>\n</TABLE>\n";
    }

    /// Ends the document.
    pub fn end(self) -> String {
        self.0 + "</RESOURCE>\n</VOTABLE>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::read_positions;

    #[test]
    fn tables_are_read_as_they_were_written() {
        let fields = [
            VoField::text("name", "meta.id", "the name"),
            VoField::number("ra", "double", "deg", "pos.eq.ra;meta.main", "right ascension"),
            VoField::number("dec", "double", "deg", "pos.eq.dec;meta.main", "declination"),
        ];
        let mut document = VoDocument::begin(" type=\"results\"");
        document.info("QUERY_STATUS", "OK");
        let row = vec!["<a&\"b\">\u{0}".to_owned(), "1.5".into(), "-2".into()];
        document.table("t", "", &fields, std::iter::once(row));
        let text = document.end();
        let list = read_positions(text.as_bytes()).unwrap();
        assert_eq!(list.positions[0].name.as_deref(), Some("<a&\"b\">"));
        assert_eq!((list.positions[0].ra, list.positions[0].dec), (1.5, -2.0));
    }
}
