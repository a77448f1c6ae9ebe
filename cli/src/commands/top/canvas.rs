//! A part of a terminal's cells, and how things are drawn there: with colours or without, in ASCII or not. Texts never
//! leave their line, and what is cut ends in a sign that says so.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Span;

/// How things are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether there are colours.
    pub colour: bool,
    /// Whether the terminal shows more than ASCII.
    pub unicode: bool,
}

impl Look {
    /// As the environment has it: `NO_COLOR` (no-color.org) and the locale.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Look { colour: set("NO_COLOR").is_none(), unicode: locale.contains("utf-8") || locale.contains("utf8") }
    }

    /// A colour, if there are any.
    pub fn colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn cut(self) -> char {
        if self.unicode { '…' } else { '~' }
    }

    /// What the lines above panes are made of.
    pub fn rule(self) -> &'static str {
        if self.unicode { "─" } else { "-" }
    }
}

/// Some rows of a buffer.
pub(crate) struct Canvas<'a> {
    pub buffer: &'a mut Buffer,
    pub area: Rect,
    pub look: Look,
}

impl Canvas<'_> {
    /// Rows from `top` on, as far as there are any.
    pub fn rows(&mut self, top: u16, height: u16) -> Canvas<'_> {
        let top = top.min(self.area.height);
        let area = Rect { y: self.area.y + top, height: height.min(self.area.height - top), ..self.area };
        Canvas { buffer: self.buffer, area, look: self.look }
    }

    /// Words in place of whatever is on a row, if there is such a row.
    pub fn line(&mut self, row: u16, words: &str, style: Style) {
        if row < self.area.height {
            let Rect { x, y, width, .. } = self.area;
            self.buffer.set_style(Rect { y: y + row, height: 1, ..self.area }, Style::reset());
            self.buffer.set_string(x, y + row, " ".repeat(usize::from(width)), Style::new());
            self.buffer.set_string(x, y + row, fit(words, width, self.look), style);
        }
    }

    /// A bar from `x` on, with colours if there are any. It is full only for a share of 1.
    pub fn bar(&mut self, x: u16, row: u16, width: u16, share: f64, style: Style) {
        if row < self.area.height {
            let full = (share.clamp(0.0, 1.0) * f64::from(width)).floor() as usize;
            let (on, off) = if self.look.unicode { ("█", "░") } else { ("#", ".") };
            let y = self.area.y + row;
            let (x, _) = self.buffer.set_stringn(x, y, on.repeat(full), usize::from(width), style);
            let empty = off.repeat(usize::from(width) - full);
            self.buffer.set_string(x, y, empty, self.look.colour(Color::DarkGray));
        }
    }
}

/// Cells that a text takes.
pub(crate) fn width_of(text: &str) -> u16 {
    Span::raw(text).width() as u16
}

/// A text on one line of no more than `width` cells, whatever is in it.
pub(crate) fn fit(text: &str, width: u16, look: Look) -> String {
    let plain = |c: char| if c.is_control() || (!look.unicode && !c.is_ascii()) { '?' } else { c };
    let text: String = text.chars().map(plain).collect();
    if width_of(&text) <= width {
        return text;
    }
    let mut cut = String::new();
    for c in text.chars() {
        if width_of(&cut) + width_of(c.encode_utf8(&mut [0; 4])) + 1 > width {
            break;
        }
        cut.push(c);
    }
    if width > 0 {
        cut.push(look.cut());
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look { colour: false, unicode: false };

    #[test]
    fn texts_are_cut_by_cells_and_never_break_the_line() {
        let look = Look { colour: false, unicode: true };
        assert_eq!(fit("日本語", 6, look), "日本語");
        assert_eq!(fit("日本語", 5, look), "日本…");
        assert_eq!(fit("日本語", 4, look), "日…");
        assert_eq!(fit("a\nb\u{1b}[2J", 9, look), "a?b?[2J");
        assert_eq!(fit("日本", 9, PLAIN), "??");
        assert_eq!(fit("word", 0, look), "");
    }

    #[test]
    fn the_look_follows_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            Look::of(|name| pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(with(&[]), Look { colour: true, unicode: false });
        assert_eq!(with(&[("LANG", "C.UTF-8"), ("NO_COLOR", "1")]), Look { colour: false, unicode: true });
        assert_eq!(
            with(&[("LANG", "C.UTF-8"), ("LC_ALL", "C"), ("NO_COLOR", "")]),
            Look { colour: true, unicode: false }
        );
    }
}
