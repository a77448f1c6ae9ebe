//! Whether the files of a job over blocks were cut as their names promise.

use eyas_files::File;
use eyas_types::dfs::Format;

use super::MapError;

/// Refuses a compressed file that was cut anywhere, and warns of one that was cut otherwise than
/// its name promises.
pub(super) fn check(file: &File) -> Result<(), MapError> {
    let (name, format) = (&file.name, *file.record.format);
    let Some(promised) = Format::of_name(name.base_name()) else { return Ok(()) };
    let is_cut = file.record.chunks.len() > 1;
    if promised == Format::Whole && is_cut && (format.is_text() || format == Format::BYTES) {
        return Err(MapError::Compressed(name.clone(), format));
    }
    if promised.is_text()
        && promised != format
        && !(promised.is_csv() && format.is_csv())
        && format != Format::Whole
        && is_cut
    {
        tracing::warn!(
            "{name} has the name of a file of {promised}, but its records are `{format}`: \
             programs may get parts of records. `eyas dfs set --records {promised} {name}` \
             changes that"
        );
    }
    Ok(())
}
