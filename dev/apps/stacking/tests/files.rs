//! FITS files of many forms: where the image is, what its pixels are, what follows it; and files
//! that are none.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use eyas_stacking::fits_read::FitsFile;
use flate2::{Compression, write::GzEncoder};

/// A header, then data, each filled up to a block.
fn part(cards: &[&str], data: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        cards.iter().chain(&["END"]).flat_map(|card| format!("{card:80}").into_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(2880), b' ');
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(2880), 0);
    bytes
}

/// An image of 3 by 2 bytes, as the first part of a file or as an extension.
fn image(begins: &str, more: &[&str]) -> Vec<u8> {
    part(
        &[&[begins, "BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 3", "NAXIS2  = 2"], more].concat(),
        &[1, 2, 3, 4, 5, 6],
    )
}

const FIRST: &str = "SIMPLE  = T";
const IMAGE: &str = "XTENSION= 'IMAGE   '";

fn table(more: &[&str]) -> Vec<u8> {
    let cards = [
        "XTENSION= 'BINTABLE'",
        "BITPIX  = 8",
        "NAXIS   = 2",
        "NAXIS1  = 4",
        "NAXIS2  = 1000",
        "PCOUNT  = 77",
    ];
    part(&[&cards, more].concat(), &[9; 4077])
}

fn nothing() -> Vec<u8> {
    part(&[FIRST, "BITPIX  = 8", "NAXIS   = 0", "HIERARCH ESO NAXIS = 5"], &[])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// The pixels of a file with these bytes, or what is said of it.
fn read(bytes: &[u8]) -> Result<Vec<f64>, String> {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("file");
    fs::write(&path, bytes).unwrap();
    let pixels = || {
        let file = FitsFile::open(&path)?;
        let height = file.height();
        Ok(file.rows(0..height, false)?.into_tile().convert())
    };
    pixels().map_err(|error: eyas_stacking::error::StackingError| error.problem.to_string())
}

const PIXELS: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

#[test]
fn the_image_is_the_first_one() {
    let files = [
        image(FIRST, &[]),
        [image(FIRST, &[]), table(&[])].concat(),
        [nothing(), image(IMAGE, &[])].concat(),
        [nothing(), table(&[]), table(&[]), image(IMAGE, &[]), table(&[])].concat(),
    ];
    for file in files {
        assert_eq!(read(&file).as_deref(), Ok(&PIXELS[..]));
        assert_eq!(read(&gzip(&file)).as_deref(), Ok(&PIXELS[..]));
        assert!(
            read(&file[..file.len().min(2880)]).unwrap_err().contains("it"),
            "cut after a header"
        );
    }
    let refused = [
        (nothing(), "no image"),
        ([nothing(), table(&[])].concat(), "no image"),
        (
            [nothing(), table(&["ZIMAGE  = T", "ZNAXIS  = 2"])].concat(),
            "its compressed image cannot be read: ZNAXIS1 is missing",
        ),
        ([nothing(), b"other".repeat(1000)].concat(), "no FITS extension"),
        (
            [nothing(), table(&["GCOUNT  = 9000000000000000000"])].concat(),
            "the size of a table makes no sense",
        ),
        (part(&[FIRST, "BITPIX  = 8", "NAXIS   = 3"], &[]), "NAXIS1 is missing"),
        (part(&[FIRST, "NAXIS   = 2", "NAXIS1  = 3", "NAXIS2  = 2"], &[0; 6]), "BITPIX is missing"),
        (
            part(&[FIRST, "BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 3", "NAXIS2  = -2"], &[]),
            "NAXIS2 is missing",
        ),
    ];
    for (file, trouble) in refused {
        let said = read(&file).unwrap_err();
        assert!(said.contains(trouble), "wanted {trouble}: {said}");
    }
}

#[test]
fn stored_numbers_become_physical_ones() {
    let pixels = |bitpix: i32, more: &[&str], data: &[u8]| {
        let bitpix = format!("BITPIX  = {bitpix}");
        read(&part(
            &[&[FIRST, &bitpix, "NAXIS   = 2", "NAXIS1  = 2", "NAXIS2  = 1"], more].concat(),
            data,
        ))
        .unwrap()
    };
    assert_eq!(pixels(8, &[], &[0, 255]), [0.0, 255.0]);
    assert_eq!(pixels(16, &["BZERO   = 32768"], &[0x80, 0, 0x7f, 0xff]), [0.0, 65535.0]);
    assert_eq!(
        pixels(32, &["BSCALE  = 5.0D-1"], &[0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff]),
        [128.0, -0.5]
    );
    let far = [i64::MIN.to_be_bytes(), 7_i64.to_be_bytes()].concat();
    let found = pixels(64, &["BLANK   = -9223372036854775808"], &far);
    assert!(found[0].is_nan() && found[1] == 7.0);
    let near = [(i64::MAX - 1).to_be_bytes(), i64::MAX.to_be_bytes()].concat();
    assert!(
        pixels(64, &["BLANK   = 9223372036854775807"], &near)[0].is_finite(),
        "it is another number"
    );
    let real = [1.5_f32.to_be_bytes(), f32::NAN.to_be_bytes()].concat();
    let found = pixels(-32, &["BLANK   = 1"], &real);
    assert!(found[0] == 1.5 && found[1].is_nan());
    assert_eq!(
        pixels(-64, &[], &[2.5_f64.to_be_bytes(), (-1.0_f64).to_be_bytes()].concat()),
        [2.5, -1.0]
    );
}

#[test]
fn after_gzip_data_comes_padding_or_an_error() {
    let packed = gzip(&image(FIRST, &[]));
    let followed = |bytes: &[u8]| read(&[&packed, bytes].concat());
    assert_eq!(followed(&[0; 10]).as_deref(), Ok(&PIXELS[..]));
    assert_eq!(followed(&[0; 600_000]).as_deref(), Ok(&PIXELS[..]));
    assert_eq!(followed(&gzip(&[0; 2880])).as_deref(), Ok(&PIXELS[..]));
    for bytes in [&b"other"[..], b"\0\0\0other", &[&[0; 10][..], &gzip(b"other")].concat()] {
        assert_eq!(
            followed(bytes).unwrap_err(),
            "damaged gzip data: after its end follow other bytes"
        );
    }
}

#[test]
fn a_damaged_header_takes_no_memory() {
    let cards =
        [FIRST, "BITPIX  = 64", "NAXIS   = 2", "NAXIS1  = 1000000000", "NAXIS2  = 1000000000"];
    let small = part(&cards, &[0; 9]);
    for bytes in [gzip(&small), small] {
        assert!(read(&bytes).unwrap_err().contains("the last row of its image"));
    }
}

#[test]
fn files_that_are_not_fits_are_named() {
    let none = "not a FITS file: it does not begin with \"SIMPLE  =\"";
    let files: [(&[u8], &str); 8] = [
        (b"x", ""),
        (b"<html>404</html>", ""),
        (&b"junk".repeat(2000), ""),
        (b"BZh91AY&SY", ": unpack it with bunzip2"),
        (b"\xfd7zXZ\0\0", ": unpack it with unxz"),
        (b"\x28\xb5\x2f\xfd\x04", ": unpack it with unzstd"),
        (b"PK\x03\x04\x14", ": unpack it with unzip"),
        (&gzip(b"junk"), ""),
    ];
    for (bytes, advice) in files {
        assert_eq!(read(bytes).unwrap_err(), format!("{none}{advice}"));
    }
    assert_eq!(
        read(&gzip(&gzip(b"twice"))).unwrap_err(),
        format!("{none}: unpack it once more with gunzip")
    );
    for begun in [&b""[..], b"SIMP", b"SIMPLE  =                    T"] {
        assert_eq!(read(begun).unwrap_err(), "truncated: it ends before one block of 2880 bytes");
    }
}
