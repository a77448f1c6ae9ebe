//! Chunks of files whose records are known, independent of how their content is divided into calls.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;

/// Feeds `content` in pieces of these sizes, in rotation. Returns the borders of its chunks except
/// the last one, and how the file ended.
fn feed(
    cutter: &mut Cutter,
    content: &[u8],
    piece_bytes: &[usize],
) -> (Vec<u64>, Result<Ending, BadContent>) {
    let (mut ends, mut rest) = (Vec::new(), content);
    let mut sizes = piece_bytes.iter().cycle();
    while !rest.is_empty() {
        let (mut piece, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        loop {
            match cutter.cut(piece) {
                Ok(Some(taken)) => piece = &piece[taken..],
                Ok(None) => break,
                Err(error) => return (ends, Err(error)),
            }
            ends.push(cutter.offset);
        }
        rest = later;
    }
    (ends, cutter.finish())
}

/// The chunks of a file, as text.
fn chunks<'a>(
    format: &str,
    chunk_bytes: u64,
    content: &'a str,
) -> Result<(Vec<&'a str>, Ending), BadContent> {
    let mut cutter = Cutter::new(format.parse().unwrap(), chunk_bytes);
    let (mut ends, ending) = feed(&mut cutter, content.as_bytes(), &[content.len()]);
    ends.push(content.len() as u64);
    let mut begin = 0;
    let mut chunk = |end: u64| {
        let chunk = &content[begin..end as usize];
        begin = end as usize;
        chunk
    };
    let chunks = ends.into_iter().map(&mut chunk).filter(|chunk| !chunk.is_empty()).collect();
    Ok((chunks, ending?))
}

#[test]
fn chunks_end_with_records() {
    use Ending::{Open, Whole};
    let cases: &[(&str, u64, &str, &[&str], Ending)] = &[
        ("lines", 4, "", &[], Whole),
        ("lines", 4, "ab", &["ab"], Open),
        ("lines", 4, "abc\nd\n\n\ne\nf", &["abc\n", "d\n\n\n", "e\nf"], Open),
        // The second chunk would begin at 4. The record at 3 goes beyond that, and the next record
        // belongs to the third chunk.
        ("lines", 4, "ab\ncdefgh\ni\njk\nl\n", &["ab\ncdefgh\n", "i\n", "jk\nl\n"], Whole),
        ("lines", 1, "\n\r\n\0\n", &["\n", "\r\n", "\0\n"], Whole),
        ("lines", u64::MAX, "a\nb\n", &["a\nb\n"], Whole),
        ("json-lines", 3, "{}\n{\"a\":\"\\n\"}\n1\n", &["{}\n", "{\"a\":\"\\n\"}\n", "1\n"], Whole),
        ("csv", 1, "", &[], Whole),
        ("csv", 1, "a,b\r\n\"x\ny\",2\r\n\r\n3", &["a,b\r\n", "\"x\ny\",2\r\n", "\r\n", "3"], Open),
        (
            "csv",
            1,
            "\"a\"\"\n\",\"\"\n\"\"\"\n\"\n",
            &["\"a\"\"\n\",\"\"\n", "\"\"\"\n\"\n"],
            Whole,
        ),
        ("csv", 1, "5\" pipe\n\"\n\"\n", &["5\" pipe\n", "\"\n\"\n"], Whole),
        ("csv", 1, "a\"\"\nb\n", &["a\"\"\n", "b\n"], Whole),
        (
            "csv",
            1,
            "a;\"\n\"\nb\t\"\n\"\nc|\"\n\"\n",
            &["a;\"\n\"\n", "b\t\"\n\"\n", "c|\"\n\"\n"],
            Whole,
        ),
        ("csv", 1, "\"a\"", &["\"a\""], Open),
        ("fixed:3", 1, "", &[], Whole),
        ("fixed:3", 4, "abcdefghi\n\0\n", &["abcdef", "ghi", "\n\0\n"], Whole),
        ("fixed:3", 6, "abcdefghi", &["abcdef", "ghi"], Whole),
        ("fixed:1", 4, "abcdefghi", &["abcd", "efgh", "i"], Whole),
        ("fasta", 1, "", &[], Whole),
        ("fasta", 1, "\r\n \n", &["\r\n \n"], Whole),
        ("fasta", 1, ">a\nAC\n>b >c\n\n\nGT\n>d", &[">a\nAC\n", ">b >c\n\n\nGT\n", ">d"], Open),
        ("fasta", 1, "\n;>x\n;y\n>a\r\nAC\r\n>\r\n", &["\n;>x\n;y\n>a\r\nAC\r\n", ">\r\n"], Whole),
        ("fasta", 9, ">a\nA\n>b\nA\n>c\nA\n", &[">a\nA\n>b\nA\n", ">c\nA\n"], Whole),
        ("fastq", 1, "", &[], Whole),
        (
            "fastq",
            1,
            "@a\nAC\n+\n@I\n@b\nG\n+b\n+\n",
            &["@a\nAC\n+\n@I\n", "@b\nG\n+b\n+\n"],
            Whole,
        ),
        (
            "fastq",
            1,
            "@a\nA\nC\n+\n+\n@\n@b\n\n+\n\n\n",
            &["@a\nA\nC\n+\n+\n@\n", "@b\n\n+\n\n\n"],
            Whole,
        ),
        (
            "fastq",
            1,
            "\r\n@a\r\nAC\r\n+\r\nII\r\n\r\n@b\r\nA\r\n+\r\nI",
            &["\r\n@a\r\nAC\r\n+\r\nII\r\n\r\n", "@b\r\nA\r\n+\r\nI"],
            Open,
        ),
        ("fastq", 1, "@a\n+\n\n@b\n+\n", &["@a\n+\n\n", "@b\n+\n"], Open),
        ("length-prefixed:1be", 1, "", &[], Whole),
        ("length-prefixed:1be", 1, "\x03abc\0\0\x01x", &["\x03abc", "\0", "\0", "\x01x"], Whole),
        ("length-prefixed:2be", 6, "\0\x01a\0\x02bc\0\0", &["\0\x01a\0\x02bc", "\0\0"], Whole),
        ("length-prefixed:4le", 1, "\x01\0\0\0a\0\0\0\0", &["\x01\0\0\0a", "\0\0\0\0"], Whole),
        ("length-prefixed:8be", 1, "\0\0\0\0\0\0\0\x01a", &["\0\0\0\0\0\0\0\x01a"], Whole),
        ("whole", 1, "", &[], Open),
        ("whole", 1, "a\nb\n", &["a\nb\n"], Open),
    ];
    for &(format, chunk_bytes, content, expected, ending) in cases {
        assert_eq!(
            chunks(format, chunk_bytes, content),
            Ok((expected.to_vec(), ending)),
            "{format} {content:?}"
        );
    }
}

#[test]
fn other_content_is_refused_with_its_place() {
    let cases = [
        ("csv", "a\nb,\"c\n\n", 4, FormatProblem::OpenQuote),
        ("csv", "\"a\"\"", 0, FormatProblem::OpenQuote),
        ("fixed:4", "abcdefghij", 8, FormatProblem::CutOff),
        ("fasta", " \n ACGT\n", 3, FormatProblem::NoSequence),
        ("fasta", "\0>a\n", 0, FormatProblem::NoSequence),
        ("fastq", "ACGT\n", 0, FormatProblem::NoRead),
        ("fastq", "@a\nA\n+\nI\nI\n", 9, FormatProblem::NoRead),
        ("fastq", "@a\nA\n+\nI\n@b\nA\n+\nII\n", 9, FormatProblem::TooManyQualities),
        ("fastq", "@a\nA\n+\nII", 0, FormatProblem::TooManyQualities),
        ("fastq", "@a\nA\n+\nI\n@b\nAC\n+\nI\n", 9, FormatProblem::CutOff),
        ("fastq", "@a", 0, FormatProblem::CutOff),
        ("fastq", "@a\nA\n+", 0, FormatProblem::CutOff),
        ("length-prefixed:2be", "\0\x01a\0", 3, FormatProblem::CutOff),
        ("length-prefixed:1le", "\x01a\x05bc", 2, FormatProblem::BeyondEnd { length_bytes: 5 }),
        (
            "length-prefixed:8le",
            "text, not",
            0,
            FormatProblem::BeyondEnd { length_bytes: u64::from_le_bytes(*b"text, no") },
        ),
    ];
    for (format, content, offset, problem) in cases {
        let error = chunks(format, 4, content).unwrap_err();
        assert_eq!((error.offset, error.problem), (offset, problem), "{format} {content:?}");
        let said = error.to_string();
        assert!(said.contains(format) && said.contains(&format!("at byte {offset}.")), "{said}");
    }
}

#[test]
fn records_without_bytes_are_no_format() {
    for format in [
        Format::Fixed { record_bytes: 0 },
        Format::LengthPrefixed { prefix_bytes: 0, is_big_endian: true },
        Format::LengthPrefixed { prefix_bytes: 9, is_big_endian: true },
    ] {
        assert!(std::panic::catch_unwind(|| Cutter::new(format, 1)).is_err(), "{format}");
    }
    assert!(std::panic::catch_unwind(|| Cutter::new(Format::Lines, 0)).is_err());
}

#[test]
fn one_record_is_stored_in_chunks_of_any_bytes_and_has_no_border() {
    let content = vec![b'\n'; 3 << 20];
    let ends = |mut cutter: Cutter| {
        cutter.offset += WHOLE_CHUNK_BYTES - (2 << 20);
        cutter.begin_chunk();
        feed(&mut cutter, &content, &[1000]).0
    };
    assert_eq!(ends(Cutter::storing(Format::Whole, 1, 0)), [WHOLE_CHUNK_BYTES]);
    assert_eq!(
        ends(Cutter::storing(Format::Whole, WHOLE_CHUNK_BYTES + 10, 0)),
        [WHOLE_CHUNK_BYTES + 10]
    );
    assert_eq!(ends(Cutter::new(Format::Whole, 1)), []);
}

#[test]
fn tables_of_other_dialects_are_refused_where_they_show() {
    let cases: &[(&str, Option<(u64, FormatProblem)>)] = &[
        ("1,\"say \\\"hi\\\"\n\"\n", Some((8, FormatProblem::EscapedQuote))),
        ("1,\"\\\"\",2\n\"a\",1\n", Some((4, FormatProblem::EscapedQuote))),
        ("1,\"\\\",\n b\"\n", Some((4, FormatProblem::EscapedQuote))),
        ("\"a\"^\"b\nc\"\n", Some((4, FormatProblem::OtherDelimiter))),
        ("1,'a\nb'\n", Some((2, FormatProblem::SingleQuotes))),
        ("1,'a''s\nb''',2\n", Some((2, FormatProblem::SingleQuotes))),
        ("1,'a\\'s\nb'", Some((2, FormatProblem::SingleQuotes))),
        ("1,'a','','b''c'\n'',''\n'd'\r\n", None),
        ("1,'tis\nisn't\n'a\nb'\n", None),
        ("1,O'Neil\n2,dogs'\n", None),
        ("1,\"'a\nb'\"\n", None),
        // Backslashes that doubled quotes explain.
        ("1,\"C:\\\",2\n1,\"\\\"\"\"\n\"\\\\\"\n", None),
        ("1,5\\\" pipe\n", None),
        ("\"a\"b\"c\"\n", None),
    ];
    for (content, problem) in cases {
        for piece_bytes in [1, 2, 3, 100] {
            let (_, ending) =
                feed(&mut Cutter::new(Format::Csv, 1000), content.as_bytes(), &[piece_bytes]);
            let found = ending.err().map(|error| (error.offset, error.problem));
            assert_eq!(found, *problem, "{content:?} {piece_bytes}");
        }
    }
}

#[test]
fn a_chunk_may_be_larger_than_any_file() {
    let mut cutter = Cutter::resume(Format::Lines, 1 << 63, 1 << 63);
    assert_eq!(cutter.cut(b"a\nb\n"), Ok(None));
}

/// Bytes that have a meaning in one of the formats, and other bytes.
fn telling() -> impl Strategy<Value = u8> {
    prop::sample::select(&b"\n\n\r\"\",;>>@@++ \0\x01\x02aA\xff"[..])
}

fn line_end() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["\n", "\r\n"])
}

/// Bytes that are none of the `refused` ones.
fn without(
    refused: &'static [u8],
    bytes: core::ops::Range<usize>,
) -> impl Strategy<Value = Vec<u8>> {
    vec_of(telling().prop_map(move |byte| if refused.contains(&byte) { b'a' } else { byte }), bytes)
}

/// `content` in lines of at most `width` bytes; one empty line if there is none.
fn wrapped(content: &[u8], width: usize, line_end: &str) -> Vec<u8> {
    let lines: Vec<&[u8]> =
        if content.is_empty() { vec![b""] } else { content.chunks(width).collect() };
    lines.into_iter().flat_map(|line| [line, line_end.as_bytes()].concat()).collect()
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    (without(b"\n", 0..9), line_end()).prop_map(|(line, end)| [&line, end.as_bytes()].concat())
}

fn row() -> impl Strategy<Value = Vec<u8>> {
    let plain = without(b"\n,;", 0..5).prop_map(|field| match field.first() {
        Some(b'"') => [b"a", &field[..]].concat(),
        _ => field,
    });
    let quoted = vec_of(telling(), 0..5).prop_map(|field| {
        let doubled =
            field.iter().flat_map(|&byte| if byte == b'"' { vec![byte, byte] } else { vec![byte] });
        [vec![b'"'], doubled.collect(), vec![b'"']].concat()
    });
    (vec_of(prop_oneof![plain, quoted], 1..4), line_end())
        .prop_map(|(fields, end)| [&fields.join(&b','), end.as_bytes()].concat())
}

fn sequence() -> impl Strategy<Value = Vec<u8>> {
    (without(b"\n", 0..4), vec_of(without(b"\n", 0..5), 0..4), line_end()).prop_map(
        |(name, lines, end)| {
            let inside = lines
                .iter()
                .map(|line| line.strip_prefix(b">").unwrap_or(line))
                .filter(|line| line.first() != Some(&b'>'));
            let inside: Vec<u8> = inside.flat_map(|line| [line, end.as_bytes()].concat()).collect();
            [b">", &name[..], end.as_bytes(), &inside].concat()
        },
    )
}

fn read() -> impl Strategy<Value = Vec<u8>> {
    let bases =
        vec_of((prop::sample::select(&b"ACGTN"[..]), prop::sample::select(&b"@+I!~"[..])), 0..9);
    let form = (1..10usize, 1..10usize, line_end(), 0..3usize);
    (without(b"\n\r", 0..4), bases, form).prop_map(
        |(name, bases, (width, quality_width, end, blank))| {
            let (bases, qualities): (Vec<u8>, Vec<u8>) = bases.into_iter().unzip();
            let bases = wrapped(&bases, width, end);
            let qualities = wrapped(&qualities, quality_width, end);
            let end = end.as_bytes();
            [b"@", &name[..], end, &bases, b"+", &name, end, &qualities, &end.repeat(blank)]
                .concat()
        },
    )
}

/// A format and the records of a file.
fn file() -> impl Strategy<Value = (Format, Vec<Vec<u8>>)> {
    let of_text = prop_oneof![
        (Just(Format::Lines), vec_of(line(), 0..12)),
        (Just(Format::JsonLines), vec_of(line(), 0..12)),
        (Just(Format::Csv), vec_of(row(), 0..12)),
        (Just(Format::Fasta), vec_of(sequence(), 0..12)),
        (Just(Format::Fastq), vec_of(read(), 0..12)),
    ];
    let of_text = (of_text, any::<bool>()).prop_map(|((format, mut records), ends_with_line)| {
        let last = records.last_mut().filter(|_| !ends_with_line);
        last.map(Vec::pop);
        records.retain(|record| !record.is_empty());
        (format, records)
    });
    let fixed = (1..6u32).prop_flat_map(|record_bytes| {
        let size = record_bytes as usize;
        (Just(Format::Fixed { record_bytes }), vec_of(vec_of(telling(), size..=size), 0..12))
    });
    let prefix = (prop::sample::select(vec![1u8, 2, 4, 8]), any::<bool>());
    let prefixed = (prefix, vec_of(vec_of(telling(), 0..9), 0..12)).prop_map(
        |((size, is_big_endian), records)| {
            let prefix = |length: usize| {
                if is_big_endian {
                    length.to_be_bytes()[8 - size as usize..].to_vec()
                } else {
                    length.to_le_bytes()[..size as usize].to_vec()
                }
            };
            let records =
                records.into_iter().map(|record| [prefix(record.len()), record].concat()).collect();
            (Format::LengthPrefixed { prefix_bytes: size, is_big_endian }, records)
        },
    );
    let whole = (Just(Format::Whole), vec_of(vec_of(telling(), 1..50), 0..2));
    prop_oneof![5 => of_text, 1 => fixed, 1 => prefixed, 1 => whole]
}

/// The expected borders of the chunks of these records, except the last one: each record belongs to
/// the chunk that has its first byte.
fn expected(records: &[Vec<u8>], chunk_bytes: u64) -> Vec<u64> {
    let mut begins = Vec::new();
    let mut offset = 0;
    for record in records {
        begins.push(offset);
        offset += record.len() as u64;
    }
    let is_border = |pair: &[u64]| pair[0] / chunk_bytes != pair[1] / chunk_bytes;
    begins.windows(2).filter(|pair| is_border(pair)).map(|pair| pair[1]).collect()
}

/// Without the end of the content, which only some formats recognize as a border.
fn inner(mut ends: Vec<u64>, content: &[u8]) -> Vec<u64> {
    ends.retain(|&end| end < content.len() as u64);
    ends
}

/// The ends of rows, found byte by byte.
fn row_ends(content: &[u8]) -> Vec<u64> {
    let (mut ends, mut is_quoted, mut at) = (Vec::new(), false, 0);
    let mut begins_field = true;
    while at < content.len() {
        let byte = content[at];
        at += 1;
        if is_quoted {
            match (byte, content.get(at)) {
                (b'"', Some(b'"')) => at += 1,
                (b'"', _) => is_quoted = false,
                _ => {}
            }
            begins_field = false;
            continue;
        }
        is_quoted = byte == b'"' && begins_field;
        begins_field = matches!(byte, b'\n' | b',' | b';' | b'\t' | b'|');
        if byte == b'\n' {
            ends.push(at as u64);
        }
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn records_are_of_the_chunk_that_has_their_first_byte(
        (format, records) in file(),
        chunk_bytes in 1..60u64,
        pieces in vec_of(1..20usize, 1..4),
        split in any::<prop::sample::Index>(),
    ) {
        let content = records.concat();
        let expected = expected(&records, chunk_bytes);
        let (ends, ending) = feed(&mut Cutter::new(format, chunk_bytes), &content, &pieces);
        prop_assert_eq!(&inner(ends, &content), &expected);
        prop_assert!(ending.is_ok());

        // A file that was appended to has the same chunks as one that was written at once.
        let before = &content[..split.index(content.len() + 1)];
        let (ends, _) = feed(&mut Cutter::new(format, chunk_bytes), before, &pieces);
        let mut ends = inner(ends, before);
        let begin = ends.last().copied().unwrap_or(0);
        let (more, _) = feed(
            &mut Cutter::resume(format, chunk_bytes, begin),
            &content[begin as usize..],
            &pieces,
        );
        ends.extend(inner(more, &content));
        prop_assert_eq!(&ends, &expected);
    }

    #[test]
    fn any_content_is_cut_the_same_however_it_comes(
        (format, _) in file(),
        content in vec_of(telling(), 0..60),
        chunk_bytes in 1..20u64,
        pieces in vec_of(1..20usize, 1..4),
    ) {
        let at_once =
            feed(&mut Cutter::new(format, chunk_bytes), &content, &[content.len().max(1)]);
        let piecewise = feed(&mut Cutter::new(format, chunk_bytes), &content, &pieces);
        prop_assert_eq!(at_once, piecewise);
    }

    #[test]
    fn any_content_has_the_rows_that_a_byte_by_byte_reader_sees(
        content in vec_of(telling(), 0..60),
    ) {
        let (ends, _) = feed(&mut Cutter::new(Format::Csv, 1), &content, &[content.len().max(1)]);
        prop_assert_eq!(ends, row_ends(&content));
    }
}

#[test]
fn pieces_have_whole_records() {
    let cases: &[(&str, u32, &str, &[&str])] = &[
        ("lines", 1, "a\nb\n", &["a\nb\n"]),
        ("lines", 2, "a\nb\nc\nd\n", &["a\nb\n", "c\nd\n"]),
        ("lines", 4, "ab\ncdefghijk\nl\nm", &["ab\ncdefghijk\n", "", "", "l\nm"]),
        ("lines", 3, "abcdefghij", &["abcdefghij", "", ""]),
        ("lines", 3, "", &["", "", ""]),
        ("lines", 9, "\n\n", &["\n", "\n", "", "", "", "", "", "", ""]),
        ("csv", 2, "1,\"a\nb\nc\nd\"\n2\n3\n", &["1,\"a\nb\nc\nd\"\n", "2\n3\n"]),
        ("fixed:3", 2, "abcdefghi", &["abcdef", "ghi"]),
        ("whole", 2, "a\nb\n", &["a\nb\n", ""]),
    ];
    for (format, count, content, expected) in cases {
        let ends = piece_ends(format.parse().unwrap(), content.as_bytes(), *count).unwrap();
        let mut begin = 0;
        let pieces = ends.iter().map(|end| &content[core::mem::replace(&mut begin, *end)..*end]);
        assert_eq!(pieces.collect::<Vec<_>>(), *expected, "{format}: {content:?}");
    }
    assert!(
        piece_ends(Format::Csv, b"\"never closed\n", 2).is_ok(),
        "only the end of a file shows that"
    );
    assert!(piece_ends(Format::Fasta, b"ACGT\n", 2).is_err());
}

/// Three members of BGZF with some bytes each, the last of which is empty; headers as `bgzip`
/// writes them.
fn bgzf(sizes: [usize; 3]) -> Vec<Vec<u8>> {
    let member = |size: usize| {
        let last = (18 + size - 1) as u16;
        let header = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0, b'B', b'C', 2, 0];
        [&header[..], &last.to_le_bytes(), &vec![0x1f; size]].concat()
    };
    sizes.map(member).to_vec()
}

/// Frames of zstd: a raw block of 300 bytes without a checksum; a frame that is skipped; a repeated
/// byte with a checksum, after two blocks.
fn zstd() -> Vec<Vec<u8>> {
    let raw = [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, 9][..], &[0x61, 9, 0], &[0xfd; 300]].concat();
    let skipped = [&[0x51, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], &[0x28, 0xb5, 0x2f, 0xfd]].concat();
    let several = [
        &[0x28, 0xb5, 0x2f, 0xfd, 0x84, 0x58, 1, 1, 1, 1][..],
        &[0x10, 0, 0, 1, 2],
        &[0x0c, 0, 0, 1],
        &[0x03, 0x10, 0, 7],
        &[0xaa; 4],
    ]
    .concat();
    vec![raw, skipped, several]
}

const BZIP2_A: &str = "425a683931415926535919939b6b00000001002000200021184682ee48a70a120332736d60";
const BZIP2_B: &str = "425a683931415926535914d0bdb200000001001000200021184682ee48a70a12029a17b640";
const BZIP2_NOTHING: &str = "425a683917724538509000000000";

/// Streams of bzip2, of the bytes `a`, `b` and none, made by `bzip2`.
fn bzip2() -> Vec<Vec<u8>> {
    let stream = |hex: &str| -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    [BZIP2_A, BZIP2_B, BZIP2_NOTHING].map(stream).to_vec()
}

#[test]
fn compressed_files_are_cut_where_a_program_can_begin() {
    for (format, records) in
        [(Format::Bgzf, bgzf([9, 65_000, 10])), (Format::Zstd, zstd()), (Format::Bzip2, bzip2())]
    {
        let content = records.concat();
        let mut expected: Vec<_> = records
            .iter()
            .scan(0, |end, record| {
                *end += record.len() as u64;
                Some(*end)
            })
            .collect();
        for piece_bytes in [1, 2, 3, 7, 64, content.len()] {
            let mut cutter = Cutter::new(format, 1);
            let (mut ends, ending) = feed(&mut cutter, &content, &[piece_bytes]);
            // A border at the end is told if the format knows it there.
            ends.retain(|end| *end < content.len() as u64);
            expected.retain(|end| *end < content.len() as u64);
            assert_eq!((&ends, ending), (&expected, Ok(Ending::Whole)), "{format} {piece_bytes}");
        }
        // Content that is cut off or followed by something else is not refused.
        for other in [content[..content.len() - 1].to_vec(), [&content[..], b"junk"].concat()] {
            let (mut ends, ending) = feed(&mut Cutter::new(format, 1), &other, &[5]);
            ends.retain(|end| *end < content.len() as u64);
            assert_eq!((&ends, ending), (&expected, Ok(Ending::Open)), "{format}");
        }
        let (ends, ending) =
            feed(&mut Cutter::new(format, 1), b"no such file at all, and no mark", &[5]);
        assert_eq!((ends, ending), (vec![], Ok(Ending::Open)), "{format}");
    }
}
