//! Several runs side by side, as one page of charts: what was measured, over what was varied. It has the looks of a job's
//! report, and its rules.

use super::page::{CHART_SCRIPT, CHART_STYLE, STYLE, Text, fill};
use serde::Serialize;

const TEMPLATE: &str = include_str!("../../../web/report/plots.html");
const SCRIPT: &str = include_str!("../../../web/report/plots.js");

/// What was varied: in order, and the same for all lines.
#[derive(Serialize)]
pub struct Axis {
    /// With its unit.
    pub label: String,
    /// Ascending.
    pub values: Vec<f64>,
}

/// One chart.
#[derive(Serialize)]
pub struct Plot {
    /// What was measured.
    pub title: &'static str,
    /// What that means.
    pub note: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Lines, in the same order in all charts.
    pub lines: Vec<Line>,
}

/// What was measured of one choice of all else.
#[derive(Serialize)]
pub struct Line {
    /// That choice.
    pub label: String,
    /// For each of the axis's values; nothing where it was not measured.
    pub values: Vec<Option<f64>>,
}

/// The page, one self-contained file.
pub fn plots(title: &str, lead: &str, axis: &Axis, plots: &[Plot]) -> String {
    #[derive(Serialize)]
    struct Data<'a> {
        axis: &'a Axis,
        plots: &'a [Plot],
    }
    // Structs of texts and numbers always become JSON; `<` is escaped so that it cannot end its element.
    let data = serde_json::to_string(&Data { axis, plots }).expect("plots become JSON").replace('<', "\\u003c");
    fill(
        TEMPLATE,
        &[
            ("title", Text(title).to_string()),
            ("lead", Text(lead).to_string()),
            ("chart_style", CHART_STYLE.into()),
            ("style", STYLE.into()),
            ("data", data),
            ("chart_script", CHART_SCRIPT.into()),
            ("script", SCRIPT.into()),
            ("version", env!("CARGO_PKG_VERSION").into()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_it_plots_and_lets_no_name_act() {
        let act = "</script><script>alert(1)</script>";
        let axis = Axis { label: "Nodes".into(), values: vec![1.0, 2.0] };
        let line = Line { label: act.into(), values: vec![Some(3.5), None] };
        let page = plots(act, "4 runs", &axis, &[Plot { title: "Time", note: "", unit: "s", lines: vec![line] }]);
        assert!(!page.contains("<script>alert(1)") && !page.contains("{{"));
        assert!(page.contains(r#""values":[3.5,null]"#) && page.contains("4 runs"));
        assert!(!page.contains("http://") && !page.contains("src=\""), "the page asks for nothing");
    }
}
