//! The cells of a terminal: characters with styles, which `terminal` shows, or tests read. A wide
//! character has the cell after it, too; that one is empty. Characters without a width, such as
//! accents, belong to the one before.

use unicode_width::UnicodeWidthChar;

/// A colour of the terminal's palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
    Cyan,
    Grey,
}

/// How characters look. What is not set stays as the cell had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    pub colour: Option<Colour>,
    pub is_bold: bool,
    pub is_dim: bool,
    pub is_reversed: bool,
}

impl Style {
    pub const PLAIN: Style =
        Style { colour: None, is_bold: false, is_dim: false, is_reversed: false };
    pub const BOLD: Style = Style { is_bold: true, ..Style::PLAIN };
    pub const DIM: Style = Style { is_dim: true, ..Style::PLAIN };
    pub const REVERSED: Style = Style { is_reversed: true, ..Style::PLAIN };

    pub fn bold(self) -> Style {
        Style { is_bold: true, ..self }
    }

    /// This style with what `more` sets.
    pub fn and(self, more: Style) -> Style {
        Style {
            colour: more.colour.or(self.colour),
            is_bold: self.is_bold || more.is_bold,
            is_dim: self.is_dim || more.is_dim,
            is_reversed: self.is_reversed || more.is_reversed,
        }
    }
}

/// What one cell shows. It has no symbol if a wide character before takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glyph {
    pub symbol: String,
    pub style: Style,
}

/// Some rows of a buffer; a row always has all of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub top: u16,
    pub width: u16,
    pub height: u16,
}

/// The cells of a screen, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub area: Area,
    cells: Vec<Glyph>,
}

impl Buffer {
    /// Blank cells.
    pub fn blank(width: u16, height: u16) -> Self {
        let blank = Glyph { symbol: " ".into(), style: Style::PLAIN };
        let cells = vec![blank; usize::from(width) * usize::from(height)];
        Buffer { area: Area { top: 0, width, height }, cells }
    }

    /// The cells of a row of this buffer.
    pub fn row(&self, y: u16) -> &[Glyph] {
        let width = usize::from(self.area.width);
        &self.cells[usize::from(y) * width..][..width]
    }

    fn row_mut(&mut self, y: u16) -> &mut [Glyph] {
        let width = usize::from(self.area.width);
        &mut self.cells[usize::from(y) * width..][..width]
    }

    /// Adds `style` to a row.
    pub fn style_row(&mut self, y: u16, style: Style) {
        for cell in self.row_mut(y) {
            cell.style = cell.style.and(style);
        }
    }

    /// Makes a row blank.
    pub fn clear_row(&mut self, y: u16) {
        self.row_mut(y).fill(Glyph { symbol: " ".into(), style: Style::PLAIN });
    }

    /// Writes a text from column `x` on, up to the end of the row. Returns the column after it.
    pub fn write(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let row = self.row_mut(y);
        let mut at = usize::from(x);
        for character in text.chars() {
            let width = character.width().unwrap_or(0);
            if width == 0 {
                let written = row.get_mut(usize::from(x)..at).unwrap_or_default();
                if let Some(before) = written.iter_mut().rev().find(|cell| !cell.symbol.is_empty())
                {
                    before.symbol.push(character);
                }
                continue;
            }
            let Some(taken) = row.get_mut(at..at + width) else { break };
            for (place, cell) in taken.iter_mut().enumerate() {
                cell.symbol = if place == 0 { character.into() } else { String::new() };
                cell.style = cell.style.and(style);
            }
            at += width;
        }
        at as u16
    }

    /// The lines of this buffer, without trailing blanks.
    pub fn text(&self) -> String {
        let line = |y| self.row(y).iter().map(|cell| cell.symbol.as_str()).collect::<String>();
        (0..self.area.height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }
}

/// Width of a text in cells.
pub(crate) fn width_of(text: &str) -> u16 {
    text.chars().map(|character| character.width().unwrap_or(0)).sum::<usize>() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_take_the_cells_that_they_are_wide() {
        let mut buffer = Buffer::blank(6, 1);
        assert_eq!(buffer.write(1, 0, "e\u{301}日本", Style::BOLD), 6);
        let symbols: Vec<_> = buffer.row(0).iter().map(|cell| cell.symbol.as_str()).collect();
        assert_eq!(symbols, [" ", "e\u{301}", "日", "", "本", ""]);
        assert_eq!(buffer.text(), " e\u{301}日本\n");
        // What is wider than the rest of the row is not begun.
        assert_eq!(buffer.write(5, 0, "本", Style::PLAIN), 5);
        assert_eq!((buffer.write(6, 0, "x", Style::PLAIN), width_of("e\u{301}日")), (6, 3));
    }

    #[test]
    fn styles_add_up_until_a_row_is_cleared() {
        let mut buffer = Buffer::blank(2, 1);
        buffer.write(0, 0, "a", Style { colour: Some(Colour::Red), ..Style::BOLD });
        buffer.style_row(0, Style::REVERSED);
        let red =
            Style { colour: Some(Colour::Red), is_bold: true, is_dim: false, is_reversed: true };
        assert_eq!((buffer.row(0)[0].style, buffer.row(0)[1].style), (red, Style::REVERSED));
        buffer.clear_row(0);
        assert_eq!(buffer, Buffer::blank(2, 1));
    }
}
