//! Which images of a file are stacked, with which weights, and what is said of the rest.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `stack` in `directory`; its exit code, stdout and stderr.
fn stack(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let program = env!("CARGO_BIN_EXE_stack");
    let Output { status, stdout, stderr } =
        Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// The value of `key` in a line of tab-separated `key=value`.
fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let found =
        line.trim_end().split('\t').find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {line:?}"))
}

/// Edge of the images, pixels.
const EDGE: usize = 40;

/// An image of doubles around (10, 20) degrees, whose noise is a pattern from `-noise` to `noise`.
fn image(begins: &str, level: f64, noise: f64, more: &[&str]) -> Vec<u8> {
    let mut cards: Vec<String> = [
        begins,
        "BITPIX  = -64",
        "NAXIS   = 2",
        "NAXIS1  = 40",
        "NAXIS2  = 40",
        "CTYPE1  = 'RA---TAN'",
        "CTYPE2  = 'DEC--TAN'",
        "CRPIX1  = 21",
        "CRPIX2  = 21",
        "CRVAL1  = 10",
        "CRVAL2  = 20",
        "CD1_1   = -0.0001",
        "CD2_2   = 0.0001",
    ]
    .map(str::to_owned)
    .to_vec();
    cards.extend(more.iter().map(|card| (*card).to_owned()));
    cards.push("END".to_owned());
    let mut bytes: Vec<u8> =
        cards.iter().flat_map(|card| format!("{card:80}").into_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(2880), b' ');
    for at in 0..EDGE * EDGE {
        let wave = (at * 7919 % 101) as f64 / 50.0 - 1.0;
        bytes.extend((level + noise * wave).to_be_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(2880), 0);
    bytes
}

fn nothing(more: &[&str]) -> Vec<u8> {
    let cards = ["SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 0"];
    let cards = cards.iter().chain(more).chain(&["END"]);
    let mut bytes: Vec<u8> = cards.flat_map(|card| format!("{card:80}").into_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(2880), b' ');
    bytes
}

const FIRST: &str = "SIMPLE  = T";
const IMAGE: &str = "XTENSION= 'IMAGE   '";
const PLAIN: [&str; 2] = ["SKY     = 0", "CAL     = 1"];

/// The mean of the first pixels of the mean image.
fn level(directory: &Path, partial: &str) -> f64 {
    let (code, _, error) = stack(directory, &["--sum", partial, "--out", "mean.fits"]);
    assert_eq!(code, 0, "{error}");
    let bytes = fs::read(directory.join("mean.fits")).unwrap();
    let pixels = bytes[bytes.len() - 2880..].as_chunks::<8>().0;
    let pixels: Vec<f64> = pixels[..100].iter().map(|pixel| f64::from_be_bytes(*pixel)).collect();
    pixels.iter().sum::<f64>() / 100.0
}

#[test]
fn images_of_a_file_are_chosen_by_number_or_name() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    let extension = |level, name: &str| {
        image(IMAGE, level, 0.0, &[&format!("EXTNAME = '{name}'"), "INHERIT = T"])
    };
    let file = [
        nothing(&["FILTER  = 'r'", "SKY     = 1", "CAL     = 2"]),
        extension(11.0, "SCI"),
        extension(21.0, "MASK"),
        extension(31.0, "SCI"),
    ]
    .concat();
    fs::write(room.join("f.fits"), &file).unwrap();
    // Calibrated by the primary header, which the extensions inherit: (11 - 1) × 2.
    let cases = [
        (None, 1, 20.0),
        (Some("first"), 1, 20.0),
        (Some("2"), 1, 40.0),
        (Some("3"), 1, 60.0),
        (Some("sci"), 2, 40.0),
        (Some("MASK"), 1, 40.0),
        (Some("all"), 3, 40.0),
    ];
    for (hdu, images, wanted) in cases {
        let choice = hdu.map_or(vec![], |hdu| vec!["--hdu", hdu]);
        let stacked = [&["--object", "10,20", "f.fits", "--size", "10", "--out", "p"], &choice[..]];
        let (code, said, error) = stack(room, &stacked.concat());
        assert_eq!((code, said.lines().count()), (0, images), "{hdu:?}: {error}");
        assert_eq!(level(room, "p"), wanted, "{hdu:?}");
        // The index has the same images, two of them at one place.
        let (code, said, error) =
            stack(room, &[&["index", "f.fits", "--out", "index"], &choice[..]].concat());
        assert_eq!((code, value(&said, "images")), (0, images.to_string().as_str()), "{error}");
        assert_eq!(value(&said, "bands"), "r", "the band of the primary header");
        fs::write(room.join("list"), "10,20,r\n").unwrap();
        let find = ["find", "--index", "index", "--list", "list", "--size", "10", "--out-tasks"];
        let (_, said, _) = stack(room, &[&find[..], &["tasks"]].concat());
        assert_eq!(value(&said, "tasks"), images.to_string());
    }
    let refused = [("0", "HDU 0 has no image"), ("9", "the file has 4 HDUs"), ("X", "HDU 'X'")];
    for (hdu, trouble) in refused {
        let (code, _, error) = stack(room, &["--object", "10,20", "f.fits", "--hdu", hdu]);
        assert!(code == 65 && error.contains(trouble), "{error}");
    }
    // After a damaged image, nothing of the file is in the sum.
    fs::write(room.join("cut.fits"), &file[..file.len() - 9000]).unwrap();
    let (code, said, _) = stack(
        room,
        &["--object", "10,20", "cut.fits", "--hdu", "all", "--out", "p", "--keep-going"],
    );
    assert_eq!((code, said.as_str()), (0, ""));
    let (code, _, error) = stack(room, &["--sum", "p"]);
    assert!(code == 65 && error.contains("no region of interest"), "{error}");
    let (code, _, error) = stack(room, &["--sum", "p", "--hdu", "1"]);
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
}

#[test]
fn objects_of_a_band_are_stacked_on_frames_of_that_band() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    let frame = |name: &str, level, cards: &[&str]| {
        fs::write(room.join(name), image(FIRST, level, 0.0, &[&PLAIN, cards].concat())).unwrap();
    };
    frame("r.fits", 1.0, &["FILTER  = 'r'"]);
    frame("g.fits", 2.0, &["FILTER  = 'g'", "BAND    = 'z'"]);
    frame("none.fits", 4.0, &[]);
    let of = |list: &str, more: &[&str]| {
        fs::write(room.join("list"), list).unwrap();
        let all = ["--list", "list", "r.fits", "g.fits", "none.fits", "--size", "10", "--out", "p"];
        let (code, said, error) = stack(room, &[&all[..], more].concat());
        assert_eq!((code, error.as_str()), (0, ""));
        let stacked: Vec<_> = said.lines().map(|line| value(line, "stacked").to_owned()).collect();
        stacked.join(" ")
    };
    assert_eq!(of("10,20,r\n", &[]), "1 0 0");
    assert_eq!(of("10,20,g\n10,20,r\n", &[]), "1 1 0");
    assert_eq!(of("10,20\n", &[]), "1 1 1", "without a band, every frame counts");
    assert_eq!(of("10,20,r\n", &["--band", "r"]), "1 0 1");
    assert_eq!(of("10,20,z\n", &["--band-keyword", "BAND"]), "0 1 0");
    // An object that frames show in other bands alone has that reason; one beside them another.
    assert_eq!(of("10,20,i\n11,20,i\n10,20,r\n", &["--report", "r.csv"]), "1 0 0");
    let rows = fs::read_to_string(room.join("r.csv")).unwrap();
    let rows: Vec<_> = rows.lines().skip(1).collect();
    let wanted = [",10,20,i,,,other_band,shown in: g none r", ",11,20,i,,,outside,frames read: 3"];
    assert_eq!(rows, wanted);
    // An index without bands says so.
    assert_eq!(stack(room, &["index", "none.fits", "--out", "index"]).0, 0);
    let find = ["find", "--index", "index", "--list", "list", "--out-tasks", "t"];
    assert_eq!(stack(room, &[&find[..], &["--report", "r.csv"]].concat()).0, 0);
    let rows = fs::read_to_string(room.join("r.csv")).unwrap();
    assert!(rows.contains("no_such_band,no image of the index has a band"), "{rows}");
}

#[test]
fn weights_are_of_objects_and_of_the_noise() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    for (name, level, noise) in [("quiet.fits", 10.0, 0.02), ("loud.fits", 20.0, 0.04)] {
        fs::write(room.join(name), image(FIRST, level, noise, &PLAIN)).unwrap();
    }
    let partial = |list: &str, frame: &str, out: &str, more: &[&str]| {
        fs::write(room.join("list"), list).unwrap();
        let stacked = ["--list", "list", frame, "--size", "10", "--out", out];
        let (code, _, error) = stack(room, &[&stacked[..], more].concat());
        assert_eq!(code, 0, "{error}");
    };
    let both = |weights: [&str; 2], more: &[&str]| {
        fs::create_dir_all(room.join("parts")).unwrap();
        for (weight, name) in weights.into_iter().zip(["quiet", "loud"]) {
            let list = format!("ra,dec,weight\n10,20,{weight}\n");
            partial(&list, &format!("{name}.fits"), &format!("parts/{name}.fits"), more);
        }
        let said = stack(room, &["--sum", "parts"]).1;
        let number = |key| value(&said, key).parse::<f64>().unwrap();
        (level(room, "parts"), number("weight"), number("effective"))
    };
    let near = |found: f64, wanted: f64| {
        assert!((found - wanted).abs() < 1e-3 * wanted, "{found}, wanted {wanted}");
    };
    let (level, weight, effective) = both(["1", "1"], &[]);
    near(level, 15.0);
    assert_eq!((weight, effective), (2.0, 2.0));
    let (level, weight, effective) = both(["3", "1"], &[]);
    near(level, 12.5);
    assert_eq!((weight, effective), (4.0, 1.6));
    // The variance of the loud frame is four times that of the other.
    let (level, _, effective) = both(["1", "1"], &["--weights", "variance"]);
    near(level, 12.0);
    near(effective, 25.0 / 17.0);
    let (level, ..) = both(["1", "4"], &["--weights", "variance"]);
    near(level, 15.0);
    // A region of weight zero is counted, and changes nothing; alone, it makes no mean.
    let (level, ..) = both(["1", "0"], &[]);
    near(level, 10.0);
    let (code, _, error) = stack(room, &["--sum", "parts/loud.fits"]);
    assert!(code == 65 && error.contains("weight"), "{error}");

    // Partial stacks of both kinds do not add up.
    partial("10,20\n", "loud.fits", "parts/loud.fits", &["--weights", "variance"]);
    let (code, _, error) = stack(room, &["--sum", "parts/quiet.fits", "parts/loud.fits"]);
    assert!(code == 65 && error.contains("its weights are of VARIANCE"), "{error}");
    // A partial stack of an earlier version has the weight 1 for each region.
    partial("10,20\n10,20\n", "quiet.fits", "old.fits", &[]);
    let mut bytes = fs::read(room.join("old.fits")).unwrap();
    for keyword in [b"WEIGHTS ", b"WEIGHT  ", b"WEIGHT2 "] {
        let at = bytes.windows(8).position(|window| window == keyword).unwrap();
        bytes[at..at + 80].fill(b' ');
    }
    fs::write(room.join("old.fits"), bytes).unwrap();
    let said = stack(room, &["--sum", "old.fits"]).1;
    assert_eq!(value(&said, "effective"), "2.00");
    // A frame without noise has no such weight.
    fs::write(room.join("flat.fits"), image(FIRST, 1.0, 0.0, &PLAIN)).unwrap();
    let flat = ["--object", "10,20", "flat.fits", "--size", "10", "--weights", "variance"];
    assert_eq!(value(&stack(room, &flat).1, "undefined"), "1");
}

#[test]
fn what_is_not_stacked_is_reported() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    let good = image(FIRST, 1.0, 0.0, &PLAIN);
    fs::write(room.join("good.fits"), &good).unwrap();
    let mut holes = good.clone();
    let last = holes.len() - 5000;
    holes[last..].fill(0xff);
    fs::write(room.join("holes.fits"), &holes).unwrap();
    fs::write(room.join("bad.fits"), &good[..good.len() / 2]).unwrap();
    fs::write(
        room.join("list"),
        "# name ra dec\nfine 10 20\nedge 10.002 20\nhole 10 20.0010\nfar 11 20\nnone - -\n",
    )
    .unwrap();
    let frames = ["good.fits", "holes.fits", "bad.fits", "missing.fits"];
    let all = [&["--list", "list", "--size", "10", "--out", "p.fits"], &frames[..]].concat();
    let (code, _, error) = stack(room, &all);
    assert!(code == 65 && error.contains("line 6: ra '-'"), "{error}");
    let report = ["--keep-going", "--report", "r.csv"];
    let (code, said, error) = stack(room, &[&all[..], &report].concat());
    assert_eq!((code, said.lines().count()), (0, 2), "{error}");
    assert!(error.contains("bad.fits: truncated") && error.contains("missing.fits: cannot open"));
    let rows = fs::read_to_string(room.join("r.csv")).unwrap();
    let wanted = "name,ra,dec,band,frame,hdu,reason,detail\n\
                  none,-,-,,,,bad_position,line 6: ra '-' is not from 0 to 360 degrees\n\
                  edge,10.002,20,,good.fits,0,border,\n\
                  edge,10.002,20,,holes.fits,0,border,\n\
                  hole,10,20.001,,holes.fits,0,undefined,\n\
                  ,,,,bad.fits,,unreadable,truncated: it ends before the last row of its image\n\
                  ,,,,missing.fits,,unreadable,cannot open: No such file or directory \
                  (os error 2)\n\
                  far,11,20,,,,outside,\"frames read: 2, unreadable: 2\"\n";
    assert_eq!(rows, wanted);
    // The sum goes on, and says how many frames were passed over.
    let said = stack(room, &["--sum", "p.fits"]).1;
    assert_eq!((value(&said, "stacked"), value(&said, "unreadable")), ("3", "2"));

    // A task whose only frame cannot be read makes an empty partial stack, and names its objects.
    let alone = ["--list", "list", "bad.fits", "--out", "p.fits", "--keep-going", "--report"];
    assert_eq!(stack(room, &[&alone[..], &["r.json"]].concat()).0, 0);
    let text = fs::read_to_string(room.join("r.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = json["not_stacked"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    assert_eq!((&rows[0]["reason"], &rows[0]["ra"]), (&"bad_position".into(), &"-".into()));
    assert_eq!((&rows[2]["reason"], &rows[2]["ra"]), (&"unreadable".into(), &10.0.into()));
    // Reports of tasks are joined.
    fs::create_dir(room.join("reports")).unwrap();
    fs::copy(room.join("r.csv"), room.join("reports/1.csv")).unwrap();
    fs::copy(room.join("r.json"), room.join("reports/2.json")).unwrap();
    fs::copy(room.join("good.fits"), room.join("reports/other.fits")).unwrap();
    assert_eq!(stack(room, &["--object", "10,20", "good.fits", "--size", "9", "--out", "s"]).0, 0);
    for all in ["all.csv", "all.json"] {
        let sum = ["--sum", "s", "--reports", "reports", "--report", all];
        let (code, _, error) = stack(room, &sum);
        assert_eq!(code, 0, "{error}");
    }
    let first = fs::read_to_string(room.join("r.csv")).unwrap();
    let both = fs::read_to_string(room.join("all.csv")).unwrap();
    assert!(both.starts_with(&first) && both.lines().count() == 8 + 6, "{both}");
    let text = fs::read_to_string(room.join("all.json")).unwrap();
    let joined: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(joined["not_stacked"].as_array().unwrap()[7..], rows[..]);
    let (code, _, error) = stack(room, &["--sum", "s", "--reports", "list", "--report", "bad.csv"]);
    assert!(code == 65 && error.contains("list: no report of `stack`"), "{error}");
    assert!(!room.join("bad.csv").exists());
    let (code, _, error) = stack(room, &["--sum", "s", "--report", "bad.csv"]);
    assert!(code == 2 && error.contains("name them with --reports"), "{error}");
    let said = stack(room, &["--sum", "p.fits", "p.fits"]);
    assert!(said.0 == 65 && said.2.contains("no region of interest"), "{}", said.2);
}
