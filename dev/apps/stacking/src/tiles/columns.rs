//! The columns of a table of tiles (FITS standard 4.0 §7.3, §10.1.3).

use crate::error::FileProblem;
use crate::header::Header;

/// Columns of a table; one with more is refused.
const MAX_FIELDS: i64 = 999;

/// Form of the pixels in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataKind {
    /// Pixels as ZCMPTYPE says.
    Compressed,
    /// Pixels in gzip.
    Gzip,
}

/// A column of descriptors: how many items a tile has, and where they are in the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnPlace {
    pub(super) kind: DataKind,
    /// Bytes of an item.
    pub(super) item_bytes: usize,
    offset: usize,
    /// Whether numbers of a descriptor have eight bytes, and not four.
    is_wide: bool,
}

/// The columns that matter.
#[derive(Clone, Debug, Default)]
pub(super) struct TableColumns {
    /// In the order in which they are looked at.
    data: Vec<ColumnPlace>,
    zscale: Option<(usize, u8)>,
    zzero: Option<(usize, u8)>,
    zblank: Option<(usize, u8)>,
}

fn bad(text: String) -> FileProblem {
    FileProblem::Tiles(text)
}

/// Bytes of an item of a type.
fn item_bytes(letter: u8) -> Option<usize> {
    Some(match letter {
        b'L' | b'B' | b'A' => 1,
        b'I' => 2,
        b'J' | b'E' => 4,
        b'K' | b'D' | b'C' | b'P' => 8,
        b'M' | b'Q' => 16,
        _ => return None,
    })
}

impl TableColumns {
    pub(super) fn read(header: &Header, row_bytes: usize) -> Result<Self, FileProblem> {
        let fields = header.integer("TFIELDS")?.filter(|fields| (1..=MAX_FIELDS).contains(fields));
        let fields = fields.ok_or_else(|| bad("TFIELDS is no number of columns".to_owned()))?;
        let (mut columns, mut offset) = (Self::default(), 0_usize);
        for number in 1..=fields {
            let form = header.text(&format!("TFORM{number}"))?.unwrap_or_default().trim();
            let wrong = || bad(format!("TFORM{number} is '{form}'"));
            let digits = form.bytes().take_while(u8::is_ascii_digit).count();
            let repeat = if digits == 0 { Some(1) } else { form[..digits].parse().ok() };
            let repeat: usize = repeat.ok_or_else(wrong)?;
            let letter = *form.as_bytes().get(digits).ok_or_else(wrong)?;
            let bytes = match letter {
                b'X' => Some(repeat.div_ceil(8)),
                _ => item_bytes(letter).and_then(|item| item.checked_mul(repeat)),
            };
            let bytes = bytes.ok_or_else(wrong)?;
            let name = header.text(&format!("TTYPE{number}"))?.unwrap_or_default();
            columns.note(name, form, digits, offset).ok_or_else(wrong)?;
            offset = offset.checked_add(bytes).filter(|&end| end <= row_bytes).ok_or_else(wrong)?;
        }
        columns.data.sort_by_key(|column| column.kind as u8);
        if columns.data.is_empty() {
            return Err(bad("no column has the compressed pixels".to_owned()));
        }
        Ok(columns)
    }

    /// Keeps a column if it matters; none if its form is wrong.
    fn note(&mut self, name: &str, form: &str, digits: usize, offset: usize) -> Option<()> {
        let letters = &form.as_bytes()[digits..];
        let letter = letters[0];
        let kind = match name {
            "COMPRESSED_DATA" => DataKind::Compressed,
            "GZIP_COMPRESSED_DATA" => DataKind::Gzip,
            "ZSCALE" | "ZZERO" | "ZBLANK" => {
                let place = Some((offset, letter));
                match name {
                    "ZSCALE" => self.zscale = place,
                    "ZZERO" => self.zzero = place,
                    _ => self.zblank = place,
                }
                return Some(());
            }
            _ => return Some(()),
        };
        let is_wide = match letter {
            b'P' => false,
            b'Q' => true,
            _ => return None,
        };
        let item_bytes = item_bytes(*letters.get(1)?)?;
        self.data.push(ColumnPlace { kind, item_bytes, offset, is_wide });
        Some(())
    }

    /// The column with the data of a tile, the number of items, and their place in the heap; none
    /// if the tile has no data.
    pub(super) fn data_of(&self, row: &[u8]) -> Option<(ColumnPlace, u64, u64)> {
        self.data.iter().find_map(|column| {
            let (count, start) = if column.is_wide {
                (number_at(row, column.offset, b'K')?, number_at(row, column.offset + 8, b'K')?)
            } else {
                (number_at(row, column.offset, b'J')?, number_at(row, column.offset + 4, b'J')?)
            };
            let (count, start) = (u64::try_from(count).ok()?, u64::try_from(start).ok()?);
            (count > 0).then_some((*column, count, start))
        })
    }

    pub(super) fn zscale(&self, row: &[u8]) -> Option<f64> {
        real_at(row, self.zscale?)
    }

    pub(super) fn zzero(&self, row: &[u8]) -> Option<f64> {
        real_at(row, self.zzero?)
    }

    pub(super) fn zblank(&self, row: &[u8]) -> Option<i64> {
        let (offset, letter) = self.zblank?;
        number_at(row, offset, letter)
    }
}

fn bytes_at<const BYTES: usize>(row: &[u8], offset: usize) -> Option<[u8; BYTES]> {
    row.get(offset..offset + BYTES)?.try_into().ok()
}

/// A whole number.
fn number_at(row: &[u8], offset: usize, letter: u8) -> Option<i64> {
    Some(match letter {
        b'B' => row.get(offset).copied()?.into(),
        b'I' => i16::from_be_bytes(bytes_at(row, offset)?).into(),
        b'J' => i32::from_be_bytes(bytes_at(row, offset)?).into(),
        b'K' => i64::from_be_bytes(bytes_at(row, offset)?),
        _ => return None,
    })
}

/// A floating-point number.
fn real_at(row: &[u8], (offset, letter): (usize, u8)) -> Option<f64> {
    match letter {
        b'E' => Some(f32::from_be_bytes(bytes_at(row, offset)?).into()),
        b'D' => Some(f64::from_be_bytes(bytes_at(row, offset)?)),
        _ => number_at(row, offset, letter).map(|number| number as f64),
    }
}
