//! Sorts lines by key within bounded memory, and counts equal lines instead of sorting each of
//! them.
//!
//! The order is that of `LC_ALL=C sort -t TAB -k 1,1`: by the bytes before the first tab, then by
//! all bytes. Equal lines are the same bytes, so a line that is written as often as it was read
//! gives the same output as a sort of all lines. A table finds equal lines by a hash: text has many
//! words and few different ones, so few lines are left to sort. The table is not used for the rest
//! of a batch whose lines are mostly different.
//!
//! When a batch is full, it is sorted and spilled to a file in the scratch folder; the files are
//! merged at the end.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use hashbrown::{DefaultHashBuilder, HashTable};
use memchr::memchr;

/// Maximum bytes of different lines that a task holds in memory while it sorts. A longer line is
/// held alone.
const SORT_MEMORY: usize = 128 << 20;

/// Maximum number of different lines that a task holds in memory while it sorts, of 32 bytes each.
/// As many fit in a table of 4 Mi places of 5 bytes, so that a sorter takes at most 256 MiB in all.
const SORT_LINES: usize = 3 << 20;

/// Maximum number of files of sorted lines of a task. When there are as many, they are merged into
/// one.
const SORT_FILES: usize = 64;

/// Maximum length of a line that a program writes. A line is held in memory.
const MAX_LINE_BYTES: usize = 1 << 30;

/// Number of lines after which it is decided whether the table is worth its time.
const SAMPLE_LINES: usize = 1 << 16;

/// Fewer lines with the same head are compared as a whole.
const MIN_HEADS: usize = 8;

/// Lines that are equal in this number of bytes are compared as a whole.
const MAX_HEADS_BYTES: usize = 128;

/// Size of reads and writes.
pub(super) const BUFFER_BYTES: usize = 1 << 18;

/// Number of bytes that the copies of a repeated line fill before they are written together.
const REPEATED_BYTES: usize = 1 << 14;

/// Sorts the lines of `source` into `output`, which need not take all of them. Files for lines that
/// do not fit in memory are in `scratch`.
///
/// # Errors
/// If `source` cannot be read, or `scratch` or `output` cannot be written.
pub(crate) fn sort_lines(
    source: impl BufRead,
    output: impl Write,
    scratch: PathBuf,
) -> io::Result<()> {
    sort_within(source, output, LineSorter::new(scratch, SORT_MEMORY, SORT_LINES))
}

fn sort_within(source: impl BufRead, output: impl Write, mut sorter: LineSorter) -> io::Result<()> {
    read_lines(source, |line, next| sorter.add(line, next))?;
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
    match sorter.write(&mut output).and_then(|()| output.flush()) {
        // The reader of the output has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Calls `each` for every line, without its line feed, and with the buffered bytes from the
/// beginning of the line on. The last line may have no line feed.
///
/// # Errors
/// If the source cannot be read, a line is longer than [`MAX_LINE_BYTES`], or `each` fails.
pub(super) fn read_lines(
    mut source: impl BufRead,
    mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut begun = Vec::new();
    loop {
        let buffer = match source.fill_buf() {
            Ok([]) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            filled => filled?,
        };
        let mut rest = buffer;
        while let Some(end) = memchr(b'\n', rest) {
            if begun.is_empty() {
                each(&rest[..end], rest)?;
            } else {
                begun.extend_from_slice(&rest[..end]);
                each(&begun, &begun)?;
                begun.clear();
            }
            rest = &rest[end + 1..];
        }
        begun.extend_from_slice(rest);
        if begun.len() > MAX_LINE_BYTES {
            return Err(io::Error::other(format!(
                "the program wrote a line longer than {MAX_LINE_BYTES} bytes"
            )));
        }
        let read_bytes = buffer.len();
        source.consume(read_bytes);
    }
    if begun.is_empty() { Ok(()) } else { each(&begun, &begun) }
}

/// A different line of the batch in memory.
#[derive(Clone, Copy)]
struct Entry {
    head: Head,
    start: u32,
    length: u32,
    count: u64,
}

/// The first 16 bytes of a line, followed by zeros if the line is shorter. They are in the entry,
/// so that most equal lines are found without a look at their bytes. While a batch is sorted, the
/// head is replaced by numbers in the order of lines: the first half by [`prefix_of`] the line, or
/// both halves by the 16 bytes that decide at present.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head(u64, u64);

impl Head {
    const BYTES: usize = 16;

    /// The head of a line. `buffered` has at least the bytes of the line.
    fn of(line: &[u8], buffered: &[u8]) -> Self {
        let mut short = [0; Head::BYTES];
        // In most cases more lines follow in the buffer, so that no copy of a variable length is
        // needed.
        let bytes = buffered.first_chunk().unwrap_or_else(|| {
            let length = line.len().min(Head::BYTES);
            short[..length].copy_from_slice(&line[..length]);
            &short
        });
        let unused_bits = 8 * Head::BYTES.saturating_sub(line.len()) as u32;
        let head = u128::from_le_bytes(*bytes) & u128::MAX.checked_shr(unused_bits).unwrap_or(0);
        Head(head as u64, (head >> 64) as u64)
    }
}

/// Hashes lines: short ones by their head.
struct LineHasher {
    long: DefaultHashBuilder,
    /// Random numbers, so that no input is slow for all processes.
    seeds: Head,
}

impl LineHasher {
    fn new() -> Self {
        let long = DefaultHashBuilder::default();
        LineHasher { seeds: Head(long.hash_one(0), long.hash_one(1)), long }
    }

    fn hash(&self, line: &[u8], head: Head) -> u64 {
        if line.len() > Head::BYTES {
            return self.long.hash_one(line);
        }
        let length = (line.len() as u64) << 56;
        let product =
            u128::from(head.0 ^ self.seeds.0) * u128::from(head.1 ^ length ^ self.seeds.1);
        (product >> 64) as u64 ^ product as u64
    }
}

struct LineSorter {
    scratch: PathBuf,
    max_bytes: usize,
    max_lines: usize,
    /// The different lines, one after the other, each with a line feed.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Indices into `entries`, found by the hash of the line.
    table: HashTable<u32>,
    hasher: LineHasher,
    /// Number of lines of the batch, including repeated ones.
    added: usize,
    is_counting: bool,
    /// Each has sorted lines with their counts.
    files: Vec<File>,
}

impl LineSorter {
    fn new(scratch: PathBuf, max_bytes: usize, max_lines: usize) -> Self {
        LineSorter {
            scratch,
            max_bytes,
            max_lines,
            // Growing would need twice the memory for a moment. Memory that is not used is not
            // taken from the system.
            bytes: Vec::with_capacity(max_bytes),
            entries: Vec::with_capacity(max_lines),
            table: HashTable::new(),
            hasher: LineHasher::new(),
            added: 0,
            is_counting: true,
            files: Vec::new(),
        }
    }

    /// Adds a line. `buffered` begins with the line, and may go on with other bytes.
    fn add(&mut self, line: &[u8], buffered: &[u8]) -> io::Result<()> {
        if self.added == SAMPLE_LINES && self.entries.len() > SAMPLE_LINES / 2 {
            self.is_counting = false;
        }
        self.added += 1;
        let head = Head::of(line, buffered);
        if !self.is_counting {
            self.make_room(line)?;
            self.push(line, buffered, head);
            return Ok(());
        }
        let hash = self.hasher.hash(line, head);
        let found = self.table.find(hash, |index| {
            let entry = &self.entries[*index as usize];
            let is_similar = entry.head == head && entry.length as usize == line.len();
            is_similar && (line.len() <= Head::BYTES || line_of(&self.bytes, entry) == line)
        });
        if let Some(index) = found {
            self.entries[*index as usize].count += 1;
            return Ok(());
        }
        self.make_room(line)?;
        let (hasher, bytes, entries) = (&self.hasher, &self.bytes, &self.entries);
        let hash_again = |index: &u32| {
            let entry = &entries[*index as usize];
            hasher.hash(line_of(bytes, entry), entry.head)
        };
        self.table.insert_unique(hash, self.entries.len() as u32, hash_again);
        self.push(line, buffered, head);
        Ok(())
    }

    fn push(&mut self, line: &[u8], buffered: &[u8], head: Head) {
        // A batch has fewer bytes than 32 bits count, and so has a line.
        let (start, length) = (self.bytes.len() as u32, line.len() as u32);
        self.entries.push(Entry { head, start, length, count: 1 });
        match with_line_feed(line, buffered) {
            Some(whole) => self.bytes.extend_from_slice(whole),
            None => {
                self.bytes.extend_from_slice(line);
                self.bytes.push(b'\n');
            }
        }
    }

    /// Spills the batch if it has no room for this line.
    fn make_room(&mut self, line: &[u8]) -> io::Result<()> {
        let is_full =
            self.entries.len() >= self.max_lines || self.bytes.len() + line.len() >= self.max_bytes;
        if is_full && !self.entries.is_empty() { self.spill() } else { Ok(()) }
    }

    /// Moves the batch to a file.
    fn spill(&mut self) -> io::Result<()> {
        if self.files.len() == SORT_FILES {
            let mut spill = Spill::create(&self.scratch)?;
            merge(std::mem::take(&mut self.files), |line, count| spill.add(line, count))?;
            self.files.push(spill.finish()?);
        }
        let mut spill = Spill::create(&self.scratch)?;
        self.sort();
        self.entries
            .iter()
            .try_for_each(|entry| spill.add(line_of(&self.bytes, entry), entry.count))?;
        self.files.push(spill.finish()?);
        self.bytes.clear();
        self.bytes.shrink_to(self.max_bytes);
        self.entries.clear();
        self.table.clear();
        (self.added, self.is_counting) = (0, true);
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        if !bytes.iter().any(|byte| *byte < b'\t') {
            // No byte comes before the tab, so the end of a key comes before all bytes of longer
            // keys anyway.
            return sort_by_bytes(bytes, &mut self.entries, 0);
        }
        for entry in &mut self.entries {
            entry.head.0 = prefix_of(line_of(bytes, entry));
        }
        self.entries.sort_unstable_by(|one, other| {
            let by_prefix = one.head.0.cmp(&other.head.0);
            by_prefix.then_with(|| compare(line_of(bytes, one), line_of(bytes, other)))
        });
    }

    /// Writes all lines in order, each as often as it was added.
    fn write(mut self, output: &mut impl Write) -> io::Result<()> {
        if self.files.is_empty() {
            self.table = HashTable::new();
            self.sort();
            return self.entries.iter().try_for_each(|entry| {
                let line = &self.bytes[entry.start as usize..][..=entry.length as usize];
                if entry.count == 1 {
                    output.write_all(line)
                } else {
                    repeat(line, entry.count, output)
                }
            });
        }
        self.spill()?;
        let files = std::mem::take(&mut self.files);
        drop(self);
        merge(files, |line, count| match count {
            1 => output.write_all(line).and_then(|()| output.write_all(b"\n")),
            _ => repeat(&[line, b"\n"].concat(), count, output),
        })
    }
}

/// Sorts lines without a zero byte by all their bytes. The lines are equal before the index `from`.
/// Replaces their heads.
///
/// Most comparisons look only at entries, which are next to each other in memory, and not at lines.
fn sort_by_bytes(bytes: &[u8], entries: &mut [Entry], from: usize) {
    for entry in &mut *entries {
        // The bytes after the line belong to other lines, or to none.
        let (rest, buffered) =
            (&line_of(bytes, entry)[from..], &bytes[entry.start as usize + from..]);
        let Head(first, second) = Head::of(rest, buffered);
        entry.head = Head(first.swap_bytes(), second.swap_bytes());
    }
    entries.sort_unstable_by_key(|entry| entry.head);
    let from = from + Head::BYTES;
    for same in entries.chunk_by_mut(|one, other| one.head == other.head) {
        // A line that has ended has a zero in its head, and the others of the chunk are equal to
        // it.
        let is_over = same[0].head.1 as u8 == 0;
        if same.len() == 1 || is_over {
            continue;
        }
        if same.len() < MIN_HEADS || from >= MAX_HEADS_BYTES {
            same.sort_unstable_by(|one, other| {
                line_of(bytes, one)[from..].cmp(&line_of(bytes, other)[from..])
            });
        } else {
            sort_by_bytes(bytes, same, from);
        }
    }
}

fn line_of<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    &bytes[entry.start as usize..][..entry.length as usize]
}

/// The line with its line feed, if that follows in the buffer. `buffered` begins with the line.
pub(super) fn with_line_feed<'a>(line: &[u8], buffered: &'a [u8]) -> Option<&'a [u8]> {
    buffered.get(..=line.len()).filter(|whole| whole.ends_with(b"\n"))
}

/// Writes a line with its line feed several times.
fn repeat(line: &[u8], count: u64, output: &mut impl Write) -> io::Result<()> {
    let together = (REPEATED_BYTES / line.len()).clamp(1, count as usize);
    let block = line.repeat(together);
    for _ in 0..count / together as u64 {
        output.write_all(&block)?;
    }
    output.write_all(&block[..line.len() * (count % together as u64) as usize])
}

/// The order of lines: by key, then by all bytes.
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let key = |line| memchr(b'\t', line).map_or(line, |tab| &line[..tab]);
    key(one).cmp(key(other)).then_with(|| one.cmp(other))
}

/// The first bytes of a line as a number: if it is less than that of another line, so is the line.
/// The end of the key is less than any byte of a key, so the bytes before the tab's place in the
/// alphabet move up by one.
fn prefix_of(line: &[u8]) -> u64 {
    if let Some(first) = line.first_chunk()
        && first.iter().all(|byte| *byte > b'\t')
    {
        return u64::from_be_bytes(*first);
    }
    let (mut prefix, mut is_key) = ([0; 8], true);
    for (to, byte) in prefix.iter_mut().zip(line) {
        *to = match byte {
            b'\t' if is_key => 0,
            ..b'\t' if is_key => byte + 1,
            _ => *byte,
        };
        is_key &= *byte != b'\t';
    }
    u64::from_be_bytes(prefix)
}

/// A file of lines in order, with their counts.
struct Spill(BufWriter<File>);

impl Spill {
    fn create(scratch: &Path) -> io::Result<Self> {
        Ok(Spill(BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile_in(scratch)?)))
    }

    fn add(&mut self, line: &[u8], count: u64) -> io::Result<()> {
        self.0.write_all(&count.to_le_bytes())?;
        self.0.write_all(&(line.len() as u32).to_le_bytes())?;
        self.0.write_all(line)
    }

    fn finish(self) -> io::Result<File> {
        let mut file = self.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }
}

/// Reads a [`Spill`].
struct SpillReader {
    file: BufReader<File>,
    line: Vec<u8>,
    /// [`prefix_of`] the line.
    prefix: u64,
    count: u64,
}

impl SpillReader {
    /// The file at its first line; `None` if it has no line.
    fn open(file: File) -> io::Result<Option<Self>> {
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut spilled = SpillReader { file, line: Vec::new(), prefix: 0, count: 0 };
        Ok(spilled.advance()?.then_some(spilled))
    }

    /// Goes to the next line. Returns whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        if self.file.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let (mut count, mut length) = ([0; 8], [0; 4]);
        self.file.read_exact(&mut count)?;
        self.file.read_exact(&mut length)?;
        self.count = u64::from_le_bytes(count);
        self.line.resize(u32::from_le_bytes(length) as usize, 0);
        self.file.read_exact(&mut self.line)?;
        self.prefix = prefix_of(&self.line);
        Ok(true)
    }
}

impl Ord for SpillReader {
    fn cmp(&self, other: &Self) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| compare(&self.line, &other.line))
    }
}

impl PartialOrd for SpillReader {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SpillReader {
    fn eq(&self, other: &Self) -> bool {
        self.line == other.line
    }
}

impl Eq for SpillReader {}

/// Calls `each` for every line of the files with its count, in order.
fn merge(files: Vec<File>, mut each: impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<()> {
    let opened = files.into_iter().filter_map(|file| SpillReader::open(file).transpose());
    let mut heap: BinaryHeap<_> =
        opened.map(|spilled| spilled.map(Reverse)).collect::<io::Result<_>>()?;
    while let Some(mut least) = heap.peek_mut() {
        each(&least.0.line, least.0.count)?;
        if !least.0.advance()? {
            PeekMut::pop(least);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines in the order of `LC_ALL=C sort -t TAB -k 1,1`.
    fn sorted(text: &[u8]) -> Vec<u8> {
        let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        lines.pop_if(|last| last.is_empty());
        lines.sort_by_key(|line| (line.split(|byte| *byte == b'\t').next().unwrap(), *line));
        lines.into_iter().flat_map(|line| [line, b"\n"].concat()).collect()
    }

    fn within(text: &[u8], max_bytes: usize, max_lines: usize) -> Vec<u8> {
        let scratch = tempfile::tempdir().unwrap();
        let mut output = Vec::new();
        let sorter = LineSorter::new(scratch.path().to_owned(), max_bytes, max_lines);
        sort_within(text, &mut output, sorter).unwrap();
        output
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn lines_of_any_bytes_are_sorted_whatever_the_memory(
            text in prop::collection::vec(
                prop::sample::select(&b"\n\n\t\0\x08\x0aab\xff"[..]),
                0..400,
            ),
            max_bytes in 0..60usize,
            max_lines in 1..20usize,
        ) {
            let expected = sorted(&text);
            prop_assert_eq!(&within(&text, SORT_MEMORY, SORT_LINES), &expected);
            prop_assert_eq!(&within(&text, max_bytes, max_lines), &expected);
        }

        #[test]
        fn long_lines_that_begin_alike_are_sorted(
            lines in prop::collection::vec(("[ab]{0,3}", 0..10usize, "[\t\n aä]{0,3}"), 0..60),
        ) {
            let line = |(begin, repeats, end): &(String, usize, String)| {
                [begin.as_str(), &"0123456789abcde\t".repeat(*repeats), end].concat()
            };
            let text = lines.iter().map(line).collect::<Vec<_>>().join("\n");
            prop_assert_eq!(
                within(text.as_bytes(), SORT_MEMORY, SORT_LINES),
                sorted(text.as_bytes())
            );
        }

        #[test]
        fn prefixes_have_the_order_of_lines(
            one in prop::collection::vec(prop::sample::select(&b"\t\0\x08\x0bab\xff"[..]), 0..12),
            other in prop::collection::vec(prop::sample::select(&b"\t\0\x08\x0bab\xff"[..]), 0..12),
        ) {
            prop_assert!(
                prefix_of(&one).cmp(&prefix_of(&other)).then(compare(&one, &other))
                    == compare(&one, &other)
            );
        }
    }

    #[test]
    fn memory_is_bounded_and_files_are_merged() {
        let scratch = tempfile::tempdir().unwrap();
        let (max_bytes, max_lines) = (1000, 50);
        let mut sorter = LineSorter::new(scratch.path().to_owned(), max_bytes, max_lines);
        let mut text = Vec::new();
        for number in 0..20_000_u32 {
            let line = format!("key{}\t{}", number.wrapping_mul(2_654_435_761) % 5000, number % 3);
            sorter.add(line.as_bytes(), line.as_bytes()).unwrap();
            assert!(sorter.bytes.len() <= max_bytes && sorter.entries.len() <= max_lines);
            assert!(sorter.bytes.capacity() <= max_bytes && sorter.entries.capacity() <= max_lines);
            assert!(sorter.table.len() <= max_lines && sorter.files.len() <= SORT_FILES);
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        assert!(sorter.files.len() > 1);
        let mut output = Vec::new();
        sorter.write(&mut output).unwrap();
        assert!(output == sorted(&text));
    }

    #[test]
    fn equal_lines_are_counted_and_different_lines_are_not_looked_up() {
        let scratch = tempfile::tempdir().unwrap();
        let sorter = || LineSorter::new(scratch.path().to_owned(), SORT_MEMORY, SORT_LINES);
        let (mut equal, mut different) = (sorter(), sorter());
        for number in 0..2 * SAMPLE_LINES {
            for (sorter, line) in
                [(&mut equal, (number % 7).to_string()), (&mut different, number.to_string())]
            {
                sorter.add(line.as_bytes(), line.as_bytes()).unwrap();
            }
        }
        assert_eq!((equal.entries.len(), different.table.len()), (7, SAMPLE_LINES));
        let mut output = Vec::new();
        different.write(&mut output).unwrap();
        let text: String = (0..2 * SAMPLE_LINES).map(|number| format!("{number}\n")).collect();
        assert!(output == sorted(text.as_bytes()));
    }

    #[test]
    fn a_reader_that_has_enough_is_no_error_and_a_full_disk_is() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let scratch = tempfile::tempdir().unwrap();
        sort_lines("b\na\n".as_bytes(), writer, scratch.path().to_owned()).unwrap();
        let nowhere = LineSorter::new(scratch.path().join("none"), 1, 1);
        assert_eq!(
            sort_within("b\na\n".as_bytes(), io::sink(), nowhere).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
