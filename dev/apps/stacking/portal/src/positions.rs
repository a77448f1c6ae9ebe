//! Lists of positions as people paste and upload them: CSV, plain text with columns between blanks,
//! and VOTable (`votable_in`).

use crate::position_list::{Columns, ListError, PositionList};
use crate::votable_in::read_votable;

/// Reads a list of any of the formats.
pub fn read_positions(bytes: &[u8]) -> Result<PositionList, ListError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ListError::NotText)?;
    // Browsers end lines with both characters, of which the reader of CSV would count one late.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let list = match text.trim_start().starts_with('<') {
        true => read_votable(&text)?,
        false => read_text(&text)?,
    };
    match list.positions.is_empty() && list.off_sky.is_empty() {
        true => Err(ListError::Empty),
        false => Ok(list),
    }
}

/// Reads CSV or plain text. Lines that begin with `#` are comments.
fn read_text(text: &str) -> Result<PositionList, ListError> {
    let is_row = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let Some(first) = text.lines().find(is_row) else { return Err(ListError::Empty) };
    let separator = [',', ';', '\t'].into_iter().find(|c| first.contains(*c));
    let Some(separator) = separator else { return read_plain(text) };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator as u8)
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let mut rows = TextRows::default();
    for record in reader.records() {
        let record = record.map_err(|wrong| {
            let line = wrong.position().map_or(0, csv::Position::line) as usize;
            ListError::Line { line, trouble: "it is not CSV".into() }
        })?;
        let line = record.position().map_or(0, csv::Position::line) as usize;
        rows.add(&record.iter().collect::<Vec<_>>(), line)?;
    }
    Ok(rows.list)
}

fn read_plain(text: &str) -> Result<PositionList, ListError> {
    let mut rows = TextRows::default();
    for (number, line) in text.lines().enumerate() {
        let is_comment = line.trim_start().starts_with('#');
        if !is_comment {
            rows.add(&line.split_whitespace().collect::<Vec<_>>(), number + 1)?;
        }
    }
    Ok(rows.list)
}

/// Rows of a text, of which the first may be a header.
#[derive(Default)]
struct TextRows {
    columns: Option<Columns>,
    /// Cells of the first row.
    count: usize,
    list: PositionList,
}

impl TextRows {
    fn add(&mut self, fields: &[&str], line: usize) -> Result<(), ListError> {
        if fields.iter().all(|field| field.trim().is_empty()) {
            return Ok(());
        }
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let is_header = fields[0].trim().parse::<f64>().is_err();
                let names: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
                let read = match is_header {
                    true => Columns::named(&names)?,
                    false => Columns::unnamed(fields.len()),
                };
                self.columns = Some(read.clone());
                self.count = fields.len();
                if is_header {
                    return Ok(());
                }
                self.columns.insert(read)
            }
        };
        if fields.len() > self.count {
            let trouble = format!(
                "it has {} cells, and the first line has {}: quote texts with separators",
                fields.len(),
                self.count
            );
            return Err(ListError::Line { line, trouble });
        }
        self.list.add(columns, fields, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position_list::MAX_POSITIONS;

    fn places(text: &str) -> Vec<(f64, f64)> {
        let list = read_positions(text.as_bytes()).unwrap();
        list.positions.iter().map(|position| (position.ra, position.dec)).collect()
    }

    #[test]
    fn csv_and_plain_text_are_read() {
        let both = [(150.1, 2.2), (10.5, -89.0)];
        for text in [
            "ra,dec\n150.1,2.2\n10.5,-89\n",
            "\u{feff}Name, DEC ,RA\r\n\"a,b\",2.2,150.1\r\nc,-89,10.5",
            "# a comment\n150.1 2.2\n\n  10.5\t-89 \n",
            "150.1,2.2\n10.5,-89",
            "RAJ2000;DEJ2000\n150.1;2.2\n10.5;-89\n",
            "id ra dec\n1 150.1 2.2\n2 10.5 -89",
        ] {
            assert_eq!(places(text), both, "{text}");
        }
        let list =
            read_positions(b"ra,dec,band,weight,name\n1,2,r,0.5,<i>x</i>\n3,4,,,\n").unwrap();
        let first = &list.positions[0];
        assert_eq!((first.band.as_deref(), first.weight), (Some("r"), Some(0.5)));
        assert_eq!(first.name.as_deref(), Some("<i>x</i>"));
        assert_eq!(list.positions[1].weight, None);
        let bands = read_positions(b"1 2 g\n3 4 r").unwrap();
        assert_eq!(bands.positions[1].band.as_deref(), Some("r"));
    }

    #[test]
    fn places_off_the_sky_are_not_found_and_the_others_are() {
        let text = "ra,dec\n1,2\nNaN,3\n361,0\n5,-91\n7,8\ninf,1\n";
        let list = read_positions(text.as_bytes()).unwrap();
        assert_eq!(list.positions.iter().map(|p| p.row).collect::<Vec<_>>(), [1, 5]);
        let rows: Vec<_> = list.off_sky.iter().map(|off| off.row).collect();
        assert_eq!(rows, [2, 3, 4, 6]);
        assert!(list.off_sky[1].reason.contains("right ascension"));
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        let wrong = |text: &str| read_positions(text.as_bytes()).unwrap_err().to_string();
        assert!(wrong("").contains("no positions"));
        assert!(wrong("# nothing\n").contains("no positions"));
        assert!(wrong("a,b\n1,2\n").contains("right ascension"));
        assert!(wrong("ra,dec\n1,2\n10h3m,4\n").contains("line 3"));
        assert!(wrong("ra,dec\r\n1,2\r\n10h3m,4\r\n").contains("line 3"));
        assert!(wrong("1 2\n3\n").contains("line 2"));
        assert!(wrong("ra,dec\n1,2\n1,2,3\n").contains("line 3 of the list: it has 3 cells"));
        assert!(wrong("1 2 r\n3 4 r x\n").contains("line 2 of the list: it has 4 cells"));
        assert!(wrong("ra,dec,weight\n1,2,-1\n").contains("above 0"));
        assert!(wrong("ra,dec,band\n1,2,--help\n").contains("band"));
        assert_eq!(read_positions(b"\xff\xfe1 2"), Err(ListError::NotText));
        let many = "1 2\n".repeat(MAX_POSITIONS + 1);
        assert_eq!(read_positions(many.as_bytes()), Err(ListError::TooLong));
    }
}
