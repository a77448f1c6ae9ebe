//! Positions that are computed from headers of frames agree with those of WCSLIB.
//!
//! `positions.txt` has cases, made by `dev/judges/positions.py 120 33 1`; `EYAS_POSITIONS` may name
//! a file with others. Cases are separated by empty lines. The lines of a case:
//!
//! - `frame WIDTH HEIGHT`, and cards of its header;
//! - `accepted` if pixels return from the sky; `either` if they do not for WCSLIB, too; `invalid`
//!   if WCSLIB refuses the header; `refused WORD` if the message must have this word;
//! - `pixel X Y RA DEC` or `pixel X Y nowhere`: a pixel from zero, and its place;
//! - `place RA DEC X Y` or `place RA DEC nowhere`: a place, and its pixel.

use std::fs;
use std::path::Path;

use eyas_stacking::header::Header;
use eyas_stacking::projection::Projection;
use proptest::prelude::*;

/// Largest deviation from a place of WCSLIB, degrees: 0.04 milliarcseconds. WCSLIB has few digits
/// near the middle of SIN and NCP.
const PLACE: f64 = 1e-8;

/// Largest deviation from a pixel, pixels.
const PIXEL: f64 = 1e-4;

/// Pixels further out are not compared: positions have no digits there.
const FAR: f64 = 1e5;

fn header(cards: &[&str]) -> Header {
    Header::parse(cards.iter().map(|card| format!("{card:80}")).collect::<String>().as_bytes())
}

/// Degrees between two places.
fn apart((ra, dec): (f64, f64), (other_ra, other_dec): (f64, f64)) -> f64 {
    let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
    let cosines = dec.to_radians().cos() * other_dec.to_radians().cos();
    2.0 * (half(dec - other_dec) + cosines * half(ra - other_ra)).sqrt().asin().to_degrees()
}

/// The two numbers of a line after `name`, and the two after them; none for `nowhere`.
type Position = ((f64, f64), Option<(f64, f64)>);

fn position(line: &str, name: &str) -> Option<Position> {
    let numbers = line.strip_prefix(name)?.strip_prefix(' ')?;
    let pair = |words: &[&str]| (words[0].parse().unwrap(), words[1].parse().unwrap());
    let words: Vec<_> = numbers.split(' ').collect();
    Some((pair(&words), (words[2] != "nowhere").then(|| pair(&words[2..]))))
}

/// What is wrong with a case.
fn judge(case: &str) -> Result<(), String> {
    let lines: Vec<_> = case.lines().collect();
    let ((width, height), cards) =
        (position(&format!("{} nowhere", lines[0]), "frame").unwrap().0, &lines[1..]);
    let verdict = lines.iter().position(|line| ["accepted", "either", "invalid"].contains(line));
    let projection = |cards| Projection::new(&header(cards), width as usize, height as usize);
    let Some(verdict) = verdict else {
        let word = lines.last().unwrap().strip_prefix("refused ").unwrap();
        return match projection(&cards[..cards.len() - 1]) {
            Err(problem) if problem.to_string().contains(word) => Ok(()),
            other => Err(format!("wanted a refusal with {word}: {other:?}")),
        };
    };
    let projection = match (projection(&lines[1..verdict]), lines[verdict]) {
        (Ok(projection), "accepted" | "either") => projection,
        (Err(_), "either" | "invalid") => return Ok(()),
        (Ok(_), _) => return Err("it is accepted".to_owned()),
        (Err(problem), _) => return Err(problem.to_string()),
    };
    for line in &lines[verdict + 1..] {
        if let Some(((x, y), wanted)) = position(line, "pixel") {
            let found = projection.sky(x, y);
            match (found, wanted) {
                (None, None) => {}
                (Some(found), Some(place)) if apart(found, place) < PLACE => {
                    let back = projection.pixel(found.0, found.1);
                    if !back.is_some_and(|back| (back.0 - x).hypot(back.1 - y) < PIXEL) {
                        return Err(format!("{line}: back at {back:?}"));
                    }
                }
                _ => return Err(format!("{line}: found {found:?}")),
            }
        } else if let Some(((ra, dec), wanted)) = position(line, "place") {
            let found = projection.pixel(ra, dec);
            let near = |pixel: &(f64, f64)| pixel.0.hypot(pixel.1) < FAR;
            match (found.filter(near), wanted.filter(near)) {
                (None, None) => {}
                (Some(found), Some(wanted))
                    if (found.0 - wanted.0).hypot(found.1 - wanted.1) < PIXEL => {}
                (found, _) => return Err(format!("{line}: found {found:?}")),
            }
        } else {
            return Err(format!("not understood: {line}"));
        }
    }
    Ok(())
}

#[test]
fn positions_are_those_of_wcslib() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/positions.txt");
    let named = std::env::var_os("EYAS_POSITIONS").map(Into::into);
    let text = fs::read_to_string(named.unwrap_or(kept)).unwrap();
    let cases: Vec<_> =
        text.split("\n\n").map(str::trim).filter(|case| case.starts_with("frame")).collect();
    assert!(cases.len() >= 20, "{} cases", cases.len());
    let wrong: Vec<_> = cases.iter().filter_map(|case| Some((case, judge(case).err()?))).collect();
    for (case, trouble) in wrong.iter().take(10) {
        println!("{trouble}\n{case}\n");
    }
    println!("{} cases, {} of them accepted", cases.len(), text.matches("\naccepted\n").count());
    assert!(wrong.is_empty(), "{} of {} cases are wrong", wrong.len(), cases.len());
}

/// Cards of a frame of 300 by 200 pixels that every projection with this code shows whole.
fn cards(code: &str, sip: &[f64], turn: f64, scale: (f64, f64), place: (f64, f64)) -> Vec<String> {
    let (sin, cos) = turn.sin_cos();
    let numbers = [
        ("CRPIX1", 120.5),
        ("CRPIX2", 90.25),
        ("CRVAL1", place.0),
        ("CRVAL2", place.1),
        ("CD1_1", scale.0 * cos),
        ("CD1_2", -scale.1 * sin),
        ("CD2_1", scale.0 * sin),
        ("CD2_2", scale.1 * cos),
        ("PV2_1", if code.starts_with("CO") { 50.0 } else { 1.0 }),
    ];
    let takes = ["COP", "COE", "COD", "COO", "CYP", "CEA", "ZPN"].contains(&code);
    let numbers = numbers.into_iter().filter(|(name, _)| *name != "PV2_1" || takes);
    let mut cards: Vec<_> = numbers.map(|(name, value)| format!("{name:8}= {value:E}")).collect();
    let ending = if sip.is_empty() { code.to_owned() } else { format!("{code}-SIP") };
    cards.extend([format!("CTYPE1  = 'RA---{ending}'"), format!("CTYPE2  = 'DEC--{ending}'")]);
    if let [square, product] = sip {
        cards.extend(["A_ORDER = 2".to_owned(), "B_ORDER = 2".to_owned()]);
        cards.extend([format!("A_2_0   = {square:E}"), format!("A_1_1   = {product:E}")]);
        cards.extend([format!("B_0_2   = {product:E}"), format!("B_1_1   = {square:E}")]);
    }
    cards
}

fn projection(cards: &[String]) -> Projection {
    Projection::new(&header(&cards.iter().map(String::as_str).collect::<Vec<_>>()), 300, 200)
        .unwrap()
}

const CODES: [&str; 22] = [
    "TAN", "STG", "SIN", "ARC", "ZEA", "ZPN", "AIR", "AZP", "SZP", "CAR", "CEA", "CYP", "MER",
    "SFL", "PAR", "MOL", "AIT", "HPX", "COP", "COE", "COD", "COO",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pixels_return_from_the_sky_and_crval_is_at_crpix(
        code in prop::sample::select(&CODES),
        sip in prop::sample::select(vec![vec![], vec![1e-4, -2e-4], vec![-1e-5, 0.0]]),
        turn in -3.2..3.2_f64,
        scale in (1e-6..1e-3_f64, 1e-6..1e-3_f64),
        mirrored in any::<bool>(),
        place in (0.0..360.0_f64, -85.0..85.0_f64),
        pixel in (0.0..299.0_f64, 0.0..199.0_f64),
    ) {
        let scale = (if mirrored { -scale.0 } else { scale.0 }, scale.1);
        let projection = projection(&cards(code, &sip, turn, scale, place));
        let (ra, dec) = projection.sky(pixel.0, pixel.1).unwrap();
        prop_assert!((0.0..360.0).contains(&ra) && (-90.0..=90.0).contains(&dec));
        let back = projection.pixel(ra, dec).unwrap();
        prop_assert!(
            (back.0 - pixel.0).hypot(back.1 - pixel.1) < 1e-4,
            "{:?} returns to {:?}",
            pixel,
            back
        );
        let middle = projection.sky(119.5, 89.25).unwrap();
        prop_assert!(apart(middle, place) < PLACE, "{:?} is at {:?}", place, middle);
        // Near CRPIX, a pixel is as large as the matrix says, whatever the projection; but for
        // distortions of the map.
        let equal = ["TAN", "STG", "SIN", "ARC", "ZEA", "ZPN", "AIR", "AZP", "SZP"].contains(&code);
        let step = apart(projection.sky(120.5, 89.25).unwrap(), middle);
        prop_assert!(
            !equal || (step / scale.0.abs() - 1.0).abs() < 1e-3,
            "{} degrees for {}",
            step,
            scale.0
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The round trip decides what is left, however odd the numbers are.
    #[test]
    fn any_numbers_are_read_or_refused(
        code in prop::sample::select(&CODES),
        sip in any::<bool>(),
        odd in prop::collection::vec(
            (prop::sample::select(&KEYWORDS), prop::sample::select(&NUMBERS)),
            0..5,
        ),
        pixel in (0.0..299.0_f64, 0.0..199.0_f64),
        place in (0.0..360.0_f64, -90.0..=90.0_f64),
    ) {
        let mut cards =
            cards(code, if sip { &[1e-5, 1e-5] } else { &[] }, 0.5, (-1e-3, 1e-3), (10.0, 20.0));
        for (keyword, number) in odd {
            cards.retain(|card| !card.starts_with(keyword));
            cards.push(format!("{keyword:8}= {number}"));
        }
        let cards: Vec<_> = cards.iter().map(String::as_str).collect();
        if let Ok(projection) = Projection::new(&header(&cards), 300, 200) {
            let on_sky =
                |(ra, dec): (f64, f64)| (0.0..360.0).contains(&ra) && (-90.0..=90.0).contains(&dec);
            prop_assert!(projection.sky(pixel.0, pixel.1).is_none_or(on_sky), "{:?}", cards);
            let found = projection.pixel(place.0, place.1);
            prop_assert!(found.is_none_or(|(x, y)| x.is_finite() && y.is_finite()));
        }
    }
}

const KEYWORDS: [&str; 24] = [
    "CRPIX1", "CRPIX2", "CRVAL1", "CRVAL2", "CD1_1", "CD1_2", "CD2_2", "PV2_0", "PV2_1", "PV2_2",
    "PV2_3", "PV2_5", "PV1_1", "PV1_2", "PV1_3", "PV1_4", "LONPOLE", "LATPOLE", "A_ORDER", "A_2_0",
    "B_0_2", "EQUINOX", "CDELT1", "WCSAXES",
];

const NUMBERS: [&str; 14] = [
    "0.0",
    "-0.0",
    "1.0",
    "-1.0",
    "2",
    "90.0",
    "-90.0",
    "180.0",
    "1E-300",
    "-1E300",
    "1E308",
    "99999999999",
    "0.5",
    "'text'",
];

#[test]
fn frames_whose_pixels_do_not_return_are_refused() {
    let refused = |more: &[&str], sip: &[f64], code: &str| {
        let mut cards = cards(code, sip, 0.3, (-1e-4, 1e-4), (10.0, 20.0));
        cards.retain(|card| more.iter().all(|other| card[..8] != other[..8]));
        cards.extend(more.iter().map(|card| (*card).to_owned()));
        let cards: Vec<_> = cards.iter().map(String::as_str).collect();
        Projection::new(&header(&cards), 300, 200).unwrap_err().to_string()
    };
    // The polynomial folds the frame; the map goes round twice; the frame is beside the sky.
    let folded = refused(&[], &[1e-2, 0.0], "TAN");
    assert!(
        folded.contains("cannot be trusted: pixel (") && folded.contains("but that place is at"),
        "{folded}"
    );
    let round = refused(&["CD1_1   = -2.0", "CD1_2   = 0.0", "CD2_1   = 0.0"], &[], "CAR");
    assert!(round.contains("but that place is at pixel ("), "{round}");
    let beside = refused(&["CRPIX1  = 1E7"], &[], "SIN");
    assert!(beside.contains("no pixel is on the sky"), "{beside}");
    let wide = refused(&["CRVAL2  = 95.0"], &[], "TAN");
    assert!(wide.contains("CRVAL2: a declination of 95"), "{wide}");
}
