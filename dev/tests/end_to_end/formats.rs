//! Formats of records: guessed by name and content, guessed again when these change, chosen by
//! users. Compressed files are cut where a program can begin, or not at all.

use std::process::{Command, Stdio};

use crate::dfs::cluster;
use crate::support::{Cluster, MountedFiles, can_mount, can_use};

/// Reads of a sequencer whose qualities begin with `@`, so that lines alone do not tell where reads
/// begin.
fn reads() -> String {
    (0..400).map(|number| format!("@read {number}\nACGTACGT\n+\n@@@@@@@@\n")).collect()
}

/// Rows whose fields have line feeds.
fn rows() -> String {
    (0..400).map(|number| format!("{number},\"a\nlong,\nfield\"\n")).collect()
}

#[track_caller]
fn format(cluster: &Cluster, name: &str) -> String {
    cluster.ask(&["dfs", "stat", name], "file")["shape"]["format"]
        .as_str()
        .expect("text")
        .to_owned()
}

/// Whether no program of a job gets a part of a read.
#[track_caller]
fn has_whole_reads(cluster: &Cluster, name: &str) {
    let script = "NR % 4 == 1 && !/^@read / { exit 9 } END { print NR }";
    let done = cluster
        .run(&["map", name, "--tasks", "4", "--policy", "static", "--", "awk", script])
        .exits(0);
    let lines = done.stdout.lines().map(|count| count.parse::<usize>().unwrap()).sum::<usize>();
    assert_eq!(lines, reads().lines().count(), "{name}");
}

#[test]
fn a_format_follows_the_last_name_of_a_file_unless_it_was_chosen() {
    let cluster = cluster(2);
    let put = |name: &str, options: &[&str]| {
        cluster
            .run(&[&["dfs", "put", "source", name, "--chunk-size", "1KiB"], options].concat())
            .exits(0);
    };
    cluster.write("source", reads());
    // By the name in the cluster, and not by that of the source.
    put("/a.fastq", &[]);
    assert_eq!(format(&cluster, "/a.fastq"), "fastq");
    has_whole_reads(&cluster, "/a.fastq");
    // A temporary name that does not tell, and then another name.
    put("/sedA1b2C3", &[]);
    assert_eq!(format(&cluster, "/sedA1b2C3"), "lines");
    cluster.run(&["dfs", "rename", "/sedA1b2C3", "/b.fastq"]).exits(0);
    assert_eq!(format(&cluster, "/b.fastq"), "fastq");
    has_whole_reads(&cluster, "/b.fastq");
    assert_eq!(cluster.run(&["dfs", "cat", "/b.fastq"]).exits(0).stdout, reads());
    // Content that does not have the format of the new name keeps its own.
    cluster.run(&["dfs", "rename", "/b.fastq", "/b.fasta"]).exits(0);
    assert_eq!(format(&cluster, "/b.fasta"), "fastq");
    // A format that was chosen stays, and a job says that it is not that of the name.
    put("/c", &["--format", "lines"]);
    cluster.run(&["dfs", "rename", "/c", "/c.fastq"]).exits(0);
    assert_eq!(format(&cluster, "/c.fastq"), "lines");
    cluster
        .run(&["map", "/c.fastq", "--", "true"])
        .exits(0)
        .says(&["/c.fastq", "dfs set --records fastq /c.fastq"]);
    cluster
        .run(&["dfs", "set", "--records", "csv", "/c.fastq", "/a.fastq"])
        .exits(0)
        .says(&["of csv"]);
    cluster.run(&["dfs", "set", "--records", "fastq", "/c.fastq"]).exits(0);
    has_whole_reads(&cluster, "/c.fastq");
    cluster
        .run(&["dfs", "set", "--records", "fasta", "/c.fastq"])
        .exits(1)
        .says(&["this is not fasta"]);
    assert_eq!(format(&cluster, "/c.fastq"), "fastq");
    let piped = ["--cluster", "test", "dfs", "put", "-", "/piped.csv", "--chunk-size", "1KiB"];
    cluster.eyas_with_input(&piped, &rows()).exits(0);
    assert_eq!(format(&cluster, "/piped.csv"), "csv");
    // UTF-16 has no lines, whatever it is called.
    cluster.write("source", b"\xff\xfea\0,\0b\0\n\0");
    put("/wide.csv", &[]);
    assert_eq!(format(&cluster, "/wide.csv"), "whole");
}

#[test]
fn compressed_files_are_cut_at_their_blocks_or_not_at_all() {
    if !can_use(&["gzip", "bzip2", "zcat", "bzcat"]) {
        return;
    }
    let cluster = cluster(2);
    let shell = |script: &str| {
        let done = Command::new("bash")
            .args(["-ec", script])
            .current_dir(cluster.work())
            .stdin(Stdio::null())
            .status();
        assert!(done.unwrap().success(), "{script}");
    };
    let count = |name: &str, program: &str| {
        let script = format!("{program} | wc -l");
        let words = [
            "map", name, "--tasks", "3", "--policy", "static", "--", "bash", "-eo", "pipefail",
            "-c", &script,
        ];
        let done = cluster.run(&words).exits(0);
        done.stdout.lines().map(|line| line.parse::<u32>().unwrap()).sum::<u32>()
    };
    shell("seq 30000 | gzip > plain.gz; for i in 1 2 3; do seq 10000 | bzip2; done > streams.bz2");
    for name in ["plain.gz", "streams.bz2"] {
        cluster.run(&["dfs", "put", name, &format!("/{name}"), "--chunk-size", "1KiB"]).exits(0);
    }
    assert_eq!(
        (format(&cluster, "/plain.gz"), format(&cluster, "/streams.bz2")),
        ("whole".into(), "bzip2".into())
    );
    cluster
        .run(&["dfs", "set", "--records", "whole", "/plain.gz"])
        .exits(0)
        .says(&["1 chunk of whole"]);
    cluster
        .run(&["dfs", "set", "--records", "bzip2", "/streams.bz2"])
        .exits(0)
        .says(&["3 chunks of bzip2"]);
    assert_eq!((count("/plain.gz", "zcat"), count("/streams.bz2", "bzcat")), (30_000, 30_000));
    // One that was cut anywhere is refused.
    cluster
        .run(&["dfs", "put", "plain.gz", "/cut.gz", "--chunk-size", "1KiB", "--format", "fixed:1"])
        .exits(0);
    cluster
        .run(&["map", "/cut.gz", "--", "zcat"])
        .exits(1)
        .says(&["/cut.gz is compressed", "--records whole"]);
    // As one record, it is read by one program, chunk after chunk.
    cluster
        .run(&["dfs", "set", "--records", "whole", "/cut.gz"])
        .exits(0)
        .says(&[" chunks of whole"]);
    assert_eq!(count("/cut.gz", "zcat"), 30_000);
    let block = [
        "run",
        "--each-block",
        "eyas:///cut.gz",
        "--",
        "sh",
        "-c",
        "zcat \"$1\" | wc -l",
        "count",
        "{}",
    ];
    assert_eq!(cluster.run(&block).exits(0).stdout.trim(), "30000");
    let early = cluster.run(&["map", "/cut.gz", "/plain.gz", "--", "head", "-c", "2"]).exits(0);
    assert!(early.stdout.starts_with('\x1f'), "a program need not read all");
}

#[test]
fn each_program_reads_the_header_once_and_first() {
    let cluster = cluster(2);
    let records =
        |count: usize| (0..count).map(|number| format!("{number}\t1\n")).collect::<String>();
    let files = [
        ("t.csv", "number,\"a long\nname\"\n".to_owned(), 2),
        ("t.vcf", "##fileformat=VCFv4.3\n#CHROM\tPOS\n".into(), 2),
        // Longer than a chunk.
        ("long.vcf", format!("##contig={}\n#CHROM\tPOS\n", "x".repeat(5000)), 2),
        ("t.sam", "@HD\tVN:1.6\n@SQ\tSN:1\n".into(), 2),
        ("t.tsv", "number\tone\n".into(), 1),
        // One record of many chunks.
        ("whole.csv", "number\n".into(), 1),
    ];
    // Fails if the header is not in front, and prints the records.
    let script = "head -c ${#1} | cmp -s - <(printf %s \"$1\") || exit 9; cat";
    for (name, header, lines) in files {
        cluster.write(name, format!("{header}{}", records(2000)));
        cluster.run(&["dfs", "put", name, &format!("/{name}"), "--chunk-size", "1KiB"]).exits(0);
        if name == "whole.csv" {
            cluster
                .run(&["dfs", "set", "--records", "whole", "/whole.csv"])
                .exits(0)
                .says(&[" chunks of whole"]);
        }
        let words = [
            "map",
            &format!("/{name}"),
            "--header",
            "repeat",
            "--tasks",
            "3",
            "--policy",
            "static",
            "--",
        ];
        let count = cluster.run(&[&words[..], &["wc", "-l"]].concat()).exits(0);
        let counts: Vec<_> =
            count.stdout.lines().map(|count| count.trim().parse::<usize>().unwrap()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 2000 + counts.len() * lines, "{name}: {counts:?}");
        let program = ["bash", "-c", script, "bash", &header];
        let done = cluster.run(&[&words[..], &program].concat()).exits(0);
        let mut found: Vec<_> = done.stdout.lines().collect();
        let all = records(2000);
        let mut expected: Vec<_> = all.lines().collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert!(found == expected, "{name}: {}", done.stdout.len());
    }
}

/// Compresses standard input as `bgzip` does, in blocks of this number of bytes that end with
/// lines.
const BGZIP: &str = "
import struct, sys, zlib
text, least = sys.stdin.buffer.read(), int(sys.argv[1])
while text:
    end = text.find(b'\\n', least) + 1 or len(text)
    part, text = text[:end], text[end:]
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    content = deflate.compress(part) + deflate.flush()
    head = bytes.fromhex('1f8b08040000000000ff0600424302 00') + struct.pack('<H', len(content) + 25)
    sys.stdout.buffer.write(head + content + struct.pack('<II', zlib.crc32(part), len(part)))
";

#[test]
fn the_header_of_a_file_of_bgzip_is_read_once_and_first() {
    if !can_use(&["python3", "zcat"]) {
        return;
    }
    let cluster = cluster(2);
    let header: String =
        (0..400).map(|number| format!("##contig=<ID={number}>\n")).collect::<String>()
            + "#CHROM\tPOS\n";
    let records: String =
        (0..3000).map(|number| format!("{number}\t{}\n", number * 7919 % 1009)).collect();
    cluster.write("t.vcf", header + &records);
    cluster.write("bgzip.py", BGZIP);
    let script = "python3 bgzip.py 900 < t.vcf > t.vcf.gz; gzip -c t.vcf > plain.vcf.gz";
    assert!(
        Command::new("sh")
            .args(["-ec", script])
            .current_dir(cluster.work())
            .status()
            .unwrap()
            .success()
    );
    cluster
        .run(&["dfs", "put", "t.vcf.gz", "plain.vcf.gz", "/d/", "--chunk-size", "1KiB"])
        .exits(0);
    assert_eq!(format(&cluster, "/d/t.vcf.gz"), "bgzf");
    let program = "zcat | awk '/^#/ && NR > 401 { exit 9 } !/^#/ && NR <= 401 { exit 8 } !/^#/'";
    let map = |name: &str| {
        let words = ["map", name, "--header", "repeat", "--tasks", "3", "--policy", "static", "--"];
        cluster.run(&[&words[..], &["bash", "-eo", "pipefail", "-c", program]].concat())
    };
    let done = map("/d/t.vcf.gz").exits(0);
    let mut found: Vec<_> = done.stdout.lines().collect();
    let mut expected: Vec<_> = records.lines().collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected, "{} of {} lines", found.len(), expected.len());
    map("/d/plain.vcf.gz").exits(1).says(&["its header cannot be read"]);
}

#[test]
fn a_table_of_another_dialect_is_cut_between_its_rows_or_refused() {
    let cluster = cluster(2);
    let row = |number: usize| format!("{number};'two\nlines; and \\'{number}\\''\n");
    let rows: String = (0..400).map(row).collect();
    cluster.write("t.csv", &rows);
    // Two rows in each program are whole.
    let check = "import csv, sys; sys.stdin.reconfigure(newline='')\n\
                 dialect = dict(delimiter=';', quotechar=chr(39), escapechar=chr(92))\n\
                 rows = list(csv.reader(sys.stdin, **dialect))\n\
                 assert all(len(row) == 2 for row in rows), rows; print(len(rows))";
    let count = |name: &str| {
        let words =
            ["map", name, "--tasks", "3", "--policy", "static", "--", "python3", "-c", check];
        cluster
            .run(&words)
            .exits(0)
            .stdout
            .lines()
            .map(|line| line.parse::<u32>().unwrap())
            .sum::<u32>()
    };
    let put = |to: &[&str]| {
        cluster.run(&[&["dfs", "put", "t.csv"], to, &["--chunk-size", "1KiB"]].concat())
    };
    put(&["/guessed.csv"]).exits(0);
    assert_eq!(format(&cluster, "/guessed.csv"), "csv:delimiter=;,quote=',escape=\\");
    put(&["/named", "--format", "csv:quote=',delimiter=;,escape=\\"]).exits(0);
    put(&["/refused", "--format", "csv"]).exits(1).says(&["single quotes", "csv:quote='"]);
    put(&["/refused", "--format", "csv:quote=,"]).exits(2).says(&["delimiter=;"]);
    assert_eq!((count("/guessed.csv"), count("/named")), (400, 400));
}

#[test]
fn a_format_on_the_mount_is_that_of_the_present_content_and_name() {
    if !can_mount() {
        return;
    }
    let cluster = cluster(2);
    let mount = MountedFiles::begin(&cluster, "mnt", &["--chunk-size", "1KiB"]);
    std::fs::write(cluster.work().join("reads"), reads()).unwrap();
    std::fs::write(cluster.work().join("rows"), rows()).unwrap();
    // A temporary name as rsync's, one as that of `sed -i`, and a file that is moved in place.
    let script = "cp ../work/reads .r.fastq.a1b2C3; mv .r.fastq.a1b2C3 r.fastq
                  cp ../work/reads s.fastq; sed -i s/ACGT/TTTT/ s.fastq
                  cp ../work/reads plain; mv plain m.fastq
                  printf 'a,\"open\\n' > bad.csv; cp ../work/rows bad.csv
                  head -c 40000 /dev/zero > binary; printf x >> binary
                  printf 'RIFF ' > grown; head -c 40000 /dev/zero >> grown; printf x >> grown
                  (printf '\\037\\213\\010'; head -c 40000 /dev/zero) > one.gz; printf x >> one.gz";
    mount.shell(script).exits(0);
    for name in ["/r.fastq", "/s.fastq", "/m.fastq"] {
        assert_eq!(format(&cluster, name), "fastq", "{name}");
        has_whole_reads(&cluster, name);
    }
    for (name, expected) in
        [("/bad.csv", "csv"), ("/binary", "fixed:1"), ("/grown", "fixed:1"), ("/one.gz", "whole")]
    {
        assert_eq!(format(&cluster, name), expected, "{name}");
    }
    // A change of one byte stores little anew.
    assert_eq!(
        cluster.ask(&["dfs", "show", "/one.gz"], "file")["shape"]["chunks"]
            .as_array()
            .unwrap()
            .len(),
        40
    );
    // A program that keeps its file open while it is renamed loses nothing.
    let script = "
import os
file = open('open', 'w'); file.write('@a\\nAC\\n+\\nII\\n'); file.flush(); os.fsync(file.fileno())
os.rename('open', 'open.fastq')
file.write('@b\\nAC\\n+\\nII\\n'); file.close()
assert open('open.fastq').read().count('@') == 2";
    mount.python(script).exits(0);
    assert_eq!(cluster.run(&["dfs", "cat", "/open.fastq"]).exits(0).stdout.lines().count(), 8);
    mount.end();
}
