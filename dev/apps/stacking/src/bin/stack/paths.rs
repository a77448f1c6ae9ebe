//! The files that arguments name.

use std::path::{Path, PathBuf};

use eyas_stacking::error::{FileProblem, StackingError};

/// How the names of frames end, before `.gz`.
const FRAME_ENDINGS: [&str; 4] = ["fits", "fit", "fts", "fz"];

/// Whether a file of a directory is a partial stack.
pub(crate) fn is_partial(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "fits")
}

/// Whether a file of a directory is a report.
pub(crate) fn is_report(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "csv" || extension == "json")
}

/// Whether a file of a directory is a frame.
pub(crate) fn is_frame(path: &Path) -> bool {
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    let plain = if is_packed { path.with_extension("") } else { path.to_owned() };
    plain
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| FRAME_ENDINGS.contains(&extension))
}

/// The files that arguments name: themselves, the files of a directory that are `wanted`, by name,
/// or the lines of FILE for @FILE.
pub(crate) fn expand(
    named: &[PathBuf],
    wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, StackingError> {
    let mut paths = Vec::new();
    for named in named {
        expand_one(named, &wanted, &mut paths)?;
    }
    Ok(paths)
}

fn expand_one(
    named: &Path,
    wanted: impl Fn(&Path) -> bool,
    paths: &mut Vec<PathBuf>,
) -> Result<(), StackingError> {
    let fail =
        |path: &Path, error| StackingError::new(path, FileProblem::Io { action: "read", error });
    if let Some(list) = named.to_str().and_then(|name| name.strip_prefix('@')) {
        let lines = std::fs::read_to_string(list).map_err(|error| fail(Path::new(list), error))?;
        paths.extend(lines.lines().filter(|line| !line.is_empty()).map(PathBuf::from));
    } else if named.is_dir() {
        let first = paths.len();
        for entry in std::fs::read_dir(named).map_err(|error| fail(named, error))? {
            let path = entry.map_err(|error| fail(named, error))?.path();
            // A hidden file is still being written.
            let hidden =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && wanted(&path) {
                paths.push(path);
            }
        }
        paths[first..].sort();
    } else {
        paths.push(named.to_owned());
    }
    Ok(())
}
