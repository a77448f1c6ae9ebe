//! The list of a job in its folder, with all that is known of each object.

use std::io;
use std::path::{Path, PathBuf};

use crate::position_list::PositionList;
use crate::secrets::new_id;
use crate::whole_file::write_shared;

const FILE: &str = "list.json";

/// Keeps a list in the folder of its job.
pub fn write_positions(folder: &Path, list: &PositionList) -> io::Result<()> {
    write_shared(&folder.join(FILE), &serde_json::to_vec(list)?)
}

/// A list that is on disk, and not yet the one of its job.
pub struct PreparedList {
    beside: PathBuf,
    path: PathBuf,
}

impl PreparedList {
    /// Writes a list beside the one of the job, which takes a while.
    pub fn write(folder: &Path, list: &PositionList) -> io::Result<Self> {
        let beside = folder.join(format!("list-{}.json", new_id()?));
        write_shared(&beside, &serde_json::to_vec(list)?)?;
        Ok(PreparedList { beside, path: folder.join(FILE) })
    }

    /// Has the job stack this list, in a moment.
    pub fn put_in_place(&self) -> io::Result<()> {
        std::fs::rename(&self.beside, &self.path)
    }
}

impl Drop for PreparedList {
    fn drop(&mut self) {
        // It is there if it was not put in place.
        let _ = std::fs::remove_file(&self.beside);
    }
}

/// The list in the folder of a job.
pub fn kept_positions(folder: &Path) -> io::Result<PositionList> {
    Ok(serde_json::from_slice(&std::fs::read(folder.join(FILE))?)?)
}

/// A list as CSV, as it can be stacked again.
pub fn positions_csv(list: &PositionList) -> String {
    let mut text = String::from("name,ra,dec,band,weight\n");
    for position in &list.positions {
        let name = csv_text(position.name.as_deref().unwrap_or_default());
        let band = position.band.as_deref().unwrap_or_default();
        let weight = position.weight.map(|weight| weight.to_string()).unwrap_or_default();
        text += &format!("{name},{},{},{band},{weight}\n", position.ra, position.dec);
    }
    text
}

/// A cell of CSV. One that a spreadsheet would take for a formula begins with `'`.
pub fn csv_text(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t']) && text.parse::<f64>().is_err();
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::read_positions;

    #[test]
    fn lists_are_kept_and_their_csv_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let text = b"name,ra,dec,band,weight\n\"a,\"\"b\",1.5,-2,r,0.25\n=1+1,3,4,,\nx,NaN,1,,\n";
        let list = read_positions(text).unwrap();
        write_positions(folder.path(), &list).unwrap();
        assert_eq!(kept_positions(folder.path()).unwrap(), list);
        let csv = positions_csv(&list);
        let again = read_positions(csv.as_bytes()).unwrap();
        assert_eq!(again.positions[0], list.positions[0]);
        assert_eq!(again.positions[1].name.as_deref(), Some("'=1+1"));
    }
}
