//! The two commands as users type them; `finding.rs` has `stack index` and `stack find`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command in `directory`; its exit code, stdout and stderr.
fn run(directory: &Path, program: &str, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn stack(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    run(directory, env!("CARGO_BIN_EXE_stack"), arguments)
}

fn survey(directory: &Path, arguments: &[&str]) -> String {
    let (code, out, error) = run(directory, env!("CARGO_BIN_EXE_survey"), arguments);
    assert_eq!((code, error.as_str()), (0, ""));
    out
}

/// The value of `key` in a line of tab-separated `key=value`.
fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let found =
        line.trim_end().split('\t').find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {line:?}"))
}

#[test]
fn a_survey_is_stacked_task_by_task() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    let said = survey(
        room,
        &["--out", "s", "--locality", "4", "--objects", "80", "--size", "180x170", "--seed", "9"],
    );
    assert_eq!((value(&said, "frames"), value(&said, "objects")), ("20", "80"));
    assert_eq!(fs::read_dir(room.join("s/frames")).unwrap().count(), 20);

    let tasks = fs::read_to_string(room.join("s/tasks.csv")).unwrap();
    assert_eq!(tasks.lines().count(), 80);
    assert!(!tasks.lines().is_sorted(), "tasks come in random order");
    fs::create_dir(room.join("parts")).unwrap();
    let mut listed = String::new();
    for (number, task) in tasks.lines().enumerate() {
        let (frame, place) = task.split_once(',').unwrap();
        let (frame, part) = (format!("s/{frame}"), format!("parts/{number:04}.fits"));
        let (code, out, error) =
            stack(room, &["--object", place, &frame, "--out", &part, "--size", "60", "--profile"]);
        assert_eq!(code, 0, "{error}");
        assert_eq!((value(&out, "stacked"), value(&out, "frame")), ("1", frame.as_str()));
        for block in [
            "open",
            "radec2xy",
            "readHDU",
            "curl",
            "getTile",
            "convertArray",
            "calibration",
            "interpolation",
            "doStacking",
        ] {
            assert!(value(&error, block).parse::<f64>().unwrap() >= 0.0);
        }
        assert!(value(&error, "writeStacking").parse::<f64>().unwrap() > 0.0);
        listed += &format!("{part}\n");
    }
    fs::write(room.join("list"), listed).unwrap();

    let (code, of_tasks, error) = stack(
        room,
        &["--sum", "parts", "--out", "mean.fits", "--png", "mean.png", "--jpeg", "mean.jpg"],
    );
    assert_eq!(code, 0, "{error}");
    assert_eq!((value(&of_tasks, "partials"), value(&of_tasks, "stacked")), ("80", "80"));
    assert!(value(&of_tasks, "signal_to_noise").parse::<f64>().unwrap() > 4.0, "{of_tasks}");
    assert!(fs::read(room.join("mean.png")).unwrap().starts_with(b"\x89PNG"));
    let jpeg = fs::read(room.join("mean.jpg")).unwrap();
    // 600 pixels an edge, one component: the frame header after its marker and length.
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    assert_eq!(jpeg[frame + 4..frame + 10], [8, 0x02, 0x58, 0x02, 0x58, 1]);
    assert!(jpeg.starts_with(&[0xff, 0xd8]) && jpeg.ends_with(&[0xff, 0xd9]));
    let mean = fs::read(room.join("mean.fits")).unwrap();
    assert!(mean.len().is_multiple_of(2880) && mean.len() > 60 * 60 * 8);
    assert_eq!(stack(room, &["--sum", "@list", "--out", "again.fits"]).1, of_tasks);
    assert_eq!(fs::read(room.join("again.fits")).unwrap(), mean);

    // The same in one command with the whole list; only the order of the sums differs.
    let frames: Vec<String> =
        (0..20).map(|number| format!("s/frames/frame-{number:06}.fits.gz")).collect();
    let mut arguments = vec!["--list", "s/objects.csv", "--out", "all.fits", "--size", "60"];
    arguments.extend(frames.iter().map(String::as_str));
    let (code, out, error) = stack(room, &arguments);
    assert_eq!((code, error.as_str(), out.lines().count()), (0, "", 20));
    let stacked = |line: &str| value(line, "stacked").parse::<u64>().unwrap();
    assert_eq!(out.lines().map(stacked).sum::<u64>(), 80);
    let of_list = stack(room, &["--sum", "all.fits"]).1;
    assert_eq!(value(&of_list, "flux"), value(&of_tasks, "flux"));
}

#[test]
fn table_3_is_made_smaller_by_scale() {
    let room = tempfile::tempdir().unwrap();
    let said = survey(
        room.path(),
        &["--out", ".", "--locality", "1.38", "--scale", "10000", "--size", "120x110"],
    );
    assert_eq!((value(&said, "frames"), value(&said, "objects")), ("11", "15"));
    let (code, _, error) =
        run(room.path(), env!("CARGO_BIN_EXE_survey"), &["--out", ".", "--locality", "7"]);
    assert!(code == 2 && error.contains("no locality 7"), "{error}");
}

#[test]
fn names_may_have_spaces_and_any_letters() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    survey(
        room,
        &["--out", "Himmel über Ωμέγα 天", "--frames", "1", "--size", "180x170", "--plain"],
    );
    let base = room.join("Himmel über Ωμέγα 天");
    fs::rename(base.join("frames/frame-000000.fits"), base.join("ein Bild, 'schräg'.fits"))
        .unwrap();
    let (list, frame) =
        ("Himmel über Ωμέγα 天/objects.csv", "Himmel über Ωμέγα 天/ein Bild, 'schräg'.fits");
    let (code, out, error) =
        stack(room, &["--list", list, frame, "--out", "Teil 1 ü.fits", "--size", "60"]);
    assert_eq!((code, value(&out, "stacked"), value(&out, "frame")), (0, "1", frame), "{error}");
    let (code, out, error) =
        stack(room, &["--sum", "Teil 1 ü.fits", "--out", "Ω.fits", "--png", "天.png"]);
    assert_eq!((code, value(&out, "stacked")), (0, "1"), "{error}");
    assert!(room.join("天.png").exists());
}

/// A frame damaged by `damage` is refused with its name, `trouble` and `code`, and nothing is
/// written.
fn refused(damage: impl FnOnce(&mut Vec<u8>), gzip: bool, verify: bool, trouble: &str) {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    let form = if gzip { "--gzip" } else { "--plain" };
    survey(room, &["--out", ".", "--frames", "1", "--size", "180x170", form]);
    let name = if gzip { "frames/frame-000000.fits.gz" } else { "frames/frame-000000.fits" };
    let mut bytes = fs::read(room.join(name)).unwrap();
    damage(&mut bytes);
    fs::write(room.join("bad frame.fits"), bytes).unwrap();

    // A good frame before it does not help: all or nothing.
    let mut arguments =
        vec!["--list", "objects.csv", name, "bad frame.fits", "--out", "p.fits", "--size", "60"];
    if verify {
        arguments.push("--verify");
    }
    let (code, _, error) = stack(room, &arguments);
    assert!(
        error.contains("bad frame.fits") && error.contains(trouble),
        "wanted {trouble:?}: {error}"
    );
    assert_eq!(code, 65);
    let names: Vec<_> =
        fs::read_dir(room).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 5, "frames, 3 lists, and the bad frame; but there are {names:?}");
}

fn replace(from: &'static [u8], to: &'static [u8]) -> impl FnOnce(&mut Vec<u8>) {
    assert_eq!(from.len(), to.len());
    move |bytes| {
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
    }
}

#[test]
fn bad_frames_are_refused_by_name() {
    refused(|bytes| bytes.clear(), false, false, "truncated: it ends before one block");
    refused(|bytes| bytes.fill(b'x'), false, false, "not a FITS file");
    refused(|bytes| bytes.fill(b'x'), true, false, "not a FITS file");
    refused(|bytes| bytes.truncate(3000), false, false, "truncated: it ends before the last row");
    refused(
        |bytes| bytes.truncate(bytes.len() - 5000),
        false,
        false,
        "truncated: it ends before the last row",
    );
    refused(
        |bytes| bytes.truncate(bytes.len() / 2),
        true,
        false,
        "truncated: it ends before the last row",
    );
    refused(
        |bytes| bytes.truncate(bytes.len() - 4),
        true,
        false,
        "truncated: it ends before the last row",
    );
    refused(|bytes| bytes.truncate(40), true, false, "truncated: it ends before one block");
    refused(
        replace(b"END     ", b"ENT     "),
        false,
        false,
        "truncated: it ends before the END of its header",
    );
    // The checksum is eight bytes before the end: only --verify reads up to there.
    let checksum = |bytes: &mut Vec<u8>| *bytes.iter_mut().nth_back(7).unwrap() ^= 1;
    refused(checksum, true, true, "damaged gzip data");
}

#[test]
fn frames_without_what_is_needed_are_refused_by_name() {
    refused(
        replace(b"CTYPE1", b"CXYPE1"),
        false,
        false,
        "lacks CTYPE1 (where the frame is on the sky)",
    );
    refused(replace(b"'RA---TAN'", b"'RA'      "), false, false, "CTYPE1: is 'RA'");
    refused(replace(b"'DEC--TAN'", b"'GLAT-TAN'"), false, false, "CTYPE2: is 'GLAT-TAN'");
    refused(
        replace(b"'RA---TAN'", b"'RA---XYZ'"),
        false,
        false,
        "CTYPE1: a projection that we do not know",
    );
    refused(replace(b"CRVAL2", b"CXVAL2"), false, false, "lacks CRVAL2");
    refused(
        replace(b"SKY     ", b"SKI     "),
        false,
        false,
        "lacks SKY (the background, counts; or say it with --sky)",
    );
    refused(
        replace(b"CAL     ", b"CAT     "),
        false,
        false,
        "lacks CAL (the flux of one count; or say it with --cal)",
    );
    refused(
        replace(b"NAXIS   =                    2", b"NAXIS   =                    1"),
        false,
        false,
        "NAXIS: 1",
    );
    refused(
        replace(b"BITPIX  =                   16", b"BITPIX  =                   17"),
        false,
        false,
        "bad FITS",
    );
    refused(
        replace(b"NAXIS2  =                  170", b"NAXIS2  =                  999"),
        false,
        false,
        "truncated",
    );
}

#[test]
fn frames_of_other_surveys_are_stacked_with_what_is_said_of_them() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    survey(
        room,
        &[
            "--out",
            ".",
            "--frames",
            "20",
            "--objects",
            "80",
            "--size",
            "180x170",
            "--seed",
            "9",
            "--plain",
        ],
    );
    let frames: Vec<_> =
        fs::read_dir(room.join("frames")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let names: Vec<_> = frames.iter().map(|frame| frame.to_str().unwrap()).collect();
    let of = |more: &[&str]| {
        let said = stack(
            room,
            &[&["--list", "objects.csv", "--out", "p.fits", "--size", "60"], more, &names].concat(),
        );
        assert_eq!((said.0, said.2.as_str()), (0, ""));
        stack(room, &["--sum", "p.fits"]).1
    };
    let by_headers = of(&[]);
    assert_eq!(of(&["--sky", "0", "--cal", "1e9"]), by_headers, "what a header says counts");
    for frame in &frames {
        let mut bytes = fs::read(frame).unwrap();
        replace(b"SKY     ", b"SKI     ")(&mut bytes);
        replace(b"CAL     ", b"CAT     ")(&mut bytes);
        fs::write(frame, bytes).unwrap();
    }
    let measured = of(&["--sky", "median", "--cal", "1"]);
    let number = |line: &str, key: &str| value(line, key).parse::<f64>().unwrap();
    assert_eq!(value(&measured, "stacked"), "80");
    // Flux is in counts now, and the source as certain as before.
    assert!(
        number(&measured, "signal_to_noise") > 0.8 * number(&by_headers, "signal_to_noise"),
        "{measured}"
    );
    assert!(number(&measured, "flux") > 2.0 * number(&measured, "flux_sigma"), "{measured}");
    // The sum has no background; it would add 1,000 counts and more for each region.
    let counts_of_a_region = || {
        let bytes = fs::read(room.join("p.fits")).unwrap();
        let pixels = bytes[bytes.len() - 60 * 60 * 8..]
            .as_chunks()
            .0
            .iter()
            .map(|pixel| f64::from_be_bytes(*pixel));
        pixels.sum::<f64>() / (60.0 * 60.0 * 80.0)
    };
    assert!(counts_of_a_region().abs() < 10.0, "{}", counts_of_a_region());
    of(&["--sky", "0", "--cal", "1"]);
    assert!(counts_of_a_region() > 1000.0, "{}", counts_of_a_region());
    for wrong in [["--sky", "mean"], ["--cal", "nan"]] {
        assert_eq!(stack(room, &[&["--list", "objects.csv"], &wrong[..], &names].concat()).0, 2);
    }
}

#[test]
fn bad_lists_and_partials_are_refused_by_name() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    survey(room, &["--out", ".", "--frames", "1", "--size", "180x170"]);
    let frame = "frames/frame-000000.fits.gz";
    for (list, trouble) in [
        ("x,y\n1,2\n", "line 1: no column 'ra'"),
        ("ra,dec\n1,2\n1,north\n", "line 3: dec 'north' is not"),
        ("ra,dec\n400,2\n", "line 2: ra '400' is not"),
        ("ra,dec\n1\n", "line 2: "),
    ] {
        fs::write(room.join("bad list.csv"), list).unwrap();
        let (code, _, error) = stack(room, &["--list", "bad list.csv", frame, "--out", "p.fits"]);
        assert!(code == 65 && error.contains("bad list.csv") && error.contains(trouble), "{error}");
    }
    let (code, _, error) =
        stack(room, &["--list", "objects.csv", "no such frame", "--out", "p.fits"]);
    assert!(code == 74 && error.contains("no such frame: cannot open"), "{error}");
    let (code, _, error) = stack(room, &["--sum", frame, "--out", "m.fits"]);
    assert!(code == 65 && error.contains(frame), "{error}");
    let (code, _, error) = stack(room, &["--sum", "frames", "--out", "m.fits"]);
    assert!(code == 65 && error.contains("no partial stacks"), "{error}");
    assert!(!room.join("p.fits").exists() && !room.join("m.fits").exists());

    // An object that is not on the frame is no error: its partial stack is empty.
    let (code, out, _) =
        stack(room, &["--object", "200,-60", frame, "--out", "p.fits", "--size", "60"]);
    assert_eq!((code, value(&out, "outside")), (0, "1"));
    let (code, _, error) = stack(room, &["--sum", "p.fits", "--out", "m.fits"]);
    assert!(code == 65 && error.contains("no region of interest"), "{error}");
    assert_eq!(stack(room, &["--out", "m.fits", frame]).0, 2);
}
