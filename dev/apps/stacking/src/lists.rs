//! Files with lists of sky objects: CSV, columns between spaces, or VOTable, told apart by their
//! content.

mod text;
mod votable;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{FileProblem, StackingError};
use crate::objects::{ObjectList, list_error};
use text::TextList;

/// Lists above this many bytes (2 GiB, some 40 million objects) are refused.
const MAX_LIST_BYTES: u64 = 1 << 31;

/// Reads the list in `path`.
pub fn read(path: &Path) -> Result<ObjectList, StackingError> {
    let fail = |action| move |error| StackingError::new(path, FileProblem::io(action)(error));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fail("open"))?;
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes).map_err(fail("read"))?;
    if bytes.len() as u64 > MAX_LIST_BYTES {
        let trouble = format!("it has more than {MAX_LIST_BYTES} bytes: cut it into several lists");
        return Err(list_error(path, None, trouble));
    }
    let content = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    match content.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'<') => votable::read(path, content),
        _ => TextList::new(path, content).read(),
    }
}
