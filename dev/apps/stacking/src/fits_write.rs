//! Writing a FITS file of one image: cards, END, blanks to a block, big-endian pixels, zeros to a
//! block.
//!
//! Our own, because the libraries that write want the C library cfitsio.

use std::fmt::Write;

use crate::fits_read::BLOCK_BYTES;
use crate::header::CARD_BYTES;

/// A header under construction. Keywords are at most eight letters; comments are cut where a card
/// is full.
#[derive(Debug)]
pub struct Cards(String);

impl Cards {
    /// The mandatory cards of an image; `bitpix` is 16 for `i16`, -64 for `f64`.
    pub fn image(bitpix: i64, width: usize, height: usize) -> Self {
        Cards(String::new())
            .card("SIMPLE", "T", "a FITS file")
            .integer("BITPIX", bitpix, "bits of a pixel; below zero: floating point")
            .integer("NAXIS", 2, "")
            .integer("NAXIS1", width as i64, "pixels in a row")
            .integer("NAXIS2", height as i64, "rows")
    }

    /// A keyword with an integer.
    pub fn integer(self, keyword: &str, value: i64, comment: &str) -> Self {
        self.card(keyword, &value.to_string(), comment)
    }

    /// A keyword with a floating-point number, in the digits that read back to the same bits.
    pub fn real(self, keyword: &str, value: f64, comment: &str) -> Self {
        self.card(keyword, &format!("{value:E}"), comment)
    }

    /// A keyword with a text of printable ASCII.
    pub fn text(mut self, keyword: &str, value: &str, comment: &str) -> Self {
        // FITS 4.2.1: quotes are doubled, and short texts filled up to eight letters.
        let quoted = format!("'{:8}'", value.replace('\'', "''"));
        self.push(&format!("{keyword:8}= {quoted:20} / {comment}"));
        self
    }

    fn card(mut self, keyword: &str, value: &str, comment: &str) -> Self {
        self.push(&format!("{keyword:8}= {value:>20} / {comment}"));
        self
    }

    fn push(&mut self, card: &str) {
        debug_assert!(
            card.is_ascii() && !card.contains(|c: char| c.is_ascii_control()),
            "{card:?}"
        );
        let card = card.trim_end_matches([' ', '/']);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{:CARD_BYTES$.CARD_BYTES$}", card);
    }

    /// The whole file with `pixels`, which must be big-endian already.
    pub fn file(self, pixels: &[u8]) -> Vec<u8> {
        let mut file = self.0.into_bytes();
        file.extend_from_slice(b"END");
        file.resize(file.len().next_multiple_of(BLOCK_BYTES), b' ');
        file.extend_from_slice(pixels);
        file.resize(file.len().next_multiple_of(BLOCK_BYTES), 0);
        file
    }
}
