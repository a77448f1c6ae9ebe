//! The report as one page. `doors/cli/web` has the template, the style and the script, and uPlot
//! draws the charts; this file puts them and the figures of the job into one text.
//!
//! Everything but the charts is written here, so that it can be read without a script. Text from
//! users (names, failures, warnings) always goes through [`EscapedText`]; the script gets numbers
//! only.

use super::amount::{bits_per_second, count, counted, duration, moment, number, share, times};
use super::course::{SampleColumns, condense, per_second};
use super::details::JobDetails;
use super::escaped::{EscapedText, fill};
use super::facts::{is_simulated, node_hours, nodes_of};
use super::figure::{Breakdown, Figure, breakdowns, comparisons, figures};
use super::{failures, provenance, tasks};
use eyas_types::task::DONE_EARLIER;
use eyas_types::units::format_bytes;
use eyas_wire::view::{JobReport, JobState, Sample};
use serde::Serialize;
use std::fmt::Write;

const TEMPLATE: &str = include_str!("../../web/report.html");
pub(super) const STYLE: &str = include_str!("../../web/report.css");
const SCRIPT: &str = include_str!("../../web/report.js");
const TASKS_SCRIPT: &str = include_str!("../../web/tasks.js");
pub(super) const CHART_STYLE: &str = include_str!("../../web/vendor/uplot-1.6.32/uPlot.min.css");
pub(super) const CHART_SCRIPT: &str =
    include_str!("../../web/vendor/uplot-1.6.32/uPlot.iife.min.js");

/// Maximum number of rows of the table of samples. A longer list is condensed; the CSV has every
/// sample.
const TABLE_ROWS: usize = 60;

/// The page. See [`super::html`].
pub fn html(
    report: &JobReport,
    details: Option<&JobDetails>,
    baseline: Option<&JobReport>,
) -> String {
    let of_details = |section: fn(&JobDetails, &JobReport) -> String| {
        details.map(|details| section(details, report)).unwrap_or_default()
    };
    let graph = details.and_then(|details| details.graph.as_ref());
    let blank = |section: String, show: bool| if show { section } else { String::new() };
    let charts = match report.samples.is_empty() {
        true => NO_CHARTS,
        false => CHARTS,
    };
    fill(
        TEMPLATE,
        &[
            ("title", EscapedText(&title(report)).to_string()),
            ("chart_style", CHART_STYLE.into()),
            ("style", STYLE.into()),
            ("header", header(report, details.map_or(0, JobDetails::done_earlier))),
            ("figures", figures(report).iter().map(tile).collect()),
            ("breakdowns", breakdowns(report).iter().map(panel).collect()),
            (
                "comparison",
                baseline.map(|baseline| comparison(report, baseline)).unwrap_or_default(),
            ),
            ("charts", charts.into()),
            ("commands", graph.map(provenance::commands).unwrap_or_default()),
            ("failures", failures::section(report, details)),
            ("run_times", of_details(tasks::run_times)),
            ("tasks", of_details(tasks::table)),
            ("provenance", of_details(|details, report| provenance::section(report, details))),
            ("tasks_script", TASKS_SCRIPT.into()),
            ("samples", blank(samples(&report.samples), !report.samples.is_empty())),
            ("data", data(report, baseline)),
            ("chart_script", CHART_SCRIPT.into()),
            ("script", SCRIPT.into()),
            ("version", env!("CARGO_PKG_VERSION").into()),
        ],
    )
}

/// The element in place of the charts while there is no sample.
const NO_CHARTS: &str =
    r#"<p class="note">No sample has been taken of this job yet, so there are no charts.</p>"#;

/// The element into which the script puts the charts.
const CHARTS: &str = r#"<noscript><p class="note">The charts need the script of this page, and
scripts are disabled. The table below has the same numbers.</p></noscript>
<div id="charts"></div>"#;

/// The data for the script, as JSON. `<` is escaped, so that the data cannot end their element.
fn data(report: &JobReport, baseline: Option<&JobReport>) -> String {
    #[derive(Serialize)]
    struct Data {
        job: SampleColumns,
        baseline: Option<SampleColumns>,
    }
    let data = Data {
        job: SampleColumns::of(&report.samples),
        baseline: baseline.filter(|b| !b.samples.is_empty()).map(|b| SampleColumns::of(&b.samples)),
    };
    // Structs of vectors of numbers always become JSON.
    serde_json::to_string(&data).expect("columns become JSON").replace('<', "\\u003c")
}

/// The name of the job, or its id if it has no name.
fn title(report: &JobReport) -> String {
    match report.job.name.trim() {
        "" => format!("Job {}", report.job.job),
        name => name.to_string(),
    }
}

/// Name, state and figures of the job, of which an earlier run had done this number of tasks.
fn header(report: &JobReport, done_earlier: u64) -> String {
    let job = &report.job;
    let (state, class) = match job.state {
        JobState::Running => ("Running", "running"),
        JobState::Succeeded => ("Succeeded", "succeeded"),
        JobState::Failed => ("Failed", "failed"),
        JobState::Cancelled => ("Cancelled", "cancelled"),
    };
    let mut html = format!(
        r#"<p class="kicker">{} <span class="state {class}">{state}</span></p><h1>{}</h1>
<dl class="facts">"#,
        if is_simulated(job) { "Simulated job".into() } else { format!("Job {}", job.job) },
        EscapedText(&title(report))
    );
    let elapsed_us =
        if job.state == JobState::Running { job.elapsed_us } else { report.metrics.elapsed_us };
    let submitted = moment(job.submitted_unix_ms);
    let facts = [
        ("Policy", EscapedText(&report.policy).to_string()),
        ("Tasks", tasks_by_state(report, done_earlier)),
        (
            if job.state == JobState::Running { "Running for" } else { "Elapsed" },
            duration(elapsed_us as f64),
        ),
        (
            "Submitted",
            format!(r#"<time datetime="{}Z">{submitted} UTC</time>"#, submitted.replace(' ', "T")),
        ),
        (
            "Executors",
            format!(
                "{} <small>with {} processors</small>",
                count(job.executors),
                number(job.capacity_milli as f64 / 1e3)
            ),
        ),
        (
            "Peak memory",
            format!("{} <small>of one task</small>", format_bytes(job.peak_memory_bytes)),
        ),
    ];
    let is_known = |name: &str| match name {
        "Submitted" => !is_simulated(job),
        "Peak memory" => job.peak_memory_bytes > 0,
        _ => true,
    };
    let pools = report.pools.iter().map(|pool| {
        let nodes = format!("{} <small>{}</small>", node_hours(pool), nodes_of(pool));
        (format!("Pool {}", EscapedText(&pool.pool)), nodes)
    });
    let facts = facts
        .into_iter()
        .filter(|(name, _)| is_known(name))
        .map(|(name, value)| (name.to_owned(), value));
    for (name, value) in facts.chain(pools) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    html.push_str("</dl>");
    let sentences = provenance::sentences(job);
    if !sentences.is_empty() {
        let _ = write!(html, r#"<p class="said">{}</p>"#, sentences.join(" "));
    }
    for warning in &job.warnings {
        let _ = write!(html, r#"<p class="warning">{}</p>"#, EscapedText(warning));
    }
    html
}

/// The number of tasks, in total and by state. Those that an earlier run had done count apart.
fn tasks_by_state(report: &JobReport, done_earlier: u64) -> String {
    let tasks = &report.job.tasks;
    let counts = [
        (done_earlier, DONE_EARLIER),
        (tasks.succeeded.saturating_sub(done_earlier), "succeeded"),
        (tasks.failed, "failed"),
        (tasks.cancelled, "cancelled"),
        (tasks.assigned, "at executors"),
        (tasks.waiting, "waiting"),
        (tasks.blocked, "waiting for other tasks"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(tasks, _)| *tasks > 0)
        .map(|(tasks, state)| format!("{} {state}", count(*tasks)))
        .collect();
    format!("{} <small>{}</small>", count(tasks.total()), counts.join(", "))
}

/// The symbol of a metric and the section that defines it.
fn origin(sign: &str, section: &str) -> String {
    match sign {
        "" => format!(r#"<span class="origin">{section}</span>"#),
        _ => format!(r#"<span class="origin"><i>{sign}</i> · {section}</span>"#),
    }
}

fn tile(figure: &Figure) -> String {
    let Figure { name, sign, value, beside, meaning, section } = figure;
    let origin = origin(sign, section);
    format!(
        r#"<section class="tile"><h3>{name}</h3><p class="value">{value}</p>
<p class="beside">{beside}</p><p class="meaning">{meaning} {origin}</p></section>"#
    )
}

fn panel(breakdown: &Breakdown) -> String {
    let Breakdown { name, sign, value, meaning, section, parts, nothing } = breakdown;
    let mut html = format!(r#"<section class="tile"><h3>{name}</h3><p class="value">{value}</p>"#);
    if breakdown.is_something() {
        html.push_str(r#"<div class="bar" aria-hidden="true">"#);
        for part in parts.iter().filter(|part| part.size > 0.0) {
            let _ = write!(
                html,
                r#"<span class="{}" style="flex-grow:{:.4}"></span>"#,
                part.class,
                breakdown.share(part)
            );
        }
        html.push_str(r#"</div><table class="parts">"#);
        for part in parts {
            let share = share(breakdown.share(part));
            let _ = write!(
                html,
                r#"<tr><th scope="row"><span class="mark {}"></span>{}</th><td>{share}</td>
<td>{}</td></tr>"#,
                part.class, part.name, part.value
            );
        }
        html.push_str("</table>");
    } else {
        let _ = write!(html, r#"<p class="beside">{nothing}</p>"#);
    }
    let _ = write!(html, r#"<p class="meaning">{meaning} {}</p></section>"#, origin(sign, section));
    html
}

fn comparison(report: &JobReport, baseline: &JobReport) -> String {
    let mut html = format!(
        r#"<section><h2>Comparison with the baseline</h2>
<p class="lead">Job {}, <q>{}</q>, under <b>{}</b>; {}.</p>
<div class="scroll"><table class="rows"><thead><tr>
<th scope="col">Metric</th><th scope="col">This job</th><th scope="col">Baseline</th>
<th scope="col">Ratio</th><th scope="col" class="words">Meaning</th></tr></thead><tbody>"#,
        baseline.job.job,
        EscapedText(&title(baseline)),
        EscapedText(&baseline.policy),
        counted(baseline.job.tasks.total(), "task")
    );
    for row in comparisons(report, baseline) {
        let ratio = times(row.ratio);
        // A ratio that rounds to 1.00 is neither better nor worse.
        let verdict = match row.more_is_better {
            Some(more) if row.ratio.is_finite() && (row.ratio - 1.0).abs() >= 0.005 => {
                match (row.ratio > 1.0) == more {
                    true => r#" <span class="better">better</span>"#,
                    false => r#" <span class="worse">worse</span>"#,
                }
            }
            _ => "",
        };
        let _ = write!(
            html,
            r#"<tr><th scope="row">{}</th><td>{}</td><td>{}</td><td>{ratio}{verdict}</td>
<td class="words">{}</td></tr>"#,
            row.name, row.this, row.baseline, row.meaning
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}

/// The samples as a table, which has the same data as the charts.
fn samples(samples: &[Sample]) -> String {
    const HEADS: [(&str, &str); 13] = [
        ("Until", "End of the interval, from the submission of the job"),
        ("Arrived", "Tasks that became ready to run"),
        ("Ended", "Tasks that ended"),
        ("Demand", "Input bytes of the tasks that arrived, per second"),
        ("Throughput", "Input bytes that were read from all sources, per second"),
        ("Local", "Read from the disk of the task's own node (hits)"),
        ("Peer", "Read from the disks of other nodes"),
        ("Persistent", "Read from the storage that the job named"),
        ("Files", "Read from files of the cluster"),
        ("Waiting", "Tasks that are ready to run and have no executor"),
        ("Executors", "Processes that run tasks, one on each node"),
        ("Processors", "Processors of all executors"),
        ("Utilisation", "Share of the processors that run a task"),
    ];
    let rows = condense(samples, TABLE_ROWS);
    let extent = match rows.len() < samples.len() {
        true => format!("{} samples, merged into {} rows", count(samples.len() as u64), rows.len()),
        false => counted(samples.len() as u64, "sample"),
    };
    let mut html = format!(
        r#"<details><summary>Samples as a table <small>{extent}</small></summary>
<div class="scroll"><table class="rows"><thead><tr>"#
    );
    for (head, meaning) in HEADS {
        let _ = write!(html, r#"<th scope="col" title="{meaning}">{head}</th>"#);
    }
    html.push_str("</tr></thead><tbody>");
    for sample in &rows {
        let rate = |bytes| bits_per_second(per_second(bytes, sample.interval_us));
        let cells = [
            count(sample.arrived),
            count(sample.ended),
            rate(sample.arrived_bytes),
            rate(sample.reads.bytes()),
            format_bytes(sample.reads.local.bytes),
            format_bytes(sample.reads.peer.bytes),
            format_bytes(sample.reads.persistent.bytes),
            format_bytes(sample.reads.files.bytes()),
            count(sample.waiting),
            count(sample.executors),
            number(sample.capacity_milli as f64 / 1e3),
            share(sample.busy_milli as f64 / sample.capacity_milli as f64),
        ];
        let _ = write!(html, r#"<tr><th scope="row">{}</th>"#, duration(sample.at_us as f64));
        for cell in cells {
            let _ = write!(html, "<td>{cell}</td>");
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></details>");
    html
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    /// The page without the vendored parts, which are the same in every page.
    fn of_the_job(page: &str) -> String {
        [CHART_SCRIPT, CHART_STYLE]
            .iter()
            .fold(page.to_string(), |page, vendored| page.replace(vendored, ""))
    }

    fn data_of(page: &str) -> serde_json::Value {
        let (_, data) =
            page.split_once(r#"<script type="application/json" id="data">"#).expect("data");
        let (data, _) = data.split_once("</script>").expect("the end of the data");
        serde_json::from_str(data).expect("valid JSON")
    }

    #[test]
    fn text_from_users_does_not_act() {
        let page = html(&example::hostile(), Some(&example::details()), Some(&example::hostile()));
        for act in ["<script>alert", "<img", "</script><", "onerror=\"", "\u{1b}", "\u{0}"] {
            assert!(!of_the_job(&page).contains(act), "{act}");
        }
        assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"));
        let plain = html(&example::diffusion(), None, None);
        let elements = |page: &str| page.matches("<script").count();
        assert_eq!(elements(&page), elements(&plain));
        assert_eq!(page.matches("</script").count(), plain.matches("</script").count());
    }

    #[test]
    fn the_page_has_commands_run_times_tasks_and_a_paragraph() {
        let page = of_the_job(&html(&example::diffusion(), Some(&example::details()), None));
        for part in [
            "<h2>Commands</h2>",
            "stack {} &#39;a b&#39;",
            "<svg class=\"histogram\"",
            "<h3>Slowest tasks</h3>",
            "<details id=\"tasks\">",
            "exit code 2 <small>41 tasks</small>",
            "&lt;script&gt;alert(3)&lt;/script&gt;.fits",
            "digest of their versions is 0123abcd",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let without = of_the_job(&html(&example::diffusion(), None, None));
        assert!(!without.contains("<h2>Commands</h2>") && !without.contains("id=\"tasks\""));
    }

    #[test]
    fn a_name_that_looks_like_a_placeholder_stays_a_name() {
        let mut report = example::diffusion();
        report.job.name = "{{script}} {{data}}".into();
        assert_eq!(
            html(&report, None, None).matches("{{script}} {{data}}").count(),
            2,
            "in the title and in the heading"
        );
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = html(
            &example::diffusion(),
            Some(&example::details()),
            Some(&example::persistent_only()),
        );
        // uPlot has the address of its repository in a comment; it is the only address in the page.
        let home = "/*! https://github.com/leeoniya/uPlot (v1.6.32) */";
        let page = page.replacen(home, "", 1);
        for load in [
            "http:",
            "https:",
            "src=",
            "@import",
            "url(",
            "fetch(",
            "XMLHttpRequest",
            "import(",
            "sourceMappingURL",
        ] {
            assert!(!page.contains(load), "{load}");
        }
        assert_eq!(page.matches("href=").count(), page.matches("href=\"data:,\"").count());
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn the_script_gets_columns_of_numbers() {
        let report = example::diffusion();
        let data = data_of(&html(&report, None, Some(&example::persistent_only())));
        let job = data["job"].as_object().expect("columns");
        assert_eq!(job.len(), 18);
        for (name, column) in job {
            let column = column.as_array().expect(name);
            assert_eq!(column.len(), report.samples.len(), "{name}");
            assert!(column.iter().all(serde_json::Value::is_u64), "{name}");
        }
        assert_eq!(job["peer_bytes"][100], report.samples[100].reads.peer.bytes);
        assert_eq!(job["waiting"][100], report.samples[100].waiting);
        assert!(data["baseline"]["at_us"].is_array());
        assert!(data_of(&html(&report, None, Some(&example::empty())))["baseline"].is_null());
    }

    #[test]
    fn the_script_uses_columns_that_exist() {
        let data = data_of(&html(&example::diffusion(), None, None));
        for (_, after) in SCRIPT
            .match_indices("columns.")
            .map(|(place, found)| SCRIPT.split_at(place + found.len()))
        {
            let name: String =
                after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(data["job"][&name].is_array(), "{name}");
        }
    }

    #[test]
    fn an_empty_job_has_a_page() {
        let page = of_the_job(&html(
            &example::empty(),
            Some(&JobDetails::default()),
            Some(&example::empty()),
        ));
        assert!(page.contains("No sample has been taken"));
        assert!(!page.contains(r#"<div id="charts">"#));
        for wrong in [">NaN", "NaN<", "inf×", ">inf", "NaN "] {
            assert!(!page.contains(wrong), "{wrong}");
        }
    }

    /// Writes pages to look at in a browser: `cargo test -p eyas-cli report_pages -- --ignored
    /// --nocapture`.
    #[test]
    #[ignore = "makes pages for a person to look at"]
    fn report_pages() {
        let folder = std::env::temp_dir().join("eyas-report-pages");
        std::fs::create_dir_all(&folder).expect("a folder for pages");
        let (diffusion, persistent) = (example::diffusion(), example::persistent_only());
        let mut one = example::diffusion();
        one.samples.drain(1..);
        for (name, page) in [
            ("job", html(&diffusion, Some(&example::details()), None)),
            ("baseline", html(&diffusion, None, Some(&persistent))),
            ("persistent", html(&persistent, None, None)),
            ("long", html(&example::long(), None, None)),
            ("one", html(&one, None, None)),
            ("empty", html(&example::empty(), None, None)),
            (
                "hostile",
                html(&example::hostile(), Some(&example::details()), Some(&example::hostile())),
            ),
        ] {
            let file = folder.join(name).with_extension("html");
            std::fs::write(&file, page).expect("a page");
            println!("{}", file.display());
        }
        for report in [&diffusion, &persistent, &example::empty(), &example::hostile()] {
            println!("{}", super::super::table(report, None));
        }
    }
}
