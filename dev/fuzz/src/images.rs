//! Images of the sky: FITS files, packed with gzip or not.

use std::io::Write;

use eyas_stacking::fits_read::FitsFile;
use eyas_stacking::header::Header;
use eyas_stacking::projection::Projection;

/// Most pixels of an image of which all rows are read.
const MAX_PIXELS: usize = 1 << 20;

/// A file, and its bytes as a header.
pub(crate) fn images(bytes: &[u8]) {
    let header = Header::parse(bytes);
    let _ = (
        header.number("CRVAL1"),
        header.integer("NAXIS"),
        header.text("CTYPE1"),
        header.is_true("SIMPLE"),
    );
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    file.write_all(bytes).expect("there is room");
    let Ok(image) = FitsFile::open(file.path()) else { return };
    if let Ok(projection) = Projection::of(&image)
        && let Some((ra, dec)) = projection.sky(1.0, 1.0)
    {
        let _ = projection.pixel(ra, dec);
    }
    let (width, height) = (image.width(), image.height());
    let last = height.min(2);
    // A tile has eight bytes for each of its pixels.
    let wanted =
        if width.saturating_mul(height) > MAX_PIXELS { height - last..height } else { 0..height };
    if let Ok(rows) = image.rows(wanted, true) {
        rows.into_tile().convert();
    }
}
