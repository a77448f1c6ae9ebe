//! Images that are compressed in tiles have the pixels that cfitsio reads.
//!
//! The files in `tiles/` were written by `dev/judges/tiles.py`: `NAME.fits.gz` with a compressed
//! image, and `NAME.plain.fits.gz` with its pixels as doubles. `EYAS_TILES` may name a folder with
//! others.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use eyas_stacking::fits_read::FitsFile;

fn folder() -> PathBuf {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiles");
    std::env::var_os("EYAS_TILES").map_or(kept, PathBuf::from)
}

/// The names of all cases.
fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let names = files.filter_map(|name| {
        let name = name.to_str()?.strip_suffix(".fits.gz")?;
        (!name.ends_with(".plain")).then(|| name.to_owned())
    });
    let names: Vec<_> = names.collect();
    assert!(names.len() > 15, "{names:?}");
    names
}

/// Pixels of some rows as bits, so that NaN is NaN; and the size of the image.
fn pixels(path: &Path, rows: Option<std::ops::Range<usize>>) -> Result<Vec<Option<u64>>, String> {
    let read = || {
        let file = FitsFile::open(path)?;
        let rows = rows.unwrap_or(0..file.height());
        Ok(file.rows(rows, true)?.into_tile().convert())
    };
    let found: Result<Vec<f64>, eyas_stacking::error::StackingError> = read();
    let bits = |pixel: f64| (!pixel.is_nan()).then(|| pixel.to_bits());
    found
        .map(|pixels| pixels.into_iter().map(bits).collect())
        .map_err(|error| error.problem.to_string())
}

#[test]
fn tiles_have_the_pixels_of_cfitsio() {
    for name in names() {
        let of = |ending: &str| folder().join(format!("{name}{ending}"));
        let wanted = pixels(&of(".plain.fits.gz"), None).unwrap();
        let found = pixels(&of(".fits.gz"), None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.len(), wanted.len(), "{name}");
        let wrong = found.iter().zip(&wanted).filter(|(one, other)| one != other).count();
        let first = found.iter().zip(&wanted).position(|(one, other)| one != other);
        let shown =
            first.map(|at| (at, found[at].map(f64::from_bits), wanted[at].map(f64::from_bits)));
        assert_eq!(wrong, 0, "{name}: {shown:?}");
        // Some rows alone are the same rows.
        let rows = 11..17;
        let width = FitsFile::open(&of(".fits.gz")).unwrap().width();
        let some = pixels(&of(".fits.gz"), Some(rows.clone())).unwrap();
        assert_eq!(some, wanted[rows.start * width..rows.end * width], "{name}");
    }
}

#[test]
fn damaged_tiles_are_refused() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("bad.fits");
    for name in names() {
        let mut whole = Vec::new();
        let packed = fs::File::open(folder().join(format!("{name}.fits.gz"))).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut whole).unwrap();
        fs::write(&path, &whole[..whole.len() - 2880]).unwrap();
        let error = pixels(&path, None).unwrap_err();
        assert!(error.contains("truncated: it ends before the last tile"), "{name}: {error}");
        // Any byte may be wrong: pixels are, or the file is refused. It never takes much memory.
        let header = whole.windows(8).rposition(|card| card == b"XTENSION").unwrap();
        let places = (header..whole.len()).step_by(211);
        for (place, byte) in places.zip([0xff, 0x00, b'9', 0x7f, 0x80].into_iter().cycle()) {
            let mut bytes = whole.clone();
            bytes[place] = byte;
            fs::write(&path, bytes).unwrap();
            let _ = pixels(&path, None);
        }
    }
}

#[test]
fn headers_of_tables_that_make_no_sense_are_refused() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("bad.fits");
    let mut whole = Vec::new();
    let packed = fs::File::open(folder().join("rice_tiles.fits.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut whole).unwrap();
    let refused = |keyword: &str, value: &str| {
        let at = whole.windows(8).rposition(|card| card == format!("{keyword:8}").as_bytes());
        let at = at.unwrap_or_else(|| panic!("no {keyword}"));
        let mut bytes = whole.clone();
        let card = format!("{:80}", format!("{keyword:8}= {value}"));
        bytes[at..at + 80].copy_from_slice(card.as_bytes());
        fs::write(&path, bytes).unwrap();
        pixels(&path, None).unwrap_err()
    };
    for (keyword, value, trouble) in [
        ("ZCMPTYPE", "'LZW'", "ZCMPTYPE is 'LZW'; GZIP_1, GZIP_2"),
        ("ZBITPIX", "17", "ZBITPIX is 17"),
        ("ZTILE1", "0", "tiles of 0 x 7 pixels"),
        ("ZTILE1", "1000000000", "at most 134217728 are read"),
        ("ZTILE2", "3", "which is not the size of the image"),
        ("ZNAXIS1", "370", "which is not the size of the image"),
        ("ZNAXIS", "3", "3, but an image has 2 axes"),
        ("PCOUNT", "10", "is not in the heap"),
        ("TFORM1", "'1PZ(9)'", "TFORM1 is '1PZ(9)'"),
        ("TFORM1", "'9999PB'", "TFORM1 is '9999PB'"),
        ("TTYPE1", "'OTHER'", "no column has the compressed pixels"),
        ("TFIELDS", "-1", "TFIELDS is no number"),
    ] {
        let said = refused(keyword, value);
        assert!(said.contains(trouble), "{keyword} = {value}: wanted {trouble}: {said}");
    }
}
