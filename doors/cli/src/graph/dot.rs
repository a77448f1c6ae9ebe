//! The graph in the language of Graphviz, for other programs that draw.

use std::fmt::Write;

use super::picture::GraphPicture;
use crate::report::count;

/// The graph.
pub(crate) fn dot(picture: &GraphPicture) -> String {
    let mut dot = format!(
        "digraph job {{\n  rankdir=LR;\n  label={};\n  node [shape=box];\n",
        quoted(&picture.title)
    );
    for (index, template) in picture.boxes.iter().enumerate() {
        let states: Vec<_> = template
            .states
            .iter()
            .map(|(state, tasks)| format!("{} {state}", count(*tasks)))
            .collect();
        let label = format!("{}\n{}", template.name, states.join("\n"));
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            dot,
            "  t{index} [label={}, tooltip={}];",
            quoted(&label),
            quoted(&template.command)
        );
    }
    for arrow in &picture.arrows {
        let mark = arrow.kind.mark();
        let label =
            if mark.is_empty() { String::new() } else { format!(" [label={}]", quoted(&mark)) };
        let _ = writeln!(dot, "  t{} -> t{}{label};", arrow.from, arrow.to);
    }
    for sentence in &picture.left_out {
        let _ = writeln!(dot, "  // {sentence}");
    }
    dot.push_str("}\n");
    dot
}

/// Text in double quotes. A backslash begins an escape of Graphviz, so each is doubled.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::super::example::{picture, reads, template};

    #[test]
    fn names_stay_inside_their_quotes() {
        let templates = vec![template(0, "a\"]; evil -> b; \\", 3), template(1, "b", 3)];
        let dot = super::dot(&picture(templates, vec![reads(0, 1, 3)]));
        assert!(dot.contains(r#"t0 [label="a\"]; evil -> b; \\\n3 succeeded""#), "{dot}");
        assert!(dot.contains("t0 -> t1 [label=\"each of its own\"];"), "{dot}");
        assert!(dot.starts_with("digraph job {") && dot.ends_with("}\n"));
    }
}
