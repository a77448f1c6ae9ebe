//! Tables of rows and columns. On a narrow terminal, the least important columns are left out, and
//! names and bars shrink. Numbers are never cut, because a cut number would look like another
//! number.

use super::canvas::{Canvas, fit};
use super::cells::{Style, width_of};

/// A column: its heading, width and importance.
pub(crate) struct Column {
    pub heading: &'static str,
    /// Minimum width in cells; a column that does not grow is at least as wide as its widest cell.
    pub min: u16,
    /// Maximum width in cells: the column grows up to this if there is room. Equal to `min` if it
    /// does not grow.
    pub max: u16,
    /// Columns of the highest rank are left out first; columns of rank 0 are always shown.
    pub rank: u8,
    pub is_right: bool,
}

/// The content of one column in one row.
pub(crate) enum Cell {
    Text(String, Style),
    /// A share from 0 to 1, as a bar with its percentage.
    Bar(f64, Style),
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Cell::Text(text.into(), Style::PLAIN)
    }
}

/// Draws rows under headings; the row with index `chosen` is highlighted.
pub(crate) fn draw(
    canvas: &mut Canvas,
    columns: &[Column],
    rows: &[Vec<Cell>],
    chosen: Option<usize>,
) {
    let heading = |column: &Column| Cell::Text(column.heading.into(), Style::DIM);
    let headings: Vec<_> = columns.iter().map(heading).collect();
    let area = canvas.area;
    let widths = widths(columns, rows, area.width);
    for (row, cells) in (0..area.height).zip(std::iter::once(&headings).chain(rows)) {
        let mut x = 0;
        for (place, width) in &widths {
            draw_cell(canvas, (x, row), *width, &cells[*place], columns[*place].is_right);
            x += width + 1;
        }
        if chosen.is_some_and(|chosen| usize::from(row) == chosen + 1) {
            canvas.buffer.style_row(area.top + row, Style::REVERSED);
        }
    }
}

fn draw_cell(canvas: &mut Canvas, (x, row): (u16, u16), width: u16, cell: &Cell, is_right: bool) {
    let y = canvas.area.top + row;
    match cell {
        Cell::Text(text, style) => {
            let text = fit(text, width, canvas.style);
            let indent = if is_right { width - width_of(&text) } else { 0 };
            canvas.buffer.write(x + indent, y, &text, *style);
        }
        Cell::Bar(share, style) => {
            let percent = fit(&format!(" {:3.0}%", (100.0 * share).floor()), width, canvas.style);
            let bar_width = width - width_of(&percent);
            canvas.bar(x, row, bar_width, *share, *style);
            canvas.buffer.write(x + bar_width, y, &percent, Style::PLAIN);
        }
    }
}

/// The index and width of each column that there is room for, with one cell between two columns.
fn widths(columns: &[Column], rows: &[Vec<Cell>], room: u16) -> Vec<(usize, u16)> {
    let needed = |place: usize| {
        let column = &columns[place];
        let content = rows.iter().map(|row| match &row[place] {
            Cell::Text(text, _) if column.max == column.min => width_of(text),
            _ => 0,
        });
        content.max().unwrap_or(0).max(column.min).max(width_of(column.heading))
    };
    let mut kept: Vec<_> = (0..columns.len()).map(|place| (place, needed(place))).collect();
    let taken = |kept: &[(usize, u16)]| {
        kept.iter().map(|(_, width)| usize::from(*width) + 1).sum::<usize>().saturating_sub(1)
    };
    while taken(&kept) > usize::from(room) {
        let least = kept.iter().map(|(place, _)| columns[*place].rank).max().unwrap_or(0);
        if least == 0 {
            break;
        }
        kept.retain(|(place, _)| columns[*place].rank < least);
    }
    let mut left = usize::from(room).saturating_sub(taken(&kept));
    while left > 0 {
        let mut grew = false;
        for (place, width) in &mut kept {
            if left > 0 && *width < columns[*place].max {
                *width += 1;
                left -= 1;
                grew = true;
            }
        }
        if !grew {
            break;
        }
    }
    // The columns of rank 0 may still be too wide together.
    let mut room = room;
    for (_, width) in &mut kept {
        *width = (*width).min(room);
        room = room.saturating_sub(*width + 1);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::canvas::DrawStyle;
    use super::super::cells::Buffer;
    use super::*;

    const PLAIN: DrawStyle = DrawStyle { colour: false, unicode: false };

    fn columns() -> [Column; 3] {
        let column =
            |heading, min, max, rank| Column { heading, min, max, rank, is_right: rank == 2 };
        [column("NAME", 4, 8, 0), column("DONE", 6, 20, 1), column("RATE", 4, 4, 2)]
    }

    fn rows() -> Vec<Vec<Cell>> {
        let row = |name, share, rate| {
            vec![Cell::text(name), Cell::Bar(share, Style::PLAIN), Cell::text(rate)]
        };
        vec![row("a-long-name", 0.5, "1234/s"), row("b", 0.999, "1/s")]
    }

    fn drawn(width: u16) -> Vec<String> {
        let mut buffer = Buffer::blank(width, 3);
        let area = buffer.area;
        draw(&mut Canvas { buffer: &mut buffer, area, style: PLAIN }, &columns(), &rows(), Some(1));
        buffer.text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn columns_shrink_and_leave_where_it_is_narrow() {
        assert_eq!(
            drawn(31),
            [
                "NAME     DONE              RATE",
                "a-long-~ #####.....  50% 1234/s",
                "b        #########.  99%    1/s"
            ]
        );
        assert_eq!(drawn(18), ["NAME DONE     RATE", "a-l~ .  50% 1234/s", "b    .  99%    1/s"]);
        assert_eq!(drawn(15), ["NAME   DONE", "a-lon~ #..  50%", "b      ##.  99%"]);
        assert_eq!(drawn(3), ["NA~", "a-~", "b"]);
        assert_eq!(drawn(0), ["", "", ""]);
    }
}
