//! The local files that `eyas dfs put` and `append` read.

use std::fs::File as LocalFile;
use std::io::Read;
use std::path::{Path, PathBuf};

use eyas_client::files::SMALL_CHUNK_BYTES;
use eyas_client::types::dfs::{FileName, Format};
use eyas_store::name_of;

use crate::error::CliError;
use crate::print::say;

/// Number of bytes at the beginning of a file that decide whether it is text.
const PROBE_BYTES: usize = 8 << 10;

/// A source that has been opened.
pub(super) struct Beginning {
    /// All of a source that fits into a small chunk; of another one, the beginning.
    pub content: Vec<u8>,
    /// The bytes after `content`.
    pub rest: Box<dyn Read + Send>,
    /// The size of the source, if it is a file.
    pub size_bytes: Option<u64>,
    pub format: Format,
}

/// The files to put, with their names in the file system.
pub(super) fn named(sources: &[PathBuf], name: &str, recursive: bool) -> Result<Vec<(PathBuf, FileName)>, CliError> {
    let into_folder = name.ends_with('/') || sources.len() > 1;
    let mut all = Vec::new();
    for source in sources {
        let named = match (into_folder, base_name(source)) {
            (false, _) => name.to_owned(),
            (true, Some(base)) => format!("{}/{base}", name.trim_end_matches('/')),
            (true, None) => {
                return Err(format!("{} has no file name: give the name of the new file", source.display()).into());
            }
        };
        match source.is_dir() {
            true if recursive => {
                let mut within = Vec::new();
                files_within(source, &mut within)?;
                for path in within {
                    let rest = path.strip_prefix(source)?.to_str().ok_or_else(|| not_unicode(&path))?.to_owned();
                    all.push((path, format!("{}/{rest}", named.trim_end_matches('/'))));
                }
            }
            true => return Err(format!("{} is a folder: write it with -r", source.display()).into()),
            false => all.push((source.clone(), named)),
        }
    }
    all.into_iter().map(|(source, name)| Ok((source, name.parse()?))).collect()
}

/// Opens a source and reads its beginning. Its format is guessed, unless it is given. Blocks.
pub(super) fn begin(source: &Path, format: Option<Format>) -> Result<Beginning, CliError> {
    let (mut rest, size_bytes) = open(source)?;
    // With room for one byte more, the end of a small file is found without further reads.
    let small_bytes = size_bytes.unwrap_or(0).min(SMALL_CHUNK_BYTES as u64);
    let mut content = Vec::with_capacity(small_bytes as usize + 1);
    (&mut rest).take(SMALL_CHUNK_BYTES as u64 + 1).read_to_end(&mut content).map_err(|e| cannot_read(source, &e))?;
    let format = format.unwrap_or_else(|| guess(source, &content));
    Ok(Beginning { content, rest, size_bytes, format })
}

fn base_name(path: &Path) -> Option<&str> {
    path.file_name().filter(|name| *name != "-")?.to_str()
}

fn not_unicode(path: &Path) -> CliError {
    format!("the name of `{}` is not UTF-8, and names in the cluster must be: rename the file first", name_of(path))
        .into()
}

/// The files of a folder and its subfolders, in the order of their names. Links to files are followed, links to folders
/// are not.
fn files_within(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let cannot = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    let mut entries = std::fs::read_dir(folder).map_err(cannot)?.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, is_folder) = (entry.path(), entry.file_type().map_err(cannot)?.is_dir());
        match is_folder {
            true => files_within(&path, files)?,
            false if path.is_file() => files.push(path),
            false => say!("{} is not a file, and is left out", path.display()),
        }
    }
    Ok(())
}

fn cannot_read(source: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", source.display())
}

/// Opens a source; returns its size if the source is a file.
pub(super) fn open(source: &Path) -> Result<(Box<dyn Read + Send>, Option<u64>), CliError> {
    if source == Path::new("-") {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = LocalFile::open(source).map_err(|e| cannot_read(source, &e))?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(format!("{} is a folder", source.display()).into());
    }
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Guesses the record format of a source from its name and its first bytes.
fn guess(source: &Path, content: &[u8]) -> Format {
    let is_text = !content[..content.len().min(PROBE_BYTES)].contains(&0);
    Format::guess(base_name(source).unwrap_or(""), is_text)
}
