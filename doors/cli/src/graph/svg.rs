//! The graph as SVG. Letters have a fixed width, so that text fits in its box with every font. The
//! colours follow the light or dark style of whoever shows the picture. Text from users always goes
//! through [`EscapedText`].

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

use super::layers::{LayerItem, Layers};
use super::picture::{GraphPicture, ReadArrow, ReadKind, TemplateBox};
use super::places::{BoxPlace, BoxPlaces};
use crate::report::{EscapedText, count, counted};

/// Width of a letter in units of its size. Fonts with letters of one width have 0.6 or less.
const LETTER: f64 = 0.61;
const NAME_SIZE: f64 = 13.0;
const TEXT_SIZE: f64 = 11.0;
/// Letters of a name and of other text in a box; longer text is cut.
const NAME_LETTERS: usize = 26;
const TEXT_LETTERS: usize = 32;
/// Space between text and the border of its box, and around the picture.
const PADDING: f64 = 12.0;
const MARGIN: f64 = 34.0;
const LINE: f64 = 16.0;
/// Widths of boxes.
const MIN_BOX: f64 = 130.0;
const MIN_PICTURE: f64 = 660.0;
/// Side of the square before a state.
const SQUARE: f64 = 8.0;

const STYLE: &str = "
text { font-family: ui-monospace, 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace; \
font-size: 11px; fill: #5a6572; }
.page { fill: #ffffff; }
.box { fill: #f6f7f8; stroke: #b6bfc9; }
.name, .job { font-size: 13px; font-weight: 600; fill: #1b2026; }
.arrow { fill: none; stroke: #8a94a0; stroke-width: 1.3; }
.head { fill: #8a94a0; }
.mark { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.succeeded { fill: #009e73; }
.failed { fill: #c8402a; }
.cancelled { fill: #7a5cb8; }
.assigned { fill: #2a62a8; }
.waiting { fill: #d9a520; }
.blocked { fill: #8a94a0; }
@media (prefers-color-scheme: dark) {
text { fill: #9ba7b4; }
.page { fill: #12161a; }
.box { fill: #1a2026; stroke: #4a5561; }
.name, .job { fill: #e8ecf0; }
.mark { stroke: #12161a; }
.succeeded { fill: #17a67c; }
.failed { fill: #e0624c; }
.cancelled { fill: #9a80d8; }
.assigned { fill: #6aa9ee; }
}
";

/// The picture.
pub(crate) fn svg(picture: &GraphPicture) -> String {
    let sizes: Vec<_> = picture.boxes.iter().map(size_of).collect();
    let arrows: Vec<_> = picture.arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect();
    let layers = Layers::of(sizes.len(), &arrows);
    let places = BoxPlaces::of(&layers, &sizes);
    let notes = notes(picture);
    let title_width = letters(&picture.title) as f64 * NAME_SIZE * LETTER;
    let width = places.width.max(title_width).max(MIN_PICTURE) + 2.0 * MARGIN;
    let top = MARGIN + 2.0 * LINE;
    let bottom = top + places.height + MARGIN;
    let height = bottom + notes.len() as f64 * LINE + MARGIN / 2.0;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}"
width="{width:.0}" height="{height:.0}" role="img" aria-label="{}">
<style>{STYLE}</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"
markerHeight="8" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>
<rect class="page" width="{width:.0}" height="{height:.0}"/>
<text class="job" x="{MARGIN}" y="{:.1}">{}</text>
"#,
        EscapedText(&format!("Graph of {}", picture.title)),
        MARGIN,
        EscapedText(&picture.title)
    );
    let place_of = |stop: &LayerItem| {
        let place = places.of[stop];
        BoxPlace { x: place.x + MARGIN, y: place.y + top, ..place }
    };
    // Arrows stand below the boxes, and their marks above all arrows.
    let mut marks = String::new();
    for (arrow, path) in picture.arrows.iter().zip(&layers.paths) {
        let path: Vec<_> = path.iter().map(place_of).collect();
        draw_arrow(&mut svg, &mut marks, arrow, &path);
    }
    svg.push_str(&marks);
    for (index, template) in picture.boxes.iter().enumerate() {
        draw_box(&mut svg, template, &place_of(&LayerItem::Template(index)));
    }
    for (number, note) in notes.iter().enumerate() {
        let y = bottom + number as f64 * LINE;
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(svg, r#"<text x="{MARGIN}" y="{y:.1}">{}</text>"#, EscapedText(note));
    }
    svg.push_str("</svg>\n");
    svg
}

/// What the reader needs to know of the picture, and what it leaves out.
fn notes(picture: &GraphPicture) -> Vec<String> {
    let mut notes = Vec::new();
    if !picture.arrows.is_empty() {
        notes.push("An arrow leads from tasks to the tasks that read their outputs.".to_owned());
    }
    let has = |kind| picture.arrows.iter().any(|arrow| arrow.kind == kind);
    if has(ReadKind::Elements) {
        notes.push("each of its own: the first task reads of the first, and so on".into());
    }
    if has(ReadKind::All) {
        notes.push("all: each task reads outputs of all tasks".into());
    }
    notes.extend(picture.left_out.iter().cloned());
    notes
}

/// The lines of a box: name, command, number of tasks.
fn lines_of(template: &TemplateBox) -> (String, Vec<String>) {
    let mut lines = Vec::new();
    if !template.command.is_empty() {
        lines.push(cut(&template.command, TEXT_LETTERS));
    }
    lines.push(counted(template.tasks, "task"));
    (cut(&template.name, NAME_LETTERS), lines)
}

fn state_text(state: &str, tasks: u64) -> String {
    format!("{} {state}", count(tasks))
}

/// Width and height of a box.
fn size_of(template: &TemplateBox) -> (f64, f64) {
    let (name, lines) = lines_of(template);
    let width = |text: &str, size: f64| letters(text) as f64 * size * LETTER;
    let states = template
        .states
        .iter()
        .map(|(state, tasks)| width(&state_text(state, *tasks), TEXT_SIZE) + SQUARE + 6.0);
    let widest = lines
        .iter()
        .map(|line| width(line, TEXT_SIZE))
        .chain(states)
        .fold(width(&name, NAME_SIZE), f64::max);
    let rows = 1 + lines.len() + template.states.len();
    let bar = if template.states.is_empty() { 0.0 } else { LINE };
    ((widest + 2.0 * PADDING).max(MIN_BOX), rows as f64 * LINE + bar + 1.5 * PADDING)
}

fn draw_box(svg: &mut String, template: &TemplateBox, place: &BoxPlace) {
    let (name, lines) = lines_of(template);
    let BoxPlace { x, y, width, height } = *place;
    let left = x + PADDING;
    let mut row = y + PADDING / 2.0 + LINE;
    let _ = write!(
        svg,
        r#"<g class="template"><title>{}</title>
<rect class="box" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="7"/>
<text class="name" x="{left:.1}" y="{row:.1}">{}</text>"#,
        EscapedText(&format!("{}: {}", template.name, template.command)),
        EscapedText(&name)
    );
    for line in lines {
        row += LINE;
        let _ = write!(svg, r#"<text x="{left:.1}" y="{row:.1}">{}</text>"#, EscapedText(&line));
    }
    if !template.states.is_empty() {
        row += LINE;
        draw_bar(svg, template, left, row - 9.0, width - 2.0 * PADDING);
    }
    for (state, tasks) in &template.states {
        row += LINE;
        let _ = write!(
            svg,
            r#"
<rect class="{state}" x="{left:.1}" y="{:.1}" width="{SQUARE}" height="{SQUARE}"/>
<text x="{:.1}" y="{row:.1}">{}</text>"#,
            row - SQUARE,
            left + SQUARE + 6.0,
            state_text(state, *tasks)
        );
    }
    svg.push_str("</g>\n");
}

/// The states as parts of a bar.
fn draw_bar(svg: &mut String, template: &TemplateBox, mut x: f64, y: f64, width: f64) {
    for (state, tasks) in &template.states {
        let part = width * *tasks as f64 / template.tasks.max(1) as f64;
        let _ = write!(
            svg,
            r#"<rect class="{state}" x="{x:.1}" y="{y:.1}" width="{part:.1}" height="6"/>"#
        );
        x += part;
    }
}

/// Draws an arrow along its stops, and its mark beside the last step.
fn draw_arrow(svg: &mut String, marks: &mut String, arrow: &ReadArrow, path: &[BoxPlace]) {
    let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
    let right = first.x + first.width;
    let (line, mark_x, mark_y) = if arrow.from == arrow.to {
        let (y, end) = (first.y, right - 24.0);
        let line = format!(
            "M{right:.1} {:.1}C{:.1} {:.1} {end:.1} {:.1} {end:.1} {y:.1}",
            y + 14.0,
            right + 30.0,
            y + 14.0,
            y - 30.0
        );
        (line, right + 8.0, y - 12.0)
    } else {
        let (mut x, mut y) = (right, first.middle());
        let mut line = format!("M{x:.1} {y:.1}");
        let (mut mark_x, mut mark_y) = (x, y);
        for stop in &path[1..] {
            let (to_x, to_y) = (stop.x, stop.middle());
            let bend = ((to_x - x).abs() / 2.0).max(40.0);
            let _ = write!(
                line,
                "C{:.1} {y:.1} {:.1} {to_y:.1} {to_x:.1} {to_y:.1}",
                x + bend,
                to_x - bend
            );
            (mark_x, mark_y) = ((x + to_x) / 2.0, (y + to_y) / 2.0 - 5.0);
            (x, y) = (to_x, to_y);
            if stop != last {
                x += stop.width;
                let _ = write!(line, "L{x:.1} {y:.1}");
            }
        }
        (line, mark_x, mark_y)
    };
    let _ = writeln!(svg, r#"<path class="arrow" d="{line}" marker-end="url(#head)"/>"#);
    let mark = arrow.kind.mark();
    if !mark.is_empty() {
        let _ = writeln!(
            marks,
            r#"<text class="mark" x="{mark_x:.1}" y="{mark_y:.1}"
text-anchor="middle">{mark}</text>"#
        );
    }
}

/// The width of a text in letters; some characters are as wide as two.
fn letters(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(1)).sum()
}

/// The text, or its beginning if it is wider than this.
fn cut(text: &str, most: usize) -> String {
    if letters(text) <= most {
        return text.to_owned();
    }
    let mut width = 0;
    let fits = |letter: &char| {
        width += letter.width().unwrap_or(1);
        width < most
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::example::{picture, reads, template};
    use super::*;

    #[test]
    fn text_fits_in_its_box() {
        for name in ["a", &"W".repeat(500), &"漢".repeat(500)] {
            let picture = picture(vec![template(0, name, 1_000_000)], Vec::new());
            let (width, _) = size_of(&picture.boxes[0]);
            let (name, lines) = lines_of(&picture.boxes[0]);
            let room = width - 2.0 * PADDING;
            assert!(letters(&name) as f64 * NAME_SIZE * LETTER <= room, "{name}");
            for line in lines {
                assert!(letters(&line) as f64 * TEXT_SIZE * LETTER <= room, "{line}");
            }
        }
        assert_eq!((cut("abcd", 4), cut("abcde", 4)), ("abcd".into(), "abc…".into()));
    }

    #[test]
    fn names_do_not_act_as_markup() {
        let act = "</text><script>alert(1)</script>\u{1b}\u{0}\u{fffe}&\"";
        let svg = super::svg(&picture(
            vec![template(0, act, 2), template(1, act, 2)],
            vec![reads(0, 1, 4)],
        ));
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}') && !svg.contains('\u{fffe}'));
        assert!(svg.contains("&lt;/text&gt;&lt;script&gt;"));
        assert!(svg.contains(">all</text>"));
    }

    #[test]
    fn large_graphs_are_drawn() {
        let templates = (0..2000).map(|number| template(number, "t", 1)).collect();
        let dense = (0..60).flat_map(|to| (0..to).map(move |from| reads(from, to, 1))).collect();
        let svg = super::svg(&picture(templates, dense));
        assert!(svg.contains("left out"));
        assert!(svg.len() < 4_000_000, "{}", svg.len());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_graph_and_circles_are_drawn() {
        let svg = super::svg(&picture(Vec::new(), Vec::new()));
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let circle = vec![reads(0, 1, 1), reads(1, 0, 1), reads(1, 1, 1)];
        let svg = super::svg(&picture(vec![template(0, "a", 1), template(1, "b", 2)], circle));
        assert_eq!(svg.matches("class=\"arrow\"").count(), 3);
    }
}
