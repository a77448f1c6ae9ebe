//! The applications of `dev/apps/` that drive eyas: on several nodes, they give the same result as
//! one direct computation.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Home, can_use, eyas};

/// A program of an application.
fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apps").join(name)
}

/// The application as a command in this home, with `--eyas`.
fn command(home: &Home, name: &str, words: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(app(name)).arg("--eyas").arg(eyas());
    home.command_of(command, words)
}

/// Shape and values of a `.npy` file of 64-bit floats, read as NumPy's documentation describes it.
fn npy(path: &Path) -> (String, Vec<f64>) {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + length) % 64, 0, "the values are aligned");
    let header = str::from_utf8(&bytes[10..10 + length]).unwrap();
    assert!(
        header.contains("'descr': '<f8'") && header.contains("'fortran_order': False"),
        "{header}"
    );
    let (_, shape) = header.split_once("'shape': (").unwrap();
    let values =
        bytes[10 + length..].chunks(8).map(|value| f64::from_le_bytes(value.try_into().unwrap()));
    (shape.split(')').next().unwrap().to_owned(), values.collect())
}

#[test]
fn all_pairs_gives_the_matrix_that_the_program_gives() {
    if !can_use(&["python3"]) {
        return;
    }
    let home = Home::new();
    let rows: Vec<String> = (0..5).map(|n| format!("rows/{n} of five.txt")).collect();
    let columns: Vec<String> = (0..3).map(|n| format!("columns/{n} of five.txt")).collect();
    rows.iter().enumerate().for_each(|(n, row)| drop(home.write(row, "r".repeat(n + 1))));
    columns.iter().enumerate().for_each(|(n, column)| drop(home.write(column, "c".repeat(10 * n))));
    // The program treats its two files differently, and reads a third one that is the same for all.
    home.write("unit", "0.5");
    let script = "#!/bin/sh\necho \"$1$(wc -c <\"$2\")$(wc -c <\"$3\")$(cat unit)\"\n";
    fs::set_permissions(home.write("lengths.sh", script), fs::Permissions::from_mode(0o755))
        .unwrap();
    let words = ["--out", "pairs", "--block", "2", "--input", "unit", "--rows"];
    let words = words.into_iter().chain(rows.iter().map(String::as_str)).chain(["--columns"]);
    let words: Vec<_> = words
        .chain(columns.iter().map(String::as_str))
        .chain(["--", "./lengths.sh", "1"])
        .collect();
    let done = home.finish(command(&home, "all-pairs/all_pairs.py", &words)).exits(0);
    assert!(done.stdout.starts_with("5 x 3 values from 6 tasks"), "{}", done.stdout);

    let mut expected = format!(",{}\n", columns.join(","));
    for (length, row) in rows.iter().enumerate() {
        let values: Vec<_> =
            [0, 10, 20].iter().map(|other| format!("1{}{other}0.5", length + 1)).collect();
        expected += &format!("{row},{}\n", values.join(","));
    }
    assert_eq!(home.read("pairs/matrix.csv"), expected);
    let (shape, values) = npy(&home.work().join("pairs/matrix.npy"));
    assert_eq!(
        (shape.as_str(), values.len(), values[0], values[14]),
        ("5, 3", 15, 1100.5, 15200.5)
    );
    assert_eq!(home.names("pairs"), ["matrix.csv", "matrix.npy"], "nothing else is left");
}

#[test]
fn half_of_a_symmetric_matrix_is_computed_and_the_licences_find_their_kin() {
    let licences = Path::new("/usr/share/common-licenses");
    let names = ["Artistic", "GPL-2", "LGPL-2", "MPL-1.1", "MPL-2.0"];
    if !can_use(&["python3"]) || !names.iter().all(|name| licences.join(name).exists()) {
        return;
    }
    let home = Home::new();
    names.iter().for_each(|name| drop(home.write(name, fs::read(licences.join(name)).unwrap())));
    let program = app("all-pairs/ncd.py");
    let program = program.to_str().unwrap();
    let words = ["--out", "pairs", "--symmetric", "--block", "2", "--rows"];
    let words = [&words[..], &names[..], &["--", program]].concat();
    let done = home.finish(command(&home, "all-pairs/all_pairs.py", &words)).exits(0);
    assert!(done.stdout.starts_with("5 x 5 values from 6 tasks"), "{}", done.stdout);
    let (_, values) = npy(&home.work().join("pairs/matrix.npy"));
    let direct = |a: usize, b: usize| -> f64 {
        let words = ["python3", program, names[a.min(b)], names[a.max(b)]];
        let output =
            Command::new(words[0]).args(&words[1..]).current_dir(home.work()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    for (place, value) in values.iter().enumerate() {
        assert_eq!(
            *value,
            direct(place / 5, place % 5),
            "{} and {}",
            names[place / 5],
            names[place % 5]
        );
    }
    let nearest = |a: usize| {
        (0..5).filter(|b| *b != a).min_by(|b, c| values[5 * a + b].total_cmp(&values[5 * a + c]))
    };
    assert_eq!((nearest(1), nearest(2)), (Some(2), Some(1)), "the two licences of GNU are kin");
}

#[test]
fn a_pair_that_fails_is_named() {
    if !can_use(&["python3"]) {
        return;
    }
    let home = Home::new();
    ["a", "b"].iter().for_each(|name| drop(home.write(name, *name)));
    let run = |program: &[&str]| {
        let words = [&["--rows", "a", "b", "--out", "pairs", "--"], program].concat();
        home.finish(command(&home, "all-pairs/all_pairs.py", &words))
    };
    run(&["echo"]).exits(1).says(&["r0-a c0-a", "which is not a number", "some blocks failed"]);
    run(&["false"]).exits(1).says(&["`false r0-a c0-a` failed with exit code 1"]);
    run(&["no-such-program"]).exits(1).says(&["no-such-program", "cannot be run"]);
    assert!(!home.work().join("pairs/matrix.csv").exists());
    let words = ["--rows", "a", "none", "--out", "pairs", "--", "echo"];
    home.finish(command(&home, "all-pairs/all_pairs.py", &words))
        .exits(2)
        .says(&["not a file: none"]);
}

#[test]
fn blast_gives_the_hits_that_one_call_gives() {
    if !can_use(&["python3", "blastp", "makeblastdb", "apt-get", "dpkg"]) {
        return;
    }
    // The database is kept for the next run, because it comes over the network.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("blast");
    let fetched = Command::new("python3").arg(app("blast/fetch.py")).arg(&folder).output().unwrap();
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("not tested: {why}");
        return;
    }
    let home = Home::new();
    let queries = fs::read_to_string(folder.join("query.fa")).unwrap();
    let eleven: String = queries.split_inclusive("\n>").take(11).collect();
    let eleven = eleven.trim_end_matches('>').to_owned();
    home.write("eleven.fa", &eleven);
    let database = folder.join("tursiops");
    let database = database.to_str().unwrap();
    let options = ["-task", "blastp-fast", "-evalue", "1e-5"];
    let run = |words: &[&str], out: &str| {
        let words = [
            &["--database", database, "--queries", "eleven.fa", "--out", out],
            words,
            &["--"],
            &options,
        ]
        .concat();
        home.finish(command(&home, "blast/blast.py", &words))
    };
    let done = run(&["--run-with", "--nodes 2 --report r.json"], "hits.tsv").exits(0);
    assert_eq!(done.stdout, "3 tasks; hits: hits.tsv\n");
    let words = ["-db", database, "-query", "eleven.fa", "-outfmt", "6"];
    let direct =
        Command::new("blastp").args(words).args(options).current_dir(home.work()).output().unwrap();
    assert!(direct.status.success());
    assert_eq!(home.read("hits.tsv"), String::from_utf8(direct.stdout).unwrap());
    assert!(
        home.read("hits.tsv").lines().count() >= 11,
        "each query is in the database, and finds itself"
    );
    // However many tasks a node ran, it read each file of the database at most once.
    let report: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&home.read("r.json")).unwrap();
    let persistent = report["report"]["job"]["reads"]["persistent"]["bytes"].as_u64().unwrap();
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap());
    let is_database =
        |file: &fs::DirEntry| file.file_name().to_str().unwrap().starts_with("tursiops.p");
    let once: u64 = files.filter(is_database).map(|file| file.metadata().unwrap().len()).sum();
    assert!(
        persistent <= 2 * once + eleven.len() as u64,
        "{persistent} bytes from storage, the database has {once}"
    );

    run(&["--tasks", "12"], "more.tsv").exits(1).says(&["11 queries cannot make 12 tasks"]);
    run(&["--program", "no-such-blast", "--tasks", "1"], "more.tsv")
        .exits(1)
        .says(&["more.tsv is not written"]);
    assert_eq!(home.names(""), ["eleven.fa", "hits.tsv", "r.json"], "nothing else is left");
}

#[test]
fn queries_keep_their_numbers_and_bytes_in_groups() {
    if !can_use(&["python3", "awk"]) {
        return;
    }
    let home = Home::new();
    home.write("db.pin", "");
    // As BLAST does, it calls a query without a name by its number in the file.
    let script = "#!/bin/sh\nLC_ALL=C awk '/^>/ { n++; print ($0 ~ /^>[ \\t]*$/ ? \">Query_\" n : \
                  $0) }' \"$4\" > \"$6\"\n";
    let program = home.write("blast", script);
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    home.write("queries.fa", b"; a comment\n>\nAC\n>one \xe9\nGT\n> \nT\n>Query\nA\n>\nC\n");
    let program = program.to_str().unwrap();
    let words = [
        "--database",
        "db",
        "--queries",
        "queries.fa",
        "--out",
        "hits",
        "--program",
        program,
        "--per-task",
        "2",
    ];
    home.finish(command(&home, "blast/blast.py", &words)).exits(0);
    let hits = fs::read(home.work().join("hits")).unwrap();
    assert_eq!(
        hits.escape_ascii().to_string(),
        ">Query_1\\n>one \\xe9\\n>Query_3\\n>Query\\n>Query_5\\n"
    );
    home.write("none.fa", "; only a comment\nACGT\n");
    let words = ["--database", "db", "--queries", "none.fa", "--out", "hits"];
    home.finish(command(&home, "blast/blast.py", &words)).exits(1).says(&["none.fa is not FASTA"]);
}
