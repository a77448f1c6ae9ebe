//! Headers of files, which each program of a job over blocks reads first if that is asked for: the first row of a
//! table, the lines with `#` of a VCF file, the lines with `@` of a SAM file.

use eyas_dfs::blocks::format::Cutter;
use eyas_dfs::{DfsClient, File};
use eyas_types::dfs::Format;
use memchr::memchr;

use super::worker::WorkError;

/// The header of a file, which ends with a line feed; empty if the file is.
pub(super) async fn header_of(files: &DfsClient, file: &File) -> Result<Vec<u8>, WorkError> {
    let Some(first) = file.record.chunks.first() else { return Ok(Vec::new()) };
    let mut header = files.read_at(file, 0, first.size_bytes).await?;
    let bytes = header_bytes(file, &header);
    if bytes == header.len() && file.record.chunks.len() > 1 {
        return Err(WorkError::Header(file.name.clone()));
    }
    header.truncate(bytes);
    if header.last().is_some_and(|last| *last != b'\n') {
        header.push(b'\n');
    }
    Ok(header)
}

/// Size of the header at the beginning of the first chunk of a file.
pub(super) fn header_bytes(file: &File, content: &[u8]) -> usize {
    let name = file.name.base_name().to_ascii_lowercase();
    let mark = match name.rsplit('.').next() {
        Some("vcf") => b'#',
        Some("sam") => b'@',
        _ => return first_record_bytes(*file.record.format, content),
    };
    let mut at = 0;
    while content.get(at) == Some(&mark) {
        at = memchr(b'\n', &content[at..]).map_or(content.len(), |end| at + end + 1);
    }
    at
}

fn first_record_bytes(format: Format, content: &[u8]) -> usize {
    let format = if format == Format::Csv { Format::Csv } else { Format::Lines };
    let end = Cutter::new(format, 1).cut(content).ok().flatten();
    end.unwrap_or(content.len())
}
