//! Headers of files, which each program of a job over blocks reads first if that is asked for: the
//! first row of a table, the lines with `#` of a VCF file, the lines with `@` of a SAM file. A
//! header may take several chunks. That of a file of `bgzip` is passed on in blocks of its own.

use super::error::WorkError;
use std::io::{self, Read, Write};

use eyas_files::blocks::format::Cutter;
use eyas_files::{DfsClient, File};
use eyas_types::dfs::{FileName, Format, PROBED_BYTES};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::DeflateEncoder;
use memchr::memchr;

/// Longest header, which each process of a program gets from memory.
pub(super) const MAX_HEADER_BYTES: usize = 64 << 20;

/// Bytes of text in a block, as `bgzip` has them: a block has less than 64 KiB, also if its text
/// cannot be compressed.
const BLOCK_TEXT_BYTES: usize = 0xff00;

/// The header of a file.
#[derive(Debug, Default)]
pub(super) struct FileHeader {
    /// The bytes that each program reads first. Their text ends with a line feed.
    pub bytes: Vec<u8>,
    /// Size of the beginning of the file that has the header, and is not read in its place.
    pub size_bytes: u64,
    /// The bytes that are read in its place: the text behind the header in its last block of
    /// `bgzip`.
    pub rest: Vec<u8>,
}

/// Reads the header of a file.
pub(super) async fn header_of(files: &DfsClient, file: &File) -> Result<FileHeader, WorkError> {
    let (mut text, mut offset) = (None, 0);
    for chunk in &file.record.chunks {
        let part = files.read_at(file, offset, chunk.size_bytes).await?;
        offset += chunk.size_bytes;
        let text = match &mut text {
            Some(text) => text,
            None => text.insert(HeaderSearch::new(&file.name, *file.record.format, &part)?),
        };
        let end = text
            .add(&part)
            .map_err(|error| WorkError::CompressedHeader(file.name.clone(), error))?;
        if let Some(end) = end {
            return text
                .header(end)
                .map_err(|error| WorkError::CompressedHeader(file.name.clone(), error));
        }
        if text.is_too_long() {
            return Err(WorkError::Header(file.name.clone()));
        }
    }
    let Some(text) = text else { return Ok(FileHeader::default()) };
    let header = text.header(text.text.len());
    let header = header.map_err(|error| WorkError::CompressedHeader(file.name.clone(), error))?;
    Ok(FileHeader { size_bytes: offset, ..header })
}

/// The beginning of a file, in which the end of the header is searched.
struct HeaderSearch {
    text: Vec<u8>,
    end: HeaderEnd,
    /// Bytes of the text in which the end was not found.
    searched: usize,
    blocks: Option<Blocks>,
}

/// The blocks of a file of `bgzip`.
struct Blocks {
    cutter: Cutter,
    /// The block that is not complete.
    open: Vec<u8>,
    /// Bytes of the complete blocks.
    bytes: u64,
    /// Where blocks end: in the file, and in the text.
    ends: Vec<(u64, usize)>,
}

/// What ends a header.
enum HeaderEnd {
    /// The first line that does not begin with this byte; `line` is where the present line begins.
    Unmarked { mark: u8, line: usize },
    /// The end of the first record.
    Record(Box<Cutter>),
}

impl HeaderSearch {
    fn new(name: &FileName, format: Format, first: &[u8]) -> Result<Self, WorkError> {
        let blocks = match Format::guess("", &first[..first.len().min(PROBED_BYTES)]) {
            Format::Lines => None,
            Format::Bgzf => {
                let cutter = Cutter::new(Format::Bgzf, 1);
                Some(Blocks { cutter, open: Vec::new(), bytes: 0, ends: Vec::new() })
            }
            _ => return Err(WorkError::NoHeader(name.clone())),
        };
        let name = name.base_name().to_ascii_lowercase();
        let plain =
            [".gz", ".bgz"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let end = match plain.rsplit('.').next() {
            Some("vcf") => HeaderEnd::Unmarked { mark: b'#', line: 0 },
            Some("sam") => HeaderEnd::Unmarked { mark: b'@', line: 0 },
            _ => {
                let format = match (format, Format::of_name(plain)) {
                    (csv, _) | (_, Some(csv)) if csv.is_csv() => csv,
                    _ => Format::Lines,
                };
                HeaderEnd::Record(Box::new(Cutter::new(format, 1)))
            }
        };
        Ok(HeaderSearch { text: Vec::new(), end, searched: 0, blocks })
    }

    /// Adds the next bytes of the file. Returns the size of the header when its end is in the text.
    /// Blocks behind it are not unpacked, and none when the text is too long: a chunk may have a
    /// thousand times its size of text.
    fn add(&mut self, part: &[u8]) -> io::Result<Option<usize>> {
        if self.blocks.is_none() {
            self.text.extend_from_slice(part);
            return Ok(self.find_end());
        }
        let mut rest = part;
        while let Some(blocks) = &mut self.blocks
            // The file is not what its beginning says if the cutter fails, which accepts anything.
            && let Some(taken) = blocks.cutter.cut(rest).map_err(io::Error::other)?
        {
            blocks.open.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            GzDecoder::new(&blocks.open[..]).read_to_end(&mut self.text)?;
            blocks.bytes += blocks.open.len() as u64;
            blocks.open.clear();
            blocks.ends.push((blocks.bytes, self.text.len()));
            let end = self.find_end();
            if end.is_some() || self.is_too_long() {
                return Ok(end);
            }
        }
        if let Some(blocks) = &mut self.blocks {
            blocks.open.extend_from_slice(rest);
        }
        Ok(None)
    }

    fn is_too_long(&self) -> bool {
        self.text.len() > MAX_HEADER_BYTES
    }

    /// The size of the header, if it ends in the text.
    fn find_end(&mut self) -> Option<usize> {
        let from = std::mem::replace(&mut self.searched, self.text.len());
        match &mut self.end {
            HeaderEnd::Record(cutter) => {
                cutter.cut(&self.text[from..]).ok().flatten().map(|taken| from + taken)
            }
            HeaderEnd::Unmarked { mark, line } => loop {
                match self.text.get(*line) {
                    Some(first) if first == mark => {}
                    Some(_) => return Some(*line),
                    None => return None,
                }
                let begin = from.max(*line);
                *line = begin + memchr(b'\n', &self.text[begin..])? + 1;
            },
        }
    }

    /// The header, which has this number of bytes of the text.
    fn header(&self, size: usize) -> io::Result<FileHeader> {
        let mut bytes = self.text[..size].to_vec();
        if bytes.last().is_some_and(|last| *last != b'\n') {
            bytes.push(b'\n');
        }
        let Some(blocks) = &self.blocks else {
            return Ok(FileHeader { bytes, size_bytes: size as u64, rest: Vec::new() });
        };
        let last = blocks.ends.iter().find(|(_, text)| *text >= size);
        let (size_bytes, end) = last.copied().unwrap_or((blocks.bytes, self.text.len()));
        Ok(FileHeader {
            bytes: compressed(&bytes)?,
            size_bytes,
            rest: compressed(&self.text[size..end])?,
        })
    }
}

/// Text as blocks of `bgzip` (SAM specification, §4.1).
fn compressed(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut blocks = Vec::new();
    for part in text.chunks(BLOCK_TEXT_BYTES) {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(part)?;
        let content = encoder.finish()?;
        let mut checksum = flate2::Crc::new();
        checksum.update(part);
        let last = (18 + content.len() + 8 - 1) as u16;
        blocks.extend([0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0, b'B', b'C', 2, 0]);
        blocks.extend(last.to_le_bytes());
        blocks.extend(content);
        blocks.extend(checksum.sum().to_le_bytes());
        blocks.extend((part.len() as u32).to_le_bytes());
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a file that comes in parts of this size, and the bytes behind it.
    fn header(
        name: &str,
        content: &[u8],
        part_bytes: usize,
    ) -> Result<(FileHeader, Vec<u8>), String> {
        let beginning =
            HeaderSearch::new(&name.parse().unwrap(), Format::guess(name, content), content);
        let mut beginning = beginning.map_err(|error| error.to_string())?;
        for part in content.chunks(part_bytes) {
            if let Some(end) = beginning.add(part).unwrap() {
                let header = beginning.header(end).unwrap();
                let behind = [&header.rest[..], &content[header.size_bytes as usize..]].concat();
                return Ok((header, behind));
            }
        }
        Ok((beginning.header(beginning.text.len()).unwrap(), Vec::new()))
    }

    #[test]
    fn blocks_behind_the_header_are_not_unpacked() {
        let zeros = compressed(&[0; BLOCK_TEXT_BYTES]).unwrap();
        let part = [compressed(b"a,b\n").unwrap(), zeros.repeat(100)].concat();
        for name in ["/a.csv.gz", "/a.txt.gz", "/a.vcf.gz"] {
            let mut beginning =
                HeaderSearch::new(&name.parse().unwrap(), Format::Bgzf, &part).unwrap();
            assert!(beginning.add(&part).unwrap().is_some());
            assert_eq!(beginning.text, b"a,b\n");
        }
        // A header without an end is refused before all of it is in memory.
        let mut beginning =
            HeaderSearch::new(&"/a.csv.gz".parse().unwrap(), Format::Bgzf, &zeros).unwrap();
        beginning.text = vec![0; MAX_HEADER_BYTES];
        beginning.searched = MAX_HEADER_BYTES;
        assert_eq!(beginning.add(&zeros.repeat(3)).unwrap(), None);
        assert_eq!(beginning.text.len(), MAX_HEADER_BYTES + BLOCK_TEXT_BYTES);
        assert!(beginning.is_too_long());
    }

    fn plain(content: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        if !content.is_empty() {
            flate2::bufread::MultiGzDecoder::new(content).read_to_end(&mut text).unwrap();
        }
        text
    }

    #[test]
    fn headers_end_where_their_kind_says_however_the_file_is_cut() {
        let long = format!("##contig={}\n", "x".repeat(200_000));
        let vcf = (format!("{long}#CHROM\n"), "1\t#2\n#3\n");
        for (name, (header_text, records)) in [
            ("/a.vcf", (vcf.0.as_str(), vcf.1)),
            ("/a.vcf.gz", (vcf.0.as_str(), vcf.1)),
            ("/a.vcf.bgz", ("", "1\n")),
            ("/a.SAM", ("@HD\n@SQ\n", "r\t@\n")),
            ("/a.csv", ("\"a\nb\",c\n", "1,2\n3,4\n")),
            ("/a.csv.gz", ("\"a\nb\",c\n", "1,2\n3,4\n")),
            ("/a.tsv", ("a\tb\n", "1\t2\n")),
            ("/only.vcf", ("##a\n#b\n", "")),
            ("/only.vcf.gz", ("##a\n#b\n", "")),
        ] {
            let text = [header_text, records].concat();
            let is_compressed = name.ends_with("gz");
            let content = if is_compressed {
                compressed(text.as_bytes()).unwrap()
            } else {
                text.clone().into()
            };
            for part_bytes in [100, 70_000, content.len().max(1)] {
                let (found, behind) = header(name, &content, part_bytes).unwrap();
                let (bytes, behind) = if is_compressed {
                    (plain(&found.bytes), plain(&behind))
                } else {
                    (found.bytes, behind)
                };
                assert!(bytes == header_text.as_bytes(), "{name} {part_bytes}: {}", bytes.len());
                assert_eq!(String::from_utf8(behind).unwrap(), records, "{name} {part_bytes}");
            }
        }
        // The line of a header without its line feed gets one.
        assert_eq!(header("/a.csv", b"a,b", 10).unwrap().0.bytes, b"a,b\n");
        for (name, content) in
            [("/a.vcf.gz", &b"\x1f\x8b\x08\0\0\0\0\0"[..]), ("/a.csv", b"\xff\xfea\0\n\0")]
        {
            assert!(header(name, content, 10).unwrap_err().contains("--header"), "{name}");
        }
    }
}
