//! Columns of `squeue`, `sinfo` and `sacct`, and the formats that name them. A name may have any
//! width and any letters: no width panics, and no name breaks a line.

use crate::show::padded;

/// Most characters of a column.
const MAX_WIDTH: usize = 10_000;

/// The width that digits say; `None` without digits.
///
/// # Errors
/// If no column may be as wide.
pub(super) fn width(digits: &str) -> Result<Option<usize>, String> {
    let wrong = || format!("a column has at most {MAX_WIDTH} characters, not {digits}");
    match digits.parse::<usize>() {
        _ if digits.is_empty() => Ok(None),
        Ok(width) if width <= MAX_WIDTH => Ok(Some(width)),
        _ => Err(wrong()),
    }
}

/// Text in a column of a width, cut or filled up.
pub(super) fn column(text: &str, width: Option<usize>, is_right: bool) -> String {
    match width {
        None => text.to_owned(),
        Some(width) => padded(&text.chars().take(width).collect::<String>(), width, is_right),
    }
}

/// A text on one line: a line break in a name would be the end of a record for the program that
/// reads it.
pub(super) fn on_one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A format of `squeue` or `sinfo`: text, and fields with a letter, a width, and whether they are
/// aligned to the right.
pub(super) enum Piece {
    Text(String),
    Field { letter: char, width: Option<usize>, is_right: bool },
}

/// Reads a format, whose fields are those with a title.
///
/// # Errors
/// If it has another field, or too wide a column.
pub(super) fn pieces(
    format: &str,
    title: impl Fn(char) -> Option<&'static str>,
) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            pieces.push(Piece::Text(letter.into()));
            continue;
        }
        let is_right = letters.next_if_eq(&'.').is_some();
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let width = width(&digits)?;
        pieces.push(match letters.next().ok_or("a format must not end in %")? {
            '%' => Piece::Text("%".into()),
            letter if title(letter).is_none() => {
                return Err(format!("eyas does not know %{letter} in a format"));
            }
            letter => Piece::Field { letter, width, is_right },
        });
    }
    Ok(pieces)
}

/// A line of a format, with the value of each field by its letter.
pub(super) fn line(pieces: &[Piece], value: impl Fn(char) -> String) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Text(plain) => plain.clone(),
        Piece::Field { letter, width, is_right } => {
            column(&on_one_line(&value(*letter)), *width, *is_right)
        }
    };
    pieces.iter().map(text).collect::<String>() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        let read = |format| pieces(format, |letter| "itT".contains(letter).then_some("TITLE"));
        assert_eq!(read("%.18i %t|%T%%").unwrap().len(), 6);
        for wrong in ["%", "%y", "%70000i", "%.99999999999999999999t"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            line(&read("%.4i|%4t|%%").unwrap(), |letter| format!("{letter}1")),
            "  i1|t1  |%\n"
        );
    }

    #[test]
    fn columns_have_any_width_and_names_any_letters() {
        assert_eq!(
            (column("12", Some(4), true), column("12345", Some(4), false)),
            ("  12".into(), "1234".into())
        );
        assert_eq!(
            (column("é", Some(2), false), column("é", None, false)),
            ("é ".into(), "é".into())
        );
        assert_eq!(column("x", Some(MAX_WIDTH), false).len(), MAX_WIDTH);
        assert_eq!(padded("x", 70_000, true).len(), 70_000);
        assert_eq!(on_one_line("a\nb\tc|"), "a b c|");
        assert_eq!(
            (width(""), width("20"), width("10000")),
            (Ok(None), Ok(Some(20)), Ok(Some(MAX_WIDTH)))
        );
        assert!(width("10001").is_err() && width("x").is_err());
    }
}
