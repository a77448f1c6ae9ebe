//! The programs as users run them, compared with a plain computation and with programs of
//! coreutils.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::process::{Command, Output, Stdio};

/// The output of a program for an input. `None` if the program is not installed.
fn output_of(command: &mut Command, input: &[u8]) -> Option<Output> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    match command.env("LC_ALL", "C").stdin(file).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

fn eyas_text(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eyas-text"));
    command.args(arguments);
    command
}

/// The standard output of a program, which must succeed.
fn run(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = output_of(&mut eyas_text(arguments), input).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*said), (Some(0), ""), "{arguments:?}");
    output.stdout
}

/// The output of a shell pipeline for an input; `None` if one of its programs is not installed.
fn shell(pipeline: &str, input: &[u8]) -> Option<Vec<u8>> {
    let output = output_of(Command::new("sh").args(["-c", pipeline]), input)?;
    let is_there = output.status.code() != Some(127);
    assert!(output.status.success() || !is_there, "{}", String::from_utf8_lossy(&output.stderr));
    is_there.then_some(output.stdout)
}

/// The output lines of the map step of each block, in the order of their keys.
fn shuffled<'a>(parts: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut lines: Vec<&[u8]> =
        parts.into_iter().flat_map(|part| part.split_inclusive(|byte| *byte == b'\n')).collect();
    lines.sort_by_cached_key(|line| line.split(|byte| b"\t\n".contains(byte)).next());
    lines.concat()
}

/// Runs the step `map` on every block of some lines, a shuffle, and the step `reduce`.
fn map_and_reduce(program: &str, text: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let parts: Vec<Vec<u8>> =
        lines.chunks(700).map(|block| run(&[program, "map"], &block.concat())).collect();
    run(&[program, "reduce"], &shuffled(&parts))
}

/// Numbers below `bound`, always the same.
fn numbers(count: usize, bound: usize) -> impl Iterator<Item = usize> {
    let mut state = 1u64;
    std::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    })
    .take(count)
}

/// Lines of a few repeated words: some of other alphabets, some that are not text, and a very long
/// one.
fn text() -> Vec<u8> {
    let long = "x".repeat(1 << 20);
    let words: [&[u8]; 10] = [
        b"a",
        b"the",
        b"Falke",
        "Jagd\u{2009}鷹".as_bytes(),
        b"\xff\xfe",
        b"\0",
        b"\"",
        b"1",
        b"",
        long.as_bytes(),
    ];
    let mut text = Vec::new();
    for number in numbers(20_000, 9000) {
        // The long word is rare.
        text.extend_from_slice(words[if number == 0 { 9 } else { number % 9 }]);
        text.extend_from_slice([" ", "\t", "\n", "\r\n", "  ", "\x0c"][number % 6].as_bytes());
    }
    text.extend_from_slice(b"no line feed after this");
    text
}

#[test]
fn words_are_counted() {
    let text = text();
    let mut counts = BTreeMap::new();
    for word in text.split(|byte| b" \t\r\n\x0c".contains(byte)).filter(|word| !word.is_empty()) {
        *counts.entry(word).or_insert(0) += 1;
    }
    let lines =
        counts.iter().map(|(word, count)| [word, format!("\t{count}\n").as_bytes()].concat());
    let expected = lines.collect::<Vec<_>>().concat();
    assert!(map_and_reduce("word-count", &text) == expected);
    assert!(map_and_reduce("aggregate-word-count", &text) == expected);
    assert_eq!(run(&["aggregate-word-count", "map"], b"b a b"), b"a\t1\nb\t2\n");

    let pipeline = r"tr -s ' \t\r\f' '\n' | sed '/^$/d' | sort | uniq -c |
        sed 's/^ *\([0-9]*\) \(.*\)/\2\t\1/'";
    if let Some(counted) = shell(pipeline, &text) {
        assert!(counted == expected);
    }
}

#[test]
fn lines_with_a_match_are_found() {
    let text = text();
    let lines = text.split(|byte| *byte == b'\n');
    let has_falcon = |line: &&[u8]| line.windows(5).any(|window| window == b"Falke");
    let expected: Vec<u8> =
        lines.filter(has_falcon).flat_map(|line| [line, b"\n"].concat()).collect();
    let found = run(&["grep", "Falke"], &text);
    assert!(found == expected && !found.is_empty());
    assert_eq!(run(&["grep", "nothing like it"], &text), b"");
    assert_eq!(run(&["grep", "^$"], b"\n\na\n"), b"\n\n");

    if let Some(counted) = shell("grep -a -c Falke", &text) {
        let count = found.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(String::from_utf8(counted).unwrap().trim(), count.to_string());
    }
    if let Some(counted) = shell("grep -a -o 'F[a-l]*' | wc -l", &text) {
        let matches = run(&["grep", "--matches", "F[a-l]*"], &text);
        let sum = run(&["word-count", "reduce"], &shuffled([&matches]));
        assert_eq!(sum, [b"Falke\t", counted.trim_ascii_start()].concat());
    }
}

#[test]
fn values_of_equal_keys_are_joined() {
    let rows = |count, bound| {
        let row = |(number, key): (usize, usize)| format!("k{key}\tv{number}\tw {key}\n");
        numbers(count, bound).enumerate().map(row).collect::<String>()
    };
    let (first, second) =
        (rows(300, 80) + "alone\n\tempty\nboth", rows(200, 120) + "both\nboth\tx\n\tempty\n");
    let split = |row: &str| {
        row.split_once('\t')
            .map_or((row.to_owned(), String::new()), |(a, b)| (a.to_owned(), b.to_owned()))
    };
    let mut expected = Vec::new();
    for (key, value) in first.lines().map(split) {
        let others = second.lines().map(split).filter(|(other, _)| *other == key);
        expected.extend(others.map(|(_, other)| format!("{key}\t{value}\t{other}")));
    }
    expected.sort();
    assert!(expected.len() > 300);

    let sorted = |joined: Vec<u8>| {
        let mut lines: Vec<_> =
            String::from_utf8(joined).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (one, two) = (
        run(&["join", "map", "1"], first.as_bytes()),
        run(&["join", "map", "2"], second.as_bytes()),
    );
    // Whichever input comes first.
    assert_eq!(sorted(run(&["join", "reduce"], &shuffled([&one, &two]))), expected);
    assert_eq!(sorted(run(&["join", "reduce"], &shuffled([&two, &one]))), expected);
    let marked = |side: &str, rows: &str| {
        rows.lines().map(|row| format!("{side}\t{row}\n")).collect::<String>()
    };
    let both = marked("1", &first) + &marked("2", &second);
    assert_eq!(
        sorted(run(&["join", "reduce"], &shuffled([&run(&["join", "map"], both.as_bytes())]))),
        expected
    );

    let room = tempfile::tempdir().unwrap();
    // coreutils needs a value in every line.
    let (first, second) = (rows(300, 80), rows(200, 120));
    std::fs::write(room.path().join("1"), &first).unwrap();
    std::fs::write(room.path().join("2"), &second).unwrap();
    let pipeline = format!(
        "cd '{}' && t=$(printf '\\t') && sort -t \"$t\" -k1,1 1 >a && sort -t \"$t\" -k1,1 2 >b \
         && join -t \"$t\" a b",
        room.path().display()
    );
    if let Some(joined) = shell(&pipeline, b"") {
        let maps = [
            run(&["join", "map", "1"], first.as_bytes()),
            run(&["join", "map", "2"], second.as_bytes()),
        ];
        assert_eq!(sorted(run(&["join", "reduce"], &shuffled(&maps))), sorted(joined));
    }
}

#[test]
fn lines_come_out_as_the_shuffle_sorts_them() {
    let text = text();
    let sorted = map_and_reduce("sort", &text);
    assert_eq!(sorted.len(), text.len() + 1, "the last line gets its line feed");
    assert!(sorted == shuffled([&[&text[..], b"\n"].concat()]));
    if let Some(expected) = shell("sort -s -t \"$(printf '\\t')\" -k1,1", &text) {
        assert!(sorted == expected);
    }
}

#[test]
fn empty_input_gives_empty_output() {
    for program in ["word-count", "aggregate-word-count", "sort"] {
        assert_eq!((run(&[program, "map"], b""), run(&[program, "reduce"], b"")), (vec![], vec![]));
    }
    assert_eq!((run(&["join", "map"], b""), run(&["join", "reduce"], b"")), (vec![], vec![]));
    assert_eq!(run(&["grep", ""], b""), b"");
}

#[test]
fn a_reader_that_leaves_is_no_news() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&b"word ".repeat(1 << 20)).unwrap();
    file.rewind().unwrap();
    let mut command = eyas_text(&["word-count", "map"]);
    let mut child =
        command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 7];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((&some, output.status.code(), &*output.stderr), (b"word\t1\n", Some(141), &b""[..]));
}

#[test]
fn wrong_arguments_exit_with_2_and_a_message() {
    for arguments in [
        &[][..],
        &["frep"],
        &["grep"],
        &["grep", "("],
        &["word-count"],
        &["word-count", "combine"],
        &["join", "map", "3"],
        &["sort", "map", "file"],
    ] {
        let output = output_of(&mut eyas_text(arguments), b"").unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    for (arguments, input) in [
        (&["word-count", "reduce"][..], "a\t1\nb\n"),
        (&["join", "reduce"], "a\t1\tx\na\t2"),
        (&["join", "map"], "1\ta\n3\ta\n"),
    ] {
        let output = output_of(&mut eyas_text(arguments), input.as_bytes()).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("eyas-text: line 2: ") && said.ends_with('\n'), "{said}");
        assert_eq!(output.status.code(), Some(65), "{arguments:?}");
    }
    if let Ok(full) = File::options().write(true).open("/dev/full") {
        let child = eyas_text(&["sort", "map"])
            .stdin(Stdio::piped())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(b"a\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(74));
        assert!(output.stderr.starts_with(b"eyas-text: cannot write: "));
    }
}
