//! A part of a terminal's cells, and the style of drawing there: with or without colours, in
//! Unicode or ASCII. A text stays on its line; a text that is cut ends in `…` or `~`.

use super::cells::{Area, Buffer, Colour, Style, width_of};

/// How to draw on this terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrawStyle {
    /// Whether there are colours.
    pub colour: bool,
    /// Whether the terminal shows more than ASCII.
    pub unicode: bool,
}

impl DrawStyle {
    /// The style that the environment asks for: by `NO_COLOR` (no-color.org) and the locale.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale =
            set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        DrawStyle {
            colour: set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// The colour, or no style on a terminal without colours.
    pub fn colour(self, colour: Colour) -> Style {
        Style { colour: self.colour.then_some(colour), ..Style::PLAIN }
    }

    fn cut(self) -> char {
        if self.unicode { '…' } else { '~' }
    }

    /// The character of the lines above panes.
    pub fn rule(self) -> &'static str {
        if self.unicode { "─" } else { "-" }
    }
}

/// Some rows of a buffer.
pub(crate) struct Canvas<'a> {
    pub buffer: &'a mut Buffer,
    pub area: Area,
    pub style: DrawStyle,
}

impl Canvas<'_> {
    /// Up to `height` rows from `top` on, fewer at the end of the canvas.
    pub fn rows(&mut self, top: u16, height: u16) -> Canvas<'_> {
        let top = top.min(self.area.height);
        let area = Area {
            top: self.area.top + top,
            height: height.min(self.area.height - top),
            ..self.area
        };
        Canvas { buffer: self.buffer, area, style: self.style }
    }

    /// Replaces the content of a row, if there is such a row.
    pub fn line(&mut self, row: u16, words: &str, style: Style) {
        if row < self.area.height {
            let y = self.area.top + row;
            self.buffer.clear_row(y);
            self.buffer.write(0, y, &fit(words, self.area.width, self.style), style);
        }
    }

    /// Draws a bar from column `x` on. It is full only for a share of 1.
    pub fn bar(&mut self, x: u16, row: u16, width: u16, share: f64, style: Style) {
        if row < self.area.height {
            let full = (share.clamp(0.0, 1.0) * f64::from(width)).floor() as usize;
            let (on, off) = if self.style.unicode { ("█", "░") } else { ("#", ".") };
            let y = self.area.top + row;
            let x = self.buffer.write(x, y, &on.repeat(full), style);
            let empty = off.repeat(usize::from(width) - full);
            self.buffer.write(x, y, &empty, self.style.colour(Colour::Grey));
        }
    }
}

/// The text on one line of at most `width` cells. Control characters become `?`.
pub(crate) fn fit(text: &str, width: u16, style: DrawStyle) -> String {
    let plain = |c: char| if c.is_control() || (!style.unicode && !c.is_ascii()) { '?' } else { c };
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
        cut.push(style.cut());
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: DrawStyle = DrawStyle { colour: false, unicode: false };

    #[test]
    fn texts_are_cut_by_cells_and_never_break_the_line() {
        let style = DrawStyle { colour: false, unicode: true };
        assert_eq!(fit("日本語", 6, style), "日本語");
        assert_eq!(fit("日本語", 5, style), "日本…");
        assert_eq!(fit("日本語", 4, style), "日…");
        assert_eq!(fit("a\nb\u{1b}[2J", 9, style), "a?b?[2J");
        assert_eq!(fit("日本", 9, PLAIN), "??");
        assert_eq!(fit("word", 0, style), "");
    }

    #[test]
    fn the_style_follows_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            DrawStyle::of(|name| {
                pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string())
            })
        };
        assert_eq!(with(&[]), DrawStyle { colour: true, unicode: false });
        assert_eq!(
            with(&[("LANG", "C.UTF-8"), ("NO_COLOR", "1")]),
            DrawStyle { colour: false, unicode: true }
        );
        assert_eq!(
            with(&[("LANG", "C.UTF-8"), ("LC_ALL", "C"), ("NO_COLOR", "")]),
            DrawStyle { colour: true, unicode: false }
        );
    }
}
