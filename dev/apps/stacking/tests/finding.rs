//! Which frames show which objects: cells of the sky, the index, and lists of all forms.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use eyas_stacking::cells::{cell_at, chord_squared, direction, middle_of, radius};
use eyas_stacking::coverage::Coverage;
use eyas_stacking::find::find;
use eyas_stacking::header::Header;
use eyas_stacking::index::{self, FrameIndex, IndexPlan, IndexedImage};
use eyas_stacking::lists;
use eyas_stacking::objects::{ListedObject, SkyObject};
use eyas_stacking::projection::Projection;
use eyas_stacking::roi::Placement;
use eyas_stacking::survey::SurveyPlan;
use proptest::prelude::*;

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

#[test]
fn cells_are_those_of_healpix() {
    let table = include_str!("cells.txt");
    let lines: Vec<_> = table.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() > 100);
    for line in lines {
        let numbers: Vec<f64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let cell: u64 = line.split(' ').nth(3).unwrap().parse().unwrap();
        let order = numbers[0] as u8;
        assert_eq!(cell_at(numbers[1], numbers[2], order), cell, "{line}");
        let apart = chord_squared(middle_of(cell, order), direction(numbers[4], numbers[5]));
        assert!(apart < 1e-24, "{line}: {apart}");
    }
}

proptest! {
    #[test]
    fn cells_are_within_each_other_and_within_their_radius(
        ra in 0.0..=360.0_f64,
        sine in -1.0..=1.0_f64,
    ) {
        let dec = sine.asin().to_degrees();
        let place = direction(ra, dec);
        let finest = cell_at(ra, dec, 29);
        for order in 0..29 {
            let cell = cell_at(ra, dec, order);
            // At a border, the orders may round to cells that are neighbours.
            let around = finest >> (2 * (29 - order));
            for cell in [cell, around] {
                let chord = chord_squared(place, middle_of(cell, order)).sqrt();
                let apart = 2.0 * (chord / 2.0).asin();
                prop_assert!(apart <= radius(order) * (1.0 + 1e-9) + 1e-15, "order {order}");
            }
        }
    }

    #[test]
    fn every_pixel_of_a_frame_is_in_its_cells(
        code in prop::sample::select(vec!["TAN", "SIN", "ZEA", "CAR", "AIT", "COE"]),
        ra in 0.0..360.0_f64,
        dec in -90.0..90.0_f64,
        turn in 0.0..360.0_f64,
        arcsec in prop::sample::select(vec![0.02, 0.4, 3.0, 60.0, 2000.0]),
        (width, height) in (1..3000_usize, 1..3000_usize),
        places in prop::collection::vec((0.0..=1.0_f64, 0.0..1.0_f64), 60),
    ) {
        let (sin, cos) = turn.to_radians().sin_cos();
        let scale = arcsec / 3600.0;
        let cards = [
            format!("CTYPE1  = 'RA---{code}'"),
            format!("CTYPE2  = 'DEC--{code}'"),
            format!("CRPIX1  = {}", width as f64 / 2.0),
            format!("CRPIX2  = {}", height as f64 / 2.0),
            format!("CRVAL1  = {ra}"),
            format!("CRVAL2  = {dec}"),
            format!("CD1_1   = {}", -scale * cos),
            format!("CD1_2   = {}", scale * sin),
            format!("CD2_1   = {}", scale * sin),
            format!("CD2_2   = {}", scale * cos),
            "PV2_1   = 45".to_owned(),
        ];
        let used = if code == "COE" { &cards[..] } else { &cards[..10] };
        let text: String = used.iter().map(|card| format!("{card:80}")).collect();
        let header = Header::parse(text.as_bytes());
        // Headers that are refused are never indexed.
        if let Ok(projection) = Projection::new(&header, width, height) {
            let coverage = Coverage::of(&projection, width, height);
            for (x, y) in places {
                let at = |share: f64, edge: usize| share * edge as f64 - 0.5;
                let Some((ra, dec)) = projection.sky(at(x, width), at(y, height)) else { continue };
                let cell = cell_at(ra, dec, coverage.order);
                prop_assert!(coverage.cells.contains(&cell), "{x}, {y} at {ra}, {dec}");
            }
            prop_assert!(coverage.cells.len() < 200, "{} cells", coverage.cells.len());
        }
    }
}

#[test]
fn keywords_of_the_index_make_the_same_projection() {
    let cases = include_str!("positions.txt");
    let mut compared = 0;
    for case in cases.split("\n\n").filter(|case| case.contains("\naccepted")) {
        let text: String = case
            .lines()
            .map(|line| format!("{:80}", line.split_at(line.len().min(80)).0))
            .collect();
        let header = Header::parse(text.as_bytes());
        let Ok(projection) = Projection::new(&header, 100, 100) else { continue };
        let again = Projection::of_values(&Projection::values(&header)).unwrap();
        assert_eq!(format!("{projection:?}"), format!("{again:?}"), "{case}");
        compared += 1;
    }
    assert!(compared > 50, "{compared} headers");
}

/// A survey with bands, and its index.
fn survey(directory: &Path, frames: u64) -> (Vec<PathBuf>, Vec<IndexedImage>) {
    let plan = SurveyPlan {
        frames,
        objects: 3 * frames,
        width: 150,
        height: 140,
        seed: 4,
        gzip: false,
        bands: true,
    };
    plan.write(directory).unwrap();
    let paths: Vec<PathBuf> =
        (0..frames).map(|number| directory.join(plan.file_name(number))).collect();
    let plan =
        IndexPlan { hdu: "first".parse().unwrap(), band_keyword: "FILTER".into(), band: None };
    let (images, unreadable) = plan.read_frames(&paths, false);
    assert!(unreadable.is_empty());
    (paths, images)
}

#[test]
fn the_index_finds_what_every_frame_says_itself() {
    let room = tempfile::tempdir().unwrap();
    let (_, images) = survey(room.path(), 60);
    let path = room.path().join("index");
    index::write(&path, &images).unwrap();
    let index = FrameIndex::read(&path).unwrap();
    assert_eq!(index.images(), images);

    // Places all over the stripe of frames, some of them between frames and far away.
    let at = |number: u32| f64::from(number) * 0.618_034 % 1.0;
    let far = [(10.0, 80.0), (200.0, -89.9999), (0.0, 0.0), (360.0, 0.0)];
    let near = (0..4000).map(|number| (at(number) * 1.1, at(7 * number) * 0.02 - 0.01));
    let bands = [None, Some("g"), Some("r"), Some("y")];
    let objects: Vec<ListedObject> = near
        .chain(far)
        .enumerate()
        .map(|(number, (ra, dec))| ListedObject {
            band: bands[number % 4].map(Box::from),
            ..SkyObject { ra, dec }.into()
        })
        .collect();
    let found = find(&index, &objects, 60).unwrap();
    let mut expected = Vec::new();
    let mut borders = vec![false; objects.len()];
    for (image, indexed) in images.iter().enumerate() {
        let projection = indexed.projection().unwrap();
        for (number, object) in objects.iter().enumerate() {
            if object.band.is_some() && object.band.as_deref() != indexed.band.as_deref() {
                continue;
            }
            match Placement::of(&projection, object.place, 60, indexed.width, indexed.height) {
                Placement::Whole(_) => expected.push((image, number)),
                Placement::Border => borders[number] = true,
                Placement::Outside => {}
            }
        }
    }
    let hits: Vec<_> =
        found.hits.iter().map(|hit| (hit.image as usize, hit.object as usize)).collect();
    assert!(hits.len() > 100, "{} hits", hits.len());
    assert_eq!(hits, expected);
    let rows = format!("{:?}", found.not_found);
    for reason in ["NotCovered", "NoSuchBand", "OtherBand", "Border"] {
        assert!(rows.contains(reason), "no {reason}");
    }
    assert_eq!(found.found + found.not_found.len(), objects.len());
    let of_border = rows.matches("Border").count();
    let is_found = |number: usize| expected.iter().any(|(_, object)| *object == number);
    let cut = (0..objects.len()).filter(|&number| borders[number] && !is_found(number)).count();
    assert_eq!(of_border, cut);
}

#[test]
fn a_survey_is_indexed_and_its_objects_found_and_stacked() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    survey(room, 6);
    let (code, said, error) = stack(room, &["index", "frames", "--out", "index"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!((value(&said, "images"), value(&said, "bands")), ("6", "g,i,r,u,z"));

    let (code, said, error) = stack(
        room,
        &[
            "find",
            "--index",
            "index",
            "--list",
            "objects.csv",
            "--size",
            "40",
            "--out-tasks",
            "tasks.csv",
            "--out-lists",
            "lists",
            "--report",
            "missing.json",
        ],
    );
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!((value(&said, "found"), value(&said, "not_found")), ("18", "0"));
    assert_eq!((value(&said, "images"), value(&said, "tasks")), ("6", "6"));
    let tasks = fs::read_to_string(room.join("tasks.csv")).unwrap();
    let mut stacked = 0;
    for (number, task) in tasks.lines().enumerate() {
        let [frame, list, hdu, objects] = task.split(',').collect::<Vec<_>>()[..] else {
            panic!("{task}")
        };
        let out = format!("{number}.fits");
        let (code, said, error) =
            stack(room, &["--list", list, frame, "--hdu", hdu, "--size", "40", "--out", &out]);
        assert_eq!((code, error.as_str()), (0, ""));
        assert_eq!(value(&said, "stacked"), objects);
        stacked += objects.parse::<u64>().unwrap();
    }
    assert_eq!(stacked, 18);

    // The same, one task for each object: the lines of the tasks are those that `survey` writes,
    // and more.
    let find = ["find", "--index", "index", "--list", "objects.csv", "--size", "40"];
    let (_, said, _) = stack(room, &[&find[..], &["--out-tasks", "tasks.csv"]].concat());
    assert_eq!(value(&said, "tasks"), "18");
    let tasks = fs::read_to_string(room.join("tasks.csv")).unwrap();
    let fields: Vec<_> = tasks.lines().next().unwrap().split(',').collect();
    assert_eq!((fields.len(), fields[0], fields[3]), (7, "frames/frame-000000.fits", "0"));
    assert_eq!((fields[4], fields[5]), ("u", "1"));
    let place = [fields[1], fields[2], fields[4], fields[5], fields[6]].join(",");
    let (code, said, _) = stack(
        room,
        &["--object", &place, fields[0], "--hdu", fields[3], "--size", "40", "--out", "p.fits"],
    );
    assert_eq!((code, value(&said, "stacked")), (0, "1"));

    // What is not found is in the report, with the reason.
    fs::write(
        room.join("more.txt"),
        "# name ra dec band\nfar 100 45 r\nfine 0 0 Y\nnone NaN 3 g\nhours 400 3 g\n",
    )
    .unwrap();
    let more = ["find", "--index", "index", "--list", "more.txt", "--out-tasks", "none.csv"];
    let (code, _, error) = stack(room, &more);
    assert!(code == 65 && error.contains("line 4: ra 'NaN'"), "{error}");
    assert!(error.contains("--keep-going"), "{error}");
    let report = ["--keep-going", "--report", "missing.csv"];
    let (code, said, _) = stack(room, &[&more[..], &report].concat());
    assert_eq!((code, value(&said, "found"), value(&said, "not_found")), (0, "0", "2"));
    assert_eq!(value(&said, "bad"), "2");
    let missing = fs::read_to_string(room.join("missing.csv")).unwrap();
    let lines: Vec<_> = missing.lines().collect();
    assert_eq!(lines[0], "name,ra,dec,band,frame,hdu,reason,detail");
    assert_eq!(
        lines[1],
        "none,NaN,3,g,,,bad_position,line 4: ra 'NaN' is not from 0 to 360 degrees"
    );
    assert!(lines[2].starts_with("hours,400,3,g,,,bad_position,line 5"), "{missing}");
    assert_eq!(lines[3], "far,100,45,r,,,not_covered,");
    assert_eq!(lines[4], "fine,0,0,Y,,,no_such_band,bands: g i r u z");
    assert_eq!(fs::read_to_string(room.join("none.csv")).unwrap(), "");
}

#[test]
fn damaged_indexes_and_frames_are_refused() {
    let room = tempfile::tempdir().unwrap();
    let room = room.path();
    survey(room, 3);
    assert_eq!(stack(room, &["index", "frames", "--out", "index"]).0, 0);
    let whole = fs::read(room.join("index")).unwrap();
    let look = |bytes: &[u8]| {
        fs::write(room.join("bad"), bytes).unwrap();
        let find = ["find", "--index", "bad", "--list", "objects.csv", "--out-tasks", "t.csv"];
        let (code, _, error) = stack(room, &find);
        (code, error)
    };
    assert_eq!(look(&whole).0, 0);
    let mut flipped = whole.clone();
    *flipped.iter_mut().nth_back(7).unwrap() ^= 1;
    for bytes in [&whole[..whole.len() / 2], &whole[..whole.len() - 4], &flipped, b"ra,dec\n", b""]
    {
        let (code, error) = look(bytes);
        assert!(code == 65 && error.contains("make it again with `stack index`"), "{error}");
    }
    let packed = |text: &str| {
        use std::io::Write;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    let (_, error) = look(&packed("{\"eyas_stacking_index\":99}\n"));
    assert!(error.contains("version 99, and this program reads 1"), "{error}");
    let bomb = format!("{{\"eyas_stacking_index\":1}}\n{}", " ".repeat(30 << 20));
    let (code, error) = look(&packed(&bomb));
    assert!(code == 65 && error.contains("line 2"), "{error}");
    let image = "{\"frame\":\"f\",\"hdu\":0,\"width\":1,\"height\":1,\"order\":0,\"cells\":[],\
                 \"positions\":\"\"}\n";
    let bomb = format!("{{\"eyas_stacking_index\":1}}\n{}", image.repeat(100_000));
    let (code, error) = look(&packed(&bomb));
    assert!(code == 65 && error.contains("over 100 times its size"), "{error}");
    let strange = "{\"eyas_stacking_index\":1}\n{\"frame\":\"f\",\"hdu\":0,\"width\":1,\
                   \"height\":1,\"order\":200,\"cells\":[1],\"positions\":\"\"}\n{\"images\":1}\n";
    let (code, error) = look(&packed(strange));
    assert!(code == 65 && error.contains("no image is like that"), "{error}");
    let lost = strange.replace("200", "2");
    let (code, error) = look(&packed(&lost));
    assert_eq!(code, 0, "a place in no cell needs no projection: {error}");
    let everywhere = strange
        .replace("\"hdu\":0", "\"hdu\":0,\"band\":\"u\"")
        .replace("200", "0")
        .replace("[1]", "[0,1,2,3,4,5,6,7,8,9,10,11]");
    let (code, error) = look(&packed(&everywhere));
    assert!(code == 65 && error.contains("bad: not a usable index of frames: f: "), "{error}");

    // Indexes of parts of a survey make the whole one, and a frame that is read again replaces its
    // images.
    let frame = |number: u32| format!("frames/frame-{number:06}.fits");
    let (first, second, third) = (frame(0), frame(1), frame(2));
    assert_eq!(stack(room, &["index", &first, &second, "--out", "one"]).0, 0);
    assert_eq!(stack(room, &["index", &third, "--out", "two"]).0, 0);
    let (code, said, error) =
        stack(room, &["index", "--add", "one", "--add", "two", "--out", "both"]);
    assert_eq!((code, value(&said, "images"), error.as_str()), (0, "3", ""));
    assert_eq!(fs::read(room.join("both")).unwrap(), whole);
    let again = ["index", &first, "--add", "both", "--out", "both", "--band", "y"];
    let (_, said, _) = stack(room, &[&again[..], &["--band-keyword", "NONE"]].concat());
    assert_eq!((value(&said, "frames"), value(&said, "images")), ("1", "3"));
    assert_eq!(value(&said, "bands"), "g,r,y");
    assert_eq!(stack(room, &["index", "--out", "both"]).0, 2);

    // A frame that cannot be read ends the work, unless it is passed over.
    fs::write(room.join("frames/bad.fits"), "SIMPLE  = no").unwrap();
    let (code, _, error) = stack(room, &["index", "frames", "--out", "index2"]);
    assert!(code == 65 && error.contains("bad.fits") && !room.join("index2").exists(), "{error}");
    let (code, said, error) = stack(
        room,
        &["index", "frames", "--out", "index2", "--keep-going", "--report", "report.json"],
    );
    assert_eq!((code, value(&said, "unreadable"), value(&said, "images")), (0, "1", "3"));
    assert!(error.contains("bad.fits") && error.contains("passed over"), "{error}");
    let report = fs::read_to_string(room.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["version"], 1);
    assert_eq!(report["not_stacked"][0]["reason"], "unreadable");
    assert_eq!(report["not_stacked"][0]["frame"], "frames/bad.fits");
}

/// The objects of a list with this content, and the number of its bad rows; or what is wrong.
fn list(content: &[u8]) -> Result<(Vec<ListedObject>, usize), String> {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("list");
    fs::write(&path, content).unwrap();
    let list = lists::read(&path).map_err(|error| error.problem.to_string())?;
    Ok((list.objects, list.bad.len()))
}

fn object(ra: f64, dec: f64, band: &str, weight: f64, name: &str) -> ListedObject {
    let text = |text: &str| (!text.is_empty()).then(|| Box::from(text));
    ListedObject { place: SkyObject { ra, dec }, band: text(band), weight, name: text(name) }
}

proptest! {
    #[test]
    fn any_bytes_are_a_list_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        places in prop::collection::vec((0..2000_usize, any::<u8>()), 0..6),
    ) {
        let _ = list(&bytes);
        let rows = "<TABLEDATA><TR><TD>a</TD><TD>1.5</TD><TD>2</TD><TD>2</TD></TR></TABLEDATA>";
        let stream = "<BINARY2><STREAM encoding='base64'>AAAAAAE=</STREAM></BINARY2>";
        for content in [votable(rows), votable(stream), "# ra dec\n1 2 r\n3,4\n".to_owned()] {
            let mut content = content.into_bytes();
            for &(place, byte) in &places {
                let place = place % content.len();
                content[place] = byte;
            }
            let _ = list(&content);
        }
    }
}

#[test]
fn lists_of_every_form_are_read() {
    let wanted = vec![object(1.5, -2.25, "r", 1.0, ""), object(3.0, 4.0, "g", 1.0, "")];
    for content in [
        "ra,dec,band\n1.5,-2.25,r\n3,4,g\n",
        "# a comment\n\nDEC, RA ,Filter\r\n-2.25,1.5,r\r\n4,3,g\r\n",
        "1.5,-2.25,r\n3,4,g",
        "1.5 -2.25 r\n3 4 g\n",
        "\u{feff}1.5\t-2.25   r\n# in between\n  3 4 g  \n",
        "ra dec band\n1.5 -2.25 r\n3 4 g\n",
        "# made by a program\n# band RAJ2000 DEJ2000\nr 1.5 -2.25\ng 3 4\n",
    ] {
        assert_eq!(list(content.as_bytes()), Ok((wanted.clone(), 0)), "{content}");
    }
    let full = b"name,ra,dec,weight,band\nM 31,10.68,41.27,2.5,\n,1,2,,u\n";
    let wanted = vec![object(10.68, 41.27, "", 2.5, "M 31"), object(1.0, 2.0, "u", 1.0, "")];
    assert_eq!(list(full), Ok((wanted, 0)));
    for bad in ["ra,dec\n,\n", "ra,dec\nnan,1\n", "ra,dec,weight\n1,2,-1\n", "ra,dec\n1,91\n"] {
        assert_eq!(list(bad.as_bytes()), Ok((vec![], 1)), "{bad}");
    }
    for (content, trouble) in [
        ("", "it has no objects"),
        ("# only\n", "it has no objects"),
        ("ra,dec\n1\n", "line 2: 1 fields, but the first line has 2"),
        ("1 2\n3\n", "line 2: one column"),
        ("x y\n1 2\n", "line 1: no column 'ra'"),
    ] {
        let said = list(content.as_bytes()).unwrap_err();
        assert!(said.contains(trouble), "wanted {trouble}: {said}");
    }
}

#[test]
fn an_object_of_the_command_line_may_have_all_of_a_task() {
    let read = |text: &str| text.parse::<ListedObject>().map_err(|error| error.to_string());
    assert_eq!(read("1.5,-2"), Ok(object(1.5, -2.0, "", 1.0, "")));
    assert_eq!(read("1.5,-2,r"), Ok(object(1.5, -2.0, "r", 1.0, "")));
    assert_eq!(read("1.5,-2,,,a, b"), Ok(object(1.5, -2.0, "", 1.0, "a, b")));
    assert_eq!(read("1.5,-2,r,0.25,"), Ok(object(1.5, -2.0, "r", 0.25, "")));
    assert!(read("1.5").unwrap_err().contains("give RA,DEC"));
    assert!(read("1.5,-2,r,heavy").unwrap_err().contains("weight 'heavy'"));
}

/// A table of three columns.
fn votable(data: &str) -> String {
    format!(
        "<?xml version='1.0'?>\n<VOTABLE version='1.4' xmlns='http://www.ivoa.net/xml/VOTable/v1.3'>\
         <RESOURCE><COOSYS ID='sys' system='ICRS'/><TABLE name='other'>\
         <FIELD name='x' datatype='int'/><DATA><TABLEDATA><TR><TD>5</TD></TR></TABLEDATA></DATA>\
         </TABLE><TABLE>\
         <FIELD name='main_id' datatype='char' arraysize='*'/>\
         <FIELD name='alpha' datatype='double' ucd='pos.eq.ra;meta.main' unit='deg' ref='sys'/>\
         <FIELD name='delta' datatype='double' ucd='pos.eq.dec;meta.main' unit='deg' ref='sys'/>\
         <FIELD name='weight' datatype='float'/>\
         <DATA>{data}</DATA></TABLE></RESOURCE></VOTABLE>"
    )
}

#[test]
fn votables_are_read() {
    let rows = "<TABLEDATA><TR><TD>a &amp; &#98;</TD><TD>1.5</TD><TD> -2.25 </TD><TD>2</TD></TR>\
                <TR><TD/><TD>3</TD><TD><![CDATA[4]]></TD><TD></TD></TR>\
                <TR><TD>none</TD><TD></TD><TD></TD><TD></TD></TR></TABLEDATA>";
    let wanted = vec![object(1.5, -2.25, "", 2.0, "a & b"), object(3.0, 4.0, "", 1.0, "")];
    assert_eq!(list(votable(rows).as_bytes()), Ok((wanted.clone(), 1)));

    // The same in BINARY2: a byte of flags, then the fields.
    use base64::Engine as _;
    let mut bytes = Vec::new();
    let mut row = |flags: u8, name: &str, ra: f64, dec: f64, weight: f32| {
        bytes.push(flags);
        bytes.extend((name.len() as u32).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(ra.to_be_bytes());
        bytes.extend(dec.to_be_bytes());
        bytes.extend(weight.to_be_bytes());
    };
    row(0, "a & b", 1.5, -2.25, 2.0);
    row(0x90, "", 3.0, 4.0, 9.0);
    row(0, "none", f64::NAN, f64::NAN, 1.0);
    let stream = |bytes: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        let (one, two) = text.split_at(text.len() / 2);
        votable(&format!("<BINARY2><STREAM encoding='base64'>\n{one}\n {two}</STREAM></BINARY2>"))
    };
    assert_eq!(list(stream(&bytes).as_bytes()), Ok((wanted, 1)));

    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("list.vot");
    fs::write(&path, stream(&bytes)).unwrap();
    let error = lists::read(&path).unwrap().strict(&path).unwrap_err().to_string();
    assert!(error.contains("list.vot: object list row 3: ra 'NaN'"), "{error}");

    let refused = [
        (stream(&bytes[..bytes.len() - 1]), "the row is not whole"),
        (votable("<BINARY2><STREAM encoding='base64'>*</STREAM></BINARY2>"), "bad base64"),
        (votable("<BINARY2><STREAM href='http://x/'/></BINARY2>"), "from the file itself"),
        (votable("<FITS><STREAM/></FITS>"), "data in FITS"),
        (votable(rows).replace("unit='deg'", "unit='h'"), "should be in deg"),
        (votable(rows).replace("system='ICRS'", "system='galactic'"), "should be in ICRS"),
        (votable(rows).replace("&amp;", "&lol;"), "unknown entity '&lol;'"),
        (votable(rows).replace("</TD><TD>1.5", "</TD><TD>1</TD><TD>1.5"), "more cells"),
        (
            votable(rows).replace("<RESOURCE>", "<!DOCTYPE x [<!ENTITY lol 'ha'>]><RESOURCE>"),
            "a document type",
        ),
        (votable(""), "no table with the columns ra and dec"),
        (votable(rows).split("<TR><TD>a").next().unwrap().to_owned(), "it ends within"),
        ("<html><br></html>".to_owned(), "bad XML"),
    ];
    for (content, trouble) in refused {
        let said = list(content.as_bytes()).unwrap_err();
        assert!(said.contains(trouble), "wanted {trouble}: {said}");
    }
}
