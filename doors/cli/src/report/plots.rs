//! Several runs side by side, as one page of charts: each chart shows one measured value over the
//! varied parameter. The page has the style and the rules of a job's report.

use super::escaped::{EscapedText, fill};
use super::page::{CHART_SCRIPT, CHART_STYLE, STYLE};
use serde::Serialize;

const TEMPLATE: &str = include_str!("../../web/plots.html");
const SCRIPT: &str = include_str!("../../web/plots.js");

/// The varied parameter, which all charts have on their horizontal axis.
#[derive(Serialize)]
pub struct Axis {
    /// Name of the parameter, with its unit.
    pub label: String,
    /// Values in ascending order.
    pub values: Vec<f64>,
}

/// One chart: one measured value.
#[derive(Serialize)]
pub struct Plot {
    /// Name of the measured value.
    pub title: &'static str,
    /// Meaning of the value, in a line.
    pub note: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// The lines, in the same order in all charts.
    pub lines: Vec<PlotLine>,
}

/// The measured values of one combination of the other parameters.
#[derive(Serialize)]
pub struct PlotLine {
    /// Name of the combination.
    pub label: String,
    /// One value for each value of the axis; `None` where there is no measurement.
    pub values: Vec<Option<f64>>,
}

/// The page, one self-contained file.
pub fn plots(title: &str, lead: &str, axis: &Axis, plots: &[Plot]) -> String {
    #[derive(Serialize)]
    struct Data<'a> {
        axis: &'a Axis,
        plots: &'a [Plot],
    }
    // Structs of texts and numbers always become JSON. `<` is escaped so that a text cannot end the
    // script element.
    let data = serde_json::to_string(&Data { axis, plots })
        .expect("plots become JSON")
        .replace('<', "\\u003c");
    fill(
        TEMPLATE,
        &[
            ("title", EscapedText(title).to_string()),
            ("lead", EscapedText(lead).to_string()),
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
    fn a_page_shows_its_plots_and_no_name_acts_as_markup() {
        let act = "</script><script>alert(1)</script>";
        let axis = Axis { label: "Nodes".into(), values: vec![1.0, 2.0] };
        let line = PlotLine { label: act.into(), values: vec![Some(3.5), None] };
        let page = plots(
            act,
            "4 runs",
            &axis,
            &[Plot { title: "Time", note: "", unit: "s", lines: vec![line] }],
        );
        assert!(!page.contains("<script>alert(1)") && !page.contains("{{"));
        assert!(page.contains(r#""values":[3.5,null]"#) && page.contains("4 runs"));
        assert!(!page.contains("http://") && !page.contains("src=\""), "the page loads nothing");
    }
}
