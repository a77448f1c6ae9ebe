//! The local files that `eyas dfs put` and `append` read.

use std::fs::{File as LocalFile, Metadata};
use std::io::{Cursor, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use eyas_client::files::{ContentSource, Creation, SMALL_CHUNK_BYTES, SparseFile};
use eyas_client::types::dfs::{FileName, Format, MODE_BITS, RecordFormat, nearest_ns};
use eyas_store::name_of;

use crate::error::CliError;
use crate::print::say;

/// A source that has been opened.
pub(super) struct OpenSource {
    /// All of a source that fits into a small chunk; of another one, the beginning.
    pub content: Vec<u8>,
    /// The whole source, if it does not fit.
    pub source: Box<dyn ContentSource>,
    /// The size of the source, if it is a file.
    pub size_bytes: Option<u64>,
    /// The attributes of the source, if it is a file.
    pub kept: Option<KeptAttributes>,
    pub format: RecordFormat,
}

/// Attributes of a local file, folder or link that its copy in the file system gets. The owner of
/// the copy is the user of this process.
#[derive(Clone, Copy)]
pub(super) struct KeptAttributes {
    mode: u16,
    modified_ns: u64,
}

impl KeptAttributes {
    fn of(metadata: &Metadata) -> Self {
        let modified =
            metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let mode = (metadata.mode() & u32::from(MODE_BITS)) as u16;
        KeptAttributes { mode, modified_ns: nearest_ns(modified.map(|since| since.as_nanos())) }
    }

    /// With the permissions and the time of the source.
    pub fn creation(self) -> Creation {
        Creation { mode: self.mode, modified_ns: Some(self.modified_ns), ..Creation::of_process(0) }
    }

    /// With the permissions of the source without those of the umask, and the present time.
    pub fn new_file(self) -> Creation {
        Creation::of_process(self.mode & 0o777)
    }
}

/// The sources of a command, with their names in the file system.
#[derive(Default)]
pub(super) struct NamedSources {
    pub files: Vec<(PathBuf, FileName)>,
    pub folders: Vec<NamedFolder>,
    pub links: Vec<NamedLink>,
}

pub(super) struct NamedFolder {
    pub name: FileName,
    pub kept: KeptAttributes,
}

pub(super) struct NamedLink {
    pub name: FileName,
    pub target: String,
    pub kept: KeptAttributes,
}

/// The sources to put, with their names in the file system.
pub(super) fn named(
    sources: &[PathBuf],
    name: &str,
    recursive: bool,
) -> Result<NamedSources, CliError> {
    let into_folder = name.ends_with('/') || sources.len() > 1;
    let mut all = NamedSources::default();
    for source in sources {
        let named = match (into_folder, base_name(source)) {
            (false, _) => name.to_owned(),
            (true, Some(base)) => format!("{}/{base}", name.trim_end_matches('/')),
            (true, None) => {
                return Err(format!(
                    "{} has no file name: give the name of the new file",
                    source.display()
                )
                .into());
            }
        };
        match source.is_dir() {
            true if recursive => all.add_folder(source, named.trim_end_matches('/'))?,
            true => {
                return Err(format!("{} is a folder: write it with -r", source.display()).into());
            }
            false => all.files.push((source.clone(), named.parse()?)),
        }
    }
    Ok(all)
}

impl NamedSources {
    /// Adds a folder with everything in it, in the order of names. `name` is empty for the root of
    /// the file system.
    fn add_folder(&mut self, folder: &Path, name: &str) -> Result<(), CliError> {
        let cannot = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
        if !name.is_empty() {
            let kept = KeptAttributes::of(&folder.metadata().map_err(cannot)?);
            self.folders.push(NamedFolder { name: name.parse()?, kept });
        }
        let mut entries = std::fs::read_dir(folder)
            .map_err(cannot)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(cannot)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let base = entry.file_name().into_string().map_err(|_| not_unicode(&path))?;
            let named = format!("{name}/{base}");
            let kind = entry.file_type().map_err(cannot)?;
            if kind.is_dir() {
                self.add_folder(&path, &named)?;
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).map_err(cannot)?;
                let target =
                    target.into_os_string().into_string().map_err(|_| not_unicode(&path))?;
                let kept = KeptAttributes::of(&entry.metadata().map_err(cannot)?);
                self.links.push(NamedLink { name: named.parse()?, target, kept });
            } else if kind.is_file() {
                self.files.push((path, named.parse()?));
            } else {
                say!("{} is not a file, and is left out", path.display());
            }
        }
        Ok(())
    }
}

/// Opens a source and reads its beginning. Its format is guessed, unless it is given. Blocks.
pub(super) fn begin(
    source: &Path,
    name: &FileName,
    format: Option<Format>,
) -> Result<OpenSource, CliError> {
    let (mut file, metadata) = open(source)?;
    let size_bytes = metadata.as_ref().map(Metadata::len);
    let kept = metadata.as_ref().map(KeptAttributes::of);
    // With room for one byte more, the end of a small file is found without further reads.
    let small_bytes = size_bytes.unwrap_or(0).min(SMALL_CHUNK_BYTES as u64);
    let mut content = Vec::with_capacity(small_bytes as usize + 1);
    (&file)
        .take(SMALL_CHUNK_BYTES as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|e| cannot_read(source, &e))?;
    let format = format.map_or_else(|| guess(source, name, &content), RecordFormat::from);
    let is_stream = size_bytes.is_none() && format.is_guessed;
    let format = if is_stream { format.with(format.of_stream()) } else { format };
    let source: Box<dyn ContentSource> = match metadata.is_some() && file.rewind().is_ok() {
        true => Box::new(SparseFile(file)),
        false => Box::new(Cursor::new(content.clone()).chain(file)),
    };
    Ok(OpenSource { content, source, size_bytes, kept, format })
}

fn base_name(path: &Path) -> Option<&str> {
    path.file_name().filter(|name| *name != "-")?.to_str()
}

fn not_unicode(path: &Path) -> CliError {
    format!(
        "the name of `{}` is not UTF-8, and names in the cluster must be: rename the file first",
        name_of(path)
    )
    .into()
}

fn cannot_read(source: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", source.display())
}

/// Opens a source; returns its metadata if the source is a file.
pub(super) fn open(source: &Path) -> Result<(LocalFile, Option<Metadata>), CliError> {
    if source == Path::new("-") {
        return Ok((std::io::stdin().as_fd().try_clone_to_owned()?.into(), None));
    }
    let file = LocalFile::open(source).map_err(|e| cannot_read(source, &e))?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(format!("{} is a folder", source.display()).into());
    }
    Ok((file, Some(metadata).filter(Metadata::is_file)))
}

/// Guesses the format of a new file from its first bytes and its name; from the name of its source,
/// if the name of the file says nothing.
fn guess(source: &Path, name: &FileName, content: &[u8]) -> RecordFormat {
    let named = [name.base_name(), base_name(source).unwrap_or_default()];
    let name = named.into_iter().find(|name| Format::of_name(name).is_some());
    RecordFormat::guess(name.unwrap_or(named[0]), content)
}
