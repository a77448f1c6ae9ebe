//! Chunks of comma-separated values have the records that Python's module `csv` reads, in all of
//! its dialects.

use std::io::Write;
use std::process::{Command, Stdio};

use eyas_blocks::format::Cutter;
use eyas_faults::Dice;
use eyas_types::dfs::{CsvDialect, Format};

const FILES: usize = 4000;

/// Reads on each line a dialect, whether the file was accepted, and its chunks; fails at the first
/// one that it reads otherwise.
const JUDGE: &str = r#"
import csv, io, json, sys

def rows(content, dialect):
    text = io.StringIO(content.decode("latin-1"), newline="")
    return list(csv.reader(text, **dialect))

for line in sys.stdin:
    dialect, accepted, records, chunks = json.loads(line)
    dialect["quoting"] = csv.QUOTE_NONE if dialect["quotechar"] is None else csv.QUOTE_MINIMAL
    records, chunks = ([bytes.fromhex(part) for part in parts] for parts in (records, chunks))
    content = b"".join(chunks)
    all = rows(content, dialect)
    if not accepted:
        # What follows continues the record.
        continued = rows(content + b"\n\n", dialect)
        assert len(continued) == len(all), (dialect, content, "has no open quote")
        continue
    by_record = [rows(record, dialect) for record in records]
    assert all == [row for [row] in by_record], (dialect, content, by_record, all)
    assert all == [row for chunk in chunks for row in rows(chunk, dialect)], (dialect, chunks)
"#;

/// The chunks of a file that comes in pieces; `None` if it is refused.
fn chunks(
    dialect: CsvDialect,
    chunk_bytes: u64,
    content: &[u8],
    piece_bytes: usize,
) -> Option<Vec<Vec<u8>>> {
    let mut cutter = Cutter::new(Format::Dialect(dialect), chunk_bytes);
    let (mut chunks, mut chunk) = (Vec::new(), Vec::new());
    for mut piece in content.chunks(piece_bytes) {
        while let Some(taken) = cutter.cut(piece).ok()? {
            chunk.extend_from_slice(&piece[..taken]);
            piece = &piece[taken..];
            chunks.push(std::mem::take(&mut chunk));
        }
        chunk.extend_from_slice(piece);
    }
    cutter.finish().ok()?;
    if !chunk.is_empty() {
        chunks.push(chunk);
    }
    Some(chunks)
}

fn json(chunks: &[Vec<u8>]) -> String {
    let hex = |chunk: &Vec<u8>| {
        format!("\"{}\"", chunk.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    format!("[{}]", chunks.iter().map(hex).collect::<Vec<_>>().join(","))
}

#[test]
fn records_are_those_that_python_reads() {
    let python = Command::new("python3")
        .args(["-c", JUDGE])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        assert!(std::env::var_os("CI").is_none(), "CI needs python3");
        eprintln!("skipped: there is no python3");
        return;
    };
    let mut input = python.stdin.take().unwrap();
    let mut random = Dice::new(7);
    for _ in 0..FILES {
        let one = |random: &mut Dice, of: &[u8]| random.any(of).unwrap();
        let dialect = CsvDialect {
            delimiter: one(&mut random, b",;\t|^ \x01\xa7"),
            quote: [Some(b'"'), Some(b'\''), Some(b'~'), None][random.below(4) as usize],
            escape: [None, Some(b'\\'), Some(b'!')][random.below(3) as usize],
            doublequote: random.below(2) == 0,
            skipinitialspace: random.below(2) == 0,
        };
        let Ok(Format::Dialect(dialect)) = Format::Dialect(dialect).to_string().parse() else {
            continue;
        };
        let special = [Some(dialect.delimiter), dialect.quote, dialect.quote, dialect.escape];
        let bytes: Vec<u8> = special.into_iter().flatten().chain(*b"\n\n\ra b\"'\\,").collect();
        let content: Vec<u8> = (0..random.below(60)).map(|_| one(&mut random, &bytes)).collect();
        let (chunk_bytes, piece_bytes) = (1 + random.below(30), 1 + random.below(20) as usize);
        let records = chunks(dialect, 1, &content, piece_bytes);
        let cut = chunks(dialect, chunk_bytes, &content, piece_bytes);
        assert_eq!(records.is_some(), cut.is_some());
        let accepted = records.is_some();
        let byte =
            |byte: Option<u8>| byte.map_or("null".into(), |byte| format!("\"\\u{byte:04x}\""));
        let CsvDialect { delimiter, quote, escape, doublequote, skipinitialspace } = dialect;
        let (delimiter, quote, escape) = (byte(Some(delimiter)), byte(quote), byte(escape));
        let (records, cut) = (records.unwrap_or_default(), cut.unwrap_or_else(|| vec![content]));
        let line = format!(
            "[{{\"delimiter\":{delimiter},\"quotechar\":{quote},\"escapechar\":{escape},\"\
             doublequote\":{doublequote},\"skipinitialspace\":{skipinitialspace}}},{accepted},{},\
             {}]\n",
            json(&records),
            json(&cut)
        );
        if input.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    drop(input);
    let judged = python.wait_with_output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
}
