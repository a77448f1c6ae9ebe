//! The files of the page, and those for Prometheus and Grafana, which are a part of the program.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const YAML: &str = "application/yaml; charset=utf-8";
const JSON: &str = "application/json";

/// Path, type and content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../page/index.html")),
    ("/page/style.css", STYLE, include_str!("../page/style.css")),
    ("/page/app.js", SCRIPT, include_str!("../page/app.js")),
    ("/page/cluster.js", SCRIPT, include_str!("../page/cluster.js")),
    ("/page/base.js", SCRIPT, include_str!("../page/base.js")),
    ("/page/words.js", SCRIPT, include_str!("../page/words.js")),
    ("/page/parts.js", SCRIPT, include_str!("../page/parts.js")),
    ("/page/jobs.js", SCRIPT, include_str!("../page/jobs.js")),
    ("/page/job.js", SCRIPT, include_str!("../page/job.js")),
    ("/page/charts.js", SCRIPT, include_str!("../page/charts.js")),
    ("/page/task_details.js", SCRIPT, include_str!("../page/task_details.js")),
    ("/page/timeline.js", SCRIPT, include_str!("../page/timeline.js")),
    ("/page/timeline_drawing.js", SCRIPT, include_str!("../page/timeline_drawing.js")),
    ("/page/nodes.js", SCRIPT, include_str!("../page/nodes.js")),
    ("/page/preact.js", SCRIPT, include_str!("../page/vendor/preact-10.29.8/preact.module.js")),
    ("/monitoring/alerts.yaml", YAML, include_str!("../monitoring/alerts.yaml")),
    ("/monitoring/dashboard.json", JSON, include_str!("../monitoring/dashboard.json")),
    ("/page/htm.js", SCRIPT, include_str!("../page/vendor/htm-3.1.1/htm.module.js")),
];

/// Paths of views, which the script of the page shows: each view has a URL of its own.
fn is_view(path: &str) -> bool {
    path == "/nodes" || path.strip_prefix("/jobs/").is_some_and(|job| !job.contains('/'))
}

/// Stands in the page for the beginning of paths.
const BASE: &str = "{base}";

/// A file of the page, or the page itself for the path of a view. `base` is the beginning of paths,
/// as browsers see them.
pub(crate) fn answer(uri: &Uri, base: &str) -> Response {
    let path = if is_view(uri.path()) { "/" } else { uri.path() };
    let Some((_, kind, content)) = FILES.iter().find(|(file, ..)| *file == path) else {
        return (StatusCode::NOT_FOUND, "there is nothing here\n").into_response();
    };
    let kind_header = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    match *kind == HTML {
        true => (kind_header, content.replace(BASE, base)).into_response(),
        false => (kind_header, *content).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_have_the_page_and_files_are_complete() {
        let status = |path: &str| answer(&path.parse().unwrap(), "").status();
        for path in ["/", "/nodes", "/jobs/7", "/page/app.js"] {
            assert_eq!(status(path), StatusCode::OK, "{path}");
        }
        for path in ["/jobs/7/x", "/page/", "/x", "/page/../Cargo.toml"] {
            assert_eq!(status(path), StatusCode::NOT_FOUND, "{path}");
        }
        // What a script imports is served.
        for (file, _, text) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for name in text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert_eq!(status(&format!("/page/{name}")), StatusCode::OK, "{file}: {name}");
            }
        }
    }
}
